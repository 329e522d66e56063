"""The columns of factors beside the functions that they stand for: sizes, errors with rounding; what is alike is proved once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.head import Head
from maxaffine.checker.head_rounding import rounding
from maxaffine.checker.local_error import local_error
from maxaffine.checker.product_group import Scaled
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.reader import ProductKeys
from maxaffine.checker.same_function import doubt_same
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph

CLOSE = 1e-4  # by which a size may exceed one that is reached, as a part of it
BUDGET = 40_000  # pieces for a size
EVEN = 1.4  # times its smallest value, that a factor may reach on a piece
NARROW = 1e-4  # of the scaled variable: no shorter pieces are cut

Function = Expression | None
Like = tuple[Any, ...]


def function_key(part: Function) -> Any:
    """Equal for expressions that are the same text of operations."""
    return None if part is None else (part.nodes, part.outputs)


@dataclass
class Columns:
    """The factors of a group of product keys, over blocks of directions whose ranges are given."""

    keys: ProductKeys
    scaled: Scaled
    ranges: list[Interval]
    dtype: str
    _errors: dict[Any, float] = field(default_factory=dict)
    _sizes: dict[Any, float] = field(default_factory=dict)
    _blocks: dict[int, Like] = field(default_factory=dict)
    _pieces_of: dict[Any, list[tuple[float, float, float]]] = field(default_factory=dict)

    def size(self, b: int, real: Function, imaginary: Function = None, modulus: Function = None) -> float:
        """sup |real + i imaginary| over the range of block b; None stands for 1, and for 0.

        `modulus` is taken for the modulus where it is shown to be that.
        """
        box = self.ranges[b]
        key = (function_key(real), function_key(imaginary), function_key(modulus), box.lo.tobytes(), box.hi.tobytes())
        if key not in self._sizes:
            parts = [part for part in (real, imaginary) if part is not None]
            if modulus is not None and len(parts) == 2 and _is_modulus(modulus, parts, box):
                parts = [modulus]
            self._sizes[key] = _largest(parts, box, real is None)
        return self._sizes[key]

    def error(self, b: int, values: Array, part: Function, absent: float, goal: float) -> float:
        """sup |computed column - part| over the range of block b; `absent` is what no part stands for."""
        if part is None or not part.used:
            return self._of_number(values, part, absent)
        key = (self._like(b), function_key(part), values.tobytes())
        if key not in self._errors:
            self._errors[key] = self._of_function(b, values, part, goal)
        return self._errors[key]

    def _like(self, b: int) -> Like:
        """What the column of a block depends on besides its values and its function."""
        if b not in self._blocks:
            cut, scaled = self.keys.cuts[b], self.scaled
            axes = tuple((axis.a.tobytes(), axis.b.tobytes()) for axis in self.keys.axes[cut])
            numbers = (scaled.middle.lo, scaled.middle.hi, scaled.half, scaled.query)
            self._blocks[b] = (axes, *(row[cut].tobytes() for row in numbers))
        return self._blocks[b]

    def head(self, b: int, values: Array, part: Function) -> Head:
        """One real column of a block as a head."""
        cut, scaled = self.keys.cuts[b], self.scaled
        middle = Interval.of(scaled.middle.lo[cut], scaled.middle.hi[cut])
        return Head(part, middle, scaled.half[cut], self.keys.axes[cut], values[..., None])

    def _of_function(self, b: int, values: Array, part: Expression, goal: float) -> float:
        head = self.head(b, values, part)
        found = head.supremum(goal) + self._lost(b, head)
        if not math.isfinite(found):
            raise NotProved("a factor could not be bounded.")
        return found * (1 + 1e-14)

    def _lost(self, b: int, head: Head) -> float:
        """What rounding does to a column."""
        compute, count = compute_format(self.dtype), head.values.size
        narrow = self.dtype != "float64" and self.scaled.inside
        lost, _ = rounding(head, self.scaled.query[self.keys.cuts[b]], compute.unit, 0.0, count, narrow)
        return lost + 4.0 * count * compute.tiny * head.top()

    def relative(self, b: int, values: Array, part: Expression, held: Expression, goal: float) -> float:
        """sup |computed column - part| / |held| over the range of a block of one direction, piece by piece of it."""
        key = (self._like(b), function_key(part), function_key(held), values.tobytes())
        if key not in self._errors:
            head, worst, least = self.head(b, values, part), 0.0, math.inf
            for low, high, size in self._pieces(b, held):
                off = local_error(head, np.array([low]), np.array([high]), goal * size)
                worst, least = max(worst, off / size), min(least, size)
            self._errors[key] = (worst + self._lost(b, head) / least) * (1 + 1e-14)
        if not math.isfinite(self._errors[key]):
            raise NotProved("a factor could not be bounded.")
        return self._errors[key]

    def _pieces(self, b: int, held: Expression) -> list[tuple[float, float, float]]:
        """Pieces of the scaled variable of a block, with min |held| on each, on which |held| changes little."""
        key = (self._like(b), function_key(held), "pieces")
        if key not in self._pieces_of:
            (e,) = range(*self.keys.cuts[b].indices(len(self.keys.axes)))
            middle, half = Interval(self.scaled.middle.lo[e], self.scaled.middle.hi[e]), Interval.point(self.scaled.half[e])
            waiting, found = [(-1.0, 1.0)], list[tuple[float, float, float]]()
            while waiting:
                low, high = waiting.pop()
                t = Interval(np.array(low), np.array(high)) * half + middle
                size = held.enclose(t.reshape(1, 1))
                least, most = float(size.mignitude[0, 0]), float(size.magnitude[0, 0])
                if most > EVEN * least and high - low > NARROW:
                    first, second = low + (high - low) / 3.0, high - (high - low) / 3.0
                    waiting += [(low, first), (first, second), (second, high)]
                elif least > 0.0:
                    found.append((low, high, least))
                else:
                    raise NotProved("a factor of its target is not shown to stay away from 0.")
            self._pieces_of[key] = found
        return self._pieces_of[key]

    def _of_number(self, values: Array, part: Function, absent: float) -> float:
        """A column that stands for a number: no mean of its values is farther from it than they are."""
        if part is None:
            low = high = absent
        else:
            found = part.enclose(Interval.point(np.zeros((1, part.dimension))))
            low, high = float(found.lo[0, 0]), float(found.hi[0, 0])
        away = max(float(np.abs(values - low).max()), float(np.abs(values - high).max()))
        computed = (2.0 * sum(values.shape) + values.ndim * 64.0) * DOUBLE * float(np.abs(values).max())
        return away * (1 + 1e-14) + computed


def _is_modulus(modulus: Expression, parts: list[Expression], box: Interval) -> bool:
    """Whether modulus^2 is shown to be the sum of the squares of the parts."""
    graph = Graph()
    variables = {i: graph.variable(i) for i in range(modulus.dimension)}
    squares = [graph.integer_power(graph.include(one.nodes, variables)[one.outputs[0]], 2) for one in (modulus, *parts)]
    one, other = (
        Expression.of_graph("a square", modulus.names, graph, (place,)) for place in (squares[0], graph.total(squares[1:]))
    )
    try:
        doubt_same(one, other, box.lo, box.hi)
    except NotProved:
        return False
    return True


def _largest(parts: list[Expression], box: Interval, one: bool) -> float:
    """sup sqrt(sum part^2) on a box, beside 1 where `one`; infinite where it is not enclosed."""

    def measure(lows: Array, highs: Array, _: object) -> Bounds:
        whole = [part.enclose(Interval(lows, highs)).magnitude[:, 0] for part in parts]
        middle = [part.enclose(Interval.point(lows / 2.0 + highs / 2.0)).mignitude[:, 0] for part in parts]
        whole, middle = ([*found, np.ones(len(lows))] if one else found for found in (whole, middle))
        return Bounds(_length(whole) * (1 + 1e-15), _length(middle))

    if not parts:
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        return float(supremum(measure, box.lo[None], box.hi[None], budget=BUDGET, slack=CLOSE).upper[0]) * (1 + 1e-14)


def _length(rows: list[Array]) -> Array:
    return np.asarray(rows[0] if len(rows) == 1 else np.hypot(*rows))
