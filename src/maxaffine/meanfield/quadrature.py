"""One lattice for every integral of the exact risk.

With 1/Z^k = (1/Gamma(k)) int t^(k-1) exp(-t Z) dt, tau = log t and F_k(x) = exp(k x - e^x), each expectation over the
L tokens becomes one integral over tau of products of one-token averages

    A(tau) = E[h(s) F_k(tau + lam s)],  s ~ N(0, 1)   (a distractor),      M = E[F_0(tau + lam s)],

against the secret token's factor F_k(tau + x), x = lam (m + gamma g). Nothing overflows, because F_k is bounded.

The secret's factor is integrated *last*: for a weight W(tau) made of distractor averages the **profile**

    profile_k(x) = int F_k(tau + x) W(tau) dtau         (a conditional expectation given the secret token's logit x)

does not depend on mu, so it is computed once; every mu then costs one dot product with Gaussian weights.

All lattices have the step Delta in units of the logit: tau_j = j Delta, lam s_i = i Delta, x_i = i Delta. Averages and
profiles are then correlations of one vector F_k with weights. The trapezoid rule errs by exp(-pi^2/Delta), since
exp(-e^x) stays bounded only for |Im x| < pi/2: 1e-17 at Delta = 1/4. Where the Gaussian is narrower than the lattice
(lam or lam gamma below 2 Delta) it gets its own nodes, half a standard deviation apart, and F_k is evaluated directly.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.special import ndtri_exp

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused

TAIL = 42.0  # exp(-42) = 6e-19: tails lighter than this are cut
LEFT = 38.0  # the integrands fall like e^tau to the left of -log Z
NARROW = 0.5  # widest usable step of a Gaussian, in standard deviations: error exp(-2 pi^2 / 0.25) = 1e-34
LARGEST_COST = 4e9  # multiplications per profile; a few seconds


def kernel(k: int, x: Array) -> Array:
    """F_k(x) = exp(k x - e^x), and 1 - F_0(x) without cancellation for k = -1.

    The argument is clipped at 7, where F_k is already zero: exp(2 x) overflows at x > 355 and would give inf * 0.
    """
    x = np.minimum(x, 7.0)
    return np.asarray(-np.expm1(-np.exp(x)) if k < 0 else np.exp(k * x - np.exp(x)))


class Quadrature:
    """Lattice, distractor averages and profiles for one (n, lam, C, gamma)."""

    def __init__(self, n: float, lam: float, C: float, gamma: float, delta: float = 0.25) -> None:
        self.n, self.lam, self.C, self.gamma, self.delta = n, lam, C, gamma, delta
        log_n = math.log(n)
        condensed = math.sqrt(2 * log_n)
        # typical log Z of the distractors, in units of lam: the level a secret logit must beat
        self.threshold = log_n / lam + lam / 2 if lam <= condensed else condensed
        # near the oracle the risk itself is exp(-C^2/(2(1+gamma^2)))/n: cut that much deeper to keep its digits
        depth = TAIL + min(max(C * C / (2 * (1 + gamma * gamma)) - log_n, 0.0), 200.0)
        self.cut = math.sqrt(2 * depth) + 0.4
        highest = max(math.sqrt(2 * (log_n + depth)), min(2 * lam, condensed) + 9.0)
        # the largest distractor is below `lowest` with probability exp(-depth)
        lowest = float(ndtri_exp(max(-depth / n, -depth))) if n < 1e6 else -float(ndtri_exp(math.log(depth) - log_n))
        self.range_x = (-lam * (1.05 * C + gamma * self.cut), lam * (max(1.05 * C, self.threshold) + gamma * self.cut))
        self._tau_lo = math.floor((-max(self.range_x[1], lam * highest, log_n + 1) - LEFT) / delta)
        self._tau_hi = math.ceil((-lam * lowest + math.log(depth) + 0.5) / delta)
        self.tau: Array = delta * np.arange(self._tau_lo, self._tau_hi + 1, dtype=np.float64)
        self._aligned = lam * NARROW >= delta
        self.secret_aligned = lam * gamma * NARROW >= delta
        step = delta / lam if self._aligned else NARROW
        self._s_lo, self._s_hi = math.floor(-self.cut / step), math.ceil(highest / step)
        self._window_x = (math.floor(self.range_x[0] / delta) - 1, math.ceil(self.range_x[1] / delta) + 1)
        cost = self.tau.size * max(self._s_hi - self._s_lo, self._window_x[1] - self._window_x[0])
        if cost > LARGEST_COST:
            raise Refused(
                f"`lam` (={lam:g}) makes the lattice too large ({self.tau.size} points of tau); "
                "lower lam (or beta), or use hardmax_risk, its limit for lam -> infinity."
            )
        self.s: Array = step * np.arange(self._s_lo, self._s_hi + 1, dtype=np.float64)
        self._gaussian: Array = step / math.sqrt(2 * math.pi) * np.exp(-self.s * self.s / 2)
        self._kernels: dict[int, Array] = {}

    # -- distractors -------------------------------------------------------------------------------------------

    def _lattice_kernel(self, k: int) -> tuple[Array, int]:
        """F_k at every lattice point any correlation can need, and the index of its first entry."""
        lo = self._tau_lo + min(self._s_lo, self._window_x[0])
        hi = self._tau_hi + max(self._s_hi, self._window_x[1])
        if k not in self._kernels:
            self._kernels[k] = kernel(k, self.delta * np.arange(lo, hi + 1, dtype=np.float64))
        return self._kernels[k], lo

    def average(self, k: int, values: Array | float = 1.0) -> Array:
        """E[values(s) F_k(tau + lam s)] for every tau; ``k = -1`` stands for 1 - F_0."""
        weights = self._gaussian * values
        if not self._aligned:
            return np.asarray(kernel(k, self.tau[:, None] + self.lam * self.s) @ weights)
        table, first = self._lattice_kernel(k)
        start = self._tau_lo + self._s_lo - first
        return np.correlate(table[start : start + self.tau.size + self.s.size - 1], weights, "valid")

    @cached_property
    def log_m(self) -> Array:
        """log M(tau), accurate also where 1 - M is 1e-60."""
        gone = self.average(-1)
        left = self.average(0)
        with np.errstate(divide="ignore"):
            far = np.log(np.minimum(left, 1.0))
        return np.where(gone < 0.5, np.log1p(-np.minimum(gone, 0.5)), far)

    def power(self, drop: int) -> Array:
        """M^(n - drop); for a real L between 2 and 3 the power n - 2 is negative, and where M is 0 its A is 0 too."""
        exponent = self.n - drop
        if exponent == 0:
            return np.ones_like(self.tau)
        with np.errstate(invalid="ignore"):
            scaled = exponent * self.log_m
        inside = np.isfinite(self.log_m) & (scaled > -745.0)
        return np.asarray(np.exp(np.where(inside, scaled, 0.0)) * inside)

    def one(self, average: Array) -> Array:
        """n A M^(n-1): one distractor singled out."""
        return np.asarray(self.n * average * self.power(1))

    def two(self, average: Array) -> Array:
        """n (n-1) A^2 M^(n-2): an ordered pair of distractors singled out."""
        if self.n <= 1:
            return np.zeros_like(average)
        return np.asarray((1 - 1 / self.n) * (self.n * average) ** 2 * self.power(2))

    # -- the secret token --------------------------------------------------------------------------------------

    def secret_nodes(self, m: float) -> tuple[Array, Array, slice]:
        """Nodes g, Gaussian weights, and (on the lattice) the slice of the profiles that they meet.

        The range follows the exponential tilt exp(2 lam gamma |g|) up to the threshold on either side: tiny retrieval
        probabilities (plateaus) and tiny failure probabilities (near the oracle) keep their relative accuracy.
        """
        tilt = 2 * self.lam * self.gamma
        reach = (self.threshold - m) / self.gamma
        high = self.cut + min(tilt, max(reach, 0.0))
        low = -self.cut - min(tilt, max(-reach, 0.0))
        if self.secret_aligned:
            scale = self.lam * self.gamma
            first = max(math.floor((self.lam * m + scale * low) / self.delta), self._window_x[0])
            last = min(math.ceil((self.lam * m + scale * high) / self.delta), self._window_x[1])
            g = (self.delta * np.arange(first, last + 1, dtype=np.float64) - self.lam * m) / scale
            step, window = self.delta / scale, slice(first - self._window_x[0], last + 1 - self._window_x[0])
        else:
            g = NARROW * np.arange(math.floor(low / NARROW), math.ceil(high / NARROW) + 1, dtype=np.float64)
            step, window = NARROW, slice(0, g.size)
        weights = step / math.sqrt(2 * math.pi) * np.exp(-g * g / 2)
        return g, weights, window

    def profiles(self, wanted: Sequence[tuple[int, Array]], m: float, g: Array, window: slice) -> Array:
        """int F_k(tau + lam (m + gamma g)) weight(tau) dtau for every (k, weight), at the nodes g of `secret_nodes`."""
        if self.secret_aligned:
            return np.array([self.profile_on(k, weight, window) for k, weight in wanted])
        points = self.lam * (m + self.gamma * g)[:, None] + self.tau
        kernels = {k: self.delta * kernel(k, points) for k in {k for k, _ in wanted}}
        return np.array([kernels[k] @ weight for k, weight in wanted])

    def profile_on(self, k: int, weight: Array, window: slice) -> Array:
        """One of them on a window of the logit lattice."""
        table, first = self._lattice_kernel(k)
        start = self._tau_lo + self._window_x[0] + window.start - first
        count = window.stop - window.start
        return self.delta * np.correlate(table[start : start + self.tau.size + count - 1], weight, "valid")

    @property
    def profile_count(self) -> int:
        """Number of lattice points of a full profile (all mu in [-1, 1])."""
        return self._window_x[1] - self._window_x[0] + 1
