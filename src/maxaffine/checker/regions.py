"""Heads on regions re-proved: the target's planes, regions and branches read off its expression again.

Every region's head is compared with its branch on the whole box by Ehlich and Zeller.  Branches on both sides of a plane differ
by at most K |h| and their scores by 2 lam |h|, so that what the softmax over regions mixes is a soft gap (checker/soft_gap.py).
The file's steepness and signs are hints: the stored scores are compared with what they say, in exact arithmetic.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.boxes import grid
from maxaffine.checker.certificate import stated_gap, stated_norm, stated_scope
from maxaffine.checker.head_rounding import rounding
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import Frame, literal_bound
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved, exact
from maxaffine.checker.reader import Layer
from maxaffine.checker.scaled_clusters import ScaledClusters
from maxaffine.checker.soft_gap import soft_gap
from maxaffine.checker.target_parts import doubt_at, expression_of
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.expression.expression import Expression
from maxaffine.structure.planes import Arrangement, NotRegions, arrangement
from maxaffine.target.target import Target

KEYS = 1 << 14  # of a region along a variable
PARTS = {1: 81, 2: 18, 3: 8}  # of the box per variable, for the size of a branch


def check_regions(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """||layer - target||, in the sup norm outside the gap that the certificate's scope names where the target jumps."""
    try:
        found = arrangement(expression_of(target, "regions"), target.box)
    except NotRegions as failure:
        raise NotProved(f"its target does not switch on hyperplanes alone: {failure}.") from None
    _same(found, target)
    plan = record["plan"]
    signs = [tuple(int(s) for s in row) for row in plan["signs"]]
    if sorted(signs) != sorted(found.regions) or len(set(signs)) != len(signs):
        raise NotProved("its regions are not those of its target.")
    lam = [Fraction(float(v)) for v in plan["steepness"]]
    if len(lam) != len(found.planes) or min(lam) <= 0:
        raise NotProved("its planes are not those of its target.")
    jumps = sorted({one.plane for one in found.crossings if one.jumps})
    norm = stated_norm(record, 64.0)
    gap = _gap(record, jumps) if math.isinf(norm) else 0.0
    if math.isfinite(norm) and stated_scope(record["certificate"]) != Scope("integral"):
        raise NotProved("its certificate does not speak about the integral over the box.")
    if not gap < float(target.box.width.max()):
        raise NotProved("the gap about the jumps leaves nothing of the box to speak of.")
    stored = _stored(layer, target, len(signs))
    volume = float(np.prod(target.box.width)) * (1 + 1e-12)
    worst, rounding, size = _heads(stored, found, signs, target, error / volume ** (1.0 / norm))
    ratios = [steep / (2.0 * float(lam[i])) for i, steep in enumerate(_slopes(found, target)) if i not in jumps]
    kappa = max(ratios, default=0.0) * (1 + 1e-12)
    drift = _drift(stored, found, signs, lam)
    mixing = _Mixing(stored, worst, size, kappa, [(found.planes[i], float(lam[i]), [row[i] for row in signs]) for i in jumps])

    def bound(eta: float, lost: float) -> float:
        if math.isinf(norm):
            return mixing.outside(gap, eta, lost)
        return mixing.integrated(eta, lost, norm, volume)

    def literal(form: Form, claimed: float) -> float:
        frame = Frame(layer, form)
        column = cluster_column(stored.group, Blend(0.0, stored.largest()), frame)
        return bound(drift + column.eta, literal_bound(frame, 0.0, [column]))

    how = "branches on the whole box, planes between them" + ("" if math.isinf(norm) else ", slabs about the planes of jumps")
    return Proved(bound(drift + stored.score_error(), rounding), how, literal)


def _heads(
    stored: ScaledClusters, found: Arrangement, signs: list[tuple[int, ...]], target: Target, error: float
) -> tuple[float, float, float]:
    """Over all regions, of their heads on the whole box: sup |f_k - p_k|, what rounding does to them, and sup |f_k|."""
    worst = rounding_error = size = 0.0
    unit = compute_format(stored.dtype).unit  # a computed t is off by this, where it is rounded to the dtype that computes
    query = stored.query / stored.group.radii[0] + (0.0 if stored.dtype == "float64" else 1.01 * unit)
    proved: dict[tuple[str, bytes], tuple[float, float]] = {}
    for k, row in enumerate(signs):
        branch, values, slopes = found.branch(row), stored.group.values[k], stored.group.slopes[k][..., 0, :]
        key = (branch.describe(branch.outputs[0]), values.tobytes() + slopes.tobytes())
        if key not in proved:
            head = stored.head(k, 0, branch)
            proved[key] = head.supremum(error), rounding(head, query, unit, 0.0, stored.group.tokens, False)[0]
        worst, rounding_error = max(worst, proved[key][0]), max(rounding_error, proved[key][1])
        size = max(size, _largest(branch, target))
    return worst, rounding_error, size


