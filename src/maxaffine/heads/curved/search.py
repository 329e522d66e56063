"""Kinks along a curve: a maximum of two convex polygons where one direction is curved, else two branches and a polygon."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.curved.maximum_plan import CurvedMaximumPlan, CurvedMaximumPlanner, build_curved_maximum
from maxaffine.heads.curved.maximum_prove import certify_curved_maximum
from maxaffine.heads.curved.plan import CurvedPlan, build_curved, curved_plan
from maxaffine.heads.curved.prove import certify_curved
from maxaffine.heads.fitting import from_unit_box
from maxaffine.heads.found import BELOW
from maxaffine.heads.head import Example, Head
from maxaffine.heads.level.plan import curve_of
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.normalisers import biased
from maxaffine.request import Request
from maxaffine.structure.branches import extremum
from maxaffine.structure.curved_maxima import curved_switch
from maxaffine.structure.switches import affine_form, forced, switches

MOST = 4000
AIMS = {True: (1.0, 0.95, 0.88, 0.75), False: (1.0, 0.8)}  # of the error, for soft edges and for hard ones
FINE = 1 << 15  # points of the curve
MAXIMUM = (BELOW, 0.97, 0.9)  # of the error, for maxima


class Curved(Head[CurvedPlan | CurvedMaximumPlan]):
    """A maximum where the kink lies along one direction and an affine part, else in two variables a convex curve."""

    name = "curved"
    summary = "a smooth head, and a convex polygon of single tokens for the kink"
    serves = "functions of a few variables with one kink along a convex curve or the graph of a function"
    examples = (Example("max(x**2 + y**2, .5)", {"x": (-1, 1), "y": (-1, 1)}, 3e-2),)

    def why_not(self, request: Request) -> str | None:
        """Expressions of one output, in the sup norm."""
        target = request.target
        if target.expression is not None and target.d_out * target.n_out == 1 and math.isinf(request.norm):
            return None
        return "only for expressions with one output, in the sup norm"

    def propose(self, search: Search) -> Iterator[CurvedPlan | CurvedMaximumPlan]:
        """Polygons of more and more edges."""
        request, target = search.request, search.request.target
        assert target.expression is not None
        switch = curved_switch(target.expression, target.box)
        if switch is not None:
            planner = CurvedMaximumPlanner(switch, target.box, request.dtype)
            for aim in MAXIMUM:
                plan = planner.plan(aim * request.error, search.most(MOST))
                if plan is None:
                    search.note("a side of the maximum is not smooth enough, or needs too many tokens")
                    break
                yield plan
        yield from _convex(search, target.expression)

    def build(self, plan: CurvedPlan | CurvedMaximumPlan, request: Request) -> GroupedLayer:
        """Groups with biases between them."""
        target, dtype = request.target, request.dtype
        bare = build_curved(plan, target, dtype) if isinstance(plan, CurvedPlan) else build_curved_maximum(plan, target, dtype)
        return biased(bare, request.error)

    def sharpened(self, plan: CurvedPlan | CurvedMaximumPlan, r: float) -> CurvedPlan | CurvedMaximumPlan:
        """The sharpness of a maximum is r times as large."""
        return replace(plan, sharpness=plan.sharpness * r) if isinstance(plan, CurvedMaximumPlan) else plan

    def prove(self, layer: GroupedLayer, plan: CurvedPlan | CurvedMaximumPlan, request: Request, runtime: str) -> Certificate:
        """Along the curve, or by the maximum."""
        if isinstance(plan, CurvedMaximumPlan):
            return certify_curved_maximum(layer, plan, request.error, runtime)
        return certify_curved(layer, request.target, plan.place, plan.choice, request.error * BELOW, runtime)


def _convex(search: Search, expression: Expression) -> Iterator[CurvedPlan]:
    """A smooth head, an inner cluster and edges; for expressions of two variables with one kink."""
    request, box = search.request, search.request.target.box
    if box.dimension != 2:
        raise Refused("only for expressions of two variables")
    found = [one for one in switches(expression) if one.chosen]  # poles and roots are the branches' own business
    if len(found) != 1 or found[0].kind != "kink" or not expression.is_continuous or affine_form(found[0].argument) is not None:
        raise Refused("not a function with exactly one kink along a curve")
    (switch,) = found
    most, within = search.most(MOST), from_unit_box(box)
    soft = extremum(expression, switch.place, box) is not None
    for choice in (-1, 1):
        curve = curve_of(lambda z, side=choice: -side * switch.argument.evaluate(within(z))[:, 0], FINE)  # type: ignore[misc]
        if curve is None:
            continue
        branches = [forced(expression, {switch.place: side}) for side in (-choice, choice)]

        def both(z: Array, branches: list[Expression] = branches) -> Array:
            return np.concatenate([branch.evaluate(within(z)) for branch in branches], axis=1)

        size = float(np.abs(both(np.random.default_rng(request.seed).uniform(-1, 1, (2000, 2)))).max()) or 1.0
        if not math.isfinite(size):
            search.note("a branch of the target is not defined on the whole box")
            continue
        for aim in AIMS[soft]:
            plan = curved_plan(both, curve, aim * request.error, size, request.dtype, most, switch.place, choice, soft)
            if plan is None:
                search.note(f"a branch is not smooth enough, or the curve needs more than {most:,} tokens")
                break
            yield plan
    if not search.reasons:
        search.note("neither side of the kink's curve is convex")
