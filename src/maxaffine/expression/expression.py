"""Expression: text that can be evaluated on arrays, on intervals and on complex balls, and differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.expression import calculus, evaluate, grammar, printing
from maxaffine.expression.graph import JUMPING, Graph, Node, schedule

CHUNK = 32_768
"""Points per pass: the few dozen arrays of a pass then stay in the processor's cache."""


@dataclass(frozen=True)
class Expression:
    """K functions of D variables: F(x) = (F_1(x), ..., F_K(x)).

    Literals mean their exact decimal value, pi and e the true constants; `evaluate` uses the nearest float64 numbers,
    `enclose` and `enclose_ball` enclose the exact ones.  Make one with `Expression.parse`.
    """

    text: str
    names: tuple[str, ...]
    nodes: tuple[Node, ...] = field(repr=False)
    outputs: tuple[int, ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str, names: Sequence[str]) -> Expression:
        """Read `text`, whose variables must be among `names`; BadInput or Refused with a sentence otherwise."""
        graph, outputs = grammar.parse(text, names)
        return cls.of_graph(text.strip(), tuple(names), graph, outputs)

    @classmethod
    def of_graph(cls, text: str, names: tuple[str, ...], graph: Graph, outputs: Sequence[int]) -> Expression:
        """The nodes of a graph that the outputs need, in their order there."""
        order = schedule(tuple(graph.nodes), outputs)
        new = {old: i for i, old in enumerate(order)}
        nodes = tuple(graph.nodes[p]._replace(args=tuple(new[a] for a in graph.nodes[p].args)) for p in order)
        return cls(text, names, nodes, tuple(new[p] for p in outputs))

    @property
    def dimension(self) -> int:
        """The number of variables D, used or not."""
        return len(self.names)

    @property
    def count(self) -> int:
        """The number of outputs K."""
        return len(self.outputs)

    @property
    def used(self) -> tuple[str, ...]:
        """The variables that occur."""
        places = {node.data for node in self.nodes if node.op == "var"}
        return tuple(name for i, name in enumerate(self.names) if i in places)

    def __str__(self) -> str:
        return self.text

    # ------------------------------------------------------------------ three kinds of numbers

    def evaluate(self, x: ArrayLike) -> Array:
        """Float64 values at points x (B, D) -> (B, K); not finite where a function is not defined."""
        points = self._points(x)
        result = np.empty((len(points), self.count))
        for start in range(0, len(points), CHUNK):
            part = points[start : start + CHUNK]
            found = evaluate.values(self.nodes, range(len(self.nodes)), list(part.T))
            for k, place in enumerate(self.outputs):
                result[start : start + CHUNK, k] = found[place]
        return result

    __call__ = evaluate

    def enclose(self, x: Interval) -> Interval:
        """Enclosures over boxes x (B, D) -> (B, K), rigorous; [-inf, inf] where F may be undefined somewhere in the box."""
        found, ok = self._enclosures(x)
        return found.undefined(~ok)

    def defined(self, x: Interval) -> NDArray[np.bool_]:
        """(B, K): where every operation that an output needs is surely defined on the whole box x (B, D)."""
        return self._enclosures(x)[1]

    def _enclosures(self, x: Interval) -> tuple[Interval, NDArray[np.bool_]]:
        lows, highs = self._points(x.lo), self._points(x.hi)
        shape = (len(lows), self.count)
        lo, hi, ok = np.empty(shape), np.empty(shape), np.ones(shape, dtype=bool)
        for start in range(0, len(lows), CHUNK):
            rows = slice(start, start + CHUNK)
            found = evaluate.enclosures(self.nodes, range(len(self.nodes)), Interval(lows[rows], highs[rows]))
            for k, place in enumerate(self.outputs):
                lo[rows, k], hi[rows, k] = found[place].value.lo, found[place].value.hi
                mask = found[place].ok
                if mask is not None:
                    ok[rows, k] = mask
        return Interval(lo, hi), ok

    def evaluate_on(self, variables: Sequence[Array]) -> Array:
        """Float64 values on arrays that broadcast, one per variable; on a product of axes that is cheaper than point by point.

        The outputs stand last: (.., K).
        """
        shape = np.broadcast_shapes(*(x.shape for x in variables))
        found = evaluate.values(self.nodes, range(len(self.nodes)), variables)
        return np.stack([np.broadcast_to(found[place], shape) for place in self.outputs], axis=-1)

    def enclose_on(self, variables: Sequence[Interval]) -> Interval:
        """Enclosures on intervals that broadcast, one per variable: (.., K), as `enclose` gives them row by row."""
        shape = np.broadcast_shapes(*(x.shape for x in variables))
        found = evaluate.enclosures(self.nodes, range(len(self.nodes)), variables)
        parts = []
        for place in self.outputs:
            one, ok = found[place].value, found[place].ok
            if ok is not None:
                one = one.undefined(~ok)
            parts.append(Interval(np.broadcast_to(one.lo, shape), np.broadcast_to(one.hi, shape)))
        return Interval.stack(parts)

    def enclose_ball(self, xs: Sequence[Any]) -> list[Any]:
        """Enclosures over complex balls: D `flint.acb` in, K out, at flint's current precision.

        A finite result is rigorous, and F has one analytic branch on the product of the balls: that of the real function.
        Where a branch cut or a pole is met, or abs, min, max, sign, floor or where is not decided by the real part of its
        argument over the whole ball, the result is indeterminate (not finite).
        """
        if len(xs) != self.dimension:
            raise BadInput(f"{len(xs)} balls came for {self.dimension} variables.")
        return evaluate.balls(self.nodes, self.outputs, xs)

    def _points(self, x: ArrayLike) -> Array:
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise BadInput(f"points must have shape (B, {self.dimension}), and {points.shape} came.")
        return points

    # ------------------------------------------------------------------ calculus and structure

    def gradient(self) -> Expression:
        """The K D derivatives dF_k/dx_i, in the order k D + i; one-sided at kinks, undefined at jumps (see `calculus`)."""
        graph = Graph(self.nodes)
        columns = [calculus.differentiate(graph, self.outputs, i) for i in range(self.dimension)]
        places = [columns[i][k] for k in range(self.count) for i in range(self.dimension)]
        return self.of_graph(f"gradient of ({self.text})", self.names, graph, places)

    def output(self, k: int) -> Expression:
        """Output number k alone."""
        return self.of_graph(f"output {k + 1} of ({self.text})", self.names, Graph(self.nodes), (self.outputs[k],))

    @property
    def jumps(self) -> tuple[str, ...]:
        """Texts of the subexpressions that may be discontinuous: sign, floor, where, piecewise, atan2."""
        return tuple(self.describe(i) for i, node in enumerate(self.nodes) if node.op in JUMPING)

    @property
    def is_continuous(self) -> bool:
        """True where nothing in the expression can jump; False says only that something might."""
        return not any(node.op in JUMPING for node in self.nodes)

    def describe(self, place: int) -> str:
        """The text of the subexpression at `place`, shortened."""
        return printing.text(self.nodes, self.names, place)

    def __reduce__(self) -> tuple[Any, ...]:
        plain = tuple((node.op, node.args, node.data) for node in self.nodes)
        return _rebuild, (self.text, self.names, plain, self.outputs)


def _rebuild(text: str, names: tuple[str, ...], nodes: Sequence[tuple[Any, ...]], outputs: tuple[int, ...]) -> Expression:
    return Expression(text, names, tuple(Node(*n) for n in nodes), outputs)
