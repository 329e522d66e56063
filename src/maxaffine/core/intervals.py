"""Intervals of real numbers over NumPy arrays, rounded outward.

An `Interval` is two float64 arrays lo <= hi of one shape; entry by entry it stands for the set [lo, hi].  Every operation
returns a set that contains all values of the operation on points of its operands:

    x in X, y in Y   =>   x + y in X + Y,   exp(x) in X.exp(),   ...

Where an operation is not defined on the whole operand (log of something that reaches 0, division by something that contains
0, ...) the result is [-inf, inf], so that a caller sees "not finite"; no operation ever returns NaN.  Always lo < +inf and
hi > -inf.
Elementary functions (core/elementary.py) are assumed accurate to ULPS = 8 units in the last place; that and how ends are rounded
stands in core/outward.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core import elementary
from maxaffine.core.arrays import Array
from maxaffine.core.outward import (
    LARGEST,
    Mask,
    down,
    float_power,
    lower,
    quiet,
    rational_bounds,
    short,
    sum_down,
    sum_up,
    up,
    upper,
)  # fmt: skip

E_LOW, E_HIGH = math.e, math.nextafter(math.e, 3.0)  # float64 e lies below e


def _function(image: elementary.Image) -> Callable[[Interval], Interval]:
    """A function of intervals by the image of their ends."""

    def method(self: Interval) -> Interval:
        return Interval(*image(self.lo, self.hi))

    return method


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
        first = np.where(bad, -np.inf, np.minimum(np.minimum(low, high), LARGEST))
        last = np.where(bad, np.inf, np.maximum(np.maximum(low, high), -LARGEST))
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
        return cls(np.asarray(elementary.PI_LOW), np.asarray(elementary.PI_HIGH))

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

    @property
    def finite(self) -> Mask:
        """Where both ends are finite."""
        return np.isfinite(self.lo) & np.isfinite(self.hi)

    @property
    def width(self) -> Array:
        """An upper bound of hi - lo."""
        with quiet():
            return np.where(self.lo == self.hi, 0.0, up(self.hi - self.lo))

    @property
    def mid(self) -> Array:
        """A point inside: the middle where both ends are finite, else an end or 0."""
        with quiet():
            middle = 0.5 * self.lo + 0.5 * self.hi
            middle = np.where(np.isfinite(middle), middle, 0.0)
            return np.minimum(np.maximum(middle, self.lo), self.hi)

    @property
    def magnitude(self) -> Array:
        """max |x| over the interval."""
        return elementary.magnitude(self.lo, self.hi)

    @property
    def mignitude(self) -> Array:
        """min |x| over the interval."""
        return elementary.mignitude(self.lo, self.hi)

    def contains(self, x: ArrayLike) -> Mask:
        """Where the numbers x lie inside."""
        value = np.asarray(x)
        inside: Mask = (self.lo <= value) & (value <= self.hi)
        return inside

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that contains both."""
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def where(self, condition: Mask, other: Interval) -> Interval:
        """`self` where the condition holds, `other` elsewhere."""
        return Interval(np.where(condition, self.lo, other.lo), np.where(condition, self.hi, other.hi))

    def undefined(self, bad: Mask) -> Interval:
        """[-inf, inf] where `bad`."""
        return Interval(*elementary.undefined(self.lo, self.hi, bad))

    # ------------------------------------------------------------------ arithmetic

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __add__(self, other: Interval | float) -> Interval:
        other = _lift(other)
        with quiet():
            return Interval(sum_down(self.lo, other.lo), sum_up(self.hi, other.hi))

    def __sub__(self, other: Interval | float) -> Interval:
        return self + -_lift(other)

    def __mul__(self, other: Interval | float) -> Interval:
        other = _lift(other)
        a, b, c, d = self.lo, self.hi, other.lo, other.hi
        with quiet():
            ac, ad, bc, bd = a * c, a * d, b * c, b * d
            # fmin ignores the NaN of 0 * inf.  The 0 it stands for is then also another of the four products, or the
            # other two reach both infinities, or all four are NaN: [0, 0] times something unbounded, which is 0.
            lo = np.fmin(np.fmin(ac, ad), np.fmin(bc, bd))
            hi = np.fmax(np.fmax(ac, ad), np.fmax(bc, bd))
            # An end is exact where every product that is seen there has short factors: rounding keeps the order of the others.
            sa, sb, sc, sd = short(a), short(b), short(c), short(d)
            long = (ac, ~(sa & sc)), (ad, ~(sa & sd)), (bc, ~(sb & sc)), (bd, ~(sb & sd))
            rough_lo, rough_hi = (reduce(np.logical_or, ((p == end) & rough for p, rough in long)) for end in (lo, hi))
            lo, hi = np.where(rough_lo, down(lo), lo), np.where(rough_hi, up(hi), hi)
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
        with quiet():
            ac, ad, bc, bd = a / c, a / d, b / c, b / d
            # inf / inf, ignored as NaN, stands for anything between 0 and an infinity.  Both are among the other quotients:
            # of c and d, and of a and b unless they are both infinite, one is finite.
            lo = np.fmin(np.fmin(ac, ad), np.fmin(bc, bd))
            hi = np.fmax(np.fmax(ac, ad), np.fmax(bc, bd))
            # An end is exact where every quotient that is seen there is: one of few bits that gives its numerator back.
            rough_lo, rough_hi = ~short(lo), ~short(hi)
            if not np.all(rough_lo & rough_hi):
                sc, sd = ~short(c), ~short(d)
                long = (ac, sc | (ac * c != a)), (ad, sd | (ad * d != a)), (bc, sc | (bc * c != b)), (bd, sd | (bd * d != b))
                rough_lo, rough_hi = (
                    reduce(np.logical_or, ((q == end) & rough for q, rough in long), some)
                    for end, some in ((lo, rough_lo), (hi, rough_hi))
                )
            lo, hi = np.where(rough_lo, down(lo), lo), np.where(rough_hi, up(hi), hi)
            same = ((a >= 0) & (c > 0)) | ((b <= 0) & (d < 0))
            opposite = ((a >= 0) & (d < 0)) | ((b <= 0) & (c > 0))
            lo = np.where(same, np.maximum(lo, 0.0), lo)
            hi = np.where(opposite, np.minimum(hi, 0.0), hi)
            bad = ((c <= 0) & (d >= 0)) | np.isnan(lo) | np.isnan(hi)
        return Interval(lo, hi).undefined(bad)

    def scaled(self, c: float) -> Interval:
        """c x for a number c, each end rounded by itself."""
        a, b = (self.lo, self.hi) if c >= 0 else (self.hi, self.lo)
        with quiet():
            lo, hi = a * c, b * c
            if abs(math.frexp(c)[0]) == 0.5:  # a power of two: exact, but for overflow and underflow
                exact_lo, exact_hi = lo / c == a, hi / c == b
            else:
                exact_lo, exact_hi = (short(end) & short(np.asarray(c)) for end in (a, b))
            lo = np.where(exact_lo, np.minimum(lo, LARGEST), down(lo))
            hi = np.where(exact_hi, np.maximum(hi, -LARGEST), up(hi))
            lo = np.where(a >= 0 if c >= 0 else a <= 0, np.maximum(lo, 0.0), lo)
            hi = np.where(b <= 0 if c >= 0 else b >= 0, np.minimum(hi, 0.0), hi)
            unclear = np.isnan(lo) | np.isnan(hi)  # 0 times something unbounded is 0
        return Interval(np.where(unclear, 0.0, lo), np.where(unclear, 0.0, hi)) if unclear.any() else Interval(lo, hi)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Interval:
        return _lift(other) - self

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
        with quiet():
            near, far = self.mignitude, self.magnitude
            lo, hi = near * near, far * far
            lo = np.where(short(near), lo, np.maximum(down(lo), 0.0))
            hi = np.where(short(far), hi, up(hi))
        return Interval(np.minimum(lo, LARGEST), hi)

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
        with quiet():
            if n % 2 == 0:
                near, far = self.mignitude, self.magnitude
                lo = np.where(near == 1, 1.0, np.maximum(lower(float_power(near, n)), 0.0))
                hi = np.where(far == 1, 1.0, upper(float_power(far, n)))
                return Interval(lo, np.where(far == 0, 0.0, hi))
            lo = np.where(np.abs(self.lo) == 1, self.lo, lower(float_power(self.lo, n)))
            hi = np.where(np.abs(self.hi) == 1, self.hi, upper(float_power(self.hi, n)))
        return Interval(*elementary.keep_sign((self.lo, self.hi), (lo, hi)))

    def real_power(self, r: Fraction) -> Interval:
        """x^r for x > 0 (x >= 0 when r > 0); undefined elsewhere."""
        if r.denominator == 1:
            return self.power(r.numerator)
        low, high = rational_bounds(r)
        with quiet():
            # x^low and x^high bracket x^r from either side, whichever side of 1 x lies on.
            near, far = (self.lo, self.hi) if r > 0 else (self.hi, self.lo)
            a, b = (Interval(lower(np.power(near, q)), upper(np.power(far, q))) for q in (low, high))
            both = a.hull(b)
            lo, hi = np.maximum(both.lo, 0.0), both.hi
            if r > 0:
                lo, hi = np.where(self.lo == 0, 0.0, lo), np.where(self.hi == 0, 0.0, hi)
            bad = (self.lo < 0) | np.isnan(lo) | np.isnan(hi)
            if r < 0:
                bad = bad | (self.lo <= 0)
        return Interval(lo, hi).undefined(bad)

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
        lows, highs = np.moveaxis(self.lo, axis, 0), np.moveaxis(self.hi, axis, 0)
        parts = [Interval(lo, hi) for lo, hi in zip(lows, highs, strict=True)]
        while len(parts) > 1:
            pairs = [first + second for first, second in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*pairs, *parts[len(pairs) * 2 :]]
        return parts[0]

    # ------------------------------------------------------------------ elementary functions

    sqrt = _function(elementary.sqrt)
    cbrt = _function(elementary.cbrt)
    exp = _function(elementary.exp)
    expm1 = _function(elementary.expm1)
    log = _function(elementary.log)
    log1p = _function(elementary.log1p)
    sin = _function(elementary.sin)
    cos = _function(elementary.cos)
    tan = _function(elementary.tan)
    asin = _function(elementary.asin)
    acos = _function(elementary.acos)
    atan = _function(elementary.atan)
    sinh = _function(elementary.sinh)
    cosh = _function(elementary.cosh)
    tanh = _function(elementary.tanh)
    asinh = _function(elementary.asinh)
    acosh = _function(elementary.acosh)
    atanh = _function(elementary.atanh)
    sigmoid = _function(elementary.sigmoid)
    erf = _function(elementary.erf)

    def atan2(self, x: Interval) -> Interval:
        """The angle of the point (x, self), in (-pi, pi]; [-pi, pi] where the cut or the origin is inside."""
        return Interval(*elementary.atan2((self.lo, self.hi), (x.lo, x.hi)))


def _lift(x: Interval | float) -> Interval:
    if isinstance(x, Interval):
        return x
    value = np.asarray(x, dtype=np.float64)
    return Interval(value, value)
