"""The target beside a head: what is known of it on Bernstein ellipses, and at points; by expression or by declaration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import depth_first, grid
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression

PARTS = {1: 512, 2: 24, 3: 8, 4: 5}  # per direction, on which a target's range is enclosed


class Source(Protocol):
    """The target in z of [-1, 1]^E: bounded on ellipses, enclosed at points."""

    def on_ellipse(self, low: Array, high: Array, k: int, r: float, hard: bool) -> float:
        """max |f| over (ellipse of parameter r about the cell's side k) x (the cell's other sides); infinite if not known.

        Where that takes many pieces it is left at infinity, unless it is worth `hard` work.
        """

    def at(self, z: Sequence[Array], slack: float) -> Interval:
        """Enclosures (.., K) of f at points, one array per coordinate of shapes that broadcast, widened by slack."""


@dataclass(frozen=True)
class FromExpression:
    """A target known by its expression in t = middle + half z."""

    expression: Expression
    middle: Interval  # (E,), thin
    half: Array  # (E,)

    def on_ellipse(self, low: Array, high: Array, k: int, r: float, hard: bool) -> float:
        """By complex balls, over the rectangle around the ellipse."""
        middle = [balls.interval(float(a), float(b)) for a, b in zip(self.middle.lo, self.middle.hi, strict=True)]
        half = [balls.interval(float(h), float(h)) for h in self.half]

        def size(zs: list[Any]) -> float:
            found = self.expression.enclose_ball([z * h + m for z, h, m in zip(zs, half, middle, strict=True)])
            return max(float(balls.magnitude(out)) if out.is_finite() else math.inf for out in found)

        return covered(size, low, high, k, r, hard)

    def at(self, z: Sequence[Array], slack: float) -> Interval:
        """By intervals, every variable along its own axis."""
        wide = _widened(z, slack)
        return self.expression.enclose_on([one * Interval.point(self.half[e]) + self.middle[e] for e, one in enumerate(wide)])

    def range(self) -> tuple[float, float]:
        """Between which numbers f stays over its range, from enclosures on equal pieces; infinite where it is not enclosed."""
        E = len(self.half)
        low, high = grid(-np.ones(E), np.ones(E), PARTS.get(E, 3))
        z = Interval(low, high)
        middle = Interval(np.broadcast_to(self.middle.lo, low.shape), np.broadcast_to(self.middle.hi, low.shape))
        found = self.expression.enclose(z * Interval.point(self.half) + middle)
        return float(found.lo.min()), float(found.hi.max())

    def extent(self) -> float:
        """A bound of |f| over its range."""
        low, high = self.range()
        return max(-low, high)


@dataclass(frozen=True)
class FromAffine:
    """A target known by its expression in x = offset + matrix z, for z of any box: a local head's own coordinates."""

    expression: Expression
    offset: Interval  # (D,), thin
    matrix: Interval  # (D, E), thin

    @classmethod
    def scaled(cls, expression: Expression, origin: Array, radius: Array) -> FromAffine:
        """x = origin + radius z, axis by axis."""
        return cls(expression, Interval.point(origin), Interval.point(np.diag(radius)))

    def on_ellipse(self, low: Array, high: Array, k: int, r: float, hard: bool) -> float:
        """By complex balls, over the image of the rectangle around the ellipse."""

        def size(zs: list[Any]) -> float:
            xs = []
            for i in range(len(self.offset.lo)):
                x = balls.interval(float(self.offset.lo[i]), float(self.offset.hi[i]))
                for e, z in enumerate(zs):
                    lo, hi = float(self.matrix.lo[i, e]), float(self.matrix.hi[i, e])
                    if lo or hi:
                        x = x + z * balls.interval(lo, hi)
                xs.append(x)
            found = self.expression.enclose_ball(xs)
            return max(float(balls.magnitude(out)) if out.is_finite() else math.inf for out in found)

        return covered(size, low, high, k, r, hard)

    def at(self, z: Sequence[Array], slack: float) -> Interval:
        """By intervals, every variable along the axes that it depends on."""
        xs = []
        for i in range(len(self.offset.lo)):
            x = self.offset[i]
            for e, one in enumerate(_widened(z, slack)):
                if self.matrix.lo[i, e] or self.matrix.hi[i, e]:
                    x = x + one * self.matrix[i, e]
            xs.append(x)
        found, shape = self.expression.enclose_on(xs), (*np.broadcast_shapes(*(one.shape for one in z)), self.expression.count)
        return Interval(np.broadcast_to(found.lo, shape), np.broadcast_to(found.hi, shape))


