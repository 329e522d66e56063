"""Callables that switch on hyperplanes: planes seen on segments, one region per cluster, and an error that is observed only."""

import math
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.budget import afford
from maxaffine.heads.found import Discontinuous, Found, grouped_cost, look
from maxaffine.heads.lookup.plan import provable
from maxaffine.heads.lookup.prove import NO_FACTS
from maxaffine.heads.piecewise.build import build_piecewise
from maxaffine.heads.regions.build import build_regions
from maxaffine.heads.regions.hyperplanes import NoPlanes, Plane, Seen, find_planes
from maxaffine.heads.regions.plan import few_bits, half_widths
from maxaffine.heads.regions.seen_plan import RegionFits, SeenPieces, SeenPlan, affine_pieces, refinement
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.two_level import blend_constant
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Array = NDArray[np.float64]

MOST_VARIABLES = {"regions": 4, "piecewise": 6}
MOST_REGIONS = 64
SHARES = (0.9, 0.8, 0.65, 0.45, 0.3)  # of the error, for the heads inside the regions
MIXED = 0.1  # and for what switches mix: a steeper switch costs no token
STEEPER = (1.0, 8.0, 64.0)  # piecewise affine targets, where that leaves too much
LEAK = 0.01  # and for what leaks across jumps
HOLES = 0.1  # of the error in L_p, for the neighbourhoods of jumps, too narrow for a quadrature to see
CLIMBERS, CLIMBS = 24, 16

_KNOWN: WeakKeyDictionary[Target, dict[tuple[float, int], Seen | str]] = WeakKeyDictionary()


def planes_of(request: Request) -> Seen | str:
    """The planes seen in a callable, or why there are none; looked for once."""
    known = _KNOWN.setdefault(request.target, {})
    key = (request.error, request.seed)
    if key not in known:
        try:
            known[key] = find_planes(request.target, request.error, MOST_REGIONS, request.seed)
        except NoPlanes as failure:
            known[key] = str(failure)
    return known[key]


