"""Groups of clusters along one direction each, as products of polynomials between edges, for the kernels.

A group of one direction is one term, a product of such groups one term of several factors, an affine function a term of its own.
What a factor is off by:

    pieces        the largest error of a polynomial, and of the choice of a side (runtime/segments.py)
    evaluation    Horner's rule rounds once per degree; y = (z - middle) scale twice, which the slope in y carries on
    query         the rounded coordinate, times the slope of the factor

Errors of factors are multiplied out: prod (size + off) - prod size.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.runtime.gpu import rounding
from maxaffine.runtime.gpu.tables import Numbers, OnBox, affine
from maxaffine.runtime.kept import once
from maxaffine.runtime.segments import Piece, Segments, segments

DEGREES = {"float32": 10, "float64": 14}
IN_CODE = 14  # intervals of a factor that are told apart by the code itself; more are counted in memory
FLOORS = {"float32": 2.0**-24, "float64": 2.0**-46}  # of a term's size, that its polynomials may always be off by


@dataclass(frozen=True)
class Factor:
    """One factor: the row (D,) of M of its direction, its pieces, whether sides are blended, and the powers of one output."""

    row: Array
    made: Segments
    soft: bool
    powers: tuple[Array, ...]  # (degree + 1,) of every piece
    size: float
    slope: float  # in z
    off: float  # |computed factor - head| at the computed coordinate
    rounded: float  # of that, by rounding
    moved: float  # what the rounded coordinate costs


@dataclass(frozen=True)
class Product:
    """The factors of one term, for one output; `centre` is what is taken off x where that is not the layer's."""

    output: int
    factors: tuple[Factor, ...]
    centre: Array | None = None


def factors(
    blocks: tuple[ClusterGroup, ...], box: tuple[Array, Array, Array], output: int, dtype: str, tolerance: float
) -> tuple[Factor, ...]:
    """All factors of a group; the share of each is divided by the sizes of the others, which are found on the way.

    `box` is the centre that z is counted from and the ends of the box.
    """
    sizes = [1.0] * len(blocks)
    for last in (False, True):
        whole = math.prod(sizes)
        allowed = max(tolerance, FLOORS[dtype] * whole)
        made = []
        for b, block in enumerate(blocks):
            others = math.prod(size for i, size in enumerate(sizes) if i != b)
            made.append(_factor(block, box, output, dtype, allowed / (2.0 * len(blocks) * max(others, 1e-300))))
        if last or len(blocks) == 1:
            break
        sizes = [factor.size for factor in made]
    return tuple(made)


def _factor(
    block: ClusterGroup, box: tuple[Array, Array, Array], output: int, dtype: str, tolerance: float
) -> Factor:
    """One factor, blended where that is nearer, and where an edge is known well enough for it."""
    centre, least, most = box
    reach = np.maximum(np.abs(least - centre), np.abs(most - centre)) * (1 + 1e-12)
    block = inside(block, reach)
    row, unit = block.matrix[0], dtype_of(dtype).unit
    span = float(np.abs(row) @ reach)
    low, high = ends(row, *box)
    if not span <= 1.0 + 1e-9:
        raise Refused("its coordinates leave [-1, 1].")
    eta = max(1.01 * unit * span, 2.0 * rounding.coordinate(row, centre, reach, unit))  # either side may answer so near
    found = []
    for soft in (False, True):
        if soft is False and dtype == "float64" and len(block.clusters) > 1:
            continue  # a hard choice is no nearer than the layer is to its target
        made = segments(block, low, high, tolerance, eta, DEGREES[dtype], soft, dtype)
        mass = float(made.gains[np.isfinite(made.gains)].max(initial=0.0)) * eta
        if not soft:
            found.append(_judged(row, made, False, output, centre, reach, dtype, made.error + made.switched))
            if made.switched <= tolerance:
                break
        elif mass <= 1.0 and math.isfinite(made.blended):
            off = made.error + made.blended + made.per_mass * (mass + 64.0 * unit)
            found.append(_judged(row, made, True, output, centre, reach, dtype, off))
    if not found:
        raise Refused("its edges are too sharp to be blended.")
    hard = found[0]
    return hard if hard.off + hard.moved <= 2.0 * (found[-1].off + found[-1].moved) else found[-1]


def inside(group: ClusterGroup, reach: Array) -> ClusterGroup:
    """The group in coordinates that stay in [-1, 1] where |x - centre| <= reach, as kernels take them."""
    span = np.abs(group.matrix) @ reach
    return group if (span <= 1.0 + 1e-9).all() else scaled(group, tuple(2.0 ** np.ceil(np.log2(np.maximum(span, 1.0)))))


@once
def scaled(group: ClusterGroup, by: tuple[float, ...]) -> ClusterGroup:
    """The group in other coordinates, made once."""
    return group.scaled(by)


def ends(row: Array, centre: Array, low: Array, high: Array) -> tuple[float, float]:
    """Least and largest row . (x - centre) on a box, rounded outward."""
    sides = np.stack([row * (low - centre), row * (high - centre)])
    room = 1e-12 * float(np.abs(sides).sum())
    return float(sides.min(axis=0).sum()) - room, float(sides.max(axis=0).sum()) + room


