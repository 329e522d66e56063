"""Points against a layer and judgement of an answer: where to look, how to climb, and what the target truly says there.

Climbing uses float64 values of the target.  The highest points are judged by balls: what counts is a lower bound of the error.
Where a certificate speaks of entries, the entries are all there is; in L_p an estimate less five standard errors counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.attack.adversary import _exact_error, _rounded_to, _starts
from maxaffine.attack.every_head import _halved
from maxaffine.attack.points import Domain, _near_target, domain_of
from maxaffine.compiled import Compiled
from maxaffine.export import judge
from maxaffine.proofs.known_error import known_errors
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Run = Callable[[Array], Array]

JUDGED = 4
SEEN_TOKENS = 4096  # keys up to which the places where another key takes the lead are looked for
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
    """The largest error that is sure, where, and over how many points."""

    error: float
    at: tuple[float, ...]
    points: int


def narrowed(x: Array, low: Array, high: Array) -> Array:
    """The points as float32 numbers of the box."""
    found = x.astype(np.float32)
    up, down = np.nextafter(found, np.float32(np.inf)), np.nextafter(found, np.float32(-np.inf))
    wide = found.astype(np.float64)
    return np.asarray(np.where(wide > high, down, np.where(wide < low, up, found)).astype(np.float64))


@dataclass(frozen=True)
class Near(Domain):
    """The x within `radius` of one of `centres` (N, D), by float64 values, erring on the side of leaving points out."""

    centres: tuple[tuple[float, ...], ...] = ()
    radius: float = 0.0

    def keeps(self, x: Array) -> NDArray[np.bool_]:
        """Whether a centre is near."""
        away = np.linalg.norm(x[:, None] - np.array(self.centres), axis=2).min(axis=1)
        return np.asarray(away <= self.radius * (1 - 1e-12))

    def surely(self, point: Array) -> bool:
        """The same of one point."""
        return bool(self.keeps(point[None])[0])


def speaks(compiled: Compiled) -> Domain | None:
    """The x of the box that the certificate speaks of; None where the jumps that it excludes are not found."""
    scope, layer = compiled.certificate.scope, compiled.weights
    if scope.radius is not None:
        if layer.grouped:
            return None
        centres = layer.keys.listed()[0] / layer.coordinates.matrix[0, 0] + layer.coordinates.centre
        rows = tuple(tuple(float(v) for v in row) for row in centres)
        return Near((), False, rows, scope.radius)
    if compiled.target.expression is None:
        return Domain((), False)
    return domain_of(scope, compiled.target)


def start_points(compiled: Compiled, rng: np.random.Generator, domain: Domain) -> Array:
    """Random points, ends, faces, corners, the worst point known, both sides of hand-overs and of the target's switches."""
    layer, target = compiled.weights, compiled.target
    seed = int(rng.integers(1 << 30))
    found = [judge.points(layer, compiled.observed.at, seed), _starts(layer, rng), _handing(layer, rng)]
    if target.expression is not None:
        near = _near_target(layer, target, domain, rng)  # type: ignore[arg-type]
        found += [one if len(one) <= 4000 else one[rng.choice(len(one), 4000, replace=False)] for one in near]
    if isinstance(domain, Near):  # in and on the balls about the centres
        centres = np.array(domain.centres)[rng.integers(len(domain.centres), size=2000)]
        way = rng.normal(size=centres.shape)
        size = domain.radius * np.minimum(rng.uniform(0.0, 1.6, (len(way), 1)), 1.0 - 1e-9)
        found.append(centres + size * way / np.linalg.norm(way, axis=1, keepdims=True))
    x = np.clip(np.concatenate(found), layer.low, layer.high)
    some = x[rng.choice(len(x), min(len(x), 400), replace=False)]
    ulps = [np.nextafter(some, np.where(rng.random(some.shape) < 0.5, layer.low, layer.high)) for _ in range(2)]
    return np.asarray(np.concatenate([x, *ulps]))


def _handing(layer: Any, rng: np.random.Generator) -> Array:
    """Both sides of where another key of a lookup takes the lead."""
    if layer.grouped or layer.keys.count > SEEN_TOKENS:
        return np.empty((0, layer.dimension))

    def leads(x: Array) -> NDArray[np.intp]:
        return np.asarray(chooser.attention(layer, x).argmax(axis=1))

    a, b = (rng.uniform(layer.low, layer.high, size=(48, layer.dimension)) for _ in range(2))
    before = leads(a)
    rows = np.flatnonzero(before != leads(b))
    a, b, before = a[rows], b[rows], before[rows]
    if not len(a):
        return np.empty((0, layer.dimension))
    direction = b - a
    for _ in range(55):
        middle = (a + b) / 2.0
        same = leads(middle) == before
        a, b = np.where(same[:, None], middle, a), np.where(same[:, None], b, middle)
    return np.concatenate([a + step * direction for step in (*judge.STEPS[::2], *-judge.STEPS[1::2])])


