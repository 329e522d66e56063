"""From cells along one coordinate to a group of clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.plan.axis_clusters import Cell, Sites

Array = NDArray[np.float64]


def axis_group(row: Array, cells: list[Cell], sites: Sites) -> ClusterGroup:
    """Clusters with the cells' heads; `row` (D,) is the coordinate."""
    clusters = []
    for cell in cells:
        fit = cell.fit
        slopes = fit.slopes[:, None, None] if np.any(fit.slopes) else None
        clusters.append(Cluster(np.array([cell.origin]), np.array([cell.radius]), (fit.keys,), fit.values[:, None], slopes))
    return ClusterGroup(np.asarray(row, dtype=np.float64)[None], sites.slopes[:, None], sites.offsets, tuple(clusters))
