"""What clusters of the one side of a break say on the other: branches part slowly there and the mass falls exponentially.

At a distance y beyond a kink the branches differ by at most J y, and the lead of the next cluster has grown from d to at least
d + s y: a soft gap of two clusters with kappa = J/s and U = -d (checker/soft_gap.py).
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.checker.proved import NotProved
from maxaffine.checker.soft_gap import soft_gap
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph

if TYPE_CHECKING:
    from maxaffine.checker.axis_clusters import AxisCheck


def kink_error(check: "AxisCheck", spans: list[tuple[float, float]], homes: list[int | None]) -> float:
    """The worst break and side; `homes` are the pieces whose branches clusters are compared with."""
    worst = 0.0
    left, until = 0.0, -math.inf  # what is said beyond the break before this one, and how far
    for i, one in enumerate(check.target.pieces.breaks):
        sides, ends = {-1: 0.0, 1: 0.0}, {-1: math.inf, 1: -math.inf}
        for k, home in enumerate(homes):
            low, high = spans[k]
            if one is None or home is None or not low < high:
                continue
            if home < i and high > one.low:
                sides[1] += _beyond(check, k, home, i, high, 1)
                ends[1] = max(ends[1], high)
            if home >= i and low < one.high:
                sides[-1] += _beyond(check, k, home, i, low, -1)
                ends[-1] = min(ends[-1], low)
        both = left + sides[-1] if until >= ends[-1] else 0.0  # between two breaks clusters of both may answer
        worst = max(worst, both, *sides.values())
        left, until = sides[1], ends[1]
    return worst


def _beyond(check: "AxisCheck", k: int, home: int, i: int, end: float, side: int) -> float:
    """Mass times |f - own branch| of cluster k beyond break i, up to `end`."""
    target = check.target
    one, hole, own = target.pieces.breaks[i], target.holes[i], target.pieces.pieces[home].branch
    assert one is not None
    other = home + side
    start = one.low if side > 0 else one.high
    if hole is not None:
        start = hole[1] if side > 0 else hole[0]
        if (end - start) * side <= 0:
            return 0.0
    if not 0 <= other < len(target.pieces.pieces):
        return target.apart(own, min(one.low, end), max(one.high, end)) if hole is None else 0.0
    piece = target.pieces.pieces[other]
    link = k if side > 0 else k - 1
    if (end > piece.high if side > 0 else end < piece.low) or not 0 <= link < len(check.clusters) - 1:
        raise NotProved("breaks of the target are too close for its clusters.")
    a, b = check.lead(link, start)
    lead = a if side > 0 else -b
    parting = _minus(piece.branch, own)
    inner = one.high if side > 0 else one.low
    edges = np.linspace(inner, end, 12)
    box = Interval(np.minimum(edges[:-1], edges[1:])[:, None], np.maximum(edges[:-1], edges[1:])[:, None])
    most = float(parting.enclose(box).magnitude.max())
    if hole is not None:
        ball = Interval(np.array([[min(start, end)]]), np.array([[max(start, end)]]))
        apart = float(parting.enclose(ball).magnitude[0, 0])
        return math.exp(-max(lead, 0.0)) * apart if math.isfinite(apart) else math.inf
    steep = float(parting.gradient().enclose(box).magnitude.max())
    begin = float(parting.enclose(Interval(np.array([[inner]]), np.array([[inner]]))).magnitude[0, 0])
    slope = check.slope(link)
    soft = float(soft_gap(1, steep / slope, -lead)) if lead > -600.0 and math.isfinite(steep) else math.inf
    grown = [v for v in (soft, most) if math.isfinite(v)]
    return max(target.apart(own, one.low, one.high), begin + min(grown, default=math.inf)) * (1 + 1e-11)


def _minus(f: Expression, g: Expression) -> Expression:
    graph = Graph(f.nodes)
    places = graph.include(g.nodes)
    apart = graph.subtract(f.outputs[0], places[g.outputs[0]])
    return Expression.of_graph("the parting of two branches", f.names, graph, (apart,))
