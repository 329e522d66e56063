"""The largest error of a stack that a search finds: random points, faces and corners, and climbing from the worst of them."""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.proofs.known_error import Evaluate, worst_known
from maxaffine.proofs.observe import Observed
from maxaffine.target.target import Target

POINTS, CLIMBERS, ROUNDS, STEPS = 8_192, 16, 12, 8


def observe(evaluate: Evaluate, target: Target, seed: int) -> Observed:
    """Search for the largest |stack - target|; `evaluate` maps points (B, D) to (B,)."""
    rng, low, high = np.random.default_rng(seed), target.box.low, target.box.high

    def away(x: Array) -> Array:
        return np.abs(evaluate(x) - target.values(x)[:, 0, 0])

    x = rng.uniform(low, high, size=(POINTS, len(low)))
    edge = rng.random(x.shape) < np.linspace(0.0, 1.0, POINTS)[:, None] ** 2
    x = np.where(edge, np.where(rng.random(x.shape) < 0.5, low, high), x)
    heights = away(x)
    best = np.argsort(-heights, kind="stable")[:CLIMBERS]
    tops, top_heights, spent, step = x[best], heights[best], POINTS, (high - low) / 4.0
    for _ in range(ROUNDS):
        moves = rng.normal(size=(STEPS, *tops.shape)) * step * 10.0 ** rng.uniform(-4.0, 0.0, size=(STEPS, len(tops), 1))
        moves *= rng.random(moves.shape) < max(0.3, 1.0 / math.sqrt(len(low)))
        trial = np.clip(tops + moves, low, high)
        found = away(trial.reshape(-1, len(low))).reshape(STEPS, len(tops))
        spent += found.size
        pick = found.argmax(axis=0)
        rows = np.arange(len(tops))
        better = found[pick, rows] > top_heights
        tops = np.where(better[:, None], trial[pick, rows], tops)
        top_heights = np.maximum(top_heights, found[pick, rows])
        step = step * 0.75
    everything, seen = np.concatenate([tops, x]), np.concatenate([top_heights, heights])
    error, at = worst_known(lambda z: evaluate(z)[:, None, None], target, everything, seen)
    return Observed(error, tuple(float(v) for v in at), spent, seed)
