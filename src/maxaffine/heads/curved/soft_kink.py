"""What the wrong branch may say near a curve, for targets that are the larger or the smaller of their branches everywhere.

With q the inner cluster's piece, Q = q or -q so that the inner branch is right where Q > 0, S its score and X = sum_k e^(e_k - S)
the edges' masses against it, the layer takes Q/(1 + X) where max(Q, 0) is right: it is off by Q X/(1 + X) for Q > 0 and by
|Q|/(1 + X) for Q < 0.  The sign of the switch is not needed.  On a box let

    log X + lam Q <= U  where Q > 0,        log X + lam Q >= L  where Q < 0,

for some lam >= 0; then the layer is off by at most W0(e^(U-1))/lam and W0(e^(-L-1))/lam, the largest u/(1 + e^(lam u - U)).  Near
the curve lam Q cancels the slope of log X, so boxes need not be smaller than the edges are long.  S lies above its tangent, and
the logarithm of a sum of exponentials of affine functions is convex: U is taken at the corners, L at the middle with its slope.
Q itself is followed by its tangent at the middle, or by that of the branches' true difference, whichever is closer on the box.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, Mask, Rest
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64
from maxaffine.expression.expression import Expression
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.proofs.enclosed import PieceAt, contract
from maxaffine.proofs.head_bounds import axis_weights
from maxaffine.proofs.soft_gap import lambert_of_exp

BOXES = 4_000_000
CHUNK = 8_000
FIRST = 6
QUIET = 60.0


@dataclass
class Kink:
    """The inner cluster against its edges, in z of [-edge, edge]^2; computed scores are off by `blur`."""

    group: ClusterGroup
    piece: PieceAt
    blur: float
    edge: float
    centre: Array  # of the layer

    def __post_init__(self) -> None:
        self.slopes, self.offsets = (a[1:].astype(np.float64) for a in (self.group.site_slopes, self.group.site_offsets))
        size = float((np.abs(self.slopes).sum(axis=1) + np.abs(self.offsets)).max())
        self.uncertainty = 400.0 * FLOAT64.unit * (size + 40.0) + self.blur  # of a difference of scores

    def score(self, z: Array) -> tuple[Array, Array]:
        """The inner cluster's score S and its gradient in z."""
        radius = self.group.clusters[0].radius
        t = z / radius
        value, lean = np.full(len(z), float(self.group.site_offsets[0])), np.zeros_like(z)
        for e, axis in enumerate(self.piece.head.axes):
            logits = np.multiply.outer(t[:, e], axis.slopes) + axis.offsets
            top = logits.max(axis=1)
            w = np.exp(logits - top[:, None])
            total = w.sum(axis=1)
            value += top + np.log(total)
            lean[:, e] = (w @ axis.slopes) / total / radius[e]
        return value, lean

    def in_x(self, z: Interval) -> Interval:
        """x = centre + z / M."""
        return z / Interval.point(np.diag(self.group.matrix)) + Interval.point(self.centre)

    def grid(self, goal: float) -> tuple[Array, Array]:
        """The boxes that a proof starts with."""
        if not goal > 0:
            raise Refused("the branches alone use up the error.")
        return boxes.grid(np.full(2, -self.edge), np.full(2, self.edge), 2**FIRST)


@dataclass
class SoftKink(Kink):
    """`sign` is +1 for the larger of both branches and -1 for the smaller."""

    sign: int
    apart: Expression  # the branches' difference, of which q is an approximation
    away: float  # |q - apart| over the box

    def largest(self, goal: float) -> tuple[float, int]:
        """A bound of what the layer is off by besides its branches, at most `goal`, and the boxes it took."""
        low, high = self.grid(goal)
        tail = len(self.offsets) * math.exp(self.uncertainty - QUIET)

        def measure(low: Array, high: Array, who: Index) -> tuple[Array, Mask, Rest]:
            box = _Box(self, low, high, who)
            bound = box.bound(self.uncertainty, tail, goal)
            return bound, bound <= goal, lambda rows: (None, box.audible(rows))

        who = np.broadcast_to(np.arange(len(self.offsets)), (len(low), len(self.offsets)))
        why = "the error near the curve"
        return boxes.supremum(low, high, measure, carried=who, budget=BOXES, rounds=60, chunk=CHUNK, refusal=why)


