"""A group of clusters of two or three directions as the patches that the kernel reads, and what it is off by.

Cell by cell (runtime/blends.py): the quadratics of masses and the rounding of their values, the step by which rounding moves the
query, the rounding of the polynomials and of the sums.  The place in a cell is z times a number of the dtype, rounded at the size
of the number of cells.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.runtime.audible import OVER
from maxaffine.runtime.blends import blends
from maxaffine.runtime.gpu import rounding
from maxaffine.runtime.gpu.listed import EXP
from maxaffine.runtime.patches import Patches, on_axes, patches, row_of

HALVED = 4  # times that a cell is halved in all directions
MOST_SEEN = 1 << 22  # tokens times points at which slopes are looked at
MOST_CUT = 1 << 25  # numbers of their heads at once


@dataclass(frozen=True)
class Patched:
    """The patches of one group, and what the kernel is off by."""

    rows: Array  # (E, D)
    made: Patches
    off: float
    evaluated: float
    moved: float
    size: float
    output: int = 0
    centre: Array | None = None  # what is taken off x where that is not the layer's

    @property
    def form(self) -> list[float]:
        """Of the kernel, behind where its maps, cells and numbers begin."""
        made, none = self.made, [0] * (3 - len(self.rows))
        return [len(self.rows), made.degree + 1, row_of(made.degree), made.most, *made.shape, *none, *self.scale.tolist(), *none]

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
        n, row, masses = self.made.degree + 1, row_of(self.made.degree), self.masses
        powers = np.pad(self.powers.reshape(-1, n), ((0, 0), (0, row - n))).reshape(len(masses), -1)
        return np.concatenate([powers, np.pad(masses, ((0, 0), (0, 8 - masses.shape[1])))], axis=1).ravel()

    @property
    def powers(self) -> Array:
        """Coefficients of the heads in v in [-1, 1] of the cell."""
        wide = np.diag((1.0 + OVER) ** -np.arange(self.made.degree + 1))
        return on_axes(self.made.values, [wide] * len(self.rows))

    @property
    def masses(self) -> Array:
        """Coefficients of their masses there."""
        E = len(self.rows)
        return np.asarray(self.made.scores * (1.0 + OVER) ** -np.repeat([0.0, 1.0, 2.0], [1, E, E]))


def patched(group: ClusterGroup, centre: Array, reach: Array, dtype: str, tolerance: float) -> Patched:
    """The patches of a group in that dtype; Refused where there are too many."""
    span, unit = np.abs(group.matrix) @ reach, dtype_of(dtype).unit
    if not (span <= 1.0 + 1e-9).all():
        raise Refused("its coordinates leave [-1, 1].")
    span = _stored(span)
    each = np.array([rounding.coordinate(row, centre, reach, unit) for row in group.matrix]) + 3.01 * unit * span
    if dtype == "float32":  # polynomials that are much nearer than the rounding of the query are of no use
        tolerance = max(tolerance, _about(group, span, each) / 2.0)
    made = patches(group, tuple(span.tolist()), tolerance)
    if len(made.values) * made.stride >= 1 << 26 or len(made.values) >= 1 << 26:
        raise Refused("its patches take too much memory.")
    step = each * np.array(made.shape) / span  # in places of a cell
    if not (step <= OVER / 2.0).all():
        raise Refused("its cells are too small for rounded coordinates.")
    off, evaluated, moved = _costs(made, step, unit, tolerance / 8.0)
    return Patched(group.matrix, made, off, evaluated, moved, made.size + off)


def _about(group: ClusterGroup, span: Array, each: Array) -> float:
    """About what a rounded query moves the softmax by: differences at some points of the box."""
    slopes, offsets = group.listed()
    values, tilts = (part[:, 0] for part in group.listed_values())
    count = max(MOST_SEEN // len(slopes), 16)
    z = np.random.default_rng(0).uniform(-span, span, (count, len(span)))

    def softmax(z: Array) -> Array:
        scores = z @ slopes.T + offsets
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray((weights * (values + z @ tilts.T)).sum(axis=1) / weights.sum(axis=1))

    here, moved = softmax(z), np.zeros(count)
    for e, step in enumerate(1e-4 * span):
        moved += np.abs(softmax(z + step * np.eye(len(span))[e]) - here) / step * each[e]
    return float(moved.max())


def _costs(made: Patches, step: Array, unit: float, enough: float) -> tuple[float, float, float]:
    """The patches and the errors of masses; the rounding of polynomials, weights and sums; the steps of rounded queries.

    Cells are cut into halves in all directions where what their masses cost and their queries is not yet little `enough`.
    """
    cell = np.repeat(np.arange(len(made.count)), made.count)
    rise = np.abs(made.scores[:, 1:]).sum(axis=1) + np.abs(made.scores[:, 1 + len(step) :]).sum(axis=1)
    # a mass that trails by more than the exponential can tell is off by what does not matter
    large = np.minimum(np.abs(made.scores[:, 0]) + rise, 2.0 * rise + 90.0)
    eta = made.score_error + gamma(8, unit) * large
    eta[made.first] = 0.0  # its mass is what the others are counted from
    absolute = np.maximum.reduceat(np.abs(made.values).reshape(len(cell), -1).sum(axis=1), made.first)
    off, moved, apart = _parted(cell, made.scores, made.values, eta, step, enough)
    several = made.count > 1
    sums = np.where(several, 4.0 * made.count + 4.0, 0.0) * unit * 2.0 * absolute
    evaluated = gamma(2 * len(step) * made.degree + 6, unit) * absolute + sums + np.where(several, EXP * unit * 2.0, 0.0) * apart
    return made.error + made.unheard + off, float(evaluated.max()), moved


def _parted(
    cell: NDArray[np.int64], scores: Array, values: Array, eta: Array, step: Array, enough: float
) -> tuple[float, float, Array]:
    """What masses and queries that are off cost anywhere, and per cell how far heads are apart."""
    off = moved = 0.0
    apart: Array | None = None
    E = len(step)
    corners = list(itertools.product((-0.5, 0.5), repeat=E))
    for last in [False] * HALVED + [True]:
        count = np.bincount(cell)
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        powers, sizes = np.arange(values.shape[1]), np.abs(values)
        others = [tuple(1 + o for o in range(E) if o != e) for e in range(E)]
        slopes = [np.maximum.reduceat((sizes.sum(axis=others[e]) * powers).sum(axis=1), first) for e in range(E)]
        found = blends(cell, len(count), scores, _sorted(values), eta)
        here = (np.stack(slopes, axis=1) + found.steered) @ step
        apart = found.apart if apart is None else apart
        again = found.off + here > enough
        last = last or len(corners) * int(again[cell].sum()) * values[0].size > MOST_CUT
        kept = np.ones(len(again), dtype=bool) if last else ~again
        off, moved = max(off, float(found.off[kept].max(initial=0.0))), max(moved, float(here[kept].max(initial=0.0)))
        if last or not again.any():
            break
        mine = again[cell]
        scores, values, eta, step = scores[mine], values[mine], np.tile(eta[mine], len(corners)), step * 2.0
        place = np.cumsum(again)[cell[mine]] - 1
        cell = np.concatenate([place + k * int(again.sum()) for k in range(len(corners))])
        scores = np.concatenate([_masses(scores, np.array(at)) for at in corners])
        values = np.concatenate([_heads(values, at) for at in corners])
    assert apart is not None
    return off, moved, apart


def _masses(scores: Array, at: Array) -> Array:
    """Quadratics in the coordinates of a part, v = at + v' / 2."""
    constant, lean, bent = np.split(scores, [1, 1 + len(at)], axis=1)
    middle = constant + (lean @ at + bent @ (at * at))[:, None]
    return np.concatenate([middle, lean / 2.0 + at * bent, bent / 4.0], axis=1)


