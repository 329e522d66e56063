"""From the plan of a sum to a grouped layer: groups of clusters and groups of product keys side by side."""

import numpy as np

from maxaffine.heads.axis.build import axis_group
from maxaffine.heads.axis.plan import AxisPlan
from maxaffine.heads.composite.products_build import product_group
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.heads.composite.sums_plan import SumPlan
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.target.target import Target


def build_sums(plan: SumPlan, target: Target, dtype: str) -> GroupedLayer:
    """One group per part, the affine part as tilt."""
    groups: list[Group | ClusterGroup] = []
    for part in plan.parts:
        if isinstance(part, AxisPlan):
            groups.append(axis_group(part.row, list(part.parts), part.sites))
        elif isinstance(part, ProductPlan):
            groups.append(product_group(part))
        else:
            keys = tuple(axis.keys for axis in part.axes)
            groups.append(Group(part.group.matrix() / part.half[:, None], keys, part.values, part.factors, part.slopes))
    slopes = plan.found.slopes
    tilt = np.array([[float(c) for c in slopes]]) if any(slopes) else None
    low, high = target.box.low, target.box.high
    return GroupedLayer(plan.centre, tuple(groups), 0.0, low, high, target.input_shapes, dtype, tilt)
