"""The checker's reader of blocks of factors: what it reads is what is stored, and forged shapes are not proved."""

import sys
from pathlib import Path

import numpy as np
import pytest

from maxaffine.checker.formats import answers_fit, products_fit
from maxaffine.checker.proved import NotProved
from maxaffine.checker.reader import Layer, ProductKeys
from maxaffine.layer import file
from maxaffine.layer.blocks import largest_token

sys.path.insert(0, str(Path(__file__).parents[1]))

from separated_layers import made


def part_of(**how: object) -> tuple[dict[str, np.ndarray], int]:
    layer = made(**how)
    tensors, _ = file.to_tensors(layer)
    return {name.removeprefix("group.0."): one for name, one in tensors.items() if name.startswith("group.0.")}, layer.dimension


@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 1), (1, 1), (4,)])
@pytest.mark.parametrize("complex_values", [True, False])
def test_blocks_are_read_as_they_are_stored(sizes: tuple[int, ...], complex_values: bool) -> None:
    part, D = part_of(sizes=sizes, complex_values=complex_values)
    (group,) = made(sizes, complex_values=complex_values).products()
    keys = ProductKeys.read(part, "float64", D, D, 1)
    assert keys.cuts == group.block_slices
    assert keys.plain == group.is_plain
    for mine, stored in ((keys.factors, group.factors), (keys.imaginary, group.imaginary)):
        assert (mine is None) == (stored is None)
        for one, other in zip(mine or (), stored or (), strict=True):
            assert np.array_equal(one, other)
    assert group.factors is not None
    assert keys.largest(np.ones(D)) >= largest_token(group.factors, group.imaginary) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("1.factor", lambda a: a[:, :, :2]),
        ("1.factor", lambda a: a[:4]),
        ("1.factor", lambda a: a.reshape(30, 3)),
        ("1.imaginary", lambda a: a[:4]),
        ("0.imaginary", None),
        ("3.imaginary", None),
        ("0.factor", None),
        ("1.factor", None),
        ("0.factor", lambda a: a[:, :0]),
        ("0.factor", lambda a: np.float64(1.0)),
        ("0.slopes", lambda a: a[:0]),
        ("1.factor", lambda a: a * np.nan),
        ("1.factor", lambda a: a.astype(np.float32)),
    ],
)
def test_forged_blocks_are_not_proved(name: str, change) -> None:
    part, D = part_of()
    forged = {**part, name: None if change is None else change(part[name])}
    with pytest.raises((NotProved, KeyError)):
        ProductKeys.read({key: one for key, one in forged.items() if one is not None}, "float64", D, D, 1)


@pytest.mark.parametrize("extra", ["2.factor", "2.imaginary", "values", "4.factor"])
def test_tensors_beside_the_blocks_are_not_proved(extra: str) -> None:
    part, D = part_of()
    with pytest.raises((NotProved, KeyError)):
        ProductKeys.read({**part, extra: np.zeros((6, 3))}, "float64", D, D, 1)


def test_blocks_of_many_directions_and_several_outputs_are_not_proved() -> None:
    part, D = part_of(sizes=(5,), keys=2)
    with pytest.raises(NotProved, match="directions"):
        ProductKeys.read(part, "float64", D, D, 1)
    part, D = part_of()
    with pytest.raises(NotProved, match="more than one output"):
        ProductKeys.read(part, "float64", D, D, 2)


def test_a_hundred_directions_are_followed_block_by_block() -> None:
    part, D = part_of(sizes=(1,) * 100, keys=40, rank=2, turned=False)
    keys = ProductKeys.read(part, "float64", D, D, 1)
    box = np.ones(D)
    layer = Layer(-box, box, 0.1 * box, "float64", None, 0.0, (keys,))
    assert keys.tokens == 40**100
    assert not answers_fit(layer, "float64")  # as if they were all added up
    assert answers_fit(layer, "float64", followed=True)
    assert keys.block_sums()[0][1] == 40


def test_products_in_any_order_are_numbers() -> None:
    assert products_fit(np.full((100, 2), 1.5), "float64")
    assert not products_fit(np.full((100, 2), 1.5e4), "float64")
    assert not products_fit(np.array([[1e200], [1e200], [1e-300]]), "float64")
    assert not products_fit(np.full((100, 1), 3.0), "float32")
    assert products_fit(np.full((100, 1), 1.01), "float32", beside=1e37)
