"""Removable singularities: sin(u)/u and (exp(u) - 1)/u inside products and quotients, by their own entire functions.

    sin(u)^n / (v_1^{m_1} v_2^{m_2} ..) = c^n sinc(u)^n / (v_1^{m_1 - n k_1} ..)    for u = c v_1^{k_1} v_2^{k_2} .., m_i >= n k_i

The other way round as well, as u/(exp(u) - 1) = 1/exprel(u).

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
    top, bottom = dict(graph.factors(rest_above)), dict(graph.factors(rest_below))
    over, under = _removed(graph, top, bottom), _removed(graph, bottom, top)
    if not over and not under:
        return None
    kept = [[*more, *(graph.integer_power(v, m) for v, m in side.items())] for side, more in ((top, over), (bottom, under))]
    whole = graph.product([graph.divide(scale_above, scale_below), *kept[0]])
    return graph.divide(whole, graph.product(kept[1])) if kept[1] else whole


def _removed(graph: Graph, side: dict[int, int], other: dict[int, int]) -> list[int]:
    """What stands for the factors of a side that have their zeros in the factors of the other; both lose them."""
    found = list[int]()
    for base, n in list(side.items()):
        named = _entire(graph, base)
        if named is None:
            continue
        name, u, outer = named
        scale, rest = graph.unscaled(u)
        left = dict(other)
        for v, k in graph.factors(rest).items():
            apart = _multiple(graph, v, left, n * k)
            if apart is None:
                break
            c, w = apart
            left[w] -= n * k
            scale = graph.multiply(scale, graph.integer_power(c, k))
        else:
            found += [graph.integer_power(one, n) for one in (scale, outer, graph.apply(name, u))]
            del side[base]
            other.clear()
            other.update({v: m for v, m in left.items() if m})
    return found


def _multiple(graph: Graph, v: int, among: dict[int, int], needed: int) -> tuple[int, int] | None:
    """c and w with v = c w, for a factor w of at least this power; None where there is none."""
    for w, m in among.items():
        if m < needed:
            continue
        if v == w:
            return graph.one, w
        (_, terms), (_, others) = graph.terms(v), graph.terms(w)
        for a, k in others.items():
            by = graph.rational(k)
            if by and a in terms:
                c = graph.multiply(graph.number(1 / by), terms[a])
                if not graph.is_zero(c) and graph.multiply(c, w) == v:
                    return c, w
    return None


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
