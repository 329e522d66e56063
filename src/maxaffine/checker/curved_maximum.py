"""Curved maxima re-proved: chords above and tokens below every polygon, the smooth part group by group.

The target is smooth part + sigma max_i(phi_i(t) + m_i . x), read off its expression again; the function g that the file adds to
all sides may be any, and so may be which tokens it counts to which side.  A side's polygon A(t) = max_k v_k(t) is convex: between
two points a < b it is at most the chord of A(a) and A(b), and at least any one token.  Both are affine, and on [a, b] an affine
function minus phi is at most its values at the ends and (b - a)^2/8 sup |phi''| apart from zero.  The layer's softmax is below
the largest value by a soft gap of kappa = 1/R, since scores are R times values (checker/soft_gap.py).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.affine_tokens import AffineTokens
from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import Column, Frame, literally
from maxaffine.checker.product_group import ProductGroup
from maxaffine.checker.proved import DOUBLE, NotProved, Proved, exact
from maxaffine.checker.reader import Layer
from maxaffine.checker.soft_gap import soft_gap
from maxaffine.checker.target_parts import along, doubt_parts, expression_of, group_at
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.curved_maxima import CurvedMaximum, Lift, curved_switch
from maxaffine.target.target import Target

PAIRS = 4_000_000  # numbers that are compared at once
THIRDS = 5  # times that an interval is cut in three
SMOOTH = 0.06  # of the error, for the smooth part


def check_curved_maximum(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of single tokens whose scores are their values times R, and groups of product keys."""
    plan = record["plan"]
    found = _maximum(target, plan)
    leans, tokens = found.leans(), AffineTokens.of(layer)
    if [len(group.matrix) for group in layer.groups] != [1 + len(leans), *(group.dimension for group in found.parts)]:
        raise NotProved("its groups are not those of its target.")
    if len(tokens.scores) < 2:
        raise NotProved("it has fewer than two tokens beside its smooth part.")
    values, sharpness = _values(tokens, found.sign)
    total, along = _affine_parts(tokens, found)
    ends = np.cumsum([int(n) for n in plan["pieces"]])
    if len(ends) != len(found.sides) or ends[-1] != len(values) or np.any(np.diff(ends, prepend=0) < 1):
        raise NotProved("its tokens are not shared out among the sides of its maximum.")
    worst = 0.0
    for rows, side, level in zip(np.split(values, ends[:-1]), found.sides, along.levels, strict=True):
        if not np.array_equal(rows[:, 1:-1], np.tile([float(side.lean == row) for row in leans], (len(rows), 1))):
            raise NotProved("its tokens lean otherwise than the sides of the maximum.")
        worst = max(worst, polygon_error(rows, side.phi, along, level))
    eta, lost = tokens.rounding()
    blend = float(soft_gap(len(values) - 1, 1.0 / sharpness, 2.0 * eta)) * (1 + 1e-12)
    total += worst + blend + lost
    swing = np.abs(values[:, :-1]) @ along.reach  # the largest token is above every token's least value
    tops = [abs(float((values[:, -1] + side * swing).max())) for side in (1.0, -1.0)]
    known, parts = Blend(blend, max(tops) * (1 + 1e-12)), []
    size = float((swing + np.abs(values[:, -1])).max())
    for g, group in enumerate(found.parts):
        part = ProductGroup.of(layer, g + 1, group, 0.0)  # the two-level runtime adds no bias to its logits
        bound, top = part.prove(SMOOTH * error / len(found.parts))
        parts.append(replace(part, extent=top))
        total, size = total + bound, size + top
    if layer.affine_part is not None:
        steep, span = np.abs(layer.affine_part[0]), target.box.high - target.box.low
        far = np.maximum(np.abs(target.box.low), np.abs(target.box.high))  # x is rounded to float64, wherever the box lies
        size, total = size + float(steep @ span), total + float(steep @ (far + 8.0 * span)) * DOUBLE * 1.01
    sums = (len(layer.groups) + target.box.dimension + 8.0) * DOUBLE * 2.0
    total += (compute_format(layer.dtype).unit * 1.01 + sums) * (size + total)
    if not math.isfinite(total):
        raise NotProved("a part could not be bounded.")
    whole = total * (1 + 1e-12)

    def columns(frame: Frame) -> list[Column]:
        return [cluster_column(tokens.group, known, frame), *(part.column(frame) for part in parts)]

    how = f"{len(values):,} tokens on {len(ends)} convex polygons, {len(found.parts)} smooth groups"
    return Proved(whole, how, literally(layer, whole, columns))


def _maximum(target: Target, plan: Mapping[str, Any]) -> CurvedMaximum:
    """The target as the file wants it taken apart, compared with the target at random points."""
    base, row = plan["base"], plan["lift"]
    numbers = float(row["origin"]), float(row["scale"]), float(row["square"])
    lift = Lift(*numbers, tuple(float(c) for c in row["cosines"]), tuple(float(c) for c in row["sines"]))
    switch = curved_switch(expression_of(target, "curved maxima"), target.box)
    if switch is None:
        raise NotProved("its target is not a maximum along one direction.")
    if not isinstance(base, int) or not 0 <= base < len(switch.bases):
        raise NotProved("its plan names no branch of its target.")
    found = switch.lifted(base, lift)
    doubt_parts(target, lambda x: _value(found, x), "the parts of the maximum are not its target.")
    return found


def _value(found: CurvedMaximum, x: Array) -> Interval:
    """What the parts add up to at points."""
    t = along(found.direction, x)
    top = reduce(Interval.maximum, [side.phi.enclose(t) + along(side.lean, x) for side in found.sides])
    total = along(found.slopes, x) + (top if found.sign > 0 else -top)
    return sum((group_at(group, x) for group in found.parts), total)


