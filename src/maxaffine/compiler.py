"""The driver: propose a plan, build the layer, certify it, ask for more tokens until the proof fits."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.certify.certificate import Certificate
from maxaffine.certify.checker import check
from maxaffine.certify.observe import Observed, local_evaluation, observe, observe_integral
from maxaffine.certify.partition import euclidean_constant, partition_plan
from maxaffine.certify.prove import NO_FACTS, Plan, certify
from maxaffine.certify.spectral import certify_spectral, leak_factor
from maxaffine.compiled import Compiled
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import dtype_of, numpy_dtype
from maxaffine.layer.build import build_centres, build_grid, build_partition
from maxaffine.layer.build_spectral import build_spectral, wanted_bonus, with_bonus
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.plan import integral, lookup
from maxaffine.plan.budget import Cost, afford, lookup_cost
from maxaffine.plan.gather import gather
from maxaffine.plan.maxaffine import MaxAffine
from maxaffine.plan.sampled import sampled_lipschitz
from maxaffine.plan.spectral import SpectralPlan, spectral_plans
from maxaffine.request import (
    Request,
    absolute_error,
    check_bytes,
    check_centres,
    check_choice,
    check_error,
    check_norm,
    check_partition,
    check_seed,
    resolve,
)
from maxaffine.runtime import chooser

Array = NDArray[np.float64]

METHODS = ("auto", "spectral", "lookup")
# The compiler aims a little below the error asked for, so that the independent checker, whose constants are its own,
# can confirm it.
ROOM = 1.0 - 2e-3


def compile(
    target: Any,
    box: Any = None,
    *,
    error: float,
    relative: bool = False,
    norm: float | str = "inf",
    method: str = "auto",
    attention: str = "self",
    dtype: str = "float64",
    lipschitz: ArrayLike | None = None,
    modulus: Any = None,
    analytic: Any = None,
    derivatives: Any = None,
    partition: MaxAffine | None = None,
    centres: ArrayLike | None = None,
    require: str | None = None,
    vectorize: bool = False,
    max_bytes: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Compiled:
    """Compile a function into one softmax attention layer with ||layer - target|| <= error.

    Args:
        target: an expression such as "sin(x) + cos(y)", a callable on batches (B, D) -> (B,) or (B, K), a sequence
            function (B, d, n) -> (B, d_out, n_out), a Target, or the name of a gallery entry (then `box` may be left out).
        box: a Box, or a pair of boxes (query, context) for a function of two inputs.
        error: the error asked for, absolute unless `relative`, which measures it in units of sup |f|.
        norm: "inf" for the sup norm, or p >= 1 for L_p.
        method: "auto" or one of METHODS.
        attention: "self" or "cross", what `matrices()` gives by default.
        dtype: what keys and values are stored and run in.
        lipschitz: declared constants, one per axis, or one number, the Euclidean constant.
        modulus: a declared modulus w(r) in max_i |x_i - y_i|; ConcaveModulus, TotalVariation or IntegralModulus.
        analytic: declared Analytic(radii, bound) facts.
        derivatives: declared Derivatives(order, bound) facts.
        partition: a MaxAffine to use instead of a grid.
        centres: points to cover instead of the whole box (Theorem I).
        require: "proved" turns a layer without a proof into a refusal.
        vectorize: call a scalar callable point by point.
        max_bytes: memory the compile may take; by default half of what is free.
        seed: of the search for the observed error.
        progress: a callback progress(stage, done, total).

    Returns:
        A Compiled layer: call it, look at `.certificate`, `.observed`, `.matrices()`, `.save()`.

    Raises:
        BadInput: an argument is malformed.  Refused: the request cannot be proved, afforded or represented.
    """
    begun = time.perf_counter()
    check_choice("method", method, METHODS)
    check_choice("attention", attention, ("self", "cross"))
    dtype_of(dtype)
    p = check_norm(norm)
    made = resolve(target, box, vectorize)
    request = Request(
        target=made,
        error=absolute_error(check_error(error), relative, made, dtype),
        norm=p,
        dtype=dtype,
        evidence=gather(made, lipschitz, modulus, analytic, p, derivatives),
        partition=check_partition(partition, made),
        centres=check_centres(centres, made),
        require=check_choice("require", require, (None, "proved")),
        max_bytes=check_bytes(max_bytes),
        seed=check_seed(seed),
        progress=progress or silent,
    )
    if made.inputs == "pair":
        attention = "cross"
    found = _search(request, method)
    observed = found.observed or _observe(request, found)
    compiled = Compiled(
        target=made,
        layer=found.layer,
        certificate=found.certificate,
        observed=observed,
        error=request.error,
        method=found.method,
        attention_kind=attention,
        plan=found.plan.to_json(),
        cost=found.cost,
        evidence=request.evidence,
        spectral=found.plan if isinstance(found.plan, SpectralPlan) else None,
        declared=request.evidence.declared(),
        seconds=time.perf_counter() - begun,
    )
    _validate(compiled)
    return compiled


@dataclass(frozen=True)
class Found:
    """A plan carried out: its layer, certificate and cost."""

    method: str
    plan: Plan | SpectralPlan
    layer: Layer | GroupedLayer
    certificate: Certificate
    cost: Cost
    observed: Observed | None = None


def _search(request: Request, method: str) -> Found:
    """The method with the fewest tokens whose bound is proved at most `error`."""
    reasons: list[str] = []
    given = request.partition is not None or request.centres is not None or math.isfinite(request.norm)
    if method == "spectral" and given:
        raise BadInput('`method` "spectral" is for the sup norm on the whole box; leave out `partition`, `centres` and `norm`.')
    if method in ("auto", "spectral") and not given:
        fewest = _fewest_cells(request) if method == "auto" else None
        found = _search_spectral(request, reasons, fewest)
        if found is not None:
            return found
        if method == "spectral":
            raise Refused(f"no spectral head was proved: {'; '.join(reasons)}.")
    try:
        return _search_lookup(request)
    except Refused as refusal:
        if not reasons:
            raise
        raise Refused(f"{refusal} Spectral heads: {'; '.join(reasons)}.") from None


def _fewest_cells(request: Request) -> int | None:
    """Tokens of the cheapest lookup, where one is known without building it."""
    plan = lookup.cheapest(lookup.sup_norm_plans(request.target.box, request.evidence, request.error * ROOM))
    return None if plan is None or request.dtype == "bfloat16" else plan.cells * request.target.n_out


def _search_spectral(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """Spectral plans of growing size until one is proved; what stood in the way is added to `reasons`.

    A callable about which nothing provable is declared gets the first plan whose observed error fits.
    """
    target, error, evidence = request.target, request.error, request.evidence
    declared = evidence.ellipses is not None or evidence.derivatives is not None
    provable = target.expression is not None or declared
    observable = target.expression is None and request.require is None and (declared or not lookup.provable(evidence))
    if not (provable or observable):
        reasons.append("a callable's need `analytic=` or `derivatives=` declared")
        return None
    seen: Found | None = None
    tried = 0
    for plan in spectral_plans(target, error, request.dtype, guess=not declared):
        if fewest is not None and plan.cells >= fewest:
            return None
        tried += 1
        layer = _build_spectral(plan, request)
        cost = _spectral_cost(layer)
        afford(cost, request.max_bytes, f"the spectral layer for error {error:g}")
        if provable:
            found = _proved(plan, layer, cost, request, reasons)
            if found is not None:
                return found
        if observable and seen is None:
            nothing = Certificate.nothing(math.inf, reasons[-1] if provable else NO_FACTS, request.dtype)
            found = Found("spectral", plan, layer, nothing, cost)
            observed = _observe(request, found)
            if observed.error <= error:
                seen = replace(found, observed=observed)
                if not provable:
                    return seen
            else:
                reasons.append(f"{plan.cells:,} tokens leave an observed error of {observed.error:.3g}")
    if not tried:
        limits = f"the target is not smooth enough, has too many variables at once, or rounding in {request.dtype} is in the way"
        reasons.append(f"none fits: {limits}")
    return None if lookup.provable(evidence) else seen


def _build_spectral(plan: SpectralPlan, request: Request) -> GroupedLayer:
    """The layer, with a bonus between groups for which the leak is a ten-thousandth of the error."""
    layer = build_spectral(plan, request.target, request.dtype)
    if len(layer.groups) == 1:
        return layer
    largest = sum(float(np.abs(made.values).max()) for made in plan.groups if made.values is not None)
    return with_bonus(layer, wanted_bonus(leak_factor(layer.groups), max(largest, 1.0), 1e-4 * request.error))


def _spectral_cost(layer: GroupedLayer) -> Cost:
    flops = 40 * sum(sum(group.shape) for group in layer.groups) + layer.nbytes // 2
    return Cost(layer.tokens, layer.nbytes, 4 * layer.nbytes, flops)


def _proved(plan: SpectralPlan, layer: GroupedLayer, cost: Cost, request: Request, reasons: list[str]) -> Found | None:
    """The layer with its certificate, where the proof fits; else what it lacks is added to `reasons`."""
    try:
        evidence = request.evidence if request.target.expression is None else None
        certificate = certify_spectral(layer, plan, request.error, "any", evidence)
    except Refused as refusal:
        reasons.append(f"{plan.cells:,} tokens: {str(refusal).rstrip('.')}")
        return None
    assert certificate.bound is not None
    if certificate.bound <= request.error * ROOM:
        confirmed = _confirmed(plan, layer, certificate, request)
        if confirmed is None:
            return Found("spectral", plan, layer, certificate, cost)
        reasons.append(f"{plan.cells:,} tokens give {certificate.bound:.3g}, and the checker does not confirm it: {confirmed}")
        return None
    worst = max(certificate.parts, key=lambda name: certificate.parts[name])
    part = certificate.parts[worst]
    reasons.append(f"{plan.cells:,} tokens give {certificate.bound:.3g}, of which {worst.replace('_', ' ')} {part:.3g}")
    return None


def _confirmed(plan: SpectralPlan, layer: GroupedLayer, certificate: Certificate, request: Request) -> str | None:
    """None, or why the checker would refuse the file; asked where rounding matters, which the checker counts in its own way."""
    if request.target.expression is None or certificate.parts["rounding"] < 0.01 * request.error:
        return None
    tensors, description = to_tensors(layer)
    record = {
        "layer": description, "target": request.target.to_json(), "error": request.error, "norm": "inf",
        "certificate": certificate.to_json(), "plan": plan.to_json(),
    }  # fmt: skip
    verdict = check(tensors, record)
    return None if verdict.passed else verdict.reason


def _search_lookup(request: Request) -> Found:
    """Lookups of growing cost, until one is proved; for a target without facts, until one is observed to fit."""
    if request.dtype == "bfloat16":
        raise Refused("a lookup is not proved in bfloat16: its logits are rounded by 2^-8 of hundreds; use float32.")
    closest: Found | None = None
    for plan in proposals(request):
        cost = plan_cost(plan, request)
        afford(cost, request.max_bytes, f"the lookup for error {request.error:g}")
        layer = _build(plan, request)
        certificate = certify(plan, layer, request.target, request.evidence, request.norm, "any", request.progress)
        found = Found("lookup", plan, layer, certificate, cost)
        bound = found.certificate.bound
        if bound is None:
            found = replace(found, observed=_observe(request, found))
            bound = found.observed.error if found.observed else math.inf
        if bound <= request.error:
            return found
        if closest is None or bound < (closest.certificate.bound or math.inf):
            closest = found
    raise Refused(_why_not(request, closest))


def proposals(request: Request) -> Iterator[Plan]:
    """Lookup plans of growing cost, by what is known about the target."""
    target, evidence, error = request.target, request.evidence, request.error
    if request.centres is not None:
        yield from lookup.covering_plans(request.centres, euclidean_constant(evidence), error * ROOM)
        return
    if request.partition is not None:
        yield partition_plan(request.partition, target, evidence, error, request.progress)
        return
    if math.isfinite(request.norm):
        yield from integral.plans(target, evidence, error * ROOM, request.norm)
        return
    if lookup.provable(evidence):
        yield from lookup.sup_norm_proposals(target.box, evidence, error * ROOM)
    elif target.expression is not None:
        if not target.expression.is_continuous:
            raise Refused(
                f"the sup norm cannot be proved: {evidence.why_not} A layer is continuous, so a jump cannot be followed "
                'in the sup norm; ask for an L_p error with `norm=1` (--norm 1), or declare `lipschitz=` if there is none.'
            )
        yield from lookup.enclosed_proposals(target, evidence, error * ROOM)
    else:
        if request.require == "proved":
            raise Refused(
                "a callable without facts cannot be proved; declare `lipschitz=` or `modulus=`, give an expression, "
                "or leave out `require`."
            )
        yield from lookup.sup_norm_proposals(target.box, sampled_lipschitz(target, error, request.seed), error)


def plan_cost(plan: Plan, request: Request) -> Cost:
    """Tokens, bytes and flops of a lookup, before it is built."""
    target = request.target
    axes = plan.counts if isinstance(plan, lookup.GridPlan) else (plan.cells,)
    itemsize = numpy_dtype(request.dtype).itemsize
    return lookup_cost(plan.cells, axes, target.box.dimension, target.d_out * target.n_out, target.n_out, itemsize)


def _build(plan: Plan, request: Request) -> Layer:
    if isinstance(plan, lookup.GridPlan):
        return build_grid(plan, request.target, request.dtype, request.progress, request.evidence.cell_means)
    if isinstance(plan, lookup.CentresPlan):
        return build_centres(plan, request.target, request.dtype)
    return build_partition(plan.partition, plan.sharpness, plan.values, request.target, request.dtype)


def _observe(request: Request, found: Found) -> Observed:
    layer, flops = found.layer, found.cost.flops
    local = local_evaluation(layer) if isinstance(layer, Layer) else None
    evaluate = partial(chooser.evaluate, layer) if local is None else local
    if local is not None:
        flops = min(flops, 40_000)
    request.progress("search for the worst point", 0, 1)
    if math.isfinite(request.norm):
        assert isinstance(layer, Layer)
        return observe_integral(evaluate, request.target, layer, request.norm, request.seed, flops)
    start, reach = None, 0.0
    if isinstance(found.plan, lookup.CentresPlan):
        start, reach = found.plan.centres, found.plan.radius
    observed = observe(evaluate, request.target, layer, request.seed, flops, start, reach)
    bound = found.certificate.bound
    if bound is not None and observed.error > bound:
        raise AssertionError(f"observed error {observed.error!r} exceeds the proved bound {bound!r}: please report this")
    return observed


def _why_not(request: Request, closest: Found | None) -> str:
    if closest is None:
        return f"no plan fits `error` (={request.error:g}); ask for a larger one."
    if closest.certificate.bound is None:
        return (
            f"`error` (={request.error:g}) was not reached: {closest.cost.tokens:,} tokens leave an observed error of "
            f"{closest.observed.error if closest.observed else math.nan:.3g}; ask for a larger error or give facts."
        )
    parts = closest.certificate.parts
    worst = max(parts, key=lambda name: parts[name])
    if request.dtype != "float64" and parts["rounding"] > 0.05 * request.error:
        worst = "rounding"  # more cells would make the logits larger and the rounding worse
    what = f"`error` (={request.error:g}) cannot be proved: the closest of the plans tried has {closest.cost.tokens:,} tokens "
    what += f"and the bound {closest.certificate.bound:.4g}, of which {worst.replace('_', ' ')} is {parts[worst]:.3g}"
    if worst == "rounding":
        return f"{what}; {request.dtype} stands in the way: use dtype float64 or a larger error."
    if request.partition is not None:
        return f"{what}; use a finer `partition` or a larger error."
    return f"{what}; ask for a larger error."


def _validate(compiled: Compiled) -> None:
    """Never trust the own output: the layer must agree with the definition, and survive its file."""
    from maxaffine import reference
    from maxaffine.core.container import container_bytes
    from maxaffine.layer.file import from_tensors, to_tensors

    layer = compiled.layer
    if isinstance(layer, GroupedLayer):
        x = np.random.default_rng(0).uniform(layer.low, layer.high, size=(4, layer.dimension))
        fast = chooser.evaluate(layer, x)
        if "dense" in chooser.available(layer):
            away = float(np.abs(fast - chooser.evaluate(layer, x, "dense")).max())
            if away > compiled.error:
                raise AssertionError("the layer disagrees with the literal softmax: please report this")
        return
    if layer.keys.count <= 1 << 16:
        rng = np.random.default_rng(0)
        x = rng.uniform(layer.low, layer.high, size=(3, layer.dimension))
        x = np.clip(x, layer.low, layer.high)
        slopes, offsets = (np.asarray(part, dtype=np.float64) for part in layer.keys.listed())
        values = layer.values.reshape(-1, layer.d_out, layer.n_out).astype(np.float64)
        got = chooser.evaluate(layer, x)
        if layer.dtype == "float64":
            for row, z in zip(got, layer.coordinates(x), strict=True):
                literal = reference.lookup(layer.sharpness * (slopes @ z + offsets), values)
                scale = float(np.abs(values).max()) + 1e-300
                if np.abs(row - literal).max() > 1e-6 * scale:
                    raise AssertionError("the layer disagrees with the definition: please report this")
    if layer.nbytes <= 1 << 22:
        tensors, record = to_tensors(layer)
        again = from_tensors(tensors, record)
        if not isinstance(again, Layer) or not np.array_equal(again.values, layer.values) or not container_bytes(tensors, record):
            raise AssertionError("the layer does not survive its file: please report this")
