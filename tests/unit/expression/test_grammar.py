"""The grammar: what it reads, what it refuses, and in which words."""

from __future__ import annotations

import math
import pickle
import sys
import time

import numpy as np
import pytest

from maxaffine.core.errors import BadInput, MaxaffineError, Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.functions import ALIASES, ARITIES

NAMES = ("x", "y")


def _value(text: str, x: float = 0.3, y: float = -0.7) -> float:
    return float(Expression.parse(text, NAMES).evaluate([[x, y]])[0, 0])


X, Y = 0.3, -0.7
VALUES = [
    ("1", 1.0), (".75", 0.75), ("1e-3", 1e-3), ("2.", 2.0), ("1.5E+2", 150.0),
    ("x + y*2", X + Y * 2), ("-x**2", -(X**2)), ("2**-x", 2**-X), ("2**3**2", 512.0), ("-2**2", -4.0), ("2**-1**2",
    2**-1.0),
    ("x - y - 1", X - Y - 1), ("x / y / 2", X / Y / 2), ("1/2/4", 0.125), ("--x", X), ("+x", X), ("- -+-x", -X),
    ("2*-x", -2 * X),
    ("(x)", X), ("((x+y))*((x-y))", (X + Y) * (X - Y)), ("x*x*x", X**3), ("(x*y)**3", (X * Y) ** 3), ("x**0", 1.0),
    ("y**0", 1.0),
    ("(2*x)**2/x", 4 * X), ("x**-2", X**-2.0), ("abs(y)**0.5", math.sqrt(0.7)), ("x**2.5", X**2.5), ("3**x", 3**X),
    ("e**x", math.exp(X)),
    ("pi", math.pi), ("e", math.e), ("sin(x)+cos(y)", math.sin(X) + math.cos(Y)), ("tan(x)", math.tan(X)),
    ("asin(x)", math.asin(X)), ("arcsin(x)", math.asin(X)), ("acos(x)", math.acos(X)), ("arccos(x)", math.acos(X)),
    ("atan(y)", math.atan(Y)), ("arctan(y)", math.atan(Y)), ("atan2(y, x)", math.atan2(Y, X)), ("arctan2(y, -x)",
    math.atan2(Y, -X)),
    ("sinh(x)", math.sinh(X)), ("cosh(x)", math.cosh(X)), ("tanh(x)", math.tanh(X)), ("erf(x)", math.erf(X)),
    ("sigmoid(y)", 1 / (1 + math.exp(0.7))), ("exp(x)", math.exp(X)), ("expm1(x)", math.expm1(X)), ("log(x)",
    math.log(X)),
    ("log1p(x)", math.log1p(X)), ("sqrt(x)", math.sqrt(X)), ("cbrt(y)", -(0.7 ** (1 / 3))), ("abs(y)", 0.7),
    ("absolute(y)", 0.7),
    ("sign(y)", -1.0), ("floor(y)", -1.0), ("ceil(y)", 0.0), ("min(x, y)", Y), ("max(x, y, 2)", 2.0),
    ("minimum(x, y)", Y),
    ("maximum(x, y)", X), ("clip(y, -0.5, 1)", -0.5), ("relu(y)", 0.0), ("hypot(3, 4)", 5.0), ("power(x, 2)", X**2),
    ("square(x)", X**2),
    ("log2(x)", math.log2(X)), ("log10(x)", math.log10(X)), ("exp2(x)", 2**X), ("reciprocal(x)", 1 / X),
    ("negative(x)", -X),
    ("add(x, y)", X + Y), ("subtract(x, y)", X - Y), ("multiply(x, y)", X * Y), ("divide(x, y)", X / Y),
    ("where(x < y, 1, 2)", 2.0), ("where(x >= 0.3, 1, 2)", 1.0), ("where(x == 0.3, 1, 2)", 1.0),
    ("where(x != y, 1, 2)", 1.0),
    ("where(x > 0 and y > 0, 1, 2)", 2.0), ("where(x > 0 or y > 0, 1, 2)", 1.0), ("where(not x > 0, 1, 2)", 2.0),
    ("where((x > 0 or y > 0) and not (x == y), 1, 2)", 1.0), ("piecewise(x < 0, 1, y < 0, 2, 3)", 2.0),
    ("piecewise(x<0,1,y>0,2,3)", 3.0),
    ("where(x < 0, log(x), 5)", 5.0), ("sin\n(\tx )", math.sin(X)), ("x**y", X**Y), ("(x+y)-(x+y)", 0.0),
    ("1e300*1e-300", 1.0),
    ("(-1)**1000000", 1.0), ("sqrt(4)", 2.0), ("2*pi", 2 * math.pi), ("e*pi/pi", math.e),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), VALUES, ids=[v[0] for v in VALUES])
