"""Separations: the sum of products is the expression, blocks are small, and what cannot be taken apart is named."""

from fractions import Fraction

import numpy as np
import pytest

from maxaffine.expression.expression import Expression
from maxaffine.structure.quadratic import squares
from maxaffine.structure.separate import CHOICES, NotSeparated, separate

LINES = [  # text, low, high of all variables, most directions of a block in "sums"
    ("a*b**2/(4*pi*c*d**(1/2))", 1, 5, 1),
    ("sqrt(a*b/c)", 1, 5, 1),
    ("(a*b+c*d)/(a+c)", 1, 5, 1),
    ("log(a/b)*c", 1, 5, 1),
    ("exp(a+2*b-c*d)", -1, 1, 2),
    ("1/(1+a**2+b**2+c**2+d**2+h**2)", -1, 1, 1),
    ("h*a/(exp(b*c/d)-1)", 1, 3, 1),
    ("a/(b*c+d)", 1, 3, 1),
    ("tanh(a*b+c*d)", -1, 1, 1),
    ("(a+b+7)*(c-d+3)*sqrt(2)", -1, 1, 1),
    ("(a+b+7)*(c-d+3)*(sqrt(2)+pi)", -1, 1, 1),
    ("a*b + c*(d+h)**2 - 3", -1, 1, 1),
    ("sin(a*b)*c + cos(d)", -1, 1, 2),
    ("a**3/a*b*c*d", 1, 2, 1),
]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("text", "low", "high", "widest"), LINES)
def test_the_sum_of_products_is_the_expression(text, low, high, widest, choice):
    one = Expression.parse(text, ("a", "b", "c", "d", "h"))
    low, high = np.full(5, float(low)), np.full(5, float(high))
    found = separate(one, low, high, choice)
    assert sum(found.sizes) == len(found.directions)
    if choice == "sums":
        assert max(found.sizes) <= widest
    x = np.random.default_rng(0).uniform(low, high, (300, 5))
    assert found.whole(one.names).evaluate(x) == pytest.approx(one.evaluate(x), rel=1e-12, abs=1e-13)


def test_signs_decide_which_powers_are_split():
    text = "sqrt(a*b)*c"
    names = ("a", "b", "c")
    positive = separate(Expression.parse(text, names), np.ones(3), np.full(3, 2.0), "blocks")
    assert positive.sizes == (1, 1, 1) and len(positive.terms) == 1
    negative = separate(Expression.parse("sqrt(a*b)*c", names), np.array([-2.0, -2.0, 1.0]), np.array([-1.0, -1.0, 2.0]))
    x = np.random.default_rng(0).uniform([-2, -2, 1], [-1, -1, 2], (50, 3))
    assert negative.whole(names).evaluate(x)[:, 0] == pytest.approx(np.sqrt(x[:, 0] * x[:, 1]) * x[:, 2], rel=1e-13)
    mixed = separate(Expression.parse("sqrt(a*b+9)*c", names), -np.ones(3), np.ones(3), "blocks")
    assert max(mixed.sizes) == 2  # a b has no sign: it stays in one block


def test_a_sum_of_two_products_is_a_function_of_their_ratio():
    names = ("a", "b", "c", "d", "h")
    found = separate(Expression.parse("h/(a*b+c*d)", names), np.ones(5), np.full(5, 3.0))
    assert found.sizes == (1, 1, 1, 1, 1) and len(found.outers) == 1
    assert "sums of two products by their ratio" in found.used


def test_what_cannot_be_taken_apart_is_named():
    names = tuple("abcdh")
    with pytest.raises(NotSeparated, match=r"directions .* cannot be taken apart"):
        separate(Expression.parse("1/(2 + sin(a*b*c*d + a*h + b**2*h))", names), -np.ones(5), np.ones(5))
    terms = "+".join(f"sin({i + 1}*a)*cos({i + 1}*b)*exp({i + 1}*c/70)" for i in range(70))
    with pytest.raises(NotSeparated, match="terms"):
        separate(Expression.parse(terms, names), -np.ones(5), np.ones(5))


def test_hundred_variables_are_taken_apart_at_once():
    names = tuple(f"x{i}" for i in range(100))
    found = separate(Expression.parse("1/(1+" + "+".join(f"{n}**2" for n in names) + ")", names), -np.ones(100), np.ones(100))
    assert found.sizes == (1,) * 100 and len(found.terms) == 1 and len(found.outers) == 1


def test_quadratic_forms_are_sums_of_squares_exactly():
    rng = np.random.default_rng(0)
    for D in (2, 3, 5):
        for _ in range(20):
            a = rng.integers(-3, 4, (D, D))
            a = a + a.T
            if rng.random() < 0.3:
                np.fill_diagonal(a, 0)
            found = squares([[Fraction(int(c)) for c in row] for row in a])
            back = [[sum(d * w[i] * w[j] for d, w in found) for j in range(D)] for i in range(D)]
            assert back == [[Fraction(int(c)) for c in row] for row in a]
            assert len(found) == np.linalg.matrix_rank(a)
