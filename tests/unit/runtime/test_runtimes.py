"""Runtimes: one layer, three ways to run it, and one chooser."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import reference
from maxaffine.core.errors import BadInput
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.layer.keys import Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser, softmax


def grid(counts=(4, 5, 3), rho=6.0, dtype="float64", slopes=False, seed=0):
    rng = np.random.default_rng(seed)
    D = len(counts)
    box = ma.Box([-1.0] * D, [2.0] * D)
    return Layer(
        grid_coordinates(box, counts), grid_keys(counts), rho, rng.normal(size=(*counts, 2, 2)), box.low, box.high, ((D, 1),),
        dtype, rng.normal(size=(*counts, 2, 2, D)) if slopes else None,
    )  # fmt: skip


@pytest.mark.parametrize("slopes", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_runtime_computes_the_definition_with_constant_and_affine_values(dtype, slopes):
    layer = grid(dtype=dtype, slopes=slopes)
    x = np.random.default_rng(1).uniform(-1, 2, size=(50, 3))
    keys, offsets = (np.asarray(part, dtype=float) for part in layer.keys.listed())
    z = layer.coordinates(x)
    values = layer.values.astype(float).reshape(-1, 2, 2)
    expected = []
    for one in z:
        held = values if not slopes else values + layer.slopes.astype(float).reshape(-1, 2, 2, 3) @ one
        expected.append(reference.lookup(layer.sharpness * (keys @ one + offsets), held))
    for runtime in ("dense", "blocked", "factorised"):
        found = chooser.evaluate(layer, x, runtime)
        assert found.dtype == dtype
        assert found == pytest.approx(np.stack(expected), abs=1e-12 if dtype == "float64" else 2e-4)


def test_blocks_of_any_length_give_the_same_answer(monkeypatch):
    layer = grid()
    x = np.random.default_rng(2).uniform(-1, 2, size=(20, 3))
    whole = softmax.blocked(layer, x)
    for size in (1, 7, 59, 60, 1000):
        monkeypatch.setattr(softmax, "BLOCK", size)
        assert softmax.blocked(layer, x) == pytest.approx(whole, abs=1e-13)


def test_streaming_survives_a_maximum_that_rises_by_thousands_from_block_to_block(monkeypatch):
    monkeypatch.setattr(softmax, "BLOCK", 2)
    offsets = np.array([-9e5, -8e5, -3e3, -1e3, 0.0, -0.5])
    for order in (np.arange(6), np.arange(6)[::-1]):
        layer = Layer(
            Coordinates(np.zeros(1), np.eye(1)), ListedKeys(np.zeros((6, 1)), offsets[order]), 1.0,
            np.arange(6.0)[order].reshape(6, 1, 1), np.zeros(1), np.ones(1), ((1, 1),),
        )  # fmt: skip
        weight = math.exp(-0.5)
        assert softmax.blocked(layer, np.zeros((1, 1)))[0, 0, 0] == pytest.approx((4 + 5 * weight) / (1 + weight), rel=1e-14)


def test_queries_are_cut_into_chunks_that_respect_the_workspace(monkeypatch):
    layer = grid()
    x = np.random.default_rng(3).uniform(-1, 2, size=(101, 3))
    for runtime in ("dense", "blocked", "factorised"):
        whole = chooser.evaluate(layer, x, runtime)
        with monkeypatch.context() as patch:
            patch.setattr(chooser, "WORKSPACE", 10 * chooser.RUNTIMES[runtime].bytes_per_query(layer))
            assert chooser.evaluate(layer, x, runtime) == pytest.approx(whole, abs=1e-13)


def test_no_queries_give_no_answers():
    layer = grid()
    for runtime in (None, "dense", "blocked", "factorised"):
        assert chooser.evaluate(layer, np.zeros((0, 3)), runtime).shape == (0, 2, 2)


def test_the_chooser_takes_what_the_keys_allow_and_says_why():
    assert chooser.choose(grid())[0] == "factorised"
    assert chooser.choose(grid((9,)))[0] == "dense"
    big = grid((70_000,), slopes=False)
    assert chooser.choose(big)[0] == "windowed"
    assert chooser.choose(grid((70_000,), slopes=True))[0] == "blocked"
    assert all(reason for _, reason in map(chooser.choose, (grid(), grid((9,)), big)))
    listed = Layer(
        Coordinates(np.zeros(1), np.eye(1)), ListedKeys(np.zeros((2, 1)), np.zeros(2)), 1.0, np.zeros((2, 1, 1)), np.zeros(1),
        np.ones(1), ((1, 1),),
    )  # fmt: skip
    assert chooser.available(listed) == ("dense", "blocked")
    with pytest.raises(BadInput, match="cannot run"):
        chooser.evaluate(listed, np.zeros((1, 1)), "factorised")
    with pytest.raises(BadInput, match="dense"):
        chooser.evaluate(listed, np.zeros((1, 1)), "quick")


def test_dense_and_factorised_weights_are_the_same_product():
    layer = grid()
    x = np.random.default_rng(4).uniform(-1, 2, size=(10, 3))
    assert softmax.attention(layer, x, "factorised") == pytest.approx(softmax.attention(layer, x, "dense"), abs=1e-14)


def test_a_sharpness_beyond_any_gap_gives_the_nearest_value_without_a_warning():
    layer = grid(rho=1e8)
    x = np.random.default_rng(5).uniform(-1, 2, size=(40, 3))
    index = np.floor((x + 1) / 3 * [4, 5, 3]).astype(int)
    for runtime in ("dense", "blocked", "factorised"):
        assert np.array_equal(chooser.evaluate(layer, x, runtime), layer.values[tuple(index.T)])


def test_memory_is_told_before_it_is_taken():
    layer = grid()
    assert softmax.bytes_per_query(layer, "dense") >= layer.keys.count * 8
    assert softmax.bytes_per_query(layer, "blocked") <= 3 * softmax.BLOCK * 8
    assert softmax.bytes_per_query(layer, "factorised") >= layer.values.nbytes // layer.keys.shape[0]
