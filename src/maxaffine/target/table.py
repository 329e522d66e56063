"""Table: values on a grid of axes, regular or not, as a target of `compile`.

    Table([temperature, pressure], density, names=["T", "p"])          values (n_1, .., n_D) or (n_1, .., n_D, K)
    Table.from_xarray(density)                                         dimensions are variables, coordinates are axes

A table says something at its entries and nowhere else, and so does the certificate of a layer compiled from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.nearest import nearest_index
from maxaffine.target.box import Box
from maxaffine.target.entries import Entries, check_missing, check_names, digest, numbers
from maxaffine.target.target import Target

BLOCK = 1 << 18  # entries handed out together


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Table:
    """Values on the product of D axes; immutable.

    Args:
        axes: D strictly monotone rows of finite numbers, at least two each.  A descending axis is turned round, its values too.
        values: (n_1, .., n_D), or (n_1, .., n_D, K) for K values per entry; float64.
        names: of the variables; by default x, or x1, x2, ..
        missing: "refuse" entries that are NaN, infinite or masked, or "ignore" them: then nothing is said about them.
        name: what the table is called in files and figures.
    """

    axes: tuple[Array, ...]
    values: Array  # (n_1, .., n_D, K); NaN where missing
    output_shape: tuple[int, ...]  # () or (K,)
    box: Box
    name: str
    _missing: int

    def __init__(
        self,
        axes: Sequence[ArrayLike],
        values: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        missing: str = "refuse",
        name: str = "table",
    ) -> None:
        ignore = check_missing(missing)
        rows, turned = _axes(axes)
        found = numbers("values", values)
        shape = tuple(len(row) for row in rows)
        if found.shape[: len(rows)] != shape or found.ndim not in (len(rows), len(rows) + 1) or found.size == 0:
            lengths = ", ".join(str(n) for n in shape)
            raise BadInput(
                f"`values` of shape {found.shape} must be ({lengths}{',' if len(shape) == 1 else ''}), the lengths of the axes, "
                f"or ({lengths}, K) for K values per entry."
            )
        outputs = () if found.ndim == len(rows) else (int(found.shape[-1]),)
        holes = np.asarray(~np.isfinite(found.reshape(*shape, -1)).all(axis=-1))
        found = np.array(np.flip(found, turned) if turned else found, order="C").reshape(*shape, -1)
        count = int(np.count_nonzero(holes))
        if count and not ignore:
            first = tuple(int(i) for i in np.argwhere(holes)[0])
            ways = (row[::-1] if i in turned else row for i, row in enumerate(rows))
            where = ", ".join(f"{row[i]:.6g}" for row, i in zip(ways, first, strict=True))
            raise BadInput(
                f"{count:,} of {holes.size:,} entries of `values` are missing or not finite, the first at index {first} "
                f'({where}); fill them, or pass missing="ignore" and nothing is said about them.'
            )
        if count == holes.size:
            raise BadInput("every entry of `values` is missing; there is nothing to compile.")
        if count:
            found[np.flip(holes, turned) if turned else holes] = np.nan
        for array in (*rows, found):
            array.flags.writeable = False
        box = Box.named(check_names(names, len(rows)), [row[0] for row in rows], [row[-1] for row in rows])
        vars(self).update(axes=rows, values=found, output_shape=outputs, box=box, name=str(name), _missing=count)

    @classmethod
    def from_xarray(cls, array: Any, outputs: str | None = None, *, missing: str = "refuse", name: str | None = None) -> "Table":
        """The table of an xarray DataArray: its dimensions are the variables, their coordinates the axes.

        `outputs`: the dimension that is no variable but counts several values per entry.
        """
        if not (hasattr(array, "dims") and hasattr(array, "coords") and hasattr(array, "values")) or hasattr(array, "data_vars"):
            raise BadInput(f"`array` (a {type(array).__name__}) must be an xarray DataArray, such as dataset['t'].")
        if outputs is not None and outputs not in array.dims:
            raise BadInput(f"`outputs` (={outputs!r}) is no dimension of the array; they are {', '.join(map(str, array.dims))}.")
        names = [dim for dim in array.dims if dim != outputs]
        without = next((dim for dim in names if dim not in array.coords), None)
        if without is not None:
            raise BadInput(f"dimension {without!r} has no coordinate, so nothing says where its entries are; assign one.")
        found = array if outputs is None else array.transpose(..., outputs)
        axes = [array.coords[dim].values for dim in names]
        return cls(axes, found.values, names, missing=missing, name=name or str(array.name or "table"))

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Entries per axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return self.box.names

    @property
    def nbytes(self) -> int:
        """Bytes of axes and values as float64."""
        return self.values.nbytes + sum(axis.nbytes for axis in self.axes)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which entries are present, in the shape of the table."""
        found = np.asarray(np.isfinite(self.values).all(axis=-1))
        found.flags.writeable = False
        return found

    @cached_property
    def entries(self) -> Entries:
        """Shape, counts and SHA-256 of the numbers."""
        count = int(np.prod(self.shape)) - self._missing
        return Entries("table", self.shape, count, self._missing, digest("maxaffine table 1", (*self.axes, self.values)))

    @property
    def is_complete(self) -> bool:
        """Whether no entry is missing."""
        return self._missing == 0

    @property
    def largest(self) -> float:
        """max |value| over the entries that are present."""
        return float(np.nanmax(np.abs(self.values)))

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """Points (m, D) and values (m, K) of the entries that are present, block by block, in row-major order."""
        total, flat = int(np.prod(self.shape)), self.values.reshape(-1, self.values.shape[-1])
        for start in range(0, total, BLOCK):
            stop = min(start + BLOCK, total)
            index = np.unravel_index(np.arange(start, stop), self.shape)
            points = np.stack([axis[i] for axis, i in zip(self.axes, index, strict=True)], axis=1)
            values = flat[start:stop]
            if not self.is_complete:
                there = np.isfinite(values).all(axis=1)
                points, values = points[there], values[there]
            if len(points):
                yield points, values

    def nearest(self, x: ArrayLike) -> Array:
        """Values (B, K) of the entry nearest to every point (B, D), axis by axis; of two equally near ones the lower.

        The comparison is that of SciPy's RegularGridInterpolator, (x - a)/(b - a) <= 1/2 in float64.
        """
        return np.asarray(self.values[self._nearest_entry(x)])

    def _nearest_entry(self, x: ArrayLike) -> tuple[NDArray[np.intp], ...]:
        points = np.asarray(x, dtype=np.float64)
        return tuple(nearest_index(axis, points[:, i]) for i, axis in enumerate(self.axes))

    def snapped(self, x: ArrayLike) -> Array:
        """The nearest entry that is present to every point (B, D) along the axes, as a point (B, D)."""
        index = self._nearest_entry(x)
        found = np.stack([axis[i] for axis, i in zip(self.axes, index, strict=True)], axis=1)
        if not self.is_complete:  # a missing entry: the nearest one that is there, in units of the box
            from scipy.spatial import cKDTree

            there = np.argwhere(self.mask)
            places = np.stack([axis[there[:, i]] for i, axis in enumerate(self.axes)], axis=1)
            lost = ~self.mask[index]
            if lost.any():
                found[lost] = places[cKDTree(places / self.box.width).query(found[lost] / self.box.width)[1]]
        return found

    @cached_property
    def target(self) -> Target:
        """The target that `compile` takes: at a point that is no entry it is the nearest one, which is what figures show."""
        return Target(self.box, self.output_shape, "points", None, self._call, None, self.name, data=self)

    def _call(self, x: Array) -> Array:
        return self.nearest(x).reshape(len(x), *self.output_shape)

    def __repr__(self) -> str:
        shape = " x ".join(str(n) for n in self.shape)
        holes = f", {self._missing:,} missing" if self._missing else ""
        return f"<maxaffine.Table {self.name!r}: {shape} entries of {', '.join(self.names)}{holes}>"


