"""What a layer costs inside a model of PyTorch: kernels, microseconds of kernels, and the latency of a call.

    python benchmarks/gpu_clusters.py --prepare out/gpu-clusters max abs-sin curved franke      where the compiler runs
    PYTHONPATH=src python benchmarks/gpu_fused.py out/gpu-clusters results.json [--small]       on the GPU machine

A layer stands between two linear layers: as `to_torch(form="kernel")`, as `to_torch()`, and with a ReLU and a sum in its place.
Each model runs eagerly, compiled (fullgraph: a graph break is an error), and compiled with mode="reduce-overhead",
which records a CUDA graph; forward alone, and forward and backward.  Kernels are counted by PyTorch's profiler.

Of every layer of the folder the kernel of gradients in x as well: gradients per second, and how far they are from those of the
softmax in float64, relative to the largest, in the median and at 95%.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maxaffine.core.container import read_container
from maxaffine.export.torch_module import to_torch
from maxaffine.layer import file as layer_file
from maxaffine.runtime.torch_operator import Operator, operator

NAMES = ("max", "abs-sin", "curved", "franke")
BATCHES = (1, 10_000)
WIDTH = 64


class Kernel(torch.nn.Module):
    """What the module of form "kernel" computes, without the libraries of the proofs."""

    def __init__(self, made: Operator) -> None:
        super().__init__()
        self.made, self.key, self.outputs = made, made.key, made.outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, D) -> (B, K)."""
        found: torch.Tensor = torch.ops.maxaffine.layer(x, self.key, self.outputs)
        return found


class Plain(torch.nn.Module):
    """A ReLU and a sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, D) -> (B,)."""
        return torch.relu(x).sum(dim=1)


