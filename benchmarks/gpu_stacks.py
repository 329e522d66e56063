"""Queries per second of stacks on a GPU in float32 and float64: one kernel, PyTorch's operations, the formula by torch.compile.

    python benchmarks/gpu_stacks.py --prepare out/gpu-stacks [NAMES]      where the compiler runs
    PYTHONPATH=src python benchmarks/gpu_stacks.py out/gpu-stacks results.json [NAMES] [--small] [--configs]   on the GPU machine

Stacks are those of the page of stacks at a ten-thousandth of the largest |f|, with gravity and the piston at 1e-6 besides.  Times
are medians of CUDA events after warm-up; errors are the largest over 2^24 points against the formula in float64, uniform ones and
corners, beside the bound that is stated for the route.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

DTYPES = ("float32", "float64")
BLOCK_AND_WARPS = ((1024, 4), (512, 4), (512, 8), (256, 4), (256, 2), (128, 4), (128, 2))

STACKS: dict[str, tuple[str, float]] = {  # target of stack_targets.py, error
    "gravity": ("gravity", 1e-4),
    "gravity-6": ("gravity", 1e-6),
    "borehole": ("borehole", 1e-4),
    "otl": ("OTL circuit", 1e-4),
    "piston": ("piston", 1e-6),
    "wing": ("wing weight", 1e-4),
    "robot-arm": ("robot arm", 1e-4),
    "ackley": ("Ackley, 10, [-5, 5]", 1e-4),
    "black-scholes": ("Black-Scholes call", 1e-4),
    "softmax": ("softmax attention, 4 keys in 3 dimensions", 1e-4),
    "log-sum-exp": ("log-sum-exp, 20", 1e-4),
    "sobol": ("Sobol g, 8", 1e-4),
    "tanh-net": ("tanh network 4-16-16-1", 1e-4),
    "relu-net": ("ReLU network 4-16-16-1", 1e-4),
    "gelu-net": ("GELU network 4-8-8-1", 1e-4),
    "tanh-net-32": ("tanh network 8-32-32-1", 1e-4),
}


def prepare(folder: Path, names: list[str]) -> None:
    """Compile every stack; write its kernels, its heads and rows, and the weights of networks, as plain data."""
    import numpy as np
    import torch

    import maxaffine as ma
    from maxaffine.layer import file as layer_file
    from maxaffine.runtime.gpu.launch_stacked import CONFIGS, constants_of
    from maxaffine.runtime.gpu.tables import Numbers
    from maxaffine.stack.device import on_device
    from stack_targets import known

    folder.mkdir(parents=True, exist_ok=True)
    cells = {(one.name, one.error): one for one in known()}
    for name in names or STACKS:
        cell = cells[STACKS[name]]
        target = cell.target()
        stack = ma.compile(target, cell.box, error=cell.error, relative=True, layers="auto")
        record: dict[str, Any] = {
            "name": name, "formula": cell.name, "error": stack.error, "bound": float(stack.bound), "tokens": stack.tokens,
            "layers": stack.layers, "low": stack.box.low.tolist(), "high": stack.box.high.tolist(), "kernels": {},
        }  # fmt: skip
        for dtype in DTYPES:
            made = on_device(stack, dtype)
            if isinstance(made, str):
                record["kernels"][dtype] = {"why not": made}
                continue
            constants, numbers = constants_of(made)
            plain = {key: {"numbers": one.numbers} if isinstance(one, Numbers) else one for key, one in constants.items()}
            usual = next(config for most, config in CONFIGS[made.dtype] if made.live <= most)
            record["kernels"][dtype] = {
                "constants": plain, "tables": numbers, "computed in": made.dtype, "bound": made.bound, "parts": dict(made.parts),
                "config": usual, "live": made.live, "multiply-adds": made.multiplications, "nodes": len(made.steps),
            }  # fmt: skip
        plan = stack.plan.flat
        rows = lambda maps: [[row.constant, row.indices, row.weights.tolist()] for row in maps]  # noqa: E731
        record["plan"] = [[node.head, rows(node.maps), node.scales, node.lift] for node in plan.nodes]
        record["result"] = rows((plan.result,))[0]
        tensors: dict[str, Any] = {}
        record["heads"] = []
        for i, head in enumerate(stack.heads):
            own, described = layer_file.to_tensors(head.weights)
            tensors |= {f"{i}.{key}": value for key, value in own.items()}
            record["heads"].append(described)
        np.savez(folder / f"{name}.npz", **tensors)
        if not isinstance(target, str):
            linear = [one for one in target if hasattr(one, "weight")]
            record["network"] = [[one.weight.tolist(), one.bias.tolist()] for one in linear]
        points = stack.box.sample(100, np.random.default_rng(0))
        said = formulas(name, record, "cpu")(torch.from_numpy(points)).numpy()
        assert np.allclose(said, stack.target.values(points)[:, 0, 0], rtol=1e-10), name  # they are the same formula
        (folder / f"{name}.json").write_text(json.dumps(record))
        print(f"{name}: {stack}", flush=True)


def formulas(name: str, record: dict[str, Any], device: str) -> Any:
    """The formula in PyTorch, on columns."""
    import torch

    if "network" in record:
        functional = torch.nn.functional
        inner = {"relu-net": torch.relu, "tanh-net": torch.tanh, "tanh-net-32": torch.tanh, "gelu-net": functional.gelu}[name]
        layers = [[torch.tensor(one, dtype=torch.float64, device=device) for one in pair] for pair in record["network"]]
        both = {dtype: [[one.to(dtype) for one in pair] for pair in layers] for dtype in (torch.float32, torch.float64)}

        def network(x: Any) -> Any:
            for n, (weight, bias) in enumerate(both[x.dtype]):
                x = functional.linear(x if n == 0 else inner(x), weight, bias)
            return x[:, 0]

        return network

    log, exp, sqrt, cos, sin, erf, pi = torch.log, torch.exp, torch.sqrt, torch.cos, torch.sin, torch.erf, math.pi

    def gravity(x: Any) -> Any:
        G, m1, m2, x1, x2, y1, y2, z1, z2 = x.unbind(1)
        return G * m1 * m2 / ((x2 - x1) ** 2 + (y2 - y1) ** 2 + (z2 - z1) ** 2)

    def borehole(x: Any) -> Any:
        rw, r, Tu, Hu, Tl, Hl, L, Kw = x.unbind(1)
        within = log(r / rw)
        return 2 * pi * Tu * (Hu - Hl) / (within * (1 + 2 * L * Tu / (within * rw**2 * Kw) + Tu / Tl))

    def otl(x: Any) -> Any:
        Rb1, Rb2, Rf, Rc1, Rc2, B = x.unbind(1)
        base = B * (Rc2 + 9)
        first = (12 * Rb2 / (Rb1 + Rb2) + 0.74) * base / (base + Rf)
        return first + 11.35 * Rf / (base + Rf) + 0.74 * Rf * base / ((base + Rf) * Rc1)

    def piston(x: Any) -> Any:
        M, S, V0, k, P0, Ta, T0 = x.unbind(1)
        A = P0 * S + 19.62 * M - k * V0 / S
        V = S / (2 * k) * (sqrt(A**2 + 4 * k * P0 * V0 * Ta / T0) - A)
        return 2 * pi * sqrt(M / (k + S**2 * P0 * V0 * Ta / (T0 * V**2)))

    def wing(x: Any) -> Any:
        Sw, Wfw, A, Lam, q, lam, tc, Nz, Wdg, Wp = x.unbind(1)
        front = 0.036 * Sw**0.758 * Wfw**0.0035 * (A / cos(Lam) ** 2) ** 0.6 * q**0.006 * lam**0.04
        return front * (100 * tc / cos(Lam)) ** (-0.3) * (Nz * Wdg) ** 0.49 + Sw * Wp

    def robot_arm(x: Any) -> Any:
        L, turned = x[:, 4:].unbind(1), torch.cumsum(x[:, :4], dim=1).unbind(1)
        across = sum(one * cos(angle) for one, angle in zip(L, turned, strict=True))
        return torch.hypot(across, sum(one * sin(angle) for one, angle in zip(L, turned, strict=True)))

    def ackley(x: Any) -> Any:
        waves = exp(0.1 * cos(2 * pi * x).sum(dim=1))
        return -20 * exp(-0.2 * sqrt(0.1 * (x**2).sum(dim=1))) - waves + 20 + math.e

    def black_scholes(x: Any) -> Any:
        S, K, r, s, T = x.unbind(1)
        root = s * sqrt(2 * T)
        one, two = (log(S / K) + (r + s**2 / 2) * T) / root, (log(S / K) + (r - s**2 / 2) * T) / root
        return S * (0.5 + 0.5 * erf(one)) - K * exp(-r * T) * (0.5 + 0.5 * erf(two))

    def softmax(x: Any) -> Any:
        q1, q2, q3 = x[:, :3].unbind(1)
        scores = (0.5 * q1 - 0.25 * q2 + 0.1 * q3, 0.3 * q1 + 0.7 * q2 - 0.2 * q3, -0.4 * q1 + 0.2 * q2 + 0.6 * q3)
        weights = [exp(one) for one in (*scores, 0.1 * q1 - 0.6 * q2 - 0.5 * q3)]
        return sum(w * y for w, y in zip(weights, x[:, 3:].unbind(1), strict=True)) / sum(weights)

    def log_sum_exp(x: Any) -> Any:
        return log(exp(x).sum(dim=1))

    def sobol(x: Any) -> Any:
        out: Any = 1.0
        for one, a in zip(x.unbind(1), (0, 1, 4.5, 9, 99, 99, 99, 99), strict=True):
            out = out * ((4 * one - 2).abs() + a) / (1 + a)
        return out

    own = locals()
    return own[name.replace("-6", "").replace("-", "_")]


def by_operations(folder: Path, record: dict[str, Any], device: str) -> Any:
    """The stack through PyTorch's operations, as `stack(x)` takes them where no kernel serves."""
    import numpy as np
    import torch

    from maxaffine.layer import file as layer_file
    from maxaffine.runtime.torch_runtime import TorchLayer

    stored, heads = np.load(folder / f"{record['name']}.npz"), []
    for i, described in enumerate(record["heads"]):
        own = {key.split(".", 1)[1]: stored[key] for key in stored.files if key.split(".", 1)[0] == str(i)}
        heads.append(TorchLayer(layer_file.from_tensors(own, described), device, torch.float64, "factorised"))

    def affine(row: Any, values: list[Any]) -> Any:
        total = 0.0 * values[0] + row[0]
        for i, c in zip(row[1], row[2], strict=True):
            total = total + c * values[i]
        return total

    def run(x: Any) -> Any:
        known = list(x.double().unbind(1))
        for head, rows, scales, lift in record["plan"]:
            asked = torch.stack([affine(row, known) * 2.0**-s for row, s in zip(rows, scales, strict=True)], dim=1)
            known.append(heads[head](asked).reshape(-1) * 2.0**lift)
        return affine(record["result"], known).to(x.dtype)

    return run


