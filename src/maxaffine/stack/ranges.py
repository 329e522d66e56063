"""Hypotheses 1 to 4 of the theorem of stacks, outward rounded: ranges, boxes of heads, slopes, adjoints and the sum.

    R_k  contains  phi_k(T_k R_<k) + [-eps_k, eps_k]
    B_k  contains  T_k R_<k + [-rho_k, rho_k]              rho_k: rounding of the affine map as it runs
    G_k  contains  the partial derivatives of phi_k on B_k (one-sided and everything between them at kinks)
    A_k  contains  c_k + sum over j > k of A_j G_jk
    |stack - f|  <=  sum W_k eps_k + rounding of the output map + W_i u |x_i|,    W = max |A|, eps_k = beta_k + sup |G_k| rho_k

Theorem and proof: docs/theory.md, "Stacks".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.expression.expression import Expression
from maxaffine.stack.cutting import Cutting
from maxaffine.structure.stacked import AffineMap
from maxaffine.target.box import Box

PIECES = {1: 192, 2: 28}  # per direction, over which functions and slopes are enclosed
SHIFT = 900  # the most that an argument is divided by, as a power of two: what falls below the smallest number then
UP = 1.0 + 2.0**-50  # outward rounding of a few sums and products of positive numbers


class Unbounded(Exception):
    """A node whose function is not shown to be finite, or not shown to have bounded slopes, on its range."""

    def __init__(self, node: int, what: str) -> None:
        super().__init__(what)
        self.node = node


@dataclass(frozen=True)
class Ranges:
    """What is proved of every node, given its eps: boxes of the heads, ranges, slopes, and the weights W."""

    values: Interval  # (D + m,): inputs, then nodes
    boxes: tuple[Interval, ...]  # (E,) each: B_k
    slopes: tuple[Interval, ...]  # (E,) each: partials on B_k
    rho: tuple[Array, ...]  # (E,) each
    weights: Array  # (m,): W_k
    inputs: Array  # (D,): W of the inputs
    result: Interval  # (): of the output, but for the error
    output_rounding: float

    def slope_rounding(self, k: int) -> float:
        """What the rounding of its arguments does to a node: sum over directions of sup |slope| rho."""
        return float(np.sum(self.slopes[k].magnitude * self.rho[k])) * UP

    def rounding(self, low: Array, high: Array) -> float:
        """All of the bound that is not an error of a head."""
        nodes = math.fsum(self.weights[k] * self.slope_rounding(k) for k in range(len(self.weights)))
        inputs = math.fsum(self.inputs * np.maximum(np.abs(low), np.abs(high)) * FLOAT64.unit)
        return (nodes + inputs + self.output_rounding) * UP


def argument(row: AffineMap, values: Interval) -> tuple[Interval, float]:
    """The range of an affine form over ranges of what it reads, and a bound of its rounding as it runs."""
    if not row.indices:
        return row.exact_constant, float(_drift(row.exact_constant, row.constant))
    read = values[np.array(row.indices)]
    found = (row.exact_weights * read).sum() + row.exact_constant
    size = read.magnitude
    terms = np.abs(row.weights) * size
    total = (float(np.sum(terms)) + abs(row.constant)) * UP
    count = 2 * len(row.indices)  # products and sums
    drift = float(np.sum(_drift(row.exact_weights, row.weights) * size) + _drift(row.exact_constant, row.constant))
    exact = len(row.indices) == 1 and row.constant == 0.0 and abs(math.frexp(row.weights[0])[0]) == 0.5
    rho = (0.0 if exact else gamma(count, FLOAT64.unit) * total) + drift + (count + 2.0**SHIFT) * FLOAT64.tiny
    return found, rho * UP


def _drift(exact: Interval, stored: Array | float) -> Array:
    """How far a stored constant may be from the one it stands for."""
    away = np.maximum(np.maximum(exact.hi - stored, stored - exact.lo), 0.0)
    return np.asarray(away * UP + np.where(away > 0, FLOAT64.tiny, 0.0))


@lru_cache(maxsize=4096)
def _gradient(function: Expression) -> Expression:
    return function.gradient()


def _pieces(box: Interval) -> tuple[Array, Array]:
    """A box (E,) in equal pieces (M, E), the outer ones reaching to its edges; what has no width stays whole."""
    count = PIECES[len(box)]
    edges = [
        np.unique(np.linspace(lo, hi, count + 1)) if hi > lo else np.array([lo, lo])
        for lo, hi in zip(box.lo, box.hi, strict=True)
    ]
    ends = ([one[:-1] for one in edges], [one[1:] for one in edges])
    low, high = (np.stack([grid.ravel() for grid in np.meshgrid(*one, indexing="ij")], axis=1) for one in ends)
    return low, high


def image(function: Expression, box: Interval) -> tuple[Interval, Interval]:
    """Range () and partial derivatives (E,) of a function on a box (E,), by enclosures on pieces; not finite where unknown."""
    low, high = _pieces(box)
    pieces = Interval(low, high)
    found, slopes = function.enclose(pieces), _gradient(function).enclose(pieces)
    slopes = slopes.undefined(~np.isfinite(found.magnitude))
    return (
        Interval(found.lo.min(axis=0)[0], found.hi.max(axis=0)[0]),
        Interval(slopes.lo.min(axis=0), slopes.hi.max(axis=0)),
    )


def forward(cutting: Cutting, box: Box, eps: Array) -> tuple[Interval, list[Interval], list[Interval], list[Array]]:
    """Ranges, boxes, slopes and rounding of arguments, node by node; Unbounded where a node is not finite or not Lipschitz."""
    lo, hi = np.concatenate([box.low, np.zeros(len(cutting.names))]), np.concatenate([box.high, np.zeros(len(cutting.names))])
    D = len(box.low)
    boxes, slopes, rhos = list[Interval](), list[Interval](), list[Array]()
    for k, (function, rows) in enumerate(zip(cutting.functions, cutting.maps, strict=True)):
        found = [argument(row, Interval(lo[: D + k], hi[: D + k])) for row in rows]
        rho = np.array([one for _, one in found])
        plain = Interval.stack([one for one, _ in found])
        wide = plain + Interval(-rho, rho)
        value, slope = image(function, wide)
        if not np.isfinite(value.magnitude) or not np.isfinite(slope.magnitude).all():
            reach = ", ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(wide.lo, wide.hi, strict=True))
            what = "bounded" if not np.isfinite(value.magnitude) else "of bounded slope"
            raise Unbounded(k, f"`{function.text}` is not shown to be {what} on {reach}")
        reached = value + Interval(np.asarray(-eps[k]), np.asarray(eps[k]))
        lo[D + k], hi[D + k] = reached.lo, reached.hi
        boxes.append(wide)
        slopes.append(slope)
        rhos.append(rho)
    return Interval(lo, hi), boxes, slopes, rhos


def adjoints(cutting: Cutting, slopes: Sequence[Interval], dimension: int) -> Array:
    """W of inputs and nodes (D + m,), by the recursion from the output backwards."""
    m = len(cutting.names)
    lo, hi = np.zeros(dimension + m), np.zeros(dimension + m)
    result = cutting.result
    if result.indices:
        at = np.array(result.indices)
        lo[at], hi[at] = result.exact_weights.lo, result.exact_weights.hi
    for k in range(m - 1, -1, -1):
        own = Interval(lo[dimension + k], hi[dimension + k])
        for e, row in enumerate(cutting.maps[k]):
            if row.indices:
                at = np.array(row.indices)
                added = Interval(lo[at], hi[at]) + (own * slopes[k][e]) * row.exact_weights
                lo[at], hi[at] = added.lo, added.hi
    return np.maximum(np.abs(lo), np.abs(hi))


def ranges(cutting: Cutting, box: Box, eps: Array) -> Ranges:
    """Everything that the theorem needs, for errors of the nodes of at most eps (beta and rounding of arguments together)."""
    D = len(box.low)
    values, boxes, slopes, rho = forward(cutting, box, eps)
    weights = adjoints(cutting, slopes, D)
    result, lost = argument(cutting.result, values)
    return Ranges(values, tuple(boxes), tuple(slopes), tuple(rho), weights[D:], weights[:D], result, lost)
