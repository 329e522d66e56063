"""The checker bounds outer functions less their sums of exponentials, and doubts what a record says of the sums."""

import contextlib
import copy
import math
import time
from fractions import Fraction

import numpy as np
import pytest

from maxaffine.checker.exponential_sums import deviation, extremes, range_of, sums_of
from maxaffine.checker.proved import NotProved
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.structure.exponential_sums import ExponentialSum
from maxaffine.structure.separation import Outer


def g(text):
    return Expression.parse(text, ("u",))


def seen(text, s, low, high):
    u = np.linspace(low, high, 40_001)[:, None]
    return float(np.abs(g(text).evaluate(u) - s.expression().evaluate(u)).max())


ONE_TERM = ExponentialSum(0.0, (1.0 + 0j,), (-1.0 + 0j,), ((0.0, 1.0),))
WAVE = ExponentialSum(0.25, (0.5 - 0.25j, 1.0 + 0j), (-0.5 + 3.0j, 0.25 + 0j), ((0.0, 1.0), (-1.0, 2.0)))


@pytest.mark.parametrize(
    ("text", "s", "low", "high"),
    [
        ("exp(-u)", ONE_TERM, 0.0, 3.0),
        ("1/(1 + u)", ONE_TERM, 0.0, 3.0),
        ("exp(sin(u))", WAVE, -2.0, 4.0),
        ("tanh(3*u)", WAVE, -2.0, 2.0),
        ("log(u)", ONE_TERM, 0.5, 40.0),
    ],
)
def test_the_deviation_is_what_is_seen_or_a_little_more(text, s, low, high):
    found = deviation(g(text), s, low, high, 1e-6)
    assert seen(text, s, low, high) <= found <= 1.04 * seen(text, s, low, high) + 3e-6


def test_a_root_at_the_end_of_the_range_is_enclosed_on_small_cells():
    found = deviation(g("sqrt(u)"), ONE_TERM, 0.0, 3.0, 1e-3)
    assert seen("sqrt(u)", ONE_TERM, 0.0, 3.0) <= found <= 1.03 * seen("sqrt(u)", ONE_TERM, 0.0, 3.0) + 1e-3


@pytest.mark.parametrize(("text", "low", "high"), [("log(u)", -1.0, 1.0), ("1/u", -1.0, 1.0), ("sqrt(u)", -1e-9, 1.0)])
def test_outer_functions_that_are_not_defined_on_the_range_are_refused(text, low, high):
    with pytest.raises(NotProved):
        deviation(g(text), ONE_TERM, low, high, 1e-3)


@pytest.mark.parametrize("exponent", [1e150 + 0j, -1e150 + 0j, 1e150j, complex(-1e9, 1e12)])
def test_enormous_exponents_take_no_time_and_prove_nothing_wrong(exponent):
    start = time.process_time()
    with contextlib.suppress(NotProved):
        found = deviation(g("1/(1 + u)"), ExponentialSum(0.0, (1.0 + 0j,), (exponent,), ((0.0, 1.0),)), 0.0, 3.0, 1e-3)
        assert found >= 0.6
    assert time.process_time() - start < 5.0


def test_the_range_of_a_sum_is_that_of_its_parts():
    t = ("t1",)
    parts = (Expression.parse("t1**2", t), None, Expression.parse("t1 - t1**3/3", t), Expression.parse("1/4", t))
    ranges = [Interval.of([-2.0], [1.0])] * 4
    low, high = range_of(Outer(g("u"), parts), ranges)
    assert 0.0 + (-2.0 / 3.0) + 0.25 - 1e-3 <= low <= 0.0 - 2.0 / 3.0 + 0.25
    assert 4.0 + 2.0 / 3.0 + 0.25 <= high <= 4.0 + 2.0 / 3.0 + 0.25 + 1e-3


def test_ranges_are_tight_where_one_enclosure_is_not_and_exact_at_zero():
    part = Expression.parse("t1**2 - t1*t2 + t2**2", ("t1", "t2"))
    low, high = extremes(part, Interval.of([-1.0, -1.0], [1.0, 1.0]))
    assert -1e-3 <= low <= 0.0
    assert 3.0 <= high <= 3.001
    square = Expression.parse("t1**2", ("t1",))
    assert range_of(Outer(g("sqrt(u)"), (square, square)), [Interval.of([0.0], [2.0])] * 2)[0] == 0.0


ROW = {"constant": 0.5, "coefficients": [[1.0, 0]], "exponents": [[-1, 2.5]], "ends": [[0.0, 1.0], [2.0, 3.0]]}


def test_sums_are_read_as_written():
    (found,) = sums_of([ROW], [2])
    assert found == ExponentialSum(0.5, (1.0 + 0j,), (-1.0 + 2.5j,), ((0.0, 1.0), (2.0, 3.0)))
    assert found.shifts(0) == [Fraction(0), Fraction(2)]


@pytest.mark.parametrize(
    ("field", "lie"),
    [
        ("constant", math.nan), ("constant", "1"), ("constant", True), ("constant", None), ("constant", 10**400),
        ("coefficients", [[math.inf, 0]]), ("coefficients", [1.0]), ("coefficients", [[1.0, 0], [1.0, 0]]),
        ("coefficients", "ab"), ("exponents", [[1e200, 0]]), ("exponents", [[0, 0, 0]]), ("exponents", {}),
        ("exponents", [[0, 0]] * 1_000_000), ("ends", [[0.0, 1.0]]), ("ends", None), ("ends", [[0.0, 1.0], [0.0, math.nan]]),
    ],
)  # fmt: skip
def test_sums_that_cannot_be_read_are_refused(field, lie):
    row = copy.deepcopy(ROW)
    row[field] = lie
    with pytest.raises(NotProved):
        sums_of([row], [2])


@pytest.mark.parametrize("rows", [None, [], [ROW, ROW], {}, [None], [[1, 2]], "ab"])
def test_there_is_one_sum_per_outer_function(rows):
    with pytest.raises(NotProved):
        sums_of(rows, [2])
