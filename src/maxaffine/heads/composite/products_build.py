"""From factors along one direction each to a layer that holds them."""

import numpy as np

from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.plan import axis_group
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target


def build_products(plan: ProductPlan, target: Target, dtype: str) -> GroupedLayer:
    """One product over all directions, and the affine part."""
    return layer_of([product_group(plan)], target, dtype, plan.centre, plan.found.slopes)


def product_group(plan: ProductPlan) -> FactorGroup:
    """The factors' clusters, and the affine part at the centre."""
    factors = tuple(axis_group(one) for one in plan.factors)
    return FactorGroup(factors, np.array([plan.shift]))
