"""One token: where the error is larger than half the range of the target, one value says enough."""

import dataclasses

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check_file
from maxaffine.core.container import read_container, write_container
from maxaffine.core.errors import Refused
from maxaffine.heads.lookup import search as searched
from maxaffine.heads.lookup.prove_grid import certify_grid
from maxaffine.target.evidence import gather
from maxaffine.target.target import Target

COSINES = "*".join(f"cos(x{i})" for i in range(1, 9))
EIGHT = ma.Box([-1] * 8, [1] * 8)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("error", [1.0, 0.498])
def test_a_product_of_eight_cosines_takes_one_token_and_the_checker_agrees(dtype, error, tmp_path):
    layer = ma.compile(COSINES, EIGHT, error=error, dtype=dtype)
    assert (layer.tokens, layer.certificate.kind, layer.certificate.argument) == (1, "proved", "C")
    half = (1 - np.cos(1) ** 8) / 2
    assert half <= layer.bound <= half * (1 + 1e-4) and layer.observed.error <= layer.bound
    assert layer([0.3] * 8) == pytest.approx(1 - half)
    layer.save(tmp_path / "one.safetensors")
    verdict = check_file(tmp_path / "one.safetensors")
    assert verdict.passed and half <= verdict.bound <= half * (1 + 1e-3)


def test_an_error_below_half_the_range_takes_more_tokens():
    layer = ma.compile("cos(x)*cos(y)", ma.Box(x=(-3, 3), y=(-3, 3)), error=0.9)
    assert layer.certificate.argument != "C" and layer.tokens > 1


def test_a_head_of_one_token_that_says_more_is_preferred():
    layer = ma.compile("sin(x)", ma.Box(x=(-3, 3)), error=1.5)
    assert layer.tokens == 1 and layer.certificate.argument != "C" and layer.bound < 0.9
    exact = ma.compile("x + 2*y", ma.Box(x=(-1, 1), y=(0, 1)), error=5)
    assert exact.tokens == 1 and exact.bound < 1e-9


@pytest.mark.parametrize("method", ["auto", "lookup"])
def test_jumps_do_not_matter_to_one_value(method):
    layer = ma.compile("floor(3*x) + sign(x)", ma.Box(x=(-1, 1)), error=4.2, method=method)
    assert (layer.tokens, layer.certificate.argument) == (1, "C") and 4 <= layer.bound <= 4.01


def test_every_output_has_its_own_middle():
    layer = ma.compile("sin(x), 10 + cos(x)", ma.Box(x=(-2, 2)), error=1.1, method="lookup")
    assert layer.tokens == 1 and layer([0.7])[0] == pytest.approx([0.0, 10 + (1 + np.cos(2)) / 2])
    sequence = ma.compile(Target.of("x1 + x2; 3 + x1*x2", ma.Box.sequence(1, 2)), error=2.1, method="lookup")
    assert (sequence.tokens, sequence.certificate.argument) == (2, "C")
    assert np.allclose(sequence([[0.1, 0.2]]), [[0.0, 3.0]])


def test_the_frontier_shows_the_one_token():
    rows = ma.plan("cos(x)", ma.Box(x=(-1, 1)), errors=[1.0, 0.25, 0.22])
    assert [(row["error"], row["tokens"]) for row in rows if row["argument"] == "C"] == [(1.0, 1), (0.25, 1)]


@pytest.mark.parametrize("text", ["x**3 - x", "abs(x) - y", "floor(2*x)*y", "x/(1 + x**2 + y**2)"])
@pytest.mark.parametrize("moved", [-0.7, 0.0, 1.9])
def test_the_bound_of_a_moved_value_is_above_the_error_at_every_point(text, moved):
    target = Target.of(text, ma.Box(x=(-2, 1), y=(-1, 2)))
    evidence = gather(target, None, None, None).evidence
    layer = ma.compile(text, target.box, error=20.0, method="lookup").weights
    layer = dataclasses.replace(layer, values=layer.values + moved)
    bound = certify_grid(layer, target, evidence, "C").bound
    axes = np.meshgrid(np.linspace(-2, 1, 301), np.linspace(-1, 2, 301))
    x = np.stack([axis.ravel() for axis in axes], axis=1)
    worst = float(np.abs(target.values(x) - layer.values.ravel()[0]).max())
    assert worst <= bound <= worst * 1.01


def test_one_value_is_not_proved_for_several_keys_or_without_a_range():
    target = Target.of("x", ma.Box(x=(0, 1)))
    evidence = gather(target, None, None, None).evidence
    many = ma.compile("x", target.box, error=0.1, method="lookup").weights
    with pytest.raises(Refused, match="one key"):
        certify_grid(many, target, evidence, "C")
    one = ma.compile("x", target.box, error=0.9, method="lookup").weights
    with pytest.raises(Refused, match="range of the target is known"):
        certify_grid(one, target, dataclasses.replace(evidence, extent=None), "C")


@pytest.mark.parametrize(("moved", "passes"), [(0.0, True), (0.03, True), (0.3, False), (-0.6, False)])
def test_the_checker_measures_from_the_value_that_is_stored(moved, passes, tmp_path):
    layer = ma.compile("cos(x)*cos(y)", ma.Box(x=(-1, 1), y=(-1, 1)), error=0.8, method="lookup")
    assert layer.certificate.argument == "C"
    layer.save(tmp_path / "one.safetensors")
    tensors, record = read_container(tmp_path / "one.safetensors")
    tensors = {**tensors, "values": tensors["values"] + moved}
    record = {key: value for key, value in record.items() if key != "hash"}
    write_container(tmp_path / "moved.safetensors", tensors, record)
    verdict = check_file(tmp_path / "moved.safetensors")
    assert verdict.passed is passes
    assert verdict.bound >= (1 - np.cos(1) ** 2) / 2 + abs(moved)  # 0.3: below the error, and above what the file states


def test_what_the_checker_does_not_confirm_is_not_offered(monkeypatch):
    monkeypatch.setattr(searched, "unconfirmed", lambda found, request: "no")
    layer = ma.compile("sin(x)", ma.Box(x=(-3, 3)), error=1.5)
    assert layer.certificate.argument != "C" and layer.bound <= 1.5
