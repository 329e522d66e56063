"""Kinks along graphs: a maximum of two convex polygons and a smooth part, proved twice, and not proved after tampering."""

import contextlib
import functools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker.curved import check_curved
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer
from maxaffine.core.errors import Refused
from maxaffine.heads.curved.maximum_plan import CurvedMaximumPlan, CurvedMaximumPlanner, build_curved_maximum, polygon
from maxaffine.heads.curved.maximum_prove import certify_curved_maximum
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.runtime import chooser
from maxaffine.structure.curved_maxima import Lift, curved_switch
from maxaffine.target.box import Box
from maxaffine.target.target import Target

SQUARE = Box(x=(-1, 1), y=(-1, 1))
ERROR = 1e-3


@functools.cache
def made(text: str, box: Box, error: float = ERROR, dtype: str = "float64") -> tuple[Target, CurvedMaximumPlan, GroupedLayer]:
    target = Target.of(text, box)
    assert target.expression is not None
    switch = curved_switch(target.expression, box)
    assert switch is not None
    plan = CurvedMaximumPlanner(switch, box, dtype).plan(0.98 * error, 4000)
    assert plan is not None
    return target, plan, build_curved_maximum(plan, target, dtype)


def bound_of(certificate: Certificate) -> float:
    assert certificate.bound is not None
    return certificate.bound


def checked(layer: GroupedLayer, target: Target, plan: CurvedMaximumPlan, error: float = ERROR) -> float:
    tensors, description = to_tensors(layer)
    return check_curved(Layer.read(tensors, description, target), {"plan": plan.to_json()}, target, error).bound


