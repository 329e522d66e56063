"""The affine part of a sum of groups, taken out of it exactly."""

from collections.abc import Iterable
from fractions import Fraction

from maxaffine.structure.groups import Group
from maxaffine.structure.switches import affine_form


def affine_part(groups: Iterable[Group], dimension: int) -> tuple[list[Group], list[Fraction], Fraction]:
    """The groups that are not affine with rational coefficients, and the slopes (D,) and the constant of those that are."""
    others: list[Group] = []
    slopes, constant = [Fraction(0)] * dimension, Fraction(0)
    for group in groups:
        assert group.expression is not None
        form = affine_form(group.expression)
        if form is None or form.exact is None:
            others.append(group)
            continue
        constant += form.exact[1]
        for direction, c in zip(group.directions, form.exact[0], strict=True):
            for i, w in enumerate(direction):
                slopes[i] += c * w
    return others, slopes, constant
