"""Targets of two values, one of them on a convex set: a polygon of single tokens, proved in L_p."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.fitting import from_unit_box
from maxaffine.heads.found import BELOW, Found, search_worst
from maxaffine.heads.head import Example, Head
from maxaffine.heads.level.plan import Curve, LevelPlan, build_level, curve_of, level_plan
from maxaffine.heads.level.prove import certify_level_sets
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.structure.switches import forced, switches

AIMS = (0.83, 0.72, 0.55)  # of the error, for the hard part; the boxes of the proof need the rest
MOST = 600
ACROSS = 64  # points across the curve
SHARP = 0.01  # a relative standard error that is good enough; random points hardly meet the thin errors of many edges


class Level(Head[LevelPlan]):
    """A polygon for a target of two values."""

    name = "level"
    summary = "one token inside a polygon, one behind every edge"
    serves = "in L_p, functions of two values, one of them on a convex set"
    examples = (Example("where(x**2 + y**2 < .5, 1, 0)", {"x": (-1, 1), "y": (-1, 1)}, 0.2, {"norm": 1.0}),)

    def why_not(self, request: Request) -> str | None:
        """Expressions of two variables, in L_p."""
        target = request.target
        if math.isfinite(request.norm) and target.expression is not None and target.box.dimension == 2 and target.n_out == 1:
            return None
        return "only for expressions of two variables, in L_p"

    def propose(self, search: Search) -> Iterator[LevelPlan]:
        """Polygons of more and more edges."""
        request, most = search.request, search.most(MOST)
        assert request.target.expression is not None
        seen = _two_values(request, request.target.expression)
        if seen is None:
            raise Refused("not one value on a convex set and another outside it")
        volume = float(np.prod(request.target.box.width / 2.0))
        for aim in AIMS:
            plan = level_plan(*seen, request.norm, aim * request.error, most, volume)
            if plan is None:
                raise Refused(f"no polygon of at most {most:,} edges fits")
            yield plan

    def build(self, plan: LevelPlan, request: Request) -> GroupedLayer:
        """One group of single tokens."""
        return build_level(plan, request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: LevelPlan, request: Request, runtime: str) -> Certificate:
        """Box by box."""
        return certify_level_sets(layer, request.target, request.norm, request.error * BELOW, runtime)

    def sharpened(self, plan: LevelPlan, r: float) -> LevelPlan:
        """The polygon's edges are r times as sharp."""
        return replace(plan, sharpness=plan.sharpness * r)

    def observe(self, request: Request, found: Found) -> Observed:
        """By random points, or across the curve where these hardly meet what polygon and set differ by."""
        observed = search_worst(request, found)
        if (observed.standard_error or 0.0) <= SHARP * observed.error:
            return observed
        assert isinstance(found.plan, LevelPlan) and isinstance(found.layer, GroupedLayer)
        return _across(found.layer, request, found.plan.curve, found.plan.strip)


def _across(layer: GroupedLayer, request: Request, curve: Curve, width: float) -> Observed:
    """The L_p error on points across the curve, in a strip that holds what lies between set and polygon of many edges."""
    box, p = request.target.box, request.norm
    steps = width * ((2.0 * np.arange(ACROSS) + 1.0) / ACROSS - 1.0)
    z = curve.middles[:, None] + steps[:, None] * curve.normals[:, None]
    inside = np.all(np.abs(z) <= 1.0, axis=2).ravel()
    x = from_unit_box(box)(z.reshape(-1, 2))
    away = np.abs(chooser.evaluate(layer, x).astype(np.float64) - request.target.values(x))[:, :, 0] * inside[:, None]
    share = np.repeat(curve.lengths, ACROSS)[:, None] * 2.0 * width / ACROSS * float(np.prod(box.width / 2.0))
    error = float((away**p * share).sum(axis=0).max()) ** (1.0 / p)
    at = x[int(away.max(axis=1).argmax())]
    return Observed(error, tuple(float(v) for v in at), len(x), request.seed, p)


def _two_values(request: Request, expression: Expression) -> tuple[Curve, Array, Array] | None:
    """The curve of the convex side, the value on it and the value outside, where the target has one jump between constants."""
    jumps = [switch for switch in switches(expression) if switch.kind == "jump" and switch.chosen]
    if len(jumps) != 1 or len(switches(expression)) != 1 or jumps[0].op == "floor":
        return None
    (jump,) = jumps
    values = []
    points = request.target.box.sample(5, np.random.default_rng(3))
    for choice in (-1, 1):
        branch = forced(expression, {jump.place: choice})
        if branch.used:
            return None
        values.append(branch.evaluate(points)[0])
    if np.array_equal(*values):  # as of a target that says something else where an equation holds: no side differs
        return None
    within = from_unit_box(request.target.box)

    def side(sign: float, z: Array) -> Array:
        return np.asarray(sign * jump.argument.evaluate(within(z))[:, 0])

    for sign, (inside, outside) in ((1.0, (values[0], values[1])), (-1.0, (values[1], values[0]))):
        curve = curve_of(partial(side, sign))
        if curve is not None:
            return curve, np.asarray(inside), np.asarray(outside)
    return None
