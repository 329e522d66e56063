"""The order of cells: a permutation by bins, the same bits as in any order, and stretches that respect a limit."""

import itertools

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.heads.lookup.grid import grid_coordinates, grid_keys
from maxaffine.layer.layer import Layer
from maxaffine.runtime import parallel, windowed

CASES = {
    "one": ((200,), 6.0), "two": ((40, 30), 7.4), "three": ((9, 8, 7), 20.0), "few": ((3, 2), 6.0), "single": ((1, 50), 10.0),
    "four": ((5, 4, 6, 3), 40.0),
}  # fmt: skip


def grid(counts, rho, dtype="float64", outputs=(1, 1)):
    """Random values on [-1, 2]^D."""
    D = len(counts)
    box = ma.Box([-1.0] * D, [2.0] * D)
    values = np.random.default_rng(0).normal(size=(*counts, *outputs))
    return Layer(grid_coordinates(box, counts), grid_keys(counts), rho, values, box.low, box.high, ((D, 1),), dtype)


def queries(layer, count):
    """Random points, corners and the middle."""
    rng, D = np.random.default_rng(1), layer.dimension
    corners = np.where(rng.random((20, D)) < 0.5, -1.0, 2.0)
    return np.concatenate([rng.uniform(-1, 2, size=(2 * count, D)), corners, np.full((3, D), 0.5)])


@pytest.fixture(autouse=True)
def _kernel(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(parallel, "_loaded", {})
    monkeypatch.setattr(parallel, "ENOUGH", 0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["one", "two", "three", "few", "single", "four"])
def test_answers_in_the_order_of_cells_have_the_bits_of_any_order(name, dtype, monkeypatch):
    layer = grid(*CASES[name], dtype, (2, 1))
    x = queries(layer, 400)
    plain = windowed.evaluate(layer, x)
    for name, value in (("FAR", 0), ("ROWS", 1), ("MANY", 1), ("PIECE", 500)):
        monkeypatch.setattr(windowed, name, value)
    monkeypatch.setattr(parallel, "SHARE", 1)
    taken = []
    monkeypatch.setattr(windowed, "order", lambda *told, known=windowed.order: taken.append(len(told[1])) or known(*told))
    for threads in (1, 3):
        assert np.array_equal(windowed.evaluate(layer, x, threads), plain)
    assert taken and max(taken) <= 500 and sum(taken) == 2 * len(x)  # they were ordered, in pieces
    backwards = windowed.evaluate(layer, x[::-1], 1)[::-1]
    assert np.array_equal(backwards, plain)


def test_mapped_values_are_answered_in_stretches_with_the_same_bits(tmp_path, monkeypatch):
    plain = grid((60, 50), 20.0)
    plain.values.tofile(tmp_path / "v.bin")
    mapped = np.memmap(tmp_path / "v.bin", np.float64, mode="r", shape=plain.values.shape)
    layer = type(plain)(plain.coordinates, plain.keys, 20.0, mapped, plain.low, plain.high, plain.inputs)
    assert isinstance(layer.values, np.memmap)
    x = queries(layer, 800)
    monkeypatch.setattr(windowed, "MAPPED", 10_000)
    monkeypatch.setattr(windowed, "MANY_MAPPED", 1)
    monkeypatch.setattr(windowed, "PIECE", 1_000)
    assert np.array_equal(windowed.evaluate(layer, x), windowed.evaluate(plain, x))


def test_the_order_is_a_permutation_that_goes_through_the_bins():
    made = windowed.window_of(grid((90, 80, 70), 20.0))
    x = np.random.default_rng(0).uniform(-1, 2, size=(5_000, 3))
    found, bands = windowed.order(made, x)
    assert np.array_equal(np.sort(found), np.arange(len(x)))
    bins = windowed.bins_of(made)
    assert int(np.prod(bins)) <= windowed.BINS
    place = np.minimum(((x + 1) / 3 * bins).astype(int), bins - 1)[found]
    keys = (place[:, 0] * bins[1] + place[:, 1]) * bins[2] + place[:, 2]
    assert np.all(np.diff(keys) >= 0) and len(np.unique(keys)) > 1_000
    assert np.array_equal(bands, np.searchsorted(place[:, 0], np.arange(bins[0]), side="right"))


@pytest.mark.parametrize("limit", [4_000, 40_000, 200_000, 10**9])
def test_stretches_hold_every_query_once_and_look_at_no_more_than_the_limit(limit, monkeypatch):
    monkeypatch.setattr(windowed, "AROUND", 8)
    monkeypatch.setattr(parallel, "BLOCK", 1)
    layer = grid((90, 80, 7), 20.0)
    made = windowed.window_of(layer)
    x = np.random.default_rng(0).uniform(-1, 2, size=(3_000, 3))
    found, bands = windowed.order(made, x)
    stretches = list(windowed.resident(made, bands, limit))
    assert stretches[0][0] == 0 and stretches[-1][1] == len(x)
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in itertools.pairwise(stretches))
    assert (len(stretches) == 1) == (limit >= 500_000)
    for first, last in stretches:
        cells = np.floor((x[found[first:last], 0] + 1) / 3 * 90)
        by_bands = (np.ptp(cells) + 1 + made.widths[0]) * made.strides[0] * 8
        by_number = (last - first) * 2 * made.rows * windowed.AROUND
        assert min(by_bands, by_number) <= limit


def test_only_large_batches_over_values_beyond_the_caches_are_ordered():
    near, far = windowed.window_of(grid((40, 40, 40), 40.0)), windowed.window_of(grid((100, 100, 100), 40.0))
    flat = windowed.window_of(grid((1000, 1000), 40.0))
    assert windowed.least_ordered(near) > 10**7 and windowed.least_ordered(flat) > 10**7
    assert 10**4 < windowed.least_ordered(far) <= 10**6
    assert 10 < windowed.least_ordered(flat, mapped=True) <= 10**4
