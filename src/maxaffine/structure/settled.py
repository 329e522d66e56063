"""An expression on its box: switches that stay on one side resolved, roots of products as products of roots.

abs and cbrt of a product are products everywhere, a root or power of one is where its factors are not negative on the box.
"""

import numpy as np

from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph, Node
from maxaffine.structure.switches import Copies, forced, rewritten, switches
from maxaffine.target.box import Box

ROOTS = frozenset({"abs", "cbrt", "sqrt", "powr"})


def switching(expression: Expression, where: Interval) -> bool:
    """Whether something in it switches, or may be singular on the box `where` (E,) of its variables."""
    whole = Interval(where.lo[None], where.hi[None])
    for one in switches(expression):
        if one.kind != "singular":
            return True
        found = one.argument.enclose(whole)
        if not (found.lo[0, 0] > 0.0 or found.hi[0, 0] < 0.0):
            return True
    return False


def settled(expression: Expression, box: Box) -> Expression:
    """The expression without the switches that stay on one side throughout the box, by enclosures of their arguments."""
    whole = Interval(box.low[None], box.high[None])
    choices = {}
    for one in switches(expression):
        if one.chosen and one.op != "floor":
            found = one.argument.enclose(whole)
            low, high = float(found.lo[0, 0]), float(found.hi[0, 0])
            if low > 0.0 or (low == 0.0 and one.kind == "kink"):  # where a kink's argument is zero its branches are equal
                choices[one.place] = 1
            elif high < 0.0 or (high == 0.0 and one.kind == "kink"):
                choices[one.place] = -1
    return forced(expression, choices) if choices else expression


def split_roots(expression: Expression, box: Box) -> Expression:
    """Roots of products of several variables as products of roots, where that is the same on the box."""

    def split(graph: Graph, _: int, node: Node, args: Copies) -> int | None:
        if node.op not in ROOTS or isinstance(args[0], bool):
            return None
        return _root_of_product(graph, expression.names, node, args[0], box)

    return rewritten(expression, split)


def _root_of_product(graph: Graph, names: tuple[str, ...], node: Node, argument: int, box: Box) -> int | None:
    """The root as a product, or None where the argument is no product or has a factor of the wrong sign."""
    scale, rest = graph.unscaled(argument)
    above, below = rest, None
    if graph.nodes[rest].op == "div":
        above, below = graph.nodes[rest].args
    parts = [(base, n, False) for base, n in graph.factors(above).items()]
    parts += [(base, n, True) for base, n in graph.factors(below).items()] if below is not None else []
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
        if not np.all(Expression.of_graph("a factor", names, graph, (base,)).enclose(whole).lo >= 0.0):
            return None
    root = graph.apply(node.op, base) if node.data is None else graph.make(node.op, (base,), node.data)
    return graph.integer_power(root, n)
