"""The layers that entries are compiled to, in one view: lookups, and one group of product keys in scaled variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_reserve
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer, Lookup, ProductKeys
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format, numpy_dtype
from maxaffine.target.target import Target

ROUND = 4096  # keys per round of the streaming runtime


@dataclass(frozen=True)
class EntryLayer:
    """Keys per axis or listed, values (keys.., K) that may be affine in z, one scale per variable."""

    centre: Array
    scale: Array
    slopes: list[Array]
    offsets: list[Array]
    columns: Array  # values (keys.., K, 1), or with the slopes of the values beside them (keys.., K, 1 + D)
    sharpness: float
    dtype: str
    reserve: float
    lookup: Lookup | None
    grouped: Layer | None

    @classmethod
    def read(cls, tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target) -> EntryLayer:
        """From a file; NotProved for layers of a kind that is not compiled from entries."""
        description, K = record["layer"], target.d_out
        if description["keys"] != "grouped":
            one = Lookup.read(tensors, description, target)
            values = np.asarray(one.values, dtype=np.float64).reshape(*(len(b) for b in one.offsets), K)
            return cls(
                one.centre, one.scale, one.slopes, one.offsets, values[..., None], one.sharpness, one.dtype, 0.0, one, None
            )  # fmt: skip
        layer = Layer.read(tensors, description, target)
        keys = layer.groups[0]
        if len(layer.groups) != 1 or not isinstance(keys, ProductKeys) or keys.values is None or layer.affine_part is not None:
            raise NotProved("its layer is not one group of product keys with listed values.")
        if keys.matrix.shape != (len(layer.low),) * 2 or np.any(keys.matrix != np.diag(np.diag(keys.matrix))):
            raise NotProved("its coordinates are not scaled variables.")
        if description.get("hard", False) is not False or np.any(np.diag(keys.matrix) <= 0):
            raise NotProved("its coordinates do not grow with its variables, or `hard` is said of a group.")
        slopes, offsets = [axis.a for axis in keys.axes], [axis.b for axis in keys.axes]
        columns = [keys.values[..., None]] + ([] if keys.slopes is None else [keys.slopes])
        return cls(
            layer.centre, np.diag(keys.matrix).copy(), slopes, offsets, np.concatenate(columns, axis=-1), 1.0, layer.dtype,
            stated_reserve(record), None, layer,
        )  # fmt: skip

    @property
    def values(self) -> Array:
        """(keys.., K), at z = 0."""
        return self.columns[..., 0]

    @property
    def is_grouped(self) -> bool:
        """Whether it is a group of product keys, which runs in float64 sums, and not a lookup."""
        return self.grouped is not None

    @property
    def listed(self) -> bool:
        """Whether keys are listed one by one."""
        return self.lookup is not None and self.lookup.listed

    @property
    def sites(self) -> list[Array]:
        """In x, of a layer that answers with the nearest."""
        return [] if self.lookup is None else self.lookup.sites

    @property
    def hard(self) -> bool:
        """Whether the nearest site answers alone."""
        return bool(self.sites)

    def coordinates(self, x: Array, variable: int, narrow: bool) -> Array:
        """z of one variable as the layer forms it: a difference and a product in float64, then its dtype."""
        z = (x - self.centre[variable]) * self.scale[variable]
        return np.asarray(z.astype(numpy_dtype(self.dtype)).astype(np.float64) if narrow else z)


def fits(layer: EntryLayer, top: float, terms: float) -> None:
    """NotProved where answers, or sums of values that are divided by their normaliser at the end, leave their formats."""
    most = float(np.finfo(compute_format(layer.dtype).name).max)
    if not top < 0.4 * most or not top * (terms + 2.0) < 0.4 * (float(np.finfo(np.float64).max) if layer.is_grouped else most):
        raise NotProved(f"sums of its values may overflow in {layer.dtype}.")
