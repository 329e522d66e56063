"""One head as a file stores it: a softmax over product keys with affine values, beside the expression it stands for."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.checker.boxes import grid
from maxaffine.checker.local_error import CELLS, LONG, Extended, Rectangle, around_nodes, local_error, strip
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.reader import Axis, ProductKeys
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval

EXTENT = {1: 700, 2: 20, 3: 7, 4: 4}  # pieces per direction, for the size of a function


def contract(W: list[Array], values: Array) -> Array:
    """sum_j prod_e W_e[m_e, j_e] values[j]: over a grid of places, one axis after the other."""
    for e, w in enumerate(W):
        values = np.moveaxis(np.tensordot(w, values, axes=(1, e)), 0, e)
    return values


def row_by_row(W: list[Array], columns: Array) -> Array:
    """The same where all axes share their places: columns (p_1, .., p_E, n) weighted row by row."""
    out = np.tensordot(W[0], columns, axes=(1, 0))
    for w in W[1:]:
        out = (w.reshape(*w.shape, *([1] * (out.ndim - 2))) * out).sum(axis=1)
    return np.asarray(out)


@dataclass(frozen=True)
class Head:
    """Values c (N_1, .., N_E, 1), or c + G z with G (N_1, .., N_E, E), against an expression of middle + half z, |z_e| <= 1."""

    expression: Any  # None where rounding alone is asked for
    middle: Interval
    half: Array
    axes: tuple[Axis, ...]
    values: Array
    slopes: Array | None = None

    @property
    def columns(self) -> Array:
        """c, and G beside it where values are affine: (N_1, .., N_E, 1 or 1 + E)."""
        return self.values if self.slopes is None else np.concatenate([self.values, self.slopes], axis=-1)

    def leaning(self) -> Array:
        """sum_e |G_je| for every token."""
        return np.zeros(self.values.shape[:-1]) if self.slopes is None else np.abs(self.slopes).sum(axis=-1)

    def top(self) -> float:
        """The largest |value| over |z| <= 1."""
        return float((np.abs(self.values[..., 0]) + self.leaning()).max())

    def extent(self) -> float:
        """A bound of |f| over the range, from pieces; infinite where it is not enclosed."""
        E = len(self.axes)
        low, high = grid(-np.ones(E), np.ones(E), EXTENT.get(E, 3))
        size = float(self.expression.enclose(self.x(Interval(low, high))).magnitude.max())
        return size if math.isfinite(size) else math.inf

    def x(self, z: Interval) -> Interval:
        """middle + half z."""
        return z * Interval.point(self.half) + self.middle

    def supremum(self, goal: float, cells: int = CELLS) -> float:
        """sup |f - g| over |z_e| <= 1."""
        E = len(self.axes)
        return local_error(self, -np.ones(E), np.ones(E), goal, cells)

    # -- what Ehlich and Zeller's argument asks for

    def target_size(self, row: list[Rectangle]) -> float:
        """sup |f| over a product of rectangles of z."""
        xs = []
        for e, (a, b, height) in enumerate(row):
            half = balls.interval(float(self.half[e]), float(self.half[e]))
            shift = balls.interval(float(self.middle.lo[e]), float(self.middle.hi[e]))
            xs.append(balls.rectangle(a, b, height) * half + shift)
        out = self.expression.enclose_ball(xs)[0]
        return float(balls.magnitude(out)) if out.is_finite() else math.inf

    def head_size(self, low: Array, high: Array, k: int, centre: float, wide: float, tall: float) -> float:
        """max_j |c_j + G_j z| times sum_j |w_j| on an ellipse of coordinate k, the others in the cell."""
        factor = strip(self.axes[k], centre, wide, tall)
        values = self.values[..., 0]
        if self.slopes is None or not math.isfinite(factor):
            return factor * float(np.abs(values).max())
        reach = (high - low) / 2.0 * (1 + 1e-12) + 2.0**-50
        reach[k] = wide
        largest = np.abs(values + self.slopes @ ((low + high) / 2.0)) + np.abs(self.slopes) @ reach
        return factor * (float(largest.max()) * (1 + 1e-12) + 1e-14 * self.top())

    def crude(self, low: Array, high: Array) -> None:
        """Nothing: heads on boxes are smooth enough for ellipses, or are not proved this way."""

    def seen(self, low: Array, high: Array, grids: list[Extended]) -> tuple[float, float]:
        """max |f - g| over a product of Chebyshev points, every uncertainty added; g in extended precision."""
        columns, doubt, pairs = self.columns, 0.0, list(zip(self.axes, grids, strict=True))
        g = contract([axis.weights(x, np.longdouble) for axis, x in pairs], columns.astype(np.longdouble))
        size = contract([axis.weights(x.astype(np.float64)) for axis, x in pairs], np.abs(columns))
        for axis in self.axes:
            logits = float(np.abs(axis.a).max() + np.abs(axis.b).max())
            doubt += LONG * (8.0 * logits + 20.0 * axis.spread + 2.0 * len(axis.a) + 60.0)
        whole, spread = g[..., 0], size[..., 0]
        for e, z in enumerate(np.meshgrid(*grids, indexing="ij", sparse=True) if self.slopes is not None else ()):
            whole = whole + z * g[..., 1 + e]
            spread = spread + 1.0000001 * size[..., 1 + e]  # |z| is at most 1; nodes and products are off by parts of `doubt`
        worst, rows = 0.0, max(1, 150_000 // max(1, math.prod(len(x) for x in grids[1:])))
        sides = [around_nodes(x.astype(np.float64), float(a), float(b)) for x, a, b in zip(grids, low, high, strict=True)]
        E = len(grids)
        for start in range(0, len(grids[0]), rows):
            block = slice(start, start + rows)
            xs = []  # every variable along its own axis
            for e, side in enumerate(sides):
                lo, hi = (end[block] if e == 0 else end for end in side)
                moved = Interval(lo, hi) * Interval.point(self.half[e]) + self.middle[e]
                xs.append(moved.reshape(*(-1 if i == e else 1 for i in range(E))))
            f = self.expression.enclose_on(xs).reshape(-1, 1)
            here, loose = whole[block].astype(np.float64).ravel(), spread[block].ravel() * (doubt + DOUBLE)
            away = np.maximum(f.hi[:, 0] - here, here - f.lo[:, 0]) + loose
            if not np.isfinite(away).all():  # NaN as well, which max() would lose
                raise NotProved("the target could not be enclosed at points of the box.")
            worst = max(worst, float(away.max()))
        return worst * (1 + 1e-14), 0.0


def heads_of(keys: ProductKeys, middle: Interval, half: Array, expression: Any = None) -> list[Head]:
    """One head per output of product keys with listed values."""
    assert keys.values is not None
    found = []
    for k in range(keys.values.shape[-1]):
        slopes = None if keys.slopes is None else keys.slopes[..., k, :]
        f = None if expression is None else expression.output(k)
        found.append(Head(f, middle, half, keys.axes, keys.values[..., k : k + 1], slopes))
    return found
