"""Two entire functions that quotients stand for where they are 0/0: sinc(u) = sin(u)/u and exprel(u) = (exp(u) - 1)/u."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.outward import quiet

if TYPE_CHECKING:
    from maxaffine.expression.graph import Graph

FALLS = 4.49  # sinc falls from 0 to its first minimum at 4.4934.., where it is -0.217234..
LEAST = -0.217235
SECOND = 0.128375  # its largest value from pi on, 0.1283745.., at 7.725..
ROUGH = 2.0**-48  # what float64 values are off by, of at most 1 or relative: 8 ulp of sin or expm1 and a division


def sinc(x: Array) -> Array:
    """sin(x)/x in float64."""
    with quiet():
        found: Array = np.where(np.equal(x, 0), 1.0, np.sin(x) / x)
    return found


def exprel(x: Array) -> Array:
    """(e^x - 1)/x in float64."""
    with quiet():
        found: Array = np.where(np.equal(x, 0), 1.0, np.expm1(x) / x)
    return found


def sinc_enclosed(u: Interval) -> Interval:
    """It falls on [0, 4.49], stays between its first minimum and 1/|u| beyond, and is a quotient away from 0."""
    most = np.maximum(np.abs(u.lo), np.abs(u.hi))
    least = np.where((u.lo <= 0) & (u.hi >= 0), 0.0, np.minimum(np.abs(u.lo), np.abs(u.hi)))
    with quiet():
        far = np.minimum(1.0, (1.0 + ROUGH) / least)
        low = np.where(most <= FALLS, sinc(most) - ROUGH, np.maximum(LEAST, -far))
        high = np.where(least <= np.pi, sinc(least) + ROUGH, np.minimum(far, SECOND))
        high = np.where(most > 2 * np.pi - 0.01, np.maximum(high, np.where(least <= np.pi, SECOND, high)), high)
        away = least > 1.0
        quotient = u.sin() / Interval(np.where(away, u.lo, 1.0), np.where(away, u.hi, 1.0))
        low = np.where(away, np.maximum(low, quotient.lo), low)
        high = np.where(away, np.minimum(high, quotient.hi), high)
    return Interval(low, np.minimum(high, 1.0))


def exprel_enclosed(u: Interval) -> Interval:
    """It grows with u."""
    return Interval(np.maximum(exprel(u.lo) * (1.0 - ROUGH), 0.0), exprel(u.hi) * (1.0 + ROUGH))


def exprel_ball(z: Any) -> Any:
    """The mean of e^{tz} over t of [0, 1] where the ball meets 0, else the quotient."""
    if z.contains(0):
        return (z * flint.acb(flint.arb(0.5, 0.5))).exp()
    return z.expm1() / z


def sinc_slope(g: Graph, f: int, u: int) -> int:
    """(cos u - sinc u)/u, which says nothing at 0."""
    return g.divide(g.subtract(g.apply("cos", u), f), u)


def exprel_slope(g: Graph, f: int, u: int) -> int:
    """(e^u - exprel u)/u, which says nothing at 0."""
    return g.divide(g.subtract(g.apply("exp", u), f), u)
