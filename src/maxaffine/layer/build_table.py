"""From keys fitted to entries to layers: product heads, one token per entry on a uniform grid, and nearest keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.build import input_shapes
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.plan.grid import grid_keys
from maxaffine.plan.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys
from maxaffine.plan.tables import binary_scale
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

Array = NDArray[np.float64]

LEAD = 40.0  # by which, in logits, the key of an entry leads the nearest other one in the softmax of a hard layer


def build_head(
    data: Table | Samples, centre: Array, scale: Array, axes: tuple[AxisKeys, ...], values: Array, slopes: Array | None,
    dtype: str,
) -> GroupedLayer:  # fmt: skip
    """One group of product keys in z = scale (x - centre)."""
    box = data.box
    group = Group(np.diag(scale), axes, values, None, slopes)
    return GroupedLayer(centre, (group,), 0.0, box.low, box.high, input_shapes(data.target), dtype)


def build_uniform(table: Table, rho: float, values: Array, dtype: str) -> Layer:
    """One token per entry of a table whose axes are equidistant, in cell units: the keys of a uniform grid."""
    counts = np.asarray(table.shape, dtype=np.float64)
    centre = (table.box.low + table.box.high) / 2.0
    coordinates = Coordinates(centre, np.diag((counts - 1.0) / (table.box.high - table.box.low)))
    return Layer(
        coordinates, grid_keys(table.shape), rho, values[..., None], table.box.low, table.box.high,
        input_shapes(table.target), dtype,
    )  # fmt: skip


def build_hard_table(table: Table, values: Array, dtype: str) -> Layer:
    """The nearest entry: keys are the nodes times a power of two, which rounds nothing."""
    scale = np.array([binary_scale(float(np.diff(axis).min())) for axis in table.axes])
    stored = numpy_dtype(dtype)
    axes = []
    for i, (axis, factor) in enumerate(zip(table.axes, scale, strict=True)):
        with np.errstate(over="ignore"):
            sites = (axis * factor).astype(stored)
        if not np.isfinite(sites.astype(np.float64)).all() or np.any(np.diff(sites) <= 0):
            raise Refused(f"two entries of axis {i} are one number in {dtype}; use float64, or subtract an origin from the axis.")
        wide = sites.astype(np.float64)
        axes.append(AxisKeys(wide, _offsets(wide * wide, stored)))
    return _hard(table, scale, ProductKeys(tuple(axes)), values[..., None], dtype)


def build_hard_samples(samples: Samples, spacing: float, dtype: str) -> Layer:
    """The nearest sample: keys are the points times one power of two, which rounds nothing and keeps distances in order."""
    stored = numpy_dtype(dtype)
    scale = np.full(samples.dimension, binary_scale(spacing))
    with np.errstate(over="ignore"):
        sites = (samples.X * scale).astype(stored).astype(np.float64)
    if not np.isfinite(sites).all():
        raise Refused(f"the points are farther apart in units of the closest two than {dtype} can hold; use float64.")
    return _hard(samples, scale, ListedKeys(sites, _offsets((sites * sites).sum(axis=1), stored)), samples.y[..., None], dtype)


def _offsets(squares: Array, stored: np.dtype[np.floating]) -> Array:
    """-|a|^2/2; what the dtype cannot hold is its largest number, and the softmax there is of no use."""
    return np.asarray(np.maximum(-0.5 * squares, -float(np.finfo(stored).max)))


def _hard(data: Table | Samples, scale: Array, keys: ProductKeys | ListedKeys, values: Array, dtype: str) -> Layer:
    box = data.box
    coordinates = Coordinates(np.zeros(len(scale)), np.diag(scale))
    return Layer(
        coordinates, keys, 2.0 * LEAD, values, box.low, box.high, input_shapes(data.target), dtype, hard=True
    )  # fmt: skip
