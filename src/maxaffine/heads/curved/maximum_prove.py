"""Sup-norm certificates of curved maxima: a smooth part, convex polygons along one direction, and how soft their maximum is.

    f = S + sigma max_i(phi_i(t) + m_i . x),        F = p_S + sigma sum_k w_k v_k,        w = softmax(R v)

v_k are the stored affine values (times sigma), A_i the largest of those of side i.  The largest of some numbers moves by no more
than they do, and a softmax of R v is below max v by at most W0((N-1)/e)/R (theory, 10.1):

    |F - f| <= |p_S - S| + max_i sup |A_i - phi_i| + W0((N-1)/e)/R + rounding.

The smooth part is proved by Ehlich and Zeller, group by group.  A polygon: with slopes in increasing order and points
c_1 <= c_2 <= .. where neighbours meet up to d_k, piece k is the largest on [c_k-1, c_k] up to sum d_k, because differences of
neighbours increase.
There phi is compared with one affine function, on intervals with middle value, middle slope and an enclosed second derivative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, Mask, supremum
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.heads.curved.maximum_plan import SMOOTH, CurvedMaximumPlan
from maxaffine.heads.spectral.prove import product_bound
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import affine_part_error, output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.proofs.two_level import UP, GroupErrors, query

THEOREM = "maximum of convex polygons: |F - f| <= smooth part + the worst polygon + W0((N-1)/e)/R"
FIRST = 4  # intervals per piece
CUTS = 6  # times that an interval is halved
CLOSE = 1.01  # a bound this close to an error that was seen is not improved


def certify_curved_maximum(layer: GroupedLayer, plan: CurvedMaximumPlan, error: float, runtime: str = "two-level") -> Certificate:
    """Prove a sup-norm bound for a stored layer of single tokens and a smooth part."""
    tokens, found = layer.groups[0], plan.found
    if not tokens.clustered or len(layer.groups) != 1 + len(plan.smooth) or layer.d_out != 1:
        raise Refused("the layer is not that of a curved maximum.")
    values = _values(tokens, found.sign, plan.sharpness)
    alone = replace(layer, bonus=0.0)  # the groups are run one by one
    share = SMOOTH * error / max(1, len(plan.smooth))
    smooth = [product_bound(alone, group, made, share) for group, made in zip(layer.groups[1:], plan.smooth, strict=True)]  # type: ignore[arg-type]
    along, sides = _along(layer, tokens, plan), _sides(values, plan)
    bounds = [along.polygon(rows, side.phi, level) for rows, side, level in zip(sides, found.sides, along.levels, strict=True)]
    polygons, uncertainty = max(one[0] for one in bounds), max(one[1] for one in bounds)
    kappa = 1.0 / plan.sharpness
    blend = kappa * soft_gap(len(values))
    z = query(layer, tokens)
    size = float((np.abs(values[:, :-1]) @ (z.size + z.error) + np.abs(values[:, -1])).max()) * UP
    rounding = GroupErrors.of(layer, tokens).mixed(kappa, size) + sum(part.rounding for part in smooth)
    rounding += affine_part_error(layer, found.slopes)
    rounding += output_rounding(layer, (size + sum(part.largest for part in smooth)) * UP)
    if not math.isfinite(rounding):
        raise Refused(f"its logits are not resolved in {layer.dtype}.")
    parts = {
        "approximation": polygons - min(uncertainty, polygons) + sum(part.approximation for part in smooth),
        "leakage": blend,
        "rounding": rounding + along.lean,
        "target_rounding": min(uncertainty, polygons) + sum(part.uncertainty for part in smooth),
    }
    return Certificate.proved(
        math.inf, parts, argument="curved maximum", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, EXPONENTIAL, ELEMENTARY, FLINT),
        details={"pieces": float(len(values)), "sharpness": plan.sharpness, "groups": float(len(layer.groups))},
        blends=(ProvedBlend(blend, size, kappa=kappa), *([None] * len(plan.smooth))),
    )  # fmt: skip


def _values(tokens: ClusterGroup, sign: int, sharpness: float) -> Array:
    """Slopes and constants (N, E + 1) of sigma v_k in z, where every score is R times that, exactly."""
    rows = []
    if not (sharpness > 0 and math.frexp(sharpness)[0] == 0.5):
        raise Refused("the layer is not that of a curved maximum.")
    for slopes, offset, cluster in zip(tokens.site_slopes, tokens.site_offsets, tokens.clusters, strict=True):
        plain = cluster.count == 1 and not cluster.origin.any() and bool(np.all(cluster.radius == 1.0))
        plain = plain and cluster.slopes is not None and not any(float(a.slopes[0]) or float(a.offsets[0]) for a in cluster.axes)
        if not plain or cluster.slopes is None:
            raise Refused("its clusters are not single tokens with affine values.")
        row = sign * np.append(cluster.slopes.astype(np.float64).ravel(), float(cluster.values.ravel()[0]))
        if not np.array_equal(sharpness * row, np.append(slopes.astype(np.float64), float(offset))):
            raise Refused("the scores of its tokens are not their values times the sharpness.")
        rows.append(row)
    return np.array(rows)


def _sides(values: Array, plan: CurvedMaximumPlan) -> list[Array]:
    """The tokens of every side, whose slopes across are 1 along the side's own affine part and 0 along the others'."""
    leans, counts = plan.found.leans(), [len(rows) for rows in plan.pieces]
    if len(values) != sum(counts) or values.shape[1] != len(leans) + 2:
        raise Refused("its tokens are not those of its plan.")
    found = np.split(values, np.cumsum(counts)[:-1])
    for side, rows in zip(plan.found.sides, found, strict=True):
        if not np.all(rows[:, 1:-1] == np.array([float(side.lean == row) for row in leans])):
            raise Refused("its tokens lean otherwise than the sides of the maximum.")
    return found


def _along(layer: GroupedLayer, tokens: ClusterGroup, plan: CurvedMaximumPlan) -> Along:
    """The first group's coordinates against the target's, in exact arithmetic."""
    found = plan.found
    centre = [Fraction(float(c)) for c in layer.centre]
    reach = [max(Fraction(float(b)) - c, c - Fraction(float(a))) for a, b, c in zip(layer.low, layer.high, centre, strict=True)]
    half = Fraction(plan.half)
    rows = [[Fraction(float(m)) for m in row] for row in tokens.matrix]

    def apart(stored: list[Fraction], wanted: tuple[Fraction, ...], scale: Fraction) -> Fraction:
        return sum((abs(scale * a - b) * r for a, b, r in zip(stored, wanted, reach, strict=True)), Fraction(0))

    leans = found.leans()
    if len(rows) != 1 + len(leans):
        raise Refused("the layer is not that of a curved maximum.")

    def at_centre(row: tuple[Fraction, ...]) -> Fraction:
        return sum((a * c for a, c in zip(row, centre, strict=True)), Fraction(0))

    slopes = found.sign * at_centre(found.slopes)
    return Along(
        Interval.exact(at_centre(found.direction)), plan.half,
        _up(sum((abs(m) * r for m, r in zip(rows[0], reach, strict=True)), Fraction(0))),
        _up(apart(rows[0], found.direction, half)),
        _up(max(apart(row, lean, Fraction(1)) for row, lean in zip(rows[1:], leans, strict=True))),
        tuple(Interval.exact(at_centre(side.lean) + slopes) for side in found.sides),
    )  # fmt: skip


@dataclass(frozen=True)
class Along:
    """t = middle + half z up to `off`, |z| <= reach; errors of the affine parts; and what the affine parts are at the centre."""

    middle: Interval
    half: float
    reach: float
    off: float
    lean: float
    levels: tuple[Interval, ...]

    def polygon(self, values: Array, phi: Expression, level: Interval) -> tuple[float, float]:
        """sup |max_k v_k - phi - level|, and how much of it is uncertainty about phi."""
        if not len(values):
            raise Refused("one side of the maximum has no token.")
        order = np.argsort(values[:, 0], kind="stable")
        slopes, constants = values[order, 0], values[order, -1]
        cuts, apart = self._corners(slopes, constants)
        edges = np.concatenate([[-self.reach], cuts, [self.reach]])
        inside = np.linspace(edges[:-1], edges[1:], FIRST + 1, axis=1)
        piece = np.repeat(np.arange(len(slopes)), FIRST)
        first, second = phi.gradient(), phi.gradient().gradient()
        seen = uncertainty = 0.0

        def measure(low: Array, high: Array, piece: Index) -> tuple[Array, Mask, None]:
            nonlocal seen, uncertainty
            low, high, slope, level_at = low[:, 0], high[:, 0], slopes[piece[:, 0]], constants[piece[:, 0]]
            middle = low + (high - low) / 2.0
            reach = np.maximum(high - middle, middle - low) * (1 + 2.0**-50)
            at, over = self._t(Interval.point(middle)), self._t(Interval(low, high))
            line = Interval.point(slope) * Interval.point(middle) + Interval.point(level_at)
            value = phi.enclose(at)[:, 0] + level
            gap, lean = line - value, Interval.point(slope) - first.enclose(at)[:, 0] * self.half
            bend = abs(second.enclose(over)[:, 0]).hi * self.half**2 * UP
            bound = abs(gap).hi + (abs(lean).hi * reach + bend * reach**2 / 2.0) * UP
            if not np.isfinite(bound).all():
                raise Refused("a side of the maximum, or a derivative of it, is not bounded.")
            seen, uncertainty = max(seen, float(gap.mignitude.max())), max(uncertainty, float(value.width.max()))
            return bound, bound <= CLOSE * seen, None

        low, high = inside[:, :-1].reshape(-1, 1), inside[:, 1:].reshape(-1, 1)
        worst, _ = supremum(low, high, measure, carried=piece[:, None], budget=10**9, rounds=CUTS + 1, settle=True)
        return (worst + apart) * UP, uncertainty

    def _t(self, z: Interval) -> Interval:
        """t as a column, with what it may be off by: one number for every x, so that derivatives in z are those of phi."""
        t = self.middle + z * self.half
        return (t + Interval.of(-self.off, self.off) if self.off else t).reshape(-1, 1)

    def _corners(self, slopes: Array, constants: Array) -> tuple[Array, float]:
        """Points in order where neighbours meet, and a bound of what every piece exceeds the one that is taken by."""
        if not np.all(np.diff(slopes) > 0):
            raise Refused("two tokens of a side have the same slope.")
        if len(slopes) == 1:
            return np.zeros(0), 0.0
        cuts = np.clip(-np.diff(constants) / np.diff(slopes), -self.reach, self.reach)
        cuts = np.maximum.accumulate(cuts)
        at = Interval.point(cuts)
        before = Interval.point(slopes[:-1]) * at + Interval.point(constants[:-1])
        after = Interval.point(slopes[1:]) * at + Interval.point(constants[1:])
        return cuts, float(abs(after - before).hi.sum()) * UP


def _up(value: Fraction) -> float:
    return float(value) * (1 + 2.0**-50) + (2.0**-1074 if value else 0.0)
