"""Branch and bound on boxes: cuts that cover, suprema and sums that are bounds, budgets that refuse."""

import numpy as np
import pytest

from maxaffine.core import boxes
from maxaffine.core.errors import Refused


def volume(low, high):
    return float(np.prod(high - low, axis=1).sum())


def test_cuts_cover_a_box_without_overlap():
    low, high = np.array([[0.0, -1.0, 2.0]]), np.array([[3.0, 1.0, 2.5]])
    for cut in (boxes.halve(low, high), boxes.halve_all(low, high), boxes.halve_all(low, high, [2, 0])):
        assert volume(*cut) == pytest.approx(3.0)
    assert boxes.halve(low, high)[1][0].tolist() == [1.5, 1.0, 2.5]  # the longest side
    parts = boxes.grid(low[0], high[0], [3, 2, 1])
    assert len(parts[0]) == 6 and volume(*parts) == pytest.approx(3.0)
    assert np.array_equal(parts[0].min(axis=0), low[0]) and np.array_equal(parts[1].max(axis=0), high[0])


def parabola(low, high):
    """Bounds of 1 - |x - .3|^2 over boxes: at the point of the box next to .3."""
    near = np.clip(0.3, low, high)
    return 1.0 - ((near - 0.3) ** 2).sum(axis=1)


@pytest.mark.parametrize("chunk", [3, 20_000])
def test_a_supremum_is_reached_from_above(chunk):
    def measure(low, high, carried):
        loose = parabola(low, high) + (high - low).max(axis=1)
        return loose, loose <= 1.01, None

    top, spent = boxes.supremum(-np.ones((1, 2)), np.ones((1, 2)), measure, budget=10**6, chunk=chunk)
    assert 1.0 <= top <= 1.01 and spent > 100


def test_what_boxes_carry_goes_with_their_halves():
    def measure(low, high, carried):
        inside = (carried[:, :1] + 0.0 >= low) & (carried[:, :1] <= high)  # an index is dropped with the box that lost it
        kept = np.where(inside, carried, -1)
        fits = (high - low)[:, 0] <= 0.5
        seen.extend(kept[fits, 0].tolist())
        return np.zeros(len(low)), fits, lambda rows: (np.zeros(int(rows.sum()), dtype=np.intp), kept[rows])

    seen: list[int] = []
    boxes.supremum(np.zeros((1, 1)), np.full((1, 1), 4.0), measure, carried=np.array([[3]]), budget=100)
    assert len(seen) == 8 and seen.count(3) in (1, 2) and set(seen) == {-1, 3}


def test_budget_and_rounds_refuse_or_settle():
    def never(low, high, carried):
        return np.full(len(low), 2.0), np.zeros(len(low), dtype=bool), None

    start = np.zeros((1, 1)), np.ones((1, 1))
    with pytest.raises(Refused, match="50 boxes do not show that"):
        boxes.supremum(*start, never, budget=50, refusal="that")
    with pytest.raises(Refused, match="3 halvings do not show that"):
        boxes.supremum(*start, never, budget=50, rounds=3, refusal="that")
    assert boxes.supremum(*start, never, budget=50, rounds=3, settle=True) == (2.0, 7)


def test_sums_enclose_an_integral_and_stop_when_asked():
    def measure(low, high, carried):
        width = high[:, 0] - low[:, 0]
        return (width * high[:, 0] ** 2)[:, None], (width * low[:, 0] ** 2)[:, None]

    seen = []

    def enough(upper, lower, spent):
        seen.append((float(upper[0]), float(lower[0]), spent))
        return upper[0] - lower[0] < 1e-3

    start = np.zeros((1, 1)), np.ones((1, 1)), np.zeros((1, 1))
    upper, spent = boxes.integral(*start, measure, enough, budget=10**6, rounds=100, share=0.9)
    assert all(below <= 1 / 3 <= above for above, below, _ in seen)
    assert 1 / 3 <= upper[0] <= 1 / 3 + 1e-3 and spent == seen[-1][2]
    rough, few = boxes.integral(*start, measure, enough, budget=40, rounds=100, share=0.9, settled=1e-2)
    assert rough[0] > upper[0] and few <= 44


def test_depth_first_visits_what_is_halved():
    leaves = []

    def visit(low, high, depth):
        if high[0] - low[0] <= 0.25:
            leaves.append((float(low[0]), float(high[0]), depth))
            return None
        return 0

    boxes.depth_first(np.zeros(1), np.ones(1), visit)
    assert sorted(leaves) == [(k / 4, (k + 1) / 4, 2) for k in range(4)]