def worst(
    run: Run, compiled: Compiled, pool: Array, domain: Domain, rng: np.random.Generator, effort: Effort, narrow: bool
) -> Found:
    """The largest sure error of one way in the sup norm: from many starts, climbing, then judged."""
    layer, target = compiled.weights, compiled.target
    seen = 0

    def fitted(x: Array) -> Array:
        x = np.clip(x, layer.low, layer.high)
        return narrowed(x, layer.low, layer.high) if narrow else x

    def height(x: Array) -> Array:
        nonlocal seen
        seen += len(x)
        with np.errstate(all="ignore"):
            away = np.abs(run(x) - target.values(x).reshape(len(x), -1)).max(axis=1)
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
    return _judged(run, compiled, x[order], heights[order], domain, rng, narrow, seen)


def _judged(
    run: Run, compiled: Compiled, x: Array, heights: Array, domain: Domain, rng: np.random.Generator, narrow: bool, seen: int
) -> Found:
    target = compiled.target
    keep = np.array([height >= 0.0 and domain.surely(point) for height, point in zip(heights, x, strict=True)], dtype=bool)
    if not keep.any():
        return Found(0.0, tuple(map(float, x[0])), seen)
    x, heights = x[keep], heights[keep]
    if target.expression is None:
        size = np.abs(target.values(x).reshape(len(x), -1)).max(axis=1)
        sure = np.maximum(heights - NOISE * (1.0 + size), 0.0)
    else:
        sure = known_errors(run, target, x)
        if domain.real and not domain.strips and not narrow:
            sure = np.maximum(sure, [_between(run, target, compiled, point, rng) for point in x])
    top = int(sure.argmax())
    return Found(float(sure[top]), tuple(map(float, x[top])), seen)


def _between(run: Run, target: Target, compiled: Compiled, point: Array, rng: np.random.Generator) -> float:
    """The largest error at a point against the target at real numbers that are rounded to it."""
    out = run(point[None])[0]
    return max(_exact_error(target, real, out) for real in _rounded_to(point, compiled.weights, rng))


def cells_of(compiled: Compiled, p: float, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Cells of the box, low and high (C, D), halved where the power of the layer's own error varies most."""
    layer, target = compiled.weights, compiled.target
    low, high = layer.low[None].copy(), layer.high[None].copy()
    while len(low) < count // 4:
        low, high = _halved(low, high, np.arange(len(low)), layer.high - layer.low)
    while len(low) < count:
        x = rng.uniform(low[:, None], high[:, None], (len(low), 4, layer.dimension)).reshape(-1, layer.dimension)
        away = np.abs(chooser.evaluate(layer, x).astype(np.float64) - target.values(x)).max(axis=(1, 2)) ** p
        spread = np.prod(high - low, axis=1) * away.reshape(-1, 4).std(axis=1)
        cut = np.argsort(-spread, kind="stable")[: max(1, min(len(low) // 8, count - len(low)))]
        low, high = _halved(low, high, cut, layer.high - layer.low)
    return low, high


def integrated(run: Run, target: Target, p: float, cells: tuple[Array, Array], rng: np.random.Generator, narrow: bool) -> Found:
    """The L_p error, less five standard errors: as many random points in every cell, drawn after the cells were fixed."""
    x, volume = drawn(target, cells, rng, narrow)
    away = np.abs(run(x) - target.values(x).reshape(len(x), -1)).max(axis=1)
    powers = (away**p).reshape(DRAWS, -1)
    doubt = math.sqrt(float((volume**2 * powers.var(axis=0, ddof=1) / DRAWS).sum()))
    least = max(0.0, float((volume * powers.mean(axis=0)).sum()) - SURE * doubt)
    return Found(least ** (1.0 / p), (), len(x))


def drawn(target: Target, cells: tuple[Array, Array], rng: np.random.Generator, narrow: bool) -> tuple[Array, Array]:
    """Points (DRAWS * C, D), one draw of all cells after the other, and the volumes of the cells (C,)."""
    low, high = cells
    x = np.concatenate([rng.uniform(low, high) for _ in range(DRAWS)])
    x = np.clip(x, target.box.low, target.box.high)
    return narrowed(x, target.box.low, target.box.high) if narrow else x, np.prod(high - low, axis=1)


def at_entries(run: Run, target: Target, narrow: bool) -> Found:
    """The largest error at the entries of a table or of samples, those alone that float32 holds where x is narrow."""
    error, at, seen = 0.0, target.box.low, 0
    for x, values in target.data.blocks():
        keep = np.isfinite(values.reshape(len(x), -1)).all(axis=1)
        keep &= (x.astype(np.float32).astype(np.float64) == x).all(axis=1) if narrow else True
        x, values = x[keep], values.reshape(len(keep), -1)[keep]
        seen += len(x)
        if len(x):
            away = np.nextafter(np.abs(run(x) - values).max(axis=1), 0.0)
            away = np.where(np.isnan(away), np.inf, away)
            if away.max() > error:
                error, at = float(away.max()), x[int(away.argmax())]
    return Found(error, tuple(map(float, at)), seen)
