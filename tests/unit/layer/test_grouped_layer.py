"""Grouped layers: one softmax head of several groups, its runtimes, literal matrices, files and what is refused."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.container import read_container
from maxaffine.core.errors import BadInput
from maxaffine.heads.spectral.search import wanted_bonus, with_bonus
from maxaffine.layer.file import from_tensors, to_tensors
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime import chooser, grouped


def small(seed=0, dtype="float64", bonus=60.0):
    """Two groups: one direction with listed values, two directions with factored ones."""
    rng = np.random.default_rng(seed)

    def keys(n):
        return AxisKeys(rng.normal(size=n), rng.normal(size=n))

    first = Group(np.array([[0.5, 0.25, 0.0]]), (keys(4),), rng.normal(size=(4, 1)))
    second = Group(rng.uniform(-0.3, 0.3, (2, 3)), (keys(3), keys(5)), None, (rng.normal(size=(3, 2)), rng.normal(size=(5, 2))))
    return GroupedLayer(np.zeros(3), (first, second), bonus, -np.ones(3), np.ones(3), ((3, 1),), dtype)


def definition(layer, x):
    """F(x) as the docstring of layer/grouped.py writes it, one token at a time."""
    total = 0.0
    for group in layer.groups:
        z = group.matrix @ (x - layer.centre)
        top, bottom = 0.0, 0.0
        for j in np.ndindex(*group.shape):
            logit = sum(a.slopes[i] * t + a.offsets[i] for a, i, t in zip(group.axes, j, z, strict=True))
            if group.values is not None:
                value = group.values[(*j, 0)]
            else:
                value = sum(math.prod(f[i, r] for f, i in zip(group.factors, j, strict=True)) for r in range(2))
            top, bottom = top + math.exp(logit) * value, bottom + math.exp(logit)
        total += top / bottom
    return total


def test_every_runtime_is_the_definition():
    layer = small()
    x = np.random.default_rng(1).uniform(-1, 1, (20, 3))
    wanted = np.array([definition(layer, row) for row in x])
    for runtime in ("factorised", "dense"):
        assert np.allclose(chooser.evaluate(layer, x, runtime)[:, 0, 0], wanted, rtol=0, atol=1e-13)
    assert layer.tokens == 4 + 15 and layer.layout() == "4 + 3 x 5"


def test_the_dense_runtime_leaks_as_much_as_the_bonus_lets_it():
    x = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    away = [
        np.abs(grouped.evaluate_dense(small(bonus=b), x) - grouped.evaluate(small(bonus=b), x)).max() for b in (0.0, 5.0, 10.0)
    ]
    assert away[0] > 0.1 and away[1] < 0.2 * away[0] and away[2] < 0.01 * away[1] * 1.5


def test_attention_weights_sum_to_one_in_every_group():
    layer = small()
    weights = chooser.attention(layer, np.zeros((3, 3)))
    assert weights.shape == (3, 19)
    assert np.allclose(weights[:, :4].sum(axis=1), 1) and np.allclose(weights[:, 4:].sum(axis=1), 1)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 512, 513, 1000])
def test_tree_sums_add_and_count_their_longest_path(count):
    terms = np.random.default_rng(count).normal(size=(3, count))
    assert np.allclose(grouped.tree_sum(terms), terms.sum(axis=1), rtol=1e-14, atol=1e-14)
    assert grouped.tree_terms(count) >= math.ceil(math.log(max(count, 2), 8)) * 7
    exact = np.array([math.fsum(row) for row in terms])
    assert (np.abs(grouped.tree_sum(terms) - exact) <= grouped.tree_terms(count) * 2.0**-53 * np.abs(terms).sum(axis=1)).all()


@functools.cache
def compiled(text, error, dtype="float64", side=1.0, names="xy"):
    return ma.compile(text, ma.Box(**dict.fromkeys(names, (-side, side))), error=error, dtype=dtype, method="spectral")


MATRICES = [
    ("sin(x) + cos(y)", 1e-6, 3.14, "xy"),
    ("tanh(5*(x+y))", 1e-4, 1.0, "xy"),
    ("sin(x)*cos(y) + exp(z)", 1e-3, 1.0, "xyz"),
    ("exp(-x**2-y**2-z**2)", 1e-2, 1.0, "xyz"),
    ("1/(1+25*x**2)", 1e-4, 1.0, "x"),
]


@pytest.mark.parametrize("text, error, side, names", MATRICES)
@pytest.mark.parametrize("kind, layout", [("self", "Q"), ("self", "K"), ("cross", None)])
def test_literal_matrices_are_the_fast_path(text, error, side, names, kind, layout):
    layer = compiled(text, error, "float64", side, names)
    weights = layer.matrices(kind, layout)
    for x in layer.box.sample(5, np.random.default_rng(3)):
        X = x[:, None]
        literal = weights(X) if kind == "cross" or layout == "K" else weights(X, full=False)
        assert literal.shape == (1, 1)
        assert abs(literal[0, 0] - layer(x)) <= layer.certificate.parts["leakage"] + layer.certificate.parts["rounding"] + 1e-11
        assert abs(literal[0, 0] - layer.target.values(x[None])[0, 0, 0]) <= layer.bound + 1e-11


def test_the_whole_literal_layer_runs_by_its_definition():
    layer = compiled("tanh(5*(x+y))", 1e-4)
    weights = layer.matrices("self", "Q")
    x = np.array([0.3, -0.7])
    assert abs(weights(x[:, None], full=True)[0, 0] - layer(x, runtime="factorised")) < 1e-11
    assert "row" in weights.describe()


@pytest.mark.parametrize("kind, layout", [("other", None), ("self", "Z"), ("cross", "Q")])
def test_matrices_that_do_not_exist_are_refused(kind, layout):
    with pytest.raises(BadInput):
        compiled("tanh(5*(x+y))", 1e-4).matrices(kind, layout)


LITERAL = [("sin(x) + cos(y)", 1e-4, "float32", 3.14), ("sin(x) + cos(y)", 5e-2, "bfloat16", 3.14), ("x*y", 1e-4, "float32", 1.0)]


@pytest.mark.parametrize("text, error, dtype, side", LITERAL)
def test_the_literal_layer_in_its_own_dtype_keeps_the_bound(text, error, dtype, side):
    """Queries, keys and values as the dtype stores them; logits, exponentials and sums in float32."""
    layer = compiled(text, error, dtype, side)
    x = np.concatenate([layer.box.sample(4000, np.random.default_rng(0)), layer.box.corners()])
    slopes, offsets, values, owner, rows = [], [], [], [], []
    for g, group in enumerate(layer.weights.groups):
        a, b = group.listed()
        rows.append(((x - layer.weights.centre) @ group.matrix.T).astype(group.axes[0].slopes.dtype).astype(np.float32))
        slopes.append(a.astype(np.float32))
        offsets.append(b.astype(np.float32))
        c, G = (part.astype(np.float32) for part in group.listed_values())
        values.append(c[:, 0] + rows[-1] @ G[:, 0].T)
        owner.append(np.full(group.count, g))
    logits = np.concatenate([z @ a.T + b for z, a, b in zip(rows, slopes, offsets, strict=True)], axis=1)
    out = np.zeros(len(x), dtype=np.float32)
    for g in range(len(rows)):
        scores = logits + np.float32(layer.weights.bonus) * (np.concatenate(owner) == g).astype(np.float32)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out += ((weights / weights.sum(axis=1, keepdims=True)) * np.concatenate(values, axis=1)).sum(axis=1)
    assert out.dtype == np.float32
    exact = layer.target.values(x)[:, 0, 0]
    slack = 0.0 if dtype == "bfloat16" else 1e-5  # sums in float32 here, in float64 in the runtimes that are certified
    assert np.abs(out - exact).max() <= layer.bound + slack
    for runtime in ("dense", "factorised"):
        assert np.abs(layer(x, runtime=runtime) - exact).max() <= layer.bound


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_layer_survives_its_tensors_and_its_file(dtype, tmp_path):
    layer = small(dtype=dtype)
    again = from_tensors(*to_tensors(layer))
    x = np.random.default_rng(0).uniform(-1, 1, (9, 3))
    for runtime in ("factorised", "dense"):
        assert np.array_equal(chooser.evaluate(again, x, runtime), chooser.evaluate(layer, x, runtime))
    made = compiled("sin(x) + cos(y)", {"float64": 1e-6, "float32": 1e-3, "bfloat16": 0.05}[dtype], dtype)
    made.save(tmp_path / "layer.safetensors")
    tensors, record = read_container(tmp_path / "layer.safetensors")
    assert str(tensors["group.0.0.slopes"].dtype) == dtype and record["layer"]["keys"] == "grouped"
    loaded = ma.load(tmp_path / "layer.safetensors")
    assert np.array_equal(loaded(x[:, :2]), made(x[:, :2])) and loaded.bound == made.bound and loaded.tokens == made.tokens


def test_files_with_foreign_or_missing_tensors_are_refused():
    tensors, record = to_tensors(small())
    for change in (
        {"group.7.values": np.zeros((1, 1))},
        {"group.0.values": np.zeros((5, 1))},
        {"group.0.0.slopes": np.zeros((2, 2))},
        {"group.0.matrix": np.zeros((2, 3))},
        {"group.1.0.factor": np.zeros((3, 1))},
    ):
        with pytest.raises(BadInput):
            from_tensors({**tensors, **change}, record)
    for name in ("group.0.values", "group.1.1.factor", "coordinates.centre"):
        with pytest.raises(BadInput):
            from_tensors({k: v for k, v in tensors.items() if k != name}, record)
    with pytest.raises(BadInput):
        from_tensors(tensors, {**record, "bonus": float("nan")})


@pytest.mark.parametrize(
    "change",
    [
        {"groups": ()},
        {"bonus": -1.0},
        {"inputs": ((2, 1),)},
        {"low": -np.ones(2)},
        {"centre": np.array([0.0, np.nan, 0.0])},
        {"groups": (Group(np.ones((1, 3)), (AxisKeys(np.zeros(2), np.zeros(2)),), None, None),)},
        {"groups": (Group(np.ones((1, 3)), (AxisKeys(np.zeros(2), np.zeros(2)),), np.zeros((3, 1))),)},
        {"groups": (Group(np.ones((2, 3)), (AxisKeys(np.zeros(2), np.zeros(2)),), np.zeros((2, 1))),)},
    ],
)
def test_groups_that_do_not_belong_together_are_refused(change):
    with pytest.raises(BadInput):
        replace(small(), **change)


def test_the_bonus_wanted_keeps_the_leak_below_what_is_allowed():
    ratios = [[0.0, 3.0, -1.0], [-3.0, 0.0, 2.0], [1.0, 0.5, 0.0]]
    bonus = wanted_bonus(ratios, 5.0, 1e-6)
    leak = sum(math.exp(ratios[g][o] - bonus) * 10.0 for g in range(3) for o in range(3) if g != o)
    assert leak <= 1e-6 * (1 + 1e-9)
    assert with_bonus(small(), bonus).bonus == math.ceil(bonus)
    assert wanted_bonus([[0.0]], 5.0, 1e-6) == 0.0
