"""A group of clusters of two directions as the patches that the kernel reads, and what it is off by.

Masses off by eta move F by at most (e^{2 eta} - 1) 2 sup sum_k Omega_k |p_k - f|, which a proof of the layer has to know.  The
place in a cell is z times a power of two, rounded at the size of the number of cells.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.runtime.gpu import rounding
from maxaffine.runtime.gpu.listed import EXP, Heard
from maxaffine.runtime.patches import SOME, Patches, patches, row_of


@dataclass(frozen=True)
class Patched:
    """The patches of one group, and what the kernel is off by."""

    rows: Array  # (2, D)
    made: Patches
    off: float
    evaluated: float
    moved: float
    size: float

    @property
    def form(self) -> list[float]:
        """Of the kernel, but for where its maps, cells and numbers begin."""
        made = self.made
        return [*made.shape, made.degree + 1, row_of(made.degree), made.most, 0, 0, *self.scale.tolist()]

    @property
    def scale(self) -> Array:
        """Cells per unit of z, numbers of the kernel's dtype."""
        return np.asarray(np.array(self.made.shape) / (self.made.high - self.made.low))

    @property
    def cells(self) -> NDArray[np.int32]:
        """Per cell: the first patch, and in the last five bits how many there are."""
        return (self.made.first * 32 + self.made.count).astype(np.int32)

    @property
    def numbers(self) -> Array:
        """Patch after patch: rows of powers, and the quadratic of the mass."""
        made, row = self.made, row_of(self.made.degree)
        powers = np.pad(made.values, ((0, 0), (0, 0), (0, row - made.values.shape[2]))).reshape(len(made.values), -1)
        order = made.scores[:, [0, 1, 2, 3, 4]]
        return np.concatenate([powers, np.pad(order, ((0, 0), (0, 3)))], axis=1).ravel()


def patched(group: ClusterGroup, centre: Array, reach: Array, dtype: str, tolerance: float, heard: Heard | None) -> Patched:
    """The patches of a group in that dtype; Refused where nothing is known of what its masses do."""
    if heard is None or not math.isfinite(heard.blend):
        raise Refused("nothing is known of how its clusters blend.")
    if dtype == "float64" and len(group.clusters) > SOME:
        raise Refused(f"patches of more than {SOME} clusters are made for float32.")
    span, unit = np.abs(group.matrix) @ reach, dtype_of(dtype).unit
    if not (span <= 1.0 + 1e-9).all():
        raise Refused("its coordinates leave [-1, 1].")
    span = _stored(span, dtype)
    made = patches(group, -span, span, tolerance)
    if len(made.values) * made.values.shape[1] * row_of(made.degree) >= 1 << 26 or len(made.values) >= 1 << 26:
        raise Refused("its patches take too much memory.")
    rise = np.abs(made.scores[:, 1:3]).sum(axis=1) + 2.0 * np.abs(made.scores[:, 3:]).sum(axis=1)
    large = np.abs(made.scores[:, 0]) + rise
    # a mass that trails by more than the exponential can tell is off by what does not matter
    heardly = np.minimum(large, 2.0 * rise + 90.0)
    eta = made.score_error + gamma(8, unit) * float(heardly.max(initial=0.0))
    masses = math.expm1(2.0 * eta) * 2.0 * heard.blend if eta < 1.0 else math.inf
    off = made.error + masses + made.unheard
    absolute = float(np.abs(made.values).sum(axis=(1, 2)).max())
    degree = made.degree
    evaluated = gamma(4 * degree + 6, unit) * absolute + (EXP + 4.0 * made.most) * unit * 2.0 * absolute
    each = np.array([rounding.coordinate(row, centre, reach, unit) for row in group.matrix]) + 1.01 * unit * 2.0 * span
    moved = float(each @ (made.slope + made.steep * 2.0 * heard.blend))
    if not math.isfinite(off):
        raise Refused("the kernel's rounding of its masses is not bounded.")
    return Patched(group.matrix, made, off, evaluated, moved, made.size + off)


def _stored(span: Array, dtype: str) -> Array:
    """Half widths whose inverse, times a power of two, is a number of the dtype: cells are where the kernel takes them to be."""
    narrow = np.dtype(dtype).type
    found = []
    for one in span:
        per = narrow(1.0 / (float(one) * (1 + 1e-12)))
        while float(per) * float(one) > 1.0:
            per = np.nextafter(per, narrow(0.0))
        found.append(1.0 / float(per))
    return np.array(found)
