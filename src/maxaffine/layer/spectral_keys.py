"""Keys of spectral heads along one coordinate z in [-1, 1].

Bernstein    a_j = delta (j - n/2),  b_j = log C(n, j) - n log 2,  n = N - 1:  with s = sigmoid(delta z) the softmax weights are
             exactly C(n, j) s^j (1-s)^(n-j), so that one head holds every polynomial of degree n in s
Gaussian     a_j = R v_j,  b_j = -R v_j^2 / 2 on equidistant sites v_j, some of them beyond the ends (padding)
graded       a_j = -R / s_j,  b_j = -R (log s_j + (1 + near) / s_j) on sites s_j equidistant in the logarithm: with
             s = z + 1 + near the weights fall like exp(-R (e^d - 1 - d)), d = log(s / s_j), so that near the end -1 they are as
             fine there as far away from it in proportion: for log s, powers of s and whatever is smooth in log s

Offsets are shifted so that the normaliser sum_j exp(b_j) at z = 0 is one; slopes and offsets are rounded to the dtype before
any value is fitted, and everything afterwards speaks about the rounded ones.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.keys import AxisKeys

DELTAS = (0.02, 0.06, 0.15, 0.3, 0.5, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0)


@dataclass(frozen=True)
class SpectralAxis:
    """Keys of one coordinate, and how they were made: `family` and its `parameter` (delta, or R h^2)."""

    keys: AxisKeys
    family: str
    parameter: float
    shift: float = 0.0  # where sigmoid(delta (z - shift)) is one half
    near: float = 0.0  # of graded keys, with the sign of the fine end

    def __len__(self) -> int:
        return len(self.keys)


def bernstein(count: int, delta: float, dtype: str, shift: float = 0.0) -> SpectralAxis:
    """The Bernstein head with `count` tokens, centred at `shift`."""
    n = count - 1
    j = np.arange(count, dtype=np.float64)
    slopes = delta * (j - n / 2.0)
    offsets = log_binomials(n) - n * math.log(2.0) - shift * slopes
    return SpectralAxis(rounded(slopes, offsets, dtype), "bernstein", delta, shift)


def gaussian(count: int, padding: int, rho: float, dtype: str) -> SpectralAxis:
    """A Gaussian head with `count` sites, `padding` of them beyond each end, and R h^2 = rho."""
    step = 2.0 / (count - 1 - 2 * padding)
    sites = step * (np.arange(count, dtype=np.float64) - (count - 1) / 2.0)
    multiplier = rho / step**2
    offsets = -multiplier * sites * sites / 2.0
    total = float(offsets.max()) + math.log(float(np.exp(offsets - offsets.max()).sum()))
    return SpectralAxis(rounded(multiplier * sites, offsets - total, dtype), "gaussian", rho)


def graded(count: int, padding: int, rho: float, near: float, dtype: str) -> SpectralAxis:
    """A graded head with `count` sites, `padding` of them beyond each end, and R h^2 = rho, h the step of the logarithms.

    It is fine towards -1 where `near` < 0, else towards 1.
    """
    side, near = math.copysign(1.0, near), abs(near)
    low, high = math.log(near), math.log(2.0 + near)
    step = (high - low) / (count - 1 - 2 * padding)
    sites = low + step * (np.arange(count, dtype=np.float64) - padding)
    multiplier = rho / step**2
    slopes = -multiplier * np.exp(-sites)
    offsets = slopes * (1.0 + near) - multiplier * sites
    total = float(offsets.max()) + math.log(float(np.exp(offsets - offsets.max()).sum()))
    return SpectralAxis(rounded(-side * slopes, offsets - total, dtype), "graded", rho, 0.0, side * near)


def graded_points(count: int, near: float) -> Array:
    """Points of [-1, 1] as graded keys lie: equidistant in log(z + 1 + |near|), or of the mirror image where `near` > 0."""
    s = np.exp(np.linspace(math.log(abs(near)), math.log(2.0 + abs(near)), count))
    return np.asarray(-math.copysign(1.0, near) * np.clip(s - 1.0 - abs(near), -1.0, 1.0))


def beside(z: Array, axis: SpectralAxis) -> Array:
    """The points z, and as many graded ones where the keys are graded."""
    return np.unique(np.concatenate([z, graded_points(len(z), axis.near)])) if axis.near else z


def log_binomials(n: int) -> Array:
    """log C(n, j) for j = 0..n."""
    logs = np.array([math.lgamma(j + 1.0) for j in range(n + 1)])
    return np.asarray(logs[n] - logs - logs[::-1])


def rounded(slopes: Array, offsets: Array, dtype: str) -> AxisKeys:
    """The keys as the dtype stores them, held in float64."""
    stored = numpy_dtype(dtype)
    return AxisKeys(slopes.astype(stored).astype(np.float64), offsets.astype(stored).astype(np.float64))


def weights(keys: AxisKeys, z: Array) -> Array:
    """Softmax weights (M, N) at points z (M,)."""
    scores = np.multiply.outer(z, keys.slopes) + keys.offsets
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def expected_etas(keys: AxisKeys, z: Array, terms: int) -> Array:
    """Errors of the logits (M, N) in unit roundoffs, as proofs/head_bounds.py counts them: products, shift, exp, division."""
    scores = np.multiply.outer(z, keys.slopes) + keys.offsets
    gap = scores.max(axis=1, keepdims=True) - scores
    return np.asarray(terms * (np.multiply.outer(np.abs(z), np.abs(keys.slopes)) + np.abs(keys.offsets)) + gap + 11.0)


def chebyshev(count: int) -> Array:
    """Chebyshev points of the first kind on [-1, 1]."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)
