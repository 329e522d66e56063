"""The coordinate of clusters along one direction: the target in z, exactly, and what rounding does to z."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.expression.expression import Expression
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.structure.groups import Direction
from maxaffine.structure.switches import moved

U = FLOAT64.unit
UP = 1.0 + 1e-12


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
    def of(cls, layer: GroupedLayer, group: ClusterGroup, target: AxisTarget) -> Axis:
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
