"""Curved kinks re-proved: both branches by Ehlich and Zeller, the wrong branch's share on boxes cut in three.

The layer is p_o + Omega_in q.  Where the switch's argument has the inner cluster's sign the target is f_A, elsewhere f_o; so
|layer - target| is at most |p_o + q - f_A| + (1 - Omega_in)|q| or |p_o - f_o| + Omega_in |q|, and the larger of both where the
sign is not decided.  A target that is the larger or the smaller of its branches everywhere needs no sign: checker/soft_kink.py.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from maxaffine.checker.boxes import Bounds, Index
from maxaffine.checker.curved_maximum import check_curved_maximum
from maxaffine.checker.head import Head
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import NEGLIGIBLE, literally
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.checker.scaled_clusters import Curvature, ScaledClusters
from maxaffine.checker.soft_kink import largest_near_curve, score_margin, with_edges, wrong_share
from maxaffine.checker.target_parts import expression_of
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.branches import extremum, parting
from maxaffine.structure.switches import forced, switches
from maxaffine.target.target import Target


def check_curved(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a smooth head and an inner cluster among edges, or of a maximum of two polygons."""
    if record["plan"].get("plan") == "curved maximum":
        return check_curved_maximum(layer, record, target, error)
    expression = expression_of(target, "curved kinks")
    if target.box.dimension != 2:
        raise NotProved("its target is not one that curved kinks are proved for.")
    found = [one for one in switches(expression) if one.chosen]
    choice = record["plan"]["side"]
    if len(found) != 1 or found[0].kind != "kink" or choice not in (-1, 1):
        raise NotProved("its target has not one kink.")
    groups = layer.clusters(2, 2)
    outer, inner = (ScaledClusters.of(layer, g) for g in (0, 1))
    if not _is_curved_kink(outer, inner):
        raise NotProved("its clusters are not those of a curved kink.")
    place = found[0].place
    plain, q = outer.head(0, 0, forced(expression, {place: -choice})), inner.head(0, 0, expression)
    assert plain.slopes is not None and q.slopes is not None
    both = plain.values + q.values, plain.slopes + q.slopes
    other = replace(plain, expression=forced(expression, {place: choice}), axes=q.axes, values=both[0], slopes=both[1])
    size = plain.top() + q.top()
    branch = max(plain.supremum(error), other.supremum(error)) + 16.0 * DOUBLE * size
    eta, count = max(outer.score_error(), inner.score_error()), len(inner.group.sites)
    lost = outer.head_error(0, plain) + inner.head_error(0, q) + (8.0 * count + 100.0) * DOUBLE * 2.1 * size
    lost += count * 1e-35 * size + 2.1 * compute_format(outer.dtype).unit * size
    if not eta < 1.0:
        raise NotProved(f"its scores are uncertain by {eta:.3g}.")
    goal, sign = error * 0.9995 - branch - lost, extremum(expression, place, target.box)
    if not goal > 0:
        raise NotProved("its branches alone are off by more than was promised.")
    apart = parting(expression, place, choice)
    if sign is not None and apart is not None:
        wrong, boxes = wrong_share(inner, q, sign, goal, 2.0 * eta, apart, 2.0 * branch)
    else:
        wrong, boxes = largest_near_curve(inner, _WrongBranch(inner, q, found[0].argument, choice, goal, 2.0 * eta).measure, goal)
    bound = branch + lost + wrong

    # The outer group is one cluster, and sum Omega |p - F| of the inner one is 2 Omega_in (1 - Omega_in) |q|.
    pairs = list(zip(groups, (Blend(0.0, plain.top()), Blend(wrong, q.top())), strict=True))
    literal = literally(layer, bound, lambda frame: [cluster_column(*pair, frame) for pair in pairs])
    return Proved(bound, f"both branches on the box, {boxes:,} boxes for {count - 1:,} edges", literal)


def _is_curved_kink(outer: ScaledClusters, inner: ScaledClusters) -> bool:
    """One outer cluster, and an inner one among edges that say nothing, all in the same coordinates on the whole box."""
    one, two = outer.group, inner.group
    if len(one.sites) != 1 or len(two.sites) < 2 or not np.array_equal(outer.scale, inner.scale):
        return False
    keys = zip(one.axes[0], two.axes[0], strict=True)
    same = all(np.array_equal(a.a, b.a) and np.array_equal(a.b, b.b) for a, b in keys)
    flat = one.values[0].size == 1 and all(axis.bare for axis in one.axes[0])  # an affine function
    edges = np.all(two.sizes[1:] == 1) and all(axis.bare for axes in two.axes[1:] for axis in axes)
    edges = edges and not any(np.any(one) for one in (*two.values[1:], *two.slopes[1:]))
    radius = one.radii[0]
    placed = not np.any(two.origins) and not np.any(one.origins) and np.all(two.radii == radius) and np.all(radius >= outer.reach)
    alone = not np.any(two.sites[0, :-1])  # the inner score's slope is that of its keys
    return bool((same or flat) and edges and placed and alone)


