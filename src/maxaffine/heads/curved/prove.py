"""Sup-norm certificates of curved kinks: both branches on the whole box, and what the wrong one may say near the curve.

    inside    |F - f| <= |p_A - f_A| + (1 - Omega_in) |q|          q = p_A - p_o, the inner cluster's piece
    outside   |F - f| <= |p_o - f_o| + Omega_in |q|

Branches are proved by Ehlich and Zeller.  The products of masses with |q| are bounded on boxes.  Where the target is the larger
or the smaller of its branches everywhere, soft_kink.py does that; else the switch's argument is enclosed on a box, S_in
lies above its tangent and below its values at the corners, and where the side is not decided |q| counts in full.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, Mask
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64
from maxaffine.expression.expression import Expression
from maxaffine.heads.curved.soft_kink import BOXES, QUIET, Kink, SoftKink
from maxaffine.heads.tree.prove import box_reach, local_head
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.enclosed import PieceAt
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.two_level import GroupErrors
from maxaffine.structure.branches import extremum, parting
from maxaffine.structure.switches import forced, switches
from maxaffine.target.target import Target

THEOREM = "error of both branches (Ehlich-Zeller), plus the weight of the wrong branch times its distance, box by box"
EDGE = 1.0 + 2.0**-45


def certify_curved(
    layer: GroupedLayer, target: Target, place: int, choice: int, error: float, runtime: str = "two-level"
) -> Certificate:
    """Prove a sup-norm bound for a stored layer whose inner cluster stands for branch `choice` of switch `place`."""
    outer, inner = layer.groups
    expression = target.expression
    if not (outer.clustered and inner.clustered) or expression is None:
        raise Refused("curved kinks are proved for expressions.")
    found = [one for one in switches(expression) if one.chosen]  # poles and roots are the branches' own business
    if len(found) != 1 or found[0].place != place or found[0].kind != "kink" or target.d_out != 1 or layer.dimension != 2:
        raise Refused("curved kinks are proved for one kink of one function of two variables.")
    _check(outer, inner)
    if max(box_reach(layer, outer), box_reach(layer, inner)) > EDGE:
        raise Refused("its coordinates leave [-1, 1].")
    first = local_head(layer, outer, outer.clusters[0], forced(expression, {place: -choice}))
    piece = local_head(layer, inner, inner.clusters[0], expression)
    assert first.slopes is not None and piece.slopes is not None
    other = local_head(layer, outer, outer.clusters[0], forced(expression, {place: choice}))
    second = Head(other.source, piece.axes, piece.deltas, first.values + piece.values, first.slopes + piece.slopes)
    size = float(np.abs(first.values).max() + np.abs(piece.values).max() + np.abs(first.slopes).sum(axis=-1).max()
                 + np.abs(piece.slopes).sum(axis=-1).max()) * (1 + 1e-9)  # fmt: skip
    branches = [prove(head, error, give_up=error) for head in (first, second)]
    branch = max(proof.bound for proof in branches) + 8.0 * FLOAT64.unit * size  # the sums of values are rounded
    errors = [GroupErrors.of(layer, group) for group in (outer, inner)]
    eta, lost = errors[1].scores, output_rounding(layer, 2.0 * size) + sum(one.head + one.sums(size) for one in errors)
    if not eta < 1.0:
        raise Refused(f"the scores are uncertain by {eta:.3g} in {layer.dtype}.")
    sign, goal = extremum(expression, place, target.box), error * 0.997 - branch - lost
    apart = parting(expression, place, choice)
    if sign is not None and apart is not None:
        wrong, count = SoftKink(inner, PieceAt(piece, 0), 2.0 * eta, EDGE, layer.centre, sign, apart, 2.0 * branch).largest(goal)
    else:
        argument = found[0].argument
        wrong, count = _SignedKink(inner, PieceAt(piece, 0), 2.0 * eta, EDGE, layer.centre, argument, choice).largest(goal)
    uncertainty = max(proof.uncertainty for proof in branches)
    parts = {"approximation": branch - min(uncertainty, branch), "target_rounding": uncertainty}
    parts |= {"leakage": wrong, "rounding": lost}
    return Certificate.proved(
        math.inf, parts, argument="curved kink", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT, LOGARITHM),
        details={"edges": float(len(inner.clusters) - 1), "boxes": float(count), "score_error": eta},
        blends=(ProvedBlend(0.0, size), ProvedBlend(wrong, size)),  # of the inner group: 2 Omega (1 - Omega) |q| <= 2 wrong
    )  # fmt: skip


def _check(outer: ClusterGroup, inner: ClusterGroup) -> None:
    """One cluster outside; the same keys inside, on the same coordinates; single tokens of value zero behind the edges.

    A single token outside, which is an affine function, goes with any keys inside.
    """
    a, b = outer.clusters[0], inner.clusters[0]
    same = a.shape == b.shape and all(
        np.array_equal(x.slopes, y.slopes) and np.array_equal(x.offsets, y.offsets) for x, y in zip(a.axes, b.axes, strict=True)
    )
    same = same or (a.count == 1 and not any(np.any(x.slopes) or np.any(x.offsets) for x in a.axes))
    same = same and len(outer.clusters) == 1 and np.array_equal(outer.matrix, inner.matrix)
    same = same and a.slopes is not None and b.slopes is not None
    unit = all(np.all(c.origin == 0) and np.array_equal(c.radius, a.radius) for c in (a, *inner.clusters))
    tokens = all(c.count == 1 and not any(np.any(x) for x in c.arrays()[2:]) for c in inner.clusters[1:])
    diagonal = not np.count_nonzero(outer.matrix - np.diag(np.diag(outer.matrix)))
    if not (same and unit and tokens and diagonal and len(inner.clusters) > 1 and not np.any(inner.site_slopes[0])):
        raise Refused("the layer is not that of a curved kink.")


@dataclass
class _SignedKink(Kink):
    """Branch `choice` inside, where `argument` has that sign."""

    argument: Expression
    choice: int

    def largest(self, goal: float) -> tuple[float, int]:
        """A bound of the wrong mass times |q| over the box, at most `goal`, and the boxes it took."""
        low, high = self.grid(goal)
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        value, lean = self.score(middle)
        best = middle @ self.slopes.T + self.offsets - value[:, None]
        for e in range(2):
            best = best + np.abs(self.slopes[:, e][None] - lean[:, e : e + 1]) * half[:, e : e + 1] * (1 + 1e-12)
        audible = max(1, int((best > -QUIET).sum(axis=1).max()))
        who = np.argsort(-best, axis=1)[:, :audible]

        def measure(low: Array, high: Array, who: Index) -> tuple[Array, Mask, None]:
            bound = self._bound(low, high, who, goal)
            return bound, bound <= goal, None

        return boxes.supremum(low, high, measure, carried=who, budget=BOXES, refusal="the error near the curve")

    def _bound(self, low: Array, high: Array, who: Index, goal: float) -> Array:
        middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
        radius = self.group.clusters[0].radius
        q, lean = self.piece.at(middle / radius)
        reach = half / radius * (1 + 1e-14)
        size = np.abs(q) + (np.abs(lean) * reach).sum(axis=1) + 0.5 * ((reach @ self.piece.curvature()) * reach).sum(axis=1)
        size += 400.0 * FLOAT64.unit * (self.piece.size() + 1.0)
        value, tangent = self.score(middle)
        rows = np.arange(len(low))
        a, b = self.slopes[who], self.offsets[who]
        gaps = (a * middle[:, None]).sum(axis=2) + b - value[:, None]
        upper = gaps + (np.abs(a - tangent[:, None]) * half[:, None]).sum(axis=2) * (1 + 1e-12)
        tail = len(self.offsets) * math.exp(-QUIET)
        outside_mass = np.exp(np.minimum(upper + self.uncertainty, 30.0)).sum(axis=1) * (1 + 1e-9) + tail  # edges, where inside
        best = gaps.argmax(axis=1)
        lead = np.full(len(low), np.inf)
        for corner in itertools.product((0.0, 1.0), repeat=2):
            z = low + np.array(corner) * (high - low)
            lead = np.minimum(lead, (a[rows, best] * z).sum(axis=1) + b[rows, best] - self.score(z)[0])
        inside_mass = np.exp(np.minimum(self.uncertainty - lead, 30.0)) * (1 + 1e-9)  # of the inner cluster, where outside
        h = self.argument.enclose(self.in_x(Interval(low, high)))
        signs = np.where(h.lo[:, 0] >= 0, 1, np.where(h.hi[:, 0] <= 0, -1, 0))
        mass = np.where(signs == self.choice, outside_mass, np.where(signs == -self.choice, inside_mass, 1.0))
        self._hopeless(signs, gaps, np.abs(q), size, low, high, goal)
        return np.asarray(np.minimum(mass, 1.0) * size * (1 + 1e-12))

    def _hopeless(
        self, signs: NDArray[np.int_], gaps: Array, q: Array, size: Array, low: Array, high: Array, goal: float
    ) -> None:
        """Refused where a middle shows more than `goal`, or the curve crosses a box on which |q| stays above it."""
        edges = np.exp(np.minimum(gaps, 600.0)).sum(axis=1)
        share = edges / (1.0 + edges)
        seen = q * np.where(signs == self.choice, share, np.where(signs == -self.choice, 1.0 - share, 0.0))
        if float(seen.max()) > 1.001 * goal:
            raise Refused(f"the wrong branch adds {float(seen.max()):.3g} somewhere.")
        rows = np.flatnonzero((signs == 0) & (2.0 * q - size > 1.001 * goal))
        if len(rows):
            scale = np.diag(self.group.matrix)
            ends = [self.argument.evaluate(np.where(corner, low[rows], high[rows]) / scale + self.centre)[:, 0]
                    for corner in itertools.product((True, False), repeat=2)]  # fmt: skip
            crossed = np.min(ends, axis=0) * np.max(ends, axis=0) < 0
            if crossed.any():
                raise Refused(f"the branches' pieces differ by {float(q[rows][crossed].max()):.3g} on the curve.")
