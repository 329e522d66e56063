"""The planes on which a callable breaks, as heads use them: jumps that no layer can follow, and errors near the planes."""

import math
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.heads.breaks.hyperplanes import NoPlanes, Plane, Seen, find_planes
from maxaffine.heads.found import NO_FACTS, Discontinuous, Found, search_worst
from maxaffine.heads.lookup.plan import provable
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

MOST_REGIONS = 64
HOLES = 0.1  # of the error in L_p, for the neighbourhoods of jumps, too narrow for a quadrature to see
CLIMBERS, CLIMBS = 24, 16

_KNOWN: WeakKeyDictionary[Target, dict[tuple[float, int], Seen | str]] = WeakKeyDictionary()


def why_not_seen(request: Request, most: int) -> str | None:
    """Why planes of a callable are not looked for: `most` variables, one output, and nothing that is to be proved."""
    target = request.target
    if target.d_out != 1 or target.n_out != 1 or not 2 <= target.box.dimension <= most:
        return f"callables only with 2 to {most} variables and one output"
    return "not proved for callables" if request.require == "proved" or provable(request.evidence) else None


def planes_of(request: Request) -> Seen:
    """The planes seen in a callable, looked for once; Refused where there are none, or jumps that no layer can follow."""
    known = _KNOWN.setdefault(request.target, {})
    key = (request.error, request.seed)
    if key not in known:
        try:
            known[key] = find_planes(request.target, request.error, MOST_REGIONS, request.seed)
        except NoPlanes as failure:
            known[key] = str(failure)
    seen = known[key]
    if isinstance(seen, str):
        raise Refused(seen)
    if seen.jumps and math.isinf(request.norm) and request.gap is None:
        planes = " and ".join(equation(seen.planes[i], request.target) for i in seen.jumps[:2])
        raise seen_jump(f"where {planes}", largest_jump(request.target, seen), request.error, "regions")
    return seen


def seen_jump(where: str, jump: float, error: float, parts: str) -> Refused:
    """Why a target that is seen to jump is not followed in the sup norm."""
    if jump < 2.0 * error:
        return Refused(f"the target seems to jump by less than the error, which needs no {parts} unless a `gap` is given")
    return Discontinuous(
        f"the target seems to jump {where} and a layer is continuous, so no error below half the jump is possible "
        "there; exclude points near jumps with `gap`, or ask for an L_p error with `norm=1`.",
        remedy={"gap": 1e-6},
    )


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


def why_unproved(seen: Seen, request: Request) -> str:
    """That nothing is proved, and how the planes were found."""
    apart = f", at least {request.gap:g} from its jumps" if seen.jumps and math.isinf(request.norm) else ""
    return f"{NO_FACTS}{apart}; {seen.how_found()}"


def observe_seen(request: Request, seen: Seen, found: Found) -> Observed:
    """The largest error near the planes, and that of the general search; Refused where jumps leave no room for it in L_p."""
    assert isinstance(found.layer, GroupedLayer)
    near = near_planes(request, seen, found.layer) if math.isinf(request.norm) else None
    if near is not None and (near.error > request.error or seen.jumps):
        return near
    observed = search_worst(request, found)
    if near is not None:
        return worse_of(near, observed)
    if seen.jumps and observed.error > (1.0 - HOLES) * request.error:
        raise Refused(f"an observed error of {observed.error:.3g}, which leaves no room for the jumps")
    return observed


def worse_of(one: Observed, other: Observed) -> Observed:
    """The larger of two errors, over the points of both."""
    return replace(one if one.error >= other.error else other, points=one.points + other.points)


def near_planes(request: Request, seen: Seen, layer: GroupedLayer) -> Observed:
    """The largest error at random points, next to the planes and uphill from there, outside the gap about jumps."""
    target, rng, gap = request.target, np.random.default_rng((request.seed, 21)), request.gap or 0.0
    (group,) = layer.cluster_groups()
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
