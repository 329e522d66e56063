"""What a call costs on a GPU by the size of its batch: the chosen kernel, and PyTorch's operations on the same layer.

    python benchmarks/gpu_layers.py out/gpu-layers sum franke          where the compiler runs
    PYTHONPATH=src python benchmarks/gpu_batch.py out/gpu-layers gpu_batch.json          on the GPU machine

Wall time of a whole call that ends when its answer is there, float32, medians of repeats; also whether every batch has the bits
of the largest one.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

from maxaffine.core.container import read_container
from maxaffine.heads.lookup.grid import axis_sites, grid_keys
from maxaffine.layer import file as layer_file
from maxaffine.layer.keys import Coordinates
from maxaffine.layer.layer import Layer
from maxaffine.runtime.torch_runtime import torch_layer

BATCHES = (1, 100, 10_000, 1_000_000, 100_000_000)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def lookup(cells: int) -> Layer:
    """sin x + cos y on [-pi, pi]^2, sharpness 20."""
    sites = axis_sites(cells) * 2 * np.pi / cells
    values = np.add.outer(np.sin(sites), np.cos(sites))[..., None, None]
    scale = cells / (2 * np.pi) * (1.0 - 2.0**-48)
    end, place = np.full(2, np.pi), Coordinates(np.zeros(2), np.diag([scale, scale]))
    return Layer(place, grid_keys((cells, cells)), 20.0, values, -end, end, ((2, 1),))


def timed(run: Any) -> float:
    """Median seconds of a call, its answer awaited."""
    taken = []
    for _ in range(12):
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize() if DEVICE == "cuda" else None
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken[2:]))


def main() -> None:
    """Measure, print, keep."""
    folder, path = sys.argv[1:]
    layers = {name: layer_file.from_tensors(*_parts(Path(folder) / f"{name}.safetensors")) for name in ("sum", "franke")}
    layers["lookup of 1,000,000 tokens"] = lookup(1_000)
    machine = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    results: dict[str, Any] = {"device": machine, "torch": torch.__version__, "triton": triton.__version__, "layers": {}}
    for name, layer in layers.items():
        low, high = (torch.tensor(side, dtype=torch.float32, device=DEVICE) for side in (layer.low, layer.high))
        torch.manual_seed(0)
        x = low + (high - low) * torch.rand((BATCHES[-1], layer.dimension), device=DEVICE)
        chosen = torch_layer(layer, x.device, torch.float32, None, 1.25e-8)
        plain = torch_layer(layer, x.device, torch.float32, "factorised")
        whole, rows = chosen(x), []
        for batch in BATCHES:
            row: dict[str, Any] = {"batch": batch, "chosen_seconds": timed(lambda: chosen(x[:batch]))}  # noqa: B023
            row["same_bits"] = bool(torch.equal(chosen(x[:batch]), whole[:batch]))
            if batch <= 1_000_000:
                row["factorised_seconds"] = timed(lambda: plain(x[:batch]))  # noqa: B023
            rows.append(row)
            print(name, chosen.runtime, chosen.reason, row, flush=True)
        results["layers"][name] = {"runtime": chosen.runtime, "reason": chosen.reason, "rows": rows}
    Path(path).write_text(json.dumps(results, indent=1) + "\n")


def _parts(path: Path) -> tuple[Any, Any]:
    tensors, record = read_container(path)
    return tensors, record["layer"]


if __name__ == "__main__":
    main()
