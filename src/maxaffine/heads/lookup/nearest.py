"""The least error for which a lookup is planned that rounding, memory and a number of tokens allow, or for which one is enough.

From plans alone: nothing is built.  Tokens fall with the error, so that it is found by doubling and bisection.
"""

import math

from maxaffine.core.budget import afford, allowed
from maxaffine.core.errors import Refused
from maxaffine.heads.found import BELOW
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup.limits import must_be_resolved, plan_cost
from maxaffine.request import Request

ROOM = 0.9  # of the error, that a bound may be foreseen to take: what is foreseen is not all of it
STEPS = 7  # of bisection
MOST = 400  # doublings


def nearest(request: Request, most: float = math.inf) -> float | None:
    """The error, at least the one asked for; None in L_p, of callables, and where no such facts are known."""
    if math.isfinite(request.norm) or request.target.expression is None or request.dtype == "bfloat16":
        return None
    spread = request.evidence.spread
    constant = math.inf if spread is None else 1.01 * float(spread) / 2.0
    low = high = request.error
    planned = _is_planned(request, high, most)
    for _ in range(MOST):
        if planned or high >= constant:
            break
        low, high = high, 2.0 * high
        planned = _is_planned(request, high, most)
    if not planned or high >= constant:
        return constant if math.isfinite(constant) else None
    for _ in range(STEPS if high > request.error else 0):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _is_planned(request, middle, most) else (middle, high)
    return high


def _is_planned(request: Request, error: float, most: float) -> bool:
    """Whether a lookup is planned for an error within the limits."""
    plan = lookup.cheapest(lookup.sup_norm_plans(request.target.box, request.evidence, error * BELOW))
    if plan is None or plan.cells * request.target.n_out > most:
        return False
    try:
        must_be_resolved(plan, request, ROOM * error if request.dtype != "float64" else error)
        afford(plan_cost(plan, request), int(ROOM * allowed(request.max_bytes)), "a lookup")
    except Refused:
        return False
    return True
