"""The gallery: every entry is what its facts say it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from maxaffine.core.errors import BadInput
from maxaffine.target.box import Box
from maxaffine.target.derive import derive_lipschitz, derive_range, is_finite_on
from maxaffine.target.gallery import TAGS, gallery

NAMES = gallery.names()
BUDGET = 12_000


def test_the_gallery_is_large_and_varied() -> None:
    assert len(gallery) >= 86
    for tag in TAGS:
        assert len(gallery.tagged(tag)) >= 2, tag
    assert {1, 2, 3, 5, 6, 7, 8, 10, 20, 50} <= {entry.dimension for entry in gallery.values()}
    assert all(entry.source and set(entry.tags) <= set(TAGS) and entry.tags for entry in gallery.values())


def test_an_unknown_name_is_answered_with_close_ones() -> None:
    with pytest.raises(BadInput, match="did you mean `franke`"):
        gallery["frank"]
    with pytest.raises(KeyError):
        gallery["nothing at all"]
    assert "franke" in gallery and "frank" not in gallery and gallery.get("frank") is None and list(gallery) == list(NAMES)
    with pytest.raises(BadInput, match="tag"):
        gallery.tagged("smoth")
    with pytest.raises(TypeError):
        gallery["x"] = 1  # type: ignore[index]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_finite_and_its_facts_are_true(name: str) -> None:
    entry = gallery[name]
    target = entry.target
    box = target.box
    rng = np.random.default_rng(0)
    some = np.where(rng.random((256, box.dimension)) < 0.5, box.low, box.high)
    x = np.concatenate([box.sample(3000, rng), box.corners() if box.dimension <= 8 else some])
    values = target.values(x)
    if entry.minimum is not None:
        point, least = entry.minimum
        assert target.values([point])[0, 0, 0] == pytest.approx(least, abs=1e-4)
        assert values.min() >= least - 1e-4
    if entry.extremes is not None:
        low, high = entry.extremes
        assert values.min() >= low - 1e-9 and values.max() <= high + 1e-9
    if target.expression is None:
        return
    found = target.enclose(x, x)
    assert found.finite.all() and (np.abs(found.mid - values) <= 1e-6 * (1 + np.abs(values)))[:200].all()
    assert is_finite_on(target.expression, box, budget=BUDGET)
    slope = derive_lipschitz(target.expression, box, budget=BUDGET)
    singular = {"discontinuous", "edge-singular"} & set(entry.tags) and name != "entropy"
    assert slope.finite == (not singular)
    if entry.lipschitz is not None:
        known = np.array(entry.lipschitz)
        assert (slope.value >= known * (1 - 1e-6)).all() and (slope.value <= known * 1.25).all()
        steepest = np.abs(target.expression.gradient().evaluate(box.sample(5000, rng)))
        steepest = steepest.reshape(5000, -1, box.dimension).max(axis=(0, 1))
        assert (steepest <= known * (1 + 1e-9)).all() and (steepest >= 0.3 * known).all()
    if entry.extremes is not None and box.dimension <= 4:
        lo, hi = derive_range(target.expression, box, budget=BUDGET).value
        low, high = entry.extremes
        assert lo.min() <= low + 1e-9 * abs(low) and hi.max() >= high - 1e-9 * abs(high)
        assert hi.max() - lo.min() <= 1.05 * (high - low) + 1e-9


@pytest.mark.parametrize("name", [n for n in NAMES if set(gallery[n].tags) & {"kinked"}])
def test_kinked_entries_are_continuous(name: str) -> None:
    assert gallery[name].target.expression.is_continuous


@pytest.mark.parametrize("entry", gallery.tagged("discontinuous"), ids=lambda e: e.name)
def test_discontinuous_entries_jump(entry) -> None:
    assert entry.target.expression.jumps


def test_rewritten_formulas_equal_those_of_their_sources() -> None:
    rng = np.random.default_rng(1)
    target = gallery["piston"].target
    x = target.box.sample(500, rng)
    M, S, V0, k, P0, Ta, T0 = x.T
    A = P0 * S + 19.62 * M - k * V0 / S
    V = S / (2 * k) * (np.sqrt(A**2 + 4 * k * P0 * V0 / T0 * Ta) - A)
    assert np.allclose(target.values(x)[:, 0, 0], 2 * np.pi * np.sqrt(M / (k + S**2 * P0 * V0 / T0 * Ta / V**2)), rtol=1e-9)

    target = gallery["borehole"].target
    x = target.box.sample(500, rng)
    rw, r, Tu, Hu, Tl, Hl, L, Kw = x.T
    log = np.log(r / rw)
    expected = 2 * np.pi * Tu * (Hu - Hl) / (log * (1 + 2 * L * Tu / (log * rw**2 * Kw) + Tu / Tl))
    assert np.allclose(target.values(x)[:, 0, 0], expected, rtol=1e-12)

    target = gallery["otl_circuit"].target
    x = target.box.sample(500, rng)
    Rb1, Rb2, Rf, Rc1, Rc2, beta = x.T
    gain = beta * (Rc2 + 9)
    Vb1 = 12 * Rb2 / (Rb1 + Rb2)
    expected = (Vb1 + 0.74) * gain / (gain + Rf) + 11.35 * Rf / (gain + Rf) + 0.74 * Rf * gain / ((gain + Rf) * Rc1)
    assert np.allclose(target.values(x)[:, 0, 0], expected, rtol=1e-12)

    target = gallery["wing_weight"].target
    x = target.box.sample(500, rng)
    Sw, Wfw, A, sweep, q, taper, tc, Nz, Wdg, Wp = x.T
    cosine = np.cos(np.radians(sweep))
    wing = 0.036 * Sw**0.758 * Wfw**0.0035 * (A / cosine**2) ** 0.6 * q**0.006 * taper**0.04
    expected = wing * (100 * tc / cosine) ** -0.3 * (Nz * Wdg) ** 0.49 + Sw * Wp
    assert np.allclose(target.values(x)[:, 0, 0], expected, rtol=1e-12)

    target = gallery["black_scholes_call"].target
    x = target.box.sample(500, rng)
    S, K, r, sigma, T = x.T
    upper = (np.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * np.sqrt(T))
    expected = S * norm.cdf(upper) - K * np.exp(-r * T) * norm.cdf(upper - sigma * np.sqrt(T))
    assert np.allclose(target.values(x)[:, 0, 0], expected, rtol=1e-9, atol=1e-12)


def test_the_quadratic_form_of_the_bell_is_the_full_matrix_of_its_source() -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (200, 6))
    matrix = 1 / (3 + 3 * np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    assert np.linalg.eigvalsh(matrix).min() > 0.1
    expected = np.exp(-np.einsum("bi,ij,bj->b", x, matrix, x))
    assert np.allclose(gallery["elliptic_bell_6"].target.values(x)[:, 0, 0], expected, rtol=1e-12)


def test_the_sequence_entry_is_the_matrix_of_its_formula() -> None:
    entry = gallery["mixed_2x2"]
    assert isinstance(entry.box, Box)
    X = np.array([[0.1, -0.2], [0.3, 0.4]])
    got = entry.target.values(entry.box.flatten(X[None]))[0]
    (a, b), (c, d) = X
    assert np.allclose(got, [[math.sin(2 * a) + b * c, math.cos(a - d)], [math.tanh(c + 2 * d), a * b / 2 + c * c]])


def test_the_pair_entry_is_the_two_input_formula() -> None:
    q1, q2, k1, k2 = 0.1, -0.2, 0.3, 0.4
    got = gallery["query_context"].target.values([[q1, q2, k1, k2]])[0]
    assert np.allclose(got, [[math.sin(q1 + k1) + q2 * k2, math.cos(q1 - k2) + q2 / 2]])
