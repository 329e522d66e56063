"""Literal forms of a group of clusters: errors of logits that tokens share or have for themselves, spreads, values."""

import math
from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, Dtype, gamma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import moments, pieces
from maxaffine.proofs.literal_form import EXP_ULPS, LARGEST, SEEN, UNRESOLVED, UP, Column, ProvedBlend, Query, Softmax, U
from maxaffine.proofs.two_level import largest_value

FOLLOWED = 4  # coordinates in which the spread of a cluster's values is followed piece by piece


def cluster_column(layer: GroupedLayer, group: ClusterGroup, proved: ProvedBlend, form: Dtype, stands: Softmax) -> Column:
    """A group of clusters in its own query column."""
    query = Query.of(layer, group.matrix, form)
    size, bonus, tokens = query.size, stands.bonus, stands.tokens
    whole = np.stack([(size * (1 + query.part) + np.abs(c.origin)) / c.radius for c in group.clusters]) * UP  # |t| over the box
    reach = whole if proved.reach is None else np.minimum(proved.reach, whole)
    spreads = []
    inside = shared = all_over = values = top = steepest = 0.0
    for k, cluster in enumerate(group.clusters):
        here = np.minimum(np.abs(cluster.origin) + cluster.radius * reach[k], size) * UP  # |z| where it answers
        near, away = (_logit(group, k, cluster, z, query.error(z), bonus, form) for z in (here, size))
        blur = math.expm1(2.0 * min(near.own, 1.0))
        spreads.append(spread(cluster, reach[k], 0.01 * proved.blend / blur))
        inside = max(inside, blur * spreads[k] if near.own < 1.0 or cluster.count == 1 else math.inf)
        shared, all_over = max(shared, near.shared + near.own), max(all_over, away.shared + away.own)
        values = max(values, _value_error(layer, cluster, here, query, form))
        top, steepest = max(top, largest_value(cluster, whole[k])), max(steepest, away.slip)
        if not away.top < LARGEST[form.name]:
            return UNRESOLVED
    if all(cluster.count == 1 for cluster in group.clusters) and math.isfinite(proved.kappa):
        moved = 2.0 * proved.kappa * all_over
        mean = proved.size + proved.blend + moved
        total = moved + values + gamma(2 * tokens + layer.dimension + 20, form.unit) * 2.0 * mean
        total += tokens * 4.0 * form.tiny * (top + proved.size)
        return Column(total * UP, mean * UP, all_over, top + proved.size)
    far = math.expm1(2.0 * all_over) * 2.0 * proved.far if all_over < 0.1 else math.inf
    if not all_over < 0.1:
        far = _far(proved, 0.0 if query.alone.all() else steepest, len(size), bonus, form)
        all_over = shared + 1.0  # beyond its reach a cluster trails by more than its logits may be wrong
    if not (shared < 1.0 and math.isfinite(inside + far + top)):
        return UNRESOLVED
    masses = math.exp(2.0 * shared)
    total = masses * (inside + far + values) + math.expm1(2.0 * shared) * 2.0 * proved.blend
    mean = proved.size + proved.blend + max(spreads) + 2.0 * proved.far  # sum W |v|
    total += masses * gamma(2 * tokens + layer.dimension + 20, form.unit) * 2.0 * mean
    total += tokens * (4.0 * form.tiny + 2.0 * math.exp(-SEEN) * 800.0 * form.unit) * (top + proved.size)
    return Column(total * UP, (proved.size + proved.blend) * UP, all_over, top + proved.size)


def factor_column(layer: GroupedLayer, group: FactorGroup, proved: ProvedBlend, form: Dtype, stands: Softmax) -> Column:
    """A product in its own query column: its combinations, whose offsets are rounded sums and whose values rounded products.

    Offsets off by d move the masses by e^{2 d} - 1, values off by rho times their size move the rest: the listed layer is within
    (e^{2 d} - 1) blend + e^{2 d} rho weight of the product, and so is its own blend of the product's.
    """
    listed, E = group.combined, len(group.factors)
    wider = math.expm1(2.02 * U * float(np.abs(listed.site_offsets).max()))  # of masses
    tops = [
        max(float(np.abs(a).max()) for cluster in one.clusters for a in (cluster.values, cluster.slopes) if a is not None)
        for one in group.factors
    ]
    wide = np.abs(group.matrix) @ (layer.high - layer.low)
    far = max(float(((wide + np.abs(cluster.origin)) / cluster.radius).max()) for cluster in listed.clusters)
    below = E * FLOAT64.tiny * math.prod(max(top, 1.0) for top in tops) * (1.0 + far)
    moved = (wider * proved.blend + (1.0 + wider) * (gamma(E + 2, U) * proved.weight + below)) * UP
    known = replace(proved, blend=(proved.blend + moved) * UP, far=proved.far * (1.0 + wider) * (1.0 + gamma(E + 2, U)) * UP)
    made = cluster_column(layer, listed, known, form, stands)
    return replace(made, lost=made.lost + moved)


def _far(proved: ProvedBlend, slip: float, E: int, bonus: float, form: Dtype) -> float:
    """What clusters beyond their reach say, exactly and as computed, where their logits are wrong by more than a little there.

    Lags lose a part of the size of the logits, which grows `pace` times as fast as they do, and `slip` everywhere.
    """
    part = 2.0 * (gamma(E + 40, form.unit) + gamma(2 * E + 20, U))
    if not (part * proved.pace <= 0.1 and part * (proved.edge + 2.0 * bonus) + 4.0 * slip <= 1.0):
        return math.inf
    return proved.far * (1.0 + 1.25 * math.exp(2.0 * part * (proved.edge + 2.0 * bonus) + 8.0 * slip))


