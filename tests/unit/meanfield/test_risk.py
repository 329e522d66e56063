"""The exact risk: sum rules, identities, gradients, limits, speed, and what is refused."""

import math
import time

import numpy as np
import pytest

from maxaffine import meanfield as mf
from maxaffine.core.errors import BadInput, Refused
from maxaffine.meanfield.links import bivariate_cdf

GENERIC = mf.Overlaps(0.3, 0.2, 0.1, -0.05, 0.15)
PAPER = [mf.Problem(100, 20, gamma) for gamma in (math.sqrt(0.5), 0.5)]


def differences(function, o, h):
    """Fourth-order central differences in every overlap."""
    out = []
    for i in range(5):
        total = 0.0
        for shift, weight in ((-2, 1 / 12), (-1, -2 / 3), (1, 2 / 3), (2, -1 / 12)):
            moved = list(o)
            moved[i] += shift * h
            total += weight * function(mf.Overlaps(*moved))
        out.append(total / h)
    return np.array(out)


def test_sum_rules_and_identities_hold_to_1e_13_on_a_grid_of_settings_up_to_length_1e60():
    worst = {"sum rules": 0.0, "K1": 0.0, "H": 0.0, "U": 0.0}
    settings = 0
    for length in (2, 2.5, 20, 1e3, 1e9, 1e60):
        for d in (4, 100, 400):
            for gamma in (0.01, 0.5, 0.9, 0.999):
                for lam in (1e-3, 0.3, 1, 10, 40):
                    risk = mf.SoftmaxRisk(mf.Problem(d, length, gamma), lam=lam)
                    for mu in (-1, 0.2, 1):
                        e = risk.moments(mu)
                        worst["sum rules"] = max(worst["sum rules"], e["defect"])
                        worst["K1"] = max(worst["K1"], abs(e["K1"] - lam * gamma * (e["P1"] - e["S0"])))
                        worst["H"] = max(worst["H"], abs(e["H"] - lam * gamma * (gamma * e["K1"] - e["E1"])))
                        worst["U"] = max(worst["U"], abs(e["U"] - (1 - 2 * e["P1"] + e["S0"])))
                        settings += 1
    assert settings == 1080
    assert all(value <= 1e-13 for value in worst.values()), worst


@pytest.mark.parametrize("problem", PAPER)
@pytest.mark.parametrize("nu", [-1.0, 0.0, 0.4, 1.0])
def test_the_slope_in_mu_on_the_manifold_is_formula_m(problem, nu):
    """R_mu = -2 lam C E[w_J {gamma^2 (1-w_J)(nu-w_J) + Y}], from profiles that the gradient does not use."""
    risk = mf.SoftmaxRisk(problem, beta=1)
    for mu in (-0.5, 0.1, 0.6, 1.0):
        e = risk._expectations(mu)
        w, w2 = e["w"][0], e["w2"][0]
        quad = risk.quadrature
        _, weights, window = quad.secret_nodes(problem.C * mu)
        w3 = float(weights @ quad.profile_on(3, quad.power(0), window)) / 2  # E w^3: Gamma(3) = 2
        inside = problem.gamma**2 * (nu * w - (1 + nu) * w2 + w3) + e["wY"][0] / 2
        # E[w_J Y] carries Gamma(3) as well: its three factors of t
        assert risk.gradient(mf.Overlaps(mu, nu)).mu == pytest.approx(-2 * risk.lam * problem.C * inside, abs=2e-11)


@pytest.mark.parametrize("problem", PAPER)
def test_the_drive_of_mu_at_zero_is_negative_where_the_paper_has_none(problem):
    slope = mf.SoftmaxRisk(problem, beta=1).gradient(mf.Overlaps(0.0, 0.0)).mu
    paper = mf.PaperRisk(mf.MeanField.of(problem, 1.0), problem).value_and_gradient(mf.Overlaps(0.0, 0.0))[1].mu
    assert slope == pytest.approx(-0.171 if problem.gamma > 0.6 else -0.116, abs=6e-4)
    assert 0 <= paper < 1e-6


