"""Plans that aim ever farther below the error until one is proved, for sums and products, whose parts share the error."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from maxaffine.heads.found import Found, Planned, proved
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request

AIMS = (0.97, 0.9, 0.8, 0.62)  # of the error, for all parts together

P = TypeVar("P", bound=Planned)


def first_proved(
    method: str,
    plan_for: Callable[[float], P | None],
    build: Callable[[P], GroupedLayer],
    certify: Callable[[GroupedLayer, P, float, str], Certificate],
    request: Request,
    reasons: list[str],
    fewest: int | None,
) -> Found | None:
    """The first plan whose certificate fits the error, with fewer than `fewest` tokens; else a reason why there is none."""
    before = 0
    for aim in AIMS:
        with np.errstate(all="ignore"):
            plan = plan_for(aim * request.error)
        if plan is None:
            reasons.append(f"a part needs more tokens than there may be, or values larger than {request.dtype} can add up")
            return None
        if fewest is not None and plan.cells >= fewest:
            reasons.append(f"{plan.cells:,} tokens are no fewer than {fewest:,}")
            return None
        if plan.cells == before and aim < AIMS[1]:
            continue
        before = plan.cells
        layer = build(plan)
        found = proved(method, plan, layer, partial(certify, layer, plan, request.error), request, reasons)
        if found is not None:
            return found
    return None
