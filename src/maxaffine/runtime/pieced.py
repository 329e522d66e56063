"""`pieces`: layers of clusters as polynomials between edges and on the cells of grids, a few multiplications per query.

The forms are those of kernels on a GPU (runtime/gpu/clustered.py), in float64, with a bound of their own.  Queries hear the heads
that can be heard where they stand: one nearly everywhere, and around edges two, blended.  A program holds, per term,

    a product      its factors, each of one direction: which interval z is in, by bins and comparisons; one polynomial of that
                   interval, or two and the share of the second where |gain (z - edge)| < AUDIBLE
    patches        the cell of z; one polynomial, or several and their shares

Nothing is fused, and NumPy and compiled code do the same in the same order, so that a query has the same bits in every batch.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.runtime import parallel
from maxaffine.runtime.gpu.clustered import Clustered, clustered
from maxaffine.runtime.gpu.patched import Patched
from maxaffine.runtime.gpu.pieces import Factor
from maxaffine.runtime.kept import once
from maxaffine.runtime.patches import SOME
from maxaffine.runtime.windowed import exponential

AUDIBLE = 40.0  # of a mass: beyond, the other side says less than e^-40 of itself
LEAST = -300.0  # masses that trail by more weigh nothing
CHUNK = 1 << 12  # queries at a time in NumPy
BINS = 4  # per edge


@dataclass(frozen=True)
class Program:
    """Tables of a layer; rows of `terms` are PRODUCT, output, factors, first factor, or PATCHES, output, directions, ..."""

    centre: Array
    rows: Array  # (Z, D), one per direction
    terms: NDArray[np.int64]  # (T, 4): output, factors (0: patches), the first of its factors or grids
    factors: NDArray[np.int64]  # (F, 7): row of z, edges, powers, soft, first number, first bin, bins
    grids: NDArray[np.int64]  # (G, 10): row of z, directions, powers, most patches, first cell, first number, stride, 3 x cells
    numbers: Array
    bins: NDArray[np.int64]
    cells: NDArray[np.int64]
    shift: Array  # (K,)
    bound: float
    words: str
    work: int  # per query, in the units of parallel.py


def why_not(layer: AnyLayer) -> str | None:
    """What keeps a layer from being looked at; whether it has pieces is seen when they are made."""
    if layer.several or not layer.grouped or not layer.has_clusters or layer.hard:
        return "it has no clusters under one softmax"
    return None


def is_quick(layer: AnyLayer) -> bool:
    """Whether pieces are made in a moment: patches of many clusters take seconds, and are made where they are asked for."""
    assert layer.grouped and not layer.several
    blocks = [block for group in layer.cluster_groups() for block in group.blocks]
    return all(len(block.clusters) <= SOME or len(block.matrix) == 1 for block in blocks)


@once
def program(layer: GroupedLayer, tolerance: float) -> Program | str:
    """The pieces of a layer, within `tolerance` beside rounding; or why there are none."""
    try:
        return tables(clustered(layer, "float64", tolerance, with_series=False))
    except Refused as refusal:
        return str(refusal).rstrip(".")


def tables(made: Clustered) -> Program:
    """The forms of a layer as tables.

    Sums here round twice where kernels round once, which their bound counts.
    """
    if made.smooth is not None or made.listed:
        raise Refused("some of its groups have no pieces.")
    keep = _Tables()
    for product in made.products:
        keep.terms.append([product.output, len(product.factors), len(keep.factors)])
        for factor in product.factors:
            keep.factor(factor)
    for one in made.patched:
        keep.terms.append([one.output, 0, len(keep.grids)])
        keep.grid(one)
    many = max((len(product.factors) for product in made.products), default=1)
    quiet = 2.0 * math.exp(-AUDIBLE) * many * made.size
    bound = made.parts["pieces"] + 2.0 * (made.parts["evaluation"] + made.parts["query"]) + quiet
    work = 8 * len(keep.rows) + sum(2 * one[2] + 12 for one in keep.factors) + sum(2 * one[6] for one in keep.grids)
    return Program(
        made.centre, np.array(keep.rows, dtype=np.float64), _table(keep.terms, 3), _table(keep.factors, 7),
        _table(keep.grids, 10), np.concatenate([np.zeros(1), *keep.numbers]), np.array([0, *keep.bins], dtype=np.int64),
        np.concatenate([np.zeros(1, dtype=np.int64), *keep.cells]), np.array(made.shift), bound * (1 + 1e-9), made.words, work,
    )  # fmt: skip


def _table(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, width)


class _Tables:
    """Tables as they grow."""

    def __init__(self) -> None:
        self.rows: list[Array] = []
        self.terms: list[list[int]] = []
        self.factors: list[list[int]] = []
        self.grids: list[list[int]] = []
        self.numbers: list[Array] = []
        self.bins: list[int] = []
        self.cells: list[NDArray[np.int64]] = []
        self.filled = self.celled = 1  # where the next number and cell go; 0 is nobody's

    def _put(self, *parts: Array) -> int:
        start = self.filled
        self.numbers += [np.asarray(part, dtype=np.float64).ravel() for part in parts]
        self.filled += sum(part.size for part in self.numbers[len(self.numbers) - len(parts) :])
        return start

    def factor(self, factor: Factor) -> None:
        """Numbers: the sides to compare with, a large one, then edges and gains, then per piece middle, scale and powers."""
        edges, count = factor.made.edges, len(factor.powers)
        degree = max(len(powers) for powers in factor.powers)
        soft = factor.soft and count > 1
        sides = (edges[1:] + edges[:-1]) / 2.0 if soft else edges
        powers = np.stack([np.pad(p, (0, degree - len(p)))[::-1] for p in factor.powers])
        place = np.array([[piece.middle, piece.scale] for piece in factor.made.pieces])
        blend = [edges, np.minimum(factor.made.gains, 1e30)] if soft else []
        start = self._put(sides, np.array([math.inf]), *blend, np.concatenate([place, powers], axis=1))
        many = BINS * len(sides) if len(sides) > BINS else 1
        first = len(self.bins) + 1
        self.bins += np.searchsorted(sides, np.linspace(-1.0, 1.0, many + 1)[:-1]).tolist()
        self.factors.append([len(self.rows), len(sides), degree, int(soft), start, first, many])
        self.rows.append(factor.row)

    def grid(self, one: Patched) -> None:
        """Numbers: cells per unit and half of them per direction, then patch after patch."""
        made, E = one.made, len(one.rows)
        width = (made.degree + 1) ** E + 1 + 2 * E
        patches = np.concatenate([one.powers.reshape(len(made.values), -1), one.masses], axis=1)
        start = self._put(one.scale, np.array(made.shape) / 2.0, patches)
        none = [1] * (3 - E)
        self.grids.append(
            [len(self.rows), E, made.degree + 1, made.most, self.celled, start, width, *made.shape, *none]
        )
        self.rows += list(one.rows)
        self.cells.append(made.first * 32 + made.count)
        self.celled += len(made.first)


def evaluate(made: Program, x: Array, threads: int | None = None) -> Array:
    """Values (B, K) at points (B, D) of the box, float64."""
    x = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty((len(x), len(made.shift)))
    work = len(x) * made.work
    kernel = parallel.kernel("pieced", work, len(x))
    if kernel is None:
        for start in range(0, len(x), CHUNK):
            out[start : start + CHUNK] = in_numpy(made, x[start : start + CHUNK])
    else:
        parts = made.terms, made.factors, made.grids, made.numbers, made.bins, made.cells, made.shift, out
        parallel.over(0, len(x), work, threads, lambda start, stop: kernel(x, made.centre, made.rows, *parts, start, stop))
    return out


def in_numpy(made: Program, x: Array) -> Array:
    """The kernel's operations in the same order, without numba: (B, K)."""
    out = np.tile(made.shift, (len(x), 1))
    for output, factors, first in made.terms.tolist():
        if factors == 0:
            out[:, output] = out[:, output] + _patched(made, x, made.grids[first].tolist())
            continue
        whole = _factor(made, x, made.factors[first].tolist())
        for f in range(1, factors):
            whole = whole * _factor(made, x, made.factors[first + f].tolist())
        out[:, output] = out[:, output] + whole
    return out


