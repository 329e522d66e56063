"""Throughput and error of layers on a GPU beside what people would use instead, in one run.

    python benchmarks/gpu_layers.py out/gpu-layers          where the compiler runs
    PYTHONPATH=src python benchmarks/gpu.py out/gpu-layers gpu.json [--seconds 300] [--small]      on the GPU machine

The GPU machine needs PyTorch, Triton, NumPy and safetensors.  Times are medians of CUDA events after warm-up, on arrays many
times larger than the L2 cache.  Errors are maxima over 2^24 uniform points against float64 formulas.  A section that fails
says so in the output and the next one runs.  `--small` runs everything on tiny sizes (with TRITON_INTERPRET=1 also on a CPU).
"""

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parent))

import gpu_peers as peers
from maxaffine.core.container import read_container
from maxaffine.layer import file as layer_file
from maxaffine.layer.keys import AxisKeys, Coordinates, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.runtime.torch_runtime import TorchLayer

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


@triton.jit
def fma_peak(out_ptr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Eight independent chains of fused multiply-adds, nothing else."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = i.to(out_ptr.dtype.element_ty) * 1e-9
    a, b, c, d = x + 0.1, x + 0.2, x + 0.3, x + 0.4
    e, f, g, h = x + 0.5, x + 0.6, x + 0.7, x + 0.8
    for _ in range(ROUNDS):
        for _ in tl.static_range(16):
            a, b, c, d = tl.fma(a, x, a), tl.fma(b, x, b), tl.fma(c, x, c), tl.fma(d, x, d)
            e, f, g, h = tl.fma(e, x, e), tl.fma(f, x, f), tl.fma(g, x, g), tl.fma(h, x, h)
    tl.store(out_ptr + i, (a + b) + (c + d) + ((e + f) + (g + h)))


class Bench:
    """Sections, their results and the clock."""

    def __init__(self, folder: Path, out: Path, seconds: float, small: bool) -> None:
        self.folder, self.out, self.small = folder, out, small
        self.start, self.deadline = time.perf_counter(), time.perf_counter() + seconds
        self.results: dict[str, Any] = {"machine": machine(), "small": small}
        self.many = 1 << 10 if small else 1 << 27
        self.errors_at = 1 << 10 if small else 1 << 24

    def layer(self, name: str) -> tuple[Any, dict[str, Any]]:
        """A saved layer and its record."""
        tensors, record = read_container(self.folder / f"{name}.safetensors")
        return layer_file.from_tensors(tensors, record["layer"]), record

    def section(self, name: str, work: Callable[[], Any], reserve: float = 0.0) -> None:
        """Run one section, write everything found so far, and go on whatever happens."""
        if time.perf_counter() + reserve > self.deadline:
            self.results[name] = {"skipped": "out of time"}
            print(f"-- {name}: skipped, out of time", flush=True)
            return
        began = time.perf_counter()
        try:
            self.results[name] = work()
        except Exception as failure:
            shown = f"{type(failure).__name__}: {failure}"[:2000]
            self.results[name] = {"failed": shown, "trace": traceback.format_exc()[-1500:]}
            print(f"-- {name} FAILED: {type(failure).__name__}: {str(failure)[:300]}", flush=True)
            print(traceback.format_exc()[-1200:], flush=True)
        if CUDA:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        print(f"-- {name}: {time.perf_counter() - began:.1f} s, {time.perf_counter() - self.start:.0f} s in all", flush=True)
        self.out.write_text(json.dumps(self.results, indent=1, default=float))

    def rate(self, run: Callable[[torch.Tensor], Any], x: torch.Tensor, repeats: int = 9, budget: float = 1.5) -> float:
        """Queries per second: the median over repeats of one call each, at most `budget` seconds in all."""
        run(x)
        times: list[float] = []
        spent = 0.0
        for i in range(2 + repeats):
            if CUDA:
                first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                first.record()
                run(x)
                last.record()
                torch.cuda.synchronize()
                t = first.elapsed_time(last) / 1e3
            else:
                began = time.perf_counter()
                run(x)
                t = time.perf_counter() - began
            spent += t
            if i >= 2 or spent > budget:
                times.append(t)
            if spent > budget and times:
                break
        return len(x) / float(np.median(times))


def machine() -> dict[str, Any]:
    """What ran this."""
    found = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    found["cpu"] = f"{platform.machine()}, {os.cpu_count()} cores"
    if CUDA:
        about = torch.cuda.get_device_properties(0)
        found["gpu"] = about.name
        found["multiprocessors"] = str(about.multi_processor_count)
        found["l2_bytes"] = str(about.L2_cache_size)
    return found


def worst(bench: Bench, name: str, run: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32) -> float:
    """The largest error over uniform points."""
    largest = 0.0
    step = min(bench.errors_at, 1 << 22)
    for seed in range(bench.errors_at // step):
        x = peers.queries(name, step, DEVICE, dtype, seed=100 + seed)
        largest = max(largest, float((run(x).reshape(-1).double() - peers.exact(name, x)).abs().max()))
    return largest


def limits(bench: Bench) -> dict[str, Any]:
    """Copy bandwidth (bytes read plus bytes written) and the rate of fused multiply-adds."""
    size = 1 << 12 if bench.small else 1 << 30
    a = torch.rand(size, device=DEVICE)
    b = torch.empty_like(a)
    copied = bench.rate(lambda x: b.copy_(x), a) * 8
    found = {"copy_bytes_per_s": copied}
    for dtype, rounds in ((torch.float32, 256), (torch.float64, 128)):
        out = torch.empty(1 << 10 if bench.small else 1 << 22, device=DEVICE, dtype=dtype)
        rounds = 1 if bench.small else rounds
        per_s = bench.rate(lambda t, r=rounds: fma_peak[(len(t) // 1024,)](t, ROUNDS=r, BLOCK=1024, num_warps=4), out)
        found[f"{str(dtype)[6:]}_fma_per_s"] = per_s * rounds * 128
    return found


def ours(bench: Bench, name: str, source: str, dtype: torch.dtype, configs: tuple[tuple[int, int] | None, ...]) -> dict[str, Any]:
    """One layer by its kernel: throughput, error, bound, and the fraction of the two limits."""
    layer, record = bench.layer(source)
    made = TorchLayer(layer, DEVICE, dtype, tolerance=record["error"] / 8.0)
    assert made.kernel is not None, made.reason
    D = layer.dimension
    x = peers.queries(name, bench.many // (1 if dtype == torch.float32 else 2), DEVICE, dtype)
    tried = {}
    for config in configs:
        if config is not None and time.perf_counter() > bench.deadline - 60:
            break
        made.kernel.config = config
        try:
            tried[str(config or "default")] = bench.rate(made.kernel, x)
        except Exception as failure:
            tried[str(config)] = f"{type(failure).__name__}: {failure}"[:200]
    rates = {key: rate for key, rate in tried.items() if isinstance(rate, float)}
    best = max(rates, key=lambda key: rates[key])
    made.kernel.config = None if best == "default" else tuple(int(n) for n in best.strip("()").split(","))  # type: ignore[assignment]
    error = worst(bench, name, lambda q: made.kernel(q), dtype)  # type: ignore[misc]
    limit = bench.results.get("limits", {})
    moved = (D + 1) * x.element_size()
    found = {
        "tokens": layer.tokens, "certificate": record["certificate"]["bound"], "kernel_bound": made.bound,
        "proved_total": record["certificate"]["bound"] + (made.bound or 0.0), "parts": made.kernel.found.parts, "error": error,
        "queries_per_s": rates[best], "config": best, "tried": tried, "multiply_adds": made.kernel.found.multiplications,
        "shapes": [[list(c.shape) for c in t.cores] for t in (*made.kernel.found.terms, *made.kernel.found.trains)],
        "bytes_per_query": moved,
    }  # fmt: skip
    if "copy_bytes_per_s" in limit:
        found["of_bandwidth"] = rates[best] * moved / limit["copy_bytes_per_s"]
        found["of_arithmetic"] = rates[best] * made.kernel.found.multiplications / limit[f"{str(dtype)[6:]}_fma_per_s"]
    proved = found["proved_total"]
    print(f"   {source} {dtype}: {rates[best] / 1e9:.1f} G/s, error {error:.3g}, bound {proved:.3g}, {tried}", flush=True)
    return found


def textures(bench: Bench, name: str) -> dict[str, Any]:
    """grid_sample at several sizes: error, throughput from box coordinates, and from coordinates already mapped to [-1, 1]."""
    D = len(peers.TARGETS[name][0])
    sizes = (64, 256, 1024, 4096, 8192) if D == 2 else (32, 64, 128, 256)
    modes = ("bilinear", "bicubic") if D == 2 else ("bilinear",)
    found: dict[str, Any] = {}
    x = peers.queries(name, bench.many // 4, DEVICE)
    for mode in modes:
        rows = []
        for texels in (sizes[:2] if bench.small else sizes):
            run, mapping = peers.grid_sampler(name, texels, mode, DEVICE)
            mapped = mapping(x)
            row = {"texels": texels, "error": worst(bench, name, run)}
            row["queries_per_s"] = bench.rate(lambda u, r=run: r(u, u), mapped)
            row["queries_per_s_with_mapping"] = bench.rate(run, x)
            rows.append(row)
            print(f"   {name} {mode} {texels}: {row['queries_per_s'] / 1e9:.1f} G/s, error {row['error']:.3g}", flush=True)
        found[mode] = rows
    return found


def same_layer(bench: Bench, name: str) -> dict[str, Any]:
    """float32 attention on the same literal layer, and the same layer through PyTorch's factorised operations."""
    layer, _ = bench.layer(name)
    run, tokens = peers.literal(layer, DEVICE)
    x = peers.queries(name, 1 << 10 if bench.small else 1 << (21 if tokens < 1000 else 19), DEVICE)
    found = {"tokens": tokens, "sdpa_queries_per_s": bench.rate(run, x)}
    found["sdpa_error"] = worst(bench, name, lambda q: _parts(run, q))
    made = TorchLayer(layer, DEVICE, torch.float32, "factorised")
    found["factorised_queries_per_s"] = bench.rate(made, x)
    found["factorised_error"] = float((made(x).reshape(-1).double() - peers.exact(name, x)).abs().max())
    print(f"   {name}: sdpa {found['sdpa_queries_per_s'] / 1e6:.1f} M/s, error {found['sdpa_error']:.3g}", flush=True)
    return found


def _parts(run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, size: int = 1 << 19) -> torch.Tensor:
    return torch.cat([run(part) for part in x.split(size)])


def paper(bench: Bench, name: str) -> dict[str, Any]:
    """float32 attention on the paper's lookup, and how many keys the error of the collapsed layer would need."""
    rho, rows = 20.0, []
    D = len(peers.TARGETS[name][0])
    for cells in ((16,) if bench.small else (64, 128, 256) if D == 2 else (16, 32, 40)):
        run = peers.lookup_attention(name, cells, rho, DEVICE)
        x = peers.queries(name, 1 << 10 if bench.small else 1 << 18, DEVICE)
        rate = bench.rate(run, x)
        error = float((_parts(run, x, 1 << 16).double() - peers.exact(name, x)).abs().max())
        rows.append({"cells": cells, "keys": cells**D, "queries_per_s": rate, "error": error, "pairs_per_s": rate * cells**D})
        print(f"   {name} lookup {cells}^{D}: {rate / 1e6:.3f} M/s, error {error:.3g}", flush=True)
    return {"rows": rows, "rho": rho}


def grid_layer(name: str, cells: int, rho: float, dtype: str = "float64") -> Layer:
    """The lookup layer itself, values f(centre)."""
    box = peers.TARGETS[name][0]
    D = len(box)
    low, high = (np.array([b[i] for b in box]) for i in (0, 1))
    scale = cells / (high - low) * (1.0 - 2.0**-48)
    sites = [np.arange(cells) - (cells - 1) / 2.0] * D
    keys = ProductKeys(tuple(AxisKeys(one, -one * one / 2.0) for one in sites))
    values = []
    for start in range(0, cells**D, 1 << 24):
        index = np.unravel_index(np.arange(start, min(start + (1 << 24), cells**D)), [cells] * D)
        x = np.stack([sites[d][index[d]] / scale[d] for d in range(D)], axis=1) + (low + high) / 2
        values.append(peers.TARGETS[name][1](torch.from_numpy(x).to(DEVICE)).cpu().numpy().astype(dtype))
    table = np.concatenate(values).reshape(*[cells] * D, 1, 1)
    return Layer(Coordinates((low + high) / 2, np.diag(scale)), keys, rho, table, low, high, ((D, 1),), dtype)


def windows(bench: Bench) -> dict[str, Any]:
    """Lookups of growing size by the windowed kernel."""
    found: dict[str, Any] = {}
    cases = {"sum": (100, 1000, 10_000), "franke": (256, 1024), "runge": (10_000, 1_000_000), "gauss": (32, 256)}
    for name, sizes in cases.items():
        rows = []
        for cells in (sizes[:1] if bench.small else sizes):
            made = TorchLayer(grid_layer(name, min(cells, 64) if bench.small else cells, 20.0), DEVICE, torch.float32)
            assert made.kernel is not None, made.reason
            x = peers.queries(name, bench.many // 4, DEVICE)
            D = made.structure.dimension
            row = {"cells": cells, "tokens": cells**D, "queries_per_s": bench.rate(made.kernel, x), "bound": made.bound}
            row["gathers"] = made.kernel.found.gathers  # type: ignore[union-attr]
            row["error"] = worst(bench, name, made.kernel)
            rows.append(row)
            print(f"   windowed {name} {cells}^{D}: {row['queries_per_s'] / 1e9:.2f} G/s, error {row['error']:.3g}", flush=True)
            del made
        found[name] = rows
    return found


def network(bench: Bench, name: str) -> dict[str, Any]:
    """A trained 3 x 64 network."""
    began = time.perf_counter()
    model = peers.network(name, DEVICE, 3 if bench.small else 5000, 64 if bench.small else 1 << 14)
    seconds = time.perf_counter() - began
    with torch.no_grad():
        x = peers.queries(name, 1 << 10 if bench.small else 1 << 23, DEVICE)
        found = {"queries_per_s": bench.rate(model, x), "error": worst(bench, name, model), "training_s": seconds}
    print(f"   network {name}: {found['queries_per_s'] / 1e9:.2f} G/s, error {found['error']:.3g}", flush=True)
    return found


def series(bench: Bench, name: str) -> dict[str, Any]:
    """The same Chebyshev series by Clenshaw's rule in PyTorch's operations."""
    layer, _ = bench.layer(name)
    made = TorchLayer(layer, DEVICE, torch.float32)
    assert made.kernel is not None
    run = peers.clenshaw(made.kernel.found, DEVICE, torch.float32)
    x = peers.queries(name, 1 << 10 if bench.small else 1 << 24, DEVICE)
    return {"queries_per_s": bench.rate(run, x), "error": worst(bench, name, run)}


def agreement(bench: Bench, name: str) -> dict[str, Any]:
    """GPU kernels against the layer's softmax in float64 on the CPU, on 10^7 points, and independence of the batch."""
    layer, record = bench.layer(name)
    count = 1000 if bench.small else 10_000_000
    found: dict[str, Any] = {"points": count, "certificate": record["certificate"]["bound"]}
    for dtype in (torch.float32, torch.float64):
        made = TorchLayer(layer, DEVICE, dtype)
        reference = TorchLayer(layer, "cpu", torch.float64, "factorised")
        x = peers.queries(name, count, DEVICE, dtype, seed=7)
        y = made(x)
        on_cpu = torch.cat([reference(part.double()) for part in x.cpu().split(1 << 18)])
        key = str(dtype)[6:]
        found[key] = {"largest_difference": float((y.cpu().double() - on_cpu).abs().max()), "kernel_bound": made.bound}
        found[key]["allowed"] = (made.bound or 0.0) + record["certificate"]["parts"]["rounding"]  # of the CPU's softmax
        batches = ((0, 1), (0, 17), (3, 1000), (5, 1 << 16))
        same = [bool(torch.equal(made(x[s : s + n].contiguous()), y[s : s + n])) for s, n in batches]
        found[key]["independent_of_batch"] = all(same)
    print(f"   {name}: {found}", flush=True)
    return found


def gradients(bench: Bench, name: str) -> dict[str, Any]:
    """Gradients in x, values and keys in float64 against autograd through the dense literal softmax."""
    layer, _ = bench.layer(name)
    count = 64 if bench.small else 20_000
    x = peers.queries(name, count, DEVICE, torch.float64, seed=3)
    weight = torch.rand(count, device=DEVICE, dtype=torch.float64)
    dense, leaves, pick = peers_dense(layer)
    xd = x.clone().requires_grad_()
    torch.autograd.backward((dense(xd) * weight).sum())
    made = TorchLayer(layer, DEVICE, torch.float64)
    xo = x.clone().requires_grad_()
    torch.autograd.backward((made(xo).reshape(-1) * weight).sum())
    kernel = None
    if made.kernel is not None and made.kernel.has_slopes and name != "franke":  # whose long float64 series take long to compile
        kernel = made.kernel.slopes(x, weight[:, None])
    for tensor in made.tensors.values():
        tensor.requires_grad_()
    (made(x).reshape(-1) * weight).sum().backward()

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).abs().max() / b.abs().max())

    assert xo.grad is not None and xd.grad is not None
    found = {"points": count, "x": apart(xo.grad, xd.grad)}
    if kernel is not None:
        found["x_by_kernel"] = apart(kernel, xd.grad)
    for key, leaf in leaves.items():
        grad = made.tensors[pick[key]].grad
        assert grad is not None
        found[key] = apart(grad.reshape(-1), leaf.grad.reshape(-1))
    print(f"   gradients {name}: {found}", flush=True)
    return found


def peers_dense(layer: Any) -> tuple[Any, dict[str, torch.Tensor], dict[str, str]]:
    """The literal softmax in float64 with leaves for the first direction's keys and the values of the first group."""
    group = layer.groups[0]
    wide = {"dtype": torch.float64, "device": DEVICE}
    slopes = torch.tensor(np.array(group.axes[0].slopes, dtype=np.float64), **wide).requires_grad_()
    offsets = torch.tensor(np.array(group.axes[0].offsets, dtype=np.float64), **wide).requires_grad_()
    leaves, pick = {"slopes": slopes, "offsets": offsets}, {"slopes": "group.0.0.slopes", "offsets": "group.0.0.offsets"}
    if group.factors is None:
        values = torch.tensor(np.array(group.values, dtype=np.float64), **wide).requires_grad_()
        leaves["values"], pick["values"] = values, "group.0.values"
    others = []
    for g in layer.groups:
        others.append([(torch.tensor(np.array(a.slopes, dtype=np.float64), **wide),
                        torch.tensor(np.array(a.offsets, dtype=np.float64), **wide)) for a in g.axes])  # fmt: skip
    centre = torch.tensor(np.array(layer.centre), **wide)

    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(x), **wide)
        for i, g in enumerate(layer.groups):
            z = (x - centre) @ torch.tensor(np.array(g.matrix), **wide).T
            logits = torch.zeros((len(x), 1), **wide)
            for e, (a, b) in enumerate(others[i]):
                a, b = (slopes, offsets) if (i, e) == (0, 0) else (a, b)
                logits = (logits[:, :, None] + (z[:, e, None] * a + b)[:, None, :]).reshape(len(x), -1)
            c, lean = (torch.tensor(part, **wide) for part in g.listed_values())
            if i == 0 and "values" in leaves:
                c = leaves["values"].reshape(c.shape)
            alpha = torch.softmax(logits, dim=1)
            out = out + (alpha @ c)[:, 0] + ((alpha @ lean[:, 0]) * z).sum(dim=1)
        return out

    return run, leaves, pick


def scaling(bench: Bench) -> dict[str, Any]:
    """Throughput against the size of the batch, by the kernel and by the whole call."""
    found: dict[str, Any] = {}
    for name in ("sum", "franke"):
        layer, _ = bench.layer(name)
        made = TorchLayer(layer, DEVICE, torch.float32)
        rows = []
        for exponent in ((10,) if bench.small else (10, 14, 17, 20, 22, 24, 27)):
            x = peers.queries(name, 1 << exponent, DEVICE)
            rows.append({"batch": 1 << exponent, "queries_per_s": bench.rate(made, x, repeats=15, budget=0.5)})
        found[name] = rows
        print(f"   scaling {name}: {[(row['batch'], round(row['queries_per_s'] / 1e9, 3)) for row in rows]}", flush=True)
    return found


def slopes(bench: Bench, name: str) -> dict[str, Any]:
    """Value and gradient in x, float32, forward and backward."""
    layer, _ = bench.layer(name)
    made = TorchLayer(layer, DEVICE, torch.float32)
    assert made.kernel is not None
    x = peers.queries(name, bench.many // 4, DEVICE)
    ones = torch.ones((len(x), 1), device=DEVICE)
    return {"gradient_queries_per_s": bench.rate(lambda q: made.kernel.slopes(q, ones), x)}  # type: ignore[union-attr]


def compiled_by_torch(bench: Bench) -> dict[str, Any]:
    """The target's own formula through torch.compile: the peer to beat."""
    found: dict[str, Any] = {}
    for name in peers.TARGETS:
        x = peers.queries(name, bench.many, DEVICE)
        fast = torch.compile(peers.TARGETS[name][1])
        found[name] = {"formula_queries_per_s": bench.rate(fast, x), "formula_error": worst(bench, name, fast)}
        print(f"   torch.compile {name}: {found[name]}", flush=True)
    return found


def main() -> None:
    """All sections."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    bench = Bench(arguments.folder, arguments.out, arguments.seconds, arguments.small)
    single, double = torch.float32, torch.float64
    wide = (None, (512, 4), (2048, 4), (2048, 8), (256, 2))
    few = (None, (512, 4), (2048, 8))
    bench.section("limits", lambda: limits(bench))
    bench.section("torch.compile", lambda: compiled_by_torch(bench))
    for name in ("sum", "product", "franke", "runge", "gauss", "coupled"):
        bench.section(f"ours {name}", lambda n=name: ours(bench, n, n, single, (None,)))
    for name in ("sum", "franke", "product"):
        bench.section(f"same layer {name}", lambda n=name: same_layer(bench, n))
        bench.section(f"paper {name}", lambda n=name: paper(bench, n))
        bench.section(f"textures {name}", lambda n=name: textures(bench, n))
    for name in ("sum", "product", "franke"):
        bench.section(f"agreement {name}", lambda n=name: agreement(bench, n), 20)
        bench.section(f"gradients {name}", lambda n=name: gradients(bench, n))
    bench.section("windows", lambda: windows(bench), 15)
    for name in ("sum", "product", "franke"):
        bench.section(f"ours {name} float64", lambda n=name: ours(bench, n, f"{n}-fine", double, (None, (256, 4), (128, 4))), 15)
    bench.section("scaling", lambda: scaling(bench))
    for name in ("sum", "product", "franke"):
        bench.section(f"network {name}", lambda n=name: network(bench, n), 15)
        bench.section(f"series {name}", lambda n=name: series(bench, n))
        bench.section(f"slopes {name}", lambda n=name: slopes(bench, n))
    for name in ("gauss", "coupled"):
        bench.section(f"textures {name}", lambda n=name: textures(bench, n))
        bench.section(f"same layer {name}", lambda n=name: same_layer(bench, n))
        bench.section(f"paper {name}", lambda n=name: paper(bench, n))
        bench.section(f"network {name}", lambda n=name: network(bench, n), 15)
    others = {"sum": wide, "franke": few, "product": few, "gauss": few, "coupled": ((128, 4), (256, 8), (512, 4))}
    for name, configs in others.items():
        bench.section(f"configs {name}", lambda n=name, c=configs: ours(bench, n, n, single, c), 30)
    bench.results["seconds"] = time.perf_counter() - bench.start
    bench.out.write_text(json.dumps(bench.results, indent=1, default=float))


if __name__ == "__main__":
    main()
