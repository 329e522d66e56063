"""The largest error that a way to run a layer surely has: many starts, climbing, and judgement by balls.

Climbing uses float64 values of the target.  The highest points are judged by balls: what counts is a lower bound of
|answer(x) - f(x')|, x' = x or a real number that is rounded to x.  Where a certificate speaks of entries, the entries are all
there is; in L_p an estimate less five standard errors counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from maxaffine.attack.domain import EVERYWHERE, Domain
from maxaffine.attack.starts import start_points
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.proofs.known_error import known_errors
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Run = Callable[[Array], Array]  # points (B, D) -> answers (B, K)
Cells = tuple[Array, Array]  # low and high (C, D)

JUDGED, EXACT = 6, 2
EXACT_TOKENS = 400  # beyond this many, the exact value takes too long to be asked for at every judged point
SURE, DRAWS = 5.0, 8  # standard errors taken off an estimate of an integral, and points in every cell
NOISE = 1e-13  # of float64 values of a callable, which nothing encloses


@dataclass(frozen=True)
class Effort:
    """How hard to look, per way: points to start from, climbers, tries of each and rounds; points of an integral."""

    starts: int = 3000
    climbers: int = 16
    tries: int = 6
    rounds: int = 30
    integral: int = 60_000

    def less(self, slow: float) -> Effort:
        """For a way whose points cost `slow` times as much."""
        if slow <= 4.0:
            return self
        return Effort(max(200, int(self.starts * 4 / slow)), max(4, self.climbers // 3), max(3, self.tries // 2), self.rounds,
                      max(2000, int(self.integral * 2 / slow)))  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The largest error that is sure, where, over how many points, and of what."""

    error: float = 0.0
    at: tuple[float, ...] = ()
    points: int = 0
    through: str = ""


def narrowed(x: Array, low: Array, high: Array) -> Array:
    """The points as float32 numbers of the box."""
    found = x.astype(np.float32)
    up, down = np.nextafter(found, np.float32(np.inf)), np.nextafter(found, np.float32(-np.inf))
    wide = found.astype(np.float64)
    return np.asarray(np.where(wide > high, down, np.where(wide < low, up, found)).astype(np.float64))


