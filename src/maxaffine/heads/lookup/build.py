"""From a plan to a layer: the keys the plan names and the values that the target says.

Values of a lookup: f at the cell's centre (arguments E1 to E4), the mid-range of f on the enlarged cell (G4) or on the box (C),
or the p-mean of f over the cell (L_p): the median for p = 1, the mean for p = 2, in between the minimiser of the mean of
|f - y|^p.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import check
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import numpy_dtype
from maxaffine.heads.lookup import grid
from maxaffine.heads.lookup.grid import CellMeans, grid_coordinates, grid_keys
from maxaffine.heads.lookup.plan import CentresPlan, GridPlan
from maxaffine.layer.keys import Coordinates, ListedKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.target.target import Target


def build_grid(plan: GridPlan, target: Target, dtype: str, progress: Progress = silent, means: CellMeans | None = None) -> Layer:
    """The layer of a grid plan; `means` are declared means of the target over boxes, used in L_p."""
    coordinates = grid_coordinates(target.box, plan.counts)
    values = np.empty((plan.cells, target.d_out, target.n_out), dtype=numpy_dtype(dtype))
    step = grid.CHUNK if math.isinf(plan.norm) else grid.CHUNK // 32
    for start, stop in grid.chunks(plan.cells, step):
        if math.isfinite(plan.norm) and means is not None:
            values[start:stop] = grid.declared_means(means, target, coordinates, plan.counts, start, stop)
        elif math.isfinite(plan.norm):
            values[start:stop] = grid.p_mean(grid.cell_samples(target, coordinates, plan.counts, start, stop), plan.norm)
        elif plan.argument == "G4":
            f = grid.enclose_cells(target, coordinates, plan.counts, start, stop, plan.margin)
            values[start:stop] = f.lo / 2.0 + f.hi / 2.0
        else:
            centres = grid.cell_centres(coordinates, plan.counts, start, stop)
            values[start:stop] = target.values(np.clip(centres, target.box.low, target.box.high))
        progress("values", stop, plan.cells)
        check()
    shaped = values.reshape(*plan.counts, target.d_out, target.n_out)
    return _layer(target, coordinates, grid_keys(plan.counts), plan.sharpness, shaped, dtype)


def build_constant(plan: GridPlan, target: Target, dtype: str, middle: Array) -> Layer:
    """The layer of argument C: one key, and the middle (K,) of the target's range as its value."""
    values = middle.reshape(*plan.counts, target.d_out, target.n_out).astype(numpy_dtype(dtype))
    return _layer(target, grid_coordinates(target.box, plan.counts), grid_keys(plan.counts), plan.sharpness, values, dtype)


def build_centres(plan: CentresPlan, target: Target, dtype: str) -> Layer:
    """The layer of Theorem I: keys v_j, offsets -|v_j|^2/2, values f(v_j), in coordinates scaled by the radius."""
    scale = 1.0 / plan.radius if math.isfinite(plan.radius) and plan.radius > 0 else 1.0
    coordinates = Coordinates((target.box.low + target.box.high) / 2.0, np.eye(target.box.dimension) * scale)
    sites = coordinates(plan.centres).astype(numpy_dtype(dtype)).astype(np.float64)
    keys = ListedKeys(sites, -0.5 * (sites * sites).sum(axis=1))
    values = target.values(plan.centres)
    return _layer(target, coordinates, keys, plan.multiplier / scale**2, values, dtype)


def build_partition(partition: MaxAffine, multiplier: float, values: Array, target: Target, dtype: str) -> Layer:
    """The layer over any max-affine partition: scores in centred coordinates of the box's half widths."""
    centre = (target.box.low + target.box.high) / 2.0
    # A little more than half the width: the centre is rounded, and every x of the box must fall into [-1, 1].
    half = np.maximum(target.box.high - centre, centre - target.box.low) * (1.0 + 2.0**-50)
    keys = ListedKeys(partition.A * half, partition.b + partition.A @ centre)
    return _layer(target, Coordinates(centre, np.diag(1.0 / half)), keys, multiplier, values, dtype)


def _layer(
    target: Target, coordinates: Coordinates, keys: ProductKeys | ListedKeys, sharpness: float, values: Array, dtype: str
) -> Layer:
    return Layer(coordinates, keys, sharpness, values, target.box.low, target.box.high, target.input_shapes, dtype)
