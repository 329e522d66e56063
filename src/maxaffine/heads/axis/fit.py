"""Local heads on an interval: shifted Bernstein keys with affine or constant values, fitted to many intervals at once.

    w_j(t) = softmax_j(delta (j - n/2) t + log C(n, j) - mu j),      p(t) = sum_j w_j(t) (c_j + G_j t),      |t| <= 1

With s = sigmoid(delta t - mu) this is every P(s) + t Q(s) with polynomials of degree n, and P(s) where values are constant, which
for small delta is every polynomial of degree n with large values that cancel.  The shift mu bends the head towards one
end, which is what poles and roots beyond that end ask for.  Ridge least squares in t does not depend on where the interval
lies, so a basis of the head's values is made once for every (p, delta, mu), and a search over intervals is two products of
matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format
from maxaffine.heads.fitting import LAMBDAS, as_stored, lawson, ridges
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import log_binomials, rounded, weights

Curve = Callable[[Array], Array]  # z (..,) -> (..,)

POINTS = np.cos(np.pi * np.arange(73) / 72.0)  # of an interval on which heads are fitted and judged
CHECK = np.cos(np.pi * (np.arange(257) + 0.25) / 257.0)
DELTAS = (0.02, 0.1, 0.4, 0.8, 1.4, 2.1, 3.2, 5.0)
DELTAS_OF_CONSTANTS = (0.0003, 0.003, *DELTAS)
SHIFTS = (-6.0, -3.5, -1.5, 0.0, 1.5, 3.5, 6.0)
MOST_LOCAL = 9  # tokens of a cell among several


def shifted_keys(count: int, delta: float, shift: float, dtype: str) -> AxisKeys:
    """Keys of the head in the dtype; offsets such that the normaliser at t = 0 is one."""
    n = count - 1
    j = np.arange(count, dtype=np.float64)
    offsets = log_binomials(n) - shift * j - n * float(np.logaddexp(0.0, -shift))
    return rounded(delta * (j - n / 2.0), offsets, dtype)


def design(keys: AxisKeys, t: Array, affine: bool = True) -> Array:
    """Columns w_j and, for affine values, w_j t at the points: (M, 2 p) or (M, p); one token alone has the columns 1 and t."""
    w = weights(keys, t)
    return np.concatenate([w, w * t[:, None]], axis=1) if affine else w


def _deltas(affine: bool) -> tuple[float, ...]:
    return DELTAS if affine else DELTAS_OF_CONSTANTS


def _combinations(count: int, affine: bool) -> list[tuple[float, float]]:
    """(delta, mu) that are tried for heads of this size."""
    if count == 1:
        return [(0.0, 0.0)]
    return [(d, m) for d in _deltas(affine) for m in SHIFTS if abs(m) <= (6.0 if d >= 0.8 else 3.5 if d >= 0.4 else 0.0)]


def _every(count: int, affine: bool) -> int:
    """Of the points, every first or second one serves a search: constant values have half the freedom of affine ones."""
    return 2 if not affine and count < MOST_LOCAL else 1


@cache
def _decomposed(count: int, affine: bool, dtype: str) -> tuple[Array, Array]:
    """U^T (combinations, q, M) and s (combinations, q) of the designs of all combinations."""
    points = POINTS[:: _every(count, affine)]
    designs = [design(shifted_keys(count, delta, shift, dtype), points, affine) for delta, shift in _combinations(count, affine)]
    U, S, _ = np.linalg.svd(np.stack(designs), full_matrices=False)
    return np.ascontiguousarray(U.transpose(0, 2, 1)), S


@dataclass(frozen=True)
class LocalFit:
    """A head on [-1, 1]: largest error on the check points (rounding included), keys, and values c (p,), G (p,)."""

    error: float
    keys: AxisKeys
    values: Array
    slopes: Array


class Library:
    """Residual operators of all small heads, for one error and one size of function values; values affine in t or constant.

    `strain` is the price of large values that cancel, in units of what rounding the logits does to them; `blur` is the error of
    logits in the literal softmax, where those of the sites are added to them.
    """

    def __init__(
        self, error: float, scale: float, dtype: str, affine: bool = True, strain: float = 0.0, blur: float = 0.0
    ) -> None:
        self.error, self.scale, self.dtype, self.affine = error, max(scale, 1e-300), dtype, affine
        self.strain, self.blur = strain, blur
        self.deltas = _deltas(affine)
        self.unit = compute_format(dtype).unit
        self.damping = min(max(0.02 * error / self.scale, 8.0 * self.unit, blur), 1e100)  # a target that is zero has no scale
        self._known: dict[int, tuple[Array, Array]] = {}

    def combinations(self, count: int) -> list[tuple[float, float]]:
        """(delta, mu) that are tried for heads of this size."""
        return _combinations(count, self.affine)

    def _every(self, count: int) -> int:
        return _every(count, self.affine)

    def _bases(self, count: int) -> tuple[Array, Array]:
        """U^T (combinations, q, M) at POINTS, or at every second one, and (U s^2/(s^2 + damping^2))^T of the same shape."""
        if count not in self._known:
            across, S = _decomposed(count, self.affine, self.dtype)
            self._known[count] = across, across * (S * S / (S * S + self.damping**2))[:, :, None]
        return self._known[count]

    def _worst(self, count: int, samples: Array) -> Array:
        """The largest residual (combinations, n) of every head for samples (M, n) of n intervals."""
        across, back = self._bases(count)
        seen = samples[:: self._every(count)]
        inside = (across.reshape(-1, len(seen)) @ seen).reshape(*across.shape[:2], -1)
        away = inside.transpose(0, 2, 1) @ back  # points last: their maximum is found four times as fast
        away -= seen.T
        return np.asarray(np.abs(away, out=away).max(axis=2))

    def errors(self, count: int, samples: Array) -> Array:
        """The least error over the combinations for samples (M, n) of n intervals: (n,); infinite where they are not finite."""
        with np.errstate(all="ignore"):
            best = self._worst(count, samples).min(axis=0)
        return np.where(np.isfinite(best), best, np.inf)

    def start(self, count: int, samples: Array) -> tuple[float, float]:
        """The best (delta, mu) for one interval."""
        return self.combinations(count)[int(self._worst(count, samples[:, None])[:, 0].argmin())]

    # -- one interval in earnest

    def polish(self, f: Curve, origin: float, radius: float, count: int, wanted: float) -> LocalFit:
        """The head of that size for f(origin + radius t): delta and mu by coordinate search, values weighted for the sup norm."""
        samples, exact = f(origin + radius * POINTS), f(origin + radius * CHECK)
        delta, shift = self.start(count, samples) if count <= MOST_LOCAL else (1.4, 0.0)
        best = self.solve(count, delta, shift, samples, exact)
        if count > 1:
            best = self._climb(count, delta, shift, samples, exact, best, wanted)
        if best.error > wanted or count == 1:
            best = min(best, self._lawson(best, samples, exact), key=lambda fit: fit.error)
        return best

    def _climb(
        self, count: int, delta: float, shift: float, samples: Array, exact: Array, best: LocalFit, wanted: float
    ) -> LocalFit:
        factor, step = 1.35, 1.0
        for _ in range(5):
            for d, m in ((delta * factor, shift), (delta / factor, shift), (delta, shift + step), (delta, shift - step)):
                if best.error <= 0.7 * wanted:
                    return best
                if not 0.1 * self.deltas[0] <= d <= 9.0 or abs(m) > 9.0:
                    continue
                fit = self.solve(count, d, m, samples, exact)
                if fit.error < best.error:
                    best, delta, shift = fit, d, m
            factor, step = math.sqrt(factor), step / 1.7
        return best

    def solve(self, count: int, delta: float, shift: float, samples: Array, exact: Array) -> LocalFit:
        """Ridge least squares for one set of keys, the best of several dampings."""
        keys = shifted_keys(count, delta, shift, self.dtype)
        W = design(keys, CHECK, self.affine)
        dampings = [max(lam * self.error / self.scale, 4.0 * self.unit, lam * self.blur) for lam in LAMBDAS]
        found = ridges(design(keys, POINTS, self.affine), samples, dampings)
        return min((self._judge(keys, values, W, exact) for values in found), key=lambda fit: fit.error)

    def _judge(self, keys: AxisKeys, values: Array, W: Array, exact: Array) -> LocalFit:
        stored, p = as_stored(values, self.dtype), len(keys)
        c, G = stored[:p], stored[p:] if self.affine else np.zeros(p)
        if not np.isfinite(stored).all():
            return LocalFit(np.inf, keys, c, G)
        g = W @ stored
        away = float(np.abs(g - exact).max())
        # what rounding of the logits does to p: sum w eta |v - p|
        eta = 4.0 * (np.multiply.outer(np.abs(CHECK), np.abs(keys.slopes)) + np.abs(keys.offsets)) + 20.0
        v = c + np.multiply.outer(CHECK, G)
        apart = np.abs(v - g[:, None])
        loss = self.unit * float((W[:, :p] * eta * (apart + self.strain * np.abs(v))).sum(axis=1).max())
        loss += 2.0 * self.blur * float((W[:, :p] * apart).sum(axis=1).max())
        return LocalFit(away + loss if math.isfinite(away + loss) else np.inf, keys, c, G)

    def _lawson(self, start: LocalFit, samples: Array, exact: Array) -> LocalFit:
        A, W = (design(start.keys, points, self.affine) for points in (POINTS, CHECK))
        best = start
        for lam in LAMBDAS[1:]:
            for values in lawson(A, samples, max(lam * self.error / self.scale, 4.0 * self.unit), 10):
                best = min(best, self._judge(start.keys, values, W, exact), key=lambda fit: fit.error)
        return best
