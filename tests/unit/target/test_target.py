"""Targets: shapes in and out, callables that misbehave, records."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from maxaffine.core.errors import BadInput, Refused
from maxaffine.target.box import Box
from maxaffine.target.gallery import gallery
from maxaffine.target.target import CHUNK, Target

PLANE = Box(x=(-1, 1), y=(0, 1))
SEQUENCE = Box.sequence(d=2, n=3, low=-1, high=1)
RNG = np.random.default_rng(0)


def test_expressions_and_callables_agree_in_every_output_shape() -> None:
    x = PLANE.sample(50, RNG)
    cases: list[tuple[str, Any, tuple[int, ...]]] = [
        ("x*y", lambda p: p[:, 0] * p[:, 1], ()),
        ("x*y, x + y", lambda p: np.stack([p[:, 0] * p[:, 1], p.sum(1)], 1), (2,)),
    ]
    for text, function, shape in cases:
        a, b = Target.of(text, PLANE), Target.of(function, PLANE)
        assert a.output_shape == b.output_shape == shape and a.inputs == b.inputs == "points"
        assert a.values(x).shape == (50, a.d_out, a.n_out) and np.allclose(a.values(x), b.values(x))
        assert a.present(a.values(x)).shape == (50, *shape)


def test_a_column_of_outputs_is_not_a_scalar_output() -> None:
    target = Target.of(lambda p: p[:, :1], PLANE)
    assert target.output_shape == (1,) and target.present(target.values(PLANE.sample(4, RNG))).shape == (4, 1)


def test_sequence_functions_see_d_by_n_and_expressions_fill_rows() -> None:
    seen = []

    def swap(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.shape[1:])
        return batch[:, ::-1, :]

    target = Target.of(swap, SEQUENCE)
    assert target.inputs == "sequence" and target.output_shape == (2, 3) and set(seen) == {(2, 3)}
    same = Target.of("x21, x22, x23, x11, x12, x13", SEQUENCE, output_shape=(2, 3))
    x = SEQUENCE.sample(20, RNG)
    assert np.allclose(target.values(x), same.values(x))
    found = same.enclose(x, x)
    assert found.shape == (20, 2, 3) and found.contains(same.values(x)).all()


def test_pairs_of_boxes_are_joined_for_us_and_split_for_the_function() -> None:
    query, context = Box.sequence(d=1, n=2, low=-1, high=1), Box(k1=(0, 1), k2=(0, 1))
    target = Target.of(lambda q, k: q[:, :, 0] * k[:, :1], (query, context))
    assert target.inputs == "pair" and target.box.dimension == 4 and target.output_shape == (1,)
    x = target.box.sample(10, RNG)
    assert np.allclose(target.values(x)[:, 0, 0], x[:, 0] * x[:, 2])
    text = Target.of("x11*k1", (query, context))
    assert np.allclose(text.values(x)[:, 0, 0], x[:, 0] * x[:, 2])
    clash = Target.of("q_x + 2*k_x", (Box(0, 1), Box(0, 1)))
    assert np.allclose(clash.values([[0.25, 0.5]]), 1.25)


def test_a_dictionary_of_pairs_stands_for_a_box_wherever_one_is_taken() -> None:
    named: dict[str, Any] = {"x": (-1, 1), "y": (0, 1)}
    assert Target.of("x*y", named).box == PLANE
    target = Target.of("x*y", PLANE)
    assert Target.of(target, named) is target
    assert Target.of(target, {"x": (0, 1), "y": (0, 1)}).box == Box(x=(0, 1), y=(0, 1))
    pair = Target.of("a*b", ({"a": (0, 1)}, Box(b=(0, 1))))
    assert pair.inputs == "pair" and pair.boxes == (Box(a=(0, 1)), Box(b=(0, 1)))
    with pytest.raises(BadInput, match=r"write Box\(x=\(-1, 1\), y=\(-1, 1\)\)"):
        Target.of("x*y", [(-1, 1), (-1, 1)])  # type: ignore[arg-type]


def test_a_function_of_single_points_works_with_vectorize() -> None:
    point = Target.of(lambda p: math.sin(p[0]) if p[1] > 0.5 else 0.0, PLANE, vectorize=True)
    x = PLANE.sample(30, RNG)
    assert np.allclose(point.values(x)[:, 0, 0], np.where(x[:, 1] > 0.5, np.sin(x[:, 0]), 0))
    matrix = Target.of(lambda m: m @ m.T, SEQUENCE, vectorize=True)
    assert matrix.output_shape == (2, 2)
    pair = Target.of(lambda q, k: [q[0], k[0]], (PLANE, Box(0, 1)), vectorize=True)
    assert pair.output_shape == (2,)


def _raises(_: Any) -> Any:
    raise RuntimeError("no luck")


def _zero_division(_: Any) -> Any:
    return 1 / 0


BAD = [
    (lambda p: math.sin(p[0]), {}, "vectorize=True"),
    (lambda p: 1.0 if p[0] > 0 else 2.0, {}, "vectorize=True"),
    (lambda p: p.sum(), {}, "vectorize=True"),
    (lambda p: p[0], {}, "vectorize=True"),
    (lambda p: p.T, {}, "vectorize=True"),
    (lambda p: p[:, 0] * np.nan, {}, "nan"),
    (lambda p: np.where(p[:, 0] < 2, np.inf, 0), {}, "inf"),
    (lambda p: p[:, 0] * 1j, {}, "complex"),
    (lambda p: None, {}, "None"),
    (lambda p: "hello", {}, "real numbers"),
    (lambda p: [object()] * len(p), {}, "real numbers"),
    (lambda p: [[1.0], [2.0, 3.0]], {}, "not an array"),
    (lambda p: np.zeros((len(p), 2, 2, 2)), {}, "shape"),
    (lambda p: np.zeros((len(p), 0)), {}, "shape"),
    (_raises, {}, "RuntimeError"),
    (_zero_division, {}, "ZeroDivisionError"),
    (_raises, {"vectorize": True}, "RuntimeError"),
    (lambda p: np.zeros((2, 2, 2)), {"vectorize": True}, "shape"),
    (lambda: 1, {}, "TypeError"),
    (lambda p: p[:, 0], {"output_shape": (3,)}, "output_shape"),
    (3.5, {}, "must be an expression"),
    (None, {}, "must be an expression"),
    ("x, y", {"output_shape": (3,)}, "outputs"),
    ("x", {"output_shape": (0,)}, "output_shape"),
    ("x", {"output_shape": (1, 1, 1)}, "output_shape"),
    ("x", {"output_shape": "ab"}, "output_shape"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_a_function_that_misbehaves_is_told_so_in_a_sentence(case: int) -> None:
    function, options, words = BAD[case]
    with pytest.raises(BadInput, match=words) as caught:
        Target.of(function, PLANE, **options)
    assert str(caught.value).rstrip().endswith((".", "?"))


def test_a_function_whose_shape_depends_on_the_batch_is_refused() -> None:
    target = Target.of(lambda p: np.zeros((len(p), 1 if len(p) < 10 else 2)), PLANE)
    with pytest.raises(BadInput, match="batch"):
        target.values(PLANE.sample(20, RNG))


def test_functions_cannot_change_our_points() -> None:
    def rude(p: np.ndarray) -> np.ndarray:
        p[:] = 7
        return p[:, 0]

    x = PLANE.sample(5, RNG)
    before = x.copy()
    Target.of(rude, PLANE).values(x)
    assert (x == before).all()


def test_boxes_that_are_missing_or_lack_a_variable() -> None:
    with pytest.raises(Refused, match="`z` is not a variable"):
        Target.of("x + z", PLANE)
    with pytest.raises(BadInput, match="missing"):
        Target.of("x")
    with pytest.raises(BadInput, match="must be a Box"):
        Target.of("x", [1, 2])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="shape"):
        Target.of("x", PLANE).values([[1.0]])
    with pytest.raises(BadInput, match="cannot be enclosed"):
        Target.of(lambda p: p[:, 0], PLANE).enclose([[0.0, 0.0]], [[1.0, 1.0]])


def test_an_undefined_value_names_the_point() -> None:
    with pytest.raises(BadInput, match=r"`log\(x\)` is nan at x=-0.5"):
        Target.of("log(x)", PLANE).values([[0.5, 0.0], [-0.5, 0.0]])


def test_large_batches_are_cut_and_glued() -> None:
    sizes = []

    def watch(p: np.ndarray) -> np.ndarray:
        sizes.append(len(p))
        return p[:, 0]

    target = Target.of(watch, PLANE)
    x = PLANE.sample(CHUNK + 10, RNG)
    assert (target.values(x)[:, 0, 0] == x[:, 0]).all() and max(sizes) == CHUNK
    assert target.values(np.empty((0, 2))).shape == (0, 1, 1)


def test_targets_and_gallery_entries_are_sources_too() -> None:
    target = Target.of("x*y", PLANE, name="product")
    assert Target.of(target) is target and Target.of(target, PLANE) is target
    moved = Target.of(target, Box(x=(5, 6), y=(0, 1)))
    assert moved.box.low[0] == 5 and moved.name == "product"
    entry = gallery["franke"]
    assert Target.of(entry) is entry.target
    assert Target.of(target.expression, PLANE).values([[2.0, 3.0]])[0, 0, 0] == 6


@pytest.mark.parametrize("source", ["plane", "sequence", "pair", "callable"])
def test_targets_survive_their_record(source: str) -> None:
    target = {
        "plane": lambda: Target.of("x*y, x", PLANE, name="two"),
        "sequence": lambda: gallery["mixed_2x2"].target,
        "pair": lambda: gallery["query_context"].target,
        "callable": lambda: Target.of(lambda p: p[:, 0], PLANE),
    }[source]()
    again = Target.from_json(json.loads(json.dumps(target.to_json())))
    assert again.to_json() == target.to_json() and again.output_shape == target.output_shape and again.box == target.box
    x = target.box.sample(5, RNG)
    if source == "callable":
        with pytest.raises(BadInput, match="pass the function again"):
            again.values(x)
    else:
        assert (again.values(x) == target.values(x)).all()


def test_broken_records_are_refused() -> None:
    good = Target.of("x*y", PLANE).to_json()
    for change in ({"kind": "pickle"}, {"text": None}, {"text": "import os"}, {"output_shape": None},
    {"output_shape": [2]}, {"name": 3},
                   {"boxes": [1]}, {"inputs": "pair"}, {"box": {}}, {"text": "(" * 9999}):  # fmt: skip
        with pytest.raises((BadInput, Refused)):
            Target.from_json({**good, **change})
    with pytest.raises(BadInput):
        Target.from_json([])
