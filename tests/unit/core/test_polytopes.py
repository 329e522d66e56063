"""Exact polytopes: cuts cover, volumes add up, and nothing is rounded."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from maxaffine.core.polytopes import Polytope, TooLarge, value


def volume(polytope):
    return ConvexHull(np.array([[float(c) for c in v] for v in polytope.vertices])).volume if polytope.spans() else 0.0


@pytest.mark.parametrize("D", [2, 3, 4])
def test_parts_of_random_cuts_cover_the_box_and_have_the_vertices_of_their_hull(D):
    rng = np.random.default_rng(D)
    parts = [Polytope.box([-1.0] * D, [1.0] * D)]
    for _ in range(5):
        h = tuple(Fraction(float(c)) for c in np.append(rng.normal(size=D), 0.3 * rng.normal()))
        parts = [p for part in parts for p in (part.cut(h) if all(part.sides(h)) else (part,)) if p is not None]
    assert sum(volume(p) for p in parts) == pytest.approx(2.0**D, rel=1e-9)
    for part in parts:
        assert len(set(part.vertices)) == len(part.vertices)
        assert len(ConvexHull(np.array([[float(c) for c in v] for v in part.vertices])).vertices) == len(part.vertices)


def test_cuts_through_vertices_and_beside_the_polytope():
    square = Polytope.box([0, 0], [1, 1])
    diagonal = (Fraction(1), Fraction(-1), Fraction(0))
    below, above = square.cut(diagonal)
    assert len(below.vertices) == len(above.vertices) == 3
    assert square.face(diagonal) is not None and set(square.face(diagonal).vertices) == {(0, 0), (1, 1)}
    beside = (Fraction(1), Fraction(0), Fraction(-2))
    assert square.cut(beside) == (square.cut(beside)[0], None) and square.face(beside) is None
    touching = (Fraction(1), Fraction(0), Fraction(-1))
    assert set(square.face(touching).vertices) == {(1, 0), (1, 1)} and not square.face(touching).spans()
    assert square.sides(touching) == (True, False)
    assert value(touching, square.middle) == Fraction(-1, 2)


def test_tiny_parts_are_kept_exactly():
    h = (Fraction(1), Fraction(10) ** -40, Fraction(0))
    below, above = Polytope.box([-1, -1], [1, 1]).cut(h)
    assert below.spans() and above.spans()
    assert all(value(h, v) <= 0 for v in below.vertices) and all(value(h, v) >= 0 for v in above.vertices)


def test_boxes_of_many_variables_are_refused():
    with pytest.raises(TooLarge):
        Polytope.box([0] * 20, [1] * 20)
