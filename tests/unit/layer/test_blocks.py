"""Values that are sums of products over blocks of directions, real or complex: what is stored, counted, listed and refused."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from maxaffine.core.budget import count_text, size
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer import file
from maxaffine.layer.blocks import keys_text, largest_token
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.matrices import matrices
from maxaffine.layer.tables import group_tables
from maxaffine.runtime import chooser

sys.path.insert(0, str(Path(__file__).parents[1]))

from separated_layers import by_definition, made

HUNDRED = (1,) * 100


def points(layer: GroupedLayer, count: int = 40) -> np.ndarray:
    return np.random.default_rng(3).uniform(layer.low, layer.high, (count, layer.dimension))


def with_parts(**parts: object) -> GroupedLayer:
    """The layer of blocks (1, 2, 1) with other parts of its group."""
    layer = made()
    (group,) = layer.products()
    kept = {"matrix": group.matrix, "axes": group.axes, "factors": group.factors, "imaginary": group.imaginary}
    return GroupedLayer(layer.centre, (Group(**{**kept, **parts}),), 0.0, layer.low, layer.high, layer.inputs)


# -- what is stored


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 1), (2,), (1, 1)])
@pytest.mark.parametrize("complex_values", [True, False])
def test_a_layer_survives_its_file_to_the_bit(dtype: str, sizes: tuple[int, ...], complex_values: bool) -> None:
    layer = made(sizes, complex_values=complex_values, dtype=dtype)
    tensors, record = file.to_tensors(layer)
    again = file.from_tensors(tensors, record)
    assert isinstance(again, GroupedLayer)
    (one,), (two,) = layer.products(), again.products()
    assert (one.block_sizes, one.rank, one.is_plain) == (two.block_sizes, two.rank, two.is_plain)
    x = points(layer)
    assert np.array_equal(chooser.evaluate(layer, x), chooser.evaluate(again, x))


def test_tensors_are_named_by_the_first_direction_of_their_block() -> None:
    tensors, record = file.to_tensors(made())
    values = {name for name in tensors if "factor" in name or "imaginary" in name}
    assert values == {f"group.0.{e}.{part}" for e in (0, 1, 3) for part in ("factor", "imaginary")}
    assert tensors["group.0.1.factor"].shape == tensors["group.0.1.imaginary"].shape == (5, 6, 3)
    assert set(record) == {"dtype", "bonus", "inputs", "keys", "directions"}  # nothing is said that the tensors do not say


def test_one_real_factor_per_direction_has_the_tensors_that_it_always_had() -> None:
    tensors, _ = file.to_tensors(made((1, 1), complex_values=False))
    parts = {"matrix", *(f"{e}.{part}" for e in range(2) for part in ("slopes", "offsets", "factor"))}
    assert {name for name in tensors if name.startswith("group")} == {f"group.0.{part}" for part in parts}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("group.0.1.factor", lambda a: a[:, :, :2]),  # another R
        ("group.0.1.factor", lambda a: a[:4]),  # another number of keys
        ("group.0.1.factor", lambda a: a.reshape(30, 3)),  # directions that are not its own
        ("group.0.1.factor", lambda a: a[..., None]),
        ("group.0.0.factor", lambda a: a[:, :0]),
        ("group.0.1.imaginary", lambda a: a[:, :5]),
        ("group.0.3.imaginary", lambda a: None),  # missing
        ("group.0.1.factor", lambda a: np.where(a > 0, np.inf, a)),
    ],
)
def test_forged_shapes_are_refused(name: str, change) -> None:
    tensors, record = file.to_tensors(made())
    changed = change(np.array(tensors[name]))
    forged = {key: one for key, one in {**tensors, name: changed}.items() if one is not None}
    with pytest.raises(BadInput):
        file.from_tensors(forged, record)


@pytest.mark.parametrize("extra", ["group.0.2.factor", "group.0.2.imaginary", "group.0.values", "group.0.value_slopes"])
def test_tensors_of_no_block_are_refused(extra: str) -> None:
    tensors, record = file.to_tensors(made())
    with pytest.raises(BadInput):
        file.from_tensors({**tensors, extra: np.zeros((6, 3))}, record)


def test_factors_that_do_not_belong_together_are_refused() -> None:
    (group,) = made().products()
    assert group.factors is not None and group.imaginary is not None
    with pytest.raises(BadInput, match="imaginary parts"):
        with_parts(imaginary=group.imaginary[:2])
    with pytest.raises(BadInput, match="no factors"):
        with_parts(factors=None, values=np.zeros((*group.shape, 1)))
    with pytest.raises(BadInput, match=r"or .* for a block"):
        with_parts(factors=group.factors[:2], imaginary=None)
    with pytest.raises(BadInput, match="either values or factors"):
        with_parts(values=np.zeros((*group.shape, 1)))
    with pytest.raises(BadInput, match="finite"):
        with_parts(imaginary=tuple(np.full_like(one, np.nan) for one in group.imaginary))


def test_imaginary_parts_count_among_the_bytes() -> None:
    real, both = made(complex_values=False), made()
    (group,) = both.products()
    assert group.factors is not None
    assert both.nbytes - real.nbytes == 8 * sum(factor.size for factor in group.factors)


# -- how many tokens there are


def test_a_hundred_directions_imply_tokens_and_list_none() -> None:
    layer = made(HUNDRED, keys=19, rank=2, turned=False)
    (group,) = layer.products()
    assert layer.tokens == 19**100 and layer.keys.count == 19**100 and layer.work == 1900
    assert layer.layout() == "19^100"
    for listed in (group.dense_values, group.listed_values, group.listed):
        with pytest.raises(Refused, match=r"7\.5e127 tokens are implied"):
            listed()
    with pytest.raises(Refused, match="are implied"):
        group_tables(layer)
    with pytest.raises(Refused, match="are implied"):
        matrices(layer, "cross")


def test_large_counts_are_told_by_their_size_and_small_ones_exactly() -> None:
    assert [count_text(n) for n in (1, 1234, 10**15 - 1)] == ["1", "1,234", "999,999,999,999,999"]
    assert [count_text(n) for n in (10**15, 12 * 10**131, 999 * 10**20, 10**400)] == ["1.0e15", "1.2e132", "1.0e23", "1.0e400"]
    assert size(10**400).endswith(" B") and size(3 * 1024) == "3 KiB"


def test_a_layout_names_blocks_and_counts_many_directions_alike() -> None:
    assert made().groups[0].layout == "4 x (5 x 6) x 4"
    assert made((2,)).groups[0].layout == "4 x 5"
    assert keys_text((9,) * 20 + (4, 5), (1,) * 20 + (2,)) == "9^20 x (4 x 5)"


# -- what the tokens say


@pytest.mark.parametrize("sizes", [(1, 2, 1), (2, 2), (3,)])
@pytest.mark.parametrize("complex_values", [True, False])
def test_the_values_of_tokens_are_the_products_multiplied_out(sizes: tuple[int, ...], complex_values: bool) -> None:
    layer = made(sizes, complex_values=complex_values)
    (group,) = layer.products()
    dense = group.dense_values()
    assert dense.shape == (*group.shape, 1)
    assert np.array_equal(group.listed_values()[0], dense.reshape(-1, 1))
    j = tuple(n - 1 for n in group.shape)
    assert group.factors is not None
    total = 0.0
    for r in range(group.rank):
        parts = [factor[(*j[cut], r)] for cut, factor in zip(group.block_slices, group.factors, strict=True)]
        if group.imaginary is not None:
            parts = [a + 1j * b[(*j[cut], r)] for a, b, cut in zip(parts, group.imaginary, group.block_slices, strict=True)]
        total += math.prod(parts).real if complex_values else math.prod(parts)
    assert math.isclose(dense[(*j, 0)], total, rel_tol=1e-12)
    assert np.abs(dense).max() <= largest_token(group.factors, group.imaginary) * (1 + 1e-12)


def test_literal_matrices_of_a_small_layer_say_what_it_says() -> None:
    layer = made((1, 2), keys=3, rank=2)
    x = points(layer, 5)
    literal = matrices(layer, "cross")
    said = np.array([np.asarray(literal(one[:, None], one[:, None] * 0)).item() if len(layer.inputs) == 2 else
                     np.asarray(literal(one[:, None])).item() for one in x])  # fmt: skip
    assert np.abs(said - by_definition(layer, x)).max() < 1e-13


def test_keys_that_are_missing_are_refused() -> None:
    with pytest.raises(BadInput):
        with_parts(axes=(AxisKeys(np.zeros(4), np.zeros(4)),) * 3)
