"""Clusters on scaled variables as rules see them: scores at points, sizes, and what rounding does to scores and heads."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maxaffine.checker.boxes import Index
from maxaffine.checker.head import Head, row_by_row
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.reader import Axis, Clusters, Layer
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression

CLUSTERS, TOKENS, KEYS = 20_000, 200_000, 64


@dataclass(frozen=True)
class ScaledClusters:
    """One group of clusters whose coordinates are the variables, scaled: z = scale (x - centre)."""

    group: Clusters
    low: Array
    high: Array
    centre: Array
    scale: Array  # (D,)
    dtype: str

    @classmethod
    def of(cls, layer: Layer, g: int = 0, keys: int = KEYS) -> "ScaledClusters":
        """Group g of a layer; NotProved where its coordinates are not the scaled variables, or it is too large.

        `keys`: along a coordinate, at most.
        """
        group, D = layer.groups[g], len(layer.low)
        if not isinstance(group, Clusters) or layer.affine_part is not None or group.matrix.shape != (D, D):
            raise NotProved("it is not a layer of clusters on all variables.")
        if len(group.sizes) > CLUSTERS or group.tokens > TOKENS or int(group.sizes.max()) > keys:
            raise NotProved(f"it has {len(group.sizes):,} clusters and {group.tokens:,} tokens, which this check does not take.")
        matrix = group.matrix
        if np.any(matrix != np.diag(np.diag(matrix))) or np.any(np.diag(matrix) <= 0):
            raise NotProved("its coordinates are not scaled variables.")
        return cls(group, layer.low, layer.high, layer.centre, np.diag(matrix).copy(), layer.dtype)

    @property
    def reach(self) -> Array:
        """max |z| over the box."""
        return np.asarray(np.maximum(self.high - self.centre, self.centre - self.low) * self.scale * (1 + 1e-15))

    @property
    def query(self) -> Array:
        """How far a computed z is from M (x - centre)."""
        D = len(self.low)
        biggest = np.maximum(np.abs(self.low), np.abs(self.high)) * self.scale
        return np.asarray(DOUBLE * 1.01 * (2.0 * biggest + (D + 6) * self.reach))

    def x(self, low: Array, high: Array) -> Interval:
        """Boxes of z, in x."""
        return Interval(low, high) / Interval.point(self.scale) + Interval.point(self.centre)

    @cached_property
    def levels(self) -> tuple[Array, Array]:
        """Largest |c| (C,) and largest |G| per axis (C, D)."""
        level = np.array([np.abs(v).max() for v in self.group.values])
        return level, np.stack([np.abs(g).reshape(-1, len(self.low)).max(axis=0) for g in self.group.slopes])

    def largest(self) -> float:
        """|p_k| on |t| <= 1 and a little."""
        level, steep = self.levels
        return float((level + 1.001 * steep.sum(axis=1)).max()) * (1 + 1e-9)

    def farthest(self) -> float:
        """|p_k| anywhere."""
        level, steep = self.levels
        t = (self.reach + 0.01 + np.abs(self.group.origins)) / self.group.radii
        return float((level + (steep * t).sum(axis=1)).max()) * 1.001

    @cached_property
    def key_ranges(self) -> tuple[Array, Array, Array]:
        """Least and largest slope (C, D) of a cluster's keys, and the largest |offset|."""
        least = np.array([[axis.a.min() for axis in axes] for axes in self.group.axes])
        most = np.array([[axis.a.max() for axis in axes] for axes in self.group.axes])
        return least, most, np.array([[np.abs(axis.b).max() for axis in axes] for axes in self.group.axes])

    @property
    def steepest(self) -> Array:
        """The largest |slope| (C, D) of a cluster's keys."""
        return np.maximum(np.abs(self.key_ranges[0]), np.abs(self.key_ranges[1]))

    def score_error(self) -> float:
        """What rounding may do to a computed score."""
        u, D, sites = compute_format(self.dtype).unit, len(self.low), np.abs(self.group.sites)
        steep, offsets = self.steepest, self.key_ranges[2]
        t = (self.reach + self.query + np.abs(self.group.origins)) / self.group.radii * 1.001
        dt = self.query / self.group.radii + 8.0 * DOUBLE * t + 1.01 * u * t
        local = steep * dt + 4.1 * u * (2.0 * steep * t + offsets) + u * 20.0 + 40.0 * DOUBLE * self.group.sizes
        size = sites[:, :-1] @ self.reach + sites[:, -1] + (steep * t + offsets + 6.0).sum(axis=1)
        if not max(float(size.max()), float(t.max())) < 1e30:
            raise NotProved("its logits are too large to be followed.")
        total = sites[:, :-1] @ self.query + (4 * D + 100) * DOUBLE * 1.01 * size + local.sum(axis=1)
        return float(total.max()) * 1.001 + 2e-13 + 1000.0 * DOUBLE

    def head(self, k: int, m: int, expression: Expression) -> Head:
        """Cluster k, output m, against the target in its coordinates t: x = centre + (origin + radius t) / scale."""
        half = self.group.radii[k] / self.scale
        middle = Interval.point(self.centre) + Interval.point(self.group.origins[k]) / Interval.point(self.scale)
        slack = 4.0 * DOUBLE * half  # of the quotient
        middle = Interval(middle.lo - slack - 1e-300, middle.hi + slack + 1e-300)
        middle = Interval(np.nextafter(middle.lo, -np.inf), np.nextafter(middle.hi, np.inf))
        values, slopes = self.group.values[k][..., m : m + 1], self.group.slopes[k][..., m, :]
        return Head(expression, middle, half, self.group.axes[k], values, slopes)

    def head_error(self, k: int, head: Head) -> float:
        """What rounding may do to p_k on its box."""
        u = compute_format(self.dtype).unit
        dt = self.query / self.group.radii[k] + 10.0 * DOUBLE
        if np.any(dt > 1e-3):
            raise NotProved("a cluster's coordinates are not resolved.")
        assert head.slopes is not None
        flat, steep = head.values.ravel(), head.slopes.reshape(-1, len(self.low))
        apart = (np.abs(flat - np.median(flat)) + 1.002 * np.abs(steep - np.median(steep, axis=0)).sum(axis=1)).max()
        total = float(np.abs(steep).max(axis=0) @ dt)
        for e, axis in enumerate(head.axes):
            if len(axis.a) > 1:
                eta = axis.spread * (dt[e] + 1.01 * u) + u * (10.0 * (np.abs(axis.a).max() + np.abs(axis.b).max()) + 24.0)
                total += math.expm1(2.0 * float(eta)) * 2.0 * float(apart)
        size = float((np.abs(flat) + 1.002 * np.abs(steep).sum(axis=1)).max())
        return total * 1.01 + (4.0 * sum(len(axis.a) for axis in head.axes) + 80.0) * DOUBLE * 1.01 * size + 1e-36 * size

    def scores(self, k: Index, z: Array) -> Array:
        """S_k(z) for pairs of clusters and places."""
        t = (z - self.group.origins[k]) / self.group.radii[k]
        total = (self.group.sites[k, :-1] * z).sum(axis=1) + self.group.sites[k, -1]
        a, b = self._padded
        logits = t[:, :, None] * a[k] + b[k]
        top = logits.max(axis=2)
        return np.asarray(total + (top + np.log(np.exp(logits - top[:, :, None]).sum(axis=2))).sum(axis=1))

    def own_scores(self, z: Array) -> Array:
        """S_0 at places."""
        return self.scores(np.zeros(len(z), dtype=np.intp), z)

    @cached_property
    def _padded(self) -> tuple[Array, Array]:
        """Keys of all clusters in two tables, absent ones of weight zero."""
        C, D = self.group.sizes.shape
        longest = int(self.group.sizes.max())
        a, b = np.zeros((C, D, longest)), np.full((C, D, longest), -np.inf)
        for k, axes in enumerate(self.group.axes):
            for e, axis in enumerate(axes):
                a[k, e, : len(axis.a)], b[k, e, : len(axis.b)] = axis.a, axis.b
        return a, b


