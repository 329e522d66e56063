"""From a plan of a piecewise affine target to its layer: one group of clusters of one token each."""

import numpy as np

from maxaffine.heads.piecewise.plan import PiecewisePlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.target.target import Target


def build_piecewise(plan: PiecewisePlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer, its numbers rounded once from the exact ones."""
    box, used = target.box, list(plan.used)
    centre = (box.low + box.high) / 2.0
    E = len(used)
    sites = np.array([[float(c) for c in plan.in_z(piece, centre)] for piece in plan.logits()])
    keys = (AxisKeys(np.zeros(1), np.zeros(1)),) * E
    clusters = []
    for token in plan.pieces.tokens:
        rows = np.array([[float(c) for c in plan.in_z(piece, centre)] for piece in token.values])
        K = len(rows)
        shape = (1,) * E
        values, slopes = rows[:, -1].reshape(*shape, K), rows[:, used].reshape(*shape, K, E)
        clusters.append(Cluster(np.zeros(E), np.ones(E), keys, values, slopes))
    group = ClusterGroup(np.eye(box.dimension)[used], sites[:, used], sites[:, -1], tuple(clusters))
    return GroupedLayer(centre, (group,), 0.0, box.low, box.high, target.input_shapes, dtype)
