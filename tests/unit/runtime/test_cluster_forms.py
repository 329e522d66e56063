"""Clusters as polynomials between edges and as patches: never farther from the head than they say."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import two_level
from maxaffine.runtime.gpu.listed import Heard, listed
from maxaffine.runtime.patches import patches
from maxaffine.runtime.segments import segments

ALONG = {
    "kinks": ("abs(sin(7*x))", 1e-6),
    "poles": ("1/(1 + 25*x**2)", 1e-6),
    "a root": ("abs(x)**0.5", 1e-2),
    "many": ("abs(sin(40*x))", 1e-3),
    "close": ("abs(x - 0.37) + abs(x - 0.39)", 1e-4),
}


def alone(group):
    """The group as a layer in its own coordinates."""
    E = len(group.matrix)
    own = ClusterGroup(np.eye(E), group.site_slopes, group.site_offsets, group.clusters)
    return GroupedLayer(np.zeros(E), (own,), 0.0, -np.ones(E), np.ones(E), ((E, 1),), "float64")


def said(group, z):
    return two_level.evaluate(alone(group), z)[:, 0, 0]


def between(made, z, soft):
    """The pieces at z, by the hard choice of a side or the soft one."""

    def piece(k, at):
        y = np.clip((at - made.pieces[k].middle) * made.pieces[k].scale, -1.0, 1.0)
        return np.polyval(made.pieces[k].powers[::-1, 0], y)

    if not soft or len(made.edges) == 0:
        return np.array([piece(k, at) for k, at in zip(np.searchsorted(made.edges, z), z, strict=True)])
    nearest = np.searchsorted((made.edges[1:] + made.edges[:-1]) / 2.0, z)
    left, right = (np.array([piece(k + side, at) for k, at in zip(nearest, z, strict=True)]) for side in (0, 1))
    mass = np.clip(np.minimum(made.gains[nearest], 1e30) * (z - made.edges[nearest]), -80.0, 80.0)
    return left + (right - left) / (1.0 + np.exp(-mass))


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("soft", [False, True])
def test_polynomials_between_edges_stay_as_near_as_they_say(name, soft):
    text, error = ALONG[name]
    (group,) = (one for one in ma.compile(text, {"x": (-1, 1)}, error=error).weights.groups if one.clustered)
    dtype, eta = ("float64", 1e-15) if soft else ("float32", 6e-8)
    made = segments(group, -1.0, 1.0, error * 1e-3, eta, 14 if soft else 10, soft, dtype)
    near = [e + np.linspace(-40.0, 40.0, 161) / min(g, 1e9) for e, g in zip(made.edges, made.gains, strict=True)]
    z = np.clip(np.concatenate([np.random.default_rng(0).uniform(-1, 1, 2000), *near]), -1.0, 1.0)
    bound = made.error + (made.blended if soft else made.switched)
    seen = float(np.abs(between(made, z, soft) - said(group, z[:, None])).max())
    assert seen <= bound + 1e-13
    assert bound <= (0.1 if soft else 3.0) * error


def test_clusters_that_do_not_follow_one_another_have_no_pieces():
    (group,) = ma.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3).weights.groups
    with pytest.raises(Refused, match="one direction"):
        segments(group, -1.0, 1.0, 1e-6, 1e-7, 10, False, "float32")


def patched(made, z):
    """The patches at points z."""
    place = (z - made.low) / (made.high - made.low) * made.shape
    cell = np.clip(np.floor(place), 0, np.array(made.shape) - 1).astype(int)
    v = 2.0 * (place - cell) - 1.0
    at = cell[:, 0] * made.shape[1] + cell[:, 1]
    powers = v[:, :, None] ** np.arange(made.degree + 1)
    ones = np.concatenate([np.ones((len(z), 1)), v, v * v], axis=1)
    score, value = np.full((len(z), made.most), -np.inf), np.zeros((len(z), made.most))
    for m in range(made.most):
        live = m < made.count[at]
        row = np.where(live, made.first[at] + m, 0)
        score[:, m] = np.where(live, (made.scores[row] * ones).sum(axis=1), -np.inf)
        value[:, m] = np.einsum("pab,pa,pb->p", made.values[row], powers[:, 0], powers[:, 1])
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    return (weight * value).sum(axis=1) / weight.sum(axis=1)


@pytest.mark.parametrize(
    ("text", "error"), [("max(x**2 + y**2, 0.5)", 1e-2), ("abs(x + 2*y - 0.3)*cos(x*y)", 1e-4), ("sqrt(x**2 + y**2)", 3e-2)]
)
def test_patches_stay_as_near_as_they_say(text, error):
    layer = ma.compile(text, {"x": (-1, 1), "y": (-1, 1)}, error=error)
    groups = [one for one in layer.weights.groups if one.clustered and len(one.matrix) == 2]
    group = max(groups, key=lambda one: len(one.clusters))
    made = patches(group, -np.ones(2), np.ones(2), error / 16.0)
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.uniform(-1, 1, (4000, 2)), rng.choice([-1.0, 0.0, 1.0], (50, 2))])
    blend = 2.0 * np.expm1(2.0 * made.score_error) * max(one.blend + one.far for one in layer.certificate.blends if one)
    assert float(np.abs(patched(made, z) - said(group, z)).max()) <= made.error + made.unheard + blend + 1e-13


def test_few_tokens_need_a_proof_or_be_two():
    (two,) = ma.compile("max(x, y)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3).weights.groups
    (four,) = ma.compile("max(x, y, 0.3*x - y, 0)", {"x": (-1, 1), "y": (-1, 1)}, error=1e-3).weights.groups
    reach = np.ones(2)
    assert listed(two, np.zeros(2), reach, "float32", None).scored < 1e-4
    with pytest.raises(Refused, match="not bounded"):
        listed(four, np.zeros(2), reach, "float32", None)
    assert listed(four, np.zeros(2), reach, "float32", Heard(1e-3, 1e-3)).scored < 1e-5
