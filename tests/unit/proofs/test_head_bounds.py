"""Bounds of spectral heads against brute force: complex strips, rounding, slopes, and the cases that once broke them."""

import math

import numpy as np
import pytest

from maxaffine.checker.head import Head as CheckedHead
from maxaffine.checker.head_rounding import rounding as checked_rounding
from maxaffine.checker.local_error import strip as checked_strip
from maxaffine.checker.reader import Axis
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT32, FLOAT64
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein, gaussian, rounded
from maxaffine.proofs import head_bounds
from maxaffine.proofs.head_bounds import etas_for, mean_eta, moments, strip_factor


def true_strip(keys, centre, reach, height, count=81):
    """max over the rectangle of sum_j |w_j(z)|, by sampling."""
    x, y = np.linspace(centre - reach, centre + reach, count), np.linspace(0.0, height, 25)
    z = (x[:, None] + 1j * y[None]).ravel()
    scores = np.multiply.outer(z, keys.slopes.astype(float)) + keys.offsets.astype(float)
    scores -= scores.real.max(axis=1, keepdims=True)
    e = np.exp(scores)
    return float((np.abs(e).sum(axis=1) / np.maximum(np.abs(e.sum(axis=1)), 1e-300)).max())


def random_keys(rng, count):
    return AxisKeys(np.sort(rng.normal(0, 10 ** rng.uniform(-1, 1.5), count)), rng.normal(0, 3, count))


def strips(keys, delta, centre, reach, height):
    axis = Axis(keys.slopes.astype(float), keys.offsets.astype(float))
    return strip_factor(keys, delta, centre, reach, height), checked_strip(axis, centre, reach, height)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("count, delta", [(2, 4.0), (7, 1.0), (12, 2.0), (24, 2.8), (40, 1.4), (64, 4.0)])
def test_bernstein_strips_dominate_the_weights_of_stored_keys(dtype, count, delta):
    keys = bernstein(count, delta, dtype).keys
    known = 0
    for height in np.array([0.05, 0.2, 0.5, 0.7, 0.9]) * math.pi / delta:
        for centre, reach in ((0.0, 1.5), (0.5, 0.7), (-0.9, 0.2)):
            for bound in strips(keys, delta, centre, reach, float(height)):
                assert bound >= true_strip(keys, centre, reach, float(height)) * (1 - 1e-12)
                known += math.isfinite(bound)
    assert known or dtype == "bfloat16"


def test_generic_strips_dominate_the_weights_of_any_keys():
    rng = np.random.default_rng(0)
    known = 0
    for trial in range(300):
        keys = random_keys(rng, int(rng.integers(2, 20)))
        if trial % 3 == 0:
            keys = gaussian(int(rng.integers(10, 24)), 2, 0.75, "float64").keys
        centre, reach, height = rng.uniform(-1, 1), 10 ** rng.uniform(-3, 0), 10 ** rng.uniform(-3, 0)
        for bound in strips(keys, None, centre, reach, height):
            if math.isfinite(bound):
                known += 1
                assert bound >= true_strip(keys, centre, reach, height) * (1 - 1e-12)
    assert known > 100


def test_the_second_moment_is_sharp_for_two_equal_keys():
    # slopes +-a, equal weights: sum |w| = 1/cos(ay) = 1 + a^2 y^2/2 + ..., and V = a^2 at reach 0.
    keys = AxisKeys(np.array([-1.0, 1.0]), np.zeros(2))
    for y in (1e-3, 0.03, 0.3):
        for bound in strips(keys, None, 0.0, 0.0, y):
            assert 1 / math.cos(y) <= bound <= 1 / (1 - y * y / 2) * (1 + 1e-8)


def test_keys_whose_weight_underflows_at_the_centre_are_not_forgotten():
    # The second key takes over at 0.533, a pole of the weights 0.0021 off the real axis; at 0 its weight is e^-800.
    keys = AxisKeys(np.array([0.0, 1500.0]), np.array([0.0, -800.0]))
    assert true_strip(keys, 0.0, 1.0, 0.003, 4001) > 5
    assert all(math.isinf(bound) for bound in strips(keys, None, 0.0, 1.0, 0.003))


@pytest.mark.parametrize(
    "dtype, count, delta, part", [("bfloat16", 5, 1.0, 0.8), ("float32", 8, 0.3, 0.9), ("bfloat16", 8, 1.0, 0.6)]
)
def test_the_formula_of_ideal_keys_is_exceeded_by_stored_keys_and_the_bound_is_not(dtype, count, delta, part):
    ideal, stored = bernstein(count, delta, "float64").keys, bernstein(count, delta, dtype).keys
    height = part * math.pi / delta
    closed = math.cos(delta * height / 2) ** -(count - 1)
    assert true_strip(ideal, 0.0, 1.0, height) <= closed * (1 + 1e-9)
    assert true_strip(stored, 0.0, 1.0, height) > closed * 1.02
    for bound in strips(stored, delta, 0.0, 1.0, height):
        assert true_strip(stored, 0.0, 1.0, height) <= bound < math.inf


