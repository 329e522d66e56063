"""Kinks along graphs of functions of one direction: f = smooth part + sigma max_i(h_i(w . x) + m_i . x + g(w . x)), exactly.

A target whose switches are nested maxima (or minima, or one absolute value) of a_1, .., a_n with branches f_i, where
f_i - f_j = c (a_i - a_j) with a rational number c, is the largest of its branches for c > 0 and the smallest for c < 0; for
minima the other way round.  Where the differences are functions of one direction and affine parts, any function g of the same
direction may be added to all sides of the maximum and taken off the smooth part: that makes all of them convex.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.directions import Direction
from maxaffine.structure.groups import Group, groups_of
from maxaffine.structure.one_direction import OneDirection, affine_part, one_direction
from maxaffine.structure.settled import settled
from maxaffine.structure.switches import Copies, affine_form, copy, switches
from maxaffine.target.box import Box

MOST_WAVES = 64
MOST_SIDES = 8
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
class Side:
    """phi(t) + lean . x, one side of a maximum."""

    phi: Expression
    lean: tuple[Fraction, ...]


@dataclass(frozen=True)
class CurvedMaximum:
    """f(x) = sum of `parts` + slopes . x + sign max_i(phi_i(t) + lean_i . x), t = direction . x."""

    parts: tuple[Group, ...]
    slopes: tuple[Fraction, ...]
    sign: int
    direction: Direction
    sides: tuple[Side, ...]

    def leans(self) -> list[tuple[Fraction, ...]]:
        """The affine parts that are not zero, each once."""
        return list(dict.fromkeys(side.lean for side in self.sides if any(side.lean)))


@dataclass(frozen=True)
class CurvedSwitch:
    """Branches, any of which may be the base, and sign (f_i - base) of every branch i as functions of one direction."""

    sign: int
    direction: Direction
    bases: tuple[Expression, ...]
    heights: tuple[tuple[Side, ...], ...]

    def lifted(self, base: int, lift: Lift) -> CurvedMaximum:
        """f = base + sign max_i(H_i), with g added to every side."""
        parts, slopes, constant = _smooth(self.bases[base])
        level = self.sign * constant
        sides = []
        for height in self.heights[base]:
            graph = Graph(height.phi.nodes)
            place = graph.total([height.phi.outputs[0], lift.place(graph), graph.number(level)])
            sides.append(Side(Expression.of_graph("a side of the maximum", ("t1",), graph, (place,)), height.lean))
        if not lift.is_zero:
            parts = _with(parts, self.direction, lift, -self.sign)
        return CurvedMaximum(tuple(parts), tuple(slopes), self.sign, self.direction, tuple(sides))


def curved_switch(expression: Expression, box: Box) -> CurvedSwitch | None:
    """The switches of an expression as one maximum or minimum along one direction and affine parts; None for all others."""
    if expression.count != 1 or not expression.used:
        return None
    expression = settled(expression, box)
    found = [one for one in switches(expression) if one.chosen or one.kind == "jump"]
    if not found or any(one.kind != "kink" for one in found):
        return None
    graph, kinks = Graph(), {one.place for one in found}
    ends = _ends(expression, max(kinks), kinks, graph)
    if ends is None or not 2 <= len(ends) <= MOST_SIDES:
        return None
    ratios = [_ratio(graph, graph.subtract(end, ends[0][0]), graph.subtract(leaf, ends[0][1])) for end, leaf in ends[1:]]
    if any(ratio is None or ratio != ratios[0] for ratio in ratios) or ratios[0] is None:
        return None
    sign = (1 if ratios[0] > 0 else -1) * (-1 if expression.nodes[max(kinks)].op == "min" else 1)
    bases = tuple(Expression.of_graph("a branch", expression.names, graph, (end,)) for end, _ in ends)
    if any(one.chosen for base in bases for one in switches(base)):
        return None
    heights: list[tuple[Side, ...]] = []
    direction: Direction = ()
    for base, _ in ends:
        row = []
        for end, _ in ends:
            apart = graph.multiply(graph.number(sign), graph.subtract(end, base))
            along = _along(Expression.of_graph("what the branches are apart", expression.names, graph, (apart,)))
            if along is None or (direction and along.direction and direction != along.direction):
                return None
            direction = along.direction or direction
            row.append(Side(along.h, along.slopes))
        heights.append(tuple(row))
    if not direction:
        return None
    turned = tuple(tuple(_across(side, direction) for side in row) for row in heights)
    return None if all(len({side.lean for side in row}) == 1 for row in turned) else CurvedSwitch(sign, direction, bases, turned)


def _across(side: Side, direction: Direction) -> Side:
    """The same side with an affine part at right angles to the direction."""
    along = sum((a * w for a, w in zip(side.lean, direction, strict=True)), Fraction(0)) / sum(w * w for w in direction)
    if not along:
        return side
    graph = Graph(side.phi.nodes)
    place = graph.add(side.phi.outputs[0], graph.multiply(graph.number(along), graph.variable(0)))
    lean = tuple(a - along * w for a, w in zip(side.lean, direction, strict=True))
    return Side(Expression.of_graph("a side", ("t1",), graph, (place,)), lean)


def _ends(expression: Expression, top: int, kinks: set[int], graph: Graph) -> list[tuple[int, int]] | None:
    """Branches with what the switch chooses for them: of nested maxima, of nested minima, or of one absolute value."""
    op, leaves, waiting, met = expression.nodes[top].op, [], [top], set[int]()
    while waiting:
        place = waiting.pop()
        if place in kinks and expression.nodes[place].op == op and (place == top or op != "abs"):
            met.add(place)
            waiting += reversed(expression.nodes[place].args)
        else:
            leaves.append(place)
    if met != kinks:
        return None
    found = []
    for leaf, sign in [(leaves[0], 1), (leaves[0], -1)] if op == "abs" else [(leaf, 1) for leaf in dict.fromkeys(leaves)]:
        copies: Copies = []
        for i, node in enumerate(expression.nodes):
            if i == top:
                copies.append(copies[leaf] if sign > 0 else graph.negate(copies[leaf]))
            else:
                copies.append(copy(graph, node, [copies[a] for a in node.args]))
        end, chosen = copies[expression.outputs[0]], copies[top]
        if isinstance(end, bool) or isinstance(chosen, bool):
            return None
        found.append((end, chosen))
    return found


def _along(expression: Expression) -> OneDirection | None:
    """A function of one direction and an affine part; one that is affine has no direction of its own."""
    form = affine_form(expression)
    if form is None:
        return one_direction(expression)
    if form.exact is None:
        return None
    graph = Graph()
    return OneDirection(Expression.of_graph("a constant", ("t1",), graph, (graph.number(form.exact[1]),)), (), form.exact[0])


def _ratio(graph: Graph, apart: int, argument: int) -> Fraction | None:
    """The rational number c != 0 with apart = c argument identically, where normal forms show it."""
    one, two = graph.terms(apart)[1], graph.terms(argument)[1]
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
    form = affine_form(base)
    if form is not None and form.exact is not None:
        return [], list(form.exact[0]), form.exact[1]
    return affine_part(groups_of(base), base.dimension)


def _with(parts: list[Group], direction: Direction, lift: Lift, sign: int) -> list[Group]:
    """The groups and sign g(direction . x), added to the group of that direction where there is one."""
    for i, group in enumerate(parts):
        if group.directions == (direction,) and group.expression is not None:
            graph = Graph(group.expression.nodes)
            place = graph.add(group.expression.outputs[0], graph.multiply(graph.number(sign), lift.place(graph)))
            both = Expression.of_graph("a part of the smooth part", group.expression.names, graph, (place,))
            return [*parts[:i], Group(group.directions, both, None), *parts[i + 1 :]]
    graph = Graph()
    place = graph.multiply(graph.number(sign), lift.place(graph))
    return [*parts, Group((direction,), Expression.of_graph("waves", ("t1",), graph, (place,)), None)]
