"""Enclosures contain what they must: random expressions, boxes and points, judged in 200-bit ball arithmetic."""

from __future__ import annotations

import sys
from pathlib import Path

import flint
import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from expressions import NAMES, Sample, Undefined, samples

from maxaffine.core.balls import precision
from maxaffine.core.errors import MaxaffineError
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

BITS = 200


def _many(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


edges = st.one_of(
    st.sampled_from([-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 0.25, 1e-9, 4.0]),
    st.floats(-4, 4, allow_subnormal=False),
)
fractions = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    low, high = [], []
    for _ in NAMES:
        a = draw(edges)
        width = draw(st.sampled_from([0.0, 1e-12, 1e-3, 0.1, 0.5, 1.0, 3.0]))
        low.append(a)
        high.append(a + width)
    return np.array(low), np.array(high)


def _parse(sample: Sample) -> Expression:
    try:
        return Expression.parse(sample.text, NAMES)
    except MaxaffineError:
        assume(False)
        raise AssertionError from None


def _inside(low: np.ndarray, high: np.ndarray, t: tuple[float, float]) -> np.ndarray:
    return np.clip(low + np.array(t) * (high - low), low, high)


def _surely_in(value: flint.arb, lo: float, hi: float) -> bool:
    """Not surely outside; the ball of the value is tiny beside the distances that matter."""
    below = not np.isinf(lo) and bool(value < flint.arb(float(lo)))
    above = not np.isinf(hi) and bool(value > flint.arb(float(hi)))
    return not below and not above


@_many(500)
@given(samples(), boxes(), st.lists(st.tuples(fractions, fractions), min_size=3, max_size=3))
def test_an_enclosure_contains_the_value_at_every_point_of_its_box(sample, box, ts) -> None:
    expression = _parse(sample)
    low, high = box
    found = expression.enclose(Interval(low[None], high[None]))
    lo, hi = found.lo[0, 0], found.hi[0, 0]
    assert not np.isnan(lo) and not np.isnan(hi) and lo <= hi
    with precision(BITS):
        for t in ts:
            point = _inside(low, high, t)
            try:
                value = sample.value([flint.acb(float(c)) for c in point])
            except Undefined:
                continue
            if not value.is_finite():
                continue
            assert _surely_in(value.real, lo, hi), (sample.text, low, high, point, lo, hi, str(value))


@_many(300)
@given(samples(jumps=False), boxes(), st.tuples(fractions, fractions), fractions, st.integers(0, 1))
def test_a_slope_enclosure_contains_every_difference_quotient(sample, box, t, s, axis) -> None:
    """The mean value theorem, also across kinks."""
    expression = _parse(sample)
    low, high = box
    assume(high[axis] > low[axis])
    piece = Interval(low[None], high[None])
    slope = expression.gradient().enclose(piece)
    assume(bool(expression.defined(piece)[0, 0]))
    lo, hi = slope.lo[0, axis], slope.hi[0, axis]
    assume(np.isfinite(lo) and np.isfinite(hi))
    a = _inside(low, high, t)
    b = a.copy()
    b[axis] = np.clip(low[axis] + s * (high[axis] - low[axis]), low[axis], high[axis])
    assume(a[axis] != b[axis])
    with precision(400):
        try:
            fa, fb = (sample.value([flint.acb(float(c)) for c in p]) for p in (a, b))
        except Undefined:
            assume(False)
        quotient = (fb - fa).real / (flint.arb(float(b[axis])) - flint.arb(float(a[axis])))
        assume(quotient.is_finite())
        assert _surely_in(quotient, lo, hi), (sample.text, low, high, a, b, lo, hi, str(quotient))


@_many(300)
@given(samples(), boxes(), st.tuples(fractions, fractions), st.integers(0, 1))
def test_a_bounded_slope_enclosure_bounds_jumps_away(sample, box, t, axis) -> None:
    """With jumps allowed: a finite slope enclosure over a box bounds the difference of values across it."""
    expression = _parse(sample)
    low, high = box
    assume(high[axis] > low[axis])
    piece = Interval(low[None], high[None])
    assume(bool(expression.defined(piece)[0, 0]))
    slope = expression.gradient().enclose(piece)
    size = slope.magnitude[0, axis]
    assume(np.isfinite(size))
    a = _inside(low, high, t)
    b = a.copy()
    a[axis], b[axis] = low[axis], high[axis]
    with precision(400):
        try:
            fa, fb = (sample.value([flint.acb(float(c)) for c in p]) for p in (a, b))
        except Undefined:
            assume(False)
        allowed = flint.arb(float(size)) * (flint.arb(float(b[axis])) - flint.arb(float(a[axis])))
        assert not bool(abs((fb - fa).real) > allowed), (sample.text, low, high, size)


@_many(300)
@given(
    samples(),
    boxes(),
    st.tuples(fractions, fractions),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_a_finite_ball_contains_the_value_at_every_complex_point_of_it(sample, box, t, heights, s) -> None:
    expression = _parse(sample)
    low, high = box
    with precision(BITS):
        point = _inside(low, high, t)
        balls = [
            flint.acb(flint.arb(float(a)).union(flint.arb(float(b))), flint.arb(0, h))
            for a, b, h in zip(low, high, heights, strict=True)
        ]
        (found,) = expression.enclose_ball(balls)
        assume(found.is_finite())
        z = [flint.acb(float(c), flint.arb(float(h)) * flint.arb(float(u))) for c, h, u in zip(point, heights, s, strict=True)]
        try:
            value = sample.value(z)
        except Undefined:
            assume(False)
        assert found.overlaps(value), (sample.text, [str(b) for b in balls], str(found), str(value))


@_many(200)
@given(samples(jumps=False), boxes(), st.tuples(fractions, fractions))
def test_float_values_lie_near_the_enclosure_of_their_point(sample, box, t) -> None:
    expression = _parse(sample)
    low, high = box
    point = _inside(low, high, t)[None]
    found = expression.enclose(Interval(point, point))
    value = expression.evaluate(point)[0, 0]
    if found.finite[0, 0] and abs(found.mid[0, 0]) < 1e100:
        slack = 50 * float(found.width[0, 0]) + 1e-12 * (1 + abs(value))
        assert found.lo[0, 0] - slack <= value <= found.hi[0, 0] + slack


@_many(200)
@given(samples(), boxes(), st.tuples(fractions, fractions))
def test_where_flint_sees_no_value_the_enclosure_is_not_finite(sample, box, t) -> None:
    expression = _parse(sample)
    low, high = box
    point = _inside(low, high, t)
    with precision(BITS):
        (value,) = expression.enclose_ball([flint.acb(float(c)) for c in point])
    evaluated = expression.evaluate(point[None])[0, 0]
    found = expression.enclose(Interval(low[None], high[None]))
    if np.isnan(evaluated) and not value.is_finite():
        assert not found.finite[0, 0], (sample.text, low, high, point)


@_many(300)
@given(st.text(alphabet="xy()+-*/<>=,. 0123456789esincolgwhrabd_\"'[]^&|!%\n\t\0é", max_size=60))
def test_any_text_is_parsed_or_refused_with_a_sentence(text: str) -> None:
    try:
        expression = Expression.parse(text, NAMES)
    except MaxaffineError as error:
        assert str(error)
        return
    expression.gradient()
    expression.evaluate(np.zeros((2, 2)))
    found = expression.enclose(Interval(np.zeros((1, 2)), np.ones((1, 2))))
    assert not np.isnan(found.lo).any() and not np.isnan(found.hi).any()