class _Box:
    """Many boxes with the edges that may have a say on them; -1 stands for none."""

    def __init__(self, kink: SoftKink, low: Array, high: Array, who: Index) -> None:
        radius = kink.group.clusters[0].radius
        self.who, self.kink = who, kink
        self.half = (high - low) / 2.0 * (1 + 1e-14)
        middle = (low + high) / 2.0
        t, self.reach = middle / radius, self.half / radius * (1 + 1e-14)
        q, lean = kink.piece.at(t)
        self.Q, self.lean = kink.sign * q, kink.sign * lean / radius
        self.bend = self._bend(t) + 400.0 * FLOAT64.unit * (kink.piece.size() + 1.0)
        self._follow(low, high, middle)
        value, tangent = kink.score(middle)
        spread = np.array([np.ptp(axis.slopes) / 2.0 for axis in kink.piece.head.axes])
        self.sag = 0.5 * ((spread * self.reach) ** 2).sum(axis=1) * (1 + 1e-12)  # S above its tangent: a variance is range^2/4
        a, b = kink.slopes[who], np.where(who < 0, -np.inf, kink.offsets[who])
        self.gaps = (a * middle[:, None]).sum(axis=2) + b - value[:, None]
        self.slopes = a - tangent[:, None]

    def _bend(self, t: Array) -> Array:
        """A bound of what Q differs from its tangent by on the box: second derivatives at the middle, third ones for all t."""
        head, k = self.kink.piece.head, self.kink.piece.k
        assert head.slopes is not None
        values, G = head.values[..., k], head.slopes[..., k, :]
        W = [axis_weights(axis, t[:, e]) for e, axis in enumerate(head.axes)]
        away = [axis.slopes - (w @ axis.slopes)[:, None] for w, axis in zip(W, head.axes, strict=True)]
        first = [w * x for w, x in zip(W, away, strict=True)]
        second = [w * (x * x - (w * x * x).sum(axis=1)[:, None]) for w, x in zip(W, away, strict=True)]
        columns = np.concatenate([values[..., None], G], axis=-1)
        spread = np.array([float(np.ptp(axis.slopes)) for axis in head.axes])
        flat = G.reshape(-1, 2)
        middle, ranges = (flat.max(axis=0) + flat.min(axis=0)) / 2.0, np.ptp(flat, axis=0)
        size = np.abs(values - (values.max() + values.min()) / 2.0) + np.abs(G - middle).sum(axis=-1) * 1.001
        total = np.zeros(len(t))
        for e in range(2):
            for f in range(2):
                mixed = contract([second[0], W[1]] if e == f == 0 else [W[0], second[1]] if e == f == 1 else first, columns)
                here = mixed[:, 0] + (mixed[:, 1:] * t).sum(axis=1)
                for one, other in ((e, f), (f, e)):
                    here = here + contract([first[i] if i == one else W[i] for i in range(2)], G[..., other : other + 1])[:, 0]
                third = [2.0 * spread[e] * spread[f] * spread[g] * float(size.max()) + spread[e] * spread[f] * ranges[g]
                         + spread[e] * spread[g] * ranges[f] + spread[f] * spread[g] * ranges[e] for g in range(2)]  # fmt: skip
                total += 0.5 * (np.abs(here) + self.reach @ np.array(third)) * self.reach[:, e] * self.reach[:, f]
        return total * 1.001

    def _follow(self, low: Array, high: Array, middle: Array) -> None:
        """The tangent of the branches' difference instead of q's own, on boxes where it is closer."""
        kink = self.kink
        at, over = kink.in_x(Interval.point(middle)), kink.in_x(Interval(low, high))
        first = kink.apart.gradient()
        value, slope, second = kink.apart.enclose(at)[:, 0], first.enclose(at), first.gradient().enclose(over)
        size = np.diag(kink.group.matrix)
        bend = kink.away + value.width + (slope.width * self.half / size).sum(axis=1)
        for n in range(4):
            e, f = divmod(n, 2)
            bend = bend + 0.5 * abs(second[:, n]).hi / (size[e] * size[f]) * self.half[:, e] * self.half[:, f]
        bend = bend * (1 + 1e-9) + 400.0 * FLOAT64.unit * (np.abs(value.mid) + 1.0)
        closer = np.isfinite(bend) & (bend < self.bend)
        self.Q = np.where(closer, kink.sign * value.mid, self.Q)
        self.lean = np.where(closer[:, None], kink.sign * slope.mid / size, self.lean)
        self.bend = np.where(closer, bend, self.bend)

    def bound(self, uncertainty: float, tail: float, goal: float) -> Array:
        """What the layer is off by on every box, besides its branches."""
        wide = (np.abs(self.lean) * self.half).sum(axis=1) * (1 + 1e-12) + self.bend
        over, under = np.maximum(self.Q + wide, 0.0), np.maximum(wide - self.Q, 0.0)
        best = self.gaps.argmax(axis=1)
        rows = np.arange(len(best))
        steep = (self.lean**2).sum(axis=1)
        lam = np.where(steep > 0, -(self.slopes[rows, best] * self.lean).sum(axis=1) / np.maximum(steep, 1e-300), 0.0)
        lam = np.where(np.isfinite(lam), np.clip(lam, 0.0, 1e15), 0.0)
        inside, outside = over, under
        total = _log_sum(self.gaps)[0]
        shown = np.abs(self.Q) / (1.0 + np.exp(np.clip(np.where(self.Q > 0, -total, total), -600.0, 600.0)))
        if float(shown.max()) > 1.001 * goal:
            raise Refused(f"the wrong branch adds {float(shown.max()):.3g} somewhere.")
        for linked in (False, True):
            k = lam if linked else np.zeros(len(lam))
            base = self.gaps + (k * self.Q)[:, None]
            lines = self.slopes + k[:, None, None] * self.lean[:, None]
            slack = uncertainty + k * self.bend + 64.0 * FLOAT64.unit * (k * (np.abs(self.Q) + wide) + 1.0)
            upper = np.full(len(lam), -np.inf)
            for corner in itertools.product((1.0, -1.0), repeat=2):
                upper = np.maximum(upper, _log_sum(base + (lines * (self.half * np.array(corner))[:, None]).sum(axis=2))[0])
            upper = upper + 1e-13 * np.abs(upper) + slack
            level, mass = _log_sum(base)
            mean = (mass[:, :, None] * lines).sum(axis=1)
            lower = level - (np.abs(mean) * self.half).sum(axis=1) * (1 + 1e-9) - self.sag - slack
            if linked:
                on = k > 0
                inside = np.where(on, np.minimum(inside, lambert_of_exp(upper - 1.0) / np.where(on, k, 1.0)), inside)
                outside = np.where(on, np.minimum(outside, lambert_of_exp(-lower - 1.0) / np.where(on, k, 1.0)), outside)
            else:
                inside = np.minimum(inside, over / (1.0 + np.exp(np.minimum(-upper, 600.0))))
                outside = np.minimum(outside, under / (1.0 + np.exp(np.minimum(lower, 600.0))))
        return np.asarray(np.maximum(inside + over * tail, outside) * (1 + 1e-9))

    def audible(self, rows: NDArray[np.bool_]) -> Index:
        """The edges that can have a mass above e^-QUIET on the boxes `rows`, as many columns as the most of them need."""
        upper = self.gaps[rows] + (np.abs(self.slopes[rows]) * self.half[rows][:, None]).sum(axis=2) * (1 + 1e-12)
        loud = upper > -QUIET
        count = max(1, int(loud.sum(axis=1).max(initial=1)))
        order = np.argsort(-upper, axis=1)[:, :count]
        return np.where(np.take_along_axis(loud, order, axis=1), np.take_along_axis(self.who[rows], order, axis=1), -1)


def _log_sum(scores: Array) -> tuple[Array, Array]:
    """log sum_k e^score_k, and the shares."""
    top = np.maximum(scores.max(axis=1), -1e300)
    mass = np.exp(scores - top[:, None])
    total = np.maximum(mass.sum(axis=1), 1e-300)
    return top + np.log(total), mass / total[:, None]
