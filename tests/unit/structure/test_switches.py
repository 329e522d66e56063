"""Switches of an expression: where it has kinks, jumps and singular arguments, and its branches."""

from fractions import Fraction

import numpy as np
import pytest

from maxaffine.core import balls
from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.structure.switches import affine_form, forced, switches

TEXTS = [
    "abs(sin(7*x)) + y", "max(sin(3*x), cos(5*x), y)", "min(x*y, .3) - abs(x)", "sign(x - .1)*exp(x) + abs(y + .5)",
    "floor(3*x) + floor(y - x)", "where(x < .25, sin(5*x), cos(2*x))", "where(x < 0 and y >= .2 or not (x == y), x, y**2)",
    "cbrt(x - .2)*y", "sqrt(abs(x - .3))", "abs(max(x, 0) - abs(y - .2))", "relu(x + .37)**2 + clip(y, -.5, .5)",
    "piecewise(x < -.5, 1, y < .1, x, x*y)", "ceil(2*x)",
]  # fmt: skip


def choices_at(expression, x):
    """The choices that hold at a point (D,), by float64 values: the side of every argument (+1 at 0), the integer of floors."""
    found = {}
    for switch in switches(expression):
        if switch.chosen:
            value = float(switch.argument.evaluate(np.reshape(x, (1, -1)))[0, 0])
            found[switch.place] = int(np.floor(value)) if switch.op == "floor" else (-1 if value < 0 else 1)
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_a_branch_is_the_function_on_its_region(text):
    expression = Expression.parse(text, ["x", "y"])
    rng = np.random.default_rng(3)
    for point in rng.uniform(-1, 1, (40, 2)):
        choices = choices_at(expression, point)
        branch = forced(expression, choices)
        assert not [s for s in switches(branch) if s.chosen]
        near = point + 1e-7 * rng.normal(size=(5, 2))
        same = np.array([choices_at(expression, row) == choices for row in near])
        np.testing.assert_allclose(branch.evaluate(near)[same], expression.evaluate(near)[same], rtol=1e-12, atol=1e-12)


def test_kinds_and_arguments():
    expression = Expression.parse("max(2*x, y - 1) + sign(x*y) + sqrt(x + 2)/(3 - x) + abs(pi - 3)", ["x", "y"])
    found = {s.op: s for s in switches(expression)}
    assert {op: s.kind for op, s in found.items()} == {"max": "kink", "sign": "jump", "sqrt": "singular", "div": "singular"}
    form = affine_form(found["max"].argument)
    assert form is not None and form.exact == ((Fraction(2), Fraction(-1)), Fraction(1))
    assert affine_form(found["sign"].argument) is None
    x = np.array([[0.4, -0.7]])
    assert found["div"].argument.evaluate(x)[0, 0] == pytest.approx(2.6)


def test_affine_forms_are_exact_where_their_numbers_are_rational():
    form = affine_form(Expression.parse("pi*x - y/3 + sqrt(2)", ["x", "y"]))
    assert form is not None and form.exact is None
    single = affine_form(Expression.parse("y", ["x", "y"]))
    assert single is not None and single.exact == ((Fraction(0), Fraction(1)), Fraction(0))
    constant = affine_form(Expression.parse("1/4", ["x"]))
    assert constant is not None and constant.exact == ((Fraction(0),), Fraction(1, 4))


def test_inner_switches_come_first_and_may_be_forced_alone():
    expression = Expression.parse("abs(max(x, 0) - .3)", ["x"])
    inner, outer = switches(expression)
    assert (inner.op, outer.op) == ("max", "abs")
    half = forced(expression, {inner.place: 1})
    assert [s.op for s in switches(half)] == ["abs"]
    np.testing.assert_allclose(half.evaluate([[-0.5]]), [[0.8]])  # the continuation, not the function


def test_the_continuation_of_a_branch_is_analytic_across_the_switch():
    expression = Expression.parse("abs(x) + cbrt(x + 2)", ["x"])
    with balls.precision(64):
        here = [balls.rectangle(-0.1, 0.1, 0.1)]
        assert not expression.enclose_ball(here)[0].is_finite()
        assert forced(expression, choices_at(expression, [0.5])).enclose_ball(here)[0].is_finite()


def test_a_dropped_branch_takes_its_domain_along():
    expression = Expression.parse("where(x > 0, log(x), x)", ["x"])
    branch = forced(expression, choices_at(expression, [-1.0]))
    np.testing.assert_allclose(branch.evaluate([[-1.0], [2.0]]), [[-1.0], [2.0]])


def test_a_choice_that_is_none_is_refused():
    expression = Expression.parse("abs(x) + where(x < 0, 1, 2)", ["x"])
    for switch in switches(expression):
        with pytest.raises(BadInput, match=r"\+1 or -1"):
            forced(expression, {switch.place: 3})
