"""Derivatives of every operation, judged by differences in 300-bit arithmetic; balls and their branch cuts."""

from __future__ import annotations

import flint
import numpy as np
import pytest

from maxaffine.core.balls import bounds, box, magnitude, precision, rational, rectangle
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

NAMES = ("x", "y")

SMOOTH = [
    "sin(x*y)", "cos(x+2*y)", "tan(x/2+y/3)", "exp(x*y)", "expm1(x-y)", "log(x+y)", "log1p(x*y)", "sqrt(x+y)",
    "cbrt(x*y)", "cbrt(-x-y)",
    "asin(x*y/3)", "acos((x-y)/3)", "atan(3*x*y)", "atan2(y, x)", "atan2(x, -y)", "atan2(-y, x)", "atan2(-x, -y)",
    "sinh(x*y)", "cosh(x-y)",
    "tanh(x*y)", "asinh(3*x-y)", "acosh(1+x*y)", "atanh(x*y/2)", "sigmoid(3*x-y)", "erf(x-y)", "x**3*y**2",
    "x**-3*y", "x**2.5*y", "x**0.25", "x**-0.75*y", "x**y",
    "2**(x*y)", "pi**x", "x**pi",
    "x/y", "x/(1+y**2)", "1/(x*y)", "x*y*sin(x)*exp(y)", "(x+y)**5*(x-y)", "pi*x*y + e*x", "hypot(x, y)",
    "log2(x)*log10(y)", "exp2(x*y)",
    "abs(x-2*y)", "abs(2*x-y)", "max(x, 2*y)", "max(x*2, y)", "min(x**2, 5*y)", "min(5*x, y**2)", "relu(x-y/2)",
    "clip(x, 0.1, y)",
    "where(x < 5, x*y, 0)", "where(x > 5, 0, x*y)", "piecewise(x > 5, 1, y > 5, 2, x**2*y)", "sign(x)*x*y",
    "floor(x+0.7)*y", "sqrt(1-x**2/9)",
    "x**2/2 - x*y/3 + y**3/7", "sin(cos(tanh(x*y)))", "log(exp(x)+exp(y))", "1/(1+exp(-x*y))",
]  # fmt: skip


@pytest.mark.parametrize("text", SMOOTH)
def test_a_derivative_is_enclosed_tightly_and_rightly(text: str) -> None:
    expression = Expression.parse(text, NAMES)
    slope = expression.gradient()
    rng = np.random.default_rng(0)
    # Points where no listed kink or jump is near, so that a difference quotient is the derivative.
    points = np.array([[0.75, 0.6], [0.5, 0.8], [1.15, 0.97]]) + 0.01 * rng.random((3, 2))
    half = 2.0**-40
    found = slope.enclose(Interval(points - half, points + half))
    values = slope.evaluate(points)
    assert found.finite.all()
    with precision(300):
        step = flint.arb(2) ** -60
        for p, point in enumerate(points):
            for i in range(2):
                ahead = [flint.acb(float(c) + (step if j == i else 0)) for j, c in enumerate(point)]
                behind = [flint.acb(float(c) - (step if j == i else 0)) for j, c in enumerate(point)]
                quotient = (expression.enclose_ball(ahead)[0] - expression.enclose_ball(behind)[0]).real / (2 * step)
                lo, hi = bounds(quotient)
                assert found.lo[p, i] <= hi and lo <= found.hi[p, i], (text, i, point)
                assert found.hi[p, i] - found.lo[p, i] < 1e-8
                assert values[p, i] == pytest.approx(lo, rel=1e-10, abs=1e-10)


def test_slopes_at_a_kink_are_the_hull_of_both_sides() -> None:
    box_ = Interval(np.array([[-1.0, 0.0]]), np.array([[1.0, 0.0]]))
    for text in ("abs(x)", "max(x, -x)", "-min(x, -x)", "2*relu(x) - x"):
        found = Expression.parse(text, NAMES).gradient().enclose(box_)
        assert (found.lo[0, 0], found.hi[0, 0]) == (-1, 1), text


def test_a_root_of_a_sum_of_squares_has_bounded_slopes_at_its_tip() -> None:
    piece = Interval(np.array([[-1.0, -1.0], [0.5, 0.5]]), np.array([[1.0, 1.0], [0.75, 0.75]]))
    for text in ("hypot(x, y)", "sqrt(x**2 + y**2)", "sqrt(4*x**2 + 9*y**2 + 0)/3", "sqrt(x*x)", "sqrt(x**4 + (y-0.1)**2)"):
        found = Expression.parse(text, NAMES).gradient().enclose(piece)
        assert found.finite.all() and (found.magnitude <= 2 + 1e-12).all(), text
    slope = Expression.parse("hypot(x, y)", NAMES).gradient()
    assert (slope.enclose(piece).magnitude[0] <= 1 + 1e-15).all()
    assert np.isfinite(slope.evaluate([[0.0, 0.0]])).all()
    assert not Expression.parse("sqrt(x**2 - y**2)", NAMES).gradient().enclose(piece).finite[0].any()
    assert not Expression.parse("sqrt(x**2 + y)", NAMES).gradient().enclose(piece).finite[0].any()


@pytest.mark.parametrize("text", ["sign(x)", "floor(x)", "where(x > 0, 1, 0)", "where(x > 0, x, 0)", "atan2(x, -1)",
"ceil(x)", "1/x", "sqrt(x+0.5)",
                                  "cbrt(x)", "asin(2*x)", "x*sign(x)", "tanh(50*sign(x))", "sqrt(abs(x))",
                                  "abs(x)**0.5", "log(x)"])  # fmt: skip
