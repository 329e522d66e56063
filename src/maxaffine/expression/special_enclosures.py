"""Real enclosures of special functions from balls alone: nothing is assumed of SciPy.

Where the derivative is known to keep its sign an image lies between those of the ends.  Else an interval is cut in two until the
ball of the derivative shows a sign on the pieces, or the mean value theorem is good enough:

    f(X) is in  f(m) + f'(X) (X - m),    in f(X) itself as a ball, and in the function's range.

Values at points are kept: neighbouring boxes share their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flint
import numpy as np

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.balls import Rule

BITS = 80
KEPT = 100_000  # points that a function remembers
PIECES = 32  # of an interval, at most
NARROW = 1e-3  # of their size that images by the mean value theorem may be wide

Ends = tuple[float, float]
Test = Callable[[Array, Array, Any], Any]


@dataclass(frozen=True)
class Enclosed:
    """A function of one real argument by its ball and the ball of its derivative.

    trend    1 or -1 where it increases or decreases on its whole domain, 0 where that depends
    within   numbers that its values lie between
    inside   (low, high, data) -> where an interval lies in its domain
    """

    ball: Rule
    slope: Rule
    trend: int = 0
    within: Ends = (-math.inf, math.inf)
    inside: Test | None = None
    known: dict[Any, Ends] = field(default_factory=dict)

    def __call__(self, u: Interval, *data: Any) -> Interval:
        """Enclosures; everything where the function may be undefined."""
        low, high = np.broadcast_arrays(u.lo, u.hi)
        good = np.isfinite(low) & np.isfinite(high)
        if self.inside is not None:
            good = good & self.inside(low, high, *(data or (None,)))
        first, last = np.full(low.shape, -np.inf), np.full(low.shape, np.inf)
        with balls.precision(BITS):
            pairs = np.stack([low[good], high[good]], axis=-1)
            distinct, back = np.unique(pairs, axis=0, return_inverse=True) if len(pairs) else (pairs, np.zeros(0, dtype=int))
            ends = np.array([self._one(float(a), float(b), data) for a, b in distinct]).reshape(-1, 2)
        first[good], last[good] = ends[back.ravel(), 0], ends[back.ravel(), 1]
        return Interval(first, last)

    def _one(self, low: float, high: float, data: tuple[Any, ...]) -> Ends:
        if low == high:
            return self._at(low, data)
        if self.trend:
            first, last = self._at(low, data), self._at(high, data)
            return (first[0], last[1]) if self.trend > 0 else (last[0], first[1])
        waiting, found = [(low, high)], list[Ends]()
        while waiting:
            a, b = waiting.pop()
            value, settled = self._piece(a, b, data)
            middle = a + (b - a) / 2.0
            if settled or len(waiting) + len(found) >= PIECES or not a < middle < b:
                found.append(value)
            else:
                waiting += [(a, middle), (middle, b)]
        return self._held(min(one[0] for one in found), max(one[1] for one in found))

    def _piece(self, low: float, high: float, data: tuple[Any, ...]) -> tuple[Ends, bool]:
        """An enclosure over a piece, and whether cutting it further is not worth while."""
        wide = flint.acb(balls.interval(low, high))
        slope = self.slope(wide, *data)
        steep = balls.bounds(slope) if slope is not None and slope.is_finite() else (-math.inf, math.inf)
        if steep[0] >= 0.0 or steep[1] <= 0.0:
            a, b = self._at(low, data), self._at(high, data)
            return (min(a[0], b[0]), max(a[1], b[1])), True
        direct = self.ball(wide, *data)
        ends = self._held(*(balls.bounds(direct) if direct is not None and direct.is_finite() else (-math.inf, math.inf)))
        if not math.isfinite(steep[0] + steep[1]):
            return ends, False
        middle = low + (high - low) / 2.0
        centre = self._at(middle, data)
        line = balls.interval(*centre) + balls.interval(*steep) * (balls.interval(low, high) - flint.arb(middle))
        mean = balls.bounds(line)
        tight = max(ends[0], mean[0]), min(ends[1], mean[1])
        return tight, tight[1] - tight[0] <= NARROW * max(abs(tight[0]), abs(tight[1]))

    def _at(self, x: float, data: tuple[Any, ...]) -> Ends:
        key = (x, data)
        ends = self.known.get(key)
        if ends is None:
            value = self.ball(flint.acb(x), *data)
            ends = self._held(*(balls.bounds(value) if value is not None and value.is_finite() else (-math.inf, math.inf)))
            if len(self.known) >= KEPT:
                self.known.clear()
            self.known[key] = ends
        return ends

    def _held(self, low: float, high: float) -> Ends:
        return max(low, self.within[0]), min(high, self.within[1])
