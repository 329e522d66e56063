"""Expressions as sums of monomials: c prod_i f_i^{p_i} with rational powers, f_i positive wherever a power is not an integer.

    products, quotients, powers and roots of products, exp of sums, log of products, sums inside products

A monomial is read off the graph of an expression on its box; signs are decided by enclosures over pieces of the box.  Everything
is an identity there, and `identities` says which ones were needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import grid
from maxaffine.core.intervals import Interval
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import schedule
from maxaffine.structure.directions import Directed, Direction

T = TypeVar("T")

MOST_ROWS = 64  # of an expanded product
MOST_POWER = 6
PIECES = {1: 64, 2: 12, 3: 5}  # per variable, for the sign of an expression

POWERS = "powers of products of positive factors"
EXPONENTIALS = "exponentials of sums"
LOGARITHMS = "logarithms of products"
EXPANDED = "products of sums multiplied out"
COMMON = "common factors of sums"


@dataclass(frozen=True)
class Monomial:
    """scale times the product of nodes to rational powers; `scale` is the place of a constant."""

    scale: int
    powers: Mapping[int, Fraction]


class Monomials(Directed):
    """The graph of an expression on a box, whose nodes are read as sums of monomials."""

    def __init__(self, expression: Expression, low: Array, high: Array) -> None:
        super().__init__(expression)
        self.low, self.high = low, high
        self.identities: dict[str, None] = {}
        self._signs: dict[int, int] = {}
        self._known: dict[int, list[Monomial]] = {}

    # ------------------------------------------------------------------ signs

    def sign(self, place: int) -> int:
        """1 or -1 where a node is surely positive or negative on the box, else 0."""
        if place not in self._signs:
            self._signs[place] = self._sign(place)
        return self._signs[place]

    def _sign(self, place: int) -> int:
        nodes = tuple(self.graph.nodes[: place + 1])
        order = schedule(nodes, (place,))
        moving = [nodes[p].data for p in order if nodes[p].op == "var"]
        for pieces in (1, PIECES.get(len(moving), 1)):
            low, high = self.low[moving][None], self.high[moving][None]
            if pieces > 1:
                low, high = grid(low[0], high[0], pieces)
            at = {i: Interval(low[:, k], high[:, k]) for k, i in enumerate(moving)}
            blank = Interval.point(np.zeros(1))
            found = evaluate.enclosures(nodes, order, [at.get(i, blank) for i in range(len(self.names))])[place]
            if found.ok is not None and not np.all(found.ok):
                continue
            if np.all(found.value.lo > 0.0):
                return 1
            if np.all(found.value.hi < 0.0):
                return -1
        return 0

    # ------------------------------------------------------------------ sums of monomials

    def monomials(self, place: int) -> list[Monomial]:
        """A node as a sum of monomials; of itself alone where nothing is known of its operation."""
        if place not in self._known:
            self._known[place] = self._monomials(place)
        return self._known[place]

    def _monomials(self, place: int) -> list[Monomial]:
        graph, node = self.graph, self.graph.nodes[place]
        if graph.is_constant(place):
            return [] if graph.is_zero(place) else [Monomial(place, {})]
        if len(self.directions(place)) <= 1 and node.op not in ("prod", "div", "powr", "sqrt"):
            scale, rest = graph.unscaled(place)
            return [Monomial(scale, {rest: Fraction(1)})]
        found: list[Monomial] | None = None
        if node.op == "lin":
            found = self._sum(place)
        elif node.op == "prod":
            found = self._product([self.power(base, Fraction(n)) for base, n in zip(node.args, node.data, strict=True)])
        elif node.op == "div":
            found = self._product([self.monomials(node.args[0]), self.power(node.args[1], Fraction(-1))])
        elif node.op in ("sqrt", "powr"):
            found = self.power(node.args[0], Fraction(1, 2) if node.op == "sqrt" else node.data)
        elif node.op == "exp":
            found = self._exponential(node.args[0])
        elif node.op == "log":
            found = self._logarithm(node.args[0])
        return [Monomial(graph.one, {place: Fraction(1)})] if found is None else found

    def _sum(self, place: int) -> list[Monomial]:
        constant, parts = self.graph.terms(place)
        found = [*self.monomials(constant)]
        for a, c in parts.items():
            found += [self.scaled(one, c) for one in self.monomials(a)]
        return self.gathered(found)

    def gathered(self, rows: Iterable[Monomial]) -> list[Monomial]:
        """Equal monomials added up."""
        sums: dict[frozenset[tuple[int, Fraction]], list[Monomial]] = {}
        for one in rows:
            sums.setdefault(frozenset(one.powers.items()), []).append(one)
        found = []
        for same in sums.values():
            scale = self.graph.total([one.scale for one in same])
            if not self.graph.is_zero(scale):
                found.append(Monomial(scale, same[0].powers))
        return found

    def scaled(self, one: Monomial, c: int) -> Monomial:
        """A monomial times a constant."""
        return Monomial(self.graph.multiply(c, one.scale), one.powers)

    def _product(self, factors: Sequence[list[Monomial]]) -> list[Monomial] | None:
        """Products multiplied out; None where there are too many."""
        found = [Monomial(self.graph.one, {})]
        for rows in factors:
            if len(found) * len(rows) > MOST_ROWS:
                return None
            if len(rows) > 1:
                self.identities[EXPANDED] = None
            found = [self.times(a, b) for a in found for b in rows]
        return self.gathered(found)

    def times(self, a: Monomial, b: Monomial) -> Monomial:
        """The product of two."""
        powers = dict(a.powers)
        for base, p in b.powers.items():
            powers[base] = powers.get(base, Fraction(0)) + p
        return Monomial(self.graph.multiply(a.scale, b.scale), {base: p for base, p in powers.items() if p})

    def power(self, place: int, p: Fraction) -> list[Monomial]:
        """A node to a rational power."""
        apart = self._factor_by_factor(place, p)
        if apart is not None:
            return apart
        rows = self.monomials(place)
        if len(rows) == 1:
            return [self._root(rows[0], p) or Monomial(self.graph.one, {place: p})]
        if p.denominator == 1 and 0 < p <= MOST_POWER and len(self.directions(place)) > 1:
            found = self._product([rows] * int(p))
            if found is not None:
                return found
        shared, rest = self.common(rows)
        if shared.powers or shared.scale != self.graph.one:
            outside = self._root(shared, p)
            if outside is not None:
                self.identities[COMMON] = None
                return [self.times(outside, Monomial(self.graph.one, {self.total(rest): p}))]
        return [Monomial(self.graph.one, {place: p})]

    def _factor_by_factor(self, place: int, p: Fraction) -> list[Monomial] | None:
        """A product to a power that is no positive integer, its factors not multiplied out; None where that is nothing new."""
        scale, rest = self.graph.unscaled(place)
        factors = self.graph.factors(rest)
        if (p.denominator == 1 and p > 0) or len(factors) < 2:
            return None
        if p.denominator != 1 and not all(self.sign(one) > 0 for one in (scale, *factors)):
            return None
        found = self._product([self.power(base, n * p) for base, n in factors.items()])
        return None if found is None else [self.scaled(one, self._constant_power(scale, p)) for one in found]

    def _root(self, one: Monomial, p: Fraction) -> Monomial | None:
        """A monomial to a power, factor by factor; None where a root needs factors that are not surely positive."""
        if p.denominator == 1:
            return Monomial(self._constant_power(one.scale, p), {base: q * p for base, q in one.powers.items()})
        turned = self.positive(one)
        if turned is None:
            return None
        if len(turned.powers) > 1 or turned.scale != self.graph.one:
            self.identities[POWERS] = None
        return Monomial(self._constant_power(turned.scale, p), {base: q * p for base, q in turned.powers.items()})

    def _constant_power(self, scale: int, p: Fraction) -> int:
        return self.graph.power(scale, self.graph.number(p))

    def positive(self, one: Monomial) -> Monomial | None:
        """A positive monomial of positive factors, those of negative ones by their opposites; None where that is not known."""
        graph, powers, turns = self.graph, dict[int, Fraction](), 0
        for base, q in one.powers.items():
            sign = self.sign(base)
            if sign == 0 or (sign < 0 and q.denominator != 1):
                return None
            if sign < 0:
                turns += int(q)
            home = base if sign > 0 else graph.negate(base)
            powers[home] = powers.get(home, Fraction(0)) + q
        scale = graph.negate(one.scale) if turns % 2 else one.scale
        return Monomial(scale, powers) if self.sign(scale) > 0 else None

    def common(self, rows: Sequence[Monomial]) -> tuple[Monomial, list[Monomial]]:
        """The factors that all monomials of a sum share, and what is left of them."""
        graph = self.graph
        bases = set(rows[0].powers).intersection(*(one.powers for one in rows[1:]))
        shared = {}
        for base in sorted(bases):
            powers = [one.powers[base] for one in rows]
            if all(p > 0 for p in powers):
                shared[base] = min(powers)
            elif all(p < 0 for p in powers):
                shared[base] = max(powers)
        scale = rows[0].scale if all(one.scale == rows[0].scale for one in rows) else graph.one
        lead = Monomial(scale if self.sign(scale) > 0 else graph.one, shared)
        back = Monomial(graph.divide(graph.one, lead.scale), {base: -p for base, p in shared.items()})
        return lead, [self.times(one, back) for one in rows]

    def _exponential(self, argument: int) -> list[Monomial] | None:
        """exp of a sum whose parts depend on different directions: the product of their exponentials."""
        rows = self.monomials(argument)
        parts = self.components(rows)
        constants = [one for one in rows if not one.powers]
        if len(parts) + len(constants) < 2:
            return None
        self.identities[EXPONENTIALS] = None
        scale = self.graph.apply("exp", self.total(constants)) if constants else self.graph.one
        powers = {self.graph.apply("exp", self.total(part)): Fraction(1) for part in parts}
        return [Monomial(scale, powers)]

    def _logarithm(self, argument: int) -> list[Monomial] | None:
        """log of a product of positive factors: the sum of their logarithms."""
        rows = self.monomials(argument)
        if len(rows) != 1:
            return None
        one = self.positive(rows[0])
        if one is None or (len(one.powers) < 2 and one.scale == self.graph.one):
            return None
        self.identities[LOGARITHMS] = None
        found = [] if one.scale == self.graph.one else [Monomial(self.graph.apply("log", one.scale), {})]
        for base, p in one.powers.items():
            found.append(Monomial(self.graph.number(p), {self.graph.apply("log", base): Fraction(1)}))
        return found

    # ------------------------------------------------------------------ back to nodes, and what depends on what

    def factor(self, base: int, p: Fraction) -> int:
        """The node base^p."""
        return base if p == 1 else self.graph.power(base, self.graph.number(p))

    def node(self, one: Monomial) -> int:
        """The node of a monomial."""
        return self.graph.product([one.scale, *(self.factor(base, p) for base, p in one.powers.items())])

    def total(self, rows: Iterable[Monomial]) -> int:
        """The node of a sum of monomials."""
        return self.graph.total([self.node(one) for one in rows])

    def needs(self, one: Monomial) -> frozenset[Direction]:
        """All directions that a monomial depends on."""
        return frozenset(itertools.chain.from_iterable(self.directions(base) for base in one.powers))

    def components(self, rows: Iterable[Monomial]) -> list[list[Monomial]]:
        """The monomials in classes that share no direction with each other; constants are left out."""
        return [[one for one, _ in part] for part in joined([(one, self.needs(one)) for one in rows])]


def joined(items: Iterable[tuple[T, frozenset[Direction]]]) -> list[list[tuple[T, frozenset[Direction]]]]:
    """Items in classes that share no direction with each other, in their order; those of no direction are left out."""
    classes: list[list[tuple[T, frozenset[Direction]]]] = []
    for item in items:
        if not item[1]:
            continue
        touched = [part for part in classes if any(item[1] & need for _, need in part)]
        if not touched:
            classes.append([item])
            continue
        home = touched[0]
        home.append(item)
        for other in touched[1:]:
            home += other
            classes.remove(other)
    return classes
