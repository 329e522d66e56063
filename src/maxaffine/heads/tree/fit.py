"""Local pieces: Bernstein keys with affine values on a box, fitted for many boxes at once.

    p(t) = sum_j w_j(t) (c_j + G_j . t),     t in [-1, 1]^E,     w the product of Bernstein weights per axis

All boxes share the coordinates t, so one singular value decomposition per choice of keys serves them all; ridge values
S/(S^2 + lam^2) with lam tied to the error wanted keep c and G moderate.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import deadline
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import mesh
from maxaffine.heads.fitting import Function, affine_columns, affine_on_grid, as_stored
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein, chebyshev, weights

DELTAS = (0.5, 1.5)
MOST = {1: 12, 2: 8, 3: 5}  # keys per axis
POINTS = {1: 40, 2: 20, 3: 12}  # points per axis to fit on
CHECKS = {1: 120, 2: 29, 3: 17}  # points per axis to judge on
FINEST = {1: 513, 2: 129, 3: 33}  # points per axis of the whole box that are looked at
RIDGE = 0.01


@dataclass(frozen=True)
class Piece:
    """A fitted piece: keys per axis, how they were made, values (p_1, .., K), slopes (p_1, .., K, E), error on the points."""

    shape: tuple[int, ...]
    delta: float
    values: Array
    slopes: Array
    error: float

    @property
    def tokens(self) -> int:
        """Product of the keys per axis."""
        return math.prod(self.shape)

    def axes(self, dtype: str) -> tuple[AxisKeys, ...]:
        """The keys, rounded to the dtype."""
        return tuple(bernstein(p, self.delta, dtype).keys for p in self.shape)


class LocalFitter:
    """Pieces of fewest tokens on boxes in z, for one function of size `scale` and one error."""

    def __init__(self, f: Function, dimension: int, error: float, dtype: str, scale: float = 1.0) -> None:
        self.f, self.E, self.error, self.dtype, self.scale = f, dimension, error, dtype, scale
        self._fit_points = mesh([chebyshev(POINTS[dimension])] * dimension)
        self._check_points = mesh([np.linspace(-1.0, 1.0, CHECKS[dimension])] * dimension)
        self._designs: dict[tuple[tuple[int, ...], float], tuple[Array, ...]] = {}

    def _design(self, shape: tuple[int, ...], delta: float) -> tuple[Array, ...]:
        """Columns w_j and w_j t_e: U, S, V^T at the points to fit on, and themselves at those to judge on; made once."""
        if (shape, delta) not in self._designs:
            axes = tuple(bernstein(p, delta, self.dtype).keys for p in shape)
            fit, judge = (affine_columns(axes, points) for points in (self._fit_points, self._check_points))
            self._designs[shape, delta] = (*np.linalg.svd(fit, full_matrices=False), judge)
        return self._designs[shape, delta]

    def samples(self, low: Array, high: Array, points: Array) -> Array:
        """f at points t of every box: (B, M, K)."""
        z = ((low + high)[:, None] + (high - low)[:, None] * points) / 2.0
        found = self.f(z.reshape(-1, self.E))
        return found.reshape(len(low), len(points), -1)

    def pieces(self, low: Array, high: Array) -> list[Piece | None]:
        """For every box the piece of fewest tokens whose error fits; None where none does."""
        found: list[Piece | None] = []
        for start in range(0, len(low), 400):
            deadline.check()
            found += self._some(low[start : start + 400], high[start : start + 400])
        return found

    def _some(self, low: Array, high: Array) -> list[Piece | None]:
        fit, check = self.samples(low, high, self._fit_points), self.samples(low, high, self._check_points)
        found: list[Piece | None] = [None] * len(low)
        todo = np.arange(len(low))
        for p in range(1, MOST[self.E] + 1):  # the same number of keys on every axis first
            todo = self._try((p,) * self.E, todo, fit, check, found, low, high)
        have = np.array([i for i, piece in enumerate(found) if piece is not None and piece.tokens > 1], dtype=np.intp)
        best = np.array([math.inf if piece is None else piece.tokens for piece in found])
        unequal = [s for s in itertools.product(range(1, MOST[self.E] + 1), repeat=self.E) if len(set(s)) > 1]
        for shape in sorted(unequal, key=lambda s: (math.prod(s), max(s))):
            sides = np.array([found[i].shape[0] for i in have])
            # fewer keys along every axis than the same number on all did not do
            chosen = have[(math.prod(shape) < best[have]) & (sides <= max(shape)) & (max(shape) <= sides + 3)]
            left = self._try(shape, chosen, fit, check, found, low, high)
            have = np.setdiff1d(have, np.setdiff1d(chosen, left))
        return found

    def _try(
        self, shape: tuple[int, ...], todo: NDArray[np.intp], fit: Array, check: Array, found: list[Piece | None],
        low: Array, high: Array,
    ) -> NDArray[np.intp]:  # fmt: skip
        """Fit the boxes `todo` with these keys; what fits is put into `found`, the others are returned."""
        K = fit.shape[-1]
        left = todo
        for delta in DELTAS if max(shape) > 1 else DELTAS[:1]:
            if not len(left):
                break
            deadline.check()
            U, S, Vt, judge = self._design(shape, delta)
            f = np.moveaxis(fit[left], 1, 0).reshape(len(self._fit_points), -1)  # (M, B K)
            exact = np.moveaxis(check[left], 1, 0).reshape(len(self._check_points), -1)
            damping = RIDGE * self.error / self.scale * math.sqrt(len(self._fit_points))
            coefficients = Vt.T @ ((S / (S * S + damping * damping))[:, None] * (U.T @ f))
            stored = as_stored(coefficients, self.dtype)
            away = np.abs(judge @ stored - exact).max(axis=0).reshape(len(left), K).max(axis=1)
            again = []
            for row, i in enumerate(left):
                if away[row] <= self.error:
                    columns = stored.reshape(self.E + 1, -1, len(left), K)[:, :, row]  # (E+1, P, K)
                    values = columns[0].reshape(*shape, -1)
                    slopes = np.moveaxis(columns[1:], 0, -1).reshape(*values.shape, self.E)
                    piece = Piece(shape, delta, values, slopes, float(away[row]))
                    if self._prescan(piece, low[i], high[i]):
                        found[i] = piece
                        continue
                again.append(i)
            left = np.array(again, dtype=np.intp)
        return left

    def _prescan(self, piece: Piece, low: Array, high: Array) -> bool:
        """Whether the piece also fits on a grid that is fine in the whole box: small features must not be missed."""
        counts = np.ceil((FINEST[self.E] - 1) * (high - low) / 2.0).astype(int) + 1
        if (counts <= CHECKS[self.E]).all():
            return True
        grids = [np.linspace(-1.0, 1.0, max(int(n), 2)) for n in counts]
        points = mesh(grids)
        exact = self.samples(low[None], high[None], points)[0]
        return bool(np.abs(evaluate(piece, piece.axes(self.dtype), grids) - exact).max() <= self.error)


def evaluate(piece: Piece, axes: tuple[AxisKeys, ...], grids: list[Array]) -> Array:
    """p on the grid of points t: (M, K)."""
    out = affine_on_grid([weights(axis, grid) for axis, grid in zip(axes, grids, strict=True)], piece.values, piece.slopes, grids)
    return out.reshape(-1, out.shape[-1])
