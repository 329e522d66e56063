"""Layers of clusters by polynomials between edges and on cells: within their statement, with the same bits everywhere."""

import numpy as np
import pytest

import maxaffine as ma
from maxaffine.proofs.routes import pieces_of
from maxaffine.runtime import parallel, pieced

ONE, SQUARE = {"x": (-1, 1)}, {"x": (-1, 1), "y": (-1, 1)}
CASES = {
    "two tokens": ("max(x, y)", SQUARE, 1e-6),
    "axis": ("abs(sin(7*x))", ONE, 1e-6),
    "many": ("abs(sin(40*x))", ONE, 1e-3),
    "sums": ("abs(sin(5*x)) + cos(y)**2", SQUARE, 1e-6),
    "products": ("abs(x + 2*y - 0.3)*cos(x)", SQUARE, 1e-6),
    "regions": ("abs(x + 2*y - 0.3)*cos(x*y)", SQUARE, 1e-4),
    "curved": ("max(x**2 + y**2, 0.5)", SQUARE, 1e-2),
    "tree": ("sqrt(x**2 + y**2)", SQUARE, 3e-2),
    "three directions": ("abs(x + y + z)*exp(x*y)", SQUARE | {"z": (-1, 1)}, 1e-2),
    "a root": ("sqrt(x + 1)", ONE, 1e-4),
    "elsewhere": ("abs(x + 2*y - 0.3)*cos(x*y)", {"x": (-1, 2), "y": (0, 1)}, 1e-3),
}


@pytest.fixture(scope="module", params=CASES)
def layer(request):
    text, box, error = CASES[request.param]
    return ma.compile(text, box, error=error)


def near_edges(layer, made):
    """Uniform points, corners, and for every edge points on both sides of it, a few gains away and a few last digits."""
    rng = np.random.default_rng(3)
    low, high = layer.target.box.low, layer.target.box.high
    x = [rng.uniform(low, high, (4000, len(low))), np.where(rng.uniform(size=(40, len(low))) < 0.5, low, high)]
    for row, count, _, soft, start, _, _ in made.factors.tolist():
        edges = made.numbers[start + count + 1 :][: count + 1] if soft else made.numbers[start : start + count]
        direction = made.rows[row]
        away = np.concatenate([edges[:, None] + one for one in (*np.geomspace(1e-16, 1e-3, 20), *-np.geomspace(1e-16, 1e-3, 20))])
        base = rng.uniform(low, high, (len(away), len(low))) - made.centre
        moved = base + ((away[:, 0] - base @ direction) / (direction @ direction))[:, None] * direction
        x.append(np.clip(moved + made.centre, low, high))
    return np.concatenate(x)


def test_errors_stay_within_the_statement_also_beside_edges(layer):
    made = pieces_of(layer)
    x = near_edges(layer, made)
    said = layer.statement("pieces")
    seen = np.abs(layer(x, runtime="pieces") - layer.target.values(x).reshape(len(x)))
    assert said.bound is not None and seen.max() <= said.bound
    assert np.abs(layer(x, runtime="pieces") - layer(x)).max() <= said.parts["pieces"]
    assert said.bound <= 1.2 * layer.error


def test_compiled_code_and_numpy_give_the_same_bits_in_every_batch(layer):
    made = pieces_of(layer)
    x = near_edges(layer, made)
    assert parallel.kernel("pieced", 10**12) is not None
    compiled = pieced.evaluate(made, x, 1)
    assert np.array_equal(pieced.in_numpy(made, x), compiled)
    assert np.array_equal(pieced.evaluate(made, x[7:300], 1), compiled[7:300])
    assert np.array_equal(pieced.evaluate(made, np.tile(x, (40, 1)), 2)[-len(x) :], compiled)


def test_not_a_number_stays_one(layer):
    made = pieces_of(layer)
    x = np.full((3, layer.target.box.dimension), 0.25)
    x[1, 0] = np.nan
    for values in (pieced.in_numpy(made, x), pieced.evaluate(made, x, 1)):
        assert np.isnan(values[1]).all() and np.isfinite(values[[0, 2]]).all()


def test_float32_layers_answer_in_float32_within_their_statement():
    layer = ma.compile("abs(sin(7*x))", ONE, error=1e-3, dtype="float32")
    x = np.linspace(-1, 1, 2001)
    values = layer(x, runtime="pieces")
    assert values.dtype == np.float32
    assert np.abs(values.astype(float) - np.abs(np.sin(7 * x))).max() <= layer.statement("pieces").bound


def test_layers_without_clusters_say_why_they_have_none():
    layer = ma.compile("sin(x) + cos(y)", SQUARE, error=1e-6)
    assert "pieces" not in layer.runtimes()
    assert "no clusters" in layer.statement("pieces").why
    with pytest.raises(ma.MaxaffineError, match="no clusters"):
        layer([0.5, 0.5], runtime="pieces")
