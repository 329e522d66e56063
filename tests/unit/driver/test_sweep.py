"""One layer at many temperatures."""

import json
import math

import pytest

import maxaffine as ma
from maxaffine.cli.app import main

SQUARE = ma.Box(x=(-1, 1), y=(-1, 1))


def test_error_entropy_and_cells_follow_the_temperature(tmp_path):
    layer = ma.compile("x + y", SQUARE, error=0.5, method="lookup")
    found = ma.sweep(layer, [16.0, 1.0, 1 / 64])
    cold, own, hot = reversed(found.rows)
    assert [one.r for one in found.rows] == [1 / 64, 1.0, 16.0] and own.bound == layer.bound
    for one in found.rows:
        assert one.observed <= one.bound == layer.with_sharpness(one.r).bound
    assert hot.entropy[0] > own.entropy[0] > cold.entropy[0] and hot.entropy[2] < math.log(layer.tokens)
    assert hot.decided < own.decided < cold.decided and found.best.bound == min(one.bound for one in found.rows)
    found.draw(tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").stat().st_size > 20_000


def test_what_is_not_proved_is_said_and_layers_of_one_variable_are_drawn(tmp_path):
    layer = ma.compile(lambda x: abs(x[:, 0]), ma.Box(x=(-1, 1)), error=0.1, trace=False)
    found = ma.sweep(layer, [0.5, 2.0])
    assert all(one.bound is None and "only observed" in one.why for one in found.rows)
    found.draw(tmp_path / "sweep.svg")
    for factors, words in (([], "has 0 numbers"), (["a"], "must be positive numbers"), ([1, -1], "multiplies every logit")):
        with pytest.raises(ma.BadInput, match=words):
            ma.sweep(layer, factors)
    with pytest.raises(ma.BadInput, match="must be a compiled layer"):
        ma.sweep("x")


def test_the_command_takes_expressions_and_saved_layers(tmp_path, capsys):
    path = tmp_path / "f.safetensors"
    ma.compile("max(x, y)", SQUARE, error=1e-2).save(path)
    assert main(["sweep", str(path), "--from", "1/4", "--to", "4", "--count", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["temperatures"]
    assert [one["r"] for one in rows] == [0.25, 1.0, 4.0]
    assert [one["bound"] * one["r"] for one in rows] == pytest.approx([rows[1]["bound"]] * 3, rel=1e-6)
    asked = ["sweep", "max(x, y)", "--box", "x=-1:1,y=-1:1", "--error", "1e-2"]
    assert main([*asked, "--count", "2", "--from", "1/2", "--to", "2"]) == 0 and "decided" in capsys.readouterr().out
    backwards, one = [*asked, "--from", "2", "--to", "1"], [*asked, "--count", "1"]
    for wrong in (backwards, one, ["sweep", str(path), "--error", "1"], asked[:4]):
        assert main(wrong) == 2