class _WrongBranch:
    """The wrong branch's mass times |q| over boxes of z: masses from scores at the middle and their slopes."""

    def __init__(self, inner: ScaledClusters, q: Head, argument: Expression, choice: int, goal: float, blur: float) -> None:
        self.inner, self.q, self.argument, self.choice, self.goal = inner, q, argument, choice, goal
        sites = inner.group.sites[1:]
        self.slopes, self.offsets = sites[:, :-1], sites[:, -1]
        self.margin = score_margin(inner, blur)
        self.curvature, self.radius = Curvature(q.axes, q.columns), inner.group.radii[0]
        self.rounding = 800.0 * DOUBLE * (q.top() + 1.0)

    def measure(self, low: Array, high: Array, who: Index) -> Bounds:
        """Upper bounds over boxes, `who` the edges that are looked at one by one, -1 for none."""
        z, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
        t, reach = z / self.radius, half / self.radius * (1 + 1e-14)
        value, slope, W = self.curvature.at(t)
        size = np.abs(value) + 0.5 * ((reach @ self.curvature.bend) * reach).sum(axis=1) + self.rounding
        size += (np.abs(slope) * reach).sum(axis=1)
        one, own = self.slopes[who], self.inner.own_scores(z)
        trail = np.where(who < 0, -np.inf, np.einsum("bmd,bd->bm", one, z) + self.offsets[who] - own[:, None])
        # the inner score's slope at z, and what it may change by inside the box
        own_slope = np.stack([(w * axis.a).sum(axis=1) for w, axis in zip(W, self.q.axes, strict=True)], axis=1) / self.radius
        spread = np.array([axis.spread for axis in self.q.axes])
        change = ((spread / self.radius) ** 2 * half**2).sum(axis=1) / 2.0
        swing = np.einsum("bmd,bd->bm", np.abs(one - own_slope[:, None]), half) * (1 + 1e-12) + change[:, None]
        edges_mass = np.exp(np.minimum(trail + swing + self.margin, 30.0)).sum(axis=1) * (1 + 1e-9)
        edges_mass += len(self.offsets) * math.exp(self.margin - NEGLIGIBLE)
        inner_mass = np.exp(np.minimum((swing - trail).min(axis=1) + self.margin, 30.0)) * (1 + 1e-9)
        h = self.argument.enclose(self.inner.x(low, high))
        sign = np.where(h.lo[:, 0] >= 0, 1, np.where(h.hi[:, 0] <= 0, -1, 0))
        mass = np.where(sign == self.choice, edges_mass, np.where(sign == -self.choice, inner_mass, 1.0))
        total = np.exp(np.minimum(trail, 600.0)).sum(axis=1)
        here = np.where(sign == self.choice, total / (1.0 + total), np.where(sign == -self.choice, 1.0 / (1.0 + total), 0.0))
        if np.any(here * np.abs(value) > 1.001 * self.goal):
            raise NotProved("the wrong branch adds more than was promised.")
        self._differ_on_the_curve(low, high, np.flatnonzero((sign == 0) & (2.0 * np.abs(value) - size > 1.001 * self.goal)))
        return with_edges(np.minimum(mass, 1.0) * size * (1 + 1e-12), trail + swing > -NEGLIGIBLE, who)

    def _differ_on_the_curve(self, low: Array, high: Array, tight: Index) -> None:
        """Stop early where the branches surely differ by too much at a point of the curve."""
        if not len(tight):
            return
        a, b = low[tight], high[tight]
        corners = [np.stack([u[:, 0], v[:, 1]], axis=1) for u in (a, b) for v in (a, b)]
        ends = [self.argument.evaluate(z / self.inner.scale + self.inner.centre)[:, 0] for z in corners]
        if np.any(np.min(ends, axis=0) * np.max(ends, axis=0) < 0):
            raise NotProved("its branches differ on the curve by more than was promised.")
