"""Rounding of sums of products over blocks: what is computed is within its bound, and the bound is not far from what is seen."""

import sys
from pathlib import Path

import flint
import numpy as np
import pytest

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_format
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.combine import underflow
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.proofs.head_bounds import column_moments, etas_for, moments
from maxaffine.proofs.literal import literal
from maxaffine.proofs.separated_rounding import accounted, multiplied, products_lost, rounding
from maxaffine.runtime import chooser
from maxaffine.runtime.grouped import product_group

sys.path.insert(0, str(Path(__file__).parents[1]))

from separated_layers import by_definition, made

CASES = {
    "blocks and complex": {},
    "real blocks": {"complex_values": False},
    "a block of three": {"sizes": (3, 1)},
    "float32": {"dtype": "float32"},
    "float32, real directions": {"dtype": "float32", "sizes": (1, 1, 1, 1), "complex_values": False},
    "thirty directions": {"sizes": (1,) * 30, "keys": 7, "rank": 3, "turned": False},
    "thirty directions, float32": {"sizes": (1,) * 30, "keys": 7, "rank": 3, "turned": False, "dtype": "float32"},
}


def query_of(layer: GroupedLayer) -> np.ndarray:
    """What a computed z may be off by: products and sums in float64, and the rounding to float32."""
    (group,) = layer.products()
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low)
    error = np.abs(group.matrix) @ reach * 2.0**-52 * (layer.dimension + 4)
    return error + (2.0**-24 if layer.dtype == "float32" else 0.0)


def bound_of(layer: GroupedLayer) -> float:
    """Rounding of a layer beside itself: its factors approximate themselves without error."""
    (group,) = layer.products()
    found = rounding(layer, group, query_of(layer))
    sizes = np.stack(found.sizes, axis=1)
    approximation, lost, _ = accounted(layer, group, sizes, np.zeros_like(sizes), found)
    return approximation + lost


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_is_within_its_bound(name: str) -> None:
    layer = made(**CASES[name])
    x = np.random.default_rng(7).uniform(layer.low, layer.high, (60, layer.dimension))
    x[:4] = np.where(np.random.default_rng(8).uniform(size=(4, layer.dimension)) < 0.5, layer.low, layer.high)
    exact = [float(exact_value(layer, [flint.arb(float(c)) for c in one])[0].mid()) for one in x]
    (group,) = layer.products()
    off = np.abs(product_group(layer, group, x)[:, 0] - exact)  # the last rounding is counted elsewhere
    bound = bound_of(layer)
    assert off.max() <= bound
    assert off.max() > bound / 20_000, "the bound says next to nothing"


def test_a_query_error_costs_its_slope_in_every_direction() -> None:
    layer = made()
    (group,) = layer.products()
    moved = 1e-3
    for e in range(4):
        query = np.zeros(4)
        query[e] = moved
        quiet, found = rounding(layer, group, np.zeros(4)), rounding(layer, group, query)
        sizes = np.stack(found.sizes, axis=1)
        lost = accounted(layer, group, sizes, np.zeros_like(sizes), found)[1]
        (block,) = [b for b, cut in enumerate(group.block_slices) if cut.start <= e < cut.stop]
        changed = [b for b in range(3) if np.any(found.errors[b] > 1.01 * quiet.errors[b])]
        assert changed == [block]
        # moving the stored offsets along the slopes is moving z
        axes = list(group.axes)
        axes[e] = AxisKeys(axes[e].slopes, axes[e].offsets + moved * axes[e].slopes)
        other = Group(group.matrix, tuple(axes), factors=group.factors, imaginary=group.imaginary)
        shifted = GroupedLayer(layer.centre, (other,), 0.0, layer.low, layer.high, layer.inputs)
        x = np.random.default_rng(9).uniform(layer.low, layer.high, (4000, 4))
        seen = np.abs(by_definition(layer, x) - by_definition(shifted, x)).max()
        assert seen <= lost < 60.0 * seen


def test_sizes_bound_the_factors_and_are_close_to_them() -> None:
    layer = made()
    (group,) = layer.products()
    found = rounding(layer, group, np.zeros(4))
    z = np.random.default_rng(1).uniform(-1, 1, (20_000, 4))
    weights = [np.exp(np.multiply.outer(z[:, e], a.slopes) + a.offsets) for e, a in enumerate(group.axes)]
    weights = [w / w.sum(axis=1, keepdims=True) for w in weights]
    assert group.factors is not None and group.imaginary is not None
    block = np.einsum("zi,zj,ijr->zr", weights[1], weights[2], group.factors[1] + 1j * group.imaginary[1])
    for b, said in ((0, weights[0] @ (group.factors[0] + 1j * group.imaginary[0])), (1, block)):
        top = np.abs(said).max(axis=0)
        assert np.all(top <= found.sizes[b]) and np.all(found.sizes[b] < 2.0 * top)


