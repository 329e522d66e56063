"""Baselines at the paper's size and in closed form."""

import math

import numpy as np
import pytest

from maxaffine import meanfield as mf
from maxaffine.meanfield.baselines import log_noncentral_chi2

ORACLE = mf.Overlaps(1.0, 1.0)


@pytest.mark.parametrize(
    ("gamma", "oracle", "best", "at", "projected", "bayes", "linear"),
    [
        (math.sqrt(0.5), 8.636e-8, 8.630e-8, 9.426, 7.188e-8, 1.935e-10, 0.48718),
        (0.5, 9.126e-14, 8.814e-14, 13.856, 4.442e-14, 1.036e-23, 0.24675),
        (0.9, 1.3747e-2, 1.2685e-2, 4.668, 1.2467e-2, 7.238e-3, 0.77688),
    ],
)
def test_excess_risks_at_the_papers_size(gamma, oracle, best, at, projected, bayes, linear):
    problem = mf.Problem(100, 20, gamma)
    lam, value = mf.best_lambda(problem)
    assert mf.SoftmaxRisk(problem, beta=1).risk(ORACLE) == pytest.approx(oracle, rel=1e-3)
    assert (lam, value) == (pytest.approx(at, rel=1e-3), pytest.approx(best, rel=1e-3))
    assert mf.bayes_risk(problem, "projected") == pytest.approx(projected, rel=1e-3)
    assert mf.bayes_risk(problem) == pytest.approx(bayes, rel=1e-3)
    assert mf.best_linear_risk(problem) == pytest.approx(linear, abs=1e-5)
    assert mf.null_risk(problem) == pytest.approx(gamma**2)


def test_every_baseline_is_ordered_as_it_must_be():
    for problem in (mf.Problem(30, 5, 0.8), mf.Problem(30, 1000, 0.9), mf.Problem(100, 1e6, 0.7)):
        bayes, projected = mf.bayes_risk(problem), mf.bayes_risk(problem, "projected")
        assert bayes <= projected <= mf.best_lambda(problem)[1] <= mf.SoftmaxRisk(problem, beta=1).risk(ORACLE)
        assert projected <= mf.best_linear_risk(problem) <= mf.null_risk(problem)
        assert projected <= mf.best_pointwise_lambda(problem)[1] <= mf.null_risk(problem)


def test_the_erf_risk_equals_its_closed_form_to_1e_12():
    worst = 0.0
    for problem in (mf.Problem(100, 20, 0.7), mf.Problem(10, 5, 0.3), mf.Problem(400, 1000, 0.95)):
        for lam in (0.01, 0.1, 0.5, 1.0, 5.0, 30.0):
            for mu in (-1.0, -0.2, 0.0, 0.3, 1.0):
                for nu in (-0.5, 0.4, 1.0):
                    closed = mf.erf_risk_closed(problem, mu, nu, lam)
                    worst = max(worst, abs(mf.pointwise_risk(problem, mf.Overlaps(mu, nu), lam) - closed) / max(1.0, closed))
    assert worst <= 1e-12


def test_pointwise_attention_takes_any_activation():
    problem, o = mf.Problem(20, 5, 0.6), mf.Overlaps(0.4, 0.3, 0.1, 0.05, 0.1)
    own = mf.pointwise_risk(problem, o, 0.5, np.tanh)
    assert own != mf.pointwise_risk(problem, o, 0.5)
    # a linear activation theta(x) = x: f = lam sum (x.u)(x.v), whose risk is a polynomial; at u orthogonal to everything
    flat = mf.pointwise_risk(problem, mf.Overlaps(0, 0), 0.1, lambda x: x)
    gamma, n = 0.6, 4
    assert flat == pytest.approx(gamma**2 + 0.01 * (gamma**4 + n), rel=1e-12)


def test_hard_attention_on_the_manifold_is_the_win_probability():
    problem = mf.Problem(100, 20, 0.7)
    from maxaffine.meanfield.baselines import hardmax_moments

    for mu, nu in ((0.2, 0.5), (0.9, 1.0)):
        p = hardmax_moments(problem, mu)["P1"]
        expected = 0.49 * (1 - 2 * nu * p + p) + 1 - p
        assert mf.hardmax_risk(problem, mf.Overlaps(mu, nu)) == pytest.approx(expected, rel=1e-10)
    assert hardmax_moments(mf.Problem(100, 1e60, 0.7), -0.5)["D"] == pytest.approx(1.0, abs=1e-10)


def test_the_noncentral_chi_square_density_equals_scipys_and_survives_large_order():
    from scipy.stats import ncx2

    w = np.linspace(0.1, 60, 50)
    for dof, shift in ((2, 3.0), (10, 5.0), (3, 20.0)):
        assert log_noncentral_chi2(w, dof, shift) == pytest.approx(ncx2.logpdf(w, dof, shift), abs=1e-10)
    far = np.array([10.0, 100.0, 1000.0])
    assert np.all(np.isfinite(log_noncentral_chi2(far, 2000, 50.0)))
    # Debye's expansion meets scipy's function where both work
    from maxaffine.meanfield.baselines import _log_bessel_scaled

    flint = pytest.importorskip("flint")
    for order, z in ((500.0, 5.0), (999.0, 300.0), (49.0, 245.0)):
        exact = flint.arb(z).bessel_i(flint.arb(order)).log() - z
        assert float(_log_bessel_scaled(order, np.array([z]))[0]) == pytest.approx(float(exact), abs=1e-9)


def test_bayes_gives_up_on_overlong_sequences_and_never_fails_on_easy_ones():
    assert mf.bayes_risk(mf.Problem(4, 1e40, 0.1)) == pytest.approx(0.01, rel=1e-9)
    assert mf.bayes_risk(mf.Problem(20, 1e60, 0.5)) == pytest.approx(0.25, rel=1e-9)
    assert mf.bayes_risk(mf.Problem(300, 20, 0.05)) < 1e-100
