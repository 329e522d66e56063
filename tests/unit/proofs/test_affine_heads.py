"""Heads whose values are affine in z: bounds on ellipses, of rounding and of slopes, and the proof over any box."""

import math

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.checker import local_error as checker
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT32
from maxaffine.expression.expression import Expression
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein
from maxaffine.proofs.head_bounds import affine_size, axis_weights, etas_for, moments, pieces, strip_factor
from maxaffine.proofs.local_error import chebyshev, prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.sources import FromAffine, FromExpression

NAMES = ("x", "y", "z")


def random_axes(rng, E, family):
    axes, deltas = [], []
    for _ in range(E):
        count = int(rng.integers(1, 7))
        if family == "bernstein":
            delta = float(rng.uniform(0.3, 4.0))
            axes.append(bernstein(count, delta, "float64").keys)
            deltas.append(delta)
        else:
            axes.append(AxisKeys(np.sort(rng.normal(size=count) * 6.0), rng.normal(size=count) * 3.0))
            deltas.append(None)
    return tuple(axes), tuple(deltas)


def random_values(rng, axes, K=1):
    shape = tuple(len(axis) for axis in axes)
    values = rng.normal(size=(*shape, K))
    return values, rng.normal(size=(*shape, K, len(axes))) * 10.0 ** rng.uniform(-2, 1, (*shape, 1, 1))


def plain(axes, values, slopes, z):
    """g at points z (M, E), complex ones too: one softmax over all tokens."""
    weights = np.ones((len(z), 1))
    for e, axis in enumerate(axes):
        scores = np.multiply.outer(z[:, e], axis.slopes) + axis.offsets
        scores = np.exp(scores - scores.real.max(axis=1, keepdims=True))
        weights = (weights[:, :, None] * (scores / scores.sum(axis=1, keepdims=True))[:, None, :]).reshape(len(z), -1)
    c, G = values.reshape(-1, values.shape[-1]), slopes.reshape(-1, *slopes.shape[-2:])
    v = c[None] + np.einsum("jke,me->mjk", G, z)
    return np.einsum("mj,mjk->mk", weights, v), weights, v


@pytest.mark.parametrize("family", ["bernstein", "generic"])
def test_sizes_hold_on_complex_boxes(family):
    rng = np.random.default_rng(3)
    for trial in range(60):
        E = 1 + trial % 3
        axes, deltas = random_axes(rng, E, family)
        values, slopes = random_values(rng, axes)
        if trial % 2:  # huge slopes where the weight is tiny
            values[(0,) * E], slopes[(0,) * E] = 1e4, 1e6
        centre, reach = rng.uniform(-1, 1, E), rng.uniform(0.01, 0.4, E)
        height = float(rng.uniform(0, 0.2))
        k = int(rng.integers(E))
        long = float(np.hypot(reach[k], height))
        strip = strip_factor(axes[k], deltas[k], float(centre[k]), long, height)
        sides = reach.copy()
        sides[k] = long
        bound = strip * affine_size(axes, values, slopes, centre, sides)
        z = (centre + rng.uniform(-1, 1, (600, E)) * reach).astype(complex)
        z[:, k] += 1j * rng.uniform(-1, 1, 600) * height
        assert np.abs(plain(axes, values, slopes, z)[0]).max() <= bound


def test_the_weighted_size_forgives_tiny_weights():
    """A steep token far away costs next to nothing; its own |v| would be 1e6."""
    keys = AxisKeys(np.array([0.0, 60.0]), np.array([0.0, -60.0]))
    values, slopes = np.array([[1.0], [1e6]]), np.zeros((2, 1, 1))
    assert affine_size((keys,), values, slopes, np.array([-1.0]), np.array([0.1])) < 1.1
    assert affine_size((keys,), values, slopes, np.array([1.0]), np.array([0.1])) > 4e5


