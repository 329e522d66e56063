"""Bounds of log sum exp of affine logits over a box: convex, so largest at a corner, and above every mean of its tangents."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.tangents import Tangents


def log_normaliser(slopes: Array, offsets: Array, size: Array) -> tuple[float, float]:
    """Bounds of log sum_j exp(a_j . z + b_j) over |z_e| <= size_e."""
    E = len(size)
    slack = 100.0 * DOUBLE * (float((np.abs(slopes) @ size + np.abs(offsets)).max()) + 1.0 + len(offsets)) + 1e-9

    def tangent(z: Array) -> tuple[float, Array]:
        scores = slopes @ z + offsets
        top = float(scores.max())
        w = np.exp(scores - top)
        return top + math.log(float(w.sum())), (w @ slopes) / float(w.sum())

    if E > 8:
        raise NotProved("its normaliser has too many corners to be bounded.")
    corners = [np.array(signs) * size for signs in itertools.product((-1.0, 1.0), repeat=E)]
    high = max(tangent(z)[0] for z in corners)
    low = _lowest(tangent, size)
    return low - slack, high + slack


def _lowest(tangent: Callable[[Array], tuple[float, Array]], size: Array) -> float:
    """A lower bound of a convex function: a linear program finds the mean of tangents that is highest where it is lowest."""
    tangents = Tangents(size)
    E, z = len(size), np.zeros(len(size))
    values: list[float] = []
    leans: list[Array] = []
    best, seen = -math.inf, math.inf
    for _ in range(60 * E):
        value, lean = tangent(z)
        seen = min(seen, value)
        values.append(value - float(lean @ z))
        leans.append(lean)
        tangents.add(values[-1], lean)
        found = tangents.solve()
        if found is None:
            break
        shares, place = found
        shares = np.maximum(shares, 0.0) / float(np.maximum(shares, 0.0).sum())
        best = max(best, float(shares @ np.array(values)) - float(np.abs(shares @ np.array(leans)) @ size))
        if seen - best < 0.03:
            break
        z = np.clip(place, -size, size)
    return best
