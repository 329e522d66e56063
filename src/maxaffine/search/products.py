"""Products of functions of one direction each, and sums of them: all combinations of clusters along their directions."""

import math
from functools import partial

import numpy as np

from maxaffine.certify.products import certify_products
from maxaffine.core.errors import Refused
from maxaffine.layer.build_products import build_products
from maxaffine.plan.products import MOST_TOKENS, ProductPlanner
from maxaffine.request import Request
from maxaffine.search.found import Found, proved
from maxaffine.search.sums import search_parts
from maxaffine.target.products import product_of
from maxaffine.target.sums import sum_of

AIMS = (0.97, 0.9, 0.8, 0.62)  # of the error, for all factors together
FEW = 128  # tokens of product keys that smooth factors are left to


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The fewest tokens for a product of functions of one direction each, or for a sum with such parts."""
    target = request.target
    if target.expression is None or target.n_out != 1 or target.d_out != 1 or math.isfinite(request.norm):
        reasons.append("they need an expression with one output, and the sup norm")
        return None
    found = product_of(target.expression, target.box)
    if found is None:
        parts = sum_of(target.expression, target.box)
        if parts is None or not any(parts.is_product(n) for n in range(len(parts.parts))):
            reasons.append("the target is no product of functions of one direction each, nor a sum with such a part")
            return None
        return search_parts("products", parts, request, reasons, fewest)
    if fewest is not None and fewest <= (6 if any(found.switching) else FEW):
        reasons.append(f"{fewest:,} tokens are few for a product")
        return None
    try:
        planner = ProductPlanner(found, target.box, request.error, request.dtype)
    except Refused as refusal:
        reasons.append(str(refusal).rstrip("."))
        return None
    if planner.why is not None:
        reasons.append(planner.why)
        return None
    most = MOST_TOKENS if fewest is None else min(MOST_TOKENS, fewest - 1)
    before = 0
    for aim in AIMS:
        with np.errstate(all="ignore"):
            plan = planner.plan(aim * request.error, most)
        if plan is None:
            reasons.append(f"more than {most:,} tokens are needed, or values larger than {request.dtype} can add up")
            return None
        if plan.cells == before and aim < AIMS[1]:
            continue
        before = plan.cells
        layer = build_products(plan, target, request.dtype)
        made = proved("products", plan, layer, partial(certify_products, layer, plan, request.error), request, reasons)
        if made is not None:
            return made
    return None
