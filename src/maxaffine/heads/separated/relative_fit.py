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
from maxaffine.heads.spectral.fit import AxisCurve, AxisFit, Design
from maxaffine.layer.spectral_keys import bernstein, weights


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
        design = Design(bernstein(1, 1.0, self.dtype), *self._points(1))
        f = self.f(design.z)
        low, high = f.min(axis=0), f.max(axis=0)
        same = low * high > 0
        middle = np.where(same, 2.0 * low * high / np.where(same, low + high, 1.0), (low + high) / 2.0)
        return self._relative(design, middle[None], self.f(design.check))

    def _fit(self, design: Design, f: Array, f_check: Array, below: float) -> AxisFit:
        W, sizes = weights(design.axis.keys, design.z), self.sizes(design.z)
        D = (W.T @ sizes) / W.sum(axis=0)[:, None]  # (N, K)
        A = W[None] * D.T[:, None] / sizes.T[..., None]  # (K, M, N)
        try:
            U, S, Vt = np.linalg.svd(A, full_matrices=False)
        except np.linalg.LinAlgError:
            return AxisFit(np.inf, design.axis, np.zeros((len(design.axis), f.shape[1])))
        projected = np.einsum("kmn,km->kn", U, (f / sizes).T)
        fits = []
        for damping in self._dampings(fitting.LAMBDAS):
            solved = np.einsum("knj,kn->jk", Vt, projected * S / (S * S + damping * damping))
            fits.append(self._relative(design, D * solved, f_check))
        return min(fits, key=lambda fit: fit.error)

    def _relative(self, design: Design, values: Array, f_check: Array) -> AxisFit:
        """The head with these values, and its relative error."""
        stored, sizes = fitting.as_stored(values, self.dtype), self.sizes(design.check)
        if not np.isfinite(stored).all():
            return AxisFit(np.inf, design.axis, stored)
        g = design.W_check @ stored
        lost = design.W_check * (design.etas + self.bonus) * self.unit
        away = (np.abs(g - f_check) / sizes).max(axis=0)
        # rounding is bounded over the whole axis at once, so that it counts where the function is smallest
        loss = np.array([float((lost * np.abs(c - g[:, k : k + 1])).sum(axis=1).max()) for k, c in enumerate(stored.T)])
        loss += self.query * np.abs(g[1:] - g[:-1]).max(axis=0) / self._step
        loss = loss / sizes.min(axis=0)
        error = float(np.maximum(away + loss, fitting.loss_share(self.dtype) * loss).max())
        return AxisFit(error if np.isfinite(error) else np.inf, design.axis, stored)
