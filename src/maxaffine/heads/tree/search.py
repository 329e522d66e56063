"""Trees of clusters: cells as large as their pieces allow, proved piece by piece."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.budget import afford
from maxaffine.heads.found import Found, grouped_cost, look, proved
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup.prove import NO_FACTS
from maxaffine.heads.tree.build import build_tree
from maxaffine.heads.tree.fit import Function
from maxaffine.heads.tree.plan import TreePlan, tree_plans
from maxaffine.heads.tree.prove import certify_tree
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request
from maxaffine.target.target import Target

Array = NDArray[np.float64]

MOST = 12_000  # tokens
# of the error, for the pieces on points; what is proved is larger by Ehlich and Zeller's constants
AIMS = {1: (0.92, 0.8, 0.6), 2: (0.86, 0.75, 0.6), 3: (0.74, 0.66, 0.55)}


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The smallest tree that is proved; for a callable, that holds where it is looked at."""
    target, box = request.target, request.target.box
    if box.dimension > 3 or target.n_out != 1 or math.isfinite(request.norm):
        reasons.append("trees are for up to three variables, one output token and the sup norm")
        return None
    provable = target.expression is not None
    if provable and target.expression is not None and not target.expression.is_continuous:
        reasons.append("trees do not follow jumps")
        return None
    if not provable and (request.require == "proved" or lookup.provable(request.evidence)):
        return None
    most = MOST if fewest is None else min(MOST, fewest - 1)
    for aim in AIMS[box.dimension]:
        f, scale, size = _on_unit_box(target, request.seed)
        plan = next(tree_plans(f, box.dimension, aim * request.error, scale, size, request.dtype, most), None)
        if plan is None:
            reasons.append(f"no tree of at most {most:,} tokens fits the target on points")
            return None
        layer = build_tree(plan, target, request.dtype)
        if provable:
            found = proved("tree", plan, layer, partial(_certify, layer, request), request, reasons)
        else:
            found = _seen(plan, layer, request, reasons)
        if found is not None:
            return found
    return None


def _on_unit_box(target: Target, seed: int) -> tuple[Function, float, float]:
    """f on z of [-1, 1]^D, a scale for its ridge and a size for its leak, from samples."""
    box = target.box
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0

    def f(z: Array) -> Array:
        return target.values(np.clip(middle + half * z, box.low, box.high)).reshape(len(z), -1)

    seen = f(np.random.default_rng(seed).uniform(-1.0, 1.0, size=(2000, box.dimension)))
    size = float(np.abs(seen).max()) or 1.0
    return f, size, size


def _certify(layer: GroupedLayer, request: Request, runtime: str) -> Certificate:
    return certify_tree(layer, request.target, request.error, runtime)


def _seen(plan: TreePlan, layer: GroupedLayer, request: Request, reasons: list[str]) -> Found | None:
    nothing = Certificate.nothing(math.inf, NO_FACTS, request.dtype)
    cost = grouped_cost(layer)
    afford(cost, request.max_bytes, f"the tree for error {request.error:g}")
    found = Found("tree", plan, layer, nothing, cost)
    observed = look(request, found)
    if observed.error <= request.error:
        return replace(found, observed=observed)
    reasons.append(f"a tree of {plan.cells:,} tokens leaves an observed error of {observed.error:.3g}")
    return None
