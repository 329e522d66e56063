"""What is known of a lookup from its plan alone: what it costs, what rounding leaves of it, and whether it can be checked."""

import math
from dataclasses import replace

import numpy as np

from maxaffine.checker.lookup import MAPPED_LIMIT, VALUES_LIMIT
from maxaffine.core.budget import Cost, count_text, lookup_cost
from maxaffine.core.errors import Refused, TooMany
from maxaffine.core.rounding import dtype_of, numpy_dtype
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.plan import Plan
from maxaffine.heads.lookup.streamed import STREAM, peak_bytes
from maxaffine.request import Request
from maxaffine.target.calls import Calls

RESOLVED = 0.7  # errors of logits beyond which no lookup is proved


def plan_cost(plan: Plan, request: Request) -> Cost:
    """Tokens, bytes and flops of a lookup, before it is built."""
    target = request.target
    axes = plan.counts if isinstance(plan, lookup.GridPlan) else (plan.cells,)
    itemsize = numpy_dtype(request.dtype).itemsize
    cost = lookup_cost(plan.cells, axes, target.box.dimension, target.d_out * target.n_out, target.n_out, itemsize)
    if isinstance(plan, lookup.GridPlan) and is_streamed(plan, request):
        return replace(cost, peak_bytes=peak_bytes(plan, target.d_out * target.n_out))
    return cost


def is_streamed(plan: lookup.GridPlan, request: Request) -> bool:
    """Whether values go straight to the file: there is one, values are f at the sites, and they are many."""
    if request.out is None or math.isfinite(request.norm) or plan.argument in ("G4", "C"):
        return False
    calls = request.target.calls
    if isinstance(calls, Calls) and calls.is_watched:  # workers that evaluate by themselves would neither count nor keep
        return False
    if not lookup.provable(request.evidence):
        return False
    outputs = request.target.d_out * request.target.n_out
    return request.executor is not None or plan.cells * outputs * numpy_dtype(request.dtype).itemsize > STREAM


def foreseen(plan: Plan, request: Request) -> float:
    """What the bound of a plan will at least be: its theorem with the least that rounding does to logits of so many cells.

    The scores of a product form are z c + b, rounded four times, with |z|, |c| up to P/2 and b = -c^2/2; z itself is rounded
    D + 4 times in float64, once in other dtypes (proofs/rounding.py).
    """
    if not isinstance(plan, lookup.GridPlan) or plan.argument not in ("E1", "E2"):
        return 0.0
    half = (np.asarray(plan.counts) - 1) / 2.0
    times = 4.0 * 1.5 + (request.target.dimension + 4.0 if request.dtype == "float64" else 1.0)
    eta = plan.sharpness * dtype_of(request.dtype).unit * times * float((half * half).max()) * (1 - 1e-9)
    mean = theorems.mean_distance if plan.argument == "E1" else theorems.mean_square
    grown = mean(plan.sharpness, eta) / mean(plan.sharpness)
    return plan.predicted * (grown if plan.argument == "E1" else math.sqrt(grown)) * (1 - 1e-9)


def must_be_resolved(plan: lookup.GridPlan, request: Request, error: float) -> None:
    """Refused where rounding is foreseen to leave no room for a plan that is made for an error, or it could not be checked."""
    must_resolve(plan, request)
    must_be_checked(plan, request)
    if foreseen(plan, request) > error:
        raise Refused(f"rounding in {request.dtype} takes the error")


def must_resolve(plan: Plan, request: Request) -> None:
    """Refused where the dtype cannot tell so many cells apart: offsets near P^2/8 are rounded by u P^2/8, times the sharpness.
    """
    if not isinstance(plan, lookup.GridPlan) or math.isfinite(request.norm):
        return
    P, unit = max(plan.counts), dtype_of(request.dtype).unit
    if plan.sharpness * unit * P * P / 8.0 <= RESOLVED:
        return
    most = math.sqrt(8.0 * 0.1 * RESOLVED / (plan.sharpness * unit))
    refusal = TooMany(
        f"`error` (={request.error:g}) would take {P:,} cells along one variable, and {request.dtype} can tell about "
        f"{int(most):,} apart.",
        remedy={"dtype": "float64"} if request.dtype != "float64" else None,
    )
    refusal.tokens = plan.cells
    raise refusal


def must_be_checked(plan: Plan, request: Request) -> None:
    """Refused where a lookup of an expression holds more values than the checker encloses, so that it could not be saved."""
    if request.target.expression is None:
        return
    streamed = isinstance(plan, lookup.GridPlan) and is_streamed(plan, request)
    values, limit = plan.cells * request.target.d_out * request.target.n_out, MAPPED_LIMIT if streamed else VALUES_LIMIT
    if values > limit:
        where = "" if streamed else " in memory (a file given as `out` may hold more)"
        refusal = TooMany(
            f"a lookup for error {request.error:g} needs {count_text(values)} values, and the checker proves at most {limit:,} "
            f"again{where}."
        )
        refusal.tokens = plan.cells
        raise refusal
