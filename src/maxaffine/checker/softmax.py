"""The softmax of a uniform grid along one axis, enclosed numerically.

In cell units, with t the position relative to the nearest site and key m the m-th neighbour, the weights relative to the
nearest are exp(sharpness (m t - m^2/2) + d), |d| <= 2 eta.  Over a short piece of t every weight lies in a box, and the
largest weighted mean of numbers D_m over a box of weights is attained with the upper weights on the largest D_m and the lower
weights on the others: there are only as many candidates as keys.  Pieces whose bound is too large are cut in three.
"""

import math
from collections.abc import Callable

import numpy as np

from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.core.arrays import Array

Cost = Callable[[Array, Array, Array], Array]  # (t_low, t_high, m) -> upper bounds of D_m over the pieces

NEIGHBOURS = 12
SLACK = 2e-6
PIECES = 60_000


def distance(low: Array, high: Array, m: Array) -> Array:
    """sup |t - m| over a piece."""
    return np.maximum(np.abs(low[:, None] - m), np.abs(high[:, None] - m))


def square(low: Array, high: Array, m: Array) -> Array:
    """sup (t - m)^2 over a piece."""
    return distance(low, high, m) ** 2 * (1 + 1e-15)


def outside(margin: float) -> Cost:
    """1 where |t - m| > 1/2 + margin somewhere on the piece."""
    return lambda low, high, m: (distance(low, high, m) > 0.5 + margin).astype(np.float64)


def largest_mean(count: int, sharpness: float, eta: float, cost: Cost) -> float:
    """sup over all positions in a grid of `count` cells of the weighted mean of D_m."""
    edges = {(min(k, NEIGHBOURS), min(count - 1 - k, NEIGHBOURS)) for k in _telling(count)}
    tail = _tail(sharpness, eta) if count > NEIGHBOURS else 0.0
    return max(_one(left, right, sharpness, eta, cost) for left, right in edges) + tail


def _telling(count: int) -> list[int]:
    """Cells near both ends and one in the middle: all others have as many neighbours as the middle one."""
    near = min(count, NEIGHBOURS + 1)
    return sorted({*range(near), *range(count - near, count), count // 2})


def _tail(sharpness: float, eta: float) -> float:
    """Weight times distance squared of neighbours beyond NEIGHBOURS, relative to the nearest key."""
    total = 0.0
    for m in range(NEIGHBOURS + 1, NEIGHBOURS + 400):
        near = 2.0 * eta - sharpness * m * (m - 1) / 2.0
        total += 2.0 * (m + 1.0) ** 2 * (math.exp(near) if near < 700.0 else math.inf)
    return total


def _one(left: int, right: int, sharpness: float, eta: float, cost: Cost) -> float:
    m = np.arange(-left, right + 1, dtype=np.float64)
    edges = np.linspace(-0.5, 0.5, 82)[:, None]

    def measure(low: Array, high: Array, _: object) -> Bounds:
        middle = (low + high) / 2.0
        upper, here = (_upper(*ends, m, sharpness, eta, cost) for ends in ((low[:, 0], high[:, 0]), (middle[:, 0], middle[:, 0])))
        return Bounds(upper, here)

    return supremum(measure, edges[:-1], edges[1:], budget=PIECES, slack=SLACK, smallest=1e-9).worst * (1 + 1e-12)


def _upper(low: Array, high: Array, m: Array, sharpness: float, eta: float, cost: Cost) -> Array:
    """Upper bound of the weighted mean over every piece, (pieces,)."""
    worth = cost(low, high, m)
    ends = np.stack([low[:, None] * m, high[:, None] * m])
    moved = np.where(m == 0.0, 0.0, 2.0 * eta) + 1e-13 * (1.0 + sharpness * np.abs(m) * (np.abs(m) + 1.0))
    more = np.exp(np.minimum(sharpness * (ends.max(axis=0) - m * m / 2.0) + moved, 700.0))
    less = np.exp(sharpness * (ends.min(axis=0) - m * m / 2.0) - moved)
    order = np.argsort(-worth, axis=1, kind="stable")
    worth, more, less = (np.take_along_axis(a, order, axis=1) for a in (worth, more, less))
    rest = less.sum(axis=1, keepdims=True) - np.cumsum(less, axis=1)
    rest_worth = (less * worth).sum(axis=1, keepdims=True) - np.cumsum(less * worth, axis=1)
    numerator = np.cumsum(more * worth, axis=1) + np.maximum(rest_worth, 0.0)
    denominator = np.cumsum(more, axis=1) + np.maximum(rest, 0.0)
    return np.asarray((numerator / denominator).max(axis=1) * (1 + 1e-12))
