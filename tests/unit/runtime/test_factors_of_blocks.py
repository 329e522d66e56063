"""Sums of products over blocks of directions, complex ones among them, say in every runtime what complex einsum says."""

import sys
from pathlib import Path

import numpy as np
import pytest

from maxaffine.core.errors import Refused
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.runtime import chooser, grouped
from maxaffine.runtime.collapse import collapse, collapsible

sys.path.insert(0, str(Path(__file__).parents[1]))

from separated_layers import by_definition, made

CASES = {
    "a block between two directions": {},
    "real": {"complex_values": False},
    "a block of three": {"sizes": (3, 1)},
    "one block": {"sizes": (2,)},
    "complex directions": {"sizes": (1, 1)},
    "two groups": {"sizes": (2, 1), "groups": 2},
    "float32": {"dtype": "float32"},
    "a hundred directions": {"sizes": (1,) * 100, "keys": 9, "rank": 3, "turned": False},
    "a hundred oblique directions": {"sizes": (1,) * 100, "keys": 9, "rank": 3},
    "many directions and blocks": {"sizes": (1, 1, 1, 2) * 6, "keys": 4, "rank": 2, "turned": False},
}


def points(layer: GroupedLayer, count: int = 300) -> np.ndarray:
    return np.random.default_rng(3).uniform(layer.low, layer.high, (count, layer.dimension))


@pytest.mark.parametrize("name", CASES)
def test_every_runtime_says_what_the_definition_says(name: str) -> None:
    layer = made(**CASES[name])
    x = points(layer)
    wanted = by_definition(layer, x)
    room = 1e-5 if layer.dtype == "float32" else 1e-12
    assert grouped.evaluate(layer, x).shape == (len(x), 1, 1)
    assert chooser.choose(layer)[0] == "factorised"
    for runtime in chooser.available(layer):
        if runtime == "dense" and layer.bonus and layer.bonus < 30:
            continue  # the groups of this layer leak into each other there
        assert np.abs(chooser.evaluate(layer, x, runtime)[:, 0, 0] - wanted).max() < room, runtime


@pytest.mark.parametrize("name", [name for name in CASES if "hundred" not in name])
def test_exact_values_are_those_of_the_definition(name: str) -> None:
    layer = made(**CASES[name])
    x = points(layer, 2)
    for one, wanted in zip(x, by_definition(layer, x), strict=True):
        import flint

        (ball,) = exact_value(layer, [flint.arb(float(c)) for c in one])
        assert abs(float(ball.mid()) - wanted) < 1e-12 and float(ball.rad()) < 1e-10


@pytest.mark.parametrize("name", ["a block between two directions", "a hundred directions", "many directions and blocks"])
def test_a_query_has_the_same_bits_in_every_batch(name: str) -> None:
    layer = made(**CASES[name])
    x = points(layer, 500)
    assert chooser.ways(layer, "factorised", 0.0).same_bits
    together = chooser.evaluate(layer, x)
    alone = np.concatenate([chooser.evaluate(layer, x[i : i + k]) for i, k in ((0, 1), (1, 6), (7, 93), (100, 400))])
    assert np.array_equal(together, alone)


def test_memory_per_query_of_a_hundred_directions_is_that_of_one_and_not_of_all() -> None:
    layer = made(**CASES["a hundred directions"])
    assert grouped.bytes_per_query(layer) < 8 * 4 * sum(layer.groups[0].shape) / 10


def test_complex_and_block_factors_do_not_collapse_and_say_so() -> None:
    for kept in (made(), made((2,), complex_values=False), made((1, 1))):
        assert not collapsible(kept)
        with pytest.raises(Refused, match="complex, or of blocks"):
            collapse(kept, 1e-3)


def test_a_hundred_real_directions_collapse_within_their_tolerance() -> None:
    layer = made((1,) * 100, keys=9, rank=2, complex_values=False, turned=False)
    x = points(layer)
    assert collapsible(layer) and "collapsed" in chooser.available(layer, 1e-6)
    found = chooser.evaluate(layer, x, "collapsed", 1e-6)[:, 0, 0]
    assert 0.0 < np.abs(found - by_definition(layer, x)).max() <= collapse(layer, 1e-6).error + 1e-12 < 1e-5
