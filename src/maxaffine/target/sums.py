"""Targets that are sums of parts of few directions each, some of which switch: f(x) = sum_g f_g(w_g . x) + slopes . x, exactly.

max(a, b) with an affine a - b is (a + b)/2 + abs(a - b)/2, a function of one direction and what a and b are besides.  Affine
parts are gathered in `slopes`; their constant goes to the first part that switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from maxaffine.core.intervals import Interval
from maxaffine.target.box import Box
from maxaffine.target.expression import Expression
from maxaffine.target.one_direction import OneDirection
from maxaffine.target.structure import Group, groups_of
from maxaffine.target.switches import _copy, affine_form, forced, switches
from maxaffine.target.tree import Graph


@dataclass(frozen=True)
class Sum:
    """The parts in their own variables t1..tE, whether each of them switches, and the slopes of the affine part."""

    parts: tuple[Group, ...]
    switching: tuple[bool, ...]
    slopes: tuple[Fraction, ...]

    def along(self, number: int) -> OneDirection:
        """A part of one direction, the affine part with the first of those that switch."""
        group = self.parts[number]
        assert group.expression is not None
        zero = tuple(Fraction(0) for _ in self.slopes)
        return OneDirection(group.expression, group.directions[0], self.slopes if number == self.first else zero)

    @property
    def first(self) -> int:
        """The part that the tilt of a layer is counted with: the first one that switches."""
        return self.switching.index(True)


def sum_of(expression: Expression, box: Box) -> Sum | None:
    """The parts of a sum of at least two, where all that switch in the box have one direction and some do; else None."""
    if expression.count != 1 or not expression.used:
        return None
    groups = groups_of(_folded(settled(expression, box)), apart=True)
    slopes, constant = [Fraction(0)] * expression.dimension, Fraction(0)
    parts: list[Group] = []
    for group in groups:
        if group.expression is None:
            return None
        form = affine_form(group.expression)
        if form is None or form.exact is None:
            parts.append(group)
            continue
        constant += form.exact[1]
        for row, c in zip(group.directions, form.exact[0], strict=True):
            for i, w in enumerate(row):
                slopes[i] += c * w
    flags = [switching(_own(group)) for group in parts]
    if len(parts) < 2 or not any(flags) or any(flag and group.dimension > 1 for flag, group in zip(flags, parts, strict=True)):
        return None
    if constant:
        at = flags.index(True)
        expressions = OneDirection(_own(parts[at]), parts[at].directions[0], tuple(slopes)).shifted(constant)
        parts[at] = Group(parts[at].directions, expressions, None)
    return Sum(tuple(parts), tuple(flags), tuple(slopes))


def _own(group: Group) -> Expression:
    assert group.expression is not None
    return group.expression


def switching(expression: Expression) -> bool:
    """Whether something in it switches, or is singular at an end that a root may reach."""
    return any(one.kind != "singular" or one.op in ("sqrt", "cbrt") for one in switches(expression))


def settled(expression: Expression, box: Box) -> Expression:
    """The expression without the switches that stay on one side throughout the box, by enclosures of their arguments."""
    whole = Interval(box.low[None], box.high[None])
    choices = {}
    for one in switches(expression):
        if one.chosen and one.op != "floor":
            found = one.argument.enclose(whole)
            if found.lo[0, 0] > 0.0 or found.hi[0, 0] < 0.0:
                choices[one.place] = 1 if found.lo[0, 0] > 0.0 else -1
    return forced(expression, choices) if choices else expression


def _folded(expression: Expression) -> Expression:
    """max(a, b) and min(a, b) of several variables as (a + b)/2 +- abs(a - b)/2 where a - b is affine."""
    graph = Graph()
    copies: list[int | bool] = []
    half = Fraction(1, 2)
    for node in expression.nodes:
        args = [copies[a] for a in node.args]
        if node.op in ("max", "min") and len(args) == 2 and not any(isinstance(a, bool) for a in args):
            one, two = int(args[0]), int(args[1])
            apart = graph.subtract(one, two)
            _, terms = graph._split(apart)
            both = graph.add(one, two)
            if all(graph.nodes[a].op == "var" for a in terms) and len(_variables(graph, both) | _variables(graph, apart)) > 1:
                size = graph.multiply(graph.number(half if node.op == "max" else -half), graph.apply("abs", apart))
                copies.append(graph.add(graph.multiply(graph.number(half), both), size))
                continue
        copies.append(_copy(graph, node, args, None))
    outputs = [p for p in (copies[q] for q in expression.outputs) if not isinstance(p, bool)]
    return Expression._of(expression.text, expression.names, graph, outputs)


def _variables(graph: Graph, place: int) -> set[int]:
    found, waiting, seen = set[int](), [place], set[int]()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        node = graph.nodes[here]
        if node.op == "var" and isinstance(node.data, int):
            found.add(node.data)
        waiting += node.args
    return found
