"""From a polygon around a level set to a layer: one group of single tokens."""

import numpy as np

from maxaffine.heads.level.plan import LevelPlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.target.target import Target


def build_level(plan: LevelPlan, target: Target, dtype: str) -> GroupedLayer:
    """The inside first, then the edges."""
    box, D = target.box, target.box.dimension
    slopes = np.concatenate([np.zeros((1, D)), plan.sharpness * plan.normals])
    offsets = np.concatenate([np.zeros(1), -plan.sharpness * plan.offsets])
    keys = (AxisKeys(np.zeros(1), np.zeros(1)),) * D
    clusters = []
    for values in [plan.inside] + [plan.outside] * len(plan.offsets):
        shaped = values.reshape(*([1] * D), -1)
        clusters.append(Cluster(np.zeros(D), np.ones(D), keys, shaped, np.zeros((*shaped.shape, D))))
    group = ClusterGroup(np.diag(2.0 / (box.high - box.low)), slopes, offsets, tuple(clusters))
    return GroupedLayer(box.centre, (group,), 0.0, box.low, box.high, target.input_shapes, dtype)
