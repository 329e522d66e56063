"""A group of few clusters of one token each, all of whose scores stay in registers: what the kernel reads, and its bound.

    F = sum_j w_j v_j,      w the softmax of s_j = a_j . z + b_j,      v_j = c_j + g_j . z

What scores off by eta cost, and a rounded query, is found on the cells of a grid (runtime/blends.py), where tokens are affine in
the place in the cell and only those within REACH of the best one are heard.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.runtime.blends import blends
from maxaffine.runtime.gpu import rounding

MOST_TOKENS = 48
IN_CODE = 24  # tokens whose numbers are written into the code
EXP = 24.0  # units that an exponential, its sums and the quotient lose
SIDES = {1: 1024, 2: 64, 3: 16}  # cells per direction
REACH = 45.0


@dataclass(frozen=True)
class Listed:
    """Tokens in z: rows (E, D) of M, scores a (C, E) and b (C,), values c (C,) and g (C, E), and what the kernel is off by."""

    rows: Array
    slopes: Array
    offsets: Array
    values: Array
    tilts: Array
    scored: float
    evaluated: float
    moved: float
    size: float
    output: int = 0
    centre: Array | None = None  # what is taken off x where that is not the layer's

    @property
    def numbers(self) -> Array:
        """Token after token: b, a, c, g."""
        columns = (self.offsets[:, None], self.slopes, self.values[:, None], self.tilts)
        return np.concatenate(columns, axis=1).ravel()


def listed(group: ClusterGroup, centre: Array, reach: Array, dtype: str) -> Listed:
    """The tokens of a group; Refused where they are too many, or their scores too large."""
    C, E = len(group.clusters), len(group.matrix)
    if C > MOST_TOKENS or E > 3 or group.outputs != 1 or any(cluster.count != 1 for cluster in group.clusters):
        raise Refused(f"its clusters are not up to {MOST_TOKENS} single tokens of up to three directions.")
    slopes, offsets = group.listed()
    values, tilts = (part[:, 0] for part in group.listed_values())
    # the softmax is blind to what all scores have in common
    middle, level = (slopes.max(axis=0) + slopes.min(axis=0)) / 2.0, (offsets.max() + offsets.min()) / 2.0
    slopes, offsets = slopes - middle, offsets - level
    unit, span = dtype_of(dtype).unit, np.abs(group.matrix) @ reach
    if not (span <= 1.0 + 1e-9).all():
        raise Refused("its coordinates leave [-1, 1].")
    large = float((np.abs(slopes) @ span + np.abs(offsets)).max())
    eta = gamma(E + 2, unit) * large + 16.0 * 2.0**-53 * (large + float(np.abs(middle) @ span) + abs(level))
    size = float((np.abs(values) + np.abs(tilts) @ span).max())
    each = np.array([rounding.coordinate(row, centre, reach, unit) for row in group.matrix])
    scored, moved, apart = _costs(slopes, offsets, values, tilts, span, eta, each)
    evaluated = gamma(E + 2, unit) * size + 2.0 * C * unit * 2.0 * size + EXP * unit * 2.0 * apart
    if not math.isfinite(scored):
        raise Refused("the kernel's rounding of its scores is not bounded.")
    return Listed(group.matrix, slopes, offsets, values, tilts, scored, evaluated, moved, size)


def _costs(
    slopes: Array, offsets: Array, values: Array, tilts: Array, span: Array, eta: float, each: Array
) -> tuple[float, float, float]:
    """What scores off by eta cost, what a rounded query costs, and how far tokens that are heard together are apart."""
    C, E = slopes.shape
    side = SIDES.get(E, 1)
    half = np.maximum(span, each) / side
    grids = np.meshgrid(*(h * (2.0 * np.arange(side) + 1.0) - s for h, s in zip(half, span, strict=True)), indexing="ij")
    middles = np.stack([grid.ravel() for grid in grids], axis=1)  # (cells, E)
    wide = half + each  # a rounded query may lie beyond the edge
    scores = middles @ slopes.T + offsets
    best = scores.argmax(axis=1)
    behind = scores - scores[np.arange(len(scores)), best][:, None] + np.abs(slopes[None] - slopes[best][:, None]) @ wide
    cell, token = np.nonzero((behind >= -REACH - 4.0 * eta) | (np.arange(C) == best[:, None]))
    order = np.lexsort((token != best[cell], cell))
    cell, token = cell[order], token[order]
    first = best[cell]
    flat = np.zeros((len(cell), E))
    mass = scores[cell, token] - scores[cell, first]
    s = np.concatenate([mass[:, None], (slopes[token] - slopes[first]) * wide, flat], axis=1)
    v = values[token] + (middles[cell] * tilts[token]).sum(axis=1)
    heads = np.concatenate([v[:, None], tilts[token] * wide, flat], axis=1)
    found = blends(cell, len(middles), s, heads, np.full(len(cell), eta))
    rest = 2.0 * C * C * math.exp(-REACH) * float((np.abs(values) + np.abs(tilts) @ span).max())  # pairs with one not heard
    steep = float(np.abs(slopes).max(initial=0.0)) * 2.0
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    tilted = np.maximum.reduceat(np.abs(tilts[token]) @ each, starts) + rest
    moved = tilted + found.steered @ (each / wide) + rest * steep * float(each.sum())
    return float(found.off.max()) + 2.0 * eta * rest, float(moved.max()), float(found.apart.max()) + rest
