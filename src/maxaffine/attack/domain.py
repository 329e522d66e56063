"""Where a certificate speaks, decided for points: by float64 values for searching, in exact arithmetic for judging."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.scope import Scope
from maxaffine.structure.breaks import find_pieces
from maxaffine.structure.one_direction import one_direction
from maxaffine.structure.planes import NotRegions, arrangement
from maxaffine.target.target import Target


@dataclass(frozen=True)
class Strip:
    """Points with |row . x - at| < gap (at within [low, high]) are excluded; exact rational numbers."""

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


EVERYWHERE = Domain()


def domain_of(scope: Scope, target: Target, layer: Any = None) -> Domain | None:
    """The domain that a certificate's scope describes; None where the jumps that it excludes are not found.

    `layer` has the centres that a scope over centres speaks of.
    """
    real = scope.inputs == "real" and target.expression is not None  # of a callable float64 values are all that is known
    if scope.radius is not None:
        centres = layer.keys.listed()[0] / layer.coordinates.matrix[0, 0] + layer.coordinates.centre
        return Near((), False, tuple(tuple(float(v) for v in row) for row in centres), scope.radius)
    if scope.gap is None:
        return Domain((), real)
    strips = _strips(scope, target)
    return None if strips is None else Domain(tuple(strips), real)


def _strips(scope: Scope, target: Target) -> list[Strip] | None:
    """What is left out about the jumps of every output, by either measure where a scope speaks of both."""
    found: list[Strip] = []
    assert scope.gap is not None and target.expression is not None
    for entry in range(target.d_out * target.n_out):
        alone = replace(target, expression=target.expression.output(entry), output_shape=()) if target.output_shape else target
        assert alone.expression is not None
        if target.output_shape and alone.expression.is_continuous:
            continue
        rows = [make(scope.gap, alone) for make, name in MEASURED if scope.measure in (name, "outputs")]
        if all(one is None for one in rows):
            return None
        found += [strip for one in rows for strip in one or []]
    return found


def _by_planes(gap: float, target: Target) -> list[Strip] | None:
    assert target.expression is not None
    try:
        planes = arrangement(target.expression, target.box)
    except NotRegions:
        return None
    strips = []
    for i in {crossing.plane for crossing in planes.crossings if crossing.jumps}:
        *row, constant = planes.planes[i]
        length = Fraction(math.sqrt(float(sum(c * c for c in row))) * (1 + 1e-14))
        strips.append(Strip(tuple(row), -constant, -constant, Fraction(gap) * length))
    return strips


def _along_direction(gap: float, target: Target) -> list[Strip] | None:
    assert target.expression is not None
    one = one_direction(target.expression)
    if one is None:
        return None
    ends = [sorted((float(c) * a, float(c) * b)) for c, a, b in zip(one.direction, target.box.low, target.box.high, strict=True)]
    low, high = (sum(pair[i] for pair in ends) for i in (0, 1))
    try:
        pieces = find_pieces(one.h, low - 1e-9 * abs(low), high + 1e-9 * abs(high))
    except Refused:
        return None
    jumps = [place for place in pieces.breaks if place is not None and place.kind == "jump"]
    return [Strip(one.direction, Fraction(place.low), Fraction(place.high), Fraction(gap)) for place in jumps]


MEASURED = ((_by_planes, "distance"), (_along_direction, "direction"))
