"""Functions that are dear: few evaluations, a limit to them, and honest words about what they were enough for."""

import numpy as np
import pytest
from scipy.integrate import quad

import maxaffine as ma

BOX = ma.Box(x=(0, 2), y=(-1, 1))


def integrand(t, a, b):
    return np.exp(-a * t) * np.cos(3 * b * t)


class Counted:
    """An integral over t of exp(-x t) cos(3 y t), and how often it was asked for."""

    def __init__(self):
        self.points = 0

    def __call__(self, x):
        self.points += len(x)
        return np.array([quad(integrand, 0, 1, args=(a, b))[0] for a, b in x])


def test_a_quadrature_of_two_variables_takes_few_evaluations():
    f = Counted()
    layer = ma.compile(f, BOX, error=1e-4, trace=False)
    assert layer.calls == f.points < 5_000 and layer.tokens <= 15
    assert layer.certificate.kind == "none" and layer.observed.error <= 1e-4 and layer.observed.points >= 1_000
    assert f"evaluated at {f.points:,} points" in layer.explain() and layer.to_json()["calls"] == f.points
    before, x = f.points, BOX.sample(200, np.random.default_rng(5))
    assert np.abs(layer(x) - f(x)).max() < 1.1e-4 and f.points == before + 200


def test_five_hundred_evaluations_are_enough_and_not_exceeded():
    f = Counted()
    layer = ma.compile(f, BOX, error=1e-4, trace=False, run=ma.Run(max_calls=500))
    assert f.points == layer.calls <= 500 and layer.observed.error <= 1e-4 and layer.observed.points >= 100


def test_a_spent_budget_leaves_the_best_layer_and_says_so():
    f = Counted()
    layer = ma.compile(f, BOX, error=1e-9, trace=False, run=ma.Run(max_calls=90))
    assert f.points == layer.calls <= 90 and layer.bound is None
    why = layer.certificate.theorem
    assert why.startswith("`max_calls` (=90) ended the search after") and "1e-09 was asked" in why
    assert f"{layer.observed.error:.3g} is observed" in why and 1e-9 < layer.observed.error < 1e-2
    assert why in layer.explain() and layer.certificate.kind == "none"


def test_what_must_be_proved_is_refused():
    with pytest.raises(ma.Refused, match="cannot be proved"):
        ma.compile(Counted(), BOX, error=1e-4, trace=False, require="proved", run=ma.Run(max_calls=200))


@pytest.mark.parametrize("most", [32, 60, 150, 500])
@pytest.mark.parametrize(
    ("f", "box"),
    [
        (lambda x: np.abs(x[:, 0] - 0.1), {"x": (-1, 1)}),
        (lambda x: np.maximum(x[:, 0], x[:, 1]), {"x": (-1, 1), "y": (-1, 1)}),
        (lambda x: np.sin(x.sum(axis=1)), {"x": (-1, 1), "y": (-1, 1), "z": (-1, 1)}),
        (lambda x: np.sin(x.sum(axis=1)), dict.fromkeys("abcdf", (-1, 1))),
    ],
)
def test_no_function_is_asked_more_often_than_allowed(f, box, most):
    points = []

    def counted(x):
        points.append(len(x))
        return f(x)

    try:
        layer = ma.compile(counted, box, error=1e-5, trace=False, run=ma.Run(max_calls=most))
        assert layer.calls == sum(points)
        assert layer.observed.error <= 1e-5 or "max_calls" in layer.certificate.theorem
    except ma.Refused as refusal:
        assert "max_calls" in str(refusal) or any("max_calls" in one for one in refusal.tried)
    assert sum(points) <= most


def test_declared_facts_are_proved_within_the_limit_or_refused():
    def f(x):
        return np.abs(np.sin(3 * x[:, 0]))

    layer = ma.compile(f, {"x": (-1, 1)}, error=0.1, trace=False, lipschitz=[3], require="proved", run=ma.Run(max_calls=200_000))
    assert layer.certificate.kind == "proved" and layer.calls < 200_000
    with pytest.raises(ma.Refused, match="max_calls"):
        ma.compile(f, {"x": (-1, 1)}, error=0.1, trace=False, lipschitz=[3], require="proved", run=ma.Run(max_calls=60))


def test_a_feature_between_the_points_of_the_interpolant_is_seen():
    """The interpolant takes exp(-x^2) for the whole; the spike is 1/50 of the box, and random points meet it."""

    def f(x):
        return np.exp(-(x[:, 0] ** 2)) + 0.5 * np.exp(-(((x[:, 0] - 0.7134) / 0.01) ** 2))

    layer = ma.compile(f, {"x": (-1, 1)}, error=1e-3, trace=False)
    x = np.linspace(-1, 1, 20_001)[:, None]
    assert np.abs(layer(x) - f(x)).max() < 2e-3


def test_the_limit_is_about_callables_and_not_too_small():
    with pytest.raises(ma.BadInput, match=r"`max_calls` \(=100\) is about callables"):
        ma.compile("sin(x)", {"x": (0, 1)}, error=1e-3, run=ma.Run(max_calls=100))
    for most in (0, 31, 50.5, True, "many"):
        with pytest.raises(ma.BadInput, match=r"`max_calls` .* must be a whole number, at least 32"):
            ma.Run(max_calls=most)


def test_progress_counts_the_points():
    told = []
    run = ma.Run(max_calls=400, progress=lambda *said: told.append(said))
    ma.compile(lambda x: np.sin(x[:, 0]), {"x": (0, 1)}, error=1e-4, trace=False, run=run)
    counts = [done for stage, done, total in told if stage == "points of the function" and total == 400]
    assert counts == sorted(counts) and 0 < counts[-1] <= 400
