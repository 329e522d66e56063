"""Targets of two values, one of them on a convex set: a polygon of single tokens, proved in L_p."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maxaffine.expression.expression import Expression
from maxaffine.heads.found import ROOM, Found, look, proved
from maxaffine.heads.level.build import build_level
from maxaffine.heads.level.plan import Curve, curve_of, level_plan
from maxaffine.heads.level.prove import certify_level_sets
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.structure.switches import forced, switches

Array = NDArray[np.float64]

AIMS = (0.83, 0.72, 0.55)  # of the error, for the hard part; the boxes of the proof need the rest
MOST = 600
ACROSS = 64  # points across the curve
SHARP = 0.01  # a relative standard error that is good enough; random points hardly meet the thin errors of many edges


def search(request: Request, reasons: list[str], fewest: int | None) -> Found | None:
    """The smallest polygon that is proved in L_p."""
    target = request.target
    if not math.isfinite(request.norm) or target.expression is None or target.box.dimension != 2 or target.n_out != 1:
        reasons.append("polygons are for L_p errors of expressions of two variables")
        return None
    seen = _two_values(request, target.expression)
    if seen is None:
        reasons.append("the target is not one value on a convex set and another one outside")
        return None
    curve, inside, outside = seen
    box = target.box
    volume = float(np.prod((box.high - box.low) / 2.0))
    most = MOST if fewest is None else min(MOST, fewest - 1)
    for aim in AIMS:
        plan = level_plan(curve, inside, outside, request.norm, aim * request.error, most, volume)
        if plan is None:
            reasons.append(f"no polygon of at most {most:,} edges fits")
            return None
        layer = build_level(plan, target, request.dtype)
        found = proved("level", plan, layer, partial(_certify, layer, request), request, reasons)
        if found is not None:
            observed = look(request, found)
            if (observed.standard_error or 0.0) > SHARP * observed.error:
                observed = _seen(layer, request, curve, plan.strip)
            return replace(found, observed=observed)
    return None


def _seen(layer: GroupedLayer, request: Request, curve: Curve, width: float) -> Observed:
    """The L_p error on points across the curve, in a strip that holds what lies between set and polygon of many edges."""
    box, p = request.target.box, request.norm
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0
    steps = width * ((2.0 * np.arange(ACROSS) + 1.0) / ACROSS - 1.0)
    along = curve.points + 0.5 * curve.lengths[:, None] * np.stack([-curve.normals[:, 1], curve.normals[:, 0]], axis=1)
    z = along[:, None] + steps[:, None] * curve.normals[:, None]
    inside = np.all(np.abs(z) <= 1.0, axis=2).ravel()
    x = np.clip(middle + half * z.reshape(-1, 2), box.low, box.high)
    away = np.abs(chooser.evaluate(layer, x).astype(np.float64) - request.target.values(x))[:, :, 0] * inside[:, None]
    share = np.repeat(curve.lengths, ACROSS)[:, None] * 2.0 * width / ACROSS * float(np.prod(half))
    error = float((away**p * share).sum(axis=0).max()) ** (1.0 / p)
    at = x[int(away.max(axis=1).argmax())]
    return Observed(error, tuple(float(v) for v in at), len(x), request.seed, p)


def _certify(layer: GroupedLayer, request: Request, runtime: str) -> Certificate:
    return certify_level_sets(layer, request.target, request.norm, request.error * ROOM, runtime)


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
    box = request.target.box
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0

    def side(sign: float, z: Array) -> Array:
        return np.asarray(sign * jump.argument.evaluate(np.clip(middle + half * z, box.low, box.high))[:, 0])

    for sign, (inside, outside) in ((1.0, (values[0], values[1])), (-1.0, (values[1], values[0]))):
        curve = curve_of(partial(side, sign))
        if curve is not None:
            return curve, np.asarray(inside), np.asarray(outside)
    return None
