"""Clusters of one token each: scores and values as exact affine functions of x, and what computing them adds."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.reader import Clusters, Layer
from maxaffine.core.arrays import Array
from maxaffine.core.polytopes import Affine
from maxaffine.core.rounding import compute_format

TOKENS = 5_000
LARGE = {"float64": 1e290, "float32": 1e36}


@dataclass(frozen=True)
class AffineTokens:
    """Scores (D + 1 numbers) and values (K times D + 1) in x - centre, exact; and sizes that rounding grows with."""

    layer: Layer
    group: Clusters
    scores: list[Affine]
    values: list[list[Affine]]
    centre: list[Fraction]
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
        M = [[Fraction(float(m)) for m in row] for row in group.matrix]
        K = group.values[0].shape[-1]
        c, G = np.stack([v.reshape(K) for v in group.values]), np.stack([g.reshape(K, E) for g in group.slopes])
        scores, values, local = [], [], np.zeros((C, K, E + 1))
        for k in range(C):
            site = [Fraction(float(v)) for v in group.sites[k]]
            scores.append(_in_x(site[:-1], site[-1], M))
            origin, radius = group.origins[k], group.radii[k]
            rows = []
            for m in range(K):
                steep = [Fraction(float(g)) / Fraction(float(r)) for g, r in zip(G[k, m], radius, strict=True)]
                shift = sum((g * Fraction(float(o)) for g, o in zip(steep, origin, strict=True)), Fraction(0))
                rows.append(_in_x(steep, Fraction(float(c[k, m])) - shift, M))
                size = np.abs(G[k, m]) / radius
                local[k, m] = (*size, abs(c[k, m]) + float(size @ np.abs(origin)))
            values.append(rows)
        return cls(layer, group, scores, values, [Fraction(float(a)) for a in layer.centre], local)

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


def _in_x(slopes: list[Fraction], constant: Fraction, M: list[list[Fraction]]) -> Affine:
    D = len(M[0])
    total = [sum((a * row[i] for a, row in zip(slopes, M, strict=True) if a and row[i]), Fraction(0)) for i in range(D)]
    return (*total, constant)