@pytest.mark.parametrize(
    ("d", "L", "gamma", "lam"),
    [(100, 20, 0.7, 10), (100, 20, 0.5, 1), (16, 2, 0.9, 0.2), (4, 1e9, 0.3, 5), (400, 1e60, 0.95, 20), (50, 7.5, 0.05, 0.1)],
)
def test_the_gradient_equals_finite_differences(d, L, gamma, lam):
    risk = mf.SoftmaxRisk(mf.Problem(d, L, gamma), lam=lam)
    h = 1e-3 * min(1.0, 10 * math.hypot(gamma, 1 / lam) / risk.problem.C)
    for o in (GENERIC, mf.Overlaps(-0.3, 0.5, 0.4, 0.2, -0.3)):
        value, exact = risk.value_and_gradient(o)
        numeric = differences(lambda p: risk.value_and_gradient(p)[0], o, h)
        scale = max(1.0, float(np.abs(numeric).max()))
        assert np.abs(numeric - np.array(exact)).max() < 3e-9 * scale
        assert value >= 0


def test_halving_the_lattice_step_changes_nothing_beyond_rounding():
    for problem in PAPER:
        coarse, fine = mf.SoftmaxRisk(problem, beta=1), mf.SoftmaxRisk(problem, beta=1, delta=0.1)
        (a, ga), (b, gb) = coarse.value_and_gradient(GENERIC), fine.value_and_gradient(GENERIC)
        assert abs(a - b) < 4e-15
        assert np.abs(np.array(ga) - np.array(gb)).max() < 2e-14


def test_tiny_risks_and_tiny_gradients_keep_their_relative_accuracy():
    problem = mf.Problem(400, 20, 0.5)
    coarse, fine = mf.SoftmaxRisk(problem, beta=1), mf.SoftmaxRisk(problem, beta=1, delta=0.12)
    oracle, plateau = mf.Overlaps(1, 1), mf.Overlaps(-0.6, 1)
    assert coarse.risk(oracle) < 1e-40
    assert coarse.risk(oracle) == pytest.approx(fine.risk(oracle), rel=1e-10)
    assert 0 > coarse.gradient(plateau).mu > -1e-20
    assert coarse.gradient(plateau).mu == pytest.approx(fine.gradient(plateau).mu, rel=1e-10)


def test_the_same_answer_comes_whichever_mu_was_asked_before():
    first, second = (mf.SoftmaxRisk(PAPER[0], beta=1) for _ in range(2))
    second.risk(mf.Overlaps(-1, 0))
    second.risk(mf.Overlaps(1, 0))
    assert first.risk(GENERIC) == pytest.approx(second.risk(GENERIC), rel=1e-15)


def test_weak_softmax_is_uniform_and_sharp_softmax_is_a_hard_maximum():
    problem = mf.Problem(100, 20, 0.7)
    assert mf.SoftmaxRisk(problem, lam=1e-9).risk(GENERIC) == pytest.approx(mf.uniform_risk(problem, GENERIC), abs=1e-9)
    hard = mf.hardmax_risk(problem, GENERIC)
    errors = [abs(mf.SoftmaxRisk(problem, lam=lam).risk(GENERIC) - hard) for lam in (40.0, 80.0, 160.0)]
    assert errors[1] / errors[0] == pytest.approx(0.5, abs=0.02)
    assert errors[2] / errors[1] == pytest.approx(0.5, abs=0.02)


def test_equal_covariances_make_the_softmax_at_lam_equal_c_the_posterior():
    problem = mf.Problem(100, 50, 1.0, c=0.4)
    e = mf.SoftmaxRisk(problem, lam=problem.C).moments(1.0)
    assert abs(e["P1"] - e["S0"] - e["D"]) < 1e-14
    assert mf.best_lambda(problem)[0] == pytest.approx(problem.C, rel=1e-6)
    assert mf.bayes_risk(problem) == pytest.approx(mf.bayes_risk(mf.Problem(100, 50, 1 - 1e-6, c=0.4)), rel=1e-5)


def test_the_table_agrees_with_the_exact_risk():
    rng = np.random.default_rng(0)
    for problem in (*PAPER, mf.Problem(100, 1e9, 0.3), mf.Problem(30, 5, 0.9)):
        risk = mf.SoftmaxRisk(problem, beta=1)
        fast = mf.tabulate(risk)
        for mu in rng.uniform(-1, 1, 60).tolist():
            o = mf.Overlaps(mu, 0.2, 0.1, -0.05, 0.1)
            (a, ga), (b, gb) = risk.value_and_gradient(o), fast.value_and_gradient(o)
            assert abs(a - b) < 2e-13
            assert np.abs(np.array(ga) - np.array(gb)).max() < 2e-12
        assert fast.risk(GENERIC) == pytest.approx(risk.risk(GENERIC), abs=2e-13)


