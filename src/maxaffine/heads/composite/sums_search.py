"""Sums some parts of which switch: clusters along one direction each beside product keys, tokens added up."""

import math
from functools import partial

from maxaffine.core.errors import Refused
from maxaffine.heads.axis.plan import SOFTER
from maxaffine.heads.composite.aims import first_proved
from maxaffine.heads.composite.sums_build import build_sums
from maxaffine.heads.composite.sums_plan import SumPlan, SumPlanner
from maxaffine.heads.composite.sums_prove import certify_sums
from maxaffine.heads.found import Found
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.normalisers import biased
from maxaffine.request import Request
from maxaffine.structure.sums import Sum, sum_of


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The fewest tokens for a sum of parts, where some of them switch and each of those has one direction."""
    target = request.target
    if target.expression is None or target.n_out != 1 or target.d_out != 1 or math.isfinite(request.norm):
        reasons.append("they need an expression with one output, and the sup norm")
        return None
    found = sum_of(target.expression, target.box)
    if found is None:
        reasons.append("the target is not a sum of parts of which some switch, each along one direction")
        return None
    if any(found.is_product(n) for n in range(len(found.parts))):
        reasons.append("a part that switches has several directions")
        return None
    return search_parts("sums", found, request, reasons, fewest)


def search_parts(method: str, found: Sum, request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The fewest tokens for the parts of a sum."""
    target = request.target
    if fewest is not None and 2 * len(found.parts) > fewest:
        reasons.append(f"{len(found.parts)} parts are no fewer than {fewest:,} tokens")
        return None
    for soft in (None, *(SOFTER if request.literal else ())):
        try:
            planner = SumPlanner(found, target.box, request.error, request.dtype, soft)
        except Refused as refusal:
            reasons.append(str(refusal).rstrip("."))
            return None
        if planner.why is not None:
            reasons.append(planner.why)
            return None
        build = partial(_build, request=request)
        made = first_proved(method, planner.plan, build, certify_sums, request, reasons, fewest)
        if made is not None:
            return made
    return None


def _build(plan: SumPlan, request: Request) -> GroupedLayer:
    return biased(build_sums(plan, request.target, request.dtype), request.error)