def test_an_expression_has_pythons_meaning(text: str, expected: float) -> None:
    assert _value(text) == pytest.approx(expected, rel=1e-14, abs=1e-15)
    point = np.array([[X, Y]])
    found = Expression.parse(text, NAMES).enclose(Interval(point, point))
    assert found.lo[0, 0] - 1e-14 <= expected <= found.hi[0, 0] + 1e-14


def test_every_function_of_the_table_can_be_called() -> None:
    for name, (least, _) in ARITIES.items():
        arguments = ["x < 1", "0.5", "0.25"] if name in ("where", "piecewise") else ["0.5", "0.25", "0.75"]
        arguments = ["2", "0.5"] if name == "polygamma" else ["2"] if name == "float" else arguments
        Expression.parse(f"{name}({', '.join(arguments[:least])})", NAMES).gradient()
    for alias, name in ALIASES.items():
        assert name in ARITIES and alias not in ARITIES


REFUSALS = [
    ("", BadInput, "empty"), ("   \n", BadInput, "empty"), ("x +", BadInput, "ends"), ("* x", BadInput,
    "value should be"),
    ("(x", BadInput, "not closed"), ("x)", BadInput, "never opened"), ("((x)", BadInput, "not closed"), ("()",
    BadInput, "value should be"),
    ("sin()", BadInput, "value should be"), ("sin(x, y)", BadInput, "takes 1 argument"), ("atan2(x)", BadInput,
    "takes 2 arguments"),
    ("where(x<0, 1)", BadInput, "takes 3"), ("piecewise(x<0, 1, x<1, 2)", BadInput, "odd number"), ("sin", BadInput,
    "parentheses"),
    ("x^2", BadInput, r"\*\*"), ("2x", BadInput, "product"), ("2 x", BadInput, "operator"), ("x y", BadInput,
    "operator"),
    ("(x)(y)", BadInput, "operator"), ("x(2)", BadInput, "not a function"), ("pi(2)", BadInput, "not a function"),
    ("x = 1", BadInput, "=="), ("x < 1", BadInput, "where"), ("(x < 1) * 2", BadInput, "where"), ("sin(x < 1)",
    BadInput, "where"),
    ("where(x, 1, 2)", BadInput, "comparison"), ("where(x < y < 1, 1, 2)", BadInput, "chain"),
    ("where(1 < x and y, 1, 2)", BadInput, "comparison"),
    ("where(not x, 1, 2)", BadInput, "comparison"), ("where(x<1, x<2, 3)", BadInput, "where"), ("x..real", BadInput,
    "attributes"),
    ("np.sin(x)", Refused, "np"), ("__import__(\"os\")", BadInput, "__import__"), ("__import__('os').system('ls')",
    BadInput, "not a function"),
    ("eval(x)", BadInput, "eval"), ("sine(x)", BadInput, "did you mean `sin`"), ("lgo(x)", BadInput, "log"),
    ("z + 1", Refused, "the box has x, y"),
    ("X", Refused, "X"), ("x; y", BadInput, "commas"), ("x & y", BadInput, "and"), ("x if y else 1", BadInput,
    "operator"),
    ("lambda: 1", Refused, "lambda"), ("1e400", BadInput, "outside"), ("1e-400", BadInput, "outside"),
    ("1e999999999999", BadInput, "outside"),
    ("1." + "1" * 500, BadInput, "digits"), ("1.2.3", BadInput, "number"), ("0x10", BadInput, "product"), ("1_000",
    BadInput, "product"),
    ("x**1e9", BadInput, "1,000,000"), ("x**-1e9", BadInput, "1,000,000"), ("9**9**9**9", BadInput, "1,000,000"),
    ("9**999999", BadInput, "too large"),
    ("(x**1000000)**1000000", BadInput, "1,000,000"), ("x**0.5e7", BadInput, "1,000,000"), ("'x'", BadInput,
    "not part"), ("x\0", BadInput, "not part"),
    ("é", BadInput, "not part"), ("x, ", BadInput, "ends"), (",x", BadInput, "value should be"), ("(x, y)",
    BadInput, "comma"),
    ("x" + " " * 64_000, BadInput, "64,000"), ("(" * 40_000 + "x" + ")" * 40_000, BadInput, "characters"),
    ("(" * 4_000 + "x" + ")" * 4_000, BadInput, "200 levels"), ("-" * 9_000 + "x", BadInput, "200 levels"),
    ("**".join(["x"] * 3_000), BadInput, "200 levels"), ("sin(" * 1_900 + "x" + ")" * 1_900, BadInput, "200 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error", "words"), REFUSALS, ids=[repr(r[0])[:40] for r in REFUSALS])
