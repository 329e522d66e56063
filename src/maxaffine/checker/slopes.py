"""The checker's own bounds on derivatives and values: branch and bound that cuts boxes in three."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.stored import NotProved
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

Array = NDArray[np.float64]

SLACK = 4e-4
BUDGET = 400_000
DOUBTS = 20_000  # points at which declared constants are doubted


def supremum(
    measure: Callable[[Array, Array], Array],
    low: Array,
    high: Array,
    scale: Array | None = None,
    enough: float = 0.0,
    smallest: float = 0.0,
) -> Array:
    """Upper bounds of sup_x g_k(x), k = 1..K, from measure(low, high) (n, D) -> upper bounds (n, K) over boxes.

    What a box's midpoint reaches is known to be reached; boxes whose bound exceeds that by more than SLACK are cut in three
    along the axis that is longest relative to the whole.  Boxes whose bound is at most `enough`, or that are no longer
    than `smallest` times the whole, are not cut.
    """
    width = high - low
    lows, highs = low[None].copy(), high[None].copy()
    reached = np.full(measure(lows, highs).shape[1], 0.0)
    settled, spent = reached.copy(), 0
    axis_turn = 0
    while True:
        upper = measure(lows, highs)
        middle = lows / 2.0 + highs / 2.0
        here = measure(middle, middle)
        reached = np.maximum(reached, np.where(np.isfinite(here), here, 0.0).max(axis=0))
        spent += 2 * len(lows)
        floor = 0.0 if scale is None else 1e-3 * float((reached * scale).max()) / np.maximum(scale, 1e-300)
        goal = np.maximum(np.maximum(reached * (1 + SLACK), floor), enough)
        loose = np.any(upper > goal, axis=1)
        if smallest > 0.0:
            loose &= np.any(highs - lows > smallest * width, axis=1)
        settled = np.maximum(settled, upper[~loose].max(axis=0, initial=0.0))
        if not loose.any():
            return np.asarray(settled)
        if spent + 6 * int(loose.sum()) > BUDGET:
            return np.asarray(np.maximum(settled, upper[loose].max(axis=0)))
        lows, highs = lows[loose], highs[loose]
        relative = (highs - lows) / width
        axis = np.argmax(relative * (1 + 1e-9 * ((np.arange(len(width)) + axis_turn) % len(width))), axis=1)
        axis_turn += 1
        rows = np.arange(len(lows))
        start, stop = lows[rows, axis], highs[rows, axis]
        first, second = start + (stop - start) / 3.0, stop - (stop - start) / 3.0
        parts_low, parts_high = [], []
        for a, b in ((start, first), (first, second), (second, stop)):
            part_low, part_high = lows.copy(), highs.copy()
            part_low[rows, axis], part_high[rows, axis] = a, np.maximum(a, b)
            parts_low.append(part_low)
            parts_high.append(part_high)
        lows, highs = np.concatenate(parts_low), np.concatenate(parts_high)


def lipschitz(expression: Expression, low: Array, high: Array) -> Array:
    """sup |dF_k/dx_i| over the box: (K, D); infinite where it cannot be bounded."""
    slope = expression.gradient()
    D = expression.dimension

    def measure(lows: Array, highs: Array) -> Array:
        return np.asarray(_slopes(expression, slope, lows, highs).magnitude)

    return supremum(measure, low, high, scale=np.tile(high - low, expression.count)).reshape(-1, D)


def euclidean(expression: Expression, low: Array, high: Array) -> float:
    """sup |grad F_k|_2 over the box, the largest over the outputs."""
    slope = expression.gradient()
    D = expression.dimension

    def measure(lows: Array, highs: Array) -> Array:
        size = _slopes(expression, slope, lows, highs).magnitude.reshape(len(lows), -1, D)
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt((size * size).sum(axis=2)).max(axis=1, keepdims=True) * (1 + 1e-14))

    return float(supremum(measure, low, high)[0])


def doubt(expression: Expression, low: Array, high: Array, declared: Array | float) -> None:
    """NotProved where the expression is steeper at some point than constants that a file declares: per axis, or Euclidean."""
    x = np.random.default_rng(2).uniform(low, high, size=(DOUBTS, len(low)))
    x = np.clip(np.concatenate([x, low[None], high[None], (low / 2.0 + high / 2.0)[None]]), low, high)
    least = _slopes(expression, expression.gradient(), x, x).mignitude.reshape(len(x), -1, len(low))
    steep = np.sqrt((least * least).sum(axis=2)) * (1 - 1e-14) if np.ndim(declared) == 0 else least
    if np.any(steep > declared) or not np.all(np.isfinite(declared)):
        raise NotProved("constants that the file declares are contradicted by the target's own derivatives.")


def _slopes(expression: Expression, slope: Expression, lows: Array, highs: Array) -> Interval:
    box = Interval(lows, highs)
    found = slope.enclose(box)
    known = np.repeat(expression.defined(box), expression.dimension, axis=1)
    return Interval(np.where(known, found.lo, -np.inf), np.where(known, found.hi, np.inf))
