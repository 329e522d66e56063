"""From a tree plan to a layer: one group of clusters."""

import numpy as np

from maxaffine.heads.tree.plan import TreePlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target


def build_tree(plan: TreePlan, target: Target, dtype: str) -> GroupedLayer:
    """Every cluster's coordinates t run over [-1, 1] on the box that its piece was fitted on."""
    box = target.box
    clusters = []
    for low, high, piece in zip(plan.low, plan.high, plan.pieces, strict=True):
        origin, radius = (low + high) / 2.0, (high - low) / 2.0 * (1.0 + 2.0**-40)
        clusters.append(Cluster(origin, radius, piece.axes(dtype), piece.values, piece.slopes))
    matrix = np.diag(2.0 / (box.high - box.low))
    group = ClusterGroup(matrix, plan.site_slopes, plan.site_offsets, tuple(clusters))
    return GroupedLayer(box.centre, (group,), 0.0, box.low, box.high, target.input_shapes, dtype)
