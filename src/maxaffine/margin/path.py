"""The regularisation path: p_R = argmin of L over |p| <= R, followed to any R in the log domain.

    stationary on the sphere:  p = R u(p),  u = -grad L / |grad L|

The least loss at the first radius is found by descent from many starts (which proves nothing about being the least), then the
stationary point is followed: predicted by the last two, corrected by a root finder. In the end p_R = s p_mm + offset + o(1), on
the same line as gradient flow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import root

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.margin.gradient import gap, log_attention, pull
from maxaffine.margin.losses import Loss, loss_of
from maxaffine.margin.problem import Tokens

GROWTH = 1.25  # of the radius from one corrected point to the next
STARTS = 24


@dataclass(frozen=True)
class RegularisationPath:
    """p_R at the radii asked for."""

    problem: Tokens
    loss: str
    radii: Array
    p: Array

    @property
    def selected(self) -> AnyArray:
        """The tokens preferred at the largest radius."""
        found: AnyArray = log_attention(self.problem.keys, self.p[-1]).argmax(axis=-1)
        return found

    def offset(self, direction: Array) -> Array:
        """The part of every p_R across a direction."""
        unit = direction / np.linalg.norm(direction)
        found: Array = self.p - np.outer(self.p @ unit, unit)
        return found


def regularisation_path(problem: Tokens, radii: Sequence[float], loss: str = "log", seed: int = 0) -> RegularisationPath:
    """Follow the path through these radii."""
    wanted = np.array(sorted(radii), dtype=np.float64)
    if not (wanted.size and np.isfinite(wanted).all() and wanted[0] > 0):
        raise BadInput("`radii` must be one or more positive numbers.")
    chosen = loss_of(loss)
    p, last = _first(problem, chosen, float(wanted[0]), seed), None
    at, found = float(wanted[0]), [p]
    for radius in wanted[1:]:
        count = max(1, int(np.ceil(np.log(radius / at) / np.log(GROWTH))))
        for R in np.geomspace(at, radius, count + 1)[1:]:
            p, last = _next(problem, chosen, float(R), p, last), p
        at = float(radius)
        found.append(p)
    return RegularisationPath(problem, loss, wanted, np.array(found))


def _unit(problem: Tokens, loss: Loss, p: Array) -> Array:
    found: Array = pull(problem.keys, problem.scores, loss, p).direction
    return found


def _first(problem: Tokens, loss: Loss, R: float, seed: int) -> Array:
    """The best of many descents on the sphere of radius R, corrected."""
    directions = np.random.default_rng(seed).standard_normal((STARTS, problem.shape[2]))
    p = R * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    for size in np.geomspace(0.3 * R, 1e-4 * R, 300):
        p = p + size * pull(problem.keys, problem.scores, loss, p).direction
        p *= R / np.linalg.norm(p, axis=1, keepdims=True)
    values = gap(problem.keys, problem.scores, loss, p, problem.best)
    return _corrected(problem, loss, R, p[int(values.argmin())])


def _next(problem: Tokens, loss: Loss, R: float, p: Array, last: Array | None) -> Array:
    at = float(np.linalg.norm(p))
    if last is None:
        return _corrected(problem, loss, R, p * R / at)
    guess = p + (p - last) * (R - at) / (at - float(np.linalg.norm(last)))
    return _corrected(problem, loss, R, guess * R / np.linalg.norm(guess))


def _corrected(problem: Tokens, loss: Loss, R: float, guess: Array) -> Array:
    """The stationary point near the guess: p - R u(p) = 0."""
    for method in ("hybr", "lm"):
        done = root(lambda p: p / R - _unit(problem, loss, p), guess, method=method, tol=1e-13)
        found = np.asarray(done.x)
        if np.linalg.norm(found / R - _unit(problem, loss, found)) < 1e-8 and found @ guess > 0.9 * R * R:
            return found
    raise Refused(f"the regularisation path could not be followed to R = {R:.4g}, where minima compete; begin at a larger R.")
