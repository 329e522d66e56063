"""Cells as polygons and intervals, judged by the argmax of the pieces at random points."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from maxaffine.core.errors import BadInput
from maxaffine.layer.maxaffine import MaxAffine


def polygon_area(polygon):
    """Positive when counter-clockwise."""
    x, y = (polygon - polygon.mean(axis=0)).T if len(polygon) else np.zeros((2, 0))
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y) / 2)


def rectangle(low, high):
    return SimpleNamespace(low=np.array(low, dtype=float), high=np.array(high, dtype=float), names=("x", "y"))


UNIT = rectangle([-1.0, -1.0], [1.0, 1.0])


def depth_inside(polygon, points):
    """Least signed distance to the polygon's edges, positive inside: (K, 2), (B, 2) -> (B,)."""
    edge = np.roll(polygon, -1, axis=0) - polygon
    normal = np.column_stack([-edge[:, 1], edge[:, 0]]) / np.hypot(edge[:, 0], edge[:, 1])[:, None]
    return ((points[:, None, :] - polygon[None]) * normal[None]).sum(axis=-1).min(axis=1)


def judge(partition, box, *, seed=0, count=2000, rounding=1e-9):
    """The polygons tile the box, are convex and counter-clockwise, and hold exactly the points their piece wins."""
    polygons = partition.polygons(box)
    assert len(polygons) == len(partition)
    width = box.high - box.low
    areas = np.array([polygon_area(p) for p in polygons])
    assert np.isclose(areas.sum(), np.prod(width), rtol=rounding)
    for polygon, area in zip(polygons, areas, strict=True):
        assert polygon.shape == (len(polygon), 2)
        if len(polygon) == 0:
            continue
        assert len(polygon) >= 3 and area > 0
        assert (polygon >= box.low).all() and (polygon <= box.high).all()
        scaled = (polygon - box.low) / width
        first, second = np.roll(scaled, -1, axis=0) - scaled, np.roll(scaled, -2, axis=0) - np.roll(scaled, -1, axis=0)
        assert (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0] >= -1e-12).all()
    points = np.random.default_rng(seed).uniform(box.low, box.high, (count, 2))
    winners = partition.argmax(points)
    for j in np.unique(winners):
        mine = points[winners == j]
        if len(polygons[j]) == 0:
            # Only a piece that ties up to rounding may be without a polygon.
            scores = partition.pieces(mine)
            assert (np.sort(scores, axis=1)[:, -1] - np.sort(scores, axis=1)[:, -2] <= rounding).all()
        else:
            assert (depth_inside(polygons[j], mine) >= -rounding * width.max()).all()
    return polygons


