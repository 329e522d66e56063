"""Compiled kernels when there is enough to do, and a batch of queries shared among threads.

Kernels and their NumPy versions give the same bits, so when a kernel is loaded, or how many threads share a batch, is a matter
of time alone.  Work is counted in coefficients or values visited, about a nanosecond each in NumPy.
"""

import importlib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from maxaffine.core.errors import BadInput

ENOUGH = 2_000_000  # work of one batch from which on loading (or first compiling) a kernel is worth it
PATIENCE = 1 << 28  # work of smaller batches together, about what loading a kernel takes
CALL = 1_000  # queries that NumPy answers in the time that calling it takes
SHARE = 4_000_000  # work per thread, at least

BLOCK = 256  # queries at a time in every kernel

_loaded: dict[str, Callable[..., Any] | None] = {}
_waited: dict[str, int] = {}


def kernel(name: str, work: int, count: int = CALL) -> Callable[..., Any] | None:
    """The numba kernel of that name for a batch of `count` queries: where loaded already or worth loading; None without numba.

    Worth it: one large batch, or small ones that have cost as much as loading does.
    """
    if name not in _loaded:
        _waited[name] = _waited.get(name, 0) + work * max(1, CALL // max(1, count))
        if work < ENOUGH and _waited[name] < PATIENCE:
            return None
        try:
            _loaded[name] = getattr(importlib.import_module(f"maxaffine.runtime.kernel_{name}"), name)
        except ImportError:
            _loaded[name] = None
    return _loaded[name]


def is_loaded(name: str) -> bool:
    """Whether the kernel of that name has been loaded."""
    return _loaded.get(name) is not None


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


def shares(count: int, work: int, threads: int | None) -> int:
    """Threads that share a batch."""
    return max(1, min(thread_count(threads), work // SHARE, math.ceil(count / BLOCK)))


def over(first: int, last: int, work: int, threads: int | None, run: Callable[[int, int], None]) -> None:
    """run(start, stop) over first..last, in equal shares of whole blocks, one per thread."""
    parts = shares(last - first, work, threads)
    if parts <= 1:
        run(first, last)
        return
    step = math.ceil(math.ceil((last - first) / BLOCK) / parts) * BLOCK
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(lambda start: run(start, min(start + step, last)), range(first, last, step)))
