"""Boxes that are halved until a bound holds on each of them: branch and bound, all boxes of a round at once in NumPy.

    supremum      the largest bound, where every box says by itself when its bound is good enough
    integral      upper and lower sums, the boxes between which they differ most halved first
    depth_first   one box after the other, for bounds that take long
    maximise      (core/suprema.py) within a factor of the largest value seen

Boxes are rows: low (n, D) and high (n, D).  What goes with them (the clusters that may have a say there) is `carried` (n, m), and
goes with their halves; rows of indices are padded by -1.  Halves of a box share a face, so that nothing is left out.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import check
from maxaffine.core.errors import Refused

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

CHUNK = 20_000  # boxes that are bounded at a time
MEMORY = 2_000_000  # of them times what each carries


def halve(low: Array, high: Array, axis: Index | None = None) -> tuple[Array, Array]:
    """Every box cut in two, along its longest side or the given one: all first halves, then all second ones."""
    axis = (high - low).argmax(axis=1) if axis is None else axis
    rows = np.arange(len(low))
    middle = 0.5 * low[rows, axis] + 0.5 * high[rows, axis]
    right, left = low.copy(), high.copy()
    right[rows, axis], left[rows, axis] = middle, middle
    return np.concatenate([low, right]), np.concatenate([left, high])


def halve_all(low: Array, high: Array, axes: Sequence[int] | None = None) -> tuple[Array, Array]:
    """Every box cut in two along all given sides: 2^k times as many, part i of which comes from box i modulo n."""
    for axis in range(low.shape[1]) if axes is None else axes:
        low, high = halve(low, high, np.full(len(low), axis))
    return low, high


AXES = 30  # of a mesh at most; more are taken apart


def grid(low: Array, high: Array, counts: int | Sequence[int]) -> tuple[Array, Array]:
    """A box cut into equal boxes, so many per side."""
    counts = [counts] * len(low) if isinstance(counts, int) else counts
    edges = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, counts, strict=True)]
    return mesh([e[:-1] for e in edges]), mesh([e[1:] for e in edges])


def mesh(axes: Sequence[Array]) -> Array:
    """All points (M, D) of a product of axes, the last one running fastest."""
    if len(axes) <= AXES:
        return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
    cut = [e for e, axis in enumerate(axes) if len(axis) > 1]  # NumPy broadcasts 32 axes at most
    points = np.tile(np.array([axis[0] for axis in axes]), (math.prod(len(axes[e]) for e in cut), 1))
    points[:, cut] = mesh([axes[e] for e in cut]) if cut else points[:, cut]
    return points


Rest = Callable[[Mask], tuple[Index | None, Index | None]]  # of boxes that are halved: along which side, and what they carry
Measure = Callable[[Array, Array, Index], tuple[Array, Mask, Rest | None]]


def supremum(
    low: Array, high: Array, measure: Measure, *, carried: Index | None = None, budget: int, rounds: int = 80,
    chunk: int = CHUNK, refusal: str = "", settle: bool = False,
) -> tuple[float, int]:  # fmt: skip
    """The largest bound over all boxes (0 at least), and how many boxes it took; Refused where budget or rounds do not do.

    measure(low, high, carried) -> bounds (n,), which of them are good enough, and what to do with the others: halved along the
    longest side where that is None.  With `settle` the bounds of what is left after the last round count as they are.
    """
    carried = np.zeros((len(low), 0), dtype=np.intp) if carried is None else carried
    worst, spent = 0.0, 0
    for turn in range(rounds):
        if not len(low):
            return worst, spent
        spent += len(low)
        if spent > budget:
            raise Refused(f"{budget:,} boxes do not show {refusal}.")
        lows, highs, rest = [], [], []
        step = max(1, min(chunk, MEMORY // max(carried.shape[1], 1)))
        for start in range(0, len(low), step):
            rows = slice(start, start + step)
            a, b, own = low[rows], high[rows], carried[rows]
            bound, fits, remaining = measure(a, b, own)
            fits = np.ones(len(a), dtype=bool) if settle and turn == rounds - 1 else fits
            worst = max(worst, float(bound[fits].max(initial=0.0)))
            axis, kept = remaining(~fits) if remaining is not None else (None, own[~fits])
            left, right = a[~fits], b[~fits]
            lows.append(left)
            highs.append(right)
            rest.append(((right - left).argmax(axis=1) if axis is None else axis, own[~fits] if kept is None else kept))
        low, high = halve(np.concatenate(lows), np.concatenate(highs), np.concatenate([axis for axis, _ in rest]))
        width = max(kept.shape[1] for _, kept in rest)
        padded = [np.pad(kept, ((0, 0), (0, width - kept.shape[1])), constant_values=-1) for _, kept in rest]
        carried = np.concatenate([*padded, *padded])
    if settle or not len(low):
        return worst, spent
    raise Refused(f"{rounds} halvings do not show {refusal}.")


Sums = Callable[[Array, Array, NDArray[Any]], tuple[Array, Array]]


def integral(
    low: Array, high: Array, carried: NDArray[Any], measure: Sums, enough: Callable[[Array, Array, int], bool], *,
    budget: int, rounds: int, share: float, settled: float = 0.0, most: int = 400_000, axes: Sequence[int] | None = None,
) -> tuple[Array, int]:  # fmt: skip
    """Upper sums (K,) over all boxes and how many it took: boxes with `share` of what is in doubt are cut, round by round.

    measure(low, high, carried) -> upper and lower bounds (n, K) of the integral over every box.  Stops where enough(upper, lower,
    boxes spent), or where budget or rounds are spent.  A box in which less than settled / (number of boxes) is in doubt stays.
    """
    upper, lower = measure(low, high, carried)
    above, below = np.zeros(upper.shape[1]), np.zeros(upper.shape[1])  # of boxes that stay
    parts, spent = 2 ** (low.shape[1] if axes is None else len(axes)), len(low)
    for _ in range(rounds):
        check()
        if enough(above + upper.sum(axis=0), below + lower.sum(axis=0), spent) or spent >= budget or not len(low):
            break
        loose = (upper - lower).max(axis=1)
        order = np.argsort(loose)[::-1]
        known = np.isfinite(loose[order])
        doubt = np.cumsum(np.where(known, loose[order], 0.0))
        cut = int(np.searchsorted(doubt, share * doubt[-1])) + 1 + int(np.count_nonzero(~known))
        cut = min(cut, max(1, (budget - spent) // parts + 1), most)
        chosen, rest = order[:cut], order[cut:]
        stays = loose[rest] <= settled / max(len(order), 1)
        above, below = above + upper[rest[stays]].sum(axis=0), below + lower[rest[stays]].sum(axis=0)
        rest = rest[~stays]
        fine_low, fine_high = halve_all(low[chosen], high[chosen], axes)
        theirs = np.tile(carried[chosen], (parts, *[1] * (carried.ndim - 1)))
        more, less = measure(fine_low, fine_high, theirs)
        spent += len(fine_low)
        low, high = np.concatenate([low[rest], fine_low]), np.concatenate([high[rest], fine_high])
        upper, lower = np.concatenate([upper[rest], more]), np.concatenate([lower[rest], less])
        carried = np.concatenate([carried[rest], theirs])
    return above + upper.sum(axis=0), spent


def depth_first(low: Array, high: Array, visit: Callable[[Array, Array, int], int | None]) -> None:
    """Visit a box (D,), and its halves along the side that `visit` names, until it names none; it gets the depth as well."""
    stack = [(low, high, 0)]
    while stack:
        check()
        a, b, depth = stack.pop()
        axis = visit(a, b, depth)
        if axis is not None:
            middle = a[axis] + (b[axis] - a[axis]) / 2.0
            right, left = a.copy(), b.copy()
            right[axis], left[axis] = middle, middle
            stack += [(a, left, depth + 1), (right, b, depth + 1)]
