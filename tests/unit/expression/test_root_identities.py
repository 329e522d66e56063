"""Identities of roots: what they write, that they are identities, and how tight enclosures become where arguments vanish."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import flint
import numpy as np
import pytest

from maxaffine.core import balls
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.expression.identities import polynomial
from maxaffine.structure.breaks import find_pieces
from maxaffine.structure.switches import moved


def written(text: str) -> str:
    expression = Expression.parse(text, ["x", "y"])
    return expression.describe(expression.outputs[0])


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("sqrt(1-x**2)", "sqrt(-(x - 1)*(x + 1))"),
        ("sqrt(1-x**2/9)", "sqrt(-1/9*(x - 3)*(x + 3))"),
        ("(1-x**2)**1.5", "(-(x - 1)*(x + 1))**1.5"),
        ("sqrt(1-(x-1000)**4)", "sqrt(-(x - 1001)*(x - 999)*((x - 1000)**2 + 1))"),
        ("sqrt(x**2-2*x+1)", "abs(x - 1)"),
        ("sqrt(4*x**2)", "2*abs(x)"),
        ("sqrt(x**2+y**2-2*x*y*cos(3*x))", "sqrt((x - y)**2 + 4*x*y*sin(1.5*x)**2)"),
        ("sqrt(4*x**2+4*y**2+8*x*y*cos(x))", "sqrt(4*(x - y)**2 + 16*x*y*cos(0.5*x)**2)"),
        ("sqrt(x**2+2*y**2-2*x*y*cos(x))", "sqrt(x**2 + 2*y**2 - 2*x*y*cos(x))"),
        ("(x**2)**.75", "abs(x)**1.5"),
        ("(x**2*(1-x))**1.5", "abs(x)**3*(-x + 1)**1.5"),
        ("cbrt(-8*x**3)", "-2*x"),
        ("cbrt(x**2)", "abs(x)**(2/3)"),
        ("sqrt(x**4+2*x**2+1)", "x**2 + 1"),
        ("cbrt((exp(x)+1+abs(y))**2)", "(exp(x) + abs(y) + 1)**(2/3)"),
        ("sqrt((exp(x)-1)**2)", "abs(exp(x) - 1)"),
        ("sqrt(2-2*cos(x))", "2*abs(sin(0.5*x))"),
        ("sqrt(2+2*cos(x-y))", "2*abs(cos(0.5*x - 0.5*y))"),
        ("asin(x-1)", "2*asin(sqrt(0.5*x)) - 0.5*pi"),
        ("asin(1-x)", "-2*asin(sqrt(0.5*x)) + 0.5*pi"),
        ("acos(1-x)", "2*asin(sqrt(0.5*x))"),
        ("acos(x-1)", "-2*asin(sqrt(0.5*x)) + pi"),
        ("acosh(x+1)", "2*asinh(sqrt(0.5*x))"),
    ],
)
def test_arguments_of_roots_become_products_and_even_powers_leave_them(text: str, form: str) -> None:
    assert written(text) == form


@pytest.mark.parametrize(
    "text",
    ["sqrt(x**2 + 1)", "sqrt(-x**2)", "sqrt(x**3)", "sqrt(x**2 + y**2)", "sqrt(-x + 0.3)", "cbrt(x*y)", "acosh(x - 1)", "asin(x)",
     "sqrt(-cos(x) + 2)"],
)  # fmt: skip
def test_what_no_identity_helps_stays_as_it_is(text: str) -> None:
    assert written(text) == text


def power(v: flint.arb, n: int, d: int) -> flint.arb:
    return (v.log() * n / d).exp()


def cube_root(v: flint.arb) -> flint.arb:
    return power(v, 1, 3) if v > 0 else -power(-v, 1, 3)


VALUES = [
    ("sqrt(1-x**2)", -1, 1, lambda x: (1 - x * x).sqrt()),
    ("sqrt(3*x-2*x**2-x**3)", 0, 1, lambda x: (3 * x - 2 * x * x - x**3).sqrt()),
    ("(x**4-2*x**2+1)**.7", -2, 2, lambda x: power(x**4 - 2 * x**2 + 1, 7, 10)),
    ("cbrt(x**5-x**3)", -2, 2, lambda x: cube_root(x**5 - x**3)),
    ("(x**2-x**4)**1.25", -1, 1, lambda x: power(x**2 - x**4, 5, 4)),
    ("sqrt(3-3*cos(2*x))", -3, 3, lambda x: (3 - 3 * (2 * x).cos()).sqrt()),
    ("(1+cos(x))**.3", -3, 3, lambda x: power(1 + x.cos(), 3, 10)),
    ("asin(x-1)", 0, 2, lambda x: (x - 1).asin()),
    ("asin(1-x**2)", -1.4, 1.4, lambda x: (1 - x * x).asin()),
    ("acos(x**2-1)", -1.4, 1.4, lambda x: (x * x - 1).acos()),
    ("acos(1-x/3)", 0, 6, lambda x: (1 - x / 3).acos()),
    ("acosh(1+x**4)", -2, 2, lambda x: (1 + x**4).acosh()),
    ("sqrt(2*x**2)", -1, 1, lambda x: (2 * x * x).sqrt()),
    ("sqrt(x**3-x**4)", 0, 1, lambda x: (x**3 - x**4).sqrt()),
]


@pytest.mark.parametrize(("text", "low", "high", "plain"), VALUES, ids=[case[0] for case in VALUES])
def test_rewritten_roots_have_the_values_of_what_was_typed(
    text: str, low: float, high: float, plain: Callable[[flint.arb], flint.arb]
) -> None:
    points = np.random.default_rng(3).uniform(low, high, 60)
    found = Expression.parse(text, ["x"]).enclose(Interval.point(points[:, None]))
    assert found.finite.all()
    with balls.precision(300):
        for x, lo, hi in zip(points, found.lo[:, 0], found.hi[:, 0], strict=True):
            value = plain(flint.arb(float(x)))
            assert lo <= value.upper() and hi >= value.lower()
            assert hi - lo <= 1e-13


def test_domains_stay_the_same_where_a_root_is_undefined() -> None:
    for text, inside, outside in [
        ("sqrt(1-x**2)", 0.5, 1.0001), ("sqrt(x**2*(x-1))", 1.5, 0.5), ("asin(x-1)", 1.0, 2.0001), ("asin(x-1)", 1.0, -0.0001),
        ("acos(1-x)", 1.0, 2.0001), ("acosh(1+x)", 1.0, -0.0001), ("(x**2-3*x+2)**.5", 0.5, 1.5), ("sqrt(-x**2)", 0.0, 0.1),
    ]:  # fmt: skip
        expression = Expression.parse(text, ["x"])
        assert expression.defined(Interval.point([[inside]])).all(), text
        assert not expression.defined(Interval.point([[outside]])).any(), text
        assert np.isnan(expression.evaluate([[outside]])).all(), text
        assert not expression.defined(Interval.of([[min(inside, outside)]], [[max(inside, outside)]])).any(), text


def test_between_the_last_numbers_before_a_root_enclosures_are_finite_and_narrow() -> None:
    ends = 1.0 - 2.0**-53 * np.arange(200.0)
    for text in ("sqrt(1-x**2)", "sqrt(1-x**4)", "asin(x)", "acos(-x)", "sqrt(x*(1-x))"):
        found = Expression.parse(text, ["x"]).enclose(Interval(ends[1:, None], ends[:-1, None]))
        assert found.finite.all(), text
        assert (found.hi - found.lo).max() < 5e-8, text
    tiny = 10.0 ** -np.arange(1.0, 300.0)[:, None]
    near = moved(Expression.parse("asin(x)", ["x"]), Fraction(-1), Fraction(2))  # about -1 every digit of the distance counts
    off = near.enclose(Interval.point(tiny)) + Interval.pi().scaled(0.5)
    assert (off.hi - off.lo).max() < 1e-14
    root = moved(Expression.parse("sqrt(1-x**2)", ["x"]), Fraction(-1), Fraction(2)).enclose(Interval.point(tiny))
    assert (root.hi <= 2.0 * np.sqrt(tiny) * (1 + 1e-12)).all() and (root.lo >= 1.89 * np.sqrt(tiny)).all()


def test_polynomials_of_one_variable_are_read_exactly() -> None:
    graph = Graph()
    x = graph.variable(0)
    inner = graph.subtract(graph.multiply(graph.number(Fraction(1, 3)), x), graph.one)
    product = graph.subtract(graph.integer_power(inner, 2), graph.multiply(x, graph.integer_power(x, 2)))
    assert polynomial(graph, product) == (0, flint.fmpq_poly([1, flint.fmpq(-2, 3), flint.fmpq(1, 9), -1]))
    assert polynomial(graph, graph.integer_power(inner, 40)) is None
    assert polynomial(graph, graph.add(product, graph.variable(1))) is None
    assert polynomial(graph, graph.apply("sin", x)) is None


def test_breaks_at_rational_roots_are_single_numbers() -> None:
    found = find_pieces(Expression.parse("sqrt(abs(x**2-.25))", ["x"]), -1.0, 1.0)
    assert [(p.low, p.high) for p in found.pieces] == [(-1.0, -0.5), (-0.5, 0.5), (0.5, 1.0)]
    for piece in found.pieces:
        ends = Interval.of([[piece.low], [math.nextafter(piece.low, 2.0)]], [[math.nextafter(piece.low, 2.0)], [piece.high]])
        assert piece.branch.enclose(ends).finite.all()
