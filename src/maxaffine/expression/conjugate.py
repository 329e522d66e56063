"""Differences of a root and what its square is near to, without the cancellation.

    sqrt(r^2 + b) + r  =  sqrt(b) exp(asinh(r / sqrt(b)))        for b > 0, whatever the sign of r

The right side is a product of positive factors, so that enclosures of it stay away from 0, where those of the left side lose that
the two terms of the sum belong together.  Powers of sqrt(b) are written by powers of b.
"""

from __future__ import annotations

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph


def conjugated(expression: Expression) -> tuple[Expression, Expression] | None:
    """The expression with such sums rewritten, and all b as the outputs of another one: they must be positive.

    None where there are no such sums.
    """
    graph, copies, positive = Graph(), list[int](), dict[int, int]()  # positive: b, by the place of its root
    for node in expression.nodes:
        args = [copies[a] for a in node.args]
        if node.op in ("var", "const"):
            copies.append(graph.make(node.op, (), node.data))
        else:
            place = graph.again(node, args)
            copies.append(_without(graph, place, positive) if node.op == "lin" else _reduced(graph, place, positive))
    if not positive:
        return None
    made = Expression.of_graph(expression.text, expression.names, graph, [copies[p] for p in expression.outputs])
    return made, Expression.of_graph("what stands under roots", expression.names, graph, list(positive.values()))


def _without(graph: Graph, place: int, positive: dict[int, int]) -> int:
    """A sum as a product, where it is such a one; else as it is."""
    c0, terms = graph.terms(place)
    for root, scale in terms.items():
        if graph.nodes[root].op != "sqrt" or graph.is_zero(scale):
            continue
        others = graph.total([c0, *(graph.multiply(c, a) for a, c in terms.items() if a != root)])
        r = graph.divide(others, scale)
        b = _above_square(graph, graph.nodes[root].args[0], r)
        if b is not None and not graph.is_constant(r):
            base = graph.apply("sqrt", b)
            positive[base] = b
            angle = graph.apply("asinh", graph.divide(r, base))
            return graph.multiply(scale, graph.multiply(base, graph.apply("exp", angle)))
    return place


def _above_square(graph: Graph, under: int, r: int) -> int | None:
    """b with r^2 + b at a place, where r^2 is a term of it as it is written."""
    c0, terms = graph.terms(under)
    for side in (r, graph.negate(r)):
        scale, square = graph.unscaled(graph.integer_power(side, 2))
        if terms.get(square) == scale:
            b = graph.total([c0, *(graph.multiply(c, a) for a, c in terms.items() if a != square)])
            return None if graph.is_zero(b) else b
    return None


def _reduced(graph: Graph, place: int, positive: dict[int, int]) -> int:
    """A product in which roots of b have powers 0 or 1."""
    scale, rest = graph.unscaled(place)
    factors = graph.factors(rest)
    if not any(a in positive and n > 1 for a, n in factors.items()):
        return place
    whole = [graph.integer_power(positive[a], n // 2) for a, n in factors.items() if a in positive and n > 1]
    left = [graph.integer_power(a, n) for a, n in factors.items() if a not in positive]
    left += [a for a, n in factors.items() if a in positive and n % 2]
    return graph.product([scale, *whole, *left])
