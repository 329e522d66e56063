"""The structure of expressions: groups add up to the target, factors multiply to their group, few directions are found."""

from fractions import Fraction

import flint
import numpy as np
import pytest

from maxaffine.attack.targets import random_case
from maxaffine.core.balls import precision
from maxaffine.expression.expression import Expression
from maxaffine.structure.groups import groups_of, rotated_group, whole_group

NAMES = ("x", "y", "z")

IDENTITIES = [
    "sin(x) + cos(y)", "sin(x)*cos(y)", "x*y", "tanh(5*(x+y))", "exp(-(x-y)**2)", "exp(-x**2-y**2-z**2)", "(x+y)**2",
    "(x+y+z)**3",
    "(x + sin(y))**4", "exp(x+y*z)", "exp(2 + x - 3*y)", "exp(x*y + x)", "sin(x)/(2+cos(y))", "x/(3+y)/(4+z)", "pi*x + e*y",
    "sin(pi*x + y)", "sin(pi*x)", "cos(2*x - 2*y)*sin(x - y)", "sin(x+y)*cos(x)", "sin(x+y)*cos(x-y)*exp(x)", "abs(x-5)*y",
    "max(x, y)", "where(x < 0, y, z)", "min(x+y, z)", "(x+1)*(y+2)*(z+3)", "3.5", "x", "sqrt(4 + x + y)", "0*x + y",
    "sin(x) + sin(x) + x - x + y", "1/(1+(x+y)**2) + x*y*z", "(x*y + z)**2", "exp(exp(x)*y)", "exp(x)**2*exp(y)",
    "(2*x+4*y)*(x+2*y)",
    "sin(x)*cos(x) + y", "x**2*y**2*sin(z) + x", "log(3+x)*log(4+x)", "(0.1*x + 0.3*y)**2", "atan2(y, 3+x)", "1e3 + x*y",
    "exp(3*log(2)+x-y)", "(sin(x)+cos(y))*(sin(x)-cos(y))", "floor(x/10)+y", "((x+y)**2+z)**2",
]  # fmt: skip


def ball_points(count, seed=0, low=-1.0, high=1.0):
    rng = np.random.default_rng(seed)
    return [[flint.arb(float(v)) for v in row] for row in rng.uniform(low, high, (count, 3))]


def exact(expression, point):
    return expression.enclose_ball([flint.acb(v) for v in point])[0]


def directions_at(group, point):
    """t_e = w_e . x, exactly."""
    return [sum((flint.arb(flint.fmpq(c.numerator, c.denominator)) * v for c, v in zip(w, point, strict=False)), flint.arb(0))
            for w in group.directions]  # fmt: skip


def assert_groups_add_up(expression, points):
    groups = groups_of(expression)
    with precision(160):
        for point in points:
            whole = exact(expression, point)
            total = flint.acb(exact(expression, point) if not groups else 0)
            for group in groups:
                total += exact(group.expression, directions_at(group, point))
            if whole.is_finite():
                assert total.overlaps(whole), (expression.text, total, whole)
                assert float(abs(total - whole).upper()) < 1e-30 * (1 + float(abs(whole).upper())), expression.text


@pytest.mark.parametrize("text", IDENTITIES)
def test_the_groups_add_up_to_the_expression(text):
    assert_groups_add_up(Expression.parse(text, NAMES), ball_points(6))


def test_the_groups_of_random_expressions_add_up():
    rng = np.random.default_rng(3)
    for i in range(120):
        case = random_case(rng)
        expression = Expression.parse(case.text, case.box.names)
        middle = (case.box.low + case.box.high) / 2
        points = [
            [flint.arb(float(v)) for v in case.box.clip(p)] for p in [middle, *case.box.sample(2, np.random.default_rng(i))]
        ]
        assert_groups_add_up(expression, points)


@pytest.mark.parametrize("text", IDENTITIES)
def test_the_factors_multiply_to_their_group(text):
    for group in groups_of(Expression.parse(text, NAMES)):
        if group.factors is None:
            continue
        assert all(len(row) == group.dimension for row in group.factors)
        with precision(160):
            for point in ball_points(4, seed=1):
                t = directions_at(group, point)
                total = flint.acb(0)
                for row in group.factors:
                    piece = flint.acb(1)
                    for value, factor in zip(t, row, strict=True):
                        piece *= flint.acb(1) if factor is None else exact(factor, [value])
                    total += piece
                whole = exact(group.expression, t)
                assert not whole.is_finite() or float(abs(total - whole).upper()) < 1e-30 * (1 + float(abs(whole).upper()))


