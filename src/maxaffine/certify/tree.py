"""Sup-norm certificates of trees of clusters: every piece on its own box, and a covering that says who answers where.

    |f - F| <= max_k sup over K_k of |f - p_k|  +  C e^-gap  +  rounding

K_k, |t| <= 1, is the box of cluster k.  F is an average of the pieces p_k; by the covering (certify/covering) a cluster counts
only on its box, where Ehlich and Zeller (certify/ehlich_zeller) bound f - p_k, or
enclosures on pieces of the box where f is not analytic (certify/enclosed).  Rounded scores move a switch between two clusters,
both of which are right there: that costs nothing beyond the gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.certify.certificate import Certificate
from maxaffine.certify.covering import Scores, cover
from maxaffine.certify.ehlich_zeller import FromAffine, Head, prove
from maxaffine.certify.lookup import ELEMENTARY, EXPONENTIAL
from maxaffine.certify.spectral import FLINT
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.plan.keys import AxisKeys
from maxaffine.target.expression import Expression
from maxaffine.target.target import Target

Array = NDArray[np.float64]

THEOREM = "pieces proved on their own boxes by Ehlich-Zeller or enclosures, and a covering that tells which pieces answer where"
LEAK = 0.01  # of the error
MOST_CELLS = 4_000  # of the proof of one piece


@dataclass(frozen=True)
class LocalBound:
    """Of one cluster on its box: sup |f - p|, how much of it is doubt about f, and the rounding of p."""

    approximation: float
    doubt: float
    rounding: float


def certify_tree(layer: GroupedLayer, target: Target, error: float, runtime: str = "two-level") -> Certificate:
    """Prove a sup-norm bound for a stored tree layer of one group of clusters."""
    (group,) = layer.groups
    if not isinstance(group, ClusterGroup) or target.expression is None or target.n_out != 1 or layer.tilt is not None:
        raise Refused("trees are proved for expressions with one output token.")
    if runtime not in ("any", "two-level"):
        raise Refused(f"trees are proved for the two-level runtime, not for {runtime}.")
    scores = Scores.of(group)
    C, eta = len(group.clusters), score_error(layer, group, scores)
    size = scores.largest + error  # of |f|, once every piece is proved
    gap = math.log(C / (LEAK * error)) + 2.0 * eta
    boxes = cover(scores, gap, size)
    bounds = [_local(layer, group, cluster, target.expression, error) for cluster in group.clusters]
    leak = C * math.exp(2.0 * eta - gap) * (1 + 1e-9) + C * 2.0**-119 * _far(scores)
    worst = max(bound.approximation for bound in bounds)
    unit = compute_format(layer.dtype).unit
    parts = {
        "approximation": worst,
        "leakage": leak,
        "rounding": max(bound.rounding for bound in bounds) + (gamma(2 * C + 16, FLOAT64.unit) + unit) * 2.0 * size,
        "target_rounding": max(bound.doubt for bound in bounds),
    }
    return Certificate.proved(
        math.inf, parts, route="tree", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT),
        details={"clusters": float(C), "gap": gap, "boxes": float(boxes), "score_error": eta},
    )  # fmt: skip


def _far(scores: Scores) -> float:
    """A bound of |p_k| anywhere in the box: clusters of negligible mass are left out by the runtime."""
    edge = np.full_like(scores.origin, 1.01)
    return float(scores.size(np.arange(len(edge)), -edge, edge).max())


def query_errors(layer: GroupedLayer, group: ClusterGroup) -> Array:
    """Bounds (E,) of |computed z - M (x - centre)|, x rounded to float64."""
    u = FLOAT64.unit
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * u)
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    return np.asarray(np.abs(group.matrix) @ (2 * u * largest + gamma(layer.dimension + 3, u) * reach) * (1 + 1e-9))


def score_error(layer: GroupedLayer, group: ClusterGroup, scores: Scores) -> float:
    """A bound of |computed S_k - S_k| in the two-level runtime."""
    u, compute = FLOAT64.unit, compute_format(layer.dtype)
    query = query_errors(layer, group)
    reach = 1.0 + 2.0**-20
    sites = np.abs(scores.site_slopes) @ (query + gamma(len(query) + 2, u) * reach) + 4 * u * np.abs(scores.site_offsets)
    t = (reach + np.abs(scores.origin)) / scores.radius  # (C, E)
    moved = query / scores.radius + 6 * u * t + compute.unit * t
    steep = np.abs(scores.slopes).max(axis=2)
    offsets = np.where(np.isfinite(scores.offsets), np.abs(scores.offsets), 0.0).max(axis=2)
    local = steep * moved + gamma(4, compute.unit) * (steep * t + offsets) + compute.unit * (compute.exp_ulps + 8.0)
    # far from its box a cluster's own logits grow, with its site's; the sums over keys and clusters are in float64
    total = sites + local.sum(axis=1) + u * (np.abs(scores.site_slopes).sum(axis=1) + np.abs(scores.site_offsets)) * 4
    return float(total.max()) * (1 + 1e-9) + 1e-12


def local_source(layer: GroupedLayer, group: ClusterGroup, cluster: Cluster, expression: Expression) -> FromAffine:
    """f in the cluster's coordinates: x = centre + (origin + radius t) / M, M diagonal."""
    scale = Interval.point(np.diag(group.matrix))
    offset = Interval.point(layer.centre) + Interval.point(cluster.origin) / scale
    radius = Interval.point(cluster.radius) / scale
    D = len(layer.centre)
    return FromAffine(expression, offset, Interval(np.diag(radius.lo).reshape(D, D), np.diag(radius.hi).reshape(D, D)))