def best_time(call, repeats):
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)


@pytest.mark.parametrize("L", [20, 1e9])
def test_risk_and_gradient_take_at_most_3_ms_and_a_tenth_of_one_from_the_table(L):
    risk = mf.SoftmaxRisk(mf.Problem(100, L, 0.5), beta=1)
    fast = mf.tabulate(risk)
    assert best_time(lambda: risk.value_and_gradient(GENERIC), 50) < 3e-3
    assert best_time(lambda: fast.value_and_gradient(GENERIC), 50) < 1e-4


# -- links -------------------------------------------------------------------------------------------------------


def test_the_linear_link_by_the_general_route_gives_the_same_risk_and_gradient():
    problem = mf.Problem(100, 20, 0.7)
    a, ga = mf.SoftmaxRisk(problem, beta=1).value_and_gradient(GENERIC)
    b, gb = mf.LinkRisk(problem, "linear", beta=1).value_and_gradient(GENERIC)
    assert abs(a - b) < 1e-14
    assert np.abs(np.array(ga) - np.array(gb)).max() < 1e-13


@pytest.mark.parametrize("link", ["quadratic", "relu", "sign"])
@pytest.mark.parametrize("o", [GENERIC, mf.Overlaps(0.6, 0.7, 0.2, 0.05, 0.25)])
def test_the_gradient_of_other_links_equals_finite_differences(link, o):
    risk = mf.LinkRisk(mf.Problem(30, 12, 0.7), link, lam=4.0)
    numeric = differences(lambda p: risk.value_and_gradient(p)[0], o, 1e-3)
    assert np.abs(numeric - np.array(risk.gradient(o))).max() < 2e-8


def test_a_users_own_link_agrees_with_the_closed_forms_and_with_finite_differences():
    problem, o = mf.Problem(10, 6, 0.7), mf.Overlaps(0.5, 0.4, 0.1, 0.05, 0.1)
    for name, function, breaks in (("relu", lambda x: np.maximum(x, 0), (0.0,)), ("quadratic", np.square, ())):
        closed, own = mf.LinkRisk(problem, name, lam=2.0), mf.LinkRisk(problem, mf.CustomLink(function, breaks), lam=2.0)
        (a, ga), (b, gb) = closed.value_and_gradient(o), own.value_and_gradient(o)
        assert abs(a - b) < 1e-11
        assert np.abs(np.array(ga) - np.array(gb)).max() < 1e-7
    tanh = mf.LinkRisk(problem, np.tanh, lam=2.0)
    numeric = differences(lambda p: tanh.value_and_gradient(p)[0], o, 2e-3)
    assert np.abs(numeric - np.array(tanh.gradient(o))).max() < 1e-7
    assert tanh.self_check(0.5) < 1e-13


def test_the_sign_link_has_a_risk_but_no_gradient_at_the_oracle():
    risk = mf.LinkRisk(mf.Problem(100, 20, 0.7), "sign", beta=1)
    assert 0 < risk.risk(mf.Overlaps(1, 1)) < 1e-6
    with pytest.raises(Refused, match="infinite"):
        risk.gradient(mf.Overlaps(1, 1))


