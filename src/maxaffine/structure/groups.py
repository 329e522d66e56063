"""The structure of an expression: a sum of groups, each a function of few directions w . x.

    f(x) = sum_g F_g(w_g1 . x, .., w_gE . x),        F_g = sum of products of functions of one direction each, where it is

Affine subexpressions are directions: sin(x + 2y) is a function of the one direction x + 2y, and so is everything whose
arguments are all parallel.  Powers of sums are expanded, exp of a sum is a product, a quotient by a function of one direction is
a factor.  A term that no such product describes keeps its variables as directions.  Everything here is an identity; the
group's expression is written in new variables t1..tE, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.exact import inverse
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.structure.directions import Directed, Direction, Rewrite

MOST_TERMS = 200  # of an expanded product; beyond it the product stays as it is
MOST_POWER = 6


@dataclass(frozen=True)
class Group:
    """F_g in the variables t_e = directions[e] . x; `factors[r][e]` its factors where it is a sum of products."""

    directions: tuple[Direction, ...]
    expression: Expression | None  # of t1..tE; None for a callable, which is known by its values alone
    factors: tuple[tuple[Expression | None, ...], ...] | None  # None as a factor stands for 1

    @property
    def dimension(self) -> int:
        """E."""
        return len(self.directions)

    def matrix(self) -> Array:
        """The directions as a float64 matrix (E, D)."""
        return np.array([[float(c) for c in direction] for direction in self.directions])

    def range(self, low: Array, high: Array) -> Interval:
        """Enclosures (E,) of t over the box."""
        rows = []
        for direction in self.directions:
            total = Interval.point(np.zeros(1))
            for c, a, b in zip(direction, low, high, strict=True):
                if c:
                    total = total + Interval.exact(c) * Interval.of([a], [b])
            rows.append(total)
        return Interval.concatenate(rows)


def groups_of(expression: Expression, apart: bool = False) -> tuple[Group, ...]:
    """The groups of an expression of one output; a constant part is added to the first group.

    With `apart`, groups that switch (abs, max, sqrt, ..) stay apart from others of more directions.
    """
    work = _Work(expression)
    constant, terms = work.terms(expression.outputs[0])
    groups = []
    for index, (key, products) in enumerate(_merged(work, terms, apart).items()):
        groups.append(work.group(sorted(key, reverse=True), products, constant if index == 0 else None))
    return tuple(groups)


def _merged(work: _Work, terms: Sequence[list[int]], apart: bool = False) -> dict[frozenset[Direction], list[list[int]]]:
    """Products by what they depend on; a function of fewer directions is one of more: product keys hold it for free."""
    gathered: dict[frozenset[Direction], list[list[int]]] = {}
    for factors in terms:
        gathered.setdefault(work.key(factors), []).append(factors)
    alone = {key for key, terms in gathered.items() if apart and any(work.switches(f) for factors in terms for f in factors)}
    merged: dict[frozenset[Direction], list[list[int]]] = {}
    for key in sorted(gathered, key=lambda key: (-len(key), sorted(key, reverse=True))):
        home = next((big for big in merged if key < big and not alone & {big, key}), key)
        merged.setdefault(home, []).extend(gathered[key])
    return merged


def shared_groups(expression: Expression) -> tuple[Group, ...]:
    """The groups of all outputs of an expression: each has a value for every output, zero where that has no term of it.

    Constants of the outputs are added to the first group.
    """
    work = _Work(expression)
    found = [work.terms(place) for place in expression.outputs]
    merged = _merged(work, [factors for _, terms in found for factors in terms])
    groups = []
    for index, key in enumerate(merged):
        rows = []
        for constant, terms in found:
            own = [factors for factors in terms if any(factors is one for one in merged[key])]
            rows.append((own, constant if index == 0 else None))
        groups.append(work.several(sorted(key, reverse=True), rows))
    return tuple(groups)


def whole_group(expression: Expression) -> Group:
    """All outputs together as one group of the variables that occur, in t1..tE."""
    work = _Work(expression)
    directions = sorted(work.used(expression), reverse=True)
    return work.together(expression, Rewrite(work, directions), "all outputs")


def rotated_group(expression: Expression, directions: Sequence[Direction]) -> Group | None:
    """All outputs as one group of other directions: x = W^-1 t put into the expression, exactly.

    There must be as many directions as variables that occur, and they must be independent; None otherwise.
    """
    work = _Work(expression)
    variables = work.used(expression)
    used = [i for i, unit in enumerate(work.unit) if unit in variables]
    if len(directions) != len(used) or any(c for w in directions for i, c in enumerate(w) if i not in used):
        return None
    back = inverse([[w[i] for i in used] for w in directions])
    if back is None:
        return None
    fresh = Rewrite(work, directions)
    for row, i in zip(back, used, strict=True):
        pieces = [fresh.graph.multiply(fresh.graph.number(c), fresh.graph.variable(e)) for e, c in enumerate(row)]
        fresh.put(i, fresh.graph.total(pieces))
    return work.together(expression, fresh, "rotated outputs")


class _Work(Directed):
    """An expression taken apart into sums of products."""

    def key(self, factors: Sequence[int]) -> frozenset[Direction]:
        """What a product depends on: its directions where every factor has one, else its variables."""
        wanted = frozenset().union(*(self.directions(f) for f in factors))
        split = all(len(self.directions(f)) <= 1 for f in factors)
        variables = self.variables(wanted)
        return wanted if split and len(wanted) <= len(variables) else variables

    # -- sums of products

    def terms(self, place: int) -> tuple[int, list[list[int]]]:
        """place = constant + sum of products: the place of the constant, and the factors of every product."""
        output = self.place[place]
        expanded = self.expand(output)
        constant, parts = self.graph.terms(expanded)
        products = []
        for a, c in parts.items():
            factors = self.factors(a)
            products.append([c, *factors] if c != self.graph.one else factors)
        return constant, products

    def expand(self, place: int) -> int:
        """Products of sums multiplied out, where a sum joins several directions; the same value."""
        graph = self.graph
        constant, parts = graph.terms(place)
        total = [constant]
        for a, c in parts.items():
            grown = self._expand_product(a)
            total += [graph.multiply(c, piece) for piece in grown]
            if len(total) > MOST_TERMS:
                return place
        return graph.total(total)

    def _expand_product(self, place: int) -> list[int]:
        graph = self.graph
        node = graph.nodes[place]
        if node.op != "prod":
            return [place]
        pieces = [graph.one]
        for base, n in zip(node.args, node.data, strict=True):
            several = graph.nodes[base].op == "lin" and len(self.directions(base)) > 1 and n <= MOST_POWER
            for _ in range(n if several else 1):
                options = self._sum(base) if several else [base if n == 1 else graph.integer_power(base, n)]
                if len(pieces) * len(options) > MOST_TERMS:
                    return [place]
                pieces = [graph.multiply(p, option) for p in pieces for option in options]
        return pieces

    def _sum(self, place: int) -> list[int]:
        constant, parts = self.graph.terms(place)
        pieces = [self.graph.multiply(c, a) for a, c in parts.items()]
        return pieces if self.graph.is_zero(constant) else [constant, *pieces]

    def factors(self, place: int) -> list[int]:
        """Factors of a node, as fine as its structure shows."""
        graph = self.graph
        node = graph.nodes[place]
        if len(self.directions(place)) <= 1:
            return [place]
        if node.op == "prod":
            found: list[int] = []
            for base, n in zip(node.args, node.data, strict=True):
                for factor in self.factors(base):
                    found.append(factor if n == 1 else graph.integer_power(factor, n))
            return found
        if node.op == "exp":
            constant, parts = graph.terms(self.expand(node.args[0]))
            by_key: dict[frozenset[Direction], list[int]] = {}
            for a, c in parts.items():
                by_key.setdefault(self.directions(a), []).append(graph.multiply(c, a))
            if len(by_key) > 1:
                pieces = [graph.apply("exp", graph.total(items)) for items in by_key.values()]
                return pieces if graph.is_zero(constant) else [graph.apply("exp", constant), *pieces]
        if node.op == "div":
            below = self.factors(node.args[1])
            if all(len(self.directions(f)) <= 1 for f in below):
                return [*self.factors(node.args[0]), *(graph.divide(graph.one, f) for f in below)]
        return [place]

    # -- groups in their own variables

    def together(self, expression: Expression, fresh: Rewrite, text: str) -> Group:
        """All outputs in the new variables."""
        places = tuple(fresh.copy(self.place[p]) for p in expression.outputs)
        return Group(tuple(fresh.owners), Expression.of_graph(text, fresh.names, fresh.graph, places), None)

    def group(self, directions: Sequence[Direction], products: list[list[int]], constant: int | None) -> Group:
        """The sum of products and the constant in the new variables."""
        fresh = Rewrite(self, directions)
        total = [fresh.copy(constant)] if constant is not None else []
        factors: list[tuple[Expression | None, ...]] | None = []
        for product in products:
            places = [fresh.copy(f) for f in product]
            total.append(fresh.graph.product(places))
            if factors is not None:
                row = self._row(product, places, directions, fresh)
                factors = None if row is None else [*factors, row]
        if factors is not None and constant is not None and not self.graph.is_zero(constant):
            factors.append((fresh.single(0, total[0]), *([None] * (len(directions) - 1))))
        whole = fresh.graph.total(total)
        expression = Expression.of_graph(f"a group of {len(products)} terms", fresh.names, fresh.graph, (whole,))
        return Group(tuple(directions), expression, tuple(factors) if factors else None)

    def several(self, directions: Sequence[Direction], outputs: Sequence[tuple[list[list[int]], int | None]]) -> Group:
        """For every output a sum of products and a constant, in the new variables."""
        fresh = Rewrite(self, directions)
        places = []
        for products, constant in outputs:
            total = [] if constant is None else [fresh.copy(constant)]
            total += [fresh.graph.product([fresh.copy(f) for f in product]) for product in products]
            places.append(fresh.graph.total(total) if total else fresh.graph.zero)
        text = f"a group of {len(outputs)} outputs"
        return Group(tuple(directions), Expression.of_graph(text, fresh.names, fresh.graph, places), None)

    def _row(
        self, product: list[int], places: list[int], directions: Sequence[Direction], fresh: Rewrite
    ) -> tuple[Expression | None, ...] | None:
        """One factor per direction (constants go with the first), or None where a factor has several directions."""
        owners = {w: e for e, w in enumerate(directions)}
        cells: list[list[int]] = [[] for _ in directions]
        for factor, place in zip(product, places, strict=True):
            wanted = self.directions(factor)
            if len(wanted) > 1 or any(w not in owners for w in wanted):
                return None
            cells[owners[next(iter(wanted))] if wanted else 0].append(place)
        return tuple(fresh.single(e, fresh.graph.product(cell)) if cell else None for e, cell in enumerate(cells))
