"""The literal matrices: exact factorisation between output columns, sizes, norms, and what is refused."""

import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import reference
from maxaffine.core.errors import BadInput
from maxaffine.layer.keys import Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.matrices import cross_matrices, matrices, matrices_bytes, self_matrices
from maxaffine.layer.tables import group_bonus, mixing
from maxaffine.runtime import chooser


def a_layer(d=2, n=2, d_out=2, n_out=3, count=7, sharpness=4.0, slopes=False, seed=0, centre=0.0):
    rng = np.random.default_rng(seed)
    D = d * n
    return Layer(
        Coordinates(np.full(D, centre), np.eye(D)), ListedKeys(rng.normal(size=(count, D)), rng.normal(size=count)), sharpness,
        rng.normal(size=(count, d_out, n_out)), np.full(D, centre - 1), np.full(D, centre + 1), ((d, n),),
        slopes=rng.normal(size=(count, d_out, n_out, D)) if slopes else None,
    )  # fmt: skip


@pytest.mark.parametrize("n_out", [1, 2, 3, 6])
@pytest.mark.parametrize("bonus", [None, 0.1, 0.7, 12.0])
def test_the_mixing_of_columns_is_undone_exactly(n_out, bonus):
    chosen = group_bonus(n_out, bonus)
    B, inverse = mixing(n_out, chosen)
    assert B @ inverse == pytest.approx(np.eye(n_out), abs=1e-13)
    assert B.sum(axis=0) == pytest.approx(np.ones(n_out))
    if n_out > 1:
        norm = np.abs(inverse).sum(axis=0).max()
        assert norm == pytest.approx((math.exp(chosen) + 2 * n_out - 3) / math.expm1(chosen))
        assert bonus is not None or norm <= 3


@pytest.mark.parametrize("layout", ["Q", "K", "I"])
def test_the_weight_of_a_key_is_a_product_of_its_score_and_its_column(layout):
    layer = a_layer()
    weights = self_matrices(layer, layout, bonus=0.7)
    X = np.random.default_rng(1).uniform(-1, 1, size=(2, 2))
    Z = weights.linear(X)
    attention = reference.attention_weights(Z, Z, weights.W_K, weights.W_Q)  # (m, m)
    alpha = chooser.attention(layer, X.flatten(order="F")[None])[0]
    beta = mixing(3, 0.7)[0]
    for c in range(3):
        expected = np.outer(alpha, beta[:, c]).ravel()
        assert attention[:, c::3] == pytest.approx(np.repeat(expected[:, None], 7, axis=1), abs=1e-13)


@pytest.mark.parametrize("correction", ["output", "values"])
@pytest.mark.parametrize("slopes", [False, True])
def test_every_layout_and_correction_gives_the_layer_constant_or_affine(correction, slopes):
    layer = a_layer(slopes=slopes, centre=0.5)
    for x in np.random.default_rng(2).uniform(-0.5, 1.5, size=(5, 4)):
        X, fast = x.reshape(2, 2).T, chooser.evaluate(layer, x[None])[0]
        for layout in "QK" if slopes else "QKI":
            weights = self_matrices(layer, layout, correction)
            assert weights(X) == pytest.approx(fast, abs=1e-12)
            assert weights(X, full=False) == pytest.approx(fast, abs=1e-12)
        assert cross_matrices(layer, correction)(X) == pytest.approx(fast, abs=1e-12)


