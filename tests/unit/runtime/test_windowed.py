"""Windowed: the sites near the query, a tail that is counted, the same bits in every batch."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.heads.lookup.prove_grid import runtime_rounding
from maxaffine.layer.layer import Layer
from maxaffine.proofs.rounding import rounding_of, window_leak
from maxaffine.runtime import chooser, parallel, windowed


def grid(counts=(40, 30), rho=6.0, dtype="float64", outputs=(1, 1), seed=0, low=-1.0, high=2.0):
    D = len(counts)
    box = ma.Box([low] * D, [high] * D)
    values = np.random.default_rng(seed).normal(size=(*counts, *outputs))
    return Layer(grid_coordinates(box, counts), grid_keys(counts), rho, values, box.low, box.high, ((D, 1),), dtype)


def queries(layer, count=300, seed=1):
    """Random points, sites, faces of cells, corners and edges of the box."""
    rng, D = np.random.default_rng(seed), layer.dimension
    shape, scale = np.asarray(layer.keys.shape), np.diag(layer.coordinates.matrix)
    faces = layer.coordinates.centre + (rng.integers(0, shape + 1, size=(count, D)) - shape / 2.0) / scale
    sites = layer.coordinates.centre + (rng.integers(0, shape, size=(count, D)) - (shape - 1) / 2.0) / scale
    corners = np.where(rng.random((20, D)) < 0.5, layer.low, layer.high)
    x = np.concatenate([rng.uniform(layer.low, layer.high, size=(count, D)), faces, sites, corners])
    return np.clip(x, layer.low, layer.high)


CASES = {
    "one": ((200,), 6.0), "flat": ((60,), 0.4), "two": ((40, 30), 7.4), "three": ((9, 8, 7), 20.0), "few": ((3, 2), 6.0),
    "single": ((1, 50), 10.0), "sharp corners": ((3, 1, 4), 600.0),
    "hard": ((40, 30), 300.0), "very hard": ((50,), 20_000.0), "four": ((5, 4, 6, 3), 40.0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_a_window_is_within_the_rounding_of_the_dense_layer(name, dtype):
    counts, rho = CASES[name]
    layer = grid(counts, rho, dtype, (2, 1))
    x = queries(layer)
    found = chooser.evaluate(layer, x, "windowed").astype(float)
    # the definition with the stored numbers, in extended precision
    slopes, offsets = (part.astype(np.longdouble) for part in layer.keys.listed())
    scores = layer.sharpness * (layer.coordinates(x).astype(np.longdouble) @ slopes.T + offsets)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    exact = (weights @ layer.values.reshape(layer.keys.count, -1).astype(np.longdouble)).reshape(found.shape)
    rounding = rounding_of(layer, "windowed")
    spread = float(np.ptp(layer.values.astype(float)))
    allowed = math.expm1(2 * rounding.joint) * spread + runtime_rounding(layer, rounding) + window_leak(layer)
    assert float(np.abs(found - exact).max()) <= allowed
    assert rho > 1000 or allowed <= (1e-9 if dtype == "float64" else 1e-2)


@pytest.mark.parametrize("outputs", [(1, 1), (2, 2)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["one", "two", "three", "few", "single", "sharp corners"])
def test_numpy_and_the_kernel_agree_bit_for_bit_in_every_batch_and_on_every_number_of_threads(name, dtype, outputs, monkeypatch):
    layer = grid(*CASES[name], dtype, outputs)
    x = queries(layer, 400)
    monkeypatch.setattr(parallel, "_loaded", {"windowed": None})
    slow = windowed.evaluate(layer, x)
    monkeypatch.setattr(parallel, "_loaded", {})
    monkeypatch.setattr(parallel, "ENOUGH", 0)
    monkeypatch.setattr(parallel, "SHARE", 1)
    for threads in (1, 3):
        assert np.array_equal(windowed.evaluate(layer, x, threads), slow)
    parts = [windowed.evaluate(layer, x[i:j]) for i, j in ((0, 1), (1, 300), (300, len(x)))]
    assert np.array_equal(np.concatenate(parts), slow)


@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0, 7.4, 20.0, 200.0])
def test_the_tail_bounds_what_is_left_out_at_the_worst_query(rho):
    for k in (1, 2, 3):
        t = np.linspace(0.0, 1.0, 401)[:, None]  # between two sites, 0 and 1; kept are 1 - k .. k
        sites = np.arange(-200, 201)[None]
        weights = np.exp(-rho * ((t - sites) ** 2 - np.minimum(t, 1 - t) ** 2) / 2)
        left_out = (weights * ((sites < 1 - k) | (sites > k))).sum(axis=1)
        assert float(left_out.max()) <= windowed.tail(rho, k)
    k = windowed.window(rho, windowed.TAIL)
    assert windowed.tail(rho, k) <= windowed.TAIL
    assert k == 1 or windowed.tail(rho, k - 1) > windowed.TAIL


def test_a_smaller_window_would_be_seen(monkeypatch):
    # The test above could not fail if the comparison were blind to the tail.
    layer = grid((200,), 6.0)
    monkeypatch.setattr(windowed, "TAIL", 1e-2)
    short = windowed.window_of(layer)
    x = queries(layer)
    away = float(np.abs(windowed.in_numpy(short, x) - chooser.evaluate(layer, x, "dense")[:, :, 0]).max())
    assert 1e-7 < away <= 2 * 1e-2 * 2 * layer.largest


def test_the_exponential_is_accurate_to_the_ulps_that_are_assumed():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.uniform(-345, 345, 200_000), rng.uniform(-1, 1, 200_000), [0.0, 345.0, -345.0]])
    exact = np.exp(y.astype(np.longdouble))
    assert float(np.abs((windowed.exponential(y) - exact) / exact).max()) <= 8 * 2.0**-53


def test_layers_without_a_window_say_why():
    product = grid()
    assert chooser.choose(product)[0] == "windowed"
    bent = Layer(
        product.coordinates, product.keys, 6.0, product.values, product.low, product.high, product.inputs,
        slopes=np.zeros((*product.values.shape, 2)),
    )  # fmt: skip
    with pytest.raises(BadInput, match=r"cannot run this layer: its values are affine"):
        chooser.evaluate(bent, np.zeros((1, 2)), "windowed")
    assert windowed.reason_not(grid(rho=0.01)) is not None
    assert chooser.choose(grid((3, 3)))[0] == "factorised"  # a window would visit as much


def test_the_cost_does_not_grow_with_the_keys():
    small, large = (windowed.window_of(grid((n, n), 20.0)) for n in (20, 400))
    assert small.visited == large.visited


def test_a_compiled_lookup_runs_windowed_and_its_certificate_counts_the_tail():
    box = ma.Box.named(("x", "y"), [-2.0, -2.0], [2.0, 2.0])
    layer = ma.compile("sin(x) + cos(y)", box, error=0.05, method="lookup")
    assert layer.runtime()[0] == "windowed" and "sites near the query" in layer.explain()
    dense, window = layer.certificate_for("dense"), layer.certificate_for("windowed")
    assert window.parts["leakage"] > dense.parts["leakage"] and window.bound <= layer.bound
    x = queries(layer.weights)
    assert np.abs(layer(x) - np.sin(x[:, 0]) - np.cos(x[:, 1])).max() <= window.bound
