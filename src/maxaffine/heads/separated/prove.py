"""Sup-norm certificates of separated heads: every factor by Ehlich and Zeller, then multiplied out.

    |F - f| <= sum over terms  sup|front| (prod (|g_j| + eps_j) - prod |g_j|)          the exponential sums
             + sum over rows   prod_b (|f_rb| + d_rb) - prod_b |f_rb|                   the factors, as computed

f_rb are complex where exponents are; eps_j >= |g_j - s_j| on the range of u_j, d_rb >= |h_rb - f_rb| with rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.heads.separated.plan import SeparatedPlan
from maxaffine.heads.spectral.prove import head_of, query_error
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import underflow
from maxaffine.proofs.literal import literal
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.separated_rounding import accounted, rounding
from maxaffine.proofs.sources import FromExpression
from maxaffine.runtime.collapse import SHARE, allowance, collapsible
from maxaffine.structure.exponential_sums import ExponentialSum, Row, rows
from maxaffine.structure.separation import Outer

THEOREM = (
    "separation: |prod h - prod f| <= prod (|f| + d) - prod |f| over the factors of every product; factors and sums of"
    " exponentials by Ehlich-Zeller"
)
Cell = tuple[float, float]  # of z, of blocks of one direction
WHOLE = (-1.0, 1.0)
ENDS = 16  # parts of a cell next to a singular end
ROOM = 1e-3  # of the range of an inner function, which the checker may see a little larger


@dataclass
class Factors:
    """The factors of a stored layer beside their functions; what is alike is proved once."""

    group: Group
    plan: SeparatedPlan
    _known: dict[Any, float] = field(default_factory=dict)
    _sizes: dict[Any, float] = field(default_factory=dict)

    def source(self, part: Expression, b: int) -> FromExpression:
        """A part of block b in scaled variables."""
        cut, made = self.group.block_slices[b], self.plan.made
        return FromExpression(part, Interval.of(made.middle.lo[cut], made.middle.hi[cut]), made.half[cut])

    def _place(self, b: int) -> tuple[Any, ...]:
        cut, made = self.group.block_slices[b], self.plan.made
        return made.middle.lo[cut].tobytes(), made.middle.hi[cut].tobytes(), made.half[cut].tobytes()

    def size(self, part: Expression | None, b: int) -> float:
        """sup |part|, 1 where it is absent."""
        if part is None:
            return 1.0
        key = (part.nodes, part.outputs, self._place(b))
        if key not in self._sizes:
            found = self.source(part, b).extent()
            if not math.isfinite(found):
                raise Refused("a factor of the target could not be enclosed.")
            self._sizes[key] = found
        return self._sizes[key]

    def range(self, part: Expression | None, b: int) -> tuple[float, float]:
        """Between which numbers a part stays; 1 where it is absent."""
        return (1.0, 1.0) if part is None else self.source(part, b).range()

    def off(self, part: Expression | None, absent: float, b: int, values: Array, goal: float, cell: Cell = WHOLE) -> float:
        """sup |h - f| of one real column of block b and its function on a cell of z, the stored numbers taken exactly."""
        if part is None or not part.used:
            return _constant(part, absent, values)
        cut = self.group.block_slices[b]
        axes = self.group.axes[cut]
        keys = tuple((a.slopes.tobytes(), a.offsets.tobytes()) for a in axes)
        key = (part.nodes, part.outputs, self._place(b), keys, values.tobytes(), cell)
        if key not in self._known:
            head = head_of(self.source(part, b), axes, self.plan.made, values[..., None], first=cut.start)
            low, high = (None, None) if cell == WHOLE else (np.array([end]) for end in cell)
            self._known[key] = prove(head, goal, low, high, enough=goal).bound
        return self._known[key]


def _constant(part: Expression | None, absent: float, values: Array) -> float:
    """A column that stands for a number: all values are that number, so that every mean of them is."""
    held, exact = values.astype(np.float64), Interval.point(absent)
    if part is not None:
        found = part.enclose(Interval.point(np.zeros((1, part.dimension))))
        exact = Interval(found.lo[0, 0], found.hi[0, 0])
    return float(max(np.abs(held - exact.lo).max(), np.abs(held - exact.hi).max()) * (1 + 1e-15))


def planned(layer: GroupedLayer, plan: SeparatedPlan) -> tuple[Group, tuple[Row, ...]]:
    """The group of a layer, and the rows of its plan that its factors stand for."""
    (group,) = layer.products()
    own = rows(plan.separation, plan.sums)
    if group.factors is None or group.block_sizes != plan.separation.sizes or group.factors[0].shape[-1] != len(own):
        raise Refused("the layer's factors are not those of its plan.")
    return group, own


def certify_separated(layer: GroupedLayer, plan: SeparatedPlan, error: float, runtime: str = "arrays") -> Certificate:
    """Prove a sup-norm bound for a stored separated layer."""
    group, own = planned(layer, plan)
    assert group.factors is not None
    B, R = len(plan.separation.sizes), len(own)
    factors = Factors(group, plan)
    reserve = SHARE * error if runtime in ("arrays", "collapsed") and collapsible(layer) else 0.0
    outer = outer_error(plan, factors)
    rounded = rounding(layer, group, query_error(layer, group, plan.made))
    sizes = np.array([[factors.size(row.modulus[b], b) for b in range(B)] for row in own])
    goal, off = max(error - 1.1 * reserve - outer, 0.0) / B / R, np.zeros((R, B))
    for r, row in enumerate(own):
        for b in range(B):
            aim = goal / max(math.prod(np.delete(sizes[r], b)), 1e-300)
            found = [factors.off(row.real[b], 1.0, b, group.factors[b][..., r], aim)]
            if group.imaginary is not None:
                found.append(factors.off(row.imaginary[b], 0.0, b, group.imaginary[b][..., r], aim))
            off[r, b] = math.hypot(*found) * (1 + 1e-15)
    exact, lost, largest = accounted(layer, group, sizes, off, rounded)
    kept = allowance(reserve, largest) if reserve else 0.0  # what the polynomials of `collapsed` differ from the heads by
    if runtime == "dense":
        lost += literal(layer, ()).total
    parts = {
        "approximation": outer + exact,
        "leakage": 0.0,
        "rounding": lost + compute_format(layer.dtype).unit * largest + underflow(layer, [largest]) + kept,
        "target_rounding": 0.0,
    }
    if not all(math.isfinite(part) for part in parts.values()):
        raise Refused("the products of the factors are too large to be followed.")
    return Certificate.proved(
        math.inf, parts, argument="separated", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT),
        details={"rows": float(R), "blocks": float(B), "exponential_sums": outer, "collapse": reserve},
    )  # fmt: skip


def outer_error(plan: SeparatedPlan, factors: Factors) -> float:
    """What the exponential sums differ from the outer functions by, over all terms."""
    separation, tops, errors = plan.separation, list[float](), list[float]()
    for outer, one in zip(separation.outers, plan.sums, strict=True):
        low, high = inner_range(outer, factors)
        off, top = on_interval(outer.function, one, low, high)
        tops.append(top)
        errors.append(off)
    total = 0.0
    for term in separation.terms:
        if term.outers:
            front = math.prod(factors.size(part, b) for b, part in enumerate(term.factors))
            rough = math.prod(tops[j] + errors[j] for j in term.outers)
            total += front * (rough - math.prod(tops[j] for j in term.outers) + 1e-15 * rough * len(term.outers))
    return total * (1 + 1e-12)


def inner_range(outer: Outer, factors: Factors) -> tuple[float, float]:
    """An interval that the argument of an outer function stays in."""
    ends = [(0.0, 0.0) if part is None else factors.range(part, b) for b, part in enumerate(outer.parts)]
    low, high = math.fsum(a for a, _ in ends), math.fsum(b for _, b in ends)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Refused("an inner function could not be enclosed.")
    return low - abs(low) * 1e-14, high + abs(high) * 1e-14


def on_interval(g: Expression, one: ExponentialSum, low: float, high: float) -> tuple[float, float]:
    """sup |g - s| on an interval, a little wider than asked where g allows it, and a bound of |g| there."""
    away = difference(g, one.expression())
    failure: Refused | None = None
    for middle, half in _intervals(low, high):
        source = FromExpression(away, Interval.point(np.array([middle])), np.array([half]))
        top = FromExpression(g, source.middle, source.half).extent()
        if not math.isfinite(top):
            continue
        seen = float(np.nanmax(np.abs(away.evaluate(middle + half * np.linspace(-1.0, 1.0, 401)[:, None]))))
        pair = _Difference(source, (AxisKeys(np.zeros(1), np.zeros(1)),), (None,), np.zeros((1, 1)))
        try:
            return prove(pair, max(0.1 * seen, 1e-12 * top)).bound, top
        except Refused as refused:
            failure = refused
    raise failure or Refused("an outer function could not be enclosed on the range of its argument.")


def _intervals(low: float, high: float) -> Iterator[tuple[float, float]]:
    """Middle and half width of intervals that hold low..high: wider ones first, and one that ends at 0 where that is an end."""
    middle = (low + high) / 2.0
    for room in (ROOM, 0.0):
        yield middle, max(high - middle, middle - low) * (1 + room + 1e-15) + 2.0**-50 * (abs(low) + abs(high))
    if low == 0.0:
        half = float(np.nextafter(np.float32(high / 2.0), np.float32(np.inf)))  # few digits: -1 times it and back is exactly 0
        yield half, half


class _Difference(Head):
    """g - s beside nothing; next to a singular end, where no ellipse serves, its own enclosure on a short cell says enough."""

    def enclosed(self, low: Array, high: Array, error: float) -> tuple[float, bool]:
        """A bound by enclosures on some equal parts of the cell; taken where it is hardly above what is seen."""
        edges = np.linspace(float(low[0]), float(high[0]), ENDS + 1)
        source = self.source
        assert isinstance(source, FromExpression)
        z = Interval(edges[:-1], edges[1:])
        found = source.expression.enclose_on([z * Interval.point(source.half[0]) + source.middle[0]])
        bound = float(np.max(found.magnitude)) if np.all(np.isfinite(found.magnitude)) else math.inf
        return bound, bound <= 11.0 * error


def difference(g: Expression, s: Expression) -> Expression:
    """g - s."""
    graph = Graph()
    places = [graph.include(one.nodes, {0: graph.variable(0)})[one.outputs[0]] for one in (g, s)]
    return Expression.of_graph("outer function less its exponentials", g.names, graph, (graph.subtract(*places),))
