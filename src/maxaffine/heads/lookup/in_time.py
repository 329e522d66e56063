"""A lookup where the time of a search is over: one that little more time allows, or the error that such a one is proved to.

Lookups are the heads whose time is known before they are made: so much for every cell, once facts about the target are derived.
"""

import math

from maxaffine.core.deadline import OutOfTime, extended
from maxaffine.core.errors import Refused
from maxaffine.heads.found import BELOW, Found
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup.search import fewest_tokens, search, surely_resolved
from maxaffine.request import Request

SECONDS_PER_CELL = 2e-6  # of a lookup that is built and proved, twice what is measured where the target costs little
SHARE = 0.25  # of `max_seconds`, that a lookup may take when they are over,
LEAST = 0.1  # and so many seconds in any case
SLACK = 5.0  # times that, after which it is left: another machine, another target
MOST = 1_000_000  # tokens of a lookup that is returned where others were asked for
STEP = 1.25  # from one error to the next


def in_time(request: Request) -> tuple[Found | None, float | None]:
    """The lookup that little more time allows; else the nearest error that a lookup in that time, or one token, is proved to."""
    assert request.max_seconds is not None
    seconds = max(LEAST, SHARE * request.max_seconds)
    most = min(MOST, int(seconds / SECONDS_PER_CELL))
    nearest = None
    try:
        with extended(SLACK * seconds):
            tokens = fewest_tokens(request)
            nearest = _nearest(request, tokens, most)
        with extended(SLACK * seconds):
            if nearest is not None and nearest <= request.error:
                return search(request), None
    except (OutOfTime, Refused):
        pass
    return None, nearest


def _nearest(request: Request, tokens: int | None, most: int) -> float | None:
    """The least error for which a lookup of at most so many tokens is planned, or one token is enough; that asked for, if so."""
    if not math.isinf(request.norm) or request.target.expression is None:
        return None
    spread = request.evidence.spread
    constant = None if spread is None or request.dtype == "bfloat16" else 1.01 * float(spread) / 2.0
    if tokens is None:
        return constant
    more = max(0.0, math.log(tokens) - math.log(most))
    error = request.error * math.exp(more / request.target.box.dimension)
    while constant is None or error < constant:
        plan = lookup.cheapest(lookup.sup_norm_plans(request.target.box, request.evidence, error * BELOW))
        if plan is not None and plan.cells * request.target.n_out <= most and surely_resolved(plan, request, error):
            return error
        if plan is not None and plan.cells == 1:
            return None
        error *= STEP
    return constant
