"""Given partitions and covering centres: boxes proved by dual solutions, bounds against dense sampling."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.heads.lookup.build import build_centres, build_partition
from maxaffine.heads.lookup.plan import covering_plan
from maxaffine.heads.lookup.prove_listed import cell_boxes, certify_centres, certify_partition, euclidean_constant, partition_plan
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.runtime import chooser
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.01, 0.3]))
def test_the_boxes_hold_every_point_of_the_enlarged_cells(seed, margin):
    rng = np.random.default_rng(seed)
    D, N = int(rng.integers(1, 4)), int(rng.integers(1, 15))
    A, b = rng.normal(size=(N, D)), 0.5 * rng.normal(size=N)
    low, high = cell_boxes(A, b, margin)
    z = np.concatenate([rng.uniform(-1, 1, size=(3000, D)), rng.choice([-1.0, 1.0], size=(50, D))])
    inside = MaxAffine(A, b).enlarged(z, margin)
    for j in range(N):
        mine = z[inside[:, j]]
        if len(mine):
            assert np.all(mine >= low[j] - 1e-12)
            assert np.all(mine <= high[j] + 1e-12)


def test_the_boxes_of_a_grid_are_its_cells():
    pieces = MaxAffine.grid(ma.Box([-1, -1], [1, 1]), 2)
    low, high = cell_boxes(pieces.A, pieces.b, 0.0)
    assert low == pytest.approx(np.array([[-1, -1], [-1, 0], [0, -1], [0, 0]]), abs=1e-9)
    assert high == pytest.approx(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), abs=1e-9)


def test_an_empty_cell_is_proved_empty_and_its_value_does_not_matter():
    low, high = cell_boxes(np.array([[1.0], [-1.0], [0.0]]), np.array([0.0, 0.0, -1.0]), 0.1)
    assert low[2] > high[2]
    assert np.all(low[:2] <= high[:2])


@pytest.mark.parametrize("box", [ma.Box(x=(-1, 1), y=(-1, 1)), ma.Box(x=(1e6 + 1 / 3, 1e6 + 2 / 3), y=(-7, 3))])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_g4_bounds_the_error_of_a_power_diagram_on_face_biased_points(box, dtype):
    rng = np.random.default_rng(3)
    sites = box.sample(30, rng)
    pieces = MaxAffine.from_power_diagram((sites - box.centre) / box.width, 0.01 * rng.normal(size=30))
    pieces = MaxAffine(pieces.A / box.width, pieces.b - (pieces.A / box.width) @ box.centre)
    text = f"sin(3*(x-{float(box.centre[0])!r})/{float(box.width[0])!r}) + y/{float(box.width[1])!r}"
    target = Target.of(text, box)
    plan = partition_plan(pieces, target, Evidence(), 1.0)
    layer = build_partition(plan.partition, plan.sharpness, plan.values, target, dtype)
    assert np.all(np.abs(layer.coordinates(np.stack([box.low, box.high]))) <= 1.0)
    certificate = certify_partition(layer, target, Evidence(), plan.margin)
    x = box.sample(6000, rng)
    # Walk half of the points onto faces: between two points of different cells, by bisection.
    a, b = x[:1500].copy(), x[1500:3000].copy()
    stored = MaxAffine(*layer.affine_pieces())
    for _ in range(45):
        middle = a / 2 + b / 2
        same = (stored.argmax(middle) == stored.argmax(a))[:, None]
        a, b = np.where(same, middle, a), np.where(same, b, middle)
    x = np.concatenate([x, a, b, box.corners()])
    found = float(np.abs(chooser.evaluate(layer, x).astype(float) - target.values(x)).max())
    assert found <= certificate.bound
    assert found >= 0.3 * certificate.bound


def test_g4_tends_to_the_oscillation_of_the_cells_as_the_sharpness_grows():
    box = ma.Box(x=(-1, 1))
    target = Target.of("x", box)
    layer = ma.compile("x", box, error=0.6, keys=MaxAffine.grid(box, 4), method="lookup")
    assert 0.25 <= layer.bound <= 0.27
    assert layer.observed.error >= 0.24
    assert target.box == layer.box


def test_a_callable_over_a_partition_needs_constants():
    box = ma.Box(x=(-1, 1))
    pieces = MaxAffine.grid(box, 8)
    with pytest.raises(Refused, match="lipschitz"):
        ma.compile(lambda X: X[:, 0], box, error=0.9, trace=False, keys=pieces, method="lookup")
    layer = ma.compile(lambda X: np.abs(X[:, 0]), box, error=0.9, trace=False, keys=pieces, lipschitz=[1.0], method="lookup")
    x = np.linspace(-1, 1, 2001)
    assert np.abs(layer(x) - np.abs(x)).max() <= layer.bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [1.05, 2.0])
def test_theorem_i_bounds_the_error_everywhere_within_the_radius(dtype, k):
    rng = np.random.default_rng(4)
    box = ma.Box([-2] * 3, [2] * 3)
    target = Target.of("sin(x1) + abs(x2)/2 + max(x3, 0)", box)
    L = math.sqrt(1 + 0.25 + 1)
    centres = rng.uniform(-1, 1, size=(80, 3))
    plan = covering_plan(centres, 0.4, k, L)
    layer = build_centres(plan, target, dtype)
    certificate = certify_centres(layer, target, Evidence(euclidean=L), plan.radius)
    away = rng.normal(size=(8000, 3))
    away *= 0.4 * (1 - 1e-6) * rng.random((8000, 1)) ** 0.2 / np.linalg.norm(away, axis=1, keepdims=True)
    x = centres[rng.integers(80, size=8000)] + away
    found = float(np.abs(chooser.evaluate(layer, x).astype(float) - target.values(x)).max())
    assert found <= certificate.bound
    assert certificate.bound <= k * L * 0.4 * 1.001


def test_the_euclidean_constant_comes_from_itself_or_from_the_axes():
    assert euclidean_constant(Evidence(euclidean=3.0, lipschitz=np.ones(2))) == 3.0
    assert euclidean_constant(Evidence(lipschitz=np.array([3.0, 4.0]))) == pytest.approx(5.0)
    with pytest.raises(Refused, match="lipschitz"):
        euclidean_constant(Evidence())


def test_a_partition_of_one_piece_is_a_constant_layer():
    layer = ma.compile("x", ma.Box(x=(-1, 1)), error=1.1, keys=MaxAffine([[0.0]], [0.0]), method="lookup")
    assert layer.tokens == 1
    assert layer.bound == pytest.approx(1.0, rel=1e-6)
    assert np.abs(layer(np.linspace(-1, 1, 11))).max() <= 1e-9


def test_what_leaks_past_the_enlarged_cells_is_in_the_bound_and_cannot_be_dropped():
    box = ma.Box(x=(-1, 1))
    target, pieces = Target.of("sign(x)*min(abs(x)*50, 1)", box), MaxAffine([[-1.0], [1.0]], [0.0, 0.0])
    layer = build_partition(pieces, 2.0, np.array([-1.0, 1.0]).reshape(2, 1, 1), target, "float64")
    certificate = certify_partition(layer, target, Evidence(), 0.5)
    x = np.linspace(-1, 1, 4001)[:, None]
    found = float(np.abs(chooser.evaluate(layer, x) - target.values(x)).max())
    assert found <= certificate.bound
    # On [-1, 1] the enlarged cells end at 0.25: the oscillation there is 2, and e^{-Rg} of the range leaks.
    assert certificate.parts["leakage"] >= 2.0 * math.exp(-2.0 * 0.5)
