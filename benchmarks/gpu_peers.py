"""What people would use instead on a GPU: textures, literal attention, a trained network, Chebyshev series in PyTorch."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

PI = math.pi

TARGETS: dict[str, tuple[list[tuple[float, float]], Any]] = {
    "sum": ([(-PI, PI)] * 2, lambda x: torch.sin(x[:, 0]) + torch.cos(x[:, 1])),
    "product": ([(-PI, PI)] * 2, lambda x: torch.sin(x[:, 0]) * torch.cos(x[:, 1])),
    "franke": ([(0.0, 1.0)] * 2, lambda x: _franke(9 * x[:, 0], 9 * x[:, 1])),
    "runge": ([(-1.0, 1.0)], lambda x: 1 / (1 + 25 * x[:, 0] ** 2)),
    "gauss": ([(-2.0, 2.0)] * 3, lambda x: torch.exp(-(x * x).sum(dim=1))),
    "coupled": ([(-1.0, 1.0)] * 3, lambda x: torch.cos(x[:, 0] * x[:, 1] + x[:, 2])),
}


def _franke(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (
        0.75 * torch.exp(-((x - 2) ** 2 + (y - 2) ** 2) / 4)
        + 0.75 * torch.exp(-((x + 1) ** 2) / 49 - (y + 1) / 10)
        + 0.5 * torch.exp(-((x - 7) ** 2 + (y - 3) ** 2) / 4)
        - 0.2 * torch.exp(-((x - 4) ** 2) - (y - 7) ** 2)
    )


def queries(name: str, count: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Uniform points of the target's box, kept inside it in the dtype."""
    box = TARGETS[name][0]
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.rand((count, len(box)), device=device, dtype=dtype, generator=generator)
    for d, (low, high) in enumerate(box):
        x[:, d] = (x[:, d] * (high - low) + low).clamp_(math.nextafter(low, high) * (1 - 1e-7), high * (1 - 1e-7))
    return x


def exact(name: str, x: torch.Tensor) -> torch.Tensor:
    """The target in float64."""
    return TARGETS[name][1](x.double())


def grid_sampler(name: str, texels: int, mode: str, device: str) -> Any:
    """torch grid_sample on a texture of texels^D values of the target: x (B, D) -> (B,), mapping of the box included."""
    box = TARGETS[name][0]
    D = len(box)
    axes = [torch.linspace(low, high, texels, dtype=torch.float64, device=device) for low, high in box]
    grid = torch.stack([a.reshape(-1) for a in torch.meshgrid(*axes, indexing="ij")], dim=1)
    parts = [TARGETS[name][1](part) for part in grid.split(1 << 24)]
    texture = torch.cat(parts).reshape(1, 1, *[texels] * D).float()
    del grid, parts
    low = torch.tensor([b[0] for b in box], device=device)
    scale = torch.tensor([2.0 / (b[1] - b[0]) for b in box], device=device)

    def run(x: torch.Tensor, mapped: torch.Tensor | None = None) -> torch.Tensor:
        u = torch.addcmul(-torch.ones_like(x[:1]), x - low, scale).flip(1) if mapped is None else mapped
        shape = (1, 1, len(u), 2) if D == 2 else (1, 1, 1, len(u), 3)
        return F.grid_sample(texture, u.view(shape), mode=mode, padding_mode="border", align_corners=True).reshape(-1)

    return run, lambda x: torch.addcmul(-torch.ones_like(x[:1]), x - low, scale).flip(1).contiguous()


