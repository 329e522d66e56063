"""Boxes cut in three: suprema and integrals from upper bounds over boxes, all boxes of one generation at once.

A rule gives a function that bounds what it asks for over boxes (n, D); the engine cuts those in three whose bound is too large.
Whatever the function says of a box is a bound, so that the budget decides how sharp the answer is and never whether it is true.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Bounds:
    """Of n boxes: upper bounds (n,) or (n, K); numbers that are surely reached there, or none; the axis to cut, or the longest;
    rows that the parts of a box inherit, such as the clusters that count there, or those of the box itself."""

    upper: Array
    reached: Array | None = None
    axis: Index | None = None
    inherited: Index | None = None


Measure = Callable[[Array, Array, Any], Bounds]


@dataclass(frozen=True)
class Found:
    """Upper bounds (K,) of the suprema, how many boxes were looked at, and whether all of them meet what was asked for."""

    upper: Array
    boxes: int
    met: bool

    @property
    def worst(self) -> float:
        """The largest of them."""
        return float(self.upper.max())


def thirds(low: Array, high: Array, axis: Index | None = None, inherited: Any = None) -> tuple[Array, Array, Any]:
    """Every box cut in three along its longest side or the given one: all first parts, all second ones, all third ones."""
    rows = np.arange(len(low))
    axis = (high - low).argmax(axis=1) if axis is None else axis
    start, stop = low[rows, axis], high[rows, axis]
    cuts = [start, start + (stop - start) / 3.0, np.maximum(stop - (stop - start) / 3.0, start), stop]
    lows, highs = np.tile(low, (3, 1)), np.tile(high, (3, 1))
    for i in range(3):
        lows[i * len(low) + rows, axis], highs[i * len(low) + rows, axis] = cuts[i], np.maximum(cuts[i], cuts[i + 1])
    return lows, highs, None if inherited is None else np.concatenate([inherited] * 3)


def grid(low: Array, high: Array, counts: int) -> tuple[Array, Array]:
    """A box (D,) cut into counts^D equal ones, (n, D) each, that cover it."""
    cuts = [np.linspace(a, b, counts + 1) for a, b in zip(low, high, strict=True)]
    for cut, a, b in zip(cuts, low, high, strict=True):
        cut[0], cut[-1] = a, b
    lows, highs = (np.meshgrid(*(cut[part] for cut in cuts), indexing="ij") for part in (slice(None, -1), slice(1, None)))
    return np.stack([a.ravel() for a in lows], axis=1), np.stack([a.ravel() for a in highs], axis=1)


def supremum(
    measure: Measure,
    low: Array,
    high: Array,
    *,
    budget: int,
    goal: float = 0.0,
    slack: float | None = None,
    scale: Array | None = None,
    smallest: Array | float = 0.0,
    inherited: Any = None,
    chunk: int = 1 << 30,
) -> Found:
    """Upper bounds of sup_x g_k(x) over boxes (n, D), k = 1..K.

    A box is cut while its bound exceeds `goal`; with `slack` it may also exceed by that part what is surely reached (and, with
    `scale`, a thousandth of the largest scaled one).  Boxes no longer than `smallest` are not cut.
    """
    settled: Array | float = 0.0
    reached: Array | float = 0.0
    boxes, generations = 0, 40 * (low.shape[1] + 1)  # enough to cut every side down to neighbouring numbers
    for generation in range(generations):
        found = _measured(measure, low, high, inherited, chunk)
        upper = np.where(np.isnan(found.upper), np.inf, found.upper).reshape(len(low), -1)
        boxes += len(low)
        enough: Array | float = goal
        if slack is not None and found.reached is not None:
            here = found.reached.reshape(len(low), -1)
            reached = np.maximum(reached, np.where(np.isfinite(here), here, 0.0).max(axis=0))
            floor = 0.0 if scale is None else 1e-3 * float((reached * scale).max()) / np.maximum(scale, 1e-300)
            enough = np.maximum(np.maximum(reached * (1 + slack), floor), goal)
        loose = np.any(upper > enough, axis=1) & np.any(high - low > smallest, axis=1)
        settled = np.maximum(settled, upper[~loose].max(axis=0, initial=0.0))
        if not loose.any():
            return Found(np.atleast_1d(settled), boxes, bool(np.all(settled <= enough)))
        if boxes + 3 * int(loose.sum()) > budget or generation == generations - 1:
            break
        axis = None if found.axis is None else found.axis[loose]
        rows = inherited if found.inherited is None else found.inherited
        low, high, inherited = thirds(low[loose], high[loose], axis, None if rows is None else rows[loose])
    return Found(np.maximum(settled, upper[loose].max(axis=0)), boxes, False)


def _measured(measure: Measure, low: Array, high: Array, inherited: Any, chunk: int) -> Bounds:
    """The bounds of all boxes, looked at in chunks."""
    if len(low) <= chunk:
        return measure(low, high, inherited)
    parts = []
    for start in range(0, len(low), chunk):
        cut = slice(start, start + chunk)
        parts.append(measure(low[cut], high[cut], None if inherited is None else inherited[cut]))

    def joined(name: str) -> Any:
        rows = [getattr(part, name) for part in parts]
        if rows[0] is None:
            return None
        widest = max(row.shape[1] for row in rows) if rows[0].ndim == 2 else 0
        padded = [np.pad(row, ((0, 0), (0, widest - row.shape[1])), constant_values=-1) if widest else row for row in rows]
        return np.concatenate(padded)

    return Bounds(joined("upper"), joined("reached"), joined("axis"), joined("inherited"))


def integral(measure: Measure, low: Array, high: Array, *, goal: float, budget: int, inherited: Any = None) -> tuple[Array, int]:
    """Upper bounds (K,) of integrals over boxes that `measure` bounds on each, refined until all are at most `goal`.

    `reached` are lower bounds: where they add up to more than `goal`, nothing is refined any more.  Of every generation those
    boxes are cut that carry four fifths of what is not known.
    """
    found = measure(low, high, inherited)
    upper, lower, boxes = found.upper, np.asarray(found.reached), len(low)
    settled = np.zeros(upper.shape[1])
    while True:
        total = settled + upper.sum(axis=0)
        gap = (upper - lower).max(axis=1)
        if float(total.max()) * (1 + 1e-9) <= goal or boxes >= budget or not float(gap.max(initial=0.0)) > 0.0:
            return total, boxes
        if np.any(settled + lower.sum(axis=0) > goal * (1 + 1e-6)):
            return total, boxes
        order = np.argsort(-gap)
        share = np.cumsum(np.nan_to_num(gap[order], posinf=0.0))
        most = max(int((~np.isfinite(gap)).sum()), int(np.searchsorted(share, 0.8 * share[-1])) + 1)
        keep = min(len(order), max(200_000, len(order) // 4), max(1, (budget - boxes) // 3), most)
        chosen, rest = order[:keep], order[keep:]
        a, b, rows = thirds(low[chosen], high[chosen], None, None if inherited is None else inherited[chosen])
        new = measure(a, b, rows)
        boxes += len(a)
        done = gap[rest] <= 0.0
        settled = settled + upper[rest[done]].sum(axis=0)
        rest = rest[~done]
        low, high = np.concatenate([low[rest], a]), np.concatenate([high[rest], b])
        inherited = None if inherited is None else np.concatenate([inherited[rest], rows])
        upper, lower = np.concatenate([upper[rest], new.upper]), np.concatenate([lower[rest], np.asarray(new.reached)])