def brute(axes, values, etas_at, z):
    """|g|, sum w|c|, sum w eta |c-g| and |dg/dz_e| at points z (M, E), from the definition."""
    slopes = np.stack([a.ravel() for a in np.meshgrid(*(axis.slopes for axis in axes), indexing="ij")], axis=1)
    offsets = sum(np.meshgrid(*(axis.offsets for axis in axes), indexing="ij")).ravel()
    scores = z @ slopes.T + offsets
    w = np.exp(scores - scores.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    c = values.reshape(-1)
    g = w @ c
    gradient = np.stack([(w * (slopes[:, e] - (w @ slopes[:, e])[:, None])) @ c for e in range(len(axes))], axis=1)
    return (
        np.abs(g).max(),
        (w @ np.abs(c)).max(),
        (w * etas_at(z, slopes, offsets) * np.abs(c - g[:, None])).sum(axis=1).max(),
        gradient,
    )


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_moments_dominate_what_sampling_finds(dimension):
    rng = np.random.default_rng(dimension)
    for _ in range(6 if dimension < 3 else 2):
        axes = tuple(
            bernstein(int(rng.integers(2, 9)), float(rng.choice([0.5, 2.0, 4.0])), "float32").keys for _ in range(dimension)
        )
        values = rng.normal(size=(*(len(a) for a in axes), 1)) * 10 ** rng.uniform(-2, 3)
        found = moments(axes, values, None, etas_for(axes, FLOAT32, dimension + 2))
        z = np.concatenate([rng.uniform(-1, 1, (3000, dimension)), rng.choice([-1.0, 1.0], (8, dimension))])

        def etas_at(z, slopes, offsets, u=FLOAT32.unit, D=dimension):
            return u * ((D + 2) * (np.abs(z) @ np.abs(slopes).T) + 8)  # less than what is allowed for

        largest, absolute, rounding, gradient = brute(axes, values, etas_at, z)
        assert largest <= found.largest and absolute <= found.absolute and rounding <= found.rounding
        assert (np.abs(gradient).max(axis=0) <= np.array(found.slopes)).all()
        assert found.largest <= 1.5 * largest + 1e-300 or dimension == 3  # not uselessly wide


def test_the_checkers_moments_dominate_what_sampling_finds():
    rng = np.random.default_rng(5)
    for dimension in (1, 2):
        keys = tuple(bernstein(6, 2.0, "float64").keys for _ in range(dimension))
        values = rng.normal(size=(*(len(a) for a in keys), 1))
        axes = tuple(Axis(k.slopes.astype(float), k.offsets.astype(float)) for k in keys)
        head = CheckedHead(None, None, np.ones(dimension), axes, values)
        z = rng.uniform(-1, 1, (4000, dimension))
        u = FLOAT32.unit
        largest, _, rounding, gradient = brute(
            keys, values, lambda z, a, b: FLOAT32.unit * (3 * (np.abs(z) @ np.abs(a).T) + 8), z
        )
        lost, top = checked_rounding(head, np.zeros(dimension), u, 0.0, 36, False)
        moved, _ = checked_rounding(head, np.full(dimension, 1e-3), u, 0.0, 36, False)
        assert largest <= top and rounding <= lost
        assert (np.abs(gradient).max(axis=0).sum()) * 1e-3 <= moved - lost + 1e-15


def test_steep_keys_that_no_piece_resolves_are_refused():
    keys = AxisKeys(np.array([0.0, 4e5]), np.array([0.0, -2e5]))
    with pytest.raises(Refused, match="too steep"):
        moments((keys,), np.array([[0.0], [1.0]]), None, etas_for((keys,), FLOAT64, 3))


def test_etas_follow_the_written_formula():
    # gamma(terms) (|a z| + |b|) + u (gap + exp + 3), every quantity at its largest over the piece
    keys = rounded(np.array([-2.0, 1.0, 5.0]), np.array([0.5, 0.0, -3.0]), "float64")
    (eta,), ((nodes, half),) = etas_for((keys,), FLOAT64, 4), head_bounds.pieces((keys,))
    for i in (0, len(nodes) // 2, len(nodes) - 1):
        for z in (nodes[i] - half, nodes[i], nodes[i] + half):
            scores = keys.slopes * z + keys.offsets
            size = np.abs(keys.slopes * z) + np.abs(keys.offsets)
            written = 4 * FLOAT64.unit * size + FLOAT64.unit * (scores.max() - scores + FLOAT64.exp_ulps + 3)
            assert (eta[i] >= written * (1 - 1e-12)).all()
    assert mean_eta(keys, eta) <= eta.max() and mean_eta(keys, eta) > 0


def test_pieces_cover_a_little_more_than_the_box():
    for axes in ((bernstein(5, 2.0, "float64").keys,), (bernstein(5, 2.0, "float64").keys,) * 2):
        for nodes, half in head_bounds.pieces(axes):
            assert nodes[0] - half <= -1.0 - 2.0**-9 and nodes[-1] + half >= 1.0 + 2.0**-9
            assert np.diff(nodes).max() <= 2 * half * (1 + 1e-12)
