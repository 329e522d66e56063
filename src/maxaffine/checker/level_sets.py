"""Polygons around level sets re-proved in L_p: boxes cut in three, masses from the corners, the target enclosed on each.

Scores are affine, so S_k - S_l is largest at a corner of a box; a token's mass is at most exp of that for any l.  Outside masses
are bounded against the best token at the middle.  What every token may say, times its mass, bounds |layer - target| there.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.literal_groups import Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.stored import NotProved
from maxaffine.checker.tree import Clusters
from maxaffine.core.rounding import compute_format
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Index = NDArray[np.intp]

DOUBLE = 2.0**-53
BOXES = 9_000_000
CHUNK = 15_000
SILENT = 50.0  # tokens that trail by this are not looked at one by one


def check_level_sets(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """||layer - target||_p of single tokens with constant values."""
    p = float(record["norm"]) if record["norm"] != "inf" else math.inf
    if not 1.0 <= p <= 64.0:
        raise NotProved("polygons around level sets are proved in L_p with p from 1 to 64.")
    if target.expression is None or target.n_out != 1:
        raise NotProved("its target is not one that level sets are proved for.")
    stored = Clusters.read(tensors, record["layer"], target)
    if any(v.shape[:-1] != (1,) * len(stored.low) or np.any(g) for v, g in zip(stored.values, stored.slopes, strict=True)):
        raise NotProved("its clusters are not single tokens of constant value.")
    if any(np.any(axis.a) or np.any(axis.b) for axes in stored.axes for axis in axes):
        raise NotProved("its tokens have scores besides those of their sites.")
    eta = stored.score_error()
    if not eta < 1.0:
        raise NotProved(f"its scores are uncertain by {eta:.3g}.")
    size = stored.largest()
    count = len(stored.sites)
    volume = float(np.prod(stored.high - stored.low)) ** (1.0 / p)
    lost = (compute_format(stored.dtype).unit + (8.0 * count + 90.0) * DOUBLE) * 2.1 * size * volume
    values = np.stack([v.reshape(-1) for v in stored.values])
    total, used = _refined(stored, values, target, p, max(error - lost, 0.0) * 0.9999, 2.0 * eta)

    def literal(form: Form, claimed: float) -> float:
        """The same sums, with the errors of the literal form's scores."""
        frame = Frame.read(tensors, record["layer"], form)
        column = cluster_column(tensors, 0, Heard(0.0, size), frame)
        off = float(literal_bound(frame, 0.0, [column]) * volume)
        again, _ = _refined(stored, values, target, p, max(claimed - off, 0.0) * 0.9999, 2.0 * column.eta)
        return math.pow(again, 1.0 / p) * (1 + 1e-12) + off

    return Proved(total ** (1.0 / p) * (1 + 1e-12) + lost, f"{used:,} boxes cut in three", literal)


@dataclass(frozen=True)
class _Scores:
    """Affine scores in x, with `room` for rounding."""

    slopes: Array
    offsets: Array
    centre: Array
    room: float

    def trails(self, low: Array, high: Array, tokens: Index) -> tuple[Array, Index]:
        """How much every token of `tokens` (B, M) trails, at the best of the corners for it, the best one at the middle."""
        slopes, offsets = self.slopes[tokens], self.offsets[tokens]
        rows = np.arange(len(low))
        best = (np.einsum("bmd,bd->bm", slopes, (low + high) / 2.0 - self.centre) + offsets).argmax(axis=1)
        lean, level = slopes - slopes[rows, best][:, None], offsets - offsets[rows, best][:, None]
        trail = np.full(offsets.shape, -np.inf)
        for corner in itertools.product((0.0, 1.0), repeat=low.shape[1]):
            x = low + np.array(corner) * (high - low) - self.centre
            trail = np.maximum(trail, np.einsum("bmd,bd->bm", lean, x) + level)
        return trail + self.room, best


