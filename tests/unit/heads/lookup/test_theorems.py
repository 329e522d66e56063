"""The lemmas of the lookup against brute force, with the worst logit errors, and their constants against halving."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import lambertw

from maxaffine.core.errors import BadInput
from maxaffine.heads.lookup import theorems

RHOS = (1.0, 2.0, 3.22, 6.0, theorems.RHO0, 12.0, 20.0, 30.0, 80.0)
ETAS = (0.0, 1e-6, 0.01, 0.3, 1.0)
COUNTS = (1, 2, 3, 5, 33)


def positions(count, per_cell=97):
    """Positions in a grid of `count` cells: faces, the points next to them, box edges, and the inside of cells."""
    z = np.linspace(-count / 2.0, count / 2.0, count * per_cell + 1)
    faces = np.arange(count + 1) - count / 2.0
    near = np.concatenate([faces + nudge for nudge in (0.0, 1e-9, -1e-9, 0.01, -0.01, 0.5, 0.5 + 1e-9)])
    return np.clip(np.concatenate([z, near]), -count / 2.0, count / 2.0)


def worst_mean(count, rho, eta, cost):
    """sup over positions and over all |delta| <= eta of the weighted mean of cost(|z - c|).

    The mean is largest with +eta on the costliest centres and -eta on the others: as many sign patterns as centres.
    """
    centres = np.arange(count) - (count - 1) / 2.0
    z = positions(count)[:, None]
    worth = cost(np.abs(z - centres))
    logits = -rho * (z - centres) ** 2 / 2.0
    logits -= logits.max(axis=1, keepdims=True)
    order = np.argsort(-worth, axis=1, kind="stable")
    worth, logits = np.take_along_axis(worth, order, axis=1), np.take_along_axis(logits, order, axis=1)
    worst = 0.0
    for raised in range(count + 1):
        sign = np.where(np.arange(count) < raised, eta, -eta)
        weight = np.exp(logits + sign)
        worst = max(worst, float(((weight * worth).sum(axis=1) / weight.sum(axis=1)).max()))
    return worst


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("eta", ETAS)
def test_the_mean_distance_holds_for_every_position_and_every_logit_error(rho, eta):
    for count in COUNTS:
        assert worst_mean(count, rho, eta, lambda d: d) <= theorems.mean_distance(rho, eta) * (1 + 1e-12)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("eta", ETAS)
def test_the_mean_square_holds_for_every_position_and_every_logit_error(rho, eta):
    for count in COUNTS:
        assert worst_mean(count, rho, eta, lambda d: d * d) <= theorems.mean_square(rho, eta) * (1 + 1e-12)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("eta", ETAS)
def test_the_tail_holds_for_every_position_and_every_logit_error(rho, eta):
    # In an edge half-cell the nearest centre alone lies within a cell's width; elsewhere the two nearest do.
    for count in COUNTS:
        assert worst_mean(count, rho, eta, lambda d: (d > 1.0 + 1e-6) * 1.0) <= theorems.tail(rho, eta) * (1 + 1e-12)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("margin", [0.0, 5 / 128, 0.2, 0.45])
def test_the_weight_outside_the_enlarged_cell_holds_for_every_position_and_every_logit_error(rho, eta, margin):
    for count in COUNTS:
        found = worst_mean(count, rho, eta, lambda d: (d > 0.5 + margin + 1e-12) * 1.0)
        assert found <= theorems.outside_enlarged(rho, margin, eta) * (1 + 1e-12)


@pytest.mark.parametrize("rho", RHOS)
def test_random_logit_errors_of_a_joint_softmax_move_the_marginals_no_further(rho):
    rng = np.random.default_rng(7)
    centres = np.arange(5) - 2.0
    for eta in (0.05, 0.5):
        for _ in range(200):
            z = rng.uniform(-2.5, 2.5, size=2)
            logits = -rho / 2.0 * ((z[0] - centres[:, None]) ** 2 + (z[1] - centres[None, :]) ** 2)
            weight = np.exp(logits + eta * rng.choice([-1.0, 1.0], size=(5, 5)))
            weight /= weight.sum()
            assert weight.sum(axis=1) @ np.abs(z[0] - centres) <= theorems.mean_distance(rho, eta) * (1 + 1e-12)
            assert weight.sum(axis=0) @ (z[1] - centres) ** 2 <= theorems.mean_square(rho, eta) * (1 + 1e-12)


def test_on_a_face_the_mean_distance_is_half_a_cell_so_that_its_constant_cannot_be_lowered():
    assert worst_mean(33, 30.0, 0.0, lambda d: d) >= 0.5
    assert theorems.mean_distance(30.0) < 0.5 + 1e-5


def test_the_logit_error_in_the_mean_distance_cannot_be_dropped():
    eta, rho = 0.5, 20.0
    found = worst_mean(2, rho, eta, lambda d: d)
    assert found > theorems.mean_distance(rho)
    assert found > 0.5 + 0.85 * eta**2 / (2 * rho)


def test_the_tail_is_attained_up_to_a_percent_so_that_it_cannot_be_halved():
    for rho in (12.0, 20.0):
        # Just beside a centre the second neighbour on the other side is farther than a cell and weighs almost q.
        assert worst_mean(33, rho, 0.0, lambda d: (d > 1.0 + 1e-10) * 1.0) >= 0.99 * theorems.tail(rho)


def test_two_nearest_by_rank_leak_the_published_figures():
    def leak(rho):
        centres = np.arange(33) - 16.0
        z = positions(33)[:, None]
        weight = np.exp(-rho * (z - centres) ** 2 / 2.0)
        weight = np.sort(weight / weight.sum(axis=1, keepdims=True), axis=1)
        return float(weight[:, :-2].sum(axis=1).max())

    assert leak(6.0) == pytest.approx(0.0453, abs=1e-4)
    assert theorems.tail(6.0) == pytest.approx(0.0524, abs=1e-4)
    assert leak(12.0) == pytest.approx(0.00247, abs=1e-5)
    assert theorems.tail(12.0) == pytest.approx(0.00248, abs=1e-5)
    assert worst_mean(33, 6.0, 0.0, lambda d: d) == pytest.approx(0.5025, abs=1e-4)
    assert theorems.mean_distance(6.0) == pytest.approx(0.6048, abs=1e-4)


def test_logit_errors_multiply_the_tail_by_kappa_and_that_is_attained():
    rho, eta = 12.0, 0.5
    plain, moved = (worst_mean(33, rho, e, lambda d: (d > 1.0 + 1e-9) * 1.0) for e in (0.0, eta))
    assert moved >= 0.98 * math.exp(2 * eta) * plain
    assert theorems.tail(rho, eta) == pytest.approx(math.exp(2 * eta) * theorems.tail(rho))


def test_the_closed_forms_are_the_written_formulas():
    for rho in RHOS:
        q = math.exp(-rho / 2)
        for eta in ETAS:
            kappa = math.exp(2 * eta)
            assert theorems.tail(rho, eta) == pytest.approx(kappa * q / (1 - q), rel=1e-13)
            distance = 0.5 + eta**2 / (2 * rho) + kappa * 2 * q / (1 - q)
            assert theorems.mean_distance(rho, eta) == pytest.approx(distance, rel=1e-13)
            near = sum(m * m * q ** (m * (m - 1)) for m in range(2, 200))
            far = sum((m + 0.5) ** 2 * q ** (m * m) for m in range(1, 200))
            square = 0.25 + 2 / rho * lambertw(kappa / math.e).real + kappa * (near + far)
            assert theorems.mean_square(rho, eta) == pytest.approx(square, rel=1e-12)
            assert theorems.mean_square(rho, eta) >= square * (1 - 1e-14)
            for margin in (0.01, 0.3):
                outside = kappa * (math.exp(-rho * margin) + q / (1 - q))
                assert theorems.outside_enlarged(rho, margin, eta) == pytest.approx(outside, rel=1e-13)
        average = 2 / rho * math.log(2 / (1 + q)) + q / (1 - q)
        assert theorems.cell_average(rho) == pytest.approx(average, rel=1e-13)
        for p in (1.0, 2.0, 3.5):
            steps = 2 / rho * math.log(2 / (1 + q)) + q
            steps += sum(m**p * (q ** (m * (m - 1)) + q ** (m * m)) for m in range(2, 300))
            assert theorems.steps_average(rho, p) == pytest.approx(steps, rel=1e-12)
            constant = (1 + average) ** (2 / p) * steps ** (1 / p)
            assert theorems.soft_constant(rho, p, 3) == pytest.approx(constant, rel=1e-12)


def test_the_default_sharpness_has_q_one_forty_first_and_mean_distance_eleven_twentieths():
    assert theorems.q_of(theorems.RHO0) == pytest.approx(1 / 41, rel=1e-14)
    assert theorems.mean_distance(theorems.RHO0) == pytest.approx(0.55, rel=1e-13)
    assert math.sqrt(theorems.mean_square(theorems.RHO0)) == pytest.approx(0.62, abs=5e-3)


@pytest.mark.parametrize("rho", RHOS)
def test_the_cell_average_and_the_mean_steps_bound_their_integrals(rho):
    centres = np.arange(21) - 10.0
    nodes, gauss = np.polynomial.legendre.leggauss(60)
    edges = np.concatenate([-0.5 + np.geomspace(1e-4, 0.5, 12), [-0.5]])
    edges = np.sort(np.concatenate([edges, -edges]))
    average, steps = 0.0, {1.0: 0.0, 2.0: 0.0, 3.0: 0.0}
    for low, high in itertools.pairwise(edges):
        z = (low + high) / 2 + (high - low) / 2 * nodes
        weight = np.exp(-rho * (z[:, None] - centres) ** 2 / 2)
        weight /= weight.sum(axis=1, keepdims=True)
        half = gauss * (high - low) / 2
        average += float(half @ (1.0 - weight[:, 10]))
        for p in steps:
            steps[p] += float(half @ (weight @ np.abs(centres) ** p))
    assert average <= theorems.cell_average(rho) * (1 + 1e-9)
    assert all(found <= theorems.steps_average(rho, p) * (1 + 1e-9) for p, found in steps.items())
    if rho >= 20:
        assert average >= 0.99 * theorems.cell_average(rho)
        assert steps[1.0] >= 0.99 * theorems.steps_average(rho, 1.0)


def test_a_sharpness_too_small_for_an_lp_bound_is_refused():
    with pytest.raises(BadInput, match="sharpness"):
        theorems.steps_average(1e-12, 1.0)


# -- G1, G2: the indicator


def _softmax(scores):
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("R", [1.0, 10.0, 200.0])
def test_g1_and_g2_hold_on_random_partitions_and_g1_is_attained(R):
    rng = np.random.default_rng(int(R))
    for _ in range(40):
        N, D = int(rng.integers(2, 120)), int(rng.integers(1, 8))
        s = rng.uniform(-1, 1, size=(50, D)) @ rng.normal(size=(D, N)) + 0.3 * rng.normal(size=N)
        alpha = _softmax(R * s)
        top = s.max(axis=1)
        ordered = np.sort(s, axis=1)
        y = np.exp(-R * (ordered[:, -1] - ordered[:, -2]))
        missing = 1.0 - alpha.max(axis=1)
        assert np.all(missing <= (N - 1) * y / (1 + (N - 1) * y) + 1e-12)
        assert np.all(missing >= y / (1 + y) - 1e-12)
        assert np.all((alpha * (top[:, None] - s)).sum(axis=1) <= math.log(N) / R + 1e-12)
        for g in (0.01, 0.1, 1.0):
            near = s >= top[:, None] - g
            M = N - near.sum(axis=1)
            outside = np.where(near, 0.0, alpha).sum(axis=1)
            assert np.all(outside <= M * math.exp(-R * g) / (1 + M * math.exp(-R * g)) + 1e-12)
            assert np.all(outside <= math.log(N) / (R * g) + 1e-12)


@pytest.mark.parametrize(("N", "delta", "eta", "R"), [(50, 0.1, 1e-2, 91.85), (500, 0.02, 1e-3, 690.65)])
def test_the_sharpness_for_a_margin_is_sharp(N, delta, eta, R):
    needed = math.log((N - 1) * (2 - eta) / eta) / delta
    assert needed == pytest.approx(R, abs=0.005)
    alpha = _softmax(needed * np.r_[0.0, -delta * np.ones(N - 1)])
    assert np.abs(alpha - np.eye(N)[0]).sum() == pytest.approx(eta, rel=1e-9)


# -- Theorem I


@pytest.mark.parametrize("eta", [0.0, 0.2])
def test_theorem_i_holds_with_adversarial_logit_errors(eta):
    rng = np.random.default_rng(3)
    for _ in range(60):
        N, D = int(rng.integers(1, 60)), int(rng.integers(1, 6))
        v, x = rng.normal(size=(N, D)), rng.normal(size=(30, D))
        square = ((x[:, None] - v) ** 2).sum(axis=2)
        R = float(rng.uniform(0.2, 50))
        radius = np.sqrt(square.min(axis=1))
        order = np.argsort(square, axis=1)
        for raised in range(0, N + 1, max(1, N // 8)):  # +eta on the farthest, -eta on the nearest
            sign = np.empty_like(square)
            np.put_along_axis(sign, order, np.where(np.arange(N) >= N - raised, eta, -eta)[None] * np.ones((30, 1)), axis=1)
            mean = (_softmax(-R * square / 2 + sign) * square).sum(axis=1)
            bound = np.array([theorems.covering(r, N, R, eta) for r in radius])
            assert np.all(np.sqrt(mean) <= bound * (1 + 1e-9))


def test_log_n_in_theorem_i_cannot_be_halved():
    N, R = 10**6, 2.0
    energy = np.linspace(0, 20, 4001)[:, None]
    weight = (N - 1) * np.exp(-R * energy)
    mean = float((energy * weight / (1 + weight)).max())  # one centre at the point, the others equally far away
    bound = theorems.covering(0.0, N, R) ** 2 / 2
    assert 0.75 * bound <= mean <= bound


def test_the_logit_error_in_theorem_i_cannot_be_dropped():
    # One centre at the point, one at energy e, the errors in favour of the far one.
    R, eta = 3.0, 1.0
    energy = np.linspace(0, 4, 4001)
    weight = np.exp(2 * eta - R * energy)
    mean = float((energy * weight / (1 + weight)).max())
    assert mean > theorems.covering(0.0, 2, R) ** 2 / 2
    assert mean <= theorems.covering(0.0, 2, R, eta) ** 2 / 2
    written = math.sqrt(0.3**2 + 2 * (math.log(7) + 2 * 0.2) / 5)
    assert theorems.covering(0.3, 7, 5.0, 0.2) == pytest.approx(written, rel=1e-14)