@dataclass(frozen=True)
class _Logit:
    """Errors of a cluster's logits: what its tokens share, what each has for itself, what z adds; and the largest logit."""

    shared: float
    own: float
    slip: float
    top: float


def _logit(
    group: ClusterGroup, k: int, cluster: Cluster, z: Array, error: Array, bonus: float, form: Dtype
) -> _Logit:
    """Over |z_e| <= z[e]."""
    E = len(z)
    a, b = np.abs(group.site_slopes[k].astype(np.float64)), abs(float(group.site_offsets[k]))
    alpha = np.array([np.abs(axis.slopes.astype(np.float64)).max() for axis in cluster.axes]) / cluster.radius
    beta = sum(float(np.abs(axis.offsets.astype(np.float64)).max()) for axis in cluster.axes)
    inner = float(alpha @ (z + error + np.abs(cluster.origin))) + beta  # of what a token has for itself
    top = float((a + alpha) @ (z + error)) + b + beta + float(alpha @ np.abs(cluster.origin)) + bonus
    # the query's error, the scaling of queries, the constant row
    shared = float(a @ error) + gamma(12, form.unit) * (float(a @ z) + b + bonus)
    # slopes and offset as listed, in float64 and then in the form's dtype; products and sums; the query within the cluster
    own = float(alpha @ error) + gamma(12, form.unit) * inner + gamma(2 * E + 8, U) * inner
    own += 2.0 * U * top + gamma(E + 4, form.unit) * top
    own += form.unit * (min(2.0 * top, SEEN) + EXP_ULPS + 6.0)
    return _Logit(shared * UP, own * UP, float((a + alpha) @ error) * UP, top)


def spread(cluster: Cluster, reach: Array, enough: float = 0.0) -> float:
    """sup over |t_e| <= reach_e of sum_j w_j |v_j - p|, p the mean of the values v_j under the weights w_j.

    At most the root of the second moment about any affine function m, and so at most max |v_j - m|, which is taken where it is
    small `enough`; else it is followed from piece to piece.
    """
    if cluster.count == 1:
        return 0.0
    c = cluster.values.astype(np.float64).reshape(cluster.count, -1)
    G = np.zeros((*c.shape, len(reach)))
    if cluster.slopes is not None:
        G = cluster.slopes.astype(np.float64).reshape(*c.shape, -1)
    level, lean = (c.max(axis=0) + c.min(axis=0)) / 2.0, (G.max(axis=0) + G.min(axis=0)) / 2.0
    crude = float((np.abs(c - level) + np.abs(G - lean) @ reach).max()) * (1 + 1e-9)
    if crude <= enough or not math.isfinite(crude) or len(reach) > FOLLOWED:
        return crude
    if len(reach) > 1:
        return min(crude, _several(cluster, c, G, reach))
    (axis,) = cluster.axes
    slopes, offsets = axis.slopes.astype(np.float64), axis.offsets.astype(np.float64)
    span, r = float(np.ptp(slopes)), float(reach[0])
    count = int(np.clip(60.0 * span * r, 32, 4000))
    half = r / count * (1 + 1e-12)
    grow = math.exp(min(span * half, 50.0))  # of a weight, from the middle of a piece
    t = -r + half * (2.0 * np.arange(count) + 1.0)
    logits = np.multiply.outer(t, slopes) + offsets
    w = np.exp(logits - logits.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    worst = 0.0
    for column in range(c.shape[1]):
        steep = G[:, column, 0] - lean[column, 0]
        v = c[:, column] - level[column] + np.multiply.outer(t, steep)
        apart = (w * np.abs(v - (w * v).sum(axis=1, keepdims=True))).sum(axis=1)
        # the mean moves by (grow - 1) sum w |v - p| + grow sum w |G| half inside a piece
        moved = (w * np.abs(steep)).sum(axis=1) * half
        worst = max(worst, float(((2.0 * grow - 1.0) * apart + 2.0 * grow * moved).max()))
    return min(crude, worst * (1 + 1e-9))


def _several(cluster: Cluster, c: Array, G: Array, reach: Array) -> float:
    """`spread` along several coordinates, by second moments on equal pieces."""
    axes = tuple(
        AxisKeys(axis.slopes.astype(np.float64) * r, axis.offsets.astype(np.float64))
        for axis, r in zip(cluster.axes, reach, strict=True)
    )
    most, E = {2: 24, 3: 10}.get(len(axes), 6), len(axes)
    ones = tuple(np.full((len(nodes), len(axis)), 1.0 / E) for axis, (nodes, _) in zip(axes, pieces(axes, most), strict=True))
    shape = (*cluster.shape, c.shape[1])
    try:
        return moments(axes, c.reshape(shape), (G * reach).reshape(*shape, E), ones, most).rounding
    except Refused:
        return math.inf


def _value_error(layer: GroupedLayer, cluster: Cluster, here: Array, query: Query, form: Dtype) -> float:
    """The largest error of a computed value of a cluster's tokens where it answers; sums of such are counted elsewhere."""
    E = len(here)
    c = np.abs(cluster.values.astype(np.float64)).reshape(cluster.count, -1)
    if cluster.slopes is None:
        return gamma(6, form.unit) * float(c.max()) * UP
    G = np.abs(cluster.slopes.astype(np.float64)).reshape(*c.shape, E) / cluster.radius
    error = query.error(here)
    # values are formed in x: the terms of an oblique coordinate are as large as the box, however small the coordinate is
    sizes = c + G @ (np.abs(cluster.origin) + np.where(query.alone, here, query.size) + error)
    lost = G @ error + (gamma(2 * E + 10, U) + gamma(E + layer.dimension + 8, form.unit)) * sizes
    return float((lost + gamma(layer.dimension + 8, U) * (G @ query.away(here))).max()) * UP
