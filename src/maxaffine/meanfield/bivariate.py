"""The bivariate normal distribution function, vectorised: Phi2(h, k; r) = P(X <= h, Y <= k).

Owen's formula with his T function (scipy.special.owens_t), which is accurate to rounding for every argument:

    Phi2 = (Phi(h) + Phi(k))/2 - T(h, a_h) - T(k, a_k) - delta/2,     a_h = (k/h - r)/sqrt(1-r^2),
    delta = 1 when h k < 0, or h k = 0 and h + k < 0.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, owens_t

from maxaffine.core.arrays import Array


def bivariate_cdf(h: Array, k: Array, r: Array) -> Array:
    """Phi2(h, k; r), elementwise; r = -1 and r = 1 are allowed."""
    h, k, r = np.broadcast_arrays(np.asarray(h, float), np.asarray(k, float), np.asarray(r, float))
    q = np.sqrt(np.maximum((1 - r) * (1 + r), 0.0))
    tiny = 1e-300
    # h = 0 exactly would divide by zero; T(0, a) = arctan(a)/(2 pi) is reached continuously through a tiny h
    safe_h, safe_k = np.where(h == 0, tiny, h), np.where(k == 0, tiny, k)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        slope_h = (safe_k - r * safe_h) / (safe_h * q)
        slope_k = (safe_h - r * safe_k) / (safe_k * q)
        value = (ndtr(h) + ndtr(k)) / 2 - owens_t(safe_h, slope_h) - owens_t(safe_k, slope_k)
    value = value - 0.5 * (safe_h * safe_k < 0)
    both_zero = (h == 0) & (k == 0)
    value = np.where(both_zero, 0.25 + np.arcsin(r) / (2 * math.pi), value)
    certain = np.where(r > 0, ndtr(np.minimum(h, k)), np.maximum(ndtr(h) - ndtr(-k), 0.0))
    return np.asarray(np.where(q < 1e-12, certain, np.clip(value, 0.0, 1.0)))
