"""Ramp heads: one softmax head whose values are its sites, so that it says min(max(s, a), b) of a number s.

    logit_k(s) = beta (2 k s - k (L_0 + L_k)),   L_k = a + k step,   k = 0..p,   step = (b - a)/p,   beta = rho/(2 step)
               = -(rho/2) (t - k)^2 + const,     t = (s - a)/step                       value of token k: L_k

    |head(s) - min(max(s, a), b)| <= kappa(rho) (b - a)/p            one head of p + 1 tokens, at every s
    |sum of heads - ramp|  <= about kappa(rho) (b - a)/(H (n-1))     H heads of n tokens, head h on the h-th part of [a, b]

Where two parts meet both heads err, in opposite directions: `joint` (constants.py) bounds the sum.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.ramp.constants import BEST, checked, cut, far_sum, joint, kappa

ROUNDING = 64.0 * 2.0**-53  # of the largest value: t, logits, exp and sums in float64


def soft_sites(t: Array, p: int, rho: float) -> Array:
    """sum_k k softmax_k(-(rho/2)(t - k)^2) over k = 0..p, of any shape of t; sites that weigh less than e^-40 are left out."""
    reach = 2 + int(np.ceil(np.sqrt(80.0 / rho)))
    flat = np.asarray(t, dtype=np.float64).ravel()
    out = np.where(np.isnan(flat), np.nan, np.where(flat <= 0, 0.0, float(p)))
    near = np.flatnonzero((flat > -40.0 / rho) & (flat < p + 40.0 / rho))  # beyond, one site has all the weight
    width = np.arange(-min(reach, p), min(reach, p) + 1)
    for start in range(0, near.size, 1 << 15):
        part = near[start : start + (1 << 15)]
        nearest = np.clip(np.rint(flat[part]), 0, p)
        sites = nearest[:, None] + width
        logs = np.where((sites < 0) | (sites > p), -np.inf, -0.5 * rho * ((flat[part, None] - sites) ** 2))
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        out[part] = nearest + (weights * width).sum(axis=1) / weights.sum(axis=1)
    return out.reshape(np.shape(t))


@dataclass(frozen=True)
class RampHead:
    """One head of p + 1 tokens for the ramp from a to b."""

    a: float
    b: float
    p: int
    rho: float = BEST

    def __post_init__(self) -> None:
        _interval(self.a, self.b)
        _count("p", self.p, 1, "steps between the ends")
        checked(self.rho)

    @property
    def step(self) -> float:
        """Distance of the sites."""
        return (self.b - self.a) / self.p

    @property
    def beta(self) -> float:
        """The inverse temperature of the logits beta (2 k s - k (L_0 + L_k))."""
        return self.rho / (2.0 * self.step)

    @cached_property
    def sites(self) -> Array:
        """L_0 .. L_p."""
        return np.linspace(self.a, self.b, self.p + 1)

    @property
    def tokens(self) -> int:
        """p + 1."""
        return self.p + 1

    def ramp(self, s: ArrayLike) -> Array:
        """What the head stands for: min(max(s, a), b)."""
        return np.asarray(np.clip(np.asarray(s, dtype=np.float64), self.a, self.b))

    def __call__(self, s: ArrayLike) -> Array:
        """The head at numbers s of any shape."""
        t = (np.asarray(s, dtype=np.float64) - self.a) / self.step
        return np.asarray(self.a + self.step * soft_sites(t, self.p, self.rho))

    def weights(self, s: ArrayLike) -> Array:
        """Attention (.., p + 1) of numbers s."""
        t = (np.asarray(s, dtype=np.float64)[..., None] - self.a) / self.step
        logits = -0.5 * self.rho * (t - np.arange(self.tokens)) ** 2
        found = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(found / found.sum(axis=-1, keepdims=True))

    def bound(self) -> float:
        """kappa(rho) (b - a)/p, proved for every real s, and what float64 adds."""
        return kappa(self.rho) * self.step * (1 + 1e-12) + ROUNDING * max(abs(self.a), abs(self.b))


@dataclass(frozen=True)
class RampHeads:
    """H heads of n tokens each, added up: head h is the ramp of the h-th of H equal parts of [a, b]."""

    a: float
    b: float
    n: int
    H: int
    rho: float = BEST

    def __post_init__(self) -> None:
        _interval(self.a, self.b)
        _count("n", self.n, 2, "tokens of the sequence")
        _count("H", self.H, 1, "heads")
        checked(self.rho)

    @property
    def step(self) -> float:
        """Distance of the sites."""
        return (self.b - self.a) / (self.H * (self.n - 1))

    def ramp(self, s: ArrayLike) -> Array:
        """What the heads stand for."""
        return np.asarray(np.clip(np.asarray(s, dtype=np.float64), self.a, self.b))

    def __call__(self, s: ArrayLike) -> Array:
        """The sum of the heads at numbers s of any shape."""
        t = (np.asarray(s, dtype=np.float64) - self.a) / self.step
        total = sum(soft_sites(t - h * (self.n - 1), self.n - 1, self.rho) for h in range(self.H))
        return np.asarray(self.a + self.step * total)

    def bound(self) -> float:
        """Proved for every real s: the own part, its neighbour's far end, and the tails of the others."""
        p, rho, tails = self.n - 1, self.rho, 0.0
        own = kappa(rho)
        if self.H > 1:
            own = max(own, joint(rho)) + cut(rho, p / 2.0)
        if self.H > 2:  # heads that are neither here nor next to it are at least half a part away
            tails = 2.0 * far_sum(rho) * np.exp(-rho * p / 2.0) / -np.expm1(-rho * p)
        return float(own + tails) * self.step * (1 + 1e-12) + ROUNDING * self.H * max(abs(self.a), abs(self.b))


def ramp_head(a: float, b: float, p: int, rho: float = BEST) -> RampHead:
    """One head of p + 1 tokens for min(max(s, a), b)."""
    return RampHead(float(a), float(b), p, float(rho))


def ramp_heads(a: float, b: float, n: int, H: int, rho: float = BEST) -> RampHeads:
    """H heads of n tokens for the same ramp; no token is added to a sequence of n."""
    return RampHeads(float(a), float(b), n, H, float(rho))


def _interval(a: float, b: float) -> None:
    if not (np.isfinite(a) and np.isfinite(b) and a < b):
        raise BadInput(f"`a` (={a:g}) and `b` (={b:g}) must be finite numbers with a < b; the ramp rises from a to b.")


def _count(name: str, value: int, least: int, what: str) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not least <= value <= 1 << 20:
        raise BadInput(f"`{name}` (={value!r}) must be a whole number of {what}, from {least} to {1 << 20:,}.")
