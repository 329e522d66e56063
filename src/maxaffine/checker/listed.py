"""Listed keys re-proved: covering centres by Gibbs' principle, any partition by boxes cut in three."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from maxaffine.checker import slopes
from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.lookup_rounding import logit_error, summation_error
from maxaffine.checker.proved import NotProved, Proved
from maxaffine.checker.reader import Lookup
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.target.target import Target

BOXES = 300_000
PAIRS = 1 << 22


def check_centres(layer: Lookup, target: Target, declared: Mapping[str, Any], radius: float) -> Proved:
    """For every x within `radius` of a site: |F - f| <= L sqrt(E|x - v_K|^2), mean energy <= least + (log N + 2 eta)/R."""
    if not (math.isfinite(radius) and radius > 0) or len(set(layer.scale)) != 1:
        raise NotProved("the file does not say within which radius of its centres it speaks.")
    assert target.expression is not None
    sites, offsets, scale = layer.slopes[0], layer.offsets[0], float(layer.scale[0])
    norms = (sites * sites).sum(axis=1) / 2.0
    drift = float(np.abs(offsets + norms).max() + 1e-15 * len(layer.scale) * norms.max())
    eta = logit_error(layer) + layer.sharpness * drift
    if "euclidean" in declared:
        constant = float(declared["euclidean"])
        slopes.doubt_declared(target.expression, layer.low, layer.high, constant)
    elif "lipschitz" in declared:
        slopes.doubt_declared(target.expression, layer.low, layer.high, np.asarray(declared["lipschitz"], dtype=np.float64))
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
    return Proved(constant * math.sqrt(spread) * (1 + 1e-12) + away + summation_error(layer), "Gibbs' variational principle")


def check_partition(layer: Lookup, target: Target, error: float) -> Proved:
    """Boxes of x with the keys that can win there by a margin; f must be near every value that can count in a box.

    Inside a box every key that trails some other key by more than g throughout weighs at most e^{-R g + 2 eta}; the layer's
    output is within that leak of a mean of the remaining values, each of which is compared with the enclosure of f.
    """
    eta, tail = logit_error(layer), summation_error(layer)
    edge = np.maximum(1.0, layer.scale * layer.reach * (1 + 1e-15))
    if np.any(layer.scale * layer.reach > 1.0 + 1e-12):
        raise NotProved("its coordinates do not map the box into [-1, 1].")
    spread = float(np.ptp(layer.values)) + 2.0 * error
    allowed = 0.004 * error
    margin = (math.log(max(len(layer.values) - 1, 1) * spread / allowed) + 2.0 * eta) / layer.sharpness

    def measure(low: Array, high: Array, _: object) -> Bounds:
        return Bounds(_apart(layer, target, low, high, margin))

    chunk = max(1, PAIRS // layer.slopes[0].size)
    found = supremum(measure, -edge[None], edge[None], budget=BOXES, goal=error - allowed - tail, chunk=chunk)
    how = "boxes cut in three" + ("" if found.met else ", budget spent")
    return Proved(found.worst + allowed + tail, how)


def _apart(layer: Lookup, target: Target, low: Array, high: Array, margin: float) -> Array:
    """max over the keys that can count in a box of sup |f - y| there, (boxes,)."""
    a, b = layer.slopes[0], layer.offsets[0]
    middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-15)
    scores = middle @ a.T + b  # (n, N)
    best = scores.argmax(axis=1)
    lead = scores[np.arange(len(low)), best][:, None] - scores
    swing = np.einsum("nje,ne->nj", np.abs(a[None, :, :] - a[best][:, None, :]), half)  # by which a lead can change in the box
    rounding = 1e-14 * (np.abs(middle) @ np.abs(a).T + np.abs(b) + np.abs(scores))
    counts = lead - swing - rounding - rounding.max(axis=1, keepdims=True) <= margin
    f = target.enclose(*_in_x(layer, low, high))
    f_low, f_high = f.lo.reshape(len(low), -1), f.hi.reshape(len(low), -1)
    worst = np.zeros(len(low))
    for k in range(layer.values.shape[1]):
        y = layer.values[:, k]
        top = np.where(counts, y, -np.inf).max(axis=1)
        bottom = np.where(counts, y, np.inf).min(axis=1)
        worst = np.maximum(worst, np.maximum(top - f_low[:, k], f_high[:, k] - bottom))
    return worst * (1 + 1e-12)


def _in_x(layer: Lookup, low: Array, high: Array) -> tuple[Array, Array]:
    """Outer bounds in x, within the box, of boxes given in coordinates."""
    box = Interval.of(low, high) / Interval.point(layer.scale) + Interval.point(layer.centre)
    return np.clip(box.lo, layer.low, layer.high), np.clip(box.hi, layer.low, layer.high)
