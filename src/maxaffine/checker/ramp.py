"""Sums of heads along one direction re-proved: the error F - f expanded about the middles of short cells, heads as stored.

    |F(z) - f(z)| <= |F(m) - f(m)| + r |F'(m) - f'(m)| + r^2/2 (sup |F''| + sup |f''|),        |z - m| <= r

F' of a head is the covariance of slopes and values under its weights, F'' a mixed third cumulant; on a cell weights move by at
most e^{|a_j - abar| r}.  Where f has no second derivative the first order serves, or its range.  Cells are cut in three until the
error promised is met.  Nothing is used of how the keys were made: any heads of one direction are proved this way.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from maxaffine.checker.boxes import Bounds, supremum
from maxaffine.checker.certificate import stated_reserve
from maxaffine.checker.head_rounding import LogitErrors, tree_depth
from maxaffine.checker.literal_groups import leak, literally
from maxaffine.checker.normaliser import log_normaliser
from maxaffine.checker.product_group import Scaled, product_column
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Axis, Layer, ProductKeys
from maxaffine.checker.target_parts import doubt_parts, expression_of, group_at
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.groups import Group
from maxaffine.structure.one_direction import one_direction
from maxaffine.target.target import Target

CELLS = 600_000
BEGIN = 243
BLOCK = 243  # cells, sorted, for which it is asked at once which heads count
AHEAD = 45.0  # of a logit beyond which the others weigh nothing
CHUNK = 1 << 13
LOOSE = 1.0 + 1e-6  # for moments evaluated in float64


@dataclass(frozen=True)
class Line:
    """One head: keys, values, what is wrong with its logits, and where its first or last token answers alone."""

    axis: Axis
    v: Array
    eta: float
    before: float
    behind: float

    @property
    def swing(self) -> float:
        """max v - min v."""
        return float(self.v.max() - self.v.min())


@dataclass(frozen=True)
class Along:
    """The target in z: f(middle + half z), never asked outside its range over the box."""

    f: Expression
    slope: Expression
    bend: Expression
    middle: Interval
    half: float
    span: Interval

    def t(self, low: Array, high: Array) -> Interval:
        """Where t is for z from low to high."""
        box = Interval(low[:, None], high[:, None]) * Interval.point(np.array([self.half])) + self.middle
        return Interval(np.clip(box.lo, self.span.lo, self.span.hi), np.clip(box.hi, self.span.lo, self.span.hi))


def check_ramp(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |F - f| over z by cells, with rounding; and the leak between groups."""
    found = one_direction(expression_of(target, "ramps"))
    if found is None or any(found.slopes) or layer.affine_part is not None:
        raise NotProved("its target is not a function of one direction alone.")
    group = Group((found.direction,), found.h, None)
    doubt_parts(target, lambda x: group_at(group, x), "the function of one direction is not its target.")
    keys = [one for one in layer.groups if isinstance(one, ProductKeys)]
    if len(keys) != len(layer.groups) or any(not _plain(one, keys[0]) for one in keys):
        raise NotProved("it is not a sum of heads of listed values on one coordinate.")
    scaled = Scaled.of(layer, keys[0], group)
    along = _along(found.h, group, layer, scaled)
    compute, bias = compute_format(layer.dtype), layer.bias if len(keys) > 1 else 0.0
    errors = LogitErrors(compute.unit, 3.01, 12.0, 2.0 * bias)
    lines = [_line(one, errors, float(scaled.query[0])) for one in keys]
    tops = [float(np.abs(one.v).max()) for one in lines]
    size, K = sum(tops) * 1.000001, len(lines)
    first, last = _ends(along)
    reach = np.array([max(-first, last) * (1 + 2.0**-30) + 2.0 * float(scaled.query[0])])

    def level(axis: Axis) -> tuple[float, float]:
        return log_normaliser(axis.a[:, None], axis.b, reach)

    levels = [level(one.axis) for one in lines] if K > 1 else []
    fixed = leak(levels, tops, bias, [2.0 * one.eta for one in lines]) if K > 1 else 0.0
    longest = max(len(one.v) for one in lines)
    fixed += (compute.unit + DOUBLE * 1.01 * (2 * tree_depth(layer.tokens) + 2 * longest + 2 * K + 40)) * size
    fixed += 4.0 * layer.tokens * compute.tiny * size + stated_reserve(record) + 2.0**-42 * size
    if not fixed < error:
        raise NotProved(f"what its heads leak and round adds up to {fixed:.3g}.")
    edges = np.linspace(first, last, BEGIN + 1)[:, None]
    edges[0], edges[-1] = first, last
    measure = partial(_measured, lines, along)
    found_sup = supremum(measure, edges[:-1], edges[1:], budget=CELLS, goal=error - fixed, chunk=CHUNK)
    total = (found_sup.worst + fixed) * (1 + 1e-9)
    literal = literally(layer, total, lambda frame: [
        product_column(frame, one, top, partial(level, one.axes[0])) for one, top in zip(keys, tops, strict=True)
    ])  # fmt: skip
    return Proved(total, f"{found_sup.boxes:,} cells, {K} heads expanded to second order on each", literal)


