"""A target and the parts that were read off its expression: together they must be the target, at random points.

Structures are read by code that the compiler uses as well (structure/), so no rule believes them: where enclosures of the parts
and of the target do not meet at some point, the parts are not the target.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.structure.groups import Group
from maxaffine.target.target import Target

POINTS = 120


def expression_of(target: Target, what: str, one_output: bool = True) -> Expression:
    """The target's expression; NotProved where it has none, or outputs that a rule has no proof for."""
    if target.expression is None or target.n_out != 1 or (one_output and target.d_out != 1):
        raise NotProved(f"its target is not one that {what} are proved for.")
    return target.expression


def doubt_parts(target: Target, parts: Callable[[Array], Interval], why: str) -> None:
    """NotProved unless `parts`, points (B, D) -> (B, K), is the target at random points of the box."""
    assert target.expression is not None
    x = target.box.sample(POINTS, np.random.default_rng(31))
    doubt_at(target.expression, x, parts(x), why)


def doubt_at(expression: Expression, x: Array, found: Interval, why: str) -> None:
    """NotProved where enclosures at points do not meet, or where half of them say nothing."""
    exact = expression.enclose(Interval.point(x))
    apart = (found.hi < exact.lo) | (found.lo > exact.hi)
    if np.any(apart) or 2 * np.count_nonzero(found.finite & exact.finite) < apart.size:
        raise NotProved(why)


def along(w: Sequence[Fraction], x: Array) -> Interval:
    """w . x at points (B, D): (B, 1)."""
    total = Interval.point(np.zeros((len(x), 1)))
    for c, column in zip(w, x.T, strict=True):
        if c:
            total = total + Interval.exact(c) * Interval.point(column[:, None])
    return total


def group_at(group: Group, x: Array) -> Interval:
    """The function of a group at points (B, D): (B, K)."""
    assert group.expression is not None
    return group.expression.enclose(Interval.concatenate([along(w, x) for w in group.directions], axis=1))
