"""Curved kinks re-proved: both branches by Chebyshev points and ellipses, the wrong branch's share on boxes cut in three.

The layer is p_o + Omega_in q.  Where the switch's argument has the inner cluster's sign the target is f_A, elsewhere f_o; so
|layer - target| is at most |p_o + q - f_A| + (1 - Omega_in)|q| or |p_o - f_o| + Omega_in |q|, and the larger of both where the
sign is not decided.  Scores of the inner cluster change along an axis by at most its steepest key.  A target that is the larger
or the smaller of its branches everywhere needs no sign: checker/soft_kink.py.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.curved_maximum import check_curved_maximum
from maxaffine.checker.literal_groups import Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.soft_kink import wrong_share
from maxaffine.checker.spectral import _Head
from maxaffine.checker.stored import NotProved
from maxaffine.checker.tree import DOUBLE, Clusters, _rows
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.branches import extremum, parting
from maxaffine.structure.switches import forced, switches
from maxaffine.target.target import Target

Array = NDArray[np.float64]

BOXES = 8_000_000
CHUNK = 20_000
SILENT = 50.0


def check_curved(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a smooth head and an inner cluster among edges, or of a maximum of two polygons."""
    if record["plan"].get("plan") == "curved maximum":
        return check_curved_maximum(tensors, record, target, error)
    expression = target.expression
    if expression is None or target.n_out != 1 or target.d_out != 1 or target.box.dimension != 2:
        raise NotProved("its target is not one that curved kinks are proved for.")
    found = [one for one in switches(expression) if one.chosen]
    choice = record["plan"]["side"]
    if len(found) != 1 or found[0].kind != "kink" or choice not in (-1, 1):
        raise NotProved("its target has not one kink.")
    outer, inner = (_group(tensors, record["layer"], target, g) for g in (0, 1))
    keys = zip(outer.axes[0], inner.axes[0], strict=True)
    same = outer.values[0].shape == inner.values[0].shape and all(
        np.array_equal(a.a, b.a) and np.array_equal(a.b, b.b) for a, b in keys)  # fmt: skip
    flat = outer.values[0].size == 1 and not any(np.any(a.a) or np.any(a.b) for a in outer.axes[0])  # an affine function
    same = (same or flat) and len(outer.sites) == 1 and len(inner.sites) > 1 and np.array_equal(outer.scale, inner.scale)
    radius = outer.radii[0]
    same = same and not np.any(inner.origins) and not np.any(outer.origins) and bool(np.all(inner.radii == radius))
    same = same and not np.any(inner.sites[0, :-1])  # its slope is that of its keys alone, as `_wrong` takes it
    same = same and bool(np.all(radius >= outer.reach))
    for k in range(1, len(inner.sites)):
        bare = not any(np.any(axis.a) or np.any(axis.b) for axis in inner.axes[k])
        same = same and bare and inner.values[k].size == 1 and not np.any(inner.values[k]) and not np.any(inner.slopes[k])
    if not same:
        raise NotProved("its clusters are not those of a curved kink.")
    place = found[0].place
    plain = outer.head(0, 0, forced(expression, {place: -choice}))
    q = inner.head(0, 0, expression)
    assert plain.slopes is not None and q.slopes is not None
    other = outer.head(0, 0, forced(expression, {place: choice}))
    other = _Head(other.expression, other.middle, other.half, q.axes, plain.values + q.values, plain.slopes + q.slopes)
    size = float((np.abs(plain.values[..., 0]) + np.abs(plain.slopes).sum(axis=-1)).max())
    inner_size = float((np.abs(q.values[..., 0]) + np.abs(q.slopes).sum(axis=-1)).max())
    outer_size, size = size, size + inner_size
    branch = max(plain.supremum(error), other.supremum(error)) + 16.0 * DOUBLE * size
    eta = max(outer.score_error(), inner.score_error())
    count = len(inner.sites)
    lost = outer.head_error(0, plain) + inner.head_error(0, q) + (8.0 * count + 100.0) * DOUBLE * 2.1 * size
    lost += count * 1e-35 * size + 2.1 * compute_format(outer.dtype).unit * size
    if not eta < 1.0:
        raise NotProved(f"its scores are uncertain by {eta:.3g}.")
    goal, sign = error * 0.9995 - branch - lost, extremum(expression, place, target.box)
    apart = parting(expression, place, choice)
    if sign is not None and apart is not None:
        wrong, boxes = wrong_share(inner, q, sign, goal, 2.0 * eta, apart, 2.0 * branch)
    else:
        wrong, boxes = _wrong(inner, q, found[0].argument, choice, goal, 2.0 * eta)
    bound = branch + lost + wrong

    def literal(form: Form, claimed: float) -> float:
        # The outer group is one cluster, and sum Omega |p - F| of the inner one is 2 Omega_in (1 - Omega_in) |q|.
        frame = Frame.read(tensors, record["layer"], form)
        heard = Heard(0.0, outer_size), Heard(wrong, inner_size)
        return literal_bound(frame, bound, [cluster_column(tensors, g, one, frame) for g, one in enumerate(heard)])

    return Proved(bound, f"both branches on the box, {boxes:,} boxes for {count - 1:,} edges", literal)


