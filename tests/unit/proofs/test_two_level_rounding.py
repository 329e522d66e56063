"""Rounding of clusters: the bounds hold against 60 digits, for kinks and blends, and they are not hollow."""

import flint
import numpy as np
import pytest

from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.literal import literal
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.two_level import GroupErrors
from maxaffine.runtime import chooser


def exact(layer, x):
    """F, all p_k and all masses at a point, with 60 digits, from the stored numbers."""
    with flint.ctx.workprec(240):
        A = lambda v: flint.arb(float(v))  # noqa: E731
        (group,) = layer.groups
        z = [sum((A(m) * (A(xi) - A(c)) for m, xi, c in zip(row, x, layer.centre, strict=True)), A(0)) for row in group.matrix]
        pieces, scores = [], []
        for a, b, cluster in zip(group.site_slopes, group.site_offsets, group.clusters, strict=True):
            t = [(zi - A(o)) / A(r) for zi, o, r in zip(z, cluster.origin, cluster.radius, strict=True)]
            top = bottom = A(0)
            for j in np.ndindex(*cluster.shape):
                logit = sum((A(ax.slopes[i]) * s + A(ax.offsets[i]) for ax, i, s in zip(cluster.axes, j, t, strict=True)), A(0))
                value = A(cluster.values[j][0])
                if cluster.slopes is not None:
                    value += sum((A(G) * s for G, s in zip(cluster.slopes[j][0], t, strict=True)), A(0))
                top, bottom = top + logit.exp() * value, bottom + logit.exp()
            pieces.append(top / bottom)
            scores.append(sum((A(ai) * zi for ai, zi in zip(a, z, strict=True)), A(b)) + bottom.log())
        best = max(float(s.mid()) for s in scores)
        masses = [(s - A(best)).exp() for s in scores]
        total = sum(masses, A(0))
        masses = [m / total for m in masses]
        return sum((m * p for m, p in zip(masses, pieces, strict=True)), A(0)), pieces, masses


def grid_layer(rng, dtype, p=3, sharp=60.0, C=4):
    """Cells of a line side by side, each with p keys and affine values that agree roughly where cells meet."""
    radius = 1.0 / C
    centres = -1.0 + radius * (2 * np.arange(C) + 1)
    made = []
    for m in centres:
        values = np.sin(3 * m) + 0.1 * rng.normal(size=(p, 1))
        slopes = 3 * radius * np.cos(3 * m) + 0.1 * rng.normal(size=(p, 1, 1))
        keys = AxisKeys(rng.normal(size=p), rng.normal(size=p))
        made.append(Cluster(np.array([m]), np.array([radius]), (keys,), values, slopes))
    group = ClusterGroup(np.array([[1.0]]), sharp * centres[:, None], -sharp * centres**2 / 2, tuple(made))
    return GroupedLayer(np.array([0.125]), (group,), 0.0, np.array([-0.875]), np.array([1.125]), ((1, 1),), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(3))
def test_blends_round_no_more_than_their_bound(seed, dtype):
    rng = np.random.default_rng(seed)
    layer = grid_layer(rng, dtype, p=1 + seed, sharp=10.0 ** (1 + seed))
    (group,) = layer.groups
    x = rng.uniform(layer.low, layer.high, (40, 1))
    answers = [exact(layer, row) for row in x]
    size = max(abs(float(g.mid())) for g, _, _ in answers)
    blend = max(sum(float(m.mid()) * abs(float((p - g).mid())) for p, m in zip(ps, ms, strict=True)) for g, ps, ms in answers)
    for runtime, bound in (
        ("two-level", GroupErrors.of(layer, group).blended(blend, size)),
        ("dense", literal(layer, (ProvedBlend(blend, size),)).total),
    ):
        bound += output_rounding(layer, size)
        found = chooser.evaluate(layer, x, runtime)[:, 0, 0]
        error = max(abs(float((flint.arb(float(v)) - g).mid())) for v, (g, _, _) in zip(found, answers, strict=True))
        assert error <= bound < (1e-10 if dtype == "float64" else 0.2), (runtime, error, bound)


@pytest.mark.parametrize("dtype, sharp", [("float64", 1e8), ("float64", 1e3), ("float32", 1e4), ("float32", 1e7)])
def test_kinks_round_by_their_slope_and_not_by_their_logits(dtype, sharp):
    """|x - 0.3 y| from two tokens: kappa = 1/sharp per unit of score, and the error at the kink is W0(1/e) kappa."""
    direction = np.array([1.0, -0.3])
    one = AxisKeys(np.zeros(1), np.zeros(1))
    made = tuple(
        Cluster(np.zeros(2), np.ones(2), (one, one), np.zeros((1, 1, 1)), s * direction.reshape(1, 1, 1, 2)) for s in (1.0, -1.0)
    )
    group = ClusterGroup(np.eye(2), np.outer([sharp, -sharp], direction), np.zeros(2), made)
    layer = GroupedLayer(np.zeros(2), (group,), 0.0, -np.ones(2), np.ones(2), ((2, 1),), dtype)
    (stored,) = layer.groups
    kappa = 1.0 / sharp
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 1, 400)
    gap = rng.uniform(-4, 4, 400) / sharp
    x = np.stack([0.3 * y + gap, y], axis=1)
    # The stored directions are rounded, so f is the maximum of the stored pieces: exactly what the tokens say.
    slopes = np.stack([c.slopes[0, 0, 0].astype(np.float64) for c in stored.clusters])
    f = np.array([max(float(flint.arb(float(a)) * float(u) + flint.arb(float(b)) * float(v)) for a, b in slopes) for u, v in x])
    for runtime, bound in (
        ("two-level", GroupErrors.of(layer, stored).mixed(kappa, 2.0)),
        ("dense", literal(layer, (ProvedBlend(0.3 * kappa, 2.0, kappa=kappa),)).total),
    ):
        away = np.abs(chooser.evaluate(layer, x, runtime)[:, 0, 0].astype(np.float64) - f).max()
        whole = 0.2784645427610738 * kappa + bound + output_rounding(layer, 2.0)
        assert away <= whole
        # the literal form may form its values in float32 as well
        assert bound < (4e-14 if dtype == "float64" else 2e-6 if runtime == "two-level" else 2e-5)
    assert away > 0.2 * kappa or dtype == "float32"
