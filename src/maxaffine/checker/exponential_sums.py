"""Outer functions against their sums of exponentials: sup |g - s| over the range of u, and what a record holds of the sums.

u is a sum over blocks, so that its range is the sum of the ranges of its parts.  g - s is one expression of one variable, bounded
by Ehlich and Zeller on cells cut in three; where g is singular at an end, as sqrt at 0, by its range on small cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.boxes import Bounds, grid, supremum
from maxaffine.checker.local_error import Extended, Rectangle, around_nodes, local_error
from maxaffine.checker.proved import NotProved
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.exponential_sums import ExponentialSum
from maxaffine.structure.separation import Outer

MOST_SUMS = 256
MOST_TERMS = 64  # of a sum
LARGEST = 1e150  # number of a record
TIGHT = 1e-5  # of the width of a range, that its enclosure may exceed it by
BUDGET = 30_000  # pieces for a range or a size
PIECES = {1: 400, 2: 20}  # per direction, where a range is not enclosed at once
INSIDE = 12  # pieces of a cell for its range


def sums_of(rows: Any, counts: Sequence[int]) -> tuple[ExponentialSum, ...]:
    """The sums of a record, one per outer function, with ends for so many blocks each; NotProved for what cannot be read."""
    if not isinstance(rows, list) or len(rows) != len(counts) or len(rows) > MOST_SUMS:
        raise NotProved("its record does not hold one sum of exponentials per outer function of its target.")
    found = []
    for row, blocks in zip(rows, counts, strict=True):
        lists = [row.get(name) for name in ("coefficients", "exponents", "ends")] if isinstance(row, dict) else []
        coefficients, exponents, ends = (*lists, None, None, None)[:3]
        if not (isinstance(coefficients, list) and isinstance(exponents, list) and isinstance(ends, list)):
            raise NotProved("a sum of exponentials of its record cannot be read.")
        if len(coefficients) != len(exponents) or len(exponents) > MOST_TERMS or len(ends) != blocks:
            raise NotProved("a sum of exponentials of its record has too many terms, or not as many of one kind as of another.")
        pairs = [[_pair(one) for one in part] for part in (coefficients, exponents, ends)]
        complexes = [tuple(complex(*one) for one in part) for part in pairs[:2]]
        found.append(ExponentialSum(_number(row.get("constant")), complexes[0], complexes[1], tuple(pairs[2])))
    return tuple(found)


def _pair(row: Any) -> tuple[float, float]:
    if not isinstance(row, list) or len(row) != 2:
        raise NotProved("a sum of exponentials of its record holds what is no pair of numbers.")
    return _number(row[0]), _number(row[1])


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise NotProved("a sum of exponentials of its record holds what is no number, or too large a one.")
    return float(value)


@dataclass(frozen=True)
class Deviation:
    """An expression of one variable that ought to be small, for Ehlich and Zeller's argument."""

    expression: Expression

    def target_size(self, row: list[Rectangle]) -> float:
        """sup |e| on a rectangle."""
        out = self.expression.enclose_ball([balls.rectangle(*row[0])])[0]
        return float(balls.magnitude(out)) if out.is_finite() else math.inf

    def head_size(self, low: Array, high: Array, k: int, centre: float, wide: float, tall: float) -> float:
        """Nothing is beside it."""
        return 0.0

    def seen(self, low: Array, high: Array, grids: list[Extended]) -> tuple[float, float]:
        """max |e| at points of a cell."""
        lows, highs = around_nodes(grids[0].astype(np.float64), float(low[0]), float(high[0]))
        size = self.expression.enclose(Interval(lows[:, None], highs[:, None])).magnitude
        if not np.isfinite(size).all():
            raise NotProved("an outer function could not be enclosed at points of its range.")
        return float(size.max()), 0.0

    def crude(self, low: Array, high: Array) -> tuple[float, float] | None:
        """Its range on pieces of the cell."""
        cuts = np.linspace(low[0], high[0], INSIDE + 1)
        cuts[0], cuts[-1] = low[0], high[0]
        found = self.expression.enclose(Interval(cuts[:-1, None], cuts[1:, None]))
        worst = float(found.magnitude.max())
        return (worst, float(found.mignitude.max())) if math.isfinite(worst) else None


def deviation(g: Expression, s: ExponentialSum, low: float, high: float, goal: float) -> float:
    """sup |g - s| over [low, high]."""
    graph = Graph()
    u = {0: graph.variable(0)}
    places = [graph.include(one.nodes, u)[one.outputs[0]] for one in (g, s.expression())]
    away = Expression.of_graph("outer function less its exponentials", ("u",), graph, (graph.subtract(*places),))
    return local_error(Deviation(away), np.array([low]), np.array([high]), goal)


def range_of(outer: Outer, ranges: Sequence[Interval]) -> tuple[float, float]:
    """An interval that u stays in, from those of the directions of every block."""
    ends = [extremes(part, box) for part, box in zip(outer.parts, ranges, strict=True) if part is not None]
    low, high = (sum((Fraction(pair[i]) for pair in ends), Fraction(0)) for i in (0, 1))  # exact: 0 stays 0
    if not low < high:
        raise NotProved("the range of an inner function of its target is a point.")
    found = Interval.exact(low).hull(Interval.exact(high))
    return float(found.lo), float(found.hi)


def extremes(part: Expression, box: Interval) -> tuple[float, float]:
    """A narrow enclosure of the values of a function on a box (E,)."""
    rough = part.enclose(Interval(box.lo[None], box.hi[None]))
    floor, ceiling = float(rough.lo[0, 0]), float(rough.hi[0, 0])
    if not (math.isfinite(floor) and math.isfinite(ceiling)):
        lows, highs = grid(box.lo, box.hi, PIECES.get(len(box), 8))
        rough = part.enclose(Interval(lows, highs))
        floor, ceiling = float(rough.lo.min()), float(rough.hi.max())
        if not (math.isfinite(floor) and math.isfinite(ceiling)):
            raise NotProved("an inner function of its target could not be enclosed.")
    upper = _above(part, box, floor, 1.0)
    lower = _above(part, box, ceiling, -1.0)
    return max(floor, ceiling - lower), min(ceiling, floor + upper)


def _above(part: Expression, box: Interval, base: float, sign: float) -> float:
    """An upper bound of sign (f - base), which is nowhere negative."""

    def measure(lows: Array, highs: Array, _: object) -> Bounds:
        whole = part.enclose(Interval(lows, highs))
        upper = (whole.hi[:, 0] - base) if sign > 0 else (base - whole.lo[:, 0])
        at = [part.enclose(Interval.point(x)) for x in (lows, highs, lows / 2.0 + highs / 2.0)]
        reached = np.max([(one.lo[:, 0] - base) if sign > 0 else (base - one.hi[:, 0]) for one in at], axis=0)
        return Bounds(upper, reached)

    found = supremum(measure, box.lo[None], box.hi[None], budget=BUDGET, slack=TIGHT)
    return float(found.upper[0]) * (1 + 1e-14) + 1e-15 * abs(base)
