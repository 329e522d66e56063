"""Where keys go: coordinates of the input and the keys' slopes and offsets in them, as frozen data.

    z = M (x - centre),      score of key j:  s_j = a_j . z + b_j

Keys are either listed one by one (any max-affine partition) or the product of keys per coordinate, in which case
N = prod P_i keys are implied by sum P_i numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput


def frozen(array: object, dtype: object = np.float64) -> Array:
    """A read-only contiguous copy, so that what was certified cannot change afterwards.

    Maps of files stay what they are, and so do arrays of their own that are read-only already: copies that were made here.
    """
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.c_contiguous and not array.flags.writeable:
        mapped = isinstance(array, np.memmap) and array.mode == "r"
        if mapped or (type(array) is np.ndarray and array.flags.owndata):
            return array
    copy = np.array(array, dtype=dtype, order="C")  # type: ignore[call-overload]
    copy.flags.writeable = False
    return copy  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Coordinates:
    """z = M (x - centre): centred first, so that logits do not cancel far from the origin."""

    centre: Array  # (D,)
    matrix: Array  # (E, D)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", frozen(self.centre))
        object.__setattr__(self, "matrix", frozen(self.matrix))
        if self.matrix.ndim != 2 or self.centre.shape != (self.matrix.shape[1],):
            raise BadInput(
                f"`matrix` {self.matrix.shape} must be (E, D) with the D of `centre` {self.centre.shape}."
            )

    def __call__(self, x: Array) -> Array:
        """Coordinates (B, E) of points (B, D)."""
        return np.asarray((x - self.centre) @ self.matrix.T)

    @property
    def is_diagonal(self) -> bool:
        """Whether every coordinate is a scaled variable."""
        rows, columns = self.matrix.shape
        return rows == columns and bool(np.all(self.matrix == np.diag(np.diag(self.matrix))))


@dataclass(frozen=True)
class AxisKeys:
    """Keys along one coordinate: logits sharpness * (slopes_k z + offsets_k)."""

    slopes: Array  # (P,)
    offsets: Array  # (P,)

    def __len__(self) -> int:
        return len(self.slopes)

    @cached_property
    def off_parabola(self) -> float:
        """max_k |b_k + a_k^2/2| of half-integer sites at distance one, a_k = k - (P - 1)/2; infinite for other slopes."""
        slopes = self.slopes.astype(np.float64)
        if not np.array_equal(slopes, np.arange(len(slopes)) - (len(slopes) - 1) / 2.0):
            return math.inf
        square = slopes * slopes / 2.0  # exact below 2^26 cells
        return float(np.abs(self.offsets.astype(np.float64) + square).max())

    @cached_property
    def largest_offset(self) -> float:
        """max_k |b_k|."""
        return float(np.abs(self.offsets).max())

    def stored(self, dtype: np.dtype[np.generic]) -> AxisKeys:
        """The keys rounded to `dtype`."""
        return AxisKeys(frozen(self.slopes, dtype), frozen(self.offsets, dtype))


class OnAxes:
    """What has keys per coordinate, and a token for every tuple of one key each."""

    axes: tuple[AxisKeys, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of keys per coordinate."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def count(self) -> int:
        """N = prod P_i, as an exact integer."""
        return math.prod(self.shape)

    @property
    def key_arrays(self) -> list[Array]:
        """Slopes and offsets, coordinate after coordinate."""
        return [a for axis in self.axes for a in (axis.slopes, axis.offsets)]

    def stored_axes(self, dtype: np.dtype[np.generic]) -> tuple[AxisKeys, ...]:
        """The keys rounded to `dtype`."""
        return tuple(axis.stored(dtype) for axis in self.axes)


@dataclass(frozen=True)
class ProductKeys(OnAxes):
    """All tuples of one key per coordinate: a_j = (a^1_{j_1}, ..), b_j = sum_i b^i_{j_i}, j in row-major order."""

    axes: tuple[AxisKeys, ...]

    is_product: ClassVar[Literal[True]] = True

    @property
    def width(self) -> int:
        """E, the number of coordinates."""
        return len(self.axes)

    def stored(self, dtype: np.dtype[np.generic]) -> ProductKeys:
        """The keys rounded to `dtype`."""
        return ProductKeys(self.stored_axes(dtype))

    def listed(self, start: int = 0, stop: int | None = None) -> tuple[Array, Array]:
        """Slopes (n, E) and offsets (n,) of the keys start..stop in row-major order."""
        stop = self.count if stop is None else min(stop, self.count)
        index = np.unravel_index(np.arange(start, stop), self.shape)
        slopes = np.stack([axis.slopes[i] for axis, i in zip(self.axes, index, strict=True)], axis=1)
        offsets = self.axes[0].offsets[index[0]].copy()
        for axis, i in zip(self.axes[1:], index[1:], strict=True):
            offsets += axis.offsets[i]
        return slopes, offsets


@dataclass(frozen=True)
class ListedKeys(OnAxes):
    """Keys one by one: any max-affine partition."""

    slopes: Array  # (N, E)
    offsets: Array  # (N,)

    is_product: ClassVar[Literal[False]] = False

    @property
    def axes(self) -> tuple[AxisKeys, ...]:  # type: ignore[override]
        """One pseudo-axis that holds all keys."""
        return (AxisKeys(self.slopes, self.offsets),)

    @property
    def width(self) -> int:
        """E, the number of coordinates."""
        return int(self.slopes.shape[1])

    def stored(self, dtype: np.dtype[np.generic]) -> ListedKeys:
        """The keys rounded to `dtype`."""
        return ListedKeys(frozen(self.slopes, dtype), frozen(self.offsets, dtype))

    def listed(self, start: int = 0, stop: int | None = None) -> tuple[Array, Array]:
        """Slopes (n, E) and offsets (n,) of the keys start..stop."""
        return self.slopes[start:stop], self.offsets[start:stop]
