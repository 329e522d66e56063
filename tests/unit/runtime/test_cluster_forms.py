"""Clusters as polynomials between edges and as patches: never farther from the head than they say."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import two_level
from maxaffine.runtime.audible import OVER, Keys, finer, heard_on
from maxaffine.runtime.blends import blends
from maxaffine.runtime.gpu.compress import fewest_products
from maxaffine.runtime.gpu.listed import listed
from maxaffine.runtime.gpu.patched import patched as in_dtype
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
    v = (2.0 * (place - cell) - 1.0) / (1.0 + OVER)
    at = np.ravel_multi_index(tuple(cell.T), made.shape)
    powers = v[:, :, None] ** np.arange(made.degree + 1)
    each = "pab,pa,pb->p" if z.shape[1] == 2 else "pabc,pa,pb,pc->p"
    ones = np.concatenate([np.ones((len(z), 1)), v, v * v], axis=1)
    score, value = np.full((len(z), made.most), -np.inf), np.zeros((len(z), made.most))
    for m in range(made.most):
        live = m < made.count[at]
        row = np.where(live, made.first[at] + m, 0)
        score[:, m] = np.where(live, (made.scores[row] * ones).sum(axis=1), -np.inf)
        value[:, m] = np.einsum(each, made.values[row], *powers.transpose(1, 0, 2))
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    return (weight * value).sum(axis=1) / weight.sum(axis=1)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("max(x**2 + y**2, 0.5)", 1e-2),
        ("abs(x + 2*y - 0.3)*cos(x*y)", 1e-4),
        ("sqrt(x**2 + y**2)", 3e-2),
        ("abs(x + y + z)*exp(x*y)", 1e-2),
    ],
)
def test_patches_stay_as_near_as_they_say(text, error):
    names = [name for name in "xyz" if name in text.replace("exp", "").replace("max", "")]
    layer, E = ma.compile(text, dict.fromkeys(names, (-1, 1)), error=error), len(names)
    groups = [one for one in layer.weights.groups if one.clustered and len(one.matrix) == E]
    group = max(groups, key=lambda one: len(one.clusters))
    made = patches(group, (1.0,) * E, error / 16.0)
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.uniform(-1, 1, (4000, E)), rng.choice([-1.0, 0.0, 1.0], (50, E))])
    whole = in_dtype(group, np.zeros(E), np.ones(E), "float64", error / 16.0)
    assert float(np.abs(patched(made, z) - said(group, z)).max()) <= whole.off + 1e-13
    assert whole.off <= 3.0 * error / 16.0


def test_few_tokens_stay_in_registers_within_a_little():
    reach = np.ones(2)
    for text in ("max(x, y)", "max(x, y, 0.3*x - y, 0)"):
        (group,) = ma.compile(text, {"x": (-1, 1), "y": (-1, 1)}, error=1e-3).weights.groups
        made = listed(group, np.zeros(2), reach, "float32")
        assert made.scored + made.moved + made.evaluated < 1e-5


def test_a_finer_grid_hears_the_same_by_way_of_a_coarser_one():
    layer = ma.compile("sqrt(x**2 + y**2)", {"x": (-1, 1), "y": (-1, 1)}, error=3e-2)
    (group,) = (one for one in layer.weights.groups if one.clustered)
    keys, low, high = Keys.of(group), -np.ones(2), np.ones(2)
    coarse = heard_on(keys, low, high, 16, 12.0)
    by_way, whole = finer(keys, low, high, 64, 12.0, coarse, 16), heard_on(keys, low, high, 64, 12.0)
    for name in ("cell", "cluster", "best", "count"):
        assert np.array_equal(getattr(by_way, name), getattr(whole, name)), name


def test_a_series_of_two_directions_may_have_fewer_numbers_than_terms():
    rng = np.random.default_rng(0)
    (one, other), lost = fewest_products((rng.normal(size=(7, 3)), rng.normal(size=(2, 3))), 1.0)
    assert one.shape[1] == other.shape[1] <= 3 and lost <= 1.0


# -- what errors of scores and steps of the query cost, found from the numbers of the heads


def softmax_of(scores, values):
    weight = np.exp(scores - scores.max(axis=0))
    return (weight * values).sum(axis=0) / weight.sum(axis=0)


def polynomial(rows, v):
    """Coefficients of 1, v_0, v_1, v_0^2, v_1^2 at points v."""
    return rows @ np.concatenate([np.ones((len(v), 1)), v, v * v], axis=1).T


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("meet", [True, False])
def test_what_errors_of_scores_cost_is_never_said_too_small(seed, meet):
    rng = np.random.default_rng(seed)
    count, sharp = 2 + seed, 10.0 ** rng.uniform(-0.5, 1.5)
    scores = rng.normal(size=(count, 5)) * sharp * np.array([1.0, 1.0, 1.0, 0.2, 0.2])
    rest = rng.normal(size=(count, 5)) * (1e-3 if meet else 1.0)
    values = scores / sharp + rest  # heads that meet where their scores do, or anywhere
    eta = rng.uniform(0.0, 1.0, count) * 10.0 ** rng.uniform(-4, 0)
    found = blends(np.zeros(count, dtype=np.int64), 1, scores, values, eta)
    v = np.concatenate([rng.uniform(-1, 1, (4000, 2)), rng.choice([-1.0, 1.0], (8, 2))])
    s, heads = polynomial(scores, v), polynomial(values, v)
    exact, worst = softmax_of(s, heads), 0.0
    for _ in range(40):
        worst = max(worst, float(np.abs(softmax_of(s + (eta * rng.choice([-1.0, 1.0], count))[:, None], heads) - exact).max()))
    assert worst <= found.off[0]
    step = 1e-5
    for e in range(2):
        other = polynomial(scores, v + step * np.eye(2)[e])
        assert float(np.abs(softmax_of(other, heads) - exact).max()) / step <= found.steered[0, e] * 1.001 + 1e-6
    assert float(np.ptp(heads, axis=0).max()) <= found.apart[0]


def test_a_pair_that_meets_costs_what_a_kink_costs():
    scores, values = np.array([[0.0, 0, 0], [0.0, 800.0, 0]]), np.array([[0.0, 0, 0], [0.0, 2.0, 0]])
    found = blends(np.zeros(2, dtype=np.int64), 1, scores, values, np.array([0.0, 1e-3]))
    assert 0.2240 * 2.0 / 800.0 * 1e-3 <= found.off[0] <= 0.2250 * 2.0 / 800.0 * 1e-3
