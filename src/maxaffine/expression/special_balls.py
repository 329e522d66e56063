"""Special functions of complex balls by python-flint, each on the branch that is real on the real axis (balls.py).

A ball that is wide is cut into closed pieces until the images are not much larger than they must be: every piece is enclosed for
itself, and a function that is analytic about each of the pieces that cover a ball is analytic on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint

from maxaffine.core.balls import indeterminate, rational
from maxaffine.expression.balls import Rule, off_axis, right_of_cut

DEEPEST = 4  # halvings of a wide ball
LOOSE = 0.3  # of its size that an image may be wide
STEEP = 2.0  # and times as wide as its ball


def cut(rule: Rule) -> Rule:
    """A rule on wide balls, piece by piece."""

    def pieces(z: Any, *data: Any) -> Any:
        return _covered(rule, z, data, DEEPEST)

    return pieces


def _covered(rule: Rule, z: Any, data: tuple[Any, ...], deep: int) -> Any:
    found = rule(z, *data)
    if z.is_exact() or deep == 0 or not z.is_finite():
        return found
    width = z.rad()
    if found is not None and found.is_finite() and bool(found.rad() <= LOOSE * abs(found.mid()) + STEEP * width):
        return found
    if float(width) < 1e-12 * (1.0 + float(abs(z).upper())):
        return found
    total = None
    for half in _halves(z):
        part = _covered(rule, half, data, deep - 1)
        if part is None or not part.is_finite():
            return found if found is not None and found.is_finite() else None
        total = part if total is None else total.union(part)
    return total


def _halves(z: Any) -> tuple[Any, Any]:
    wide = bool(z.real.rad() >= z.imag.rad())
    side = z.real if wide else z.imag
    middle = flint.arb(side.mid())
    low, high = flint.arb(side.lower()).union(middle), middle.union(flint.arb(side.upper()))
    return (flint.acb(low, z.imag), flint.acb(high, z.imag)) if wide else (flint.acb(z.real, low), flint.acb(z.real, high))


def named(name: str, *args: Any, away: Callable[[Any], bool] = lambda _: True) -> Rule:
    """A method of python-flint's complex balls, on balls that are surely away from its cuts."""
    return cut(lambda z: getattr(z, name)(*args) if away(z) else None)


def left_of_one(z: Any) -> bool:
    """Surely away from [1, inf)."""
    return bool(z.real < 1) or off_axis(z)


def between_nought_and_one(z: Any) -> bool:
    """Surely away from (-inf, 0] and [1, inf)."""
    return off_axis(z) or (bool(z.real > 0) and bool(z.real < 1))


def right_of_branch(z: Any) -> bool:
    """Surely away from (-inf, -1/e], the cut of Lambert's W."""
    return bool(z.real > -(-flint.arb(1)).exp()) or off_axis(z)


# ---------------------------------------------------------------------- families with a parameter


def bessel(name: str) -> Rule:
    """J, Y, I or K of a real order; J and I of whole orders are entire."""
    method = f"bessel_{name}"
    whole = name in "ji"

    def rule(z: Any, order: Fraction) -> Any:
        if z.is_zero() and whole and order > 0:
            return flint.acb(0)
        if not (whole and order.denominator == 1) and not right_of_cut(z):
            return None
        return getattr(z, method)(flint.acb(rational(order)))

    return cut(rule)


def _gammainc(z: Any, a: Fraction) -> Any:
    if z.is_zero():
        return flint.acb(0)
    return z.gamma_lower(flint.acb(rational(a)), 1) if right_of_cut(z) else None


def _gammaincc(z: Any, a: Fraction) -> Any:
    if z.is_zero():
        return flint.acb(1)
    return z.gamma_upper(flint.acb(rational(a)), 1) if right_of_cut(z) else None


def _betainc(z: Any, ab: tuple[Fraction, Fraction]) -> Any:
    if z.is_zero() or (1 - z).is_zero():
        return z
    return z.beta_lower(flint.acb(rational(ab[0])), flint.acb(rational(ab[1])), 1) if between_nought_and_one(z) else None


def _zeta(z: Any, n: int) -> Any:
    """The n-th derivative of the zeta function, n! times a coefficient of its series."""
    if n == 0:
        return z.zeta()
    series = flint.acb_series([z, 1], prec=n + 1).zeta()
    return series.coeffs()[n] * math.factorial(n) if series.length() > n else flint.acb(0)


