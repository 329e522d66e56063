"""Convex level sets as polygons: one token inside, one behind every edge.

    score inside 0,    score behind edge k:  lam (n_k . z - rho_k),    values a inside and b outside

The hard partition is the polygon {n_k . z <= rho_k}.  A curve of curvature c is followed by an edge of length L up to c L^2 / 16,
where rho_k is the median of n_k . z over the curve's part along the edge, which makes the area in between smallest; edges are as
long as c^(-1/3).  The area between set and polygon falls like K^-2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import mesh
from maxaffine.heads.assemble import layer_of, single_token
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.target.target import Target

Side = Callable[[Array], Array]  # z (M, 2) -> h, negative inside

RAYS = 4096


@dataclass(frozen=True)
class Curve:
    """Points (M, 2) of the boundary of a convex set inside the box, in order, with lengths and normals."""

    points: Array
    lengths: Array
    normals: Array
    bends: Array  # curvature times length

    @property
    def middles(self) -> Array:
        """The middle of every step from point to point."""
        along = np.stack([-self.normals[:, 1], self.normals[:, 0]], axis=1)
        return np.asarray(self.points + 0.5 * self.lengths[:, None] * along)

    def shared(self, density: Array, edges: int) -> tuple[NDArray[np.intp], Array]:
        """Which of that many edges owns every point, by the points' `density`; and the edges' normals."""
        place = (np.cumsum(density) - density / 2.0) / density.sum() * edges
        owner = np.minimum(place.astype(int), edges - 1)  # edges may begin anywhere; the curve's own order decides
        normals = np.zeros((edges, 2))
        np.add.at(normals, owner, self.normals * self.lengths[:, None])
        return owner, normals / np.maximum(np.linalg.norm(normals, axis=1), 1e-300)[:, None]


@dataclass(frozen=True)
class LevelPlan:
    """A polygon: normals (K, 2) and offsets (K,) in z, sharpness, and the values inside and outside."""

    normals: Array
    offsets: Array
    sharpness: float
    inside: Array  # (outputs,)
    outside: Array
    hard: float  # area between the set and the polygon, from the curve's points
    strip: float  # half the width of a strip along the curve that holds that area
    curve: Curve  # what the polygon follows

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return len(self.offsets) + 1

    def to_json(self) -> dict[str, Any]:
        """Plain data; the numbers themselves are the layer's."""
        return {"plan": "level", "method": "level", "edges": len(self.offsets), "sharpness": self.sharpness}


def curve_of(h: Side, count: int = RAYS) -> Curve | None:
    """The boundary of {h < 0} within [-1, 1]^2 by rays from its middle; None unless it looks convex and has an inside."""
    grid = np.linspace(-1.0, 1.0, 201)
    points = mesh([grid, grid])
    inside = h(points) < 0
    if not inside.any() or inside.all():
        return None
    middle = points[inside].mean(axis=0)
    if not h(middle[None])[0] < 0:
        return None
    angles = 2.0 * np.pi * (np.arange(count) + 0.5) / count
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    with np.errstate(divide="ignore"):
        walls = np.min(np.where(rays > 0, (1.0 - middle) / rays, np.where(rays < 0, (-1.0 - middle) / rays, np.inf)), axis=1)
    low, high = np.zeros(count), walls.copy()
    meets = h(middle + high[:, None] * rays) >= 0
    for _ in range(48):
        half = (low + high) / 2.0
        within = h(middle + half[:, None] * rays) < 0
        low, high = np.where(within, half, low), np.where(within, high, half)
    if not meets.any():
        return None
    points = middle + high[:, None] * rays
    ahead = np.roll(points, -1, axis=0) - points
    lengths = np.linalg.norm(ahead, axis=1)
    tangents = ahead / np.maximum(lengths, 1e-300)[:, None]
    normals = np.stack([tangents[:, 1], -tangents[:, 0]], axis=1)
    turn = tangents[:, 0] * np.roll(tangents, -1, axis=0)[:, 1] - tangents[:, 1] * np.roll(tangents, -1, axis=0)[:, 0]
    use = meets & np.roll(meets, -1)
    if turn[use & np.roll(use, -1)].min(initial=0.0) < -1e-6:
        return None
    return Curve(points[use], lengths[use], normals[use], np.maximum(turn[use], 0.0))


def polygon(curve: Curve, edges: int) -> tuple[Array, Array, float, float]:
    """Normals and offsets of that many edges, the area between polygon and set, and the largest distance."""
    density = curve.bends ** (1.0 / 3.0) * curve.lengths ** (2.0 / 3.0) + 1e-9 * curve.lengths
    owner, normals = curve.shared(density, edges)
    offsets, middles = np.zeros(edges), curve.middles
    for _ in range(4):
        for k in range(edges):
            mine = owner == k
            if mine.any():
                offsets[k] = np.median(middles[mine] @ normals[k])
        owner = (middles @ normals.T - offsets).argmax(axis=1)
    away = np.abs((middles @ normals.T - offsets).max(axis=1))
    return normals, offsets, float((away * curve.lengths).sum()), float(away.max())


def level_plan(curve: Curve, inside: Array, outside: Array, p: float, error: float, most: int, volume: float) -> LevelPlan | None:
    """The smallest polygon whose hard part fits `error` in L_p; `volume` is that of the box over that of [-1, 1]^2."""
    jump = float(np.abs(inside - outside).max())
    length = float(curve.lengths.sum())
    area = (error / jump) ** p / volume
    count = 3
    while count < most:
        normals, offsets, hard, apart = polygon(curve, count)
        if hard <= area:
            sharpness = 2.0 * math.log(2.0) * length * 200.0 / area
            return LevelPlan(normals, offsets, sharpness, inside, outside, hard, 1.2 * apart + 40.0 / sharpness, curve)
        count = max(count + 1, min(most, math.ceil(count * min(1.5, 0.98 * math.sqrt(hard / area)))))
    return None


def build_level(plan: LevelPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer: one group of single tokens, the inside first, then the edges."""
    slopes = np.concatenate([np.zeros((1, 2)), plan.sharpness * plan.normals])
    offsets = np.concatenate([np.zeros(1), -plan.sharpness * plan.offsets])
    rows = [plan.inside] + [plan.outside] * len(plan.offsets)
    tokens = tuple(single_token(values, np.zeros((len(values), 2))) for values in rows)
    return layer_of([ClusterGroup(np.diag(2.0 / target.box.width), slopes, offsets, tokens)], target, dtype)
