"""The directions of an expression: every node with the linear forms w . x that it depends on, and copies in these as variables.

Affine subexpressions are directions: sin(x + 2y) is a function of the one direction x + 2y.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph, schedule

Direction = tuple[Fraction, ...]

SWITCHING = frozenset({"abs", "max", "min", "sign", "floor", "negative", "nonpositive", "zero", "cbrt", "sqrt", "powr"})


def told(w: Direction, names: Sequence[str]) -> str:
    """A direction as a person reads it."""
    parts = [f"{'' if c == 1 else '-' if c == -1 else f'{c}*'}{name}" for c, name in zip(w, names, strict=True) if c]
    return "+".join(parts).replace("+-", "-")


class Directed:
    """A growing copy of an expression's graph, with the directions of every node."""

    def __init__(self, expression: Expression) -> None:
        self.names = expression.names
        self.graph = Graph(expression.nodes)
        # Graph.make keeps the order of distinct nodes, so places of the expression stay valid where none repeats.
        self.place = {i: self.graph.make(*node) for i, node in enumerate(expression.nodes)}
        self._directions: dict[int, frozenset[Direction]] = {}
        self.unit = [tuple(Fraction(int(i == j)) for j in range(len(self.names))) for i in range(len(self.names))]

    # -- directions

    def affine(self, place: int) -> tuple[int, dict[int, int]] | None:
        """place = c0 + sum_i c_i x_i as places of constants, or None."""
        nodes = self.graph.nodes
        node = nodes[place]
        if node.op == "var":
            return self.graph.zero, {node.data: self.graph.one}
        if node.op != "lin" or any(nodes[a].op != "var" for a in node.args[2::2]):
            return None
        pairs = zip(node.args[1::2], node.args[2::2], strict=True)
        return node.args[0], {nodes[a].data: c for c, a in pairs}

    def direction(self, coefficients: dict[int, int]) -> tuple[Direction, int] | None:
        """(w, place of lambda) with sum_i c_i x_i = lambda w . x; None where the coefficients have no rational ratios."""
        if len(coefficients) == 1:
            ((variable, c),) = coefficients.items()
            return self.unit[variable], c
        parts = {i: self._rational_part(c) for i, c in coefficients.items()}
        units = {part[1] for part in parts.values() if part is not None}
        if len(units) != 1 or None in parts.values():
            return None
        first = parts[min(parts)]
        assert first is not None
        row = [Fraction(0)] * len(self.names)
        for i, part in parts.items():
            assert part is not None
            row[i] = part[0] / first[0]
        return tuple(row), self.graph.multiply(self.graph.number(first[0]), first[1])

    def _rational_part(self, c: int) -> tuple[Fraction, int] | None:
        """A constant as a rational number times one constant, 1 or irrational; None where it is a sum of several."""
        constant, terms = self.graph.constant_terms(c)
        if not terms:
            return constant, self.graph.one
        if constant == 0 and len(terms) == 1:
            ((place, ratio),) = terms.items()
            return ratio, place
        return None

    def directions(self, place: int) -> frozenset[Direction]:
        """All directions that a node depends on."""
        found = self._directions.get(place)
        if found is None:
            nodes = self.graph.nodes
            affine = self.affine(place)
            if self.graph.is_constant(place):
                found = frozenset()
            elif affine is not None:
                named = self.direction(affine[1])
                found = frozenset([named[0]]) if named else frozenset(self.unit[i] for i in affine[1])
            else:
                found = frozenset().union(*(self.directions(a) for a in nodes[place].args))
            self._directions[place] = found
        return found

    def switches(self, place: int) -> bool:
        """Whether some operation of a node may switch or be singular."""
        needed = schedule(tuple(self.graph.nodes), (place,))
        return any(self.graph.nodes[p].op in SWITCHING and not self.graph.is_constant(p) for p in needed)

    def variables(self, directions: Iterable[Direction]) -> frozenset[Direction]:
        """The unit directions of all variables in them."""
        return frozenset(self.unit[i] for w in directions for i, c in enumerate(w) if c)

    def used(self, expression: Expression) -> frozenset[Direction]:
        """The unit directions of the variables that the outputs depend on."""
        return frozenset().union(*(self.variables(self.directions(self.place[p])) for p in expression.outputs))


class Rewrite:
    """Copies nodes into a new graph whose variables are the directions."""

    def __init__(self, work: Directed, directions: Sequence[Direction]) -> None:
        self.work, self.names = work, tuple(f"t{e + 1}" for e in range(len(directions)))
        self.owners = {w: e for e, w in enumerate(directions)}
        self.graph = Graph()
        self._copies: dict[int, int] = {}
        self._variables: dict[int, int] = {}

    def put(self, variable: int, place: int) -> None:
        """Let a variable stand for a node of the new graph."""
        self._variables[variable] = place

    def copy(self, place: int) -> int:
        """The node in the new variables."""
        found = self._copies.get(place)
        if found is None:
            found = self._copies[place] = self._copy(place)
        return found

    def _copy(self, place: int) -> int:
        old, graph = self.work.graph, self.graph
        node = old.nodes[place]
        affine = None if old.is_constant(place) else self.work.affine(place)
        if affine is not None:
            constant, coefficients = affine
            if self._variables:
                pieces = [graph.multiply(self.copy(c), self._variables[i]) for i, c in coefficients.items()]
                return graph.total([self.copy(constant), *pieces])
            named = self.work.direction(coefficients)
            pairs = [named] if named is not None and named[0] in self.owners else []
            total = self.copy(constant)
            for w, c in pairs or [(self.work.unit[i], c) for i, c in coefficients.items()]:
                total = graph.add(total, graph.multiply(self.copy(c), graph.variable(self.owners[w])))
            return total
        args = [self.copy(a) for a in node.args]
        if node.op == "lin":
            return graph.combination(args)
        if node.op == "prod":
            return graph.monomial(zip(args, node.data, strict=True))
        return graph.make(node.op, tuple(args), node.data)

    def single(self, e: int, place: int) -> Expression:
        """A node of one direction as an expression of that variable alone."""
        graph = Graph()
        variables = {i: graph.variable(0) if i == e else graph.variable(1) for i in self.owners.values()}
        copies = graph.include(self.graph.nodes[: place + 1], variables)
        return Expression.of_graph("factor", (self.names[e],), graph, (copies[place],))

    def several(self, terms: Iterable[tuple[int, int]]) -> Expression:
        """A sum of constants times nodes of the old graph as an expression of all directions here."""
        total = self.graph.total([self.graph.multiply(self.copy(c), self.copy(node)) for c, node in terms])
        return Expression.of_graph("factor", self.names, self.graph, (total,))