class Model(torch.nn.Module):
    """A linear layer, tanh, the inner module, a linear layer."""

    def __init__(self, inner: torch.nn.Module, dimension: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.last = torch.nn.Linear(WIDTH, dimension), inner, torch.nn.Linear(1, WIDTH)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(B, WIDTH) -> (B, WIDTH)."""
        found: torch.Tensor = self.last(self.inner(torch.tanh(self.first(h))).reshape(-1, 1).to(h.dtype))
        return found


def counted(run: Callable[[], Any]) -> dict[str, Any]:
    """Kernels of a call that has run before, and how long they take."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    events = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [event for event in events if not event.name.startswith(("Memcpy", "Memset"))]
    beside = len(events) - len(kernels)
    took = sum(event.device_time_total for event in kernels)
    return {"kernels": len(kernels), "copies": beside, "microseconds": took, "names": [event.name[:60] for event in events][:24]}


def wall(run: Callable[[], Any], count: int = 200) -> float:
    """Microseconds of a call, many in a row."""
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e6


def steps(model: torch.nn.Module, how: str, h: torch.Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward without gradients, and forward with backward."""
    torch._dynamo.reset()
    options: dict[str, Any] = {"fullgraph": True}
    if how == "reduce-overhead":
        options["mode"] = how
    run = model if how == "eager" else torch.compile(model, **options)

    def forward() -> Any:
        with torch.no_grad():
            return run(h)

    def trained() -> None:
        model.zero_grad(set_to_none=True)
        run(h).square().sum().backward()

    return forward, trained


def one(layer: Any, known: dict[str, Any], device: str, small: bool) -> dict[str, Any]:
    """Every form of one layer, in every way to run it, at every batch."""
    made = operator(layer, known.get("narrow", known["error"] / 8.0), known.get("reserve", 0.0))
    inners = {"kernel": Kernel(made), "structure": to_torch(layer, (), None, False), "relu": Plain()}
    found: dict[str, Any] = {"by": made.on(torch.zeros(1, layer.dimension, device=device)).reason}
    for dtype in ("float32", "bfloat16"):
        for name, inner in inners.items():
            if dtype == "bfloat16" and name == "structure":
                continue
            model = Model(inner, layer.dimension).to(device)
            model = model.to(torch.bfloat16) if dtype == "bfloat16" else model
            for batch in BATCHES if dtype == "float32" else BATCHES[-1:]:
                h = torch.randn(16 if small else batch, WIDTH, device=device).to(getattr(torch, dtype))
                plain = model(h).detach()
                for how in ("eager", "compiled", "reduce-overhead"):
                    forward, trained = steps(model, how, h)
                    apart = max(float((forward() - plain).abs().max()) for _ in range(3))
                    row: dict[str, Any] = {"apart": apart, "size": float(plain.abs().max())}
                    if device == "cuda":
                        row |= counted(forward) | {"call": wall(forward)}
                    if batch == BATCHES[-1] and how != "reduce-overhead":
                        trained()
                        trained()
                        if device == "cuda":
                            row["training"] = counted(trained) | {"call": wall(trained, 50)}
                    found[f"{name}, {dtype}, {batch}, {how}"] = row
    return found


def gradients(layer: Any, known: dict[str, Any], device: str, small: bool) -> dict[str, Any]:
    """The kernel of gradients of one layer."""
    made = operator(layer, known.get("narrow", known["error"] / 8.0), known.get("reserve", 0.0))
    generator = torch.Generator(device=device).manual_seed(0)

    def queries(count: int) -> torch.Tensor:
        low, high = (torch.tensor(side.copy(), dtype=torch.float32, device=device) for side in (layer.low, layer.high))
        return low + (high - low) * torch.rand((count, layer.dimension), device=device, generator=generator)

    x = queries(100 if small else 100_000)
    run = made.on(x)
    if not run.has_slopes:
        return {"why not": getattr(run, "reason", "no kernel")}
    weight = torch.ones((len(x), made.outputs), device=device)
    wide = x.double().requires_grad_()
    (wanted,) = torch.autograd.grad(run.factorised(wide).sum(), wide)  # type: ignore[attr-defined]
    apart = (run.slopes(x, weight) - wanted).abs().amax(dim=1) / wanted.abs().max()
    found = {"median": float(apart.median()), "most": float(apart.quantile(0.95))}
    if device == "cuda":
        x = queries(1 << 24)
        weight = torch.ones((len(x), made.outputs), device=device)
        found |= {"rate": rate(lambda: run.slopes(x, weight), len(x)), "values": rate(lambda: run.plain(x), len(x))}
    return found


def rate(run: Callable[[], Any], count: int) -> float:
    """Points per second by CUDA events."""
    times = []
    for _ in range(12):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1e3)
    return count / float(np.median(times[2:]))


def main(folder: Path, out: Path, small: bool) -> None:
    """All layers of the folder: gradients of every one, models of those named above."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    about = torch.cuda.get_device_properties(0).name if device == "cuda" else "cpu"
    rows, began = [], time.perf_counter()
    names = [name for name in NAMES if (folder / f"{name}.safetensors").exists()]
    names += sorted(path.stem for path in folder.glob("*.safetensors") if path.stem not in NAMES)
    for name in names:
        row: dict[str, Any] = {"name": name}
        try:
            tensors, record = read_container(folder / f"{name}.safetensors")
            known = json.loads((folder / f"{name}.json").read_text())
            layer = layer_file.from_tensors(tensors, record["layer"])
            row["gradients"] = gradients(layer, known, device, small)
            row |= one(layer, known, device, small) if name in NAMES else {}
        except Exception as failure:
            row["failed"] = f"{type(failure).__name__}: {failure}"[:600]
            print(traceback.format_exc()[-2500:], flush=True)
        rows.append(row)
        out.write_text(json.dumps({"machine": about, "torch": torch.__version__, "rows": rows}, indent=1))
        said = row.get("failed", f"{row.get('by', '')} gradients {row.get('gradients')}")
        print(f"{name}: {said}  [{time.perf_counter() - began:.0f} s]", flush=True)
        for key, value in row.items():
            if isinstance(value, dict) and key != "gradients":
                more, took = value.get("training", {}), [value.get(what, np.nan) for what in ("microseconds", "call")]
                said = f"kernels {value.get('kernels')} + {value.get('copies')}, {took[0]:.1f} us, call {took[1]:.1f} us"
                print(f"  {key:40s} {said}, training {more.get('kernels')}, apart {value['apart']:.1e}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/tmp/inductor")
    main(Path(sys.argv[1]), Path(sys.argv[2]), "--small" in sys.argv)
