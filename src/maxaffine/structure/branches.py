"""Both branches of one kink: what they are apart, and whether the target is the larger or the smaller of them everywhere."""

import numpy as np

from maxaffine.core.boxes import grid
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.switches import copied
from maxaffine.target.box import Box

CELLS = 24  # per variable, on which a slope is seen to keep its sign


def parting(expression: Expression, place: int, choice: int) -> Expression | None:
    """The branch of one choice minus the other one, of one kink."""
    graph = Graph()
    ends = [copied(graph, expression, choices={place: side})[expression.outputs[0]] for side in (choice, -choice)]
    if any(isinstance(end, bool) for end in ends):
        return None
    apart = graph.subtract(ends[0], ends[1])
    return Expression.of_graph("what the branches are apart", expression.names, graph, (apart,))


def extremum(expression: Expression, place: int, box: Box) -> int | None:
    """+1 where f is the larger of its branches at one kink everywhere in the box, -1 where it is the smaller; None if unknown.

    With the kink's value as a variable v of its own, f = F(x, v): where F never falls with v between the values of both branches,
    F(x, max(a, b)) = max(F(x, a), F(x, b)).
    """
    node, graph, D = expression.nodes[place], Graph(), expression.dimension
    copies = copied(graph, expression, lambda graph, i, _, __: graph.variable(D) if i == place else None)
    end, args = copies[expression.outputs[0]], [copies[a] for a in node.args]
    if node.op not in ("abs", "max", "min") or isinstance(end, bool) or any(isinstance(a, bool) for a in args):
        return None
    values = [int(a) for a in args] if node.op != "abs" else [int(args[0]), graph.negate(int(args[0]))]
    lows, highs = grid(box.low, box.high, CELLS)
    both = Expression.of_graph("both values", expression.names, graph, values).enclose(Interval(lows, highs))
    low, high = both.lo.min(axis=1, keepdims=True), both.hi.max(axis=1, keepdims=True)
    free = Expression.of_graph("with a free kink", (*expression.names, "kink"), graph, (end,)).gradient().output(D)
    slope = free.enclose(Interval(np.concatenate([lows, low], axis=1), np.concatenate([highs, high], axis=1)))
    sign = 1 if bool((slope.lo >= 0).all()) else -1 if bool((slope.hi <= 0).all()) else None
    return sign if sign is None or node.op != "min" else -sign
