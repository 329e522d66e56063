"""The law of cosines under a root: the third side of a triangle as a norm, which is never negative as it is written.

    a^2 + b^2 - 2 a b cos(d)  =  (a - b)^2 + 4 a b sin(d/2)^2  =  (a - b cos d)^2 + (b sin d)^2

The middle form is what the graph makes of the first (identities.py); it is a sum of squares only where a b is one.
"""

from __future__ import annotations

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph


def as_norms(expression: Expression) -> Expression | None:
    """The expression with such sums under square roots as sums of squares; None where there are none."""
    graph, copies, found = Graph(), list[int](), False
    for node in expression.nodes:
        args = [copies[a] for a in node.args]
        squares = third_side(graph, args[0]) if node.op == "sqrt" else None
        if squares is not None:
            found = True
            copies.append(graph.apply("sqrt", squares))
        elif node.op in ("var", "const"):
            copies.append(graph.make(node.op, (), node.data))
        else:
            copies.append(graph.again(node, args))
    if not found:
        return None
    return Expression.of_graph(expression.text, expression.names, graph, [copies[p] for p in expression.outputs])


def third_side(graph: Graph, place: int) -> int | None:
    """c a^2 + e b^2 + f a b cos(d) with f^2 = 4 c e as c ((a + f/(2c) b cos d)^2 + e/c (b sin d)^2); None for what is none."""
    return _halved(graph, place) or _plain(graph, place)


def _halved(graph: Graph, place: int) -> int | None:
    """c ((a - b)^2 + 4 a b w^2) with w = sin(d/2), or with w = cos(d/2) for the other sign of cos d."""
    c0, terms = graph.terms(place)
    if not graph.is_zero(c0) or len(terms) != 2:
        return None
    for apart, around in (tuple(terms), tuple(terms)[::-1]):
        waves = [w for w, n in graph.factors(around).items() if n == 2 and graph.nodes[w].op in ("sin", "cos")]
        sides = [a for a, n in graph.factors(around).items() if n == 1]
        c, four = graph.rational(terms[apart]), graph.rational(terms[around])
        if len(waves) != 1 or len(sides) != 2 or len(graph.factors(around)) != 3 or c is None or c <= 0 or four != 4 * c:
            continue
        a, b = sides
        if graph.integer_power(graph.subtract(a, b), 2) != apart and graph.integer_power(graph.subtract(b, a), 2) != apart:
            continue
        node = graph.nodes[waves[0]]
        angle = graph.multiply(graph.number(2), node.args[0])
        cosine = graph.multiply(b, graph.apply("cos", angle))
        along = graph.subtract(a, cosine) if node.op == "sin" else graph.add(a, cosine)
        across = graph.multiply(b, graph.apply("sin", angle))
        squares = graph.add(graph.integer_power(along, 2), graph.integer_power(across, 2))
        return graph.multiply(graph.number(c), squares)
    return None


def _plain(graph: Graph, place: int) -> int | None:
    """c a^2 + e b^2 + f a b cos(d) as it is written."""
    c0, terms = graph.terms(place)
    numbers = {a: graph.rational(c) for a, c in terms.items()}
    sides = [(half, numbers[a]) for a in terms if (half := _half(graph, a)) is not None]
    mixed = [(a, numbers[a]) for a in terms if _half(graph, a) is None]
    if not graph.is_zero(c0) or len(sides) != 2 or len(mixed) != 1:
        return None
    ((a, c), (b, e)), ((mix, f),) = sides, mixed
    if c is None or e is None or f is None or c <= 0 or f * f != 4 * c * e:
        return None
    for cosine in (one for one in graph.factors(mix) if graph.nodes[one].op == "cos"):
        if graph.product((a, b, cosine)) == mix:
            sine = graph.apply("sin", graph.nodes[cosine].args[0])
            along = graph.add(a, graph.multiply(graph.number(f / (2 * c)), graph.multiply(b, cosine)))
            across = graph.integer_power(graph.multiply(b, sine), 2)
            squares = graph.add(graph.integer_power(along, 2), graph.multiply(graph.number(e / c), across))
            return graph.multiply(graph.number(c), squares)
    return None


def _half(graph: Graph, place: int) -> int | None:
    """The place of a with a^2 at this one, a product of even powers."""
    factors = graph.factors(place)
    if any(n % 2 for n in factors.values()):
        return None
    return graph.monomial((a, n // 2) for a, n in factors.items())
