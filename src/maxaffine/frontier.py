"""`ma.plan`: tokens against error for every method and argument, before a layer is compiled."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from maxaffine.core.budget import Cost, afford
from maxaffine.core.errors import Refused
from maxaffine.core.progress import silent
from maxaffine.core.rounding import numpy_dtype
from maxaffine.core.threads import one_blas_thread
from maxaffine.heads import HEADS, interpolated
from maxaffine.heads.found import BELOW, Discontinuous
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup.in_time import SECONDS_PER_CELL
from maxaffine.heads.lookup.limits import plan_cost
from maxaffine.heads.lookup.plan import Plan
from maxaffine.heads.lookup.search import constant_plan, proposals
from maxaffine.heads.spectral.directions import spectral_plans
from maxaffine.heads.spectral.plan import SpectralPlan
from maxaffine.request import Request, absolute_error, check_error, request_of
from maxaffine.run import Run
from maxaffine.search import attempt

DECADES = tuple(10.0**-k for k in range(1, 11))
FEW = 3  # errors for which trees are built


def plan(
    target: Any,
    box: Any = None,
    *,
    errors: Sequence[float] = DECADES,
    norm: float | str = "inf",
    dtype: str = "float64",
    lipschitz: ArrayLike | None = None,
    modulus: Any = None,
    analytic: Any = None,
    gap: float | None = None,
    vectorize: bool = False,
    trace: bool = True,
    run: Run | None = None,
    refused: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """What every method and argument would cost for these errors, cheapest first per error; refusals are put into `refused`.

    Lookups are sized by their theorems; spectral heads are fitted, and their tokens are those of the first fit that is
    expected to meet the error: their proofs come with `compile`.  Heads for kinks, jumps and local features are searched for as
    `compile` does, so their tokens are proved ones; trees, the slowest, where three errors or fewer are asked for, and only as
    far as the fewest tokens that another head is proved with.  `seconds` says about how long the compile will take.
    """
    run = run or Run()
    rows: list[dict[str, Any]] = []
    asked = [check_error(error) for error in errors]
    facts = {"lipschitz": lipschitz, "modulus": modulus, "analytic": analytic}
    first = request_of(
        target, box, error=max(asked, default=1.0), norm=norm, dtype=dtype, gap=gap, vectorize=vectorize, trace=trace,
        run=replace(run, progress=None, max_calls=None, cache=None), **facts,
    )  # fmt: skip
    with one_blas_thread():
        for index, error in enumerate(asked):
            (run.progress or silent)("plans", index, len(errors))
            request = replace(first, error=absolute_error(error, False, first.largest, dtype))
            request = _interpolated(request)
            begun, found = time.process_time(), []
            for plan in _candidates(request):
                found.append({**_row(plan, request), "seconds": _seconds(plan, time.process_time() - begun)})
                begun = time.process_time()
            found += _searched(request, len(errors) <= FEW, [] if refused is None else refused)
            rows += sorted(found, key=lambda row: int(row["tokens"]))
    return rows


def _interpolated(request: Request) -> Request:
    """About a callable's interpolant, where that settles it (heads/interpolated.py)."""
    if not interpolated.serves(request):
        return request
    seen = interpolated.look(request)
    return seen.aimed(request.error) if seen.interpolant.resolved else request


def _seconds(plan: Plan | SpectralPlan, planned: float) -> float:
    """About how long a compile takes by this plan: a proof as long as the fit, and for lookups so much per value."""
    return 2.0 * planned if isinstance(plan, SpectralPlan) else planned + SECONDS_PER_CELL * plan.cells


def _searched(request: Request, trees: bool, refused: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The heads that are found by searching for them, and why the others are not."""
    rows: list[dict[str, Any]] = []
    for name, head in HEADS.items():
        beside = name == "outputs" and request.target.d_out * request.target.n_out == 1  # nothing to put side by side
        if name in ("spectral", "lookup") or beside or head.by_name or (head.slow and not trees):
            continue
        reasons: list[str] = []
        begun = time.process_time()
        try:
            fewest = min((int(row["tokens"]) for row in rows), default=None) if head.slow else None
            found = attempt(name, request, reasons, fewest)
        except Discontinuous as refusal:
            reasons, found = [str(refusal).rstrip(".")], None
        if found is None:
            refused.append({"method": name, "error": request.error, "why_not": "; ".join(reasons[-2:])})
            continue
        row = {"method": name, "argument": found.certificate.argument, "error": request.error, **found.cost.to_json()}
        row |= {"counts": list(found.layer.keys.shape)[:64], "bound": found.certificate.bound}
        rows.append({**row, "affordable": True, "why_not": None, "seconds": time.process_time() - begun})
    return rows


def _candidates(request: Request) -> Iterator[Plan | SpectralPlan]:
    """The cheapest plan of every method and argument; none where a method refuses."""
    if math.isinf(request.norm):
        yield from _first(spectral_plans(request.target, request.error, request.dtype))
        if request.dtype == "bfloat16":
            return
        constant = constant_plan(request)
        if constant is not None:
            yield constant
        if lookup.provable(request.evidence):
            plans = list(lookup.sup_norm_plans(request.target.box, request.evidence, request.error * BELOW))
            for argument in sorted({plan.argument for plan in plans}):
                best = lookup.cheapest(plan for plan in plans if plan.argument == argument)
                if best is not None:
                    yield best
            return
    yield from _first(proposals(request))


def _first(plans: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from (plan for plan, _ in zip(plans, range(1), strict=False))
    except Refused:
        return


def _row(plan: Plan | SpectralPlan, request: Request) -> dict[str, Any]:
    cost = _spectral_cost(plan, request.dtype) if isinstance(plan, SpectralPlan) else plan_cost(plan, request)
    method = "spectral" if isinstance(plan, SpectralPlan) else "lookup"
    row: dict[str, Any] = {"method": method, "argument": plan.argument, "error": request.error, **cost.to_json()}
    if isinstance(plan, SpectralPlan):
        row["counts"] = [made.cells for made in plan.groups]
    else:
        row["counts"] = list(plan.counts) if isinstance(plan, lookup.GridPlan) else [plan.cells]
    try:
        afford(cost, request.max_bytes, "the layer")
        return {**row, "affordable": True, "why_not": None}
    except Refused as reason:
        return {**row, "affordable": False, "why_not": str(reason)}


def _spectral_cost(plan: SpectralPlan, dtype: str) -> Cost:
    itemsize = int(numpy_dtype(dtype).itemsize)
    numbers = 0
    for made in plan.groups:
        keys = sum(len(axis) for axis in made.axes)
        values = made.values.size if made.values is not None else sum(f.size for f in made.factors or ())
        numbers += 2 * keys + values
    return Cost(plan.cells, numbers * itemsize, 4 * numbers * itemsize, 40 * numbers)
