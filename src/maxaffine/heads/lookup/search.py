"""Lookups: the paper's construction, in plans of growing cost until one is proved."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.boxes import AXES
from maxaffine.core.budget import Cost, afford
from maxaffine.core.errors import Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.heads.found import BELOW, NO_FACTS, Ask, Found, agreed, literal_failure, search_worst, unconfirmed
from maxaffine.heads.head import Example, Head
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup import plan_integral as integral
from maxaffine.heads.lookup.build import build_centres, build_constant, build_grid, build_partition
from maxaffine.heads.lookup.limits import foreseen, is_streamed, must_be_checked, must_resolve, plan_cost
from maxaffine.heads.lookup.plan import Plan
from maxaffine.heads.lookup.prove_grid import certify_grid
from maxaffine.heads.lookup.prove_integral import certify_integral
from maxaffine.heads.lookup.prove_listed import certify_centres, certify_partition, euclidean_constant, partition_plan
from maxaffine.heads.lookup.streamed import stream_grid
from maxaffine.heads.search import Search
from maxaffine.layer.layer import Layer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.literal import MOST_TOKENS
from maxaffine.request import Request
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

SAMPLES = 2048  # at which the slopes of a callable without facts are seen
SAFETY = 1.1  # samples miss the steepest place
SERVED = 12  # variables up to which a lookup may be the smallest layer, beside one of a single token
COARSER = 0.5  # of the rounding in a bound, by which the checker may exceed it; up to 0.3 were seen
DOUBTED = 0.05  # of the error, by which the checker's bound of a lookup may exceed it


def fewest_tokens(request: Request) -> int | None:
    """Tokens of the cheapest lookup, where one is known without building it."""
    if math.isfinite(request.norm) or request.target.box.dimension > SERVED:  # what it rests on takes minutes there
        return None
    plan = lookup.cheapest(lookup.sup_norm_plans(request.target.box, request.evidence, request.error * BELOW))
    return None if plan is None or request.dtype == "bfloat16" else plan.cells * request.target.n_out


def declared(request: Request) -> bool:
    """Whether what was declared about a callable may prove a lookup."""
    target, facts = request.target, request.facts.declared
    if target.expression is not None or target.entries is not None:
        return False
    return lookup.provable(facts) if math.isinf(request.norm) else integral.provable(facts, target.box.dimension)


def surely_more(request: Request, tokens: int) -> bool:
    """Whether every lookup has more tokens: cells of one value each, and f goes farther than so many can follow."""
    return math.isinf(request.norm) and request.seen_spread > 2.0 * request.error * min(tokens, 2**1000)


def constant_plan(request: Request) -> lookup.GridPlan | None:
    """One token with the middle of the target's range, where the error is larger than half of that."""
    given = request.partition is not None or request.centres is not None
    if request.target.box.dimension > AXES:  # of the values' array
        return None
    if given or math.isfinite(request.norm) or request.target.expression is None or request.dtype == "bfloat16":
        return None
    if surely_more(request, 1):
        return None
    return lookup.constant_plan(request.target.box, request.evidence, request.error * BELOW)


def constant(request: Request) -> Found | None:
    """The layer of one token, where it is proved and the checker agrees; the paper's construction with one cell."""
    plan = constant_plan(request)
    extent = None if plan is None else request.evidence.extent
    if plan is None or extent is None:
        return None
    layer = build_constant(plan, request.target, request.dtype, extent[0] / 2.0 + extent[1] / 2.0)
    prove = partial(Lookup().prove, layer, plan, request)
    certificate = prove("arrays")
    if certificate.bound is None or not certificate.bound <= request.error or literal_failure(layer, certificate, request):
        return None
    found = Found("lookup", plan, layer, certificate, plan_cost(plan, request), prove=prove)
    return found if unconfirmed(found, request) is None else None


