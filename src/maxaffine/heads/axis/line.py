"""Clusters along one coordinate, for their proof: the target in z, exactly, ranges of it, and the parts of the bound."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, Mask
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.runtime.grouped import tree_terms
from maxaffine.structure.directions import Direction
from maxaffine.structure.switches import moved

U = FLOAT64.unit
UP = 1.0 + 1e-12
MOST = 500_000  # intervals


@dataclass(frozen=True)
class AxisTarget:
    """h(w . x) as an expression of t = w . x; what the tilt of the layer carries is not part of it."""

    expression: Expression
    direction: Direction


@dataclass(frozen=True)
class Axis:
    """The target in z, exactly: t = w . centre + z / scale; z of the box in [first, last], computed z in [low, high].

    A computed z beyond [first, last] is held against f at the nearer end, which is no farther from the exact z: f need not be
    defined beyond the box.
    """

    f: Expression
    first: float
    last: float
    low: float
    high: float
    scale: Fraction
    drift: float  # of the matrix from scale w, and of sums and products: absolute
    relative: float  # of z
    real: float  # what rounding x to float64 does to z

    @classmethod
    def of(cls, layer: GroupedLayer, group: ClusterGroup | Group, target: AxisTarget) -> Axis:
        """From the stored matrix and centre."""
        w, row = target.direction, group.matrix[0]
        lead = max(range(len(w)), key=lambda i: abs(w[i]))
        scale = Fraction(float(row[lead])) / w[lead]
        if scale <= 0:
            raise Refused("the layer's matrix does not follow the target's direction.")
        middle = sum((c * Fraction(float(m)) for c, m in zip(w, layer.centre, strict=True)), Fraction(0))
        ends = [(c * Fraction(float(a)), c * Fraction(float(b))) for c, a, b in zip(w, layer.low, layer.high, strict=True)]
        low = (sum((min(pair) for pair in ends), Fraction(0)) - middle) * scale
        high = (sum((max(pair) for pair in ends), Fraction(0)) - middle) * scale
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
        drift = sum(abs(float(Fraction(float(m)) - scale * c)) * r for m, c, r in zip(row, w, reach, strict=True)) * UP
        used = [i for i, m in enumerate(row) if m]
        exact = len(used) == 1 and math.frexp(abs(float(row[used[0]])))[0] == 0.5
        relative = 1.01 * U if exact else 0.0
        if not exact:
            drift += float(gamma(layer.dimension + 3, U) * (np.abs(row) @ reach)) * UP
        largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
        real = float(np.abs(row) @ largest) * U * UP
        first, last = outward(low, high)
        if exact:  # rounding is monotone: no computed z lies beyond the computed ends
            i = used[0]
            ends_z = sorted(float((e[i] - layer.centre[i]) * row[i]) for e in (layer.low, layer.high))
            seen = min(first, ends_z[0]), max(last, ends_z[1])
        else:
            wide = (relative * max(abs(float(low)), abs(float(high))) + drift) * UP
            seen = first - wide, last + wide
        return cls(moved(target.expression, middle, 1 / scale), first, last, *seen, scale, drift, relative, real)


def outward(low: Fraction, high: Fraction) -> tuple[float, float]:
    """The closest float64 numbers that are not inside."""
    a, b = float(low), float(high)
    a = a if Fraction(a) <= low else float(np.nextafter(a, -np.inf))
    return a, b if Fraction(b) >= high else float(np.nextafter(b, np.inf))


# -- enclosed functions of z


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


# -- the parts of the bound


@dataclass(frozen=True)
class Hole:
    """An open interval of z about a jump that the statement leaves out."""

    low: float
    high: float


@dataclass(frozen=True)
class AxisProof:
    """Parts of the bound of one group, the largest |f|, what holes cost, and what was left out."""

    approximation: float
    leakage: float
    rounding: float
    uncertainty: float
    size: float
    layer_size: float
    holes: tuple[Hole, ...]
    every_x: bool  # real x; else those that are float64 numbers
    cells: int
    blend: ProvedBlend  # for the literal form


@dataclass(frozen=True)
class HeadErrors:
    """A cluster's head where it answers: sums over its keys that rounding meets, eta the errors of logits, v the values.

    Of several clusters, the largest of each.
    """

    lost: float  # sum w eta |v - p|
    size: float  # sum w |v|
    lean: float  # sum w |G|
    eta: float
    reach: float  # |t|
    keys: int
    largest: float  # max |v|

    @property
    def summed(self) -> float:
        """sum w (|c| + |G t|), which is what is added up: sums of c and of G are formed by themselves."""
        return self.size + 2.0 * self.reach * self.lean

    @property
    def moved(self) -> float:
        """What the errors of the logits do to p."""
        return math.exp(min(2.04 * self.eta, 50.0)) * 1.02 * self.lost

    def total(self, tiny: float) -> float:
        """What rounding does to p."""
        sums = gamma(self.keys + tree_terms(self.keys) + 12, U) * self.summed + 4 * U * self.reach * self.lean
        return (self.moved + sums + self.keys * tiny * self.largest) * UP

    @classmethod
    def worst(cls, rows: list[HeadErrors]) -> HeadErrors:
        """The largest of each."""
        return cls(*(max(column) for column in zip(*(astuple(row) for row in rows), strict=True)))


@dataclass(frozen=True)
class AxisParts:
    """What is known of clusters along one coordinate, at every z of its range, before rounding of the whole is counted."""

    worst: float  # sup |f_k - p_k| where cluster k answers
    kinks: float  # and what clusters say beyond a break
    leak: float  # sum over the others of their computed masses times (|f| + |p_k|)
    far: float  # those masses
    uncertainty: float  # of worst
    size: float  # sup |f|
    eta: float  # error of scores where clusters answer
    heads: HeadErrors
    rounding: float  # of a head p_k alone, the largest
    top: float  # |p_k| where it answers
    largest: float  # max |v| a little beyond
    count: int
    cells: int
    reach: Array  # (C,): |t| where cluster k answers
    edge: float  # size of the logits where clusters cease to answer
    pace: float  # and how much faster than their lags they grow beyond

    @property
    def near(self) -> float:
        """sup over z of the sum of Omega_k |f - p_k| over the clusters that answer there."""
        return self.worst + self.kinks
