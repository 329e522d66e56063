"""A callable through its values at Chebyshev points: how few evaluations tell a smooth function.

    p(z) = sum_k c_k T_k1(z_1) .. T_kD(z_D),    z in [-1, 1]^D,    points cos(pi j / 2^m): finer grids contain the coarser ones

Where the coefficients of an axis have not died away, its points are doubled, the axis with the largest tail first.  A tail below
the tolerance, and some random points where p and the function agree, say that p is the function, to about the tolerance.  Tails
must fall geometrically: those of a kink fall like k^-2, and heads that know of kinks follow it with fewer tokens.  Nothing is
proved by that: a feature between all points stays unseen.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import mesh
from maxaffine.core.deadline import check
from maxaffine.target.box import Box
from maxaffine.target.calls import Calls, Evaluate
from maxaffine.target.target import Target

FIRST = {1: 17, 2: 9, 3: 5}  # points per axis to begin with
MOST = {1: 2_049, 2: 17_000, 3: 40_000}  # points in all
EASY = {1: 257, 2: 4_300, 3: 5_000}  # beyond which a tail must have fallen to go on
FALLEN = 0.2  # what the last doubling of an axis must have left of its tail then
STEEP = 25.0  # times smaller than half way that a tail is: k^-4 falls by 16
LOOKS = 48  # random points at which function and interpolant are compared
AGREES = 4.0  # times the tolerance that they may be apart there
GROWN = 0.7  # of the points allowed, where there is a limit: for grid and looks
PIECES = 1 << 22  # numbers that evaluating holds at once
DUST = 1e-3  # of the tolerance: what coefficients left out may add up to


@dataclass(frozen=True)
class Interpolant:
    """Coefficients (n_1, .., n_D, d_out, n_out) on a box, how far it is off at the points looked at (L,), and whether it does."""

    box: Box
    coefficients: Array
    residual: Array
    resolved: bool

    def ask(self, points: Array, evaluate: Evaluate) -> Array:
        """p in the place of the function."""
        return self(points)

    def __call__(self, points: Array) -> Array:
        """p at points (B, D) -> (B, d_out, n_out)."""
        D, shape = self.box.dimension, self.coefficients.shape
        z = np.clip((2.0 * points - self.box.low - self.box.high) / self.box.width, -1.0, 1.0)
        step = max(1, PIECES // (self.coefficients.size // shape[0] + sum(shape[:D])))
        out = np.empty((len(z), *shape[D:]))
        for start in range(0, len(z), step):
            some = z[start : start + step]
            first = np.polynomial.chebyshev.chebvander(some[:, 0], shape[0] - 1)
            found = first @ self.coefficients.reshape(shape[0], -1)
            for e in range(1, D):
                T = np.polynomial.chebyshev.chebvander(some[:, e], shape[e] - 1)
                found = np.einsum("bn,bnr->br", T, found.reshape(len(some), shape[e], -1))
            out[start : start + step] = found.reshape(len(some), *shape[D:])
        return out

    @property
    def is_local(self) -> bool:
        """Whether the error sits at few places: elsewhere cells of a tree could be large."""
        largest = float(self.residual.max(initial=0.0))
        return bool(np.mean(self.residual > 0.1 * largest) < 0.5) if largest > 0.0 else True


def first_points(target: Target) -> Array:
    """The points that everything begins with, (B, D): fewer where few calls are allowed."""
    box, most = target.box, target.calls.most if isinstance(target.calls, Calls) else None
    if box.dimension not in FIRST:
        count = 256 if most is None else min(256, most // 4)
        return np.concatenate([box.centre[None], box.sample(count - 1, np.random.default_rng(0))])
    return grid(box, _first(box.dimension, most))


def _first(D: int, most: int | None) -> list[int]:
    """Points per axis to begin with: at most half of those allowed."""
    n = FIRST[D]
    while most is not None and n > 3 and n**D > most / 2:
        n = (n + 1) // 2
    return [n] * D


def grid(box: Box, counts: list[int]) -> Array:
    """The product of Chebyshev points, ends included, in the box."""
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0
    z = mesh([np.cos(np.pi * (np.arange(n) / (n - 1))) for n in counts])
    return np.asarray(np.clip(middle + half * z, box.low, box.high))


def interpolate(target: Target, tolerance: float, allowed: int | None = None) -> Interpolant:
    """The interpolant of a callable of up to three variables, from at most GROWN of the points that are allowed in all."""
    box, D = target.box, target.box.dimension
    looks = LOOKS if allowed is None else min(LOOKS, allowed // 8)
    most = MOST[D] if allowed is None else min(int(GROWN * allowed) - looks, MOST[D])
    counts, before = _first(D, allowed), [np.inf] * D
    x = box.sample(looks, np.random.default_rng(11))
    exact: Array | None = None
    while True:
        check()
        coefficients = _coefficients(target.values(grid(box, counts)), counts)
        tails, halfway = zip(*(_tails(coefficients, e) for e in range(D)), strict=True)
        small = [
            tail <= tolerance and (n <= FIRST[D] or STEEP * tail <= half)
            for n, tail, half in zip(counts, tails, halfway, strict=True)
        ]
        worst = int(np.argmax(tails if all(small) else np.where(small, -1.0, tails)))
        if all(small):
            exact = target.values(x) if exact is None else exact
            made = _judged(box, coefficients, x, exact, tolerance)
            if made.resolved:
                return made
        finer = [2 * n - 1 if e == worst else n for e, n in enumerate(counts)]
        slow = np.prod(finer) > EASY[D] and not tails[worst] <= FALLEN * before[worst]
        if np.prod(finer) > most or slow:
            break
        counts, before[worst] = finer, tails[worst]
    exact = target.values(x) if exact is None else exact
    return _judged(box, coefficients, x, exact, 0.0)


def _judged(box: Box, coefficients: Array, x: Array, exact: Array, tolerance: float) -> Interpolant:
    """The interpolant without its dust, compared at points."""
    made = Interpolant(box, coefficients, np.empty(0), False)
    residual = np.abs(made(x) - exact).reshape(len(x), -1).max(axis=1)
    resolved = bool(residual.max() <= AGREES * tolerance)
    return Interpolant(box, _trimmed(coefficients, box.dimension, DUST * tolerance), residual, resolved)


def _coefficients(values: Array, counts: list[int]) -> Array:
    """Of values (B, d_out, n_out) on the grid, (n_1, .., n_D, d_out, n_out)."""
    found = values.reshape(*counts, *values.shape[1:])
    for e, n in enumerate(counts):
        angle = np.outer(np.arange(n), np.arange(n)) % (2 * (n - 1))
        matrix = np.cos(np.pi * (angle / (n - 1))) * (2.0 / (n - 1))
        matrix[:, [0, -1]] *= 0.5
        matrix[[0, -1]] *= 0.5
        found = np.moveaxis(np.tensordot(matrix, found, axes=(1, e)), 0, e)
    return np.asarray(found)


def _tails(coefficients: Array, e: int) -> tuple[float, float]:
    """The largest sum over a coefficient of an axis, among its last ones and among those half way."""
    slices = np.abs(np.moveaxis(coefficients, e, 0)).reshape(coefficients.shape[e], -1).sum(axis=1)
    n = len(slices)
    some = max(3, n // 8)
    return float(slices[-some:].max()), float(slices[max(0, n // 2 - some) : n // 2 + 1].max())


def _trimmed(coefficients: Array, D: int, dust: float) -> Array:
    """Without trailing coefficients of every axis that add up to less than `dust`."""
    for e in range(D):
        slices = np.abs(np.moveaxis(coefficients, e, 0)).reshape(coefficients.shape[e], -1).sum(axis=1)
        rest = np.cumsum(slices[::-1])[::-1]
        keep = max(1, int(np.count_nonzero(rest > dust)))
        coefficients = np.take(coefficients, range(keep), axis=e)
    return coefficients
