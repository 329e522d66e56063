"""Targets of one direction: f(x) = h(w . x) + slopes . x, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from maxaffine.target.expression import Expression
from maxaffine.target.structure import Direction, Group, groups_of
from maxaffine.target.switches import affine_form
from maxaffine.target.tree import Graph


@dataclass(frozen=True)
class OneDirection:
    """h as an expression of t = direction . x, and the slopes of the affine part (all zero where there is none)."""

    h: Expression
    direction: Direction
    slopes: tuple[Fraction, ...]

    def shifted(self, constant: Fraction) -> Expression:
        """h + constant."""
        if not constant:
            return self.h
        graph = Graph(self.h.nodes)
        return Expression._of(self.h.text, self.h.names, graph, (graph.add(self.h.outputs[0], graph.number(constant)),))


def one_direction(expression: Expression) -> OneDirection | None:
    """The target as a function of one direction and an affine part; None where it is no such function."""
    if expression.count != 1 or not expression.used:
        return None
    if expression.dimension == 1:
        return OneDirection(expression, (Fraction(1),), (Fraction(0),))
    groups = groups_of(expression)
    if any(group.dimension != 1 or group.expression is None for group in groups):
        return None
    curved: list[Group] = []
    slopes, constant = [Fraction(0)] * expression.dimension, Fraction(0)
    for group in groups:
        assert group.expression is not None
        form = affine_form(group.expression)
        if form is None or form.exact is None:
            curved.append(group)
            continue
        constant += form.exact[1]
        for i, c in enumerate(group.directions[0]):
            slopes[i] += form.exact[0][0] * c
    if len(curved) != 1 or curved[0].expression is None:
        return None
    found = OneDirection(curved[0].expression, curved[0].directions[0], tuple(slopes))
    return OneDirection(found.shifted(constant), found.direction, found.slopes)
