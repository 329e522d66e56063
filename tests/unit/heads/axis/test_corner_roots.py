"""Roots that end at a corner, or at an end of the box that is no round number: what is computed may lie beyond, f does not."""

from __future__ import annotations

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import Box
from maxaffine.checker import check
from maxaffine.core import balls
from maxaffine.heads.axis.prove import AxisProver

UNIT = Box(x=(0, 1), y=(0, 1))
ROWS = [
    ("sqrt(x-.1)", Box(x=(0.1, 0.7)), 1e-2, 4), ("sqrt(.7-x)+sqrt(x-.1)", Box(x=(0.1, 0.7)), 1e-2, 8),
    ("sqrt(x+2*y)", UNIT, 1e-2, 6), ("sqrt(1-(x+y)**2/4)", Box(x=(-1, 1), y=(-1, 1)), 1e-2, 11),
    ("sqrt(.3*x+.1*y)", UNIT, 1e-4, 20), ("asin(x-y)", Box(x=(0, 0.5), y=(-0.5, 0.5)), 1e-2, 6),
]  # fmt: skip


@pytest.mark.parametrize(("text", "box", "error", "tokens"), ROWS, ids=[row[0] for row in ROWS])
def test_roots_that_end_at_a_corner_of_the_box_are_proved_and_hold_next_to_it(text, box, error, tokens):
    made = ma.compile(text, box, error=error, method="axis")
    assert made.weights.tokens <= tokens
    assert check(*made._record()).passed
    rng = np.random.default_rng(2)
    corners = np.where(rng.random((300, box.dimension)) < 0.5, box.low, box.high)
    inward = np.where(corners == box.low, 1.0, -1.0) * 10.0 ** rng.uniform(-18, -1, corners.shape)
    inside = rng.uniform(box.low, box.high, (200, box.dimension))
    x = np.clip(np.concatenate([corners + inward, corners, inside]), box.low, box.high)
    with balls.precision(200):
        values = [made.target.expression.enclose_ball([balls.rectangle(float(v), float(v)) for v in row])[0] for row in x]
    known = np.array([value.is_finite() for value in values])
    exact = np.array([float(value.real) for value, good in zip(values, known, strict=True) if good])
    assert known.mean() > 0.9
    assert np.abs(made(x[known]).ravel() - exact).max() <= made.certificate.bound


def test_what_is_computed_beyond_the_box_is_counted(monkeypatch):
    """A computed z may lie beyond the corner, where heads are steep: dropping that term makes the bound smaller."""
    made = ma.compile("sqrt(.3*x+.1*y)", UNIT, error=1e-4, method="axis")
    bound = made.prove.func(*made.prove.args, "two-level").bound
    monkeypatch.setattr(AxisProver, "_slide", lambda self, k, reach: 0.0)
    assert made.prove.func(*made.prove.args, "two-level").bound < bound
