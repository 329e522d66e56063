"""A separation: a sum of products over blocks of directions, with functions of sums over blocks among the factors.

    f(x) = sum_r prod_b p_rb(t_b) prod_{j in J_r} g_j(u_j),        u_j = sum_b u_jb(t_b),        t_b = directions of block b . x

A block has few directions, most have one.  An outer function g_j becomes a short sum of exponentials (exponential_sums.py), each
of which is a product over blocks.  Separations are found in separate.py, and everything there is an identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.directions import Direction
from maxaffine.structure.groups import Group

Parts = tuple[Expression | None, ...]


@dataclass(frozen=True)
class Outer:
    """g(u) of u = sum_b parts[b](t_b); None as a part stands for 0."""

    function: Expression  # g, of one variable
    parts: Parts


@dataclass(frozen=True)
class Term:
    """A product: a factor per block (None stands for 1), and the outer functions in it."""

    factors: Parts
    outers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Separation:
    """A sum of terms over blocks of directions, block after block; `used` are the identities that led to it, for people."""

    directions: tuple[Direction, ...]
    sizes: tuple[int, ...]  # directions per block
    terms: tuple[Term, ...]
    outers: tuple[Outer, ...] = ()
    used: tuple[str, ...] = ()

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of the first direction of every block."""
        return tuple(sum(self.sizes[:b]) for b in range(len(self.sizes)))

    def frame(self, b: int) -> Group:
        """The directions of block b, for their matrix and ranges."""
        first = self.firsts[b]
        return Group(self.directions[first : first + self.sizes[b]], None, None)

    def all_directions(self) -> Group:
        """The directions of all blocks."""
        return Group(self.directions, None, None)

    def ranges(self, low: Array, high: Array) -> list[Interval]:
        """Enclosures (E_b,) of the directions of every block over the box."""
        return [self.frame(b).range(low, high) for b in range(len(self.sizes))]

    def whole(self, names: Sequence[str]) -> Expression:
        """The sum of products as an expression of the variables x."""
        graph = Graph()
        t = []
        for w in self.directions:
            t.append(graph.total([graph.multiply(graph.number(c), graph.variable(i)) for i, c in enumerate(w) if c]))
        blocks = [dict(enumerate(t[first : first + size])) for first, size in zip(self.firsts, self.sizes, strict=True)]

        def put(part: Expression, variables: dict[int, int]) -> int:
            return graph.include(part.nodes, variables)[part.outputs[0]]

        def over_blocks(parts: Parts) -> list[int]:
            return [put(part, block) for part, block in zip(parts, blocks, strict=True) if part is not None]

        outers = [put(outer.function, {0: graph.total(over_blocks(outer.parts))}) for outer in self.outers]
        products = [graph.product([*over_blocks(term.factors), *(outers[j] for j in term.outers)]) for term in self.terms]
        return Expression.of_graph("the sum of products", tuple(names), graph, (graph.total(products),))


def side_by_side(functions: Sequence[Expression], scales: Array) -> Expression | None:
    """Functions of the same variables, each times a number, as the outputs of one expression; None where there are none."""
    if not functions:
        return None
    graph, places = Graph(), []
    for one, scale in zip(functions, scales, strict=True):
        place = graph.include(one.nodes, {i: graph.variable(i) for i in range(one.dimension)})[one.outputs[0]]
        places.append(graph.multiply(graph.number(Fraction(float(scale))), place))
    return Expression.of_graph("factors", functions[0].names, graph, places)
