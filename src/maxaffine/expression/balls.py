"""Functions of complex balls that keep to one analytic branch, that of the real function.

A rule answers None where a ball may meet what it must not:

* log, sqrt, asin, acos, atan, cbrt and real powers must not touch a branch cut (a point ball exactly at the branch point of
  sqrt, cbrt or a positive power, such as 0 for sqrt, is allowed: it is one value, not a neighbourhood);
* abs, sign, min, max, floor and atan2 are piecewise analytic; a piece is taken only if the real part of what decides has one
  answer over the whole ball.  Balls that share a point then take the same piece, so a connected set covered by finite results
  carries one analytic function.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint

from maxaffine.core.balls import rational

Rule = Callable[..., Any]


def entire(name: str) -> Rule:
    """A function that is analytic wherever its value is finite."""
    return lambda z: getattr(z, name)()


def off_cut(name: str, away: Callable[[Any], bool]) -> Rule:
    """A function with cuts, on the balls that are surely away from them."""
    return lambda z: getattr(z, name)() if away(z) else None


def still(rule: Rule) -> Rule:
    """0 where the rule has a value: the derivative of what jumps."""
    return lambda *args: None if rule(*args) is None else flint.acb(0)


# ---------------------------------------------------------------------- away from cuts


def off_axis(z: Any) -> bool:
    """Surely not real."""
    return bool(z.imag > 0) or bool(z.imag < 0)


def right_of_cut(z: Any) -> bool:
    """Surely away from (-inf, 0]."""
    return bool(z.real > 0) or off_axis(z)


def right_of_one(z: Any) -> bool:
    """Surely away from (-inf, 1], or the number 1."""
    return bool(z.real > 1) or off_axis(z) or (z - 1).is_zero()


def inside(z: Any) -> bool:
    """Surely away from (-inf, -1] and [1, inf)."""
    return off_axis(z) or (bool(z.real > -1) and bool(z.real < 1))


def inside_or_end(z: Any) -> bool:
    """The same; a real point ball at -1 or 1 is allowed."""
    return inside(z) or (bool(z.imag.is_zero()) and bool(z.real.is_exact()) and (z.real == 1 or z.real == -1))


def between_imaginary_cuts(z: Any) -> bool:
    """Surely away from [i, i inf) and (-i inf, -i]."""
    return bool(z.real > 0) or bool(z.real < 0) or (bool(z.imag > -1) and bool(z.imag < 1))


# ---------------------------------------------------------------------- powers and angles


def real_power(z: Any, r: Fraction) -> Any:
    """z^r."""
    if r > 0 and z.is_zero():
        return flint.acb(0)
    return (z.log() * rational(r)).exp() if right_of_cut(z) else None


def power(z: Any, w: Any) -> Any:
    """z^w."""
    if z.is_zero() and bool(w.real > 0):
        return flint.acb(0)
    return (z.log() * w).exp() if right_of_cut(z) else None


def cbrt(z: Any) -> Any:
    """The real cube root and its continuations from either side of 0."""
    side = sign_of(z)
    if not side:
        return None if side is None else flint.acb(0)
    return (z.log() / 3).exp() if side > 0 else -((-z).log() / 3).exp()


def atan2(y: Any, x: Any) -> Any:
    """The angle by one quotient whose denominator keeps its sign."""
    atan = off_cut("atan", between_imaginary_cuts)
    half_turn = flint.acb(flint.arb.pi())
    if bool(x.real > 0):
        return atan(y / x)
    if bool(y.real > 0) or bool(y.real < 0):
        inner = atan(x / y)
        quarter = half_turn / 2 if bool(y.real > 0) else -half_turn / 2
        return None if inner is None else quarter - inner
    if y.is_zero() and bool(x.real < 0) and bool(x.imag.is_zero()):
        return half_turn
    return flint.acb(0) if y.is_zero() and x.is_zero() else None


# ---------------------------------------------------------------------- decisions by the real part


def sign_of(z: Any) -> int | None:
    """The sign of the real part over the whole ball, 0 for the number 0 alone; None while it is open."""
    if z.is_zero():
        return 0
    return 1 if bool(z.real > 0) else -1 if bool(z.real < 0) else None


def absolute(z: Any) -> Any:
    """z or -z."""
    side = sign_of(z)
    return None if side is None else z if side >= 0 else -z


def sign(z: Any) -> Any:
    """-1, 0 or 1."""
    side = sign_of(z)
    return None if side is None else flint.acb(side)


def floor(z: Any) -> Any:
    """One integer for the whole ball."""
    low = z.real.lower().floor().unique_fmpz()
    high = z.real.upper().floor().unique_fmpz()
    return flint.acb(low) if low is not None and low == high else None


def extremum(sense: int) -> Rule:
    """The one of two with the larger (sense 1) or the smaller (-1) real part."""

    def rule(a: Any, b: Any) -> Any:
        side = sign_of(a - b)
        return None if side is None else a if side * sense >= 0 else b

    return rule


def negative(z: Any) -> bool | None:
    """Whether z < 0."""
    return True if bool(z.real < 0) else False if bool(z.real >= 0) else None


def nonpositive(z: Any) -> bool | None:
    """Whether z <= 0."""
    return True if bool(z.real <= 0) else False if bool(z.real > 0) else None


def zero(z: Any) -> bool | None:
    """Whether z = 0."""
    side = sign_of(z)
    return None if side is None else side == 0


def joined(decisive: bool) -> Rule:
    """`or` (decisive True) or `and` (False) of truths that may be open."""
    return lambda *args: decisive if decisive in args else None if None in args else not decisive
