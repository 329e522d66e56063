"""Factored values of a group as polynomials: every block of directions by itself, then multiplied out.

The columns h_r of a block, complex ones in real and imaginary parts, become trains of its directions (collapse_trains.py).  As in
collapse.py, with |.| the modulus, because the real part of v h is a head for every complex v with |v| = 1,

    |h_r - p_r| <= E + C (max over the points |h_r - p_r| + doubt + E)
    |h_r|       <= E + C (max over the points |h_r| + doubt + E)

E in units of the largest |token|; and sums of products over the blocks b with |h_rb| <= s_rb, |h_rb - p_rb| <= e_rb are off by

    sum_r prod_b (s_rb + e_rb) - prod_b s_rb,    what rounding adds counted in the same way.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.layer.grouped import Group
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime.collapse_directions import UNIT, Extended, Grid, along, grid_of, powers_of
from maxaffine.runtime.collapse_trains import split, train_at, train_doubt, truncated

FINE = 2.0**-60  # what remainders of one direction are per unit of its tokens; of several directions at least
SMALL_REST = 1e-20
DENSE = {1: 64, 2: 8, 3: 4, 4: 2}  # points per degree where the size of a polynomial is looked at
MOST_POINTS = 3_000_000
ODD = 1.0 / 16.0  # of the room that may be spent on an odd part, so that a series is one in z^2


@dataclass(frozen=True)
class Polynomial:
    """A block as a train whose last core has a column per product, then those of imaginary parts; (R,) moduli."""

    cores: tuple[Array, ...]
    errors: Array
    roundings: Array
    sizes: Array


@dataclass
class Block:
    """The columns of one block at Chebyshev points, in extended precision, and what is known of them in between."""

    grids: list[Grid]
    parts: list[Extended]  # (n_1, .., n_d, R), real and imaginary
    most: Array  # (R,) the largest |token|
    transformed: Extended = field(init=False)  # Chebyshev coefficients of all columns
    low: Array = field(init=False)  # (R,) below sup |h|

    def __post_init__(self) -> None:
        self.transformed = np.concatenate(self.parts, axis=-1)
        for e, grid in enumerate(self.grids):
            self.transformed = along(grid.transform(grid.degree + 1), self.transformed, e).astype(np.longdouble)
        self.low = _largest(self.parts) * (1 - 1e-12)

    @property
    def constant(self) -> float:
        """Ehlich and Zeller's factor."""
        return math.prod(grid.constant for grid in self.grids)

    @property
    def remainder(self) -> Array:
        """What a polynomial of the grids' degrees may be off by, (R,)."""
        total, leb = 0.0, 1.0
        for grid in self.grids:
            total += leb * grid.remainder
            leb *= 2.0 / math.pi * math.log(grid.degree + 1) + 1.0
        return total * self.most * (1 + 1e-12)

    @property
    def doubt(self) -> Array:
        """What the values at the points are off by, (R,)."""
        count = len(self.grids)
        return self.most * (sum(grid.shaky for grid in self.grids) + (4 * count + 4) * UNIT) * (1 + 1e-9)

    def polynomial(self, weights: Array, room: float, kind: str) -> Polynomial:
        """A train of which column r is about room / weights_r away, and what it is off by at most."""
        scale = np.tile(np.exp2(np.floor(np.log2(weights))), len(self.parts))
        coefficients = truncated(self.transformed * scale, 0.5 * room)
        if len(self.grids) == 1 and np.abs(coefficients[1::2]).sum(axis=0).max(initial=0.0) <= ODD * room:
            coefficients[1::2] = 0.0
        cores = split(coefficients, 0.27 * room)
        cores[-1] = cores[-1] / scale
        stored = tuple((powers_of(core, 1) if kind == "powers" else core).astype(np.float64) for core in cores)
        at = np.split(train_at(stored, [grid.points for grid in self.grids], kind), len(self.parts), axis=-1)
        away = _largest([part - own for part, own in zip(self.parts, at, strict=True)]) * (1 + 1e-9)
        own, roundings = (self._moduli(train_doubt(stored, kind, unit)) for unit in (UNIT, FLOAT64.unit))
        unknown = self.doubt + self.remainder
        errors = (self.remainder + self.constant * (away + own + unknown)) * (1 + 1e-12)
        sizes = (self.remainder + self.constant * (self.low * (1 + 1e-9) + unknown)) * (1 + 1e-12)
        return Polynomial(stored, errors, roundings, np.minimum(sizes, self._seen(stored, kind) + errors))

    def _moduli(self, columns: Array) -> Array:
        """Of columns with their imaginary parts: (R,)."""
        return np.asarray(np.hypot.reduce(np.split(columns, len(self.parts)), axis=0) * (1 + 1e-14))

    def _seen(self, cores: tuple[Array, ...], kind: str) -> Array:
        """sup |polynomial| of every column: what many Chebyshev points see, and a little more."""
        factor, points = 1.0, []
        for core in cores:
            degree = max(1, core.shape[1] - 1)
            count = DENSE[len(cores)] * degree
            points.append(np.cos(np.pi * (np.arange(count) + 0.5) / count).astype(np.longdouble))
            factor /= math.cos(math.pi * degree / (2.0 * count))
        if math.prod(len(z) for z in points) * cores[-1].shape[2] > MOST_POINTS:
            return np.full(len(self.low), math.inf)
        at = np.split(train_at(cores, points, kind), len(self.parts), axis=-1)
        own = self._moduli(train_doubt(cores, kind, UNIT))
        return np.asarray((_largest(at) + own) * (factor * (1 + 1e-9)))