@pytest.mark.parametrize(
    "text, dimensions",
    [
        ("sin(x) + cos(y)", [1, 1]),
        ("tanh(5*(x+y))", [1]),
        ("exp(-(x-y)**2)", [1]),
        ("sin(x+y) + cos(x-y) + exp(z)", [1, 1, 1]),
        ("sin(x)*cos(y)", [2]),
        ("exp(-x**2-y**2-z**2)", [3]),
        ("sin(x+y)*cos(x-y)", [2]),
        ("x*y + sin(x) + cos(y)", [2]),
        ("cos(2*x - 2*y)*sin(x - y)", [1]),
        ("x + y + z", [1, 1, 1]),
        ("3.5", []),
    ],
)
def test_it_finds_the_fewest_directions(text, dimensions):
    assert sorted(g.dimension for g in groups_of(Expression.parse(text, NAMES))) == sorted(dimensions)


def test_twenty_sines_are_twenty_groups_and_a_gaussian_in_six_variables_is_one_product():
    names = tuple(f"x{i}" for i in range(1, 21))
    groups = groups_of(Expression.parse(" + ".join(f"sin({i}*x{i})" for i in range(1, 21)), names))
    assert [g.dimension for g in groups] == [1] * 20
    (one,) = groups_of(Expression.parse("exp(-(" + "+".join(f"x{i}**2" for i in range(1, 7)) + "))", names[:6]))
    assert one.dimension == 6 and len(one.factors) == 1


def test_parallel_directions_with_different_constants_are_one():
    (group,) = groups_of(Expression.parse("sin(2*x+4*y-1) * exp(x+2*y) + (3*x+6*y)**2", NAMES))
    assert group.directions == ((Fraction(1), Fraction(2), Fraction(0)),)


def test_the_range_of_a_direction_contains_its_values_over_the_box():
    (group,) = groups_of(Expression.parse("sin(0.1*x - 0.3*y + 0.7*z)", NAMES))
    low, high = np.array([-1.0, 0.1, 2.0]), np.array([0.3, 0.4, 5.0])
    reach = group.range(low, high)
    w = group.matrix()[0]
    x = np.random.default_rng(0).choice([0.0, 1.0], (64, 3)) * (high - low) + low
    assert reach.lo[0] <= (x @ w).min() and (x @ w).max() <= reach.hi[0]


def test_all_outputs_together_keep_their_variables_and_values():
    expression = Expression.parse("sin(x)*z, x + z, 2", NAMES)
    group = whole_group(expression)
    assert group.dimension == 2
    x = np.random.default_rng(1).uniform(-1, 1, (20, 3))
    assert np.allclose(group.expression.evaluate(x @ group.matrix().T), expression.evaluate(x), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "text, directions",
    [
        ("1/(2.2-x-y) + sin(x-y)*x", ((1, 1, 0), (1, -1, 0))),
        ("x*y", ((1, 1, 0), (1, -1, 0))),
        ("exp(x*y*z) + z", ((1, 1, 0), (1, -1, 0), (0, 1, 2))),
        ("sqrt(9 + x*z), x - z", ((1, 0, 3), (2, 0, 1))),
    ],
)
def test_an_expression_in_other_directions_is_the_same_function(text, directions):
    expression = Expression.parse(text, NAMES)
    group = rotated_group(expression, [tuple(Fraction(c) for c in w) for w in directions])
    with precision(160):
        for point in ball_points(5):
            t = directions_at(group, point)
            for got, whole in zip(group.expression.enclose_ball([flint.acb(v) for v in t]),
                                  expression.enclose_ball([flint.acb(v) for v in point]), strict=True):  # fmt: skip
                assert float(abs(got - whole).upper()) < 1e-30


@pytest.mark.parametrize("directions", [((1, 1, 0), (2, 2, 0)), ((1, 1, 0),), ((1, 0, 0), (0, 0, 1)), ((0, 0, 0), (1, 0, 0))])
def test_directions_that_lose_something_are_refused(directions):
    assert rotated_group(Expression.parse("x*y", NAMES), [tuple(Fraction(c) for c in w) for w in directions]) is None
