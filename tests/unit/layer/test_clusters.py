"""Clusters and affine values: the runtimes, the literal matrices and the file are the definition; forged files are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from maxaffine.core.container import read_container, write_container
from maxaffine.core.errors import BadInput
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.file import from_tensors, to_tensors
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.matrices import matrices
from maxaffine.proofs.observe import face_biased
from maxaffine.runtime import chooser, parallel, two_level


def keys(rng, n):
    return AxisKeys(rng.normal(size=n), rng.normal(size=n))


def clusters(rng, shapes=((1, 1), (3, 2), (3, 2), (1, 4)), K=2, plain=(1,)):
    """Clusters of several shapes in two coordinates; those numbered in `plain` have constant values."""
    made = []
    for k, shape in enumerate(shapes):
        slopes = None if k in plain else rng.normal(size=(*shape, K, 2))
        axes = tuple(keys(rng, n) for n in shape)
        made.append(Cluster(rng.normal(size=2), rng.uniform(0.2, 0.7, 2), axes, rng.normal(size=(*shape, K)), slopes))
    C = len(made)
    return ClusterGroup(rng.uniform(-1, 1, (2, 3)), 4 * rng.normal(size=(C, 2)), rng.normal(size=C), tuple(made))


def layer_of(seed=0, dtype="float64", kind="clusters"):
    rng = np.random.default_rng(seed)
    tilt = rng.normal(size=(2, 3))
    axes, lean = (keys(rng, 3), keys(rng, 4)), rng.normal(size=(3, 4, 2, 2))
    product = Group(rng.normal(size=(2, 3)), axes, rng.normal(size=(3, 4, 2)), None, lean)
    groups = {"clusters": (clusters(rng),), "both": (clusters(rng), product), "product": (product,)}[kind]
    return GroupedLayer(np.array([0.1, -0.2, 0.3]), groups, 60.0, -np.ones(3), np.ones(3), ((3, 1),), dtype, tilt)


def tokens_of(group, z):
    """(logit, value (K,)) of every token, as the docstrings write them."""
    if isinstance(group, Group):
        for j in np.ndindex(*group.shape):
            logit = sum(a.slopes[i] * s + a.offsets[i] for a, i, s in zip(group.axes, j, z, strict=True))
            yield logit, group.values[j] + (0 if group.slopes is None else group.slopes[j] @ z)
        return
    for a, b, cluster in zip(group.site_slopes, group.site_offsets, group.clusters, strict=True):
        t = (z - cluster.origin) / cluster.radius
        for j in np.ndindex(*cluster.shape):
            logit = a @ z + b + sum(axis.slopes[i] * s + axis.offsets[i] for axis, i, s in zip(cluster.axes, j, t, strict=True))
            yield logit, cluster.values[j] + (0 if cluster.slopes is None else cluster.slopes[j] @ t)


def definition(layer, x):
    total = 0 if layer.tilt is None else layer.tilt @ (x - layer.centre)
    for group in layer.groups:
        pairs = list(tokens_of(group, group.matrix @ (x - layer.centre)))
        top = max(logit for logit, _ in pairs)
        weights = [math.exp(logit - top) for logit, _ in pairs]
        total = total + sum(w * value for w, (_, value) in zip(weights, pairs, strict=True)) / sum(weights)
    return total


POINTS = np.random.default_rng(5).uniform(-1, 1, (25, 3))


@pytest.mark.parametrize("kind", ["clusters", "both", "product"])
def test_every_runtime_is_the_definition(kind):
    layer = layer_of(kind=kind)
    wanted = np.array([definition(layer, x) for x in POINTS])
    names = chooser.available(layer)
    assert names == (("factorised", "dense") if kind == "product" else ("two-level", "dense"))
    for name in names:
        assert np.abs(chooser.evaluate(layer, POINTS, name)[:, :, 0] - wanted).max() < 1e-12


@pytest.mark.parametrize("kind", ["clusters", "both"])
def test_float32_runs_near_the_definition_of_its_stored_numbers(kind):
    layer = layer_of(kind=kind, dtype="float32")
    wanted = np.array([definition(layer, x) for x in POINTS])
    found = chooser.evaluate(layer, POINTS)
    assert found.dtype == np.float32 and np.abs(found[:, :, 0] - wanted).max() < 2e-5


def test_far_clusters_of_tiny_radius_neither_overflow_nor_count():
    layer = layer_of()
    (group,) = layer.groups
    steep = replace(group.clusters[1], radius=np.full(2, 1e-12))
    site = np.array([[0.0, 0.0], [0.0, 0.0]])
    one = ClusterGroup(group.matrix, site, np.array([0.0, -1e15]), (group.clusters[0], steep))
    for dtype in ("float64", "float32"):
        alone = GroupedLayer(layer.centre, (one,), 0.0, layer.low, layer.high, layer.inputs, dtype)
        found = chooser.evaluate(alone, POINTS)
        cluster = alone.groups[0].clusters[0]
        for x, value in zip(POINTS, found[:, :, 0], strict=True):
            t = (group.matrix @ (x - layer.centre) - cluster.origin) / cluster.radius
            assert np.allclose(value, cluster.values[0, 0] + cluster.slopes[0, 0] @ t, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["clusters", "both", "product"])
def test_attention_weights_sum_to_one_in_every_group_and_are_the_tokens_own(kind):
    layer = layer_of(kind=kind)
    weights = chooser.attention(layer, POINTS)
    assert weights.shape == (len(POINTS), layer.tokens)
    start = 0
    for group in layer.groups:
        for x, row in zip(POINTS, weights[:, start : start + group.count], strict=True):
            logits = np.array([logit for logit, _ in tokens_of(group, group.matrix @ (x - layer.centre))])
            wanted = np.exp(logits - logits.max())
            assert np.allclose(row, wanted / wanted.sum(), rtol=0, atol=1e-12)
        start += group.count


@pytest.mark.parametrize("kind", ["clusters", "both", "product"])
@pytest.mark.parametrize("form, layout", [("self", "Q"), ("self", "K"), ("cross", None)])
def test_literal_matrices_are_the_layer(kind, form, layout):
    layer = layer_of(kind=kind)
    weights = matrices(layer, form, layout)
    for x in POINTS[:6]:
        literal = weights(x[:, None])
        assert np.abs(literal[:, 0] - definition(layer, x)).max() < 1e-11


def test_layout_I_holds_a_tilt_and_refuses_slopes_that_differ_between_tokens():
    rng = np.random.default_rng(3)
    group = Group(rng.normal(size=(2, 3)), (keys(rng, 3), keys(rng, 4)), rng.normal(size=(3, 4, 2)))
    layer = GroupedLayer(np.zeros(3), (group,), 0.0, -np.ones(3), np.ones(3), ((3, 1),), "float64", rng.normal(size=(2, 3)))
    literal = matrices(layer, "self", "I")
    for x in POINTS[:6]:
        assert np.abs(literal(x[:, None])[:, 0] - definition(layer, x)).max() < 1e-11
    with pytest.raises(BadInput, match="layout Q or K"):
        matrices(layer_of(), "self", "I")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["clusters", "both", "product"])
def test_a_layer_survives_its_file(tmp_path, kind, dtype):
    layer = layer_of(kind=kind, dtype=dtype)
    tensors, record = to_tensors(layer)
    write_container(tmp_path / "layer.safetensors", tensors, {"layer": record})
    tensors, whole = read_container(tmp_path / "layer.safetensors")
    again = from_tensors(tensors, whole["layer"])
    assert np.array_equal(chooser.evaluate(again, POINTS), chooser.evaluate(layer, POINTS))
    assert to_tensors(again)[1] == record
    for name, tensor in to_tensors(again)[0].items():
        assert np.array_equal(tensor, tensors[name])


def forged():
    def drop(name):
        return lambda t, r: t.pop(name)

    def put(name, value):
        return lambda t, r: t.__setitem__(name, value(t[name]) if callable(value) else value)

    def shapes(t, r):
        t["group.0.shapes"] = t["group.0.shapes"].copy()
        t["group.0.shapes"][0] = 2.0**30

    return {
        "shapes that are not there": drop("group.0.shapes"),
        "a tensor too many": put("group.0.extra", np.ones(3)),
        "a group too many": put("group.7.values", np.ones((3, 2))),
        "a number written differently": lambda t, r: t.__setitem__("group.00.values", t.pop("group.0.values")),
        "half a key": put("group.0.shapes", lambda s: s + 0.5),
        "no key": put("group.0.shapes", lambda s: s * 0),
        "more tokens than numbers": shapes,
        "a key too few": put("group.0.keys.0.slopes", lambda a: a[1:]),
        "an offset too few": put("group.0.keys.1.offsets", lambda a: a[1:]),
        "values of other tokens": put("group.0.values", lambda a: a[1:]),
        "slopes of another shape": put("group.0.value_slopes", lambda a: a[:, :1]),
        "a radius of zero": put("group.0.radii", lambda a: a * 0),
        "a negative radius": put("group.0.radii", lambda a: -a),
        "origins of other clusters": put("group.0.origins", lambda a: a[1:]),
        "sites of other clusters": put("group.0.sites.slopes", lambda a: a[1:]),
        "another dtype": put("group.0.values", lambda a: a.astype(np.float32)),
        "origins in float32": put("group.0.origins", lambda a: a.astype(np.float32)),
        "a tilt of another shape": put("tilt", lambda a: a[:, 1:]),
        "numbers that are not finite": put("group.0.sites.offsets", lambda a: a * math.nan),
        "a number of clusters too many": lambda t, r: r.__setitem__("clusters", [9]),
        "no clusters at all": lambda t, r: r.__setitem__("clusters", [0]),
        "fewer than none": lambda t, r: r.__setitem__("clusters", [-1]),
        "two lists that differ in length": lambda t, r: r.__setitem__("clusters", [4, 4]),
        "a huge count": lambda t, r: r.__setitem__("clusters", [10**12]),
    }


@pytest.mark.parametrize("what", forged())
def test_a_forged_file_of_clusters_is_refused(what):
    tensors, record = to_tensors(layer_of())
    forged()[what](tensors, record)
    with pytest.raises(BadInput):
        from_tensors(tensors, record)


def test_few_clusters_run_at_once_and_the_workspace_is_bounded(monkeypatch):
    layer = layer_of()
    whole = two_level.evaluate(layer, POINTS)
    monkeypatch.setattr(two_level, "PAIRS", 1)
    assert np.allclose(two_level.evaluate(layer, POINTS), whole, rtol=0, atol=1e-14)
    monkeypatch.setattr(chooser, "WORKSPACE", 1)
    assert np.allclose(chooser.evaluate(layer, POINTS), whole, rtol=0, atol=1e-14)


def random_group(rng, E, shapes, outputs, affine, steep):
    """Clusters with keys of any kind, sites steep enough that most of them are far away."""
    clusters = []
    for shape in shapes:
        axes = tuple(AxisKeys(rng.normal(size=n) * 3, rng.normal(size=n)) for n in shape)
        slopes = rng.normal(size=(*shape, outputs, E)) if affine else None
        clusters.append(Cluster(rng.normal(size=E), rng.uniform(0.2, 2, E), axes, rng.normal(size=(*shape, outputs)), slopes))
    sites = steep * rng.normal(size=(len(shapes), E)), rng.normal(size=len(shapes))
    return ClusterGroup(rng.normal(size=(E, 2)), *sites, tuple(clusters))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("E", "shapes", "outputs", "affine", "steep"),
    [
        (1, [(1,), (5,), (9,), (70,), (600,)], 1, True, 4.0),
        (2, [(1, 1), (4, 3), (3, 4), (1, 9)] * 5, 3, True, 30.0),
        (2, [(3, 3)] * 40, 1, False, 1000.0),
        (3, [(2, 1, 3), (1, 1, 1), (3, 2, 2)], 2, True, 0.5),
    ],
)
def test_the_compiled_kernel_is_numpy_bit_for_bit(dtype, E, shapes, outputs, affine, steep, monkeypatch):
    rng = np.random.default_rng(7)
    group = random_group(rng, E, shapes, outputs, affine, steep).stored(np.dtype(dtype))
    layer = GroupedLayer(rng.normal(size=2), (group,), 0.0, -3 * np.ones(2), 3 * np.ones(2), ((2, 1),), dtype=dtype)
    x = rng.uniform(-3, 3, size=(3000, 2))
    monkeypatch.setattr(parallel, "_loaded", {"two_level": None})
    plain = two_level.evaluate(layer, x)
    monkeypatch.setattr(parallel, "_loaded", {})
    monkeypatch.setattr(parallel, "ENOUGH", 0)
    monkeypatch.setattr(parallel, "SHARE", 1)
    fast = two_level.evaluate(layer, x, 2)
    assert np.array_equal(plain, fast) and np.isfinite(fast).all()
    assert np.array_equal(np.concatenate([two_level.evaluate(layer, x[i : i + 1]) for i in range(40)]), fast[:40])
    literal = (two_level.attention(layer, x[:200]) @ np.ones(group.count))[:, None]
    assert np.allclose(literal, 1.0)
    if dtype == "float64":
        assert np.allclose(fast[:200], chooser.evaluate(layer, x[:200], "dense"), rtol=1e-9, atol=1e-9)


def test_test_points_lie_on_and_next_to_switches():
    rng = np.random.default_rng(0)
    sites = np.array([[1e6, 0.0], [0.0, 1e6], [-1e6, -1e6]])
    one = tuple(Cluster(np.zeros(2), np.ones(2), (AxisKeys(np.zeros(1), np.zeros(1)),) * 2, np.zeros((1, 1, 1))) for _ in sites)
    group = ClusterGroup(np.eye(2), sites, np.zeros(3), one)
    layer = GroupedLayer(np.zeros(2), (group,), 0.0, -np.ones(2), np.ones(2), ((2, 1),))
    x = face_biased(layer, 4000, rng)
    scores = np.sort(x @ sites.T, axis=1)
    gap = scores[:, -1] - scores[:, -2]
    assert np.all(np.abs(x) <= 1) and (gap < 10).sum() > 1000 and (gap < 1e-3).sum() > 100
    assert ((scores[:, -1] - scores[:, 0]) < 1e4).sum() > 10  # near the corner where all three meet
