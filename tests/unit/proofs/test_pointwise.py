"""Errors relative to |f(x)|: the lower bound of |f|, what is refused, and what certificates and statements make of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import BadInput, Refused
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.pointwise import Pointwise, least_of, measured, per_size
from maxaffine.target.target import Target

LEAST = {
    "a*b**2*c/d": (dict.fromkeys("abcd", (1.0, 4.0)), 0.25),
    "x**2 - 2*x + 2": ({"x": (-1.0, 3.0)}, 1.0),  # at its middle, and x stands there twice
    "-exp(-x*y)": ({"x": (0.0, 3.0), "y": (0.0, 2.0)}, math.exp(-6.0)),
    "1/(1 + x**2 + y**2 + z**2 + v**2 + w**2 + u**2 + t**2)": (dict.fromkeys("xyzvwut", (-1.0, 1.0)), 0.125),
}


@pytest.mark.parametrize("text", LEAST)
def test_the_lower_bound_is_one_and_close(text):
    box, least = LEAST[text]
    assert 0.97 * least <= least_of(Target.of(text, ma.Box(**box))) <= least


@pytest.mark.parametrize(
    ("text", "low", "told"),
    [
        ("sin(x)", -1.0, "f is 0 at x = 0"),
        ("x - 0.3", -1.0, "changes its sign"),
        ("x**2", 0.0, "f is 0 at x"),
        ("(x - 0.3)**2", -1.0, "not shown to stay above"),
    ],
)
def test_a_zero_is_refused_with_its_place(text, low, told):
    with pytest.raises(Refused, match=told):
        ma.compile(text, {"x": (low, 1.0)}, error=1e-2, relative="pointwise")


@pytest.mark.parametrize(
    ("target", "more", "told"),
    [
        (lambda x: 1.0 + x[:, 0] ** 2, {"trace": False}, "a callable"),
        ("exp(x)", {"norm": 2}, "of an integral"),
        ("exp(x)", {"gap": 1e-3}, "leaves some out"),
        ("exp(x)", {"relative": "point"}, 'must be True, False or "pointwise"'),
        ("exp(x)", {"error": 1e-17}, "below what float64 can represent"),
    ],
)
def test_what_cannot_be_relative_is_refused_in_a_sentence(target, more, told):
    with pytest.raises(ma.MaxaffineError, match=told):
        ma.compile(target, {"x": (0.0, 1.0)}, **{"error": 1e-2, "relative": "pointwise", **more})


def test_an_absolute_bound_is_divided_by_the_least_size():
    plain = Certificate.proved(math.inf, {"approximation": 3e-3, "rounding": 1e-3}, argument="a", theorem="t")
    found = measured(plain, Pointwise(1e-2, 0.5))
    assert found.least == 0.5
    assert 8e-3 <= found.bound <= 8e-3 * (1 + 1e-10)
    assert found.parts["approximation"] == pytest.approx(6e-3)
    assert per_size(found) == pytest.approx(2.0)
    assert per_size(plain) == 1.0
    assert measured(found, Pointwise(1e-2, 0.25)) is found
    assert measured(plain, None) is plain


def test_where_points_are_left_out_nothing_is_relative():
    plain = Certificate.proved(math.inf, {"approximation": 3e-3})
    with pytest.raises(Refused, match="some are left out"):
        measured(replace(plain, scope=replace(plain.scope, gap=0.1, measure="distance", jumps=1)), Pointwise(1e-2, 0.5))


def test_certificates_say_so_in_their_record_and_read_it_again():
    found = measured(Certificate.proved(math.inf, {"approximation": 3e-3}), Pointwise(1e-2, 0.5))
    record = found.to_json()
    assert (record["norm"], record["least"]) == ("pointwise", 0.5)
    assert Certificate.from_json(record) == found
    assert "relative to |f(x)|, pointwise" in str(found)
    for wrong in ({**record, "norm": "inf"}, {**record, "least": None}, {**record, "least": -1.0}):
        with pytest.raises(BadInput):
            Certificate.from_json(wrong)
    assert "least" not in Certificate.proved(math.inf, {}).to_json()  # files of before


@pytest.fixture(scope="module")
def growing():
    return ma.compile("exp(2*x)", {"x": (-2.0, 2.0)}, error=1e-3, relative="pointwise")


def test_the_error_is_small_where_the_target_is(growing):
    x = np.linspace(-2.0, 2.0, 4001)
    exact = np.exp(2.0 * x)
    away = np.abs(growing(x) - exact) / exact
    assert 0.5 * growing.observed.error <= away.max() <= growing.bound <= 1e-3
    assert growing.error == 1e-3
    told = growing.to_json()
    assert (told["norm"], told["error"], told["least"]) == ("pointwise", 1e-3, growing.certificate.least)
    assert "|f(x)|, pointwise" in growing.explain()


def test_what_a_route_adds_is_counted_where_the_target_is_smallest(growing):
    rounded = growing.statement("tensors", "float32")
    assert rounded.parts["output"] == pytest.approx(2.0**-24, rel=1e-2)  # of |f(x)| itself
    literal = growing.statement("matrices")
    absolute = ma.compile("exp(2*x)", {"x": (-2.0, 2.0)}, error=1e-3 * float(growing.certificate.least)).statement("matrices")
    lost, plain = (one.parts["literal softmax"] for one in (literal, absolute))
    assert lost == pytest.approx(plain / growing.certificate.least, rel=0.5)
    assert {one.norm for one in growing.statements()} == {"pointwise"}


def test_a_loaded_layer_is_found_again_as_it_was_asked_for(growing, tmp_path):
    growing.save(tmp_path / "f.safetensors")
    again = ma.load(tmp_path / "f.safetensors", check=True)
    assert (again.bound, again.certificate.least) == (growing.bound, growing.certificate.least)
    assert again.prove("two-level").pointwise
