"""One cluster along a direction as the checker sees it, and what it keeps of all of them together."""

import math
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from maxaffine.checker.local_error import LONG, Extended, Rectangle, around_nodes, strip
from maxaffine.checker.proved import DOUBLE
from maxaffine.checker.reader import Axis
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression


@dataclass(frozen=True)
class AxisCluster:
    """One cluster: A z + b + log sum exp(alpha t + beta), values c + G t, t = (z - o)/r."""

    A: float
    b: float
    o: float
    r: float
    alpha: Array
    beta: Array
    c: Array
    G: Array

    def score(self, z: float) -> Any:
        """S(z) as a ball."""
        t = (flint.arb(z) - flint.arb(self.o)) / flint.arb(self.r)
        total = flint.arb(0)
        for a, b in zip(self.alpha, self.beta, strict=True):
            total += (flint.arb(float(a)) * t + flint.arb(float(b))).exp()
        return flint.arb(self.A) * flint.arb(z) + flint.arb(self.b) + total.log()

    def top(self, reach: float) -> float:
        """max |c + G t| for |t| <= reach."""
        return float((np.abs(self.c) + np.abs(self.G) * reach).max()) * (1 + 1e-13)

    def steep(self, reach: float) -> float:
        """A bound of |dp/dt| for |t| <= reach."""
        apart = float(np.ptp(self.c)) + float(np.ptp(self.G)) * reach
        return (float(np.abs(self.G).max()) + float(np.ptp(self.alpha)) * apart) * (1 + 1e-12)

    def at(self, z: Extended) -> tuple[Array, float]:
        """p at points, and how wrong."""
        t = (z - np.longdouble(self.o)) / np.longdouble(self.r)
        logits = np.multiply.outer(t, self.alpha.astype(np.longdouble)) + self.beta.astype(np.longdouble)
        w = np.exp(logits - logits.max(axis=1)[:, None])
        v = self.c.astype(np.longdouble) + np.multiply.outer(t, self.G.astype(np.longdouble))
        p = (w * v).sum(axis=1) / w.sum(axis=1)
        reach = float(np.abs(t).max())
        shift = 10.0 * LONG * (float(np.abs(z).max()) + abs(self.o)) / self.r + 4.0 * LONG * reach
        logit = 6.0 * (float(np.abs(self.alpha).max()) * reach + float(np.abs(self.beta).max()) + len(self.c) + 12.0)
        wrong = self.top(reach) * (LONG * logit + DOUBLE) + self.steep(reach) * shift
        return p.astype(np.float64), wrong * 1.01

    @property
    def axis(self) -> Axis:
        """Its keys."""
        return Axis(self.alpha, self.beta)

    def t(self, low: float, high: float) -> tuple[float, float]:
        """Bounds of t where z goes from low to high."""
        slack = 6.0 * DOUBLE * (max(abs(low), abs(high)) + abs(self.o)) / self.r
        return (low - self.o) / self.r - slack, (high - self.o) / self.r + slack


@dataclass(frozen=True)
class AxisPair:
    """A cluster along z beside a branch of the target, to be compared by Ehlich and Zeller (checker/local_error.py)."""

    f: Expression
    cluster: AxisCluster

    def target_size(self, row: list[Rectangle]) -> float:
        """sup |f| over a complex rectangle."""
        value = self.f.enclose_ball([balls.rectangle(*row[0])])[0]
        return float(balls.magnitude(value)) if value.is_finite() else math.inf

    def head_size(self, low: Array, high: Array, k: int, centre: float, wide: float, tall: float) -> float:
        """sup |p| on an ellipse about the centre."""
        c = self.cluster
        first, last = c.t(centre - wide, centre + wide)
        t, reach = (first + last) / 2.0, (last - first) / 2.0 * (1 + 1e-11) + 4.0 * DOUBLE * (abs(first) + abs(last))
        return strip(c.axis, t, reach, tall / c.r * (1 + 1e-11)) * c.top((abs(t) + reach) * (1 + 1e-11))

    def seen(self, low: Array, high: Array, grids: list[Extended]) -> tuple[float, float]:
        """max |f - p| over Chebyshev points, every uncertainty added, and the largest of those."""
        ends = around_nodes(grids[0].astype(np.float64), float(low[0]), float(high[0]))
        value = self.f.enclose(Interval(ends[0][:, None], ends[1][:, None]))
        g, wrong = self.cluster.at(grids[0])
        away = np.maximum(value.hi[:, 0] - g, g - value.lo[:, 0]) + wrong
        if not np.isfinite(away).all():
            return math.inf, math.inf
        return float(away.max()) * (1 + 1e-13), float((value.hi - value.lo).max()) + wrong

    def crude(self, low: Array, high: Array) -> tuple[float, float]:
        """The range of f against p and its slope; and |f - p| at the ends."""
        a, b, c = float(low[0]), float(high[0]), self.cluster
        value = self.f.enclose(Interval(low[None], high[None]))
        g, wrong = c.at(np.array([np.longdouble(a), np.longdouble(b)]))
        first, last = c.t(a, b)
        moves = c.steep(max(abs(first), abs(last))) * (last - first) / 2.0 * (1 + 1e-11) + wrong
        away = max(float(value.hi[0, 0]) - float(g.min()), float(g.max()) - float(value.lo[0, 0])) + moves
        there = np.abs(self.f.evaluate(np.array([[a], [b]]))[:, 0] - g)
        least = float(np.max(there, initial=0.0, where=np.isfinite(there)))
        return (away if math.isfinite(away) else math.inf), least


@dataclass(frozen=True)
class AxisParts:
    """What clusters along one coordinate say at every z of its range, before rounding of the whole."""

    size: float  # sup |f|
    near: float  # of the clusters in the race: sup of the sum of their masses times |f - p_k|
    far: float  # of the others: computed masses times (|f| + |p_k|)
    mass: float  # and these masses
    eta: float  # errors of scores in the race
    head: float  # of a head, its sums as well
    weight: float  # sum w (|c| + |G t|) of a head, as computed
    top: float  # |p_k| in the race

    @property
    def blend(self) -> float:
        """Masses times |f - p_k| of all clusters: in the race masses add up to one without the others'."""
        return self.near / (1.0 - self.mass) * (1 + 1e-12) + self.far
