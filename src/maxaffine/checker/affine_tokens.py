"""Clusters of one token each: scores and values as exact affine functions of x, and what computing them adds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.checker.proved import DOUBLE, NotProved, exact
from maxaffine.checker.reader import Clusters, Layer
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format

TOKENS = 5_000
LARGE = {"float64": 1e290, "float32": 1e36}


@dataclass(frozen=True)
class AffineTokens:
    """Scores (D + 1 numbers) and values (K times D + 1) in x - centre, exact; and sizes that rounding grows with."""

    layer: Layer
    group: Clusters
    scores: Any  # fractions (N, D + 1)
    values: Any  # fractions (N, K, D + 1)
    centre: Any  # fractions (D,)
    local: Array  # (N, K, E + 1): the stored c and G / radius, with what a shift by the origin adds to c

    @classmethod
    def of(cls, layer: Layer, g: int = 0) -> "AffineTokens":
        """Group g of a layer; NotProved where its clusters are not single tokens."""
        group = layer.groups[g]
        if not isinstance(group, Clusters) or not group.single:
            raise NotProved("its clusters are not single tokens with scores of their sites alone.")
        C, E = group.sizes.shape
        if C > TOKENS or len(layer.low) < E:
            raise NotProved(f"it has {C:,} clusters in {E} coordinates, which this check does not take.")
        c, G = np.stack([v.reshape(-1) for v in group.values]), np.stack([G.reshape(-1, E) for G in group.slopes])
        M, sites, steep = exact(group.matrix), exact(group.sites), exact(G) / exact(group.radii)[:, None]
        shift, sizes = (steep * exact(group.origins)[:, None]).sum(axis=-1), np.abs(G) / group.radii[:, None]
        scores = np.concatenate([sites[:, :-1] @ M, sites[:, -1:]], axis=1)
        values = np.concatenate([steep @ M, (exact(c) - shift)[..., None]], axis=-1)
        level = np.abs(c) + (sizes * np.abs(group.origins)[:, None]).sum(axis=-1)
        return cls(layer, group, scores, values, exact(layer.centre), np.concatenate([sizes, level[..., None]], axis=-1))

    def in_x(self, rows: Any) -> Any:
        """Affine functions of x - centre as functions of x."""
        moved = rows.copy()
        moved[..., -1] -= rows[..., :-1] @ self.centre
        return moved

    def rounding(self) -> tuple[float, float]:
        """What computing does: errors of scores, and of values, their sums and the answer.

        z is formed in float64 from x - centre; the two-level runtime keeps scores, masses and values in float64, and the
        answer is rounded to the dtype at the end.
        """
        layer, matrix, sites = self.layer, np.abs(self.group.matrix), np.abs(self.group.sites)
        (N, E), D = self.group.sizes.shape, len(layer.low)
        largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
        reach = layer.reach * 1.0000001
        size = matrix @ reach * 1.0000001
        moved = (matrix @ (largest + (D + 5) * reach)) * DOUBLE * 1.01
        logits = float((sites[:, :-1] @ size + sites[:, -1]).max())
        if not logits < LARGE[compute_format(layer.dtype).name]:
            raise NotProved(f"its logits overflow in {layer.dtype}.")
        eta = float((sites[:, :-1] @ moved).max()) + (3 * E + 8) * DOUBLE * 1.01 * logits + DOUBLE * 1000.0
        top = float((self.local[:, :, :-1] @ size + self.local[:, :, -1]).max()) * 1.0000001
        values = float((self.local[:, :, :-1] @ moved).max()) + (4 * E + 12) * DOUBLE * 1.01 * top
        sums = (2.0 * N + 40.0) * DOUBLE * 1.01 * top
        if not (2.0 * N + 40.0) * DOUBLE < 1e-3:
            raise NotProved("its sums are too long.")
        return eta, values + sums + compute_format(layer.dtype).unit * 1.01 * top + N * 1e-35 * top