def worst(layer: GroupedLayer, target: Target, count: int = 60_000) -> float:
    """The largest error at random points, half of them moved along the last variable towards the switch."""
    assert target.expression is not None
    switch = curved_switch(target.expression, target.box)
    assert switch is not None
    rng = np.random.default_rng(0)
    low, high = target.box.low, target.box.high
    x = rng.uniform(low, high, (count, len(low)))
    half, direction = x[: count // 2], np.array([float(c) for c in switch.direction])
    for over in [side for side in switch.heights[0] if any(side.lean)]:
        lean, part = np.array([float(c) for c in over.lean]), half[rng.integers(2) :: 2]
        i = int(np.abs(lean).argmax())
        for _ in range(3):  # secant steps along the steepest variable of the affine part
            away = over.phi.evaluate((part @ direction)[:, None])[:, 0] + part @ lean
            part[:, i] -= away / lean[i] + rng.normal(size=len(part)) * 3.0 * ERROR
    x = np.clip(x, low, high)
    return float(np.abs(chooser.evaluate(layer, x)[:, :, 0] - target.values(x)[:, :, 0]).max())


CASES = [
    ("max(sin(3*x), y)", SQUARE), ("min(exp(x), 2*y)", SQUARE), ("cos(x+2*y)-abs(sin(x+2*y)-x)/3", SQUARE),
    ("1+.3*relu(y-x**2)+x*y", SQUARE), ("max(1/(2+x), y)", Box(x=(0, 3), y=(-2, 1))),
    ("abs(cos(2*x)-y+z/2)", Box(x=(-1, 1), y=(-1, 1), z=(0, 1))), ("max(sin(3*x), y, .2-x)", SQUARE),
    ("x-min(x**2, y, cos(3*x))/2", SQUARE),
]  # fmt: skip


@pytest.mark.parametrize(("text", "box", "dtype"), [(*case, "float64") for case in CASES] + [(*CASES[0], "float32")])
def test_a_kink_along_a_graph_is_proved_twice(text: str, box: Box, dtype: str) -> None:
    target, plan, layer = made(text, box, ERROR, dtype)
    bound = bound_of(certify_curved_maximum(layer, plan, ERROR))
    again = checked(layer, target, plan)
    seen = worst(layer, target)
    assert 0.5 * ERROR < seen <= min(bound, again) and max(bound, again) <= ERROR
    assert max(bound, again) <= 1.12 * seen and layer.tokens == plan.cells < 200


def test_tokens_grow_like_the_root_of_the_error() -> None:
    made_of = {error: ma.compile("max(sin(3*x), y)", SQUARE, error=error, method="curved") for error in (1e-2, 1e-4)}
    for error, compiled in made_of.items():
        assert compiled.certificate.kind == "proved" and bound_of(compiled.certificate) <= error
    assert made_of[1e-2].weights.tokens <= 24 and made_of[1e-4].weights.tokens <= 150
    x = np.random.default_rng(5).uniform(-1, 1, (4000, 2))
    for error, compiled in made_of.items():  # the literal softmax over all tokens
        away = np.abs(compiled(x, runtime="dense") - compiled.target.values(x)[:, 0, 0]).max()
        assert away <= bound_of(compiled.certificate_for("dense")) <= error


TAMPERED = ["value", "slope", "score", "both", "across", "sharpness", "smooth", "tilt", "centre", "gone"]


@pytest.mark.parametrize("part", TAMPERED)
def test_what_was_tampered_with_is_not_proved(part: str) -> None:
    target, plan, layer = made("max(sin(3*x), y)", SQUARE)
    tokens, smooth = layer.groups
    assert isinstance(tokens, ClusterGroup) and isinstance(smooth, Group) and smooth.values is not None
    clusters, slopes, offsets = list(tokens.clusters), tokens.site_slopes.copy(), tokens.site_offsets.copy()
    R, k = plan.sharpness, len(plan.pieces[0]) // 2
    assert clusters[k].slopes is not None
    tilt = np.zeros((1, 2)) if layer.tilt is None else np.array(layer.tilt)
    centre, matrix = layer.centre, tokens.matrix
    if part in ("value", "both"):
        clusters[k] = replace(clusters[k], values=clusters[k].values + 3.0 * ERROR)
    if part in ("score", "both"):
        offsets[k] += 3.0 * ERROR * R
    if part == "slope":
        clusters[k] = replace(clusters[k], slopes=clusters[k].slopes + np.array([0.1, 0.0]))
        slopes[k, 0] += 0.1 * R
    if part == "across":
        clusters[k] = replace(clusters[k], slopes=clusters[k].slopes * np.array([1.0, 1.01]))
        slopes[k, 1] *= 1.01
    if part == "sharpness":
        slopes, offsets = slopes / 1024.0, offsets / 1024.0
    if part == "smooth":
        smooth = replace(smooth, values=smooth.values + ERROR)
    if part == "tilt":
        tilt = tilt + 0.01
    if part == "centre":
        centre = centre + 0.01
    if part == "gone":
        clusters, slopes, offsets = clusters[:k] + clusters[k + 1 :], np.delete(slopes, k, 0), np.delete(offsets, k)
    group = ClusterGroup(matrix, slopes, offsets, tuple(clusters))
    broken = replace(layer, groups=(group, smooth), tilt=tilt, centre=centre)
    assert worst(broken, target) > ERROR
    plain = replace(plan, sharpness=R / 1024.0) if part == "sharpness" else plan
    with contextlib.suppress(Refused):
        assert bound_of(certify_curved_maximum(broken, plain, ERROR)) > ERROR
    with contextlib.suppress(NotProved):
        assert checked(broken, target, plan) > ERROR


def test_moved_pieces_are_bounded_as_they_are() -> None:
    """Tokens moved with their scores: both proofs stay above what is seen, whatever they are then."""
    target, plan, _ = made("abs(sin(3*x)-y)", SQUARE, 1e-2)
    rng = np.random.default_rng(3)
    for scale in (1e-6, 1e-3, 1e-2, 0.1):
        rows = tuple(side + scale * rng.normal(size=side.shape) * 0.02 for side in plan.pieces)
        other = replace(plan, pieces=rows)
        layer = build_curved_maximum(other, target, "float64")
        seen = worst(layer, target, 20_000)
        bounds = [checked(layer, target, other, 1e-2)]
        try:
            bounds.append(bound_of(certify_curved_maximum(layer, other, 1e-2)))
        except Refused:
            assert scale > 1e-4
        assert all(seen <= bound for bound in bounds) and max(bounds) <= 1.5 * seen + 1e-3


def test_the_file_may_add_any_function_but_must_take_it_off_again() -> None:
    target, plan, layer = made("max(sin(3*x), y)", SQUARE)
    for other in (
        replace(plan, lift=replace(plan.lift, square=plan.lift.square + 0.01)), replace(plan, base=1 - plan.base),
        replace(plan, lift=replace(plan.lift, sines=plan.lift.sines[:-1])),
    ):  # fmt: skip
        with contextlib.suppress(NotProved):
            assert checked(layer, target, other) > ERROR
    with pytest.raises(ValueError, match="finite"):
        Lift(0.0, 1.0, math.inf)
    other_target = Target.of("max(sin(3*x), y+.01)", SQUARE)
    assert checked(layer, other_target, plan) > ERROR


@pytest.mark.parametrize(
    ("text", "sign", "lean"),
    [("max(sin(3*x), y)", 1, [[0, 1], [-1, 0]]), ("min(sin(3*x), y)", -1, [[0, -1], [1, 0]]),
     ("3-2*abs(y-x**2)", -1, [[0, -4], [4, 0]]),
     ("min(y, x**2, x+.3)-x", -1, [[0, 1, 1], [-1, 0, 0], [-1, 0, 0]]), ("max(0, exp(x), max(-x, y))/2", 1, None)],
)  # fmt: skip
def test_a_switch_is_a_maximum_or_a_minimum(text: str, sign: int, lean: list[list[int]] | None) -> None:
    """`lean`: of every side in y, for every base."""
    target = Target.of(text, SQUARE)
    assert target.expression is not None
    switch = curved_switch(target.expression, SQUARE)
    assert switch is not None and switch.sign == sign
    x = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    for base in range(len(switch.bases)):
        found = switch.lifted(base, Lift(0.1, 0.8, 0.7, (0.3, -0.2), (0.5,)))
        assert lean is None or [side.lean for side in found.sides] == [(Fraction(0), Fraction(c)) for c in lean[base]]
        t = x @ np.array([float(c) for c in found.direction])
        sides = [side.phi.evaluate(t[:, None])[:, 0] + x @ np.array([float(c) for c in side.lean]) for side in found.sides]
        total = found.sign * np.max(sides, axis=0) + x @ np.array([float(c) for c in found.slopes])
        for group in found.parts:
            assert group.expression is not None
            total += group.expression.evaluate(x @ group.matrix().T)[:, 0]
        assert np.allclose(total, target.values(x)[:, 0, 0], atol=1e-12)


@pytest.mark.parametrize(
    "text", ["max(x**2+y**2, .5)", "max(x, y)", "abs(x)", "max(sin(3*x), y)*x", "sign(y-x**2)", "max(sin(3*x)+x*y, x*y)",
             "max(x, y, 0)", "max(sin(3*x), min(y, .5))", "max(sin(3*x), y)+max(max(sin(3*x), y), 0)", "max(sin(x), cos(y), x)"]
)
def test_other_targets_are_no_such_maximum(text: str) -> None:
    expression = Target.of(text, SQUARE).expression
    assert expression is not None and curved_switch(expression, SQUARE) is None


def test_a_polygon_holds_a_convex_function_with_the_pieces_that_its_curvature_asks_for() -> None:
    z = np.linspace(-1.0, 1.0, 20_001)
    for error in (1e-2, 1e-4):
        pieces = polygon(lambda t: np.exp(2.0 * t), error, 1000)
        assert pieces is not None
        away = np.abs((np.multiply.outer(z, pieces[:, 0]) + pieces[:, 1]).max(axis=1) - np.exp(2.0 * z)).max()
        needed = (math.e - 1.0 / math.e) / 2.0 / math.sqrt(error)  # the integral of sqrt(4 e^2t)/4 over the range
        assert away <= error and len(pieces) <= 1.05 * needed + 1
    assert polygon(lambda t: np.exp(2.0 * t), 1e-6, 1000) is None
