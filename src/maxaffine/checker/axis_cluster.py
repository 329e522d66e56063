"""One cluster along a direction as the checker sees it, and what it keeps of all of them together."""

import math
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DOUBLE = 2.0**-53
LONG = float(np.finfo(np.longdouble).eps)


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

    def at(self, z: NDArray[np.longdouble]) -> tuple[Array, float]:
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

    def strip(self, centre: float, wide: float, tall: float) -> float:
        """S with sum |w_j| <= S where |Re t - centre| <= wide and |Im t| <= tall."""
        n = len(self.alpha) - 1
        if n == 0:
            return 1.0
        step = float(self.alpha[-1] - self.alpha[0]) / n
        if step <= 0 or step * tall >= 3.14:
            return math.inf
        j = np.arange(n + 1.0)
        logs = np.array([math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(n + 1)])
        line = self.beta - logs
        lean = float(line[-1] - line[0]) / n
        level = float(np.median(line - lean * j))
        size = abs(centre) + wide + tall
        off = np.abs(self.alpha - self.alpha[0] - step * j) * size + np.abs(line - lean * j - level)
        tau = float(off.max()) + 1e-13 * (1.0 + n + abs(level) + abs(lean) * n + float(np.abs(self.alpha).max()) * size * 1e-2)
        plain = math.cos(step * tall / 2.0) ** -n * (1 + 1e-11 * (n + 1))
        left = 1.0 - math.expm1(min(tau, 1.0)) * plain
        return math.exp(tau) * plain / left if tau < 1.0 and left > 0 else math.inf


@dataclass(frozen=True)
class AxisParts:
    """What clusters along one coordinate say at every z of its range, before rounding of the whole."""

    size: float  # sup |f|
    near: float  # of the clusters in the race: sup of the sum of their masses times |f - p_k|
    far: float  # of the others: computed masses times (|f| + |p_k|)
    mass: float  # and these masses
    eta: float  # errors of scores in the race
    lost: float  # of a head by errors of its logits
    head: float  # of a head, its sums as well
    weight: float  # sum w (|c| + |G t|) of a head, as computed
    keys: int  # of a cluster, at most
    largest: float  # max (|c| + |G t|) in the race
    top: float  # |p_k| in the race

    @property
    def blend(self) -> float:
        """Masses times |f - p_k| of all clusters: in the race masses add up to one without the others'."""
        return self.near / (1.0 - self.mass) * (1 + 1e-12) + self.far


@dataclass(frozen=True)
class AxisHead:
    """Errors of one computed head, and of its score."""

    lost: float
    sums: float
    weight: float
    largest: float
    score: float
