"""Targets that are products of functions of one direction each: f(x) = prod_i h_i(w_i . x) + slopes . x + constant, exactly.

Roots of products are products where that is the same on the box (structure/settled.py), and exp of a sum is one
(structure/groups.py).  Factors of the same direction are one factor.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.groups import Group, groups_of
from maxaffine.structure.one_direction import OneDirection, affine_part
from maxaffine.structure.settled import settled, split_roots, switching
from maxaffine.target.box import Box


@dataclass(frozen=True)
class Product:
    """The factors, whether each of them switches or has a singular point, and the affine part."""

    factors: tuple[OneDirection, ...]
    switching: tuple[bool, ...]
    slopes: tuple[Fraction, ...]
    constant: Fraction


def product_of(expression: Expression, box: Box) -> Product | None:
    """The factors of a target that is one product of at least two directions and an affine part; else None."""
    if expression.count != 1 or len(expression.used) < 2:
        return None
    groups = groups_of(settled(split_roots(expression, box), box), apart=True)
    others, slopes, constant = affine_part(groups, expression.dimension)
    if len(others) != 1 or others[0].dimension < 2 or others[0].factors is None:
        return None
    (found,) = others
    products = []
    for term in found.factors or ():
        value = number(term)
        if value is None:
            products.append(term)
        else:
            constant += value
    if len(products) != 1 or any(factor is None for factor in products[0]):
        return None
    return of_one_term(replace(found, factors=(products[0],)), box, tuple(slopes), constant)


def of_one_term(group: Group, box: Box, slopes: tuple[Fraction, ...], constant: Fraction) -> Product:
    """The product of a group of one term, beside an affine part."""
    assert group.factors is not None
    ranges = group.range(box.low, box.high)
    zero = tuple(Fraction(0) for _ in slopes)
    factors, flags = [], []
    for e, (h, w) in enumerate(zip(group.factors[0], group.directions, strict=True)):
        assert h is not None
        factors.append(OneDirection(h, w, zero))
        flags.append(switching(h, ranges[e : e + 1]))
    return Product(tuple(factors), tuple(flags), slopes, constant)


def number(row: tuple[Expression | None, ...]) -> Fraction | None:
    """The value of a term that is a number known exactly, else None."""
    first = row[0]
    if first is None or any(factor is not None for factor in row[1:]) or first.used:
        return None
    value, terms = Graph(first.nodes).constant_terms(first.outputs[0])
    return value if not any(terms.values()) else None  # 0 * sqrt(2) is kept in expressions, for the sake of its domain
