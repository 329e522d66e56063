"""Sorted entries of traced arrays: the k-th largest is the sum of the k largest less that of the k - 1 largest.

The sum of the k largest is the largest sum of k entries, a maximum of (n over k) terms; a sort shares them all.
"""

from functools import partial, reduce
from itertools import combinations, pairwise
from typing import Any

from maxaffine.tracing.array import Traced, lifted, named
from maxaffine.tracing.record import Recorder

MOST = 6  # entries: 20 sums of three


def rows_of(r: Recorder, array: Any, axis: Any, name: str) -> tuple[list[Traced], int]:
    """The entries along an axis, and that axis."""
    traced = lifted(r, array)
    if axis is None or not isinstance(axis, int) or traced.axis == axis % traced.ndim:
        raise r.stop(f"`np.{name}` goes over the points of a batch", "give the axis of the coordinates or of the tokens")
    at = axis % traced.ndim
    count = traced.shape[at]
    if count > MOST:
        raise r.stop(f"`np.{name}` of {count} entries", f"at most {MOST} are written out")
    return [traced[(slice(None),) * at + (i,)] for i in range(count)], at


def ascending(r: Recorder, rows: list[Traced]) -> list[Traced]:
    """The entries from the smallest to the largest."""
    add, larger = partial(named, r, "add"), partial(named, r, "maximum")
    sums = [reduce(larger, [reduce(add, one) for one in combinations(rows, k)]) for k in range(1, len(rows) + 1)]
    largest = [sums[0], *(named(r, "subtract", after, before) for before, after in pairwise(sums))]
    return largest[::-1]


def middle(r: Recorder, array: Any, axis: Any = None, keepdims: Any = False, **_: Any) -> Traced:
    """The median: of an even number of entries the mean of the two in the middle."""
    rows, at = rows_of(r, array, axis, "median")
    found = ascending(r, rows)
    low, high = found[(len(found) - 1) // 2], found[len(found) // 2]
    made = low if len(found) % 2 else named(r, "divide", named(r, "add", low, high), 2)
    return made[(*((slice(None),) * at), None)] if keepdims is True else made
