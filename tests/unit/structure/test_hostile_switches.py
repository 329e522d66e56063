"""Switches that an adversary would choose: arguments that vanish on an interval, hand-overs far from their kink."""

import numpy as np
import pytest

from maxaffine import Box, compile
from maxaffine.checker import check
from maxaffine.core.errors import Refused
from maxaffine.expression.expression import Expression
from maxaffine.layer.file import from_tensors
from maxaffine.runtime import chooser
from maxaffine.structure.breaks import find_pieces


@pytest.mark.parametrize("text", [
    "where(abs(x) - x <= 0, x, 0*x)",
    "where(max(x, 0) - x <= 0, x, 2*x)",
    "where(abs(x) - x < 0, x, 3*x)",
    "abs(abs(x) - x) + x",
    "floor(abs(x) - x + 1) * x",
])  # fmt: skip
def test_the_branch_of_a_switch_whose_argument_vanishes_on_an_interval_is_the_function(text):
    f = Expression.parse(text, ["x"])
    for piece in find_pieces(f, -1.0, 1.0).pieces:
        x = np.linspace(piece.low, piece.high, 41)[1:-1, None]
        np.testing.assert_allclose(piece.branch.evaluate(x), f.evaluate(x), atol=1e-12)


@pytest.mark.parametrize("text", ["sign(abs(x) - x) * x", "where(abs(x) == x, x, 2*x)"])
def test_a_sign_of_zero_on_an_interval_is_refused(text):
    with pytest.raises(Refused, match="constant argument"):
        find_pieces(Expression.parse(text, ["x"]), -1.0, 1.0)


@pytest.mark.parametrize("steeper", [1.0, 30.0, 1000.0, 1e6])
@pytest.mark.parametrize("shift", [0.02, 0.1])
def test_a_hand_over_that_was_moved_away_from_its_kink_is_counted_whatever_its_sharpness(steeper, shift):
    compiled = compile("exp(x)/5 + abs(x)", Box(x=(-1, 1)), error=0.2, method="axis")
    tensors, record = compiled._record()
    edited = {name: np.array(tensor) for name, tensor in tensors.items()}
    edited["group.0.sites.slopes"] *= steeper
    edited["group.0.sites.offsets"] *= steeper
    edited["group.0.sites.offsets"] -= edited["group.0.sites.slopes"][:, 0] * shift
    x = np.linspace(-1, 1, 4001)[:, None]
    layer = from_tensors(edited, record["layer"])
    seen = float(np.abs(chooser.evaluate(layer, x).ravel() - compiled.target.expression.evaluate(x).ravel()).max())
    verdict = check(edited, record)
    assert verdict.bound is None or verdict.bound >= seen
    assert verdict.passed is False or seen <= 0.2


def test_a_hand_over_on_the_wrong_side_of_a_gap_is_an_error_of_the_layer_and_no_overflow():
    compiled = compile("where(x < .2, sin(x), 1 + x)", Box(x=(-1, 1)), error=0.05, method="axis", gap=0.01)
    tensors, record = compiled._record()
    edited = {name: np.array(tensor) for name, tensor in tensors.items()}
    edited["group.0.sites.slopes"] *= 100.0
    edited["group.0.sites.offsets"] *= 100.0
    edited["group.0.sites.offsets"] -= edited["group.0.sites.slopes"][:, 0] * 0.3
    assert not check(edited, record).passed
