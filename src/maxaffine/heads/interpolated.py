"""Callables about which nothing is declared, seen through their interpolant where that settles them: few points are asked for.

The heads plan, fit and look at the interpolant, which costs no evaluation; the layer they find is then observed against the
function itself, where the interpolant says that it is worst and at points spread over the box.  A function that no interpolant
settles (a kink, a jump, too many wiggles) is asked itself.  Under `max_calls` the layer of the best interpolant is what a spent
budget leaves.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.found import Found, search_worst
from maxaffine.heads.lookup import plan as lookup
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request
from maxaffine.target.calls import Calls
from maxaffine.target.interpolant import FIRST, Interpolant, interpolate

SETTLED = 0.02  # of the error: the tolerance of interpolants
GOALS = (1.0, 0.9, 0.7)  # of the error, for layers of the interpolant
HELD = 0.15  # of the calls allowed: for a last look
AIMS = (1.0, 4.0, 16.0)  # times what the interpolant is off by, for the layer of a spent budget

Ask = Callable[[Request], Found]


@dataclass(frozen=True)
class Seen:
    """A callable's interpolant, and the request with the one in the place of the other."""

    request: Request
    interpolant: Interpolant

    def aimed(self, error: float) -> Request:
        """The request about the interpolant."""
        return replace(self.request, target=replace(self.request.target, calls=self.interpolant), error=error)


def serves(request: Request) -> bool:
    """Callables of few variables of which nothing is declared, in the sup norm, where a proof is not insisted on."""
    target, declared = request.target, request.facts.declared
    told = request.breaks is not None or declared.ellipses is not None or declared.derivatives is not None
    given = request.partition is not None or request.centres is not None
    return not (
        target.expression is not None or target.box.dimension not in FIRST or target.n_out != 1 or math.isfinite(request.norm)
        or told or given or request.require is not None or lookup.provable(request.evidence)
    )  # fmt: skip


def look(request: Request) -> Seen:
    """The interpolant of a callable, as fine as its calls allow."""
    calls = request.target.calls
    return Seen(request, interpolate(request.target, SETTLED * request.error, calls.most if isinstance(calls, Calls) else None))


def settled(seen: Seen, ask: Ask) -> Found | None:
    """The layer of the interpolant that the function itself is observed to agree with; None where none does."""
    for goal in GOALS:
        found = ask(seen.aimed(goal * seen.request.error))
        observed = search_worst(seen.request, found, seen.interpolant)
        if observed.error <= seen.request.error:
            return replace(found, observed=observed)
    return None


def spent(seen: Seen, ask: Ask) -> Found:
    """The layer for what was asked of the function, as near to it as the interpolant is; `ask` finds spectral heads."""
    request, calls = seen.request, seen.request.target.calls
    assert isinstance(calls, Calls)
    off = float(seen.interpolant.residual.max())
    best: Found | None = None
    for error in sorted({max(request.error, aim * off) for aim in AIMS}):
        try:
            found = ask(seen.aimed(error))
        except Refused:
            continue
        found = replace(found, observed=search_worst(request, found, seen.interpolant))
        best = min(best or found, found, key=_observed_error)
        if calls.left == 0 or _observed_error(best) <= max(request.error, 4.0 * off):
            break
    if best is None or not np.isfinite(_observed_error(best)):
        raise Refused(
            f"{calls.limit} is spent after {calls.count:,} points, and the interpolant through them is off by "
            f"{off:.3g}: no head follows it. Allow more calls, or ask for a larger error.",
            nearest_error=off,
        )
    why = (
        f"{calls.limit} ended the search after {calls.count:,} points; {request.error:g} was asked, and an error "
        f"of {_observed_error(best):.3g} is observed"
    )
    return replace(best, certificate=Certificate.nothing(request.norm, why, request.dtype))


def _observed_error(found: Found) -> float:
    return math.inf if found.observed is None else found.observed.error
