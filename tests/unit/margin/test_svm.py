"""ATT-SVM: exact solutions, certified infeasibility, the relaxed problem, and the certificate of the margin."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import softmax

from maxaffine.margin import Optimality, Tokens, att_svm, certificate, examine, hard_margin, is_locally_optimal, joint_svm
from maxaffine.margin.distance import NotSeparable
from maxaffine.margin.examples import joint, multi, random_tokens, single
from maxaffine.margin.svm import rows_of


def problems(count):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n, T, d = int(rng.integers(1, 7)), int(rng.integers(2, 8)), int(rng.integers(2, 13))
        yield rng.standard_normal((n, T, d)), rng.integers(0, T, n)


def test_two_hundred_random_problems_are_solved_to_1e_10_and_the_infeasible_ones_are_those_of_a_linear_program():
    infeasible = 0
    for keys, tokens in problems(200):
        G = rows_of(keys, tokens)[1]
        program = linprog(np.zeros(keys.shape[2]), A_ub=-G, b_ub=-np.ones(len(G)), bounds=(None, None))
        try:
            svm = att_svm(keys, tokens)
        except NotSeparable as failure:
            infeasible += 1
            assert program.status == 2
            assert failure.weights.min() >= 0 and failure.weights.sum() == pytest.approx(1)
            assert np.linalg.norm(G.T @ failure.weights) < 1e-9 and failure.least > 1e9
        else:
            assert program.status == 0 and svm.residual < 1e-10
            assert svm.slack.min() > -1e-10 and svm.duals.min() >= 0
            assert svm.length**2 == pytest.approx(svm.duals.sum(), rel=1e-10)
    assert infeasible == 60


@pytest.mark.parametrize("short", [1e-6, 1e-9, 1e-12, 1e-15])
def test_a_query_that_must_be_very_long_is_found_and_not_called_impossible(short):
    keys = np.array([[[short, 0], [0, 0]], [[0, 1.0], [0, 0]]])
    assert att_svm(keys, [0, 0]).p == pytest.approx([1 / short, 1], rel=1e-12)


def test_inputs_of_very_different_sizes_in_enough_dimensions_are_separable():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        keys = rng.standard_normal((3, 3, 12)) * 10.0 ** rng.uniform(-5, 5, (3, 1, 1))
        svm = att_svm(keys, [0, 1, 2])  # six rows in twelve dimensions
        sizes = np.linalg.norm(svm.differences, axis=1) * svm.length
        assert (svm.slack >= -1e-15 * sizes - 1e-10).all() and svm.kkt["gap"] < 1e-10


def test_the_numbers_of_the_papers_figures():
    assert att_svm(single().keys, [0]).length ** 2 / 2 == pytest.approx(0.495050, abs=5e-7)
    tight = joint_svm(joint("tight"))
    assert tight.p.length**2 / 2 == pytest.approx(0.944444, abs=5e-7) and tight.v.length**2 / 2 == pytest.approx(0.5)
    assert tight.tight and not joint_svm(joint("loose")).tight
    assert att_svm(multi().keys, [0, 0, 0]).length ** 2 / 2 == pytest.approx(0.37134, abs=5e-6)
    with_score = np.concatenate([multi().keys, multi().scores[:, :, None]], axis=2)
    assert att_svm(with_score, [0, 0, 0]).length ** 2 / 2 == pytest.approx(0.31319, abs=5e-6)


def test_another_solver_finds_no_shorter_query():
    keys, tokens = random_tokens(0).keys, [0, 1, 2, 3]
    svm = att_svm(keys, tokens)
    G = svm.differences
    constraint = {"type": "ineq", "fun": lambda p: G @ p - 1, "jac": lambda p: G}
    other = minimize(lambda p: p @ p / 2, svm.p + 0.1, jac=lambda p: p, constraints=constraint, method="SLSQP")
    assert np.linalg.norm(other.x) == pytest.approx(svm.length, rel=1e-6)


def test_the_relaxed_problem_asks_only_for_sides():
    svm = joint_svm(joint("loose"))
    assert svm.support == (0, 1) and svm.relaxed.length < svm.p.length
    assert (svm.relaxed.slack >= -1e-12).all() and svm.relaxed.wanted.tolist() == [1, 1, 0]


def test_a_relaxed_certificate_is_a_bound_in_every_direction():
    svm = joint_svm(joint("loose")).relaxed
    for u in np.random.default_rng(0).standard_normal((500, 2)):
        found = certificate(u, svm)
        assert found.least_cosine <= found.cosine + 1e-12 and (found.leak <= 1).all()


def test_a_token_of_one_input_is_selectable_iff_it_is_a_corner_of_the_hull():
    from scipy.spatial import ConvexHull

    for seed in range(30):
        keys = np.random.default_rng(seed).standard_normal((1, 9, 2))
        corners = set(ConvexHull(keys[0]).vertices.tolist())
        for t in range(9):
            try:
                att_svm(keys, [t])
            except NotSeparable:
                assert t not in corners
            else:
                assert t in corners


def test_the_certificate_of_the_margin_is_never_violated_on_20_000_pairs():
    rng, least, pairs = np.random.default_rng(0), np.inf, 0
    for seed in range(40):
        keys = np.random.default_rng(seed).standard_normal((3, 4, 8))
        try:
            svm = att_svm(keys, np.zeros(3, dtype=int))
        except NotSeparable:
            continue
        u = svm.p / svm.length + rng.uniform(0, 1.5, (700, 1)) * rng.standard_normal((700, 8)) / 2
        lengths = np.linalg.norm(u, axis=1)
        margins = (u @ svm.differences.T).min(axis=1) / lengths
        least, pairs = min(least, float((u @ svm.p / (lengths * svm.length) - margins * svm.length).min())), pairs + len(u)
        for one, m in zip(u[:5], margins, strict=False):
            found = certificate(one, svm)
            assert found.margin == pytest.approx(m) and found.least_cosine <= found.cosine + 1e-12
            a = softmax(keys @ one, axis=1)
            assert (1 - a[:, 0] <= found.leak + 1e-15).all()
    assert pairs > 20_000
    assert least > -1e-12


def test_local_optimality_is_by_scores_on_the_margin():
    found = is_locally_optimal(single("local"), [1])
    assert found.status is Optimality.LOCAL and found.attracts
    assert is_locally_optimal(single("local"), [0]).status is Optimality.GLOBAL
    assert is_locally_optimal(single(), [1]).status is Optimality.NOT
    assert is_locally_optimal(Tokens([[[0.0], [1.0], [2.0]]], [[0, 1, 0]]), [1]).status is Optimality.INFEASIBLE
    seen = is_locally_optimal(multi(), [0, 0, 0])
    assert not seen.decided and seen.undetermined == (2,) and seen.svm.room == pytest.approx(0.0071, abs=5e-5)


def test_no_law_is_failed_before_its_time():
    early = {one.claim: one for one in examine(random_tokens(7), end=100.0).findings}["|p| grows like |p_mm| log T"]
    assert abs(early.numbers["found"] / early.numbers["law"] - 1) > 0.1
    assert early.outcome == "not yet" and "is too short to fail it" in early.sentence


def test_tokens_of_one_score_do_not_spoil_a_choice_and_the_laws_are_those_of_the_machine_without_them():
    problem = random_tokens(15, 3, 4, 4, equal=True)
    start = np.random.default_rng(15).standard_normal(4)
    found = examine(problem, start=start, end=1e100)
    assert found.locality.status is Optimality.TIED and found.svm.length < att_svm(problem.keys, found.run.selected).length
    assert found.locality.undetermined == (1,)
    outcomes = {one.claim: one for one in found.findings}
    for claim in ("|p| grows like |p_mm| log T", "T times the loss gap tends to |p_mm|^2"):
        assert outcomes[claim].outcome == "pass"
        assert outcomes[claim].numbers["found"] == pytest.approx(outcomes[claim].numbers["law"], rel=1e-3)
    assert found.late.least_cosine >= 0.999


def test_of_two_best_tokens_either_is_globally_optimal_even_where_they_are_one():
    for second in ((1.0, -0.3), (1.0, 0.2)):
        problem = Tokens([[(1.0, 0.2), second, (0.0, 0.0)]], [[1.0, 1.0, 0.0]])
        assert is_locally_optimal(problem, [0]).status is is_locally_optimal(problem, [1]).status is Optimality.GLOBAL
    assert is_locally_optimal(Tokens(problem.keys, [[1.0, 1.0, 1.0]]), [0]).status is not Optimality.GLOBAL  # nothing pulls


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: att_svm(np.zeros((2, 1, 3)), [0, 0]), "1 token per input"),
        (lambda: Tokens(np.zeros((1, 1, 1)), np.zeros((1, 1))), "give at least 2"),
        (lambda: Tokens(np.full((1, 2, 1), np.nan), np.zeros((1, 2))), r"`keys` has nan at \(0, 0, 0\)"),
        (lambda: Tokens.of(np.zeros((2, 2, 1)), [1, 0.5], [1]), "the label 0.5 at input 1; labels are"),
        (lambda: Tokens.of(np.zeros((2, 2, 1)), [1], [1]), "1 labels for 2 inputs"),
        (lambda: Tokens.of(np.zeros((2, 2, 3)), [1, 1], [1]), "`v` has 1 entries where tokens have 3"),
        (lambda: att_svm(np.ones((1, 2, 2)), [0]), "no query separates the tokens 0: .* as a weighted mean"),
        (lambda: att_svm(np.ones((1, 2, 2)), [2]), "must lie between 0 and 1"),
        (lambda: hard_margin([[1.0, 0], [1, 0]], [1, -1]), "no plane through the origin separates"),
        (lambda: examine(single(), loss="hinge"), "must be one of log, exp, linear"),
        (lambda: examine(single(), end=1e400), "must lie between 1 and"),
        (lambda: examine(Tokens(np.ones((1, 2, 2)), [[0, 1]])), "attention has not chosen"),
        (lambda: examine(Tokens([[[0.0], [1.0], [2.0]]], [[0, 1, 0]])), "descent settles at .* no query separates the tokens 1"),
        (lambda: examine(Tokens(np.full((1, 2, 2), 1e101), [[0, 1]])), "an entry of size 1e\\+101"),
        (lambda: att_svm([[[0.0], [1e-120]]], [0]), "differences of the keys are below 1e-100"),
        (lambda: Tokens([[[1j], [0]]], [[0, 1]]), "`keys` must be real numbers"),
        (lambda: certificate([0.0, 0.0], att_svm(single().keys, [0])), "has no direction"),
        (lambda: random_tokens(0).query([1.0]), "has 1 entries where keys have 12"),
    ],
)
def test_every_bad_input_is_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
