"""From the plan of a sum to a grouped layer: groups of clusters and groups of product keys side by side."""

from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.plan import AxisPlan, axis_group
from maxaffine.heads.composite.products_build import product_group
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.heads.composite.sums_plan import SumPlan
from maxaffine.layer.grouped import AnyGroup, GroupedLayer
from maxaffine.target.target import Target


def build_sums(plan: SumPlan, target: Target, dtype: str) -> GroupedLayer:
    """One group per part, and the affine part."""
    groups: list[AnyGroup] = []
    for part in plan.parts:
        if isinstance(part, AxisPlan):
            groups.append(axis_group(part))
        else:
            groups.append(product_group(part) if isinstance(part, ProductPlan) else part.build())
    return layer_of(groups, target, dtype, plan.centre, plan.found.slopes)