def _coordinate(made: Program, x: Array, row: int) -> Array:
    """z = M (x - centre), kept in [-1, 1]; not-a-number stays what it is."""
    z = made.rows[row, 0] * (x[:, 0] - made.centre[0])
    for i in range(1, x.shape[1]):
        z = z + made.rows[row, i] * (x[:, i] - made.centre[i])
    z = np.where(z > 1.0, 1.0, z)
    return np.where(z < -1.0, -1.0, z)


def _factor(made: Program, x: Array, form: list[int]) -> Array:
    row, count, powers, soft, start, _, _ = form
    z = _coordinate(made, x, row)
    sides = made.numbers[start : start + count]
    index = np.searchsorted(sides, np.where(z == z, z, 0.0))
    at = start + count + 1
    if not soft:
        return _piece(made, z, index, at, powers)
    edge, gain = made.numbers[at + index], made.numbers[at + count + 1 + index]
    mass = (z - edge) * gain
    at += 2 * (count + 1)
    left, right = _piece(made, z, index, at, powers), _piece(made, z, index + 1, at, powers)
    share = 1.0 / (1.0 + exponential(-np.clip(np.where(mass == mass, mass, 0.0), -AUDIBLE, AUDIBLE)))
    blended = left + share * (right - left)
    return np.where(mass >= AUDIBLE, right, np.where(mass <= -AUDIBLE, left, blended))


