"""Chebyshev interpolants of callables."""

import numpy as np
import pytest

from maxaffine.target.box import Box
from maxaffine.target.calls import Calls
from maxaffine.target.interpolant import grid, interpolate
from maxaffine.target.target import Target

SMOOTH = [
    (lambda x: np.sin(5 * x[:, 0]) * np.exp(x[:, 0]), Box(x=(-1, 2)), 200),
    (lambda x: np.exp(-x[:, 0]) * np.sin(2 * x[:, 0] + 3 * x[:, 1]), Box(x=(0, 2), y=(-1, 1)), 700),
    (lambda x: np.stack([x[:, 0] * x[:, 2], np.cos(x[:, 1] + x[:, 0])], axis=1), Box(x=(-1, 1), y=(-1, 1), z=(3, 4)), 3_000),
]


@pytest.mark.parametrize(("f", "box", "most"), SMOOTH)
def test_smooth_functions_are_settled_by_few_points(f, box, most):
    calls = Calls()
    target = Target.of(f, box)
    counted = Target(box, target.output_shape, function=f, calls=calls)
    made = interpolate(counted, 1e-6)
    x = box.sample(500, np.random.default_rng(3))
    assert made.resolved and calls.count < most
    assert np.abs(made(x) - target.values(x)).max() < 4e-6


@pytest.mark.parametrize("f", [lambda x: np.abs(x[:, 0] - 0.1), lambda x: np.sign(x[:, 0]), lambda x: np.sin(1e5 * x[:, 0])])
def test_kinks_jumps_and_many_wiggles_are_not(f):
    assert not interpolate(Target.of(f, Box(x=(-1, 1))), 1e-6).resolved


def test_a_function_that_vanishes_at_the_points_is_not_taken_for_zero():
    def seventeen(x):
        return np.prod([x[:, 0] - np.cos(np.pi * j / 16) for j in range(17)], axis=0) * 1e4

    assert np.abs(seventeen(grid(Box(x=(-1, 1)), [17]))).max() < 1e-9
    made = interpolate(Target.of(seventeen, Box(x=(-1, 1))), 1e-4)
    assert made.resolved and abs(made(np.array([[0.95]]))[0, 0, 0] - seventeen(np.array([[0.95]]))[0]) < 1e-4


def test_finer_grids_contain_the_coarser_ones():
    box = Box(x=(0.1, 0.7))
    assert set(grid(box, [9]).ravel()) <= set(grid(box, [17]).ravel())


def test_where_it_fails_is_told():
    narrow = Target.of(lambda x: np.abs(x[:, 0] - 0.1) * np.exp(-((x[:, 0] - 0.1) ** 2) * 50), Box(x=(-1, 1)))
    noise = Target.of(lambda x: np.sin(1e7 * x[:, 0]), Box(x=(-1, 1)))
    assert interpolate(narrow, 1e-6).is_local and not interpolate(noise, 1e-6).is_local
