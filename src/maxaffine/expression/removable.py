"""Removable singularities: sin(u)/u and (exp(u) - 1)/u inside products and quotients, by their own entire functions.

    sin(u)^n / (v_1^{m_1} v_2^{m_2} ..) = c^n sinc(u)^n / (v_1^{m_1 - n k_1} ..)    for u = c v_1^{k_1} v_2^{k_2} .., m_i >= n k_i

The new expression is the old one wherever that is defined, and its continuous extension where u = 0.
"""

from __future__ import annotations

from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph


def extended(expression: Expression) -> Expression | None:
    """The expression with its removable quotients replaced; None where it has none."""
    graph, copies, found = Graph(), list[int](), False
    for node in expression.nodes:
        args = [copies[a] for a in node.args]
        if node.op == "div":
            place = _quotient(graph, args[0], args[1])
            found = found or place is not None
            copies.append(graph.divide(args[0], args[1]) if place is None else place)
        elif node.op in ("var", "const"):
            copies.append(graph.make(node.op, (), node.data))
        else:
            copies.append(graph.again(node, args))
    if not found:
        return None
    return Expression.of_graph(expression.text, expression.names, graph, [copies[p] for p in expression.outputs])


def _quotient(graph: Graph, above: int, below: int) -> int | None:
    """above/below with what is removable removed; None where nothing is."""
    scale_above, rest_above = graph.unscaled(above)
    scale_below, rest_below = graph.unscaled(below)
    if _entire(graph, rest_above) is not None:  # exp(u) - 1 may come scaled
        factors, scale = {rest_above: 1}, graph.divide(scale_above, scale_below)
    else:
        factors, scale = dict(graph.factors(rest_above)), graph.divide(scale_above, scale_below)
    left, kept, removed = dict(graph.factors(rest_below)), list[int](), False
    for base, n in factors.items():
        named = _entire(graph, base)
        if named is not None:
            name, u, outer = named
            c, rest = graph.unscaled(u)
            needed = {v: n * k for v, k in graph.factors(rest).items()}
            if all(left.get(v, 0) >= m for v, m in needed.items()):
                for v, m in needed.items():
                    left[v] -= m
                kept += [graph.integer_power(c, n), graph.integer_power(outer, n), graph.integer_power(graph.apply(name, u), n)]
                removed = True
                continue
        kept.append(graph.integer_power(base, n))
    if not removed:
        return None
    bottom = [graph.integer_power(v, m) for v, m in left.items() if m]
    top = graph.product([scale, *kept])
    return graph.divide(top, graph.product(bottom)) if bottom else top


def _entire(graph: Graph, place: int) -> tuple[str, int, int] | None:
    """sin(u), exp(u) - 1 or expm1(u), the last two times a constant: the entire function, u, and that constant."""
    node = graph.nodes[place]
    if node.op == "sin":
        return "sinc", node.args[0], graph.one
    if node.op == "expm1":
        return "exprel", node.args[0], graph.one
    if node.op == "lin" and len(node.args) == 3 and graph.nodes[node.args[2]].op == "exp":
        constant, factor = graph.rational(node.args[0]), graph.rational(node.args[1])
        if constant is not None and factor is not None and constant == -factor != Fraction(0):
            return "exprel", graph.nodes[node.args[2]].args[0], node.args[1]
    return None
