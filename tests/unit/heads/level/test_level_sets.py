"""Convex level sets in L_p: polygons of single tokens, proved by boxes and proved again by the checker."""

import math
from dataclasses import replace

import numpy as np
import pytest

from maxaffine.checker.level_sets import check_level_sets
from maxaffine.checker.reader import Layer
from maxaffine.heads.level.plan import LevelPlan, build_level, curve_of, level_plan, polygon
from maxaffine.heads.level.prove import certify_level_sets
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import chooser
from maxaffine.target.box import Box
from maxaffine.target.target import Target

SQUARE = Box(x=(-1, 1), y=(-1, 1))
ERROR = 8e-3


def disc(error: float) -> tuple[Target, LevelPlan, GroupedLayer]:
    target = Target.of("where(x**2+y**2<0.49, 1, 0)", SQUARE)
    curve = curve_of(lambda z: (z * z).sum(axis=1) - 0.49)
    assert curve is not None
    plan = level_plan(curve, np.array([1.0]), np.array([0.0]), 1.0, error, 200, 1.0)
    assert plan is not None
    return target, plan, build_level(plan, target, "float64")


def area_between(layer: GroupedLayer, target: Target) -> float:
    """The L1 error by a jittered grid."""
    n = 700
    rng = np.random.default_rng(4)
    grid = np.stack([a.ravel() for a in np.meshgrid(np.arange(n), np.arange(n), indexing="ij")], axis=1)
    x = -1.0 + 2.0 * (grid + rng.random(grid.shape)) / n
    return float(np.abs(chooser.evaluate(layer, x) - target.values(x)).mean()) * 4.0


def test_the_area_between_a_disc_and_its_polygon_falls_like_the_square_of_the_edges() -> None:
    curve = curve_of(lambda z: (z * z).sum(axis=1) - 0.49)
    assert curve is not None
    areas = [polygon(curve, k)[2] * k * k for k in (16, 32, 64)]
    # 2 pi r^2 (pi/K)^2 / 4 * ... : the best polygon of K edges is off by 3.798 / K^2 for r = .7
    assert all(abs(a - 3.798) < 0.02 for a in areas)


def test_a_disc_is_proved_in_l1_and_proved_again() -> None:
    target, plan, layer = disc(0.75 * ERROR)
    certificate = certify_level_sets(layer, target, 1.0, ERROR)
    tensors, description = to_tensors(layer)
    again = check_level_sets(Layer.read(tensors, description, target), {"norm": 1.0}, target, ERROR).bound
    seen = area_between(layer, target)
    assert certificate.bound is not None and plan.cells < 40
    assert 0.8 * seen <= min(certificate.bound, again)
    assert max(certificate.bound, again) <= ERROR


@pytest.mark.parametrize("change", ["offset", "value"])
def test_a_polygon_that_was_tampered_with_is_not_proved(change: str) -> None:
    target, plan, layer = disc(0.75 * ERROR)
    (group,) = layer.groups
    assert isinstance(group, ClusterGroup)
    offsets, clusters = group.site_offsets.copy(), list(group.clusters)
    if change == "offset":
        offsets[5] += 0.2 * plan.sharpness
    else:
        clusters[0] = replace(clusters[0], values=clusters[0].values + 0.01)
    broken = replace(layer, groups=(ClusterGroup(group.matrix, group.site_slopes, offsets, tuple(clusters)),))
    true = area_between(broken, target)
    assert true > ERROR
    certificate = certify_level_sets(broken, target, 1.0, ERROR)
    assert certificate.bound is not None and certificate.bound >= 0.95 * true
    tensors, description = to_tensors(broken)
    again = check_level_sets(Layer.read(tensors, description, target), {"norm": 1.0}, target, ERROR).bound
    assert again >= 0.95 * true


def test_bounds_are_never_below_an_exact_area() -> None:
    """A square has area zero between itself and its polygon; a shift of one edge by d adds d times its length."""
    target = Target.of("where(max(abs(x), abs(y)) < 0.5, 1, 0)", SQUARE)
    normals = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    curve = curve_of(lambda z: np.abs(z).max(axis=1) - 0.5)
    for shift in (0.0, 0.02):
        offsets = np.array([0.5 + shift, 0.5, 0.5, 0.5])
        plan = LevelPlan(normals, offsets, 1e6, np.array([1.0]), np.array([0.0]), 0.0, 0.1, curve)
        layer = build_level(plan, target, "float64")
        certificate = certify_level_sets(layer, target, 1.0, shift + 2e-3)
        assert certificate.bound is not None and shift <= certificate.bound <= shift + 2e-3


def test_sets_that_are_not_convex_and_empty_ones_give_no_curve() -> None:
    assert curve_of(lambda z: z[:, 1] - np.sin(6 * z[:, 0])) is None
    assert curve_of(lambda z: 1.0 + 0.0 * z[:, 0]) is None
    assert math.isfinite(float(np.sum(curve_of(lambda z: z[:, 0] ** 2 - z[:, 1] - 0.3).lengths)))  # type: ignore[union-attr]
