"""Descent: both traps of naive code, the laws of flow and path, joint training, W and (K, Q), basins, walls."""

import numpy as np
import pytest

from maxaffine import margin
from maxaffine.margin.examples import joint, losses, multi, random_tokens, single, sphere_tokens
from maxaffine.margin.gradient import pull
from maxaffine.margin.losses import LOSSES
from maxaffine.margin.walls import line_walls, walls


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def naive(keys, scores, loss, p):
    """-grad L as it is usually written: softmax in floating point, keys minus their mean."""
    logits = keys @ p
    a = np.exp(logits - logits.max(axis=1, keepdims=True))
    a /= a.sum(axis=1, keepdims=True)
    f = (a * scores).sum(axis=1)
    spread = np.einsum("nt,nt,ntd->nd", a, scores - f[:, None], keys)
    return (np.exp(LOSSES[loss].log_slope(f))[:, None] * spread).mean(axis=0)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_centred_gradient_is_the_gradient(loss):
    problem = random_tokens(3, n=3, T=4, d=5)
    for p in np.random.default_rng(0).standard_normal((5, 5)):
        found = pull(problem.keys, problem.scores, LOSSES[loss], p)
        assert np.exp(found.log_size) * found.direction == pytest.approx(naive(problem.keys, problem.scores, loss, p), rel=1e-9)


def test_trap_1_the_uncentred_gradient_turns_to_a_wrong_limit():
    """Loose joint data: the inputs that decide are the first whose gradient is exactly 0 in floating point."""
    problem = joint("loose")
    machines = margin.joint_svm(problem)
    v, p = problem.v, problem.p
    for _ in range(1000):
        scores = problem.Y[:, None] * (problem.X @ v)
        on_p = naive(problem.X, scores, "log", p)
        a = np.exp(problem.X @ p - (problem.X @ p).max(axis=1, keepdims=True))
        mean = np.einsum("nt,ntd->nd", a / a.sum(axis=1, keepdims=True), problem.X)
        on_v = (problem.Y / (1 + np.exp(problem.Y * (mean @ v)))) @ mean
        v, p = v + 0.1 * on_v / np.linalg.norm(on_v), p + 0.1 * on_p / (np.linalg.norm(on_p) + 1e-300)
    right = margin.joint_ngd(problem, steps=1000).p[-1]
    assert cosine(p, machines.p.p) > 0.9999 and cosine(p, machines.relaxed.p) < 0.985
    assert cosine(right, machines.relaxed.p) > 0.99999 and cosine(right, machines.p.p) == pytest.approx(0.98118, abs=1e-5)


def test_trap_2_descent_goes_on_where_weights_underflow():
    problem = single()
    start = 900.0 * margin.att_svm(problem.keys, [0]).p
    assert (naive(problem.keys, problem.scores, "log", start) == 0).all()
    run = margin.ngd(problem, start=start, step=1.0, steps=50)
    assert run.length[-1] == pytest.approx(run.length[0] + 50, rel=1e-3)


