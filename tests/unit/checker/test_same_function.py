"""The checker shows that two expressions are the same function by canonical forms, and refuses whatever it cannot show."""

import time

import numpy as np
import pytest

from maxaffine.checker.canonical import Forms
from maxaffine.checker.proved import NotProved
from maxaffine.checker.same_function import doubt_same
from maxaffine.checker.signs import POSITIVE, UNKNOWN, Sign
from maxaffine.expression.expression import Expression

PLUS, BOTH, MINUS = (1, 2), (-1, 1), (-2, -1)


def same(one, other, box):
    """`box` is the range of every variable, or a range per variable."""
    ranges = box if isinstance(box, dict) else dict.fromkeys(variables(one, other), box)
    names = tuple(ranges)
    low, high = (np.array([float(ends[i]) for ends in ranges.values()]) for i in (0, 1))
    doubt_same(Expression.parse(one, names), Expression.parse(other, names), low, high)


def variables(*texts):
    letters = tuple("abcdmnpqrstuvwxyz")
    return [name for name in letters if any(name in Expression.parse(text, letters).used for text in texts)]


EQUAL = [
    # powers of products of positive factors
    ("sqrt(x*y)", "sqrt(x)*sqrt(y)", PLUS),
    ("sqrt(x*y)", "sqrt(-x)*sqrt(-y)", MINUS),
    ("(a*b**2/c)**0.3", "a**0.3*b**0.6*c**(-0.3)", PLUS),
    ("100**(-0.3)*sqrt(8*x)", "10**(-0.6)*2*sqrt(2)*sqrt(x)", PLUS),
    ("sqrt(x**2*y)", "abs(x)*sqrt(y)", {"x": BOTH, "y": PLUS}),
    ("cbrt(x**3*y)", "x*cbrt(y)", {"x": MINUS, "y": PLUS}),
    ("1/sqrt(1 - v**2/c**2)", "c/(sqrt(c - v)*sqrt(c + v))", {"v": (1, 2), "c": (3, 10)}),
    # exponentials and logarithms
    ("exp(-(x - y)**2)", "exp(-x**2)*exp(2*x*y)*exp(-y**2)", BOTH),
    ("log(x*y**2/z)", "log(x) + 2*log(y) - log(z)", PLUS),
    ("log(x**2)", "2*log(-x)", MINUS),
    ("log(x**2 - y**2)", "log(x - y) + log(x + y)", {"x": (3, 4), "y": (1, 2)}),
    ("x**y", "exp(y*log(x))", PLUS),
    ("x*y/z", "exp(log(x) + log(y) - log(z))", PLUS),
    ("exp(3*log(x + y)/2)", "(x + y)**1.5", PLUS),
    ("expm1(x + y)", "exp(x)*exp(y) - 1", BOTH),
    ("log1p(x*y)", "log(1 + x*y)", PLUS),
    # sums in denominators
    ("1/(2*x + 2*y)", "1/2/(x + y)", PLUS),
    ("(x + y)/(x + y)", "1", PLUS),
    ("1/(1/x + 1/y)", "x*y/(x + y)", PLUS),
    ("(a*b + c*d)/(a + c)", "a/(a + c)*b + c/(a + c)*d", PLUS),
    ("1/(1 + x/(1 + y))", "(1 + y)/(1 + x + y)", PLUS),
    ("sqrt(1/(x**2 + 2*x*y + y**2))", "1/(x + y)", PLUS),
    ("1/sqrt(x - y)", "sqrt(1/(x - y))", {"x": (3, 4), "y": (1, 2)}),
    ("sqrt(1/(x - y))*sqrt(x - y)", "1", {"x": (3, 4), "y": (1, 2)}),
    ("1/(y - x)**0.5*z", "z*(1/(y - x))**0.5", {"y": (3, 4), "x": (1, 2), "z": BOTH}),
    # quadratic forms, functions of sums
    ("exp(-(2*x**2 + 2*x*y + 3*y**2))", "exp(-2*(x + y/2)**2 - 5*y**2/2)", BOTH),
    ("1/(1 + x**2 + x*y + y**2)", "1/(1 + (x + y/2)**2 + 3*y**2/4)", BOTH),
    ("tanh(x*y)", "tanh(((x + y)/2)**2 - ((x - y)/2)**2)", BOTH),
    # trigonometric and hyperbolic functions
    ("sin(x + y)", "sin(x)*cos(y) + cos(x)*sin(y)", BOTH),
    ("cos(x - y)*z", "z*cos(x)*cos(y) + z*sin(x)*sin(y)", BOTH),
    ("sin(x)**2 + cos(x)**2", "1", BOTH),
    ("1 - cos(x*y)", "2*sin(x*y/2)**2", BOTH),
    ("tan(x)", "sin(x)/cos(x)", BOTH),
    ("tanh(x + y)", "1 - 2/(exp(2*x)*exp(2*y) + 1)", BOTH),
    ("sigmoid(x - y)", "exp(x)/(exp(x) + exp(y))", BOTH),
    ("1/(x + 3) + sqrt(tanh(y) + 2)", "sqrt(2 + tanh(y)) + 2/(2*x + 6)", BOTH),
    ("cosh(x + y)", "cosh(x)*cosh(y) + sinh(x)*sinh(y)", BOTH),
    ("cos(x + pi)", "-cos(x)", BOTH),
    ("atan(y - x)", "-atan(x - y)", BOTH),
    # what the box decides
    ("abs(x)*y", "x*y", {"x": (0, 1), "y": BOTH}),
    ("max(x, y) + min(x, y)", "x + y", {"x": (0, 1), "y": (2, 3)}),
    ("asin(x*y/(x + x))", "asin(y/2)", PLUS),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "box"), EQUAL)