@pytest.mark.parametrize("seed", range(12))
def test_random_power_diagrams_agree_with_the_argmax(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 120))
    sites = rng.normal(size=(count, 2))
    judge(MaxAffine.from_power_diagram(sites, rng.uniform(0, 0.5, count)), UNIT, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_random_pieces_with_most_of_them_dominated_agree_with_the_argmax(seed):
    rng = np.random.default_rng(seed)
    partition = MaxAffine(rng.normal(size=(300, 2)), rng.normal(size=300))
    polygons = judge(partition, rectangle([-2.0, 0.5], [3.0, 0.75]), seed=seed)
    assert sum(len(p) > 0 for p in polygons) < 60


def test_one_piece_has_the_whole_box():
    (polygon,) = MaxAffine([[3.0, -2.0]], [7.0]).polygons(rectangle([0, 1], [2, 5]))
    assert polygon_area(polygon) == 8.0
    assert {tuple(v) for v in polygon} == {(0, 1), (2, 1), (2, 5), (0, 5)}


def test_two_pieces_share_the_box_along_their_bisector():
    polygons = judge(MaxAffine.from_power_diagram([[-1.0, 0.0], [1.0, 0.0]], [0.0, 1.0]), UNIT)
    assert np.isclose(polygon_area(polygons[0]), 2 * 0.75)  # the face is at x = -1/4
    assert np.isclose(polygons[0][:, 0].max(), -0.25)


@pytest.mark.parametrize("count", [3, 4, 5, 40])
def test_sites_on_a_line_give_strips(count):
    places = np.linspace(-0.9, 0.9, count)
    polygons = judge(MaxAffine.from_power_diagram(np.outer(places, [1.0, 0.0])), UNIT)
    assert all(len(p) == 4 for p in polygons)
    judge(MaxAffine.from_power_diagram(np.outer(places, [1.0, 0.37]) + np.array([0.1, 0.2])), UNIT)


def test_of_equal_pieces_the_least_index_has_the_cell():
    sites = np.array([[0.5, 0.0], [-0.5, 0.0], [0.5, 0.0], [-0.5, 0.0], [0.5, 0.0]])
    polygons = judge(MaxAffine.from_power_diagram(sites), UNIT)
    assert [len(p) for p in polygons] == [4, 4, 0, 0, 0]


def test_all_pieces_equal_leaves_the_first_alone():
    polygons = judge(MaxAffine(np.ones((9, 2)), np.zeros(9)), UNIT)
    assert [len(p) for p in polygons] == [4] + [0] * 8


def test_parallel_pieces_keep_only_the_greatest():
    polygons = judge(MaxAffine(np.zeros((4, 2)), [0.0, 3.0, 1.0, 3.0]), UNIT)
    assert [len(p) for p in polygons] == [0, 4, 0, 0]


def test_dominated_pieces_have_no_cell():
    sites = [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5], [0.0, 0.0]]
    polygons = judge(MaxAffine.from_power_diagram(sites, [0, 0, 0, 0, -1.0]), UNIT)
    assert [len(p) for p in polygons] == [4, 4, 4, 4, 0]


def test_a_piece_that_wins_at_one_point_only_has_no_cell():
    # All five planes pass through the origin and the fifth is the mean of the others.
    polygons = judge(MaxAffine([[1, 0], [0, 1], [-1, 0], [0, -1], [0, 0]], np.zeros(5)), UNIT)
    assert len(polygons[4]) == 0
    assert np.allclose([polygon_area(p) for p in polygons[:4]], 1.0)


def test_sites_on_a_circle_meet_in_its_centre():
    angle = 2 * np.pi * np.arange(24) / 24
    polygons = judge(MaxAffine.from_power_diagram(np.column_stack([np.cos(angle), np.sin(angle)])), UNIT)
    assert all(np.abs(p).sum(axis=1).min() < 1e-12 for p in polygons)


@pytest.mark.parametrize("counts", [(1, 1), (1, 6), (5, 1), (7, 7), (3, 16)])
def test_grids_give_their_rectangles(counts):
    box = rectangle([-1.0, 10.0], [2.0, 10.5])
    polygons = judge(MaxAffine.grid(box, counts), box)
    width = (box.high - box.low) / counts
    for j, polygon in enumerate(polygons):
        cell = box.low + width * np.unravel_index(j, counts)
        assert len(polygon) == 4
        assert np.allclose(polygon.min(axis=0), cell) and np.allclose(polygon.max(axis=0), cell + width)


def test_a_box_far_from_the_origin_is_cut_as_well_as_the_data_allow():
    box = rectangle([1000.0, 1000.0], [1001.0, 1001.0])
    judge(MaxAffine.grid(box, 20), box, rounding=1e-6)


def test_cells_that_miss_the_box_are_empty_and_those_inside_are_cut_by_it():
    big = rectangle([0.0, 0.0], [1.0, 1.0])
    window = rectangle([0.42, 0.11], [0.58, 0.33])
    polygons = judge(MaxAffine.grid(big, 25), window)
    assert sum(len(p) > 0 for p in polygons) == 5 * 7


@pytest.mark.parametrize("noise", [1e-16, 1e-15, 1e-14, 1e-12])
def test_pieces_that_differ_by_rounding_do_not_claim_the_same_ground_twice(noise):
    rng = np.random.default_rng(7)
    for _ in range(25):
        count = int(rng.integers(2, 80))
        sites = rng.integers(-3, 4, (count, 2)) + noise * rng.normal(size=(count, 2))
        judge(MaxAffine.from_power_diagram(sites), UNIT, count=200)


