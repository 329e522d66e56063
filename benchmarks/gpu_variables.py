"""Queries per second of layers of many variables on a GPU, beside the formula itself by torch.compile, in one run.

    python benchmarks/gpu_variables.py --prepare out/gpu-variables      where the compiler runs
    PYTHONPATH=src python benchmarks/gpu_variables.py out/gpu-variables results.json      on the GPU machine

The peer is the formula in one line of PyTorch.  Times are medians of CUDA events after warm-up; errors are the largest over 2^22
uniform points against the formula in float64, beside the bound that is stated for the route.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

TARGETS = {  # name: formula, variables, relative error
    "inverse-10": ("1/(1+|x|^2)", 10, 1e-4),
    "inverse-50": ("1/(1+|x|^2)", 50, 1e-4),
    "inverse-100": ("1/(1+|x|^2)", 100, 1e-4),
    "wave-10": ("exp(sin(|x|^2))", 10, 1e-4),
    "alignment-4": ("tanh(x1*x3+x2*x4)", 4, 1e-4),
}


def prepare(folder: Path) -> None:
    """Compile and save every layer."""
    import maxaffine as ma

    folder.mkdir(parents=True, exist_ok=True)
    for name, (formula, D, error) in TARGETS.items():
        names = [f"x{i}" for i in range(1, D + 1)]
        text = formula.replace("|x|^2", "(" + "+".join(f"{n}**2" for n in names) + ")")
        layer = ma.compile(text, ma.Box(**dict.fromkeys(names, (-1, 1))), error=error)
        layer.save(folder / f"{name}.safetensors")
        print(layer, flush=True)


def peers() -> dict[str, Any]:
    """The formulas in PyTorch."""
    import torch

    def square(x: Any) -> Any:
        return (x * x).sum(dim=1)

    found: dict[str, Any] = {f"inverse-{D}": lambda x: 1 / (1 + square(x)) for D in (10, 50, 100)}
    found["wave-10"] = lambda x: torch.exp(torch.sin(square(x)))
    found["alignment-4"] = lambda x: torch.tanh(x[:, 0] * x[:, 2] + x[:, 1] * x[:, 3])
    return found


def measure(folder: Path, out: Path) -> None:
    """Every layer in both dtypes by every way that runs it, and its formula eager and compiled."""
    import torch

    from maxaffine.core.container import read_container
    from maxaffine.layer import file as layer_file
    from maxaffine.runtime.torch_runtime import TorchLayer

    rows, formulas, began = [], peers(), time.perf_counter()
    about = torch.cuda.get_device_properties(0)
    for name in TARGETS:
        tensors, record = read_container(folder / f"{name}.safetensors")
        layer = layer_file.from_tensors(tensors, record["layer"])
        for dtype in (torch.float32, torch.float64):
            count = (1 << 31) // layer.dimension // (4 if dtype == torch.float32 else 8)
            x = torch.rand(count, layer.dimension, device="cuda", dtype=dtype) * 2 - 1
            ways: dict[str, Any] = {"formula, eager": formulas[name], "formula, torch.compile": torch.compile(formulas[name])}
            chosen = TorchLayer(layer, "cuda", dtype, tolerance=record["error"] / 8.0)
            ways[f"layer, {chosen.runtime}"] = chosen
            if chosen.runtime != "factorised":
                ways["layer, factorised"] = TorchLayer(layer, "cuda", dtype, "factorised")
            for way, run in ways.items():
                part = x if way != "layer, factorised" else x[: 1 << 20]
                row = {"target": name, "dtype": str(dtype)[6:], "way": way, "queries": len(part)}
                try:
                    row["rate"] = rate(run, part)
                    y = x[: 1 << 22] if "factorised" not in way else x[: 1 << 18]
                    row["error"] = float((run(y).reshape(-1).double() - formulas[name](y.double())).abs().max())
                    if way.startswith("layer"):
                        row["proved"] = record["certificate"]["bound"] + (getattr(run, "bound", None) or 0.0)
                except Exception as failure:  # a way that fails is a row that says so
                    row["failed"] = f"{type(failure).__name__}: {failure}"[:300]
                rows.append(row)
                print(json.dumps(row), flush=True)
                out.write_text(json.dumps({"gpu": about.name, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")
            del x
            torch.cuda.empty_cache()
    print(f"{time.perf_counter() - began:.0f} s", flush=True)


def rate(run: Any, x: Any, budget: float = 3.0) -> float:
    """Queries per second: the median of up to nine calls, two before them not counted."""
    import torch

    run(x)
    times, spent = [], 0.0
    for i in range(11):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run(x)
        last.record()
        torch.cuda.synchronize()
        t = first.elapsed_time(last) / 1e3
        spent += t
        if i >= 2 or spent > budget:
            times.append(t)
        if spent > budget:
            break
    return float(len(x) / sorted(times)[len(times) // 2])


if __name__ == "__main__":
    if sys.argv[1] == "--prepare":
        prepare(Path(sys.argv[2]))
    else:
        measure(Path(sys.argv[1]), Path(sys.argv[2]))
