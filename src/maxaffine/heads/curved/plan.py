"""A kink along a convex curve: a smooth head, plus one cluster inside the curve and a single token behind every edge around it.

    f = f_o + [inside] (f_A - f_o),      F = p_o + Omega_in (p_A - p_o)

f_A and f_o are the target's two branches, equal on the curve, and p_A, p_o their pieces on the whole box with the same keys.
Omega_in is the mass of the inner cluster against K tokens of value zero, whose scores are tangent planes of the inner cluster's
own score plus lam times those of the branches' difference on the curve: a polygon, rounded off by the softmax itself.

How soft it should be: with w = lam error, scores that are off by D at the curve cost W0(e^(D-1))/lam, which is the error for
D = 1 + w + log w.  Between two tangents at a distance L on a curve of curvature c along which the branches part at slope s,
scores vary by lam c s L^2/8 - log 2 = 2 D; L is longest for w = .71, where L^2 = 38 error/(c s), against 16 for hard edges.  K
grows like error^(-1/2), whatever the branches are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import mesh
from maxaffine.heads.assemble import layer_of, single_token
from maxaffine.heads.fitting import Function, as_stored
from maxaffine.heads.level.plan import Curve
from maxaffine.heads.spectral.affine_fit import AffineProducts, ProductFit
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.spectral_keys import weights
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.target.target import Target

FITS, HARD = (0.06, 0.01), 0.08  # of the error, for the pieces of both branches: with soft edges, and with hard ones
SOFT = 0.975  # of the error, for both branches and what the wrong one says near the curve
WIDTHS = (0.71, 0.6, 0.85, 1.0, 1.5, 2.5, 5.0)  # w
LOOKS = 61  # points per axis at which a layer with few edges is looked at
NEAR = 4  # edges to both sides that are heard at a point of the curve
ENDS = 0.06  # of an edge, by which a curve that leaves the box is followed beyond its ends


@dataclass(frozen=True)
class CurvedPlan:
    """The pieces (two outputs: outside and inside), the edges' scores in z, and which switch of the target is meant."""

    piece: ProductFit
    slopes: Array  # (K, 2)
    offsets: Array  # (K,)
    place: int
    choice: int
    flat: bool = False  # the outer piece is one affine function, whose token is one
    argument: str = "curved kink"

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return self.piece.tokens + (1 if self.flat else self.piece.tokens) + len(self.offsets)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the numbers themselves are the layer's."""
        return {"plan": "curved", "method": "curved", "edges": len(self.offsets), "switch": self.place, "side": self.choice}


def curved_plan(
    both: Function, curve: Curve, error: float, scale: float, dtype: str, most: int, place: int, choice: int, soft: bool = True
) -> CurvedPlan | None:
    """Pieces of `both` branches (M, 2) -> (M, 2: outside, inside) on the box, and as many edges as the kink needs.

    `soft` edges count on a target that is the larger or the smaller of its branches everywhere.
    """
    middles = curve.middles
    slopes = _parting(both, middles, curve.normals)
    best: CurvedPlan | None = None
    for share in FITS if soft else ():
        piece, flat = _pieces(both, share * error, scale, dtype)
        if piece is None:
            continue
        limit = (most if best is None else best.cells - 1) - piece.tokens - (1 if flat else piece.tokens)
        left = SOFT * error - 1.9 * piece.error  # both pieces may move the curve, besides what each is off by
        made = _soft_edges(piece, both, curve, middles, slopes, left, limit)
        best = best if made is None else CurvedPlan(piece, *made, place, choice, flat)
    if soft:
        return best
    piece, flat = _pieces(both, HARD * error, scale, dtype)
    if piece is None:
        return None
    slope = float(slopes.max()) * 1.03
    sharpness = 0.2785 * slope / (0.06 * error)
    for edges in _counts(most - piece.tokens - (1 if flat else piece.tokens)):
        normals, offsets, anchors, away = chebyshev_polygon(curve, middles, edges)
        if away * slope <= 0.75 * error:
            value, lean = _score(piece, anchors)
            steep = lean + sharpness * normals
            return CurvedPlan(piece, steep, value - (lean * anchors).sum(axis=1) - sharpness * offsets, place, choice, flat)
    return None


