"""Records that lie about what was proved: the checker believes none of their words."""

import copy

import pytest

from maxaffine import Box, compile
from maxaffine.checker import check


@pytest.fixture(scope="module")
def in_the_mean():
    compiled = compile("where(x < .2, sin(x), 1 + x)", Box(x=(-1, 1)), error=0.1, method="axis", norm=1)
    return compiled._record()


@pytest.fixture(scope="module")
def in_the_sup_norm():
    return compile("max(x, y)", Box(x=(-1, 1), y=(-1, 1)), error=0.1, method="piecewise")._record()


def test_a_bound_in_the_mean_is_not_taken_for_one_in_the_sup_norm(in_the_mean):
    tensors, record = in_the_mean
    assert check(tensors, record).passed
    edited = copy.deepcopy(record)
    edited["certificate"]["norm"] = "inf"
    assert not check(tensors, edited).passed


def test_a_gap_that_leaves_nothing_of_the_box_is_no_statement():
    tensors, record = compile("where(x < .2, sin(x), 1 + x)", Box(x=(-1, 1)), error=0.1, method="axis", gap=0.05)._record()
    assert check(tensors, record).passed
    edited = copy.deepcopy(record)
    edited["plan"]["gap"] = 5.0
    edited["certificate"]["scope"]["gap"] = 5.0
    assert not check(tensors, edited).passed


@pytest.mark.parametrize(
    ("field", "lie"),
    [
        ("norm", 1.0),
        ("dtype", "float32"),
        ("runtime", "dense"),
        ("scope", {"over": "box", "inputs": "complex"}),
        ("scope", {"over": "integral"}),
        ("scope", {"over": "box", "gap": 1e-3, "measure": "distance", "jumps": 1}),
        ("scope", "every x"),
    ],
)
def test_a_certificate_that_speaks_of_something_else_than_was_proved_is_not_confirmed(in_the_sup_norm, field, lie):
    tensors, record = in_the_sup_norm
    assert check(tensors, record).passed
    edited = copy.deepcopy(record)
    edited["certificate"][field] = lie
    assert not check(tensors, edited).passed


def test_errors_of_single_outputs_are_promised_by_layers_of_parts_alone():
    tensors, record = compile("x*exp(x), sin(x)", Box(x=(-1, 1)), error=0.01, method="spectral")._record()
    assert check(tensors, record).passed
    verdict = check(tensors, {**record, "errors": [0.01, 1e-9]})
    assert not verdict.passed and "error of every output" in verdict.reason
