"""Trees of clusters re-proved: who answers where by slopes of scores, boxes cut in three; every cluster on its own box.

S_l - S_k changes along axis e by between (a_l - a_k)_e + (least alpha_l - largest alpha_k) / r and the other way round.  A
cluster that trails the best one at the middle of a box by more than that, and by a margin, does not count on the box; the others
must hold the box in theirs, |t| <= 1.  There f - p_k is bounded by Ehlich and Zeller, or, where the target may switch, by values
at middles and enclosed slopes.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.boxes import Bounds, Index, grid, supremum, thirds
from maxaffine.checker.head import Head
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import Column, Frame, literally
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.checker.scaled_clusters import Curvature, ScaledClusters
from maxaffine.checker.target_parts import expression_of
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.switches import switches
from maxaffine.target.target import Target

BOXES = 1_500_000
CELLS = 4_000
NEAR_KINKS = 600_000
CHUNK = 30_000
SHARE = 0.012  # of the error, for clusters that trail


def check_tree(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of one group of clusters on scaled variables."""
    expression = expression_of(target, "trees", one_output=False)
    (group,) = layer.clusters(target.box.dimension)
    stored = ScaledClusters.of(layer)
    eta = stored.score_error()
    if not eta < 8.0:
        raise NotProved(f"its scores are uncertain by {eta:.3g}.")
    size, count = stored.largest() + error, len(group.sites)
    boxes = _cover(stored, math.log(count / (SHARE * error)) + 2.0 * eta, size)
    arguments = [switch.argument for switch in switches(expression)]
    worst = blend = 0.0
    for k in range(count):
        for m in range(target.d_out):
            head = stored.head(k, m, expression.output(m))
            switching = _may_switch(arguments, head)
            off = _near_kinks(head, error * (1.0 - 2.0 * SHARE)) if switching else head.supremum(error, CELLS)
            worst, blend = max(worst, off + stored.head_error(k, head)), max(blend, off)
            if not worst <= error:
                raise NotProved(f"a piece is off by {worst:.4g} on its box.")
    far = SHARE * error * (1 + 1e-9)
    last = (compute_format(stored.dtype).unit + (6.0 * count + 60.0) * DOUBLE) * 2.1 * size
    bound = worst + far + count * 1e-35 * stored.farthest() + last

    def columns(frame: Frame) -> list[Column]:
        ones = np.full(group.origins.shape, 1.0 + 1e-12)
        found = float(target.enclose(target.box.low[None], target.box.high[None]).magnitude.max())
        known = Blend(blend + far, found if found < size else size, (-ones, ones), far, far / size)
        return [cluster_column(group, known, frame)]

    how = f"{boxes:,} boxes tell {count:,} clusters apart; every piece on its own box"
    return Proved(bound, how, literally(layer, bound, columns))


def _cover(stored: ScaledClusters, margin: float, target: float) -> int:
    """The boxes it takes to show that every cluster that counts at z holds z in its box, |f| <= target.

    `box` and `cluster` are the pairs that are still looked at; a box without a pair that leaves it is done.
    """
    group, D = stored.group, len(stored.low)
    least, most, offsets = stored.key_ranges
    least, most = least / group.radii, most / group.radii
    level, steep = stored.levels
    t = (stored.reach + 0.01 + np.abs(group.origins)) / group.radii
    sizes = np.abs(group.sites[:, :-1]) @ (stored.reach + 0.01) + np.abs(group.sites[:, -1])
    sizes = sizes + (stored.steepest * t + offsets + 4.0).sum(axis=1)
    margin += float(sizes.max()) * DOUBLE * 8.0 * (3 * D + 80) + 1e-9
    edge = stored.reach * (1 + 1e-13) + 1e-14
    low, high = -edge[None], edge[None]
    box, cluster = np.zeros(len(group.sizes), dtype=np.intp), np.arange(len(group.sizes))
    inner, used = group.radii * (1.0 - 2.0**-47), 0
    for _ in range(60):
        if not len(low):
            return used
        used += len(low)
        if used > BOXES:
            raise NotProved(f"{BOXES:,} boxes do not tell its clusters apart.")
        middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
        value = stored.scores(cluster, middle[box])
        order = np.lexsort((value, box))
        best = order[np.searchsorted(box[order], np.arange(len(low)), side="right") - 1]
        lead, winner = value[best][box] - value, cluster[best][box]
        base = group.sites[winner, :-1] - group.sites[cluster, :-1]
        swing = np.maximum(np.abs(base + least[winner] - most[cluster]), np.abs(base + most[winner] - least[cluster]))
        away = np.abs(middle[box] - group.origins[cluster]) + half[box]
        said = level[cluster] + (steep[cluster] * away / group.radii[cluster]).sum(axis=1) * (1 + 1e-9) + target
        counts = ~(lead - (swing * half[box]).sum(axis=1) * (1 + 1e-12) > margin + np.log(said)) | (cluster == winner)
        leaves = counts & ~np.all(away <= inner[cluster], axis=1)
        waiting = np.zeros(len(low), dtype=bool)
        waiting[box[leaves]] = True
        low, high, box, cluster = _inherit(low, high, waiting, box[counts], cluster[counts])
    raise NotProved("a cluster answers outside its own box.")


