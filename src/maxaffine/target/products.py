"""Targets that are products of functions of one direction each: f(x) = prod_i h_i(w_i . x) + slopes . x + constant, exactly.

abs and cbrt of a product are products, a root or power of one is where its factors are not negative on the box, and exp of a sum
is a product (target/structure.py).  Factors of the same direction are one factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core.intervals import Interval
from maxaffine.target.box import Box
from maxaffine.target.expression import Expression
from maxaffine.target.one_direction import OneDirection
from maxaffine.target.structure import Group, groups_of
from maxaffine.target.sums import settled, switching
from maxaffine.target.switches import _copy, affine_form
from maxaffine.target.tree import Graph, Node

ROOTS = frozenset({"abs", "cbrt", "sqrt", "powr"})


@dataclass(frozen=True)
class Product:
    """The factors, whether each of them switches or has a singular point, and the affine part."""

    factors: tuple[OneDirection, ...]
    switching: tuple[bool, ...]
    slopes: tuple[Fraction, ...]
    constant: Fraction


def product_of(expression: Expression, box: Box) -> Product | None:
    """The factors of a target that is one product of at least two directions and an affine part; else None."""
    if expression.count != 1 or len(expression.used) < 2:
        return None
    slopes, constant = [Fraction(0)] * expression.dimension, Fraction(0)
    found: Group | None = None
    for group in groups_of(_split(settled(expression, box), box), apart=True):
        assert group.expression is not None
        form = affine_form(group.expression)
        if form is None or form.exact is None:
            if found is not None:
                return None
            found = group
            continue
        constant += form.exact[1]
        for row, c in zip(group.directions, form.exact[0], strict=True):
            for i, w in enumerate(row):
                slopes[i] += c * w
    if found is None or found.dimension < 2 or found.factors is None:
        return None
    products = []
    for row in found.factors:
        number = _number(row)
        if number is None:
            products.append(row)
        else:
            constant += number
    if len(products) != 1 or any(factor is None for factor in products[0]):
        return None
    zero = tuple(Fraction(0) for _ in slopes)
    pairs = zip(products[0], found.directions, strict=True)
    factors = tuple(OneDirection(h, w, zero) for h, w in pairs if h is not None)
    return Product(factors, tuple(switching(one.h) for one in factors), tuple(slopes), constant)


def _number(row: tuple[Expression | None, ...]) -> Fraction | None:
    """The value of a term that is a number known exactly, else None."""
    first = row[0]
    if first is None or any(factor is not None for factor in row[1:]) or first.used:
        return None
    form = affine_form(first)
    if form is not None and form.exact is not None:
        return form.exact[1]
    value = first.enclose(Interval.point(np.zeros((1, 1))))
    return Fraction(float(value.lo[0, 0])) if value.lo[0, 0] == value.hi[0, 0] else None


def _split(expression: Expression, box: Box) -> Expression:
    """Roots of products of several variables as products of roots, where that is the same on the box."""
    graph = Graph()
    copies: list[int | bool] = []
    for node in expression.nodes:
        args = [copies[a] for a in node.args]
        made = None
        if node.op in ROOTS and not isinstance(args[0], bool):
            made = _root_of_product(graph, expression.names, node, int(args[0]), box)
        copies.append(_copy(graph, node, args, None) if made is None else made)
    outputs = [p for p in (copies[q] for q in expression.outputs) if not isinstance(p, bool)]
    return Expression._of(expression.text, expression.names, graph, outputs)


def _root_of_product(graph: Graph, names: tuple[str, ...], node: Node, argument: int, box: Box) -> int | None:
    """The root as a product, or None where the argument is no product or has a factor of the wrong sign."""
    scale, rest = graph._unscale(argument)
    above, below = rest, None
    if graph.nodes[rest].op == "div":
        above, below = graph.nodes[rest].args
    parts = [(base, n, False) for base, n in graph._factors(above).items()]
    parts += [(base, n, True) for base, n in graph._factors(below).items()] if below is not None else []
    parts = [part for part in parts if part[0] != graph.one]
    if len(parts) < 2 or graph.is_constant(rest):
        return None
    if scale != graph.one:
        parts.append((scale, 1, False))
    value = graph.one
    for base, n, inverse in parts:
        one = _root(graph, names, node, base, n, box)
        if one is None:
            return None
        value = graph.divide(value, one) if inverse else graph.multiply(value, one)
    return value


def _root(graph: Graph, names: tuple[str, ...], node: Node, base: int, n: int, box: Box) -> int | None:
    """The root of base^n."""
    if node.op == "abs":
        return graph.integer_power(base if n % 2 == 0 else graph.apply("abs", base), n)
    if node.op == "sqrt" and n % 2 == 0:
        return graph.integer_power(base if n % 4 == 0 else graph.apply("abs", base), n // 2)
    if node.op != "cbrt":
        whole = Interval(box.low[None], box.high[None])
        if not np.all(Expression._of("a factor", names, graph, (base,)).enclose(whole).lo >= 0.0):
            return None
    root = graph.apply(node.op, base) if node.data is None else graph.make(node.op, (base,), node.data)
    return graph.integer_power(root, n)
