"""Failure signatures of a softmax head: numbers with thresholds, each with its reason and what to do about it.

    fuzzy        the leading weight is small: the head averages where it should look up
    coarse       the two leading values differ by more than the error allowed: the cells are larger than the function's features
    dead         keys that no query ever attends to
    saturated    logits so large that the dtype rounds their differences away
    outside      sites that lie outside the queries: they serve nobody, or a box that is too large

The numbers come from logits at queries that matter to the user, so they say what was seen there and prove nothing elsewhere.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import dtype_of

TOP_WEIGHT = 0.5  # a leading weight below one half means that the others together outweigh the leader
WANTED_WEIGHT = 0.9
DEAD_WEIGHT = 1e-2
DEAD_SHARE = 0.1
LOGIT_ROUNDING = 0.05  # rounding logits by this changes weights by up to 5 per cent
COARSE_SHARE = 0.25


@dataclass(frozen=True)
class Signature:
    """One number against its threshold: whether it fired, why the threshold is where it is, and what to do."""

    name: str
    value: float
    threshold: float
    fired: bool
    reason: str
    advice: str

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


def softmax(logits: Array) -> Array:
    """Rows of weights; a logit of -inf is a masked key."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def diagnose(
    logits: ArrayLike,
    values: ArrayLike | None = None,
    *,
    sites: ArrayLike | None = None,
    queries: ArrayLike | None = None,
    error: float | None = None,
    dtype: str = "float64",
) -> tuple[Signature, ...]:
    """The failure signatures of a head from its logits (B, N) at B queries over N keys.

    Args:
        logits: (B, N); -inf where a key is masked.
        values: (N, K) values of the keys, for `coarse`.
        sites: (N, E) where the keys stand in the space of the queries, for `outside`.
        queries: (B, E) the queries.
        error: the error that is asked of the head; without it a quarter of the values' range.
        dtype: what the logits are computed in.
    """
    scores = np.asarray(logits, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape or np.isnan(scores).any() or (scores == np.inf).any():
        raise BadInput(f"`logits` of shape {scores.shape} must be (queries, keys) numbers, -inf where a key is masked.")
    if not np.isfinite(scores.max(axis=1)).all():
        raise BadInput("`logits` has a query whose keys are all masked; leave it out.")
    weights = softmax(scores)
    found = [_fuzzy(scores, weights), _dead(weights), _saturated(scores, dtype)]
    if values is not None:
        found.insert(1, _coarse(scores, np.asarray(values, dtype=np.float64), error))
    if sites is not None and queries is not None:
        found.append(_outside(np.asarray(sites, dtype=np.float64), np.asarray(queries, dtype=np.float64)))
    return tuple(found)


def _fuzzy(scores: Array, weights: Array) -> Signature:
    top = float(np.median(weights.max(axis=1)))
    fired = top < TOP_WEIGHT and scores.shape[1] > 1
    factor = _sharpening(scores) if fired else 1.0
    if not fired:
        advice = "nothing to do: half of the queries give their leading key at least this weight"
    elif np.isfinite(factor):
        advice = f"raise the sharpness (multiply the logits) by {factor:.3g} for a median leading weight of {WANTED_WEIGHT}"
    else:
        advice = "the two leading logits are equal at half of the queries, so no sharpness separates them; move or merge keys"
    reason = "below one half the other keys together outweigh the leading one"
    return Signature("fuzzy", top, TOP_WEIGHT, fired, reason, advice)


def _sharpening(scores: Array) -> float:
    """The least factor t for which softmax(t logits) has median leading weight WANTED_WEIGHT; inf where none has."""
    low, high = 1.0, 2.0
    while np.median(softmax(high * scores).max(axis=1)) < WANTED_WEIGHT:
        low, high = high, 2.0 * high
        if high > 1e12:
            return float("inf")
    for _ in range(40):
        middle = (low + high) / 2.0
        enough = np.median(softmax(middle * scores).max(axis=1)) >= WANTED_WEIGHT
        low, high = (low, middle) if enough else (middle, high)
    return high


def _coarse(scores: Array, values: Array, error: float | None) -> Signature:
    values = values.reshape(len(values), -1)
    if len(values) != scores.shape[1]:
        raise BadInput(f"`values` has {len(values)} rows and `logits` {scores.shape[1]} keys; they must agree.")
    spread = float(np.ptp(values, axis=0).max())
    threshold = COARSE_SHARE * spread if error is None else 2.0 * error
    if scores.shape[1] == 1:
        return Signature("coarse", 0.0, threshold, False, "one key has no neighbour", "nothing to do")
    pair = np.argpartition(scores, -2, axis=1)[:, -2:]
    step = float(np.quantile(np.abs(values[pair[:, 0]] - values[pair[:, 1]]).max(axis=1), 0.9))
    fired = step > threshold and step > 0.0
    reason = "midway between two cells a hard lookup is wrong by half of the step between their values"
    if error is None:
        reason = "between two neighbouring cells the value moves by more than a quarter of its whole range"
    finer = f"needs P >= {np.ceil(step / max(threshold, 1e-300)):.0f} times as many cells along the direction of change"
    advice = finer if fired else "nothing to do: values move little from cell to cell"
    return Signature("coarse", step, threshold, fired, reason, advice)


def _dead(weights: Array) -> Signature:
    dead = (weights.max(axis=0) < DEAD_WEIGHT) & (np.bincount(weights.argmax(axis=1), minlength=weights.shape[1]) == 0)
    share = float(dead.mean())
    fired = share > DEAD_SHARE
    reason = f"a key is dead when no query gives it the largest weight, nor a weight of {DEAD_WEIGHT:g}"
    unused = f"{int(dead.sum())} of {len(dead)} keys are never used by these queries: leave them out, or move them"
    advice = unused if fired else "nothing to do: nearly all keys are used"
    return Signature("dead", share, DEAD_SHARE, fired, reason, advice)


def _saturated(scores: Array, dtype: str) -> Signature:
    finite = np.where(np.isfinite(scores), scores, 0.0)
    rounded = float(dtype_of(dtype).unit * np.abs(finite).max())
    fired = rounded > LOGIT_ROUNDING
    reason = f"{dtype} rounds the largest logit by this much, and weights by the same relative amount"
    span = float(np.ptp(finite, axis=1).max())
    centre = f"centre the inputs (one query's logits span only {span:.3g}), lower the sharpness, or use a wider dtype"
    advice = centre if fired else f"nothing to do: {dtype} holds these logits"
    return Signature("saturated", rounded, LOGIT_ROUNDING, fired, reason, advice)


def _outside(sites: Array, queries: Array) -> Signature:
    if sites.ndim != 2 or queries.ndim != 2 or sites.shape[1] != queries.shape[1]:
        raise BadInput(f"`sites` {sites.shape} and `queries` {queries.shape} must have the same coordinates.")
    low, high = queries.min(axis=0), queries.max(axis=0)
    room = 0.1 * (high - low)
    away = ((sites < low - room) | (sites > high + room)).any(axis=1)
    share = float(away.mean())
    fired = share > DEAD_SHARE
    reason = "a site outside the range of the queries by more than a tenth of it only serves the rim"
    shrink = f"{int(away.sum())} of {len(away)} sites lie outside the queries: shrink the box, or move the sites inside"
    advice = shrink if fired else "nothing to do: the sites lie where the queries are"
    return Signature("outside", share, DEAD_SHARE, fired, reason, advice)
