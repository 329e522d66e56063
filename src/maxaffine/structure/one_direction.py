"""Targets of one direction, f(x) = h(w . x) + slopes . x, and the affine part of a sum of groups, taken out of it exactly."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.directions import Direction
from maxaffine.structure.groups import Group, groups_of
from maxaffine.structure.switches import affine_form


def affine_part(groups: Iterable[Group], dimension: int) -> tuple[list[Group], list[Fraction], Fraction]:
    """The groups that are not affine with rational coefficients, and the slopes (D,) and the constant of those that are."""
    others: list[Group] = []
    slopes, constant = [Fraction(0)] * dimension, Fraction(0)
    for group in groups:
        assert group.expression is not None
        form = affine_form(group.expression)
        if form is None or form.exact is None:
            others.append(group)
            continue
        constant += form.exact[1]
        for direction, c in zip(group.directions, form.exact[0], strict=True):
            for i, w in enumerate(direction):
                slopes[i] += c * w
    return others, slopes, constant


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
        return Expression.of_graph(self.h.text, self.h.names, graph, (graph.add(self.h.outputs[0], graph.number(constant)),))


def one_direction(expression: Expression) -> OneDirection | None:
    """The target as a function of one direction and an affine part; None where it is no such function."""
    if expression.count != 1 or not expression.used:
        return None
    if expression.dimension == 1:
        return OneDirection(expression, (Fraction(1),), (Fraction(0),))
    groups = groups_of(expression)
    if any(group.dimension != 1 or group.expression is None for group in groups):
        return None
    curved, slopes, constant = affine_part(groups, expression.dimension)
    if len(curved) != 1 or curved[0].expression is None:
        return None
    found = OneDirection(curved[0].expression, curved[0].directions[0], tuple(slopes))
    return OneDirection(found.shifted(constant), found.direction, found.slopes)
