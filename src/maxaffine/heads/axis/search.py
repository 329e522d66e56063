"""Clusters along one axis or one direction: kinks, jumps, singular ends, poles and local detail in few tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.core import closest
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.heads.axis.certificate import Asked, certify_axis
from maxaffine.heads.axis.plan import SOFTER, Aim, AxisPlan, Problem, Soft, build_axis, expression_problem, make_plan
from maxaffine.heads.axis.seen_breaks import callable_problem
from maxaffine.heads.breaks.planes import seen_jump, worse_of
from maxaffine.heads.found import BELOW, NO_FACTS, Found, search_worst
from maxaffine.heads.head import Example, Head
from maxaffine.heads.lookup.plan import provable
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.query import LEANS
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.known_error import worst_known
from maxaffine.proofs.observe import Observed, pointwise
from maxaffine.proofs.observe_integral import observe_along
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.structure.one_direction import OneDirection, one_direction

MOST = 1500  # tokens at which a search gives up
SHARES = (0.93, 0.87, 0.75, 0.55)  # of the error, for the heads
KINKS = {"float64": 0.05, "float32": 0.2, "bfloat16": 0.3}  # of the error, for all kinks
HOLES = 0.25  # of the error in L_p, for the neighbourhoods of jumps


class Axis(Head[AxisPlan]):
    """Cells along one direction; for a callable of one variable they are observed only."""

    name = "axis"
    summary = "cells along one direction, each a small cluster of keys"
    serves = "functions of one variable or of one direction w . x, plus an affine function"
    examples = (Example("abs(sin(7*x))", {"x": (-1, 1)}, 1e-4),)

    def why_not(self, request: Request) -> str | None:
        """One output; of callables those of one variable."""
        target = request.target
        if target.d_out != 1 or target.n_out != 1:
            return "only for targets with one output"
        if target.expression is None and (target.box.dimension != 1 or request.require == "proved"):
            return "callables only in one variable, and without a proof"
        return None

    def propose(self, search: Search) -> Iterator[AxisPlan]:
        """Plans with less and less of the error for the heads; for a literal softmax with softer and softer kinks."""
        request, most = search.request, search.most(MOST)
        found, problem = _problem(request)
        jumps = sum(link.kind == "jump" for link in problem.links)
        asked = Asked(request.error, request.norm, _gap(request, problem, jumps))
        for share in SHARES[:1] if request.literal and found is not None else SHARES:
            plan = _plan(request, problem, share, asked, most)
            if plan is None:
                raise Refused(f"more than {most:,} tokens are needed")
            yield replace(plan, found=found)
        for soft in SOFTER if request.literal and found is not None else ():
            needed = soft.cells(problem, request.error, request.dtype)
            if needed > most:
                search.note(f"kinks soft enough for the literal softmax need about {needed:.2g} tokens")
                continue
            plan = _plan(request, problem, 0.8 - soft.kinks, asked, most, soft)
            if plan is not None:
                yield replace(plan, found=found)

    def build(self, plan: AxisPlan, request: Request) -> GroupedLayer:
        """One group of clusters."""
        return build_axis(plan, request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: AxisPlan, request: Request, runtime: str) -> Certificate:
        """Cell by cell along the direction."""
        assert plan.found is not None
        return certify_axis(layer, plan.found, Asked(request.error, request.norm, plan.gap), runtime)

    def why_unproved(self, plan: AxisPlan, request: Request) -> str:
        """Callables, outside the gap about their jumps."""
        apart = math.isinf(request.norm) and plan.gap is not None
        return f"{NO_FACTS}, at least {plan.gap:g} from its jumps" if apart else NO_FACTS

    def observe(self, request: Request, found: Found) -> Observed:
        """The largest error: on the axis next to every hand-over and end, and by the general search where there is no gap."""
        plan = found.plan
        assert isinstance(plan, AxisPlan) and isinstance(found.layer, GroupedLayer)
        x, t = _points(plan, found.layer)
        evaluate = partial(chooser.evaluate, found.layer)
        if math.isfinite(request.norm):
            bound = found.certificate.bound
            return observe_along(evaluate, request.target, x[np.argsort(t)], plan.row, request.norm, request.seed, bound)
        error = pointwise(evaluate, request.target, x)
        breaks = [c.high for c in plan.parts[:-1]]
        if plan.gap is not None:
            gap = plan.gap * abs(_scale(plan))
            away = np.min(np.abs(t[:, None] - np.array([*breaks, np.inf])), axis=1)
            ends = np.minimum(t - t.min(), t.max() - t)
            apart = (away >= gap) & (ends >= gap)
            x, error = x[apart], error[apart]
        worst, at = worst_known(evaluate, request.target, x, error)
        seen = Observed(worst, tuple(map(float, at)), len(x), request.seed)
        if plan.gap is None and request.target.expression is not None:
            seen = worse_of(seen, search_worst(request, found))
        return seen


def _problem(request: Request) -> tuple[OneDirection | None, Problem]:
    """The target on its axis; of an expression also the direction that was found in it."""
    target, needs_gap = request.target, math.isinf(request.norm) and request.gap is None
    if target.expression is None:
        problem = callable_problem(target, request.error, request.breaks)
        if not any(link.kind == "jump" for link in problem.links) or not needs_gap or provable(request.evidence):
            return None, problem
        raise seen_jump(f"at {_places(problem)}", _largest_jump(problem), request.error, "clusters")
    found = one_direction(target.expression)
    if found is None:
        raise Refused("not a function of one direction plus an affine function")
    if any(found.slopes[: request.target.query]):
        raise Refused(LEANS)
    problem = expression_problem(found, target.box.low, target.box.high, request.error)
    if needs_gap and any(link.kind == "jump" for link in problem.links):
        raise Refused(
            f"the target jumps at {_places(problem)} and a layer is continuous; exclude points near jumps with `gap=1e-6` "
            "(--gap 1e-6), or ask for an L_p error with `norm=1` (--norm 1)"
        )
    return found, problem


def _scale(axis: Problem | AxisPlan) -> float:
    """z in units of w . x."""
    lead = int(np.abs(axis.row).argmax())
    return float(axis.row[lead]) / float(axis.direction[lead])


def _places(problem: Problem) -> str:
    """Where the target jumps, in w . x."""
    middle = float(sum(float(c) * float(x) for c, x in zip(problem.direction, problem.centre, strict=True)))
    scale = _scale(problem)
    width = (problem.high - problem.low) / abs(scale)
    found = [middle + link.at / scale for link in problem.links if link.kind == "jump"]
    places = [f"{0.0 if abs(place) < 1e-15 * width else place:.6g}" for place in found]
    return ", ".join(places[:3]) + (" and more places" if len(places) > 3 else "")


def _gap(request: Request, problem: Problem, jumps: int) -> float | None:
    """Half the width, in w . x, of what is left out about jumps; in L_p of what they may cost."""
    if not jumps:
        return None
    if math.isinf(request.norm):
        return None if request.gap is None else float(request.gap * np.linalg.norm([float(c) for c in problem.direction]))
    z = np.linspace(problem.low, problem.high, 2001)
    size = 2.2 * float(np.nanmax(np.abs(problem.f(z)))) + 1e-300
    lead = int(np.abs(problem.row).argmax())
    box = request.target.box
    others = float(np.prod(box.width)) / float(box.width[lead])
    measure = (HOLES * request.error / size) ** request.norm / jumps / others
    return float(measure / 2.0 * abs(float(problem.direction[lead])))


def _plan(request: Request, problem: Problem, share: float, asked: Asked, most: int, soft: Soft | None = None) -> AxisPlan | None:
    error = request.error
    if math.isfinite(request.norm):
        error = error * (1.0 - HOLES) / float(np.prod(request.target.box.width)) ** (1.0 / request.norm)
    kinks = KINKS[request.dtype] if soft is None else soft.kinks
    curved = any(link.kind == "kink" for link in problem.links)
    fit = error * BELOW * min(share + 0.04 * (not curved), 1.0 - (kinks + 0.02) * curved)
    gap = 0.0 if asked.gap is None else asked.gap * abs(_scale(problem))
    blur = 0.0 if soft is None else soft.blur(problem, error, request.dtype)
    aim, affine = Aim(fit, kinks * error, error, 0.9 * gap), not any(problem.direction[: request.target.query])
    with closest.fits_of(True):
        return make_plan(problem, aim, request.dtype, most, asked.gap, affine, blur=blur)


def _points(plan: AxisPlan, layer: GroupedLayer) -> tuple[Array, Array]:
    """Points x along the direction through the middle of the box, dense and next to hand-overs; and their z."""
    w = np.array([float(c) for c in plan.direction])
    middle, half = (layer.low + layer.high) / 2.0, (layer.high - layer.low) / 2.0
    s = np.linspace(-1.0, 1.0, 6001)
    start, run = float(plan.row @ (middle - layer.centre)), float(np.abs(plan.row) @ half)
    places = [e for c in plan.parts for e in (c.low, c.high)]
    steps = np.concatenate([10.0 ** np.linspace(-17, -1, 49), [0.0]])
    near = np.concatenate([[p - steps, p + steps] for p in np.unique(places)]).ravel()
    inside = np.concatenate([c.low + (c.high - c.low) * np.linspace(0.0, 1.0, 41) for c in plan.parts])
    s = np.unique(np.clip(np.concatenate([s, (near - start) / run, (inside - start) / run]), -1.0, 1.0))
    x = np.clip(middle + s[:, None] * (np.sign(w) * half), layer.low, layer.high)
    if layer.dimension == 1:  # next to the centre s has too few digits
        exact = layer.centre[0] + np.concatenate([near, inside]) / plan.row[0]
        x = np.unique(np.clip(np.concatenate([x[:, 0], exact]), layer.low[0], layer.high[0]))[:, None]
    return x, (x - layer.centre) @ plan.row


def _largest_jump(problem: Problem) -> float:
    """The largest jump that was seen."""
    off = 1e-9 * (problem.high - problem.low) * np.array([-1.0, 1.0])
    return max(abs(float(np.diff(problem.f(link.at + off))[0])) for link in problem.links if link.kind == "jump")
