"""Keys of spectral heads along one coordinate z in [-1, 1].

Bernstein    a_j = delta (j - n/2),  b_j = log C(n, j) - n log 2,  n = N - 1:  with s = sigmoid(delta z) the softmax weights are
             exactly C(n, j) s^j (1-s)^(n-j), so that one head holds every polynomial of degree n in s
Gaussian     a_j = R v_j,  b_j = -R v_j^2 / 2 on equidistant sites v_j, some of them beyond the ends (padding)

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
