"""The table of operations: value in float64, enclosure over intervals and where it is defined, complex ball, derivative.

Variables, constants and the choice `where` are left to the walks (evaluate.py).  An operation with data (the exponents of a
product, the exponent of a real power, the weight of a unit vector's entry) gets them as its last argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import flint
import numpy as np
from numpy.typing import NDArray

from maxaffine.core.intervals import Interval
from maxaffine.core.outward import float_power, sigmoid_of
from maxaffine.expression import balls, entire
from maxaffine.expression.operation import Operation
from maxaffine.expression.special import SPECIAL

if TYPE_CHECKING:
    from maxaffine.expression.graph import Graph

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of a condition, entry by entry: surely true, surely false, or neither."""

    yes: Mask
    no: Mask


def nearest(value: Fraction) -> float:
    """The float64 number nearest to a rational one; infinite where it is too large."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# ---------------------------------------------------------------------- sums, products, powers


def _sum(constant: Any, *pairs: Any) -> Any:
    for c, a in zip(pairs[::2], pairs[1::2], strict=True):
        constant = constant + c * a
    return constant


def _sum_enclosed(total: Interval, *pairs: Interval) -> Interval:
    start = bool(np.any(total.lo) or np.any(total.hi))
    for c, a in zip(pairs[::2], pairs[1::2], strict=True):
        low, high = float(c.lo), float(c.hi)
        if low == high == 1.0:
            term = a
        elif low == high == -1.0:
            term = -a
        else:
            term = a.scaled(low) if low == high else a * c
        total = total + term if start else term
        start = True
    return total


def _product(power: Callable[[Any, int], Any]) -> Callable[..., Any]:
    def product(first: Any, *rest: Any) -> Any:
        exponents: Sequence[int] = rest[-1]
        result = power(first, exponents[0])
        for a, n in zip(rest[:-1], exponents[1:], strict=True):
            result = result * power(a, n)
        return result

    return product


def _unit_enclosed(v: Interval, norm: Interval, weight: Fraction) -> Interval:
    """|v|/sqrt(c0 + c v^2 + ...) <= 1/sqrt(c), at the tip of the norm too."""
    most = (1.0 / Interval.exact(weight).sqrt()).hi
    ratio = v / norm
    return Interval(np.clip(ratio.lo, -most, most), np.clip(ratio.hi, -most, most))


def _power(u: Any, v: Any) -> Any:
    """A negative base has a real power only for the integers: not a function on a box."""
    return np.where(np.less(u, 0), np.nan, np.power(u, v))


def _power_defined(_: Interval, u: Interval, v: Interval) -> Any:
    """u^v = exp(v log u) for u > 0, and 0^v = 0 for v > 0: there the product is [-inf, ...] and the exponential starts at 0."""
    return (u.lo > 0) | ((u.lo >= 0) & (v.lo > 0))


def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


# ---------------------------------------------------------------------- slopes that take more than a line


def _arc(g: Graph, u: int) -> int:
    """1/sqrt(1 - u^2)."""
    return g.divide(g.one, g.apply("sqrt", g.subtract(g.one, g.integer_power(u, 2))))


def _sigmoid_slope(g: Graph, _: int, u: int) -> int:
    """(1 - tanh(u/2)^2)/4: one occurrence of u, where s (1 - s) has two."""
    half = g.apply("tanh", g.multiply(g.number(Fraction(1, 2)), u))
    quarter = g.number(Fraction(1, 4))
    return g.multiply(quarter, g.subtract(g.one, g.integer_power(half, 2)))


def _erf_slope(g: Graph, _: int, u: int) -> int:
    bell = g.apply("exp", g.negate(g.integer_power(u, 2)))
    return g.multiply(g.divide(g.number(2), g.apply("sqrt", g.make("pi"))), bell)


# ---------------------------------------------------------------------- conditions and jumps


def _truth(yes: Callable[[Interval], Any], no: Callable[[Interval], Any]) -> Callable[[Interval], Truth]:
    return lambda u: Truth(np.asarray(yes(u)), np.asarray(no(u)))


def _one_sign(u: Interval) -> Mask:
    return np.asarray((u.lo > 0) | (u.hi < 0))


def _nought(u: Interval) -> Mask:
    return np.asarray((u.lo == 0) & (u.hi == 0))


def _jump(calm: Callable[..., Any], ball: Callable[..., Any], trouble: str) -> Operation:
    """0 where nothing jumps, undefined elsewhere."""
    zero = Interval(np.asarray(0.0), np.asarray(0.0))
    return Operation(lambda *_: np.float64(0.0), lambda *_: zero, balls.still(ball), None, lambda _, *args: calm(*args), trouble)


# ---------------------------------------------------------------------- the table

_LEAVES = "`{0}` leaves [-1, 1]"

OPERATIONS: dict[str, Operation] = {
    "pi": Operation(lambda: np.float64(np.pi), Interval.pi, lambda: flint.acb(flint.arb.pi())),
    "e": Operation(lambda: np.float64(np.e), Interval.e, lambda: flint.acb(flint.arb(1).exp())),
    "lin": Operation(_sum, _sum_enclosed, _sum),
    "prod": Operation(_product(float_power), _product(Interval.power), _product(lambda z, n: z if n == 1 else z**n)),
    "div": Operation(np.divide, Interval.__truediv__, lambda a, b: a / b,
        defined=lambda _, a, b: _one_sign(b), trouble="`{1}` reaches 0"),
    "unit": Operation(lambda v, norm, _: np.where(np.equal(norm, 0), 0.0, np.divide(v, norm)), _unit_enclosed,
        lambda v, norm, _: v / norm),
    "powr": Operation(lambda u, r: np.power(u, nearest(r)), Interval.real_power, balls.real_power,
        defined=lambda _, u, r: u.lo >= 0 if r > 0 else u.lo > 0, trouble="`{0}` reaches below 0"),
    "pow": Operation(_power, lambda u, v: (v * u.log()).exp(), balls.power,
        defined=_power_defined, trouble="`{0}` reaches 0 or below"),
    "sqrt": Operation(np.sqrt, Interval.sqrt, balls.off_cut("sqrt", lambda z: z.is_zero() or balls.right_of_cut(z)),
        defined=lambda _, u: u.lo >= 0, trouble="`{0}` reaches below 0"),
    "cbrt": Operation(np.cbrt, Interval.cbrt, balls.cbrt,
        lambda g, f, _: g.divide(g.number(Fraction(1, 3)), g.integer_power(f, 2))),
    "exp": Operation(np.exp, Interval.exp, balls.entire("exp"), lambda g, f, _: f),
    "expm1": Operation(np.expm1, Interval.expm1, balls.entire("expm1"), lambda g, _, u: g.apply("exp", u)),
    "log": Operation(np.log, Interval.log, balls.off_cut("log", balls.right_of_cut), lambda g, _, u: g.divide(g.one, u),
        lambda _, u: u.lo > 0, "`{0}` reaches 0 or below"),
    "log1p": Operation(np.log1p, Interval.log1p, balls.off_cut("log1p", lambda z: balls.right_of_cut(1 + z)),
        lambda g, _, u: g.divide(g.one, g.add(g.one, u)), lambda _, u: u.lo > -1, "`{0}` reaches -1 or below"),
    "sin": Operation(np.sin, Interval.sin, balls.entire("sin"), lambda g, _, u: g.apply("cos", u)),
    "cos": Operation(np.cos, Interval.cos, balls.entire("cos"), lambda g, _, u: g.negate(g.apply("sin", u))),
    "tan": Operation(np.tan, Interval.tan, balls.entire("tan"), lambda g, f, _: g.add(g.one, g.integer_power(f, 2)),
        lambda y, _: y.finite, "`{0}` reaches an odd multiple of pi/2"),
    "asin": Operation(np.arcsin, Interval.asin, balls.off_cut("asin", balls.inside_or_end), lambda g, _, u: _arc(g, u),
        lambda _, u: (u.lo >= -1) & (u.hi <= 1), _LEAVES),
    "acos": Operation(np.arccos, Interval.acos, balls.off_cut("acos", balls.inside_or_end),
        lambda g, _, u: g.negate(_arc(g, u)), lambda _, u: (u.lo >= -1) & (u.hi <= 1), _LEAVES),
    "atan": Operation(np.arctan, Interval.atan, balls.off_cut("atan", balls.between_imaginary_cuts),
        lambda g, _, u: g.divide(g.one, g.add(g.one, g.integer_power(u, 2)))),
    "atan2": Operation(lambda y, x: np.arctan2(y + 0.0, x + 0.0), Interval.atan2, balls.atan2),  # -0.0 is 0
    "sinh": Operation(np.sinh, Interval.sinh, balls.entire("sinh"), lambda g, _, u: g.apply("cosh", u)),
    "cosh": Operation(np.cosh, Interval.cosh, balls.entire("cosh"), lambda g, _, u: g.apply("sinh", u)),
    "tanh": Operation(np.tanh, Interval.tanh, balls.entire("tanh"),
        lambda g, f, _: g.subtract(g.one, g.integer_power(f, 2))),
    "asinh": Operation(np.arcsinh, Interval.asinh, balls.off_cut("asinh", balls.between_imaginary_cuts),
        lambda g, _, u: g.divide(g.one, g.apply("sqrt", g.add(g.one, g.integer_power(u, 2))))),
    "acosh": Operation(np.arccosh, Interval.acosh, balls.off_cut("acosh", balls.right_of_one),
        lambda g, _, u: g.divide(g.one, g.apply("sqrt", g.subtract(g.integer_power(u, 2), g.one))),
        lambda _, u: u.lo >= 1, "`{0}` reaches below 1"),
    "atanh": Operation(np.arctanh, Interval.atanh, balls.off_cut("atanh", balls.inside),
        lambda g, _, u: g.divide(g.one, g.subtract(g.one, g.integer_power(u, 2))),
        lambda _, u: (u.lo > -1) & (u.hi < 1), "`{0}` leaves (-1, 1)"),
    "sigmoid": Operation(sigmoid_of, Interval.sigmoid, lambda z: 1 / (1 + (-z).exp()), _sigmoid_slope),
    "erf": Operation(_erf, Interval.erf, balls.entire("erf"), _erf_slope),
    "sinc": Operation(entire.sinc, entire.sinc_enclosed, balls.entire("sinc"), entire.sinc_slope),
    "exprel": Operation(entire.exprel, entire.exprel_enclosed, entire.exprel_ball, entire.exprel_slope),
    "abs": Operation(np.abs, Interval.__abs__, balls.absolute, lambda g, _, u: g.apply("sign", u)),
    "sign": Operation(np.sign, Interval.sign, balls.sign),
    "floor": Operation(np.floor, Interval.floor, balls.floor),
    "min": Operation(np.minimum, Interval.minimum, balls.extremum(-1)),
    "max": Operation(np.maximum, Interval.maximum, balls.extremum(1)),
    "negative": Operation(lambda u: np.less(u, 0), _truth(lambda u: u.hi < 0, lambda u: u.lo >= 0), balls.negative),
    "nonpositive": Operation(lambda u: np.less_equal(u, 0), _truth(lambda u: u.hi <= 0, lambda u: u.lo > 0), balls.nonpositive),
    "zero": Operation(lambda u: np.equal(u, 0), _truth(_nought, _one_sign), balls.zero),
    "and": Operation(np.logical_and, lambda a, b: Truth(a.yes & b.yes, a.no | b.no), balls.joined(False)),
    "or": Operation(np.logical_or, lambda a, b: Truth(a.yes | b.yes, a.no & b.no), balls.joined(True)),
    "not": Operation(np.logical_not, lambda a: Truth(a.no, a.yes), lambda a: None if a is None else not a),
    "jump": _jump(lambda c: c.yes | c.no, lambda c: c, "the condition `{0}` changes there"),
    "jump_sign": _jump(lambda u: _one_sign(u) | _nought(u), balls.sign, "`sign({0})` jumps there"),
    "jump_floor": _jump(lambda u: np.floor(u.lo) == np.floor(u.hi), balls.floor, "`floor({0})` jumps there"),
    "jump_atan2": _jump(lambda y, x: (y.lo >= 0) | (y.hi < 0) | (x.lo > 0), balls.atan2, "`atan2({0}, {1})` jumps there"),
    **SPECIAL,
}  # fmt: skip