def _plain(one: ProductKeys, first: ProductKeys) -> bool:
    listed = one.values is not None and one.slopes is None and one.values.shape[-1] == 1
    return listed and len(one.axes) == 1 and np.array_equal(one.matrix, first.matrix)


def _along(h: Expression, group: Group, layer: Layer, scaled: Scaled) -> Along:
    span = group.range(layer.low, layer.high)
    slope = h.gradient()
    return Along(h, slope, slope.gradient(), scaled.middle, float(scaled.half[0]), span)


def _ends(along: Along) -> tuple[float, float]:
    """The ends of z over the box, outward."""
    z = (along.span - along.middle) / Interval.point(np.array([along.half]))
    return float(z.lo[0]), float(z.hi[0])


def _line(keys: ProductKeys, errors: LogitErrors, query: float) -> Line:
    """A head, and where its first and last token are ahead of all others by AHEAD."""
    (axis,), values = keys.axes, keys.values
    assert values is not None
    v = values.ravel()
    eta = errors.largest(axis, 1) + float(np.abs(axis.a).max()) * query
    if not eta < 0.25:
        raise NotProved("its logits are not resolved.")
    before, behind = -math.inf, math.inf
    room = AHEAD + 1e-6 + 1e-9 * float(np.abs(axis.a).max() + np.abs(axis.b).max())
    if len(v) == 1:
        return Line(axis, v, eta, math.inf, behind)
    if np.all(axis.a[1:] > axis.a[0]) and np.all(axis.a[:-1] < axis.a[-1]):
        before = float((((axis.b[0] - axis.b[1:]) - room) / (axis.a[1:] - axis.a[0])).min())
        behind = float((((axis.b[:-1] - axis.b[-1]) + room) / (axis.a[-1] - axis.a[:-1])).max())
    return Line(axis, v, eta, before, behind)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _measured(lines: list[Line], along: Along, low: Array, high: Array, _: Any) -> Bounds:
    """Upper bounds of |F - f| on cells (n, 1)."""
    order = np.argsort(low[:, 0], kind="stable")
    a, b = low[order, 0], high[order, 0]
    m = a + (b - a) / 2.0
    r = np.maximum(b - m, m - a) * (1 + 1e-12) + 2.0**-60
    heads = np.concatenate([_heads(lines, m[i : i + BLOCK], r[i : i + BLOCK]) for i in range(0, len(m), BLOCK)], axis=1)
    value, slope, steep, bend, lost = heads
    at, cell = along.t(m, m), along.t(a, b)
    f, df = along.f.enclose(at), along.slope.enclose(at)
    here = np.maximum(value - f.lo[:, 0], f.hi[:, 0] - value)
    apart = np.maximum(slope - along.half * df.lo[:, 0], along.half * df.hi[:, 0] - slope)
    f_range, f_steep, f_bend = along.f.enclose(cell), along.slope.enclose(cell), along.bend.enclose(cell)
    second = here + r * apart + r**2 / 2.0 * (bend + along.half**2 * f_bend.magnitude[:, 0])
    first = here + r * (steep + along.half * f_steep.magnitude[:, 0])
    zeroth = np.maximum(value - f_range.lo[:, 0], f_range.hi[:, 0] - value) + r * steep
    known = np.stack([np.where(np.isfinite(one), one, np.inf) for one in (second, first, zeroth)]).min(axis=0)
    upper = np.empty(len(m))
    upper[order] = (known + lost) * LOOSE
    return Bounds(upper)


def _heads(lines: list[Line], m: Array, r: Array) -> Array:
    """Of sorted cells: F(m), F'(m), sup |F'|, sup |F''|, and what evaluation and wrong logits may change."""
    found = np.zeros((5, len(m)))
    start, end = float((m - r).min()), float((m + r).max())
    for one in lines:
        if end <= one.before or start >= one.behind:
            found[0] += one.v[0] if end <= one.before else one.v[-1]
            found[4] += 4.0 * one.swing * len(one.v) * math.exp(1.0 - AHEAD)
            continue
        w = one.axis.weights(m)
        X = one.axis.a - (w @ one.axis.a)[:, None]
        g = w @ one.v
        Y = one.v - g[:, None]
        moved = np.exp(np.abs(X) * r[:, None])
        most, least = w * moved, (w / moved).sum(axis=1)
        X, Y, product = np.abs(X), np.abs(Y), w * X * Y
        A1, A2, B1, AB, AAB = ((most * phi).sum(axis=1) / least for phi in (X, X * X, Y, X * Y, X * X * Y))
        found[0] += g
        found[1] += (w * (one.axis.a - (w @ one.axis.a)[:, None]) * (one.v - g[:, None])).sum(axis=1)
        found[2] += (AB + A1 * B1) * LOOSE
        found[3] += (AAB + A2 * B1 + 2.0 * A1 * AB + 2.0 * A1**2 * B1) * LOOSE
        # eta counts roundings in a dtype of at most the precision used here, for the shaken head and for this evaluation
        found[4] += (math.expm1(4.0 * one.eta) * 2.0 * B1 + 1e-13 * float(np.abs(one.v).max())) * LOOSE
        found[4] += r * 1e-6 * product.sum(axis=1)
    return found
