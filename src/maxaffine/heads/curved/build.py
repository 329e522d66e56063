"""From the plan of a curved kink to a layer: a group of one cluster, and one of the inner cluster and its edges."""

import numpy as np

from maxaffine.heads.curved.plan import CurvedPlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.target.target import Target


def build_curved(plan: CurvedPlan, target: Target, dtype: str) -> GroupedLayer:
    """Values of the inner cluster are the differences of the two pieces."""
    box, piece = target.box, plan.piece
    matrix, origin, radius = np.diag(2.0 / (box.high - box.low)), np.zeros(2), np.full(2, 1.0 + 2.0**-39)
    axes = tuple(axis.keys for axis in piece.axes)
    bare = (AxisKeys(np.zeros(1), np.zeros(1)),) * 2
    outer = Cluster(origin, radius, axes, piece.values[..., :1], piece.slopes[..., :1, :])
    if plan.flat:
        outer = Cluster(origin, radius, bare, piece.values[:1, :1, :1], piece.slopes[:1, :1, :1])
    values, slopes = piece.values[..., 1:] - piece.values[..., :1], piece.slopes[..., 1:, :] - piece.slopes[..., :1, :]
    edge = Cluster(origin, radius, bare, np.zeros((1, 1, 1)), np.zeros((1, 1, 1, 2)))
    inner = (Cluster(origin, radius, axes, values, slopes), *([edge] * len(plan.offsets)))
    groups = (
        ClusterGroup(matrix, np.zeros((1, 2)), np.zeros(1), (outer,)),
        ClusterGroup(matrix, np.vstack([np.zeros((1, 2)), plan.slopes]), np.concatenate([[0.0], plan.offsets]), inner),
    )
    return GroupedLayer(box.centre, groups, 0.0, box.low, box.high, target.input_shapes, dtype)
