"""Factors that are functions of a sum or of a product over directions: where they are, and what the sum is.

A node is g(u) of a node u below it through which it depends on all its variables: u a sum over directions, or a product of
positive factors, whose logarithm is one.  A power of a sum of two monomials p + q is p^r (1 + q/p)^r, a function of the one
monomial q/p.  Quadratic forms are sums of squares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph, schedule
from maxaffine.structure.directions import Direction
from maxaffine.structure.monomials import Monomial, Monomials, joined
from maxaffine.structure.quadratic import squared

MOST_SPLIT = 4  # monomials of a sum that is parted in two in every way

SUMS_OF_SQUARES = "quadratic forms as sums of squares"
RATIOS = "sums of two products by their ratio"
OF_PRODUCTS = "functions of a product, by its logarithm"
OF_SUMS = "functions of a sum"


@dataclass(frozen=True)
class Wrapped:
    """front * g(u), u the sum of the nodes `parts`, which share no direction."""

    front: Monomial
    function: Expression
    parts: tuple[int, ...]


class Outers(Monomials):
    """The graph of an expression, whose factors are read as functions of sums."""

    def frame(self, node: int) -> frozenset[Direction]:
        """The directions that hold a node: its own, or its variables where these are not more."""
        own = self.directions(node)
        variables = self.variables(own)
        return variables if len(own) > 1 and len(variables) <= len(own) else own

    def wrapped(self, node: int) -> Wrapped | None:
        """The node as a function of a sum or of a product, with the smallest parts."""
        best: tuple[int, Wrapped, str] | None = None
        for waist in self._waists(node):
            for found, name in self._readings(node, waist):
                widest = max(len(self.frame(part)) for part in found.parts)
                if best is None or widest < best[0]:
                    best = widest, found, name
        if best is None or best[0] >= len(self.frame(node)):
            return None
        self.identities[best[2]] = None
        return best[1]

    def _readings(self, node: int, waist: int) -> Iterator[tuple[Wrapped, str]]:
        graph, rows = self.graph, self.monomials(waist)
        if len(rows) == 1:
            (row,) = rows
            flipped = Monomial(graph.negate(row.scale), row.powers)
            for turned, sign in ((self.positive(row), 1), (self.positive(flipped), -1)):
                if turned is not None:
                    parts = self._logarithms(turned)
                    if len(parts) > 1:
                        scale = graph.multiply(graph.number(sign), turned.scale)
                        yield Wrapped(Monomial(graph.one, {}), self._function(node, waist, scale), parts), OF_PRODUCTS
            return
        yield from self._sum_of(node, waist, rows, OF_SUMS)
        yield from self._ratio(node, waist, rows)
        flat = squared(self, rows)
        if flat is not rows:
            yield from self._sum_of(node, waist, flat, SUMS_OF_SQUARES)

    def _sum_of(self, node: int, waist: int, rows: list[Monomial], name: str) -> Iterator[tuple[Wrapped, str]]:
        parts = tuple(self.total(part) for part in self.components(rows))
        if len(parts) > 1:
            constant = self.total([row for row in rows if not row.powers])
            yield Wrapped(Monomial(self.graph.one, {}), self._function(node, waist, None, constant), parts), name

    def _logarithms(self, one: Monomial) -> tuple[int, ...]:
        """The logarithm of a positive monomial, but for its constant, in parts that share no direction."""
        parts = joined([((base, p), self.directions(base)) for base, p in one.powers.items()])
        graph = self.graph
        return tuple(
            graph.total([graph.multiply(graph.number(p), graph.apply("log", base)) for (base, p), _ in part]) for part in parts
        )

    def _ratio(self, node: int, waist: int, rows: list[Monomial]) -> Iterator[tuple[Wrapped, str]]:
        """(p + q)^r = p^r (1 + q/p)^r for p > 0 and q of one sign; each a monomial, or a sum of some taken as one factor."""
        power = self._exponent(node, waist)
        if not 2 <= len(rows) <= MOST_SPLIT or power is None:
            return
        for p, q in self._halves(rows):
            above, graph = self.positive(p), self.graph
            if above is None:
                continue
            sign = 1
            below = self.positive(q)
            if below is None:
                sign, below = -1, self.positive(Monomial(graph.negate(q.scale), q.powers))
            if below is None:
                continue
            back = Monomial(graph.divide(graph.one, above.scale), {base: -e for base, e in above.powers.items()})
            ratio = self.times(below, back)
            parts, front = self._logarithms(ratio), self._root(above, power)
            if len(parts) > 1 and front is not None:
                fresh = Graph()
                grown = fresh.apply("exp", fresh.variable(0))
                scale = fresh.include(graph.nodes[: ratio.scale + 1])[ratio.scale] if ratio.scale != graph.one else fresh.one
                term = fresh.multiply(fresh.multiply(fresh.number(sign), scale), grown)
                place = fresh.power(fresh.add(fresh.one, term), fresh.number(power))
                yield Wrapped(front, Expression.of_graph("ratio", ("u",), fresh, (place,)), parts), RATIOS

    def _halves(self, rows: list[Monomial]) -> Iterator[tuple[Monomial, Monomial]]:
        """The two parts of every way to part a sum in two."""
        for chosen in itertools.product((True, False), repeat=len(rows)):
            if any(chosen) and not all(chosen):
                p, q = ([one for one, own in zip(rows, chosen, strict=True) if own is side] for side in (True, False))
                yield self._as_one(p), self._as_one(q)

    def _as_one(self, rows: list[Monomial]) -> Monomial:
        """A monomial, or the sum of several as its only factor."""
        return rows[0] if len(rows) == 1 else Monomial(self.graph.one, {self.total(rows): Fraction(1)})

    def _exponent(self, node: int, waist: int) -> Fraction | None:
        """r where node = waist^r."""
        at = self.graph.nodes[node]
        if node == waist:
            return Fraction(1)
        if at.op == "sqrt" and at.args[0] == waist:
            return Fraction(1, 2)
        if at.op == "powr" and at.args[0] == waist:
            return Fraction(at.data)
        if at.op == "prod" and at.args == (waist,):
            return Fraction(at.data[0])
        if at.op == "div" and at.args[0] == self.graph.one:
            below = self._exponent(at.args[1], waist)
            return None if below is None else -below
        return None

    def _waists(self, node: int) -> list[int]:
        """Nodes through which a node depends on all its variables, itself included, lowest first."""
        nodes = tuple(self.graph.nodes)
        found = []
        for place in schedule(nodes, (node,)):
            if self.graph.is_constant(place) or len(self.directions(place)) < 2:
                continue
            seen, todo = {place}, [node] if node != place else []
            while todo:
                here = todo.pop()
                if here not in seen:
                    seen.add(here)
                    todo += nodes[here].args
            if node == place or not any(nodes[p].op == "var" for p in seen):
                found.append(place)
        return found

    def _function(self, node: int, waist: int, scale: int | None, constant: int | None = None) -> Expression:
        """The node as a function of u: the waist is scale e^u, or u + constant where there is no scale."""
        graph, nodes = Graph(), tuple(self.graph.nodes)
        copies = dict[int, int]()
        for place in schedule(nodes, [p for p in (node, scale, constant) if p is not None]):
            if place != waist and self.graph.is_constant(place):
                copies[place] = graph.make(nodes[place].op, tuple(copies[a] for a in nodes[place].args), nodes[place].data)
        u = graph.variable(0)
        if scale is not None:
            copies[waist] = graph.multiply(copies[scale], graph.apply("exp", u))
        else:
            copies[waist] = u if constant is None else graph.add(u, copies[constant])

        def copy(place: int) -> int:
            if place not in copies:
                copies[place] = graph.again(nodes[place], [copy(a) for a in nodes[place].args])
            return copies[place]

        return Expression.of_graph("outer function", ("u",), graph, (copy(node),))
