"""The layer is frozen data that belongs together."""

import numpy as np
import pytest

from maxaffine.core.errors import BadInput
from maxaffine.heads.lookup.grid import cell_centres, cell_widths, grid_coordinates, grid_keys
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.target.box import Box


def parts(**changes):
    base = {
        "coordinates": Coordinates(np.zeros(2), np.eye(2)), "keys": ListedKeys(np.ones((3, 2)), np.zeros(3)), "sharpness": 1.0,
        "values": np.zeros((3, 1, 1)), "low": -np.ones(2), "high": np.ones(2), "inputs": ((2, 1),),
    }  # fmt: skip
    return {**base, **changes}


@pytest.mark.parametrize("changes", [
    {"values": np.zeros((4, 1, 1))}, {"values": np.zeros(3)}, {"values": np.full((3, 1, 1), np.nan)}, {"sharpness": 0.0},
    {"sharpness": -1.0}, {"sharpness": np.inf}, {"low": np.zeros(3)}, {"inputs": ((3, 1),)},
    {"keys": ListedKeys(np.ones((3, 4)), np.zeros(3))}, {"keys": ListedKeys(np.full((3, 2), np.inf), np.zeros(3))},
    {"slopes": np.zeros((3, 1, 1, 3))}, {"dtype": "float8"},
])  # fmt: skip
def test_parts_that_do_not_belong_together_are_refused(changes):
    Layer(**parts())
    with pytest.raises(BadInput):
        Layer(**parts(**changes))


def test_nothing_of_a_layer_can_be_changed():
    values = np.zeros((3, 1, 1))
    layer = Layer(**parts(values=values))
    values[0] = 7.0
    assert layer.values[0] == 0.0
    for array in (layer.values, layer.low, layer.keys.slopes, layer.keys.offsets, layer.coordinates.matrix):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1.0
    with pytest.raises(AttributeError):
        layer.sharpness = 2.0


def test_keys_values_and_sharpness_are_stored_in_the_dtype():
    layer = Layer(**parts(sharpness=0.1, dtype="float32"))
    assert layer.values.dtype == layer.keys.slopes.dtype == np.float32
    assert layer.low.dtype == layer.coordinates.matrix.dtype == np.float64
    assert layer.sharpness == float(np.float32(0.1))


def test_product_keys_are_listed_in_row_major_order():
    keys = ProductKeys((AxisKeys(np.array([1.0, 2.0]), np.array([10.0, 20.0])), AxisKeys(np.arange(3.0), np.arange(3.0))))
    slopes, offsets = keys.listed()
    assert slopes.tolist() == [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert offsets.tolist() == [10, 11, 12, 20, 21, 22]
    assert keys.listed(2, 4)[1].tolist() == [12, 20]
    assert keys.count == 6


@pytest.mark.parametrize("edges", [(-1.0, 1.0), (1 / 3, 1e8 / 7), (1000.1, 1000.2), (-1e-9, 3e-9), (1e300, 1.5e300)])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_a_grid_covers_its_box_and_its_sites_lie_inside(edges, count):
    box = Box(x=edges)
    coordinates = grid_coordinates(box, (count,))
    ends = coordinates(np.array([[edges[0]], [edges[1]]]))
    assert np.all(np.abs(ends) <= count / 2)
    centres = cell_centres(coordinates, (count,), 0, count)[:, 0]
    assert np.all((centres >= edges[0]) & (centres <= edges[1]))
    assert cell_widths(coordinates)[0] == pytest.approx((edges[1] - edges[0]) / count, rel=1e-7 if edges[0] > 1e3 else 1e-9)


def test_the_affine_pieces_in_x_cut_the_same_cells_as_the_keys():
    box = Box(x=(2, 5), y=(-1, 1))
    layer = Layer(
        grid_coordinates(box, (3, 4)), grid_keys((3, 4)), 5.0, np.zeros((3, 4, 1, 1)), box.low, box.high, ((2, 1),)
    )
    slopes, offsets = layer.affine_pieces()
    x = box.sample(200, np.random.default_rng(0))
    scores = x @ slopes.T + offsets
    nearest = np.floor((x - box.low) / box.width * [3, 4]).astype(int)
    assert np.array_equal(scores.argmax(axis=1), nearest[:, 0] * 4 + nearest[:, 1])
    assert (layer.tokens, layer.d_out, layer.n_out, layer.dimension, layer.is_product) == (12, 1, 1, 2, True)
