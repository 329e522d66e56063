"""Piecewise affine targets: one token per piece, proved in closed form."""

from functools import partial

from maxaffine.heads.found import ROOM, Found, proved
from maxaffine.heads.piecewise.build import build_piecewise
from maxaffine.heads.piecewise.plan import PiecewisePlan
from maxaffine.heads.piecewise.prove import certify_piecewise
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.two_level import blend_constant
from maxaffine.request import Request
from maxaffine.structure.convex_differences import NotPiecewise, differences, refine

BLEND = 0.9  # share of the error that the blend between the pieces may take; the rest is for rounding
STEEPER = (1.0, 4.0, 64.0, 4096.0)  # sharper scores, where rounding leaves less than that


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The layer of the target's pieces, where it is continuous and piecewise affine."""
    target = request.target
    if target.expression is None or target.n_out != 1 or request.norm != float("inf"):
        reasons.append("they need an expression, one output token and the sup norm")
        return None
    try:
        outputs = differences(target.expression, target.box)
        pieces = refine(outputs, target.box, 1e-3 * request.error)
    except NotPiecewise as failure:
        reasons.append(f"the target is not piecewise affine: {failure}")
        return None
    count = len(pieces.tokens)
    if fewest is not None and count >= fewest:
        reasons.append(f"{count:,} pieces are no fewer than {fewest:,} tokens")
        return None
    for steeper in STEEPER:
        sharpness = steeper * (blend_constant(count) / (BLEND * ROOM * request.error) if count > 1 else 1.0)
        if not sharpness < 1e300:
            reasons.append(f"an error of {request.error:g} takes scores beyond the numbers of float64")
            return None
        plan = PiecewisePlan(pieces, sharpness)
        layer = build_piecewise(plan, target, request.dtype)
        found = proved("piecewise", plan, layer, partial(_certified, layer, plan), request, reasons)
        if found is not None or "checker" in reasons[-1]:  # steeper scores would not change its mind
            return found
    return None


def _certified(layer: GroupedLayer, plan: PiecewisePlan, runtime: str) -> Certificate:
    return certify_piecewise(layer, plan, runtime)