def _pieces(both: Function, error: float, scale: float, dtype: str) -> tuple[ProductFit | None, bool]:
    """Both branches on the same keys; where the outer one is affine, it is taken as it is and the other one fitted alone."""
    z = np.random.default_rng(13).uniform(-1.0, 1.0, (400, 2))
    outer, columns = both(z)[:, 0], np.concatenate([np.ones((400, 1)), z], axis=1)
    flat = np.linalg.lstsq(columns, outer, rcond=None)[0]
    if float(np.abs(columns @ flat - outer).max()) > 1e-13 * (scale + 1.0):
        return AffineProducts(both, 2, error, scale, dtype).smallest(error, 400), False

    def apart(t: Array) -> Array:
        return np.diff(both(t), axis=1)

    fit = AffineProducts(apart, 2, error, scale, dtype).smallest(error, 400)
    if fit is None:
        return None, True
    stored = as_stored(flat, dtype)
    values = np.concatenate([np.full_like(fit.values, stored[0]), fit.values + stored[0]], axis=-1)
    slopes = np.concatenate([np.broadcast_to(stored[1:], fit.slopes.shape), fit.slopes + stored[1:]], axis=-2)
    return ProductFit(fit.error, fit.axes, values, slopes), True


def _parting(both: Function, middles: Array, normals: Array) -> Array:
    """The slope with which the branches part at points of the curve, from values a little to both sides, inside the box."""
    total, steps = np.zeros(len(middles)), np.full(len(middles), 1e-12)
    for s in (-1e-5, 1e-5):
        beside = np.clip(middles + s * normals, -1.0, 1.0)
        total += np.abs(np.diff(both(beside), axis=1)[:, 0])
        steps += np.abs(((beside - middles) * normals).sum(axis=1))
    return np.asarray(total / steps)


def _soft_edges(
    piece: ProductFit, both: Function, curve: Curve, middles: Array, slopes: Array, error: float, most: int
) -> tuple[Array, Array] | None:
    """Slopes and offsets of the fewest edges found for one of WIDTHS; the curve's `middles`, where branches part at `slopes`."""
    points = mesh([np.linspace(-1.0, 1.0, LOOKS)] * 2)
    apart, score = np.diff(both(points), axis=1)[:, 0], _score(piece, points)[0]
    within = np.diff(both(np.clip(middles - 1e-5 * curve.normals, -1.0, 1.0)), axis=1)[:, 0]
    apart = apart * (1.0 if float(np.median(within)) > 0 else -1.0)  # positive inside
    density = np.sqrt(curve.bends * curve.lengths * slopes) + 1e-9 * curve.lengths
    inner = _score(piece, middles)[0]
    best: tuple[Array, Array] | None = None
    for width in WIDTHS:
        lam = width / error
        reach = (2.0 * (1.0 + width + math.log(width)) + math.log(2.0)) * 8.0 / width
        count = max(3, math.ceil(0.97 * float(density.sum()) / math.sqrt(reach * error)))
        limit = most if best is None else len(best[1]) - 1
        while count <= limit:
            found, off = _edges(piece, curve, middles, inner, density, slopes, lam, count)
            costs = soft_gap(2, off) / lam
            if costs <= error:
                if _seen(found, points, apart, score) <= error:
                    best = found
                break
            count = max(count + 1, math.ceil(count * 1.015))
    return best


