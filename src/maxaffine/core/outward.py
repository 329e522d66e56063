"""Outward rounding of float64 numbers: bounds of sums, products, quotients, roots and elementary functions.

For a computed float64 result r (u = 2^-53):

* sums: the error of a + b is computed exactly (Knuth's TwoSum), so an exact sum is not widened at all;
* products, quotients and square roots are correctly rounded, so the exact value lies between the neighbours of r, and
  r -+ (u (1 + 2u) |r| + 2^-1074) is such a neighbour, or at most one number beyond it next to 2^-1022 (Rump, Zimmermann, Boldo
  and Melquiond, *Computing predecessor and successor in rounding to nearest*, BIT 49, 2009).  So no end crosses a float64
  number that the exact value does not cross: 1 - x never falls below 0 for x <= 1.  A product of two factors with 26
  significant bits each, or with a power of two, is exact and stays as it is;
* elementary functions are assumed to be within ULPS units in the last place of the true value (see `ULPS`).
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array

Mask = NDArray[np.bool_]

ULPS = 8
"""Assumed accuracy of NumPy's and SciPy's float64 functions, in units in the last place.

NumPy's vector loops promise 4 ulp and the C library's scalar functions are better; 8 leaves a factor of two.  The tests
compare every function with python-flint on tens of thousands of points, hard arguments included.
"""

_NEIGHBOUR = 2.0**-53 * (1.0 + 2.0**-52)  # u (1 + 2u)
_SMALLEST = 2.0**-1074
_FUNCTION_SPACING = (ULPS + 1) * 2.0**-52  # one more for the rounding of the widening itself
_FUNCTION_SMALLEST = 2.0**-1021  # a vector loop may flush subnormal results to zero
LARGEST = float(np.finfo(np.float64).max)
_SPLITTER = 2.0**27 + 1.0


def quiet() -> np.errstate:
    """No warnings: what overflows or is not a number is dealt with."""
    return np.errstate(all="ignore")


def down(r: Array, spacing: float = _NEIGHBOUR, smallest: float = _SMALLEST) -> Array:
    """A lower bound of the exact value that was rounded to r."""
    r = np.minimum(r, LARGEST)
    return r - (np.abs(r) * spacing + smallest)


def up(r: Array, spacing: float = _NEIGHBOUR, smallest: float = _SMALLEST) -> Array:
    """An upper bound of the exact value that was rounded to r."""
    r = np.maximum(r, -LARGEST)
    return r + (np.abs(r) * spacing + smallest)


def lower(r: Array) -> Array:
    """A lower bound of the true value of an elementary function whose computed value is r."""
    return down(r, _FUNCTION_SPACING, _FUNCTION_SMALLEST)


def upper(r: Array) -> Array:
    """An upper bound of it."""
    return up(r, _FUNCTION_SPACING, _FUNCTION_SMALLEST)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """(s, error) with a + b = s + error, exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def sum_down(a: Array, b: Array) -> Array:
    """A lower bound of a + b, the sum itself where it is exact."""
    s, error = _two_sum(a, b)
    return np.where(error >= 0, np.minimum(s, LARGEST), down(s))


def sum_up(a: Array, b: Array) -> Array:
    """An upper bound of a + b, the sum itself where it is exact."""
    s, error = _two_sum(a, b)
    return np.where(error <= 0, np.maximum(s, -LARGEST), up(s))


def short(a: Array) -> Mask:
    """True where a is 0 or has at most 26 significant bits and a harmless exponent: then products are exact."""
    c = a * _SPLITTER
    magnitude = np.abs(a)
    fits: Mask = (c - (c - a) == a) & (magnitude < 1e140) & ((magnitude > 1e-140) | (magnitude == 0))
    return fits


def float_power(x: Array, n: int) -> Array:
    """x^n in float64 for an integer n >= 1, within `ULPS`: up to 8 by multiplications, at most 7 roundings of half an ulp."""
    if n > 8:
        size: Array = np.power(np.abs(x), float(n))
        return size if n % 2 == 0 else np.copysign(size, x)
    result = x
    for bit in bin(n)[3:]:
        result = result * result * x if bit == "1" else result * result
    return result


def sigmoid_of(x: Array) -> Array:
    """1/(1 + e^-x) in float64, without overflow: two roundings after one exponential of a number that is not positive."""
    with quiet():
        decay = np.exp(-np.abs(x))
        result: Array = np.where(x >= 0, 1.0, decay) / (1.0 + decay)
    return result


def rational_bounds(value: Fraction) -> tuple[float, float]:
    """The neighbouring float64 numbers around a rational one (twice the same where it is a float64 number)."""
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        return (LARGEST, math.inf) if value > 0 else (-math.inf, -LARGEST)
    if math.isinf(nearest):
        return (LARGEST, math.inf) if value > 0 else (-math.inf, -LARGEST)
    exact = Fraction(nearest)
    if exact == value:
        return nearest, nearest
    if exact < value:
        return nearest, math.nextafter(nearest, math.inf)
    return math.nextafter(nearest, -math.inf), nearest
