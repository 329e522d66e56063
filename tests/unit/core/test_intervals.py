"""Intervals enclose: arithmetic against exact rationals, functions against python-flint."""

from __future__ import annotations

import math
from fractions import Fraction

import flint
import numpy as np
import pytest

from maxaffine.core import outward
from maxaffine.core.elementary import HUGE_ANGLE
from maxaffine.core.intervals import Interval
from maxaffine.core.outward import rational_bounds

FUNCTIONS = {
    "exp": (lambda x: x.exp(), -750.0, 710.0),
    "expm1": (lambda x: x.expm1(), -60.0, 700.0),
    "log": (lambda x: x.log(), 1e-300, 1e300),
    "log1p": (lambda x: x.log1p(), -0.999999, 1e10),
    "sqrt": (lambda x: x.sqrt(), 0.0, 1e300),
    "cbrt": (lambda x: x.root(3) if x > 0 else -(-x).root(3) if x < 0 else x, -1e300, 1e300),
    "sin": (lambda x: x.sin(), -1e6, 1e6),
    "cos": (lambda x: x.cos(), -1e6, 1e6),
    "tan": (lambda x: x.tan(), -1e6, 1e6),
    "asin": (lambda x: x.asin(), -1.0, 1.0),
    "acos": (lambda x: x.acos(), -1.0, 1.0),
    "atan": (lambda x: x.atan(), -1e20, 1e20),
    "sinh": (lambda x: x.sinh(), -700.0, 700.0),
    "cosh": (lambda x: x.cosh(), -700.0, 700.0),
    "tanh": (lambda x: x.tanh(), -40.0, 40.0),
    "asinh": (lambda x: x.asinh(), -1e300, 1e300),
    "acosh": (lambda x: x.acosh(), 1.0, 1e300),
    "atanh": (lambda x: x.atanh(), -0.9999999, 0.9999999),
    "sigmoid": (lambda x: 1 / (1 + (-x).exp()), -740.0, 740.0),
    "erf": (lambda x: x.erf(), -10.0, 10.0),
}


