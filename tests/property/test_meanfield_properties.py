"""Properties of the exact risk on random problems and random feasible overlaps."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from maxaffine import meanfield as mf

problems = st.builds(
    mf.Problem,
    d=st.integers(4, 300),
    L=st.one_of(st.floats(2, 1e3), st.floats(0, 60).map(lambda x: 2 + 10.0**x)),
    gamma=st.floats(0.02, 0.99),
)
lams = st.floats(-3, 1.4).map(lambda x: 10.0**x)


@st.composite
def overlaps(draw):
    """Overlaps of two real unit vectors in R^4."""
    numbers = st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda x: np.linalg.norm(x) > 0.1)
    u, v = np.array(draw(numbers)), np.array(draw(numbers))
    return mf.Overlaps.from_vectors(u, v, np.eye(4)[0], np.eye(4)[1])


@settings(deadline=None, max_examples=60)
@given(problems, lams, overlaps())
def test_the_risk_is_not_negative_even_in_the_odd_overlaps_and_its_sum_rules_hold(problem, lam, o):
    risk = mf.SoftmaxRisk(problem, lam=lam)
    value, gradient = risk.value_and_gradient(o)
    mirrored, other = risk.value_and_gradient(mf.Overlaps(o.mu, o.nu, -o.eta, -o.zeta, -o.rho))
    assert value >= -1e-14 * max(1.0, problem.C**2)
    assert abs(value - mirrored) <= 1e-12 * max(1.0, value)
    assert np.allclose(np.array(gradient) * [1, 1, -1, -1, -1], np.array(other), rtol=1e-12, atol=1e-10)
    assert risk.self_check(o.mu) < 1e-13


@settings(deadline=None, max_examples=40)
@given(problems, lams, st.floats(-1, 1))
def test_at_nu_one_the_risk_never_rises_with_mu(problem, lam, mu):
    assert mf.SoftmaxRisk(problem, lam=lam).gradient(mf.Overlaps(mu, 1.0)).mu <= 0


@settings(deadline=None, max_examples=40)
@given(problems, lams, overlaps(), overlaps())
def test_the_gradient_is_the_slope_along_any_direction(problem, lam, o, direction):
    risk = mf.SoftmaxRisk(problem, lam=lam)
    h = 1e-3 * min(1.0, 3 * math.hypot(problem.gamma, 1 / lam) / problem.C)
    line = np.array(direction)
    values = [risk.value_and_gradient(mf.Overlaps(*(np.array(o) + k * h * line)))[0] for k in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
    exact = float(np.array(risk.value_and_gradient(o)[1]) @ line)
    scale = max(1.0, abs(slope), max(abs(v) for v in values) / h * 1e-5)
    assert abs(slope - exact) < 2e-7 * scale


@settings(deadline=None, max_examples=40)
@given(problems, lams, overlaps(), st.floats(1e-3, 0.3))
def test_a_step_keeps_the_overlaps_feasible(problem, lam, o, step):
    after = mf.step_overlaps(o, mf.SoftmaxRisk(problem, lam=lam).value_and_gradient(o)[1], step)
    assert after.feasible(1e-9)


@settings(deadline=None, max_examples=60)
@given(overlaps(), st.integers(4, 30), st.one_of(st.none(), st.integers(0, 99)))
def test_overlaps_survive_the_way_to_vectors_and_back(o, d, seed):
    u_star, v_star, u, v = o.to_vectors(d, seed)
    back = mf.Overlaps.from_vectors(u, v, u_star, v_star)
    # u within 1e-7 of the plane of u*, v* leaves rho determined only to that distance
    assert np.abs(np.array(back) - np.array(o)).max() < 1e-6


@settings(deadline=None, max_examples=30)
@given(problems, st.floats(-1, 1), st.floats(-1, 1), st.floats(0.02, 20))
def test_the_closed_form_of_erf_attention_equals_the_integral(problem, mu, nu, lam):
    closed = mf.erf_risk_closed(problem, mu, nu, lam)
    assert abs(mf.pointwise_risk(problem, mf.Overlaps(mu, nu), lam) - closed) <= 1e-12 * max(1.0, closed)


@settings(deadline=None, max_examples=15)
@given(problems)
def test_no_softmax_layer_beats_bayes_on_what_it_sees(problem):
    projected = mf.bayes_risk(problem, "projected")
    for lam in (0.5, 3.0, 15.0):
        # risks below 1e-85 are beyond the tails that the lattice keeps
        assert projected <= mf.SoftmaxRisk(problem, lam=lam).risk(mf.Overlaps(1, 1)) * (1 + 1e-9) + 1e-85
    assert projected <= problem.gamma**2 * (1 + 1e-12)
