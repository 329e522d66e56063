"""Collapsed: heads as polynomials, a proved error, the same bits in every batch, and certificates that count it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.core.errors import BadInput, Refused
from maxaffine.heads.spectral.prove import certify_spectral
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import bernstein, gaussian
from maxaffine.runtime import chooser, collapsed, parallel
from maxaffine.runtime.collapse import FLOOR, allowance, collapse
from maxaffine.runtime.collapse_directions import strip_sum

KEYS = {"bernstein": lambda n: bernstein(n, 1.4, "float64").keys, "gaussian": lambda n: gaussian(n, 2, 0.7, "float64").keys}


def head(shape=(9, 8), family="bernstein", K=1, affine=False, factors=0, dtype="float64", seed=0):
    """One group on [-1, 1]^E with random values."""
    rng, E = np.random.default_rng(seed), len(shape)
    axes = tuple(KEYS[family](n) for n in shape)
    values = None if factors else rng.normal(size=(*shape, K)) * 3
    parts = tuple(rng.normal(size=(n, factors)) for n in shape) if factors else None
    slopes = rng.normal(size=(*shape, K, E)) if affine else None
    group = Group(np.eye(E), axes, values, parts, slopes)
    return GroupedLayer(np.zeros(E), (group,), 0.0, -np.ones(E), np.ones(E), ((E, 1),), dtype)


def exact(layer, x):
    """The layer in extended precision, the definition of its stored numbers."""
    total = np.zeros((len(x), layer.d_out), dtype=np.longdouble)
    for group in layer.products():
        z = (x - layer.centre).astype(np.longdouble) @ group.matrix.T.astype(np.longdouble)
        out = group.dense_values().astype(np.longdouble)[..., None]
        if group.slopes is not None:
            out = np.concatenate([out, group.slopes.astype(np.longdouble)], axis=-1)
        for b, row in enumerate(z):
            held = out
            for e, axis in enumerate(group.axes):
                scores = axis.slopes.astype(np.longdouble) * row[e] + axis.offsets.astype(np.longdouble)
                weights = np.exp(scores - scores.max())
                held = np.tensordot(weights / weights.sum(), held, axes=(0, 0))
            total[b] += held[:, 0] + (held[:, 1:] @ row if group.slopes is not None else 0)
    return total


def points(E, count=200, seed=1):
    """Random points, corners, ends and points crowded towards the edges."""
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * E, indexing="ij"), axis=-1).reshape(-1, E)
    crowded = np.cos(rng.uniform(0, np.pi, size=(count, E)))
    return np.concatenate([rng.uniform(-1, 1, size=(count, E)), crowded, corners])


CASES = {
    "one direction": {"shape": (12,)},
    "gaussian keys": {"shape": (20,), "family": "gaussian"},
    "two directions": {},
    "three directions": {"shape": (6, 5, 4)},
    "several outputs": {"K": 3},
    "affine values": {"affine": True},
    "products": {"shape": (9, 8, 7), "factors": 2},
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16", "shape": (7, 5)},
}


@pytest.mark.parametrize("basis", ["auto", "chebyshev"])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-9])
@pytest.mark.parametrize("name", CASES)
def test_the_polynomials_are_within_their_proved_error_of_the_head(name, tolerance, basis):
    layer = head(**CASES[name])
    made = collapse(layer, tolerance, basis)
    x = points(layer.dimension)
    found = collapsed.in_numpy(collapsed.program(made, layer.d_out), x)
    away = float(np.abs(found - exact(layer, x)).max())
    assert away <= made.error <= made.allowed <= 1.001 * tolerance + 1e-9
    assert made.error <= allowance(tolerance, made.groups[0].largest) * (1 + 1e-12)


def test_the_error_is_of_the_size_that_is_seen_and_a_smaller_tolerance_takes_more_terms():
    layer = head((24,), "gaussian")
    x = points(1, 2000)
    terms = []
    for tolerance in (1e-2, 1e-5, 1e-8):
        made = collapse(layer, tolerance)
        away = float(np.abs(collapsed.in_numpy(collapsed.program(made, 1), x) - exact(layer, x)).max())
        assert made.error <= 4 * away + 1e-12  # a proof that is far too careful would be dropped by the chooser
        terms.append(made.groups[0].cores[0].shape[1])
    assert terms == sorted(set(terms))


def test_low_rank_values_take_as_many_columns_as_their_rank():
    rng = np.random.default_rng(3)
    axes = (KEYS["bernstein"](10), KEYS["bernstein"](9))
    values = (rng.normal(size=(10, 2)) @ rng.normal(size=(2, 9)))[..., None]
    layer = GroupedLayer(np.zeros(2), (Group(np.eye(2), axes, values),), 0.0, -np.ones(2), np.ones(2), ((2, 1),))
    assert [core.shape[-1] for core in collapse(layer, 1e-8).groups[0].cores] == [2, 2]


@pytest.mark.parametrize("name", ["one direction", "two directions", "three directions", "affine values", "products", "float32"])
def test_numpy_and_the_kernel_agree_bit_for_bit_in_every_batch_and_on_every_number_of_threads(name, monkeypatch):
    layer = head(**CASES[name])
    x = np.random.default_rng(5).uniform(-1, 1, size=(4_111, layer.dimension))
    monkeypatch.setattr(parallel, "_loaded", {"collapsed": None})
    slow = collapsed.evaluate(layer, x, 1e-7)
    monkeypatch.setattr(parallel, "_loaded", {})
    monkeypatch.setattr(parallel, "ENOUGH", 0)
    monkeypatch.setattr(parallel, "SHARE", 1)
    for threads in (1, 2, 5):
        assert np.array_equal(collapsed.evaluate(layer, x, 1e-7, threads), slow)
    parts = [collapsed.evaluate(layer, x[i:j], 1e-7) for i, j in ((0, 1), (1, 258), (258, 4_000), (4_000, 4_111))]
    assert np.array_equal(np.concatenate(parts), slow)


def test_queries_beyond_the_ends_by_rounding_are_clipped():
    layer = head((12,))
    edge = np.array([[1.0 + 2.0**-40], [1.0]])
    low, high = collapsed.evaluate(layer, edge, 1e-8)[:, 0, 0]
    assert low == high


def test_what_does_not_collapse_says_why():
    steep = AxisKeys(np.linspace(-4e4, 4e4, 64), np.linspace(-1, 1, 64) ** 2 * -2e4)
    layer = GroupedLayer(np.zeros(1), (Group(np.eye(1), (steep,), np.ones((64, 1))),), 0.0, -np.ones(1), np.ones(1), ((1, 1),))
    with pytest.raises(Refused, match="too steep"):
        collapse(layer, 1e-6)
    assert "collapsed" not in chooser.available(layer)
    with pytest.raises(BadInput, match="cannot run this layer: the head is too steep"):
        chooser.evaluate(layer, np.zeros((1, 1)), "collapsed")


def test_the_strip_sum_bounds_the_weights_at_complex_points():
    rng = np.random.default_rng(0)
    for keys in (KEYS["bernstein"](12), KEYS["gaussian"](18)):
        for reach, height in ((1.0, 0.05), (1.2, 0.15)):
            bound = strip_sum(keys, reach, height)
            z = rng.uniform(-reach, reach, 4000) + 1j * rng.uniform(-height, height, 4000)
            scores = np.multiply.outer(z, keys.slopes) + keys.offsets
            weights = np.exp(scores - scores.real.max(axis=1, keepdims=True))
            found = float((np.abs(weights).sum(axis=1) / np.abs(weights.sum(axis=1))).max())
            assert 1.0 <= found <= bound < 1e3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("text", ["sin(x) + cos(y)", "sin(x)*cos(y)"])
def test_a_compiled_layer_runs_collapsed_inside_its_bound_and_the_checker_counts_it(text, dtype):
    box = ma.Box.named(("x", "y"), [-2.0, -1.0], [1.0, 2.0])
    layer = ma.compile(text, box, error=1e-2, dtype=dtype, method="spectral")
    assert layer.runtime()[0] == "collapsed" and layer.runtimes()[0] == "collapsed"
    assert layer.reserve == pytest.approx(1e-2 / 256)
    assert layer.certificate.parts["rounding"] >= layer.reserve
    x = box.sample(3000, np.random.default_rng(0))
    f = layer.target.values(x)[:, 0, 0]
    for runtime in layer.runtimes():
        assert np.abs(layer(x, runtime=runtime) - f).max() <= layer.certificate_for(runtime).bound * (1 + 1e-12)
    assert layer.certificate_for("factorised").bound < layer.certificate_for("collapsed").bound <= layer.bound
    away = np.abs(layer(x, runtime="collapsed").astype(float) - layer(x, runtime="factorised").astype(float)).max()
    assert away <= layer.certificate_for("collapsed").parts["rounding"] + layer.certificate_for("factorised").parts["rounding"]
    assert "collapsed" in layer.explain()


def perturbed(layer, scale, rng):
    """A layer of product keys with every stored slope, offset and value moved by about `scale` of its kind's size."""

    def jittered(a):
        return a + scale * np.abs(a).max() * rng.normal(size=a.shape)

    groups = []
    for group in layer.groups:
        axes = tuple(AxisKeys(jittered(axis.slopes), jittered(axis.offsets)) for axis in group.axes)
        groups.append(replace(group, axes=axes, values=jittered(group.values)))
    return replace(layer, groups=tuple(groups))


