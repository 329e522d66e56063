"""sup |f - p| on an interval, for one cluster's head p and an analytic or merely enclosed f of one variable.

An interval is proved by Ehlich and Zeller's theorem (see ehlich_zeller.py) where f has an enclosure on an ellipse about it;
where none serves, such as next to the branch point of a square root, it is halved until the range of f alone says enough:
|f - p| <= max(f_hi - p_lo, p_hi - f_lo).

On ellipses |p| <= S max_j (|c_j| + |G_j||t|).  Keys delta (j - n/2) t + log C(n, j) - mu j have S = cos(delta y/2)^-n, shifted or
not, since |1 + e^{delta z - mu}| >= cos(delta y/2)(1 + e^{delta x - mu}); stored keys differ by tau, as in head_bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.expression.expression import Expression
from maxaffine.layer.clusters import Cluster
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import log_binomials
from maxaffine.proofs.head_bounds import strip_factor

Array = NDArray[np.float64]

RADII = (1.25, 1.5, 1.9, 2.4, 3.0, 4.0, 5.5, 8.0, 12.0, 18.0)
OVERSAMPLING = 9
MOST_DEGREE = 90
MOST_CELLS = 600
EXTENDED = float(np.finfo(np.longdouble).eps) / 2.0
PI = np.longdouble("3.14159265358979323846264338327950288")
SHARE = 0.004  # of the error that the interpolation remainder may take


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
        slack = 4.0 * FLOAT64.unit * (max(abs(a), abs(b)) + abs(self.origin)) / self.radius
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
        shaky = size * (2.0 * EXTENDED * logit + gamma(2 * len(a) + 8, EXTENDED) + FLOAT64.unit)
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
        sway = self.steepness(low, high) * (high - low) / count * 0.51
        reach = max(abs(low), abs(high))
        return min(float(np.abs(p).max()) + sway + 1e-12 * self.largest(reach), self.largest(reach))

    def strip(self, centre: float, long: float, short: float) -> float:
        """S with sum_j |w_j| <= S for |Re t - centre| <= long, |Im t| <= short."""
        n = len(self.keys) - 1
        found = strip_factor(self.keys, None, centre, long, short)
        delta = float(np.ptp(self.keys.slopes)) / n if n else 0.0
        if n == 0:
            return 1.0
        if delta * short < math.pi * (1 - 1e-9):
            j = np.arange(n + 1.0)
            rest = self.keys.offsets - log_binomials(n)
            mu = -float(np.polyfit(j, rest, 1)[0])
            shift = float(np.mean(rest + mu * j))
            first = float(self.keys.slopes[0])
            da = np.abs(self.keys.slopes - first - delta * j) + 4 * FLOAT64.unit * (abs(first) + delta * j)
            db = np.abs(rest + mu * j - shift) + 64 * FLOAT64.unit * (1.0 + n + (abs(mu) + abs(shift)) * n)
            tau = float((da * math.hypot(abs(centre) + long, short) + db).max())
            exact = math.cos(delta * short / 2.0) ** -n * (1 + 1e-12 * (n + 1))
            left = 1.0 - math.expm1(min(tau, 1.0)) * exact
            if tau < 1.0 and left > 0:
                found = min(found, math.exp(tau) * exact / left)
        return found


@dataclass(frozen=True)
class Sup:
    """sup |f - p| <= bound; `doubt` of it is the width of enclosures of f; over `cells` intervals and `points` points."""

    bound: float
    doubt: float
    cells: int
    points: int


def sup_error(f: Expression, head: LocalHead, low: float, high: float, goal: float) -> Sup:
    """sup over z in [low, high] of |f(z) - p(t)|, aimed at `goal`; Refused where it cannot be shown finite."""
    stack = [(low, high, 0)]
    bound = doubt = 0.0
    cells = points = 0
    with balls.precision(64):
        while stack:
            a, b, depth = stack.pop()
            cells += 1
            if cells > MOST_CELLS:
                raise Refused("the target could not be enclosed near its axis.")
            found = _on_ellipse(f, head, a, b, SHARE * goal)
            if found is not None:
                m, remainder = found
                top, one = _at_points(f, head, a, b, m)
                n = OVERSAMPLING * m
                here = remainder + (top + remainder) / math.cos(math.pi * m / (2.0 * n)) * (1 + 1e-12)
                if math.isfinite(here) and (here <= 1.02 * goal or one < 0.02 * goal):
                    bound, doubt, points = max(bound, here), max(doubt, one), points + n
                    continue
            else:
                here = _by_range(f, head, a, b)
                if here <= 0.5 * goal or here <= _at_ends(f, head, a, b) + 0.02 * goal:
                    bound = max(bound, here)
                    continue
            middle = a + (b - a) / 2.0
            if depth > 120 or not a < middle < b:
                if not math.isfinite(here):
                    raise Refused("the target could not be enclosed at points of its axis.")
                bound = max(bound, here)  # between neighbouring numbers a root moves by more than its share: a bound all the same
                continue
            stack += [(a, middle, depth + 1), (middle, b, depth + 1)]
    return Sup(bound * (1 + 1e-12), min(doubt, bound), cells, points)


def _on_ellipse(f: Expression, head: LocalHead, a: float, b: float, allowed: float) -> tuple[int, float] | None:
    """The least degree over the ellipses, and its remainder; None where none serves."""
    centre, reach = (a + b) / 2.0, (b - a) / 2.0 * (1 + 1e-12) + abs(a + b) * 2.0**-53
    slack = 4.0 * FLOAT64.unit * (abs(centre) + abs(head.origin)) / head.radius
    local = head.local(centre)
    best: tuple[int, float] | None = None
    for r in RADII:
        long, short = reach * (r + 1 / r) / 2.0 * (1 + 1e-12), reach * (r - 1 / r) / 2.0 * (1 + 1e-12)
        wide, tall = long / head.radius * (1 + 1e-12) + slack, short / head.radius * (1 + 1e-12)
        strip = head.strip(local, wide, tall)
        if not math.isfinite(strip):
            break
        out = f.enclose_ball([balls.rectangle(centre - long, centre + long, short)])[0]
        if not out.is_finite():
            break
        total = balls.magnitude(out) + head.largest(math.hypot(abs(local) + wide, tall)) * strip
        quotient = 4.0 * total / ((r - 1.0) * allowed)
        if not math.isfinite(quotient):
            break
        m = max(1, math.ceil(math.log(max(quotient, 1.0)) / math.log(r) * (1 + 1e-12)))
        if best is None or m < best[0]:
            best = m, 4.0 * total * r**-m / (r - 1.0) * (1 + 1e-12)
    return best if best is not None and best[0] <= MOST_DEGREE else None


def _at_points(f: Expression, head: LocalHead, a: float, b: float, degree: int) -> tuple[float, float]:
    """max |f - p| over the Chebyshev points, doubt included, and the doubt alone."""
    n = OVERSAMPLING * degree
    angle = PI * (2 * np.arange(n, dtype=np.longdouble) + 1) / (2 * n)
    z = (np.longdouble(a) + np.longdouble(b)) / 2 + (np.longdouble(b) - np.longdouble(a)) / 2 * np.cos(angle)
    near = z.astype(np.float64)
    slack = 2.0 * FLOAT64.unit * np.abs(near) + 16.0 * EXTENDED * (abs(a) + abs(b))
    # the exact points lie in [a, b]
    found = f.enclose(Interval(np.clip(near - slack, a, b)[:, None], np.clip(near + slack, a, b)[:, None]))
    g, rough = head.at(z)
    lo, hi = found.lo[:, 0], found.hi[:, 0]
    away = np.maximum(hi - g, g - lo) + rough
    if not np.isfinite(away).all():
        return math.inf, math.inf
    return float(away.max()) * (1 + 1e-14), float((hi - lo + rough).max())


def _at_ends(f: Expression, head: LocalHead, a: float, b: float) -> float:
    """|f - p| at the ends as float64 sees it: what no bound on [a, b] can be below."""
    ends = np.array([a, b])
    away = np.abs(f.evaluate(ends[:, None])[:, 0] - head.at(ends.astype(np.longdouble))[0])
    return float(np.max(away, initial=0.0, where=np.isfinite(away)))


def _by_range(f: Expression, head: LocalHead, a: float, b: float) -> float:
    """|f - p| from the range of f and the slope of p."""
    found = f.enclose(Interval(np.array([[a]]), np.array([[b]])))
    lo, hi = float(found.lo[0, 0]), float(found.hi[0, 0])
    if not (math.isfinite(lo) and math.isfinite(hi)):
        return math.inf
    g, rough = head.at(np.array([(np.longdouble(a) + np.longdouble(b)) / 2]))
    first, last = head.ends(a, b)
    sway = head.steepness(first, last) * (last - first) / 2.0 * (1 + 1e-12) + float(rough[0])
    return float(max(hi - g[0], g[0] - lo) + sway) * (1 + 1e-12)
