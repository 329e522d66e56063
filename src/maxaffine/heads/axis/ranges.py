"""Enclosed functions of one variable on intervals: how large they are, how far apart, and how much they change nearby."""

from __future__ import annotations

import math

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, Mask
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.heads.axis.line import UP

MOST = 500_000  # intervals


def over(f: Expression, low: float, high: float) -> Interval:
    """The range of f, a single enclosure."""
    return f.enclose(Interval(np.array([[low]]), np.array([[high]])))[0, 0]


def largest(f: Expression, low: float, high: float, pieces: int) -> float:
    """sup |f|, of which pieces without an enclosure are halved; Refused where that does not help."""

    def measure(a: Array, b: Array, _: Index) -> tuple[Array, Mask, None]:
        found = f.enclose(Interval(a, b))
        return found.magnitude[:, 0], found.finite[:, 0], None

    edges = boxes.grid(np.array([low]), np.array([high]), pieces)
    return boxes.supremum(*edges, measure, budget=MOST, rounds=60, refusal="how large the target is on its axis")[0] * UP


def magnitude(f: Expression, low: float, high: float, pieces: int = 1) -> float:
    """A bound of |f| from equal pieces, infinite where one of them has no enclosure."""
    value = f.enclose(Interval(*boxes.grid(np.array([low]), np.array([high]), pieces))).magnitude
    return float(value.max()) if np.isfinite(value).all() else math.inf


def apart(f: Expression, g: Expression, low: float, high: float) -> float:
    """A bound of |f - g|, by the range of each."""
    value = float((over(f, low, high) - over(g, low, high)).magnitude)
    return value if math.isfinite(value) else math.inf


def difference(f: Expression, g: Expression) -> Expression:
    """f - g in one graph, so that what they share cancels."""
    graph = Graph(f.nodes)
    copies: list[int] = []
    for node in g.nodes:
        copies.append(graph.make(node.op, tuple(copies[a] for a in node.args), node.data))
    return Expression.of_graph("a difference of branches", f.names, graph, (graph.subtract(f.outputs[0], copies[g.outputs[0]]),))


def modulus(f: Expression, first: float, last: float, near: float, relative: float, tolerance: float) -> float:
    """sup |f(z) - f(z')| over |z - z'| <= near + relative |z| in [first, last]: by slope or by range, whichever is less."""
    slope = f.gradient()

    def measure(a: Array, b: Array, _: Index) -> tuple[Array, Mask, None]:
        far = (near + relative * np.maximum(np.abs(a), np.abs(b))) * UP
        box = Interval(np.maximum(a - far, first), np.minimum(b + far, last))
        steep, found = slope.enclose(box).magnitude, f.enclose(box)
        width = found.hi - found.lo
        value = np.fmin(np.where(np.isfinite(steep), steep * far, np.inf), np.where(np.isfinite(width), width, np.inf)) * UP
        middle = 0.5 * a + 0.5 * b
        done = (value <= tolerance) | (b - a <= far) | (middle <= a) | (middle >= b)
        return value[:, 0], done[:, 0], None

    try:
        return boxes.supremum(*boxes.grid(np.array([first]), np.array([last]), 64), measure, budget=MOST, rounds=1100)[0]
    except Refused:
        return math.inf
