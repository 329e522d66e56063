"""Runs the kernels of clusters and of direct forms in Triton's interpreter and prints what they are off by, as JSON."""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

import maxaffine as ma

ONE, SQUARE = {"x": (-1, 1)}, {"x": (-1, 1), "y": (-1, 1)}
CASES = {
    "two tokens": ("max(x, y)", SQUARE, 1e-6),
    "four tokens": ("max(x, y, 0.3*x - y, 0)", SQUARE, 1e-4),
    "axis": ("abs(sin(7*x))", ONE, 1e-6),
    "many": ("abs(sin(40*x))", ONE, 1e-3),
    "sums": ("abs(sin(5*x)) + cos(y)**2", SQUARE, 1e-6),
    "products": ("abs(x + 2*y - 0.3)*cos(x)", SQUARE, 1e-6),
    "three": ("abs(x)*abs(y)*exp(z)", SQUARE | {"z": (-1, 1)}, 1e-3),
    "regions": ("abs(x + 2*y - 0.3)*cos(x*y)", SQUARE, 1e-4),
    "curved": ("max(x**2 + y**2, 0.5)", SQUARE, 1e-2),
    "three directions": ("abs(x + y + z)*exp(x*y)", SQUARE | {"z": (-1, 1)}, 1e-2),
    "beyond": ("max(x + 2*y, 0.3*x, -y)", {"x": (-3, 5), "y": (0, 7)}, 1e-3),
    "elsewhere": ("abs(x + 2*y - 0.3)*cos(x*y)", {"x": (-1, 2), "y": (0, 1)}, 1e-3),
    "a pole": ("1/x", {"x": (0.1, 1)}, 1e-3),
    "steps": ("abs(x + 2*y)", SQUARE, 0.05),
    "side by side": ("abs(x), sin(x)*y, max(x, y), abs(x + 2*y - 0.3)*cos(x*y)", SQUARE, 1e-2),
    "adding up": ("max(x, y) + sin(x), max(x, y) - sin(x)", SQUARE, 1e-4),
    "root": ("exp(-x)*sqrt(1 + x*x)/(2 + y) + atan(3*y)", SQUARE, 1e-4),
}


def points(layer, count):
    """Uniform points, corners, and points on the diagonals and axes, where kinks are."""
    rng = np.random.default_rng(1)
    low, high = layer.target.box.low, layer.target.box.high
    x = rng.uniform(low, high, size=(count, len(low)))
    kinks = np.clip(np.round(x[: count // 8] * 2) / 2, low, high)
    return np.concatenate([x, np.where(x > (low + high) / 2, high, low)[: count // 8], kinks])


def judge(layer, dtype, runtime):
    """Of one route: its statement, the largest error at points, whether answers depend on the batch, what happens outside."""
    x = torch.tensor(points(layer, 96), dtype=dtype)
    found = layer.statement("tensors" if runtime is None else "direct tensors", str(dtype)[6:], "cuda")
    if found.bound is None:
        return {"why": found.why}
    y = layer(x, runtime=runtime)
    exact = layer.target.values(np.clip(x.double().numpy(), layer.target.box.low, layer.target.box.high))
    away = np.abs(y.double().numpy().reshape(exact.shape) - exact)
    made = {"bound": found.bound, "seen": float(away.max()), "why": found.why, "error": layer.error}
    if runtime is None and "kernel" in found.parts:
        itself = layer(x.double(), runtime="factorised", outside="clamp")
        made["apart"], made["kernel"] = float((y.double() - itself).abs().max()), found.parts["kernel"]
    made["same in every batch"] = bool(torch.equal(layer(x[3:40], runtime=runtime), y[3:40]))
    made["clamped"] = True
    for away, end in ((100.0, layer.target.box.high), (-100.0, layer.target.box.low)):
        outside = layer(x[:5] + away, runtime=runtime, outside="clamp")
        corner = torch.tensor(end, dtype=dtype)[None]
        apart = (outside - layer(corner, runtime=runtime, outside="clamp")).abs().max()
        made["clamped"] &= float(apart) <= 64.0 * torch.finfo(dtype).eps * float(y.abs().max())  # its coordinate is rounded
    lost = x[:2].clone()
    lost[0, 0] = float("nan")
    made["nan"] = bool(torch.isnan(layer(lost, runtime=runtime, outside="clamp"))[0].any())
    if runtime is None:
        a, b = x[5:60].clone().requires_grad_(), x[5:60].double().requires_grad_()
        layer(a).sum().backward()
        layer(b, runtime="factorised").sum().backward()
        apart = (a.grad.double() - b.grad).abs().max(dim=1).values
        made["gradient"] = float(apart.median() / b.grad.abs().max())
        if dtype == torch.float64 and "kernel" in found.parts:
            made["slopes"] = slopes(layer, x[:24])
    return made


def slopes(layer, x):
    """How far the kernel of the derivative is from differences of the kernel, relative: the 0.9 quantile."""
    kernel, h = layer.to_torch(form="kernel").operator.on(x).kernel, 1e-6
    box = layer.target.box
    inner = x.clamp(torch.tensor(box.low + 2 * h), torch.tensor(box.high - 2 * h))
    weight = torch.rand(kernel(inner).shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    steps = h * torch.eye(x.shape[1], dtype=x.dtype)
    moved = [((kernel(inner + step) - kernel(inner - step)) * weight).sum(dim=1) / (2 * h) for step in steps]
    wanted = torch.stack(moved, dim=1)
    apart = (kernel.slopes(inner, weight) - wanted).abs().max(dim=1).values
    return float(apart.quantile(0.9) / wanted.abs().max())


def main():
    found = {}
    for name, (text, box, error) in CASES.items():
        layer = ma.compile(text, box, error=error, method="ramp" if name == "steps" else "auto")
        for dtype in (torch.float32, torch.float64):
            found[f"{name}, {str(dtype)[6:]}"] = judge(layer, dtype, None)
            found[f"{name}, {str(dtype)[6:]}, direct"] = judge(layer, dtype, "direct")
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
