"""Whatever the formula: its direct form stays within its proved bound, and its answers are the same bits in every batch."""

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
from maxaffine.expression.expression import Expression
from maxaffine.proofs.direct import direct
from maxaffine.runtime import parallel
from maxaffine.runtime.direct import evaluate, in_numpy

ENDS = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 0.3, 2.0])
WIDTHS = st.sampled_from([1e-9, 1e-3, 0.5, 1.0, 3.0])
ERRORS = st.sampled_from([1e-1, 1e-5, 1e-9])


def points(low: np.ndarray, high: np.ndarray, seed: int) -> np.ndarray:
    """Random ones, corners, the middle, where kinks like to be, and the neighbours of all of these."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(low, high, size=(24, 2))
    special = np.array([[a, b] for a in (low[0], 0.0, 0.5, high[0]) for b in (low[1], 0.0, 0.5, high[1])])
    same = np.repeat(rng.uniform(low[0], high[0], size=(6, 1)), 2, axis=1)  # x = y
    found = np.concatenate([x, special, same])
    near = [np.nextafter(found, end) for end in (-np.inf, np.inf)]
    return np.clip(np.concatenate([found, *near]), low, high)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(samples(jumps=False), st.tuples(ENDS, ENDS), st.tuples(WIDTHS, WIDTHS), ERRORS, st.integers(0, 99))
def test_the_direct_form_of_any_formula_is_within_its_bound(
    sample: Sample, ends: tuple[float, float], widths: tuple[float, float], allowed: float, seed: int
) -> None:
    low, high = np.array(ends), np.array(ends) + np.array(widths)
    try:
        made = direct(Expression.parse(sample.text, NAMES), low, high, allowed, True)
    except MaxaffineError:  # malformed, or refused
        assume(False)
    assert made.bound <= allowed
    x = points(low, high, seed)
    found = in_numpy(made.program, x)[:, 0]
    half = 2.0**-53 * (1 - 2.0**-20)  # the real x that is rounded to a float64 number lies anywhere near it
    with precision(200):
        for row, value in zip(x, found, strict=True):
            sides = np.sign(np.sin(1e17 * row))
            moved = [flint.acb(flint.arb(float(v)) * (1 + half * s)) for v, s in zip(row, sides, strict=True)]
            for here in ([flint.acb(float(v)) for v in row], moved):
                try:
                    exact = sample.value(here)
                except Undefined:
                    continue
                away = abs(exact - flint.acb(float(value)))
                assert not bool(away > flint.arb(made.bound)), (sample.text, row, value, exact, made.bound)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(samples(jumps=False), st.integers(0, 99))
def test_compiled_code_and_numpy_give_the_same_bits_whatever_the_batch(sample: Sample, seed: int) -> None:
    try:
        made = direct(Expression.parse(sample.text, NAMES), np.array([0.5, 1.0]), np.array([1.0, 2.0]), 1e-6, True)
    except MaxaffineError:
        assume(False)
    x = np.random.default_rng(seed).uniform([0.5, 1.0], [1.0, 2.0], size=(700, 2))
    assert parallel.kernel("direct", parallel.ENOUGH, 1 << 20) is not None  # loaded from here on
    wanted = in_numpy(made.program, x)
    assert np.array_equal(evaluate(made.program, x, 1), wanted)
    for start, stop in ((0, 1), (3, 260), (690, 700)):
        assert np.array_equal(evaluate(made.program, x[start:stop], 1), wanted[start:stop])
