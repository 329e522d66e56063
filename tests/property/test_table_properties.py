"""Random tables and samples: hard layers answer as SciPy's nearest, and no proved bound is below the true error at an entry."""

import math

import mpmath
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.interpolate import NearestNDInterpolator, RegularGridInterpolator
from scipy.spatial.distance import pdist

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.heads.entries.plan import scaled
from maxaffine.heads.entries.prove import certify_entries
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime import chooser

SIZES = st.lists(st.integers(2, 7), min_size=1, max_size=3)
SEEDS = st.integers(0, 2**32 - 1)


def axis(rng: np.random.Generator, count: int, kind: int) -> np.ndarray:
    """Equidistant, uneven, geometric, far from the origin, or with ties that are exact in binary."""
    if kind == 0:
        return np.linspace(-1.0, 2.0, count)
    if kind == 1:
        return np.cumsum(rng.uniform(1e-6, 1.0, count))
    if kind == 2:
        return np.geomspace(1e-5, 1e4, count)
    if kind == 3:
        return 1e9 + np.cumsum(rng.integers(1, 5, count)).astype(np.float64)
    return np.cumsum(rng.integers(1, 9, count)) / 8.0


def random_table(sizes: list[int], seed: int, outputs: int = 0) -> ma.Table:
    rng = np.random.default_rng(seed)
    axes = [axis(rng, n, int(rng.integers(0, 5))) for n in sizes]
    return ma.Table(axes, rng.normal(size=(*sizes, outputs) if outputs else sizes) * 10.0 ** rng.integers(-3, 4))


def queries(table: ma.Table, rng: np.random.Generator) -> np.ndarray:
    """Anywhere, at entries, half-way between neighbours and next to that."""
    columns = []
    for nodes in table.axes:
        k = rng.integers(0, len(nodes) - 1, 60)
        half = (nodes[k] + nodes[k + 1]) / 2.0
        beside = [np.nextafter(half, -np.inf), np.nextafter(half, np.inf)]
        tried = np.concatenate([half, *beside, nodes[k], rng.uniform(nodes[0], nodes[-1], 60)])
        columns.append(np.clip(rng.permutation(tried), nodes[0], nodes[-1]))
    return np.stack(columns, axis=1)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(0, 2))
def test_hard_tables_answer_as_scipy_does(sizes, seed, outputs) -> None:
    table = random_table(sizes, seed, outputs)
    layer = ma.compile(table, method="nearest")
    x = queries(table, np.random.default_rng(seed))
    values = table.values if outputs else table.values[..., 0]
    expected = RegularGridInterpolator(table.axes, values, method="nearest")(x)
    assert np.array_equal(layer(x), expected)
    assert layer.bound == 0.0


@settings(max_examples=25, deadline=None)
@given(SIZES, SEEDS)
def test_hard_tables_in_float32_stand_where_scipy_does(sizes, seed) -> None:
    table = random_table(sizes, seed)
    layer = ma.compile(table, method="nearest", dtype="float32")
    x = queries(table, np.random.default_rng(seed))
    narrow = table.values[..., 0].astype(np.float32).astype(np.float64)
    assert np.array_equal(layer(x).astype(np.float64), RegularGridInterpolator(table.axes, narrow, method="nearest")(x))
    assert float(np.abs(narrow - table.values[..., 0]).max()) <= layer.bound


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 40), st.integers(2, 4), SEEDS)
def test_hard_samples_answer_as_scipy_does(count, dimension, seed) -> None:
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(count, dimension)), rng.integers(0, 3, (count, dimension)).astype(np.float64)])
    X = np.unique(X, axis=0)
    y = rng.normal(size=len(X))
    layer = ma.compile(ma.Samples(X, y), method="nearest")
    near = X[rng.integers(0, len(X), 100)] / 2.0 + X[rng.integers(0, len(X), 100)] / 2.0  # ties among them
    x = np.concatenate([near, X, rng.uniform(X.min(axis=0), X.max(axis=0), (100, dimension))])
    x = np.clip(x, X.min(axis=0), X.max(axis=0))
    assert np.array_equal(layer(x), NearestNDInterpolator(X, y)(x))
    assert layer.bound == 0.0