def _piece(made: Program, z: Array, index: NDArray[np.intp], at: int, powers: int) -> Array:
    """The polynomial of a piece, its place kept in [-1, 1]."""
    table = made.numbers[at:][: (index.max(initial=0) + 1) * (powers + 2)].reshape(-1, powers + 2)
    y = (z - table[index, 0]) * table[index, 1]
    y = np.where(y > 1.0, 1.0, y)
    y = np.where(y < -1.0, -1.0, y)
    out: Array = table[index, 2] + 0.0 * y
    for j in range(1, powers):
        out = out * y + table[index, 2 + j]
    return out


def _patched(made: Program, x: Array, form: list[int]) -> Array:
    row, E, powers, most, celled, start, width, *shape = form
    cell, places = np.zeros(len(x), dtype=np.int64), []
    for e in range(E):
        s = _coordinate(made, x, row + e) * made.numbers[start + e] + made.numbers[start + E + e]
        b = np.minimum(np.maximum(np.floor(np.where(s == s, s, 0.0)), 0.0), shape[e] - 1.0)
        places.append(2.0 * (s - b) - 1.0)
        cell = cell * shape[e] + b.astype(np.int64)
    packed = made.cells[celled + cell]
    count, at = packed & 31, start + 2 * E + (packed >> 5) * width
    live = [m < count for m in range(most)]
    here = [np.where(alive, at + m * width, at) for m, alive in enumerate(live)]
    values = [_patch(made, places, one, powers) for one in here]
    if most == 1:
        return values[0]
    masses = [_mass(made, places, one + powers**E) for one in here]
    top = np.zeros(len(x))
    for m in range(1, most):
        top = np.where(live[m] & (masses[m] > top), masses[m], top)
    above, below = np.zeros(len(x)), np.zeros(len(x))
    for m in range(most):
        behind = (masses[m] if m else 0.0) - top
        weight = np.where(behind >= LEAST, exponential(np.maximum(np.where(behind == behind, behind, 0.0), LEAST)), 0.0)
        above = np.where(live[m], above + weight * values[m], above)
        below = np.where(live[m], below + weight, below)
    return np.where(count > 1, above / below, values[0])


def _patch(made: Program, v: list[Array], at: NDArray[np.int64], powers: int) -> Array:
    """Horner's rule in all directions, from the last number of a patch to the first."""
    if len(v) == 1:
        out = made.numbers[at + powers - 1] + 0.0 * v[0]
        for j in range(powers - 2, -1, -1):
            out = out * v[0] + made.numbers[at + j]
        return out
    stride = powers ** (len(v) - 1)
    out = _patch(made, v[1:], at + (powers - 1) * stride, powers)
    for j in range(powers - 2, -1, -1):
        out = out * v[0] + _patch(made, v[1:], at + j * stride, powers)
    return out


def _mass(made: Program, v: list[Array], at: NDArray[np.int64]) -> Array:
    """A quadratic in every direction."""
    E = len(v)
    out = made.numbers[at]
    for e in range(E):
        out = out + (made.numbers[at + 1 + E + e] * v[e] + made.numbers[at + 1 + e]) * v[e]
    return out
