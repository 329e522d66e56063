"""sup |f - p| on an interval, for one cluster's head p and an analytic or merely enclosed f of one variable; scores of clusters.

An interval is proved by Ehlich and Zeller's theorem (proofs/local_error.py) where f has an enclosure on an ellipse about it;
where none serves, such as next to the branch point of a square root, it is halved until the range of f alone says enough:
|f - p| <= max(f_hi - p_lo, p_hi - f_lo).  On ellipses |p| <= S max_j (|c_j| + |G_j||t|), S as in proofs/head_bounds.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import EXTENDED, gamma
from maxaffine.expression.expression import Expression
from maxaffine.heads.axis.line import UP, U
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import strip_factor
from maxaffine.proofs.local_error import Pair, Proof, chebyshev, least_degree, prove

RADII = (1.25, 1.5, 1.9, 2.4, 3.0, 4.0, 5.5, 8.0, 12.0, 18.0)
OVERSAMPLING = 9
MOST_DEGREE = 90
MOST_CELLS = 600


@dataclass(frozen=True)
class LocalHead:
    """p(t) = sum_j w_j(t)(c_j + G_j t), t = (z - origin)/radius, of the stored numbers, one output, in float64."""

    keys: AxisKeys
    values: Array
    slopes: Array
    origin: float
    radius: float

    @classmethod
    def of(cls, cluster: Cluster, output: int = 0) -> LocalHead:
        """The head of a cluster of one coordinate."""
        axis = cluster.axes[0]
        keys = AxisKeys(axis.slopes.astype(np.float64), axis.offsets.astype(np.float64))
        values = cluster.values[:, output].astype(np.float64)
        slopes = np.zeros_like(values) if cluster.slopes is None else cluster.slopes[:, output, 0].astype(np.float64)
        return cls(keys, values, slopes, float(cluster.origin[0]), float(cluster.radius[0]))

    def largest(self, reach: float) -> float:
        """max |v_j(t)| for |t| <= reach."""
        return float((np.abs(self.values) + np.abs(self.slopes) * reach).max()) * (1 + 1e-14)

    def local(self, z: float) -> float:
        """t of z, rounded; off by at most 4 U (|z| + |origin|)/radius."""
        return (z - self.origin) / self.radius

    def ends(self, a: float, b: float) -> tuple[float, float]:
        """t over [a, b], rounded outward."""
        slack = 4.0 * U * (max(abs(a), abs(b)) + abs(self.origin)) / self.radius
        return self.local(a) - slack, self.local(b) + slack

    def at(self, z: NDArray[np.longdouble]) -> tuple[Array, Array]:
        """p at points z in extended precision, and how wrong that may be, the points being off by up to 8 EXTENDED |z|."""
        a, b = self.keys.slopes.astype(np.longdouble), self.keys.offsets.astype(np.longdouble)
        t = (z - np.longdouble(self.origin)) / np.longdouble(self.radius)
        scores = np.multiply.outer(t, a) + b
        scores -= scores.max(axis=1, keepdims=True)
        w = np.exp(scores)
        w /= w.sum(axis=1, keepdims=True)
        v = self.values.astype(np.longdouble) + np.multiply.outer(t, self.slopes.astype(np.longdouble))
        p = (w * v).sum(axis=1)
        size = (w * np.abs(v)).sum(axis=1).astype(np.float64)
        reach = float(np.abs(t).max())
        moved = 12.0 * EXTENDED * (float(np.abs(z).max()) + abs(self.origin)) / self.radius + 4.0 * EXTENDED * reach
        logit = 4.0 * (float(np.abs(a).max()) * reach + float(np.abs(b).max())) + 40.0
        shaky = size * (2.0 * EXTENDED * logit + gamma(2 * len(a) + 8, EXTENDED) + U)
        return p.astype(np.float64), (shaky + moved * self.steepness(-reach, reach)) * (1 + 1e-9)

    def steepness(self, low: float, high: float) -> float:
        """A bound of |p'| on [low, high]: sum w |G| + range(alpha) max |v_j - v_i|."""
        reach = max(abs(low), abs(high))
        level, lean = float(self.values.mean()), float(self.slopes.mean())
        apart = float((np.abs(self.values - level) + np.abs(self.slopes - lean) * reach).max())
        return (float(np.abs(self.slopes).max()) + 2.0 * float(np.ptp(self.keys.slopes)) * apart) * (1 + 1e-12)

    def size(self, low: float, high: float) -> float:
        """A bound of |p| for t in [low, high]: at the middles of short pieces, and the slope."""
        count = 400
        edges = np.linspace(low, high, count + 1)
        t = (edges[1:] + edges[:-1]) / 2.0
        logits = np.multiply.outer(t, self.keys.slopes) + self.keys.offsets
        w = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = (w * (self.values + np.multiply.outer(t, self.slopes))).sum(axis=1) / w.sum(axis=1)
        change = self.steepness(low, high) * (high - low) / count * 0.51
        reach = max(abs(low), abs(high))
        return min(float(np.abs(p).max()) + change + 1e-12 * self.largest(reach), self.largest(reach))

    def on_ellipse(self, centre: float, long: float, short: float) -> float:
        """A bound of |p| for |Re z - centre| <= long, |Im z| <= short."""
        slack = 4.0 * U * (abs(centre) + abs(self.origin)) / self.radius
        wide, tall = long / self.radius * (1 + 1e-12) + slack, short / self.radius * (1 + 1e-12)
        local, n = self.local(centre), len(self.keys) - 1
        strip = strip_factor(self.keys, float(np.ptp(self.keys.slopes)) / n if n else None, local, wide, tall)
        return self.largest(math.hypot(abs(local) + wide, tall)) * strip if math.isfinite(strip) else math.inf


