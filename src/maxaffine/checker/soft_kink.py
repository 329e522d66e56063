"""The wrong branch's share near a curve, re-proved where a target is the larger or the smaller of its branches: boxes in thirds.

The layer takes Q/(1 + X) where max(Q, 0) is right, X the masses of all edges against the inner cluster's.  On a box the logarithm
of X e^(lam Q) lies between two numbers, whatever lam >= 0 is; with D above it where Q > 0, the layer is off by at most
max_u u/(1 + e^(lam u - D)), and with -D below it where Q < 0 by the same: the soft gap of two clusters (checker/soft_gap.py).
"""

import math

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.boxes import Bounds, Index, Measure, grid, supremum
from maxaffine.checker.head import Head
from maxaffine.checker.literal_groups import NEGLIGIBLE
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.scaled_clusters import ScaledClusters
from maxaffine.checker.soft_gap import soft_gap
from maxaffine.core.arrays import Array
from maxaffine.expression.expression import Expression

BOXES = 8_000_000
NUMBERS = 1_500_000  # of a batch of boxes times edges
CORNERS = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def wrong_share(
    inner: ScaledClusters, q: Head, sign: int, goal: float, blur: float, apart: Expression, away: float
) -> tuple[float, int]:
    """A bound, at most `goal`, of |Q/(1 + X) - max(Q, 0)| over the box, and the boxes it took; |q - apart| is at most `away`."""
    margin = score_margin(inner, blur)
    piece = Piece(q, sign, inner.group.radii[0], Difference(apart, sign, inner, away))

    def measure(low: Array, high: Array, edges: Index) -> Bounds:
        return with_edges(*bounds_near_curve(inner, piece, low, high, edges, margin, goal), edges)

    return largest_near_curve(inner, measure, goal)


def score_margin(inner: ScaledClusters, blur: float) -> float:
    """What scores of edges and of the inner cluster are off by against each other, `blur` and the rounding of this check."""
    return 800.0 * DOUBLE * (float(np.abs(inner.group.sites[1:]).sum(axis=1).max()) + 60.0) + blur


def with_edges(bound: Array, counts: NDArray[np.bool_], edges: Index) -> Bounds:
    """Bounds over boxes, whose parts inherit the edges that can count there, -1 in place of the others."""
    keep = np.sort(np.where(counts, edges, -1), axis=1)[:, ::-1]  # those that count first
    return Bounds(bound, inherited=keep[:, : max(1, int((keep >= 0).sum(axis=1).max()))])


