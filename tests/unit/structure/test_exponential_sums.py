"""Rows of factors: their products add up to the separation with the sums in place of the outer functions."""

from fractions import Fraction

import numpy as np
import pytest

from maxaffine.expression.expression import Expression
from maxaffine.structure.exponential_sums import ExponentialSum, rows
from maxaffine.structure.separation import Outer, Separation, Term

UNIT = tuple(tuple(Fraction(int(i == j)) for j in range(4)) for i in range(4))


def part(text, size=1):
    return Expression.parse(text, tuple(f"t{i + 1}" for i in range(size)))


def value(row, x, cuts):
    total = np.ones(len(x), dtype=complex)
    for b, cut in enumerate(cuts):
        real, imaginary, modulus = row.real[b], row.imaginary[b], row.modulus[b]
        one = np.ones(len(x)) if real is None else real.evaluate(x[:, cut])[:, 0]
        two = np.zeros(len(x)) if imaginary is None else imaginary.evaluate(x[:, cut])[:, 0]
        size = np.ones(len(x)) if modulus is None else modulus.evaluate(x[:, cut])[:, 0]
        assert np.hypot(one, two) == pytest.approx(np.abs(size), rel=1e-12)
        total = total * (one + 1j * two)
    return total.real


@pytest.mark.parametrize("outers", [(0,), (1,), (0, 1)])
def test_rows_add_up_to_the_terms_with_sums_in_place(outers):
    first = Outer(part("1/(1+t1)"), (part("t1**2"), part("t1*t2", 2), None))
    second = Outer(part("sin(t1)"), (None, part("t1+t2", 2), part("exp(t1)")))
    separation = Separation(UNIT, (1, 2, 1), (Term((None, part("t2", 2), part("2+t1")), outers),), (first, second))
    sums = (
        ExponentialSum(0.5, (1 + 2j, 3.0), (-1 + 2j, 0.5), ((0.0, 1.0), (-1.0, 1.0), (0.0, 0.0))),
        ExponentialSum(0.0, (1 - 1j, -0.3), (1j, -0.7), ((0.0, 0.0), (-2.0, 2.0), (0.3, 3.0))),
    )
    x = np.random.default_rng(0).uniform(-1, 1, (40, 4))
    cuts = (slice(0, 1), slice(1, 3), slice(3, 4))
    found = sum(value(row, x, cuts) for row in rows(separation, sums))
    u = (x[:, 0] ** 2 + x[:, 1] * x[:, 2], x[:, 1] + x[:, 2] + np.exp(x[:, 3]))
    wanted = x[:, 2] * (2 + x[:, 3])
    for j in outers:
        wanted = wanted * sums[j].expression().evaluate(u[j][:, None])[:, 0]
    assert found == pytest.approx(wanted, rel=1e-12, abs=1e-13)


def test_factors_are_at_most_about_one():
    outer = Outer(part("exp(-t1)"), (part("t1"), part("t1")))
    separation = Separation(UNIT[:2], (1, 1), (Term((None, None), (0,)),), (outer,))
    one = ExponentialSum(0.0, (1.0,), (-40.0,), ((-3.0, 3.0), (-3.0, 3.0)))
    (row,) = rows(separation, (one,))
    t = np.linspace(-3, 3, 101)[:, None]
    for modulus in row.modulus:
        assert 0.99 < np.abs(modulus.evaluate(t)).max() <= 1.0 + 1e-12
