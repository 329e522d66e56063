"""What a batch decides about a runtime: NumPy or compiled code, threads, order and chunks, and whether that may change a bit.

Which runtime runs a layer follows from the layer alone, because runtimes round differently and a query's value must not depend
on its company.  How it runs is chosen batch by batch, by the functions that the runtimes themselves ask, and changes no bit but
where sums go through a BLAS (`same_bits`): literal runtimes, factorised lookups, and groups of products whose tables are large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxaffine.core.errors import BadInput
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.runtime import cell_order, collapsed, grouped, parallel, two_level, windowed

AnyLayer = Layer | GroupedLayer


@dataclass(frozen=True)
class Ways:
    """How batches of one layer run: `work` per query of the kernel, the least batch that is ordered, queries per chunk."""

    kernel: str | None
    work: int = 0
    ordered: float = math.inf
    mapped: bool = False
    chunk: int = 0  # 0: the runtime cuts batches itself
    same_bits: bool = True

    @property
    def compiled(self) -> int:
        """Queries from which on one batch is worth loading compiled code."""
        return math.ceil(parallel.ENOUGH / self.work)

    @property
    def shared(self) -> int:
        """Queries from which on two threads share a batch."""
        return max(math.ceil(2 * parallel.SHARE / self.work), parallel.BLOCK + 1)


def _windowed(layer: Any, tolerance: float) -> Ways:
    made = windowed.window_of(layer)
    assert made is not None
    mapped = windowed.is_mapped(layer)
    return Ways("windowed", windowed.work_per_query(made), cell_order.least(made, mapped), mapped)


def _two_level(layer: Any, tolerance: float) -> Ways:
    work = max(two_level.work_per_query(layer, group) for group in layer.cluster_groups())
    return Ways("two_level", work, same_bits=grouped.in_order(layer))


WAYS: dict[str, Callable[[Any, float], Ways]] = {
    "collapsed": lambda layer, tolerance: Ways("collapsed", collapsed.prepared(layer, tolerance).coefficients.size),
    "windowed": _windowed,
    "two-level": _two_level,
    "hard": lambda layer, tolerance: Ways(None),
}


def ways(layer: AnyLayer, name: str, tolerance: float, chunk: int) -> Ways:
    """How batches of a layer run by the runtime of that name; `chunk` is what NumPy's runtimes are cut into."""
    if name in WAYS:
        return WAYS[name](layer, tolerance)
    ordered = name == "factorised" and layer.grouped and grouped.in_order(layer)
    return Ways(None, chunk=chunk, same_bits=ordered)


def in_general(found: Ways, threads: int | None = None) -> str:
    """Every batch, in words."""
    if found.kernel is None:
        told = ["NumPy", *_chunks(found)]
    else:
        told = [f"compiled code from {found.compiled:,} queries on, NumPy for fewer until they have cost what loading it takes"]
        most = parallel.thread_count(threads)
        if most > 1:
            told.append(f"up to {most} threads from {found.shared:,} on")
        if found.ordered < math.inf:
            told.append(f"in the order of their cells from {int(found.ordered):,} on{_why_ordered(found)}")
    return "; ".join([*told, _bits(found)])


def in_particular(found: Ways, count: int, threads: int | None = None) -> str:
    """One batch of `count` queries, in words."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadInput(f"`batch` (={count!r}) must be a whole number of at least 1.")
    told = [_engine(found, count)]
    if found.kernel is None:
        told += _chunks(found) if count > found.chunk > 0 else []
    elif parallel.is_loaded(found.kernel) or count >= found.compiled:
        parts = parallel.shares(count, count * found.work, threads)
        told.append(f"{parts} threads" if parts > 1 else "one thread")
        if count >= found.ordered:
            told.append(f"in the order of their cells{_why_ordered(found)}")
    return f"{count:,} {'query' if count == 1 else 'queries'}: {', '.join(told)}; {_bits(found)}"


def _engine(found: Ways, count: int) -> str:
    if found.kernel is None:
        return "NumPy"
    if parallel.is_loaded(found.kernel) or count >= found.compiled:
        return "compiled code"
    again = math.ceil(parallel.PATIENCE / (count * found.work * max(1, parallel.CALL // count)))
    return f"NumPy, and compiled code after about {again:,} such batches, when they have cost what loading it takes"


def _why_ordered(found: Ways) -> str:
    return " (values are mapped from a file)" if found.mapped else " (values do not fit the caches)"


def _chunks(found: Ways) -> list[str]:
    return [f"in chunks of {found.chunk:,} queries"] if found.chunk else []


def _bits(found: Ways) -> str:
    return "the same bits in every batch" if found.same_bits else "batches differ by rounding alone, which the bound counts"
