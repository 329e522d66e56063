"""What a file of a lookup holds: keys per axis of a grid or listed, values that may be mapped from a big file, the sharpness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import FRAME, Shapes, numbers_of, reach_of, read_frame
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import DTYPES, numpy_dtype
from maxaffine.target.target import Target


@dataclass(frozen=True)
class Lookup:
    """A lookup: keys per axis of a grid (slopes and offsets (P_i,)) or listed ((N, D) and (N,)), values (N, K), the sharpness."""

    low: Array
    high: Array
    centre: Array
    scale: Array  # (D,), the diagonal of the coordinates' matrix
    dtype: str
    slopes: list[Array]
    offsets: list[Array]
    values: Array  # (N, K); mapped from a big file, in its dtype
    sharpness: float
    listed: bool
    sites: list[Array]  # in x, of a layer that answers with the nearest

    @property
    def reach(self) -> Array:
        """max |x - centre| per variable."""
        return reach_of(self.low, self.high, self.centre)

    def steepest(self) -> tuple[Array, float]:
        """The largest |slope| per variable, and the largest |offset|."""
        if self.listed:
            return np.abs(self.slopes[0]).max(axis=0), float(np.abs(self.offsets[0]).max())
        return np.array([np.abs(a).max() for a in self.slopes]), float(sum(np.abs(b).max() for b in self.offsets))

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target) -> Lookup:
        """From a file's tensors; NotProved for tensors that are not those of a lookup for this target."""
        dtype, kind, D = str(description["dtype"]), description["keys"], target.box.dimension
        if dtype not in DTYPES or kind not in ("product", "listed"):
            raise NotProved("its dtype or its keys are not those of a lookup.")
        names = ["keys"] if kind == "listed" else [f"keys.{i}" for i in range(D)]
        counts = [int(np.size(tensors[f"{name}.offsets"])) for name in names]
        shapes: Shapes = {**dict.fromkeys(FRAME, (D,)), "coordinates.matrix": (D, D)}
        shapes |= {f"{name}.slopes": (n, D) if kind == "listed" else (n,) for name, n in zip(names, counts, strict=True)}
        shapes |= {f"{name}.offsets": (n,) for name, n in zip(names, counts, strict=True)}
        hard = description.get("hard", False)
        if hard not in (True, False):
            raise NotProved("`hard` is true or absent.")
        places = [f"sites.{i}" for i in range(len(names))] if hard else []
        shapes |= {name: (n, D) if kind == "listed" else (n,) for name, n in zip(places, counts, strict=False)}
        rest = {name: tensor for name, tensor in tensors.items() if name != "values"}
        held = numbers_of(rest, shapes, dtype, (*FRAME, "coordinates.matrix", *places))
        values, K = tensors["values"], target.d_out * target.n_out
        mapped = isinstance(values, np.memmap)
        if np.shape(values) != (*counts, target.d_out, target.n_out) or values.dtype != numpy_dtype(dtype):
            raise NotProved("its values are not those of its keys and of this target, in the dtype that the record states.")
        if not mapped:
            values = np.asarray(values).astype(np.float64)
            if not np.isfinite(values).all():
                raise NotProved("a tensor holds numbers that are not finite.")
        low, high, centre = read_frame(tensors, target)
        matrix, sharpness = held["coordinates.matrix"], float(description["sharpness"])
        if np.any(matrix != np.diag(np.diag(matrix))) or np.any(np.diag(matrix) <= 0):
            raise NotProved("its coordinates are not scaled variables.")
        with np.errstate(over="ignore"):
            stored = float(numpy_dtype(dtype).type(sharpness))
        if not 0.0 < sharpness < math.inf or stored != sharpness:
            raise NotProved(f"its sharpness (={sharpness!r}) is not a positive number of its dtype.")
        slopes, offsets = ([held[f"{name}.{part}"] for name in names] for part in ("slopes", "offsets"))
        return cls(
            low, high, centre, np.diag(matrix).copy(), dtype, slopes, offsets, values.reshape(math.prod(counts), K), sharpness,
            kind == "listed", [held[name] for name in places],
        )  # fmt: skip
