"""Norms by folding: the identity and its error, stacks across cone points, and forged files."""

import copy
import math

import flint
import numpy as np
import pytest

import maxaffine as ma
from maxaffine import checker
from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.stack import saved
from maxaffine.stack.blocks import run
from maxaffine.structure import folding, stacked

CONE = "sqrt((x2-x1)**2 + 3*y**2 + z**2) + x1*y"
BOX = {"x1": (-1, 5), "x2": (0, 5), "y": (-2, 2), "z": (0, 3)}


@pytest.fixture(scope="module")
def stack():
    return ma.compile(CONE, BOX, error=1e-5, layers="auto")


def exact(text, names, points):
    """Values in balls of 200 bits, rounded to float64."""
    expression = Expression.parse(text, names)
    before, flint.ctx.prec = flint.ctx.prec, 200
    try:
        rows = [expression.enclose_ball([flint.acb(flint.arb(float(v))) for v in x])[0] for x in points]
        return np.array([float(one.real.mid()) for one in rows])
    finally:
        flint.ctx.prec = before


@pytest.mark.parametrize("bare", [(False, False), (True, True)])
@pytest.mark.parametrize("folds", [2, 3, 8])
def test_a_folded_norm_is_off_by_no_more_than_its_identity_says(folds, bare):
    graph, made = Graph(), []
    u, w = graph.variable(0), graph.variable(1)

    def absolute(place):
        made.append(place)
        return graph.apply("abs", place)

    value = folding.unfolded(graph, u, w, folds, bare, absolute)
    assert len(made) == folding.absolutes(folds, bare)
    angles = np.linspace(0.0, 0.5 * np.pi if bare[0] else 2.0 * np.pi, 20_001)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.maximum(points, 0.0) if bare[0] else points
    away = np.abs(Expression.of_graph("", ("u", "w"), graph, (value,)).evaluate(points)[:, 0] - np.linalg.norm(points, axis=1))
    identity = math.tan(folding.angle(folds) / 2) ** 2
    assert 0.99 * identity < away.max() <= identity + 1e-15


def test_a_cone_point_is_served_as_it_runs_and_literally(stack):
    rng = np.random.default_rng(0)
    x = stack.box.sample(100, rng)
    scales = 10.0 ** rng.uniform(-17, 0, size=(200, 1))
    tip = np.clip(np.array([2.0, 2.0, 0.0, 0.0]) + scales * rng.normal(size=(200, 4)), stack.box.low, stack.box.high)
    x = np.concatenate([x, tip, [stack.box.low, stack.box.high, stack.observed.at, [2.0, 2.0, 0.0, 0.0]]])
    x[-1, 3] = 5e-324
    wanted = exact(CONE, tuple(BOX), x)
    assert np.abs(stack(x) - wanted).max() <= stack.bound <= 1e-5
    assert np.abs(run(stack, x) - wanted).max() <= stack.statement("matrices").bound <= 1.01 * stack.bound
    verdict = stack.check()
    assert verdict.passed and verdict.bound <= 1.2 * stack.bound
    norms = [node for node in stack.nodes if node.function == "hypot(u, w)"]
    assert len(norms) == 2 and all(node.weight < 1.01 for node in norms)
    assert stack.tokens == sum(node.tokens for node in stack.nodes) and "hypot(u, w)" in stack.explain()


def test_tokens_of_a_cone_grow_with_the_digits():
    box = dict.fromkeys(("x1", "x2", "y1", "y2"), (1, 5))
    made = [ma.compile("sqrt((x2-x1)**2+(y2-y1)**2)", box, error=e, relative=True, layers="auto") for e in (1e-2, 1e-4, 1e-6)]
    assert [one.tokens for one in made] == [10, 16, 22]


def _folds(node, record):
    node["folds"] -= 1


def _more(node, record):
    node["folds"] += 20


def _bare(node, record):
    node["bare"] = [True, True]


def _scale(node, record):
    node["scales"], node["lift"] = [node["scales"][0] - 1], node["lift"] - 1


def _lift(node, record):
    node["lift"] += 1


def _function(node, record):
    node["function"] = "hypot(u, 1.0001*w)"


def _argument(node, record):
    node["arguments"][0] += " + 1e-9"


def _plain(node, record):
    del node["folds"], node["bare"]


def _half(node, record):
    del node["bare"]


def _swapped(node, record):
    node["head"] = next(i for i, head in enumerate(record["heads"]) if head["target"]["text"] != "abs(u)")


@pytest.mark.parametrize(
    "lie", [_folds, _more, _bare, _scale, _lift, _function, _argument, _plain, _half, _swapped], ids=lambda one: one.__name__
)
def test_forged_norms_are_refused(stack, lie):
    tensors, record = saved.record_of(stack)
    record = copy.deepcopy(record)
    assert checker.check(tensors, record).passed
    lie(next(node for node in record["stack"]["nodes"] if node.get("folds")), record)
    try:
        verdict = checker.check(tensors, record)
    except BadInput:
        return
    assert not verdict.passed, verdict.reason


def test_the_checker_proves_the_turns_again(stack, monkeypatch):
    """Were the rows of a norm no turns, by whatever fault, its own would tell."""
    plain = folding.unfolded

    def wrong(graph, u, w, folds, bare, absolute):
        return graph.multiply(graph.number(folding.Fraction(1_000_001, 1_000_000)), plain(graph, u, w, folds, bare, absolute))

    tensors, record = saved.record_of(stack)
    monkeypatch.setattr(stacked, "unfolded", wrong)
    assert not checker.check(tensors, record).passed


def test_a_stack_with_norms_is_saved_and_loaded(stack, tmp_path):
    stack.save(tmp_path / "s.safetensors")
    again = ma.load(tmp_path / "s.safetensors", check=True)
    assert again.tokens == stack.tokens and again.layers == stack.layers
    assert np.array_equal(again(stack.box.low), stack(stack.box.low))
    stack.draw(tmp_path / "s.png")


def test_the_refusal_of_a_distance_says_what_a_stack_would_take():
    with pytest.raises(ma.Refused, match="A stack is foreseen") as refusal:
        ma.compile("sqrt((x2-x1)**2+(y2-y1)**2)", dict.fromkeys(("x1", "x2", "y1", "y2"), (1, 5)), error=1e-4)
    assert refusal.value.remedy["layers"] == "auto"