@dataclass(frozen=True)
class Cell(Pair):
    """A function f of one variable z and a cluster's head beside it."""

    f: Expression
    head: LocalHead
    unknown = "the target could not be enclosed near its axis."

    @property
    def dimension(self) -> int:
        """One."""
        return 1

    def nodes(self, degree: int) -> int:
        """Chebyshev points that stand for a degree."""
        return OVERSAMPLING * degree

    def degree(self, low: Array, high: Array, k: int, allowed: float) -> tuple[int, float] | None:
        """The least degree over the ellipses about an interval."""
        a, b = float(low[0]), float(high[0])
        centre, reach = (a + b) / 2.0, (b - a) / 2.0 * (1 + 1e-12) + abs(a + b) * 2.0**-53

        def size(r: float, hard: bool) -> float:
            long, short = reach * (r + 1 / r) / 2.0 * (1 + 1e-12), reach * (r - 1 / r) / 2.0 * (1 + 1e-12)
            own = self.head.on_ellipse(centre, long, short)
            out = self.f.enclose_ball([balls.rectangle(centre - long, centre + long, short)])[0] if math.isfinite(own) else None
            return float(balls.magnitude(out)) + own if out is not None and out.is_finite() else math.inf

        return least_degree(size, allowed, MOST_DEGREE, RADII)

    def at_points(self, low: Array, high: Array, counts: tuple[int, ...], precise: bool) -> tuple[float, float]:
        """The Chebyshev points, which lie in [a, b]: f may be undefined beyond.  Always in extended precision."""
        a, b = float(low[0]), float(high[0])
        z = chebyshev(a, b, counts[0])
        near = z.astype(np.float64)
        slack = 2.0 * U * np.abs(near) + 16.0 * EXTENDED * (abs(a) + abs(b))
        found = self.f.enclose(Interval(np.clip(near - slack, a, b)[:, None], np.clip(near + slack, a, b)[:, None]))
        g, rough = self.head.at(z)
        lo, hi = found.lo[:, 0], found.hi[:, 0]
        away = np.maximum(hi - g, g - lo) + rough
        if not np.isfinite(away).all():
            return math.inf, math.inf
        top, uncertainty = float(away.max()) * (1 + 1e-14), float((hi - lo + rough).max())
        return max(top - uncertainty, 0.0), uncertainty

    def good(self, bound: float, uncertainty: float, error: float) -> bool:
        """Where the points themselves leave little uncertain, no halves say more."""
        return math.isfinite(bound) and (bound <= 1.02 * error or uncertainty < 0.02 * error)

    def enclosed(self, low: Array, high: Array, error: float) -> tuple[float, bool]:
        """|f - p| from the range of f and the slope of p; taken where it is small, or near what the ends say."""
        a, b = float(low[0]), float(high[0])
        found = self.f.enclose(Interval(low[None], high[None]))
        lo, hi = float(found.lo[0, 0]), float(found.hi[0, 0])
        if not (math.isfinite(lo) and math.isfinite(hi)):
            return math.inf, False
        g, rough = self.head.at(np.array([(np.longdouble(a) + np.longdouble(b)) / 2]))
        first, last = self.head.ends(a, b)
        change = self.head.steepness(first, last) * (last - first) / 2.0 * (1 + 1e-12) + float(rough[0])
        bound = float(max(hi - g[0], g[0] - lo) + change) * (1 + 1e-12)
        return bound, bound <= 0.5 * error or bound <= self._at_ends(a, b) + 0.02 * error

    def _at_ends(self, a: float, b: float) -> float:
        """|f - p| at the ends as float64 sees it: what no bound on [a, b] can be below."""
        ends = np.array([a, b])
        away = np.abs(self.f.evaluate(ends[:, None])[:, 0] - self.head.at(ends.astype(np.longdouble))[0])
        return float(np.max(away, initial=0.0, where=np.isfinite(away)))