def elliptic(first: int) -> Rule:
    """The n-th derivative of pi/2 F(first/2, 1/2; 1; m): K for first 1, E for first -1."""

    def rule(m: Any, n: int) -> Any:
        if not left_of_one(m):
            return None
        if n == 0:
            return m.elliptic_k() if first == 1 else m.elliptic_e()
        a, b = Fraction(first, 2), Fraction(1, 2)
        factor = math.prod(((a + k) * (b + k) for k in range(n)), start=Fraction(1)) / math.factorial(n)
        value = m.hypgeom_2f1(rational(a + n), rational(b + n), 1 + n)
        return value * rational(factor) * flint.arb.pi() / 2

    return cut(rule)


zeta = cut(_zeta)
polygamma = cut(lambda z, n: z.polygamma(int(n)))
gammainc, gammaincc, betainc = cut(_gammainc), cut(_gammaincc), cut(_betainc)


# ---------------------------------------------------------------------- one by one


def _expi(z: Any) -> Any:
    """Ei to the right of 0, -E_1(-z) to the left."""
    if bool(z.real > 0):
        return z.ei()
    return -(-z).expint(1) if bool(z.real < 0) else None


def _ndtr(z: Any) -> Any:
    return (-z / flint.arb(2).sqrt()).erfc() / 2


def _log_ndtr(z: Any) -> Any:
    value = _ndtr(z)
    return value.log() if right_of_cut(value) else None


def _softplus(z: Any) -> Any:
    value = 1 + z.exp()
    return value.log() if right_of_cut(value) else None


def _beta(a: Any, b: Any) -> Any:
    return a.gamma() * b.gamma() * (a + b).rgamma()


def bell(z: Any) -> Any:
    """The normal density."""
    return (-z * z / 2).exp() / (2 * flint.arb.pi()).sqrt()


def _ndtri(p: Any) -> Any:
    """The inverse of the normal distribution function N by Newton's method with a proof.

    N is one-to-one on U = {y : |Re y Im y| < pi/2}: between two points of U integrate exp(-y^2/2), whose angle stays within a
    right angle there, along level and upright pieces inside U, which can be chosen such that the real or the imaginary parts
    of all of them have one sign.  So a solution of N(y) = p in U is the branch that is real on (0, 1), and Krawczyk's operator
    shows that a box holds a solution for every p.
    """
    middle = flint.acb(p.mid())
    y = _start(middle)
    if y is None:
        return None
    slope = bell(y)
    if not slope.is_finite() or slope.contains(0):
        return None
    reach = abs((_ndtr(y) - p) / slope).upper() * 1.5 + (1 + abs(y).upper()) * flint.arb(2) ** (10 - flint.ctx.prec)
    for _ in range(6):
        size = flint.arb(reach)
        step = flint.arb(0, float(size.upper()) if float(size.upper()) > 0 else 1e-300)
        wide = y + flint.acb(step, step)
        new = y - (_ndtr(y) - p) / slope + (1 - bell(wide) / slope) * (wide - y)
        inside = bool(abs(wide.real) * abs(wide.imag) < flint.arb.pi() / 2)
        if inside and new.is_finite() and wide.contains_interior(new):
            return new
        reach = reach * 2
    return None


def _start(p: Any) -> Any:
    """A point near the solution: the real one under the real part, then Newton's steps towards p along a line."""
    real = float(p.real)
    if not 0.0 < real < 1.0:
        return None
    y = flint.acb((1 - 2 * flint.arb(p.real)).erfinv() * -flint.arb(2).sqrt()).mid()
    steps = 1 if p.imag.is_zero() else 8
    for k in range(1, steps + 1):
        aim = flint.acb(p.real, p.imag * k / steps)
        for _ in range(1 if steps == 1 else 4 if k == steps else 2):
            slope = bell(y)
            if not slope.is_finite() or slope.contains(0):
                return None
            y = flint.acb((y - (_ndtr(y) - aim) / slope).mid())
    return y if y.is_finite() else None


expi, ndtr, log_ndtr, softplus, ndtri = (cut(rule) for rule in (_expi, _ndtr, _log_ndtr, _softplus, _ndtri))
erfcx = cut(lambda z: (z * z).exp() * z.erfc())
dawsn = cut(lambda z: (-z * z).exp() * z.erfi() * flint.arb.pi().sqrt() / 2)
exp1 = cut(lambda z: z.expint(1) if right_of_cut(z) else None)


def beta(a: Any, b: Any) -> Any:
    """B(a, b), analytic in each."""
    found = _beta(a, b)
    return found if found.is_finite() else indeterminate()
