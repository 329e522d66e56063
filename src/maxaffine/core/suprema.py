"""Largest values over a box, proved: branch and bound on pieces, all of them at once in NumPy.

Given rigorous upper bounds over pieces and ordinary values at points, the box is bisected until every piece's bound is within
a factor 1 + slack of the largest value seen, or the budget of pieces is spent.  The answer is an upper bound either way; only
how close it is depends on the budget.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import halve, mesh

BATCH = 4096
NEGLIGIBLE = 1e-4  # part of the largest quantity below which a smaller one need not be known
HOPELESS = 40
"""Bisections per coordinate (at most three of them counted) after which a piece with an infinite bound is given up."""


@dataclass(frozen=True)
class Maximum:
    """Upper bounds of Q quantities over a box.

    `upper` (Q,) is proved; `lower` (Q,) was seen at the points `at` (Q, D).  `hopeless` is a small piece (low, high) on which
    some bound stays infinite, or None.
    """

    upper: Array
    lower: Array
    at: Array
    pieces: int
    hopeless: tuple[Array, Array] | None
    reached: bool


def maximise(
    low: Array, high: Array, bounds: Callable[[Array, Array], Array], samples: Callable[[Array], Array], *,
    budget: int = 100_000, slack: float = 1e-3, scale: Array | None = None, offset: float | Array = 0.0,
) -> Maximum:  # fmt: skip
    """Bound Q quantities from above over the box low..high, (D,) each.

    bounds(low, high): (M, D), (M, D) -> (M, Q), rigorous.  samples(x): (M, D) -> (M, Q); what is not finite is ignored.
    A piece is finished when bound - lower <= slack * max(|lower - offset|, NEGLIGIBLE * the largest scaled quantity / scale).
    """
    width, middle, dimension = high - low, 0.5 * low + 0.5 * high, len(low)
    ends = _corners(low, high, middle)
    low, high = low[None, :].copy(), high[None, :].copy()
    above = bounds(low, high)
    count = above.shape[1]
    scale = np.ones(count) if scale is None else scale
    lower, at = np.full(count, -np.inf), np.tile(middle, (count, 1))
    lower, at = _learn(lower, at, ends, samples)
    depth = np.zeros(1, dtype=np.int64)
    settled = np.full(count, -np.inf)
    given_up = np.zeros(count, dtype=bool)
    hopeless: tuple[Array, Array] | None = None
    limit = HOPELESS * min(dimension, 3)
    pieces, rounds = 1, 0
    while True:
        centre = 0.5 * low + 0.5 * high
        lower, at = _learn(lower, at, centre[:BATCH], samples)
        target = lower + slack * _size(lower - offset, scale)
        excess = np.where(given_up, -np.inf, above - target)
        open_ = np.any(excess > 0, axis=1)
        settled = np.maximum(settled, np.max(above[~open_], axis=0, initial=-np.inf))
        low, high, above, depth, excess = low[open_], high[open_], above[open_], depth[open_], excess[open_]
        if not len(low):
            return Maximum(np.where(given_up, np.inf, settled), lower, at, pieces, hopeless, not given_up.any())
        if pieces >= budget:
            upper = np.maximum(settled, np.max(above, axis=0))
            return Maximum(np.where(given_up, np.inf, upper), lower, at, pieces, hopeless, False)
        infinite = np.any(np.isinf(above) & ~given_up, axis=1)
        lost = infinite & (depth >= limit)
        if lost.any():
            row = int(np.argmax(lost))
            hopeless = hopeless or (low[row], high[row])
            given_up = given_up | np.any(np.isinf(above[lost]), axis=0)
            settled = np.maximum(settled, np.max(above[lost], axis=0))
            keep = ~lost
            low, high, above, depth, excess = low[keep], high[keep], above[keep], depth[keep], excess[keep]
            if not len(low):
                continue
            infinite = infinite[keep]
        # Infinite pieces are followed downward, deepest first, a few at a time: one that stays infinite settles the matter.
        worst = np.max(np.where(np.isinf(excess), 0.0, excess) * scale, axis=1)
        rank = np.where(infinite, 1e300 + depth * 1e290, worst)
        chosen = np.argsort(-rank, kind="stable")
        rounds += 1
        patience = 16 * 2 ** (rounds // 32)
        allowed = min(BATCH, patience if infinite.any() else max(16, len(low) // 2))
        chosen = chosen[:allowed]
        rest = np.ones(len(low), dtype=bool)
        rest[chosen] = False
        axis, lower, at = _choose_axis(low[chosen], high[chosen], width, samples, lower, at, scale * (excess[chosen] > 0))
        new_low, new_high = halve(low[chosen], high[chosen], axis)
        new_above = np.minimum(bounds(new_low, new_high), np.concatenate([above[chosen], above[chosen]]))
        pieces += len(new_low)
        low = np.concatenate([low[rest], new_low])
        high = np.concatenate([high[rest], new_high])
        above = np.concatenate([above[rest], new_above])
        depth = np.concatenate([depth[rest], depth[chosen] + 1, depth[chosen] + 1])


def _size(lower: Array, scale: Array) -> Array:
    """The yardstick of each quantity: its own size, or a small part of the largest one's in common units."""
    finite = np.where(np.isfinite(lower), np.abs(lower), 0.0)
    largest = float(np.max(finite * scale, initial=0.0))
    return np.maximum(finite, NEGLIGIBLE * largest / scale)