def literal(layer: Any, device: str, dtype: torch.dtype = torch.float32) -> Any:
    """The literal head by scaled_dot_product_attention: one query column per group, the bonus on its own group."""
    groups = layer.groups
    E = [len(group.matrix) for group in groups]
    width = -(-(sum(E) + 1 + len(groups)) // 8) * 8
    keys, values = [], []
    for g, group in enumerate(groups):
        slopes, offsets = group.listed()
        c, lean = group.listed_values()
        columns = np.zeros((len(offsets), 1 + sum(E)))
        columns[:, 0], columns[:, 1 + sum(E[:g]) : 1 + sum(E[: g + 1])] = c[:, 0], lean[:, 0]
        row = np.zeros((len(offsets), width))
        row[:, sum(E[:g]) : sum(E[: g + 1])] = slopes
        row[:, sum(E)] = offsets
        row[:, sum(E) + 1 + g] = 1.0
        keys.append(row)
        values.append(np.pad(columns, ((0, 0), (0, -columns.shape[1] % 8))))
    K = torch.tensor(np.concatenate(keys), dtype=dtype, device=device)
    V = torch.tensor(np.concatenate(values), dtype=dtype, device=device)
    M = torch.tensor(np.concatenate([group.matrix for group in groups]), dtype=dtype, device=device)
    centre = torch.tensor(np.array(layer.centre), dtype=dtype, device=device)
    bonus = float(layer.bonus) if len(groups) > 1 else 0.0
    affine = bool(V[:, 1:].any())

    def run(x: torch.Tensor) -> torch.Tensor:
        q = torch.zeros((len(groups), len(x), width), dtype=dtype, device=device)
        z = (x.to(dtype) - centre) @ M.T
        q[:, :, : sum(E)] = z
        q[:, :, sum(E)] = 1.0
        for g in range(len(groups)):
            q[g, :, sum(E) + 1 + g] = bonus
        heads = next(h for h in (64, 32, 16, 8, 4, 2, 1) if len(x) % h == 0)
        q = q.reshape(len(groups) * heads, 1, -1, width)
        k, v = (t.expand(len(q), 1, *t.shape) for t in (K, V))
        out = F.scaled_dot_product_attention(q, k, v, scale=1.0)
        out = out.reshape(len(groups), len(x), -1).sum(dim=0)
        return out[:, 0] + (out[:, 1 : 1 + sum(E)] * z).sum(dim=1) if affine else out[:, 0]

    return run, len(K)


def lookup_attention(name: str, cells: int, rho: float, device: str) -> Any:
    """The paper's lookup by scaled_dot_product_attention: cells^D keys, values f(centre), sharpness rho per cell."""
    box = TARGETS[name][0]
    D = len(box)
    sites = torch.arange(cells, dtype=torch.float64, device=device) - (cells - 1) / 2.0
    grid = torch.stack([a.reshape(-1) for a in torch.meshgrid(*[sites] * D, indexing="ij")], dim=1)
    middle = torch.tensor([(b[0] + b[1]) / 2 for b in box], dtype=torch.float64, device=device)
    step = torch.tensor([(b[1] - b[0]) / cells for b in box], dtype=torch.float64, device=device)
    values = TARGETS[name][1](grid * step + middle).float()
    K = torch.zeros((len(grid), 8), device=device)
    K[:, :D] = grid.float()
    K[:, D] = -(grid * grid).sum(dim=1).float() / 2
    V = torch.zeros((len(grid), 8), device=device)
    V[:, 0] = values

    def run(x: torch.Tensor) -> torch.Tensor:
        q = torch.zeros((len(x), 8), device=device)
        q[:, :D] = ((x.double() - middle) / step * rho).float()
        q[:, D] = rho
        heads = next(h for h in (64, 16, 4, 1) if len(x) % h == 0)
        q = q.reshape(heads, 1, -1, 8)
        k, v = (t.expand(heads, 1, *t.shape) for t in (K, V))
        return F.scaled_dot_product_attention(q, k, v, scale=1.0).reshape(len(x), 8)[:, 0]

    return run


def network(name: str, device: str, steps: int, batch: int = 1 << 16) -> torch.nn.Module:
    """A 3 x 64 network trained by Adam on fresh uniform points."""
    box = TARGETS[name][0]
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    width = len(box)
    for _ in range(3):
        layers += [torch.nn.Linear(width, 64), torch.nn.SiLU()]
        width = 64
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, fused=device == "cuda")
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=1e-2, total_steps=steps)
    middle = torch.tensor([(b[0] + b[1]) / 2 for b in box], device=device)
    half = torch.tensor([(b[1] - b[0]) / 2 for b in box], device=device)
    for _ in range(steps):
        u = torch.rand((batch, len(box)), device=device) * 2 - 1
        y = TARGETS[name][1](u * half + middle)[:, None]
        loss = F.mse_loss(model(u), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        first = layers[0]
        assert isinstance(first, torch.nn.Linear)
        first.weight /= half
        first.bias -= first.weight @ middle
    return model


def clenshaw(found: Any, device: str, dtype: torch.dtype) -> Any:
    """The collapsed series by Clenshaw's rule in PyTorch's own operations (one kernel per operation)."""
    centre = torch.tensor(np.array(found.centre), dtype=dtype, device=device)
    parts = []
    for term in found.terms:
        rows = torch.tensor(np.array(term.rows), dtype=dtype, device=device)
        parts.append((rows, [torch.tensor(core, dtype=dtype, device=device) for core in term.cores]))

    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(x), dtype=dtype, device=device)
        for rows, cores in parts:
            z = (x - centre) @ rows.T
            product: torch.Tensor | None = None
            for e, core in enumerate(cores):
                one = z[:, e : e + 1]
                b1 = b2 = torch.zeros((len(x), core.shape[1]), dtype=dtype, device=device)
                for k in range(len(core) - 1, 0, -1):
                    b1, b2 = core[k] + 2 * one * b1 - b2, b1
                value = core[0] + one * b1 - b2
                product = value if product is None else product * value
            assert product is not None
            out = out + product.sum(dim=1)
        return out

    return run
