"""Targets that switch on hyperplanes: one region per cluster, all on the same spectral keys."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.found import Found, proved
from maxaffine.heads.regions import search_integral as regions_integral
from maxaffine.heads.regions.build import build_regions
from maxaffine.heads.regions.plan import BranchFits, RegionsPlan, few_bits, half_widths
from maxaffine.heads.regions.prove import certify_regions, plane_slopes
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.known_error import worst_known
from maxaffine.proofs.observe import Observed, pointwise
from maxaffine.proofs.two_level import blend_constant
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.structure.planes import Arrangement, NotRegions, arrangement

SHARES = ((0.74, 0.2), (0.66, 0.2), (0.5, 0.2), (0.35, 0.2))  # of the error: for the branches, and for what switches mix
SOFT = ((0.45, 0.5), (0.3, 0.65))  # the same for a literal softmax: softer switches
LEAK = 0.01  # and for what leaks across jumps


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The smallest proved head on the regions of a target whose switches are all on hyperplanes."""
    target = request.target
    if target.expression is None or target.n_out != 1 or target.d_out != 1 or target.box.dimension > 3:
        reasons.append("they need an expression of at most three variables with one output")
        return None
    if math.isfinite(request.norm):
        return regions_integral.search(request, reasons, fewest)
    try:
        found = arrangement(target.expression, target.box)
    except NotRegions as failure:
        reasons.append(str(failure))
        return None
    jumps = sorted({crossing.plane for crossing in found.crossings if crossing.jumps})
    if jumps and request.gap is None:
        reasons.append(
            "the target jumps on a plane, where no layer can follow it in the sup norm; leave a gap about it out with "
            "`gap=1e-6` (--gap 1e-6), or ask for an L_p error with `norm=1` (--norm 1)"
        )
        return None
    most = None if fewest is None else (fewest - 1) // len(found.regions)
    if most == 0:
        reasons.append(f"{len(found.regions)} regions take at least {len(found.regions)} tokens")
        return None
    try:
        slopes = plane_slopes(found, target.box)
    except Refused as refusal:
        reasons.append(str(refusal).rstrip("."))
        return None
    if any(not math.isfinite(k) for i, k in enumerate(slopes) if not _jumps(found, i)):
        reasons.append("a branch of the target could not be enclosed on the whole box")
        return None
    with np.errstate(all="ignore"):
        return _grow(request, reasons, found, slopes, most)


def _grow(request: Request, reasons: list[str], found: Arrangement, slopes: list[float], most: int | None) -> Found | None:
    target, count = request.target, len(found.regions)
    kinks = [k for i, k in enumerate(slopes) if not _jumps(found, i)]
    steep = sum(kinks) * blend_constant(count) / (2.0 * SHARES[0][1] * request.error) * float(target.box.width.max())
    fits = BranchFits([found.branch(signs) for signs in found.regions], target.box, request.error, request.dtype, steep)
    if not fits.finite:
        reasons.append("a branch of the target is not defined on the whole box")
        return None
    before = 0
    for part, mixed in (*SHARES[:1], *SOFT) if request.literal else SHARES:
        fit = fits.smallest(part * request.error, most)
        if fit is None:
            reasons.append(f"no shared keys fit all branches to {part * request.error:.3g}")
            return None
        if fit.tokens <= before and not request.literal:
            continue
        before = fit.tokens
        made = _proved(request, reasons, found, fit, slopes, mixed)
        if made is not None:
            return made
    return None


def _jumps(found: Arrangement, plane: int) -> bool:
    return any(crossing.jumps for crossing in found.crossings if crossing.plane == plane)


def _proved(
    request: Request, reasons: list[str], found: Arrangement, fit: ProductFit, slopes: list[float], mixed: float
) -> Found | None:
    target, error, count = request.target, request.error, len(found.regions)
    steepness = []
    for i, (steep, plane) in enumerate(zip(slopes, found.planes, strict=True)):
        if _jumps(found, i):
            size = max(1.0, float(np.abs(fit.values).max()))
            length = math.sqrt(float(sum(c * c for c in plane[:-1])))
            steepness.append(few_bits(math.log(4.0 * count * size / (LEAK * error)) / (2.0 * (request.gap or 1.0) * length)))
        else:
            steepness.append(few_bits(steep * blend_constant(count) / (2.0 * mixed * error)))
    _, half = half_widths(target.box)
    gap = request.gap if any(_jumps(found, i) for i in range(len(slopes))) else None
    plan = RegionsPlan(found, tuple(steepness), half, fit, gap)
    layer = build_regions(plan, target, request.dtype)
    made = proved("regions", plan, layer, partial(_certified, layer, plan, error, slopes), request, reasons)
    if made is None or gap is None:
        return made
    observed = outside(request, plan, layer)
    bound = made.certificate.bound
    if bound is not None and observed.error > bound:
        raise AssertionError(f"observed error {observed.error!r} exceeds the bound {bound!r}: please report this")
    return replace(made, observed=observed)


def _certified(layer: GroupedLayer, plan: RegionsPlan, error: float, slopes: list[float], runtime: str) -> Certificate:
    return certify_regions(layer, plan, error, slopes, runtime)


def outside(request: Request, plan: RegionsPlan, layer: GroupedLayer) -> Observed:
    """The largest error seen at least a gap away from every plane on which the target jumps; many points at the very gap."""
    target, rng, gap = request.target, np.random.default_rng(request.seed), plan.gap or 0.0
    x = [target.box.sample(8000, rng)]
    rows = []
    for i, plane in enumerate(plan.arrangement.planes):
        a, c = np.array([float(v) for v in plane[:-1]]), float(plane[-1])
        length = float(np.linalg.norm(a))
        start = target.box.sample(4000, rng)
        foot = start - np.outer((start @ a + c) / length**2, a)
        wanted = gap * (1.0 + rng.choice([1e-6, 1e-3, 0.3, 3.0], len(foot))) * rng.choice([-1.0, 1.0], len(foot))
        x.append(foot + np.outer(wanted / length, a))
        if _jumps(plan.arrangement, i):
            rows.append((a, c, length))
    points = np.concatenate(x)
    points = points[np.all((points >= target.box.low) & (points <= target.box.high), axis=1)]
    for a, c, length in rows:
        points = points[np.abs(points @ a + c) >= gap * length]
    evaluate = partial(chooser.evaluate, layer)
    worst, at = worst_known(evaluate, target, points, pointwise(evaluate, target, points))
    return Observed(worst, tuple(float(v) for v in at), len(points), request.seed)