def _inherit(
    low: Array, high: Array, waiting: NDArray[np.bool_], box: Index, cluster: Index
) -> tuple[Array, Array, Index, Index]:
    """Waiting boxes cut in three, each part with the clusters of its box."""
    number = np.cumsum(waiting) - 1
    keep = waiting[box]
    box, cluster, count = number[box[keep]], cluster[keep], int(waiting.sum())
    low, high, _ = thirds(low[waiting], high[waiting])
    boxes = np.concatenate([box + i * count for i in range(3)])
    order = np.argsort(boxes, kind="stable")
    return low, high, boxes[order], np.tile(cluster, 3)[order]


def _may_switch(arguments: list[Expression], head: Head) -> bool:
    """Whether some operation may switch or be singular on the box, by enclosures on 3^D parts."""
    E = len(head.axes)
    x = head.x(Interval(*grid(-np.ones(E), np.ones(E), 3)))
    found = (argument.enclose(x) for argument in arguments)
    return any(not np.all((one.lo > 0) | (one.hi < 0)) for one in found)


def _near_kinks(head: Head, error: float) -> float:
    """sup |f - p| on |t| <= 1 by values at middles and enclosed slopes; boxes cut in three where that exceeds `error`."""
    E, slope_of = len(head.axes), head.expression.gradient()
    curvature = Curvature(head.axes, head.columns)
    steep = 1.0 + max(float(np.abs(axis.a).max() + np.abs(axis.b).max()) for axis in head.axes)
    rounding = 400.0 * DOUBLE * (head.top() + 1.0) * steep

    def measure(low: Array, high: Array, _: object) -> Bounds:
        t, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
        p, grad, _W = curvature.at(t)
        f = head.expression.enclose(head.x(Interval(t, t)))
        over = head.x(Interval(low, high))
        slope, whole = slope_of.enclose(over), head.expression.enclose(over)
        with np.errstate(invalid="ignore", over="ignore"):
            one, two = slope.lo * head.half, slope.hi * head.half
            bent = half @ curvature.bend
            gap = (np.maximum(np.abs(one - grad), np.abs(two - grad)) * (1 + 1e-12) + bent) * half
            here = np.maximum(f.hi[:, 0] - p, p - f.lo[:, 0])
            first = here + gap.sum(axis=1)
            plain = np.maximum(whole.hi[:, 0] - p, p - whole.lo[:, 0]) + ((np.abs(grad) + bent) * half).sum(axis=1)
            bound = np.fmin(np.where(np.isfinite(first), first, np.inf), np.where(np.isfinite(plain), plain, np.inf))
        if not np.all(here <= error):
            raise NotProved(f"a piece is off by more than {error:.4g} near a kink.")
        return Bounds(bound + rounding, axis=np.where(np.isfinite(gap), gap, 1e300 * half).argmax(axis=1))

    found = supremum(measure, -np.ones((1, E)), np.ones((1, E)), budget=NEAR_KINKS, goal=error, chunk=CHUNK)
    if not found.met:
        raise NotProved(f"near a kink {NEAR_KINKS:,} boxes do not show the error.")
    return found.worst * (1 + 1e-12)