def test_without_correction_the_leak_is_within_its_bound_and_attains_it():
    layer = a_layer(n_out=2)
    x = np.random.default_rng(3).uniform(-1, 1, size=(40, 4))
    F = chooser.evaluate(layer, x)
    for bonus in (0.7, 3.0):
        weights = self_matrices(layer, "Q", "none", bonus)
        leak = max(np.abs(weights(p.reshape(2, 2).T) - f).max() for p, f in zip(x, F, strict=True))
        bound = np.abs(F[:, :, 0] - F[:, :, 1]).max() / (math.exp(bonus) + 1)
        assert leak == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize(("d", "n", "d_out", "n_out", "count"), [
    (2, 1, 1, 1, 49), (2, 1, 1, 1, 676), (2, 2, 2, 2, 16), (2, 2, 2, 2, 4096), (1, 3, 2, 4, 20), (3, 2, 1, 2, 5),
    (1, 1, 1, 1, 9), (4, 1, 3, 1, 30), (1, 4, 1, 4, 11), (2, 3, 2, 3, 8), (3, 1, 1, 5, 6), (5, 1, 2, 2, 3),
])  # fmt: skip
def test_sizes_are_those_of_the_formulas(d, n, d_out, n_out, count):
    layer = a_layer(d, n, d_out, n_out, count)
    D, m = d * n, count * n_out
    p, k = 2 * D + 2 + n_out + d_out, D + 1 + n_out
    assert self_matrices(layer, "Q").parameters == n * p * d + n * n * m + p * m + 2 * k * p + d_out * p + m * n_out
    p, k = 1 + n_out + d_out, 1 + n_out
    assert self_matrices(layer, "K").parameters == d * p * d + d * n * m + p * m + 2 * k * p + d_out * p + m * n_out
    if m <= 200:
        p, k = D + 1 + m, D + 1 + n_out
        assert self_matrices(layer, "I").parameters == n * p * d + n * n * m + p * m + 2 * k * p + d_out * p + m * n_out


def test_norms_of_the_weights_are_those_of_the_formulas():
    layer = a_layer(sharpness=50.0)
    weights = self_matrices(layer, "Q", bonus=0.7)
    assert np.linalg.norm(weights.W_Q) == pytest.approx(math.sqrt(5 * 50.0**2 + 3 * 0.7**2))
    assert np.linalg.norm(weights.W_K) == pytest.approx(math.sqrt(4 + 1 + 3))


def test_the_bytes_told_before_are_not_less_than_a_half_of_those_taken():
    for layer in (a_layer(count=100), a_layer(2, 1, 1, 1, 400)):
        for layout in "QKI":
            taken = 8 * self_matrices(layer, layout).parameters
            assert 0.5 * taken <= matrices_bytes(layer, "self", layout) <= 4 * taken
        assert 0.5 * 8 * cross_matrices(layer).parameters <= matrices_bytes(layer, "cross", "Q")


def test_two_inputs_put_the_context_into_the_keys():
    rng = np.random.default_rng(5)
    layer = Layer(
        Coordinates(rng.normal(size=5), np.diag(rng.uniform(0.5, 2, size=5))),
        ListedKeys(rng.normal(size=(9, 5)), rng.normal(size=9)), 3.0, rng.normal(size=(9, 2, 2)), -np.ones(5), np.ones(5),
        ((1, 2), (3, 1)),
    )  # fmt: skip
    weights = cross_matrices(layer)
    assert len(weights.context.P) == 3
    for x in rng.uniform(-1, 1, size=(5, 5)):
        fast = chooser.evaluate(layer, x[None])[0]
        assert weights(x[:2].reshape(1, 2), x[2:].reshape(3, 1)) == pytest.approx(fast, abs=1e-12)


def test_what_cannot_be_made_is_refused():
    layer = a_layer()
    for call, word in (
        (lambda: matrices(layer, "flash"), "kind"),
        (lambda: matrices(layer, "self", "Z"), "layout"),
        (lambda: matrices(layer, "cross", "Q"), "layout"),
        (lambda: self_matrices(layer, "Q", "twice"), "correction"),
        (lambda: self_matrices(layer, "Q", bonus=0.0), "bonus"),
        (lambda: self_matrices(layer, "Q", bonus=math.nan), "bonus"),
        (lambda: self_matrices(a_layer(slopes=True), "I"), "affine"),
    ):
        with pytest.raises(BadInput, match=word):
            call()


def test_matrices_are_in_the_papers_convention_by_name():
    weights = ma.compile("x*y", ma.Box(x=(0, 1), y=(0, 1)), error=0.5, method="lookup").matrices("self")
    for name in ("P", "Q", "R_0", "W_Q", "W_K", "W_V", "W_O"):
        assert hasattr(weights, name)
    assert all(isinstance(part, np.ndarray) for part in (*weights.P, *weights.Q, weights.R_0, weights.W_O))
