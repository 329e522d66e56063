"""Tables of one variable as few straight pieces: one token per piece, its value affine, handing over between two entries.

From the left, the longest run of entries that some line follows to within the error, then the next one.  Runs are found by
doubling and bisection; the best line has the slope b for which max(y - b z) - min(y - b z), a convex function of b, is least.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.entries.plan import keys_between
from maxaffine.layer.keys import AxisKeys

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
ROUNDS = 48


def line(z: Array, y: Array, enough: float = 0.0) -> tuple[Array, Array, float]:
    """Levels (K,) and slopes (K,) of the lines nearest to y (m, K) in the largest error, and that; `enough` ends the search."""
    if len(z) == 1:
        return y[0].copy(), np.zeros(y.shape[1]), 0.0
    steps = np.diff(y, axis=0) / np.diff(z)[:, None]
    low, high = steps.min(axis=0), steps.max(axis=0)

    def width(b: Array) -> Array:
        away = y - np.multiply.outer(z, b)
        return np.asarray(away.max(axis=0) - away.min(axis=0))

    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = width(left), width(right)
    for _ in range(ROUNDS if len(z) > 2 else 0):
        if enough and float(np.minimum(at_left, at_right).max()) <= 1.999 * enough:
            low, high = (np.where(at_left <= at_right, left, right),) * 2
            break
        lower = at_left <= at_right
        high, low = np.where(lower, right, high), np.where(lower, low, left)
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = width(left), width(right)
    slope = (low + high) / 2.0
    away = y - np.multiply.outer(z, slope)
    top, bottom = away.max(axis=0), away.min(axis=0)
    return np.asarray((top + bottom) / 2.0), slope, float((top - bottom).max()) / 2.0


def runs(z: Array, y: Array, error: float, most: int) -> list[tuple[int, int]] | None:
    """Runs start..stop of entries that a line follows to within the error, as few as possible; None where more than `most`."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(z):
        if len(found) == most:
            return None
        good, step = min(start + 2, len(z)), 2
        while good < len(z) and line(z[start : good + step], y[start : good + step], error)[2] <= error:
            good, step = min(good + step, len(z)), 2 * step
        bad = min(good + step, len(z) + 1)
        while bad - good > 1:
            middle = (good + bad) // 2
            fits = middle <= len(z) and line(z[start:middle], y[start:middle], error)[2] <= error
            good, bad = (middle, bad) if fits else (good, middle)
        found.append((start, good))
        start = good
    return found


def pieces(z: Array, y: Array, error: float, most: int) -> tuple[AxisKeys, Array, Array] | None:
    """Keys, values (S, K) and slopes (S, K, 1) of a head that follows y (n, K) at z (n,) by straight pieces; or None."""
    cut = runs(z, y, 0.95 * error, most)
    if cut is None:
        return None
    lines = [line(z[i:j], y[i:j]) for i, j in cut]
    values, slopes = np.stack([one[0] for one in lines]), np.stack([one[1] for one in lines])
    spread = float(np.ptp(y, axis=0).max()) + float(np.abs(slopes).max()) * float(z[-1] - z[0])
    rho = 2.0 * math.log(max(40.0 * spread / error, 40.0))  # an entry next to a hand-over leads by half of this
    ends = np.array([z[j - 1] for _, j in cut[:-1]])
    starts = np.array([z[i] for i, _ in cut[1:]])
    return keys_between(ends, starts, rho), values, slopes[..., None]
