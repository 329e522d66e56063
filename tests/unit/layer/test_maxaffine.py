"""MaxAffine: what it says at points, how it is made, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pytest

from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.maxaffine import MaxAffine

RNG = np.random.default_rng(5)
ABSOLUTE = MaxAffine([[1.0], [-1.0]], [0.0, 0.0])  # |x| as max(x, -x)


def box(low, high):
    return SimpleNamespace(low=np.array(low, dtype=float), high=np.array(high, dtype=float))


def test_pieces_value_and_argmax_follow_their_formulas():
    partition = MaxAffine([[1, 0], [0, 2], [-1, -1]], [0, 1, 2])
    x = np.array([[3.0, 1.0], [0.0, 0.0], [-4.0, 2.0]])
    assert partition.pieces(x).tolist() == [[3, 3, -2], [0, 1, 2], [-4, 5, 4]]
    assert partition.value(x).tolist() == [3, 2, 5]
    assert partition.argmax(x).tolist() == [0, 2, 1]  # the first is a tie of 0 and 1
    assert partition.margin(x).tolist() == [0, 1, 1]
    assert partition.indicator(x).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert len(partition) == 3 and partition.dimension == 2


def test_a_tie_goes_to_the_least_index_and_the_closed_cells_keep_both():
    zero = np.array([[0.0]])
    assert ABSOLUTE.argmax(zero).tolist() == [0]
    assert ABSOLUTE.indicator(zero).tolist() == [[1.0, 0.0]]
    assert ABSOLUTE.enlarged(zero, 0.0).tolist() == [[True, True]]
    assert ABSOLUTE.margin(zero).tolist() == [0.0]


def test_equal_pieces_tie_exactly_whatever_the_batch():
    row = RNG.normal(size=7)
    partition = MaxAffine(np.tile(row, (501, 1)), np.full(501, 0.3))
    x = RNG.normal(size=(33, 7))
    assert (partition.argmax(x) == 0).all()
    assert (partition.margin(x) == 0).all()
    assert np.array_equal(partition.pieces(x)[4], partition.pieces(x[4]))


def test_enlarged_cells_grow_with_g():
    x = np.linspace(-1, 1, 9)[:, None]
    assert ABSOLUTE.enlarged(x, 0.5)[:, 0].tolist() == [False] * 3 + [True] * 6
    assert ABSOLUTE.enlarged(x, np.inf).all()


def test_one_piece_wins_everywhere_by_an_infinite_margin():
    one = MaxAffine([[2.0, 3.0]], [1.0])
    assert one.margin([[0.0, 0.0]]).tolist() == [np.inf]
    assert one.argmax([5.0, 5.0]) == 0


def test_leading_shapes_are_kept():
    partition = MaxAffine(RNG.normal(size=(6, 3)), RNG.normal(size=6))
    x = RNG.normal(size=(4, 5, 3))
    assert partition.pieces(x).shape == (4, 5, 6) == partition.indicator(x).shape == partition.enlarged(x, 1).shape
    assert partition.value(x).shape == (4, 5) == partition.argmax(x).shape == partition.margin(x).shape
    assert partition.value(x[0, 0]).shape == ()
    assert partition.pieces(np.empty((0, 3))).shape == (0, 6)
    assert partition.argmax(np.empty((0, 3))).shape == (0,)


def test_large_batches_in_chunks_say_what_small_ones_say(monkeypatch):
    partition = MaxAffine(RNG.normal(size=(50, 2)), RNG.normal(size=50))
    x = RNG.normal(size=(1000, 2))
    whole = partition.value(x), partition.argmax(x), partition.margin(x)
    monkeypatch.setattr("maxaffine.layer.maxaffine._PAIRS_AT_ONCE", 70)
    for one, other in zip(whole, (partition.value(x), partition.argmax(x), partition.margin(x)), strict=True):
        assert np.array_equal(one, other)


def test_power_diagram_of_equal_weights_is_nearest_site():
    sites = RNG.normal(size=(40, 5))
    x = RNG.normal(size=(300, 5))
    nearest = ((x[:, None] - sites) ** 2).sum(axis=-1).argmin(axis=1)
    assert np.array_equal(MaxAffine.from_power_diagram(sites).argmax(x), nearest)
    assert np.array_equal(MaxAffine.from_power_diagram(sites, np.full(40, 3.0)).argmax(x), nearest)


def test_grid_is_the_metric_form():
    domain = box([0.0, -1.0], [1.0, 2.0])
    grid = MaxAffine.grid(domain, (2, 3))
    width = np.array([0.5, 1.0])
    centres = np.array([[x, y] for x in (0.25, 0.75) for y in (-0.5, 0.5, 1.5)])  # the last axis runs fastest
    assert np.allclose(grid.A, centres / width**2)
    assert np.allclose(grid.b, -0.5 * (centres**2 / width**2).sum(axis=1))
    # Softmax(rho s) is the Gaussian kernel estimator with bandwidth h / sqrt(rho).
    rho, x = 3.0, RNG.uniform(domain.low, domain.high, (20, 2))
    logits = rho * grid.pieces(x)
    softmax = np.exp(logits - logits.max(axis=1, keepdims=True))
    kernel = np.exp(-rho * ((x[:, None] - centres) ** 2 / (2 * width**2)).sum(axis=-1))
    assert np.allclose(softmax / softmax.sum(axis=1, keepdims=True), kernel / kernel.sum(axis=1, keepdims=True))


def test_grid_margin_is_half_a_cell_less_the_distance_from_the_centre():
    domain = box([0.0, 0.0, 5.0], [1.0, 2.0, 6.0])
    counts = np.array([4, 3, 5])
    width = (domain.high - domain.low) / counts
    x = RNG.uniform(domain.low + width, domain.high - width, (200, 3))  # edge cells have neighbours on one side only
    offset = np.abs((x - domain.low) / width % 1 - 0.5)
    assert np.allclose(MaxAffine.grid(domain, counts).margin(x), (0.5 - offset).min(axis=1))


def test_pulled_back_writes_the_pieces_in_the_coordinates_of_the_user():
    partition = MaxAffine(RNG.normal(size=(9, 2)), RNG.normal(size=9))
    matrix, centre = RNG.normal(size=(2, 4)), RNG.normal(size=4)
    x = RNG.normal(size=(10, 4))
    assert np.allclose(partition.pulled_back(matrix, centre).pieces(x), partition.pieces((x - centre) @ matrix.T))


def test_sliced_is_the_restriction_to_a_plane():
    partition = MaxAffine(RNG.normal(size=(9, 4)), RNG.normal(size=9))
    at, y = RNG.normal(size=4), RNG.normal(size=(10, 2))
    x = np.tile(at, (10, 1))
    x[:, [2, 0]] = y
    section = partition.sliced((2, 0), at)
    assert section.dimension == 2 and len(section) == 9
    assert np.allclose(section.pieces(y), partition.pieces(x))


def test_it_is_frozen_copied_and_compared_by_value():
    slopes = np.ones((2, 1))
    one, other = MaxAffine(slopes, [0, 1]), MaxAffine([[1], [1]], [-0.0, 1])
    slopes[0] = 7
    assert one == other and hash(one) == hash(other) and one != MaxAffine([[1], [1]], [0, 2]) and one != "else"
    with pytest.raises(FrozenInstanceError):
        one.A = slopes
    with pytest.raises(ValueError, match="read-only"):
        one.A[0] = 3
    assert repr(one) == "MaxAffine(2 pieces in 1 variable)"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MaxAffine([1.0, 2.0], [0.0, 0.0]), r"`A` of shape \(2,\) must have shape \(N, D\)"),
        (lambda: MaxAffine(np.empty((0, 2)), []), "at least one piece"),
        (lambda: MaxAffine(np.empty((2, 0)), [0, 0]), "one coordinate"),
        (lambda: MaxAffine(np.eye(2), [0.0]), r"`b` of shape \(1,\) must have shape \(2,\)"),
        (lambda: MaxAffine([[np.nan]], [0.0]), "`A` holds nan or inf"),
        (lambda: MaxAffine([[1.0]], [np.inf]), "`b` holds nan or inf"),
        (lambda: MaxAffine([[1.0], [2.0, 3.0]], [0, 0]), "`A` must be an array of numbers"),
        (lambda: MaxAffine([["a"]], [0]), "`A` must be an array of numbers"),
        (lambda: MaxAffine.from_power_diagram([1.0, 2.0]), r"sites\[:, None\]"),
        (lambda: MaxAffine.from_power_diagram(np.eye(2), [1.0]), "`weights` of shape"),
        (lambda: MaxAffine.grid(box([0], [1]), 0), "`counts`"),
        (lambda: MaxAffine.grid(box([0], [1]), 2.5), "`counts`"),
        (lambda: MaxAffine.grid(box([0, 0], [1, 1]), [2]), "`counts`"),
        (lambda: ABSOLUTE.pieces([1.0, 2.0]), "`x` of shape"),
        (lambda: ABSOLUTE.pieces(1.0), "`x` of shape"),
        (lambda: ABSOLUTE.enlarged([[1.0]], -1), "`g`"),
        (lambda: ABSOLUTE.enlarged([[1.0]], np.nan), "`g`"),
        (lambda: ABSOLUTE.pulled_back(np.eye(2), np.zeros(2)), "`matrix`"),
        (lambda: ABSOLUTE.sliced([1], [0.0]), "`axes`"),
        (lambda: ABSOLUTE.sliced([], [0.0]), "`axes`"),
        (lambda: ABSOLUTE.sliced([0], [0.0, 1.0]), "`at`"),
    ],
)
def test_malformed_arguments_are_named(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()


def test_a_grid_too_large_to_list_is_refused_before_it_is_built():
    with pytest.raises(Refused, match="100,000,000,000,000,000,000 pieces"):
        MaxAffine.grid(box([0] * 20, [1] * 20), 10)


def test_importing_it_needs_numpy_alone():
    code = "import sys, maxaffine.layer.maxaffine; assert not any(m.startswith('scipy') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
