"""What a call costs by the size of its batch: the formula, its direct form, and the layer's runtimes in NumPy and compiled.

    python benchmarks/cpu_batch.py [--json FILE]

Microseconds of processor time per call on arrays, checks of the queries included, one thread, medians; and the seconds that
loading a kernel takes in a fresh process (compiled before).  These are the numbers behind runtime/parallel.py.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import maxaffine as ma
from cpu_tools import CASES, Case, in_numba, in_numpy, machine
from maxaffine.runtime import chooser, parallel

BATCHES = (1, 100, 10_000)
MOST = 20_000_000  # weights that the literal runtimes may take per call
MAXIMUM = Case("max(x, y)", "max(x, y)", ma.Box.named(("x", "y"), [-1.0] * 2, [1.0] * 2), formula=lambda x, y: np.maximum(x, y))
LAYERS: dict[str, tuple[Case, dict[str, Any]]] = {
    "sin x + cos y, 1e-6": (CASES[1], {"error": 1e-6, "method": "spectral"}),
    "Franke, 1e-6": (CASES[3], {"error": 1e-6, "method": "spectral"}),
    "sin x + cos y, lookup for 0.1": (CASES[1], {"error": 0.1, "method": "lookup"}),
    "exp(-r^2), lookup for 0.1": (CASES[4], {"error": 0.1, "method": "lookup"}),
    "max(x, y), 1e-6": (MAXIMUM, {"error": 1e-6}),
}
LOAD = "import time, numpy\nfrom maxaffine.runtime import parallel\nt = time.process_time()\nparallel.kernel({!r}, 10**9)\n" \
    "print(time.process_time() - t)"  # fmt: skip


def per_call(run: Callable[[], Any]) -> float:
    """Median microseconds of processor time of a call, of seven rounds of some 20 ms each."""
    run()
    begun = time.perf_counter()
    run()
    count = max(1, int(0.02 / max(time.perf_counter() - begun, 1e-6)))
    taken = []
    for _ in range(7):
        begun = time.process_time()
        for _ in range(count):
            run()
        taken.append((time.process_time() - begun) / count)
    return float(np.median(taken)) * 1e6


def measured(case: Case, layer: ma.Compiled, x: np.ndarray) -> dict[str, float | str]:
    """Microseconds per call of the formula and by runtime, or why one was left out."""
    formula, compiled = in_numpy(case), in_numba(case)
    found: dict[str, float | str] = {"formula": per_call(lambda: formula(x)), "numba": per_call(lambda: compiled(x))}
    parallel.kernel("direct", 10**12)
    found["direct"] = per_call(lambda: layer(x, runtime="direct", threads=1))
    name = layer.runtime()[0]
    kernel = chooser.ways(layer.weights, name, layer.reserve or 0.0).kernel
    assert kernel is not None
    parallel._loaded[kernel] = None  # as if it could not be loaded
    found["NumPy"] = per_call(lambda: layer(x, threads=1))
    del parallel._loaded[kernel]
    parallel.kernel(kernel, 10**12)
    found["compiled"] = per_call(lambda: layer(x, threads=1))
    for other in ("factorised", "dense"):
        if other not in layer.runtimes():
            found[other] = "cannot"
        elif len(x) * layer.tokens > MOST:
            found[other] = "left out"
        else:
            found[other] = per_call(lambda: layer(x, runtime=other))  # noqa: B023
    return found


def main() -> None:
    """Run, print, keep."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", default=None)
    asked = arguments.parse_args()
    results: dict[str, Any] = {"machine": machine(), "layers": {}, "load_seconds": {}}
    for name, (case, told) in LAYERS.items():
        layer = ma.compile(case.text, case.box, **told)
        rows = {str(n): measured(case, layer, case.box.sample(n, np.random.default_rng(0))) for n in BATCHES}
        results["layers"][name] = {"tokens": layer.tokens, "runtime": layer.runtime()[0], "rows": rows}
        print(name, results["layers"][name], flush=True)
    for kernel in ("collapsed", "windowed", "two_level", "direct"):
        done = subprocess.run([sys.executable, "-c", LOAD.format(kernel)], capture_output=True, text=True, check=True)
        results["load_seconds"][kernel] = float(done.stdout)
    print(results["load_seconds"])
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
