"""Nodes of unbounded slope: moduli of continuity by two arguments, stacks over the ends of domains, and forged files."""

import copy
import math

import numpy as np
import pytest

import maxaffine as ma
from maxaffine import checker
from maxaffine.checker.rough_nodes import moves
from maxaffine.expression.expression import Expression
from maxaffine.stack import saved
from maxaffine.stack.modulus import modulus

MODULI = {  # text, box: the modulus itself
    ("sqrt(u)", 0.0, 1.0): math.sqrt,
    ("asin(u)", -1.0, 1.0): lambda d: math.asin(1.0) - math.asin(1.0 - d),
    ("cbrt(u)", -1.0, 1.0): lambda d: 2.0 * (d / 2.0) ** (1.0 / 3.0),
    ("u**0.25", 0.0, 2.0): lambda d: d**0.25,
    ("sqrt(1 - u**2)", -1.0, 0.5): lambda d: math.sqrt(d * (2.0 - d)),
}


@pytest.mark.parametrize("d", [1e-14, 1e-8, 1e-3, 0.3])
@pytest.mark.parametrize("case", MODULI, ids=lambda case: case[0])
def test_both_bounds_of_a_modulus_are_above_it_and_not_far(case, d):
    text, low, high = case
    function, exact = Expression.parse(text, ("u",)), MODULI[case](d)
    ours, theirs = modulus(function, function.gradient(), low, high, d), moves(function, low, high, d)
    assert exact * (1 - 1e-6) <= ours <= 1.7 * exact and exact * (1 - 1e-6) <= theirs <= 2.1 * exact


def test_a_jump_has_no_small_modulus():
    step = Expression.parse("floor(u)", ("u",))
    assert modulus(step, step.gradient(), 0.0, 1.5, 1e-9) >= 1.0 <= moves(step, 0.0, 1.5, 1e-9)


@pytest.fixture(scope="module")
def stack():
    return ma.compile("sqrt(x*y)*z + arccos(z*y)", {"x": (0, 1), "y": (0, 1), "z": (-1, 1)}, error=1e-2, layers=9)


def test_a_stack_over_the_ends_of_domains_is_proved_and_checked(stack):
    rng = np.random.default_rng(0)
    x = stack.box.sample(2000, rng)
    ends = np.where(rng.random(x.shape) < 0.5, np.where(rng.random(x.shape) < 0.5, stack.box.low, stack.box.high), x)
    steps = rng.normal(size=x.shape) * 10.0 ** rng.uniform(-16, -2, size=(len(x), 1))
    near = np.clip(ends + steps, stack.box.low, stack.box.high)
    points = np.concatenate([x, ends, near])
    assert np.abs(stack(points) - stack.target.values(points)[:, 0, 0]).max() <= stack.bound <= 1e-2
    verdict = stack.check()
    assert verdict.passed and verdict.bound <= 1.2 * stack.bound
    assert [node.function for node in stack.nodes if node.rough] == ["sqrt(u)", "acos(u)"] and "rough" in stack.explain()
    assert stack.statement("matrices").bound is None and "moved into the box" in stack.statement("matrices").why
    torch = pytest.importorskip("torch")
    assert np.abs(stack(torch.tensor(near)).numpy() - stack(near)).max() <= 2 * stack.bound


def _rough_node(record):
    return next(node for node in record["stack"]["nodes"] if node["function"] == "sqrt(u)")


def _coarser(record):
    """A product that errs more: what it does to the root is not proved."""
    heads, node = record["heads"], next(node for node in record["stack"]["nodes"] if node["function"] == "u*w")
    products = [i for i, head in enumerate(heads) if head["target"]["text"] == "u*w"]
    rough = max(products, key=lambda i: heads[i]["certificate"]["bound"])
    if rough == node["head"]:
        record["certificate"]["parts"]["approximation"] *= 0.5
    node["head"] = rough


def _shifted(record):
    _rough_node(record)["arguments"][0] += " + 1e-12"


def _scaled(record):
    node = _rough_node(record)
    node["scales"], node["lift"] = [2], 1


def _literal(record):
    record["literal"] = {"float64": {"bound": record["certificate"]["bound"] * 1.01}}


def _lower(record):
    record["error"] = record["certificate"]["bound"] * 0.5


@pytest.mark.parametrize("lie", [_coarser, _shifted, _scaled, _literal, _lower], ids=lambda one: one.__name__)
def test_forged_rough_nodes_are_refused(stack, lie):
    tensors, record = saved.record_of(stack)
    record = copy.deepcopy(record)
    assert checker.check(tensors, record).passed
    lie(record)
    assert not checker.check(tensors, record).passed
