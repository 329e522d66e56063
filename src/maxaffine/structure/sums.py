"""Targets that are sums of parts of few directions each, some of which switch: f(x) = sum_g f_g(w_g . x) + slopes . x, exactly.

max(a, b) with an affine a - b is (a + b)/2 + abs(a - b)/2, a function of one direction and what a and b are besides.  A part that
switches has one direction, or is a product of functions of one direction each.  Affine parts are gathered in `slopes`; their
constant goes to the first part that switches.
"""

from dataclasses import dataclass
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph, Node, schedule
from maxaffine.structure.groups import Group, groups_of
from maxaffine.structure.one_direction import OneDirection, affine_part
from maxaffine.structure.products import Product, number, of_one_term
from maxaffine.structure.settled import settled, split_roots, switching
from maxaffine.structure.switches import Copies, rewritten
from maxaffine.target.box import Box


@dataclass(frozen=True)
class Sum:
    """The parts in their own variables t1..tE, whether each of them switches, and the slopes of the affine part."""

    parts: tuple[Group, ...]
    switching: tuple[bool, ...]
    slopes: tuple[Fraction, ...]
    constant: Fraction  # where the first part that switches is a product; else its expression has it

    def along(self, number: int) -> OneDirection:
        """A part of one direction, the affine part with the first of those that switch."""
        group = self.parts[number]
        assert group.expression is not None
        zero = tuple(Fraction(0) for _ in self.slopes)
        return OneDirection(group.expression, group.directions[0], self.slopes if number == self.first else zero)

    def is_product(self, number: int) -> bool:
        """Whether a part switches and has several directions."""
        return self.switching[number] and self.parts[number].dimension > 1

    def product(self, number: int, box: Box) -> Product:
        """A part that is a product, the affine part with the first of those that switch."""
        if number == self.first:
            return of_one_term(self.parts[number], box, self.slopes, self.constant)
        return of_one_term(self.parts[number], box, tuple(Fraction(0) for _ in self.slopes), Fraction(0))

    @property
    def first(self) -> int:
        """The part that the affine part of a layer is counted with: the first one that switches."""
        return self.switching.index(True)


def sum_of(expression: Expression, box: Box, query: int = 0) -> Sum | None:
    """The parts of a sum of at least two, where some switch in the box, each of one direction or a product; else None.

    Where the first coordinates are a `query`, in which values may not be affine, what is affine in them is a part of its own.
    """
    if expression.count != 1 or not expression.used:
        return None
    groups = groups_of(rewritten(settled(split_roots(expression, box), box), _fold), apart=True)
    parts, slopes, constant = affine_part(groups, expression.dimension)
    if any(slopes[:query]):
        parts.append(_line((*slopes[:query], *[Fraction(0)] * (len(slopes) - query))))
        slopes[:query] = [Fraction(0)] * query
    kept: list[Group] = []
    for group in parts:
        if group.dimension > 1 and _switching(group, box):
            terms = _terms(group)
            if terms is None:
                return None
            kept += terms[0]
            constant += terms[1]
        else:
            kept.append(group)
    flags = [_switching(group, box) for group in kept]
    if len(kept) < 2 or not any(flags):
        return None
    at = flags.index(True)
    if constant and kept[at].dimension == 1:
        expressions = OneDirection(_own(kept[at]), kept[at].directions[0], tuple(slopes)).shifted(constant)
        kept[at] = Group(kept[at].directions, expressions, None)
        constant = Fraction(0)
    return Sum(tuple(kept), tuple(flags), tuple(slopes), constant)


def _line(direction: tuple[Fraction, ...]) -> Group:
    """t = direction . x as a part."""
    graph = Graph()
    return Group((direction,), Expression.of_graph("t1", ("t1",), graph, (graph.variable(0),)), None)


def _switching(group: Group, box: Box) -> bool:
    return switching(_own(group), group.range(box.low, box.high))


def _terms(group: Group) -> tuple[list[Group], Fraction] | None:
    """The terms of a sum of products, each as a group of the directions it has, and their constant; else None."""
    if group.factors is None:
        return None
    terms, constant = [], Fraction(0)
    for row in group.factors:
        value = number(row)
        if value is not None:
            constant += value
            continue
        pairs = [(h, w) for h, w in zip(row, group.directions, strict=True) if h is not None]
        whole = _multiplied([h for h, _ in pairs])
        terms.append(Group(tuple(w for _, w in pairs), whole, (tuple(h for h, _ in pairs),)))
    return terms, constant


def _multiplied(factors: list[Expression]) -> Expression:
    """The product of functions of one variable each, in variables of their own."""
    graph = Graph()
    total = graph.one
    for e, factor in enumerate(factors):
        copies = graph.include(factor.nodes, {0: graph.variable(e)})
        total = graph.multiply(total, copies[factor.outputs[0]])
    return Expression.of_graph("a product", tuple(f"t{e + 1}" for e in range(len(factors))), graph, (total,))


def _own(group: Group) -> Expression:
    assert group.expression is not None
    return group.expression


def _fold(graph: Graph, _: int, node: Node, args: Copies) -> int | None:
    """max(a, b) and min(a, b) of several variables as (a + b)/2 +- abs(a - b)/2 where a - b is affine."""
    if node.op not in ("max", "min") or any(isinstance(a, bool) for a in args):
        return None
    half = Fraction(1, 2)
    apart = graph.subtract(args[0], args[1])
    both = graph.add(args[0], args[1])
    affine = all(graph.nodes[a].op == "var" for a in graph.terms(apart)[1])
    if not affine or len(_variables(graph, both) | _variables(graph, apart)) < 2:
        return None
    size = graph.multiply(graph.number(half if node.op == "max" else -half), graph.apply("abs", apart))
    return graph.add(graph.multiply(graph.number(half), both), size)


def _variables(graph: Graph, place: int) -> set[int]:
    return {graph.nodes[p].data for p in schedule(tuple(graph.nodes), (place,)) if graph.nodes[p].op == "var"}
