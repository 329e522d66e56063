"""Where a callable of many variables is asked: fibres, points spread towards centre, faces and corners, and where fits are worst.

Random points of a box of many variables all have about the same size: |x|^2 of 20 variables is 6.7 +- 1.3 and never near 0 or 20.
Points here are random, drawn towards the centre or the corners, with some coordinates on faces or in the middle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from maxaffine.core.arrays import Array

Function = Callable[[Array], Array]  # z (M, D) in [-1, 1]^D -> (M,)

RESOLUTIONS = (9, 17, 33, 65)  # points along fibres
RESOLVED = 0.75  # of the coefficients, that a resolved fibre takes
LINES = 6
CLIMBERS, TRIES, ROUNDS = 16, 6, 10


def spread(count: int, dimension: int, rng: np.random.Generator) -> Array:
    """Points (M, D): a third uniform, the others anywhere between centre and corners, some coordinates at -1, 0 or 1."""
    z = rng.uniform(-1.0, 1.0, size=(count, dimension))
    power = 2.0 ** rng.uniform(-3.0, 3.0, size=(count, 1))
    power[: count // 3] = 1.0
    z = np.sign(z) * np.abs(z) ** power
    pinned = rng.random((count, dimension)) < 0.3 * rng.random((count, 1))
    return np.where(pinned, rng.choice([-1.0, 0.0, 1.0], size=z.shape), z)


def fibres(
    f: Function, dimension: int, tolerance: float, lines: int, rng: np.random.Generator
) -> tuple[list[Array], list[float]]:
    """Chebyshev coefficients (n, lines) of f along every direction through some points, and the tail that was not resolved."""
    through = np.concatenate([np.zeros((1, dimension)), rng.choice([-1.0, 1.0], size=(lines // 3, dimension))])
    through = np.concatenate([through, rng.uniform(-1.0, 1.0, size=(lines - len(through), dimension))])
    found, tails = [], []
    for e in range(dimension):
        for n in RESOLUTIONS:
            t = np.cos(np.pi * (np.arange(n) + 0.5) / n)
            z = np.repeat(through[None], n, axis=0)
            z[:, :, e] = t[:, None]
            samples = f(z.reshape(-1, dimension)).reshape(n, lines)
            c = np.asarray(np.linalg.solve(np.polynomial.chebyshev.chebvander(t, n - 1), samples), dtype=np.float64)
            left = np.cumsum(np.abs(c).max(axis=1)[::-1])[::-1]
            if np.count_nonzero(left > tolerance) <= RESOLVED * n:
                break
        keep = max(1, int(np.count_nonzero(left > tolerance)))
        found.append(c[:keep])
        tails.append(0.0 if keep <= RESOLVED * n else float(left[int(RESOLVED * n)]))
    return found, tails


def climbed(away: Function, start: Array, heights: Array, rng: np.random.Generator, rounds: int = ROUNDS) -> tuple[Array, Array]:
    """Uphill on away, every climber by its best of some random steps per round: points and heights of everything on the way."""
    order = np.argsort(-heights)[:CLIMBERS]
    z, height, step = start[order], heights[order], 0.25
    seen, tops = [z], [height]
    for _ in range(rounds):
        moves = rng.normal(size=(TRIES, *z.shape)) * step
        moves[::2] *= rng.random(moves[::2].shape) < max(0.1, 2.0 / z.shape[1])
        trial = np.clip(z + moves, -1.0, 1.0)
        found = away(trial.reshape(-1, z.shape[1])).reshape(TRIES, len(z))
        pick, rows = found.argmax(axis=0), np.arange(len(z))
        better = found[pick, rows] > height
        z, height = np.where(better[:, None], trial[pick, rows], z), np.maximum(height, found[pick, rows])
        seen.append(z)
        tops.append(height)
        step *= 0.8
    return np.concatenate(seen), np.concatenate(tops)
