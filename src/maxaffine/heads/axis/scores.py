"""Scores of clusters along one coordinate, and of their leads over each other, enclosed in extended precision."""

from __future__ import annotations

import numpy as np

from maxaffine.core.rounding import EXTENDED, FLOAT64
from maxaffine.heads.axis.cell_error import LocalHead
from maxaffine.layer.clusters import ClusterGroup

U = FLOAT64.unit
UP = 1.0 + 1e-12


class Scores:
    """Scores of the clusters in extended precision, with their errors."""

    def __init__(self, group: ClusterGroup) -> None:
        self.heads = [LocalHead.of(c) for c in group.clusters]
        self.origin = [float(c.origin[0]) for c in group.clusters]
        self.radius = [float(c.radius[0]) for c in group.clusters]
        self.A = group.site_slopes[:, 0].astype(np.float64)
        self.b = group.site_offsets.astype(np.float64)
        spans = [(h.keys.slopes.min() / r, h.keys.slopes.max() / r) for h, r in zip(self.heads, self.radius, strict=True)]
        # lower bounds of D_k'
        self.lam = [
            float((self.A[k + 1] + spans[k + 1][0]) - (self.A[k] + spans[k][1]))
            - 8 * U * float(abs(self.A[k]) + abs(self.A[k + 1]) + sum(abs(v) for v in (*spans[k], *spans[k + 1])))
            for k in range(len(self.heads) - 1)
        ]

    def inner(self, k: int) -> float:
        """The largest slope of a key of its own, in z."""
        return float(np.abs(self.heads[k].keys.slopes).max()) / self.radius[k] * UP

    def t(self, k: int, z: float) -> float:
        """The local coordinate, rounded."""
        return (z - self.origin[k]) / self.radius[k]

    def score(self, k: int, z: float) -> tuple[float, float]:
        """S_k(z) and a bound of its error, as long doubles in float clothing: differences are taken before rounding."""
        value, slack = self._score(k, z)
        return float(value), slack

    def _score(self, k: int, z: float) -> tuple[np.longdouble, float]:
        keys = self.heads[k].keys
        t = (np.longdouble(z) - np.longdouble(self.origin[k])) / np.longdouble(self.radius[k])
        logits = keys.slopes.astype(np.longdouble) * t + keys.offsets.astype(np.longdouble)
        top = logits.max()
        value = np.longdouble(self.A[k]) * np.longdouble(z) + np.longdouble(self.b[k]) + top + np.log(np.exp(logits - top).sum())
        local = float((np.abs(keys.slopes) * abs(float(t)) + np.abs(keys.offsets)).max())
        size = float(abs(self.A[k] * z) + abs(self.b[k])) + local + 8.0
        return value, size * EXTENDED * (16.0 + len(keys))

    def gap(self, k: int, z: float) -> tuple[float, float]:
        """D_k(z), enclosed: low and high."""
        right, more = self._score(k + 1, z)
        left, less = self._score(k, z)
        value, slack = float(right - left), (more + less) * UP
        slack += U * abs(value)
        return value - slack, value + slack

    def edge(self, k: int, wanted: float, low: float, high: float, side: int) -> float:
        """side 1: the first z of [low, high] from which on D_k >= wanted, surely, or `high`; side -1: the last z up to which
        D_k <= -wanted, or `low`."""

        def good(z: float) -> bool:
            below, above = self.gap(k, z)
            return below >= wanted if side > 0 else above <= -wanted

        inside, outside = (high, low) if side > 0 else (low, high)
        if not good(inside):
            return inside
        if good(outside):
            return outside
        spans = sum(float(np.ptp(self.heads[i].keys.slopes)) / self.radius[i] for i in (k, k + 1))
        fine = 0.02 * wanted / (self.lam[k] + 2.0 * spans)
        while abs(inside - outside) > fine:
            middle = inside + (outside - inside) / 2.0
            if middle in (inside, outside):
                break
            inside, outside = (middle, outside) if good(middle) else (inside, middle)
        return inside