def sup_error(f: Expression, head: LocalHead, low: float, high: float, goal: float) -> Proof:
    """sup over z in [low, high] of |f(z) - p(t)|, aimed at `goal`; Refused where it cannot be shown finite."""
    return prove(Cell(f, head), goal, np.array([low]), np.array([high]), most_cells=MOST_CELLS)


class Scores:
    """Scores of the clusters, and of their leads over each other, enclosed in extended precision."""

    def __init__(self, group: ClusterGroup) -> None:
        self.heads = [LocalHead.of(c) for c in group.clusters]
        self.A = group.site_slopes[:, 0].astype(np.float64)
        self.b = group.site_offsets.astype(np.float64)
        spans = [(h.keys.slopes.min() / h.radius, h.keys.slopes.max() / h.radius) for h in self.heads]
        # lower bounds of D_k'
        self.lam = [
            float((self.A[k + 1] + spans[k + 1][0]) - (self.A[k] + spans[k][1]))
            - 8 * U * float(abs(self.A[k]) + abs(self.A[k + 1]) + sum(abs(v) for v in (*spans[k], *spans[k + 1])))
            for k in range(len(self.heads) - 1)
        ]

    def inner(self, k: int) -> float:
        """The largest slope of a key of its own, in z."""
        return float(np.abs(self.heads[k].keys.slopes).max()) / self.heads[k].radius * UP

    def _score(self, k: int, z: float) -> tuple[np.longdouble, float]:
        """S_k(z) and a bound of its error; differences are taken before rounding."""
        head, keys = self.heads[k], self.heads[k].keys
        t = (np.longdouble(z) - np.longdouble(head.origin)) / np.longdouble(head.radius)
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
        spans = sum(float(np.ptp(head.keys.slopes)) / head.radius for head in self.heads[k : k + 2])
        fine = 0.02 * wanted / (self.lam[k] + 2.0 * spans)
        while abs(inside - outside) > fine:
            middle = inside + (outside - inside) / 2.0
            if middle in (inside, outside):
                break
            inside, outside = (middle, outside) if good(middle) else (inside, middle)
        return inside
