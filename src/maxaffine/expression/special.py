"""Special functions as operations: SciPy's values, enclosures and balls by python-flint, derivatives of the same kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.intervals import Interval
from maxaffine.expression import special_balls as of
from maxaffine.expression.balls import Rule, right_of_cut
from maxaffine.expression.operation import Operation
from maxaffine.expression.special_enclosures import Enclosed, Ends, Test

if TYPE_CHECKING:
    from maxaffine.expression.graph import Graph

Slope = Callable[["Graph", int, int], int]
ROOT_PI = math.sqrt(math.pi)


def _scipy(name: str) -> Callable[..., Any]:
    """A function of scipy.special, its parameters in front; SciPy is imported when it is asked for."""

    def value(u: Any, data: Any = None) -> Any:
        import scipy.special

        front = () if data is None else tuple(float(a) for a in data) if isinstance(data, tuple) else (float(data),)
        return getattr(scipy.special, name)(*front, u)

    return value


def _special(
    value: Callable[..., Any], ball: Rule, rate: Rule, slope: Slope, *, trend: int = 0, within: Ends = (-math.inf, math.inf),
    inside: Test | None = None, trouble: str = "",
) -> Operation:  # fmt: skip
    """One operation; `rate` is the ball of its derivative, `inside` where it is defined, with `trouble` said elsewhere."""
    enclose = Enclosed(ball, rate, trend, within, inside)
    if inside is None:
        return Operation(value, enclose, ball, slope)
    return Operation(value, enclose, ball, slope, lambda _, u, *data: inside(u.lo, u.hi, *(data or (None,))), trouble)


def _above(bound: float, open_end: bool = True) -> Test:
    """Intervals to the right of a number."""
    return lambda low, high, _: low > bound if open_end else low >= bound


POSITIVE, NONNEGATIVE = _above(0.0), _above(0.0, False)
INNER: Test = lambda low, high, _: (low > 0.0) & (high < 1.0)  # noqa: E731
TO_ONE: Test = lambda low, high, _: (low >= 0.0) & (high <= 1.0)  # noqa: E731
BELOW_ONE: Test = lambda low, high, _: high < 1.0  # noqa: E731
OFF_NOUGHT: Test = lambda low, high, _: (low > 0.0) | (high < 0.0)  # noqa: E731
OFF_POLES: Test = lambda low, high, _: (low > 0.0) | ((np.ceil(low) > high) & (high < 0.0))  # noqa: E731
BRANCH = -math.exp(-1.0) + 1e-16  # above -1/e


def _order_test(whole: bool) -> Test:
    """Bessel functions: of whole orders everywhere, of others where x > 0, or x >= 0 for positive ones."""

    def inside(low: Any, high: Any, order: Fraction) -> Any:
        if whole and order.denominator == 1:
            return np.isfinite(low)
        return low >= 0.0 if whole and order > 0 else low > 0.0

    return inside


# ---------------------------------------------------------------------- derivatives as graphs


def _at(g: Graph, name: str, u: int, data: Any = None) -> int:
    return g.make(name, (u,), data) if data is not None else g.apply(name, u)


def _bell(g: Graph, u: int, scale: Fraction = Fraction(1)) -> int:
    """scale exp(-u^2/2)/sqrt(2 pi)."""
    power = g.apply("exp", g.multiply(g.number(Fraction(-1, 2)), g.integer_power(u, 2)))
    below = g.apply("sqrt", g.multiply(g.number(2), g.make("pi")))
    return g.divide(g.multiply(g.number(scale), power), below)


def _gauss(sign: int, inside: int) -> Slope:
    """sign 2/sqrt(pi) exp(inside u^2)."""

    def slope(g: Graph, _: int, u: int) -> int:
        power = g.apply("exp", g.multiply(g.number(inside), g.integer_power(u, 2)))
        return g.multiply(g.divide(g.number(2 * sign), g.apply("sqrt", g.make("pi"))), power)

    return slope


def _next_order(g: Graph, place: int, u: int) -> int:
    node = g.nodes[place]
    return g.make("polygamma", (u,), 1 if node.op == "digamma" else node.data + 1)


def _recurrence(name: str, first: int, second: int) -> Slope:
    """(first B_{v-1} + second B_{v+1})/2."""

    def slope(g: Graph, place: int, u: int) -> int:
        order = g.nodes[place].data
        below, above = _at(g, name, u, order - 1), _at(g, name, u, order + 1)
        total = g.add(g.multiply(g.number(first), below), g.multiply(g.number(second), above))
        return g.multiply(g.number(Fraction(1, 2)), total)

    return slope


def _rate(name: Rule, first: int, second: int) -> Rule:
    def rate(z: Any, order: Fraction) -> Any:
        below, above = name(z, order - 1), name(z, order + 1)
        return None if below is None or above is None else (first * below + second * above) / 2

    return rate


def _deeper(name: str) -> Slope:
    return lambda g, place, u: g.make(name, (u,), g.nodes[place].data + 1)


def _density(kind: str) -> Slope:
    """Of the regularised incomplete functions: the densities x^(a-1) e^-x/Gamma(a) and x^(a-1) (1-x)^(b-1)/B(a, b)."""

    def slope(g: Graph, place: int, u: int) -> int:
        data = g.nodes[place].data
        a = data[0] if kind == "betainc" else data
        front = g.power(u, g.number(a - 1))
        if kind == "betainc":
            other = g.power(g.subtract(g.one, u), g.number(data[1] - 1))
            return g.divide(g.multiply(front, other), g.make("beta", (g.number(a), g.number(data[1]))))
        found = g.divide(g.multiply(front, g.apply("exp", g.negate(u))), g.apply("gamma", g.number(a)))
        return found if kind == "gammainc" else g.negate(found)

    return slope


def _zeta_value(u: Any, n: int) -> Any:
    import scipy.special

    if n == 0:
        return np.where(np.greater(u, 1), scipy.special.zeta(np.maximum(u, 1.0 + 1e-15), 1.0), np.nan)
    import flint

    return np.vectorize(lambda x: float(of.zeta(flint.acb(float(x)), n).real), otypes=[float])(u)


def _elliptic_value(name: str, first: float) -> Callable[..., Any]:
    def value(m: Any, n: int) -> Any:
        import scipy.special

        if n == 0:
            return getattr(scipy.special, name)(m)
        factor = math.prod((first + k) * (0.5 + k) for k in range(n)) / math.factorial(n)
        return math.pi / 2 * factor * scipy.special.hyp2f1(first + n, 0.5 + n, 1 + n, m)

    return value


def _airy(index: int) -> Callable[..., Any]:
    def value(u: Any) -> Any:
        import scipy.special

        return scipy.special.airy(u)[index]

    return value


def _pair(name: str, index: int) -> Callable[..., Any]:
    def value(u: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(u)[index]

    return value


def _bessel_value(name: str) -> Callable[..., Any]:
    """Orders 0 and 1 by functions of their own, which are faster and closer."""

    def value(u: Any, order: Fraction) -> Any:
        import scipy.special

        own = f"{name[0]}{order}"
        return getattr(scipy.special, own)(u) if order in (0, 1) else getattr(scipy.special, name)(float(order), u)

    return value


def _lambertw(u: Any) -> Any:
    import scipy.special

    return np.where(np.greater_equal(u, -math.exp(-1.0)), scipy.special.lambertw(u).real, np.nan)


def _beta_value(a: Any, b: Any) -> Any:
    import scipy.special

    return scipy.special.beta(a, b)


def _beta_enclosed(a: Interval, b: Interval) -> Interval:
    """B decreases in both arguments: its ends at opposite corners."""
    import flint

    from maxaffine.core import balls

    low, high, alow, ahigh = np.broadcast_arrays(b.lo, b.hi, a.lo, a.hi)
    first, last = np.full(low.shape, 0.0), np.full(low.shape, np.inf)
    with balls.precision(80):
        for place in np.ndindex(low.shape):
            if alow[place] > 0 and low[place] > 0 and np.isfinite([ahigh[place], high[place]]).all():
                small = of.beta(flint.acb(float(ahigh[place])), flint.acb(float(high[place])))
                large = of.beta(flint.acb(float(alow[place])), flint.acb(float(low[place])))
                first[place], last[place] = max(balls.bounds(small)[0], 0.0), balls.bounds(large)[1]
    return Interval(first, last)


def _quotient_exp(z: Any) -> Any:
    return z.exp() / z


# ---------------------------------------------------------------------- the table

_POLE = "`{0}` reaches a pole of the function (0, -1, -2, ..)"
_ZERO, _LOW = "`{0}` reaches 0 or below", "`{0}` reaches below 0"
_TWO = 2

SPECIAL: dict[str, Operation] = {
    "gamma": _special(_scipy("gamma"), of.named("gamma"), lambda z: z.gamma() * z.digamma(),
        lambda g, f, u: g.multiply(f, g.apply("digamma", u)), inside=OFF_POLES, trouble=_POLE),
    "loggamma": _special(_scipy("gammaln"), of.named("lgamma", away=right_of_cut), lambda z: z.digamma(),
        lambda g, f, u: g.apply("digamma", u), inside=POSITIVE, trouble=_ZERO),
    "digamma": _special(_scipy("digamma"), of.named("digamma"), lambda z: of.polygamma(z, 1), _next_order,
        trend=1, inside=OFF_POLES, trouble=_POLE),
    "polygamma": _special(lambda u, n: _scipy("polygamma")(u, n), of.polygamma, lambda z, n: of.polygamma(z, n + 1), _next_order,
        inside=OFF_POLES, trouble=_POLE),
    "beta": Operation(_beta_value, _beta_enclosed, of.beta, None, lambda _, a, b: (a.lo > 0) & (b.lo > 0),
        "`{0}` or `{1}` reaches 0 or below"),
    "erfc": _special(_scipy("erfc"), of.named("erfc"), lambda z: -(-z * z).exp(), _gauss(-1, -1), trend=-1, within=(0.0, 2.0)),
    "erfi": _special(_scipy("erfi"), of.named("erfi"), lambda z: (z * z).exp(), _gauss(1, 1), trend=1),
    "erfcx": _special(_scipy("erfcx"), of.erfcx, lambda z: z, lambda g, f, u: g.subtract(
        g.multiply(g.number(_TWO), g.multiply(u, f)), g.divide(g.number(_TWO), g.apply("sqrt", g.make("pi")))),
        trend=-1, within=(0.0, math.inf)),
    "dawsn": _special(_scipy("dawsn"), of.dawsn, lambda z: 1 - 2 * z * of.dawsn(z), lambda g, f, u: g.subtract(
        g.one, g.multiply(g.number(_TWO), g.multiply(u, f))), within=(-0.5411, 0.5411)),
    "jv": _special(_bessel_value("jv"), of.bessel("j"), _rate(of.bessel("j"), 1, -1), _recurrence("jv", 1, -1),
        inside=_order_test(True), trouble=_ZERO),
    "yv": _special(_bessel_value("yv"), of.bessel("y"), _rate(of.bessel("y"), 1, -1), _recurrence("yv", 1, -1),
        inside=_order_test(False), trouble=_ZERO),
    "iv": _special(_bessel_value("iv"), of.bessel("i"), _rate(of.bessel("i"), 1, 1), _recurrence("iv", 1, 1),
        inside=_order_test(True), trouble=_ZERO),
    "kv": _special(_bessel_value("kv"), of.bessel("k"), _rate(of.bessel("k"), -1, -1), _recurrence("kv", -1, -1),
        trend=-1, within=(0.0, math.inf), inside=_order_test(False), trouble=_ZERO),
    "airy_ai": _special(_airy(0), of.named("airy_ai"), of.named("airy_ai", 1), lambda g, f, u: g.apply("airy_aip", u),
        within=(-0.42, 0.54)),
    "airy_aip": _special(_airy(1), of.named("airy_ai", 1), lambda z: z * z.airy_ai(),
        lambda g, f, u: g.multiply(u, g.apply("airy_ai", u))),
    "airy_bi": _special(_airy(2), of.named("airy_bi"), of.named("airy_bi", 1), lambda g, f, u: g.apply("airy_bip", u)),
    "airy_bip": _special(_airy(3), of.named("airy_bi", 1), lambda z: z * z.airy_bi(),
        lambda g, f, u: g.multiply(u, g.apply("airy_bi", u))),
    "expi": _special(_scipy("expi"), of.expi, _quotient_exp, lambda g, f, u: g.divide(g.apply("exp", u), u),
        inside=OFF_NOUGHT, trouble="`{0}` reaches 0"),
    "exp1": _special(_scipy("exp1"), of.exp1, lambda z: -_quotient_exp(-z),
        lambda g, f, u: g.negate(g.divide(g.apply("exp", g.negate(u)), u)),
        trend=-1, within=(0.0, math.inf), inside=POSITIVE, trouble=_ZERO),
    "si": _special(_pair("sici", 0), of.named("si"), lambda z: z.sinc(), lambda g, f, u: g.apply("sinc", u),
        within=(-1.852, 1.852)),
    "ci": _special(_pair("sici", 1), of.named("ci", away=right_of_cut), lambda z: z.cos() / z,
        lambda g, f, u: g.divide(g.apply("cos", u), u), within=(-math.inf, 0.4721), inside=POSITIVE, trouble=_ZERO),
    "fresnel_s": _special(_pair("fresnel", 0), of.named("fresnel_s"), lambda z: (z * z / 2).sin_pi(),
        lambda g, f, u: g.apply("sin", g.multiply(g.multiply(g.number(Fraction(1, 2)), g.make("pi")), g.integer_power(u, 2))),
        within=(-0.714, 0.714)),
    "fresnel_c": _special(_pair("fresnel", 1), of.named("fresnel_c"), lambda z: (z * z / 2).cos_pi(),
        lambda g, f, u: g.apply("cos", g.multiply(g.multiply(g.number(Fraction(1, 2)), g.make("pi")), g.integer_power(u, 2))),
        within=(-0.78, 0.78)),
    "lambertw": _special(_lambertw, of.named("lambertw", away=of.right_of_branch), lambda z: z,
        lambda g, f, u: g.divide(g.one, g.add(u, g.apply("exp", f))),
        trend=1, within=(-1.0, math.inf), inside=_above(BRANCH), trouble="`{0}` reaches -1/e or below"),
    "zeta": _special(_zeta_value, of.zeta, lambda z, n: of.zeta(z, n + 1), _deeper("zeta"),
        inside=_above(1.0), trouble="`{0}` reaches 1 or below"),
    "ellipk": _special(_elliptic_value("ellipk", 0.5), of.elliptic(1), lambda z, n: z, _deeper("ellipk"),
        trend=1, within=(0.0, math.inf), inside=BELOW_ONE, trouble="`{0}` reaches 1 or above"),
    "ellipe": _special(_elliptic_value("ellipe", -0.5), of.elliptic(-1), lambda z, n: z, _deeper("ellipe"),
        trend=-1, inside=BELOW_ONE, trouble="`{0}` reaches 1 or above"),
    "gammainc": _special(_scipy("gammainc"), of.gammainc, lambda z, a: z, _density("gammainc"),
        trend=1, within=(0.0, 1.0), inside=NONNEGATIVE, trouble=_LOW),
    "gammaincc": _special(_scipy("gammaincc"), of.gammaincc, lambda z, a: z, _density("gammaincc"),
        trend=-1, within=(0.0, 1.0), inside=NONNEGATIVE, trouble=_LOW),
    "betainc": _special(_scipy("betainc"), of.betainc, lambda z, ab: z, _density("betainc"),
        trend=1, within=(0.0, 1.0), inside=TO_ONE, trouble="`{0}` leaves [0, 1]"),
    "ndtr": _special(_scipy("ndtr"), of.ndtr, of.bell, lambda g, f, u: _bell(g, u), trend=1, within=(0.0, 1.0)),
    "ndtri": _special(_scipy("ndtri"), of.ndtri, lambda z: z, lambda g, f, u: g.divide(g.one, _bell(g, f)),
        trend=1, inside=INNER, trouble="`{0}` leaves (0, 1)"),
    "log_ndtr": _special(_scipy("log_ndtr"), of.log_ndtr, lambda z: z, lambda g, f, u: g.divide(
        g.apply("exp", g.subtract(g.multiply(g.number(Fraction(-1, 2)), g.integer_power(u, 2)), f)),
        g.apply("sqrt", g.multiply(g.number(_TWO), g.make("pi")))), trend=1, within=(-math.inf, 0.0)),
    "softplus": _special(lambda u: np.logaddexp(0.0, u), of.softplus, lambda z: z, lambda g, f, u: g.apply("sigmoid", u),
        trend=1, within=(0.0, math.inf)),
}  # fmt: skip
