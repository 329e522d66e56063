"""Compiled kernels when there is enough to do, and a batch of queries shared among threads."""

import importlib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from maxaffine.core.errors import BadInput

ENOUGH = 2_000_000  # coefficients or values visited by a batch from which on loading (or first compiling) a kernel is worth it
SHARE = 4_000_000  # of them per thread, at least

BLOCK = 256  # queries at a time in every kernel

_loaded: dict[str, Callable[..., Any] | None] = {}


def kernel(name: str, work: int) -> Callable[..., Any] | None:
    """The numba kernel of that name: where loaded already or worth loading; None where numba is missing."""
    if name not in _loaded:
        if work < ENOUGH:
            return None
        try:
            _loaded[name] = getattr(importlib.import_module(f"maxaffine.runtime.kernel_{name}"), name)
        except ImportError:
            _loaded[name] = None
    return _loaded[name]


def thread_count(threads: int | None) -> int:
    """`threads`, else OMP_NUM_THREADS, else the processors that this process may use."""
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise BadInput(f"`threads` (={threads!r}) must be a whole number of at least 1.")
        return threads
    told = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over(count: int, work: int, threads: int | None, run: Callable[[int, int], None]) -> None:
    """run(start, stop) over 0..count, in equal shares of whole blocks, one per thread."""
    blocks = math.ceil(count / BLOCK)
    shares = min(thread_count(threads), max(1, work // SHARE), blocks)
    if shares <= 1:
        run(0, count)
        return
    step = math.ceil(blocks / shares) * BLOCK
    starts = range(0, count, step)
    with ThreadPoolExecutor(shares) as pool:
        for _ in pool.map(lambda start: run(start, min(start + step, count)), starts):
            pass
