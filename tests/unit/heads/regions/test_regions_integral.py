"""Jumps on hyperplanes without a gap: bounds in L_p against brute force, the checker, and what is refused."""

import functools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.checker import check
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.scope import Scope
from maxaffine.heads.regions.plan import build_regions
from maxaffine.heads.regions.prove import certify_regions_integral, layer_measure
from maxaffine.layer.file import to_tensors
from maxaffine.runtime import chooser

SIDE = (-1, 1)
JUMP = "sign(x-.3*y)*(1+y**2)"
BOTH = "sign(x-.3*y)*(1+y**2)+abs(x+y)*cos(x)"


@functools.cache
def compiled(text, error, norm, dtype="float64", method="regions"):
    return ma.compile(text, ma.Box(x=SIDE, y=SIDE), error=error, norm=norm, method=method, dtype=dtype)


def grid(low, high, count):
    axes = [a + (b - a) * (np.arange(count) + 0.5) / count for a, b in zip(low, high, strict=True)]
    return np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=1)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("plane, beyond, drift", [((1, 0, 0.1), 1, 0.0), ((1, -0.3, 0), 2, 0.05), ((0.5, 2, -0.7), 5, 0.3)])
def test_the_layer_about_a_jump_is_at_most_its_closed_form(plane, beyond, drift, p):
    low, high, steep = np.array([-1.0, -2.0]), np.array([2.0, 1.0]), 15.0
    exact = tuple(Fraction(c) for c in plane)
    x = grid(low, high, 1500)
    h = np.abs(x @ np.array(plane[:2], dtype=float) + plane[2])
    true = float((np.minimum(1.0, beyond * np.exp(2 * drift - 2 * steep * h)) ** p).mean()) * 9.0
    bound = layer_measure(exact, low, high, steep, beyond, drift, p)
    assert true * 0.995 <= bound <= 1.6 * true


@pytest.mark.parametrize("text, error, norm, most", [(JUMP, 1e-2, 1, 4), (JUMP, 1e-4, 2, 6), (BOTH, 1e-3, 2, 24)])
def test_jumps_are_proved_in_l_p_without_a_gap(text, error, norm, most):
    layer = compiled(text, error, norm)
    assert layer.certificate.kind == "proved" and layer.norm == norm and layer.tokens <= most
    assert layer.observed.error <= layer.bound <= error
    assert layer.certificate.scope == Scope("integral")
    tensors, record = layer._record()
    verdict = check(tensors, record)
    assert verdict.passed and "slabs" in verdict.how


def test_auto_takes_regions_and_says_how_to_ask():
    assert compiled(JUMP, 1e-2, 1, method="auto").method == "regions"
    with pytest.raises(Refused, match=r"L_p error with `norm=1`"):
        ma.compile(JUMP, ma.Box(x=SIDE, y=SIDE), error=1e-2, method="regions")


@pytest.mark.parametrize("text", [JUMP, BOTH])
@pytest.mark.parametrize("norm", [1.0, 2.0])
@pytest.mark.parametrize("steep", [6.0, 40.0])
def test_soft_layers_are_bounded_by_certificate_and_checker(text, norm, steep):
    """Sites so soft that the layers about jumps are what the error is made of, against sums over a grid."""
    made = compiled(text, 1e-2, norm)
    plan = made.prove.args[1]
    slopes = list(plan.slopes)
    plan = replace(plan, steepness=tuple(steep for _ in plan.steepness))
    layer = build_regions(plan, made.target, "float64")
    x = grid(layer.low, layer.high, 500)
    for runtime in ("two-level", "dense"):
        away = np.abs(chooser.evaluate(layer, x, runtime) - made.target.values(x))[:, 0, 0]
        true = float((away**norm).mean() * 4.0) ** (1.0 / norm)
        bound = certify_regions_integral(layer, plan, norm, 1.0, slopes, runtime).bound
        assert true * 0.99 <= bound <= 12.0 * true
    tensors, description = to_tensors(layer)
    _, record = made._record()
    record = {**record, "layer": description, "plan": plan.to_json(), "error": 50.0}
    assert true * 0.99 <= check(tensors, record).bound <= 14.0 * true


def test_float32_is_proved_too():
    layer = compiled(JUMP, 1e-2, 1, "float32")
    assert layer.bound <= 1e-2 and layer.dtype == "float32"


def test_the_checker_doubts_norm_domain_and_numbers():
    tensors, record = compiled(JUMP, 1e-2, 1)._record()
    for forged in (
        {"norm": 0.5, "certificate": {**record["certificate"], "norm": 0.5}},
        {"norm": 2.0},
        {"certificate": {**record["certificate"], "scope": {"over": "everywhere"}}},
        {"plan": {**record["plan"], "steepness": [1e30]}},
        {"norm": "inf", "certificate": {**record["certificate"], "norm": "inf"}},
    ):
        try:
            passed = check(tensors, {**record, **forged}).passed
        except BadInput:
            passed = False
        assert not passed, forged
    moved = {**tensors, "group.0.values": tensors["group.0.values"] + 0.1}
    assert not check(moved, record).passed
    soft = {name: tensor * (1e-3 if "sites" in name else 1.0) for name, tensor in tensors.items()}
    weak = {**record, "plan": {**record["plan"], "steepness": [1e-3 * s for s in record["plan"]["steepness"]]}}
    assert not check(soft, weak).passed
