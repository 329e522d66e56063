"""Sums of exponentials: short, within the error they claim to be seen at, of either kind of exponents."""

import numpy as np
import pytest

from maxaffine.heads.separated.exponentials import Sampled, fits

CASES = [  # function, interval, relative error, most real columns
    (lambda u: 1 / (1 + u), (0, 10), 1e-6, 8),
    (lambda u: 1 / (1 + u), (0, 100), 1e-4, 9),
    (lambda u: np.sqrt(1 + u), (0, 20), 1e-6, 7),
    (np.tanh, (-2, 2), 1e-4, 8),
    (lambda u: np.exp(np.sin(u)), (0, 10), 1e-4, 13),
    (lambda u: np.exp(-np.exp(u)), (-3.2, 4.8), 1e-4, 11),
    (lambda u: np.exp(-0.3 * u), (0, 5), 1e-8, 1),
    (np.cos, (-4, 9), 1e-8, 2),
]


@pytest.mark.parametrize(("g", "interval", "error", "columns"), CASES)
def test_sums_are_short_and_as_close_as_they_are_seen_to_be(g, interval, error, columns):
    sampled = Sampled(g, *map(float, interval))
    fit = next(fits(sampled, error * sampled.size))
    u = np.linspace(*interval, 5001)
    found = fit.constant * np.ones(len(u))
    for c, exponent in zip(fit.coefficients, fit.exponents, strict=True):
        end = interval[1] if exponent.real > 0 else interval[0]
        found += (c * np.exp(exponent * (u - end))).real
    assert np.abs(found - g(u)).max() <= 1.02 * error * sampled.size
    assert fit.columns <= columns


def test_a_function_that_is_not_finite_has_no_sum():
    assert list(fits(Sampled(lambda u: np.where(u < 1, np.nan, u), 0.0, 2.0), 1e-3)) == []
