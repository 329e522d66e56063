"""Plans of lookups: counts that fit, the cheapest of them, centres that cover."""

import itertools
import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.core.errors import Refused
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.lookup import theorems
from maxaffine.target.evidence import Evidence

BOX = ma.Box(x=(-1, 1), y=(0, 4))


@pytest.mark.parametrize("error", [2.0, 0.5, 0.1, 0.01])
@pytest.mark.parametrize("constants", [(1.0, 1.0), (5.0, 0.1), (3.0, 0.0), (0.0, 0.0)])
def test_lipschitz_plans_fit_the_error_and_dropping_a_cell_does_not(error, constants):
    constants = np.array(constants)
    for plan in lookup.sup_norm_plans(BOX, Evidence(lipschitz=constants), error):
        factor = theorems.mean_distance(plan.sharpness)
        assert factor * (constants @ (BOX.width / plan.counts)) <= error * (1 + 1e-9)
        assert plan.predicted <= error * (1 + 1e-9)
        for axis in range(2):
            fewer = np.array(plan.counts) - (np.arange(2) == axis)
            if fewer.min() >= 1:
                assert factor * (constants @ (BOX.width / fewer)) > error


def test_the_cheapest_plan_is_the_best_of_all_small_grids():
    constants, error = np.array([2.0, 0.7]), 0.6
    plan = lookup.cheapest(lookup.sup_norm_plans(BOX, Evidence(lipschitz=constants), error))
    best = min(
        a * b
        for rho, a, b in itertools.product(lookup.SHARPNESSES, range(1, 40), range(1, 40))
        if theorems.mean_distance(rho) * (constants @ (BOX.width / [a, b])) <= error
    )
    assert plan.cells <= 1.05 * best


def test_euclidean_modulus_and_concave_plans_fit_their_theorems():
    error = 0.3
    for plan in lookup.sup_norm_plans(BOX, Evidence(euclidean=1.5), error):
        assert plan.argument == "E2"
        square = theorems.mean_square(plan.sharpness) * ((BOX.width / plan.counts) ** 2).sum()
        assert 1.5 * math.sqrt(square) <= error * (1 + 1e-9)
    (plan,) = lookup.sup_norm_plans(BOX, Evidence(modulus=math.sqrt, spread=2.0), error)
    leak = 2.0 * 2 * theorems.tail(plan.sharpness)
    assert plan.argument == "E3"
    assert math.sqrt((BOX.width / plan.counts).max()) + leak <= error * (1 + 1e-9)
    for plan in lookup.sup_norm_plans(BOX, Evidence(concave_modulus=math.sqrt), error):
        assert plan.argument == "E4"
        assert math.sqrt(theorems.mean_distance(plan.sharpness) * (BOX.width / plan.counts).sum()) <= error * (1 + 1e-9)


def test_a_modulus_that_never_gets_small_enough_gives_no_plan():
    assert list(lookup.sup_norm_plans(BOX, Evidence(modulus=lambda r: 1.0, spread=2.0), 0.3)) == []
    assert list(lookup.sup_norm_plans(BOX, Evidence(modulus=lambda r: 1 / max(1e-9, -math.log(r)) if r < 1 else 9.0), 1e-3)) == []


def test_proposals_grow():
    plans = list(lookup.sup_norm_proposals(BOX, Evidence(lipschitz=np.ones(2)), 0.1))
    cells = [plan.cells for plan in plans]
    assert cells == sorted(set(cells))
    assert len(cells) >= 4


def test_the_largest_reach_of_a_modulus_is_found_to_nine_digits():
    assert lookup._largest(math.sqrt, 0.25, 10.0) == pytest.approx(0.0625, rel=1e-8)
    assert lookup._largest(math.sqrt, 5.0, 10.0) == 10.0
    assert lookup._largest(lambda r: 1.0, 0.5, 10.0) is None


def test_farthest_points_cover_within_the_radius_with_few_centres():
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(400, 2))
    chosen, reached = lookup.farthest_points(points, 0.2)
    near = np.sqrt(((points[:, None] - points[chosen]) ** 2).sum(axis=2)).min(axis=1)
    assert near.max() == pytest.approx(reached)
    assert reached <= 0.2
    apart = np.sqrt(((points[chosen][:, None] - points[chosen]) ** 2).sum(axis=2)) + 9 * np.eye(len(chosen))
    assert apart.min() > 0.2  # a packing: no more centres than the covering number at half the radius


def test_covering_plans_promise_the_error_by_theorem_i():
    points = np.random.default_rng(1).uniform(size=(100, 2))
    for plan in lookup.covering_plans(points, 2.0, 0.5):
        assert plan.predicted <= 0.5 * (1 + 1e-12)
        assert 2.0 * theorems.covering(plan.radius, plan.cells, plan.multiplier) <= 0.5 * (1 + 1e-9)


def test_enclosed_proposals_that_need_too_many_cells_are_refused_with_the_reason(monkeypatch):
    target = ma.Target.of("sqrt(x)*sqrt(y)", ma.Box(x=(0, 1), y=(0, 1)))
    with pytest.raises(Refused, match="cells"):
        monkeypatch.setattr(lookup, "ENCLOSED_LIMIT", 1 << 14)
        next(lookup.enclosed_proposals(target, Evidence(spread=1.0, why_not="the slope is unbounded."), 1e-5))
