"""The driver: propose a plan, build the layer, certify it, ask for more tokens until the proof fits."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.certify.certificate import Certificate
from maxaffine.certify.integral import certify_integral
from maxaffine.certify.lookup import certify_grid
from maxaffine.certify.observe import Observed, observe, observe_integral
from maxaffine.certify.partition import certify_centres, certify_partition, euclidean_constant, partition_plan
from maxaffine.compiled import Compiled
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import dtype_of, numpy_dtype
from maxaffine.layer.build import build_centres, build_grid, build_partition
from maxaffine.layer.layer import Layer
from maxaffine.plan import integral, lookup
from maxaffine.plan.budget import Cost, afford, lookup_cost
from maxaffine.plan.evidence import Evidence
from maxaffine.plan.gather import gather
from maxaffine.plan.maxaffine import MaxAffine
from maxaffine.plan.sampled import sampled_lipschitz
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Plan = lookup.GridPlan | lookup.CentresPlan | lookup.PartitionPlan

METHODS = ("auto", "lookup")
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
    _check_choice("method", method, METHODS)
    _check_choice("attention", attention, ("self", "cross"))
    dtype_of(dtype)
    p = _check_norm(norm)
    if isinstance(target, str) and box is None:
        from maxaffine.target.gallery import gallery

        target = gallery[target]
    made = Target.of(target, box, vectorize=vectorize)
    request = Request(
        target=made,
        error=_absolute(_check_error(error), relative, made, dtype),
        norm=p,
        dtype=dtype,
        evidence=gather(made, lipschitz, modulus, analytic),
        partition=_check_partition(partition, made),
        centres=_check_centres(centres, made),
        require=_check_choice("require", require, (None, "proved")),
        max_bytes=_check_bytes(max_bytes),
        seed=_check_seed(seed),
        progress=progress or silent,
    )
    if made.inputs == "pair":
        attention = "cross"
    found = _search(request)
    observed = found.observed or _observe(request, found)
    compiled = Compiled(
        target=made,
        layer=found.layer,
        certificate=found.certificate,
        observed=observed,
        error=request.error,
        method="lookup",
        attention_kind=attention,
        plan=found.plan.to_json(),
        cost=found.cost,
        evidence=request.evidence,
        seconds=time.perf_counter() - begun,
    )
    _validate(compiled)
    return compiled


@dataclass(frozen=True)
class Request:
    """What was asked for, validated."""

    target: Target
    error: float
    norm: float
    dtype: str
    evidence: Evidence
    partition: MaxAffine | None
    centres: Array | None
    require: str | None
    max_bytes: int | None
    seed: int
    progress: Progress


@dataclass(frozen=True)
class Found:
    """A plan carried out: its layer, certificate and cost."""

    plan: Plan
    layer: Layer
    certificate: Certificate
    cost: Cost
    observed: Observed | None = None


def _search(request: Request) -> Found:
    """Plans of growing cost, until one is proved; for a target without facts, until one is observed to fit."""
    closest: Found | None = None
    for plan in _proposals(request):
        cost = _cost(plan, request)
        afford(cost, request.max_bytes, f"the lookup for error {request.error:g}")
        layer = _build(plan, request)
        found = Found(plan, layer, _certify(plan, layer, request, "any"), cost)
        bound = found.certificate.bound
        if bound is None:
            found = Found(plan, layer, found.certificate, cost, _observe(request, found))
            bound = found.observed.error if found.observed else math.inf
        if bound <= request.error:
            return found
        if closest is None or bound < (closest.certificate.bound or math.inf):
            closest = found
    raise Refused(_why_not(request, closest))


def _proposals(request: Request) -> Iterator[Plan]:
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


def _cost(plan: Plan, request: Request) -> Cost:
    target = request.target
    axes = plan.counts if isinstance(plan, lookup.GridPlan) else (plan.cells,)
    itemsize = numpy_dtype(request.dtype).itemsize
    return lookup_cost(plan.cells, axes, target.box.dimension, target.d_out * target.n_out, target.n_out, itemsize)


def _build(plan: Plan, request: Request) -> Layer:
    if isinstance(plan, lookup.GridPlan):
        return build_grid(plan, request.target, request.dtype, request.progress)
    if isinstance(plan, lookup.CentresPlan):
        return build_centres(plan, request.target, request.dtype)
    return build_partition(plan.partition, plan.sharpness, plan.values, request.target, request.dtype)


def _certify(plan: Plan, layer: Layer, request: Request, runtime: str) -> Certificate:
    target, evidence = request.target, request.evidence
    if isinstance(plan, lookup.CentresPlan):
        return certify_centres(layer, target, evidence, plan.radius, runtime)
    if isinstance(plan, lookup.PartitionPlan):
        return certify_partition(layer, target, evidence, plan.margin, runtime, request.progress)
    if math.isfinite(request.norm):
        if target.expression is None and not integral.provable(evidence, target.box.dimension):
            return Certificate.nothing(request.norm, NO_FACTS, request.dtype)
        return certify_integral(layer, target, evidence, request.norm, runtime, request.progress)
    if plan.route != "G4" and not lookup.provable(evidence):
        return Certificate.nothing(request.norm, NO_FACTS, request.dtype)
    return certify_grid(layer, target, evidence, plan.route, plan.margin, runtime)


NO_FACTS = "the target is a callable and nothing was declared about it; the error is only observed"


def _observe(request: Request, found: Found) -> Observed:
    layer = found.layer

    def evaluate(x: Array) -> Array:
        return chooser.evaluate(layer, x)

    request.progress("search for the worst point", 0, 1)
    if math.isfinite(request.norm):
        return observe_integral(evaluate, request.target, layer, request.norm, request.seed, found.cost.flops)
    start, reach = None, 0.0
    if isinstance(found.plan, lookup.CentresPlan):
        start, reach = found.plan.centres, found.plan.radius
    observed = observe(evaluate, request.target, layer, request.seed, found.cost.flops, start, reach)
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
        if not np.array_equal(again.values, layer.values) or not container_bytes(tensors, record):
            raise AssertionError("the layer does not survive its file: please report this")


def recertify(compiled: Compiled, runtime: str, dtype: str | None) -> Certificate:
    """The certificate of a compiled layer for one runtime."""
    if dtype is not None and dtype != compiled.dtype:
        raise BadInput(f"`dtype` (={dtype!r}) is not this layer's ({compiled.dtype}); compile it in that dtype.")
    names = ("any", *chooser.available(compiled.layer))
    _check_choice("runtime", runtime, names)
    return lookup_certificate(compiled, runtime)


def lookup_certificate(compiled: Compiled, runtime: str) -> Certificate:
    """Prove the stored layer again for one runtime, from its target and declared facts."""
    evidence = compiled.evidence
    if evidence is None or compiled.certificate.kind != "proved":
        raise Refused("this layer carries no evidence to prove from; compile it again.")
    request = Request(
        compiled.target, compiled.error, compiled.norm, compiled.dtype, evidence, None, None, None, None, 0, silent
    )
    return _certify(_plan_of(compiled), compiled.layer, request, runtime)


def _plan_of(compiled: Compiled) -> Plan:
    """The plan behind a layer, from its record and its keys."""
    plan, layer = compiled.plan, compiled.layer
    if plan["plan"] == "grid":
        return lookup.GridPlan(
            plan["route"], tuple(plan["counts"]), layer.sharpness, compiled.error, compiled.norm, plan["margin"]
        )
    if plan["plan"] == "centres":
        return lookup.CentresPlan(layer.affine_pieces()[0], plan["radius"], plan["multiplier"], compiled.error)
    return lookup.PartitionPlan(compiled.partition(), layer.sharpness, plan["margin"], layer.values)


# -- arguments


def _check_error(error: Any) -> float:
    try:
        value = float(error)
    except (TypeError, ValueError):
        raise BadInput(f"`error` (={error!r}) must be a number; ask for a sup-norm error such as 1e-3.") from None
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"`error` (={value:g}) must be positive and finite; ask for an error such as 1e-3.")
    return value


def _check_norm(norm: Any) -> float:
    try:
        p = float(norm)
    except (TypeError, ValueError):
        p = math.nan
    if not p >= 1.0:
        raise BadInput(f'`norm` (={norm!r}) must be "inf" or a number p >= 1 of L_p.')
    if math.isfinite(p) and p > 64:
        raise BadInput(f"`norm` (={p:g}) is above 64; ask for the sup norm instead.")
    return p


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        known = ", ".join(str(choice) for choice in choices if choice is not None)
        raise BadInput(f"`{name}` (={value!r}) is not known; choose one of {known}.")
    return value


def _check_bytes(max_bytes: Any) -> int | None:
    if max_bytes is None:
        return None
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, np.integer, float)) or not max_bytes > 0:
        raise BadInput(f"`max_bytes` (={max_bytes!r}) must be a positive number of bytes.")
    return int(max_bytes)


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BadInput(f"`seed` (={seed!r}) must be a whole number that is not negative.")
    return int(seed)


def _check_partition(partition: Any, target: Target) -> MaxAffine | None:
    if partition is not None and not isinstance(partition, MaxAffine):
        raise BadInput(f"`partition` must be a MaxAffine, not {type(partition).__name__}.")
    if partition is not None and partition.A.shape[1] != target.box.dimension:
        raise BadInput(f"`partition` has {partition.A.shape[1]} variables and the box {target.box.dimension}.")
    return partition


def _check_centres(centres: Any, target: Target) -> Array | None:
    if centres is None:
        return None
    try:
        points = np.asarray(centres, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput("`centres` must be an array of points (M, D).") from None
    D = target.box.dimension
    if points.ndim != 2 or points.shape[1] != D or len(points) == 0 or not np.isfinite(points).all():
        raise BadInput(f"`centres` of shape {points.shape} must be finite points of shape (M, {D}), at least one.")
    if not target.box.contains(points).all():
        raise BadInput("`centres` has points outside the box; enlarge the box or leave them out.")
    return points


def _absolute(error: float, relative: bool, target: Target, dtype: str) -> float:
    """The absolute error; refused where the dtype cannot hold it."""
    rng = np.random.default_rng(0)
    x = np.concatenate([target.box.sample(1024, rng), target.box.centre[None]])
    if target.expression is not None:
        found = target.enclose(x, x)
        largest = float(np.where(np.isfinite(found.mignitude), found.mignitude, 0.0).max())
    else:
        largest = float(np.abs(target.values(x)).max())
    wanted = error * largest if relative else error
    unit = dtype_of(dtype).unit
    if relative and largest == 0.0:
        raise Refused("`relative` measures the error in units of sup |f|, and f is zero wherever it was looked at.")
    if wanted < 8.0 * unit * largest:
        raise Refused(
            f"`error` (={error:g}) is below what {dtype} can hold: values near {largest:.3g} are rounded by "
            f"{unit * largest:.2g}. Ask for at least {16 * unit * largest / (largest if relative else 1.0):.2g}."
        )
    return wanted