def _refined(stored: Clusters, values: Array, target: Target, p: float, goal: float, blur: float) -> tuple[float, int]:
    slopes, offsets = stored.sites[:, :-1] * stored.scale, stored.sites[:, -1]
    reach = np.maximum(stored.high - stored.centre, stored.centre - stored.low)
    room = 80.0 * DOUBLE * (len(reach) + 3) * float((np.abs(slopes) @ reach + np.abs(offsets)).max()) + blur
    scores = _Scores(slopes, offsets, stored.centre, room)
    low, high = stored.low[None].copy(), stored.high[None].copy()
    for _ in range(4):
        low, high = _ninths(low, high)
    everyone = np.broadcast_to(np.arange(len(offsets)), (len(low), len(offsets)))
    trail = np.concatenate([
        scores.trails(low[i : i + 2000], high[i : i + 2000], everyone[i : i + 2000])[0] for i in range(0, len(low), 2000)
    ])  # fmt: skip
    heard = max(1, int((trail > -SILENT).sum(axis=1).max()))
    who = np.argsort(trail, axis=1)[:, ::-1][:, :heard]
    rest = len(offsets) * math.exp(-SILENT)
    upper, middle = _upper(scores, values, target, low, high, who, p, rest)
    kept, surely, used = 0.0, 0.0, len(low)
    for _ in range(60):
        total = (kept + float(upper.sum())) * (1 + 1e-9)
        if not total > goal**p or used > BOXES or not len(low) or surely + float(middle.sum()) > goal**p:
            break
        slack = upper - middle
        level = np.quantile(slack[slack > 0], 0.4) if np.any(slack > 0) else 0.0
        cut = slack >= max(level, 1e-5 * goal**p / len(slack))
        if not cut.any():
            break
        calm = ~cut & (slack <= 1e-6 * goal**p / len(slack))
        kept += float(upper[calm].sum()) * (1 + 1e-9)
        surely += float(middle[calm].sum())
        stay = ~cut & ~calm
        a, b = _ninths(low[cut], high[cut])
        theirs = np.tile(who[cut], (3 ** low.shape[1], 1))
        fine, seen = _upper(scores, values, target, a, b, theirs, p, rest)
        used += len(fine)
        low, high, who = np.concatenate([low[stay], a]), np.concatenate([high[stay], b]), np.concatenate([who[stay], theirs])
        upper, middle = np.concatenate([upper[stay], fine]), np.concatenate([middle[stay], seen])
    total = (kept + float(upper.sum())) * (1 + 1e-9)
    if not math.isfinite(total):
        raise NotProved("the target could not be enclosed on the box.")
    return total, used


def _ninths(low: Array, high: Array) -> tuple[Array, Array]:
    """Every box cut in three on every axis."""
    for e in range(low.shape[1]):
        third = (high[:, e] - low[:, e]) / 3.0
        cuts = [low[:, e], low[:, e] + third, high[:, e] - third, high[:, e]]
        lows, highs = [], []
        for i in range(3):
            a, b = low.copy(), high.copy()
            a[:, e], b[:, e] = cuts[i], cuts[i + 1]
            lows.append(a)
            highs.append(b)
        low, high = np.concatenate(lows), np.concatenate(highs)
    return low, high


def _upper(
    scores: _Scores, values: Array, target: Target, low: Array, high: Array, who: Index, p: float, rest: float
) -> tuple[Array, Array]:
    """Upper bounds of the integrals over boxes of x, and a guess of them."""
    found, guess = [], []
    for start in range(0, len(low), CHUNK):
        part = slice(start, start + CHUNK)
        a, b, here = low[part], high[part], who[part]
        f = target.enclose(a, b)
        trail, best = scores.trails(a, b, here)
        mass = np.exp(np.minimum(trail, 0.0)) * (1 + 1e-12)
        size = np.prod(b - a, axis=1) * (1 + 1e-12)
        worst, likely = np.zeros(len(a)), np.zeros(len(a))
        for k in range(values.shape[1]):
            lo, hi, mine = f.lo[:, k, 0][:, None], f.hi[:, k, 0][:, None], values[here, k]
            away = np.maximum(np.abs(hi - mine), np.abs(mine - lo))
            silent = rest * (float(np.abs(values).max()) + np.maximum(np.abs(lo), np.abs(hi))[:, 0])
            most = (np.minimum((mass * away).sum(axis=1), away.max(axis=1)) + silent) * (1 + 1e-12)
            worst = np.where(np.isnan(most), np.inf, np.fmax(worst, most))
            near = np.maximum(0.0, np.maximum(lo - mine, mine - hi))
            likely = np.maximum(likely, near[np.arange(len(a)), best] * np.clip(2.0 - mass.sum(axis=1), 0.0, 1.0))
        with np.errstate(over="ignore", invalid="ignore"):
            bound = np.where(size > 0, size * worst**p, 0.0)
        found.append(np.where(np.isnan(bound), np.inf, bound))
        guess.append(np.minimum(size * likely**p, found[-1]))
    return np.concatenate(found), np.concatenate(guess)
