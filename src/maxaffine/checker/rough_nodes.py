"""Nodes of unbounded slope, re-proved: how far a function moves where its argument moves by at most d.

Where slopes are at most S it moves by at most S d; pieces where they are larger stand together in a few places, and on the way
from u to u' it moves by no more than its whole spread over those of them that are met:

    |phi(u) - phi(u')|  <=  S d + max over places of the spread of phi there,       places less than d apart taken together
"""

import math

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

START = 81  # pieces
ROUNDS = 60  # of cutting in three
SHORT = 0.1  # of d: pieces that are not cut
STEEPEST = 64  # slopes S that are tried
UP = 1.0 + 2.0**-48


def moves(function: Expression, low: float, high: float, d: float) -> float:
    """The bound; infinite where there is none."""
    if not low < high or d <= 0.0:
        return 0.0
    slope, edges = function.gradient(), np.linspace(low, high, START + 1)
    left, right = edges[:-1], edges[1:]
    values, steep = _seen(function, slope, left, right)
    for _ in range(ROUNDS):
        cut = np.isinf(steep) & (right - left > SHORT * d)
        if not cut.any():
            break
        ends = np.linspace(left[cut], right[cut], 4)
        ends[0], ends[-1] = left[cut], right[cut]
        lefts, rights = (np.concatenate([one[~cut], new.ravel()]) for one, new in ((left, ends[:-1]), (right, ends[1:])))
        order = np.argsort(lefts, kind="stable")
        left, right = lefts[order], rights[order]
        values, steep = _seen(function, slope, left, right)
    return _least(left, right, values, steep, d)


def _seen(function: Expression, slope: Expression, left: Array, right: Array) -> tuple[Interval, Array]:
    """Values and the sizes of slopes on pieces; infinite where nothing is known."""
    pieces = Interval(left[:, None], right[:, None])
    found = function.enclose(pieces)
    known = np.isfinite(found.magnitude)[:, 0]
    steep = np.where(known, slope.enclose(pieces).magnitude[:, 0], np.inf)
    steep = np.where(np.isnan(steep), np.inf, steep)
    return Interval(np.where(known, found.lo[:, 0], -np.inf), np.where(known, found.hi[:, 0], np.inf)), steep


def _least(left: Array, right: Array, values: Interval, steep: Array, d: float) -> float:
    """The least bound over the slopes S of some pieces."""
    finite = np.unique(steep[np.isfinite(steep)])
    best = math.inf
    for S in finite[np.unique(np.linspace(0, len(finite) - 1, STEEPEST).astype(int))] if len(finite) else ():
        places = np.flatnonzero(steep > S)
        most, at = 0.0, 0
        while at < len(places):
            end = at
            while end + 1 < len(places) and left[places[end + 1]] - right[places[end]] <= d * UP:
                end += 1
            here = places[at : end + 1]
            most = max(most, float(_spread(values, here)))
            at = end + 1
        best = min(best, (float(S) * d + most) * UP)
    return best


def _spread(values: Interval, here: NDArray[np.intp]) -> float:
    """The sum of the spreads of the runs of pieces that touch."""
    total, first = 0.0, 0
    for i in range(1, len(here) + 1):
        if i == len(here) or here[i] != here[i - 1] + 1:
            run = here[first:i]
            total += float(values.hi[run].max() - values.lo[run].min()) * UP
            first = i
    return total
