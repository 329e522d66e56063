"""Observed L_p errors: estimates of an integral, from random points with a standard error, or along one direction by quadrature.

Random points are drawn in pieces of the box that are graded towards the faces of a lookup's cells (the transition layers of the
softmax have width h/rho) and refined where the error varies most (jumps).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.proofs.known_error import exact_differences, sure_differences
from maxaffine.proofs.observe import FLOPS, Evaluate, Observed
from maxaffine.target.target import Target

Differences = Callable[[Array], Array]  # |layer - target| at points (n, D): (n, K)

PILOT, FIRST = 12, 400  # points that tell how the error varies on a piece that was cut, and on one of the first
FLOOR = 0.2  # the share of the points that goes by volume alone


def _without_noise(
    estimate: Callable[[Differences, bool], Observed], evaluate: Evaluate, target: Target, bound: float | None
) -> Observed:
    """What `estimate` makes of |layer - target|; where that is above the bound, without what float64 adds to the target's values.

    Intervals leave of every difference what is sure.  Where that is little, balls tell the difference, at few points (True).
    """
    seen = estimate(partial(_differences, evaluate, target), False)
    if bound is None or seen.error <= bound or target.expression is None:
        return seen
    sure = estimate(partial(sure_differences, evaluate, target), False)
    return sure if sure.error >= 0.5 * seen.error else estimate(partial(exact_differences, evaluate, target), True)


def _differences(evaluate: Evaluate, target: Target, x: Array) -> Array:
    """|layer - target| in float64: (n, K)."""
    return np.abs(evaluate(x).astype(np.float64) - target.values(x)).reshape(len(x), -1)


def observe_integral(
    evaluate: Evaluate, target: Target, layer: AnyLayer, p: float, seed: int, flops: int, bound: float | None = None
) -> Observed:
    """The L_p error by stratified sampling, with its standard error; where that is above the bound, judged by enclosures."""

    def estimate(differences: Differences, few: bool) -> Observed:
        budget = 20_000 if few else int(np.clip(4 * FLOPS / max(flops, 1), 20_000, 400_000))
        return _stratified(differences, layer, p, seed, budget)

    return _without_noise(estimate, evaluate, target, bound)


def _stratified(differences: Differences, layer: AnyLayer, p: float, seed: int, budget: int) -> Observed:
    """The L_p error by stratified sampling, with its standard error.

    Half of the points find pieces of the box on which the error varies little.  The sum over these is no good estimate where the
    target jumps: a jump that no point of a piece has seen is left out, and one that was seen is what the piece was cut for.  So
    fresh points are drawn, more where the error varies: whatever the pieces are, the mean of these is right, and how far it may
    be off is seen from the points themselves.
    """
    rng = np.random.default_rng(seed)

    def draw(low: Array, high: Array, count: NDArray[np.int64]) -> _Strata:
        return _drawn(differences, low, high, p, count, rng)

    low, high, varies, spent = _refined(draw, layer, budget)
    volume = np.prod(high - low, axis=1)
    share = (1.0 - FLOOR) * varies / max(float(varies.sum()), 1e-300) + FLOOR * volume / float(volume.sum())
    found = draw(low, high, 2 + (max(0, budget - spent - 2 * len(low)) * share).astype(np.int64))
    total = (volume[:, None] * found.mean).sum(axis=0)
    doubt = np.sqrt((volume[:, None] ** 2 * found.variance / found.count[:, None]).sum(axis=0))
    k = int(total.argmax())
    error = float(total[k]) ** (1.0 / p)
    standard = error * float(doubt[k]) / (p * float(total[k])) if total[k] > 0.0 else 0.0
    return Observed(error, found.at, spent + int(found.count.sum()), seed, p, standard)


@dataclass(frozen=True)
class _Strata:
    """|layer - target|^p on pieces of the box, each with as many points as it was given: (n, K)."""

    count: NDArray[np.int64]
    mean: Array
    variance: Array
    at: tuple[float, ...]


def _drawn(
    differences: Differences, low: Array, high: Array, p: float, count: NDArray[np.int64], rng: np.random.Generator
) -> _Strata:
    """Points drawn in every piece, two of them at least."""
    owner = np.repeat(np.arange(len(low)), count)
    points = low[owner] + rng.random((len(owner), low.shape[1])) * (high - low)[owner]
    away = differences(points)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    mean = np.add.reduceat(away**p, first, axis=0) / count[:, None]
    variance = np.add.reduceat((away**p - mean[owner]) ** 2, first, axis=0) / (count - 1)[:, None]
    return _Strata(count, mean, variance, tuple(float(v) for v in points[int(away.max(axis=1).argmax())]))


def _refined(
    draw: Callable[[Array, Array, NDArray[np.int64]], _Strata], layer: AnyLayer, budget: int
) -> tuple[Array, Array, Array, int]:
    """Pieces, how much the error varies on each (times its volume), and the points spent: the worst ones are cut in two."""
    low, high = _graded_pieces(layer)
    found = draw(low, high, np.full(len(low), np.clip(budget // (4 * len(low)), 2, FIRST)))
    varies, spent = _spread(found, low, high), int(found.count.sum())
    while True:
        order = np.argsort(-varies)
        most = int(np.searchsorted(np.cumsum(varies[order]), 0.5 * varies.sum())) + 1
        worst = order[: max(0, min(most, (budget // 2 - spent) // (2 * PILOT)))]
        if len(worst) == 0 or not varies[worst[0]] > 0.0:
            return low, high, varies, spent
        cut_low, cut_high = boxes.halve(low[worst], high[worst])
        found = draw(cut_low, cut_high, np.full(len(cut_low), PILOT))
        spent += int(found.count.sum())
        # A few points may not see what more of them saw on the whole: half of that is expected on a half, a quarter is kept.
        spread = np.maximum(_spread(found, cut_low, cut_high), np.tile(varies[worst], 2) / 4.0)
        kept = np.ones(len(low), dtype=bool)
        kept[worst] = False
        low, high = np.concatenate([low[kept], cut_low]), np.concatenate([high[kept], cut_high])
        varies = np.concatenate([varies[kept], spread])


def _spread(found: _Strata, low: Array, high: Array) -> Array:
    return np.asarray(np.sqrt(found.variance.max(axis=1)) * np.prod(high - low, axis=1))


def observe_along(
    evaluate: Evaluate, target: Target, nodes: Array, row: Array, p: float, seed: int, bound: float | None = None
) -> Observed:
    """The L_p error where it depends on t = row . x alone, by four Gauss points between neighbouring nodes (n, D) of a line.

    Between nodes that close in on a jump by a constant factor the error falls like exp(-t): four points see that, two ends do
    not.  An x of the box, drawn at random, has the density of t for its weight.
    """
    at, weight = np.polynomial.legendre.leggauss(4)
    step = np.diff(nodes, axis=0)
    x = (nodes[:-1, None] + (0.5 + 0.5 * at)[:, None] * step[:, None]).reshape(-1, nodes.shape[1])
    x = np.clip(x, target.box.low, target.box.high)
    measure = (0.5 * weight * np.abs(step @ row)[:, None]).ravel() * _density(x @ row, row, target) * target.box.volume

    def estimate(differences: Differences, few: bool) -> Observed:
        away = differences(x)
        worst = int(away.max(axis=1).argmax())
        error = float((away**p * measure[:, None]).sum(axis=0).max()) ** (1.0 / p)
        return Observed(error, tuple(float(v) for v in x[worst]), len(x), seed, p)

    return _without_noise(estimate, evaluate, target, bound)


DRAWN = 1 << 14  # points from which the density along a direction is found


def _density(t: Array, row: Array, target: Target) -> Array:
    """The density of row . x at t, x uniform in the box: uniform along the longest side, the mean over where the others are."""
    box, lead = target.box, int(np.abs(row * target.box.width).argmax())
    others = np.flatnonzero((row != 0.0) & (np.arange(len(row)) != lead))
    primes = [n for n in range(2, 20 * len(others) + 2) if all(n % m for m in range(2, math.isqrt(n) + 1))]
    rest = np.zeros(DRAWN)
    for prime, i in zip(primes, others, strict=False):  # Weyl's sequence: roots of primes are independent
        rest += row[i] * (box.low[i] + (0.5 + np.arange(DRAWN) * math.sqrt(prime)) % 1.0 * box.width[i])
    rest.sort()
    half = abs(float(row[lead])) * float(box.width[lead]) / 2.0
    shift = t - float(row[lead] * box.centre[lead])
    slack = 1e-12 * (half + np.abs(shift))
    inside = np.searchsorted(rest, shift + half + slack, "right") - np.searchsorted(rest, shift - half - slack, "left")
    return np.asarray(inside / (len(rest) * 2.0 * half))


def _graded_pieces(layer: AnyLayer) -> tuple[Array, Array]:
    """Cells cut per axis at their transition layers, as boxes; whole cells where there are too many.  Else a coarse grid."""
    D = layer.dimension
    if layer.grouped:
        return boxes.grid(layer.low, layer.high, max(2, round(1024 ** (1.0 / D))))  # about a thousand
    rho = layer.sharpness
    inner = min(0.25, 6.0 / rho)
    cuts = np.array([-0.5, -0.5 + inner, 0.0, 0.5 - inner, 0.5]) if layer.keys.count * 4**D <= 300_000 else np.array([-0.5, 0.5])
    lows, highs = [], []
    for i in range(D):
        sites = np.arange(layer.keys.shape[i]) - (layer.keys.shape[i] - 1) / 2.0
        scale, centre = layer.coordinates.matrix[i, i], layer.coordinates.centre[i]
        lows.append(np.clip(centre + (sites[:, None] + cuts[:-1]).ravel() / scale, layer.low[i], layer.high[i]))
        highs.append(np.clip(centre + (sites[:, None] + cuts[1:]).ravel() / scale, layer.low[i], layer.high[i]))
    return boxes.mesh(lows), boxes.mesh(highs)