def _corners(low: Array, high: Array, centre: Array) -> Array:
    """Corners (all of them up to 6 coordinates, else two) and the centre."""
    ends = mesh(list(np.stack([low, high], axis=1))) if len(low) <= 6 else np.stack([low, high])
    return np.concatenate([centre[None, :], ends])


def _learn(lower: Array, at: Array, points: Array, samples: Callable[[Array], Array]) -> tuple[Array, Array]:
    if not len(points):
        return lower, at
    found = samples(points)
    found = np.where(np.isfinite(found), found, -np.inf)
    best = np.argmax(found, axis=0)
    top = found[best, np.arange(found.shape[1])]
    better = top > lower
    return np.where(better, top, lower), np.where(better[:, None], points[best], at)


def _choose_axis(
    low: Array, high: Array, width: Array, samples: Callable[[Array], Array], lower: Array, at: Array, weight: Array
) -> tuple[NDArray[np.intp], Array, Array]:
    """The coordinate to bisect: the one along which the unfinished quantities vary most, wide ones preferred."""
    rows, dimension = low.shape
    if dimension == 1:
        return np.zeros(rows, dtype=np.intp), lower, at
    centre, half = 0.5 * low + 0.5 * high, 0.5 * (high - low)
    relative = (high - low) / width
    steps = np.eye(dimension)[None, :, :] * half[:, None, :]
    ends = np.concatenate([centre[:, None, :] - steps, centre[:, None, :] + 0.7 * steps], axis=1)
    ends = np.clip(ends, low[:, None, :], high[:, None, :]).reshape(-1, dimension)
    found = samples(ends).reshape(rows, 2, dimension, -1)
    lower, at = _learn(lower, at, ends, samples)
    middle = samples(centre)[:, None, :]
    with np.errstate(all="ignore"):
        change = np.abs(found[:, 0] - middle) + np.abs(found[:, 1] - middle)
        change = np.where(np.isfinite(change), change, np.inf) * weight[:, None, :]
        change = np.max(np.where(np.isnan(change), 0.0, change), axis=-1)
        finite = np.where(np.isfinite(change), change, 0.0)
        top = np.maximum(np.max(finite, axis=1, keepdims=True), 1e-300)
        # Three points along an axis can miss all variation, so that width counts as well.
        score = (np.where(np.isfinite(change), change / top, 10.0) + 0.2) * relative
    return np.argmax(score, axis=1), lower, at
