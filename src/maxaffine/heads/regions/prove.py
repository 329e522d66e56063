"""The certificate of heads on regions: Ehlich-Zeller for every branch on the whole box, and what the switches mix.

Let S_s = sum_i lam_i s_i h_i be the score of the region with signs s, and * the region of x.  Then S_* - S_s = sum 2 lam_i |h_i|
over the planes that tell them apart.  Crossing the planes one by one, |f_s - f_*| <= sum K_i |h_i| <= kappa (S_* - S_s) with
kappa = max K_i / (2 lam_i), and with |f_s - p_s| <= eps for every branch

    |f - g| <= sum_s Omega_s |f - p_s| <= eps + kappa W0((C-1)/e).

K_i: the two sides of a switch put values a and b into the same function F of x and the switch's value v, and |F(a) - F(b)| <=
|a - b| sup |dF/dv|, where |a - b| is |u| for max(., .) and 2|u| for abs(u).  Planes on which f jumps have no K; outside a gap of
distance gamma the regions beyond them have Omega <= e^{-2 lam gamma |grad h|} each, times the size of what they hold.

In L_p jumps are included and no gap is left: what they mix is integrated, the rest pointwise.  Computed scores S' are off by at
most d (as stored, and as computed), so at every x off the planes a region s beyond planes i of jumps has a mass of at most
e^{-2 lam_i |h_i| + 2 d}; C_i counts the regions beyond plane i:

    |f - g| <= eps + kappa W0((C-1) e^{2d-1}) + V sum_{i jumps} min(1, C_i e^{-2 lam_i |h_i| + 2 d}),       V = sup |f_s - f_t|.

Slices of the box by h = a . x + c at fixed h have volume at most |box| / max_j |a_j| w_j per unit of h, hence by Minkowski

    ||f - g||_p <= |box|^{1/p} (eps + kappa (..)) + V sum_i (|box| (2 d + log C_i + 1/p) / (lam_i max_j |a_j| w_j))^{1/p},

because min(1, C e^{-2 lam |h| + 2 d})^p integrates over h to (2 d + log C)/lam + 1/(p lam).  Planes themselves have measure zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.scope import Scope
from maxaffine.expression.expression import Expression
from maxaffine.heads.regions.plan import RegionsPlan
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.assumptions import ELEMENTARY, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.local_error import prove
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.proofs.sources import FromAffine
from maxaffine.proofs.two_level import GroupErrors
from maxaffine.structure.planes import Arrangement, Crossing, Plane
from maxaffine.target.box import Box

THEOREM = "regions: error of each branch on the box (Ehlich-Zeller), plus blending across planes, kappa W0((C-1)/e)"
IN_L_P = "regions in L_p: error of each branch on the box, blending at kinks bounded pointwise, blending at jumps integrated"
PIECES = {1: 64, 2: 14, 3: 7}  # of the box per axis, for enclosures of slopes and sizes


def certify_regions(
    layer: GroupedLayer, plan: RegionsPlan, error: float, slopes: list[float], runtime: str = "two-level"
) -> Certificate:
    """The bound for the two-level runtime; `slopes` are those of `plane_slopes`."""
    known = Mixed.of(layer, plan, error, slopes)
    arrangement, size, approximation, count = plan.arrangement, known.size, known.approximation, known.count
    if known.jumps and plan.gap is None:
        raise Refused("the target jumps, and no gap about its jumps is declared.")
    leak = known.kappa * soft_gap(count, 2.0 * known.stored)
    far = 0.0
    for i in known.jumps:
        steep = 2.0 * plan.steepness[i] * (plan.gap or 0.0) * (1 - 1e-5) * _length(arrangement.planes[i]) - 2.0 * known.stored
        far += count * math.exp(-max(min(steep, 700.0), -700.0)) * (2.0 * size + approximation)
    blend = (approximation + known.uncertainty + leak + far) * (1 + 1e-12)
    rounded = known.errors.blended(blend, size)
    if not math.isfinite(rounded):
        raise Refused(f"its scores are too steep for {layer.dtype}.")
    parts = {
        "approximation": approximation,
        "leakage": leak + far,
        "rounding": rounded + output_rounding(layer, size + blend),
        "target_rounding": known.uncertainty,
    }
    details = {"regions": float(count), "planes": float(len(arrangement.planes)), "dimension": float(layer.dimension)}
    return Certificate.proved(
        math.inf, parts, argument="regions", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, ELEMENTARY, FLINT), scope=scope_of(len(known.jumps), plan.gap), details=details,
        blends=(ProvedBlend(blend, size),),
    )  # fmt: skip


def certify_regions_integral(
    layer: GroupedLayer, plan: RegionsPlan, p: float, error: float, slopes: list[float], runtime: str = "two-level"
) -> Certificate:
    """||layer - target||_p for the two-level runtime."""
    found, volume = plan.arrangement, float(np.prod(layer.high - layer.low)) * (1 + 1e-12)
    known = Mixed.of(layer, plan, error / volume ** (1.0 / p), slopes)
    size, approximation, uncertainty, errors = known.size, known.approximation, known.uncertainty, known.errors
    if not errors.scores < 1.0:
        raise Refused(f"its scores are too steep for {layer.dtype}.")
    drift = known.stored + errors.scores
    mixed = known.kappa * soft_gap(known.count, 2.0 * drift)
    crossed = 0.0
    for i in known.jumps:
        beyond = max(sum(signs[i] == side for signs in found.regions) for side in (-1, 1))
        layers = layer_measure(found.planes[i], layer.low, layer.high, plan.steepness[i], beyond, drift, p)
        crossed += 2.0 * size * min(layers, volume) ** (1.0 / p) * (1 + 1e-9)
    root = volume ** (1.0 / p) * (1 + 1e-12)
    # what is computed is a mean of computed heads, each within eps + head of its branch
    head = errors.head + errors.sums(0.0)
    lost = head + output_rounding(layer, size + approximation + uncertainty + head)
    parts = {
        "approximation": approximation * root, "leakage": mixed * root + crossed,
        "rounding": lost * root, "target_rounding": uncertainty * root,
    }  # fmt: skip
    details = {"regions": float(known.count), "planes": float(len(found.planes)), "jumps": float(len(known.jumps))}
    return Certificate.proved(
        p, parts, argument="regions in L_p", theorem=IN_L_P, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, ELEMENTARY, FLINT), scope=Scope("integral"), details=details,
        blends=(ProvedBlend(2.0 * (size + approximation), size),),  # at a jump all that both sides say
    )  # fmt: skip


def layer_measure(plane: Plane, low: Array, high: Array, steep: float, beyond: int, drift: float, p: float) -> float:
    """A bound of the integral over the box of min(1, C e^{-2 lam |h| + 2 d})^p."""
    across = max(abs(float(c)) * float(w) for c, w in zip(plane[:-1], high - low, strict=True)) * (1 - 1e-12)
    volume = float(np.prod(high - low)) * (1 + 1e-12)
    return volume * (2.0 * drift + math.log(beyond) + 1.0 / p) / (steep * across) * (1 + 1e-12)


@dataclass(frozen=True)
class Mixed:
    """Heads and scores of a stored layer of regions: errors of branches, sup |f_s|, kappa, stored scores, rounding, jumps."""

    approximation: float
    uncertainty: float
    size: float
    kappa: float
    stored: float
    errors: GroupErrors
    jumps: tuple[int, ...]  # planes
    count: int

    @classmethod
    def of(cls, layer: GroupedLayer, plan: RegionsPlan, error: float, slopes: list[float]) -> "Mixed":
        """Branches are proved with an aim of `error`."""
        if len(layer.groups) != 1 or not layer.groups[0].clustered or layer.tilt is not None:
            raise Refused("one group of clusters is needed.")
        (group,), found = layer.cluster_groups(), plan.arrangement
        jumps = tuple(sorted({crossing.plane for crossing in found.crossings if crossing.jumps}))
        branches = [found.branch(signs) for signs in found.regions]
        kinks = [i for i in range(len(found.planes)) if i not in jumps]
        kappa = max((slopes[i] / (2.0 * plan.steepness[i]) for i in kinks), default=0.0) * (1 + 1e-12)
        size = max(_branch_size(branch, layer.low, layer.high) for branch in branches)
        if not math.isfinite(size + kappa):
            raise Refused("a branch of the target could not be enclosed.")
        bounds, errors = _branch_errors(layer, group, plan, branches, error), GroupErrors.of(layer, group)
        return cls(*bounds, size, kappa, _stored_scores(layer, group, plan), errors, jumps, len(branches))


def scope_of(jumps: int, gap: float | None) -> Scope:
    """For which x a certificate speaks."""
    return Scope() if not jumps else Scope(gap=gap, measure="distance", jumps=jumps)


def _branch_errors(
    layer: GroupedLayer, group: ClusterGroup, plan: RegionsPlan, branches: list[Expression], error: float
) -> tuple[float, float]:
    """The largest error of a head against its branch on the whole box, without its uncertainty, and the uncertainty."""
    bound = uncertainty = 0.0
    deltas = tuple(axis.parameter for axis in plan.fit.axes)
    known: dict[tuple[str, bytes], tuple[float, float]] = {}
    for branch, cluster in zip(branches, group.clusters, strict=True):
        if np.any(cluster.origin != 0.0) or not np.array_equal(group.matrix, np.eye(layer.dimension)):
            raise Refused("its coordinates are not those of its plan.")
        axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in cluster.axes)
        assert cluster.slopes is not None
        values, slopes = cluster.values.astype(np.float64), cluster.slopes.astype(np.float64)
        key = (branch.describe(branch.outputs[0]), values.tobytes() + slopes.tobytes())
        if key not in known:
            source = FromAffine.scaled(branch, layer.centre, cluster.radius)
            reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) / cluster.radius * (1 + 2.0**-50)
            proof = prove(Head(source, axes, deltas, values, slopes), error, -reach, reach)
            known[key] = proof.bound - min(proof.uncertainty, proof.bound), min(proof.uncertainty, proof.bound)
        bound, uncertainty = max(bound, known[key][0]), max(uncertainty, known[key][1])
    first = group.clusters[0].axes
    for cluster in group.clusters[1:]:
        for one, other in zip(first, cluster.axes, strict=True):
            if not (np.array_equal(one.slopes, other.slopes) and np.array_equal(one.offsets, other.offsets)):
                raise Refused("its regions do not share their keys.")
        if not np.array_equal(cluster.radius, group.clusters[0].radius):
            raise Refused("its regions do not share their keys.")
    return bound, uncertainty


def _stored_scores(layer: GroupedLayer, group: ClusterGroup, plan: RegionsPlan) -> float:
    """How far stored scores are from sum lam_i s_i h_i on the box, in exact arithmetic, rounded up."""
    worst = Fraction(0)
    reach = [max(Fraction(float(b)) - Fraction(float(c)), Fraction(float(c)) - Fraction(float(a)))
             for a, b, c in zip(layer.low, layer.high, layer.centre, strict=True)]  # fmt: skip
    for row, slopes, offset in zip(plan.sites(layer.centre), group.site_slopes, group.site_offsets, strict=True):
        total = abs(Fraction(float(offset)) - row[-1])
        for a, c, r in zip(slopes, row, reach, strict=False):
            total += abs(Fraction(float(a)) - c) * r
        worst = max(worst, total)
    return float(worst) * (1 + 1e-15) if worst else 0.0


def _length(plane: tuple[Fraction, ...]) -> float:
    return math.sqrt(float(sum(c * c for c in plane[:-1]))) * (1 - 1e-14)


def _branch_size(branch: Expression, low: Array, high: Array) -> float:
    """sup |f_s| over the box."""
    return float(branch.enclose(Interval(*boxes.grid(low, high, PIECES.get(len(low), 3)))).magnitude.max())


def plane_slopes(arrangement: Arrangement, box: Box) -> list[float]:
    """K_i of every plane: sup |f_+ - f_-| / |h_i|, whatever the other switches choose; infinite for jumps."""
    found = [0.0] * len(arrangement.planes)
    pieces = PIECES.get(box.dimension, 3)
    for crossing in arrangement.crossings:
        if crossing.jumps:
            found[crossing.plane] = math.inf
            continue
        steep, apart = 0.0, 2.0 if crossing.switch.op == "abs" else 1.0
        for choices in arrangement.others(crossing):
            least, most = _between(arrangement, crossing, choices, box)
            cut = Interval(*boxes.grid(np.append(box.low, least), np.append(box.high, most), pieces))
            opened = arrangement.opened(crossing, choices)
            steep = max(steep, float(opened.gradient().output(box.dimension).enclose(cut).magnitude.max()))
        found[crossing.plane] += apart * steep * float(abs(crossing.ratio)) * (1 + 1e-12)
    return found


def _between(arrangement: Arrangement, crossing: Crossing, choices: Mapping[int, int], box: Box) -> tuple[float, float]:
    """An interval around both values that a switch chooses from, over the box."""
    low, high = np.append(box.low, 0.0), np.append(box.high, 0.0)  # v does not occur in them
    found = arrangement.sides(crossing, choices).enclose(Interval(low[None], high[None]))
    least, most = float(found.lo.min()), float(found.hi.max())
    if crossing.switch.op == "abs":
        least, most = min(least, -most), max(most, -least)
    if not math.isfinite(most - least):
        raise Refused("the arguments of a switch could not be enclosed.")
    return least, most
