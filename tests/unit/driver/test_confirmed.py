"""What a loaded layer states once the checker has passed it is nowhere below what the checker proved."""

import copy

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.container import write_container
from maxaffine.stack.saved import record_of as record_of_stack

LOWERED = 1.15  # less than the checker's own constants may differ by


def lowered(certificate):
    """A certificate whose bound is too small by so much, its parts with it."""
    parts = {name: part / LOWERED for name, part in certificate["parts"].items()}
    return {**certificate, "parts": parts, "bound": sum(parts.values()) * (1.0 + 1e-15)}


def edited(path, tensors, record, **changes):
    write_container(path, tensors, {**copy.deepcopy(record), **changes})
    return path


def test_a_bound_that_was_lowered_in_the_file_is_not_what_a_checked_layer_states(tmp_path):
    made = ma.compile("abs(x-0.1)", ma.Box(x=(-1, 1)), error=1e-2)
    tensors, record = made._record()
    path = edited(tmp_path / "f.safetensors", tensors, record, certificate=lowered(record["certificate"]), literal={})
    layer = ma.load(path)
    assert layer.standing == "stated" and layer.bound < made.bound
    stated = layer.to_bytes()
    assert layer.check().passed and layer.standing == "checked"
    x = np.linspace(-1, 1, 20_001)[:, None]
    seen = np.abs(layer(x) - np.abs(x[:, 0] - 0.1)).max()
    assert seen <= layer.bound == layer.certificate.bound <= 1e-2
    assert layer.statement("tensors").bound >= seen and sum(layer.certificate.parts.values()) >= seen
    assert layer.to_bytes() == stated  # the file is what it was
    assert layer.check().passed


def test_claims_of_the_literal_form_and_bounds_of_outputs_are_raised_as_well(tmp_path):
    made = ma.compile("abs(x-0.1), exp(y)", ma.Box(x=(-1, 1), y=(-1, 1)), error=[1e-2, 1e-3])
    tensors, record = made._record()
    certificate = {**record["certificate"], "within": [lowered(one) for one in record["certificate"]["within"]]}
    literal = {name: {**one, "bound": one["bound"] / LOWERED} for name, one in record["literal"].items()}
    layer = ma.load(edited(tmp_path / "f.safetensors", tensors, record, certificate=certificate, literal=literal), check=True)
    x = np.stack([0.1 + np.linspace(-2e-2, 2e-2, 8001), np.linspace(-1, 1, 8001)], axis=1)
    exact = np.stack([np.abs(x[:, 0] - 0.1), np.exp(x[:, 1])], axis=1)
    seen = np.abs(layer(x) - exact).max(axis=0)
    assert seen[0] > 0.95 * made.bounds[0]  # so that the lowered one would be false
    assert (seen <= layer.bounds).all()
    assert layer.statement("dense").bound >= np.abs(layer(x, runtime="dense") - exact).max()


def test_a_stack_states_no_less_than_the_checker_proved(tmp_path):
    made = ma.compile("(x*y + z)*(x - z)", ma.Box(x=(0, 1), y=(0, 1), z=(0, 1)), error=1e-4, layers="auto")
    assert isinstance(made, ma.Stack)
    tensors, record = record_of_stack(made)
    path = edited(tmp_path / "f.safetensors", tensors, record, certificate=lowered(record["certificate"]))
    stack = ma.load(path)
    verdict = stack.check()
    assert verdict.passed and stack.bound >= verdict.bound


@pytest.mark.parametrize("text", ["sin(x) + cos(y)", "max(x, y)"])
def test_an_honest_layer_keeps_what_its_file_states_or_the_checkers_larger_bound(text, tmp_path):
    made = ma.compile(text, ma.Box(x=(-1, 1), y=(-1, 1)), error=1e-4)
    made.save(tmp_path / "f.safetensors")
    layer = ma.load(tmp_path / "f.safetensors", check=True)
    assert layer.bound == max(made.bound, ma.check(tmp_path / "f.safetensors").bound)
