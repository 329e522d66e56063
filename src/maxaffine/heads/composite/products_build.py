"""From factors along one direction each to a group of clusters: all combinations, scores added up and values multiplied."""

import itertools
import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.cells import Cell
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target

Array = NDArray[np.float64]


def build_products(plan: ProductPlan, target: Target, dtype: str) -> GroupedLayer:
    """One group of clusters over all directions, and the affine part."""
    return layer_of([product_group(plan)], target, dtype, plan.centre, plan.found.slopes)


def product_group(plan: ProductPlan) -> ClusterGroup:
    """All combinations of the factors' clusters."""
    combined = itertools.product(*(one.parts for one in plan.factors))
    clusters = tuple(_cluster(cells, plan.affine, plan.shift) for cells in combined)
    slopes = _combined([one.sites.slopes for one in plan.factors])
    offsets = np.array([math.fsum(row) for row in itertools.product(*(one.sites.offsets for one in plan.factors))])
    return ClusterGroup(np.stack([one.row for one in plan.factors]), slopes, offsets, clusters)


def _combined(columns: Sequence[Array]) -> Array:
    """All combinations (C, E) of one number per factor, the last factor running fastest."""
    return np.stack([grid.ravel() for grid in np.meshgrid(*columns, indexing="ij")], axis=1)


def _cluster(cells: Sequence[Cell], affine: int, shift: float) -> Cluster:
    """Values prod_i v_i, of which one may be affine in its coordinate, and the shift."""
    values = reduce(np.multiply.outer, [cell.fit.values for cell in cells]) + shift
    slopes = np.zeros((*values.shape, 1, len(cells)))
    lean = [cell.fit.slopes if i == affine else cell.fit.values for i, cell in enumerate(cells)]
    slopes[..., 0, affine] = reduce(np.multiply.outer, lean)
    origin, radius = np.array([cell.origin for cell in cells]), np.array([cell.radius for cell in cells])
    return Cluster(origin, radius, tuple(cell.fit.keys for cell in cells), values[..., None], slopes)
