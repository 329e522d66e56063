"""Local pieces: Bernstein keys with affine values on a box, fitted for many boxes at once.

    p(t) = sum_j w_j(t) (c_j + G_j . t),     t in [-1, 1]^E,     w the product of Bernstein weights per axis

All boxes share the coordinates t, so one singular value decomposition per choice of keys serves them all; ridge values
S/(S^2 + lam^2) with lam tied to the error wanted keep c and G moderate.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.heads.fitting import Function, affine_on_grid, as_stored, mesh
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein, chebyshev, weights

DELTAS = (0.5, 1.5)
MOST = {1: 12, 2: 8, 3: 5}  # keys per axis
POINTS = {1: 40, 2: 20, 3: 12}  # points per axis to fit on
CHECKS = {1: 120, 2: 29, 3: 17}  # points per axis to judge on
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


@dataclass(frozen=True)
class _Keys:
    """One choice of keys: p per axis and delta."""

    shape: tuple[int, ...]
    delta: float
    dtype: str

    @cached_property
    def axes(self) -> tuple[AxisKeys, ...]:
        return tuple(bernstein(p, self.delta, self.dtype).keys for p in self.shape)

    def design(self, grids: list[Array]) -> Array:
        """Columns w_j and w_j t_e at the points of a grid: (M, (E+1) P)."""
        E = len(self.shape)
        W = np.ones((1, 1))
        for axis, grid in zip(self.axes, grids, strict=True):
            w = weights(axis, grid)
            W = np.einsum("ij,kl->ikjl", W, w).reshape(len(W) * len(w), -1)
        points = mesh(grids)
        return np.concatenate([W] + [W * points[:, e : e + 1] for e in range(E)], axis=1)

    @cached_property
    def factors(self) -> tuple[Array, Array, Array]:
        grids = [chebyshev(POINTS[len(self.shape)])] * len(self.shape)
        U, S, Vt = np.linalg.svd(self.design(grids), full_matrices=False)
        return U, S, Vt

    @cached_property
    def judge(self) -> Array:
        return self.design([np.linspace(-1.0, 1.0, CHECKS[len(self.shape)])] * len(self.shape))


class LocalFitter:
    """Pieces of fewest tokens on boxes in z, for one function and one error."""

    def __init__(self, f: Function, dimension: int, error: float, dtype: str, finest: int = 0) -> None:
        self.f, self.E, self.error, self.dtype = f, dimension, error, dtype
        self.finest = finest or {1: 513, 2: 129, 3: 33}[dimension]  # points per axis of the whole box that are looked at
        self._keys: dict[tuple[tuple[int, ...], float], _Keys] = {}
        grid = chebyshev(POINTS[dimension])
        self._fit_points = mesh([grid] * dimension)
        self._check_points = mesh([np.linspace(-1.0, 1.0, CHECKS[dimension])] * dimension)
        self.scale = 1.0

    def keys(self, shape: tuple[int, ...], delta: float) -> _Keys:
        """The choice of keys, made once."""
        if (shape, delta) not in self._keys:
            self._keys[shape, delta] = _Keys(shape, delta, self.dtype)
        return self._keys[shape, delta]

    def samples(self, low: Array, high: Array, points: Array) -> Array:
        """f at points t of every box: (B, M, K)."""
        z = ((low + high)[:, None] + (high - low)[:, None] * points) / 2.0
        found = self.f(z.reshape(-1, self.E))
        return found.reshape(len(low), len(points), -1)

    def pieces(self, low: Array, high: Array, most: int | None = None) -> list[Piece | None]:
        """For every box the piece of fewest tokens whose error fits; None where none does."""
        found: list[Piece | None] = [None] * len(low)
        for start in range(0, len(low), 400):
            part = slice(start, start + 400)
            for i, piece in enumerate(self._some(low[part], high[part], most or MOST[self.E])):
                found[start + i] = piece
        return found

    def _some(self, low: Array, high: Array, most: int) -> list[Piece | None]:
        fit, check = self.samples(low, high, self._fit_points), self.samples(low, high, self._check_points)
        found: list[Piece | None] = [None] * len(low)
        todo = np.arange(len(low))
        best = np.full(len(low), math.inf)
        for p in range(1, most + 1):  # the same number of keys on every axis first
            todo = self._try((p,) * self.E, todo, fit, check, found, low, high)
            if not len(todo):
                break
        if self.E > 1:
            have = np.array([i for i, piece in enumerate(found) if piece is not None and piece.tokens > 1], dtype=np.intp)
            best = np.array([math.inf if piece is None else piece.tokens for piece in found])
            unequal = [s for s in itertools.product(range(1, most + 1), repeat=self.E) if len(set(s)) > 1]
            for shape in sorted(unequal, key=lambda s: (math.prod(s), max(s))):
                tokens = math.prod(shape)
                sides = np.array([found[i].shape[0] for i in have]) if len(have) else np.empty(0)
                fresh = (tokens < best[have]) & (max(shape) <= sides + 3)
                chosen = have[fresh]
                if len(chosen):
                    left = self._try(shape, chosen, fit, check, found, low, high)
                    done = np.setdiff1d(chosen, left)
                    have = np.setdiff1d(have, done)
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
            keys = self.keys(shape, delta)
            U, S, Vt = keys.factors
            f = np.moveaxis(fit[left], 1, 0).reshape(len(self._fit_points), -1)  # (M, B K)
            exact = np.moveaxis(check[left], 1, 0).reshape(len(self._check_points), -1)
            damping = RIDGE * self.error / self.scale * math.sqrt(len(self._fit_points))
            coefficients = Vt.T @ ((S / (S * S + damping * damping))[:, None] * (U.T @ f))
            stored = as_stored(coefficients, self.dtype)
            away = np.abs(keys.judge @ stored - exact).max(axis=0).reshape(len(left), K).max(axis=1)
            again = []
            for row, i in enumerate(left):
                if away[row] <= self.error:
                    piece = self._piece(shape, delta, stored.reshape(self.E + 1, -1, len(left), K)[:, :, row], float(away[row]))
                    if self._prescan(piece, low[i], high[i]):
                        found[i] = piece
                        continue
                again.append(i)
            left = np.array(again, dtype=np.intp)
        return left

    def _piece(self, shape: tuple[int, ...], delta: float, coefficients: Array, error: float) -> Piece:
        """From columns (E+1, P, K) to values and slopes."""
        values = coefficients[0].reshape(*shape, -1)
        slopes = np.moveaxis(coefficients[1:], 0, -1).reshape(*values.shape, self.E)
        return Piece(shape, delta, values, slopes, error)

    def _prescan(self, piece: Piece, low: Array, high: Array) -> bool:
        """Whether the piece also fits on a grid that is fine in the whole box: small features must not be missed."""
        counts = np.ceil((self.finest - 1) * (high - low) / 2.0).astype(int) + 1
        if (counts <= CHECKS[self.E]).all():
            return True
        grids = [np.linspace(-1.0, 1.0, max(int(n), 2)) for n in counts]
        points = mesh(grids)
        exact = self.samples(low[None], high[None], points)[0]
        return bool(np.abs(evaluate(piece, self.keys(piece.shape, piece.delta).axes, grids) - exact).max() <= self.error)


def evaluate(piece: Piece, axes: tuple[AxisKeys, ...], grids: list[Array]) -> Array:
    """p on the grid of points t: (M, K)."""
    out = affine_on_grid([weights(axis, grid) for axis, grid in zip(axes, grids, strict=True)], piece.values, piece.slopes, grids)
    return out.reshape(-1, out.shape[-1])
