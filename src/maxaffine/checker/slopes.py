"""The checker's own bounds on derivatives: enclosed gradients over boxes cut in three."""

import numpy as np

from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

SLACK = 4e-4
BUDGET = 200_000
POINTS = 20_000  # at which declared constants are doubted


def lipschitz(expression: Expression, low: Array, high: Array) -> Array:
    """sup |dF_k/dx_i| over the box: (K, D); infinite where it cannot be bounded."""
    scale = np.tile(high - low, expression.count)
    return _largest(expression, low, high, lambda size: size, scale).reshape(-1, expression.dimension)


def euclidean(expression: Expression, low: Array, high: Array) -> float:
    """sup |grad F_k|_2 over the box, the largest over the outputs."""
    D = expression.dimension

    def length(size: Array) -> Array:
        size = size.reshape(len(size), -1, D)
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt((size * size).sum(axis=2)).max(axis=1, keepdims=True) * (1 + 1e-14))

    return float(_largest(expression, low, high, length, None)[0])


def doubt_declared(expression: Expression, low: Array, high: Array, declared: Array | float) -> None:
    """NotProved where the expression is steeper at some point than constants that a file declares: per axis, or Euclidean."""
    x = np.random.default_rng(2).uniform(low, high, size=(POINTS, len(low)))
    x = np.clip(np.concatenate([x, low[None], high[None], (low / 2.0 + high / 2.0)[None]]), low, high)
    least = _slopes(expression, expression.gradient(), x, x).mignitude.reshape(len(x), -1, len(low))
    steep = np.sqrt((least * least).sum(axis=2)) * (1 - 1e-14) if np.ndim(declared) == 0 else least
    if np.any(steep > declared) or not np.all(np.isfinite(declared)):
        raise NotProved("constants that the file declares are contradicted by the target's own derivatives.")


def _largest(expression: Expression, low: Array, high: Array, of: object, scale: Array | None) -> Array:
    """The suprema of what `of` makes of enclosed derivatives; what a box's midpoint reaches is known to be reached."""
    assert callable(of)
    slope, width = expression.gradient(), high - low

    def measure(lows: Array, highs: Array, _: object) -> Bounds:
        middle = lows / 2.0 + highs / 2.0
        upper, here = (of(_slopes(expression, slope, *ends).magnitude) for ends in ((lows, highs), (middle, middle)))
        return Bounds(np.asarray(upper), np.asarray(here), np.argmax((highs - lows) / width, axis=1))

    return supremum(measure, low[None], high[None], budget=BUDGET, slack=SLACK, scale=scale).upper


def _slopes(expression: Expression, slope: Expression, lows: Array, highs: Array) -> Interval:
    box = Interval(lows, highs)
    return slope.enclose(box).undefined(~np.repeat(expression.defined(box), expression.dimension, axis=1))
