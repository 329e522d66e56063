"""Listed keys: covering centres by Gibbs' principle, any partition by branch and bound over the box."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker import slopes
from maxaffine.checker.proved import Proved
from maxaffine.checker.stored import NotProved, Stored
from maxaffine.core.intervals import Interval
from maxaffine.target.target import Target

Array = NDArray[np.float64]

BOXES = 300_000
PAIRS = 1 << 22


def check_centres(layer: Stored, target: Target, declared: Mapping[str, Any], radius: float) -> Proved:
    """For every x within `radius` of a site: |F - f| <= L sqrt(E|x - v_K|^2), mean energy <= least + (log N + 2 eta)/R."""
    if not (math.isfinite(radius) and radius > 0) or len(set(layer.scale)) != 1:
        raise NotProved("the file does not say within which radius of its centres it speaks.")
    assert target.expression is not None
    sites, offsets, scale = layer.slopes[0], layer.offsets[0], float(layer.scale[0])
    norms = (sites * sites).sum(axis=1) / 2.0
    drift = float(np.abs(offsets + norms).max() + 1e-15 * len(layer.scale) * norms.max())
    eta = layer.logit_error() + layer.sharpness * drift
    if "euclidean" in declared:
        constant = float(declared["euclidean"])
        slopes.doubt(target.expression, layer.low, layer.high, constant)
    elif "lipschitz" in declared:
        slopes.doubt(target.expression, layer.low, layer.high, np.asarray(declared["lipschitz"], dtype=np.float64))
        constant = float(np.linalg.norm(np.asarray(declared["lipschitz"], dtype=np.float64))) * (1 + 1e-14)
    else:
        constant = slopes.euclidean(target.expression, layer.low, layer.high)
    spread = radius**2 + 2.0 * (math.log(len(sites)) + 2.0 * eta) / (layer.sharpness * scale**2)
    where = Interval.point(sites) / Interval.point(scale) + Interval.point(layer.centre)
    if np.any(where.lo < layer.low - 1e-9) or np.any(where.hi > layer.high + 1e-9):
        raise NotProved("a centre lies outside the box.")
    f = target.enclose(np.clip(where.lo, layer.low, layer.high), np.clip(where.hi, layer.low, layer.high))
    slack = constant * float(np.linalg.norm(where.hi - where.lo, axis=1).max())
    y = layer.values
    low, high = f.lo.reshape(len(sites), -1), f.hi.reshape(len(sites), -1)
    away = float(np.maximum(high - y, y - low).max()) + slack
    return Proved(constant * math.sqrt(spread) * (1 + 1e-12) + away + layer.summation_error(), "Gibbs' variational principle")


def check_partition(layer: Stored, target: Target, error: float) -> Proved:
    """Boxes of x with the keys that can win there by a margin; each must be near every value that can be heard in it.

    Inside a box every key that trails some other key by more than g throughout weighs at most e^{-R g + 2 eta}; the layer's
    output is within that leak of a mean of the remaining values, each of which is compared with the enclosure of f.
    """
    slopes_, offsets = layer.slopes[0], layer.offsets[0]
    eta, tail = layer.logit_error(), layer.summation_error()
    edge = np.maximum(1.0, layer.scale * layer.reach * (1 + 1e-15))
    low, high = -edge[None], edge[None]
    if np.any(layer.scale * layer.reach > 1.0 + 1e-12):
        raise NotProved("its coordinates do not map the box into [-1, 1].")
    spread = float(np.ptp(layer.values)) + 2.0 * error
    allowed = 0.004 * error
    margin = (math.log(max(len(offsets) - 1, 1) * spread / allowed) + 2.0 * eta) / layer.sharpness
    goal, settled, spent = error - allowed - tail, 0.0, 0
    while len(low):
        bounds = _heard(layer, target, low, high, slopes_, offsets, margin)
        spent += len(low)
        loose = ~(bounds <= goal)
        settled = max(settled, float(bounds[~loose].max(initial=0.0)))
        low, high = low[loose], high[loose]
        if spent + 2 * len(low) > BOXES:
            return Proved(max(settled, float(bounds[loose].max())) + allowed + tail, "branch and bound, budget spent")
        axis = np.argmax(high - low, axis=1)
        rows = np.arange(len(low))
        middle = (low[rows, axis] + high[rows, axis]) / 2.0
        right, left = low.copy(), high.copy()
        right[rows, axis], left[rows, axis] = middle, middle
        low, high = np.concatenate([low, right]), np.concatenate([left, high])
    return Proved(settled + allowed + tail, "branch and bound over the box")


def _heard(layer: Stored, target: Target, low: Array, high: Array, a: Array, b: Array, margin: float) -> Array:
    """max over the keys that can be heard in a box of sup |f - y| there, (boxes,)."""
    out = np.empty(len(low))
    step = max(1, PAIRS // (len(a) * a.shape[1]))
    for start in range(0, len(low), step):
        lo, hi = low[start : start + step], high[start : start + step]
        middle, half = (lo + hi) / 2.0, (hi - lo) / 2.0
        scores = middle @ a.T + b  # (n, N)
        best = scores.argmax(axis=1)
        lead = scores[np.arange(len(lo)), best][:, None] - scores
        swing = _swing(a, best, half)
        doubt = 1e-14 * (np.abs(middle) @ np.abs(a).T + np.abs(b) + np.abs(scores))
        heard = lead - swing - doubt - doubt.max(axis=1, keepdims=True) <= margin
        x_low, x_high = _in_x(layer, lo, hi)
        f = target.enclose(x_low, x_high)
        f_low, f_high = f.lo.reshape(len(lo), -1), f.hi.reshape(len(lo), -1)
        worst = np.full(len(lo), 0.0)
        for k in range(layer.values.shape[1]):
            y = layer.values[:, k]
            top = np.where(heard, y, -np.inf).max(axis=1)
            bottom = np.where(heard, y, np.inf).min(axis=1)
            worst = np.maximum(worst, np.maximum(top - f_low[:, k], f_high[:, k] - bottom))
        out[start : start + step] = worst
    return out * (1 + 1e-12)


def _swing(a: Array, best: NDArray[np.intp], half: Array) -> Array:
    """How far the lead of the best key over each other key can change from the middle of a box: (n, N)."""
    return np.asarray(np.einsum("nje,ne->nj", np.abs(a[None, :, :] - a[best][:, None, :]), half))


def _in_x(layer: Stored, low: Array, high: Array) -> tuple[Array, Array]:
    """Outer bounds in x, within the box, of boxes given in coordinates."""
    box = Interval.of(low, high) / Interval.point(layer.scale) + Interval.point(layer.centre)
    return np.clip(box.lo, layer.low, layer.high), np.clip(box.hi, layer.low, layer.high)