def test_malformed_text_is_refused_with_its_own_sentence(text: str, error: type[MaxaffineError], words: str) -> None:
    start = time.process_time()
    with pytest.raises(error, match=words):
        Expression.parse(text, NAMES)
    assert time.process_time() - start < 1


def test_text_that_is_not_text_is_refused() -> None:
    with pytest.raises(BadInput, match="text"):
        Expression.parse(3, NAMES)  # type: ignore[arg-type]


def test_a_refusal_points_at_the_place() -> None:
    with pytest.raises(BadInput) as caught:
        Expression.parse("sin(x) + ^", NAMES)
    assert "character 10" in str(caught.value)
    assert str(caught.value).splitlines()[-1].index("^") == 2 + 9


def test_the_deepest_allowed_nesting_works_even_on_a_nearly_full_stack() -> None:
    expression = Expression.parse("sin(" * 200 + "x" + ")" * 200, NAMES)

    def deep(levels: int) -> None:
        if levels:
            return deep(levels - 1)
        again = Expression.parse("(" * 200 + "x" + ")" * 200, NAMES)
        again.gradient().evaluate([[0.1, 0.2]])
        return None

    deep(sys.getrecursionlimit() - len(_frames()) - 120)
    slope = expression.gradient()
    assert slope.evaluate([[0.3, 0.0]]).shape == (1, 2)
    assert np.isfinite(expression.enclose(Interval(np.full((1, 2), -1.0), np.ones((1, 2)))).lo).all()
    assert pickle.loads(pickle.dumps(slope)) == slope  # noqa: S301


def _frames() -> list[object]:
    frames, frame = [], sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def test_long_flat_expressions_are_read_quickly() -> None:
    start = time.process_time()
    long_sum = "+".join(f"x**{n}" for n in range(2, 1_300))
    long_product = "*".join(["(x+y)"] * 1_600)
    for text in (long_sum, long_product, "+".join(["x"] * 5_000), "-".join(f"sin({n}*x)" for n in range(1, 700))):
        assert len(text) <= 10_000
        expression = Expression.parse(text, NAMES)
        expression.gradient()
        expression.enclose(Interval(np.zeros((1, 2)), np.ones((1, 2))))
    assert time.process_time() - start < 10


def test_several_outputs_are_separated_by_commas() -> None:
    expression = Expression.parse("x + y, x*y, max(x, y)", NAMES)
    assert expression.count == 3
    assert np.allclose(expression.evaluate([[2.0, 3.0]]), [[5.0, 6.0, 3.0]])
    assert np.allclose(expression.output(1).evaluate([[2.0, 3.0]]), [[6.0]])


def test_affine_subexpressions_are_one_affine_form() -> None:
    box = Interval(np.array([[-1.0, -1.0]]), np.array([[1.0, 1.0]]))
    for text in ("(x+y)-(x+y)", "3*(x+y) - 3*x - 3*y", "pi*(x+y) - pi*y - x*pi", "(2*x)/2 - x", "sin(x)-sin(x)", "x*y - y*x"):
        found = Expression.parse(text, NAMES).enclose(box)
        assert found.lo[0, 0] == 0 == found.hi[0, 0], text
    found = Expression.parse("tanh(x + y - x)", NAMES).enclose(box)
    assert found.hi[0, 0] < math.tanh(1) + 1e-14
    rotated = Expression.parse("(x - y)/2 + (x + y)/2", NAMES).enclose(box)
    assert (rotated.lo[0, 0], rotated.hi[0, 0]) == (-1, 1)


def test_even_powers_are_never_negative_however_they_are_written() -> None:
    box = Interval(np.array([[-1.0, -2.0]]), np.array([[2.0, 1.0]]))
    for text in ("x*x", "x**2", "square(x)", "x*y*x*y", "(x*y)**2", "sin(x)**2", "(x+y)*(y+x)", "x**4", "x*x*x*x", "(-x)*(-x)"):
        assert Expression.parse(text, NAMES).enclose(box).lo[0, 0] == 0, text