def exact(layer: ma.Compiled, x: np.ndarray) -> list[mpmath.mpf]:
    """The head of the stored numbers at z as the layer rounds it, in 60 digits: (K,)."""
    number = lambda value: mpmath.mpf(float(value))  # noqa: E731
    with mpmath.workdps(60):
        group = layer.weights.groups[0]
        z = ((x - layer.weights.centre) @ group.matrix.T).astype(layer.dtype).astype(np.float64)
        weights = []
        for e, one in enumerate(group.axes):
            pairs = zip(one.slopes, one.offsets, strict=True)
            raw = [mpmath.exp(number(a) * number(z[e]) + number(b)) for a, b in pairs]
            weights.append([w / mpmath.fsum(raw) for w in raw])
        total = [mpmath.mpf(0)] * group.values.shape[-1]
        for index in np.ndindex(*group.shape):
            w = mpmath.fprod(weights[e][i] for e, i in enumerate(index))
            for k in range(len(total)):
                value = number(group.values[(*index, k)])
                if group.slopes is not None:
                    value += mpmath.fsum(number(group.slopes[(*index, k, e)]) * number(z[e]) for e in range(len(z)))
                total[k] += w * value
        return total


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(4, 9), min_size=1, max_size=2), SEEDS, st.sampled_from(["float64", "float32"]), st.floats(-6, -1))
def test_no_bound_is_below_the_true_error_of_a_head(sizes, seed, dtype, digits) -> None:
    rng = np.random.default_rng(seed)
    axes = [axis(rng, n, int(rng.choice([0, 1, 4]))) for n in sizes]
    mesh = np.meshgrid(*[(nodes - nodes[0]) / (nodes[-1] - nodes[0]) for nodes in axes], indexing="ij")
    table = ma.Table(axes, np.cos(sum(rng.uniform(0.2, 2.0) * one for one in mesh)) + 3.0)
    try:
        layer = ma.compile(table, error=10.0**digits, dtype=dtype, method="spectral")
    except ma.Refused:
        return  # few entries, few digits
    worst = mpmath.mpf(0)
    for points, values in table.blocks():
        got = layer(points).astype(np.float64)
        assert float(np.abs(got - values[:, 0]).max()) <= layer.bound
        for x, v in zip(points, values, strict=True):
            worst = max(worst, abs(exact(layer, x)[0] - mpmath.mpf(float(v[0]))))
    assert worst <= layer.bound <= 10.0**digits
    verdict = check(*layer._record(), table)
    assert verdict.passed and worst <= verdict.bound


@settings(max_examples=25, deadline=None)
@given(SIZES, SEEDS)
def test_no_bound_is_below_the_error_of_a_lookup(sizes, seed) -> None:
    table = random_table(sizes, seed)
    try:
        layer = ma.compile(table, error=1e-4 * table.largest, method="lookup")
    except ma.Refused:
        return  # axes of many decades have logits that float64 rounds too much
    for runtime in layer.runtimes():
        bound = certify_entries(layer.weights, table, layer.error, runtime)[0].bound
        for points, values in table.blocks():
            assert float(np.abs(layer(points, runtime=runtime) - values[:, 0]).max()) <= bound
    assert layer.bound <= layer.error


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 60), st.integers(1, 3), SEEDS)
def test_samples_are_proved_where_they_are(count, dimension, seed) -> None:
    rng = np.random.default_rng(seed)
    X, noise = rng.normal(size=(count, dimension)), 10.0 ** rng.integers(-6, 1)
    samples = ma.Samples(X, np.sin(X).sum(axis=1) + noise * rng.normal(size=count))
    try:
        layer = ma.compile(samples, error=1e-3)
    except ma.Refused:  # two points so close that the logits which tell them apart are rounded too much
        assert dimension > 1 and pdist(X).min() < 1e-3
        return
    assert float(np.abs(layer(X) - samples.y[:, 0]).max()) <= layer.bound <= 1e-3
    tensors, record = layer._record()
    verdict = check(tensors, record, samples)
    assert verdict.passed
    name = next(name for name in tensors if name.endswith("values"))
    moved = np.array(tensors[name]) + 2.5e-3
    assert not check({**tensors, name: moved}, record, samples).passed


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, st.integers(2, 12), elements=st.floats(-1e6, 1e6, width=32), unique=True), SEEDS)
def test_hashes_differ_where_a_number_does(nodes, seed) -> None:
    nodes = np.sort(nodes)
    values = np.random.default_rng(seed).normal(size=len(nodes))
    one = ma.Table([nodes], values).entries
    k = seed % len(nodes)
    moved = values.copy()
    moved[k] = math.nextafter(moved[k], math.inf)
    assert ma.Table([nodes], moved).entries != one
    assert ma.Table([nodes[::-1]], values[::-1]).entries == one