def largest_near_curve(inner: ScaledClusters, measure: Measure, goal: float) -> tuple[float, int]:
    """The supremum over the box of z, at most `goal`, and the boxes it took; every edge is looked at to begin with."""
    edge, edges = inner.reach * (1 + 1e-13) + 1e-14, len(inner.group.sites) - 1
    low, high = grid(-edge, edge, 45)
    who = np.broadcast_to(np.arange(edges), (len(low), edges))
    chunk = max(1, NUMBERS // edges)
    found = supremum(measure, low, high, budget=BOXES, goal=goal, smallest=1e-13, inherited=who, chunk=chunk)
    if not found.met:
        raise NotProved(f"{found.boxes:,} boxes near the curve do not show the error.")
    return found.worst, found.boxes


class Difference:
    """The branches' difference, with the sign of Q, and its derivatives in z as intervals."""

    def __init__(self, apart: Expression, sign: int, inner: ScaledClusters, away: float) -> None:
        self.apart, self.slope, self.sign, self.away = apart, apart.gradient(), sign, away
        self.bend, self.inner, self.scale = self.slope.gradient(), inner, inner.scale

    def at(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Value and slopes at the middle, and what Q may differ from that tangent by inside the box."""
        z, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
        here, bend = self.inner.x(z, z), self.bend.enclose(self.inner.x(low, high))
        value, slope = self.apart.enclose(here), self.slope.enclose(here)
        reach = half / self.scale
        outer = np.einsum("be,bf->bef", reach, reach).reshape(-1, 4)
        off = self.away + (value.hi - value.lo)[:, 0] + ((slope.hi - slope.lo) * reach).sum(axis=1)
        off = off + 0.5 * (np.maximum(np.abs(bend.lo), np.abs(bend.hi)) * outer).sum(axis=1)
        middle, lean = (value.lo + value.hi)[:, 0] / 2.0, (slope.lo + slope.hi) / 2.0 / self.scale
        return self.sign * middle, self.sign * lean, off * (1 + 1e-9) + 800.0 * DOUBLE * (np.abs(middle) + 1.0)


class Piece:
    """Q and its derivatives at many points, in z; third derivatives are bounded once for all."""

    def __init__(self, q: Head, sign: int, radius: Array, difference: Difference) -> None:
        assert q.slopes is not None
        self.axes, self.radius, self.difference = q.axes, radius, difference
        self.values, self.lean = sign * q.values[..., 0], sign * q.slopes.reshape(*q.values.shape[:2], 2)
        spread = np.array([axis.spread for axis in q.axes])
        median = np.median(self.lean.reshape(-1, 2), axis=0)
        uneven = 2.0 * np.abs(self.lean - median).reshape(-1, 2).max(axis=0)
        apart = float((np.abs(self.values - np.median(self.values)) + 1.002 * np.abs(self.lean - median).sum(axis=-1)).max())
        triple = 3.0 * np.einsum("e,f,g->efg", spread, spread, spread) * apart
        for order in ("ef,g->efg", "eg,f->efg", "fg,e->efg"):
            triple = triple + 1.5 * np.einsum(order, np.outer(spread, spread), uneven)
        self.third, self.spread = triple, spread
        self.rounding = 800.0 * DOUBLE * (float((np.abs(self.values) + np.abs(self.lean).sum(axis=-1)).max()) + 1.0)

    def at(self, z: Array, half: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Q, its slopes in z, what Q may differ from them by in the box; the slopes of S, and what S may lie above them by."""
        t, reach = z / self.radius, half / self.radius * (1 + 1e-13)
        orders = []
        middle = np.empty_like(t)
        for e, axis in enumerate(self.axes):
            w = axis.weights(t[:, e])
            middle[:, e] = (w * axis.a).sum(axis=1)
            x = axis.a - middle[:, e : e + 1]
            orders.append((w, w * x, w * (x * x - (w * x * x).sum(axis=1)[:, None])))

        def mixed(i: int, j: int, table: Array) -> Array:
            return np.asarray(np.einsum("bi,bj,ij->b", orders[0][i], orders[1][j], table, optimize=True))

        def of(i: int, j: int) -> Array:
            return mixed(i, j, self.values) + sum(mixed(i, j, self.lean[..., e]) * t[:, e] for e in range(2))

        value = of(0, 0)
        slope = np.stack([of(1, 0) + mixed(0, 0, self.lean[..., 0]), of(0, 1) + mixed(0, 0, self.lean[..., 1])], axis=1)
        cross = of(1, 1) + mixed(1, 0, self.lean[..., 1]) + mixed(0, 1, self.lean[..., 0])
        second = [of(2, 0) + 2.0 * mixed(1, 0, self.lean[..., 0]), cross, cross, of(0, 2) + 2.0 * mixed(0, 1, self.lean[..., 1])]
        off = np.full(len(t), self.rounding)
        for n, bend in enumerate(second):
            e, f = divmod(n, 2)
            off += (np.abs(bend) + reach @ self.third[e, f]) * reach[:, e] * reach[:, f] * 0.501
        above = 0.126 * ((self.spread * reach) ** 2).sum(axis=1)
        return value, slope / self.radius, off, middle / self.radius, above


def bounds_near_curve(
    inner: ScaledClusters, piece: Piece, low: Array, high: Array, who: Index, margin: float, goal: float
) -> tuple[Array, NDArray[np.bool_]]:
    """What the layer is off by on every box besides its branches, and which edges of `who` (-1: none) can count there."""
    slopes, offsets = inner.group.sites[1:, :-1], inner.group.sites[1:, -1]
    z, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
    Q, lean, off, own, above = piece.at(z, half)
    with np.errstate(invalid="ignore", over="ignore"):
        true, steep, other = piece.difference.at(low, high)
    closer = np.isfinite(other) & (other < off)
    Q, off, lean = np.where(closer, true, Q), np.where(closer, other, off), np.where(closer[:, None], steep, lean)
    score = inner.own_scores(z)
    level = np.where(who < 0, -np.inf, np.einsum("bmd,bd->bm", slopes[who], z) + offsets[who] - score[:, None])
    lines = slopes[who] - own[:, None]
    counts = level + np.einsum("bmd,bd->bm", np.abs(lines), half) * (1 + 1e-12) > -NEGLIGIBLE
    width = (np.abs(lean) * half).sum(axis=1) * (1 + 1e-12) + off
    most, least = np.maximum(Q + width, 0.0), np.maximum(width - Q, 0.0)
    shares = _shares(level)[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        lam = -np.einsum("bm,bmd,bd->b", shares, lines, lean, optimize=True) / (lean**2).sum(axis=1)
    lam = np.where(np.isfinite(lam) & (lam > 0) & (lam < 1e14), lam, 0.0)
    here = _shares(level)[0]
    if np.any(np.abs(Q) / (1.0 + np.exp(np.clip(np.where(Q > 0, -here, here), -500.0, 500.0))) > 1.002 * goal):
        raise NotProved("the wrong branch adds more than was promised.")
    bound, tail = np.maximum(most, least), len(offsets) * math.exp(margin - NEGLIGIBLE)
    for times in (np.zeros(len(lam)), lam):
        turned, leaning = level + (times * Q)[:, None], lines + times[:, None, None] * lean[:, None]
        slack = margin + times * off + 100.0 * DOUBLE * (times * (np.abs(Q) + width) + 1.0)
        top = np.full(len(lam), -np.inf)
        for corner in CORNERS:
            top = np.maximum(top, _shares(turned + np.einsum("bmd,bd->bm", leaning, half * corner))[0])
        total, weights = _shares(turned)
        drop = (np.abs(np.einsum("bm,bmd->bd", weights, leaning)) * half).sum(axis=1) * (1 + 1e-9)
        high_side, low_side = top + slack + 1e-12 * np.abs(top), -(total - drop - above - slack)
        best = np.maximum(largest_share(most, times, high_side) + most * tail, largest_share(least, times, low_side))
        bound = np.minimum(bound, best)
    return bound * (1 + 1e-9), counts


def _shares(scores: Array) -> tuple[Array, Array]:
    top = np.maximum(scores.max(axis=1), -1e200)
    parts = np.exp(scores - top[:, None])
    total = np.maximum(parts.sum(axis=1), 1e-250)
    return top + np.log(total), parts / total[:, None]


def largest_share(largest: Array, lam: Array, D: Array) -> Array:
    """max of u/(1 + e^(lam u - D)) over 0 <= u <= largest, from above: at the end where lam is 0, else a soft gap.

    In its terms u_k = u and S_a - S_k = lam u - D, so that kappa = 1/lam and U = D.
    """
    plain = largest / (1.0 + np.exp(np.clip(-D, -600.0, 600.0)))
    found = np.minimum(largest, soft_gap(1, 1.0 / np.where(lam > 0, lam, 1.0), D))
    return np.where(lam > 0, found, np.minimum(largest, plain))
