"""Targets that switch on hyperplanes: one region per cluster, all on the same spectral keys.

The planes of an expression are read off it; those of a callable are seen on segments.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.breaks.hyperplanes import Seen
from maxaffine.heads.breaks.planes import HOLES, observe_seen, planes_of, why_not_seen, why_unproved
from maxaffine.heads.found import Found
from maxaffine.heads.head import Example, Head
from maxaffine.heads.regions.fit import RegionFits
from maxaffine.heads.regions.plan import BranchFits, RegionsPlan, build_regions, few_bits, half_widths
from maxaffine.heads.regions.prove import certify_regions, certify_regions_integral, plane_slopes
from maxaffine.heads.search import Search
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.known_error import worst_known
from maxaffine.proofs.observe import Observed, pointwise
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.structure.planes import Arrangement, NotRegions, arrangement

SHARES = ((0.74, 0.2), (0.66, 0.2), (0.5, 0.2), (0.35, 0.2))  # of the error: for the branches, and for what switches mix
SOFT = ((0.45, 0.5), (0.3, 0.65))  # the same for a literal softmax: softer switches
LEAK = 0.01  # and for what leaks across jumps
JUMPS, KINKS = 0.15, 0.12  # of the error in L_p, for the neighbourhoods of all jumps, and for what kinks mix
SEEN = (0.9, 0.8, 0.65, 0.45, 0.3)  # of the error for a callable, for the heads inside the regions
SEEN_MIXED = 0.1  # and for what switches mix: a steeper switch costs no token
REST = (0.95, 0.85, 0.7, 0.5)  # of what that leaves, for the branches


class Regions(Head[RegionsPlan]):
    """One cluster per region between the planes; the planes of a callable are seen and not proved."""

    name = "regions"
    summary = "one cluster per region between the planes, all on the same keys"
    serves = "functions of two or three variables whose kinks and jumps lie on planes"
    examples = (Example("abs(x + 2*y - .3)*cos(x)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),)

    def why_not(self, request: Request) -> str | None:
        """One output and few variables."""
        target = request.target
        if target.expression is None:
            return why_not_seen(request, 4)
        if target.n_out != 1 or target.d_out != 1 or target.box.dimension > 3:
            return "only for expressions of at most three variables with one output"
        return "only in L_p with p from 1 to 64" if math.isfinite(request.norm) and request.norm > 64.0 else None

    def propose(self, search: Search) -> Iterator[RegionsPlan]:
        """Keys of growing size that all branches share."""
        return _seen_plans(search) if search.request.target.expression is None else _plans(search)

    def build(self, plan: RegionsPlan, request: Request) -> GroupedLayer:
        """One group of clusters, a region each."""
        return build_regions(plan, request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: RegionsPlan, request: Request, runtime: str) -> Certificate:
        """Branches and switches in the sup norm, or integrated over the box."""
        if math.isinf(request.norm):
            return certify_regions(layer, plan, request.error, list(plan.slopes), runtime)
        return certify_regions_integral(layer, plan, request.norm, request.error, list(plan.slopes), runtime)

    def sharpened(self, plan: RegionsPlan, r: float) -> RegionsPlan:
        """Every plane is r times as steep."""
        return replace(plan, steepness=tuple(r * steep for steep in plan.steepness))

    def why_unproved(self, plan: RegionsPlan, request: Request) -> str:
        """The planes of a callable are seen."""
        assert isinstance(plan.layout, Seen)
        return why_unproved(plan.layout, request)

    def observe(self, request: Request, found: Found) -> Observed | None:
        """Near planes that were seen, and outside the gap about jumps."""
        plan = found.plan
        assert isinstance(plan, RegionsPlan) and isinstance(found.layer, GroupedLayer)
        if isinstance(plan.layout, Seen):
            return observe_seen(request, plan.layout, found)
        return None if plan.gap is None else outside(request, plan, found.layer)


def _plans(search: Search) -> Iterator[RegionsPlan]:
    """Plans of an expression: the less of the error is left for the branches, the more keys."""
    request, box = search.request, search.request.target.box
    found, slopes = _arrangement(request)
    jumps, count = jumping(found), len(found.regions)
    most, kinks = search.most_each(count), [steep for i, steep in enumerate(slopes) if i not in jumps]
    if math.isinf(request.norm):
        sup, shares = request.error, [*SHARES[:1], *SOFT] if request.literal else list(SHARES)
        steep = sum(kinks) * soft_gap(count) / (2.0 * SHARES[0][1] * sup) * float(box.width.max())
    else:
        sup = request.error / float(np.prod(box.width)) ** (1.0 / request.norm)
        rest = 1.0 - (JUMPS if jumps else 0.0) - (KINKS if kinks else 0.0)
        shares = [(share * rest, KINKS) for share in REST]
        steep = sum(kinks) * soft_gap(count) / (2.0 * KINKS * sup)
    fits = BranchFits([found.branch(signs) for signs in found.regions], box, sup, request.dtype, steep, request.target.query)
    if not fits.finite:
        raise Refused("a branch of the target is not defined on the whole box")
    before, (_, half) = 0, half_widths(box)
    for part, mixed in shares:
        fit = fits.smallest(part * sup, most)
        if fit is None:
            raise Refused(f"no common keys fit all branches to {part * sup:.3g}")
        if fit.tokens > before or request.literal:
            before = fit.tokens
            gap = request.gap if jumps and math.isinf(request.norm) else None
            yield RegionsPlan(found, _steepness(request, found, fit, slopes, mixed, sup), half, fit, gap, tuple(slopes))


def _arrangement(request: Request) -> tuple[Arrangement, list[float]]:
    """The planes of an expression, and how steeply its branches part at each of them."""
    target = request.target
    assert target.expression is not None
    try:
        found = arrangement(target.expression, target.box)
    except NotRegions as failure:
        raise Refused(str(failure)) from None
    jumps = jumping(found)
    if jumps and request.gap is None and math.isinf(request.norm):
        raise Refused(
            "the target jumps on a plane and a layer is continuous; exclude points near jumps with `gap=1e-6` (--gap 1e-6), "
            "or ask for an L_p error with `norm=1` (--norm 1)"
        )
    slopes = plane_slopes(found, target.box)
    if any(not math.isfinite(steep) for i, steep in enumerate(slopes) if i not in jumps):
        raise Refused("a branch of the target could not be enclosed on the whole box")
    return found, slopes


def jumping(found: Arrangement) -> set[int]:
    """The planes on which the target jumps."""
    return {crossing.plane for crossing in found.crossings if crossing.jumps}


def _steepness(
    request: Request, found: Arrangement, fit: ProductFit, slopes: Sequence[float], mixed: float, sup: float
) -> tuple[float, ...]:
    """lam_i of every plane: kinks mix little, jumps leak little outside the gap, or fill a small volume."""
    box, error, p, jumps, count = request.target.box, request.error, request.norm, jumping(found), len(found.regions)
    x = box.sample(2000, np.random.default_rng(request.seed)) if jumps and math.isfinite(p) else np.zeros((0, box.dimension))
    rows = []
    for i, (steep, plane) in enumerate(zip(slopes, found.planes, strict=True)):
        if i not in jumps:
            rows.append(few_bits(steep * soft_gap(count) / (2.0 * mixed * sup)))
        elif math.isinf(p):
            size = max(1.0, float(np.abs(fit.values).max()))
            length = math.sqrt(float(sum(c * c for c in plane[:-1])))
            rows.append(few_bits(math.log(4.0 * count * size / (LEAK * error)) / (2.0 * (request.gap or 1.0) * length)))
        else:
            size = 2.3 * max(float(np.abs(found.branch(signs).evaluate(x)).max()) for signs in found.regions) + 1e-300
            across = max(abs(float(c)) * float(w) for c, w in zip(plane[:-1], box.width, strict=True))
            allowed = (JUMPS * error / (len(jumps) * size)) ** p
            rows.append(few_bits(float(np.prod(box.width)) * (math.log(count) + 1.0 / p + 0.1) / (across * allowed)))
    return tuple(rows)


def _seen_plans(search: Search) -> Iterator[RegionsPlan]:
    """Keys of growing size that all regions share."""
    request = search.request
    seen = planes_of(request)
    most = search.most_each(len(seen.regions))
    box, wanted = request.target.box, request.error
    if math.isfinite(request.norm):
        wanted = request.error / float(np.prod(box.width)) ** (1.0 / request.norm)
    _, half = half_widths(box)
    lam = _seen_steepness(request, seen, wanted)
    reach = sum(v * float(np.abs([float(c) for c in p[:-1]]) @ half) for v, p in zip(lam, seen.planes, strict=True))
    fits = RegionFits(request.target, seen, wanted, request.dtype, reach)
    before: ProductFit | None = None
    for share in SEEN:
        fit = fits.smallest(share * wanted, most)
        if fit is None:
            raise Refused(f"no common keys fit all regions to {share * wanted:.3g}")
        if fit is not before:
            yield RegionsPlan(seen, lam, half, fit, request.gap if seen.jumps and math.isinf(request.norm) else None)
        before = fit


def _seen_steepness(request: Request, seen: Seen, wanted: float) -> tuple[float, ...]:
    """lam_i of every plane: kinks mix little, jumps leak little outside the gap, or fill a small volume."""
    count, found = len(seen.regions), []
    size = max(1e-300, float(np.abs(request.target.values(np.concatenate(seen.cells))).max()))
    box = request.target.box
    for sheet in seen.sheets:
        length = math.sqrt(float(sum(c * c for c in sheet.plane[:-1])))
        steep = sheet.slope * soft_gap(count) / (2.0 * SEEN_MIXED * wanted)
        if sheet.kind == "jump" and math.isfinite(request.norm):
            # (2 size)^p times the area times a width of 1/(2 lam |a|), all of it at most the p-th power of a share of the error
            area = float(np.prod(box.width)) / float(box.width.min()) * math.sqrt(box.dimension)
            room = (HOLES * request.error) ** request.norm / ((2.0 * size) ** request.norm * area * len(seen.planes))
            steep = max(steep, 1.0 / (room * length))
        elif sheet.kind == "jump":
            gap = request.gap or 1.0
            steep = max(steep, math.log(max(4.0 * count * size / (LEAK * wanted), 2.0)) / (2.0 * gap * length))
        else:  # where only the second derivative jumps, the width of the switch enters squared
            steep = max(steep, 10.0 * math.sqrt(max(size / wanted, 1.0)) / (length * float(box.width.min()) / 2.0))
        found.append(few_bits(steep))
    return tuple(found)


def outside(request: Request, plan: RegionsPlan, layer: GroupedLayer) -> Observed:
    """The largest error seen at least a gap away from every plane on which the target jumps; many points at the very gap."""
    target, rng, gap = request.target, np.random.default_rng(request.seed), plan.gap or 0.0
    x = [target.box.sample(8000, rng)]
    rows, jumps = [], jumping(plan.arrangement)
    for i, plane in enumerate(plan.arrangement.planes):
        a, c = np.array([float(v) for v in plane[:-1]]), float(plane[-1])
        length = float(np.linalg.norm(a))
        start = target.box.sample(4000, rng)
        foot = start - np.outer((start @ a + c) / length**2, a)
        wanted = gap * (1.0 + rng.choice([1e-6, 1e-3, 0.3, 3.0], len(foot))) * rng.choice([-1.0, 1.0], len(foot))
        x.append(foot + np.outer(wanted / length, a))
        if i in jumps:
            rows.append((a, c, length))
    points = np.concatenate(x)
    points = points[np.all((points >= target.box.low) & (points <= target.box.high), axis=1)]
    for a, c, length in rows:
        points = points[np.abs(points @ a + c) >= gap * length]
    evaluate = partial(chooser.evaluate, layer)
    worst, at = worst_known(evaluate, target, points, pointwise(evaluate, target, points))
    return Observed(worst, tuple(float(v) for v in at), len(points), request.seed)
