"""Roots that end, or turn, on the box: proved, confirmed by the checker, and held against exact values next to the ends."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import Box
from maxaffine.checker import check
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.heads.axis.cells import Cell, Segment, cut, fitted, place_sites
from maxaffine.heads.axis.fit import Library, LocalFit, shifted_keys
from maxaffine.target.target import Target

LINE = Box(x=(-1, 1))
ROWS = [
    ("sqrt(1-x**2)", LINE, 1e-4, 37), ("asin(x)", LINE, 1e-2, 10), ("sqrt(sin(x))", Box(x=(0, math.pi)), 1e-2, 10),
    ("sqrt(1-x**2/9)", Box(x=(-3, 3)), 1e-2, 11), ("sqrt(2-2*cos(x))", LINE, 1e-6, 6), ("sqrt(1-x)+sqrt(1+x)", LINE, 1e-2, 10),
    ("sqrt(abs(x**2-.25))", LINE, 1e-2, 30),
]  # fmt: skip


def exact(target: Target, x: np.ndarray) -> np.ndarray:
    """The target at float64 points, by balls of 200 bits."""
    with balls.precision(200):
        rows = [target.expression.enclose_ball([balls.rectangle(float(v), float(v))])[0] for v in x]
        return np.array([float(row.real) if row.is_finite() else np.nan for row in rows])


@pytest.mark.parametrize(("text", "box", "error", "tokens"), ROWS, ids=[row[0] for row in ROWS])
def test_singular_ends_are_proved_in_few_tokens_and_hold_next_to_the_ends(text, box, error, tokens):
    made = ma.compile(text, box, error=error, method="axis")
    assert made.weights.tokens <= tokens
    assert made.certificate.bound <= error
    assert check(*made._record()).passed
    low, high = float(box.low[0]), float(box.high[0])
    rng = np.random.default_rng(1)
    steps = (high - low) * 10.0 ** rng.uniform(-17, -1, 200)
    x = np.clip(np.concatenate([low + steps, high - steps, rng.uniform(low, high, 200), [low, high]]), low, high)
    away = np.abs(made(x[:, None]).ravel() - exact(made.target, x))
    assert np.nanmax(away) <= made.certificate.bound
    assert np.isfinite(away).mean() > 0.99


@pytest.mark.parametrize(
    ("text", "box", "why"),
    [
        ("sqrt(2-x**2)", Box(x=(-math.sqrt(2), math.sqrt(2))), "reaches below 0"),  # the float64 number is above the root
        ("sqrt(sin(x))", Box(x=(0, math.nextafter(math.pi, 4.0))), "reaches below 0"),
        ("sqrt(1-x**2)", Box(x=(-1, math.nextafter(1.0, 2.0))), "reaches below 0"),
        ("asin(x-1)", Box(x=(-1e-300, 1)), "reaches below 0"),
        ("x*log(x)", Box(x=(0, 1)), "reaches 0 or below"),
    ],
)  # fmt: skip
def test_a_target_that_is_undefined_somewhere_in_the_box_is_refused(text, box, why):
    with pytest.raises(Refused, match=why):
        ma.compile(text, box, error=1e-2)


def test_no_cell_is_a_mere_rest_next_to_a_singular_end():
    segment = Segment(0.0, 1.0, lambda z: np.sqrt(np.maximum(1.0 - z, 0.0)), "shut", "shut")
    for goal in (4.027e-3, 2.612e-3, 1.694e-3):  # greedy cells would leave a twelfth
        cells = cut(segment, Library(goal, 1.0, "float64"), goal, 200)
        assert cells is not None and cells[0][1] == 0.0 and cells[-1][2] == 1.0
        assert all(one[2] == two[1] for one, two in pairwise(cells))
        widths = [high - low for _, low, high in cells]
        assert widths[-1] > 0.2 * widths[-2]


def test_heads_far_from_the_centre_reach_far_enough_for_the_rounding_of_scores():
    segment = Segment(0.0, 1.0, np.sqrt, "shut", "open")
    low = np.array([0.5, 0.5, 0.5, 1e-12, 0.0])
    high = low + np.array([0.25, 4e-12, 1e-12, 1e-12, 1e-20])
    first, last = fitted(segment, low, high)
    share = (last - high) / (high - low)
    np.testing.assert_allclose(share, [0.05, 2.0**-40 * 0.5 / 4e-12, 0.3, 0.05, 0.05], rtol=1e-3)
    assert first[4] == 0.0 and np.all(first[:4] < low[:4])


def test_slopes_of_sites_do_not_drown_in_those_of_a_singular_end():
    """Steps from 1e20 down to 10: added up from the first cell, the last ones would all be lost."""
    edges = np.concatenate([[0.0], 10.0 ** np.arange(-18.0, 1.0)])
    keys = shifted_keys(1, 0.0, 0.0, "float64")
    fit = LocalFit(0.0, keys, np.zeros(1), np.zeros(1))
    cells = [Cell(a, b, a, b, fit) for a, b in pairwise(edges)]
    over = [(b, 30.0 / b) for b in edges[1:-1]]
    sites = place_sites(cells, over, "float64")
    np.testing.assert_allclose(np.diff(sites.slopes), [sharpness for _, sharpness in over], rtol=1e-9)
    assert np.abs(sites.offsets).max() < 1e4
