"""Layers for the GPU benchmark, compiled and saved where the compiler runs: `python benchmarks/gpu_layers.py FOLDER [NAMES]`.

The GPU machine needs PyTorch, Triton, NumPy and safetensors alone; it reads these files and never compiles an expression.
"""

import math
import sys
import time
from pathlib import Path

import maxaffine as ma

PI = (-math.pi, math.pi)
ONE = (-1.0, 1.0)

LAYERS = {
    "sum": ("sin(x) + cos(y)", {"x": PI, "y": PI}, 3e-8),
    "sum-fine": ("sin(x) + cos(y)", {"x": PI, "y": PI}, 1e-11),
    "product": ("sin(x) * cos(y)", {"x": PI, "y": PI}, 1e-7),
    "product-fine": ("sin(x) * cos(y)", {"x": PI, "y": PI}, 1e-10),
    "franke": ("franke", None, 1e-7),
    "franke-fine": ("franke", None, 1e-9),
    "runge": ("1/(1 + 25*x**2)", {"x": ONE}, 1e-7),
    "gauss": ("exp(-x**2 - y**2 - z**2)", {"x": (-2.0, 2.0), "y": (-2.0, 2.0), "z": (-2.0, 2.0)}, 1e-7),
    "coupled": ("cos(x*y + z)", {"x": ONE, "y": ONE, "z": ONE}, 2e-6),
}


def main() -> None:
    """Compile and save every layer; one that is refused is named and left out."""
    folder, *chosen = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in chosen or LAYERS:
        text, box, error = LAYERS[name]
        start = time.perf_counter()
        try:
            compiled = ma.compile(text, None if box is None else ma.Box(**box), error=error, method="spectral")
            compiled.save(Path(folder) / f"{name}.safetensors")
            print(f"{name}: {compiled} in {time.perf_counter() - start:.1f} s", flush=True)
        except ma.MaxaffineError as refusal:
            print(f"{name}: {refusal}", flush=True)


if __name__ == "__main__":
    main()