def test_the_bivariate_normal_agrees_with_numerical_integration():
    rng = np.random.default_rng(2)
    x = np.linspace(-12, 0, 6001)
    for _ in range(20):
        h, k = rng.normal(0, 1.5, 2)
        r = rng.uniform(-0.99, 0.99)
        from scipy.special import ndtr

        grid = x + h
        brute = np.trapezoid(np.exp(-grid**2 / 2) / math.sqrt(2 * math.pi) * ndtr((k - r * grid) / math.sqrt(1 - r * r)), grid)
        assert float(bivariate_cdf(h, k, r)) == pytest.approx(brute, abs=2e-7)
    assert float(bivariate_cdf(0.0, 0.0, 0.5)) == pytest.approx(1 / 3, abs=1e-15)
    assert float(bivariate_cdf(0.3, 0.7, 1.0)) == pytest.approx(0.6179114221889527, abs=1e-12)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mf.Problem(3, 20, 0.5), "`d`"),
        (lambda: mf.Problem(100, 1.5, 0.5), "`L` (=1.5) must be at least 2"),
        (lambda: mf.Problem(100, 1e300, 0.5), "`L`"),
        (lambda: mf.Problem(100, math.nan, 0.5), "`L` (=nan) must be finite"),
        (lambda: mf.Problem(100, 20, 0.0), "`gamma` (=0) must be positive"),
        (lambda: mf.Problem(100, 20, 1.0), "`gamma` (=1)"),
        (lambda: mf.Problem(100, 20, 1.2), "`gamma` (=1.2)"),
        (lambda: mf.Problem(100, 20, 0.5, eps=-1), "`eps`"),
        (lambda: mf.Problem(100, 20, 0.5, c=0), "`c`"),
        (lambda: mf.Problem.from_alpha(1000, 0.9, 0.5), "`alpha`"),
        (lambda: mf.SoftmaxRisk(PAPER[0], lam=0), "`lam`"),
        (lambda: mf.SoftmaxRisk(PAPER[0], beta=-1), "`beta`"),
        (lambda: mf.SoftmaxRisk(PAPER[0]), "`beta` and `lam`"),
        (lambda: mf.SoftmaxRisk(PAPER[0], beta=1, delta=3), "`delta`"),
        (lambda: mf.LinkRisk(PAPER[0], "cubic", beta=1), "`link`"),
        (lambda: mf.LinkRisk(PAPER[0], lambda x: x[:1], beta=1), "elementwise"),
        (lambda: mf.LinkRisk(PAPER[0], lambda x: x / 0, beta=1), "link"),
        (lambda: mf.LinkRisk(PAPER[0], np.abs, beta=1), "`breaks`"),
        (lambda: mf.CustomLink(lambda x: 1 / x), "second moment"),
        (lambda: mf.Overlaps(1.2, 0).check(), "`mu` (=1.2)"),
        (lambda: mf.Overlaps(0.9, 0.1, 0.9).check(), "infeasible"),
        (lambda: mf.Overlaps(math.nan, 0).check(), "`mu` (=nan)"),
        (lambda: mf.SoftmaxRisk(PAPER[0], beta=1).risk(mf.Overlaps(1, 1, 0, 0, 0.5)), "infeasible"),
        (lambda: mf.Overlaps.from_vectors(np.ones(4), np.ones(4), np.ones(4), np.ones(4)), "orthogonal"),
        (lambda: mf.Overlaps.from_vectors(np.zeros(4), np.ones(4), np.eye(4)[0], np.eye(4)[1]), "`u`"),
        (lambda: mf.MeanField(-1, 1, 0.5, 100), "`alpha`"),
        (lambda: mf.MeanField(0.1, 0, 0.5, 100), "`beta`"),
        (lambda: mf.gd(mf.SoftmaxRisk(PAPER[0], beta=1), GENERIC, 0, 10), "`step`"),
        (lambda: mf.flow(mf.SoftmaxRisk(PAPER[0], beta=1), GENERIC, [1, 0]), "`times`"),
        (lambda: mf.bayes_risk(PAPER[0], "some"), "`coordinates`"),
        (lambda: mf.pointwise_risk(PAPER[0], GENERIC, -1), "`lam`"),
        (lambda: mf.sample(mf.Problem(100, 20.5, 0.5), 10, 0), "`L`"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_cannot_be_is_refused_with_a_sentence_that_names_it(make, words):
    with pytest.raises(BadInput) as caught:
        make()
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_lattice_that_would_not_fit_is_refused_with_the_way_out():
    with pytest.raises(Refused, match="hardmax_risk"):
        mf.SoftmaxRisk(PAPER[0], lam=1e5)


def test_overlaps_come_back_from_the_vectors_that_realise_them():
    for o in (GENERIC, mf.Overlaps(1, 1), mf.Overlaps(0, 0, 1, 1, 0), mf.Overlaps(-0.3, 0.5, 0.4, 0.2, -0.3)):
        for seed in (None, 4):
            u_star, v_star, u, v = o.to_vectors(12, seed)
            back = mf.Overlaps.from_vectors(u, v, u_star, v_star)
            assert np.abs(np.array(back) - np.array(o)).max() < 1e-14
