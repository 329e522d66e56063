"""Moduli of continuity of functions whose slopes are not bounded, such as sqrt(u) next to 0 and asin(u) next to 1.

    |phi(u) - phi(u')|  <=  max over pieces of min(d sup |phi'|, sup phi - inf phi) over the piece widened by d,    |u - u'| <= d

Pieces are halved where that is largest, until they are shorter than a sixteenth of d, or many.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

PIECES = 64
ROUNDS = 120  # of halving
SHORT = 1.0 / 16.0  # of d: pieces that are not halved
MOST = 1 << 15  # pieces: what is found is a bound wherever halving ends
LARGE = 0.8  # of the largest number, from which on pieces are halved
UP = 1.0 + 2.0**-50


def modulus(function: Expression, gradient: Expression, low: float, high: float, d: float) -> float:
    """The most that the function moves on [low, high] where its argument moves by at most d; infinite where that is not shown."""
    if d <= 0.0:
        return 0.0
    edges = np.linspace(low, high, PIECES + 1)

    def moves(left: Array, right: Array) -> Array:
        wide = Interval(
            np.maximum(np.nextafter(left - d, -np.inf), low)[:, None], np.minimum(np.nextafter(right + d, np.inf), high)[:, None]
        )
        values, slopes = function.enclose(wide), gradient.enclose(wide)
        steep = np.where(np.isfinite(values.magnitude), slopes.magnitude, np.inf)[:, 0] * d
        with np.errstate(invalid="ignore"):
            spread = np.where(np.isfinite(values.magnitude), values.hi - values.lo, np.inf)[:, 0]
        return np.asarray(np.minimum(steep, spread) * UP)

    left, right = edges[:-1], edges[1:]
    found = moves(left, right)
    for _ in range(ROUNDS):
        cut = (found >= LARGE * found.max()) & (right - left > SHORT * d)
        if not cut.any() or len(left) > MOST or not (right - left > SHORT * d)[int(np.argmax(found))]:
            break
        middle = left[cut] + (right[cut] - left[cut]) / 2.0
        more_left, more_right = np.concatenate([left[cut], middle]), np.concatenate([middle, right[cut]])
        left, right = np.concatenate([left[~cut], more_left]), np.concatenate([right[~cut], more_right])
        found = np.concatenate([found[~cut], moves(more_left, more_right)])
    largest = float(found.max())
    return largest if math.isfinite(largest) else math.inf
