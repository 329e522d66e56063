"""Ramp heads: kappa, the laws of p and n H, literal matrices, nets and their bounds, ridge fits, sentences."""

import numpy as np
import pytest

from maxaffine import ramp
from maxaffine.ramp import constants as proved

SETTINGS = ((1, 0.520), (2, 0.292), (3, 0.186), (4, 0.120), (5, 0.076), (5.44, 0.0619), (6, 0.078), (7.43, 0.120), (12, 0.217))


def places(head, beyond=2.0):
    """Inside at and between sites, at corners, and outside."""
    fine = np.linspace(head.a - beyond * head.step, head.b + beyond * head.step, 4001)
    near = head.a + head.step * np.linspace(-3, 3, 1201), head.b + head.step * np.linspace(-3, 3, 1201)
    return np.concatenate([fine, *near, head.a + head.step * (np.arange(2 * head.p + 1) / 2), [head.a - 50, head.b + 50]])


@pytest.mark.parametrize(("rho", "told"), SETTINGS)
def test_the_error_of_a_ramp_is_kappa_steps_for_every_number_of_sites(rho, told):
    constants = []
    for p in (4, 16, 64, 256, 1024):
        head = ramp.ramp_head(-2.0, 3.0, p, rho)
        s = places(head)
        worst = np.abs(head(s) - head.ramp(s)).max()
        assert worst <= head.bound()
        constants.append(worst * p / 5.0)
    assert np.ptp(constants) <= 0.01 * max(constants)
    assert constants[0] == pytest.approx(told, abs=6e-4)
    assert max(constants) <= ramp.kappa(rho) <= min(1.004 * max(constants), proved.looser(rho))


@pytest.mark.parametrize("rho", [0.5, 2.0, 20.0, 60.0, 400.0])
def test_a_sharp_head_errs_by_half_a_step_and_no_bound_says_much_more(rho):
    head, heads = ramp.ramp_head(0.0, 8.0, 8, rho), ramp.ramp_heads(0.0, 21.0, 8, 3, rho)
    s = np.linspace(-3, 24, 54_001)
    for one in (head, heads):
        assert np.abs(one(s) - one.ramp(s)).max() <= one.bound()
    assert ramp.kappa(rho) <= proved.looser(rho) * 1.000001
    if rho >= 20:
        assert head.bound() <= 0.5001 and heads.bound() <= 0.5001


def test_no_argument_of_any_head_errs_more_than_kappa():
    rng = np.random.default_rng(0)
    for _ in range(25):
        rho, p = float(np.exp(rng.uniform(np.log(0.5), np.log(80)))), int(rng.integers(1, 12))
        head = ramp.ramp_head(0.0, float(p), p, rho)
        s = rng.uniform(-3, p + 3, 1500)
        away = head(s) - head.ramp(s)
        assert np.abs(away).max() <= ramp.kappa(rho)
        left = s < 0
        assert (away[left] >= -1e-12).all() and (away[left] <= proved.tail(-s[left], rho) + 1e-12).all()
        inside = (s > 0) & (s < p / 2)
        assert (away[inside] <= proved.profile(s[inside], rho) + 1e-12).all()
        assert (away[inside] >= proved.profile(s[inside], rho) - proved.cut(rho, p / 2) - 1e-12).all()


def test_two_ramps_of_different_steps_meet_within_their_bound():
    rng = np.random.default_rng(1)
    for _ in range(12):
        rho, ratio, other = float(rng.uniform(2, 9)), float(np.exp(rng.uniform(-1, 1))), float(rng.uniform(-2, 2))
        t = np.linspace(0, 6, 4001)
        off = proved.profile(t, rho) - other * proved.tail(ratio * t, rho)
        (bound,) = proved.meeting(rho, np.array([other]), np.array([ratio]))
        assert np.abs(off).max() <= bound <= 1.1 * np.abs(off).max() + 0.03


def test_the_law_of_heads_and_tokens_holds_within_2_percent():
    constants = []
    for n, H in ((4, 1), (4, 5), (9, 4), (20, 16), (50, 1), (50, 4), (50, 16)):
        heads = ramp.ramp_heads(-25, 25, n, H, 5.3)
        s = np.concatenate([np.linspace(-30, 30, 20001), -25 + heads.step * np.arange(0, H * (n - 1) + 1, 0.125)])
        worst = np.abs(heads(s) - heads.ramp(s)).max()
        assert worst <= heads.bound()
        constants.append(worst * H * (n - 1) / 50)
    assert np.ptp(constants) <= 0.02 * max(constants) and max(constants) == pytest.approx(0.066, abs=5e-4)
    hard = ramp.ramp_heads(-25, 25, 50, 8, 400.0)
    s = -25 + hard.step * np.arange(0, 8 * 49 + 1, 1 / 256)
    assert np.abs(hard(s) - hard.ramp(s)).max() * 8 * 49 / 50 <= 0.5


def test_literal_matrices_say_the_same_to_1e_12():
    rng = np.random.default_rng(0)
    w, t, X = rng.standard_normal((5, 3)), rng.standard_normal(5), rng.standard_normal((3, 5))
    s = (w * X.T).sum(axis=1) + t
    for head in (ramp.ramp_head(-2, 3, 17), ramp.ramp_head(-2, 3, 2)):  # more sites than tokens, and fewer
        assert np.abs(ramp.head_matrices(head, w, t)(X)[0] - head(s)).max() < 1e-12
    one = ramp.head_matrices(ramp.ramp_head(-2, 3, 17), np.tile(w[0], (5, 1)), t)
    assert len(one.P) == 1  # equal directions take one product
    heads = ramp.ramp_heads(-2, 3, 5, 4)
    assert np.abs(ramp.heads_matrices(heads, w, t)(X)[0] - heads(s)).max() < 1e-12