def running(layer: Any, runtime: str | None = None, reserve: float | None = None) -> Run:
    """A layer in one runtime."""

    def run(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return chooser.evaluate(layer, x, runtime, reserve).astype(np.float64).reshape(len(x), -1)

    return run


def worst_point(
    layer: Any, target: Target, rng: np.random.Generator, runtime: str, domain: Domain = EVERYWHERE, reserve: float | None = None
) -> Found:
    """The largest sure error of one runtime, and of the exact value of the stored numbers."""
    pool, run = start_points(layer, target, domain, rng), running(layer, runtime, reserve)
    return worst(run, layer, target, domain, pool, rng, Effort(4000, 16, 8, 26), through=runtime, exact=layer.grouped)


def worst(
    run: Run, layer: Any, target: Target, domain: Domain, pool: Array, rng: np.random.Generator, effort: Effort,
    *, narrow: bool = False, through: str = "", exact: bool = False, relative: bool = False,
) -> Found:  # fmt: skip
    """The largest sure error in the sup norm from points of `pool`; `narrow`: x are float32 numbers; `relative`: to |f(x)|.

    `exact`: the value of the stored numbers in 320 bits is judged as well.
    """
    seen = 0

    def fitted(x: Array) -> Array:
        x = np.clip(x, layer.low, layer.high)
        return narrowed(x, layer.low, layer.high) if narrow else x

    def height(x: Array) -> Array:
        nonlocal seen
        seen += len(x)
        with np.errstate(all="ignore"):
            exact_values = target.values(x).reshape(len(x), -1)
            away = np.abs(run(x) - exact_values)
            away = (away / np.abs(exact_values) if relative else away).max(axis=1)
        return np.where(domain.keeps(x), np.where(np.isnan(away), np.inf, away), -1.0)

    x = fitted(pool[rng.choice(len(pool), min(effort.starts, len(pool)), replace=False)])
    heights = height(x)
    best = np.argsort(-heights, kind="stable")
    others = rng.choice(best[: 20 * effort.climbers], min(len(best), effort.climbers) // 2, replace=False)
    best = np.concatenate([best[: effort.climbers - len(others)], others])
    x, heights = x[best], heights[best]
    step = (layer.high - layer.low) / 8.0
    for _ in range(effort.rounds):
        moves = rng.normal(size=(effort.tries, *x.shape)) * step * 10.0 ** rng.uniform(-12.0, 0.0, (effort.tries, len(x), 1))
        moves[::2] *= rng.random(moves[::2].shape) < max(0.5, 1.0 / x.shape[1])
        trial = fitted((x + moves).reshape(-1, x.shape[1]))
        tried = height(trial).reshape(effort.tries, len(x))
        pick, top = tried.argmax(axis=0), tried.max(axis=0)
        x = np.where((top > heights)[:, None], trial.reshape(moves.shape)[pick, np.arange(len(x))], x)
        heights, step = np.maximum(heights, top), step * 0.8
    order = np.argsort(-heights, kind="stable")[:JUDGED]
    order = order[[heights[i] >= 0.0 and domain.surely(x[i]) for i in order]]
    if not len(order):
        return Found(0.0, tuple(map(float, x[0])), seen, through)
    x, heights = x[order], heights[order]
    if target.expression is None:
        size = np.abs(target.values(x).reshape(len(x), -1)).max(axis=1)
        sure = np.maximum(heights - NOISE * (1.0 + size), 0.0)
    else:
        sure = known_errors(run, target, x, relative)
        if domain.real and not domain.strips and not narrow and not relative:
            sure = np.maximum(sure, [_between(run, layer, target, point, rng) for point in x])
    top = int(sure.argmax())
    found = Found(float(sure[top]), tuple(map(float, x[top])), seen, through)
    for point in x[:EXACT] if exact and target.expression is not None and layer.work <= EXACT_TOKENS else ():
        error = exact_error(layer, target, [flint.arb(float(v)) for v in point])
        if error > found.error:
            found = Found(error, tuple(map(float, point)), seen, "exact")
    return found


def _between(run: Run, layer: Any, target: Target, point: Array, rng: np.random.Generator) -> float:
    """The largest error at a point against the target at real numbers of the box that a query would round to it."""
    assert target.expression is not None
    out, found = run(point[None])[0], 0.0
    with balls.precision(128):
        for real in _rounded_to(point, layer, rng):
            for value, ball in zip(out, target.expression.enclose_ball([flint.acb(v) for v in real]), strict=True):
                if ball.is_finite() and np.isfinite(value):
                    low, high = balls.bounds(abs(ball.real - flint.arb(float(value))))
                    found = max(found, low if np.isfinite(high) else 0.0)
                elif not np.isfinite(value):
                    found = math.inf
    return found


def _rounded_to(point: Array, layer: Any, rng: np.random.Generator) -> Iterator[list[flint.arb]]:
    for _ in range(2):
        real = []
        for v, low, high in zip(point, layer.low, layer.high, strict=True):
            sign = rng.choice([-1.0, 1.0])
            shift = flint.arb(float(np.spacing(v))) * flint.arb(float(sign * 0.4999))
            inside = (v > low or sign > 0) and (v < high or sign < 0)
            real.append(flint.arb(float(v)) + shift if inside else flint.arb(float(v)))
        yield real


def exact_error(layer: Any, target: Target, real: list[Any]) -> float:
    """A lower bound of |F - f| at a real point, F the stored numbers in 320 bits."""
    assert target.expression is not None
    with balls.precision(320):
        found = 0.0
        outputs = target.expression.enclose_ball([flint.acb(v) for v in real])
        for value, ball in zip(exact_value(layer, real), outputs, strict=True):
            if ball.is_finite() and value.is_finite():
                found = max(found, balls.bounds(abs(ball.real - value))[0])
        return found


def cells_of(run: Run, target: Target, p: float, rng: np.random.Generator, count: int) -> Cells:
    """Cells of the box, halved where the power of the error varies most."""
    box = target.box
    low, high = box.low[None].copy(), box.high[None].copy()
    while len(low) < count // 4:
        low, high = _halved(low, high, np.arange(len(low)), box.width)
    while len(low) < count:
        x = rng.uniform(low[:, None], high[:, None], (len(low), 4, box.dimension)).reshape(-1, box.dimension)
        away = np.abs(run(x) - target.values(x).reshape(len(x), -1)).max(axis=1) ** p
        spread = np.prod(high - low, axis=1) * away.reshape(-1, 4).std(axis=1)
        cut = np.argsort(-spread, kind="stable")[: max(1, min(len(low) // 8, count - len(low)))]
        low, high = _halved(low, high, cut, box.width)
    return low, high


def _halved(low: Array, high: Array, which: NDArray[np.intp], sides: Array) -> Cells:
    """Cells of `which` cut in two along their longest side, in units of `sides`."""
    axis = ((high - low)[which] / sides).argmax(axis=1)
    left, right = high.copy(), low[which].copy()
    middle = (low[which, axis] + high[which, axis]) / 2.0
    left[which, axis] = middle
    right[np.arange(len(which)), axis] = middle
    return np.concatenate([low, right]), np.concatenate([left, high[which]])


def integrated(run: Run, target: Target, p: float, cells: Cells, rng: np.random.Generator, narrow: bool = False) -> Found:
    """The L_p error, less five standard errors: as many random points in every cell, drawn after the cells were fixed."""
    x, volume = drawn(target, cells, rng, narrow)
    away = np.abs(run(x) - target.values(x).reshape(len(x), -1)).max(axis=1)
    powers = (away**p).reshape(DRAWS, -1)
    scatter = math.sqrt(float((volume**2 * powers.var(axis=0, ddof=1) / DRAWS).sum()))
    least = max(0.0, float((volume * powers.mean(axis=0)).sum()) - SURE * scatter)
    return Found(least ** (1.0 / p), (), len(x), "integral")


def drawn(target: Target, cells: Cells, rng: np.random.Generator, narrow: bool = False) -> tuple[Array, Array]:
    """Points (DRAWS * C, D), one draw of all cells after the other, and the volumes of the cells (C,)."""
    low, high = cells
    x = np.concatenate([rng.uniform(low, high) for _ in range(DRAWS)])
    x = np.clip(x, target.box.low, target.box.high)
    return narrowed(x, target.box.low, target.box.high) if narrow else x, np.prod(high - low, axis=1)


def at_entries(run: Run, data: Any, narrow: bool = False) -> Found:
    """The largest error at the entries of a table or of samples, those alone that float32 holds where x is narrow."""
    found, seen = Found(), 0
    for x, values in data.blocks():
        keep = np.isfinite(values.reshape(len(x), -1)).all(axis=1)
        keep &= (x.astype(np.float32).astype(np.float64) == x).all(axis=1) if narrow else True
        x, values = x[keep], values.reshape(len(keep), -1)[keep]
        seen += len(x)
        if len(x):
            away = np.nextafter(np.abs(run(x) - values).max(axis=1), 0.0)
            away = np.where(np.isnan(away), np.inf, away)
            if away.max() > found.error:
                found = Found(float(away.max()), tuple(map(float, x[int(away.argmax())])), through="entries")
    return Found(found.error, found.at, seen, "entries")