def _local(layer: GroupedLayer, group: ClusterGroup, cluster: Cluster, expression: Expression, error: float) -> LocalBound:
    head = local_head(layer, group, cluster, expression)
    proof = prove(head, error, give_up=error * (1 + 1e-9), most_cells=MOST_CELLS)
    bound, doubt = proof.bound, proof.doubt
    doubt = min(doubt, bound)
    return LocalBound(bound - doubt, doubt, local_rounding(layer, group, head, cluster))


def local_head(layer: GroupedLayer, group: ClusterGroup, cluster: Cluster, expression: Expression) -> Head:
    """A cluster's piece beside the target, in the cluster's coordinates."""
    if np.count_nonzero(group.matrix - np.diag(np.diag(group.matrix))) or not (np.diag(group.matrix) > 0).all():
        raise Refused("the coordinates of a tree must be scaled variables.")
    axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in cluster.axes)
    deltas = tuple(float(a.slopes[1] - a.slopes[0]) if len(a) > 1 else 1.0 for a in axes)
    slopes = None if cluster.slopes is None else cluster.slopes.astype(np.float64)
    return Head(local_source(layer, group, cluster, expression), axes, deltas, cluster.values.astype(np.float64), slopes)


def local_rounding(layer: GroupedLayer, group: ClusterGroup, head: Head, cluster: Cluster) -> float:
    """What the two-level runtime may lose of p_k on its box: by the largest |v_j| there, crude and enough."""
    u, compute = FLOAT64.unit, compute_format(layer.dtype)
    E = head.dimension
    lean = np.zeros(E) if head.slopes is None else np.abs(head.slopes).reshape(-1, E).max(axis=0)
    spread = _spread(head)
    edge = 1.0 + 2.0**-8
    moved = query_errors(layer, group) / cluster.radius + 6 * u
    if np.any(moved > 2.0**-9):
        raise Refused("a cluster's own coordinates are not resolved by float64.")
    total = float(lean @ moved)
    for e, axis in enumerate(head.axes):
        a, b = axis.slopes, axis.offsets
        eta = gamma(4, compute.unit) * (float(np.abs(a).max()) * edge + float(np.abs(b).max()))
        eta += compute.unit * (float(np.ptp(a)) * 2 * edge + float(np.ptp(b)) + compute.exp_ulps + 8.0)
        eta += float(np.ptp(a)) * (moved[e] + compute.unit * edge)
        total += math.expm1(2.0 * eta) * spread
    size = float(np.abs(head.values).max()) + float(lean.sum()) * edge
    terms = sum(2 * len(axis) + 8 for axis in head.axes) + 2 * E + 8
    return (total + gamma(terms, u) * size) * (1 + 1e-9) + 8.0 * compute.tiny * head.values.size * size


def _spread(head: Head) -> float:
    """max_j |v_j - v| over |t| <= 1 and a little, v an affine function that all tokens share."""
    E = head.dimension
    level = (head.values.reshape(-1, head.values.shape[-1]).max(axis=0) + head.values.reshape(-1, head.values.shape[-1]).min(axis=0)) / 2
    apart = np.abs(head.values - level)
    if head.slopes is not None:
        flat = head.slopes.reshape(-1, *head.slopes.shape[-2:])
        apart = apart + np.abs(head.slopes - (flat.max(axis=0) + flat.min(axis=0)) / 2).sum(axis=-1) * (1.0 + 2.0**-8)
    del E
    return 2.0 * float(apart.max())
