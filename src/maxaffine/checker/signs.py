"""Signs on a box: of parts of an expression by enclosures of it, on pieces cut in three, as fine as a budget allows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from maxaffine.checker.boxes import thirds
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph

PIECES = 900  # of the box, for one sign
DEPTH = 15  # generations of pieces
NODES = 600_000  # operations on pieces that are looked at in all


@dataclass(frozen=True)
class Sign:
    """1: never negative on the box, -1: never positive, 0: not known; `strict`: and never 0."""

    value: int = 0
    strict: bool = False

    def times(self, other: Sign) -> Sign:
        """Of a product."""
        return Sign(self.value * other.value, self.strict and other.strict)

    @property
    def negated(self) -> Sign:
        """Of the negative."""
        return Sign(-self.value, self.strict)


UNKNOWN = Sign()
POSITIVE = Sign(1, True)


@dataclass
class Signs:
    """Signs of what stands at places of a graph, for variables in a box."""

    graph: Graph
    names: tuple[str, ...]
    low: Array
    high: Array
    left: int = NODES
    _signs: dict[int, Sign] = field(default_factory=dict)
    _defined: dict[int, bool] = field(default_factory=dict)

    def of(self, place: int) -> Sign:
        """The sign of what stands at a place; unknown where it is not defined, or where pieces do not tell."""
        if place not in self._signs:
            self._signs[place] = self._look(self._expression(place)) if self.left > 0 else UNKNOWN
        return self._signs[place]

    def defined(self, place: int) -> bool:
        """Whether what stands there is surely defined on the whole box."""
        if place not in self._defined:
            self._defined[place] = self.left > 0 and self._everywhere(self._expression(place))
        return self._defined[place]

    def _expression(self, place: int) -> Expression:
        self.left -= len(self.graph.nodes) // 20
        return Expression.of_graph("a part", self.names, self.graph, (place,))

    def _look(self, expression: Expression) -> Sign:
        lows, highs, looked, side = self.low[None], self.high[None], 0, 0
        for _ in range(DEPTH):
            middle = lows / 2.0 + highs / 2.0
            seen, whole = expression.enclose(Interval.point(middle)), expression.enclose(Interval(lows, highs))
            sides = {side} - {0}
            sides |= {1} if np.any(seen.lo > 0.0) else set()
            sides |= {-1} if np.any(seen.hi < 0.0) else set()
            if len(sides) > 1:
                return UNKNOWN
            side = next(iter(sides), 0)
            least = side * (whole.lo if side > 0 else whole.hi)[:, 0] if side else np.full(len(lows), -np.inf)
            left = ~(least > 0.0)
            if not left.any():
                return Sign(side, True)
            looked += len(lows)
            if self._enough(expression, looked + 3 * int(left.sum())):
                break
            lows, highs = self._cut(expression, lows[left], highs[left])
        return Sign(side, False) if np.all(least[left] >= 0.0) else UNKNOWN

    def _everywhere(self, expression: Expression) -> bool:
        lows, highs, looked = self.low[None], self.high[None], 0
        for _ in range(DEPTH):
            fails = ~expression.defined(Interval(lows, highs))[:, 0]
            if not fails.any():
                return True
            looked += len(lows)
            if self._enough(expression, looked + 3 * int(fails.sum())):
                break
            lows, highs = self._cut(expression, lows[fails], highs[fails])
        return False

    def _enough(self, expression: Expression, pieces: int) -> bool:
        """Whether no more pieces are looked at, of this expression or of any."""
        self.left -= len(expression.nodes)
        return pieces > PIECES or self.left < 0

    def _cut(self, expression: Expression, lows: Array, highs: Array) -> tuple[Array, Array]:
        """In three, along the longest side of the variables that occur."""
        used = np.array([name in expression.used for name in self.names])
        lengths = np.where(used, (highs - lows) / np.where(self.high > self.low, self.high - self.low, 1.0), -1.0)
        lows, highs, _ = thirds(lows, highs, lengths.argmax(axis=1))
        return lows, highs
