"""Certificates: parts that add up, arguments as written, values that are doubted, and runtimes one by one."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.core.scope import Scope
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.build import build_grid
from maxaffine.heads.lookup.plan import MARGIN, GridPlan
from maxaffine.heads.lookup.prove_grid import certify_grid, values_deviation
from maxaffine.layer.layer import Layer
from maxaffine.proofs.certificate import PARTS, Certificate
from maxaffine.proofs.observe import face_biased, observe
from maxaffine.runtime import chooser
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

BOX = ma.Box(x=(-1, 1), y=(0, 4))
TARGET = Target.of("sin(x) + cos(y)", BOX)
KNOWN = Evidence(np.ones(2), math.sqrt(2), lambda r: 2 * r, lambda r: r, spread=4.0)


def grid(route="E1", counts=(10, 20), rho=14.0, dtype="float64", margin=0.0, target=TARGET):
    return build_grid(GridPlan(route, counts, rho, math.nan, margin=margin), target, dtype)


@pytest.mark.parametrize("rho", [theorems.RHO0, 14.0, 40.0])
def test_every_route_is_its_written_formula_plus_rounding(rho):
    h = np.array([2 / 10, 4 / 20])
    q = math.exp(-rho / 2)
    written = {
        "E1": (0.5 + 2 * q / (1 - q)) * h.sum(),
        "E2": math.sqrt(2) * math.sqrt(theorems.mean_square(rho) * (h**2).sum()),
        "E3": 2 * 0.2 + 4 * 2 * q / (1 - q),
        "E4": (0.5 + 2 * q / (1 - q)) * h.sum(),
    }
    for route, bound in written.items():
        certificate = certify_grid(grid(route, rho=rho), TARGET, KNOWN, route)
        assert certificate.bound == pytest.approx(bound, rel=1e-9)
        assert certificate.bound >= bound
        assert certificate.parts["rounding"] > 0


def test_g4_is_the_oscillation_of_enlarged_cells_plus_the_leak():
    rho = 200.0
    certificate = certify_grid(grid("G4", rho=rho, margin=MARGIN), TARGET, Evidence(), "G4", MARGIN)
    leak = certificate.parts["leakage"]
    q = math.exp(-rho / 2)
    spread = math.sin(1) * 2 + 1 - math.cos(math.pi)
    assert leak >= spread * 0.9 * 2 * (math.exp(-rho * MARGIN) + q / (1 - q))
    widest = (0.5 + MARGIN) * 0.4  # both variables together, at slope one
    assert 0.8 * widest <= certificate.parts["approximation"] <= 1.3 * widest


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("route", ["E1", "E2", "E3", "E4", "G4"])
def test_every_argument_bounds_the_error_on_face_biased_points(route, dtype):
    margin = MARGIN if route == "G4" else 0.0
    layer = grid(route, rho=200.0 if route == "G4" else 14.0, dtype=dtype, margin=margin)
    certificate = certify_grid(layer, TARGET, KNOWN, route, margin)
    found = observe(lambda x: chooser.evaluate(layer, x), TARGET, layer, 0, 10_000)
    assert found.error <= certificate.bound


def test_parts_add_up_to_the_bound_and_each_is_rounded_up():
    certificate = Certificate.proved(math.inf, {"approximation": 0.1, "leakage": 0.2, "rounding": 1e-18})
    assert set(certificate.parts) == set(PARTS)
    assert certificate.bound >= math.fsum(certificate.parts.values()) >= 0.3
    assert certificate.bound <= 0.3 * (1 + 1e-11)
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert "sup norm" in str(certificate)
    assert "nothing proved" in str(Certificate.nothing(math.inf, "no facts", "float64"))


def test_a_stored_value_that_is_not_that_of_the_target_raises_the_bound_by_as_much():
    layer = grid()
    before = certify_grid(layer, TARGET, KNOWN, "E1").bound
    values = np.array(layer.values)
    values[3, 7] += 0.25
    moved = Layer(layer.coordinates, layer.keys, layer.sharpness, values, layer.low, layer.high, layer.inputs)
    assert certify_grid(moved, TARGET, KNOWN, "E1").bound == pytest.approx(before + 0.25, rel=1e-9)


def test_values_of_a_callable_are_doubted_by_what_the_declared_facts_allow_between_sites():
    callable_target = Target.of(lambda X: np.sin(X[:, 0]) + np.cos(X[:, 1]), BOX)
    layer = grid(target=callable_target)
    doubt, storage = values_deviation(layer, callable_target, KNOWN)
    assert 0 < doubt < 1e-13
    assert storage < 1e-14


def test_keys_that_are_no_grid_are_refused():
    layer = grid()
    keys = layer.keys
    bent = Layer(
        type(layer.coordinates)(layer.coordinates.centre, layer.coordinates.matrix * 1.5), keys, 14.0, layer.values, layer.low,
        layer.high, layer.inputs,
    )  # fmt: skip
    with pytest.raises(Refused, match="uniform grid"):
        certify_grid(bent, TARGET, KNOWN, "E1")


def test_the_certificate_of_one_runtime_is_not_above_that_of_all():
    compiled = ma.compile("sin(3*x) + y", BOX, error=0.4, dtype="float32", method="lookup")
    for runtime in chooser.available(compiled.weights):
        assert compiled.certificate_for(runtime).bound <= compiled.bound
    assert compiled.certificate_for().bound == compiled.bound
    with pytest.raises(ma.BadInput, match="dtype"):
        compiled.certificate_for(dtype="float64")


def test_assumptions_are_told_in_words():
    compiled = ma.compile("sin(3*x) + y", BOX, error=0.4, method="lookup")
    words = " ".join(compiled.certificate.assumptions)
    assert "exp is accurate" in words
    assert "derived" in words
    declared = ma.compile("sin(3*x) + y", BOX, error=0.4, lipschitz=[3, 1], method="lookup")
    assert "declared" in " ".join(declared.certificate.assumptions)
    assert compiled.certificate.scope == Scope("box", "real")


def test_half_of_the_points_lie_on_or_next_to_faces():
    layer = grid()
    x = face_biased(layer, 4000, np.random.default_rng(0))
    z = layer.coordinates(x) + np.array([10, 20]) / 2
    near = np.abs(z - np.rint(z)).min(axis=1) < 0.05
    assert near.mean() > 0.4
    assert np.all((x >= layer.low) & (x <= layer.high))
    assert np.any(np.all((x == layer.low) | (x == layer.high), axis=1))
