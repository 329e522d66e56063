"""Stacks of formulas in which a root nearly cancels what stands beside it: rewritten, and proved to be what was written."""

import copy

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import checker
from maxaffine.checker.proved import NotProved
from maxaffine.checker.same_function import doubt_same
from maxaffine.expression.conjugate import conjugated
from maxaffine.expression.cosine_law import as_norms
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.stack import saved
from maxaffine.target import rewritten

PISTON = (
    "2*pi*sqrt(M/(k+S**2*P0*V0*Ta/(T0*((S/(2*k))*(sqrt((P0*S+19.62*M-k*V0/S)**2+4*k*P0*V0*Ta/T0)"
    "-(P0*S+19.62*M-k*V0/S)))**2)))"
)
BOX = {
    "M": (30, 60), "S": (0.005, 0.02), "V0": (0.002, 0.01), "k": (1000, 5000), "P0": (90000, 110000), "Ta": (290, 296),
    "T0": (340, 360),
}  # fmt: skip


@pytest.fixture(scope="module")
def piston():
    return ma.compile(PISTON, BOX, error=1e-2, relative=True, layers="auto")


def test_the_piston_is_served_as_published_and_checked(piston):
    assert piston.tokens <= 48 and piston.observed.error <= piston.bound <= piston.error
    assert piston.check().passed and "the same function" in piston.explain() and "common ones taken out" in piston.explain()
    x = piston.box.sample(50, np.random.default_rng(0))
    published = Expression.parse(PISTON, tuple(BOX)).evaluate(x)[:, 0]
    assert np.abs(piston(x) - published).max() <= piston.bound + 1e-12


LIES = [("19.62*M", "19.6200001*M"), ("2*k))", "2.0000001*k))"), ("4*k", "4.0000001*k"), ("-(P0", "+(P0")]


@pytest.mark.parametrize("lie", LIES)
def test_another_formula_in_its_file_is_refused(piston, lie):
    tensors, record = saved.record_of(piston)
    record = copy.deepcopy(record)
    assert lie[0] in record["target"]["text"]
    record["target"]["text"] = record["target"]["text"].replace(*lie)
    assert not checker.check(tensors, record).passed


def test_the_checker_proves_the_rewriting_again(piston, monkeypatch):
    """Were the rewritten formula another one, by whatever fault, its own canonical forms would tell."""
    plain = rewritten.conjugated

    def wrong(expression):
        made, positive = plain(expression)
        graph = Graph(made.nodes)
        off = graph.multiply(graph.number(Expression.parse("1.0000001", ()).nodes[-1].data), made.outputs[0])
        return Expression.of_graph(made.text, made.names, graph, (off,)), positive

    tensors, record = saved.record_of(piston)
    monkeypatch.setattr(rewritten, "conjugated", wrong)
    assert "rewritten" in checker.check(tensors, record).reason


@pytest.mark.parametrize(
    "text",
    ["sqrt(x**2 + y) - x", "x + sqrt(x**2 + y)", "1/(3*sqrt(x**2/4 + exp(y)) + 1.5*x)", "(sqrt((x-y)**2 + 2*y) - x + y)**3"],
)
def test_a_root_beside_its_square_is_a_product_and_the_same_function(text):
    names, rng = ("x", "y"), np.random.default_rng(0)
    before = Expression.parse(text, names)
    after, positive = conjugated(before)
    x = np.stack([rng.uniform(-3, 3, 500), rng.uniform(0.1, 2, 500)], axis=1)
    assert np.allclose(after.evaluate(x), before.evaluate(x), rtol=1e-9) and (positive.evaluate(x) > 0).all()
    assert "asinh" in str(after.nodes) and len(conjugated(after) or ()) == 0
    low, high = np.array([-3.0, 0.1]), np.array([3.0, 2.0])
    doubt_same(before, after, low, high)
    with pytest.raises(NotProved):
        doubt_same(before, Expression.parse(f"({text})*1.0000001", names), low, high)


def test_sums_that_are_no_such_pair_stay_as_they_are():
    for text in ("sqrt(x**2 + y) - y", "sqrt(x**2 + y) - 2*x", "sqrt(y) - x", "sqrt(1 + y) - 1", "x**2 + y - x"):
        assert conjugated(Expression.parse(text, ("x", "y"))) is None


@pytest.mark.parametrize("text", ["sqrt(x**2 + y**2 - 2*x*y*cos(s - t))", "1 + sqrt(4*x**2 + y**2/9 + 4*x*y*cos(t)/3)"])
def test_the_third_side_of_a_triangle_is_a_norm_that_may_be_zero(text):
    box = {"x": (0, 2), "y": (0, 2), "s": (-1, 1), "t": (-1, 4)}
    stack = ma.compile(text, box, error=1e-3, layers="auto")
    assert "hypot(u, w)" in {node.function for node in stack.nodes} and stack.check().passed
    assert stack.observed.error <= stack.bound <= 1e-3
    tensors, record = saved.record_of(stack)
    record = copy.deepcopy(record)
    record["target"]["text"] = record["target"]["text"].replace("cos", "1.0000001*cos")
    assert not checker.check(tensors, record).passed


def test_sums_that_are_no_third_side_stay_as_they_are():
    for text in ("sqrt(x**2 + y**2 - 2.1*x*y*cos(x))", "sqrt(x**2 + y**2 - 2*x*cos(x))", "sqrt(x**2 + y**2 - 2*x*y*sin(x))"):
        assert as_norms(Expression.parse(text, ("x", "y"))) is None