def _values(tokens: AffineTokens, sign: int) -> tuple[Array, float]:
    """sigma v_k as slopes along, across, and constants (N, E + 1); and R, by which every score is that, bit for bit."""
    group = tokens.group
    if np.any(group.origins) or np.any(group.radii != 1.0):
        raise NotProved("its tokens are not in the layer's coordinates.")
    rows = [np.append(G.reshape(-1), c.reshape(-1)) for c, G in zip(group.values, group.slopes, strict=True)]
    values, scores = sign * np.stack(rows), group.sites
    largest = np.unravel_index(np.abs(values).argmax(), values.shape)
    sharpness = float(scores[largest] / values[largest]) if values[largest] else 0.0
    if not (sharpness > 0 and math.log2(sharpness).is_integer() and np.array_equal(values * sharpness, scores)):
        raise NotProved("its scores are not its values times a power of two.")
    return values, sharpness


@dataclass(frozen=True)
class Along:
    """t = middle + half z up to `off`, |z| <= reach[0]; the sides' constants at the layer's centre."""

    middle: Interval
    half: Interval
    off: float
    reach: Array
    levels: list[Interval]

    def t(self, low: Array, high: Array) -> Interval:
        """Where z goes from low to high."""
        found = self.middle + Interval(low, high) * self.half
        return (found + Interval.of(-self.off, self.off)).reshape(-1, 1)


def _affine_parts(tokens: AffineTokens, found: CurvedMaximum) -> tuple[float, Along]:
    """What stored coordinates and the affine part are off by, in fractions, and the coordinate along the direction."""
    layer, centre, M = tokens.layer, tokens.centre, exact(tokens.group.matrix)
    reach = np.maximum(exact(layer.high) - centre, centre - exact(layer.low))
    direction, slopes, leans = (np.array(row, dtype=object) for row in (found.direction, found.slopes, found.leans()))
    biggest = int(np.abs(direction).argmax())
    if not M[0, biggest]:
        raise NotProved("its first coordinate does not go along the direction of the switch.")
    half = direction[biggest] / M[0, biggest]
    if not half > 0:
        raise NotProved("its first coordinate goes against the direction of the switch.")
    affine = exact(np.zeros(len(slopes)) if layer.affine_part is None else layer.affine_part[0])
    off = np.abs(half * M[0] - direction) @ reach
    lost = (np.abs(M[1:] - leans) @ reach).max() + np.abs(affine - slopes) @ reach
    spans = (np.abs(M) @ reach).astype(np.float64) * (1 + 1e-15)
    levels = [Interval.exact((np.array(side.lean) + found.sign * slopes) @ centre) for side in found.sides]
    along = Along(Interval.exact(direction @ centre), Interval.exact(half), float(off) * (1 + 1e-15), spans, levels)
    return float(lost) * (1 + 1e-15), along


def polygon_error(rows: Array, phi: Expression, along: Along, level: Interval) -> float:
    """sup |max_k v_k - phi - level| over |z| <= reach."""
    if not len(rows):
        raise NotProved("one side of its maximum has no token.")
    a, b = rows[:, 0], rows[:, -1]
    edge = float(along.reach[0])
    order = np.argsort(a, kind="stable")
    with np.errstate(all="ignore"):
        corners = -np.diff(b[order]) / np.diff(a[order])
    corners = np.unique(corners[np.isfinite(corners) & (np.abs(corners) < edge)])
    points = np.concatenate([[-edge], corners, [edge]])
    points = np.unique(np.concatenate([points[:-1] + i * np.diff(points) / 3.0 for i in range(3)] + [points]))
    bend = phi.gradient().gradient()
    slack = 16.0 * DOUBLE * float((np.abs(a) * edge + np.abs(b)).max())

    def measure(low: Array, high: Array, _: object) -> Bounds:
        low, high = low[:, 0], high[:, 0]
        k = _tops((low + high) / 2.0, a, b)[1]
        curved = bend.enclose(along.t(low, high))[:, 0] * along.half * along.half
        bent = np.maximum(np.abs(curved.lo), np.abs(curved.hi)) * (high - low) ** 2 / 8.0 * (1 + 1e-12)
        above, below = np.zeros(len(low)), np.zeros(len(low))
        for z in (low, high):
            at = phi.enclose(along.t(z, z))[:, 0] + level
            above = np.maximum(above, _tops(z, a, b)[0] - at.lo)
            below = np.maximum(below, at.hi - (a[k] * z + b[k]))
        bound = np.maximum(above, below) + bent + slack + 8.0 * DOUBLE * np.maximum(np.abs(at.lo), np.abs(at.hi))
        return Bounds(bound, bound - bent)

    budget = 3 * 3**THIRDS * len(points)
    found = supremum(measure, points[:-1, None], points[1:, None], budget=budget, slack=0.003)
    if not math.isfinite(found.worst):
        raise NotProved("a side of its maximum, or its second derivative, is not bounded.")
    return found.worst * (1 + 1e-12)


def _tops(z: Array, a: Array, b: Array) -> tuple[Array, NDArray[np.intp]]:
    """The largest a_k z + b_k over all tokens, in float64, and the token."""
    step = max(1, PAIRS // len(a))
    tops, where = np.empty(len(z)), np.empty(len(z), dtype=np.intp)
    for start in range(0, len(z), step):
        part = slice(start, start + step)
        lines = np.multiply.outer(z[part], a) + b
        where[part] = lines.argmax(axis=1)
        tops[part] = lines[np.arange(len(lines)), where[part]]
    return tops, where
