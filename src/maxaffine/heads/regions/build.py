"""From a plan on regions to its layer: one cluster per region, all with the same keys."""

import numpy as np

from maxaffine.heads.regions.plan import RegionsPlan, half_widths
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target


def build_regions(plan: RegionsPlan, target: Target, dtype: str) -> GroupedLayer:
    """z = x - centre, t = z / half; scores rounded once from the exact ones."""
    box, D = target.box, target.box.dimension
    centre, _ = half_widths(box)
    sites = np.array([[float(c) for c in row] for row in plan.sites(centre)])
    keys = tuple(axis.keys for axis in plan.fit.axes)
    clusters = tuple(
        Cluster(np.zeros(D), plan.half, keys, plan.fit.values[..., k : k + 1], plan.fit.slopes[..., k : k + 1, :])
        for k in range(len(sites))
    )
    group = ClusterGroup(np.eye(D), sites[:, :-1], sites[:, -1], clusters)
    return GroupedLayer(centre, (group,), 0.0, box.low, box.high, target.input_shapes, dtype)
