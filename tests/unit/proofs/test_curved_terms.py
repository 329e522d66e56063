"""Soft kinks and polygons, the two terms of curved heads: bounds lie above what points show, and not far above."""

import functools

import numpy as np

from maxaffine.checker import curved_maximum as checker_maximum
from maxaffine.checker import soft_kink as checker_soft
from maxaffine.checker.reader import Layer
from maxaffine.checker.scaled_clusters import ScaledClusters
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.heads.curved import maximum_prove as curved_maximum
from maxaffine.heads.curved import soft_kink
from maxaffine.heads.curved.plan import build_curved, curved_plan
from maxaffine.heads.level.plan import curve_of
from maxaffine.heads.tree.prove import local_head
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.enclosed import PieceAt
from maxaffine.structure.branches import extremum, parting
from maxaffine.structure.switches import forced, switches
from maxaffine.target.box import Box
from maxaffine.target.target import Target

SQUARE = Box(x=(-1, 1), y=(-1, 1))
TEXT = "max(x**2+y**2, 0.3+0.3*x)"
BOXES, POINTS = 3000, 120


@functools.cache
def kink(error: float) -> tuple[Target, GroupedLayer, ClusterGroup, tuple[np.ndarray, np.ndarray]]:
    """A layer of soft edges, and random boxes of many sizes about its curve."""
    target = Target.of(TEXT, SQUARE)
    assert target.expression is not None
    (switch,) = switches(target.expression)
    branches = [forced(target.expression, {switch.place: side}) for side in (1, -1)]
    curve = curve_of(lambda z: switch.argument.evaluate(z)[:, 0], 1 << 13)
    assert curve is not None
    plan = curved_plan(
        lambda z: np.concatenate([branch.evaluate(np.clip(z, -1, 1)) for branch in branches], axis=1),
        curve, error, 1.0, "float64", 500, switch.place, -1,
    )  # fmt: skip
    assert plan is not None
    layer = build_curved(plan, target, "float64")
    group = layer.groups[1]
    assert isinstance(group, ClusterGroup)
    rng = np.random.default_rng(2)
    rows = rng.integers(0, len(curve.points), BOXES)
    middle = curve.points[rows] + curve.normals[rows] * rng.normal(size=(BOXES, 1)) * 3.0 * error
    half = 10.0 ** rng.uniform(-3.0, -0.7, (BOXES, 1)) * rng.uniform(0.5, 2.0, (BOXES, 2))
    return target, layer, group, (np.clip(middle - half, -1.0, 0.999), np.clip(middle + half, -0.999, 1.0))


@functools.cache
def seen(error: float) -> np.ndarray:
    """The largest |Q/(1 + X) - max(Q, 0)| at points of every box."""
    target, layer, group, (low, high) = kink(error)
    assert target.expression is not None
    rng, worst, cluster = np.random.default_rng(4), np.zeros(len(low)), group.clusters[0]
    piece = PieceAt(local_head(layer, group, cluster, target.expression), 0)
    for share in np.concatenate([rng.uniform(0, 1, (POINTS, 2)), [[0, 0], [0, 1], [1, 0], [1, 1]]]):
        z = low + share * (high - low)
        Q, score = piece.at(z / cluster.radius)[0], np.zeros(len(z))  # the larger branch: Q = q
        for e, axis in enumerate(cluster.axes):
            score += np.log(np.exp(np.multiply.outer(z[:, e] / cluster.radius[e], axis.slopes) + axis.offsets).sum(axis=1))
        logits = z @ group.site_slopes[1:].T + group.site_offsets[1:] - score[:, None]
        X = np.exp(np.minimum(logits, 300.0)).sum(axis=1)
        worst = np.maximum(worst, np.abs(Q / (1.0 + X) - np.maximum(Q, 0.0)))
    return worst


def apart_of(target: Target) -> Expression:
    assert target.expression is not None
    place = switches(target.expression)[0].place
    apart = parting(target.expression, place, -1)
    assert apart is not None and extremum(target.expression, place, SQUARE) == 1
    return apart