class Curvature:
    """What a head p with affine values moves by in a box of t: its value and slopes at the middle, second derivatives for all."""

    def __init__(self, axes: tuple[Axis, ...], columns: Array) -> None:
        c, G = columns[..., 0], columns[..., 1:]
        flat = G.reshape(-1, len(axes))
        middle = np.median(flat, axis=0)
        apart = float((np.abs(c - np.median(c)) + np.abs(G - middle).sum(axis=-1)).max())
        uneven = 2.0 * np.abs(flat - middle).max(axis=0)
        spread = np.array([axis.spread for axis in axes])
        self.axes, self.columns = axes, columns
        self.bend = 1.01 * (2.0 * np.outer(spread, spread) * apart + np.outer(spread, uneven) + np.outer(uneven, spread))

    def at(self, t: Array) -> tuple[Array, Array, list[Array]]:
        """p and its slopes (n, E) at places, and the weights along every axis."""
        W = [axis.weights(t[:, e]) for e, axis in enumerate(self.axes)]
        mixed = row_by_row(W, self.columns)
        slope = np.empty_like(t)
        for e, axis in enumerate(self.axes):
            turned = [w * (axis.a - (w @ axis.a)[:, None]) if i == e else w for i, w in enumerate(W)]
            moved = row_by_row(turned, self.columns)
            slope[:, e] = moved[:, 0] + (moved[:, 1:] * t).sum(axis=1) + mixed[:, 1 + e]
        return mixed[:, 0] + (mixed[:, 1:] * t).sum(axis=1), slope, W