def _heads(values: Array, at: tuple[float, ...]) -> Array:
    """Polynomials in the coordinates of a part."""
    n = range(values.shape[1])
    shift = [np.array([[math.comb(k, j) * a ** (k - j) * 0.5**j if j <= k else 0.0 for j in n] for k in n]) for a in at]
    return on_axes(values, shift)


def _sorted(values: Array) -> Array:
    """Powers in the order of masses, 1, v_e, v_e^2, and then all others."""
    E = values.ndim - 1
    wide = np.pad(values, ((0, 0), *((0, max(3 - n, 0)) for n in values.shape[1:])))
    powers = np.stack(np.unravel_index(np.arange(wide[0].size), wide.shape[1:]), axis=1)
    alone = (powers > 0).sum(axis=1) <= 1
    highest, which = powers.max(axis=1), powers.argmax(axis=1)
    order = np.lexsort((which, highest, ~(alone & (highest <= 2))))
    assert (highest[order[: 1 + 2 * E]] == np.repeat([0, 1, 2], [1, E, E])).all()
    return np.asarray(wide.reshape(len(wide), -1)[:, order])


def _stored(span: Array) -> Array:
    """Half widths whose inverse is a number of float32: cells are where kernels take them to be, the same in every dtype."""
    narrow, found = np.float32, []
    for one in span:
        per = narrow(1.0 / (float(one) * (1 + 1e-12)))
        while float(per) * float(one) > 1.0:
            per = np.nextafter(per, narrow(0.0))
        found.append(1.0 / float(per))
    return np.array(found)