class Lookup(Head[Plan]):
    """Cells of one value each; values are many, so that what they cost is known before they are made."""

    name = "lookup"
    summary = "one token per cell of a grid, the value of the cell"
    serves = "anything with a Lipschitz constant, a modulus or an expression"
    examples = (Example("sin(3*x)", {"x": (-1, 1)}, 0.05),)

    def why_not(self, request: Request) -> str | None:
        """Logits of hundreds are too coarse in bfloat16, and an array of values has few axes."""
        if request.target.box.dimension > AXES and request.partition is None and request.centres is None:
            return f"a grid has {AXES} variables at most."
        if request.dtype != "bfloat16":
            return None
        return "lookups cannot be proved in bfloat16, whose 8 bits round logits of several hundred by more than 1; use float32."

    def propose(self, search: Search) -> Iterator[Plan]:
        """By what is known about the target."""
        return proposals(search.request)

    def build(self, plan: Plan, request: Request) -> Layer:  # type: ignore[override]
        """Values of all cells."""
        if isinstance(plan, lookup.GridPlan):
            return build_grid(plan, request.target, request.dtype, request.progress, request.evidence.cell_means)
        if isinstance(plan, lookup.CentresPlan):
            return build_centres(plan, request.target, request.dtype)
        return build_partition(plan.partition, plan.sharpness, plan.values, request.target, request.dtype)

    def prove(  # type: ignore[override]
        self, layer: Layer, plan: Plan, request: Request, runtime: str, progress: Progress = silent
    ) -> Certificate:
        """By the theorem that the plan names; kind "none" where nothing is known about a callable."""
        target, evidence, p = request.target, request.evidence, request.norm
        if isinstance(plan, lookup.CentresPlan):
            return certify_centres(layer, target, evidence, plan.radius, runtime)
        if isinstance(plan, lookup.PartitionPlan):
            return certify_partition(layer, target, evidence, plan.margin, runtime, progress)
        if math.isfinite(p):
            if target.expression is None and not integral.provable(evidence, target.box.dimension):
                return Certificate.nothing(p, NO_FACTS, layer.dtype)
            return certify_integral(layer, target, evidence, p, runtime, progress)
        if plan.argument not in ("G4", "C") and not lookup.provable(evidence):
            return Certificate.nothing(p, NO_FACTS, layer.dtype)
        return certify_grid(layer, target, evidence, plan.argument, plan.margin, runtime)

    def sharpened(self, plan: Plan, r: float) -> Plan:
        """The sharpness, or R of covering centres, is r times as large."""
        if isinstance(plan, lookup.CentresPlan):
            return replace(plan, multiplier=plan.multiplier * r)
        return replace(plan, sharpness=plan.sharpness * r)

    def find(self, request: Request, reasons: list[str], fewest: int | None, ask: Ask | None = None) -> Found:
        """Lookups are refused with the closest of them."""
        return search(request)


def search(request: Request) -> Found:
    """Lookups of growing cost, until one is proved; for a target without facts, until one is observed to fit."""
    why_not = Lookup().why_not(request)
    if why_not is not None:
        raise Refused(why_not)
    smallest = constant(request)
    if smallest is not None:
        return smallest
    closest: Found | None = None
    skipped, doubts = (math.inf, 0), list[str]()
    for plan in proposals(request):
        cost = plan_cost(plan, request)
        if request.literal and cost.tokens > MOST_TOKENS:
            raise Refused(
                f"`literal` asks for a softmax over all tokens, at most {MOST_TOKENS:,} of them, and a lookup for error "
                f"{request.error:g} needs {cost.tokens:.3g}; no other head's literal softmax meets it in {request.dtype}. "
                "Ask for a larger `error`, or leave `literal` out."
            )
        must_resolve(plan, request)
        least = foreseen(plan, request)
        if least > request.error:  # one of the plans with more cells may leave room for rounding
            skipped = min(skipped, (least, plan.cells))
            continue
        afford(cost, request.max_bytes, f"the lookup for error {request.error:g}")
        must_be_checked(plan, request)
        if isinstance(plan, lookup.GridPlan) and is_streamed(plan, request):
            found = _streamed(plan, request, cost)
        else:
            layer = Lookup().build(plan, request)
            prove = partial(Lookup().prove, layer, plan, request)
            around = (plan.centres, plan.radius) if isinstance(plan, lookup.CentresPlan) else None
            found = Found("lookup", plan, layer, prove("arrays", request.progress), cost, prove=prove, around=around)
        bound = found.certificate.bound
        if bound is None:
            found = replace(found, observed=search_worst(request, found))
            bound = found.observed.error if found.observed else math.inf
        rough = literal_failure(found.layer, found.certificate, request) if bound <= request.error else None
        if rough is not None:
            raise Refused(f"a lookup of {found.cost.tokens:,} tokens does not meet `literal`: {rough}.")
        if bound <= request.error and found.pending is not None:
            return _confirmed(found, request)
        if found.pending is not None:
            found.pending.discard()
        if bound <= request.error:
            found, doubt = agreed(found, request) if _in_doubt(found, request) else (found, None)
            if doubt is None:
                return found
            told = f"a lookup of {found.cost.tokens:,} tokens is proved to {bound:.4g}"
            doubts.append(f"{told}, and the checker does not confirm it: {doubt}")
        elif closest is None or bound < (closest.certificate.bound or math.inf):
            closest = found
    if doubts:
        raise Refused(doubts[-1], nearest_error=(1.0 + DOUBTED) * request.error)
    if closest is None and skipped[1]:
        told = f"{skipped[1]:,} cells round so many logits in {request.dtype} that no bound is below {skipped[0]:.4g}"
        raise Refused(f"`error` (={request.error:g}) cannot be proved: {told}; use a larger error.", nearest_error=skipped[0])
    raise Refused(_why_not(request, closest), nearest_error=None if closest is None else closest.certificate.bound)


def _in_doubt(found: Found, request: Request) -> bool:
    """Whether the checker may find an error above the one asked for: it counts rounding in its own, coarser way."""
    bound, parts = found.certificate.bound, found.certificate.parts
    return bound is not None and bound + COARSER * parts["rounding"] > request.error


