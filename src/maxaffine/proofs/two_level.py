"""What finite precision does to a group of clusters run by two levels; its literal softmax is proofs/literal.py's.

Let g = sum_k Omega_k p_k be the layer of the stored numbers in exact arithmetic and S_k the scores, Omega = softmax(S).

**Masses.**  Computed scores are S_k + d_k, |d_k| <= eta_k: the query's error, the sites' products and sums, the log-sum-exp, the
shift by the maximum and exp.  Since sum_k Omega_k (p_k - g) = 0, masses Omega_k e^{d_k} / Z with Z = sum_l Omega_l e^{d_l} give

    |sum_k Omega_k (e^{d_k} - 1)(p_k - g)| / Z  <=  (e^eta - 1) e^eta sum_k Omega_k |p_k - g|,      eta = max_k eta_k,

and sum_k Omega_k |p_k - g| <= 2 sum_k Omega_k |p_k - f| for every f.  So a blend that is proved, sum_k Omega_k |p_k - f| <= eps,
loses only (e^eta - 1) e^eta 2 eps to its masses: an error of the scores moves a switch, and next to a switch the pieces agree.
A mass that underflows is a cluster left out: SKIP drops at most C SKIP V, V the largest value.

**Kinks.**  If |p_k - f| <= kappa (max S - S_k) at every x and for every k, then with S' = S + d

    |sum_k Omega'_k p_k - f| <= kappa sum_k Omega'_k (S'_a - S'_k + 2 eta)_+ <= kappa W0((C-1) e^{2 eta - 1}),

a the cluster with the largest exact score (soft_gap.py): the error of the scores adds at most 2 kappa eta and nothing else.

**Inside a cluster** logits of t have errors eta_j, so p_k moves by at most (e^{2 eta} - 1) sum_j w_j |v_j - p_k|, and that sum is
at most twice the largest distance of the values v_j(t) from their mean; affine values take t in float64.

**Computed** are exp(A_k - max A) prod_e W_ke and their sum (runtime/two_level.py): W_ke enters as a factor where the formulas
above count the error of its logarithm, which is larger; the sum of masses loses two roundings, that of values one per cluster.
Clusters left out have computed masses of at most SKIP, weights left out are below SKIP^4 of their cluster's largest; what the
normaliser loses with them is far below UP.

Assumed: exp is accurate to 4 ulp in the dtype and log to 4 ulp in float64; sums, products and quotients follow IEEE 754.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime.grouped import tree_terms
from maxaffine.runtime.two_level import SKIP

LARGEST = {"float64": 1e300, "float32": 1e37}  # logits beyond this are not followed
UP = 1.0 + 1e-12  # what these sums of positive numbers lose themselves
U = FLOAT64.unit


@dataclass(frozen=True)
class Query:
    """|z| and the error of the computed z over the box, (E,) each."""

    size: Array
    error: Array


def query(layer: GroupedLayer, group: ClusterGroup) -> Query:
    """Bounds for every real x of the box, rounded once to float64, then centred and multiplied by the stored matrix."""
    matrix = np.abs(group.matrix)
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
    size = matrix @ reach * UP
    error = matrix @ (U * largest + gamma(layer.dimension + 3, U) * reach) * UP
    return Query(size, error)


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


def largest_value(cluster: Cluster, reach: Array) -> float:
    """The largest |v_j(t)| for |t_e| <= reach_e."""
    return _values(cluster, reach)[0]


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
class GroupErrors:
    """A group of clusters as it is computed: errors of scores (the softmax over clusters included) and of a head, and |v|."""

    scores: float
    head: float
    largest: float
    count: int

    @classmethod
    def of(cls, layer: GroupedLayer, group: ClusterGroup, reach: Array | None = None) -> GroupErrors:
        """Where |t| of cluster k is at most reach[k]: over the whole box unless given."""
        reach = whole_reach(layer, group) if reach is None else reach
        rows = [cluster_errors(layer, group, k, row) for k, row in enumerate(reach)]
        softmax = U * (-FLOAT64.exp_floor + FLOAT64.exp_ulps + 2.0)
        return cls(
            max(row.score for row in rows) + softmax, max(row.head for row in rows), max(row.largest for row in rows), len(rows)
        )

    def sums(self, size: float) -> float:
        """What sums over clusters lose, of masses and of values, where the result is at most `size`; and clusters left out."""
        lost = gamma(tree_terms(self.count) + self.count + 8, U) * max(size, self.largest)
        return (lost + self.count * (SKIP + 4.0 * FLOAT64.tiny) * self.largest) * UP

    def blended(self, blend: float, size: float) -> float:
        """All that rounding does where sum_k Omega_k |p_k - f| <= blend for some |f| <= size, over the box."""
        if not (self.scores < 30.0 and math.isfinite(self.head)):
            return math.inf
        masses = 2.0 * math.expm1(self.scores) * blend
        return (math.exp(2.0 * self.scores) * (masses + self.head) + self.sums(size + blend)) * UP

    def mixed(self, kappa: float, size: float, stored: float = 0.0) -> float:
        """All that rounding does where |p_k - f| <= eps + kappa (S_a - S_k), besides kappa W0((C-1)/e) and eps.

        The lemma of soft_gap.py with U = 2 (scores + stored), which costs at most kappa U: the slope of W0(e^y) is W0/(1 + W0).
        `stored` is what stored scores are off by, and `size` bounds |f| + blend.
        """
        return (2.0 * kappa * (self.scores + stored) + self.head + self.sums(size)) * UP
