"""Targets that jump on hyperplanes, in L_p: heads as in search.py, sites as steep as the integral over jumps asks."""

import math
from functools import partial

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.found import Found, proved
from maxaffine.heads.regions.build import build_regions
from maxaffine.heads.regions.plan import BranchFits, RegionsPlan, few_bits, half_widths
from maxaffine.heads.regions.prove import plane_slopes
from maxaffine.heads.regions.prove_integral import certify_regions_integral
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.two_level import blend_constant
from maxaffine.request import Request
from maxaffine.structure.planes import Arrangement, NotRegions, arrangement

JUMPS = 0.15  # of the error, for the layers about all jumps: it costs no token
KINKS = 0.12  # and for what kinks mix
SHARES = (0.95, 0.85, 0.7, 0.5)  # of the rest, for the branches


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The smallest proved head in L_p on the regions of a target that switches on hyperplanes."""
    target, p = request.target, request.norm
    assert target.expression is not None
    if not 1.0 <= p <= 64.0:
        reasons.append("they are proved in L_p with p from 1 to 64")
        return None
    try:
        found = arrangement(target.expression, target.box)
        slopes = plane_slopes(found, target.box)
    except (NotRegions, Refused) as failure:
        reasons.append(str(failure).rstrip("."))
        return None
    jumps = sorted({crossing.plane for crossing in found.crossings if crossing.jumps})
    kinks = [i for i in range(len(slopes)) if i not in jumps]
    if any(not math.isfinite(slopes[i]) for i in kinks):
        reasons.append("a branch of the target could not be enclosed on the whole box")
        return None
    most = None if fewest is None else (fewest - 1) // len(found.regions)
    if most == 0:
        reasons.append(f"{len(found.regions)} regions take at least {len(found.regions)} tokens")
        return None
    sup = request.error / float(np.prod(target.box.width)) ** (1.0 / p)
    rest = 1.0 - (JUMPS if jumps else 0.0) - (KINKS if kinks else 0.0)
    before = 0
    with np.errstate(all="ignore"):
        steep = sum(slopes[i] for i in kinks) * blend_constant(len(found.regions)) / (2.0 * KINKS * sup)
        fits = BranchFits([found.branch(signs) for signs in found.regions], target.box, sup, request.dtype, steep)
        if not fits.finite:
            reasons.append("a branch of the target is not defined on the whole box")
            return None
        for share in SHARES:
            fit = fits.smallest(share * rest * sup, most)
            if fit is None:
                reasons.append(f"no shared keys fit all branches to {share * rest * sup:.3g}")
                return None
            if fit.tokens <= before:
                continue
            before = fit.tokens
            made = _proved(request, reasons, found, fit, slopes, sup)
            if made is not None:
                return made
    return None


def _proved(
    request: Request, reasons: list[str], found: Arrangement, fit: ProductFit, slopes: list[float], sup: float
) -> Found | None:
    target, error, p = request.target, request.error, request.norm
    jumps = {crossing.plane for crossing in found.crossings if crossing.jumps}
    width, volume = target.box.width, float(np.prod(target.box.width))
    x = target.box.sample(2000, np.random.default_rng(request.seed))
    size = 2.3 * max(float(np.abs(found.branch(signs).evaluate(x)).max()) for signs in found.regions) + 1e-300
    steepness = []
    for i, plane in enumerate(found.planes):
        if i in jumps:
            across = max(abs(float(c)) * float(w) for c, w in zip(plane[:-1], width, strict=True))
            allowed = (JUMPS * error / (len(jumps) * size)) ** p
            steepness.append(few_bits(volume * (math.log(len(found.regions)) + 1.0 / p + 0.1) / (across * allowed)))
        else:
            steepness.append(few_bits(slopes[i] * blend_constant(len(found.regions)) / (2.0 * KINKS * sup)))
    plan = RegionsPlan(found, tuple(steepness), half_widths(target.box)[1], fit)
    layer = build_regions(plan, target, request.dtype)
    return proved("regions", plan, layer, partial(_certified, layer, plan, p, error, slopes), request, reasons)


def _certified(
    layer: GroupedLayer, plan: RegionsPlan, p: float, error: float, slopes: list[float], runtime: str
) -> Certificate:
    return certify_regions_integral(layer, plan, p, error, slopes, runtime)