def _seen(found: tuple[Array, Array], mesh: Array, apart: Array, score: Array) -> float:
    """What the wrong branch adds at points of a mesh: with few edges, far from the curve they may still be heard together."""
    worst = 0.0
    for rows in np.array_split(np.arange(len(mesh)), max(1, len(mesh) * len(found[1]) // 2_000_000)):
        logits = mesh[rows] @ found[0].T + found[1] - score[rows, None]
        top = logits.max(axis=1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        shares = 1.0 / (1.0 + np.exp(np.clip(np.where(apart[rows] > 0, -total, total), -600.0, 600.0)))
        worst = max(worst, float((np.abs(apart[rows]) * shares).max()))
    return worst


def _edges(
    piece: ProductFit, curve: Curve, middles: Array, inner: Array, density: Array, slopes: Array, lam: float, count: int
) -> tuple[tuple[Array, Array], float]:
    """That many edges, levelled so that their scores are off by as little as they can on the curve; and how much that is."""
    total = np.cumsum(density)
    is_open = float(np.linalg.norm(curve.points[0] - curve.points[-1])) > 4.0 * float(curve.lengths[0] + curve.lengths[-1])
    spare = ENDS * total[-1] / count if is_open else 0.0
    place = (total - density / 2.0 + spare) / (total[-1] + 2.0 * spare) * count
    owner = np.minimum(place.astype(int), count - 1)
    at = np.minimum(np.searchsorted(place, np.arange(count) + 0.5), len(place) - 1)
    anchors, (value, lean) = middles[at], _score(piece, middles[at])
    edges = lean + lam * slopes[at, None] * curve.normals[at]
    offsets = value - (edges * anchors).sum(axis=1)
    window = np.arange(-NEAR, NEAR + 1) if count > 2 * NEAR else np.arange(count)
    near = owner[:, None] + window
    missing = np.where((near >= 0) & (near < count) | (not is_open) | (count <= 2 * NEAR), 0.0, -np.inf)
    near = near % count
    lines = np.einsum("mkd,md->mk", edges[near], middles) - inner[:, None] + missing
    off = np.zeros(len(middles))
    for step in range(5):
        scores = lines + offsets[near]
        top = scores.max(axis=1)
        off = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        if step < 4:
            high, low = np.full(count, -np.inf), np.full(count, np.inf)
            np.maximum.at(high, owner, off)
            np.minimum.at(low, owner, off)
            known = high >= low  # an edge that owns no point stays
            offsets = offsets - (np.where(known, high, 0.0) + np.where(known, low, 0.0)) / 2.0
    return (edges, offsets), float(np.abs(off).max())


def _counts(most: int) -> list[int]:
    found, count = [], 4
    while count <= most:
        found.append(count)
        count = max(count + 1, math.ceil(count * 1.04))
    return found


def chebyshev_polygon(curve: Curve, middles: Array, edges: int) -> tuple[Array, Array, Array, float]:
    """Normals, offsets, a point of every edge, and the largest distance between curve and polygon."""
    density = np.sqrt(curve.bends * curve.lengths) + 1e-9 * curve.lengths
    owner, normals = curve.shared(density, edges)
    anchors, offsets = np.zeros((edges, 2)), np.zeros(edges)
    for k in range(edges):
        mine = middles[owner == k]
        if len(mine):
            along = mine @ normals[k]
            offsets[k], anchors[k] = (along.max() + along.min()) / 2.0, mine[len(mine) // 2]
        else:
            offsets[k] = 10.0
    away = (middles @ normals.T - offsets).max(axis=1)
    return normals, offsets, anchors, float(np.abs(away).max())


def _score(piece: ProductFit, z: Array) -> tuple[Array, Array]:
    """Log-sum-exp of the inner cluster's keys at points, and its gradient."""
    value, lean = np.zeros(len(z)), np.zeros_like(z)
    for e, axis in enumerate(one.keys for one in piece.axes):
        logits = np.multiply.outer(z[:, e], axis.slopes) + axis.offsets
        value += np.log(np.exp(logits).sum(axis=1))
        lean[:, e] = weights(axis, z[:, e]) @ axis.slopes
    return value, lean


def build_curved(plan: CurvedPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer: a group of one cluster, and one of the inner cluster, whose values are differences of pieces, and its edges."""
    piece, wide = plan.piece, 1.0 + 2.0**-39
    matrix, origin, radius = np.diag(2.0 / target.box.width), np.zeros(2), np.full(2, wide)
    axes = tuple(axis.keys for axis in piece.axes)
    outer = Cluster(origin, radius, axes, piece.values[..., :1], piece.slopes[..., :1, :])
    if plan.flat:
        outer = single_token(piece.values[0, 0, :1], piece.slopes[0, 0, :1], wide)
    values, slopes = piece.values[..., 1:] - piece.values[..., :1], piece.slopes[..., 1:, :] - piece.slopes[..., :1, :]
    edge = single_token(np.zeros(1), np.zeros((1, 2)), wide)
    inner = (Cluster(origin, radius, axes, values, slopes), *([edge] * len(plan.offsets)))
    steep, offsets = np.vstack([np.zeros((1, 2)), plan.slopes]), np.concatenate([[0.0], plan.offsets])
    groups = ClusterGroup(matrix, np.zeros((1, 2)), np.zeros(1), (outer,)), ClusterGroup(matrix, steep, offsets, inner)
    return layer_of(groups, target, dtype)