@dataclass(frozen=True)
class _Mixing:
    """What regions mix, scores wrong by eta: heads off their branches by `worst`, |f| <= size, and planes of jumps.

    x in region a, K_i |h_i| the distance of the branches on both sides of plane i: a region k that no jump parts from a is off by
    sum K_i |h_i| <= kappa sum 2 lam_i |h_i| = kappa (S_a - S_k), the sums over the planes between them.  That is the soft gap
    with U = 2 eta.  Regions beyond a jump at distance |h| have masses of at most e^{2 eta - 2 lam |h|} each.
    """

    stored: ScaledClusters
    worst: float
    size: float
    kappa: float
    jumps: list[tuple[Any, float, list[int]]]  # plane, lam, the sides of all regions

    def _pointwise(self, eta: float, lost: float) -> float:
        """Where no jump is near, heads and their values computed to within `lost`."""
        others = len(self.stored.group.sites) - 1
        return self.worst + lost + float(soft_gap(others, self.kappa, 2.0 * eta))

    def _finished(self, total: float) -> float:
        """With the sums over regions and the rounding of the answer."""
        C, ends = len(self.stored.group.sites), self.stored.largest()
        total += (len(self.jumps) + C * 4.0 + 60.0) * DOUBLE * ends + C * 1e-30 * ends
        if not math.isfinite(total + self.size):
            raise NotProved("a branch of its target could not be enclosed.")
        return (total + compute_format(self.stored.dtype).unit * 1.01 * (self.size + total)) * (1 + 1e-12)

    def outside(self, gap: float, eta: float, lost: float) -> float:
        """The supremum at distances of at least `gap` from the planes of jumps."""
        total = self._pointwise(eta, lost)
        for plane, lam, _ in self.jumps:
            length = math.sqrt(float(sum(c * c for c in plane[:-1]))) * (1 - 1e-14)
            lead = max(min(2.0 * lam * gap * length - 2.0 * eta, 700.0), -700.0)
            total += len(self.stored.group.sites) * math.exp(-lead) * (2.0 * self.size + self.worst)
        return self._finished(total)

    def integrated(self, eta: float, lost: float, p: float, volume: float) -> float:
        """The L_p norm: a pointwise bound off the planes, and on slabs about every jump the mass beyond it.

        At distance |h| the regions beyond a plane have masses of at most C e^{2 eta - 2 lam |h|}, and 1, in all.  The part of the
        box with |h| <= tau is at most 2 tau / max |a_j| w_j of it: upper sums over slabs that widen by a twentieth each.
        """
        total = self._finished(self._pointwise(eta, lost)) * volume ** (1.0 / p)
        width = self.stored.high - self.stored.low
        for plane, lam, sides in self.jumps:
            total += 2.0 * self.size * (beyond_a_jump(plane, lam, sides, width, eta, p) * volume * (1 + 1e-9)) ** (1.0 / p)
        return float(total * (1 + 1e-9))


def beyond_a_jump(plane: Any, lam: float, sides: list[int], width: Array, eta: float, p: float) -> float:
    """The mean over the box of (mass of the regions beyond a plane)^p, from above."""
    across = max(abs(float(c)) * float(w) for c, w in zip(plane[:-1], width, strict=True)) * (1 - 1e-12)
    beyond = max(sides.count(1), sides.count(-1))
    first = (2.0 * eta + math.log(beyond) + 1e-9) / (2.0 * lam)  # nearer, all of the mass may be beyond
    edges = np.concatenate([[0.0], (first + 1e-3 / lam / p) * 1.05 ** np.arange(400)])
    share = np.minimum(2.0 * edges / across, 1.0)  # of the box within |h| <= tau, at most
    mass = np.minimum(1.0, beyond * np.exp(np.minimum(2.0 * eta - 2.0 * lam * edges, 0.0))) ** p
    return float((mass[:-1] * np.diff(share)).sum() + mass[-1] * (1.0 - share[-1]))