def test_a_section_of_a_grid_along_a_face_of_its_cells_is_a_grid():
    cube = SimpleNamespace(low=np.array([0.1, 0.2, 0.3]), high=np.array([1.1, 1.2, 1.3]))
    section = MaxAffine.grid(cube, (6, 5, 4)).sliced((0, 1), [0.0, 0.0, 0.8])
    polygons = judge(section, rectangle([0.1, 0.2], [1.1, 1.2]))
    assert [len(p) for p in polygons if len(p)] == [4] * 30


def test_a_piece_with_two_thousand_neighbours_is_handled():
    angle = 2 * np.pi * np.arange(2000) / 2000
    sites = np.vstack([[0.0, 0.0], np.column_stack([np.cos(angle), np.sin(angle)])])
    polygons = judge(MaxAffine.from_power_diagram(sites), UNIT, count=200)
    assert len(polygons[0]) == 2000


def test_slopes_of_very_different_size_lose_no_cell():
    rng = np.random.default_rng(3)
    near, far = rng.normal(size=(30, 2)), 1e6 * rng.normal(size=(5, 2))
    partition = MaxAffine(np.vstack([near, far]), np.concatenate([-0.05 * (near**2).sum(axis=1), np.full(5, -1.2e6)]))
    judge(partition, UNIT)


@pytest.mark.parametrize(("count", "seconds"), [(63, 3.0), (139, 10.0)])
def test_large_grids_are_cut_in_a_moment(count, seconds):
    import time

    box = rectangle([-np.pi, -np.pi], [np.pi, np.pi])
    partition = MaxAffine.grid(box, count)
    begin = time.process_time()
    polygons = partition.polygons(box)
    assert time.process_time() - begin < seconds  # typically a tenth of it
    assert np.isclose(sum(polygon_area(p) for p in polygons), (2 * np.pi) ** 2, rtol=1e-11)
    assert {len(p) for p in polygons} == {4}


@pytest.mark.parametrize("seed", range(8))
def test_intervals_hold_the_points_their_piece_wins(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    partition = MaxAffine(rng.normal(size=(count, 1)).round(1), 0.3 * rng.normal(size=count).round(1))
    box = SimpleNamespace(low=np.array([-2.0]), high=np.array([3.0]))
    cells = partition.intervals(box)
    assert np.isclose(np.nansum(cells[:, 1] - cells[:, 0]), 5.0)
    x = rng.uniform(-2, 3, 500)
    winner = partition.argmax(x[:, None])
    assert ((cells[winner, 0] <= x + 1e-12) & (x <= cells[winner, 1] + 1e-12)).all()
    ordered = cells[~np.isnan(cells[:, 0])]
    ordered = ordered[np.argsort(ordered[:, 0])]
    assert ordered[0, 0] == -2.0 and ordered[-1, 1] == 3.0
    assert np.array_equal(ordered[1:, 0], ordered[:-1, 1])


def test_intervals_of_a_grid_are_its_cells():
    box = SimpleNamespace(low=np.array([1.0]), high=np.array([2.0]))
    cells = MaxAffine.grid(box, 8).intervals(box)
    assert np.allclose(cells, 1 + np.column_stack([np.arange(8), np.arange(1, 9)]) / 8)


def test_the_dimension_must_fit():
    with pytest.raises(BadInput, match=r"two variables.*sliced"):
        MaxAffine(np.eye(3), np.zeros(3)).polygons(UNIT)
    with pytest.raises(BadInput, match="one variable"):
        MaxAffine(np.eye(2), np.zeros(2)).intervals(UNIT)
    with pytest.raises(BadInput, match="the box must have 2 lower edges"):
        MaxAffine(np.eye(2), np.zeros(2)).polygons(rectangle([0, 1], [1, 1]))
