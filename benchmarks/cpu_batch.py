"""What a call costs by the size of its batch: the chosen runtime in NumPy and compiled, and other runtimes of the same layer.

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
from cpu_tools import CASES, machine
from maxaffine.runtime import chooser, parallel

BATCHES = (1, 100, 10_000)
MOST = 20_000_000  # weights that the literal runtimes may take per call
LAYERS = {
    "sin x + cos y, 1e-6": (CASES[1].text, CASES[1].box, {"error": 1e-6, "method": "spectral"}),
    "Franke, 1e-6": (CASES[3].text, CASES[3].box, {"error": 1e-6, "method": "spectral"}),
    "sin x + cos y, lookup for 0.1": (CASES[1].text, CASES[1].box, {"error": 0.1, "method": "lookup"}),
    "exp(-r^2), lookup for 0.1": (CASES[4].text, CASES[4].box, {"error": 0.1, "method": "lookup"}),
    "max(x, y), 1e-6": ("max(x, y)", ma.Box.named(("x", "y"), [-1.0, -1.0], [1.0, 1.0]), {"error": 1e-6}),
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


def measured(layer: ma.Compiled, x: np.ndarray) -> dict[str, float]:
    """Microseconds per call, by runtime."""
    name = layer.runtime()[0]
    kernel = chooser.ways(layer.weights, name, layer.reserve or 0.0).kernel
    assert kernel is not None
    parallel._loaded[kernel] = None  # as if it could not be loaded
    found = {"NumPy": per_call(lambda: layer(x, threads=1))}
    del parallel._loaded[kernel]
    parallel.kernel(kernel, 10**12)
    found["compiled"] = per_call(lambda: layer(x, threads=1))
    for other in ("factorised", "dense"):
        if other in layer.runtimes() and len(x) * layer.tokens <= MOST:
            found[other] = per_call(lambda: layer(x, runtime=other))  # noqa: B023
    return found


def main() -> None:
    """Run, print, keep."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", default=None)
    asked = arguments.parse_args()
    results: dict[str, Any] = {"machine": machine(), "layers": {}, "load_seconds": {}}
    for name, (text, box, told) in LAYERS.items():
        layer = ma.compile(text, box, **told)
        rows = {str(n): measured(layer, box.sample(n, np.random.default_rng(0))) for n in BATCHES}
        results["layers"][name] = {"tokens": layer.tokens, "runtime": layer.runtime()[0], "rows": rows}
        print(name, results["layers"][name], flush=True)
    for kernel in ("collapsed", "windowed", "two_level"):
        done = subprocess.run([sys.executable, "-c", LOAD.format(kernel)], capture_output=True, text=True, check=True)
        results["load_seconds"][kernel] = float(done.stdout)
    print(results["load_seconds"])
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
