"""Products of functions of one direction each, and sums of them: all combinations of clusters along their directions."""

import math
from functools import partial

from maxaffine.core.errors import Refused
from maxaffine.heads.axis.plan import SOFTER
from maxaffine.heads.composite.aims import first_proved
from maxaffine.heads.composite.products_build import build_products
from maxaffine.heads.composite.products_plan import MOST_TOKENS, ProductPlanner
from maxaffine.heads.composite.products_prove import certify_products
from maxaffine.heads.composite.sums_search import search_parts
from maxaffine.heads.found import Found
from maxaffine.request import Request
from maxaffine.structure.products import product_of
from maxaffine.structure.sums import sum_of

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
    build = partial(build_products, target=target, dtype=request.dtype)
    for soft in (None, *(SOFTER if request.literal else ())):
        try:
            planner = ProductPlanner(found, target.box, request.error, request.dtype, soft=soft)
        except Refused as refusal:
            reasons.append(str(refusal).rstrip("."))
            return None
        if planner.why is not None:
            reasons.append(planner.why)
            return None
        plans = partial(planner.plan, most=MOST_TOKENS)
        made = first_proved("products", plans, build, certify_products, request, reasons, fewest)
        if made is not None:
            return made
    return None
