"""From the plan of a sum to a grouped layer: groups of clusters and groups of product keys side by side."""

import numpy as np

from maxaffine.layer.build import input_shapes
from maxaffine.layer.build_axis import axis_group
from maxaffine.layer.build_products import product_group
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.plan.axis_plan import AxisPlan
from maxaffine.plan.products import ProductPlan
from maxaffine.plan.sums import SumPlan
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
    return GroupedLayer(plan.centre, tuple(groups), 0.0, low, high, input_shapes(target), dtype, tilt)