def test_literals_mean_exact_decimals() -> None:
    point = Interval(np.zeros((1, 2)), np.zeros((1, 2)))
    found = Expression.parse("0.1", NAMES).enclose(point)
    assert found.lo[0, 0] < found.hi[0, 0] and found.contains(0.1).all()
    exact = Expression.parse("0.1 + 0.2 - 0.3", NAMES).enclose(point)
    assert exact.lo[0, 0] == 0 == exact.hi[0, 0]


def test_simplification_never_hides_where_something_is_undefined() -> None:
    box = Interval(np.array([[-1.0, -1.0]]), np.array([[1.0, 1.0]]))
    undefined = ["log(x)-log(x)", "0*log(x)", "0/x", "x/x", "tanh(log(x))", "tanh(1/x)", "sqrt(x)**0",
    "min(log(x), 0)*0", "sign(1/x)",
                 "where(log(x) < 0, 1, 2)", "where(log(x) < 0, 1, 1)", "atan(1/x)", "exp(-1/x**2)", "x/0", "1/0",
                 "0**-1", "abs(asin(2*x))",
                 "erf(tan(2*x))", "sigmoid(sqrt(x))", "cos(acos(2*y))", "floor(log1p(2*x))", "max(1, x**-1)",
                 "x**0.5", "x**1.5", "tanh(x**-0.5)",
                 "x**y", "sin(x**pi)", "log(0)", "atan(log(0))", "tanh(x/(y-y))"]  # fmt: skip
    for text in undefined:
        expression = Expression.parse(text, NAMES)
        found = expression.enclose(box)
        assert np.isinf(found.lo).all() and np.isinf(found.hi).all(), text
        assert not expression.defined(box).any(), text
    decided = Expression.parse("where(x > -2, x, log(x))", NAMES)
    assert decided.enclose(box).finite.all()


def test_undefined_values_are_not_finite_and_nothing_warns() -> None:
    points = np.array([[-1.0, 0.0], [0.0, 0.0]])
    for text in ("log(x)", "1/x + sqrt(x)", "x**0.5/x", "asin(2+x) + acos(-2-x)", "exp(1e4*(2+x))*0*log(y)", "(-x)**y*log(x)"):
        assert not np.isfinite(Expression.parse(text, NAMES).evaluate(points)).all()


def test_jumps_are_listed() -> None:
    assert Expression.parse("sin(x) + abs(y) + max(x, y)", NAMES).is_continuous
    expression = Expression.parse("sign(x) + floor(2*y)*where(x < y, 1, 0)", NAMES)
    assert not expression.is_continuous
    assert "sign(x)" in expression.jumps and "floor(2*y)" in expression.jumps and len(expression.jumps) == 3


def test_an_unused_variable_of_the_box_is_fine() -> None:
    expression = Expression.parse("x**2", NAMES)
    assert expression.used == ("x",)
    assert np.allclose(expression.gradient().evaluate([[3.0, 1.0]]), [[6.0, 0.0]])


def test_expressions_compare_hash_and_travel() -> None:
    a, b = Expression.parse("sin(x)*y", NAMES), Expression.parse("sin(x)*y", NAMES)
    assert a == b and hash(a) == hash(b)
    assert pickle.loads(pickle.dumps(a)) == a  # noqa: S301


def test_batches_of_any_size_give_the_same_values() -> None:
    expression = Expression.parse("sin(3*x)*exp(y) + x/(2+y)", NAMES)
    points = np.random.default_rng(0).uniform(-1, 1, (70_000, 2))
    whole = expression.evaluate(points)
    assert (whole[69_000:69_010] == expression.evaluate(points[69_000:69_010])).all()
    found = expression.enclose(Interval(points, points))
    part = expression.enclose(Interval(points[-3:], points[-3:]))
    assert (found.lo[-3:] == part.lo).all() and (found.hi[-3:] == part.hi).all()
    assert expression.evaluate(np.empty((0, 2))).shape == (0, 1)


def test_points_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(BadInput, match="shape"):
        Expression.parse("x", NAMES).evaluate([1.0, 2.0])
    with pytest.raises(BadInput, match="balls"):
        Expression.parse("x", NAMES).enclose_ball([])
