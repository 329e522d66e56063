"""What finite precision does to a group of clusters run by two levels; its literal softmax is proofs/literal.py's.

Let g = sum_k Omega_k p_k be the layer of the stored numbers in exact arithmetic and S_k the scores, Omega = softmax(S).

**Masses.**  Computed scores are S_k + d_k, |d_k| <= eta_k: the query's error, the sites' products and sums, the log-sum-exp, the
shift by the maximum and exp.  Since sum_k Omega_k (p_k - g) = 0, masses Omega_k e^{d_k} / Z with Z = sum_l Omega_l e^{d_l} give

    |sum_k Omega_k (e^{d_k} - 1)(p_k - g)| / Z  <=  (e^eta - 1) e^eta sum_k Omega_k |p_k - g|,      eta = max_k eta_k,

and sum_k Omega_k |p_k - g| <= 2 sum_k Omega_k |p_k - f| for every f.  So a blend that is proved, sum_k Omega_k |p_k - f| <= eps,
loses only (e^eta - 1) e^eta 2 eps to its masses: an error of the scores moves a switch, and next to a switch the pieces agree.
Clusters that are far from the query (|t| > reach) have a mass of at most `far` <= 1/2 in all, and their values are at most V:
they add 8 far e^{eta + eta'} (V + |g|), eta' the largest error of their scores.  A mass that underflows is a cluster left
out, which is a far one; SKIP drops at most C SKIP V.

**Kinks.**  If |p_k - f| <= kappa (max S - S_k) at every x and for every k, then with S' = S + d

    |sum_k Omega'_k p_k - f| <= kappa sum_k Omega'_k (max S' - S'_k + 2 eta) <= kappa W0((C-1)/e) + 2 kappa eta:

the error of the scores adds 2 kappa eta and nothing else.  (sum_k Omega_k (max S - S_k) <= max_z (C-1) z e^-z/(1 + (C-1) e^-z).)

**Inside a cluster** logits of t have errors eta_j, so p_k moves by at most (e^{2 eta} - 1) sum_j w_j |v_j - p_k|, and that sum is
at most twice the largest distance of the values v_j(t) from their mean; affine values take t in float64.

**Computed** are exp(A_k - max A) prod_e W_ke and their sum (runtime/two_level.py): W_ke enters as a factor where the formulas
above count the error of its logarithm, which is larger; the sum of masses loses two roundings, that of values one per cluster.
Clusters left out have computed masses of at most SKIP, weights left out are below SKIP^4 of their cluster's largest; what the
normaliser loses with them is far below UP.

Assumed: exp is accurate to 4 ulp in the dtype and log to 4 ulp in float64; sums, products and quotients follow IEEE 754.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.rounding import FLOAT64, compute_dtype, compute_format, dtype_of, gamma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime.grouped import tree_terms
from maxaffine.runtime.two_level import SKIP

Array = NDArray[np.float64]
LOGARITHM = "exp is accurate to 4 ulp in the dtype, log to 4 ulp in float64; sums and products follow IEEE 754 in any order"
LARGEST = {"float64": 1e300, "float32": 1e37}  # logits beyond this are not followed
UP = 1.0 + 1e-12  # what these sums of positive numbers lose themselves
U = FLOAT64.unit


def blend_constant(count: int) -> float:
    """W0((C-1)/e), rounded up: the largest sum_k Omega_k (max S - S_k) of a softmax over C scores.

    By Lagrange all gaps are equal at the maximum: (C-1) z e^-z / (1 + (C-1) e^-z), whose largest value w has w e^w = (C-1)/e.
    """
    y = (count - 1) / math.e
    w = math.log1p(y)
    for _ in range(60):
        w -= (w * math.exp(w) - y) / (math.exp(w) * (1.0 + w))
    w *= 1.0 + 1e-14
    while w * math.exp(w) < y * (1.0 + 1e-14):
        w = w * (1.0 + 1e-14) + 1e-300
    return w


@dataclass(frozen=True)
class Query:
    """|z| and the error of the computed z over the box, (E,) each: in float64, and rounded to the dtype (the literal runtime)."""

    size: Array
    error: Array
    narrow: Array


def query(layer: GroupedLayer, group: ClusterGroup) -> Query:
    """Bounds for every real x of the box, rounded once to float64, then centred and multiplied by the stored matrix."""
    matrix = np.abs(group.matrix)
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
    size = matrix @ reach * UP
    error = matrix @ (U * largest + gamma(layer.dimension + 3, U) * reach) * UP
    narrow = error if layer.dtype == "float64" else error + dtype_of(layer.dtype).unit * (size + error) * UP
    return Query(size, error, narrow)


@dataclass(frozen=True)
class ClusterErrors:
    """One cluster over |t| <= reach: error of its score, of its head p_k, largest |v_j|, and sup sum_j w_j |v_j - p_k|."""

    score: float
    head: float
    largest: float
    deviation: float


def whole_reach(layer: GroupedLayer, group: ClusterGroup) -> Array:
    """Bounds (C, E) of |t| over the box."""
    q = query(layer, group)
    rows = [(q.size + q.error + np.abs(c.origin)) / c.radius for c in group.clusters]
    return np.stack(rows) * UP


def cluster_errors(layer: GroupedLayer, group: ClusterGroup, k: int, reach: Array) -> ClusterErrors:
    """The errors of cluster k in the two-level runtime while |t_e| <= reach_e."""
    q, cluster, compute = query(layer, group), group.clusters[k], compute_format(layer.dtype)
    moved = q.error / cluster.radius * UP + 3.0 * U * reach  # of t in float64
    rounded = moved + compute.unit * (reach + moved) + compute.tiny
    a, b = np.abs(group.site_slopes[k].astype(np.float64)), abs(float(group.site_offsets[k]))
    E = len(a)
    site = float(a @ q.error) + gamma(E + 2, U) * (float(a @ (q.size + q.error)) + b)
    eta_all = score = 0.0
    top_sum = float(a @ q.size) + b
    for e, axis in enumerate(cluster.axes):
        slopes, offsets = np.abs(axis.slopes.astype(np.float64)), np.abs(axis.offsets.astype(np.float64))
        sizes = slopes * (reach[e] + rounded[e]) + offsets
        top = float(sizes.max())
        if not max(top, float(reach[e] + rounded[e])) < LARGEST[compute.name]:  # t itself is one of the numbers
            return ClusterErrors(math.inf, math.inf, math.inf, math.inf)
        logit = float((slopes * rounded[e]).max()) + gamma(2, compute.unit) * top + compute.tiny
        # Differences of logits are at most twice the largest; beyond the floor of exp a weight is zero.
        shifted = compute.unit * (min(2.0 * top, -compute.exp_floor) + compute.exp_ulps + 2.0) if len(axis) > 1 else 0.0
        count = math.log(len(axis))
        eta_all += logit + shifted
        score += logit + shifted + len(axis) * compute.tiny + gamma(tree_terms(len(axis)) + 10, U) * (1.0 + count)
        top_sum += top + count
    score += site + gamma(2 * E + 2, U) * top_sum
    values = _values(cluster, reach)
    terms = sum(len(axis) for axis in cluster.axes) + tree_terms(max(cluster.shape)) * E + 2 * E + 6
    slack = float((_slopes(cluster) @ moved).max()) if cluster.slopes is not None else 0.0
    if cluster.count > 1 and not eta_all < 30.0:
        return ClusterErrors(score * UP, math.inf, values[0], values[1])
    blur = math.expm1(2.0 * eta_all) * values[1] if cluster.count > 1 else 0.0
    head = blur + (slack + gamma(terms, U) * values[0]) * (1.0 if cluster.count == 1 else math.exp(2.0 * eta_all))
    head += cluster.count * compute.tiny * values[0]
    return ClusterErrors(score * UP, head * UP, values[0], values[1])


def _slopes(cluster: Cluster) -> Array:
    assert cluster.slopes is not None
    return np.asarray(np.abs(cluster.slopes.astype(np.float64)).reshape(-1, len(cluster.axes)))


def _values(cluster: Cluster, reach: Array) -> tuple[float, float]:
    """The largest |v_j(t)|, and a bound of sum_j w_j |v_j - p_k|: twice the largest distance from the mean value."""
    c = cluster.values.astype(np.float64).reshape(cluster.count, -1)
    largest, apart = np.abs(c), np.abs(c - c.mean(axis=0))
    if cluster.slopes is not None:
        G = cluster.slopes.astype(np.float64).reshape(cluster.count, -1, len(reach))
        largest = largest + np.abs(G) @ reach
        apart = apart + np.abs(G - G.mean(axis=0)) @ reach
    size = float(largest.max()) * UP
    return size, (2.0 * float(apart.max()) * UP + 1e-14 * size if cluster.count > 1 else 0.0)


@dataclass(frozen=True)
class TwoLevelRounding:
    """|computed - exact| <= total; `scores` is the error of the scores near the clusters (what moves the switches)."""

    total: float
    scores: float


def two_level_rounding(
    layer: GroupedLayer, group: ClusterGroup, blend: float, size: float, reach: Array | None = None, far: float = 0.0
) -> TwoLevelRounding:
    """The two-level runtime of one group, against its exact value at the same real x.

    `blend` bounds sum_k Omega_k |p_k - f| for some f with |f| <= `size`, over the box.  Clusters with |t_e| > reach[k, e] for
    some e have masses of at most `far` together; without `reach` every cluster is followed over the whole box.
    """
    whole = whole_reach(layer, group)
    near = [cluster_errors(layer, group, k, row) for k, row in enumerate(whole if reach is None else np.minimum(reach, whole))]
    softmax = U * (-FLOAT64.exp_floor + FLOAT64.exp_ulps + 2.0)
    eta = max(one.score for one in near) + softmax
    head, largest = max(one.head for one in near), size + blend
    count = len(group.clusters)
    total = math.inf
    if eta < 30.0 and math.isfinite(head) and far <= 0.5:
        total = math.exp(2.0 * eta) * (2.0 * math.expm1(eta) * blend + head) / (1.0 - far)
        total += gamma(tree_terms(count) + count + 8, U) * max(largest, max(one.largest for one in near))
        if reach is not None:
            ends = [cluster_errors(layer, group, k, row) for k, row in enumerate(whole)]
            top = max(one.largest for one in ends)
            away = max(one.score for one in ends) + softmax
            if not (math.log(max(far, 1e-300)) + away < 600.0 and math.isfinite(top)):
                return TwoLevelRounding(math.inf, eta)
            if far > 0.0:
                total += 8.0 * math.exp(math.log(far) + away + eta) * (top + largest)
            total += count * (SKIP + 4.0 * FLOAT64.tiny) * top
        else:
            total += count * (SKIP + 4.0 * FLOAT64.tiny) * max(one.largest for one in near)
    return TwoLevelRounding(total * UP, eta)


def kink_rounding(layer: GroupedLayer, group: ClusterGroup, kappa: float, size: float) -> float:
    """The two-level runtime where |p_k - f| <= kappa (max S - S_k) on the whole box: 2 kappa eta, and the heads' own errors.

    What is left after the blend kappa W0((C-1)/e) of the exact scores is counted; `size` bounds |f| + blend.
    """
    rows = [cluster_errors(layer, group, k, row) for k, row in enumerate(whole_reach(layer, group))]
    eta = max(one.score for one in rows) + U * (-FLOAT64.exp_floor + FLOAT64.exp_ulps + 2.0)
    count, largest = len(rows), max(one.largest for one in rows)
    total = 2.0 * kappa * eta + max(one.head for one in rows)
    total += gamma(tree_terms(count) + count + 8, U) * max(size, largest)
    return (total + count * (SKIP + 4.0 * FLOAT64.tiny) * largest) * UP


def underflow(layer: GroupedLayer) -> float:
    """What results below the smallest normal number lose: the answer in its dtype, products and sums of values in float64.

    Infinite where an answer, or a sum of values before it is divided by its normaliser, may be too large for its dtype, or what
    leads to the scores of clusters may be: far from a small cluster its local coordinate is a large number.
    """
    most = float(np.finfo(compute_dtype(layer.dtype)).max)
    if not (token_values(layer) < most / 2.0 and token_values(layer) * layer.tokens < 2.0**1020 and _resolved(layer)):
        return math.inf
    # as many times as there are stored numbers, so that the checker, which counts those, confirms the bound
    numbers = layer.nbytes // layer.itemsize + sum(group.matrix.size + 4 * len(group.shape) for group in layer.groups)
    counted = max(layer.tokens, numbers + 4 * layer.dimension)
    return compute_format(layer.dtype).tiny + 100.0 * (layer.dimension + 2) * counted * FLOAT64.tiny


def _resolved(layer: GroupedLayer) -> bool:
    """Whether local coordinates, logits and scores of all clusters are numbers of their formats throughout the box."""
    most, wide = LARGEST[compute_format(layer.dtype).name], LARGEST["float64"]
    for group in layer.cluster_groups():
        q, reach = query(layer, group), whole_reach(layer, group)
        sites = np.abs(group.site_slopes.astype(np.float64)) @ (q.size + q.error) + np.abs(group.site_offsets.astype(np.float64))
        if not (reach < most).all():
            return False
        for cluster, row, site in zip(group.clusters, reach, sites, strict=True):
            tops = [
                float(np.abs(axis.slopes.astype(np.float64)).max() * t + np.abs(axis.offsets.astype(np.float64)).max())
                for axis, t in zip(cluster.axes, row, strict=True)
            ]
            if not (max(tops) < most and float(site) + sum(tops) < wide):
                return False
    return True


def token_values(layer: GroupedLayer) -> float:
    """A bound of |F| over the box from the values of its tokens alone: the largest of every group, and the tilt."""
    reach, total = np.maximum(layer.high - layer.centre, layer.centre - layer.low), 0.0
    if layer.tilt is not None:
        total += float((np.abs(layer.tilt.astype(np.float64)) @ reach).max())
    for group in layer.groups:
        if group.clustered:
            total += max(_values(c, row)[0] for c, row in zip(group.clusters, whole_reach(layer, group), strict=True))
        elif group.values is not None:
            z = np.abs(group.matrix) @ reach
            lean = 0.0 if group.slopes is None else np.abs(group.slopes.astype(np.float64)) @ z
            total += float((np.abs(group.values.astype(np.float64)) + lean).max())
        elif group.factors is not None:
            tops = [np.abs(factor.astype(np.float64)).max(axis=0) for factor in group.factors]
            total += float(np.prod(tops, axis=0).sum())
    return total * 1.01


def output_rounding(layer: GroupedLayer, size: float) -> float:
    """The tilt, the sum over the groups, and the last rounding to the dtype; `size` bounds |F|.  And what underflows."""
    tilt = underflow(layer)
    if layer.tilt is not None:
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
        largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
        lean = np.abs(layer.tilt.astype(np.float64))
        tilt += float((lean @ (U * largest + gamma(layer.dimension + 3, U) * reach)).max())
        size = size + float((lean @ reach).max())
    return (tilt + (compute_format(layer.dtype).unit + gamma(len(layer.groups) + 3, U)) * size) * UP


def tilt_error(layer: GroupedLayer, slopes: tuple[Fraction, ...]) -> float:
    """How far the stored tilt is from the affine part, over the box."""
    stored = np.zeros(layer.dimension) if layer.tilt is None else layer.tilt[0].astype(np.float64)
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 1e-15)
    rows = zip(slopes, stored, reach, strict=True)
    return sum(abs(float(a - Fraction(float(b)))) * float(r) * UP for a, b, r in rows)