class Kernel:
    """The kernel of a stack, from plain data."""

    def __init__(self, made: dict[str, Any], device: str) -> None:
        import torch

        from maxaffine.runtime.gpu.tables import Numbers

        dtype = getattr(torch, made["computed in"])
        pairs = made["constants"].items()
        self.constants = {key: Numbers(one["numbers"]) if isinstance(one, dict) else one for key, one in pairs}
        self.tables = [torch.tensor(one or [0.0], dtype=dtype, device=device) for one in made["tables"].values()]
        self.usual: tuple[int, int] = tuple(made["config"])
        self.config: tuple[int, int] | None = None

    def __call__(self, x: Any) -> Any:
        """The output (B,)."""
        import torch

        from maxaffine.runtime.gpu import kernels_stacked
        from maxaffine.runtime.gpu.launch import launch

        out = torch.empty(len(x), dtype=x.dtype, device=x.device)
        launch(kernels_stacked.stacked, self.config or self.usual, x, out, *self.tables, len(x), 1, **self.constants)
        return out


def rate(run: Any, x: Any, times: int = 15) -> float:
    """Queries per second: the median of CUDA events."""
    import numpy as np
    import torch

    if x.device.type == "cpu":
        return float("nan")
    for _ in range(3):
        run(x)
    found = []
    for _ in range(times):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run(x)
        last.record()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last) / 1e3)
    return len(x) / float(np.median(found))


