"""Spectral heads: plans of growing size until one is proved."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.core.budget import Cost, afford
from maxaffine.core.errors import Refused
from maxaffine.heads.found import ROOM, Found, grouped_cost, largest_part, look, too_rough, unconfirmed
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup.prove import NO_FACTS
from maxaffine.heads.spectral.build import build_spectral, wanted_bonus, with_bonus
from maxaffine.heads.spectral.plan import SpectralPlan, spectral_plans
from maxaffine.heads.spectral.prove import certify_spectral, leak_factor
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.ehlich_zeller import TooManyPoints
from maxaffine.request import Request
from maxaffine.target.evidence import Evidence


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """Spectral plans of growing size until one is proved; what stood in the way is added to `reasons`.

    A callable about which nothing provable is declared gets the first plan whose observed error fits.
    """
    target, error, evidence = request.target, request.error, request.evidence
    if math.isfinite(request.norm):
        reasons.append("they are proved in the sup norm")
        return None
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
        layer = _build(plan, request)
        cost = grouped_cost(layer)
        afford(cost, request.max_bytes, f"the spectral layer for error {error:g}")
        if provable:
            try:
                found = _proved(plan, layer, cost, request, reasons)
            except TooManyPoints as refusal:
                reasons.append(f"{plan.cells:,} tokens: {str(refusal).rstrip('.')}")
                if not observable:
                    break
                found = None
            if found is not None:
                return found
        if observable and seen is None:
            nothing = Certificate.nothing(math.inf, reasons[-1] if provable else NO_FACTS, request.dtype)
            found = Found("spectral", plan, layer, nothing, cost)
            observed = look(request, found)
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


def _build(plan: SpectralPlan, request: Request) -> GroupedLayer:
    """The layer, with a bonus between groups: the leak is a ten-thousandth of the error, in float64 as small as rounding."""
    layer = build_spectral(plan, request.target, request.dtype)
    if len(layer.groups) == 1:
        return layer
    largest = sum(float(np.abs(made.values).max()) for made in plan.groups if made.values is not None)
    leak = 1e-4 * request.error
    if request.dtype == "float64":
        leak = min(leak, 1e-15 * max(largest, 1.0))
    return with_bonus(layer, wanted_bonus(leak_factor(layer.products()), max(largest, 1.0), leak))


def _proved(plan: SpectralPlan, layer: GroupedLayer, cost: Cost, request: Request, reasons: list[str]) -> Found | None:
    """The layer with its certificate, where the proof fits; else what it lacks is added to `reasons`."""
    evidence = request.evidence if request.target.expression is None else None
    prove = partial(_certify, layer, plan, request.error, evidence)
    try:
        certificate = prove("arrays")
    except TooManyPoints:
        raise
    except Refused as refusal:
        reasons.append(f"{plan.cells:,} tokens: {str(refusal).rstrip('.')}")
        return None
    assert certificate.bound is not None
    if certificate.bound <= request.error * ROOM:
        found = Found("spectral", plan, layer, certificate, cost, prove=prove)
        rough = too_rough(layer, certificate, request)
        if rough is not None:
            reasons.append(f"{plan.cells:,} tokens: {rough}")
            return None
        # Asked where rounding matters, which the checker counts in its own way.
        confirmed = unconfirmed(found, request) if certificate.parts["rounding"] >= 0.01 * request.error else None
        if confirmed is None:
            return found
        reasons.append(f"{plan.cells:,} tokens give {certificate.bound:.3g}, and the checker does not confirm it: {confirmed}")
        return None
    reasons.append(f"{plan.cells:,} tokens give {certificate.bound:.3g}, of which {largest_part(certificate)}")
    return None


def _certify(
    layer: GroupedLayer, plan: SpectralPlan, error: float, evidence: Evidence | None, runtime: str
) -> Certificate:
    return certify_spectral(layer, plan, error, runtime, evidence)
