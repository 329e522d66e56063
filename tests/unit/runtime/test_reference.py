"""The definition, against loops that spell it out."""

import math
from pathlib import Path

import numpy as np
import pytest

from maxaffine import reference


def test_the_definition_is_under_a_hundred_lines():
    assert len(Path(reference.__file__).read_text().splitlines()) < 100


def test_linear_is_the_sum_over_terms_plus_the_constant():
    rng = np.random.default_rng(0)
    X, R_0 = rng.normal(size=(2, 3)), rng.normal(size=(4, 5))
    P, Q = rng.normal(size=(6, 4, 2)), rng.normal(size=(6, 3, 5))
    expected = R_0.copy()
    for i, a, b, c, t in np.ndindex(6, 4, 5, 2, 3):
        expected[a, b] += P[i, a, c] * X[c, t] * Q[i, t, b]
    assert reference.linear(X, P, Q, R_0) == pytest.approx(expected, abs=1e-13)
    with pytest.raises(ValueError, match="zip"):
        reference.linear(X, P, Q[:-1], R_0)


def test_every_affine_map_of_matrices_is_a_linear_layer():
    # vec Linear(X) = (sum_i Q_i^T (x) P_i) vec X + vec R_0, columns stacked.
    rng = np.random.default_rng(1)
    X, P, Q, R_0 = rng.normal(size=(2, 3)), rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 3, 5)), rng.normal(size=(4, 5))
    kron = sum(np.kron(q.T, p) for p, q in zip(P, Q, strict=True))
    stacked = kron @ X.flatten(order="F") + R_0.flatten(order="F")
    assert reference.linear(X, P, Q, R_0).flatten(order="F") == pytest.approx(stacked, abs=1e-13)


def test_softmax_acts_on_columns_and_survives_huge_logits():
    logits = np.array([[1e5, 0.0, -1e300], [1e5 - math.log(3), 0.0, 0.0]])
    weights = reference.softmax(logits)
    assert weights == pytest.approx(np.array([[0.75, 0.5, 0.0], [0.25, 0.5, 1.0]]))
    assert weights.sum(axis=0) == pytest.approx(np.ones(3))


def test_attention_is_spelled_out_and_self_is_cross_with_one_input():
    rng = np.random.default_rng(2)
    Z_K, Z_Q = rng.normal(size=(3, 6)), rng.normal(size=(3, 4))
    W_Q, W_K, W_V, W_O = (rng.normal(size=shape) for shape in ((2, 3), (2, 3), (5, 3), (4, 7)))
    out = np.zeros((5, 7))
    for c in range(4):
        q = W_Q @ Z_Q[:, c]
        scores = [math.exp((W_K @ Z_K[:, j]) @ q) for j in range(6)]
        mean = sum(s * (W_V @ Z_K[:, j]) for j, s in enumerate(scores)) / sum(scores)
        out += np.outer(mean, W_O[c])
    assert reference.cross_attention(Z_K, Z_Q, W_Q, W_K, W_V, W_O) == pytest.approx(out, abs=1e-12)
    own = reference.self_attention(Z_Q, W_Q, W_K, W_V, W_O)
    assert np.array_equal(own, reference.cross_attention(Z_Q, Z_Q, W_Q, W_K, W_V, W_O))


def test_lookup_is_the_softmax_mean_of_the_values():
    logits, values = np.array([0.0, math.log(2), math.log(5)]), np.arange(12.0).reshape(3, 2, 2)
    assert reference.lookup(logits, values) == pytest.approx((values[0] + 2 * values[1] + 5 * values[2]) / 8)
