"""How fast stacks run in NumPy on one thread, beside their formulas: queries per second of processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import maxaffine as ma

BATCHES = (100, 10_000, 1_000_000)
TIMES, LONG = 3, 0.3  # measurements, and seconds of each


def speed(stack: ma.Stack) -> dict[str, dict[str, float]]:
    """By batch: queries per second of the stack and of its formula, the best of a few runs."""
    rng, found = np.random.default_rng(0), {}
    stack(stack.box.sample(BATCHES[-1], rng), threads=1)  # compiled code is loaded
    for count in BATCHES:
        x = stack.box.sample(count, rng)
        rates = {"stack": _rate(lambda x=x: stack(x, threads=1)), "formula": _rate(lambda x=x: stack.target.values(x))}
        found[str(count)] = {name: count * rate for name, rate in rates.items()}
    return found


def _rate(call: Callable[[], Any]) -> float:
    """Calls per second: the most of several times that are long against the clock's steps."""
    best = 0.0
    for _ in range(TIMES):
        calls, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < LONG:
            call()
            calls += 1
        best = max(best, calls / spent)
    return best