def test_identities_are_shown_both_ways(one, other, box):
    same(one, other, box)
    same(other, one, box)


DIFFERENT = [
    ("sqrt(x*y)", "sqrt(x)*sqrt(y)", BOTH),
    ("sqrt(x**2)", "x", BOTH),
    ("sqrt(x**2*y**2)", "x*y", BOTH),
    ("sqrt(x**2*y)", "x*sqrt(y)", {"x": BOTH, "y": PLUS}),
    ("log(x**2)", "2*log(x)", BOTH),
    ("log(x**2)", "2*log(x)", MINUS),
    ("(x**3)**(1/3)", "x", BOTH),
    ("(x**2)**1.5", "x**3", BOTH),
    ("atan(tan(x))", "x", {"x": (-2, 2)}),
    ("atan(tan(x))", "x", {"x": (2, 3)}),
    ("x*y", "x*y*1.000000000000001", PLUS),
    ("x + 1e-300", "x", PLUS),
    ("abs(x)", "x", {"x": (-1e-12, 1)}),
    ("max(x, y)", "x", BOTH),
    ("x/x", "1", BOTH),
    ("x**2/x", "x", BOTH),
    ("sin(x)/x*x", "sin(x)", BOTH),
    ("0*log(x)", "0", BOTH),
    ("exp(x*y)", "exp(x)*exp(y)", BOTH),
    ("sin(x + y)", "sin(x)*cos(y) - cos(x)*sin(y)", BOTH),
    ("1/(x + y)", "1/x + 1/y", PLUS),
    ("sqrt(x + y)", "sqrt(x) + sqrt(y)", PLUS),
    ("sqrt(x - y)", "sqrt(y - x)", {"x": (3, 4), "y": (1, 2)}),
    ("tanh(2*x)", "2*tanh(x)", BOTH),
    ("floor(x)", "x", PLUS),
    ("e**x", "2.718281828459045**x", BOTH),
    ("pi*x", "3.141592653589793*x", BOTH),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "box"), DIFFERENT)
def test_what_is_not_the_same_or_not_defined_is_refused(one, other, box):
    with pytest.raises(NotProved):
        same(one, other, box)


