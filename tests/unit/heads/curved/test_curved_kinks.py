"""Kinks along convex curves: two branches and a polygon, proved, proved again, and not proved after tampering."""

from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker.curved import check_curved
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer
from maxaffine.checker.soft_kink import largest_share
from maxaffine.core.errors import Refused
from maxaffine.heads.curved.plan import CurvedPlan, build_curved, curved_plan
from maxaffine.heads.curved.prove import certify_curved
from maxaffine.heads.level.plan import curve_of
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.soft_gap import lambert_of_exp, soft_gap
from maxaffine.runtime import chooser
from maxaffine.structure.branches import extremum
from maxaffine.structure.switches import forced, switches
from maxaffine.target.box import Box
from maxaffine.target.target import Target

SQUARE = Box(x=(-1, 1), y=(-1, 1))
ERROR = 1e-2


def made(text: str, choice: int) -> tuple[Target, CurvedPlan, GroupedLayer]:
    target = Target.of(text, SQUARE)
    assert target.expression is not None
    (switch,) = [one for one in switches(target.expression) if one.chosen]
    branches = [forced(target.expression, {switch.place: side}) for side in (-choice, choice)]
    curve = curve_of(lambda z: -choice * switch.argument.evaluate(z)[:, 0])
    assert curve is not None

    def both(z: np.ndarray) -> np.ndarray:
        return np.concatenate([branch.evaluate(np.clip(z, -1, 1)) for branch in branches], axis=1)

    soft = extremum(target.expression, switch.place, SQUARE) is not None
    plan = curved_plan(both, curve, 0.95 * ERROR, 1.0, "float64", 500, switch.place, choice, soft)
    assert plan is not None
    return target, plan, build_curved(plan, target, "float64")


def worst(layer: GroupedLayer, target: Target) -> float:
    """The largest error at random points, most of them near the circle of radius sqrt(.5)."""
    rng = np.random.default_rng(0)
    angle, away = rng.uniform(0, 2 * np.pi, 40_000), np.sqrt(0.5) + rng.normal(size=40_000) * 0.02
    x = np.concatenate([rng.uniform(-1, 1, (10_000, 2)), np.stack([away * np.cos(angle), away * np.sin(angle)], axis=1)])
    x = np.clip(x, -1, 1)
    return float(np.abs(chooser.evaluate(layer, x) - target.values(x)).max())


def checked(layer: GroupedLayer, target: Target, plan: CurvedPlan) -> float:
    tensors, description = to_tensors(layer)
    return check_curved(Layer.read(tensors, description, target), {"plan": plan.to_json()}, target, ERROR).bound


@pytest.mark.parametrize(
    "text", ["max(x**2+y**2, 0.5)", "min(2*x**2+2*y**2, x+1.5)", "abs(x**2+y**2-0.5)", "min(11/(6-x**2-y**2), 2)"]
)
def test_a_kink_along_a_curve_is_proved_twice_with_few_tokens(text: str) -> None:
    target, plan, layer = made(text, -1)  # the paraboloid is below on a convex set
    certificate = certify_curved(layer, target, plan.place, plan.choice, ERROR)
    again = checked(layer, target, plan)
    assert certificate.bound is not None and layer.tokens == plan.cells < 60
    assert worst(layer, target) <= min(certificate.bound, again)
    assert max(certificate.bound, again) <= ERROR


@pytest.mark.parametrize("part", ["offset", "values", "outer"])
def test_a_curved_kink_that_was_tampered_with_is_not_proved(part: str) -> None:
    target, plan, layer = made("max(x**2+y**2, 0.5)", -1)
    outer, inner = layer.groups
    assert isinstance(outer, ClusterGroup) and isinstance(inner, ClusterGroup)
    offsets, clusters, first = inner.site_offsets.copy(), list(inner.clusters), outer.clusters[0]
    if part == "offset":
        offsets[3] -= 0.05 * float(np.abs(inner.site_slopes).max())
    elif part == "values":
        clusters[0] = replace(clusters[0], values=clusters[0].values + 0.02)
    else:
        first = replace(first, values=first.values - 0.02)
    groups = (replace(outer, clusters=(first,)), ClusterGroup(inner.matrix, inner.site_slopes, offsets, tuple(clusters)))
    broken = replace(layer, groups=groups)
    assert worst(broken, target) > ERROR
    with pytest.raises(Refused):
        certify_curved(broken, target, plan.place, plan.choice, ERROR)
    with pytest.raises(NotProved):
        checked(broken, target, plan)


