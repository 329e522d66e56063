"""Sums of ramps as attention: y = sum_k c_k Range_[0,1](w_k . x + t_k), in one layer, two layers, or one layer and a softmax.

Every neuron is a token; all share the keys of one ramp head of p + 1 sites on [0, 1].

    one layer          the sum is W_O = c, which acts on tokens
    two layers         Z -> m Z diag(c), then attention with W_K = 0: the mean of m tokens
    and a softmax      y from W_O, then Softmax(beta' (2 k y - k (L'_0 + L'_k))) read out at L': adds kappa step'

A function of one variable on knots x_0 < .. < x_K: w_k = 1/h_k, t_k = -x_k/h_k, c_k = f(x_k+1) - f(x_k).  One ramp is under way
at a time and two meet at a knot, so errors do not add up over neurons:

    |net - f| <= h^2 |f''|/8 + (h/p) |f'| (kappa + corner + tails)

(`relu=True`: neurons Range_[0,B](x - x_k) with c_k the change of slope, as in the paper; there errors add up, |c|_1 kappa B/p.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from maxaffine import reference
from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.ramp.constants import BEST, corner, far_sum, kappa
from maxaffine.ramp.head import ROUNDING, RampHead, soft_sites
from maxaffine.ramp.matrices import HeadMatrices, head_matrices

Layers = Literal[1, 2, "softmax"]
SATURATED = 60.0  # logits by which the constant neuron is past the end of its ramp


@dataclass(frozen=True)
class RampNet:
    """Neurons w (K, d), t (K,), outer weights c (K,), on heads of p + 1 sites."""

    w: Array
    t: Array
    c: Array
    p: int
    rho: float = BEST
    layers: Layers = 1
    readout: RampHead | None = None  # of layers="softmax"

    @property
    def head(self) -> RampHead:
        """The head that all neurons share."""
        return RampHead(0.0, 1.0, self.p, self.rho)

    @property
    def tokens(self) -> int:
        """Columns of the sequence: a token per neuron and per site, whichever are more."""
        return max(len(self.t), self.p + 1)

    def neurons(self, x: ArrayLike) -> Array:
        """What the K neurons say at points (B, d): (B, K)."""
        s = _points(x, self.w.shape[1]) @ self.w.T + self.t
        return soft_sites(self.p * s, self.p, self.rho) / self.p

    def __call__(self, x: ArrayLike) -> Array:
        """The net at points (B, d), or (B,) where d is 1: (B,)."""
        y = self.neurons(x) @ self.c
        return y if self.readout is None else self.readout(y)

    def exact(self, x: ArrayLike) -> Array:
        """The sum of exact ramps."""
        return np.asarray(np.clip(_points(x, self.w.shape[1]) @ self.w.T + self.t, 0.0, 1.0) @ self.c)

    def bound(self, piecewise: float = 0.0) -> float:
        """sup |net - f|, where `piecewise` bounds |sum of exact ramps - f|.

        For any neurons |c|_1 kappa/p; for ramps side by side on a line, where one is under way at a time, that of their joints.
        """
        side = self._side_by_side()
        ramps = float(np.abs(self.c).sum()) * kappa(self.rho) / self.p if side is None else side
        read = 0.0 if self.readout is None else self.readout.bound()
        rounded = ROUNDING * (2.0 + float(np.abs(self.t).max())) * self.p * self.rho * float(np.abs(self.c).sum())
        return piecewise + ramps + read + rounded

    def _side_by_side(self) -> float | None:
        """The bound from errors near the own ramp and tails of the others; None for other neurons than consecutive ramps."""
        if self.w.shape[1] != 1 or not (self.w[:, 0] >= 0).all():
            return None
        moving = self.w[:, 0] > 0
        if not bool((self.t[~moving] * self.p >= self.p + SATURATED / self.rho * (1 - 1e-9)).all()):
            return None
        start = -self.t[moving] / self.w[moving, 0]
        end = start + 1.0 / self.w[moving, 0]
        if len(start) < 1 or not (start[1:] >= end[:-1] - 1e-9 * (end[:-1] - start[:-1])).all():
            return None
        size, rho = np.abs(self.c[moving]) / self.p, self.rho
        gap = np.maximum(np.maximum(start[:, None] - end, start - end[:, None]), 0.0)  # from ramp i to ramp j
        tail = np.minimum(corner(rho), far_sum(rho) * np.exp(-rho * self.p * gap * self.w[moving, 0]))
        np.fill_diagonal(tail, kappa(rho))
        near = np.abs(np.subtract.outer(np.arange(len(size)), np.arange(len(size)))) == 1
        tail[near] = corner(rho)
        fixed = float(np.abs(self.c[~moving]).sum()) * np.exp(-SATURATED) * 4.0
        return float((tail @ size).max() * (1 + 1e-12) + fixed)

    def as_matrices(self) -> "NetMatrices":
        """The literal matrices."""
        first = head_matrices(self.head, self.w, self.t)
        return NetMatrices(self, first.P, first.Q, first.R_0, first.heads[0])


@dataclass(frozen=True)
class NetMatrices:
    """Matrices of a net: a linear map that writes the input into every token, a head, and what comes after it."""

    net: RampNet
    P: tuple[Array, ...]
    Q: tuple[Array, ...]
    R_0: Array
    first: HeadMatrices

    def __call__(self, x: ArrayLike) -> float:
        """At one point (d,), by the definition of attention."""
        net, K = self.net, len(self.net.t)
        X = np.repeat(np.asarray(x, dtype=np.float64).reshape(-1, 1), K, axis=1)  # the first linear map copies the token
        Z = reference.linear(X, self.P, self.Q, self.R_0)
        m = Z.shape[1]
        c = np.zeros((m, 1))
        c[:K, 0] = net.c
        if net.layers == 2:
            ramps = reference.self_attention(Z, self.first.W_Q, self.first.W_K, self.first.W_V, np.eye(m))
            scaled = m * ramps * c.T  # the second linear map: m Z diag(c)
            zero = np.zeros((1, 1))
            return float(reference.self_attention(scaled, zero, zero, np.eye(1), np.eye(m)[:, :1])[0, 0])
        y = reference.self_attention(Z, self.first.W_Q, self.first.W_K, self.first.W_V, c)
        if net.readout is None:
            return float(y[0, 0])
        head = net.readout
        k = np.arange(head.tokens)
        logits = head.beta * (2.0 * k * y[0, 0] - k * (head.a + head.sites))
        return float(head.sites @ reference.softmax(logits[:, None])[:, 0])


def piecewise_linear(
    f: Callable[[Array], Any], box: tuple[float, float], m: int, p: int | None = None, rho: float = BEST,
    layers: Layers = 1, relu: bool = False, knots: ArrayLike | None = None, readout: int = 200,
) -> RampNet:  # fmt: skip
    """f on an interval through its values at m + 1 knots (equal steps if none are given), as m ramps and a constant.

    `p` is m unless given; `readout` the steps of the last softmax of layers="softmax".
    """
    low, high = (float(v) for v in box)
    if layers not in (1, 2, "softmax"):
        raise BadInput(f"`layers` (={layers!r}) must be 1, 2 or \"softmax\".")
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise BadInput(f"`box` (={low:g}, {high:g}) must be two finite numbers in rising order.")
    if m < 1:
        raise BadInput(f"`m` (={m}) must be at least 1, the number of ramps.")
    at = np.linspace(low, high, m + 1) if knots is None else np.asarray(knots, dtype=np.float64)
    if at.shape != (m + 1,) or not (np.diff(at) > 0).all():
        raise BadInput(f"`knots` must be {m + 1} rising numbers, the ends of {m} ramps.")
    y = np.asarray(f(at), dtype=np.float64).reshape(-1)
    if y.shape != at.shape or not np.isfinite(y).all():
        raise BadInput("`f` must give one finite number at every knot.")
    p = m if p is None else p
    h, B = np.diff(at), high - low
    if relu:
        slopes = np.diff(y) / h
        w, t, c = np.full(m, 1.0 / B), -at[:-1] / B, B * np.diff(slopes, prepend=0.0)
    else:
        w, t, c = 1.0 / h, -at[:-1] / h, np.diff(y)
    # a constant is a neuron past the end of its ramp
    w, t, c = np.append(w, 0.0), np.append(t, 1.0 + SATURATED / (rho * p)), np.append(c, y[0])
    last = RampHead(float(y.min()), float(y.max()) or 1.0, readout, rho) if layers == "softmax" else None
    return RampNet(w[:, None], t, c, p, rho, layers, last)


def _points(x: ArrayLike, d: int) -> Array:
    points = np.asarray(x, dtype=np.float64)
    points = points.reshape(-1, 1) if points.ndim < 2 and d == 1 else np.atleast_2d(points)
    if points.ndim != 2 or points.shape[1] != d:
        raise BadInput(f"`x` has the shape {np.shape(x)}; points must be (count, {d}).")
    return points