def f(x):
    return np.sin(2 * np.pi * x) + 0.3 * np.cos(7 * x)


SLOPE, BEND = 2 * np.pi + 2.1, (2 * np.pi) ** 2 + 0.3 * 49


@pytest.mark.parametrize("layers", [1, 2, "softmax"])
@pytest.mark.parametrize("p", [8, 40])
def test_a_net_is_its_matrices_and_keeps_its_bound(layers, p):
    x, m = np.linspace(0, 1, 4001), 24
    net = ramp.piecewise_linear(f, (0, 1), m, p, layers=layers)
    literal = net.as_matrices()
    assert max(abs(literal(v) - net(v)[0]) for v in np.linspace(0.013, 0.97, 12)) < 1e-12
    bound = net.bound(BEND / 8 / m**2)
    assert np.abs(net(x) - f(x)).max() <= bound
    ramps = (ramp.kappa() + 2 * proved.corner(ramp.BEST)) * SLOPE / m / p
    assert net.bound() <= 1.05 * ramps + (0.001 if net.readout else 0)
    relu = ramp.piecewise_linear(f, (0, 1), m, p, relu=True)
    assert np.abs(relu(x) - relu.exact(x)).max() <= relu.bound()
    assert relu.bound() == pytest.approx(np.abs(relu.c).sum() * ramp.kappa() / p, rel=1e-6)


def test_universality_refining_m_meets_every_error_with_a_bound():
    x = np.linspace(0, 1, 4_001)
    for error in (1e-1, 1e-2, 1e-3):
        m = next(m for m in 2 ** np.arange(3, 12) if ramp.piecewise_linear(f, (0, 1), m).bound(BEND / 8 / m**2) <= error)
        net = ramp.piecewise_linear(f, (0, 1), m)
        assert np.abs(net(x) - f(x)).max() <= net.bound(BEND / 8 / m**2) <= error


def test_error_per_token_on_a_line():
    found = ramp.compare_per_token(f, (0, 1), 16).errors
    told = {"hard lookup": 0.188, "soft lookup": 0.067, "ramps, rho*": 0.0197}
    assert {name: found[name] for name in told} == pytest.approx(told, rel=0.01)
    assert found["Bernstein head"] < 1e-9 and found["ReLU neurons, rho*"] < found["ReLU neurons, hard"] / 4


def test_a_ridge_fit_beats_the_lookup_in_two_variables_and_says_what_it_does_not_prove():
    def g(x, y):
        return np.sin(x) + np.cos(y)

    found = ramp.compare_per_token(g, ((-np.pi, np.pi), (-np.pi, np.pi)), 64).errors
    assert found["ridge ramps, rho*"] < found["hard lookup"] / 2 and found["Bernstein head"] < 1e-3


def test_a_ridge_fit_needs_samples_at_the_boundary():
    rng, corners = np.random.default_rng(0), np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    inside, edge = rng.uniform(-np.pi, np.pi, (512, 2)), rng.uniform(-np.pi, np.pi, (256, 2))
    edge[np.arange(256), rng.integers(0, 2, 256)] = np.pi * rng.choice([-1, 1], 256)
    places = np.stack(np.meshgrid(*[np.linspace(-np.pi, np.pi, 41)] * 2), axis=-1).reshape(-1, 2)

    def error(samples):
        net = ramp.ridge_fit(samples, np.sin(samples[:, 0]) + np.cos(samples[:, 1]), 64)
        return np.abs(net(places) - np.sin(places[:, 0]) - np.cos(places[:, 1])).max()

    assert error(0.9 * inside) > 2 * error(np.concatenate([inside, edge, np.pi * corners]))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ramp.ramp_head(1, 1, 4), "must be finite numbers with a < b"),
        (lambda: ramp.ramp_head(0, np.nan, 4), "must be finite numbers"),
        (lambda: ramp.ramp_head(0, 1, 0), "`p` \\(=0\\) must be a whole number"),
        (lambda: ramp.ramp_head(0, 1, 4, 0.1), "`rho` \\(=0.1\\) must lie between 0.5 and 400"),
        (lambda: ramp.ramp_heads(0, 1, 1, 2), "`n` \\(=1\\) must be a whole number of tokens"),
        (lambda: ramp.heads_matrices(ramp.ramp_heads(0, 1, 4, 2), np.ones((3, 2)), np.ones(3)), "must be the number of tokens"),
        (lambda: ramp.head_matrices(ramp.ramp_head(0, 1, 4), np.ones((3, 2)), np.ones(2)), "one direction and shift per token"),
        (lambda: ramp.piecewise_linear(np.sin, (1, 0), 4), "two finite numbers in rising order"),
        (lambda: ramp.piecewise_linear(np.log, (-1, 1), 4), "one finite number at every knot"),
        (lambda: ramp.piecewise_linear(np.sin, (0, 1), 4, layers=3), '1, 2 or "softmax"'),
        (lambda: ramp.ridge_fit(np.ones((3, 2)), np.ones(4), 5), "must be \\(samples, d\\)"),
        (lambda: ramp.ridge_fit(np.full((3, 2), np.nan), np.ones(3), 5), "must be finite"),
        (lambda: ramp.compare_per_token(np.sin, (0, 1, 2), 8), "or two such pairs"),
        (lambda: ramp.compare_per_token(np.add, ((0, 1), (0, 1)), 50), "must be a square of at least 64"),
    ],
)
def test_bad_input_is_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence), np.errstate(all="ignore"):
        call()
