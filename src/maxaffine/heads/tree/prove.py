"""Sup-norm certificates of trees of clusters: every piece on its own box, and a covering that says who answers where.

    |f - F| <= max_k sup over K_k of |f - p_k|  +  C e^-gap  +  rounding

K_k, |t| <= 1, is the box of cluster k.  F is an average of the pieces p_k; by the covering (proofs/covering.py) a cluster counts
only on its box, where Ehlich and Zeller (proofs/local_error.py) bound f - p_k, or enclosures of first order where f is not
analytic (proofs/enclosed.py).  Rounded scores move a switch between two clusters, both of which are right there: that costs
nothing beyond the gap.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.covering import Scores, cover
from maxaffine.proofs.enclosed import supremum
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.sources import FromAffine
from maxaffine.proofs.two_level import GroupErrors
from maxaffine.runtime.two_level import SKIP
from maxaffine.structure.switches import switches
from maxaffine.target.target import Target

THEOREM = "error of each piece on its own box (Ehlich-Zeller or enclosures), and a covering that shows which pieces answer where"
LEAK = 0.01  # of the error
MOST_CELLS = 3_000  # of the proof of one piece
BOXES = 200_000  # of the enclosures of one piece near a kink
EDGE = 1.0 + 2.0**-20  # how far beyond its box a cluster's computed t may fall


@dataclass(frozen=True)
class LocalBound:
    """Of one cluster on its box: sup |f - p|, and how much of it is uncertainty about f."""

    approximation: float
    uncertainty: float


def certify_tree(layer: GroupedLayer, target: Target, error: float, runtime: str = "two-level") -> Certificate:
    """Prove a sup-norm bound for a stored tree layer of one group of clusters."""
    (group,) = layer.groups
    if not group.clustered or target.expression is None or target.n_out != 1 or layer.tilt is not None:
        raise Refused("trees are proved for expressions with one output token.")
    if np.count_nonzero(group.matrix - np.diag(np.diag(group.matrix))) or not (np.diag(group.matrix) > 0).all():
        raise Refused("the coordinates of a tree must be scaled variables.")
    scores, C = Scores.of(group), len(group.clusters)
    eta = GroupErrors.of(layer, group).scores
    if not eta < 10.0:
        raise Refused(f"the sites' scores are uncertain by {eta:.3g} in {layer.dtype}.")
    size = scores.largest + error  # of |f|, once every piece is proved
    gap = math.log(C / (LEAK * error)) + 2.0 * eta
    count = cover(scores, gap, size, box_reach(layer, group))
    bounds = _pieces(layer, group, target.expression, error)
    leak = C * math.exp(2.0 * eta - gap) * (1 + 1e-9) + C * SKIP * 2.0 * _far(scores)
    approximation, uncertainty = max(b.approximation for b in bounds), max(b.uncertainty for b in bounds)
    near = np.full((C, len(layer.centre)), EDGE)
    errors = GroupErrors.of(layer, group, near)
    rounding = output_rounding(layer, size) + errors.head + errors.sums(size)
    known = ProvedBlend(approximation + uncertainty + leak, size, near, leak + 2.0 * size * C * math.exp(2.0 * eta - gap))
    parts = {"approximation": approximation, "leakage": leak, "rounding": rounding, "target_rounding": uncertainty}
    return Certificate.proved(
        math.inf, parts, argument="tree", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT, LOGARITHM),
        details={"clusters": float(C), "gap": gap, "boxes": float(count), "score_error": eta}, blends=(known,),
    )  # fmt: skip


def box_reach(layer: GroupedLayer, group: ClusterGroup) -> float:
    """The largest |z| over the box; Refused where it is more than a little above 1, for which the proofs have room."""
    away = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * np.diag(group.matrix)
    reach = float(away.max()) * (1.0 + 2.0**-50)
    if not reach <= 1.005:
        raise Refused(f"the coordinates of its clusters leave [-1, 1]: they reach {reach:.6g}.")
    return max(reach, 1.0 + 2.0**-45)


def _far(scores: Scores) -> float:
    """A bound of |p_k| anywhere in the box: clusters of negligible mass are left out by the runtime."""
    edge = np.full_like(scores.origin, 1.01)
    return float(scores.size(np.arange(len(edge)), -edge, edge).max())


def _pieces(layer: GroupedLayer, group: ClusterGroup, expression: Expression, error: float) -> list[LocalBound]:
    """Every piece on its box: by Ehlich-Zeller, or by enclosures where the target is not analytic there."""
    arguments = [switch.argument for switch in switches(expression)]
    found = []
    for cluster in group.clusters:
        head = local_head(layer, group, cluster, expression)
        if _may_switch(arguments, local_source(layer, group, cluster, expression)):
            found.append(LocalBound(supremum(head, error * (1.0 - 2.0 * LEAK), BOXES), 0.0))
            continue
        enough = 0.98 * error if layer.dtype == "float64" else None  # else rounding needs what is left
        proof = prove(head, error, give_up=error * (1 + 1e-9), most_cells=MOST_CELLS, enough=enough)
        uncertainty = min(proof.uncertainty, proof.bound)
        found.append(LocalBound(proof.bound - uncertainty, uncertainty))
    return found


def _may_switch(arguments: list[Expression], source: FromAffine) -> bool:
    """Whether on the cluster's box some operation of the target may switch or be singular, by enclosures on 4^D parts."""
    E = source.matrix.lo.shape[1]
    low, high = boxes.grid(-np.ones(E), np.ones(E), 4)
    scale = Interval(np.diagonal(source.matrix.lo), np.diagonal(source.matrix.hi))
    shape = low.shape
    offset = Interval(np.broadcast_to(source.offset.lo, shape), np.broadcast_to(source.offset.hi, shape))
    x = Interval(low, high) * scale + offset
    for argument in arguments:
        found = argument.enclose(x)
        if not np.all((found.lo > 0) | (found.hi < 0)):
            return True
    return False


def local_source(layer: GroupedLayer, group: ClusterGroup, cluster: Cluster, expression: Expression) -> FromAffine:
    """f in the cluster's coordinates: x = centre + (origin + radius t) / M, M diagonal."""
    scale = Interval.point(np.diag(group.matrix))
    offset = Interval.point(layer.centre) + Interval.point(cluster.origin) / scale
    radius = Interval.point(cluster.radius) / scale
    return FromAffine(expression, offset, Interval(np.diag(radius.lo), np.diag(radius.hi)))


def local_head(layer: GroupedLayer, group: ClusterGroup, cluster: Cluster, expression: Expression) -> Head:
    """A cluster's piece beside the target, in the cluster's coordinates."""
    axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in cluster.axes)
    deltas = tuple(float(a.slopes[1] - a.slopes[0]) if len(a) > 1 else 1.0 for a in axes)
    slopes = None if cluster.slopes is None else cluster.slopes.astype(np.float64)
    return Head(local_source(layer, group, cluster, expression), axes, deltas, cluster.values.astype(np.float64), slopes)
