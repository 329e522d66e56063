"""A lookup of a billion tokens on this machine: compiled into a file by two processes, proved again, mapped, evaluated.

    python benchmarks/big_layer.py [--error 1.98e-4] [--folder DIR] [--json FILE]

Prints the memory it stated beforehand and the peaks it had, and what every stage took.
Needs 8 GB of disk for the default error (a thousandth of that for --error 6e-3); the file is removed at the end.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from math import pi
from pathlib import Path

import numpy as np

import maxaffine as ma

STAGES = {"values": "values", "proved again, every value": "proved again", "search for the worst point": "worst point"}


def memory() -> dict[str, int]:
    """MiB: the peak of everything resident, now, and of it what belongs to this process alone; the peak begins anew."""
    wanted = {"VmHWM": "peak", "VmRSS": "now", "RssAnon": "own"}
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {wanted[line.split(":")[0]]: int(line.split()[1]) >> 10 for line in lines if line.split(":")[0] in wanted}
    Path("/proc/self/clear_refs").write_text("5")
    return found


class Clock:
    """A progress callback that keeps when every stage was first and last heard of, and tells it now and then."""

    def __init__(self) -> None:
        self.begun = self.told = time.perf_counter()
        self.heard: dict[str, list[float]] = {}
        self.peaks: dict[str, int] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Heard."""
        now = time.perf_counter()
        if stage not in self.heard:
            self.peaks[stage] = memory()["peak"]  # of what came before
        self.heard.setdefault(stage, [now, now])[1] = now
        if now - self.told > 30.0:
            self.told = now
            print(f"{now - self.begun:7.0f} s  {stage} {done:,} of {total:,}", flush=True)

    def seconds(self, end: float) -> dict[str, float]:
        """Of every stage, until the next one begins."""
        starts = sorted((first, stage) for stage, (first, _) in self.heard.items())
        ends = [first for first, _ in starts[1:]] + [end]
        return {STAGES.get(stage, stage): last - first for (first, stage), last in zip(starts, ends, strict=True)}


def timed(layer: ma.Compiled, x: np.ndarray, batch: int) -> float:
    """Queries per second, wall time, one thread, in batches of that many."""
    begun = time.perf_counter()
    for start in range(0, len(x), batch):
        layer(x[start : start + batch], threads=1)
    return len(x) / (time.perf_counter() - begun)


def main() -> None:
    """Compile, load, evaluate, print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--error", type=float, default=1.98e-4)
    arguments.add_argument("--folder", default=None)
    arguments.add_argument("--json", default=None)
    arguments.add_argument("--workers", type=int, default=2)
    asked = arguments.parse_args()
    box = ma.Box.named(("x", "y"), [-pi, -pi], [pi, pi])
    told: dict[str, object] = {"error": asked.error, "memory_at_start_mib": memory(), "load_at_start": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path, clock, begun = Path(folder) / "big.safetensors", Clock(), time.perf_counter()
        with ProcessPoolExecutor(asked.workers) as executor:
            run = ma.Run(out=path, executor=executor, progress=clock)
            layer = ma.compile("sin(x) + cos(y)", box, error=asked.error, method="lookup", run=run)
        ended = time.perf_counter()
        compiled = memory()
        compiled["peak"] = max(compiled["peak"], *clock.peaks.values())
        told.update(
            tokens=layer.tokens, bound=layer.bound, kind=layer.certificate.kind, observed=layer.observed.error,
            file_bytes=path.stat().st_size, stated_peak_mib=layer.cost.peak_bytes >> 20,
            compile_seconds=ended - begun, stages_seconds=clock.seconds(ended), memory_compiled_mib=compiled,
            worker_peak_mib=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
        )  # fmt: skip
        print(json.dumps(told, indent=1), flush=True)
        del layer
        begun = time.perf_counter()
        loaded = ma.load(path)
        told.update(load_seconds=time.perf_counter() - begun, mapped=isinstance(loaded.weights.values, np.memmap))
        told["memory_loaded_mib"] = memory()
        rng = np.random.default_rng(0)
        loaded(box.sample(100_000, rng))  # compiled kernels
        told["queries_per_second"] = {batch: timed(loaded, box.sample(n, rng), batch) for batch, n in BATCHES.items()}
        x = box.sample(200_000, rng)
        told.update(
            runtime=loaded.runtime()[0], load_at_end=os.getloadavg()[0],
            error_seen=float(np.abs(loaded(x) - np.sin(x[:, 0]) - np.cos(x[:, 1])).max()), memory_evaluated_mib=memory(),
        )  # fmt: skip
        path.unlink()
    text = json.dumps(told, indent=1)
    print(text)
    if asked.json:
        Path(asked.json).write_text(text + "\n")


BATCHES = {1_000: 20_000, 200_000: 200_000, 4_000_000: 4_000_000}


if __name__ == "__main__":
    main()
