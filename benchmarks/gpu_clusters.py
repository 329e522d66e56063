"""Queries per second of every kind of layer on a GPU, float32, beside its own formula by torch.compile, in one run.

    python benchmarks/gpu_clusters.py --prepare out/gpu-clusters [NAMES]      where the compiler runs
    PYTHONPATH=src python benchmarks/gpu_clusters.py out/gpu-clusters results.json [--small] [--configs]      on the GPU machine

The peer is the formula in one line of PyTorch, compiled.  Times are medians of CUDA events after warm-up; errors are the largest
over 2^24 uniform points against the formula in float64, beside the bound that is stated for the route.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ONE = (-1.0, 1.0)
SQUARE = {"x": ONE, "y": ONE}
RING = 0.5

LAYERS: dict[str, tuple[str, dict[str, tuple[float, float]] | None, float, float]] = {  # text, box, error, G/s that are asked for
    "max": ("max(x, y)", SQUARE, 1e-6, 200),
    "abs-sin": ("abs(sin(7*x))", {"x": ONE}, 1e-6, 200),
    "crease": ("abs(x + 2*y - 0.3)*cos(x)", SQUARE, 1e-6, 100),
    "sum-kink": ("abs(sin(5*x)) + cos(y)**2", SQUARE, 1e-6, 100),
    "product-kink": ("abs(sin(7*x))*exp(y)", SQUARE, 1e-4, 40),
    "curved": ("max(x**2 + y**2, 0.5)", SQUARE, 1e-4, 40),
    "bump": ("exp(-((x - 0.3)**2 + (y + 0.2)**2)/(2*0.02**2))", SQUARE, 1e-4, 20),
    "ring": ("atan(30*(x**2 + y**2 - 0.5))", SQUARE, 1e-4, 20),
    "relu-16": ("", SQUARE, 1e-4, 20),
    "regions": ("abs(x + 2*y - 0.3)*cos(x*y)", SQUARE, 1e-5, 0),
    "maximum": ("max(sin(3*x), y)", SQUARE, 1e-4, 0),
    "factors-3": ("abs(x)*abs(y)*abs(z)", {"x": ONE, "y": ONE, "z": ONE}, 1e-4, 0),
    "regions-3": ("abs(x + y + z)*exp(x*y)", {"x": ONE, "y": ONE, "z": ONE}, 1e-2, 0),
    "franke": ("franke", None, 1e-6, 150),
    "coupled": ("cos(x*y + z)", {"x": ONE, "y": ONE, "z": ONE}, 1e-6, 100),
    "runge": ("1/(1 + 25*x**2)", {"x": ONE}, 1e-6, 250),
}


def network(wide: int = 16) -> Any:
    """Weights of a ReLU network of one hidden layer, from a fixed seed."""
    import numpy as np

    rng = np.random.default_rng(16)
    return rng.normal(size=(wide, 2)), rng.normal(size=wide) * 0.5, rng.normal(size=wide) / wide


def network_text() -> str:
    """The same network as a formula."""
    W, b, c = network()
    rows = zip(W.tolist(), b.tolist(), c.tolist(), strict=True)
    return " + ".join(f"({v!r})*max({w[0]!r}*x + ({w[1]!r})*y + ({t!r}), 0)" for w, t, v in rows)


def prepare(folder: Path, names: list[str]) -> None:
    """Compile and save every layer, and its direct form."""
    import maxaffine as ma
    from maxaffine.proofs.direct_form import on_device
    from maxaffine.proofs.routes import narrow_tolerance

    folder.mkdir(parents=True, exist_ok=True)
    for name in names or LAYERS:
        text, box, error, _ = LAYERS[name]
        start = time.perf_counter()
        layer = ma.compile(text or network_text(), None if box is None else ma.Box(**box), error=error)
        layer.save(folder / f"{name}.safetensors")
        made = on_device(layer, "float32")
        form = made if isinstance(made, str) else [made.rows, made.outputs, made.low, made.high, made.bound]
        known = {"error": error, "bound": float(layer.bound), "tolerance": narrow_tolerance(layer), "direct": form}
        known |= {"narrow": narrow_tolerance(layer), "reserve": layer.reserve or 0.0}
        (folder / f"{name}.json").write_text(json.dumps(known))
        print(f"{name}: {layer} in {time.perf_counter() - start:.1f} s", flush=True)


def formulas(device: str) -> dict[str, Any]:
    """The formulas in PyTorch."""
    import torch

    W, b, c = (torch.tensor(one, dtype=torch.float64, device=device) for one in network())

    def relu(x: Any) -> Any:
        return torch.relu(x @ W.T.to(x.dtype) + b.to(x.dtype)) @ c.to(x.dtype)

    def franke(x: Any) -> Any:
        u, v = 9 * x[:, 0], 9 * x[:, 1]
        return (
            0.75 * torch.exp(-((u - 2) ** 2 + (v - 2) ** 2) / 4) + 0.75 * torch.exp(-((u + 1) ** 2) / 49 - (v + 1) / 10)
            + 0.5 * torch.exp(-((u - 7) ** 2 + (v - 3) ** 2) / 4) - 0.2 * torch.exp(-((u - 4) ** 2) - (v - 7) ** 2)
        )  # fmt: skip

    return {
        "max": lambda x: torch.maximum(x[:, 0], x[:, 1]),
        "abs-sin": lambda x: torch.sin(7 * x[:, 0]).abs(),
        "crease": lambda x: (x[:, 0] + 2 * x[:, 1] - 0.3).abs() * torch.cos(x[:, 0]),
        "sum-kink": lambda x: torch.sin(5 * x[:, 0]).abs() + torch.cos(x[:, 1]) ** 2,
        "product-kink": lambda x: torch.sin(7 * x[:, 0]).abs() * torch.exp(x[:, 1]),
        "curved": lambda x: torch.clamp(x[:, 0] ** 2 + x[:, 1] ** 2, min=0.5),
        "bump": lambda x: torch.exp(-((x[:, 0] - 0.3) ** 2 + (x[:, 1] + 0.2) ** 2) / (2 * 0.02**2)),
        "ring": lambda x: torch.atan(30 * (x[:, 0] ** 2 + x[:, 1] ** 2 - RING)),
        "relu-16": relu,
        "regions": lambda x: (x[:, 0] + 2 * x[:, 1] - 0.3).abs() * torch.cos(x[:, 0] * x[:, 1]),
        "maximum": lambda x: torch.maximum(torch.sin(3 * x[:, 0]), x[:, 1]),
        "factors-3": lambda x: x[:, 0].abs() * x[:, 1].abs() * x[:, 2].abs(),
        "regions-3": lambda x: (x[:, 0] + x[:, 1] + x[:, 2]).abs() * torch.exp(x[:, 0] * x[:, 1]),
        "franke": franke,
        "coupled": lambda x: torch.cos(x[:, 0] * x[:, 1] + x[:, 2]),
        "runge": lambda x: 1 / (1 + 25 * x[:, 0] ** 2),
    }


def calls(kernel: Any, compiled: Any, x: Any) -> dict[str, Any]:
    """Microseconds of a call at batches of 1 and 10,000, launched one by one and replayed as a CUDA graph; launches counted."""
    import torch

    def launches(run: Any) -> int:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            run()
            torch.cuda.synchronize()
        return sum(1 for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA)

    def wall(run: Any) -> float:
        for _ in range(20):
            run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            run()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 200 * 1e6

    found: dict[str, Any] = {}
    for batch in (1, 10_000):
        part = x[:batch].contiguous()
        run = lambda: kernel(part)  # noqa: E731, B023
        own: dict[str, Any] = {"call": wall(run), "formula": wall(lambda: compiled(part)), "launches": launches(run)}  # noqa: B023
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run()
        graph.replay()
        torch.cuda.synchronize()
        own["same as the call"] = bool(torch.equal(out, run()))
        own["graph"] = wall(graph.replay)
        found[str(batch)] = own
    return found


def measure(folder: Path, out: Path, small: bool, every: bool) -> None:
    """Every layer by its kernel, and its formula by torch.compile."""
    import numpy as np
    import torch

    from maxaffine.core.container import read_container
    from maxaffine.layer import file as layer_file
    from maxaffine.runtime.gpu.direct import DirectProgram
    from maxaffine.runtime.gpu.launch import DirectKernel
    from maxaffine.runtime.torch_runtime import TorchLayer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    peers, began, rows = formulas(device), time.perf_counter(), []
    about = torch.cuda.get_device_properties(0).name if device == "cuda" else "cpu"

    def rate(run: Any, x: Any) -> float:
        if device == "cpu":
            return float("nan")
        for _ in range(3):
            run(x)
        times = []
        for _ in range(15):
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            run(x)
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        return len(x) / float(np.median(times))

    for name, (_, _, error, asked) in LAYERS.items():
        if not (folder / f"{name}.safetensors").exists():
            continue
        row: dict[str, Any] = {"name": name, "error": error, "asked": asked}
        try:
            tensors, record = read_container(folder / f"{name}.safetensors")
            layer = layer_file.from_tensors(tensors, record["layer"])
            known = json.loads((folder / f"{name}.json").read_text())
            start = time.perf_counter()
            made = TorchLayer(layer, device, torch.float32, tolerance=known["tolerance"])
            assert made.kernel is not None, made.reason
            row |= {"tokens": layer.tokens, "reason": made.reason, "certificate": known["bound"], "kernel": made.bound}
            row["stated"], row["made in"] = known["bound"] + (made.bound or 0.0), time.perf_counter() - start
            row["parts"] = {key: float(value) for key, value in made.kernel.found.parts.items()}
            D, generator = layer.dimension, torch.Generator(device=device).manual_seed(0)
            low, high = (torch.tensor(side, dtype=torch.float32, device=device) for side in (layer.low.copy(), layer.high.copy()))

            def queries(count: int) -> Any:
                u = torch.rand((count, D), device=device, generator=generator)  # noqa: B023
                return torch.minimum(torch.maximum(low + (high - low) * u, low), high)  # noqa: B023

            seen = 0.0
            for _ in range(1 if small else 4):
                x = queries(1 << (10 if small else 22))
                seen = max(seen, float((made.kernel(x)[:, 0].double() - peers[name](x.double())).abs().max()))
            row["seen"] = seen
            x = queries(1 << (10 if small else 27))
            part = x[: 1 << 8 if small else 1 << 20]
            row["same bits"] = bool(torch.equal(made.kernel(part[37:1000].contiguous()), made.kernel(part)[37:1000]))
            rates = {}
            for config in (None, (128, 4), (256, 2), (1024, 4), (256, 4), (512, 2)) if every and not small else (None,):
                made.kernel.config = config
                rates[str(config)] = rate(made.kernel, x)
            row["rates"], row["ours"] = rates, max(rates.values())
            made.kernel.config = None
            wide = TorchLayer(layer, device, torch.float64, tolerance=known["tolerance"])
            assert wide.kernel is not None, wide.reason
            y = queries(1 << (10 if small else 24)).double()
            off = float((wide.kernel(y)[:, 0] - peers[name](y)).abs().max())
            row["float64"] = {"rate": rate(wide.kernel, y), "stated": known["bound"] + (wide.bound or 0.0), "seen": off}
            if not isinstance(known["direct"], str):
                steps, outputs, least, most, bound = known["direct"]
                steps = tuple((kind, a, b, tuple(own)) for kind, a, b, own in steps)
                form = DirectKernel(DirectProgram(steps, tuple(outputs), tuple(least), tuple(most), "float32", bound), x.device)
                y = queries(1 << (10 if small else 22))
                off = float((form(y)[:, 0].double() - peers[name](y.double())).abs().max())
                row["direct"] = {"rate": rate(form, x), "stated": bound, "seen": off}
            else:
                row["direct"] = {"why not": known["direct"]}
            if device == "cuda":
                compiled = torch.compile(peers[name])
                row["formula"] = rate(compiled, x)
                row["ratio"] = row["ours"] / row["formula"]
                row["calls"] = calls(made.kernel, compiled, x)
        except Exception as failure:
            row["failed"] = f"{type(failure).__name__}: {failure}"[:600]
            print(traceback.format_exc()[-1500:], flush=True)
        rows.append(row)
        good = "failed" not in row
        said = row.get("failed", "")[:150]
        if good:
            said = f"{row['ours'] / 1e9:7.1f} G/s (asked {asked}), formula {row.get('formula', 0) / 1e9:6.1f}"
            said += f", seen {row['seen']:.2g}, stated {row['stated']:.2g}, {row['same bits']}, made in {row['made in']:.1f} s"
            other, direct = row["float64"], row["direct"]
            said += f"; float64 {other['rate'] / 1e9:.1f} G/s, seen {other['seen']:.2g}, stated {other['stated']:.2g}"
            if "rate" in direct:
                said += f"; direct {direct['rate'] / 1e9:.1f} G/s, seen {direct['seen']:.2g}, stated {direct['stated']:.2g}"
            said += f" {[f'{k}: {v / 1e9:.0f}' for k, v in row['rates'].items()]}"
        print(f"{name:13s} {said}  [{time.perf_counter() - began:.0f} s]", flush=True)
        out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    if sys.argv[1] == "--prepare":
        prepare(Path(sys.argv[2]), sys.argv[3:])
    else:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/tmp/inductor")
        measure(Path(sys.argv[1]), Path(sys.argv[2]), "--small" in sys.argv, "--configs" in sys.argv)