def test_moments_cover_what_is_sampled():
    rng = np.random.default_rng(11)
    for trial in range(24):
        E = 1 + trial % 2
        axes, _ = random_axes(rng, E, ("bernstein", "generic")[trial % 3 == 0])
        values, slopes = random_values(rng, axes)
        etas = etas_for(axes, FLOAT32, E + 2)
        found = moments(axes, values, slopes, etas)
        z = rng.uniform(-1, 1, (400, E))
        g, w, v = plain(axes, values, slopes, z)
        assert np.abs(g).max() <= found.largest
        crude = np.abs(values).reshape(-1, 1) + np.einsum("jke,me->mjk", np.abs(slopes).reshape(-1, 1, E), np.abs(z))
        assert (w[:, :, None] * crude).sum(axis=1).max() <= found.absolute
        step = 1e-6
        for e in range(E):
            ahead = plain(axes, values, slopes, z + step * np.eye(E)[e])[0]
            assert np.abs(ahead - g).max() / step <= found.slopes[e] * (1 + 1e-4) + 1e-4
        cut = pieces(axes)
        places = [np.clip(((z[:, e] / (count[0][-1] + count[1]) + 1) * len(count[0]) / 2).astype(int), 0, len(count[0]) - 1)
                  for e, count in enumerate(cut)]
        lost = np.zeros((len(z), 1))
        for e in range(E):  # sum w eta |v - g|
            shape = [len(one) for one in axes]
            eta = etas[e][places[e]].reshape(len(z), *[shape[i] if i == e else 1 for i in range(E)])
            eta = np.broadcast_to(eta, (len(z), *shape)).reshape(len(z), -1)
            lost += ((w * eta)[:, :, None] * np.abs(v - g[:, None])).sum(axis=1)
        assert lost.max() <= found.rounding
        assert found.rounding <= 12.0 * lost.max() + 1e-9


TARGETS = {1: "sin(3*x)", 2: "exp(x*y)*cos(2*x)", 3: "cos(x+y*z)"}


@pytest.mark.parametrize("E", [1, 2, 3])
def test_proofs_hold_against_sampling(E):
    rng = np.random.default_rng(E)
    expression = Expression.parse(TARGETS[E], NAMES[:E])
    source = FromExpression(expression, Interval.point(np.zeros(E)), np.ones(E))
    for trial in range(8 if E < 3 else 3):
        axes, deltas = random_axes(rng, E, "bernstein")
        values, slopes = random_values(rng, axes)
        low = rng.uniform(-1.5, 0.2, E)
        high = low + rng.uniform(0.05, 1.0, E)
        z = rng.uniform(low, high, (4000, E))
        z[:200] = np.where(rng.random((200, E)) < 0.5, low, high)
        away = np.abs(plain(axes, values, slopes, z)[0] - expression.evaluate(z)).max()
        proof = prove(Head(source, axes, deltas, values, slopes), away, low, high)
        assert away <= proof.bound <= 1.35 * away, trial
        with pytest.raises(Refused):
            prove(Head(source, axes, deltas, values, slopes), away, low, high, give_up=0.5 * away)


def test_zero_slopes_are_no_slopes():
    axes, deltas = (bernstein(5, 2.0, "float64").keys,), (2.0,)
    values = np.random.default_rng(0).normal(size=(5, 1))
    source = FromExpression(Expression.parse("sin(x)", ("x",)), Interval.point(np.zeros(1)), np.ones(1))
    one = prove(Head(source, axes, deltas, values), 1e-3)
    other = prove(Head(source, axes, deltas, values, np.zeros((5, 1, 1))), 1e-3)
    assert math.isclose(one.bound, other.bound, rel_tol=0.02)


def test_local_coordinates_of_an_oblique_cell():
    """x = origin + M z for a target of two variables and heads of one and two coordinates."""
    rng = np.random.default_rng(8)
    expression = Expression.parse("exp(x)*sin(2*y)", ("x", "y"))
    for E in (1, 2):
        matrix, origin = rng.normal(size=(2, E)) * 0.4, rng.normal(size=2) * 0.3
        axes, deltas = random_axes(rng, E, "bernstein")
        values, slopes = random_values(rng, axes)
        source = FromAffine(expression, Interval.point(origin), Interval.point(matrix))
        z = rng.uniform(-1.3, 1.1, (4000, E))
        away = np.abs(plain(axes, values, slopes, z)[0] - expression.evaluate(origin + z @ matrix.T)).max()
        bound = prove(Head(source, axes, deltas, values, slopes), away, np.full(E, -1.3), np.full(E, 1.1)).bound
        assert away <= bound <= 1.3 * away
    scaled = FromAffine.scaled(expression, np.array([0.1, 0.2]), np.array([0.5, 0.25]))
    point = scaled.at([np.array([1.0]), np.array([-1.0])], 0.0)
    assert point.lo[0, 0] <= math.exp(0.6) * math.sin(-0.1) <= point.hi[0, 0]