def _axes(axes: Any) -> tuple[tuple[Array, ...], tuple[int, ...]]:
    """The axes in increasing order, and which of them were turned round."""
    if isinstance(axes, np.ndarray) and axes.ndim == 1 and axes.dtype != object:
        axes = (axes,)
    try:
        given = [numbers(f"axes[{i}]", axis) for i, axis in enumerate(axes)]
    except TypeError:
        given = []
    if not given:
        raise BadInput("`axes` must be one row of numbers per variable, such as [temperature, pressure].")
    rows: list[Array] = []
    turned: list[int] = []
    for i, row in enumerate(given):
        if row.ndim != 1 or len(row) < 2:
            raise BadInput(f"`axes[{i}]` of shape {row.shape} must be a row of two numbers or more; leave out shorter ones.")
        bad = np.flatnonzero(~np.isfinite(row))
        if bad.size:
            raise BadInput(f"`axes[{i}]` has {bad.size:,} entries that are not finite, the first at index {bad[0]}; fill them.")
        if row[0] > row[-1]:
            row, turned = row[::-1], [*turned, i]
        wrong = np.flatnonzero(np.diff(row) <= 0)
        if wrong.size:
            at = len(row) - 2 - int(wrong[-1]) if i in turned else int(wrong[0])
            order = "decrease" if i in turned else "increase"
            raise BadInput(
                f"`axes[{i}]` must {order} strictly, and its entries {at} and {at + 1} are {given[i][at]:.9g} and "
                f"{given[i][at + 1]:.9g}; sort the axis together with its values."
            )
        with np.errstate(over="ignore"):
            if not np.isfinite(row[-1] - row[0]):
                raise BadInput(f"`axes[{i}]` is wider than float64 can hold; scale it.")
        rows.append(np.array(row, order="C"))
    return tuple(rows), tuple(turned)