def _same(found: Arrangement, target: Target) -> None:
    """The branches are the target at random points of their regions: the branches are not read off by code of this module."""
    assert target.expression is not None
    x = target.box.sample(160, np.random.default_rng(23))
    by_region: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(x):
        heights = np.array(found.planes) @ exact([*row, 1.0])
        by_region.setdefault(tuple(1 if h > 0 else -1 if h < 0 else 0 for h in heights), []).append(i)
    for signs, rows in by_region.items():
        if 0 in signs:
            continue
        if signs not in found.regions:
            raise NotProved("a region of the target is missing.")
        branch = found.branch(signs).enclose(Interval.point(x[rows]))
        doubt_at(target.expression, x[rows], branch, "a branch of the target is not the target.")


def _gap(record: Mapping[str, Any], jumps: list[int]) -> float:
    """The gap about jumps that the certificate excludes; where the target does not jump it must exclude nothing."""
    stated = stated_scope(record["certificate"])
    if not Scope(gap=stated.gap if jumps else None, measure="distance" if jumps else None, jumps=len(jumps)).covers(stated):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")
    if not jumps:
        return 0.0
    gap = stated_gap(record)
    if gap is None:
        raise NotProved("its target jumps, and its certificate excludes no gap about that.")
    return gap * (1 - 1e-5)


def _stored(layer: Layer, target: Target, count: int) -> ScaledClusters:
    """One cluster per region in the variables themselves, z = x - centre and t = z / radius; NotProved for anything else."""
    (group,) = layer.clusters(target.box.dimension)
    if len(group.sites) != count or layer.affine_part is not None:
        raise NotProved("its groups or clusters are not those of its target.")
    plain = np.array_equal(group.matrix, np.eye(len(layer.low))) and not np.any(group.origins)
    if not plain or np.any(group.sizes != group.sizes[0]) or np.any(group.radii != group.radii[0]):
        raise NotProved("its regions do not share their coordinates and keys.")
    for axes in group.axes:
        if any(np.any(one.a != two.a) or np.any(one.b != two.b) for one, two in zip(axes, group.axes[0], strict=True)):
            raise NotProved("its regions do not share their keys.")
    if np.any(layer.reach / group.radii[0] * (1 + 2.0**-50) > 1.0):
        raise NotProved("its coordinates leave [-1, 1].")
    return ScaledClusters.of(layer, keys=KEYS)


def _drift(stored: ScaledClusters, found: Arrangement, signs: list[tuple[int, ...]], lam: list[Fraction]) -> float:
    """The largest difference on the box of a stored score and sum lam_i s_i h_i, exactly."""
    centre, sites = exact(stored.centre), exact(stored.group.sites)
    reach = np.maximum(exact(stored.high) - centre, centre - exact(stored.low))
    wanted = (np.array(signs) * np.array(lam)) @ np.array(found.planes, dtype=object)
    wanted[:, -1] += wanted[:, :-1] @ centre
    away = np.abs(wanted - sites)
    return float((away[:, -1] + away[:, :-1] @ reach).max()) * (1 + 1e-15)


def _largest(branch: Expression, target: Target) -> float:
    box = target.box
    return float(branch.enclose(Interval(*grid(box.low, box.high, PARTS.get(box.dimension, 3)))).magnitude.max())


def _slopes(found: Arrangement, target: Target) -> list[float]:
    """K per plane: by how much times |h| the two sides differ, one switch after the other, whatever the others choose."""
    box = target.box
    total = [0.0] * len(found.planes)
    whole = Interval(np.append(box.low, 0.0)[None], np.append(box.high, 0.0)[None])
    for one in found.crossings:
        if one.jumps:
            continue
        steep = 0.0
        for choices in found.others(one):
            sides = found.sides(one, choices).enclose(whole)
            a, b = float(sides.lo.min()), float(sides.hi.max())
            if one.switch.op == "abs":
                b = max(abs(a), abs(b))
                a = -b
            if not math.isfinite(b - a):
                raise NotProved("the arguments of a switch could not be enclosed.")
            D = box.dimension
            parts = Interval(*grid(np.append(box.low, a), np.append(box.high, b), PARTS.get(D, 3)))
            steep = max(steep, float(found.opened(one, choices).gradient().output(D).enclose(parts).magnitude.max()))
        total[one.plane] += steep * float(abs(one.ratio)) * (2.0 if one.switch.op == "abs" else 1.0) * (1 + 1e-12)
    return total
