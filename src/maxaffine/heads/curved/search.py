"""Kinks along a curve: a maximum of two convex polygons where one direction is curved, else two branches and a polygon."""

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maxaffine.heads.curved.build import build_curved
from maxaffine.heads.curved.maximum_build import build_curved_maximum
from maxaffine.heads.curved.maximum_plan import CurvedMaximumPlan, CurvedMaximumPlanner
from maxaffine.heads.curved.maximum_prove import certify_curved_maximum
from maxaffine.heads.curved.plan import CurvedPlan, curved_plan
from maxaffine.heads.curved.prove import certify_curved
from maxaffine.heads.found import ROOM, Found, proved
from maxaffine.heads.level.plan import curve_of
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.normalisers import biased
from maxaffine.request import Request
from maxaffine.structure.branches import extremum
from maxaffine.structure.curved_maxima import curved_switch
from maxaffine.structure.switches import affine_form, forced, switches

Array = NDArray[np.float64]

MOST = 4000
AIMS = {True: (1.0, 0.95, 0.88, 0.75), False: (1.0, 0.8)}  # of the error, for soft edges and for hard ones
FINE = 1 << 15  # points of the curve
MAXIMUM = (ROOM, 0.97, 0.9)  # of the error, for maxima


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """For expressions with one kink: along one direction and an affine part a maximum, else in two variables a convex curve."""
    target = request.target
    if target.expression is None or target.d_out * target.n_out != 1 or math.isfinite(request.norm):
        reasons.append("curved kinks are for expressions of one output in the sup norm")
        return None
    switch = curved_switch(target.expression, target.box)
    if switch is None:
        return _convex(request, reasons, fewest)
    with np.errstate(all="ignore"):
        planner = CurvedMaximumPlanner(switch, target.box, request.dtype)
        for aim in MAXIMUM:
            plan = planner.plan(aim * request.error, MOST if fewest is None else min(MOST, fewest - 1))
            if plan is None:
                reasons.append("a smooth part is out of reach, or both sides of the maximum need more tokens than there may be")
                break
            layer = biased(build_curved_maximum(plan, target, request.dtype), request.error)
            made = proved("curved", plan, layer, partial(_maximum, plan, layer, request), request, reasons)
            if made is not None:
                return made
    return _convex(request, reasons, fewest)


def _convex(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """A smooth head, an inner cluster and edges; for expressions of two variables with one kink."""
    target, box = request.target, request.target.box
    expression = target.expression
    assert expression is not None
    if box.dimension != 2:
        reasons.append("curves are followed for expressions of two variables")
        return None
    found = [one for one in switches(expression) if one.chosen]  # poles and roots are the branches' own business
    if len(found) != 1 or found[0].kind != "kink" or not expression.is_continuous or affine_form(found[0].argument) is not None:
        reasons.append("the target has not one kink along a curve")
        return None
    (switch,) = found
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0
    most = MOST if fewest is None else min(MOST, fewest - 1)

    def within(z: Array) -> Array:
        return np.asarray(np.clip(middle + half * z, box.low, box.high))

    soft = extremum(expression, switch.place, box) is not None
    for choice in (-1, 1):
        curve = curve_of(lambda z, side=choice: -side * switch.argument.evaluate(within(z))[:, 0], FINE)  # type: ignore[misc]
        if curve is None:
            continue
        branches = [forced(expression, {switch.place: side}) for side in (-choice, choice)]

        def both(z: Array, branches: list = branches) -> Array:  # type: ignore[type-arg]
            return np.concatenate([branch.evaluate(within(z)) for branch in branches], axis=1)

        size = float(np.abs(both(np.random.default_rng(request.seed).uniform(-1, 1, (2000, 2)))).max()) or 1.0
        if not math.isfinite(size):
            reasons.append("a branch of the target is not defined on the whole box")
            continue
        for aim in AIMS[soft]:
            plan = curved_plan(both, curve, aim * request.error, size, request.dtype, most, switch.place, choice, soft)
            if plan is None:
                reasons.append(f"a branch is out of reach, or the curve needs more than {most:,} tokens")
                break
            layer = biased(build_curved(plan, target, request.dtype), request.error)
            made = proved("curved", plan, layer, partial(_certify, plan, layer, request), request, reasons)
            if made is not None:
                return made
    if not reasons:
        reasons.append("neither side of the kink's curve is convex")
    return None


def _certify(plan: CurvedPlan, layer: GroupedLayer, request: Request, runtime: str) -> Certificate:
    return certify_curved(layer, request.target, plan.place, plan.choice, request.error * ROOM, runtime)


def _maximum(plan: CurvedMaximumPlan, layer: GroupedLayer, request: Request, runtime: str) -> Certificate:
    return certify_curved_maximum(layer, plan, request.error, runtime)
