"""Plans for tables and samples, how they are told in a file, and the layers of keys that were fitted to entries.

Keys on sites v_1 < v_2 < .. of one coordinate hand over half-way, with slopes that step by rho / (v_{k+1} - v_k):

    a_{k+1} - a_k = rho / (v_{k+1} - v_k),      b_{k+1} - b_k = -(a_{k+1} - a_k) (v_k + v_{k+1}) / 2,

so that at every site its own key leads its neighbours by rho/2, however unevenly the sites are spaced.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_dtype
from maxaffine.heads.lookup.grid import grid_keys
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

LEAD = 40.0  # by which, in logits, the key of an entry leads the nearest other one in the softmax of a hard layer


@dataclass(frozen=True)
class EntriesPlan:
    """Keys for entries: "bernstein" heads, keys on "sites" (along axes or listed), a uniform "grid" of all entries, or "hard"."""

    family: str
    counts: tuple[int, ...]

    @property
    def cells(self) -> int:
        """N."""
        return math.prod(self.counts)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"plan": "entries", "family": self.family, "counts": list(self.counts)}


def scaled(nodes: Array) -> tuple[Array, float, float]:
    """z in [-1, 1] of the nodes as a layer forms it, with its centre and scale: z = scale (x - centre)."""
    centre = float((nodes[0] + nodes[-1]) / 2.0)
    half = max(float(nodes[-1]) - centre, centre - float(nodes[0]))
    scale = 1.0 / half * (1.0 - 2.0**-50)
    return (nodes - centre) * scale, centre, scale


def site_keys(sites: Array, rho: float) -> AxisKeys:
    """Keys on increasing sites, neighbours handing over half-way."""
    return keys_between(sites[:-1], sites[1:], rho)


def keys_between(ends: Array, starts: Array, rho: float) -> AxisKeys:
    """Keys that hand over half-way between every end and the next start; about the middle slope, so that slopes stay small."""
    slopes = np.concatenate([[0.0], np.cumsum(rho / (starts - ends))])
    slopes -= (slopes[0] + slopes[-1]) / 2.0
    offsets = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * (ends + starts) / 2.0)])
    return AxisKeys(slopes, offsets - float(offsets.max()))


def is_uniform(nodes: Array) -> bool:
    """Whether nodes are equidistant to within the rounding of their numbers."""
    steps = np.diff(nodes)
    wanted = (nodes[-1] - nodes[0]) / (len(nodes) - 1)
    blur = 8.0 * 2.0**-52 * float(np.abs(nodes).max())
    return bool(np.all(np.abs(steps - wanted) <= blur + 1e-12 * wanted)) and blur < 1e-6 * wanted


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
    return Layer(coordinates, keys, sharpness, values[..., None], box.low, box.high, data.target.input_shapes, dtype, sites=sites)
