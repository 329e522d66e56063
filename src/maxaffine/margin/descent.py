"""Gradient descent on the query: plain, p += eta (-grad L), and normalised, p += eta (-grad L)/|grad L|, in the log domain.

Normalised descent has |p| = eta t + O(1) and 1 - cos = O(1/t^2); it goes on at any |p|, since no weight underflows.
"""

from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.gradient import pull
from maxaffine.margin.losses import loss_of
from maxaffine.margin.problem import Tokens
from maxaffine.margin.trajectory import Trajectory


def ngd(
    problem: Tokens, loss: str = "log", start: Any = None, step: float = 0.1, steps: int = 1000, every: int = 1
) -> Trajectory:
    """Normalised gradient descent; every so many steps are kept, and the last."""
    return _descend(problem, loss, start, step, steps, every, normalised=True)


def gd(problem: Tokens, loss: str = "log", start: Any = None, step: float = 0.1, steps: int = 1000, every: int = 1) -> Trajectory:
    """Gradient descent with a constant step: it is slow, 1 - cos falls like 1/log^2(step steps)."""
    return _descend(problem, loss, start, step, steps, every, normalised=False)


def ends(problem: Tokens, loss: str, starts: Array, step: float = 0.1, steps: int = 1000) -> Array:
    """Where normalised descent from many starts (B, d) is after so many steps."""
    _check(step, steps)
    chosen, p = loss_of(loss), np.array(starts, dtype=np.float64)
    for _ in range(steps):
        p += step * pull(problem.keys, problem.scores, chosen, p).direction
    return p


def _descend(problem: Tokens, loss: str, start: Any, step: float, steps: int, every: int, normalised: bool) -> Trajectory:
    _check(step, steps)
    chosen = loss_of(loss)
    p = np.zeros(problem.shape[2]) if start is None else problem.query(start, "start").copy()
    kept, when = [p.copy()], [0]
    for t in range(1, steps + 1):
        found = pull(problem.keys, problem.scores, chosen, p)
        p += (step if normalised else step * float(np.exp(found.log_size))) * found.direction
        if t % every == 0 or t == steps:
            kept.append(p.copy())
            when.append(t)
    return Trajectory(problem, loss, np.array(when, dtype=np.float64), np.array(kept))


def _check(step: float, steps: int) -> None:
    if not (np.isfinite(step) and step > 0):
        raise BadInput(f"`step` (={step:g}) must be a positive number, such as 0.1.")
    if steps < 1:
        raise BadInput(f"`steps` (={steps}) must be at least 1.")
