"""Intervals of real numbers over NumPy arrays, rounded outward.

An `Interval` is two float64 arrays lo <= hi of one shape; entry by entry it stands for the set [lo, hi].  Every operation
returns a set that contains all values of the operation on points of its operands:

    x in X, y in Y   =>   x + y in X + Y,   exp(x) in X.exp(),   ...

Where an operation is not defined on the whole operand (log of something that reaches 0, division by something that contains
0, ...) the result is [-inf, inf], so that a caller sees "not finite"; no operation ever returns NaN.  Always lo < +inf and
hi > -inf.

How the rounding is made safe, for a float64 result r (u = 2^-53):

* sums: the error of a + b is computed exactly (Knuth's TwoSum), so an exact sum is not widened at all;
* products, quotients and square roots are correctly rounded, so the exact value lies between the neighbours of r, and
  r -+ (u (1 + 2u) |r| + 2^-1074) is such a neighbour, or at most one number beyond it next to 2^-1022 (Rump, Zimmermann, Boldo
  and Melquiond, *Computing predecessor and successor in rounding to nearest*, BIT 49, 2009).  So no end crosses a float64
  number that the exact value does not cross: 1 - x never falls below 0 for x <= 1.  A product of two factors with 26
  significant bits each, or with a power of two, is exact and stays as it is;
* elementary functions are assumed to be within ULPS units in the last place of the true value (see `ULPS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ULPS = 8
"""Assumed accuracy of NumPy's and SciPy's float64 functions, in units in the last place.