def proposals(request: Request) -> Iterator[Plan]:
    """Lookup plans of growing cost, by what is known about the target."""
    target, evidence, error = request.target, request.evidence, request.error
    if request.centres is not None:
        yield from lookup.covering_plans(request.centres, euclidean_constant(evidence), error * BELOW)
        return
    if request.partition is not None:
        yield partition_plan(request.partition, target, evidence, error, request.progress)
        return
    if math.isfinite(request.norm):
        yield from integral.plans(target, evidence, error * BELOW, request.norm)
        return
    if lookup.provable(evidence):
        yield from lookup.sup_norm_proposals(target.box, evidence, error * BELOW)
    elif target.expression is not None:
        if not target.expression.is_continuous:
            raise Refused(
                f"the sup norm cannot be proved: {evidence.why_not} A layer is continuous and cannot follow a jump: exclude "
                "points near jumps with `gap`, or ask for an L_p error with `norm=1` (--norm 1).",
                remedy={"gap": 1e-6},
            )
        yield from lookup.enclosed_proposals(target, evidence, error * BELOW)
    else:
        if request.require == "proved":
            raise Refused(
                "a callable without facts cannot be proved; declare `lipschitz=` or `modulus=`, give an expression, "
                "or leave out `require`."
            )
        yield from lookup.sup_norm_proposals(target.box, _sampled_lipschitz(target, error, request.seed), error)


def _sampled_lipschitz(target: Target, error: float, seed: int) -> Evidence:
    """Largest slopes per axis over sampled pairs, enough to choose a grid and never to prove anything.

    Refused where the target jumps by more than twice the error.
    """
    rng = np.random.default_rng(seed)
    box = target.box
    x = box.sample(SAMPLES, rng)
    constants = np.zeros(box.dimension)
    for axis in range(box.dimension):
        for step in (1e-1, 1e-2, 1e-4):
            y = x.copy()
            y[:, axis] = np.where(x[:, axis] + step * box.width[axis] <= box.high[axis], 1, -1) * step * box.width[axis]
            y[:, axis] += x[:, axis]
            difference = np.abs(target.values(x) - target.values(y)).max(axis=(1, 2))
            gap = np.abs(y[:, axis] - x[:, axis])
            constants[axis] = max(constants[axis], float((difference / gap).max()))
            worst = int(difference.argmax())
            _refuse_jump(target, x[worst], y[worst], error)
    return Evidence(lipschitz=constants * SAFETY, origin={"lipschitz": "sampled"})


def _refuse_jump(target: Target, a: Array, b: Array, error: float) -> None:
    """Bisect towards the larger change; a change that survives to neighbouring numbers is a jump."""
    for _ in range(50):
        middle = a / 2.0 + b / 2.0
        f = target.values(np.stack([a, middle, b]))
        left, right = np.abs(f[1] - f[0]).max(), np.abs(f[2] - f[1]).max()
        a, b = (a, middle) if left >= right else (middle, b)
        if max(left, right) <= 2.0 * error:
            return
    jump = float(np.abs(target.values(a[None]) - target.values(b[None])).max())
    if jump > 2.0 * error:
        at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(target.box.names, a, strict=True))
        raise Refused(
            f"the target seems to jump by {jump:.3g} near {at}. A layer is continuous, so `error` (={error:g}) cannot be met "
            "in the sup norm; ask for an L_p error, or declare `lipschitz=` or `modulus=` if there is no jump.",
            remedy={"norm": 1},
        )


def _streamed(plan: lookup.GridPlan, request: Request, cost: Cost) -> Found:
    target, evidence = request.target, request.evidence
    layer, seen, pending = stream_grid(plan, target, request.dtype, request.out, request.executor, request.progress)
    try:
        uncertainty = seen.uncertainty if target.expression is not None else evidence.range_bound(np.asarray(seen.blur))
        prove = partial(certify_grid, layer, target, evidence, plan.argument, plan.margin, deviation=(uncertainty, seen.storage))
        return Found("lookup", plan, layer, prove("arrays"), cost, prove=prove, pending=pending)
    except BaseException:
        pending.discard()
        raise


def _confirmed(found: Found, request: Request) -> Found:
    """A streamed lookup that the checker proves again, value by value from the file that is being written.

    Other layers are proved again when they are saved; this one is saved already, but for its record and its name.
    """
    assert found.pending is not None
    try:
        refusal = unconfirmed(found, request)
        if refusal is not None:
            raise Refused(f"the independent checker does not confirm this layer, so it is not saved: {refusal}")
    except BaseException:
        found.pending.discard()
        raise
    return found


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
        return f"{what}; {request.dtype} rounds too much: use float64 or a larger error."
    if request.partition is not None:
        return f"{what}; use a finer MaxAffine as `keys`, or a larger error."
    return f"{what}; ask for a larger error."