def test_slopes_are_infinite_where_something_jumps_or_has_no_slope(text: str) -> None:
    piece = Interval(np.array([[-0.5, 0.0]]), np.array([[0.6, 1.0]]))
    found = Expression.parse(text, NAMES).gradient().enclose(piece)
    assert np.isinf(found.lo[0, 0]) and np.isinf(found.hi[0, 0])


def test_slopes_on_one_side_of_a_jump_are_finite() -> None:
    right = Interval(np.array([[0.25, 0.0]]), np.array([[0.75, 1.0]]))
    for text in ("sign(x)", "floor(x)", "where(x > 0, 1, 0)", "x*sign(x)"):
        assert Expression.parse(text, NAMES).gradient().enclose(right).finite.all(), text


# ---------------------------------------------------------------------- balls

CUTS = [
    ("log(x)", -1.0), ("log(x)", 0.0), ("sqrt(x)", -1.0), ("sqrt(x)", 0.0), ("x**0.3", -1.0), ("x**-0.5", 0.0),
    ("x**pi", -2.0), ("x**x", -1.0),
    ("log1p(x)", -1.5), ("asin(x)", 1.0), ("asin(x)", -2.0), ("acos(x)", 1.5), ("cbrt(x)", 0.0), ("acosh(x)", 1.0),
    ("atanh(x)", -1.0), ("1/x", 0.0),
    ("tan(x)", 1.5707963),
    ("abs(x)", 0.0), ("sign(x)", 0.0), ("floor(x)", 2.0), ("max(x, 1)", 1.0), ("min(x, 1)", 1.0),
    ("where(x < 1, x, 1)", 1.0),
    ("where(x < 1 or x > 5, 1, 2)", 1.0), ("tanh(log(x))", -1.0), ("sin(abs(x))", 0.0), ("atan2(x, -1)", 0.0),
    ("exp(1/x)", 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "centre"), CUTS)
def test_a_ball_across_a_cut_a_pole_or_a_switch_is_indeterminate(text: str, centre: float) -> None:
    expression = Expression.parse(text, ("x",))
    ball = flint.acb(flint.arb(centre, 0.25), flint.arb(0, 0.25))
    assert not expression.enclose_ball([ball])[0].is_finite()


def test_the_imaginary_cuts_of_atan_are_seen() -> None:
    for text in ("atan(x)", "atan2(x, 1)"):
        expression = Expression.parse(text, ("x",))
        assert not expression.enclose_ball([flint.acb(flint.arb(0, 0.25), flint.arb(1.5, 0.25))])[0].is_finite()
        assert not expression.enclose_ball([flint.acb(flint.arb(0, 0.25), flint.arb(0, 1.25))])[0].is_finite()
        assert expression.enclose_ball([flint.acb(flint.arb(0, 0.25), flint.arb(0, 0.5))])[0].is_finite()
    assert not Expression.parse("sigmoid(x)", ("x",)).enclose_ball([flint.acb(0, flint.arb(3.14159, 0.1))])[0].is_finite()
    assert not Expression.parse("1/(1+25*x**2)", ("x",)).enclose_ball([flint.acb(0, flint.arb(0.2, 0.01))])[0].is_finite()


def test_piecewise_functions_take_the_analytic_piece_that_the_real_part_decides() -> None:
    z = flint.acb(flint.arb(-2, 0.5), flint.arb(0, 0.5))
    cases = {
        "abs(x)": "-x",
        "max(x, 0)": "0",
        "min(x, 0)": "x",
        "where(x < 0, x**2, log(x))": "x**2",
        "sign(x)*x": "-x",
        "floor(x/8)*x": "-x",
    }
    for text, same in cases.items():
        got, want = (Expression.parse(t, ("x",)).enclose_ball([z])[0] for t in (text, same))
        assert got.is_finite() and got.overlaps(want) and bool(abs(got.rad() - want.rad()) < 1e-6), text


def test_a_real_point_at_a_branch_point_has_its_value() -> None:
    zero, one = flint.acb(0), flint.acb(1)
    for text, z, value in (("sqrt(x)", zero, 0), ("cbrt(x)", zero, 0), ("x**0.3", zero, 0), ("abs(x)", zero, 0),
    ("asin(x)", one, None),
                           ("max(x, 0)", zero, 0), ("atan2(x, -1)", zero, None), ("where(x <= 0, 5, 6)", zero,
                           5)):  # fmt: skip
        (found,) = Expression.parse(text, ("x",)).enclose_ball([z])
        assert found.is_finite(), text
        assert value is None or found.overlaps(flint.acb(value)), text


def test_balls_and_intervals_convert_without_losing_a_point() -> None:
    assert bounds(flint.arb(0.75)) == (0.75, 0.75)
    lo, hi = bounds(rational(1) / 3)
    assert lo < 1 / 3 + 1e-17 and hi > lo
    assert bounds(flint.acb(flint.arb.nan())) == (-np.inf, np.inf)
    assert magnitude(flint.acb(3, 4)) >= 5 and magnitude(flint.acb(flint.arb.nan())) == np.inf
    ball = rectangle(-1.0, 2.0, 0.5)
    assert ball.contains(flint.acb(-1, 0.5)) and ball.contains(flint.acb(2, -0.5))
    (first, second) = [bounds(ball) for ball in box([0.0, 1.0], [0.5, 1.0])]
    assert first[0] <= 0 and first[1] >= 0.5 and second == (1, 1)
    before = flint.ctx.prec
    with precision(333):
        assert flint.ctx.prec == 333
    assert flint.ctx.prec == before
