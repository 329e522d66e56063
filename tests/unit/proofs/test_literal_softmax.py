"""The literal softmax: its bound against forced errors of logits, normalisers by convexity, spreads, and what is asked for."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs import literal_clusters as module
from maxaffine.proofs.literal import MOST_TOKENS, literal
from maxaffine.proofs.literal_clusters import spread
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.normalisers import normaliser_range, wanted_bonus

LINE = ma.Box(x=(-1, 1))
SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))


@pytest.fixture(scope="module")
def kink():
    return ma.compile("abs(sin(7*x))", LINE, error=1e-4)


@pytest.fixture(scope="module")
def total():
    return ma.compile("abs(sin(5*x))+cos(y)**2", SQUARE, error=1e-4)


@pytest.fixture(scope="module")
def disc():
    return ma.compile("max(x**2+y**2,0.5)", SQUARE, error=1e-2)


def cluster(rng, shape, affine=True):
    E = len(shape)
    axes = tuple(AxisKeys(np.sort(rng.normal(size=n)) * 3.0, rng.normal(size=n)) for n in shape)
    slopes = rng.normal(size=(*shape, 1, E)) if affine else None
    return Cluster(np.zeros(E), np.ones(E), axes, rng.normal(size=(*shape, 1)), slopes)


def direct_spread(one, t):
    """sum_j w_j |v_j - p| at points t (M, E)."""
    logits = 0.0
    for e, axis in enumerate(one.axes):
        along = np.multiply.outer(t[:, e], axis.slopes) + axis.offsets
        logits = logits + along.reshape(len(t), *[-1 if i == e else 1 for i in range(len(one.axes))])
    w = np.exp(logits - logits.max(axis=tuple(range(1, logits.ndim)), keepdims=True)).reshape(len(t), -1)
    w /= w.sum(axis=1, keepdims=True)
    v = one.values.reshape(1, -1)
    if one.slopes is not None:
        v = v + t @ one.slopes.reshape(-1, len(one.axes)).T
    return (w * np.abs(v - (w * v).sum(axis=1, keepdims=True))).sum(axis=1)


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (3, 4), (2, 2, 3)])
def test_spread_is_an_upper_bound_and_close(shape):
    rng = np.random.default_rng(len(shape) * 10 + shape[0])
    for trial in range(6):
        one, reach = cluster(rng, shape, affine=trial % 2 == 0), rng.uniform(0.3, 1.5, len(shape))
        seen = float(direct_spread(one, rng.uniform(-reach, reach, (20000, len(shape)))).max())
        found = spread(one, reach)
        assert seen <= found * (1 + 1e-12)
        assert found <= (1.2 if len(shape) == 1 else 8.0) * seen + 1e-12


def test_normalisers_lie_in_their_range_and_reach_it(total, disc):
    rng = np.random.default_rng(2)
    for layer in (total.weights, disc.weights):
        x = np.concatenate([rng.uniform(layer.low, layer.high, (20000, 2)), [[-1, -1], [1, 1], [1, -1], [-1, 1]]])
        for group in layer.groups:
            slopes, offsets = group.listed()
            logits = ((x - layer.centre) @ group.matrix.T) @ slopes.T + offsets
            top = logits.max(axis=1, keepdims=True)
            level = (top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))[:, 0]
            low, high = normaliser_range(layer, group)
            assert low <= level.min() and level.max() <= high
            steep = float(np.abs(slopes).max()) * 2e-2  # what random points may miss
            assert level.min() - low <= 0.5 + steep and high - level.max() <= 0.5 + steep


def test_the_bias_keeps_groups_apart_whatever_their_scores(disc):
    layer = disc.weights
    x = np.array([[1.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    assert np.abs(disc(x, runtime="dense") - disc(x)).max() < 1e-12
    assert layer.bonus == wanted_bonus(layer, 1e-14) > 80.0  # edge scores exceed what was a constant
    from dataclasses import replace

    bare = replace(layer, bonus=80.0)
    assert literal(bare, disc.certificate.blends).leakage > 0.01
    assert literal(layer, disc.certificate.blends).leakage < 1e-13


def test_forced_errors_of_logits_stay_within_the_bound_and_come_near_it(kink):
    """Every token's logit moved by as much as the account allows, in the worst direction found."""
    layer, rng = kink.weights, np.random.default_rng(4)
    (group,) = layer.groups
    assert isinstance(group, ClusterGroup)
    slopes, offsets = group.listed()
    values, lean = group.listed_values()
    x = np.sort(rng.uniform(-1, 1, 4000))[:, None]
    z = (x - layer.centre) @ group.matrix.T
    logits = z @ slopes.T + offsets
    v = values[:, 0] + z @ lean[:, 0].T
    sizes = np.abs(z) @ np.abs(slopes).T + np.abs(offsets)
    w = np.exp(logits - logits.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    F = (w * v).sum(axis=1, keepdims=True)
    moved = w * np.exp(4.0 * 2.0**-53 * sizes * np.sign(v - F))  # four roundings of a logit, all to one side
    away = np.abs((moved * v).sum(axis=1) / moved.sum(axis=1) - F[:, 0]).max()
    bound = literal(layer, kink.certificate.blends).rounding
    assert 0.02 * bound < away < bound


def test_every_term_counts(kink, monkeypatch):
    whole = literal(kink.weights, kink.certificate.blends).rounding
    (heard,) = kink.certificate.blends
    clusters = kink.weights.groups[0].clusters
    near, far = ([spread(one, scale * row) for one, row in zip(clusters, heard.reach, strict=True)] for scale in (1.0, 3.0))
    assert max(near) > 1.0 and all(a <= b * 1.05 for a, b in zip(near, far, strict=True))
    assert literal(kink.weights, (ProvedBlend(100.0 * heard.blend, heard.size, heard.reach, heard.far),)).rounding > whole
    monkeypatch.setattr(module, "EXP_ULPS", 1e12)
    assert literal(kink.weights, kink.certificate.blends).rounding > 10 * whole


def test_float32_arithmetic_costs_more_and_says_where_it_ends(kink):
    narrow = ma.compile("abs(sin(7*x))", LINE, error=2e-2, dtype="float32")
    bounds = narrow.literal
    assert narrow.bound < bounds["float64"] < bounds["float32"]
    assert set(kink.literal) == {"float64"}


def test_literal_asks_for_softer_kinks():
    plain = ma.compile("abs(sin(7*x))", LINE, error=1e-6)
    soft = ma.compile("abs(sin(7*x))", LINE, error=1e-6, literal=True)
    assert plain.statement("matrices").bound > 1e-6 >= soft.statement("matrices").bound
    assert plain.tokens < soft.tokens <= 60
    from maxaffine.report.text import summary

    assert "literal=True" in summary(plain) and "literal" not in summary(soft)
    assert ma.compile("max(x,y)", SQUARE, error=1e-8, literal=True).tokens == 2


def test_what_no_literal_softmax_holds_is_refused():
    with pytest.raises(Refused, match="literal") as refusal:
        ma.compile("abs(sin(7*x))", LINE, error=1e-9, literal=True)
    assert any("literal softmax is proved to" in line for line in refusal.value.tried)
    with pytest.raises(BadInput, match="`literal`"):
        ma.compile("abs(sin(7*x))", LINE, error=1e-2, literal="yes")


def test_too_many_tokens_are_no_literal_layer():
    big = ma.compile("sin(x) + cos(y)", ma.Box(x=(-math.pi, math.pi), y=(-math.pi, math.pi)), error=1e-2, method="lookup")
    assert big.tokens > MOST_TOKENS
    for route in ("multihead", "matrices", "literal onnx"):
        assert "tokens" in big.statement(route).why and big.statement(route).bound is None
    assert big.statement("module").bound == big.bound
