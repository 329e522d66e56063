"""Left-out errors in closed form, against refits and against differences."""

import numpy as np
import pytest

from maxaffine.core.left_out import best_ridge, left_out_gradient


def _problem(samples: int, columns: int, weighted: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A, rows = rng.normal(size=(samples, columns)), rng.normal(size=(samples, 2))
    return A, rows, rng.integers(1, 4, samples).astype(float) if weighted else np.ones(samples)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", [5, 40])
def test_left_out_residuals_are_those_of_refits(columns: int, weighted: bool) -> None:
    A, rows, weights = _problem(30, columns, weighted)
    ridge = 0.01
    made = best_ridge(A, rows, weights, (ridge,))
    amount = ridge * weights.sum() * np.eye(columns)
    total = 0.0
    for i in range(30):  # one copy of sample i is left out; the ridge keeps its strength
        kept = weights.copy()
        kept[i] -= 1.0
        c = np.linalg.solve(A.T @ (kept[:, None] * A) + amount, A.T @ (kept[:, None] * rows))
        total += weights[i] * float(np.square(rows[i] - A[i] @ c).sum())
    assert made.ridge == ridge and made.error == pytest.approx(total, rel=1e-9)
    assert left_out_gradient(A, rows, weights, ridge)[0] == pytest.approx(total, rel=1e-9)
    assert np.allclose(made.coefficients, np.linalg.solve(A.T @ (weights[:, None] * A) + amount, A.T @ (weights[:, None] * rows)))


def test_the_ridge_with_the_least_left_out_error_is_taken() -> None:
    A, rows, weights = _problem(30, 12, True)
    ridges = (1e-4, 1e-2, 1.0, 100.0)
    errors = [best_ridge(A, rows, weights, (ridge,)).error for ridge in ridges]
    made = best_ridge(A, rows, weights, ridges)
    assert made.error == pytest.approx(min(errors), rel=1e-12) and made.ridge == ridges[int(np.argmin(errors))] == 0.01


def test_samples_of_no_weight_do_not_count() -> None:
    A, rows, weights = _problem(30, 4, True)
    weights[20:] = 0.0
    made, alone = best_ridge(A, rows, weights, (0.1,)), best_ridge(A[:20], rows[:20], weights[:20], (0.1,))
    assert made.error == alone.error and np.array_equal(made.coefficients, alone.coefficients)


def test_without_a_ridge_repeated_columns_share_their_coefficient() -> None:
    A, rows, weights = _problem(30, 3, False)
    made = best_ridge(np.concatenate([A, A], axis=1), rows, weights, (0.0,))
    once = np.linalg.lstsq(A, rows, rcond=None)[0]
    assert np.allclose(made.coefficients[:3], once / 2) and np.allclose(made.coefficients[3:], once / 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_the_left_out_error(weighted: bool) -> None:
    A, rows, weights = _problem(15, 4, weighted)
    _, gradient, slope = left_out_gradient(A, rows, weights, 0.02)
    step = 1e-6
    for place in np.ndindex(A.shape):
        moved = np.zeros_like(A)
        moved[place] = step
        up, down = (left_out_gradient(A + sign * moved, rows, weights, 0.02)[0] for sign in (1, -1))
        assert gradient[place] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)
    up, down = (left_out_gradient(A, rows, weights, 0.02 * np.exp(sign * step))[0] for sign in (1, -1))
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-5)