def random_head(rng: np.random.Generator) -> tuple[GroupedLayer, list[np.ndarray]]:
    """One group of random keys and large random values on random axes: what is left of its error is rounding."""
    D = int(rng.integers(1, 3))
    counts = [int(rng.integers(1, 8)) for _ in range(D)]
    steps = [rng.uniform(0.01, 1.0, int(rng.integers(3, 20))) * 10.0 ** rng.integers(-3, 4) for _ in range(D)]
    axes = [np.cumsum(one) + rng.normal() * 10.0 ** rng.integers(-2, 3) for one in steps]
    keys = tuple(
        AxisKeys(np.sort(rng.normal(size=n)) * 10.0 ** rng.uniform(-1, 2), rng.normal(size=n) * 10.0 ** rng.uniform(-1, 1.5))
        for n in counts
    )
    values = rng.normal(size=(*counts, 1)) * 10.0 ** rng.uniform(-2, 6)
    slopes = rng.normal(size=(*counts, 1, D)) * 10.0 ** rng.uniform(-2, 6) if rng.random() < 0.5 else None
    places = [scaled(nodes) for nodes in axes]
    centre, scale = (np.array([one[k] for one in places]) for k in (1, 2))
    low, high = (np.array([nodes[k] for nodes in axes]) for k in (0, -1))
    group = Group(np.diag(scale), keys, values, None, slopes)
    return GroupedLayer(centre, (group,), 0.0, low, high, ((D, 1),), str(rng.choice(["float64", "float32"]))), axes


def extended(layer: GroupedLayer, points: np.ndarray) -> np.ndarray:
    """The head at the z that it is run at, in long double: (B,)."""
    group, wide = layer.groups[0], np.longdouble
    z = ((points - layer.centre) @ group.matrix.T).astype(layer.dtype).astype(wide)
    W = np.ones((len(points), 1), dtype=wide)
    for e, one in enumerate(group.axes):
        scores = np.multiply.outer(z[:, e], one.slopes.astype(wide)) + one.offsets.astype(wide)
        w = np.exp(scores - scores.max(axis=1, keepdims=True))
        W = (W[:, :, None] * (w / w.sum(axis=1, keepdims=True))[:, None]).reshape(len(points), -1)
    found = W @ group.values.reshape(-1).astype(wide)
    if group.slopes is not None:
        found = found + ((W @ group.slopes.reshape(W.shape[1], -1).astype(wide)) * z).sum(axis=1)
    return found


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_rounding_alone_is_below_what_is_counted(seed) -> None:
    layer, axes = random_head(np.random.default_rng(seed))
    shape = [len(nodes) for nodes in axes]
    points = next(ma.Table(axes, np.zeros(shape)).blocks())[0]
    table = ma.Table(axes, extended(layer, points).astype(np.float64).reshape(shape))
    try:
        certificate, _ = certify_entries(layer, table, 1e-300)
    except ma.Refused:  # logits that the dtype rounds too much
        return
    tensors, description = to_tensors(layer)
    record = {
        "layer": description, "target": table.target.to_json(), "error": 1e-300, "norm": "entries",
        "certificate": certificate.to_json(), "plan": {},
    }  # fmt: skip
    verdict = check(tensors, record, table)
    for runtime in ("factorised", "dense"):
        got = chooser.evaluate(layer, points, runtime).astype(np.float64).ravel()
        error = float(np.abs(got - table.values.ravel()).max())
        assert error <= certify_entries(layer, table, 1e-300, runtime)[0].bound
        assert verdict.bound is None or error <= verdict.bound
