"""Complex balls of python-flint: conversions to and from NumPy, and the working precision.

A `flint.acb` stands for a set of complex numbers, a real and an imaginary interval; every operation of it encloses all values,
whatever the precision.  More bits make results narrower, never more true.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.exact import to_fmpq

BITS = 106
"""Default working precision: twice float64's, so that rounding disappears beside the radii of interest."""


@contextmanager
def precision(bits: int = BITS) -> Iterator[None]:
    """Work with `bits` bits inside the block and restore the precision after it."""
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def rational(value: Fraction | int) -> Any:
    """A real ball around a rational number, exact up to the working precision."""
    return flint.arb(to_fmpq(value))


def interval(low: float, high: float) -> Any:
    """A real ball that contains [low, high], two finite float64 numbers; a point stays exact."""
    if low == high:
        return flint.arb(low)
    return flint.arb(low).union(flint.arb(high))


def rectangle(low: float, high: float, height: float = 0.0) -> Any:
    """The complex rectangle [low, high] x [-height, height]."""
    return flint.acb(interval(low, high), interval(-height, height))


def box(low: ArrayLike, high: ArrayLike) -> list[Any]:
    """Real intervals as complex balls, one per coordinate."""
    return [rectangle(float(a), float(b)) for a, b in zip(np.ravel(low), np.ravel(high), strict=True)]


def indeterminate() -> Any:
    """The ball that says nothing (NaN)."""
    return flint.acb(flint.arb.nan(), flint.arb.nan())


def bounds(ball: Any) -> tuple[float, float]:
    """Float64 numbers around a real ball (the real part of a complex one); infinite where it is not finite."""
    real = ball.real if isinstance(ball, flint.acb) else ball
    if not real.is_finite():
        return -np.inf, np.inf
    return _below(real.lower()), -_below((-real).lower())


def magnitude(ball: Any) -> float:
    """A float64 upper bound of |z| over the ball; infinite where it is not finite."""
    if not ball.is_finite():
        return float("inf")
    return bounds(flint.arb(abs(ball).upper()))[1]


def _below(exact: Any) -> float:
    """The largest float64 number that is surely not above an exact real ball."""
    value = float(exact)
    if np.isinf(value):
        return -np.inf if value < 0 else float(np.finfo(np.float64).max)
    return value if bool(flint.arb(value) <= exact) else float(np.nextafter(value, -np.inf))
