"""Queries as users write them."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput
from maxaffine.runtime.queries import as_points

LINE = ma.Target.of("x", ma.Box(x=(-np.pi, np.pi)))
PLANE = ma.Target.of("x*y", ma.Box(x=(0, 1), y=(0, 1)))
SEQUENCE = ma.Target.of("x11", ma.Box.sequence(d=2, n=3, low=-1, high=1))
PAIR = ma.Target.of("q_x1 + k_x1 + q_x2", (ma.Box([0, 0], [1, 1]), ma.Box([0, 0], [1, 1])))


@pytest.mark.parametrize(("target", "x", "shape", "single"), [
    (LINE, 0.5, (1, 1), True), (LINE, [0.5], (1, 1), False), (LINE, [0.1, 0.2], (2, 1), False),
    (LINE, [[0.1], [0.2]], (2, 1), False), (PLANE, [0.1, 0.2], (1, 2), True), (PLANE, [[0.1, 0.2]], (1, 2), False),
    (PLANE, np.zeros((0, 2)), (0, 2), False), (SEQUENCE, np.zeros((2, 3)), (1, 6), True),
    (SEQUENCE, np.zeros((5, 2, 3)), (5, 6), False),
])  # fmt: skip
def test_points_batches_and_matrices_become_rows(target, x, shape, single):
    points, alone = as_points(target, x)
    assert (points.shape, alone, points.dtype) == (shape, single, np.float64)


def test_sequences_stack_their_columns():
    X = np.arange(6.0).reshape(2, 3) / 10
    assert as_points(SEQUENCE, X)[0][0].tolist() == [0.0, 0.3, 0.1, 0.4, 0.2, 0.5]


@pytest.mark.parametrize(("target", "x"), [
    (PLANE, [0.1]), (PLANE, [0.1, 0.2, 0.3]), (PLANE, np.zeros((2, 3))), (PLANE, np.zeros((1, 1, 2))), (PLANE, 0.5),
    (PLANE, "text"), (PLANE, [[0.1, np.nan]]), (PLANE, [[0.1, np.inf]]), (PLANE, [[0.1j, 0.2]]), (PLANE, [["a", "b"]]),
    (PLANE, [[1], [2, 3]]), (PLANE, None), (PLANE, [[-0.01, 0.5]]), (PLANE, [[0.5, 1.01]]), (SEQUENCE, np.zeros(6)),
    (SEQUENCE, np.zeros((3, 2))), (LINE, np.zeros((2, 2))), (LINE, 4.0),
])  # fmt: skip
def test_queries_of_another_shape_kind_or_place_are_refused(target, x):
    with pytest.raises(BadInput):
        as_points(target, x)


def test_a_query_beyond_an_edge_by_its_own_rounding_is_clamped_and_no_farther():
    beyond = np.float32(np.pi)
    assert float(beyond) > np.pi
    assert as_points(LINE, np.array([beyond]))[0][0, 0] == np.pi
    with pytest.raises(BadInput, match="outside"):
        as_points(LINE, float(beyond))
    with pytest.raises(BadInput, match="outside"):
        as_points(LINE, np.array([np.float32(3.1416)]))
    assert as_points(LINE, np.nextafter(np.pi, 4))[0][0, 0] == np.pi
    assert as_points(LINE, 100.0, outside="clamp")[0][0, 0] == np.pi
    with pytest.raises(BadInput, match="clamp"):
        as_points(LINE, 0.0, outside="ignore")


def test_two_inputs_come_as_two_arrays_of_equally_many_points():
    points, single = as_points(PAIR, [[0.1, 0.2]], [[0.3, 0.4]])
    assert (points.tolist(), single) == ([[0.1, 0.2, 0.3, 0.4]], False)
    for wrong in (([0.1, 0.2],), ([[0.1, 0.2]], [0.3, 0.4]), ([[0.1, 0.2]], [[0.3, 0.4], [0.5, 0.6]])):
        with pytest.raises(BadInput):
            as_points(PAIR, *wrong)


def test_whole_numbers_and_halves_are_numbers():
    assert as_points(PLANE, [0, 1])[0].tolist() == [[0.0, 1.0]]
    assert as_points(PLANE, np.array([[0.5, 1.0]], dtype=np.float16))[0].tolist() == [[0.5, 1.0]]
