"""Trees of clusters: pieces, covering, certificates, the checker, and what happens to layers that were tampered with."""

from dataclasses import replace

import numpy as np
import pytest

from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer
from maxaffine.checker.tree import check_tree
from maxaffine.core.errors import Refused
from maxaffine.heads.tree.fit import LocalFitter, evaluate
from maxaffine.heads.tree.plan import Tree, TreePlan, build_tree, tree_plan
from maxaffine.heads.tree.prove import certify_tree
from maxaffine.heads.tree.search import Trees
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.covering import Scores, cover
from maxaffine.request import request_of
from maxaffine.runtime import chooser
from maxaffine.target.box import Box
from maxaffine.target.target import Target

SQUARE = Box(x=(-1, 1), y=(-1, 1))


def made(text: str, error: float, box: Box = SQUARE, dtype: str = "float64") -> tuple[Target, TreePlan, GroupedLayer]:
    target = Target.of(text, box)
    middle, half = (box.low + box.high) / 2.0, (box.high - box.low) / 2.0

    def f(z: np.ndarray) -> np.ndarray:
        return target.values(np.clip(middle + half * z, box.low, box.high)).reshape(len(z), -1)

    plan = tree_plan(f, box.dimension, (0.8 if box.dimension < 3 else 0.7) * error, 1.0, dtype, 4000)
    assert plan is not None
    return target, plan, build_tree(plan, target, dtype)


