"""Dynamics of the overlaps, and the landscape they move in."""

import math

import numpy as np
import pytest

from maxaffine import meanfield as mf
from maxaffine.core.errors import Refused

PAPER = mf.Problem(100, 20, math.sqrt(0.5))
HALF = mf.Problem(100, 20, 0.5)


def test_the_manifold_is_invariant_exactly():
    path = mf.gd(mf.SoftmaxRisk(PAPER, beta=1), mf.Overlaps(-0.2, 0.4), 0.1, 50)
    assert np.all(path.overlaps[:, 2:] == 0)


def test_the_flow_is_the_limit_of_small_steps_to_first_order():
    table = mf.tabulate(mf.SoftmaxRisk(PAPER, beta=1))
    start = mf.Overlaps(0.2, 0.1, 0.1, -0.05, 0.15)
    end = mf.flow(table, start, [0.0, 1.0]).overlaps[-1]
    errors = [np.abs(mf.gd(table, start, 1 / k, k, every=k).overlaps[-1] - end).max() for k in (500, 1000)]
    assert errors[0] < 2e-3
    assert errors[1] / errors[0] == pytest.approx(0.5, abs=0.03)


def test_mu_converges_logarithmically_at_the_papers_size():
    table = mf.tabulate(mf.SoftmaxRisk(PAPER, beta=1))
    path = mf.flow(table, mf.Overlaps(0.1, 0.0), [3, 10, 100, 1e3, 1e4, 1e5])
    assert path.overlaps[:, 0] == pytest.approx([0.656, 0.719, 0.807, 0.880, 0.940, 0.985], abs=1e-3)
    assert path.risk == pytest.approx([9.25e-3, 3.66e-4, 3.50e-5, 4.21e-6, 6.28e-7, 1.43e-7], rel=5e-3)
    assert path.first_below(1e-5) == 1e3
    assert path.first_below(1e-9) is None


def test_overlaps_stay_feasible_and_the_risk_falls_along_the_descent():
    path = mf.gd(mf.tabulate(mf.SoftmaxRisk(HALF, beta=1)), mf.Overlaps(0.1, -0.3, 0.3, 0.1, -0.2), 0.01, 2000, every=20)
    assert all(mf.Overlaps(*row).feasible(1e-12) for row in path.overlaps.tolist())
    assert np.all(np.diff(path.risk) < 1e-12)
    assert path.last.nu > 0.99


def test_other_links_can_drive_the_descent():
    risk = mf.LinkRisk(mf.Problem(20, 6, 0.6), "relu", lam=4.0)
    path = mf.gd(risk, mf.Overlaps(0.3, 0.2), 0.05, 200, every=50)
    assert np.all(np.diff(path.risk) < 0)


def test_a_descent_that_meets_an_infinite_gradient_is_refused():
    with pytest.raises(Refused, match="infinite"):
        mf.gd(mf.LinkRisk(PAPER, "sign", beta=1), mf.Overlaps(0.5, 1.0), 0.01, 2)


def test_the_stationary_points_on_the_manifold_include_the_extra_saddle():
    points = mf.stationary_points(mf.SoftmaxRisk(HALF, beta=1))
    kinds = {(round(p.overlaps.mu, 4), p.overlaps.nu): p.kind for p in points}
    assert kinds == {
        (-1.0, 1.0): "saddle",
        (1.0, 1.0): "minimum",
        (-1.0, -1.0): "saddle",
        (0.2958, -1.0): "saddle",
        (1.0, -1.0): "saddle",
    }
    assert len(mf.stationary_points(mf.SoftmaxRisk(PAPER, beta=1))) == 4


@pytest.mark.parametrize("problem", [PAPER, HALF])
def test_stationary_points_off_the_manifold_exist_and_none_of_them_attracts(problem):
    risk = mf.SoftmaxRisk(problem, beta=1)
    points = mf.stationary_points(mf.tabulate(risk), planar=True, search=2)
    extra = [p for p in points if not p.on_manifold]
    assert len(extra) >= 4
    assert all(p.kind != "minimum" for p in extra)
    assert max(points, key=lambda p: p.risk).risk > 50  # the global maximum, which no point of the manifold is
    for point in extra:
        move = mf.velocity(point.overlaps, risk.value_and_gradient(point.overlaps)[1])
        assert np.abs(move).max() < 1e-10


def test_the_hessian_at_the_oracle_in_closed_form_equals_the_numerical_one():
    for problem in (PAPER, mf.Problem(16, 5, 0.8), mf.Problem(40, 1e6, 0.6)):
        risk = mf.SoftmaxRisk(problem, lam=3.0)
        closed = mf.hessian_oracle(risk)
        expected = sorted([*np.linalg.eigvalsh(closed.block), *[closed.perpendicular_u] * 4, *[closed.perpendicular_v] * 4])
        numeric = np.linalg.eigvalsh(mf.riemannian_hessian(risk, mf.Overlaps(1, 1)))
        assert numeric == pytest.approx(expected, abs=1e-8 * max(expected))
        assert closed.smallest > 0


def test_the_oracle_is_a_local_minimum_on_a_scan_of_settings():
    for length in (2, 20, 1e9):
        for d in (4, 100, 300):
            for gamma in (0.2, 0.7, 0.99):
                for lam in (0.1, 3.0, 20.0):
                    assert mf.hessian_oracle(mf.SoftmaxRisk(mf.Problem(d, length, gamma), lam=lam)).smallest > -1e-12