# Monomials of AI Feynman (Udrescu and Tegmark 2020), each with its factors told apart by hand; all variables in [1, 5].
MONOMIALS = [
    ("q*r*s/(4*pi*a*r**3)", "1/(4*pi)*q*s/a*r**(-2)"),
    ("q**2*a**2/(6*pi*b*c**3)", "1/6/pi*q**2*a**2*b**(-1)*c**(-3)"),
    ("4*pi*a*(b/(2*pi))**2/(m*q**2)", "1/pi*a*b**2/m/q**2"),
    ("1/(r - 1/2)*p*v", "2/(2*r - 1)*p*v"),
    ("sqrt(r*p/q)", "sqrt(r)*sqrt(p)/sqrt(q)"),
    ("n*a*t*ln(v/w)", "n*a*t*ln(v) - n*a*t*ln(w)"),
    ("n*exp(-m*r*x/(a*t))", "n*exp(-exp(log(m) + log(r) + log(x) - log(a) - log(t)))"),
    ("r*m*b*z/(p/(2*pi))", "2*pi*r*m*b*z*p**(-1)"),
    ("-m*q**4/(2*(4*pi*a)**2*(b/(2*pi))**2)*(1/n**2)", "-1/8*m*q**4*a**(-2)*b**(-2)*n**(-2)"),
    ("a/(2*pi)*w**3/(pi**2*c**2*(exp((a/(2*pi))*w/(b*t)) - 1))", "1/(2*pi**3)*a*w**3/c**2/(exp(a*w/(2*pi*b*t)) - 1)"),
    ("p/(4*pi*a)*3*z/r**5*sqrt(x**2 + y**2)", "3/4/pi*p/a*z*r**(-5)*(y**2 + x**2)**(1/2)"),
    ("n*m*tanh(m*b/(a*t))", "n*m*(1 - 2/(exp(2*m*b/(a*t)) + 1))"),
    ("n/(exp(m*b/(a*t)) + exp(-m*b/(a*t)))", "n/(2*cosh(m*b/(a*t)))"),
    ("sin(a*t/(b/(2*pi)))**2", "(1 - cos(4*pi*a*t/b))/2"),
    ("2*u*(1 - cos(a*d))", "4*u*sin(a*d/2)**2"),
]


@pytest.mark.parametrize(("formula", "factors"), MONOMIALS)
def test_monomials_of_physics_are_their_factors(formula, factors):
    same(formula, factors, (1, 5))
    with pytest.raises(NotProved):
        same(formula, f"1.00000000000000001*({factors})", (1, 5))


def test_a_quotient_is_defined_where_the_same_denominator_is_seen_not_to_vanish():
    """Enclosures of the expanded form say nothing here; the squares do."""
    expanded = "1/(1 + 5*x**2 - 8*x*y + 5*y**2 - 8*y*z + 5*z**2 - 2*x*z)"
    squares = "1/(1 + 5*(x - 4*y/5 - z/5)**2 + 9*(y - 28*z/9)**2/5 + 0*z)"
    with pytest.raises(NotProved):
        same(expanded, squares, BOTH)  # not the same
    narrow = "1/(1 + 101*x**2 - 200*x*y + 101*y**2)"
    same(narrow, "1/(1 + 100*(x - y)**2 + x**2 + y**2)", (-100, 100))


def test_products_of_many_sums_stay_together():
    product = "*".join(f"(1 + {name}**2)" for name in "abcdmnpqrstuvwxyz")
    same(product, product.replace("(1 + a**2)*", "") + "*(a**2 + 1)", BOTH)


@pytest.mark.parametrize(
    "text",
    [
        "(1 + x + y + z + u + v + w)**60",
        "*".join(f"(1 + x + {k}*y + z/{k})" for k in range(1, 40)),
        "+".join(f"sin({k}*x*y + z)*cos(x/{k})" for k in range(1, 60)),
        "exp(" * 30 + "x" + ")" * 30,
        "1/(1 + " * 40 + "x*y" + ")" * 40,
        "x**1000000*y**999999",
        "sqrt(" * 40 + "x + y" + ")" * 40,
    ],
)
def test_hostile_expressions_take_a_few_seconds_at_most(text):
    other = "(x + y)*(x - y) + " + text
    start = time.process_time()
    with pytest.raises(NotProved):
        same(text, other, PLUS)
    assert time.process_time() - start < 10.0


def test_signs_on_a_box():
    names = ("x", "y")
    graph = Forms(names, np.array([-1.0, 1.0]), np.array([1.0, 2.0])).signed

    def sign(text):
        expression = Expression.parse(text, names)
        return graph.signs.of(graph.graph.include(expression.nodes)[expression.outputs[0]])

    assert sign("y - x/2") == POSITIVE
    assert sign("x - y - 1/2") == POSITIVE.negated
    assert sign("x**2") == Sign(1, False)
    assert sign("x*y") == UNKNOWN
    assert sign("log(x)") == UNKNOWN
    assert sign("1 - 1.9*x + x**2") == POSITIVE  # 1/1000 and more, on small pieces
