"""From cells along one coordinate to a group of clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maxaffine.heads.axis.cells import Cell, Sites
from maxaffine.heads.axis.plan import AxisPlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target

Array = NDArray[np.float64]


def axis_group(row: Array, cells: list[Cell], sites: Sites) -> ClusterGroup:
    """Clusters with the cells' heads; `row` (D,) is the coordinate."""
    clusters = []
    for cell in cells:
        fit = cell.fit
        slopes = fit.slopes[:, None, None]
        clusters.append(Cluster(np.array([cell.origin]), np.array([cell.radius]), (fit.keys,), fit.values[:, None], slopes))
    return ClusterGroup(np.asarray(row, dtype=np.float64)[None], sites.slopes[:, None], sites.offsets, tuple(clusters))


def build_axis(plan: AxisPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer of a plan: one group of clusters, the affine part as tilt."""
    tilt = np.array([[float(c) for c in plan.slopes]]) if any(plan.slopes) else None
    group = axis_group(plan.row, list(plan.parts), plan.sites)
    return GroupedLayer(plan.centre, (group,), 0.0, target.box.low, target.box.high, target.input_shapes, dtype, tilt)
