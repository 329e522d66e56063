"""What a batch decides about a runtime: NumPy or compiled code, threads, order and chunks, and whether that may change a bit.

Which runtime runs a layer follows from the layer alone, because runtimes round differently and a query's value must not depend
on its company.  Kernels and their NumPy versions give the same bits, so when a kernel is loaded, or how many threads share a
batch, is a matter of time alone.  Bits differ only where sums go through a BLAS (`same_bits`): literal runtimes, factorised
lookups, and groups of products whose tables are large.  Work is counted in coefficients or values visited, about a nanosecond
each in NumPy.
"""

import importlib
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from maxaffine.core.errors import BadInput

ENOUGH = 1 << 26  # work of one batch from which on loading (or first compiling) a kernel is worth it
PATIENCE = 1 << 28  # work of smaller batches together, about what loading a kernel takes
CALL = 1_000  # queries that NumPy answers in the time that calling it takes
SHARE = 4_000_000  # work per thread, at least

BLOCK = 256  # queries at a time in every kernel

_loaded: dict[str, Callable[..., Any] | None] = {}
_waited: dict[str, int] = {}
_in_passing: ContextVar[bool] = ContextVar("in_passing", default=False)


@contextmanager
def in_passing() -> Iterator[None]:
    """Inside, a large batch is not taken for the first of many: a kernel is loaded where this work alone takes as long."""
    token = _in_passing.set(True)
    try:
        yield
    finally:
        _in_passing.reset(token)


def kernel(name: str, work: int, count: int = CALL) -> Callable[..., Any] | None:
    """The numba kernel of that name for a batch of `count` queries: where loaded already or worth loading; None without numba.

    Worth it: one large batch, or small ones that have cost as much as loading does; in passing, twice as much as that.
    """
    if name not in _loaded:
        _waited[name] = _waited.get(name, 0) + work * max(1, CALL // max(1, count))
        enough, patience = (2 * PATIENCE, 2 * PATIENCE) if _in_passing.get() else (ENOUGH, PATIENCE)
        if work < enough and _waited[name] < patience:
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


@dataclass(frozen=True)
class Ways:
    """How batches of one layer run: `work` per query of the kernel, the least batch that is ordered, queries per chunk."""

    kernel: str | None = None
    work: int = 0
    ordered: float = math.inf
    mapped: bool = False
    chunk: int = 0  # 0: the runtime cuts batches itself
    same_bits: bool = True

    @property
    def compiled(self) -> int:
        """Queries from which on one batch is worth loading compiled code."""
        return math.ceil(ENOUGH / self.work)

    @property
    def shared(self) -> int:
        """Queries from which on two threads share a batch."""
        return max(math.ceil(2 * SHARE / self.work), BLOCK + 1)

    def in_general(self, threads: int | None = None) -> str:
        """Every batch, in words."""
        if self.kernel is None:
            told = ["NumPy", *self._chunks]
        else:
            most = thread_count(threads)
            fewer = "NumPy for fewer until they have cost what loading it takes"
            told = [f"compiled code from {self.compiled:,} queries on, {fewer}"]
            if most > 1:
                told.append(f"up to {most} threads from {max(self.shared, self.compiled):,} on")
            if self.ordered < math.inf:
                told.append(f"in the order of their cells from {int(self.ordered):,} on{self._why_ordered}")
        return "; ".join([*told, self._bits])

    def in_particular(self, count: int, threads: int | None = None) -> str:
        """One batch of `count` queries, in words."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise BadInput(f"`batch` (={count!r}) must be a whole number of at least 1.")
        if self.kernel is None:
            told = ["NumPy", *(self._chunks if count > self.chunk else [])]
        elif is_loaded(self.kernel) or count >= self.compiled:
            parts = shares(count, count * self.work, threads)
            told = ["compiled code", f"{parts} threads" if parts > 1 else "one thread"]
            if count >= self.ordered:
                told.append(f"in the order of their cells{self._why_ordered}")
        else:
            again = math.ceil(PATIENCE / (count * self.work * max(1, CALL // count)))
            told = [f"NumPy, and compiled code after about {again:,} such batches, when they have cost what loading it takes"]
        return f"{count:,} {'query' if count == 1 else 'queries'}: {', '.join(told)}; {self._bits}"

    @property
    def _why_ordered(self) -> str:
        return " (values are mapped from a file)" if self.mapped else " (values do not fit the caches)"

    @property
    def _chunks(self) -> list[str]:
        return [f"in chunks of {self.chunk:,} queries"] if self.chunk else []

    @property
    def _bits(self) -> str:
        return "the same bits in every batch" if self.same_bits else "batches differ by rounding alone, which the bound counts"
