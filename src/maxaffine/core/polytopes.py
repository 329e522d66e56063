"""Convex polytopes in exact arithmetic, cut by hyperplanes: vertices as fractions, and which constraints hold them.

A polytope starts as a box and is cut in two, again and again.  A new vertex lies on an edge between a vertex on either side; two
vertices span an edge when no third vertex is held by all the constraints that hold both (double description, Motzkin 1953).
Nothing is rounded, so a linear inequality that holds at the vertices holds on the polytope, and the parts cover the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from maxaffine.core.exact import rank

Affine = tuple[Fraction, ...]  # coefficients of the D coordinates, then the constant
Point = tuple[Fraction, ...]

MOST_VERTICES = 1024


class TooLarge(Exception):
    """A polytope with more vertices than this module cares to list."""


def value(h: Affine, point: Point) -> Fraction:
    """h at a point, exactly."""
    total = h[-1]
    for c, x in zip(h, point, strict=False):
        if c:
            total += c * x
    return total


@dataclass(frozen=True)
class Polytope:
    """The convex hull of vertices; bit i of `held` says that constraint i holds the vertex with equality."""

    vertices: tuple[Point, ...]
    held: tuple[int, ...]
    constraints: int  # how many have been numbered

    @classmethod
    def box(cls, low: Sequence[float | Fraction], high: Sequence[float | Fraction]) -> Polytope:
        """The box [low, high]; its 2 D sides are constraints 0 to 2 D - 1."""
        D = len(low)
        if 2**D > MOST_VERTICES:
            raise TooLarge(f"a box of {D} variables has 2^{D} corners")
        ends = [(Fraction(a), Fraction(b)) for a, b in zip(low, high, strict=True)]
        vertices, held = [], []
        for corner in product((0, 1), repeat=D):
            vertices.append(tuple(ends[i][side] for i, side in enumerate(corner)))
            held.append(sum(1 << (2 * i + side) for i, side in enumerate(corner)))
        return cls(tuple(vertices), tuple(held), 2 * D)

    @property
    def middle(self) -> Point:
        """The mean of the vertices, a point of the relative interior."""
        n = len(self.vertices)
        return tuple(sum(column, Fraction(0)) / n for column in zip(*self.vertices, strict=True))

    def sides(self, h: Affine) -> tuple[bool, bool]:
        """Whether h is negative somewhere, and whether it is positive somewhere."""
        values = [value(h, v) for v in self.vertices]
        return any(v < 0 for v in values), any(v > 0 for v in values)

    def cut(self, h: Affine) -> tuple[Polytope | None, Polytope | None]:
        """The parts h <= 0 and h >= 0; None for an empty part.  A part may be a face only (where h does not change sign)."""
        values = [value(h, v) for v in self.vertices]
        bit = 1 << self.constraints
        below = [i for i, v in enumerate(values) if v < 0]
        above = [i for i, v in enumerate(values) if v > 0]
        on = [(self.vertices[i], self.held[i] | bit) for i, v in enumerate(values) if v == 0]
        for i in below:
            for j in above:
                common = self.held[i] & self.held[j]
                if any(common & ~self.held[k] == 0 for k in range(len(values)) if k not in (i, j)):
                    continue
                ratio = values[i] / (values[i] - values[j])
                pair = zip(self.vertices[i], self.vertices[j], strict=True)
                on.append((tuple(a + ratio * (b - a) for a, b in pair), common | bit))
        if len(on) + len(values) > MOST_VERTICES:
            raise TooLarge(f"a cell has more than {MOST_VERTICES:,} vertices")
        return self._part(below, on), self._part(above, on)

    def clipped(self, halves: Iterable[Affine]) -> Polytope | None:
        """The part where every h <= 0; None where it is empty."""
        part: Polytope | None = self
        for h in halves:
            if part is not None and part.sides(h)[1]:
                part = part.cut(h)[0]
        return part

    def face(self, h: Affine) -> Polytope | None:
        """The points with h = 0, which may be a slice through the middle; None where there are none."""
        below, above = self.cut(h)
        part = below if below is not None else above
        assert part is not None
        rows = [(v, held) for v, held in zip(part.vertices, part.held, strict=True) if value(h, v) == 0]
        return Polytope(tuple(v for v, _ in rows), tuple(b for _, b in rows), part.constraints) if rows else None

    def _part(self, kept: list[int], on: list[tuple[Point, int]]) -> Polytope | None:
        rows = [(self.vertices[i], self.held[i]) for i in kept] + on
        if not rows:
            return None
        return Polytope(tuple(v for v, _ in rows), tuple(b for _, b in rows), self.constraints + 1)

    def spans(self) -> bool:
        """Whether the polytope has interior points."""
        first, *rest = self.vertices
        return rank([[b - a for a, b in zip(first, v, strict=True)] for v in rest]) == len(first)
