"""From keys fitted to entries to layers: product heads, one token per entry on a uniform grid, and nearest keys."""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_dtype
from maxaffine.heads.entries.fit import scaled
from maxaffine.heads.entries.plan import site_keys
from maxaffine.heads.lookup.grid import grid_keys
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

LEAD = 40.0  # by which, in logits, the key of an entry leads the nearest other one in the softmax of a hard layer


def build_head(
    data: Table | Samples, centre: Array, scale: Array, axes: tuple[AxisKeys, ...], values: Array, slopes: Array | None,
    dtype: str,
) -> GroupedLayer:  # fmt: skip
    """One group of product keys in z = scale (x - centre)."""
    box = data.box
    group = Group(np.diag(scale), axes, values, None, slopes)
    return GroupedLayer(centre, (group,), 0.0, box.low, box.high, data.target.input_shapes, dtype)


def build_uniform(table: Table, rho: float, values: Array, dtype: str) -> Layer:
    """One token per entry of a table whose axes are equidistant, in cell units: the keys of a uniform grid."""
    counts = np.asarray(table.shape, dtype=np.float64)
    centre = (table.box.low + table.box.high) / 2.0
    coordinates = Coordinates(centre, np.diag((counts - 1.0) / (table.box.high - table.box.low)))
    return Layer(
        coordinates, grid_keys(table.shape), rho, values[..., None], table.box.low, table.box.high,
        table.target.input_shapes, dtype,
    )  # fmt: skip


def build_hard_table(table: Table, values: Array, dtype: str) -> Layer:
    """The nearest entry: the nodes are the sites, and the keys of its softmax hand over half-way between them."""
    places = [scaled(axis) for axis in table.axes]
    centre, scale = (np.array([one[k] for one in places]) for k in (1, 2))
    keys = ProductKeys(tuple(site_keys(one[0], 2.0 * LEAD) for one in places))
    return _hard(table, Coordinates(centre, np.diag(scale)), keys, 1.0, values, table.axes, dtype)


def build_hard_samples(samples: Samples, spacing: float, dtype: str) -> Layer:
    """The nearest sample: the points are the sites; keys in units of the least distance of two of them."""
    coordinates = Coordinates((samples.box.low + samples.box.high) / 2.0, np.eye(samples.dimension) / spacing)
    places = coordinates(samples.X)
    keys = ListedKeys(places, -0.5 * (places * places).sum(axis=1))
    return _hard(samples, coordinates, keys, 2.0 * LEAD, samples.y, (samples.X,), dtype)


def _hard(
    data: Table | Samples, coordinates: Coordinates, keys: ProductKeys | ListedKeys, sharpness: float, values: Array,
    sites: tuple[Array, ...], dtype: str,
) -> Layer:  # fmt: skip
    box, most = data.box, float(np.finfo(compute_dtype(dtype)).max)
    if not all(np.abs(a).max() < most / 1e3 for one in keys.axes for a in (one.slopes, one.offsets)):
        raise Refused(f"entries that close and that far apart have logits beyond {dtype}; use float64, or scale the axes.")
    return Layer(
        coordinates, keys, sharpness, values[..., None], box.low, box.high, data.target.input_shapes, dtype, sites=sites
    )  # fmt: skip
