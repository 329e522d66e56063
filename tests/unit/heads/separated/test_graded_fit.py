"""Graded keys: functions on ever smaller scales towards one end take few of them, at either end, and nothing else does."""

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.heads.separated.graded_fit import GradedCurve, finer
from maxaffine.heads.spectral.fit import AxisCurve
from maxaffine.layer.spectral_keys import graded, weights

NEAR = 0.004  # r in [100, 50000]


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_graded_keys_shift_with_the_logarithm(side: float) -> None:
    axis = graded(12, 2, 0.75, side * NEAR, "float64")
    step = (np.log(2.0 + NEAR) - np.log(NEAR)) / 7.0
    s = NEAR * np.exp(step * np.array([2.3, 3.3, 4.3]))
    rows = weights(axis.keys, -side * (s - 1.0 - NEAR))
    shifted = [rows[k, k : k + 10] / rows[k, k + 4] for k in range(3)]
    assert np.allclose(shifted[0], shifted[1], 1e-9, 0.0) and np.allclose(shifted[0], shifted[2], 1e-9, 0.0)
    assert rows.argmax(axis=1).tolist() == [4, 5, 6]


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_logarithm_over_decades_takes_few_graded_keys_and_many_others(side: float) -> None:
    curve = AxisCurve(lambda z: np.log(1.0 + NEAR - side * z)[:, None], 1e-4, "float64", add=True)
    found = finer(curve, 1e-4, (), 24, 96)
    assert isinstance(found, GradedCurve)
    fit = found.smallest(1e-4, 4, 96)
    assert fit is not None and len(fit.axis) <= 20 and curve.best(48).error > 1e-2
    z = -side * (np.geomspace(NEAR, 2.0 + NEAR, 997) - 1.0 - NEAR)
    assert np.abs(weights(fit.axis.keys, z) @ fit.values - curve.f(z)).max() <= 1e-4


def test_functions_that_need_as_many_keys_everywhere_keep_theirs() -> None:
    curve = AxisCurve(lambda z: np.cos(60.0 * z)[:, None], 1e-3, "float64", add=True)
    assert finer(curve, 1e-3, (), 24, 96) is None


def test_a_radius_of_decades_in_a_quotient_is_proved_confirmed_and_no_point_lies_above() -> None:
    text, box = "1/(a*b + c*log(r)*d)", {"r": (100, 50000), "a": (1, 2), "b": (1, 2), "c": (1, 2), "d": (1, 2)}
    made = ma.compile(text, box, error=1e-4, relative=True)
    verdict = made.check()
    assert made.method == "separated" and made.weights.nbytes < 5000 and verdict.passed and verdict.confirmed
    assert any(axis["family"] == "graded" for axis in made.plan["axes"])
    rng, names = np.random.default_rng(4), list(box)
    for _ in range(60):
        x = {n: float(rng.choice([low, high, low * (high / low) ** rng.random()])) for n, (low, high) in box.items()}
        a, b, c, d, r = (flint.arb(x[n]) for n in "abcdr")
        exact = 1 / (a * b + c * r.log() * d)
        assert abs(exact - flint.arb(float(made([x[n] for n in names])))) < flint.arb(made.bound)