def exact(axes, values, slopes, z):
    """g at a point of exact numbers, by balls of 200 bits."""
    total, norm = flint.arb(0), flint.arb(0)
    for index in np.ndindex(*values.shape[:-1]):
        logit = sum((z[e] * float(axes[e].slopes[j]) + float(axes[e].offsets[j]) for e, j in enumerate(index)), flint.arb(0))
        value = flint.arb(float(values[index][0])) + sum((z[e] * float(slopes[index][0, e]) for e in range(len(z))), flint.arb(0))
        total, norm = total + logit.exp() * value, norm + logit.exp()
    return total / norm


def test_points_are_evaluated_as_well_as_stated():
    """One cell of degree (1, 1) against a constant target: the worst of its points, in balls, lies within the doubt."""
    rng = np.random.default_rng(21)
    before, flint.ctx.prec = flint.ctx.prec, 200
    try:
        for _ in range(6):
            axes, deltas = random_axes(rng, 2, "generic")
            values, slopes = random_values(rng, axes)
            source = FromExpression(Expression.parse("0*x + 0*y", ("x", "y")), Interval.point(np.zeros(2)), np.ones(2))
            low, high = np.array([0.1, -0.7]), np.array([0.3, 1.9])
            head, n = Head(source, axes, deltas, values, slopes), 6
            for precise in (True, False):  # in extended precision at the exact points, in float64 at rounded ones
                top, doubt = head.at_points(low, high, (n, n), precise)
                rounded = [chebyshev(float(a), float(b), n).astype(np.float64) for a, b in zip(low, high, strict=True)]
                worst = flint.arb(0)
                for i in range(n):
                    for j in range(n):
                        z = []
                        for a, b, k in ((low[0], high[0], i), (low[1], high[1], j)):
                            angle = flint.arb.pi() * (2 * k + 1) / (2 * n)
                            z.append((flint.arb(float(a)) + float(b)) / 2 + (flint.arb(float(b)) - float(a)) / 2 * angle.cos())
                        if not precise:
                            z = [flint.arb(float(rounded[0][i])), flint.arb(float(rounded[1][j]))]
                        worst = worst.max(abs(exact(axes, values, slopes, z)))
                assert abs(worst - top).upper() <= doubt
                assert doubt < (1e-13 if precise else 3e-10) * float(np.abs(values).max() + np.abs(slopes).max())
    finally:
        flint.ctx.prec = before


def test_weights_agree_with_the_definition():
    axes, _ = random_axes(np.random.default_rng(2), 1, "bernstein")
    z = np.linspace(-1, 1, 7)
    values, slopes = np.ones((len(axes[0]), 1)), np.zeros((len(axes[0]), 1, 1))
    np.testing.assert_allclose(axis_weights(axes[0], z), plain(axes, values, slopes, z[:, None])[1], atol=1e-14)


def test_strips_hold_for_heads_that_are_not_centred():
    rng = np.random.default_rng(0)
    for trial in range(400):
        count, delta = int(rng.integers(1, 14)), float(10 ** rng.uniform(-0.5, 1.7))
        keys = bernstein(count, delta, ("float64", "float32", "bfloat16")[trial % 3], float(rng.uniform(-1, 1))).keys
        centre, reach, height = rng.uniform(-1, 1), rng.uniform(0.01, 1), rng.uniform(0, 0.98 * math.pi / delta)
        z = (centre + np.linspace(-reach, reach, 81)[:, None] + 1j * np.linspace(0, height, 9)).ravel()
        scores = np.multiply.outer(z, keys.slopes) + keys.offsets
        terms = np.exp(scores - scores.real.max(axis=1, keepdims=True))
        true = float((np.abs(terms).sum(axis=1) / np.abs(terms.sum(axis=1))).max())
        assert strip_factor(keys, delta, centre, reach, height) >= true * (1 - 1e-9)
        assert checker.strip(checker.Axis(keys.slopes, keys.offsets), centre, reach, height) >= true * (1 - 1e-9)


def test_a_steep_feature_off_the_centre_costs_few_tokens():
    layer = ma.compile("tanh(20*(x-0.2))*y", ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-4, method="spectral")
    assert layer.tokens <= 8 and layer.certificate.kind == "proved"
    assert check(*layer._record()).passed