def _group(tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target, g: int) -> Clusters:
    """One of the two groups, read as if it stood alone."""
    counts = description.get("clusters")
    names = {"box.low", "box.high", "coordinates.centre"}
    if not isinstance(counts, list) or len(counts) != 2 or list(description["directions"]) != [2, 2]:
        raise NotProved("it is not a layer of two groups of clusters.")
    if any(name not in names and not name.startswith(("group.0.", "group.1.")) for name in tensors):
        raise NotProved("it has tensors besides those of its two groups.")
    part = {name: tensors[name] for name in names}
    part |= {f"group.0.{n[8:]}": tensor for n, tensor in tensors.items() if n.startswith(f"group.{g}.")}
    return Clusters.read(part, {**description, "clusters": [counts[g]], "directions": [2]}, target)


def _wrong(
    inner: Clusters, q: _Head, argument: Expression, choice: int, goal: float, blur: float
) -> tuple[float, int]:
    """A bound, at most `goal`, of the wrong branch's mass times |q| over the box."""
    if not goal > 0:
        raise NotProved("its branches alone are off by more than was promised.")
    assert q.slopes is not None
    slopes, offsets = inner.sites[1:, :-1], inner.sites[1:, -1]
    room = 800.0 * DOUBLE * (float((np.abs(slopes).sum(axis=1) + np.abs(offsets)).max()) + 60.0) + blur
    steep = np.array([np.abs(axis.a).max() for axis in q.axes]) / inner.radii[0]
    columns = np.concatenate([q.values, q.slopes], axis=-1)
    flat = q.slopes.reshape(-1, 2)
    lean, uneven = np.median(flat, axis=0), 2.0 * np.abs(flat - np.median(flat, axis=0)).max(axis=0)
    apart = float((np.abs(q.values[..., 0] - np.median(q.values)) + np.abs(q.slopes - lean).sum(axis=-1)).max())
    spread = np.array([axis.spread for axis in q.axes])
    bent = 1.01 * (2.0 * np.outer(spread, spread) * apart + np.outer(spread, uneven) + np.outer(uneven, spread))
    dust = 800.0 * DOUBLE * (float((np.abs(columns)).sum(axis=-1).max()) + 1.0)
    edge = inner.reach * (1 + 1e-13) + 1e-14
    low, high = -edge[None], edge[None]
    who = np.arange(len(offsets))[None]
    for _ in range(7):
        low, high, who = _thirds(low, high, who)
    gaps = (low + high) / 2.0 @ slopes.T + offsets - inner.scores(np.zeros(len(low), dtype=np.intp), (low + high) / 2.0)[:, None]
    most = gaps + (high - low) / 2.0 @ (np.abs(slopes) + steep).T * (1 + 1e-12)
    heard = max(1, int((most > -SILENT).sum(axis=1).max()))
    who = np.argsort(most, axis=1)[:, ::-1][:, :heard]
    rest = len(offsets) * math.exp(-SILENT)
    worst, used = 0.0, 0
    while len(low):
        used += len(low)
        if used > BOXES:
            raise NotProved(f"{BOXES:,} boxes near the curve do not show the error.")
        waiting = []
        for start in range(0, len(low), CHUNK):
            part = slice(start, start + CHUNK)
            a, b, tokens = low[part], high[part], who[part]
            z, half = (a + b) / 2.0, (b - a) / 2.0 * (1 + 1e-14)
            t, reach = z / inner.radii[0], half / inner.radii[0] * (1 + 1e-14)
            W = [axis.weights(t[:, e]) for e, axis in enumerate(q.axes)]
            mixed = _rows(W, columns)
            value = mixed[:, 0] + (mixed[:, 1:] * t).sum(axis=1)
            size = np.abs(value) + 0.5 * ((reach @ bent) * reach).sum(axis=1) + dust
            for e, axis in enumerate(q.axes):
                turned = [w * (axis.a - (w @ axis.a)[:, None]) if i == e else w for i, w in enumerate(W)]
                moved = _rows(turned, columns)
                size += np.abs(moved[:, 0] + (moved[:, 1:] * t).sum(axis=1) + mixed[:, 1 + e]) * reach[:, e]
            own = inner.scores(np.zeros(len(z), dtype=np.intp), z)
            one, two = slopes[tokens], offsets[tokens]
            trail = np.einsum("bmd,bd->bm", one, z) + two - own[:, None]
            # the inner score's slope at z, and what it may change by inside the box
            own_slope = np.stack([(w * axis.a).sum(axis=1) for w, axis in zip(W, q.axes, strict=True)], axis=1) / inner.radii[0]
            change = ((spread / inner.radii[0]) ** 2 * half**2).sum(axis=1) / 2.0
            swing = np.einsum("bmd,bd->bm", np.abs(one - own_slope[:, None]), half) * (1 + 1e-12) + change[:, None]
            edges_mass = np.exp(np.minimum(trail + swing + room, 30.0)).sum(axis=1) * (1 + 1e-9) + rest
            inner_mass = np.exp(np.minimum((swing - trail).min(axis=1) + room, 30.0)) * (1 + 1e-9)
            x = Interval(a, b) / Interval.point(inner.scale) + Interval.point(inner.centre)
            h = argument.enclose(x)
            sign = np.where(h.lo[:, 0] >= 0, 1, np.where(h.hi[:, 0] <= 0, -1, 0))
            mass = np.where(sign == choice, edges_mass, np.where(sign == -choice, inner_mass, 1.0))
            bound = np.minimum(mass, 1.0) * size * (1 + 1e-12)
            fits = bound <= goal
            total = np.exp(np.minimum(trail, 600.0)).sum(axis=1)
            here = np.where(sign == choice, total / (1.0 + total), np.where(sign == -choice, 1.0 / (1.0 + total), 0.0))
            if np.any(here * np.abs(value) > 1.001 * goal):
                raise NotProved("the wrong branch adds more than was promised.")
            tight = np.flatnonzero((sign == 0) & (2.0 * np.abs(value) - size > 1.001 * goal))
            if len(tight):
                ends = [argument.evaluate(np.stack([u[tight, 0], v[tight, 1]], axis=1) / inner.scale + inner.centre)[:, 0]
                        for u in (a, b) for v in (a, b)]  # fmt: skip
                if np.any(np.min(ends, axis=0) * np.max(ends, axis=0) < 0):
                    raise NotProved("its branches differ on the curve by more than was promised.")
            worst = max(worst, float(bound[fits].max(initial=0.0)))
            waiting.append(np.flatnonzero(~fits) + start)
        chosen = np.concatenate(waiting)
        if float((high - low).max(initial=1.0)) < 1e-12:
            raise NotProved("near the curve the error could not be enclosed.")
        low, high, who = _thirds(low[chosen], high[chosen], who[chosen])
    return worst, used


def _thirds(low: Array, high: Array, who: NDArray[np.intp]) -> tuple[Array, Array, NDArray[np.intp]]:
    """Every box cut in three along its longer side."""
    rows, axis = np.arange(len(low)), (high - low).argmax(axis=1)
    third = (high - low)[rows, axis] / 3.0
    lows, highs = [], []
    for i in range(3):
        a, b = low.copy(), high.copy()
        a[rows, axis] = low[rows, axis] + i * third
        b[rows, axis] = high[rows, axis] if i == 2 else low[rows, axis] + (i + 1) * third
        lows.append(a)
        highs.append(b)
    return np.concatenate(lows), np.concatenate(highs), np.tile(who, (3, 1))
