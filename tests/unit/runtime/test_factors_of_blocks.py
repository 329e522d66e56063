"""Sums of products over blocks of directions, complex ones among them, say in every runtime what complex einsum says."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.exact_layer import exact_value
from maxaffine.runtime import chooser, collapsed, grouped, parallel
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


COLLAPSED = ("a block between two directions", "real", "a block of three", "one block", "complex directions", "float32",
             "a hundred directions", "many directions and blocks")  # fmt: skip


@pytest.mark.parametrize("tolerance", [1e-3, 1e-7])
@pytest.mark.parametrize("name", COLLAPSED)
def test_complex_and_block_factors_collapse_within_their_proved_error(name: str, tolerance: float, monkeypatch) -> None:
    layer = made(**CASES[name])
    x = points(layer)
    corners = np.random.default_rng(4).choice([-1.0, 1.0], (60, layer.dimension))
    x = np.concatenate([x, corners])
    found = collapse(layer, tolerance)
    monkeypatch.setattr(parallel, "_loaded", {"collapsed": None})
    said = collapsed.evaluate(layer, x, tolerance)[:, 0, 0].astype(np.float64)
    away = float(np.abs(said - by_definition(layer, x)).max())
    assert away <= found.error + (1e-6 if layer.dtype == "float32" else 1e-13) and found.error <= found.allowed
    assert found.allowed <= 1.001 * tolerance + 1e-9
    monkeypatch.setattr(parallel, "_loaded", {})
    monkeypatch.setattr(parallel, "ENOUGH", 0)
    monkeypatch.setattr(parallel, "SHARE", 1)
    assert np.array_equal(collapsed.evaluate(layer, x, tolerance, 2)[:, 0, 0].astype(np.float64), said)


def test_a_coefficient_that_is_off_by_what_is_proved_is_seen() -> None:
    layer = made()
    found = collapse(layer, 1e-4)
    (group,) = found.groups
    first, *others = group.cores
    moved = replace(group, cores=(first + np.eye(1, first.shape[1])[:, :, None] * 2e-2, *others))
    x = points(layer, 2000)
    said = collapsed.in_numpy(collapsed.program(replace(found, groups=(moved,)), 1), x)[:, 0]
    assert np.abs(said - by_definition(layer, x)).max() > found.error


def test_squares_take_half_the_coefficients() -> None:
    box = ma.Box(**{f"x{i}": (-1, 1) for i in range(1, 6)})
    layer = ma.compile("exp(sin(x1**2 + x2**2 + x3**2 + x4**2 + x5**2))", box, error=1e-3)
    program = collapsed.prepared(layer.weights, layer.reserve)
    assert layer.runtime()[0] == "collapsed" and program.groups[0, 0] == 3 and set(program.directions[:, 4]) == {2}
    x = layer.target.box.sample(2000, np.random.default_rng(0))
    wanted = np.exp(np.sin((x**2).sum(axis=1)))
    assert np.abs(layer(x, runtime="collapsed") - wanted).max() <= layer.statement("collapsed").bound <= 1e-3
    assert layer.certificate_for("factorised").bound < layer.certificate_for("collapsed").bound
    assert layer.check().passed


def test_steep_and_large_blocks_do_not_collapse_and_say_so() -> None:
    layer = made((4,), keys=8, rank=2)
    with pytest.raises(Refused, match=r"too steep for one polynomial|too many directions at once"):
        collapse(layer, 1e-9)


def test_a_hundred_real_directions_collapse_within_their_tolerance() -> None:
    layer = made((1,) * 100, keys=9, rank=2, complex_values=False, turned=False)
    x = points(layer)
    assert collapsible(layer) and "collapsed" in chooser.available(layer, 1e-6)
    found = chooser.evaluate(layer, x, "collapsed", 1e-6)[:, 0, 0]
    assert 0.0 < np.abs(found - by_definition(layer, x)).max() <= collapse(layer, 1e-6).error + 1e-12 < 1e-5