def _judged(
    row: Array, made: Segments, soft: bool, output: int, centre: Array, reach: Array, dtype: str, off: float
) -> Factor:
    """The factor with its size, slope and rounding."""
    unit = dtype_of(dtype).unit
    powers = tuple(piece.powers[:, output] for piece in made.pieces)
    found = [_horner(piece, own, unit) for piece, own in zip(made.pieces, powers, strict=True)]
    size, slope, rounded = (max(one[i] for one in found) for i in range(3))
    if soft:  # the share is rounded like its exponential; the difference, the product and the sum once each
        rounded += 24.0 * unit * 2.0 * size
    moved = rounding.coordinate(row, centre, reach, unit) * (slope + made.steep)
    return Factor(row, made, soft, powers, size + off, slope + made.steep, off + rounded, rounded, moved)


def _horner(piece: Piece, powers: Array, unit: float) -> tuple[float, float, float]:
    """sup |p|, sup |dp/dz| and the rounding of Horner's rule with fused multiply-adds at a rounded y."""
    y, factor = rounding.points(len(powers) - 1)
    steep = np.arange(1, len(powers)) * powers[1:]
    size = float(np.abs(np.polyval(powers[::-1], y)).max()) * factor
    slope = float(np.abs(np.polyval(steep[::-1], y)).max()) * factor if len(steep) else 0.0
    tails = np.cumsum(np.abs(powers[::-1]))  # of partial results
    stored = np.abs(powers - powers.astype(np.float32)).sum() if unit > 2.0**-50 else 0.0
    horner = unit * float(tails[1:].sum()) * (1.0 + 4.0 * len(powers) * unit)
    at = 2.1 * unit * float(np.abs(steep).sum() if len(steep) < 3 else 1.01 * slope + 4.0 * unit * np.abs(steep).sum())
    doubt = 1e-15 * float(np.abs(powers).sum() + np.abs(steep).sum())  # of the values at the points themselves
    return size + doubt, (slope + doubt) * piece.scale * (1 + 1e-6), horner + float(stored) + at + doubt


def affine_factor(row: Array, centre: Array, reach: Array, dtype: str) -> Factor:
    """row . (x - centre) as a factor of one piece."""
    span = max(float(np.abs(row) @ reach), 1e-300)
    narrow = float(np.dtype(dtype).type(span))
    piece = Piece(0, 1.0, 0.0, 1.0, np.array([[0.0], [narrow]]), 0.0)
    made = Segments((piece,), np.zeros(0), np.zeros(0), 0.0, 0.0, 0.0, 0.0)
    return _judged(row / narrow, made, False, 0, centre, reach, dtype, 4.0 * 2.0**-53 * span)


def off(terms: list[Product], dtype: str) -> tuple[dict[str, float], float]:
    """What the terms of one output are off by, in parts, and a bound of what they add up to."""
    unit, size = dtype_of(dtype).unit, 0.0
    found = dict.fromkeys(("pieces", "evaluation", "query"), 0.0)
    for one in terms:
        sizes = [factor.size for factor in one.factors]
        whole = math.prod(sizes)
        most = math.prod(s + factor.off for s, factor in zip(sizes, one.factors, strict=True))
        rounded = math.prod(s + factor.rounded for s, factor in zip(sizes, one.factors, strict=True)) - whole
        found["pieces"] += max(most - whole - rounded, 0.0) + 1e-15 * whole
        found["evaluation"] += rounded + gamma(len(one.factors), unit) * most
        found["query"] += sum(most / s * factor.moved for s, factor in zip(sizes, one.factors, strict=True) if s > 0)
        size += most
    return found, size


# -- what the kernels read


@dataclass(frozen=True)
class PieceProgram:
    """The arguments of the kernel `pieces`: maps, form and table."""

    maps: Numbers
    form: Numbers
    terms: int
    stride: int
    table: Array
    constant: bool  # whether the table is written into the code


def piece_program(products: Sequence[Product], found: OnBox) -> PieceProgram:
    """Maps, form and table of all products."""
    stride = 2 + 5 * max((len(one.factors) for one in products), default=0)
    maps: list[float] = []
    form: list[float] = []
    table: list[float] = []
    for one in products:
        entry: list[float] = [len(one.factors), one.output]
        for factor in one.factors:
            degree = max(len(powers) for powers in factor.powers)
            entry += [len(maps), len(factor.powers), degree, int(factor.soft), len(table)]
            maps += affine(factor.row, found, one.centre)
            table += _rows(factor, degree)
        form += entry + [0] * (stride - len(entry))
    constant = all(len(factor.powers) <= IN_CODE for one in products for factor in one.factors)
    return PieceProgram(Numbers(maps), Numbers(form), len(products), stride, np.array(table), constant)


def _rows(factor: Factor, degree: int) -> list[float]:
    """The numbers of one factor in the order in which the kernel reads them."""
    edges = [float(edge) for edge in factor.made.edges]
    rows = [*edges]
    if factor.soft:
        rows += [min(float(gain), 1e30) for gain in factor.made.gains]
        rows += [(one + two) / 2.0 for one, two in itertools.pairwise(edges)]
    pieces = factor.made.pieces
    rows += [piece.middle for piece in pieces] + [piece.scale for piece in pieces]
    for j in range(degree):
        rows += [float(powers[j]) if j < len(powers) else 0.0 for powers in factor.powers]
    return rows