def test_the_wrong_side_and_other_targets_are_not_proved() -> None:
    target, plan, layer = made("max(x**2+y**2, 0.5)", -1)
    with pytest.raises(Refused):
        certify_curved(layer, target, plan.place, -plan.choice, ERROR)
    with pytest.raises(NotProved):
        checked(layer, target, replace(plan, choice=-plan.choice))
    other = Target.of("max(x**2+y**2, 0.53)", SQUARE)
    with pytest.raises(NotProved):
        checked(layer, other, plan)


def test_edges_as_soft_as_the_error_allows_need_fewer_tokens() -> None:
    made_of = {error: ma.compile("max(x**2+y**2, .5)", SQUARE, error=error, method="curved") for error in (2e-2, 2e-4)}
    for error, compiled in made_of.items():
        assert compiled.certificate.kind == "proved" and compiled.certificate.bound is not None
        assert isinstance(compiled.weights, GroupedLayer) and compiled.certificate.bound <= error
        assert worst(compiled.weights, compiled.target) <= compiled.certificate.bound
    assert made_of[2e-2].weights.tokens <= 20 and made_of[2e-4].weights.tokens <= 105


def test_a_target_that_is_neither_the_larger_nor_the_smaller_of_its_branches_is_proved_by_signs() -> None:
    target, plan, layer = made("(x+.2)*abs(x**2+y**2-.5)", -1)
    certificate = certify_curved(layer, target, plan.place, plan.choice, ERROR)
    again = checked(layer, target, plan)
    assert certificate.bound is not None and worst(layer, target) <= min(certificate.bound, again)
    assert max(certificate.bound, again) <= ERROR


@pytest.mark.parametrize(
    ("text", "sign"),
    [("max(x**2+y**2, .5)", 1), ("min(x**2+y**2, .5)/3", -1), ("2-abs(x**2+y**2-.5)*exp(x)", -1), ("x*abs(x**2+y**2-.5)", None),
     ("exp(max(x**2+y**2, .5))", 1), ("max(x**2+y**2, .5)**2", 1), ("(max(x, y)-.2)**2", None), ("max(y, max(x, y)+.1)", 1)],
)  # fmt: skip
def test_which_targets_are_the_larger_or_the_smaller_of_their_branches(text: str, sign: int | None) -> None:
    expression = Target.of(text, SQUARE).expression
    assert expression is not None
    place = switches(expression)[0].place
    assert extremum(expression, place, SQUARE) == sign
    if sign is not None:
        x = np.random.default_rng(4).uniform(-1, 1, (2000, 2))
        branches = [forced(expression, {place: side}).evaluate(x) for side in (-1, 1)]
        assert np.allclose(expression.evaluate(x), np.maximum(*branches) if sign > 0 else np.minimum(*branches), atol=1e-12)


def test_the_largest_share_of_the_wrong_branch() -> None:
    """Both proofs' constants against the supremum itself, which they attain."""
    u = np.linspace(0.0, 60.0, 600_001)
    for lam, level in ((0.5, -3.0), (2.0, 0.0), (1.0, 1.4), (7.0, 12.0)):
        most = float((u / (1.0 + np.exp(np.minimum(lam * u - level, 700.0)))).max())
        ours, theirs = soft_gap(2, level) / lam, largest_share(np.array([1e9]), np.array([lam]), np.array([level]))[0]
        assert most * (1 - 1e-12) <= min(ours, theirs) and max(ours, theirs) <= most * (1 + 1e-6)
    assert np.all(lambert_of_exp(np.array([-1e9, 1e300])) > 0) and largest_share(np.ones(1), np.zeros(1), np.zeros(1))[0] == 0.5