def test_a_tie_of_scores_with_the_preferred_token_is_driven_by_what_the_others_leave():
    problem = margin.Tokens([[(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]], [[1.0, 1.0, 0.0]])
    found = pull(problem.keys, problem.scores, LOSSES["linear"], np.array([900.0, 2.0]))
    assert np.isfinite(found.log_size) and np.isfinite(found.direction).all()
    assert np.linalg.norm(found.direction) == pytest.approx(1)


@pytest.mark.parametrize("seed", (0, 3, 4, 5))
def test_length_and_gap_follow_their_laws_within_3_percent_where_the_slack_is_above_a_tenth(seed):
    problem = random_tokens(seed)
    run = margin.gradient_flow(problem, points=61)
    locality = margin.is_locally_optimal(problem, run.selected)
    svm = locality.svm
    assert locality.attracts and svm.room > 0.1
    assert margin.slope(run) == pytest.approx(svm.length, rel=0.03)
    assert run.time[-1] * run.gap[-1] == pytest.approx(svm.length**2, rel=0.03)
    law = margin.asymptote(problem, svm)
    assert run.leak[-1] * run.time[-1] == pytest.approx(law.leak, rel=0.1)


def test_losses_move_the_line_and_not_the_direction():
    for C in (2, 5):
        for loss in LOSSES:
            problem = losses(C)
            run = margin.ngd(problem, loss, step=0.4, steps=150, every=150)
            svm = margin.att_svm(problem.keys, run.selected)
            assert run.p[-1][1] == pytest.approx(margin.asymptote(problem, svm, loss).offset[1], abs=1e-6)


def test_path_and_flow_share_their_line():
    problem = multi()
    svm = margin.att_svm(problem.keys, problem.best)
    offset = margin.asymptote(problem, svm).offset
    path = margin.regularisation_path(problem, [8, 128, 1024, 4096])
    distance = np.linalg.norm(path.offset(svm.p) - offset, axis=1)
    assert distance[-1] < 0.02 < distance[-2] < distance[-3] and np.linalg.norm(offset) == pytest.approx(1.3216, abs=1e-3)
    assert np.linalg.norm(path.p, axis=1) == pytest.approx(path.radii)


def test_the_joint_flow_sharpens_like_log_log_and_goes_to_the_relaxed_direction():
    problem = joint("loose")
    machines = margin.joint_svm(problem)
    run = margin.joint_flow(problem, 1e60, points=127)
    assert cosine(run.p[-1], machines.relaxed.p) > 1 - 1e-6 and cosine(run.v[-1], machines.v.p) > 1 - 1e-9
    assert run.leak[-1, :2] * np.log(1e60) ** 2 == pytest.approx([2, 2], rel=0.02)
    assert np.linalg.norm(run.p[-1]) < 10
    steps = margin.joint_ngd(problem, steps=200)
    assert cosine(steps.p[-1], machines.relaxed.p) == pytest.approx(0.99986, abs=1e-5)
    assert cosine(steps.p[-1], machines.p.p) == pytest.approx(0.98371, abs=1e-5)


def test_the_fan_of_kappa():
    problem = joint("loose")
    machines = margin.joint_svm(problem)
    for kappa, angle in ((0.1, 0.1778), (0.5, 0.0992), (1.0, 0.0), (2.0, 0.0)):
        u = margin.limit_direction(problem, kappa, machines)
        assert np.arccos(min(1, cosine(u, machines.relaxed.p))) == pytest.approx(angle, abs=2e-4)
    v, p = margin.joint_path(problem, 0.5, 160.0)
    assert np.linalg.norm(p) == pytest.approx(160) and np.linalg.norm(v) == pytest.approx(80)
    assert np.arccos(cosine(p, machines.relaxed.p)) == pytest.approx(0.1009, abs=2e-4)


def test_descent_on_W_with_one_query_is_descent_on_the_query():
    rng = np.random.default_rng(1)
    X, z = rng.standard_normal((3, 4, 3)), np.array([0.6, -0.8, 0.5])
    scores = rng.uniform(0, 1, (3, 4))
    lifted, plain = margin.lift(X, np.tile(z, (3, 1)), scores), margin.Tokens(X, scores)
    W = margin.gd(lifted, step=0.1, steps=300, every=300).p[-1].reshape(3, 3)
    q = margin.gd(plain, step=0.1 * float(z @ z), steps=300, every=300).p[-1]
    assert W @ z == pytest.approx(q, abs=1e-12)


def test_training_K_and_Q_goes_to_the_nuclear_norm_machine_and_not_to_the_frobenius_one():
    X, v, z = sphere_tokens(0)
    X, z = X[:3, :4, :4], z[:3, :4]
    problem = margin.lift(X, z, X @ v[:4])
    rng = np.random.default_rng(0)
    K, Q = margin.factor_ngd(problem, 0.1 * rng.standard_normal((4, 4)), 0.1 * rng.standard_normal((4, 4)), steps=3000)
    W = (K @ Q.T).ravel()
    chosen = (problem.keys @ W).argmax(axis=1)
    nuclear = margin.nuclear_svm(problem, chosen, (4, 4))
    assert nuclear.norm == pytest.approx(nuclear.below, rel=1e-6)
    assert cosine(W, nuclear.W.ravel()) > 0.9995 and cosine(W, margin.att_svm(problem.keys, chosen).p) < 0.9


def test_basins_of_the_single_input_are_69_and_31_percent():
    found = margin.basins(single("local"), margin.grid_of_starts(3.0, 21), steps=300)
    assert found.share(margin.Optimality.GLOBAL) == pytest.approx(0.69, abs=0.02)
    assert found.share(margin.Optimality.NOT) == 0 and found.choices == ((0,), (1,))


def test_starts_at_a_choice_that_is_not_locally_optimal_are_followed_until_they_leave():
    problem = single()  # token 1 has a worse score than token 0 on its margin
    starts = np.array([(6.0, 0.0), (4.0, -3.0)])
    early, late = margin.basins(problem, starts, steps=5), margin.basins(problem, starts, steps=5, further=1)
    assert early.share(margin.Optimality.NOT) == 1 and len(early.held()) == 2 and early.held().max() < 0.999
    assert late.share(margin.Optimality.GLOBAL) == 1 and late.held().size == 0


def test_trained_walls_have_a_larger_margin_at_the_same_norm_and_their_support_points_are_named():
    sites, points = np.linspace(-0.8, 0.8, 5)[:, None], np.array([-0.95, -0.5, -0.31, 0.02, 0.13, 0.33, 0.52, 0.68, 0.9])[:, None]
    found = walls(sites, points, steps=1500)
    assert found.built_margin < found.trained_margin <= found.machine.margin * (1 + 1e-12)
    middle = line_walls(found.best, found.keys)
    inside = np.searchsorted(points[:, 0], middle)
    assert (inside == np.searchsorted(points[:, 0], [-0.6, -0.2, 0.2, 0.6])).all()
    assert {i for i, _ in found.machine.supports} <= set(range(9))