def measured(
    folder: Path, record: dict[str, Any], dtype: str, formula: Any, operations: Any, small: bool, every: bool, device: str
) -> dict[str, Any]:
    """One stack in one dtype."""
    import torch

    made, kind = record["kernels"][dtype], getattr(torch, dtype)
    row: dict[str, Any] = {"name": record["name"], "dtype": dtype, "error": record["error"], "certificate": record["bound"]}
    row |= {"tokens": record["tokens"], "layers": record["layers"]}
    generator = torch.Generator(device=device).manual_seed(0)
    low, high = (torch.tensor(record[side], dtype=torch.float64, device=device) for side in ("low", "high"))

    def queries(count: int) -> Any:
        u = torch.rand((count, len(low)), device=device, generator=generator, dtype=torch.float64)
        u[: count // 64] = u[: count // 64].round()  # corners
        x = (low + (high - low) * u).to(kind)
        return torch.where((x.double() < low) | (x.double() > high), ((low + high) / 2).to(kind), x)  # rounded out of the box

    many = 1 << (10 if small else 22 if dtype == "float64" or len(low) > 8 else 24)
    x = queries(many)
    row["queries"], row["operations"] = many, rate(operations, x[: 1 << 18], 5)
    row["formula"] = rate(torch.compile(formula), x) if device == "cuda" else float("nan")
    if "why not" in made:
        return row | {"why not": made["why not"]}
    start, kernel = time.perf_counter(), Kernel(made, device)
    kernel(x[:1])
    row |= {key: made[key] for key in ("computed in", "parts", "live", "multiply-adds", "nodes")}
    row |= {"stated": made["bound"], "made in": time.perf_counter() - start}
    seen, apart = 0.0, 0.0
    for _ in range(1 if small else 16):
        some = queries(1 << (10 if small else 20))
        said = kernel(some).double()
        seen = max(seen, float((said - formula(some.double())).abs().max()))
        apart = max(apart, float((said - operations(some).double()).abs().max())) if apart == 0.0 else apart
    row |= {"seen": seen, "within": seen <= made["bound"] * (1 + 1e-9), "from the operations": apart}
    part = x[: min(many, 1 << 18)]
    row["same bits"] = bool(torch.equal(kernel(part[37:1000].contiguous()), kernel(part)[37:1000]))
    rates = {}
    for config in (None, *BLOCK_AND_WARPS) if every and not small else (None,):
        kernel.config = config
        rates[str(config or kernel.usual)] = max(rate(kernel, x), rates.get(str(config or kernel.usual), 0.0))
    kernel.config = None
    row["rates"], row["kernel"] = rates, rates[str(kernel.usual)]
    row["bytes per second"] = row["kernel"] * (len(low) + 1) * (8 if dtype == "float64" else 4)
    return row


def measure(folder: Path, out: Path, names: list[str], small: bool, every: bool) -> None:
    """The stacks, or those named, in both dtypes."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    about = torch.cuda.get_device_properties(0).name if device == "cuda" else "cpu"
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    for name in names or STACKS:
        if not (folder / f"{name}.json").exists():
            continue
        record = json.loads((folder / f"{name}.json").read_text())
        formula, operations = formulas(name, record, device), by_operations(folder, record, device)
        for dtype in DTYPES:
            try:
                row = measured(folder, record, dtype, formula, operations, small, every, device)
            except Exception as failure:
                row = {"name": name, "dtype": dtype, "failed": f"{type(failure).__name__}: {failure}"[:600]}
                print(traceback.format_exc()[-1500:], flush=True)
            rows.append(row)
            print(f"{_said(row)}  [{time.perf_counter() - began:.0f} s]", flush=True)
            out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.compiler.reset()


def _said(row: dict[str, Any]) -> str:
    """A line."""
    lead = f"{row['name']:14s} {row['dtype']}"
    if "failed" in row or "why not" in row:
        return f"{lead} {row.get('failed', row.get('why not'))[:150]}"
    many = {key: row[key] / 1e9 for key in ("kernel", "operations", "formula")}
    said = f"{lead} kernel {many['kernel']:.2f} G/s, operations {many['operations']:.4f}, formula {many['formula']:.2f}"
    said += f"; seen {row['seen']:.2g} of {row['stated']:.2g} ({'within' if row['within'] else 'NOT WITHIN'}), {row['same bits']}"
    return said + f", made in {row['made in']:.1f} s {[f'{k}: {v / 1e9:.1f}' for k, v in row['rates'].items()]}"


if __name__ == "__main__":
    if sys.argv[1] == "--prepare":
        prepare(Path(sys.argv[2]), sys.argv[3:])
    else:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/tmp/inductor")
        chosen = [one for one in sys.argv[3:] if not one.startswith("--")]
        measure(Path(sys.argv[1]), Path(sys.argv[2]), chosen, "--small" in sys.argv, "--configs" in sys.argv)
