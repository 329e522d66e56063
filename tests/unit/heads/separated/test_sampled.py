"""Callables of many variables: sums of products fitted to values, observed, not proved, and refused with how close they came."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import TooMany
from maxaffine.heads.separated.least_squares import Work, fit, one_more, values
from maxaffine.heads.separated.points import fibres, spread
from maxaffine.heads.separated.sampled import Kind, SampledSearch
from maxaffine.search import _foremost
from maxaffine.target.target import Target

FIVE = ma.Box([-1] * 5, [1] * 5)


def gaussian(X):
    return np.exp(-(X**2).sum(axis=1)) + 0.5 * X[:, 0] * X[:, 1]


def ridge(X):
    return np.sin(X[:, 0] * X[:, 1] + X[:, 2] + X[:, 3] * X[:, 4])


@pytest.fixture(scope="module")
def layer():
    return ma.compile(gaussian, FIVE, error=1e-3, trace=False)


def test_a_callable_of_five_variables_is_fitted_and_observed(layer):
    assert (layer.method, layer.certificate.kind, layer.bound) == ("separated", "none", None)
    x = FIVE.sample(20_000, np.random.default_rng(5))
    corners = np.sign(x[:500])
    for points in (x, corners, 0.01 * x):
        assert np.abs(layer(points).ravel() - gaussian(points)).max() <= 1e-3
    assert layer.observed.error <= 1e-3 and layer.observed.points > 10_000


def test_the_certificate_says_what_a_proof_would_need(layer):
    said = layer.explain()
    assert "only observed" in said and "a proof would need the function as an expression" in said


def test_its_tokens_are_implied_by_few_numbers(layer):
    (group,) = layer.weights.products()
    assert group.factors is not None and group.work < 60 < layer.tokens


def test_it_is_saved_loaded_and_run_in_the_same_way(layer, tmp_path):
    path = tmp_path / "f.safetensors"
    layer.save(path)
    again = ma.load(path)
    x = FIVE.sample(50, np.random.default_rng(1))
    assert np.array_equal(again(x), layer(x)) and again.certificate.kind == "none"


def test_whichever_head_fits_a_callable_of_many_variables_it_says_what_a_proof_would_need():
    layer = ma.compile(lambda X: np.sin(X.sum(axis=1)), FIVE, error=1e-3, trace=False)
    assert layer.method == "spectral" and layer.certificate.kind == "none"
    assert "a proof would need the function as an expression" in layer.certificate.theorem


def test_a_sine_of_a_sum_is_one_complex_product():
    found = next(SampledSearch(Target.of(lambda X: np.sin(X.sum(axis=1)), FIVE), 1e-3, "float64", 0).plans())
    assert found.terms == 1 and found.imaginary is not None


def test_a_kink_is_refused_with_its_variable_and_without_the_tokens_of_a_lookup():
    def kinked(X):
        return np.abs(np.sin(3 * X[:, 1])) * (1 + X[:, 0] * X[:, 2] * X[:, 3]) * np.exp(X[:, 4]) * (1 + X[:, 5])

    with pytest.raises(ma.Refused, match=r"along `x2` it is not smooth enough .* leave .*, where .* is asked of it") as caught:
        ma.compile(kinked, ma.Box([-1] * 6, [1] * 6), error=1e-3, trace=False)
    headline = caught.value.reason
    assert "tokens" not in headline and "a proof would need" in headline
    assert any(line.startswith("lookup:") and "tokens" in line for line in caught.value.tried)


def test_spent_calls_are_refused_with_the_error_that_was_seen():
    with pytest.raises(ma.Refused, match=r"an error of .* was seen to remain") as caught:
        ma.compile(ridge, FIVE, error=1e-5, trace=False, run=ma.Run(max_calls=4_000))
    assert caught.value.nearest_error > 1e-5 and caught.value.remedy["error"] >= caught.value.nearest_error


def test_no_more_calls_are_made_than_allowed():
    asked = 0

    def counted(X):
        nonlocal asked
        asked += len(X)
        return gaussian(X)

    found = ma.compile(counted, FIVE, error=2e-2, trace=False, run=ma.Run(max_calls=15_000))
    assert asked <= 15_000 and found.observed.error <= 2e-2


def test_where_a_proof_is_insisted_on_nothing_is_fitted():
    with pytest.raises(ma.Refused) as caught:
        ma.compile(gaussian, FIVE, error=1e-3, trace=False, require="proved")
    assert "callables only where a layer may be observed and not proved" in caught.value.details


def test_expressions_are_refused_with_the_reason_of_the_nearest_head():
    names = [f"x{i}" for i in range(1, 7)]
    text = "abs(" + "*".join(names) + " + x1 - .3)"
    with pytest.raises(ma.Refused, match=r"^no head was proved to 0\.001: ") as caught:
        ma.compile(text, ma.Box(**dict.fromkeys(names, (-1, 1))), error=1e-3)
    reason = caught.value.reason.partition("A stack is foreseen")[0]
    assert "tokens" not in reason and "`error" not in reason
    assert any(line.startswith("lookup:") and "tokens" in line for line in caught.value.tried)


def test_the_foremost_reason_is_about_the_target():
    reasons = {"spectral": ["not smooth enough"], "separated": ["only one output"], "tree": ["too deep"]}
    assert _foremost(reasons, 3) == "spectral, not smooth enough"
    assert _foremost({"tree": ["only here"], "lookup": ["many tokens"]}, 3) is None
    assert TooMany("many").tokens == 0


# ---------------------------------------------------------------------- parts


def test_least_squares_find_a_product():
    z = spread(400, 3, np.random.default_rng(0))
    bases = [np.polynomial.chebyshev.chebvander(z[:, e], 3) for e in range(3)]
    f = (1 + z[:, 0]) * (2 - z[:, 1] ** 2) * z[:, 2] ** 3
    start = one_more(bases, None, f, False, Work(1e9), np.random.default_rng(1))
    found = fit(bases, f, start, Work(1e9), steps=60)
    assert found.rms < 1e-3 and np.allclose(f - values(bases, found.factors), found.residual)


@pytest.mark.parametrize("turning", [False, True])
def test_residuals_fall_with_every_step(turning):
    rng = np.random.default_rng(3)
    z = spread(300, 2, rng)
    bases = [np.polynomial.chebyshev.chebvander(z[:, e], 4) for e in range(2)]
    f = np.sin(2 * z[:, 0] + z[:, 1])
    start = one_more(bases, None, f, turning, Work(1e9), rng)
    squares = [fit(bases, f, start, Work(1e9), steps=n).squares for n in (1, 3, 9)]
    assert squares[0] >= squares[1] >= squares[2]


def test_points_reach_the_centre_and_the_corners():
    size = (spread(4_000, 20, np.random.default_rng(0)) ** 2).mean(axis=1)
    assert size.min() < 0.05 and size.max() > 0.85


def test_fibres_tell_a_polynomial_from_a_kink():
    def f(z):
        return z[:, 0] ** 3 + np.abs(z[:, 1] - 0.1)

    found, tails = fibres(f, 2, 1e-6, 4, np.random.default_rng(0))
    assert len(found[0]) == 4 and tails[0] == 0.0 and tails[1] > 1e-3


def test_a_search_that_gains_little_is_given_up():
    kind = Kind(False)
    kind.past = [9.0, 8.9, 8.8, 8.7, 8.6]
    assert kind.is_hopeless()
    kind.past = [900.0, 90.0, 9.0, 0.9, 0.45]
    assert not kind.is_hopeless()