NumPy's vector loops promise 4 ulp and the C library's scalar functions are better; 8 leaves a factor of two.  The tests
compare every function with python-flint on tens of thousands of points, hard arguments included.
"""

HUGE_ANGLE = 2.0**20
"""Beyond this, sin and cos are enclosed by [-1, 1] and tan is undefined: no trust in the reduction of the argument."""

_NEIGHBOUR = 2.0**-53 * (1.0 + 2.0**-52)  # u (1 + 2u)
_SMALLEST = 2.0**-1074
_FUNCTION_SPACING = (ULPS + 1) * 2.0**-52  # one more for the rounding of the widening itself
_FUNCTION_SMALLEST = 2.0**-1021  # a vector loop may flush subnormal results to zero
_TRIGONOMETRIC = 2.0**-51  # absolute accuracy asked of sin and cos: near a zero, a relative one would be too much to ask
_LARGEST = float(np.finfo(np.float64).max)
_TURN = 1e-10  # |x| <= 2^20: x/(2 pi) in float64 is within 1.7e5 * 3u = 6e-11 of its true value
_SPLITTER = 2.0**27 + 1.0

PI_LOW, PI_HIGH = math.pi, math.nextafter(math.pi, 4.0)  # float64 pi lies below pi
E_LOW, E_HIGH = math.e, math.nextafter(math.e, 3.0)  # float64 e lies below e


def _quiet() -> np.errstate:
    return np.errstate(all="ignore")


def _down(r: Array) -> Array:
    r = np.minimum(r, _LARGEST)
    return r - (np.abs(r) * _NEIGHBOUR + _SMALLEST)


def _up(r: Array) -> Array:
    r = np.maximum(r, -_LARGEST)
    return r + (np.abs(r) * _NEIGHBOUR + _SMALLEST)


def _lower(r: Array) -> Array:
    """A lower bound of the true value of an elementary function whose computed value is r."""
    r = np.minimum(r, _LARGEST)
    return r - (np.abs(r) * _FUNCTION_SPACING + _FUNCTION_SMALLEST)


def _upper(r: Array) -> Array:
    r = np.maximum(r, -_LARGEST)
    return r + (np.abs(r) * _FUNCTION_SPACING + _FUNCTION_SMALLEST)


def _sum_down(a: Array, b: Array) -> Array:
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)  # exact: a + b = s + error
    return np.where(error >= 0, np.minimum(s, _LARGEST), _down(s))


def _sum_up(a: Array, b: Array) -> Array:
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    return np.where(error <= 0, np.maximum(s, -_LARGEST), _up(s))


def _short(a: Array) -> Mask:
    """True where a is 0 or has at most 26 significant bits and a harmless exponent: then products are exact."""
    c = a * _SPLITTER
    magnitude = np.abs(a)
    fits: Mask = (c - (c - a) == a) & (magnitude < 1e140) & ((magnitude > 1e-140) | (magnitude == 0))
    return fits


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The sets [lo, hi], entry by entry; lo and hi are float64 arrays of one shape.

    The constructor trusts its arguments; `Interval.of` checks them.
    """

    lo: Array
    hi: Array

    # ------------------------------------------------------------------ making

    @classmethod
    def of(cls, lo: ArrayLike, hi: ArrayLike | None = None) -> Interval:
        """[lo, hi] from anything array-like, broadcast to one shape; NaN becomes [-inf, inf] and ends out of order swap."""
        low = np.asarray(lo, dtype=np.float64)
        high = low if hi is None else np.asarray(hi, dtype=np.float64)
        low, high = np.broadcast_arrays(low, high)
        bad = np.isnan(low) | np.isnan(high)
        first = np.where(bad, -np.inf, np.minimum(np.minimum(low, high), _LARGEST))
        last = np.where(bad, np.inf, np.maximum(np.maximum(low, high), -_LARGEST))
        return cls(first, last)

    @classmethod
    def point(cls, x: ArrayLike) -> Interval:
        """The points x themselves, exact."""
        return cls.of(x)

    @classmethod
    def exact(cls, value: Fraction | int) -> Interval:
        """The narrowest interval (shape ()) around a rational number."""
        lo, hi = rational_bounds(Fraction(value))
        return cls(np.asarray(lo), np.asarray(hi))

    @classmethod
    def everything(cls, shape: tuple[int, ...] = ()) -> Interval:
        """[-inf, inf] in every entry."""
        return cls(np.full(shape, -np.inf), np.full(shape, np.inf))

    @classmethod
    def pi(cls) -> Interval:
        """The number pi."""
        return cls(np.asarray(PI_LOW), np.asarray(PI_HIGH))

    @classmethod
    def e(cls) -> Interval:
        """The number e."""
        return cls(np.asarray(E_LOW), np.asarray(E_HIGH))

    @classmethod
    def stack(cls, parts: Sequence[Interval], axis: int = -1) -> Interval:
        """Several intervals of one shape along a new axis."""
        return cls(np.stack([p.lo for p in parts], axis), np.stack([p.hi for p in parts], axis))

    @classmethod
    def concatenate(cls, parts: Sequence[Interval], axis: int = 0) -> Interval:
        """Several intervals joined along an axis that they have."""
        return cls(np.concatenate([p.lo for p in parts], axis), np.concatenate([p.hi for p in parts], axis))

    # ------------------------------------------------------------------ looking

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of lo and hi."""
        return self.lo.shape

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, index: Any) -> Interval:
        return Interval(np.asarray(self.lo[index]), np.asarray(self.hi[index]))

    def reshape(self, *shape: int) -> Interval:
        """The same intervals in another shape."""
        return Interval(self.lo.reshape(shape), self.hi.reshape(shape))

    def broadcast_to(self, shape: tuple[int, ...]) -> Interval:
        """The same intervals repeated to a larger shape (read-only views)."""
        return Interval(np.broadcast_to(self.lo, shape), np.broadcast_to(self.hi, shape))

    @property
    def finite(self) -> Mask:
        """Where both ends are finite."""
        return np.isfinite(self.lo) & np.isfinite(self.hi)

    @property
    def width(self) -> Array:
        """An upper bound of hi - lo."""
        with _quiet():
            return np.where(self.lo == self.hi, 0.0, _up(self.hi - self.lo))

    @property
    def mid(self) -> Array:
        """A point inside: the middle where both ends are finite, else an end or 0."""
        with _quiet():
            middle = 0.5 * self.lo + 0.5 * self.hi
            middle = np.where(np.isfinite(middle), middle, 0.0)
            return np.minimum(np.maximum(middle, self.lo), self.hi)

    @property
    def magnitude(self) -> Array:
        """max |x| over the interval."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    @property
    def mignitude(self) -> Array:
        """min |x| over the interval."""
        return np.where((self.lo <= 0) & (self.hi >= 0), 0.0, np.minimum(np.abs(self.lo), np.abs(self.hi)))

    def contains(self, x: ArrayLike) -> Mask:
        """Where the numbers x lie inside."""
        value = np.asarray(x)
        inside: Mask = (self.lo <= value) & (value <= self.hi)
        return inside

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that contains both."""
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def intersection(self, other: Interval) -> Interval:
        """The common part, for two enclosures of the same thing; where they do not meet, `self` is kept."""
        lo, hi = np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi)
        meet = lo <= hi
        return Interval(np.where(meet, lo, self.lo), np.where(meet, hi, self.hi))

    def where(self, condition: Mask, other: Interval) -> Interval:
        """`self` where the condition holds, `other` elsewhere."""
        return Interval(np.where(condition, self.lo, other.lo), np.where(condition, self.hi, other.hi))

    def _undefined(self, bad: Mask) -> Interval:
        """[-inf, inf] where `bad`."""
        if not bad.any():
            return self
        return Interval(np.where(bad, -np.inf, self.lo), np.where(bad, np.inf, self.hi))

    # ------------------------------------------------------------------ arithmetic

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __add__(self, other: Interval | float) -> Interval:
        other = _lift(other)
        with _quiet():
            return Interval(_sum_down(self.lo, other.lo), _sum_up(self.hi, other.hi))

    def __sub__(self, other: Interval | float) -> Interval:
        other = _lift(other)
        with _quiet():
            return Interval(_sum_down(self.lo, -other.hi), _sum_up(self.hi, -other.lo))

    def __mul__(self, other: Interval | float) -> Interval:
        other = _lift(other)
        a, b, c, d = self.lo, self.hi, other.lo, other.hi
        with _quiet():
            ac, ad, bc, bd = a * c, a * d, b * c, b * d
            # fmin ignores the NaN of 0 * inf.  The 0 it stands for is then also another of the four products, or the
            # other two reach both infinities, or all four are NaN: [0, 0] times something unbounded, which is 0.
            lo = np.fmin(np.fmin(ac, ad), np.fmin(bc, bd))
            hi = np.fmax(np.fmax(ac, ad), np.fmax(bc, bd))
            exact = _short(a) & _short(b) & _short(c) & _short(d)
            lo, hi = np.where(exact, lo, _down(lo)), np.where(exact, hi, _up(hi))
            # A product that underflows must not change sign: sqrt(x*y) lives on that.
            same = ((a >= 0) & (c >= 0)) | ((b <= 0) & (d <= 0))
            opposite = ((a >= 0) & (d <= 0)) | ((b <= 0) & (c >= 0))
            lo = np.where(same, np.maximum(lo, 0.0), lo)
            hi = np.where(opposite, np.minimum(hi, 0.0), hi)
            zero = np.isnan(lo)
            if zero.any():
                lo, hi = np.where(zero, 0.0, lo), np.where(zero, 0.0, hi)
        return Interval(lo, hi)

    def __truediv__(self, other: Interval | float) -> Interval:
        other = _lift(other)
        a, b, c, d = self.lo, self.hi, other.lo, other.hi
        with _quiet():
            ac, ad, bc, bd = a / c, a / d, b / c, b / d
            # inf / inf, ignored as NaN, stands for anything between 0 and an infinity.  Both are among the other quotients:
            # of c and d, and of a and b unless they are both infinite, one is finite.
            lo = np.fmin(np.fmin(ac, ad), np.fmin(bc, bd))
            hi = np.fmax(np.fmax(ac, ad), np.fmax(bc, bd))
            lo, hi = _down(lo), _up(hi)
            same = ((a >= 0) & (c > 0)) | ((b <= 0) & (d < 0))
            opposite = ((a >= 0) & (d < 0)) | ((b <= 0) & (c > 0))
            lo = np.where(same, np.maximum(lo, 0.0), lo)
            hi = np.where(opposite, np.minimum(hi, 0.0), hi)
            bad = ((c <= 0) & (d >= 0)) | np.isnan(lo) | np.isnan(hi)
        return Interval(lo, hi)._undefined(bad)

    def scaled(self, c: float) -> Interval:
        """c x for a number c, each end rounded by itself."""
        a, b = (self.lo, self.hi) if c >= 0 else (self.hi, self.lo)
        with _quiet():
            lo, hi = a * c, b * c
            if abs(math.frexp(c)[0]) == 0.5:  # a power of two: exact, but for overflow and underflow
                exact_lo, exact_hi = lo / c == a, hi / c == b
            else:
                short = bool(_short(np.asarray(c)))
                exact_lo, exact_hi = _short(a) & short, _short(b) & short
            lo = np.where(exact_lo, np.minimum(lo, _LARGEST), _down(lo))
            hi = np.where(exact_hi, np.maximum(hi, -_LARGEST), _up(hi))
            lo = np.where(a >= 0 if c >= 0 else a <= 0, np.maximum(lo, 0.0), lo)
            hi = np.where(b <= 0 if c >= 0 else b >= 0, np.minimum(hi, 0.0), hi)
            unclear = np.isnan(lo) | np.isnan(hi)  # 0 times something unbounded is 0
        return Interval(np.where(unclear, 0.0, lo), np.where(unclear, 0.0, hi)) if unclear.any() else Interval(lo, hi)

    def __radd__(self, other: float) -> Interval:
        return _lift(other) + self

    def __rsub__(self, other: float) -> Interval:
        return _lift(other) - self

    def __rmul__(self, other: float) -> Interval:
        return _lift(other) * self

    def __rtruediv__(self, other: float) -> Interval:
        return _lift(other) / self

    def __pow__(self, exponent: int | Fraction | Interval) -> Interval:
        if isinstance(exponent, int):
            return self.power(exponent)
        if isinstance(exponent, Fraction):
            return self.real_power(exponent)
        return (exponent * self.log()).exp()

    def square(self) -> Interval:
        """x^2, never below 0."""
        with _quiet():
            near, far = self.mignitude, self.magnitude
            lo, hi = near * near, far * far
            lo = np.where(_short(near), lo, np.maximum(_down(lo), 0.0))
            hi = np.where(_short(far), hi, _up(hi))
        return Interval(np.minimum(lo, _LARGEST), hi)

    def power(self, n: int) -> Interval:
        """x^n for an integer n; for n < 0 undefined where x contains 0."""
        if n < 0:
            return 1.0 / self.power(-n)
        if n == 0:
            return Interval(np.ones_like(self.lo), np.ones_like(self.hi))
        if n == 1:
            return self
        if n == 2:
            return self.square()
        with _quiet():
            if n % 2 == 0:
                near, far = self.mignitude, self.magnitude
                lo = np.where(near == 1, 1.0, np.maximum(_lower(float_power(near, n)), 0.0))
                hi = np.where(far == 1, 1.0, _upper(float_power(far, n)))
                return Interval(lo, np.where(far == 0, 0.0, hi))
            lo = np.where(np.abs(self.lo) == 1, self.lo, _lower(float_power(self.lo, n)))
            hi = np.where(np.abs(self.hi) == 1, self.hi, _upper(float_power(self.hi, n)))
        return _keep_sign(self, Interval(lo, hi))

    def real_power(self, r: Fraction) -> Interval:
        """x^r for x > 0 (x >= 0 when r > 0); undefined elsewhere."""
        if r.denominator == 1:
            return self.power(r.numerator)
        low, high = rational_bounds(r)
        with _quiet():
            # x^low and x^high bracket x^r from either side, whichever side of 1 x lies on.
            a = Interval(_lower(np.power(self.lo, low)), _upper(np.power(self.hi, low)))
            b = Interval(_lower(np.power(self.lo, high)), _upper(np.power(self.hi, high)))
            if r < 0:
                a = Interval(_lower(np.power(self.hi, low)), _upper(np.power(self.lo, low)))
                b = Interval(_lower(np.power(self.hi, high)), _upper(np.power(self.lo, high)))
            both = a.hull(b)
            lo, hi = np.maximum(both.lo, 0.0), both.hi
            if r > 0:
                lo, hi = np.where(self.lo == 0, 0.0, lo), np.where(self.hi == 0, 0.0, hi)
            bad = (self.lo < 0) | np.isnan(lo) | np.isnan(hi)
            if r < 0:
                bad = bad | (self.lo <= 0)
        return Interval(lo, hi)._undefined(bad)

    def __abs__(self) -> Interval:
        return Interval(self.mignitude, self.magnitude)

    def minimum(self, other: Interval) -> Interval:
        """The smaller of two numbers."""
        return Interval(np.minimum(self.lo, other.lo), np.minimum(self.hi, other.hi))

    def maximum(self, other: Interval) -> Interval:
        """The larger of two numbers."""
        return Interval(np.maximum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def floor(self) -> Interval:
        """The largest integer below or at x."""
        return Interval(np.floor(self.lo), np.floor(self.hi))

    def sign(self) -> Interval:
        """-1, 0 or 1."""
        return Interval(np.sign(self.lo), np.sign(self.hi))

    def sum(self, axis: int = -1) -> Interval:
        """The sum along an axis, by pairs, each sum rounded outward."""
        parts = (
            [self[(..., i)] for i in range(self.shape[axis])]
            if axis == -1
            else [Interval(np.take(self.lo, i, axis), np.take(self.hi, i, axis)) for i in range(self.shape[axis])]
        )
        while len(parts) > 1:
            parts = [p if q is None else p + q for p, q in _pairs(parts)]
        return parts[0]

    # ------------------------------------------------------------------ elementary functions

    def sqrt(self) -> Interval:
        """The square root; undefined where x reaches below 0."""
        with _quiet():
            low, high = np.sqrt(self.lo), np.sqrt(self.hi)
            lo = np.where(_short(low) & (low * low == self.lo), low, np.maximum(_down(low), 0.0))
            hi = np.where(_short(high) & (high * high == self.hi), high, _up(high))
        return Interval(lo, hi)._undefined(self.lo < 0)

    def cbrt(self) -> Interval:
        """The real cube root."""
        return _increasing(self, np.cbrt, odd=True)

    def exp(self) -> Interval:
        """e^x."""
        return _increasing(self, np.exp, floor=0.0)

    def expm1(self) -> Interval:
        """e^x - 1."""
        return _increasing(self, np.expm1, floor=-1.0, odd=True)

    def log(self) -> Interval:
        """The natural logarithm; undefined where x reaches below 0, and from -inf where it reaches 0."""
        result = _increasing(self, np.log)
        return result._undefined(self.lo < 0)

    def log1p(self) -> Interval:
        """log(1 + x); undefined where x reaches below -1."""
        result = _increasing(self, np.log1p, odd=True)
        return result._undefined(self.lo < -1)

    def sin(self) -> Interval:
        """The sine."""
        return _wave(self, np.sin, top=0.25, bottom=-0.25, through_zero=True)

    def cos(self) -> Interval:
        """The cosine."""
        return _wave(self, np.cos, top=0.0, bottom=0.5, through_zero=False)

    def tan(self) -> Interval:
        """The tangent; undefined where x reaches pi/2 + k pi."""
        with _quiet():
            low, high = np.tan(self.lo), np.tan(self.hi)
            small_low, small_high = np.minimum(np.abs(self.lo), 1.0), np.minimum(np.abs(self.hi), 1.0)
            lo = _lower(low) - (1 + low * low) * (_TRIGONOMETRIC * small_low)
            hi = _upper(high) + (1 + high * high) * (_TRIGONOMETRIC * small_high)
            turns_low, turns_high = self.lo / np.pi - 0.5, self.hi / np.pi - 0.5
            pole = np.floor(turns_high + 2 * _TURN) >= np.ceil(turns_low - 2 * _TURN)
            bad = ~(self.magnitude <= HUGE_ANGLE) | pole | np.isnan(lo) | np.isnan(hi)
            near_zero = self.magnitude < 1.5
        lo = np.where(near_zero & (self.lo >= 0), np.maximum(lo, 0.0), lo)
        hi = np.where(near_zero & (self.hi <= 0), np.minimum(hi, 0.0), hi)
        return Interval(lo, hi)._undefined(bad)

    def asin(self) -> Interval:
        """The inverse sine; undefined where x leaves [-1, 1]."""
        result = _increasing(self, np.arcsin, odd=True)
        return result._undefined((self.lo < -1) | (self.hi > 1))

    def acos(self) -> Interval:
        """The inverse cosine; undefined where x leaves [-1, 1]."""
        with _quiet():
            lo = np.maximum(_lower(np.arccos(self.hi)), 0.0)
            hi = np.where(self.lo == 1, 0.0, _upper(np.arccos(self.lo)))
        return Interval(lo, hi)._undefined((self.lo < -1) | (self.hi > 1))

    def atan(self) -> Interval:
        """The inverse tangent."""
        return _increasing(self, np.arctan, odd=True)

    def atan2(self, x: Interval) -> Interval:
        """The angle of the point (x, self), in (-pi, pi]; [-pi, pi] where the cut or the origin is inside."""
        y = self
        with _quiet():
            corners = [np.arctan2(v + 0.0, h + 0.0) for v in (y.lo, y.hi) for h in (x.lo, x.hi)]
            lo = _lower(np.minimum(np.minimum(corners[0], corners[1]), np.minimum(corners[2], corners[3])))
            hi = _upper(np.maximum(np.maximum(corners[0], corners[1]), np.maximum(corners[2], corners[3])))
            # Away from the cut and the origin the angle has no extremum inside a rectangle or inside an edge.
            cut = (y.lo < 0) & (y.hi >= 0) & (x.lo <= 0)
            origin = (y.lo <= 0) & (y.hi >= 0) & (x.lo <= 0) & (x.hi >= 0)
            # Corners at infinity have no direction of their own.
            everything = cut | origin | np.isinf(y.lo) | np.isinf(y.hi) | np.isinf(x.lo) | np.isinf(x.hi)
        lo = np.where(y.lo >= 0, np.maximum(lo, 0.0), lo)
        lo, hi = np.where(everything, -PI_HIGH, lo), np.where(everything, PI_HIGH, hi)
        return Interval(np.maximum(lo, -PI_HIGH), np.minimum(hi, PI_HIGH))

    def sinh(self) -> Interval:
        """The hyperbolic sine."""
        return _increasing(self, np.sinh, odd=True)

    def asinh(self) -> Interval:
        """The inverse hyperbolic sine."""
        return _increasing(self, np.arcsinh, odd=True)

    def acosh(self) -> Interval:
        """The inverse hyperbolic cosine; undefined where x reaches below 1."""
        return _increasing(self, np.arccosh, floor=0.0)._undefined(self.lo < 1)

    def atanh(self) -> Interval:
        """The inverse hyperbolic tangent; undefined where x leaves [-1, 1], infinite at its ends."""
        return _increasing(self, np.arctanh, odd=True)._undefined((self.lo < -1) | (self.hi > 1))

    def cosh(self) -> Interval:
        """The hyperbolic cosine, never below 1."""
        with _quiet():
            lo = np.maximum(_lower(np.cosh(self.mignitude)), 1.0)
            hi = np.where(self.magnitude == 0, 1.0, _upper(np.cosh(self.magnitude)))
        return Interval(lo, hi)

    def tanh(self) -> Interval:
        """The hyperbolic tangent, inside [-1, 1]."""
        return _increasing(self, np.tanh, floor=-1.0, ceiling=1.0, odd=True)

    def sigmoid(self) -> Interval:
        """1/(1 + e^-x), inside [0, 1]."""
        with _quiet():
            # Twice the widening: the exponential's own ulps, then the two roundings of the formula.
            lo = np.maximum(_lower(_lower(sigmoid(self.lo))), 0.0)
            hi = np.minimum(_upper(_upper(sigmoid(self.hi))), 1.0)
        return Interval(lo, hi)

    def erf(self) -> Interval:
        """The error function, inside [-1, 1]."""
        from scipy.special import erf

        return _increasing(self, erf, floor=-1.0, ceiling=1.0, odd=True)


def float_power(x: Array, n: int) -> Array:
    """x^n in float64 for an integer n >= 1, within `ULPS`: up to 8 by multiplications, at most 7 roundings of half an ulp."""
    if n > 8:
        size: Array = np.power(np.abs(x), float(n))
        return size if n % 2 == 0 else np.copysign(size, x)
    result = x
    for bit in bin(n)[3:]:
        result = result * result * x if bit == "1" else result * result
    return result


def sigmoid(x: Array) -> Array:
    """1/(1 + e^-x) in float64, without overflow: two roundings after one exponential of a number that is not positive."""
    with _quiet():
        decay = np.exp(-np.abs(x))
        result: Array = np.where(x >= 0, 1.0, decay) / (1.0 + decay)
    return result


def rational_bounds(value: Fraction) -> tuple[float, float]:
    """The neighbouring float64 numbers around a rational one (twice the same where it is a float64 number)."""
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        return (_LARGEST, math.inf) if value > 0 else (-math.inf, -_LARGEST)
    if math.isinf(nearest):
        return (_LARGEST, math.inf) if value > 0 else (-math.inf, -_LARGEST)
    exact = Fraction(nearest)
    if exact == value:
        return nearest, nearest
    if exact < value:
        return nearest, math.nextafter(nearest, math.inf)
    return math.nextafter(nearest, -math.inf), nearest


def _lift(x: Interval | float) -> Interval:
    if isinstance(x, Interval):
        return x
    value = np.asarray(x, dtype=np.float64)
    return Interval(value, value)


def _pairs(parts: list[Interval]) -> list[tuple[Interval, Interval | None]]:
    return [(parts[i], parts[i + 1] if i + 1 < len(parts) else None) for i in range(0, len(parts), 2)]


def _keep_sign(x: Interval, y: Interval) -> Interval:
    """For an increasing function with f(0) = 0, the sign of x is the sign of f(x)."""
    lo = np.where(x.lo >= 0, np.maximum(y.lo, 0.0), y.lo)
    hi = np.where(x.hi <= 0, np.minimum(y.hi, 0.0), y.hi)
    return Interval(lo, hi)


def _increasing(
    x: Interval, f: Callable[[Array], Array], floor: float = -math.inf, ceiling: float = math.inf, odd: bool = False
) -> Interval:
    """The image under an increasing function with the given bounds; `odd`: f(0) = 0."""
    with _quiet():
        lo, hi = _lower(f(x.lo)), _upper(f(x.hi))
        lo = np.minimum(np.maximum(lo, floor), ceiling) if floor > -math.inf or ceiling < math.inf else lo
        hi = np.minimum(np.maximum(hi, floor), ceiling) if floor > -math.inf or ceiling < math.inf else hi
        lo, hi = np.where(np.isnan(lo), -np.inf, lo), np.where(np.isnan(hi), np.inf, hi)
    result = Interval(lo, hi)
    return _keep_sign(x, result) if odd else result


def _wave(x: Interval, f: Callable[[Array], Array], top: float, bottom: float, through_zero: bool) -> Interval:
    """The image under sin or cos: maxima where x/(2 pi) - top is an integer, minima where x/(2 pi) - bottom is."""
    with _quiet():
        low, high = f(x.lo), f(x.hi)
        error_low: Array | float = _TRIGONOMETRIC
        error_high: Array | float = _TRIGONOMETRIC
        if through_zero:
            error_low = _TRIGONOMETRIC * np.minimum(np.abs(x.lo), 1.0)
            error_high = _TRIGONOMETRIC * np.minimum(np.abs(x.hi), 1.0)
        lo = np.minimum(_lower(low) - error_low, _lower(high) - error_high)
        hi = np.maximum(_upper(low) + error_low, _upper(high) + error_high)
        turns_low, turns_high = x.lo / (2 * np.pi), x.hi / (2 * np.pi)
        huge = ~(x.magnitude <= HUGE_ANGLE)
        has_top = huge | (np.floor(turns_high - top + _TURN) >= np.ceil(turns_low - top - _TURN))
        has_bottom = huge | (np.floor(turns_high - bottom + _TURN) >= np.ceil(turns_low - bottom - _TURN))
        lo = np.where(has_bottom, -1.0, np.maximum(lo, -1.0))
        hi = np.where(has_top, 1.0, np.minimum(hi, 1.0))
    if through_zero:
        # |x| <= pi: the sine keeps the sign of its argument.
        lo = np.where((x.lo >= 0) & (x.hi <= PI_LOW), np.maximum(lo, 0.0), lo)
        hi = np.where((x.hi <= 0) & (x.lo >= -PI_LOW), np.minimum(hi, 0.0), hi)
    return Interval(lo, hi)
