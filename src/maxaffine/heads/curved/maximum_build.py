"""From the plan of a curved maximum to a layer: single tokens whose scores are R times their values, beside the smooth part."""

import numpy as np

from maxaffine.core.rounding import numpy_dtype
from maxaffine.heads.curved.maximum_plan import CurvedMaximumPlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.target.target import Target


def build_curved_maximum(plan: CurvedMaximumPlan, target: Target, dtype: str) -> GroupedLayer:
    """Coordinates of the first group: t, scaled, and the sides' affine parts; a power of two makes scores of values."""
    box, found, leans = target.box, plan.found, plan.found.leans()
    rows = [np.array([float(c) for c in row]) for row in (found.direction, *leans)]
    matrix = np.stack([rows[0] / plan.half, *rows[1:]])
    E = len(matrix)
    pieces = np.concatenate(plan.pieces)
    stored = numpy_dtype(dtype)
    c, G = (pieces[:, i].astype(stored).astype(np.float64) for i in (1, 0))
    across = [[float(side.lean == row) for row in leans] for side, own in zip(found.sides, plan.pieces, strict=True) for _ in own]
    lean = np.concatenate([G[:, None], np.array(across)], axis=1)
    keys = (AxisKeys(np.zeros(1), np.zeros(1)),) * E
    origin, radius, one = np.zeros(E), np.ones(E), (1,) * E
    clusters = tuple(
        Cluster(origin, radius, keys, np.full((*one, 1), found.sign * a), (found.sign * g).reshape(*one, 1, E))
        for a, g in zip(c, lean, strict=True)
    )
    tokens = ClusterGroup(matrix, plan.sharpness * lean, plan.sharpness * c, clusters)
    smooth = []
    for part in plan.smooth:
        axes = tuple(axis.keys for axis in part.axes)
        smooth.append(Group(part.group.matrix() / part.half[:, None], axes, part.values, part.factors, part.slopes))
    tilt = np.array([[float(s) for s in found.slopes]]) if any(found.slopes) else None
    return GroupedLayer(plan.centre, (tokens, *smooth), 0.0, box.low, box.high, target.input_shapes, dtype, tilt)
