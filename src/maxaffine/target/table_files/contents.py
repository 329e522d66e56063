"""What a file of data says: a regular grid with a value at every place, or scattered points with a value at each.

Columns of numbers become a grid where every combination of their distinct coordinates occurs exactly once; anything else is
scattered.  Axes run upwards, an axis with one entry says nothing and is left out, and names become names of variables.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.expression.functions import RESERVED
from maxaffine.target.entries import check_missing
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

WHOLE = 1 << 53  # whole numbers up to here are float64 numbers


@dataclass(frozen=True)
class Contents:
    """Axes and values (n_1, .., n_D) of a grid, or points (N, D) and values (N,); K values per entry are a last dimension.

    A value that is missing is NaN.
    """

    source: str  # the file, as messages call it
    names: tuple[str, ...]  # of the variables
    values: Array
    axes: tuple[Array, ...] | None = None
    points: Array | None = None
    outputs: tuple[str, ...] = ()  # what the values are called in the file
    notes: tuple[str, ...] = ()  # what was done to the file's contents, in sentences

    @property
    def count(self) -> int:
        """The number of entries, missing ones included."""
        return math.prod(len(axis) for axis in self.axes) if self.axes is not None else len(self.values)

    @property
    def missing(self) -> int:
        """Entries that have no value."""
        return int(self._gaps().sum())

    def _gaps(self) -> NDArray[np.bool_]:
        return np.asarray(np.isnan(self.values).reshape(self.count, -1).any(axis=1))

    def _first_gap(self) -> str:
        """Where the first missing value is."""
        place = int(np.argmax(self._gaps()))
        if self.axes is not None:
            index = np.unravel_index(place, [len(axis) for axis in self.axes])
            at = [axis[i] for axis, i in zip(self.axes, index, strict=True)]
        else:
            assert self.points is not None
            at = list(self.points[place])
        return ", ".join(f"{name} = {c!s}" for name, c in zip(self.names[:6], at, strict=False))

    def described(self) -> str:
        """The entries in a few words."""
        names = ", ".join(self.names[:12]) + (", .." if len(self.names) > 12 else "")
        what = f"{', '.join(self.outputs)} over {names}: "
        if self.axes is not None:
            what += f"a grid of {' x '.join(str(len(axis)) for axis in self.axes)} entries"
        else:
            what += f"{self.count:,} scattered samples"
        per_entry = self.values.size // self.count
        return what + (f", {per_entry} values each" if per_entry > 1 else "")

    def target(self, missing: str = "refuse", name: str | None = None) -> Table | Samples:
        """The table or the samples, as `compile` takes them; missing values are refused, or ignored where that is asked for."""
        gone = self.missing
        if gone and not check_missing(missing):
            raise BadInput(
                f"{self.source}: {gone:,} of {self.count:,} values {'is' if gone == 1 else 'are'} missing, the first at "
                f"{self._first_gap()}; fill them in, or pass --missing ignore and nothing is said about them."
            )
        if gone == self.count:
            raise BadInput(f"{self.source}: every value is missing; there is nothing to compile.")
        if self.axes is not None:
            return Table(self.axes, self.values, self.names, missing=missing, name=name or "table")
        assert self.points is not None
        return Samples(self.points, self.values, self.names, missing=missing, name=name or "samples")


def within(count: int, limit: int, shown: str, what: str) -> None:
    """BadInput where something takes more bytes than are allowed."""
    if count > limit:
        way = "raise it with --max-bytes if you trust the file"
        raise BadInput(f"{shown}{what} {count:,} bytes, above the limit of {limit:,}; {way}.")


def numbers(array: NDArray[Any], name: str, shown: str) -> Array:
    """The array in float64, refused where that would change it or is not possible."""
    if array.dtype.kind == "M" or array.dtype.kind == "m":
        raise BadInput(f"{shown}: {name!r} holds times; store them as numbers, such as seconds since a day.")
    if array.dtype.kind == "c":
        raise BadInput(f"{shown}: {name!r} holds complex numbers; store real and imaginary parts under names of their own.")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise BadInput(f"{shown}: {name!r} has dtype {array.dtype}, and real numbers of at most 64 bits are read; convert it.")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size and (array.max() > WHOLE or array.min() < -WHOLE):
        raise BadInput(f"{shown}: {name!r} holds whole numbers beyond 2^53, which float64 would round; scale them down.")
    return np.ascontiguousarray(array, dtype=np.float64)


def pick(wanted: str | None, candidates: Sequence[str], shown: str, option: str, what: str) -> list[str]:
    """The candidates that an option such as `--values u,v` names; the only candidate where nothing is named."""
    if wanted is None:
        if len(candidates) == 1:
            return [candidates[0]]
        found = f"{listed(candidates)} could be" if candidates else "nothing in it can be"
        way = f"say which with {option} NAME" if candidates else "look at what the file holds"
        raise BadInput(f"{shown} does not say what {what}: {found}; {way}.")
    if wanted in candidates:
        return [wanted]
    named = [part.strip() for part in wanted.split(",")]
    for part in named:
        if part not in candidates:
            there = f"there {'is' if len(candidates) == 1 else 'are'} {listed(candidates)}" if candidates else "there is nothing"
            raise BadInput(f"{option} (={wanted!r}) names {part[:60]!r}, which is not in {shown} or cannot be taken; {there}.")
        if named.count(part) > 1:
            raise BadInput(f"{option} (={wanted!r}) names {part!r} twice.")
    return named


def grid(
    shown: str, names: Sequence[str], axes: Sequence[Array], values: Array, outputs: Sequence[str], notes: Sequence[str] = ()
) -> Contents:
    """A regular grid: every axis strictly monotone, turned upwards; axes of one entry left out."""
    D = len(axes)
    for name, axis, length in zip(names, axes, values.shape, strict=False):
        if axis.ndim != 1 or len(axis) != length:
            raise BadInput(f"{shown}: the axis {name!r} has shape {axis.shape}, and the values have {length} entries along it.")
        _finite_axis(shown, name, axis)
        step = np.diff(axis)
        if not ((step > 0).all() or (step < 0).all()):
            where = int(np.argmax(step == 0)) if (step == 0).any() else int(np.argmax(np.sign(step) != np.sign(step[0])))
            raise BadInput(
                f"{shown}: the axis {name!r} must be strictly ascending or descending, and it goes from {axis[where]!s} to "
                f"{axis[where + 1]!s} at entry {where + 2}; sort it together with the values."
            )
    _no_infinities(shown, values, outputs)
    kept, said = [], list(notes)
    for d in range(D):
        if len(axes[d]) == 1:
            said.append(f"{names[d]} has one entry, {axes[d][0]!s}, and is left out")
        else:
            kept.append(d)
    if not kept:
        raise BadInput(f"{shown} holds one entry; a table needs two along at least one axis.")
    flips = tuple(slice(None, None, -1) if len(axis) > 1 and axis[1] < axis[0] else slice(None) for axis in axes)
    turned = values[flips].reshape(*(len(axes[d]) for d in kept), *values.shape[D:])
    clean = _variables([names[d] for d in kept], shown, said)
    upwards = tuple(np.ascontiguousarray(axes[d][flips[d]]) for d in kept)
    return Contents(shown, clean, np.ascontiguousarray(turned), axes=upwards, outputs=tuple(outputs), notes=tuple(said))


def scattered(
    shown: str, names: Sequence[str], points: Array, values: Array, outputs: Sequence[str], notes: Sequence[str] = ()
) -> Contents:
    """Points and values as they stand; columns that are constant are left out."""
    for d, name in enumerate(names):
        _finite_axis(shown, name, points[:, d])
    _no_infinities(shown, values, outputs)
    said = list(notes)
    kept = []
    for d, name in enumerate(names):
        if (points[:, d] == points[0, d]).all():
            said.append(f"{name} is {points[0, d]!s} everywhere and is left out")
        else:
            kept.append(d)
    if not kept:
        raise BadInput(f"{shown}: all points are the same; samples need two different points.")
    clean = _variables([names[d] for d in kept], shown, said)
    return Contents(shown, clean, values, points=np.ascontiguousarray(points[:, kept]), outputs=tuple(outputs), notes=tuple(said))


def rows(
    shown: str, names: Sequence[str], points: Array, values: Array, outputs: Sequence[str], notes: Sequence[str] = ()
) -> Contents:
    """Points (N, D) with values (N,) or (N, K): a grid where every combination of coordinates occurs exactly once."""
    for d, name in enumerate(names):
        _finite_axis(shown, name, points[:, d])
    axes, places = [], []
    for column in points.T:
        axis, place = np.unique(column, return_inverse=True)
        axes.append(axis)
        places.append(place.reshape(-1))
    shape = tuple(len(axis) for axis in axes)
    whole = math.prod(shape)
    sizes = " x ".join(map(str, shape))
    said = list(notes)
    if whole == len(points):
        order = np.ravel_multi_index(tuple(places), shape)
        seen = np.zeros(whole, dtype=bool)
        seen[order] = True
        if seen.all():
            filled = np.empty((whole, *values.shape[1:]))
            filled[order] = values
            return grid(shown, names, axes, filled.reshape(*shape, *values.shape[1:]), outputs, said)
        said.append(f"not a grid: some of the {sizes} combinations of coordinates occur twice")
    elif len(points) < whole <= 2 * len(points):
        said.append(f"not a grid: {whole - len(points):,} of the {sizes} combinations of coordinates are not there")
    return scattered(shown, names, points, values, outputs, said)


def _finite_axis(shown: str, name: str, axis: Array) -> None:
    bad = ~np.isfinite(axis)
    if bad.any():
        place = int(np.argmax(bad))
        raise BadInput(
            f"{shown}: entry {place + 1} of the coordinate {name!r} is {axis[place]!s}, and coordinates must be finite; "
            "leave such rows out of the file."
        )


def _no_infinities(shown: str, values: Array, outputs: Sequence[str]) -> None:
    count = int(np.isinf(values).sum())
    if count:
        raise BadInput(
            f"{shown}: {', '.join(outputs)} {'is' if len(outputs) == 1 else 'are'} infinite in {count:,} "
            f"entr{'y' if count == 1 else 'ies'}, and values must be finite; write NaN where a value is missing."
        )


def _variables(names: Sequence[str], shown: str, said: list[str]) -> tuple[str, ...]:
    """Names that variables may have: what cannot be in a name becomes _, and a note says so."""
    clean = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:60] or "x"
        plain = f"x{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_" if plain in RESERVED else plain
        if plain != name:
            said.append(f"the variable {plain} is {name[:60]!r} of the file")
        clean.append(plain)
    for name in clean:
        if clean.count(name) > 1:
            raise BadInput(f"{shown}: two of the names {listed(names)} become {name!r} as variables; rename one.")
    return tuple(clean)


def listed(names: Sequence[str]) -> str:
    """Names in quotes, the first dozen of them."""
    shown = [repr(name[:60]) for name in names[:12]]
    return ", ".join(shown) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
