"""Ridge fits: y = sum_k c_k Range_[0,1](w_k . x + t_k) with random directions and outer weights by least squares.

In two and more dimensions ramps are no partition of unity, so nothing is proved of such a net: its error is measured. Samples
must reach the boundary of the box, where the fit is free to do anything otherwise.
"""

from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.ramp.constants import BEST
from maxaffine.ramp.net import RampNet

RIDGES = 10.0 ** np.arange(-14.0, -1.0)  # relative to the largest singular value squared


def ridge_fit(
    X: Any, y: Any, m: int, rho: float = BEST, p: int | None = None, seed: int = 0, ridge: float | None = None
) -> RampNet:
    """m neurons of random directions and thresholds, each a ramp from its threshold to the end of the samples (a ReLU there).

    `ridge` is chosen by generalised cross-validation unless given.
    """
    points, values = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if points.ndim != 2 or values.shape != points.shape[:1] or len(values) < 2:
        raise BadInput(f"`X` {points.shape} must be (samples, d) and `y` {values.shape} (samples,), two samples at least.")
    if not (np.isfinite(points).all() and np.isfinite(values).all()):
        raise BadInput("`X` and `y` must be finite numbers.")
    if m < 1:
        raise BadInput(f"`m` (={m}) must be at least 1, the number of neurons.")
    rng, p = np.random.default_rng(seed), m if p is None else p
    w = rng.standard_normal((m, points.shape[1]))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    low, high = (points @ w.T).min(axis=0), (points @ w.T).max(axis=0)
    start = low + (high - low) * rng.uniform(-0.02, 0.98, m)
    reach = np.maximum(high - start, 1e-12)
    past = 1.0 + 60.0 / (rho * p)  # the constant
    weights, shifts = np.append(w / reach[:, None], np.zeros((1, w.shape[1])), axis=0), np.append(-start / reach, past)
    net = RampNet(weights, shifts, np.zeros(m + 1), p, rho)
    return RampNet(net.w, net.t, _outer(net.neurons(points), values, ridge), p, rho)


def _outer(features: Array, values: Array, ridge: float | None) -> Array:
    """Least squares with a small ridge on the outer weights."""
    U, s, Vt = np.linalg.svd(features, full_matrices=False)
    seen, best = U.T @ values, (np.inf, np.zeros(features.shape[1]))
    rest = float(values @ values - seen @ seen)
    for one in RIDGES if ridge is None else [ridge]:
        kept = s**2 / (s**2 + one * s[0] ** 2)
        off = float((((1.0 - kept) * seen) ** 2).sum()) + max(rest, 0.0)
        score = off / max(len(values) - float(kept.sum()), 1e-9) ** 2
        if score < best[0]:
            best = score, Vt.T @ (kept / s * seen)
    return best[1]
