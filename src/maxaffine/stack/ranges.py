"""Hypotheses 1 to 4 of the theorem of stacks, outward rounded: ranges, boxes of heads, slopes, adjoints and the sum.

    R_k  contains  phi_k(T_k R_<k) + [-eps_k, eps_k]
    B_k  contains  T_k R_<k + [-rho_k, rho_k]              rho_k: rounding of the affine map as it runs
    G_k  contains  the partial derivatives of phi_k on B_k (one-sided and everything between them at kinks)
    A_k  contains  c_k + sum over j > k of A_j G_jk
    |stack - f|  <=  sum W_k eps_k + rounding of the output map + W_i u |x_i|,    W = max |A|, eps_k = beta_k + sup |G_k| rho_k

A norm is one node: phi = hypot is 1-Lipschitz, and beta is proved of all its absolute values together (structure/folding.py),

    beta_k  =  R tan(t_K/2)^2  +  2/(1 + cos t_K) sum over its |.| of (error of the head + rounding of its argument)

A node of unbounded slope, such as sqrt(u) where u may be 0, is rough: as it runs, its argument is moved into the range of the
exact one, is off by at most d_k, the errors of all nodes and inputs it reads followed forwards, and no weight passes through it:

    eps_k  =  beta_k + omega_k(d_k)            omega_k: the modulus of continuity of phi_k (modulus.py)

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
from maxaffine.stack.modulus import modulus
from maxaffine.structure.folding import angle
from maxaffine.structure.stacked import AffineMap
from maxaffine.target.box import Box

PIECES = {1: 192, 2: 28}  # per direction, over which functions and slopes are enclosed
SHIFT = 900  # the most that an argument is divided by, as a power of two: what falls below the smallest number then
LOOSE = 1.0 + 1e-12  # on sines and cosines of angles that are floats themselves
UP = 1.0 + 2.0**-50  # outward rounding of a few sums and products of positive numbers


class Unbounded(Exception):
    """A node whose function is not shown to be finite, or not shown to have bounded slopes, on its range."""

    def __init__(self, node: int, what: str) -> None:
        super().__init__(what)
        self.node = node


@dataclass(frozen=True)
class Norm:
    """A norm that is folded: a bound of it on its range, t_K of its folds, and how many absolute values it takes."""

    reach: float
    angle: float
    count: int

    @property
    def gain(self) -> float:
        """2 / (1 + cos t_K): what errors of absolute values are multiplied by at most."""
        return 2.0 / (1.0 + math.cos(self.angle)) * LOOSE

    @property
    def identity(self) -> float:
        """R tan(t_K/2)^2: how far the folded norm is from hypot where absolute values are exact."""
        return self.reach * math.tan(0.5 * self.angle) ** 2 * LOOSE


@dataclass(frozen=True)
class Ranges:
    """What is proved of every node, given its eps: boxes of the heads, ranges, slopes, and the weights W."""

    values: Interval  # (D + m,): inputs, then nodes
    boxes: tuple[Interval, ...]  # (E,) each: B_k; of a norm (1,), of its absolute values
    slopes: tuple[Interval, ...]  # (E,) each: partials on B_k
    rho: tuple[Array, ...]  # (E,) each; of a norm (1,), the largest
    lost: Array  # (m,): what the rounding of its arguments does to a node
    norms: dict[int, Norm]
    rough: dict[int, float]  # of nodes of unbounded slope omega(d)/d, what shares of the error go by
    weights: Array  # (m,): W_k
    leaning: Array  # (m,): W_k where rough nodes have that slope
    inputs: Array  # (D,): W of the inputs
    result: Interval  # (): of the output, but for the error
    output_rounding: float

    def beta(self, k: int, head: float) -> float:
        """The error of a node whose head has this error, without the rounding of arguments."""
        norm = self.norms.get(k)
        return head if norm is None else (norm.identity + norm.gain * norm.count * head) * UP

    @property
    def roughness(self) -> float:
        """What rough nodes add to the bound beside the errors of their heads."""
        return math.fsum(self.weights[k] * self.lost[k] for k in self.rough) * UP

    def rounding(self, low: Array, high: Array) -> float:
        """What rounding adds to the bound."""
        nodes = math.fsum(w * self.lost[k] for k, w in enumerate(self.weights) if k not in self.rough)
        inputs = math.fsum(self.inputs * np.maximum(np.abs(low), np.abs(high)) * FLOAT64.unit)
        return (nodes + inputs + self.output_rounding) * UP


def argument(row: AffineMap, values: Interval) -> Interval:
    """The range of an affine form over ranges of what it reads."""
    if not row.indices:
        return row.exact_constant
    return (row.exact_weights * values[np.array(row.indices)]).sum() + row.exact_constant


def rounding(row: AffineMap, size: Array) -> float:
    """A bound of the rounding of an affine form as it runs, for values of at most this size."""
    if not row.indices:
        return float(_drift(row.exact_constant, row.constant))
    terms = np.abs(row.weights) * size[np.array(row.indices)]
    total = (float(np.sum(terms)) + abs(row.constant)) * UP
    count = 2 * len(row.indices)  # products and sums
    away = float(np.sum(_drift(row.exact_weights, row.weights) * size[np.array(row.indices)]))
    exact = len(row.indices) == 1 and row.constant == 0.0 and abs(math.frexp(row.weights[0])[0]) == 0.5
    rho = (0.0 if exact else gamma(count, FLOAT64.unit) * total) + away + float(_drift(row.exact_constant, row.constant))
    return (rho + (count + 2.0**SHIFT) * FLOAT64.tiny) * UP


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


@lru_cache(maxsize=64)
def exact_ranges(cutting: Cutting, low: tuple[float, ...], high: tuple[float, ...]) -> Interval:
    """Ranges (D + m,) of inputs and exact nodes, where nothing errs; not finite where unknown."""
    found = Interval(np.array([*low, *[0.0] * len(cutting.names)]), np.array([*high, *[0.0] * len(cutting.names)]))
    for k, rows in enumerate(cutting.maps):
        sides = [argument(row, found) for row in rows]
        value = Interval(np.asarray(-np.inf), np.asarray(np.inf))
        if cutting.folds[k]:
            value = (sides[0].square() + sides[1].square()).sqrt()
        elif all(np.isfinite(side.magnitude) for side in sides):
            value = image(cutting.functions[k], Interval.stack(sides))[0]
        found.lo[len(low) + k], found.hi[len(low) + k] = value.lo, value.hi
    return found


class _Forward:
    """One pass over the nodes, in order: ranges of values, and sizes of what runs."""

    def __init__(self, cutting: Cutting, box: Box) -> None:
        self.cutting, self.box, self.inputs = cutting, box, len(box.low)
        nodes = np.zeros(len(cutting.names))
        self.lo, self.hi = np.concatenate([box.low, nodes]), np.concatenate([box.high, nodes])
        self.flat, self.parts = cutting.planned.flat, cutting.planned.parts
        self.size = np.concatenate([np.maximum(np.abs(box.low), np.abs(box.high)), np.zeros(len(self.flat.nodes))])
        self.away = self.size[: self.inputs + len(nodes)] * FLOAT64.unit  # from the exact formula: inputs are rounded
        self.norms: dict[int, Norm] = {}
        self.rough: dict[int, float] = {}

    def arguments(self, k: int) -> list[Interval]:
        """Exact ranges of the arguments of a node."""
        return [argument(row, Interval(self.lo, self.hi)) for row in self.cutting.maps[k]]

    def plain(self, k: int, eps: float) -> tuple[Interval, Interval, Array, float]:
        """Box, slopes, rounding of the arguments, and what it does to the node."""
        function = self.cutting.functions[k]
        rho = np.array([rounding(row, self.size) for row in self.flat.nodes[self.parts[k].start].maps])
        wide = Interval.stack(self.arguments(k)) + Interval(-rho, rho)
        value, slope = image(function, wide)
        if not np.isfinite(value.magnitude) or not np.isfinite(slope.magnitude).all():
            found = self.unsteady(k, eps, rho)
            if found is not None:
                return found
            reach = ", ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(wide.lo, wide.hi, strict=True))
            what = "bounded" if not np.isfinite(value.magnitude) else "of bounded slope"
            raise Unbounded(k, f"`{function.text}` is not shown to be {what} on {reach}")
        lost = float(np.sum(slope.magnitude * rho)) * UP
        self._reached(k, value, eps)
        self._strayed(k, eps + lost, slope.magnitude)
        return wide, slope, rho, lost

    def unsteady(self, k: int, eps: float, rho: Array) -> tuple[Interval, Interval, Array, float] | None:
        """The same of a rough node: its box is the exact range of its argument; None where it is not shown to be continuous."""
        whole = argument(self.cutting.maps[k][0], exact_ranges(self.cutting, tuple(self.box.low), tuple(self.box.high)))
        if len(rho) != 1 or not np.isfinite(whole.magnitude):
            return None
        function, (row,) = self.cutting.functions[k], self.cutting.maps[k]
        box = Interval(whole.lo[None], whole.hi[None])
        d = (self._apart(row) + float(rho[0])) * UP
        value, _ = image(function, box)
        if not np.isfinite(value.magnitude):
            return None
        lost = modulus(function, _gradient(function), float(whole.lo), float(whole.hi), d)
        if not math.isfinite(lost):
            return None
        self.rough[k] = lost / d
        self._reached(k, value, eps + lost)
        self._strayed(k, eps + lost, np.zeros(1))
        return box, Interval(np.zeros(1), np.zeros(1)), rho, lost

    def norm(self, k: int, eps: float) -> tuple[Interval, Interval, Array, float]:
        """The same of a norm."""
        sides = self.arguments(k)
        value = (sides[0].square() + sides[1].square()).sqrt()
        self._reached(k, value, eps)
        part, size = self.parts[k], float(value.hi) + eps
        self.size[self.inputs + part.start : self.inputs + part.stop] = size
        rho = [rounding(self.flat.nodes[f].maps[0], self.size) for f in part]
        norm = self.norms[k] = Norm(float(value.hi), angle(self.cutting.folds[k]), len(part))
        if any(b and side.lo < 0.0 for b, side in zip(self.cutting.bare[k], sides, strict=True)):
            raise Unbounded(k, "an argument of a norm may be negative")
        most = np.array([max(rho)])
        slope = Interval.stack([Interval(np.where(s.lo < 0.0, -1.0, 0.0), np.where(s.hi > 0.0, 1.0, 0.0)) for s in sides])
        lost = norm.gain * math.fsum(rho) * UP
        self._strayed(k, eps + lost, np.ones(2))
        return Interval(-(size + most), size + most), slope, most, lost

    def _apart(self, row: AffineMap) -> float:
        """How far an affine form may be from the exact formula's, by all that it reads."""
        return float(np.sum(row.exact_weights.magnitude * self.away[np.array(row.indices, dtype=np.intp)])) * UP

    def _strayed(self, k: int, own: float, slopes: Array) -> None:
        """How far a node may be from the exact formula's: its own error, and that of its arguments."""
        handed = math.fsum(s * self._apart(row) for s, row in zip(slopes, self.cutting.maps[k], strict=True))
        self.away[self.inputs + k] = (own + handed) * UP

    def _reached(self, k: int, value: Interval, eps: float) -> None:
        at = self.inputs + k
        reached = value + Interval(np.asarray(-eps), np.asarray(eps))
        self.lo[at], self.hi[at] = reached.lo, reached.hi
        if not self.cutting.folds[k]:
            self.size[self.inputs + self.parts[k].start] = reached.magnitude


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
    """Everything that the theorem needs, for errors of the nodes of at most eps (beta and rounding of arguments together).

    Unbounded where a node is not finite or not Lipschitz.
    """
    D, walk = len(box.low), _Forward(cutting, box)
    found = [(walk.norm if n else walk.plain)(k, float(eps[k])) for k, n in enumerate(cutting.folds)]
    boxes, slopes, rhos, lost = zip(*found, strict=True) if found else ((), (), (), ())
    weights, values = adjoints(cutting, slopes, D), Interval(walk.lo, walk.hi)
    chords = {k: Interval(np.array([-chord]), np.array([chord])) for k, chord in walk.rough.items()}
    leaning = adjoints(cutting, [chords.get(k, one) for k, one in enumerate(slopes)], D) if chords else weights
    return Ranges(
        values, tuple(boxes), tuple(slopes), tuple(rhos), np.array(lost), walk.norms, walk.rough,
        weights[D:], leaning[D:], weights[:D],
        argument(cutting.result, values), rounding(walk.flat.result, walk.size),
    )  # fmt: skip
