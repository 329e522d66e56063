"""Where a certificate speaks, where its target switches, and the worst point that a search finds there.

Points lie on and next to the switches of the target (segments bisected to the last bit) and of the layer, at the very edge of
gaps about jumps, on faces and corners; the worst ones climb.  The highest are judged by balls: the runtime's answer, and the
exact value of the stored numbers, against the target at that point and at real numbers that a query would round to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from maxaffine.attack.adversary import _exact_error, _rounded_to, _starts
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.scope import Scope
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.runtime import chooser
from maxaffine.structure.breaks import find_pieces
from maxaffine.structure.one_direction import one_direction
from maxaffine.structure.planes import NotRegions, arrangement
from maxaffine.structure.switches import Switch, switches
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Evaluate = Callable[[Array], Array]

LINES, COPIES, CLIMBERS, TRIES, ROUNDS, JUDGED = 120, 14, 16, 8, 26, 6
STEPS = 10.0 ** np.arange(-17.0, 0.0)
EXACT_TOKENS = 400  # beyond this many, the exact value takes too long to be asked for at every judged point


@dataclass(frozen=True)
class Strip:
    """Points with |row . x - at| < gap (at within [low, high]) are not spoken of; exact rational numbers."""

    row: tuple[Fraction, ...]
    low: Fraction
    high: Fraction
    gap: Fraction


@dataclass(frozen=True)
class Domain:
    """Which x a certificate speaks of: all but strips, and real numbers or float64 numbers only."""

    strips: tuple[Strip, ...] = ()
    real: bool = True

    def keeps(self, x: Array) -> NDArray[np.bool_]:
        """By float64 values, erring on the side of leaving points out."""
        good = np.ones(len(x), dtype=bool)
        for strip in self.strips:
            row = np.array([float(c) for c in strip.row])
            t, slack = x @ row, 1e-14 * (np.abs(x) @ np.abs(row))
            low, high, gap = float(strip.low), float(strip.high), float(strip.gap)
            good &= (t < low - gap - slack) | (t > high + gap + slack)
        return good

    def surely(self, point: Array) -> bool:
        """In exact arithmetic."""
        for strip in self.strips:
            t = sum((c * Fraction(float(v)) for c, v in zip(strip.row, point, strict=True)), Fraction(0))
            if not (t <= strip.low - strip.gap or t >= strip.high + strip.gap):
                return False
        return True


def domain_of(scope: Scope, target: Target) -> Domain | None:
    """The domain that a certificate's scope describes; None where the jumps that it excludes are not found."""
    real = scope.inputs == "real"
    if scope.gap is None:
        return Domain((), real)
    gap = Fraction(scope.gap)
    assert target.expression is not None
    strips = []
    if scope.measure == "distance":
        try:
            planes = arrangement(target.expression, target.box)
        except NotRegions:
            return None
        for i in {crossing.plane for crossing in planes.crossings if crossing.jumps}:
            *row, constant = planes.planes[i]
            length = Fraction(math.sqrt(float(sum(c * c for c in row))) * (1 + 1e-14))
            strips.append(Strip(tuple(row), -constant, -constant, gap * length))
        return Domain(tuple(strips), real)
    one = one_direction(target.expression)
    if one is None:
        return None
    ends = [sorted((float(c) * a, float(c) * b)) for c, a, b in zip(one.direction, target.box.low, target.box.high, strict=True)]
    low, high = (sum(pair[i] for pair in ends) for i in (0, 1))
    try:
        pieces = find_pieces(one.h, low - 1e-9 * abs(low), high + 1e-9 * abs(high))
    except Refused:
        return None
    for place in pieces.breaks:
        if place is not None and place.kind == "jump":
            strips.append(Strip(one.direction, Fraction(place.low), Fraction(place.high), gap))
    return Domain(tuple(strips), real)


@dataclass
class Worst:
    """The largest error found, where, through what, and how many points were looked at."""

    error: float = 0.0
    at: Array = field(default_factory=lambda: np.zeros(0))
    through: str = ""
    points: int = 0


