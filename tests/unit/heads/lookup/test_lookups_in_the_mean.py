"""L_p: the split into hard and soft parts, F1 and F2 against integrals, p-means, and what counts as a proof."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.build import build_grid
from maxaffine.heads.lookup.grid import all_samples, cell_samples, grid_coordinates, grid_keys, p_mean
from maxaffine.heads.lookup.plan import GridPlan
from maxaffine.heads.lookup.plan_integral import residual, sharpness
from maxaffine.heads.lookup.prove_integral import certify_integral, hard_part, soft_part
from maxaffine.layer.layer import Layer
from maxaffine.proofs.observe_integral import observe_integral
from maxaffine.runtime import chooser
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target


def with_values(values, rho):
    """A layer with these values on a grid over [0, 1]^D."""
    D = values.ndim
    box = ma.Box([0.0] * D, [1.0] * D)
    return Layer(
        grid_coordinates(box, values.shape), grid_keys(values.shape), rho, values[..., None, None], box.low, box.high, ((D, 1),)
    )


def graded(count, rho, nodes=8):
    """Gauss points and weights on [0, 1], graded towards the faces of `count` cells, and the cell of every point."""
    inner = np.minimum(0.5, np.array([0.0, 1.0, 3.0, 8.0, 30.0]) / rho)
    cuts = np.unique(np.concatenate([-0.5 + inner, 0.5 - inner, [0.0]]))
    t, w = np.polynomial.legendre.leggauss(nodes)
    local = np.concatenate([(a + b) / 2 + (b - a) / 2 * t for a, b in zip(cuts[:-1], cuts[1:], strict=True)])  # noqa: RUF007
    weight = np.concatenate([(b - a) / 2 * w for a, b in zip(cuts[:-1], cuts[1:], strict=True)])  # noqa: RUF007
    cell = np.repeat(np.arange(count), len(local))
    return (cell + 0.5 + np.tile(local, count)) / count, np.tile(weight, count) / count, cell


def soft_norm(layer, p):
    """||F - g||_p by graded quadrature."""
    axes = [graded(count, layer.sharpness) for count in layer.keys.shape]
    x = np.stack([a.ravel() for a in np.meshgrid(*(a[0] for a in axes), indexing="ij")], axis=1)
    weight = math.prod(np.meshgrid(*(a[1] for a in axes), indexing="ij")).ravel()
    cell = tuple(c.ravel() for c in np.meshgrid(*(a[2] for a in axes), indexing="ij"))
    away = np.abs(chooser.evaluate(layer, x)[:, 0, 0] - layer.values[..., 0, 0][cell])
    return float((weight @ away**p) ** (1 / p))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("rho", [1.5, 3.22, 20.0, 200.0])
@pytest.mark.parametrize("shape", [(1,), (9,), (4, 5)])
def test_f1_and_f2_bound_the_soft_part_of_random_values(shape, rho, p):
    rng = np.random.default_rng(int(rho) + len(shape))
    layer = with_values(rng.normal(size=shape), rho)
    found = soft_norm(layer, p)
    for bound in soft_part(layer, p):
        assert found <= bound * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("rho", [20.0, 200.0])
def test_f2_is_attained_by_a_single_jump_so_that_it_cannot_be_halved(rho):
    layer = with_values(np.repeat([0.0, 1.0], 8), rho)
    assert soft_norm(layer, 1.0) >= 0.98 * soft_part(layer, 1.0)[1]


def test_f1_is_attained_up_to_a_constant_by_alternating_values():
    layer = with_values(np.tile([0.0, 1.0], 16), 50.0)
    assert soft_norm(layer, 1.0) >= 0.9 * soft_part(layer, 1.0)[0]


@pytest.mark.parametrize("eta", [0.05, 0.3])
def test_logit_errors_raise_the_soft_part_by_no_more_than_kappa_per_coordinate(eta):
    rng = np.random.default_rng(1)
    values, rho, p = rng.normal(size=(5, 4)), 20.0, 1.0
    layer = with_values(values, rho)
    axes = [graded(count, rho) for count in values.shape]
    total = 0.0
    weights = []
    for (x, _, cell), count in zip(axes, values.shape, strict=True):
        sites = (np.arange(count) + 0.5) / count
        sign = np.where(np.arange(count) == cell[:, None], -eta, eta)  # against the nearest, for all others
        logits = -rho / 2 * ((x[:, None] - sites) * count) ** 2 + sign
        one = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights.append(one / one.sum(axis=1, keepdims=True))
    F = weights[0] @ values @ weights[1].T
    g = values[np.ix_(axes[0][2], axes[1][2])]
    total = float((np.abs(F - g) ** p * np.outer(axes[0][1], axes[1][1])).sum() ** (1 / p))
    assert total > soft_norm(layer, p)
    assert total <= min(soft_part(layer, p)) * math.exp(2 * 2 * eta / p)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
def test_the_p_mean_minimises_the_mean_power(p):
    samples = np.random.default_rng(0).normal(size=(7, 41))
    best = p_mean(samples, p)
    cost = (np.abs(samples - best[:, None]) ** p).sum(axis=1)
    for nudge in (-1e-3, 1e-3):
        assert np.all((np.abs(samples - best[:, None] - nudge) ** p).sum(axis=1) >= cost * (1 - 1e-12))


STEP = "where(x**2 + y**2 < 1, 1, 0) - .7*where(x + .3*y > .4, 1, 0)"
BOX = ma.Box(x=(-2, 2), y=(-2, 2))


@pytest.mark.parametrize(("p", "rho"), [(1.0, 200.0), (2.0, 20.0)])
def test_the_hard_part_is_proved_above_and_within_two_percent_of_the_integral(p, rho):
    target = Target.of(STEP, BOX)
    layer = build_grid(GridPlan("L_p", (24, 24), rho, math.nan, norm=p), target, "float64")
    proved, how = hard_part(layer, target, Evidence(), p)
    side = 1200
    axis = -2 + 4 * (np.arange(side) + 0.5) / side
    x = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    index = np.minimum(((x + 2) * 6).astype(int), 23)
    away = np.abs(target.values(x)[:, 0, 0] - layer.values[index[:, 0], index[:, 1], 0, 0])
    found = (float((away**p).mean()) * 16) ** (1 / p)
    assert "enclosures" in how
    assert 0.999 * found <= proved <= 1.02 * found


def test_quadrature_is_never_a_bound():
    jump = Target.of(lambda X: np.sign(X[:, 0]), ma.Box(x=(-1, 1)))
    layer = build_grid(GridPlan("L_p", (8,), 200.0, math.nan, norm=1.0), jump, "float64")
    with pytest.raises(Refused, match="facts"):
        certify_integral(layer, jump, Evidence(), 1.0)


def test_a_jump_hidden_from_samples_is_in_the_proof():
    # A spike between all samples: quadrature and p-means do not see it, enclosures do.
    target = Target.of("where(abs(x - 0.123456) < 1e-5, 1000, 0)", ma.Box(x=(0, 1)))
    layer = build_grid(GridPlan("L_p", (4,), 200.0, math.nan, norm=1.0), target, "float64")
    assert np.all(layer.values == 0.0)
    assert certify_integral(layer, target, Evidence(), 1.0).bound >= 0.02


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_total_variation_and_constants_count_the_rounding_of_stored_values(dtype):
    target = Target.of("1000.1 + 0*x", ma.Box(x=(0, 1)))
    layer = build_grid(GridPlan("L_p", (2,), 20.0, math.nan, norm=1.0), target, dtype)
    away = abs(float(layer.values[0, 0, 0]) - 1000.1)
    for evidence in (Evidence(lipschitz=np.zeros(1)), Evidence(variation=np.zeros(1))):
        callable_target = Target.of(lambda X: 1000.1 + 0 * X[:, 0], ma.Box(x=(0, 1)))
        assert hard_part(layer, callable_target, evidence, 1.0)[0] >= away


def test_the_planner_leaves_the_soft_part_its_share():
    target = Target.of(STEP, BOX)
    _, steps = residual(target, (16, 16), 1.0)
    rho = sharpness(steps, 0.05, 1.0, 2)
    assert steps * theorems.soft_constant(rho, 1.0, 2) <= 0.05
    assert steps * theorems.soft_constant(rho / 1.25, 1.0, 2) > 0.05 or rho == 20.0


def test_the_observed_integral_agrees_with_a_fine_midpoint_rule():
    target = Target.of("where(x > 0.3, 1, 0)", ma.Box(x=(0, 1)))
    layer = build_grid(GridPlan("L_p", (7,), 30.0, math.nan, norm=1.0), target, "float64")
    found = observe_integral(lambda x: chooser.evaluate(layer, x), target, layer, 1.0, 0, 100).error
    x = (np.arange(400_000) + 0.5) / 400_000
    rule = float(np.abs(chooser.evaluate(layer, x[:, None])[:, 0, 0] - (x > 0.3)).mean())
    assert found == pytest.approx(rule, rel=1e-2)


def test_the_bound_is_the_hard_part_plus_the_smaller_soft_part():
    target = Target.of("where(x > 0.3, 1, 0)", ma.Box(x=(0, 1)))
    layer = build_grid(GridPlan("L_p", (7,), 30.0, math.nan, norm=1.0), target, "float64")
    certificate = certify_integral(layer, target, Evidence(), 1.0)
    hard, soft = hard_part(layer, target, Evidence(), 1.0)[0], min(soft_part(layer, 1.0))
    assert certificate.parts["approximation"] == pytest.approx(hard, rel=1e-9)
    assert certificate.parts["leakage"] == pytest.approx(soft, rel=1e-9)
    assert certificate.bound >= hard + soft > 1.05 * hard


@pytest.mark.parametrize("text", ["where(x**2 + y**2 < 0.5, 1, 0)", "sin(3*x)"])
def test_samples_of_all_cells_on_a_product_of_axes_are_those_of_the_cells_one_by_one(text: str) -> None:
    target, counts = Target.of(text, ma.Box(x=(-1, 1.3), y=(0, 2))), (9, 7)
    coordinates = grid_coordinates(target.box, counts)
    parts = list(all_samples(target, coordinates, counts))
    assert [start for start, _, _ in parts] + [63] == [0, *(stop for _, stop, _ in parts)]
    assert np.array_equal(
        np.concatenate([samples for _, _, samples in parts]),
        cell_samples(target, coordinates, counts, 0, 63).reshape(63, 144, 1),
    )
