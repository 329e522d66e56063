"""Values while a formula is cut: affine forms of inputs and nodes, and functions of one such form that no head computes yet.

`G` holds affine forms: its variables are the inputs and, behind them, the nodes that were emitted.  `F` holds the functions phi,
of the variables u and w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from maxaffine.expression.graph import Graph

EXACT = frozenset({"tanh", "sigmoid", "abs", "max"})
"""Operations that a head of two tokens computes on any range."""

PLANNED = 8
"""Folds of a norm before its share of the error is known."""


class Uncut(Exception):
    """What stands in the way of cutting a formula, as a sentence."""


@dataclass(frozen=True)
class Ridge:
    """f(d): a direction d in `G`, affine and not constant, and a function f in `F` of its variable u."""

    direction: int
    function: int


Value = int | Ridge
"""An affine form, by its place in `G`, or a ridge."""


@dataclass(frozen=True)
class CutNode:
    """A node: phi in `F`, and its one or two arguments in `G`; of a norm, which is folded, whether they are bare."""

    function: int
    arguments: tuple[int, ...]
    bare: tuple[bool, ...] = ()


@dataclass
class Emitter:
    """The nodes so far, each distinct one once."""

    inputs: int
    G: Graph = field(default_factory=Graph)
    F: Graph = field(default_factory=Graph)
    nodes: list[CutNode] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    _places: dict[CutNode, int] = field(default_factory=dict)

    @property
    def u(self) -> int:
        """The first variable of phi."""
        return self.F.variable(0)

    @property
    def w(self) -> int:
        """The second one."""
        return self.F.variable(1)

    def level(self, affine: int) -> int:
        """The layer after which an affine form is known."""
        found = 0
        for a in self.G.terms(affine)[1]:
            index = self.G.nodes[a].data
            found = max(found, 0 if index < self.inputs else self.levels[index - self.inputs])
        return found

    def node(self, function: int, *arguments: int, bare: tuple[bool, ...] = ()) -> int:
        """The place in `G` of the value of a node, the same one where it was emitted before."""
        made = CutNode(function, arguments, bare)
        place = self._places.get(made)
        if place is None:
            place = self.G.variable(self.inputs + len(self.nodes))
            self.levels.append((PLANNED if bare else 1) + max(self.level(a) for a in arguments))
            self.nodes.append(made)
            self._places[made] = place
        return place

    def carry(self, place: int) -> int:
        """A constant of `G`, in `F`."""
        return carried(self.G, self.F, place)

    def back(self, place: int) -> int:
        """A constant of `F`, in `G`."""
        return carried(self.F, self.G, place)

    def norm(self, first: int, second: int, bare: tuple[bool, bool]) -> int:
        """hypot of two affine forms, by folding."""
        squares = self.F.add(self.F.integer_power(self.u, 2), self.F.integer_power(self.w, 2))
        return self.node(self.F.apply("sqrt", squares), first, second, bare=bare)

    # ------------------------------------------------------------------ directions

    def relation(self, first: int, second: int) -> tuple[int, int] | None:
        """(a, b) in `G`, constants with second = a first + b; None where they are different directions."""
        if first == second:
            return self.G.one, self.G.zero
        c0, terms = self.G.terms(first)
        other0, others = self.G.terms(second)
        if set(terms) != set(others):
            return None
        key = min(terms)
        ratio = self.G.divide(others[key], terms[key])
        if any(self.G.multiply(ratio, terms[a]) != others[a] for a in terms):
            return None
        return ratio, self.G.subtract(other0, self.G.multiply(ratio, c0))

    def along(self, direction: int, value: Value) -> int | None:
        """A value as a function in `F` of that direction; None where it has another one."""
        if isinstance(value, int) and self.G.is_constant(value):
            return self.carry(value)
        ridge = value if isinstance(value, Ridge) else Ridge(value, self.u)
        related = self.relation(direction, ridge.direction)
        if related is None:
            return None
        a, b = (self.carry(one) for one in related)
        inner = self.F.add(self.F.multiply(a, self.u), b)
        return ridge.function if inner == self.u else replaced(self.F, ridge.function, inner)

    def common(self, values: Sequence[Value]) -> tuple[int, list[int]] | None:
        """The one direction of several values and their functions of it; None where they have several, or none."""
        first = next((v for v in values if isinstance(v, Ridge) or not self.G.is_constant(v)), None)
        if first is None:
            return None
        direction = first.direction if isinstance(first, Ridge) else first
        found = [self.along(direction, value) for value in values]
        functions = [f for f in found if f is not None]
        return (direction, functions) if len(functions) == len(found) else None

    # ------------------------------------------------------------------ emitting

    def affine(self, value: Value) -> int:
        """A value as an affine form: what is not affine in a ridge becomes a node, the rest is free."""
        if isinstance(value, int):
            return value
        c0, terms = self.F.terms(value.function)
        total = self.back(c0)
        slope = terms.pop(self.u, None)
        if slope is not None:
            total = self.G.add(total, self.G.multiply(self.back(slope), value.direction))
        if not terms:
            return total
        if len(terms) == 1 or all(self.is_exact(t) for t in terms):
            for t, c in terms.items():
                total = self.G.add(total, self.G.multiply(self.back(c), self.node(t, value.direction)))
            return total
        rest = self.F.total(self.F.multiply(c, t) for t, c in terms.items())
        return self.G.add(total, self.node(rest, value.direction))

    def is_exact(self, function: int) -> bool:
        """Whether a head of two tokens computes it: tanh, sigmoid, |.| or max(., 0) of an affine form of u."""
        node = self.F.nodes[function]
        return node.op in EXACT and set(self.F.terms(node.args[0])[1]) <= {self.u}

    def product(self, first: int, second: int) -> int:
        """The product of two affine forms as a bilinear node, constant factors outside."""
        if self.G.is_constant(first) or self.G.is_constant(second):
            return self.G.multiply(first, second)
        a, first = self.G.unscaled(first)
        b, second = self.G.unscaled(second)
        scale = self.G.multiply(a, b)
        related = self.relation(first, second)
        if related == (self.G.one, self.G.zero):
            return self.G.multiply(scale, self.node(self.F.integer_power(self.u, 2), first))
        low, high = sorted((first, second))
        return self.G.multiply(scale, self.node(self.F.multiply(self.u, self.w), low, high))


def carried(source: Graph, into: Graph, place: int) -> int:
    """A constant of one graph, in another."""
    node = source.nodes[place]
    if node.op == "const":
        return into.number(node.data)
    args = [carried(source, into, a) for a in node.args]
    return into.again(node, args) if args else into.make(node.op, (), node.data)


def replaced(F: Graph, function: int, inner: int) -> int:
    """The function of u with something else for u."""
    done: dict[int, int] = {}

    def walk(place: int) -> int:
        if place not in done:
            node = F.nodes[place]
            if node.op == "var":
                done[place] = inner if node.data == 0 else place
            elif F.is_constant(place):
                done[place] = place
            else:
                done[place] = F.again(node, [walk(a) for a in node.args])
        return done[place]

    return walk(function)


def logarithm(F: Graph, function: int, exponent: Fraction) -> int:
    """exponent * log(function) of something positive, simplified where it is an exponential or a power."""
    node = F.nodes[function]
    if node.op == "exp":
        return F.multiply(F.number(exponent), node.args[0])
    if node.op == "sqrt":
        return logarithm(F, node.args[0], exponent / 2)
    if node.op == "powr":
        return logarithm(F, node.args[0], exponent * node.data)
    return F.multiply(F.number(exponent), F.apply("log", function))