def _largest(parts: list[Extended]) -> Array:
    """The largest modulus of every column over all points, (R,)."""
    moduli = np.abs(parts[0]) if len(parts) == 1 else np.hypot(*parts)
    return np.asarray(moduli.max(axis=tuple(range(moduli.ndim - 1))), dtype=np.float64)


def blocks_of(group: Group, tolerance: float) -> list[Block]:
    """The blocks of a group; what is alike, as the directions of |x|^2, is looked at once."""
    assert group.factors is not None
    tops = []
    for b, factor in enumerate(group.factors):
        wide = factor.astype(np.float64)
        modulus = np.abs(wide) if group.imaginary is None else np.hypot(wide, group.imaginary[b].astype(np.float64))
        tops.append(modulus.reshape(-1, group.rank).max(axis=0) * (1 + 1e-15))
    known: dict[tuple[bytes, ...], Block] = {}
    found = []
    for b, (cut, factor) in enumerate(zip(group.block_slices, group.factors, strict=True)):
        axes, parts = group.axes[cut], [factor] if group.imaginary is None else [factor, group.imaginary[b]]
        name = tuple(one.tobytes() for one in (*(a for axis in axes for a in (axis.slopes, axis.offsets)), *parts))
        if name not in known:
            others = np.prod(np.delete(np.stack(tops), b, axis=0), axis=0)
            per = float((tolerance / len(tops) / group.rank / np.maximum(others * tops[b], 1e-300)).min())
            known[name] = _block(axes, parts, tops[b], per)
        found.append(known[name])
    return found


def _block(axes: tuple[AxisKeys, ...], parts: list[Array], most: Array, tolerance: float) -> Block:
    """One block: its Chebyshev points and all columns there."""
    d = len(axes)
    rest = SMALL_REST if d == 1 else max(tolerance, FINE) / 64.0 / d
    grids = [grid_of(axis, d, rest / (6.0**e if d > 1 else 1.0)) for e, axis in enumerate(axes)]
    if math.prod(len(grid.points) for grid in grids) * len(parts) * len(most) > MOST_POINTS:
        raise Refused("a block of factors has too many directions at once for a collapse.")
    values = []
    for part in parts:
        held = part.astype(np.longdouble)
        for e, grid in enumerate(grids):
            held = along(grid.weights, held, e).astype(np.longdouble)
        values.append(held)
    return Block(grids, values, most)


def fitted(blocks: list[Block], allowed: float, loose: float, kind: str) -> tuple[tuple[Array, ...], float, float]:
    """Cores of all blocks for a share of what is allowed, what their products are off by, and what rounding adds."""
    lows = np.stack([block.low for block in blocks]) + 1e-300
    rank = lows.shape[1]
    known: dict[tuple[int, bytes], Polynomial] = {}
    found = []
    for b, block in enumerate(blocks):
        weights = np.maximum(np.prod(np.delete(lows, b, axis=0), axis=0), 1e-300)
        name = id(block), weights.tobytes()
        if name not in known:
            room = loose * 0.4 * allowed / (len(blocks) * rank) / block.constant
            known[name] = block.polynomial(weights, room, kind)
        found.append(known[name])
    errors, roundings, sizes = (
        np.stack(one) for one in zip(*((made.errors, made.roundings, made.sizes) for made in found), strict=True)
    )
    lost, rounding = multiplied(sizes, errors, roundings, len(blocks[0].parts) > 1)
    return tuple(core for made in found for core in made.cores), lost, rounding


def multiplied(sizes: Array, errors: Array, roundings: Array, complex_: bool) -> tuple[float, float]:
    """What sums of products are off by, (B, R) each: |prod (g + d) - prod g| <= prod (|g| + |d|) - prod |g|; and rounding."""
    B, R = sizes.shape
    lost = float((np.prod(sizes + errors, axis=0) - np.prod(sizes, axis=0)).sum())
    all_of = sizes + errors + roundings
    whole = np.prod(all_of, axis=0)
    rounding = float((whole - np.prod(sizes + errors, axis=0)).sum())
    rounding += gamma((3 if complex_ else 1) * B + R + 2, FLOAT64.unit) * float(whole.sum())
    rounding += 8.0 * R * B * FLOAT64.tiny * float(np.prod(np.maximum(all_of, 1.0), axis=0).sum())
    guard = 4.0 * FLOAT64.unit * (B + R + 4) * float(whole.sum())  # of these products themselves
    return lost + guard, rounding
