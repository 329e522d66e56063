"""Laws of max-affine partitions, for whatever pieces Hypothesis thinks of."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from maxaffine.layer.maxaffine import MaxAffine

# Small dyadic numbers make every score exact, so laws about ties hold without a tolerance.
dyadic = st.integers(-64, 64).map(lambda k: k / 16)
real = st.floats(-8, 8, allow_nan=False, width=32)
UNIT = SimpleNamespace(low=np.array([-1.0, -1.0]), high=np.array([1.0, 1.0]))


@st.composite
def problems(draw, elements=dyadic, dimension=None):
    """A partition and a batch of points."""
    d = dimension or draw(st.integers(1, 4))
    n = draw(st.integers(1, 12))
    partition = MaxAffine(draw(arrays(float, (n, d), elements=elements)), draw(arrays(float, n, elements=elements)))
    return partition, draw(arrays(float, (draw(st.integers(1, 6)), d), elements=elements))


@given(problems())
def test_the_indicator_picks_the_greatest_piece_and_the_least_index(problem):
    partition, x = problem
    scores, winner = partition.pieces(x), partition.argmax(x)
    assert np.array_equal((partition.indicator(x) * scores).sum(axis=1), partition.value(x))
    for row, j in zip(scores, winner, strict=True):
        assert (row <= row[j]).all() and (row[:j] < row[j]).all()


@given(problems())
def test_margin_is_zero_exactly_where_two_closed_cells_meet(problem):
    partition, x = problem
    assert np.array_equal(partition.margin(x) == 0, partition.enlarged(x, 0.0).sum(axis=1) > 1)


@given(problems(), st.integers(0, 64))
def test_enlarging_one_offset_enlarges_its_cell(problem, steps):
    partition, x = problem
    g = steps / 16
    for j in range(len(partition)):
        offsets = partition.b.copy()
        offsets[j] += g
        raised = MaxAffine(partition.A, offsets)
        assert np.array_equal(partition.enlarged(x, g)[:, j], raised.enlarged(x, 0.0)[:, j])


@given(problems(), st.data())
def test_a_common_affine_function_changes_no_cell(problem, data):
    partition, x = problem
    slope = data.draw(arrays(float, partition.dimension, elements=dyadic))
    offset = data.draw(dyadic)
    moved = MaxAffine(partition.A + slope, partition.b + offset)
    assert np.array_equal(moved.argmax(x), partition.argmax(x))
    assert np.array_equal(moved.margin(x), partition.margin(x))


@given(problems(elements=real))
def test_power_diagram_there_and_back_is_the_same_up_to_rounding(problem):
    partition, _ = problem
    sites, weights = partition.to_power_diagram()
    again = MaxAffine.from_power_diagram(sites, weights)
    size = 1 + np.abs(partition.b) + (partition.A**2).sum(axis=1)
    assert np.array_equal(again.A, partition.A)
    assert (np.abs(again.b - partition.b) <= 4e-16 * size * (2 + partition.dimension)).all()
    _, weights_again = again.to_power_diagram()
    assert (np.abs(weights_again - weights) <= 8e-16 * size * (2 + partition.dimension)).all()


@given(problems())
def test_the_greatest_piece_is_the_site_of_least_power_distance(problem):
    partition, x = problem
    sites, weights = partition.to_power_diagram()
    power = ((x[:, None] - sites) ** 2).sum(axis=-1) - weights
    assert np.array_equal(power.argmin(axis=1), partition.argmax(x))


@given(problems())
def test_a_permutation_of_the_pieces_permutes_the_closed_cells(problem):
    partition, x = problem
    order = np.arange(len(partition))[::-1]
    turned = MaxAffine(partition.A[order], partition.b[order])
    assert np.array_equal(turned.enlarged(x, 0.0), partition.enlarged(x, 0.0)[:, order])
    assert np.array_equal(turned.value(x), partition.value(x))


@settings(deadline=None)
@given(st.one_of(problems(dyadic, 2), problems(real, 2)))
def test_polygons_tile_the_box_and_lie_in_their_closed_cells(problem):
    partition, _ = problem
    areas = []
    for j, polygon in enumerate(partition.polygons(UNIT)):
        if len(polygon):
            x, y = (polygon - polygon[0]).T
            areas.append(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) / 2)  # positive when counter-clockwise
            assert areas[-1] > 0
            assert partition.enlarged(polygon, 1e-9)[:, j].all()
    assert np.isclose(sum(areas), 4.0, rtol=1e-9)


@given(problems(dyadic, 1))
def test_intervals_tile_the_box_and_lie_in_their_closed_cells(problem):
    partition, _ = problem
    cells = partition.intervals(SimpleNamespace(low=np.array([-1.0]), high=np.array([1.0])))
    assert np.isclose(np.nansum(cells[:, 1] - cells[:, 0]), 2.0)
    for j in np.flatnonzero(~np.isnan(cells[:, 0])):
        assert partition.enlarged(cells[j][:, None], 1e-12)[:, j].all()