@dataclass(frozen=True)
class FromDeclaration:
    """A callable with |f| <= bound on (ellipse of parameter radii[k] about side k of the box) x (the other sides), declared."""

    values: Callable[[Array], Array]  # z (M, E) -> (M, K), taken as exact
    radii: Array
    bound: float
    blur: float  # how far, in z, the point that the callable sees may be from the one asked for

    def on_ellipse(self, low: Array, high: Array, k: int, r: float, hard: bool) -> float:
        """The declared bound where the cell's ellipse lies in the declared one: |z-1| + |z+1| <= R + 1/R."""
        reach = (high[k] - low[k]) / 2.0
        inside = reach * (r + 1.0 / r) + 2.0 - 2.0 * reach <= (self.radii[k] + 1.0 / self.radii[k]) * (1 - 1e-12)
        return self.bound if inside else math.inf

    def at(self, z: Sequence[Array], slack: float) -> Interval:
        """The callable's values, widened by its declared steepness along every axis: Cauchy's estimate near the box."""
        found = _values(self.values, z)
        steep = float(np.sum(2.0 * self.bound / ((self.radii + 1.0 / self.radii) / 2.0 - 1.0))) * (slack + self.blur)
        return Interval(found - steep, found + steep)


@dataclass(frozen=True)
class FromDerivatives:
    """A callable with |d^order f / dz_k^order| <= bounds[k] on the box, declared: it is interpolated with degree order - 1."""

    values: Callable[[Array], Array]  # z (M, E) -> (M, K), taken as exact
    order: int
    bounds: Array  # (E,), in units of z
    blur: float  # how far from a node its values may have been taken

    def on_ellipse(self, low: Array, high: Array, k: int, r: float, hard: bool) -> float:
        """Nothing is known off the real axis."""
        return math.inf

    def remainder(self, low: Array, high: Array, k: int) -> float:
        """B h^q / (2^(q-1) q!) for Chebyshev interpolation of degree q - 1 on a side of half width h."""
        reach = float(high[k] - low[k]) / 2.0 * (1 + 1e-12)
        return float(self.bounds[k]) * reach**self.order / (2.0 ** (self.order - 1) * math.factorial(self.order)) * (1 + 1e-12)

    def at(self, z: Sequence[Array], slack: float) -> Interval:
        """The callable's values; the nodes' own rounding is left to Markov's inequality (`_constant`)."""
        found = _values(self.values, z)
        return Interval(found, found)


def _widened(z: Sequence[Array], slack: float) -> list[Interval]:
    return [Interval(one - slack, one + slack) for one in z]


def _values(f: Callable[[Array], Array], z: Sequence[Array]) -> Array:
    """A callable at points inside [-1, 1]^E, one array per coordinate: (.., K)."""
    points = np.stack(np.broadcast_arrays(*z), axis=-1)
    return f(np.clip(points, -1.0, 1.0).reshape(-1, len(z))).reshape(*points.shape[:-1], -1)


def semi_axes(low: float, high: float, r: float) -> tuple[float, float]:
    """Half the width and height of the ellipse, with room for the rounding of the cell's centre and reach."""
    reach, room = (high - low) / 2.0, 2.0**-51 * max(abs(low), abs(high), 1.0)
    return reach * (r + 1.0 / r) / 2.0 * (1 + 1e-12) + room, reach * (r - 1.0 / r) / 2.0 * (1 + 1e-12) + room


PIECES, HALVINGS = 300, 5  # pieces of an ellipse looked at in all, and how often one of them is halved, per axis


def covered(size: Callable[[list[Any]], float], low: Array, high: Array, k: int, r: float, hard: bool) -> float:
    """The largest `size` over the rectangle around the ellipse of side k and the cell's other sides.

    Where one rectangle says nothing, and it is worth `hard` work, the ellipse is covered by narrow ones, each as high as the
    ellipse is there, times parts of the other sides, halved where they still say nothing: finite results on pieces that touch
    carry one analytic function (expression/balls.py).  Looking at a piece is cheap beside looking at points.
    """
    long, short = semi_axes(float(low[k]), float(high[k]), r)
    centre = float(low[k] + high[k]) / 2.0
    sides = [balls.rectangle(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    sides[k] = balls.rectangle(centre - long, centre + long, short)
    whole = size(sides)
    if math.isfinite(whole) or len(sides) == 1 or not hard:
        return whole

    def piece(left: Array, right: Array) -> list[Any]:
        """The part of the ellipse between two shares of its length, and of every other side between two of its places."""
        found = [balls.rectangle(float(a), float(b)) for a, b in zip(left, right, strict=True)]
        nearest = 0.0 if left[k] <= 0.0 <= right[k] else min(abs(left[k]), abs(right[k]))
        tall = short * math.sqrt(max(0.0, 1.0 - nearest * nearest)) * (1 + 1e-12) + 2.0**-51
        found[k] = balls.rectangle(centre + long * float(left[k]) - 2.0**-51, centre + long * float(right[k]) + 2.0**-51, tall)
        return found

    first, last = low.copy(), high.copy()
    first[k], last[k] = -1.0, 1.0
    extent = last - first
    found: list[float] = []

    def visit(left: Array, right: Array, halved: int) -> int | None:
        one = size(piece(left, right))
        found.append(one)
        if math.isfinite(one):
            return None
        if halved == HALVINGS * len(sides) or len(found) >= PIECES:
            raise _Unbounded
        return int(((right - left) / extent * np.where(np.arange(len(sides)) == k, 2.0, 1.0)).argmax())

    try:
        depth_first(first, last, visit)
    except _Unbounded:
        return math.inf
    return max(one for one in found if math.isfinite(one))


class _Unbounded(Exception):
    """Pieces of an ellipse stay without a bound."""
