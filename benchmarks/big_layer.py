"""A lookup of a billion tokens on this machine: compiled into a file by two processes, mapped, evaluated, peak memory printed.

    python benchmarks/big_layer.py [--error 1.98e-4] [--folder DIR] [--json FILE]

Needs 8 GB of disk for the default error (a thousandth of that for --error 6e-3); the file is removed at the end.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from math import pi
from pathlib import Path

import numpy as np

import maxaffine as ma


def memory() -> dict[str, int]:
    """MiB: the peak of everything resident, now, and of it what belongs to this process alone."""
    wanted = {"VmHWM": "peak", "VmRSS": "now", "RssAnon": "own"}
    lines = Path("/proc/self/status").read_text().splitlines()
    return {wanted[line.split(":")[0]]: int(line.split()[1]) >> 10 for line in lines if line.split(":")[0] in wanted}


def main() -> None:
    """Compile, load, evaluate, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--error", type=float, default=1.98e-4)
    arguments.add_argument("--folder", default=None)
    arguments.add_argument("--json", default=None)
    arguments.add_argument("--workers", type=int, default=2)
    asked = arguments.parse_args()
    box = ma.Box.named(("x", "y"), [-pi, -pi], [pi, pi])
    told: dict[str, object] = {"error": asked.error, "memory_at_start_mib": memory()}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder) / "big.safetensors"
        begun = time.perf_counter()
        with ProcessPoolExecutor(asked.workers) as executor:
            layer = ma.compile("sin(x) + cos(y)", box, error=asked.error, method="lookup", out=path, executor=executor)
        told.update(
            tokens=layer.tokens, bound=layer.bound, kind=layer.certificate.kind, observed=layer.observed.error,
            file_bytes=path.stat().st_size, stated_peak_mib=layer.cost.peak_bytes >> 20,
            compile_seconds=time.perf_counter() - begun, memory_compiled_mib=memory(),
        )  # fmt: skip
        print(json.dumps(told, indent=1), flush=True)
        del layer
        begun = time.perf_counter()
        loaded = ma.load(path)
        told.update(load_seconds=time.perf_counter() - begun, mapped=isinstance(loaded.layer.values, np.memmap))
        x = box.sample(200_000, np.random.default_rng(0))
        loaded(x[:100_000])
        begun = time.perf_counter()
        found = loaded(x, threads=1)
        told.update(
            runtime=loaded.runtime()[0], queries_per_second=len(x) / (time.perf_counter() - begun),
            error_seen=float(np.abs(found - np.sin(x[:, 0]) - np.cos(x[:, 1])).max()), memory_evaluated_mib=memory(),
        )  # fmt: skip
        path.unlink()
    text = json.dumps(told, indent=1)
    print(text)
    if asked.json:
        Path(asked.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
