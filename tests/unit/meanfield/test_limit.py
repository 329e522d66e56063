"""The limit of long sequences and high dimension: as published, corrected, and against the exact risk."""

import math

import numpy as np
import pytest

from maxaffine import meanfield as mf

ORACLE = mf.Overlaps(1.0, 1.0)
CASES = {
    "condensed": (0.1, 1.0, 0.95, ORACLE),
    "uncondensed": (0.3, 0.5, 0.8, mf.Overlaps(0.5, 0.6)),
    "retrieval": (0.05, 1.0, 0.6, mf.Overlaps(0.8, 0.5)),
    "retrieval, cold": (0.05, 3.0, 0.6, mf.Overlaps(0.9, 0.2)),
    "condensed, off the oracle": (0.1, 1.0, 0.95, mf.Overlaps(0.4, -0.5)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_at_d_2000_the_exact_risk_is_the_corrected_limit_and_not_the_papers_in_the_condensed_phase(name):
    alpha, beta, gamma, o = CASES[name]
    exact = mf.SoftmaxRisk(mf.Problem.from_alpha(2000, alpha, gamma), beta=beta).risk(o)
    limit = mf.MeanField(alpha, beta, gamma, 2000)
    assert abs(exact - limit.risk_corrected(o)) < 0.005
    off = abs(exact - limit.risk_paper(o))
    if name.startswith("condensed"):
        assert off == pytest.approx(limit.participation, abs=0.005)
        assert off > 0.55
    else:
        assert off < 1e-6


def test_in_the_transition_window_retrieval_is_a_gaussian_step():
    """The midpoint is shifted by the log-correction of the largest of n Gaussians; the width is gamma/sqrt(d)."""
    alpha, beta, gamma, d = 0.1, 1.0, 0.7, 2000
    limit = mf.MeanField(alpha, beta, gamma, d)
    risk = mf.SoftmaxRisk(mf.Problem.from_alpha(d, alpha, gamma), beta=beta)
    mus = np.linspace(0.4, 0.85, 901)
    exact = np.array([risk.moments(mu)["P1"] for mu in mus.tolist()])
    quartiles = np.interp([0.25, 0.5, 0.75], exact, mus) * limit.signal * math.sqrt(d) / gamma
    assert quartiles[2] - quartiles[0] == pytest.approx(2 * 0.6745, rel=0.06)
    assert quartiles[1] / (math.sqrt(d) / gamma) == pytest.approx(limit.psi, abs=0.01)


@pytest.mark.parametrize(("mu", "gamma"), [(0.2, 0.95), (0.5, 0.6), (0.0, 0.5), (-0.3, 0.8)])
def test_the_rare_event_rate_is_the_exact_one_and_the_papers_is_not(mu, gamma):
    alpha, beta, d = 0.1, 1.0, 1500
    limit = mf.MeanField(alpha, beta, gamma, d)
    exact = -math.log(mf.SoftmaxRisk(mf.Problem.from_alpha(d, alpha, gamma), beta=beta).moments(mu)["P1"]) / d
    assert exact == pytest.approx(limit.rate(mu), abs=0.006)
    if limit.rate(mu) > 0.02:
        assert limit.rate_paper(mu) > 1.1 * exact


def test_the_rate_of_the_worked_example():
    limit = mf.MeanField(0.1, 1.0, 0.95, 1000)
    exact = -math.log(mf.SoftmaxRisk(mf.Problem.from_alpha(1000, 0.1, 0.95), beta=1.0).moments(0.2)["P1"]) / 1000
    assert exact == pytest.approx(0.0821, abs=1e-4)
    assert limit.rate(0.2) == pytest.approx(0.0820, abs=1e-4)
    assert limit.rate_paper(0.2) == pytest.approx(0.385, abs=1e-3)


def test_the_participation_ratio_is_that_of_the_distractors():
    """Far from retrieval D = E sum w_l^2 over the distractors tends to Y2."""
    for beta in (0.3, 1.0, 2.0):
        limit = mf.MeanField(0.1, beta, 0.9, 1500)
        d = mf.SoftmaxRisk(mf.Problem.from_alpha(1500, 0.1, 0.9), beta=beta).moments(-0.5)["D"]
        assert d == pytest.approx(limit.participation, abs=0.01)


def test_phases_and_boundaries_agree():
    limit = mf.MeanField(0.1, 1.0, 0.8, 200)
    assert limit.phase(1.0) == "retrieval"
    assert limit.phase(0.5) == "condensed"
    assert mf.MeanField(0.3, 0.5, 0.8, 200).phase(1.0) == "uncondensed"
    assert limit.alpha_softmax == pytest.approx(0.18)
    assert limit.alpha_bayes == pytest.approx(math.log(1 / 0.8))
    curves = limit.boundaries(count=50)
    for alpha, beta in zip(curves["retrieval_alpha"][1:-1], curves["retrieval"][1:-1], strict=True):
        assert mf.MeanField(alpha, beta * 1.001, 0.8, 10).phase(1.0) == "retrieval"
        assert mf.MeanField(alpha, beta * 0.999, 0.8, 10).phase(1.0) != "retrieval"
    state = limit.state()
    assert {"beta_c", "r", "phi", "psi", "Y2", "phase"} <= set(state)


def test_in_the_intermediate_phase_bayes_succeeds_and_softmax_cannot():
    values = {d: mf.Problem.from_alpha(d, 0.2, 0.8) for d in (100, 400, 800)}
    bayes = [mf.bayes_risk(problem) for problem in values.values()]
    softmax = [mf.best_lambda(problem)[1] for problem in values.values()]
    projected = [mf.bayes_risk(problem, "projected") for problem in values.values()]
    assert bayes == pytest.approx([0.1854, 0.1075, 0.0606], abs=1e-4)
    assert softmax == pytest.approx([0.4112, 0.5105, 0.5657], abs=1e-4)
    assert projected == pytest.approx([0.4038, 0.5078, 0.5644], abs=1e-4)
    assert all(b < s for b, s in zip(bayes, softmax, strict=True))


def test_the_gradient_of_the_papers_risk_equals_finite_differences():
    problem = mf.Problem(100, 20, 0.5)
    paper = mf.PaperRisk(mf.MeanField.of(problem, 1.0), problem)
    o = mf.Overlaps(0.25, 0.2, 0.1, -0.05, 0.15)
    exact = np.array(paper.value_and_gradient(o)[1])
    numeric = []
    for i in range(5):
        up, down = list(o), list(o)
        up[i] += 1e-6
        down[i] -= 1e-6
        numeric.append((paper.value_and_gradient(mf.Overlaps(*up))[0] - paper.value_and_gradient(mf.Overlaps(*down))[0]) / 2e-6)
    assert np.abs(exact - numeric).max() < 1e-6
