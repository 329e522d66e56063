"""Polygons around level sets re-proved in L_p: boxes cut in three, masses from the corners, the target enclosed on each.

Scores are affine, so S_k - S_l is largest at a corner of a box; a token's mass is at most exp of that for any l, here the best
token at the middle.  What every token may say, times its mass, bounds |layer - target| there.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from maxaffine.checker.boxes import Bounds, Index, grid, integral
from maxaffine.checker.certificate import stated_norm
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import NEGLIGIBLE, Frame, literal_bound
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.checker.scaled_clusters import ScaledClusters
from maxaffine.checker.target_parts import expression_of
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format
from maxaffine.target.target import Target

BOXES = 9_000_000
CHUNK = 15_000
FIRST = 81  # boxes per variable to begin with


def check_level_sets(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """||layer - target||_p of single tokens with constant values."""
    p = stated_norm(record, 64.0)
    if math.isinf(p):
        raise NotProved("polygons around level sets are proved in L_p with p from 1 to 64.")
    expression_of(target, "level sets", one_output=False)
    (group,) = layer.clusters(target.box.dimension)
    stored = ScaledClusters.of(layer)
    if not group.single or any(np.any(G) for G in group.slopes):
        raise NotProved("its clusters are not single tokens of constant value.")
    eta = stored.score_error()
    if not eta < 1.0:
        raise NotProved(f"its scores are uncertain by {eta:.3g}.")
    size, count = stored.largest(), len(group.sites)
    volume = float(np.prod(stored.high - stored.low)) ** (1.0 / p)
    lost = (compute_format(stored.dtype).unit + (8.0 * count + 90.0) * DOUBLE) * 2.1 * size * volume
    boxes = _Boxes(stored, target, p, 2.0 * eta)
    total, used = boxes.integral(max(error - lost, 0.0))

    def literal(form: Form, claimed: float) -> float:
        """The same sums, with the errors of the literal form's scores."""
        frame = Frame(layer, form)
        column = cluster_column(group, Blend(0.0, size), frame)
        off = float(literal_bound(frame, 0.0, [column]) * volume)
        return _Boxes(stored, target, p, 2.0 * column.eta).integral(max(claimed - off, 0.0))[0] + off

    return Proved(total + lost, f"{used:,} boxes cut in three", literal)


class _Boxes:
    """Upper sums of |layer - target|^p, scores affine in x and wrong by `blur` against each other."""

    def __init__(self, stored: ScaledClusters, target: Target, p: float, blur: float) -> None:
        self.stored, self.target, self.p = stored, target, p
        self.values = np.stack([v.reshape(-1) for v in stored.group.values])
        self.slopes, self.offsets = stored.group.sites[:, :-1] * stored.scale, stored.group.sites[:, -1]
        reach = np.maximum(stored.high - stored.centre, stored.centre - stored.low)
        size = float((np.abs(self.slopes) @ reach + np.abs(self.offsets)).max())
        self.margin = 80.0 * DOUBLE * (len(reach) + 3) * size + blur
        self.rest = len(self.offsets) * math.exp(-NEGLIGIBLE)  # mass of tokens that are not looked at one by one

    def integral(self, goal: float) -> tuple[float, int]:
        """A bound of the norm, at most `goal` where the boxes last, and their number."""
        low, high = grid(self.stored.low, self.stored.high, FIRST)
        everyone = np.broadcast_to(np.arange(len(self.offsets)), (len(low), len(self.offsets)))
        trail = np.concatenate([
            self.trails(low[i : i + 2000], high[i : i + 2000], everyone[i : i + 2000])[0] for i in range(0, len(low), 2000)
        ])  # fmt: skip
        counts = max(1, int((trail > -NEGLIGIBLE).sum(axis=1).max()))
        who = np.argsort(trail, axis=1)[:, ::-1][:, :counts]
        total, used = integral(self.measure, low, high, goal=(goal * 0.9999) ** self.p, budget=BOXES, inherited=who)
        if not math.isfinite(float(total[0])):
            raise NotProved("the target could not be enclosed on the box.")
        return float(total[0] * (1 + 1e-9)) ** (1.0 / self.p) * (1 + 1e-12), used

    def trails(self, low: Array, high: Array, tokens: Index) -> tuple[Array, Index]:
        """How much every token of `tokens` (B, M) trails, at the best of the corners for it, the best one at the middle."""
        slopes, offsets, centre = self.slopes[tokens], self.offsets[tokens], self.stored.centre
        rows = np.arange(len(low))
        best = (np.einsum("bmd,bd->bm", slopes, (low + high) / 2.0 - centre) + offsets).argmax(axis=1)
        steep, level = slopes - slopes[rows, best][:, None], offsets - offsets[rows, best][:, None]
        trail = level
        for d, (first, last) in enumerate(zip((low - centre).T, (high - centre).T, strict=True)):  # the best corner, side by side
            trail = trail + np.maximum(steep[:, :, d] * first[:, None], steep[:, :, d] * last[:, None])
        return trail + self.margin, best

    def measure(self, low: Array, high: Array, who: Index) -> Bounds:
        """Upper bounds of the integrals over boxes of x, and a guess of them."""
        parts = [self._some(low[i : i + CHUNK], high[i : i + CHUNK], who[i : i + CHUNK]) for i in range(0, len(low), CHUNK)]
        return Bounds(*(np.concatenate([part[i] for part in parts])[:, None] for i in range(2)))

    def _some(self, low: Array, high: Array, who: Index) -> tuple[Array, Array]:
        f = self.target.enclose(low, high)
        trail, best = self.trails(low, high, who)
        mass = np.exp(np.minimum(trail, 0.0)) * (1 + 1e-12)
        size, top = np.prod(high - low, axis=1) * (1 + 1e-12), float(np.abs(self.values).max())
        worst, likely = np.zeros(len(low)), np.zeros(len(low))
        for k in range(self.values.shape[1]):
            lo, hi, mine = f.lo[:, k, 0][:, None], f.hi[:, k, 0][:, None], self.values[who, k]
            away = np.maximum(np.abs(hi - mine), np.abs(mine - lo))
            others = self.rest * (top + np.maximum(np.abs(lo), np.abs(hi))[:, 0])
            most = (np.minimum((mass * away).sum(axis=1), away.max(axis=1)) + others) * (1 + 1e-12)
            worst = np.where(np.isnan(most), np.inf, np.fmax(worst, most))
            near = np.maximum(0.0, np.maximum(lo - mine, mine - hi))
            likely = np.maximum(likely, near[np.arange(len(low)), best] * np.clip(2.0 - mass.sum(axis=1), 0.0, 1.0))
        with np.errstate(over="ignore", invalid="ignore"):
            bound = np.where(size > 0, size * worst**self.p, 0.0)
        bound = np.where(np.isnan(bound), np.inf, bound)
        return bound, np.minimum(size * likely**self.p, bound)