def search_pieces(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The fewest tokens on the regions of a callable that is affine on each: one per piece."""
    if math.isfinite(request.norm):
        reasons.append("they need the sup norm")
        return None
    return _search(request, reasons, fewest, "piecewise")


def search_regions(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The fewest tokens on the regions of a callable: keys that all regions share."""
    return _search(request, reasons, fewest, "regions")


def _search(request: Request, reasons: list[str], fewest: int | None, method: str) -> Found | None:
    target = request.target
    D, most = target.box.dimension, MOST_VARIABLES[method]
    if target.d_out != 1 or target.n_out != 1 or not 2 <= D <= most:
        reasons.append(f"of a callable they take 2 to {most} variables and one output")
        return None
    if request.require == "proved" or provable(request.evidence):
        reasons.append("of a callable they prove nothing")
        return None
    seen = planes_of(request)
    if isinstance(seen, str):
        reasons.append(seen)
        return None
    if seen.jumps and math.isinf(request.norm) and request.gap is None:
        if largest_jump(target, seen) < 2.0 * request.error:
            reasons.append("the target is seen to jump by less than the error, which regions have no use for without a `gap`")
            return None
        planes = " and ".join(equation(seen.planes[i], target) for i in seen.jumps[:2])
        raise Discontinuous(
            f"the target is seen to jump where {planes}, and a layer is continuous: no error below half the jump holds there. "
            "Say how far from jumps the error is asked for with `gap=1e-6`, or ask for an L_p error with `norm=1`."
        )
    if method == "piecewise":
        return _pieces(request, reasons, seen, fewest)
    return _regions(request, reasons, seen, fewest)


def largest_jump(target: Target, seen: Seen) -> float:
    """The largest |f_+ - f_-| at points of the planes on which the target jumps."""
    rng, worst = np.random.default_rng(17), 0.0
    for i in seen.jumps:
        a, c = np.array([float(v) for v in seen.planes[i][:-1]]), float(seen.planes[i][-1])
        start = target.box.sample(2000, rng)
        foot = start - np.outer((start @ a + c) / float(a @ a), a)
        step = 1e-9 * float(target.box.width.min()) * a / float(np.linalg.norm(a))
        inside = np.all((foot - np.abs(step) >= target.box.low) & (foot + np.abs(step) <= target.box.high), axis=1)
        if inside.any():
            worst = max(worst, float(np.abs(target.values(foot[inside] + step) - target.values(foot[inside] - step)).max()))
    return worst


def equation(plane: Plane, target: Target) -> str:
    """h = 0 as a person writes it."""
    text = ""
    for name, c in zip((*target.box.names, ""), plane, strict=True):
        if c:
            size = "" if abs(c) == 1 and name else f"{abs(float(c)):.6g}"
            sign = "-" if c < 0 else "+" if text else ""
            text += f" {sign} {size} {name}"
    return " ".join(text.split()) + " = 0"


def _nothing(request: Request, seen: Seen) -> Certificate:
    """No statement, and how the planes were found."""
    apart = f", at least {request.gap:g} from its jumps" if seen.jumps and math.isinf(request.norm) else ""
    return Certificate.nothing(request.norm, f"{NO_FACTS}{apart}; {seen.told()}", request.dtype)


def _pieces(request: Request, reasons: list[str], seen: Seen, fewest: int | None) -> Found | None:
    """One token per affine piece, where every region is affine to within rounding and none jumps."""
    target = request.target
    pieces = None if seen.jumps else affine_pieces(target, seen)
    if pieces is None:
        reasons.append("the target jumps on planes" if seen.jumps else "not every region of the target is affine")
        return None
    found = refinement(target, seen, pieces)
    if found[1] > 0.02 * request.error:
        reasons.append("no scores hold its pieces apart")
        return None
    count = len(found[0].tokens)
    if fewest is not None and count >= fewest:
        reasons.append(f"{count:,} pieces are no fewer than {fewest:,} tokens")
        return None
    for steeper in STEEPER:
        sharpness = steeper * (blend_constant(count) / (0.9 * request.error) if count > 1 else 1.0)
        plan = SeenPieces(found[0], sharpness, seen=seen)
        layer = build_piecewise(plan, target, request.dtype)
        made = _observed(request, reasons, seen, Found("piecewise", plan, layer, _nothing(request, seen), grouped_cost(layer)))
        if made is not None:
            return made
    return None


def _regions(request: Request, reasons: list[str], seen: Seen, fewest: int | None) -> Found | None:
    """Keys of growing size that all regions share, until the error that is observed fits."""
    target, count = request.target, len(seen.regions)
    most = None if fewest is None else (fewest - 1) // count
    if most == 0:
        reasons.append(f"{count} regions take at least {count} tokens")
        return None
    wanted = request.error
    if math.isfinite(request.norm):
        wanted = request.error / float(np.prod(target.box.width)) ** (1.0 / request.norm)
    _, half = half_widths(target.box)
    lam = _steepness(request, seen, wanted)
    reach = sum(v * float(np.abs([float(c) for c in p[:-1]]) @ half) for v, p in zip(lam, seen.planes, strict=True))
    fits = RegionFits(target, seen, wanted, request.dtype, reach)
    before: ProductFit | None = None
    for share in SHARES:
        fit = fits.smallest(share * wanted, most)
        if fit is None:
            reasons.append(f"no shared keys fit all regions to {share * wanted:.3g}")
            return None
        if fit is before:
            continue
        before = fit
        plan = SeenPlan(seen, lam, half, fit, request.gap if seen.jumps and math.isinf(request.norm) else None)
        layer = build_regions(plan, target, request.dtype)
        made = _observed(request, reasons, seen, Found("regions", plan, layer, _nothing(request, seen), grouped_cost(layer)))
        if made is not None:
            return made
    return None


def _steepness(request: Request, seen: Seen, wanted: float) -> tuple[float, ...]:
    """lam_i of every plane: kinks mix little, jumps leak little outside the gap, or fill a small volume."""
    count, found = len(seen.regions), []
    size = max(1e-300, float(np.abs(request.target.values(np.concatenate(seen.cells))).max()))
    box = request.target.box
    for sheet in seen.sheets:
        length = math.sqrt(float(sum(c * c for c in sheet.plane[:-1])))
        steep = sheet.slope * blend_constant(count) / (2.0 * MIXED * wanted)
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


def _observed(request: Request, reasons: list[str], seen: Seen, made: Found) -> Found | None:
    """The layer, if the errors that are seen are below the one asked for."""
    afford(made.cost, request.max_bytes, f"the layer on regions for error {request.error:g}")
    assert made.layer.grouped
    observed = near_planes(request, seen, made.layer) if math.isinf(request.norm) else None
    if observed is None or (observed.error <= request.error and not seen.jumps):
        more = look(request, made)
        if observed is not None:
            worse = observed if observed.error >= more.error else more
            more = replace(worse, points=observed.points + more.points)
        observed = more
    hidden = HOLES if seen.jumps and math.isfinite(request.norm) else 0.0
    if observed.error <= (1.0 - hidden) * request.error:
        return replace(made, observed=observed)
    reasons.append(f"{made.plan.cells:,} tokens leave an observed error of {observed.error:.3g}")
    return None


def near_planes(request: Request, seen: Seen, layer: GroupedLayer) -> Observed:
    """The largest error at random points, next to the planes and uphill from there, outside the gap about jumps."""
    target, rng, gap = request.target, np.random.default_rng((request.seed, 21)), request.gap or 0.0
    (group,) = layer.groups
    assert group.clustered
    steepest = max(float(np.abs(group.site_slopes).max()), 1e-300)
    planes = [(np.array([float(v) for v in plane[:-1]]), float(plane[-1])) for plane in seen.planes]
    x = [target.box.sample(8000, rng), np.concatenate(seen.cells)]
    for i, (a, c) in enumerate(planes):
        length = float(np.linalg.norm(a))
        start = target.box.sample(3000, rng)
        foot = start - np.outer((start @ a + c) / length**2, a)
        width = gap * length if i in seen.jumps else 1.0 / steepest
        near = width * (1.0 + rng.choice([1e-6, 1e-3, 0.3, 3.0, 30.0], len(foot))) * rng.choice([-1.0, 1.0], len(foot))
        x.append(foot + np.outer(near / length, a))

    def away(points: Array) -> Array:
        inside = np.all((points >= target.box.low) & (points <= target.box.high), axis=1)
        for i in seen.jumps:
            a, c = planes[i]
            inside &= np.abs(points @ a + c) >= gap * float(np.linalg.norm(a))
        found = np.zeros(len(points))
        kept = points[inside]
        found[inside] = np.abs(chooser.evaluate(layer, kept).astype(np.float64) - target.values(kept)).max(axis=(1, 2))
        return found

    points = np.concatenate(x)
    heights = away(points)
    best = np.argsort(-heights)[:CLIMBERS]
    top, height, spent = points[best], heights[best], len(points)
    for _ in range(CLIMBS):
        moves = rng.normal(size=(8, *top.shape)) * target.box.width * 10.0 ** rng.uniform(-9.0, -1.0, (8, len(top), 1))
        trial = top + moves
        found = away(trial.reshape(-1, top.shape[1])).reshape(8, len(top))
        pick, spent = found.argmax(axis=0), spent + found.size
        better = found.max(axis=0) > height
        top = np.where(better[:, None], trial[pick, np.arange(len(top))], top)
        height = np.maximum(height, found.max(axis=0))
    worst = int(height.argmax())
    return Observed(float(height[worst]), tuple(float(v) for v in top[worst]), spent, request.seed)
