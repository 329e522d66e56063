"""Heads of an axis fitted relative to the sizes of their functions: least squares with rows divided by |f(z)|, column by column.

    min over c of sum over z (sum_j w_j(z) c_j - f(z))^2 / |f(z)|^2,        c_j = D_j d_j,  D_j the mean of |f| under key j

so that a function that spans decades is followed as well where it is small, and the numbers solved for are all near 1.
"""

from __future__ import annotations

import numpy as np

from maxaffine.core import deadline
from maxaffine.core.arrays import Array
from maxaffine.heads import fitting
from maxaffine.heads.fitting import Function
from maxaffine.heads.spectral.fit import AxisCurve, AxisFit
from maxaffine.layer.spectral_keys import SpectralAxis, bernstein, weights


class RelativeCurve(AxisCurve):
    """Best heads of an axis for functions f (M, K), their errors relative to `sizes` (M, K), by number of tokens."""

    def __init__(self, f: Function, sizes: Function, error: float, dtype: str) -> None:
        super().__init__(f, error, dtype)
        self.sizes, self.scale = sizes, 1.0

    def polished(self, count: int) -> AxisFit:
        """The fit by least squares, whose errors are even enough."""
        return self.best(count)

    def _search(self, count: int) -> AxisFit:
        if count > 1:
            return super()._search(count)
        deadline.check()
        z, check = self._points(1)
        f, axis = self.f(z), bernstein(1, 1.0, self.dtype)
        W_check = weights(axis.keys, check)
        low, high = f.min(axis=0), f.max(axis=0)
        same = low * high > 0
        middle = np.where(same, 2.0 * low * high / np.where(same, low + high, 1.0), (low + high) / 2.0)
        return self._judge(axis, middle[None], W_check, self._losses(axis, W_check), self.f(check))

    def _fit(self, axis: SpectralAxis, z: Array, f: Array, check: Array, f_check: Array) -> AxisFit:
        W, W_check, sizes = weights(axis.keys, z), weights(axis.keys, check), self.sizes(z)
        D = (W.T @ sizes) / W.sum(axis=0)[:, None]  # (N, K)
        A = W[None] * D.T[:, None] / sizes.T[..., None]  # (K, M, N)
        try:
            U, S, Vt = np.linalg.svd(A, full_matrices=False)
        except np.linalg.LinAlgError:
            return AxisFit(np.inf, axis, np.zeros((len(axis), f.shape[1])))
        projected = np.einsum("kmn,km->kn", U, (f / sizes).T)
        lost, fits = self._losses(axis, W_check), []
        for damping in self._dampings(fitting.LAMBDAS):
            solved = np.einsum("knj,kn->jk", Vt, projected * S / (S * S + damping * damping))
            fits.append(self._judge(axis, D * solved, W_check, lost, f_check))
        return min(fits, key=lambda fit: fit.error)

    def _judge(
        self, axis: SpectralAxis, values: Array, W_check: Array, lost: Array, f_check: Array, slopes: Array | None = None
    ) -> AxisFit:
        stored, sizes = fitting.as_stored(values, self.dtype), self.sizes(self._check)
        if not np.isfinite(stored).all():
            return AxisFit(np.inf, axis, stored)
        g = W_check @ stored
        away = (np.abs(g - f_check) / sizes).max(axis=0)
        # rounding is bounded over the whole axis at once, so that it counts where the function is smallest
        loss = np.array([float((lost * np.abs(c - g[:, k : k + 1])).sum(axis=1).max()) for k, c in enumerate(stored.T)])
        loss += self.query * np.abs(g[1:] - g[:-1]).max(axis=0) / self._step
        loss = loss / sizes.min(axis=0)
        error = float(np.maximum(away + loss, fitting.loss_share(self.dtype) * loss).max())
        return AxisFit(error if np.isfinite(error) else np.inf, axis, stored)
