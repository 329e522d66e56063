"""Parts that were read off an expression are doubted: they must be the target wherever one looks."""

from fractions import Fraction

import numpy as np
import pytest

from maxaffine.checker.proved import NotProved
from maxaffine.checker.target_parts import along, doubt_parts, expression_of, group_at
from maxaffine.core.intervals import Interval
from maxaffine.structure.groups import groups_of
from maxaffine.target.box import Box
from maxaffine.target.target import Target

TARGET = Target.of("sin(x) + cos(x - 2*y)", Box(x=(-1, 1), y=(0, 2)))


def parts(x):
    return sum((group_at(group, x) for group in groups_of(TARGET.expression)), Interval.point(0.0))


def test_the_groups_of_a_target_are_the_target() -> None:
    doubt_parts(TARGET, parts, "no")


@pytest.mark.parametrize("wrong", [
    lambda x: parts(x) + 1e-12, lambda x: parts(x) - 1e-12,
    lambda x: parts(x).undefined(np.arange(len(x))[:, None] % 3 > 0),
    lambda x: parts(x) + Interval.point(1e-9 * (np.arange(len(x)) == 7)[:, None]),
])  # fmt: skip
def test_parts_that_are_another_function_or_say_nothing_are_not_the_target(wrong) -> None:
    with pytest.raises(NotProved, match="no such parts"):
        doubt_parts(TARGET, wrong, "no such parts")


def test_directions_are_enclosed() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    (direction,) = next(group.directions for group in groups_of(TARGET.expression) if group.directions[0][1])
    found = along(direction, x)
    for low, high, row in zip(found.lo[:, 0], found.hi[:, 0], x, strict=True):
        exact = sum(c * Fraction(v) for c, v in zip(direction, row, strict=True))
        assert Fraction(low) <= exact <= Fraction(high)


def test_targets_of_several_outputs_are_for_rules_that_take_them() -> None:
    two = Target.of("sin(x), x", Box(x=(-1, 1)))
    assert expression_of(two, "trees", one_output=False) is two.expression
    with pytest.raises(NotProved, match="sums"):
        expression_of(two, "sums")
