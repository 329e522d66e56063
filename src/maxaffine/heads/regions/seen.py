"""Callables that switch on hyperplanes: planes seen on segments, one region per cluster, and keys that all regions share."""

import math
from collections.abc import Iterator

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.breaks.hyperplanes import Seen
from maxaffine.heads.breaks.planes import HOLES, planes_of
from maxaffine.heads.regions.fit import RegionFits
from maxaffine.heads.regions.plan import RegionsPlan, few_bits, half_widths
from maxaffine.heads.search import Search
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.request import Request

SHARES = (0.9, 0.8, 0.65, 0.45, 0.3)  # of the error, for the heads inside the regions
MIXED = 0.1  # and for what switches mix: a steeper switch costs no token
LEAK = 0.01  # and for what leaks across jumps


def seen_plans(search: Search) -> Iterator[RegionsPlan]:
    """Keys of growing size that all regions share."""
    request = search.request
    seen = planes_of(request)
    most = search.most_each(len(seen.regions))
    box, wanted = request.target.box, request.error
    if math.isfinite(request.norm):
        wanted = request.error / float(np.prod(box.width)) ** (1.0 / request.norm)
    _, half = half_widths(box)
    lam = _steepness(request, seen, wanted)
    reach = sum(v * float(np.abs([float(c) for c in p[:-1]]) @ half) for v, p in zip(lam, seen.planes, strict=True))
    fits = RegionFits(request.target, seen, wanted, request.dtype, reach)
    before: ProductFit | None = None
    for share in SHARES:
        fit = fits.smallest(share * wanted, most)
        if fit is None:
            raise Refused(f"no common keys fit all regions to {share * wanted:.3g}")
        if fit is not before:
            yield RegionsPlan(seen, lam, half, fit, request.gap if seen.jumps and math.isinf(request.norm) else None)
        before = fit


def _steepness(request: Request, seen: Seen, wanted: float) -> tuple[float, ...]:
    """lam_i of every plane: kinks mix little, jumps leak little outside the gap, or fill a small volume."""
    count, found = len(seen.regions), []
    size = max(1e-300, float(np.abs(request.target.values(np.concatenate(seen.cells))).max()))
    box = request.target.box
    for sheet in seen.sheets:
        length = math.sqrt(float(sum(c * c for c in sheet.plane[:-1])))
        steep = sheet.slope * soft_gap(count) / (2.0 * MIXED * wanted)
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