def _hard_points(low: float, high: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Uniform, of every magnitude, and next to multiples of pi/2 and to small integers."""
    signs = rng.choice([-1.0, 1.0], count)
    parts = [
        rng.uniform(max(low, -50), min(high, 50), count),
        rng.uniform(low, high, count),
        signs * 10.0 ** rng.uniform(-300, 6, count),
        signs * 10.0 ** rng.uniform(-12, 2, count),
        np.round(rng.uniform(-1000, 1000, count)) * (np.pi / 2) * (1 + rng.integers(-2, 3, count) * 2.0**-52),
        np.round(rng.uniform(-6e5, 6e5, count)) * (np.pi / 2),
        rng.integers(-3, 4, count) * (1 + rng.integers(-4, 5, count) * 2.0**-52),
        np.array([0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.2e-308, -2.2e-308, low, high]),
    ]
    points = np.concatenate(parts)
    return points[(points >= low) & (points <= high)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_encloses_flints_value_on_hard_points(name: str) -> None:
    exact, low, high = FUNCTIONS[name]
    rng = np.random.default_rng(7)
    points = _hard_points(low, high, 500, rng)
    found = getattr(Interval.point(points), name)()
    flint.ctx.prec = 120
    try:
        for x, lo, hi in zip(points, found.lo, found.hi, strict=True):
            value = exact(flint.arb(float(x)))
            # The ball has 120 bits: it is surely outside or, for all purposes, inside.
            assert not bool(flint.arb(float(lo)) > value), (name, x, lo, str(value))
            assert not bool(value > flint.arb(float(hi))), (name, x, hi, str(value))
    finally:
        flint.ctx.prec = 53


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"sigmoid"}))
def test_the_assumed_accuracy_of_numpy_holds_with_a_factor_of_two_to_spare(name: str) -> None:
    """The enclosure is still right when its assumption is halved: 4 ulp, and 2^-52 absolute for sin, cos and tan."""
    exact, low, high = FUNCTIONS[name]
    rng = np.random.default_rng(11)
    points = _hard_points(low, high, 150, rng)
    if name == "erf":
        from scipy.special import erf as function
    else:
        function = getattr(
            np,
            {
                "asin": "arcsin",
                "acos": "arccos",
                "atan": "arctan",
                "asinh": "arcsinh",
                "acosh": "arccosh",
                "atanh": "arctanh",
            }.get(name, name),
        )
    with np.errstate(all="ignore"):
        computed = function(points)
    flint.ctx.prec = 120
    try:
        for x, y in zip(points, computed, strict=True):
            value = exact(flint.arb(float(x)))
            if np.isinf(y):
                assert bool(abs(value) > flint.arb(1.7976931348623157e308))
                continue
            error = abs(flint.arb(float(y)) - value)
            allowed = abs(value) * 4 * flint.arb(2) ** -52 + flint.arb(2) ** -1022
            if name in ("sin", "cos"):
                allowed += flint.arb(2) ** -52 * (min(abs(x), 1.0) if name == "sin" else 1)
            if name == "tan":
                allowed += (1 + value * value) * flint.arb(2) ** -52 * min(abs(x), 1.0)
            assert bool(error <= allowed), (name, x, y, str(value))
    finally:
        flint.ctx.prec = 53


def _wild(rng: np.random.Generator, count: int) -> np.ndarray:
    values = np.concatenate(
        [
            rng.normal(size=count),
            np.round(rng.normal(size=count) * 4) / 4,
            rng.choice([-1, 1], count) * 10.0 ** rng.uniform(-320, 300, count),
            np.array([0.0, 1.0, -1.0, 5e-324, 1e-310, -1e-310, 1.7e308, -1.7e308]),
        ]
    )
    return rng.permutation(values)[:count]


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "square"])
def test_arithmetic_contains_the_exact_result_at_every_corner(symbol: str) -> None:
    rng = np.random.default_rng(3)
    a, b, c, d = (_wild(rng, 3000) for _ in range(4))
    x, y = Interval.of(a, b), Interval.of(c, d)
    found = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y, "square": x.square}[symbol]()
    assert not np.isnan(found.lo).any() and not np.isnan(found.hi).any()
    assert (found.lo <= found.hi).all()
    for i in range(len(a)):
        for u in (x.lo[i], x.hi[i]):
            for v in (y.lo[i], y.hi[i]):
                s, t = Fraction(u), Fraction(v)
                if symbol == "/" and x.contains(0) is not None and y.lo[i] <= 0 <= y.hi[i]:
                    assert np.isinf(found.lo[i]) and np.isinf(found.hi[i])
                    continue
                exact = {
                    "+": lambda s=s, t=t: s + t,
                    "-": lambda s=s, t=t: s - t,
                    "*": lambda s=s, t=t: s * t,
                    "/": lambda s=s, t=t: s / t,
                    "square": lambda s=s: s * s,
                }[symbol]()
                assert np.isinf(found.lo[i]) or Fraction(found.lo[i]) <= exact
                assert np.isinf(found.hi[i]) or exact <= Fraction(found.hi[i])


@pytest.mark.parametrize("n", [3, 4, 5, 10, 101, 1000])
def test_integer_powers_contain_the_exact_result(n: int) -> None:
    rng = np.random.default_rng(n)
    points = np.concatenate([rng.normal(size=200), rng.uniform(0.9, 1.1, 200), [0.0, 1.0, -1.0, 0.5, 2.0, -2.0]])
    found = Interval.point(points).power(n)
    for x, lo, hi in zip(points, found.lo, found.hi, strict=True):
        exact = Fraction(x) ** n
        assert np.isinf(lo) or Fraction(lo) <= exact
        assert np.isinf(hi) or exact <= Fraction(hi)


def test_huge_integer_powers_enclose_flints_value() -> None:
    rng = np.random.default_rng(4)
    points = np.concatenate([1 + rng.normal(size=300) * 1e-4, -1 + rng.normal(size=300) * 1e-6])
    for n in (99_999, 1_000_000):
        found = Interval.point(points).power(n)
        flint.ctx.prec = 200
        try:
            for x, lo, hi in zip(points, found.lo, found.hi, strict=True):
                value = flint.arb(float(x)) ** n
                assert not bool(flint.arb(float(lo)) > value) and not bool(value > flint.arb(float(hi)))
        finally:
            flint.ctx.prec = 53


@pytest.mark.parametrize("r", [Fraction(1, 3), Fraction(5, 2), Fraction(-1, 3), Fraction(-7, 2), Fraction(1, 10)])
def test_real_powers_enclose_flints_value(r: Fraction) -> None:
    rng = np.random.default_rng(5)
    points = np.concatenate([10.0 ** rng.uniform(-80, 80, 500), rng.uniform(0.5, 2, 200), [1.0]])
    found = Interval.point(points).real_power(r)
    flint.ctx.prec = 150
    try:
        for x, lo, hi in zip(points, found.lo, found.hi, strict=True):
            value = (flint.arb(float(x)).log() * flint.arb(flint.fmpq(r.numerator, r.denominator))).exp()
            assert bool(flint.arb(float(lo)) <= value) and (math.isinf(hi) or bool(value <= flint.arb(float(hi))))
    finally:
        flint.ctx.prec = 53


def test_waves_contain_every_value_between_the_ends() -> None:
    rng = np.random.default_rng(1)
    low = rng.uniform(-20, 20, 3000)
    width = 10.0 ** rng.uniform(-12, 1, 3000)
    x = Interval.of(low, low + width)
    t = x.lo[:, None] + (x.hi - x.lo)[:, None] * rng.random((1, 50))
    t = np.clip(t, x.lo[:, None], x.hi[:, None])
    for name, f in (("sin", np.sin), ("cos", np.cos), ("tan", np.tan)):
        found = getattr(x, name)()
        values = f(t)
        slack = 1e-14 * (1 + np.abs(values)) ** 2
        assert (found.lo[:, None] <= values + slack).all() and (values - slack <= found.hi[:, None]).all()
        tight = np.isfinite(found.hi) & (width < 1e-3) & (found.magnitude < 100)
        assert (found.hi - found.lo)[tight].max() < 11


def test_waves_of_huge_arguments_are_the_whole_range() -> None:
    x = Interval.point(np.array([2 * HUGE_ANGLE, 1e300, -1e22]))
    assert (x.sin().lo == -1).all() and (x.cos().hi == 1).all()
    assert np.isinf(x.tan().lo).all()
    everything = Interval.everything((2,))
    assert (everything.sin().lo == -1).all() and (everything.cos().hi == 1).all() and np.isinf(everything.tan().hi).all()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("log", -1, 1),
        ("log", -2, -1),
        ("sqrt", -1, 1),
        ("sqrt", -2, -1),
        ("log1p", -2, 0),
        ("asin", 0, 1.5),
        ("acos", -2, 0),
        ("tan", 1, 2),
        ("log", 0, 0),
    ],
)
def test_outside_its_domain_a_function_is_not_finite(name: str, low: float, high: float) -> None:
    found = getattr(Interval.of([low], [high]), name)()
    assert np.isinf(found.lo).all()
    assert not np.isnan(found.lo).any() and not np.isnan(found.hi).any()


def test_division_by_something_that_contains_zero_is_everything() -> None:
    for low, high in ((-1, 1), (0, 1), (-1, 0), (0, 0)):
        found = 1.0 / Interval.of([low], [high])
        assert np.isinf(found.lo).all() and np.isinf(found.hi).all()


def test_zero_times_everything_is_zero() -> None:
    found = Interval.point([0.0]) * Interval.everything((1,))
    assert found.lo[0] == 0 and found.hi[0] == 0
    found = Interval.of([0.0], [1.0]) * Interval.everything((1,))
    assert np.isinf(found.lo).all() and np.isinf(found.hi).all()


def test_no_operation_on_infinite_intervals_returns_nan() -> None:
    ends = [-np.inf, -1e308, -1.0, 0.0, 1.0, 1e308, np.inf]
    pairs = [(a, b) for a in ends for b in ends if a <= b and a < np.inf and b > -np.inf]
    x = Interval.of([p[0] for p in pairs for _ in pairs], [p[1] for p in pairs for _ in pairs])
    y = Interval.of([p[0] for _ in pairs for p in pairs], [p[1] for _ in pairs for p in pairs])
    results = [x + y, x - y, x * y, x / y, x.atan2(y), x.minimum(y), x.maximum(y), x.hull(y), x**y]
    results += [x.power(n) for n in (-3, -2, 0, 1, 2, 3, 4, 7)] + [x.real_power(Fraction(1, 3)), x.real_power(Fraction(-2, 3))]
    results += [getattr(x, name)() for name in FUNCTIONS] + [x.floor(), x.sign(), abs(x)]
    for r in results:
        assert not np.isnan(r.lo).any() and not np.isnan(r.hi).any()
        assert (r.lo <= r.hi).all() and (r.lo < np.inf).all() and (r.hi > -np.inf).all()
    assert not np.isnan(x.mid).any() and x.contains(x.mid).all() and not np.isnan(x.width).any()


def test_exact_results_are_not_widened() -> None:
    x = Interval.of([0.0], [1.0])
    for found in (x.square(), x * x, x.power(4), x.power(3), x + 0.0, x.sqrt()):
        assert found.lo[0] == 0
    assert x.square().hi[0] == 1 and (x * x).hi[0] == 1 and x.power(4).hi[0] == 1
    assert (1.0 - x.square()).lo[0] == 0
    assert ((2.0 - x) - x).lo[0] == 0
    quotient = Interval.of([1.0], [2.0]) / Interval.of([2.0], [2.1])
    assert quotient.hi[0] == 1 and quotient.lo[0] < 1.0 / 2.1 and (1.0 - quotient).lo[0] == 0
    third = Interval.of(3.0) / Interval.of(9.0)  # an array without axes
    assert third.lo < 1 / 3 < third.hi and (third * 0.0 + Interval.of(3.0) / Interval.of(4.0)).hi == 0.75


def test_the_angle_encloses_and_knows_its_cut() -> None:
    rng = np.random.default_rng(2)
    a, b, c, d = (rng.normal(size=4000) for _ in range(4))
    y, x = Interval.of(a, b), Interval.of(c, d)
    found = y.atan2(x)
    for _ in range(20):
        v = y.lo + rng.random(4000) * (y.hi - y.lo)
        h = x.lo + rng.random(4000) * (x.hi - x.lo)
        angle = np.arctan2(v, h)
        assert (found.lo <= angle + 1e-15).all() and (angle - 1e-15 <= found.hi).all()
    upper = Interval.of([0.0], [1.0]).atan2(Interval.of([-2.0], [-1.0]))
    assert upper.hi[0] >= math.pi and upper.lo[0] > 2
    across = Interval.of([-1.0], [0.0]).atan2(Interval.of([-2.0], [-1.0]))
    assert across.lo[0] <= -math.pi and across.hi[0] >= math.pi


def test_rational_numbers_are_enclosed_tightly() -> None:
    for value in (
        Fraction(1, 3),
        Fraction(1, 10),
        Fraction(-7, 11),
        Fraction(10) ** 400,
        -(Fraction(10) ** 400),
        Fraction(1, 10**400),
    ):
        lo, hi = rational_bounds(value)
        assert math.isinf(lo) or Fraction(lo) <= value
        assert math.isinf(hi) or value <= Fraction(hi)
        assert math.nextafter(lo, math.inf) == hi
    assert rational_bounds(Fraction(3, 4)) == (0.75, 0.75)
    flint.ctx.prec = 100
    try:
        assert flint.arb(float(Interval.pi().lo)) < flint.arb.pi() < flint.arb(float(Interval.pi().hi))
        assert flint.arb(float(Interval.e().lo)) < flint.arb(1).exp() < flint.arb(float(Interval.e().hi))
    finally:
        flint.ctx.prec = 53


def test_sums_along_an_axis_contain_the_exact_sum() -> None:
    rng = np.random.default_rng(9)
    data = rng.normal(size=(50, 7)) * 10.0 ** rng.uniform(-8, 8, (50, 7))
    found = Interval.point(data).sum()
    for row, lo, hi in zip(data, found.lo, found.hi, strict=True):
        exact = sum(Fraction(v) for v in row)
        assert Fraction(lo) <= exact <= Fraction(hi)
    assert np.allclose(Interval.point(data).sum(axis=0).mid, data.sum(axis=0))


def test_ends_are_the_neighbouring_numbers_and_cross_no_number_that_the_exact_value_does_not_cross() -> None:
    powers = np.ldexp(1.0, np.arange(-1074, 1023))
    others = np.random.default_rng(5).lognormal(0, 99, 9999)
    x = np.concatenate([powers, np.nextafter(powers, np.inf), np.nextafter(powers, 0.0), others])
    x = np.concatenate([x, -x, [0.0]])
    low, high = outward.down(x), outward.up(x)
    assert (low <= np.nextafter(x, -np.inf)).all() and (high >= np.nextafter(x, np.inf)).all()
    usual = (np.abs(x) > 1e-300) | (np.abs(x) < 2.0**-1022)
    assert (low[usual] == np.nextafter(x, -np.inf)[usual]).all() and (high[usual] == np.nextafter(x, np.inf)[usual]).all()
    below = 1.0 - 2.0**-53 * np.arange(0.0, 2000.0)  # the numbers below 1
    assert (1.0 - Interval.point(below).square()).lo.min() >= 0.0


@pytest.mark.parametrize("c", [2.0, -0.5, 3.0, -1 / 3, 0.0, 2.0**-1060, -(2.0**1000)])
def test_multiples_contain_the_exact_ends_and_round_each_by_itself(c: float) -> None:
    rng = np.random.default_rng(8)
    ends = np.sort(rng.normal(size=(400, 2)) * 10.0 ** rng.uniform(-300, 6, (400, 1)), axis=1)
    ends[:8] = [[-1.0, 1 / 3], [1 / 3, 2.0], [0.0, 0.1], [-0.1, 0.0], [0.0, 0.0], [5e-324, 1.0], [-1.0, -5e-324], [1.0, 1.7e308]]
    found = Interval(ends[:, 0], ends[:, 1]).scaled(c)
    for (a, b), lo, hi in zip(ends, found.lo, found.hi, strict=True):
        low, high = sorted((Fraction(a) * Fraction(c), Fraction(b) * Fraction(c)))
        assert math.isinf(lo) or Fraction(lo) <= low
        assert math.isinf(hi) or Fraction(hi) >= high
    if c in (2.0, -0.5):  # one end with many digits does not widen the other
        assert 1.0 * c in (found.lo[0], found.hi[0], -found.lo[0], -found.hi[0])
        assert found.lo[1] == min(2.0 * c, 1 / 3 * c) and found.hi[1] == max(2.0 * c, 1 / 3 * c)
    assert not np.isnan(Interval.everything((3,)).scaled(c).lo).any()


def test_the_sine_is_not_negative_up_to_the_last_number_before_pi() -> None:
    found = Interval.of([0.0, 3.0, math.pi], [math.pi, math.pi, math.pi]).sin()
    assert (found.lo >= 0.0).all() and (found.hi >= np.array([1.0, 0.14, 1.2246467991473531e-16])).all()
    beyond = math.nextafter(math.pi, 4.0)  # sin < 0 there
    assert Interval.of([0.0], [beyond]).sin().lo[0] < 0.0
    assert (Interval.of([-math.pi], [0.0]).sin().hi == 0.0).all()