def worst_point(
    layer: GroupedLayer, target: Target, rng: np.random.Generator, runtime: str, domain: Domain, reserve: float | None = None
) -> Worst:
    """The largest proved lower bound of |layer - target| where the certificate speaks, through one runtime and exactly."""
    found = Worst(through=runtime)

    def evaluate(x: Array) -> Array:
        return np.asarray(chooser.evaluate(layer, x, runtime, reserve).astype(np.float64))

    def height(x: Array) -> Array:
        found.points += len(x)
        with np.errstate(all="ignore"):
            away = np.abs(evaluate(x) - target.values(x)).max(axis=(1, 2))
        return np.where(domain.keeps(x), away, -1.0)

    starts = [_starts(layer, rng), *_near_target(layer, target, domain, rng)]
    x = np.clip(np.concatenate(starts), layer.low, layer.high)
    heights = height(x)
    order = np.argsort(heights)[::-1]
    best = np.concatenate([order[: CLIMBERS // 2], rng.choice(order[: 40 * CLIMBERS], CLIMBERS // 2, replace=False)])
    climbers, heights = _climbed(height, layer, x[best], heights[best], rng)
    order = np.argsort(heights)[::-1][:JUDGED]
    found.at = climbers[order[0]]
    for rank, point in enumerate(climbers[order]):
        if not domain.surely(point):
            continue
        out = evaluate(point[None])[0, :, 0]
        for real in _rounded_to(point, layer, rng) if domain.real and not domain.strips else [_exactly(point)]:
            error = _exact_error(target, real, out)
            if error > found.error:
                found.error, found.at, found.through = error, point, runtime
        if layer.work <= EXACT_TOKENS and rank < 2:
            error = exact_error(layer, target, _exactly(point))
            if error > found.error:
                found.error, found.at, found.through = error, point, "exact"
    return found


def _exactly(point: Array) -> list[Any]:
    return [flint.arb(float(v)) for v in point]


def exact_error(layer: GroupedLayer, target: Target, real: list[Any]) -> float:
    """A lower bound of |F - f| at a real point, F the stored numbers in 320 bits."""
    assert target.expression is not None
    with balls.precision(320):
        found = 0.0
        outputs = target.expression.enclose_ball([flint.acb(v) for v in real])
        for value, ball in zip(exact_value(layer, real), outputs, strict=True):
            if ball.is_finite() and value.is_finite():
                found = max(found, balls.bounds(abs(ball.real - value))[0])
        return found


def _climbed(
    height: Evaluate, layer: GroupedLayer, x: Array, heights: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    step = (layer.high - layer.low) / 12.0
    for _ in range(ROUNDS):
        moves = rng.normal(size=(TRIES, *x.shape)) * step
        moves *= 10.0 ** rng.uniform(-12.0, 0.0, size=(TRIES, len(x), 1))
        moves[::2] *= rng.random((TRIES // 2, *x.shape)) < 1.0 / x.shape[1]
        trial = np.clip(x + moves, layer.low, layer.high).reshape(-1, x.shape[1])
        seen = height(trial).reshape(TRIES, len(x))
        pick = seen.argmax(axis=0)
        better = seen.max(axis=0) > heights
        x = np.where(better[:, None], trial.reshape(TRIES, *x.shape)[pick, np.arange(len(x))], x)
        heights = np.maximum(heights, seen.max(axis=0))
        step = step * 0.8
    return x, heights


def _near_target(layer: GroupedLayer, target: Target, domain: Domain, rng: np.random.Generator) -> list[Array]:
    """Points on and next to the switches of the target and at the edges of what is not spoken of."""
    assert target.expression is not None
    found: list[Array] = []
    for switch in switches(target.expression)[:12]:
        found += _on_switch(layer, switch, rng)
    for strip in domain.strips:
        row = np.array([float(c) for c in strip.row])
        start = rng.uniform(layer.low, layer.high, (LINES * 2, layer.dimension))
        away = float(strip.gap) * (1.0 + rng.choice([1e-13, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0], len(start)))
        wanted = np.where(rng.random(len(start)) < 0.5, float(strip.low) - away, float(strip.high) + away)
        along = np.broadcast_to(row, start.shape) / float(row @ row)
        if rng.random() < 0.5:  # along one axis
            unit = np.zeros(len(row))
            unit[int(rng.choice(np.flatnonzero(row)))] = 1.0
            along = np.broadcast_to(unit / float(row @ unit), start.shape)
        found.append(start + (wanted - start @ row)[:, None] * along)
    return found


def _on_switch(layer: GroupedLayer, switch: Switch, rng: np.random.Generator) -> list[Array]:
    start, end = (rng.uniform(layer.low, layer.high, (LINES, layer.dimension)) for _ in range(2))

    def side(x: Array) -> Array:
        with np.errstate(all="ignore"):
            value = switch.argument.evaluate(x)[:, 0]
        return np.floor(value) if switch.op == "floor" else np.sign(value)

    first = side(start)
    keep = (first != side(end)) & np.isfinite(first)
    start, end, first = start[keep], end[keep], first[keep]
    if not len(start):
        return []
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(54):
        middle = (low + high) / 2.0
        same = side(start + middle[:, None] * (end - start)) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    on = start + high[:, None] * (end - start)
    along = (end - start) * (rng.choice(STEPS, (COPIES, len(on), 1)) * rng.choice([-1.0, 1.0], (COPIES, len(on), 1)))
    return [on, np.asarray((on + along).reshape(-1, layer.dimension))]


def speaks_of(record: Mapping[str, Any], target: Target) -> Domain | None:
    """The domain that a record's certificate names."""
    return domain_of(Scope.of(record["certificate"]), target)
