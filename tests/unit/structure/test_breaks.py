"""Breaks of functions of one variable: all of them enclosed, and the right branch in between."""

import numpy as np
import pytest

from maxaffine.core.errors import Refused
from maxaffine.expression.expression import Expression
from maxaffine.heads.axis.seen_breaks import seen_breaks
from maxaffine.structure.breaks import find_pieces

CASES = [
    ("abs(sin(7*x))", np.pi / 7 * np.arange(-2, 3)),
    ("abs(x**2 - .3)", np.sqrt(0.3) * np.array([-1, 1])),
    ("max(0, sin(9*x))**2", np.pi / 9 * np.arange(-2, 3)),
    ("sign(sin(6*x))", np.pi / 6 * np.arange(-1, 2)),
    ("floor(2.9*x)", np.arange(-2, 3) / 2.9),
    ("where(x < .25, sin(5*x), cos(2*x))", [0.25]),
    ("cbrt(x - .2)", [0.2]),
    ("abs(max(x, 0) - .3)", [0.0, 0.3]),
    ("abs(abs(abs(x) - .5) - .25)", [-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]),
    ("abs(x) + max(x, 2*x) + min(3*x, x)", [0.0]),
]


@pytest.mark.parametrize(("text", "places"), CASES, ids=[case[0] for case in CASES])
def test_every_break_is_enclosed_and_every_branch_is_the_function(text, places):
    expression = Expression.parse(text, ["x"])
    found = find_pieces(expression, -1.0, 1.0)
    assert len(found.pieces) == len(places) + 1
    for one, place in zip(found.breaks[1:-1], places, strict=True):
        assert one.low - 1e-15 <= place <= one.high + 1e-15 and one.high - one.low < 1e-13
    x = np.random.default_rng(1).uniform(-1, 1, (4000, 1))
    for piece in found.pieces:
        inside = x[(x[:, 0] >= piece.low) & (x[:, 0] <= piece.high)]
        np.testing.assert_allclose(piece.branch.evaluate(inside), expression.evaluate(inside), rtol=1e-13, atol=1e-14)
        for end in (piece.low, piece.high):
            near = 1e-5 if "cbrt" in text else 1e-13
            np.testing.assert_allclose(piece.branch.evaluate([[end]]), expression.evaluate([[end]]), atol=near)


def test_breaks_at_the_ends_of_the_box():
    kink = find_pieces(Expression.parse("abs(x)", ["x"]), 0.0, 1.0)
    assert kink.breaks == (None, None)  # |0| = 0 is what both branches say
    step = find_pieces(Expression.parse("sign(x)", ["x"]), 0.0, 1.0)
    assert step.breaks[0] is not None and step.breaks[0].kind == "jump" and step.breaks[0].low == 0.0
    last = find_pieces(Expression.parse("floor(3*x)", ["x"]), -1.0, 1.0)
    assert last.breaks[-1] is not None and last.breaks[-1].high == 1.0


def test_two_roots_that_nearly_meet_are_told_apart():
    found = find_pieces(Expression.parse("abs((x - .3)**2 - 1e-10)", ["x"]), -1.0, 1.0)
    assert len(found.pieces) == 3
    middle = found.pieces[1]
    assert (middle.low, middle.high) == (pytest.approx(0.3 - 1e-5, abs=1e-9), pytest.approx(0.3 + 1e-5, abs=1e-9))


def test_too_many_breaks_are_refused():
    with pytest.raises(Refused, match=r"more than|told apart"):
        find_pieces(Expression.parse("abs(sin(1/x))", ["x"]), 1e-5, 1.0)
    with pytest.raises(Refused, match="steps more than"):
        find_pieces(Expression.parse("floor(1e6*x)", ["x"]), -1.0, 1.0)


SEEN = [
    (lambda z: np.abs(z - 0.1), 1e-4, [("seen", 0.1)]),
    (lambda z: np.floor(2.9 * z), 1e-4, [("jump", k / 2.9) for k in range(-2, 3)]),
    (lambda z: np.sqrt(np.abs(z - 0.3)), 1e-4, [("singular", 0.3)]),
    (lambda z: np.maximum(np.sin(3 * z), np.cos(5 * z)), 1e-6, [("seen", k * np.pi / 16) for k in (-4, -3, 1, 5)]),
    (lambda z: np.tanh(200 * z), 1e-4, []),
    (lambda z: np.sqrt(1e-4 + z * z), 1e-4, []),
    (lambda z: np.sin(20 * z) + 1e-7 * np.abs(z - 0.2), 1e-4, []),
]


@pytest.mark.parametrize(("f", "error", "wanted"), SEEN)
def test_breaks_of_callables_are_seen(f, error, wanted):
    found = seen_breaks(f, -1.0, 1.0, error)
    assert [link.kind for link in found] == [kind for kind, _ in wanted]
    for link, (_, place) in zip(found, wanted, strict=True):
        assert link.at == pytest.approx(place, abs=1e-9)
