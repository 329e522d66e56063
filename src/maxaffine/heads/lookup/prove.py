"""Prove a stored layer by the theorem that its plan names."""

import math

from maxaffine.core.progress import Progress, silent
from maxaffine.heads.found import NO_FACTS
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup import plan_integral as integral
from maxaffine.heads.lookup.prove_grid import certify_grid
from maxaffine.heads.lookup.prove_integral import certify_integral
from maxaffine.heads.lookup.prove_listed import certify_centres, certify_partition
from maxaffine.layer.layer import Layer
from maxaffine.proofs.certificate import Certificate
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

Plan = lookup.GridPlan | lookup.CentresPlan | lookup.PartitionPlan


def certify(
    plan: Plan,
    layer: Layer,
    target: Target,
    evidence: Evidence,
    norm: float,
    runtime: str = "arrays",
    progress: Progress = silent,
) -> Certificate:
    """The certificate of a stored layer; kind "none" where nothing is known about a callable."""
    if isinstance(plan, lookup.CentresPlan):
        return certify_centres(layer, target, evidence, plan.radius, runtime)
    if isinstance(plan, lookup.PartitionPlan):
        return certify_partition(layer, target, evidence, plan.margin, runtime, progress)
    if math.isfinite(norm):
        if target.expression is None and not integral.provable(evidence, target.box.dimension):
            return Certificate.nothing(norm, NO_FACTS, layer.dtype)
        return certify_integral(layer, target, evidence, norm, runtime, progress)
    if plan.argument not in ("G4", "C") and not lookup.provable(evidence):
        return Certificate.nothing(norm, NO_FACTS, layer.dtype)
    return certify_grid(layer, target, evidence, plan.argument, plan.margin, runtime)
