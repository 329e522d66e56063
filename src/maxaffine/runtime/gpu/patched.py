"""A group of clusters of two directions as the patches that the kernel reads, and what it is off by.

Cell by cell (runtime/blends.py): the quadratics of masses and the rounding of their values, the step by which rounding moves the
query, the rounding of the polynomials and of the sums.  The place in a cell is z times a number of the dtype, rounded at the size
of the number of cells.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.runtime.blends import blends
from maxaffine.runtime.gpu import rounding
from maxaffine.runtime.gpu.listed import EXP
from maxaffine.runtime.patches import OVER, Patches, patches, row_of

QUARTERED = 4  # times that a cell is cut into quarters
MOST_CUT = 1 << 25  # numbers of their heads at once


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
        """Patch after patch: rows of powers, and the quadratic of the mass, in v in [-1, 1] of the cell."""
        made, row = self.made, row_of(self.made.degree)
        wide = (1.0 + OVER) ** -np.arange(made.values.shape[2])
        values = made.values * np.multiply.outer(wide, wide)
        powers = np.pad(values, ((0, 0), (0, 0), (0, row - values.shape[2]))).reshape(len(values), -1)
        scores = made.scores * (1.0 + OVER) ** -np.array([0.0, 1.0, 1.0, 2.0, 2.0])
        return np.concatenate([powers, np.pad(scores, ((0, 0), (0, 3)))], axis=1).ravel()


def patched(group: ClusterGroup, centre: Array, reach: Array, dtype: str, tolerance: float) -> Patched:
    """The patches of a group in that dtype; Refused where there are too many."""
    span, unit = np.abs(group.matrix) @ reach, dtype_of(dtype).unit
    if not (span <= 1.0 + 1e-9).all():
        raise Refused("its coordinates leave [-1, 1].")
    span = _stored(span, dtype)
    made = patches(group, -span, span, tolerance)
    if len(made.values) * made.values.shape[1] * row_of(made.degree) >= 1 << 26 or len(made.values) >= 1 << 26:
        raise Refused("its patches take too much memory.")
    each = np.array([rounding.coordinate(row, centre, reach, unit) for row in group.matrix]) + 3.01 * unit * span
    step = each * np.array(made.shape) / span  # in places of a cell
    if not (step <= OVER / 2.0).all():
        raise Refused("its cells are too small for rounded coordinates.")
    off, evaluated, moved = _costs(made, step, unit, tolerance / 8.0)
    return Patched(group.matrix, made, off, evaluated, moved, made.size + off)


def _costs(made: Patches, step: Array, unit: float, enough: float) -> tuple[float, float, float]:
    """The patches and the errors of masses; the rounding of polynomials, weights and sums; the steps of rounded queries.

    Cells are cut into quarters where what their masses cost and their queries is not yet little `enough`.
    """
    cell = np.repeat(np.arange(len(made.count)), made.count)
    rise = np.abs(made.scores[:, 1:]).sum(axis=1) + np.abs(made.scores[:, 3:]).sum(axis=1)
    # a mass that trails by more than the exponential can tell is off by what does not matter
    large = np.minimum(np.abs(made.scores[:, 0]) + rise, 2.0 * rise + 90.0)
    eta = made.score_error + gamma(8, unit) * large
    eta[made.first] = 0.0  # its mass is what the others are counted from
    sizes = np.abs(made.values).sum(axis=(1, 2))
    absolute = np.maximum.reduceat(sizes, made.first)
    off, moved, apart = _quarters(cell, made.scores, made.values, eta, step, enough)
    several = made.count > 1
    sums = np.where(several, 4.0 * made.count + 4.0, 0.0) * unit * 2.0 * absolute
    evaluated = gamma(4 * made.degree + 6, unit) * absolute + sums + np.where(several, EXP * unit * 2.0, 0.0) * apart
    return made.error + made.unheard + off, float(evaluated.max()), moved


def _quarters(
    cell: NDArray[np.int64], scores: Array, values: Array, eta: Array, step: Array, enough: float
) -> tuple[float, float, Array]:
    """What masses and queries that are off cost anywhere, and per cell how far heads are apart."""
    off = moved = 0.0
    apart: Array | None = None
    for last in [False] * QUARTERED + [True]:
        count = np.bincount(cell)
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        powers, sizes = np.arange(values.shape[1]), np.abs(values)
        slopes = [np.maximum.reduceat((sizes.sum(axis=2 - e) * powers).sum(axis=1), first) for e in range(2)]
        found = blends(cell, len(count), scores, _sorted(values), eta)
        here = (np.stack(slopes, axis=1) + found.steered) @ step
        apart = found.apart if apart is None else apart
        again = found.off + here > enough
        last = last or 4 * int(again[cell].sum()) * values[0].size > MOST_CUT
        kept = np.ones(len(again), dtype=bool) if last else ~again
        off, moved = max(off, float(found.off[kept].max(initial=0.0))), max(moved, float(here[kept].max(initial=0.0)))
        if last or not again.any():
            break
        mine = again[cell]
        scores, values, eta, step = scores[mine], values[mine], np.tile(eta[mine], 4), step * 2.0
        place = np.cumsum(again)[cell[mine]] - 1
        cell = np.concatenate([place + k * int(again.sum()) for k in range(4)])
        corners = [(a, b) for a in (-0.5, 0.5) for b in (-0.5, 0.5)]
        scores = np.concatenate([_masses(scores, *at) for at in corners])
        values = np.concatenate([_heads(values, *at) for at in corners])
    assert apart is not None
    return off, moved, apart


def _masses(scores: Array, a: float, b: float) -> Array:
    """Quadratics in the coordinates of a quarter, v = (a, b) + v' / 2."""
    c, v0, v1, q0, q1 = scores.T
    return np.stack([c + a * v0 + b * v1 + a * a * q0 + b * b * q1, v0 / 2 + a * q0, v1 / 2 + b * q1, q0 / 4, q1 / 4], axis=1)


def _heads(values: Array, a: float, b: float) -> Array:
    """Polynomials in the coordinates of a quarter."""
    n = range(values.shape[1])
    one, other = (
        np.array([[math.comb(k, j) * at ** (k - j) * 0.5**j if j <= k else 0.0 for j in n] for k in n]) for at in (a, b)
    )
    return np.asarray(np.einsum("pkl,ki,lj->pij", values, one, other, optimize=True))


def _sorted(values: Array) -> Array:
    """Powers in the order of masses, 1, v_0, v_1, v_0^2, v_1^2, and then all others."""
    wide = np.pad(values, ((0, 0), (0, max(3 - values.shape[1], 0)), (0, max(3 - values.shape[2], 0))))
    i, j = np.divmod(np.arange(wide.shape[1] * wide.shape[2]), wide.shape[2])
    first = [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2)]
    order = [a * wide.shape[2] + b for a, b in first]
    order += [k for k in range(len(i)) if (i[k], j[k]) not in first]
    return np.asarray(wide.reshape(len(wide), -1)[:, order])


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