def test_soft_kinks_are_bounded_from_above() -> None:
    for error in (3e-2, 3e-3):
        target, layer, group, (low, high) = kink(error)
        assert target.expression is not None
        piece = PieceAt(local_head(layer, group, group.clusters[0], target.expression), 0)
        for away in (0.1 * error, 1.0):  # by the tangent of the difference, and by that of the piece
            made = soft_kink.SoftKink(group, piece, 1e-12, 1.0, layer.centre, 1, apart_of(target), away)
            edges = np.broadcast_to(np.arange(len(group.clusters) - 1), (BOXES, len(group.clusters) - 1))
            box = soft_kink._Box(made, low, high, edges)
            bound = box.bound(1e-12, 0.0, np.inf)
            assert np.all(seen(error) <= bound) and np.median(bound / np.maximum(seen(error), 1e-3 * error)) < 3.0


def test_the_checker_bounds_soft_kinks_from_above() -> None:
    for error in (3e-2, 3e-3):
        target, layer, _, (low, high) = kink(error)
        assert target.expression is not None
        tensors, description = to_tensors(layer)
        inner = ScaledClusters.of(Layer.read(tensors, description, target), 1)
        head, count = inner.head(0, 0, target.expression), len(inner.group.sites) - 1
        edges = np.broadcast_to(np.arange(count), (BOXES, count))
        for away in (0.1 * error, 1.0):
            difference = checker_soft.Difference(apart_of(target), 1, inner, away)
            piece = checker_soft.Piece(head, 1, inner.group.radii[0], difference)
            bound, _ = checker_soft.bounds_near_curve(inner, piece, low, high, edges, 1e-12, np.inf)
            assert np.all(seen(error) <= bound) and np.median(bound / np.maximum(seen(error), 1e-3 * error)) < 3.0


def polygons() -> list[tuple[np.ndarray, Expression, float]]:
    """Random affine pieces about convex functions, with how far their maximum is from them."""
    rng, found = np.random.default_rng(6), []
    z = np.linspace(-1.0, 1.0, 40_001)
    for count in (1, 2, 7, 30):
        for lift, noise in ((0.0, 0.0), (0.0, 0.02), (0.0, 1.0), (0.1, 0.02), (2.0, 0.0)):
            at = np.sort(rng.uniform(-1, 1, count))
            shift = lift + noise * rng.normal(size=count) / count**2
            rows = np.stack([2 * np.exp(2 * at), np.ones(count), np.exp(2 * at) * (1 - 2 * at) + shift], axis=1)
            away = np.abs((np.multiply.outer(z, rows[:, 0]) + rows[:, 2]).max(axis=1) - np.exp(2 * z)).max()
            found.append((rows, Expression.parse("exp(2*t)", ("t",)), float(away)))
    rows = np.array([[1.0, 1.0, 3.0], [3.0, 1.0, 0.0], [9.0, 1.0, 3.0]])  # the one in the middle is never the largest
    away = np.abs((np.multiply.outer(z, rows[:, 0]) + rows[:, 2]).max(axis=1) - np.exp(2 * z)).max()
    found.append((rows, Expression.parse("exp(2*t)", ("t",)), float(away)))
    return found


def test_polygons_are_bounded_from_above() -> None:
    zero = Interval.point(np.zeros(()))
    along = curved_maximum.Along(zero, 1.0, 1.0, 0.0, 0.0, (zero,))
    for rows, phi, true in polygons():
        try:
            bound = along.polygon(rows, phi, zero)[0]
        except Refused:
            continue
        assert true * (1 - 1e-9) <= bound


def test_the_checker_bounds_polygons_from_above() -> None:
    zero, one = Interval.point(np.zeros(())), Interval.point(np.ones(()))
    along = checker_maximum.Along(zero, one, 0.0, np.ones(2), [zero])
    for rows, phi, true in polygons():
        assert true * (1 - 1e-9) <= checker_maximum.polygon_error(rows, phi, along, zero) <= 1.02 * true
