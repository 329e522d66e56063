"""A kink along a convex curve: a smooth head, plus one cluster inside the curve and a single token behind every edge around it.

    f = f_o + [inside] (f_A - f_o),      F = p_o + Omega_in (p_A - p_o)

f_A and f_o are the target's two branches, equal on the curve, and p_A, p_o their pieces on the whole box with the same keys.
Omega_in is the mass of the inner cluster against K tokens of value zero, whose scores are tangent planes of the inner cluster's
own score plus lam (n_k . z - rho_k): a polygon.  Following a curve of curvature c by edges of length L costs c L^2 / 16 times the
kink's slope, so that K grows like error^(-1/2), whatever the branches are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.plan.level_sets import Curve
from maxaffine.plan.local_fit import Function, LocalFitter, Piece
from maxaffine.plan.spectral_keys import weights

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CurvedPlan:
    """The pieces (two outputs: outside and inside), the edges' scores in z, and which switch of the target is meant."""

    piece: Piece
    slopes: Array  # (K, 2)
    offsets: Array  # (K,)
    place: int
    choice: int
    route: str = "curved kink"

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return 2 * self.piece.tokens + len(self.offsets)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the numbers themselves are the layer's."""
        return {"plan": "curved", "method": "curved", "edges": len(self.offsets), "switch": self.place, "side": self.choice}


def curved_plan(
    both: Function, curve: Curve, error: float, scale: float, dtype: str, most: int, place: int, choice: int
) -> CurvedPlan | None:
    """Pieces of `both` branches (M, 2) -> (M, 2: outside, inside) on the box, and as many edges as the kink needs."""
    fitter = LocalFitter(both, 2, 0.1 * error, dtype)
    fitter.scale = scale
    edge = np.full((1, 2), 1.0 + 2.0**-40)
    (piece,) = fitter.pieces(-edge, edge, 8)
    if piece is None:
        return None
    middles = curve.points + 0.5 * curve.lengths[:, None] * np.stack([-curve.normals[:, 1], curve.normals[:, 0]], axis=1)
    step = 1e-5
    apart = [np.abs(np.diff(both(np.clip(middles + s * step * curve.normals, -1, 1)), axis=1)[:, 0]) / step for s in (-1.0, 1.0)]
    slope = float(np.maximum(*apart).max()) * 1.02
    sharpness = 0.2785 * slope / (0.06 * error)
    for edges in _counts(most - 2 * piece.tokens):
        normals, offsets, anchors, away = chebyshev_polygon(curve, middles, edges)
        if away * slope <= 0.75 * error:
            value, lean = _score(piece, dtype, anchors)
            slopes = lean + sharpness * normals
            return CurvedPlan(piece, slopes, value - (lean * anchors).sum(axis=1) - sharpness * offsets, place, choice)
    return None


def _counts(most: int) -> list[int]:
    found, count = [], 4
    while count <= most:
        found.append(count)
        count = max(count + 1, math.ceil(count * 1.04))
    return found


def chebyshev_polygon(curve: Curve, middles: Array, edges: int) -> tuple[Array, Array, Array, float]:
    """Normals, offsets, a point of every edge, and the largest distance between curve and polygon."""
    density = np.sqrt(curve.bends * curve.lengths) + 1e-9 * curve.lengths
    place = (np.cumsum(density) - density / 2.0) / density.sum() * edges
    owner = np.minimum(place.astype(int), edges - 1)
    normals, anchors, offsets = np.zeros((edges, 2)), np.zeros((edges, 2)), np.zeros(edges)
    np.add.at(normals, owner, curve.normals * curve.lengths[:, None])
    normals /= np.maximum(np.linalg.norm(normals, axis=1), 1e-300)[:, None]
    for k in range(edges):
        mine = middles[owner == k]
        if len(mine):
            along = mine @ normals[k]
            offsets[k], anchors[k] = (along.max() + along.min()) / 2.0, mine[len(mine) // 2]
        else:
            offsets[k] = 10.0
    away = (middles @ normals.T - offsets).max(axis=1)
    return normals, offsets, anchors, float(np.abs(away).max())


def _score(piece: Piece, dtype: str, z: Array) -> tuple[Array, Array]:
    """Log-sum-exp of the inner cluster's keys at points, and its gradient."""
    value, lean = np.zeros(len(z)), np.zeros_like(z)
    for e, axis in enumerate(piece.axes(dtype)):
        logits = np.multiply.outer(z[:, e], axis.slopes) + axis.offsets
        value += np.log(np.exp(logits).sum(axis=1))
        lean[:, e] = weights(axis, z[:, e]) @ axis.slopes
    return value, lean