@pytest.mark.parametrize("E", [1, 2])
def test_columns_have_the_moments_that_heads_have(E: int) -> None:
    rng = np.random.default_rng(2)
    axes = tuple(AxisKeys(rng.normal(size=5), rng.normal(size=5)) for _ in range(E))
    values = rng.normal(size=(*(5,) * E, 3))
    etas = etas_for(axes, compute_format("float64"), 4, 60)
    found = column_moments(axes, values, etas, 60)
    for k in range(3):
        one = moments(axes, values[..., k : k + 1], None, etas, 60)
        assert found.absolute[k] == pytest.approx(one.absolute, rel=1e-6)
        assert found.largest[k] == pytest.approx(one.largest, rel=0.3)
        assert found.rounding[k] == pytest.approx(one.rounding, rel=0.3)
        assert found.slopes[:, k] == pytest.approx(one.slopes, rel=0.3)


def test_products_of_errors_are_multiplied_out() -> None:
    sizes, plain, off = np.array([[2.0, 3.0], [1.0, 1.0]]), np.full((2, 2), 0.1), np.full((2, 2), 0.01)
    exact, whole, largest = multiplied(sizes, plain, off)
    assert exact == pytest.approx(2.1 * 3.1 - 6.0 + 1.1 * 1.1 - 1.0)
    assert whole == pytest.approx(2.11 * 3.11 - 6.0 + 1.11 * 1.11 - 1.0)
    assert largest == pytest.approx(2.1 * 3.1 + 1.1 * 1.1)


def test_errors_too_large_to_multiply_are_infinite_and_never_no_number() -> None:
    huge = np.full((2, 3), 1e200)
    assert multiplied(huge, huge, huge) == (np.inf, np.inf, np.inf)
    layer = made((1, 1, 1), rank=2)
    found = rounding(layer, layer.products()[0], np.zeros(3))
    assert accounted(layer, layer.products()[0], huge, huge, found) == (np.inf, np.inf, np.inf)


def test_products_that_leave_float64_are_not_followed() -> None:
    (group,) = made((1, 1), rank=1).products()
    assert np.isfinite(products_lost(group, np.array([[1e150, 1e150]])))
    assert products_lost(group, np.array([[1e200, 1e200]])) == np.inf
    assert products_lost(group, np.array([[1e305, 1e-300]])) == np.inf  # in some order


def test_a_complex_product_loses_more_than_a_real_one() -> None:
    sizes = np.ones((1, 100))
    real, both = (made((1,) * 100, keys=2, rank=1, complex_values=one, turned=False).groups[0] for one in (False, True))
    assert products_lost(both, sizes) > 2.5 * products_lost(real, sizes) > 200 * 2.0**-53


def test_keys_too_steep_and_blocks_too_wide_are_refused() -> None:
    layer = made((1, 1))
    (group,) = layer.products()
    steep = tuple(AxisKeys(1e9 * axis.slopes, axis.offsets) for axis in group.axes)
    other = Group(group.matrix, steep, factors=group.factors, imaginary=group.imaginary)
    with pytest.raises(Refused, match=r"steep|resolved"):
        rounding(layer, other, np.zeros(2))
    with pytest.raises(Refused, match="5 directions"):
        rounding(made((5,), keys=2), made((5,), keys=2).products()[0], np.zeros(5))
    with pytest.raises(Refused, match="queries"):
        rounding(layer, group, np.array([0.0, np.nan]))


def test_values_too_large_to_multiply_are_nothing_to_followed_factors() -> None:
    layer = made((1,) * 100, keys=3, rank=1, turned=False)
    (group,) = layer.products()
    assert group.factors is not None and group.imaginary is not None
    large = tuple(1e4 * one for one in group.factors)
    held = GroupedLayer(
        layer.centre, (Group(group.matrix, group.axes, factors=large, imaginary=group.imaginary),), 0.0, layer.low, layer.high,
        layer.inputs, "float32",
    )  # fmt: skip
    assert underflow(held) == np.inf  # as far as tokens tell
    assert np.isfinite(underflow(held, [3.0]))
    assert underflow(held, [1e39]) == np.inf  # no number of float32


@pytest.mark.parametrize("name", ["blocks and complex", "real blocks", "a block of three", "float32"])
def test_the_softmax_over_all_tokens_is_within_its_bound(name: str) -> None:
    layer = made(**CASES[name])
    x = np.random.default_rng(7).uniform(layer.low, layer.high, (60, layer.dimension))
    unit = 2.0**-24 if layer.dtype == "float32" else 2.0**-53
    exact = np.array([float(exact_value(layer, [flint.arb(float(c)) for c in one])[0].mid()) for one in x])
    off = np.abs(chooser.evaluate(layer, x, "dense")[:, 0, 0].astype(np.float64) - exact)
    added = literal(layer, []).total
    assert off.max() <= added + unit * np.abs(exact).max()
    assert added < 1e5 * unit


def test_wrong_logits_move_a_literal_softmax_by_less_than_is_counted() -> None:
    """Logits that are off by eta in the worst pattern: the mean moves by (e^{2 eta} - 1)/(e^{2 eta} + 1) of half the range."""
    (group,) = made((2,), keys=2, rank=1, complex_values=False).products()
    values, eta = group.dense_values().ravel(), 1e-3
    weights = np.full(len(values), 1.0 / len(values))
    moved = weights * np.exp(np.where(values > np.median(values), eta, -eta))
    seen = abs(moved @ values / moved.sum() - weights @ values)
    assert 0.0 < seen <= np.expm1(2.0 * eta) * (weights @ np.abs(values)) < 20.0 * seen