def worst(layer: GroupedLayer, target: Target, count: int = 20_000) -> float:
    """The largest error at random points, half of them next to faces of the clusters' boxes."""
    rng = np.random.default_rng(5)
    x = rng.uniform(layer.low, layer.high, size=(count, layer.dimension))
    (group,) = layer.groups
    assert isinstance(group, ClusterGroup)
    scale = np.diag(group.matrix)
    for i in range(count // 2):
        cluster = group.clusters[i % len(group.clusters)]
        e = i % layer.dimension
        t = rng.uniform(-1.0, 1.0, layer.dimension)
        t[e] = np.sign(t[e]) * (1.0 - 0.1 * rng.random())
        x[i] = layer.centre + (cluster.origin + cluster.radius * t) / scale
    x = np.clip(x, layer.low, layer.high)
    return float(np.abs(chooser.evaluate(layer, x) - target.values(x)).max())


@pytest.fixture(scope="module")
def bump() -> tuple[Target, TreePlan, GroupedLayer]:
    return made("exp(-200*((x-0.3)**2+(y+0.2)**2))", 1e-2)


def test_a_tree_is_proved_and_no_point_lies_above_its_bound(bump: tuple[Target, TreePlan, GroupedLayer]) -> None:
    target, plan, layer = bump
    certificate = certify_tree(layer, target, 1e-2)
    assert certificate.bound is not None and worst(layer, target) <= certificate.bound <= 1e-2
    assert plan.cells == layer.tokens < 250


def test_the_checker_proves_the_same_layer_by_its_own_way(bump: tuple[Target, TreePlan, GroupedLayer]) -> None:
    target, _, layer = bump
    tensors, description = to_tensors(layer)
    bound = check_tree(Layer.read(tensors, description, target), {}, target, 1e-2).bound
    assert worst(layer, target) <= bound <= 1e-2


@pytest.mark.parametrize("part", ["values", "site_offsets", "radius", "origin"])
def test_layers_that_were_tampered_with_are_not_proved(part: str, bump: tuple[Target, TreePlan, GroupedLayer]) -> None:
    target, _, layer = bump
    (group,) = layer.groups
    assert isinstance(group, ClusterGroup)
    k = int(np.argmax([cluster.count for cluster in group.clusters]))
    clusters, offsets = list(group.clusters), group.site_offsets.copy()
    if part == "site_offsets":
        offsets[k] += 0.4 * float(np.ptp(group.site_offsets))  # it now answers far outside of its box
    else:
        values = {"values": clusters[k].values + 0.02, "radius": clusters[k].radius * 0.5, "origin": clusters[k].origin + 0.1}
        clusters[k] = replace(clusters[k], **{part: values[part]})
    broken = replace(layer, groups=(ClusterGroup(group.matrix, group.site_slopes, offsets, tuple(clusters)),))
    assert worst(broken, target) > 1e-2
    with pytest.raises(Refused):
        certify_tree(broken, target, 1e-2)
    tensors, description = to_tensors(broken)
    with pytest.raises(NotProved):
        check_tree(Layer.read(tensors, description, target), {}, target, 1e-2)


def test_kinks_are_proved_by_enclosures() -> None:
    target, _, layer = made("sqrt(x**2+y**2)", 3e-2)
    certificate = certify_tree(layer, target, 3e-2)
    tensors, description = to_tensors(layer)
    again = check_tree(Layer.read(tensors, description, target), {}, target, 3e-2).bound
    assert certificate.bound is not None
    assert worst(layer, target) <= min(certificate.bound, again)
    assert max(certificate.bound, again) <= 3e-2


def test_a_piece_that_misses_a_kink_is_refused() -> None:
    _, _, layer = made("x*y", 1e-2)
    other = Target.of("x*y + 0.03*abs(x-y)", SQUARE)
    with pytest.raises(Refused):
        certify_tree(layer, other, 1e-2)
    tensors, description = to_tensors(layer)
    with pytest.raises(NotProved):
        check_tree(Layer.read(tensors, description, other), {}, other, 1e-2)


def test_float32_is_proved_with_the_rounding_of_two_levels() -> None:
    target, _, layer = made("sin(3*x*y)", 1e-3, dtype="float32")
    certificate = certify_tree(layer, target, 1e-3)
    assert certificate.bound is not None and certificate.parts["rounding"] > 1e-7
    x = np.random.default_rng(1).uniform(-1, 1, (20_000, 2)).astype(np.float32).astype(np.float64)
    assert float(np.abs(chooser.evaluate(layer, x) - target.values(x)).max()) <= certificate.bound <= 1e-3


def test_trees_stand_in_one_and_three_variables_and_on_other_boxes() -> None:
    for text, box, error in (
        ("atan(40*x)", Box(x=(3, 5)), 1e-3),
        ("exp(-12*((x-0.4)**2+y**2+z**2))", Box(x=(0, 1), y=(0, 1), z=(-1, 0)), 5e-2),
    ):
        target, _, layer = made(text, error, box)
        certificate = certify_tree(layer, target, error)
        assert certificate.bound is not None and worst(layer, target, 5000) <= certificate.bound <= error


def test_a_narrow_bump_is_never_returned_as_a_constant() -> None:
    """Wherever it lies: either the cells see it, or the proof of the piece that missed it fails."""
    rng = np.random.default_rng(8)
    for _ in range(3):
        a, b = rng.uniform(-0.9, 0.9, 2)
        target, _, layer = made(f"exp(-20000*((x-({a:.6f}))**2+(y-({b:.6f}))**2))", 1e-1)
        try:
            certificate = certify_tree(layer, target, 1e-1)
        except Refused:
            continue
        assert certificate.bound is not None
        assert float(np.abs(chooser.evaluate(layer, np.array([[a, b]])) - 1.0).max()) <= certificate.bound


def test_neighbours_differ_by_one_level_after_balancing() -> None:
    tree = Tree((1, 1), {(0, 0, 0)})
    place = (0, 0, 0)
    for _ in range(5):
        tree.split(place)
        place = (place[0] + 1, 2 * place[1] + 1, 2 * place[2] + 1)
    tree.balance()
    leaves = sorted(tree.leaves)
    low, high = tree.boxes(leaves)
    assert np.isclose(np.prod(high - low, axis=1).sum(), 4.0)
    for i, one in enumerate(leaves):
        touching = np.all((low <= high[i] + 1e-12) & (high >= low[i] - 1e-12), axis=1)
        assert max(abs(leaves[j][0] - one[0]) for j in np.flatnonzero(touching)) <= 1


def test_a_covering_says_nothing_that_a_sample_contradicts(bump: tuple[Target, TreePlan, GroupedLayer]) -> None:
    _, plan, layer = bump
    (group,) = layer.groups
    assert isinstance(group, ClusterGroup)
    scores = Scores.of(group)
    cover(scores, plan.gap - 6.0, 1.0)
    z = np.random.default_rng(2).uniform(-1, 1, (4000, 2))
    all_scores = np.stack([scores.at(np.full(len(z), k), z)[0] for k in range(len(group.clusters))], axis=1)
    t = np.abs((z[:, None] - scores.origin) / scores.radius).max(axis=2)
    counts = all_scores > all_scores.max(axis=1, keepdims=True) - (plan.gap - 6.0)
    assert np.all(t[counts] <= 1.0)


def test_a_gap_that_is_too_wide_is_refused(bump: tuple[Target, TreePlan, GroupedLayer]) -> None:
    (group,) = bump[2].groups
    assert isinstance(group, ClusterGroup)
    with pytest.raises(Refused):
        cover(Scores.of(group), 40.0 * bump[1].gap, 1.0)


def test_pieces_of_many_boxes_are_what_they_say() -> None:
    def f(z: np.ndarray) -> np.ndarray:
        return np.sin(4 * z[:, :1]) * np.exp(z[:, 1:])

    fitter = LocalFitter(f, 2, 1e-5, "float64")
    low, high = np.array([[-1.0, -1.0], [0.0, 0.25]]), np.array([[0.0, 0.0], [0.5, 0.5]])
    for a, b, piece in zip(low, high, fitter.pieces(low, high), strict=True):
        assert piece is not None and piece.error <= 1e-5
        grid = np.linspace(-1, 1, 41)
        mesh = np.stack([m.ravel() for m in np.meshgrid(grid, grid, indexing="ij")], axis=1)
        exact = f((a + b) / 2 + (b - a) / 2 * mesh)
        assert float(np.abs(evaluate(piece, piece.axes("float64"), [grid, grid]) - exact).max()) <= 2e-5


def test_files_with_other_tensors_are_not_read(bump: tuple[Target, TreePlan, GroupedLayer]) -> None:
    target, _, layer = bump
    tensors, description = to_tensors(layer)
    for name, change in (("group.0.radii", lambda a: -a), ("group.0.shapes", lambda a: a + 0.5), ("box.low", lambda a: a - 1.0)):
        with pytest.raises(NotProved):
            Layer.read({**tensors, name: change(tensors[name])}, description, target)
    assert isinstance(Cluster, type)


def test_slopes_that_are_infinite_at_a_corner_are_left_to_other_heads():
    steep = request_of("asin(x*y)", {"x": (0, 1), "y": (0, 1)}, error=1e-3)
    assert "not bounded at a corner" in Trees().why_not(steep)
    assert Trees().why_not(request_of("asin(x*y)", {"x": (0, 1), "y": (0, 0.9)}, error=1e-3)) is None
    assert Trees().why_not(request_of("sqrt(.1 + x**2 + y**2)", {"x": (0, 1), "y": (0, 1)}, error=1e-3)) is None
