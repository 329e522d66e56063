"""Boxes: names, shapes and what is refused."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from maxaffine.core.errors import BadInput
from maxaffine.target.box import Box


def test_boxes_by_name_by_arrays_and_by_numbers() -> None:
    box = Box(x=(-math.pi, math.pi), y=(0, 1))
    assert box.names == ("x", "y") and box.dimension == 2 and (box.d, box.n) == (2, 1) and not box.is_sequence
    assert Box([-1, -1], [1, 2]).names == ("x1", "x2")
    assert Box(0, 1).names == ("x",) and Box([0], [1]).names == ("x",)
    assert Box.named(["a", "b"], 0, [1, 2]) == Box(a=(0, 1), b=(0, 2))
    assert (
        np.allclose(box.centre, [0, 0.5])
        and np.allclose(box.width, [2 * math.pi, 1])
        and box.volume == pytest.approx(2 * math.pi)
    )
    assert list(Box(0, 1)) == [("x", 0.0, 1.0)]


def test_a_sequence_box_stacks_columns() -> None:
    box = Box.sequence(d=2, n=3, low=-1, high=np.arange(1, 7).reshape(2, 3))
    assert box.names == ("x11", "x21", "x12", "x22", "x13", "x23") and (box.d, box.n) == (2, 3) and box.is_sequence
    assert np.allclose(box.high, [1, 4, 2, 5, 3, 6])
    x = np.arange(12.0).reshape(2, 2, 3)
    flat = box.flatten(x)
    for t in range(3):
        for i in range(2):
            assert (flat[:, t * 2 + i] == x[:, i, t]).all()
    assert (box.unflatten(flat) == x).all()
    assert Box.sequence(d=12, n=2).names[:2] == ("x1_1", "x2_1")
    assert Box.sequence(d=1, n=11).names[-1] == "x11"


def test_points_are_found_clipped_and_drawn_inside() -> None:
    box = Box(x=(1000, 1001), y=(-1e-3, 0))
    draw = box.sample(1000, np.random.default_rng(0))
    assert draw.shape == (1000, 2) and box.contains(draw).all()
    assert not box.contains([[999.9, 0.0]]).any() and box.contains(box.clip([[0.0, 5.0]])).all()
    assert box.corners().shape == (4, 2) and box.contains(box.corners()).all()
    with pytest.raises(BadInput, match="corners"):
        Box.named([f"a{i}" for i in range(21)], 0, 1).corners()


def test_boxes_do_not_change_and_compare_by_value() -> None:
    box = Box(x=(0, 1))
    with pytest.raises(ValueError, match="read-only"):
        box.low[0] = 5
    with pytest.raises(AttributeError):
        box.names = ("y",)  # type: ignore[misc]
    assert box == Box(x=(0, 1)) and hash(box) == hash(Box(x=(0.0, 1.0))) and box != Box(y=(0, 1)) and box != "box"
    assert "x=(0.0, 1.0)" in repr(box) and "sequence" in repr(Box.sequence(d=2, n=2))


@pytest.mark.parametrize("box", [Box(x=(-1, 2), y=(0, 1e-300)), Box.sequence(d=2, n=3, low=-1, high=1), Box(0, 1)])
def test_boxes_survive_their_record_and_a_pickle(box: Box) -> None:
    assert Box.from_json(box.to_json()) == box
    assert pickle.loads(pickle.dumps(box)) == box  # noqa: S301


def test_joined_boxes_keep_names_apart() -> None:
    assert Box.join(Box(q=(0, 1)), Box(k=(2, 3))) == Box(q=(0, 1), k=(2, 3))
    assert Box.join(Box(0, 1), Box(2, 3)).names == ("q_x", "k_x")
    assert Box.join(Box.sequence(d=1, n=2), Box.sequence(d=2, n=1)).names == ("q_x1", "q_x2", "k_x11", "k_x21")


REFUSALS = [
    (lambda: Box(), "empty"),
    (lambda: Box([], []), "empty"),
    (lambda: Box(x=(1, 0)), "inverted"),
    (lambda: Box(x=(1, 1)), "empty"),
    (lambda: Box([0, 1], [1, 1]), "empty"),
    (lambda: Box(x=(0, math.nan)), "finite"),
    (lambda: Box(x=(-math.inf, 0)), "finite"),
    (lambda: Box(x=(-1.7e308, 1.7e308)), "far apart"),
    (lambda: Box(x=(0, 10**400)), "too large"),
    (lambda: Box([0, 0], [1]), "entries"),
    (lambda: Box([[0]], [[1]]), "shape"),
    (lambda: Box(0, 1, x=(0, 1)), "not by both"),
    (lambda: Box(x=5), "two numbers"),
    (lambda: Box(x="01"), "two numbers"),
    (lambda: Box(x=("a", "b")), "real number"),
    (lambda: Box(x=(0, 1j)), "real number"),
    (lambda: Box("a", 1), "real number"),
    (lambda: Box(pi=(0, 1)), "grammar"),
    (lambda: Box(e=(0, 1)), "grammar"),
    (lambda: Box(**{"and": (0, 1)}), "grammar"),
    (lambda: Box(**{"a b": (0, 1)}), "letters"),
    (lambda: Box(**{"1x": (0, 1)}), "letters"),
    (lambda: Box(**{"x\n": (0, 1)}), "letters"),
    (lambda: Box.named(["x", "x"], 0, 1), "two coordinates"),
    (lambda: Box.named(["x", "y"], [0, 0, 0], 1), "entries"),
    (lambda: Box.sequence(d=0, n=2), "whole number"),
    (lambda: Box.sequence(d=2.5, n=2), "whole number"),  # type: ignore[arg-type]
    (lambda: Box.sequence(d=True, n=2), "whole number"),
    (lambda: Box.sequence(d=2, n=2, low=[0, 0]), "shape"),
    (lambda: Box.sequence(d=2, n=2, low=1, high=0), "inverted"),
    (lambda: Box.sequence(d=1000, n=1000), "at most"),
    (lambda: Box.from_json({}), "keys"),
    (lambda: Box.from_json({**Box(0, 1).to_json(), "d": 3}), "cannot have"),
    (lambda: Box.from_json({**Box(0, 1).to_json(), "low": ["0"]}), "real number"),
    (lambda: Box.from_json({**Box(0, 1).to_json(), "low": [2.0]}), "inverted"),
    (lambda: Box.from_json({**Box(0, 1).to_json(), "names": [3]}), "letters"),
    (lambda: Box(0, 1).flatten(np.zeros((2, 3))), "batch"),
    (lambda: Box(0, 1).unflatten(np.zeros((2, 3))), "batch"),
]


@pytest.mark.parametrize("case", range(len(REFUSALS)))
def test_bad_boxes_are_refused_with_their_own_sentence(case: int) -> None:
    make, words = REFUSALS[case]
    with pytest.raises(BadInput, match=words):
        make()


def test_a_dictionary_of_pairs_is_the_box_of_its_names() -> None:
    assert Box.of({"x": (-1, 1), "y": (0, 1)}) == Box(x=(-1, 1), y=(0, 1))
    assert Box.of({"x": [0, 1]}).names == ("x",)
    box = Box(x=(0, 1))
    assert Box.of(box) is box


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "the box is empty"),
        ({"x": 1}, "the edges of `x`"),
        ({"x": (1, 0)}, "inverted"),
        ({1: (0, 1)}, "`1` cannot name a variable"),
        ({"pi": (0, 1)}, "word of the expression grammar"),
        ([(-1, 1), (0, 2)], 'Box(x=(-1, 1), y=(0, 2)) or {"x": (-1, 1), "y": (0, 2)}'),
        ((-1, 1), 'Box(x=(-1, 1)) or {"x": (-1, 1)}'),
        (np.zeros((4, 2)), "Box(x1=(0, 0), x2=(0, 0), x3=(0, 0), ..)"),
        ("x=-1:1", "(a str) must be a Box such as Box(x=(-1, 1)"),
        ([(-1, 1), (0, 1, 2)], "(a list) must be a Box such as"),
        (7, "(a int) must be a Box such as"),
    ],
)
def test_what_is_no_box_is_answered_with_the_box_that_was_meant(given: object, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Box.of(given)
    assert says in str(refusal.value)