@pytest.mark.parametrize("scale", [1e-7, 1e-4])
def test_a_perturbed_layer_collapses_inside_the_certificate_of_its_own_numbers(scale):
    box = ma.Box.named(("x", "y"), [-1.0, -1.0], [1.0, 1.0])
    made = ma.compile("sin(2*x) + cos(3*y)", box, error=1e-3, method="spectral")
    layer = perturbed(made.weights, scale, np.random.default_rng(0))
    bound = certify_spectral(layer, made.spectral, 1e-3, "collapsed").bound
    x = points(2, 3000)
    found = chooser.evaluate(layer, x, "collapsed", 1e-3 / 256)[:, 0, 0]
    away = float(np.abs(found - np.sin(2 * x[:, 0]) - np.cos(3 * x[:, 1])).max())
    assert away <= bound
    assert away > made.bound or scale < 1e-5  # the larger perturbation is one that the old bound would not have covered


def test_the_checker_adds_what_the_record_reserves_and_a_file_without_reserve_does_not_collapse():
    layer = ma.compile("sin(3*x)", ma.Box.named(("x",), [-1.0], [1.0]), error=1e-4, method="spectral")
    tensors, record = layer._record()
    first = check(tensors, record)
    details = {**record["certificate"]["details"], "collapse": 3e-5}
    more = check(tensors, {**record, "certificate": {**record["certificate"], "details": details}})
    assert more.bound == pytest.approx(first.bound + 3e-5 - layer.reserve, rel=1e-6)
    for bad in (-1.0, math.nan):
        spoilt = {**record["certificate"], "details": {**details, "collapse": bad}}
        assert not check(tensors, {**record, "certificate": spoilt}).passed
    plain = dict(layer.certificate.details)
    del plain["collapse"]
    old = replace(layer, certificate=layer.certificate.with_details(collapse=0.0))
    assert old.reserve is None and old.runtime()[0] != "collapsed" and "collapsed" not in old.runtimes()
    with pytest.raises(BadInput, match="no margin"):
        old(0.5, runtime="collapsed")


def test_threads_are_checked_with_a_sentence():
    with pytest.raises(BadInput, match="`threads`"):
        parallel.thread_count(0)
    assert parallel.thread_count(3) == 3
    assert FLOOR < 1e-12
