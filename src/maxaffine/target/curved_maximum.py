"""A kink along the graph of a function of one direction: f = smooth part + sigma max(h(w . x) + m . x + g, g), exactly.

A target that switches once between f_- and f_+ with f_+ - f_- = c u, u the switch's argument and c a rational number, is the
larger of the two for c > 0 and the smaller for c < 0.  Where u is a function of one direction and an affine part, any function g
of the same direction may be added to both sides of the maximum and taken off the smooth part: that makes both sides convex.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core.intervals import Interval
from maxaffine.target.box import Box
from maxaffine.target.expression import Expression
from maxaffine.target.one_direction import OneDirection, one_direction
from maxaffine.target.settled import settled
from maxaffine.target.structure import Direction, Group, groups_of
from maxaffine.target.switches import _copy, affine_form, switches
from maxaffine.target.tree import Graph

MOST_WAVES = 64
CELLS = 24  # per variable, on which a factor is seen to keep its sign
FREQUENCY = Fraction(20, 7)  # of the first wave, in z: a period a little longer than the range -1 to 1


@dataclass(frozen=True)
class Lift:
    """g = square z^2 + sum_k (cosines[k-1] cos(k f z) + sines[k-1] sin(k f z)), z = (t - origin)/scale, f = FREQUENCY.

    Any such g is right; a good one makes both sides of the maximum convex.
    """

    origin: float
    scale: float
    square: float = 0.0
    cosines: tuple[float, ...] = ()
    sines: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.origin, self.scale, self.square, *self.cosines, *self.sines)
        if len(numbers) > 2 * MOST_WAVES or not all(math.isfinite(c) for c in numbers) or not self.scale > 0:
            raise ValueError("the waves of a curved maximum are not few and of finite numbers")

    @property
    def is_zero(self) -> bool:
        """Whether nothing is added."""
        return not any((self.square, *self.cosines, *self.sines))

    def place(self, graph: Graph) -> int:
        """g of variable 0 in a graph."""
        origin, scale = Fraction(self.origin), Fraction(self.scale)
        z = graph.total([graph.number(-origin / scale), graph.multiply(graph.number(1 / scale), graph.variable(0))])
        terms = [graph.multiply(graph.number(Fraction(self.square)), graph.integer_power(z, 2))]
        for op, row in (("cos", self.cosines), ("sin", self.sines)):
            for k, c in enumerate(row):
                wave = graph.apply(op, graph.multiply(graph.number((k + 1) * FREQUENCY), z))
                terms.append(graph.multiply(graph.number(Fraction(c)), wave))
        return graph.total(terms)


@dataclass(frozen=True)
class CurvedMaximum:
    """f(x) = sum of `parts` + slopes . x + sign max(inner(t) + lean . x, outer(t)), t = direction . x."""

    parts: tuple[Group, ...]
    slopes: tuple[Fraction, ...]
    sign: int
    direction: Direction
    inner: Expression
    outer: Expression
    lean: tuple[Fraction, ...]


@dataclass(frozen=True)
class CurvedSwitch:
    """One switch: the branch that stays when `side` is chosen, and what the maximum compares with zero, for both sides."""

    sign: int
    bases: dict[int, Expression]
    apart: dict[int, OneDirection]

    def lifted(self, side: int, lift: Lift) -> CurvedMaximum:
        """f = base + sign max(H, 0) with g added to both sides; `side` +1 or -1 says which branch is the base."""
        over = self.apart[side]
        parts, slopes, constant = _smooth(self.bases[side])
        level = self.sign * constant
        inner, outer = Graph(over.h.nodes), Graph()
        names = ("t1",)
        places = (
            inner.total([over.h.outputs[0], lift.place(inner), inner.number(level)]),
            outer.total([lift.place(outer), outer.number(level)]),
        )
        sides = [Expression._of(text, names, graph, (place,)) for text, graph, place in
                 zip(("one side of the maximum", "the other side"), (inner, outer), places, strict=True)]  # fmt: skip
        if not lift.is_zero:
            parts = _with(parts, over.direction, lift, -self.sign)
        return CurvedMaximum(tuple(parts), tuple(slopes), self.sign, over.direction, sides[0], sides[1], over.slopes)


def curved_switch(expression: Expression, box: Box) -> CurvedSwitch | None:
    """The one switch of an expression as a maximum or minimum along one direction and an affine part; None for all others."""
    if expression.count != 1 or not expression.used:
        return None
    expression = settled(expression, box)
    found = [one for one in switches(expression) if one.chosen or one.kind == "jump"]
    if len(found) != 1 or found[0].kind != "kink":
        return None
    graph = Graph()
    branches = _branches(expression, found[0].place, graph)
    if branches is None:
        return None
    *ends, argument = branches
    apart = graph.subtract(ends[1], ends[0])
    ratio = _ratio(graph, apart, argument)
    if ratio is None:
        return None
    sign = 1 if ratio > 0 else -1
    bases, over = {}, {}
    for side in (-1, 1):
        # base f_- and H = sign (f_+ - f_-), or base f_+ and H = sign (f_- - f_+)
        bases[side] = Expression._of("a branch", expression.names, graph, (ends[0] if side < 0 else ends[1],))
        height = graph.multiply(graph.number(-side * sign), apart)
        along = one_direction(Expression._of("what the branches are apart", expression.names, graph, (height,)))
        if along is None or not any(along.slopes):
            return None
        over[side] = along
    return CurvedSwitch(sign, bases, over)


def _branches(expression: Expression, place: int, graph: Graph) -> tuple[int, int, int] | None:
    """f_-, f_+ and the argument of one kink, in a graph of their own."""
    node, ends, argument = expression.nodes[place], [], graph.zero
    for choice in (-1, 1):
        copies: list[int | bool] = []
        for i, one in enumerate(expression.nodes):
            copies.append(_copy(graph, one, [copies[a] for a in one.args], choice if i == place else None))
        end, args = copies[expression.outputs[0]], [copies[a] for a in node.args]
        if isinstance(end, bool) or any(isinstance(a, bool) for a in args):
            return None
        ends.append(end)
        argument = args[0] if node.op == "abs" else graph.subtract(args[0], args[1])
    return ends[0], ends[1], argument


def _ratio(graph: Graph, apart: int, argument: int) -> Fraction | None:
    """The rational number c != 0 with apart = c argument identically, where normal forms show it."""
    one, two = graph._split(apart)[1], graph._split(argument)[1]
    for term, coefficient in two.items():
        if term in one:
            above, below = graph.rational(one[term]), graph.rational(coefficient)
            if above is None or not below:
                continue
            ratio = above / below
            times = graph.multiply(graph.number(ratio), argument)
            if ratio and (apart == times or graph.is_zero(graph.subtract(apart, times))):
                return ratio
    return None


def _smooth(base: Expression) -> tuple[list[Group], list[Fraction], Fraction]:
    """The base as groups that are not affine, the slopes of what is, and a constant."""
    slopes, constant = [Fraction(0)] * base.dimension, Fraction(0)
    form = affine_form(base)
    if form is not None and form.exact is not None:
        return [], list(form.exact[0]), form.exact[1]
    parts = []
    for group in groups_of(base):
        assert group.expression is not None
        form = affine_form(group.expression)
        if form is None or form.exact is None:
            parts.append(group)
            continue
        constant += form.exact[1]
        for row, c in zip(group.directions, form.exact[0], strict=True):
            for i, w in enumerate(row):
                slopes[i] += c * w
    return parts, slopes, constant


def _with(parts: list[Group], direction: Direction, lift: Lift, sign: int) -> list[Group]:
    """The groups and sign g(direction . x), added to the group of that direction where there is one."""
    for i, group in enumerate(parts):
        if group.directions == (direction,) and group.expression is not None:
            graph = Graph(group.expression.nodes)
            place = graph.add(group.expression.outputs[0], graph.multiply(graph.number(sign), lift.place(graph)))
            both = Expression._of("a part of the smooth part", group.expression.names, graph, (place,))
            return [*parts[:i], Group(group.directions, both, None), *parts[i + 1 :]]
    graph = Graph()
    place = graph.multiply(graph.number(sign), lift.place(graph))
    return [*parts, Group((direction,), Expression._of("waves", ("t1",), graph, (place,)), None)]


def parting(expression: Expression, place: int, choice: int) -> Expression | None:
    """The branch of one choice minus the other one, of one kink."""
    graph = Graph()
    found = _branches(expression, place, graph)
    if found is None:
        return None
    apart = graph.subtract(found[1], found[0]) if choice > 0 else graph.subtract(found[0], found[1])
    return Expression._of("what the branches are apart", expression.names, graph, (apart,))


def extremum(expression: Expression, place: int, box: Box) -> int | None:
    """+1 where f is the larger of its branches at one kink everywhere in the box, -1 where it is the smaller; None if unknown.

    With the kink's value as a variable v of its own, f = F(x, v): where F never falls with v between the values of both branches,
    F(x, max(a, b)) = max(F(x, a), F(x, b)).
    """
    node, graph, D = expression.nodes[place], Graph(), expression.dimension
    copies: list[int | bool] = []
    for i, one in enumerate(expression.nodes):
        copies.append(graph.variable(D) if i == place else _copy(graph, one, [copies[a] for a in one.args], None))
    end, args = copies[expression.outputs[0]], [copies[a] for a in node.args]
    if node.op not in ("abs", "max", "min") or isinstance(end, bool) or any(isinstance(a, bool) for a in args):
        return None
    values = [int(a) for a in args] if node.op != "abs" else [int(args[0]), graph.negate(int(args[0]))]
    cells = [np.linspace(low, high, CELLS + 1) for low, high in zip(box.low, box.high, strict=True)]
    lows = np.stack([a.ravel() for a in np.meshgrid(*(cell[:-1] for cell in cells), indexing="ij")], axis=1)
    highs = np.stack([a.ravel() for a in np.meshgrid(*(cell[1:] for cell in cells), indexing="ij")], axis=1)
    both = Expression._of("both values", expression.names, graph, values).enclose(Interval(lows, highs))
    low, high = both.lo.min(axis=1, keepdims=True), both.hi.max(axis=1, keepdims=True)
    free = Expression._of("with a free kink", (*expression.names, "kink"), graph, (end,)).gradient().output(D)
    slope = free.enclose(Interval(np.concatenate([lows, low], axis=1), np.concatenate([highs, high], axis=1)))
    sign = 1 if bool((slope.lo >= 0).all()) else -1 if bool((slope.hi <= 0).all()) else None
    return sign if sign is None or node.op != "min" else -sign
