"""What a curve over noise levels says: rank correlation, increases, monotone fit, slope, sign test, intervals."""

import math

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array

DECLINE = -0.9 + 1e-12  # Spearman's correlation up to which a curve counts as declining; the rest is for rounding


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation; 0 where one of the two is constant."""
    from scipy.stats import spearmanr

    return float(spearmanr(x, y).statistic) if np.ptp(x) > 0 and np.ptp(y) > 0 else 0.0


def increases(y: ArrayLike) -> int:
    """How many steps of the curve go up."""
    return int((np.diff(np.asarray(y, dtype=np.float64)) > 0).sum())


def decreasing_fit(y: ArrayLike) -> Array:
    """The least-squares fit among non-increasing curves, by pooling adjacent violators."""
    blocks: list[tuple[float, int]] = []
    for value in np.asarray(y, dtype=np.float64):
        mean, count = float(value), 1
        while blocks and blocks[-1][0] < mean:
            previous, size = blocks.pop()
            mean, count = (mean * count + previous * size) / (count + size), count + size
        blocks.append((mean, count))
    return np.concatenate([np.full(count, mean) for mean, count in blocks])


def decreasing_r2(y: ArrayLike) -> float:
    """The share of the curve's variance that a non-increasing curve explains; 1 for a constant curve."""
    array = np.asarray(y, dtype=np.float64)
    total = float(((array - array.mean()) ** 2).sum())
    return 1.0 if total == 0 else 1.0 - float(((array - decreasing_fit(array)) ** 2).sum()) / total


def log_log_slope(x: ArrayLike, y: ArrayLike, least: float = 0.0) -> float:
    """The least-squares slope of log y against log x over x >= least; NaN with fewer than two positive points."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    kept = (a > 0) & (a >= least - 1e-12) & (b > 0)
    if kept.sum() < 2:
        return math.nan
    u, v = np.log(a[kept]), np.log(b[kept])
    u = u - u.mean()
    return float(u @ v / (u @ u))


def sign_test(negative: int, count: int) -> float:
    """P(at least that many of `count` fair coins fall on one given side)."""
    return float(sum(math.comb(count, k) for k in range(negative, count + 1)) / 2**count)


def mean_and_interval(samples: ArrayLike) -> tuple[Array, Array]:
    """Mean over the first axis and the half width of its 95% Student interval (0 for a single sample)."""
    array = np.asarray(samples, dtype=np.float64)
    count = len(array)
    mean = array.mean(axis=0)
    if count < 2:
        return mean, np.zeros_like(mean)
    from scipy.stats import t

    return mean, np.asarray(t.ppf(0.975, count - 1) * array.std(axis=0, ddof=1) / math.sqrt(count))


def in_words(samples: ArrayLike) -> str:
    """The mean of the samples and the half width of its interval, as a table shows them."""
    mean, half = mean_and_interval(samples)
    return f"{float(mean):.3g} ± {float(half):.1g}"


def digits(values: Array, places: int = 8) -> list[float]:
    """Numbers as a unit stores them: eight digits are more than float32 training decides."""
    return [float(f"{value:.{places}g}") for value in values]
