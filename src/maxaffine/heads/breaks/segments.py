"""Breaks of a callable on many segments through a box at once: found by zooming, told apart by exponents; never proved.

A window of a segment is zoomed in on its largest third difference.  At step h that behaves like h^3 where the function is smooth,
like h^2 where its second derivative jumps, like h at a kink, like h^0 at a jump, and like a power below 1 at a cusp.  What lies
below the noise of the function's own arithmetic counts for nothing, and windows that are seen to be smooth are given up early,
so that a smooth function costs a few thousand values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array

Rows = NDArray[np.intp]
Function = Callable[[Array], Array]  # points (M, D) of [-1, 1]^D -> (M,)

STENCIL = 13
LEVELS = 18
FAST = 2.45  # exponents from here on are smooth
STEP, CUSP, GENTLE = 0.3, 0.8, 1.5  # below: jumps, cusps, kinks; above, jumps of the second derivative
CLEAR = 2.0  # exponents below are no smooth function's
REACHES = (1e-1, 2e-2, 3e-3, 3e-4, 3e-5)  # of a segment: how far polynomials are fitted on both sides of a kink
DEGREE = 6


@dataclass(frozen=True)
class Segments:
    """Segments start + t (end - start), t in [0, 1], and the function on them."""

    f: Function
    start: Array  # (S, D)
    end: Array

    def points(self, rows: Rows, t: Array) -> Array:
        """Points (n, k, D) at parameters t (n, k) of segments `rows` (n,)."""
        return np.asarray(self.start[rows][:, None] + t[..., None] * (self.end - self.start)[rows][:, None])

    def values(self, rows: Rows, t: Array) -> Array:
        """f at these points, (n, k)."""
        x = self.points(rows, t)
        return self.f(np.clip(x.reshape(-1, x.shape[-1]), -1.0, 1.0)).reshape(t.shape)


@dataclass(frozen=True)
class Breaks:
    """Where segments break: their numbers, parameters t, points x, exponents, and how much slopes jump at kinks."""

    rows: Rows
    t: Array
    x: Array  # (n, D)
    along: Array  # (n, D): end - start
    powers: Array
    kinks: Array  # per unit of t

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, keep: NDArray[np.bool_]) -> Breaks:
        """Some of them."""
        rest = (part[keep] for part in (self.t, self.x, self.along, self.powers, self.kinks))
        return Breaks(self.rows[keep], *rest)

    @classmethod
    def joined(cls, some: list[Breaks]) -> Breaks:
        """All of them, the segments of each numbered after those before."""
        shift, rows = 0, []
        for one in some:
            rows.append(one.rows + shift)
            shift += int(one.rows.max(initial=-1)) + 1
        rest = [np.concatenate([getattr(one, name) for one in some]) for name in ("t", "x", "along", "powers", "kinks")]
        return cls(np.concatenate(rows), *rest)


def random_segments(f: Function, dimension: int, count: int, rng: np.random.Generator) -> Segments:
    """Segments from wall to wall: half of them through random points, a quarter of them from near the corners."""
    D = dimension
    through, direction = rng.uniform(-1.0, 1.0, (count, D)), rng.normal(size=(count, D))
    wall = _on_walls(rng, count, D)
    corner = rng.choice([-1.0, 1.0], (count, D)) * (1.0 - 0.1 * rng.random((count, D)) ** 2)
    kind = np.arange(count) % 4
    through = np.where((kind == 2)[:, None], wall, np.where((kind == 3)[:, None], corner, through))
    direction = np.where((kind == 2)[:, None], _on_walls(rng, count, D) - wall, direction)
    direction = np.where(np.abs(direction) < 1e-6, 1e-6, direction)
    exits = np.stack([(-1.0 - through) / direction, (1.0 - through) / direction])
    first, last = exits.min(axis=0).max(axis=1), exits.max(axis=0).min(axis=1)
    start, end = through + first[:, None] * direction, through + last[:, None] * direction
    long = np.linalg.norm(end - start, axis=1) > 0.05
    return Segments(f, np.clip(start[long], -1.0, 1.0), np.clip(end[long], -1.0, 1.0))


def _on_walls(rng: np.random.Generator, count: int, D: int) -> Array:
    points = rng.uniform(-1.0, 1.0, (count, D))
    points[np.arange(count), rng.integers(0, D, count)] = rng.choice([-1.0, 1.0], count)
    return points


def noise_of(f: Function, dimension: int, rng: np.random.Generator) -> float:
    """How far values are from smooth ones: third differences at tiny steps, at points that are seldom breaks."""
    x = rng.uniform(-0.99, 0.99, (40, dimension))
    direction = rng.normal(size=(40, dimension))
    direction /= np.abs(direction).max(axis=1, keepdims=True)
    steps = np.array([1e-9, 1e-7, 1e-6])
    points = x[:, None, None] + (steps[:, None] * np.arange(4.0))[..., None] * direction[:, None, None]
    values = f(points.reshape(-1, dimension)).reshape(40, 3, 4)
    third = np.abs(np.diff(values, 3, axis=2)).max(axis=1)[:, 0]
    size = float(np.abs(values).max())
    return max(64.0 * float(np.finfo(np.float64).eps) * size, 8.0 * float(np.quantile(third, 0.8)), 1e-290)


def breaks_of(segments: Segments, windows: int, noise: float, error: float, strict: bool = True, levels: int = LEVELS) -> Breaks:
    """The breaks that windows of the segments show, larger than the noise and than the error can tell; `strict` as `located`."""
    S = len(segments.start)
    rows = np.repeat(np.arange(S), windows)
    step = 1.0 / windows
    edges = np.tile(np.arange(windows) * step, S)
    a, b = np.maximum(edges - 0.15 * step, 0.0), np.minimum(edges + 1.15 * step, 1.0)
    steps, sizes = np.full((levels, len(rows)), np.nan), np.zeros((levels, len(rows)))
    alive = np.arange(len(rows))
    for level in range(levels):
        lo, hi = a[alive], b[alive]
        t = lo[:, None] + (hi - lo)[:, None] * np.linspace(0.0, 1.0, STENCIL)
        third = np.abs(np.diff(segments.values(rows[alive], t), 3))
        best, h = third.argmax(axis=1), (hi - lo) / (STENCIL - 1)
        steps[level, alive], sizes[level, alive] = h, third.max(axis=1)
        a[alive], b[alive] = np.maximum(lo + h * (best - 0.5), 0.0), np.minimum(lo + h * (best + 3.5), 1.0)
        loud = sizes[level, alive] > noise
        if level == 0:
            loud &= sizes[0, alive] > max(20.0 * noise, 1e-3 * error)
        else:
            loud |= sizes[level - 1, alive] > 8.0 * noise  # a kink has three loud levels more at least
        if level >= 2:  # two steps by 3 each: smooth is 729, a jump of the second derivative 81
            loud &= sizes[level, alive] > sizes[level - 2, alive] * 9.0**-FAST * 0.5
        alive = alive[loud]
        if not len(alive):
            break
    powers = exponents(steps, sizes, noise)
    at = (a + b) / 2.0
    broken = (powers < FAST) & (sizes[0] > 0) & (at > 1e-5) & (at < 1.0 - 1e-5)
    jumps = powers < STEP
    last = np.array([column[column > noise][-1] if (column > noise).any() else 0.0 for column in sizes.T])
    broken &= ~jumps | (last > max(0.02 * error, 50.0 * noise))
    rows, at, powers = rows[broken], at[broken], powers[broken]
    order = np.lexsort((at, rows))
    rows, at, powers = rows[order], at[order], powers[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (np.diff(rows) > 0) | (np.diff(at) > 1e-6)
    return located(segments, rows[first], at[first], powers[first], strict)


def exponents(steps: Array, sizes: Array, noise: float) -> Array:
    """The slope of log(third difference) against log(step) over the last four loud levels; smooth where there are fewer."""
    found = np.full(sizes.shape[1], 3.0)
    for i in np.flatnonzero((sizes > noise).sum(axis=0) >= 5):
        last = np.flatnonzero(sizes[:, i] > noise)[-4:]
        found[i] = np.polyfit(np.log(steps[last, i]), np.log(sizes[last, i]), 1)[0]
    return found


def located(segments: Segments, rows: Rows, at: Array, powers: Array, strict: bool = True) -> Breaks:
    """The same breaks to the last digits: jumps bisected, kinks where the polynomials of their two sides meet.

    Kinks whose sides are no polynomials there are `strict`ly none; else those with a clear exponent are kept.
    """
    t, kinks = at.copy(), np.zeros(len(at))
    jumps = powers < STEP
    if jumps.any():
        t[jumps] = _bisected(segments, rows[jumps], at[jumps])
    kinked = powers >= CUSP
    if kinked.any():
        t[kinked], kinks[kinked], sure = meetings(segments, rows[kinked], at[kinked], powers[kinked] > GENTLE)
        powers = powers.copy()
        powers[np.flatnonzero(kinked)[~sure & (strict | (powers[kinked] > CLEAR))]] = 3.0
    x = segments.points(rows, t[:, None])[:, 0]
    return Breaks(rows, t, x, (segments.end - segments.start)[rows], powers, kinks).only(powers < FAST)


def _bisected(segments: Segments, rows: Rows, at: Array) -> Array:
    """Jumps between neighbouring parameters."""
    a, b = np.maximum(at - 1e-7, 0.0), np.minimum(at + 1e-7, 1.0)
    ends = segments.values(rows, np.stack([a, b], axis=1))
    for _ in range(36):
        middle = a + (b - a) / 2.0
        here = segments.values(rows, middle[:, None])[:, 0]
        left = np.abs(here - ends[:, 0]) <= np.abs(here - ends[:, 1])
        a, b = np.where(left, middle, a), np.where(left, b, middle)
    return (a + b) / 2.0


def meetings(segments: Segments, rows: Rows, at: Array, gentle: NDArray[np.bool_]) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Where polynomials fitted on both sides meet (their slopes, where `gentle`), and the jump of the slope per unit of t.

    And whether they part there far more than they miss the function, which a smooth one never does, however steep.
    """
    s = 0.02 + 0.49 * (1.0 + np.cos(np.pi * (np.arange(16) + 0.5) / 16))
    fit = np.linalg.pinv(np.vander(s, DEGREE + 1, increasing=True))  # (7, 16)
    grow = np.arange(DEGREE + 1.0)
    best = np.full(len(at), np.inf)
    t, kinks, sure = at.copy(), np.zeros(len(at)), np.zeros(len(at), dtype=bool)
    for share in REACHES:
        reach = np.minimum(share, 0.98 * np.minimum(at, 1.0 - at))
        left = segments.values(rows, at[:, None] - reach[:, None] * s)
        right = segments.values(rows, at[:, None] + reach[:, None] * s)
        p, q = left @ fit.T, right @ fit.T
        powers = np.vander(s, DEGREE + 1, increasing=True).T
        misfit = np.maximum(np.abs(p @ powers - left).max(axis=1), np.abs(q @ powers - right).max(axis=1))
        apart = q - p * (-1.0) ** grow  # q(x) - p(-x), ascending powers of x
        first = apart[:, 1:] * grow[1:]
        second = first[:, 1:] * grow[1:-1]
        x = np.zeros(len(at))
        for _ in range(12):
            basis = x[:, None] ** grow
            height, slope = (apart * basis).sum(axis=1), (first * basis[:, :-1]).sum(axis=1)
            curve = (second * basis[:, :-2]).sum(axis=1)
            step = np.where(gentle, slope / np.where(curve == 0, np.inf, curve), height / np.where(slope == 0, np.inf, slope))
            x = np.clip(x - step, -0.05, 0.05)
        slope = np.abs((first * x[:, None] ** grow[:-1]).sum(axis=1))
        curve = np.abs((second * x[:, None] ** grow[:-2]).sum(axis=1))
        clear = np.where(gentle, curve > 2e4 * misfit, slope > 500.0 * misfit)
        size = np.where(gentle, misfit / reach, misfit)
        better = (size < best) & (np.abs(x) < 0.049)
        best = np.where(better, size, best)
        t, kinks = np.where(better, at + reach * x, t), np.where(better, slope / reach, kinks)
        sure = np.where(better, clear, sure)
    return t, kinks, sure
