"""Plans of products of functions of one direction each: clusters along every direction, tokens and errors multiplied out.

    f = prod_i h_i(t_i) + affine,    F = prod_i F_i(t_i),    |F - f| <= prod_i (S_i + e_i) - prod_i S_i,    S_i = sup |h_i|

Scores add up, so the clusters of the layer are all combinations of the factors' clusters, and its values the products of theirs:
those of one factor may be affine, for the others' are constant.  Which one is, and how the error is shared out, is what makes
the fewest tokens.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.plan import AxisPlan, Problem, Soft, axis_group, expression_problem
from maxaffine.heads.composite.shares import Part, along, shared_centre
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.structure.products import Product
from maxaffine.target.box import Box
from maxaffine.target.target import Target

MOST_TOKENS = 60_000
MOST_FACTORS = 3
STRAIN = 0.5  # values of one factor meet those of the others, rounded
TILTS = (4.0, 4.0)  # how many times more of the error one factor gets, one after the other as long as that helps


@dataclass(frozen=True)
class ProductPlan:
    """One plan per factor, the number of the one with affine values, and every factor's share of the error, in its own units."""

    found: Product
    factors: tuple[AxisPlan, ...]
    affine: int
    shares: tuple[float, ...]
    centre: Array
    argument: str = "products"

    @property
    def cells(self) -> int:
        """Tokens: all combinations."""
        return math.prod(factor.cells for factor in self.factors)

    @property
    def lift(self) -> Fraction:
        """What is added to every value: the affine part at the centre, exactly."""
        pairs = zip(self.found.slopes, self.centre, strict=True)
        return self.found.constant + sum((a * Fraction(float(c)) for a, c in pairs), Fraction(0))

    def to_json(self) -> dict[str, Any]:
        """Plain data: the factors."""
        return {"plan": "products", "method": "products", "argument": self.argument, "factors": self.factors_json()}

    def factors_json(self) -> list[dict[str, Any]]:
        """Per factor its direction, clusters, tokens, share, and whether its values are affine."""
        rows = []
        for number, (factor, share) in enumerate(zip(self.factors, self.shares, strict=True)):
            rows.append({
                "direction": [str(c) for c in factor.direction], "clusters": len(factor.parts), "tokens": factor.cells,
                "share": share, "affine": number == self.affine,
            })  # fmt: skip
        return rows

    def build(self) -> FactorGroup:
        """The factors' clusters, and the affine part at the centre."""
        return FactorGroup(tuple(axis_group(one) for one in self.factors), np.array([float(self.lift)]))


def build_products(plan: ProductPlan, target: Target, dtype: str) -> GroupedLayer:
    """One product over all directions, and the affine part."""
    return layer_of([plan.build()], target, dtype, plan.centre, plan.found.slopes)


class ProductPlanner:
    """Plans of one product on a box, for errors of any size."""

    def __init__(
        self, found: Product, box: Box, error: float, dtype: str, centre: Array | None = None, soft: Soft | None = None
    ) -> None:
        many = len(found.factors) > MOST_FACTORS
        self.found, self.why = found, f"there are more than {MOST_FACTORS} directions" if many else None
        self.centre = shared_centre(found.factors, (), found.slopes, box) if centre is None else centre
        self.problems = [expression_problem(one, box.low, box.high, error, self.centre) for one in found.factors]
        if any(link.kind == "jump" for problem in self.problems for link in problem.links):
            self.why = "a factor of the target jumps"
        self.sizes = [_size(problem) for problem in self.problems]
        self._parts = [
            {affine: Part(along(problem, dtype, affine, STRAIN, soft)) for affine in (True, False)} for problem in self.problems
        ]

    def plan(self, error: float) -> ProductPlan | None:
        """Few tokens for an error; None where there are too many."""
        even = (1.0 / len(self.problems),) * len(self.problems)
        tokens, affine, split = min((self._tokens(error, even, a), a, even) for a in range(len(even)))
        for number in range(len(even)):  # more for one of them, and still more where that has helped
            for grow in TILTS:
                weights = [part * (grow if i == number else 1.0) for i, part in enumerate(split)]
                tilted = tuple(weight / sum(weights) for weight in weights)
                found = self._tokens(error, tilted, affine)
                if not found < tokens:
                    break
                tokens, split = found, tilted
        if not tokens <= MOST_TOKENS:
            return None
        shares = self._shares(error, split)
        made = [self._parts[i][i == affine].plan(share) for i, share in enumerate(shares)]
        plans = tuple(plan for plan in made if isinstance(plan, AxisPlan))
        return ProductPlan(self.found, plans, affine, shares, self.centre)

    def _shares(self, error: float, split: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(error * part / self._others(i) for i, part in enumerate(split))

    def _tokens(self, error: float, split: tuple[float, ...], affine: int) -> float:
        shares = self._shares(error, split)
        return math.prod(self._parts[i][i == affine].tokens(share) for i, share in enumerate(shares))

    def _others(self, number: int) -> float:
        """What an error of a factor is multiplied by."""
        return math.prod(size for i, size in enumerate(self.sizes) if i != number)


def _size(problem: Problem) -> float:
    """sup |h| on points, never zero."""
    with np.errstate(all="ignore"):
        seen = np.abs(problem.f(np.linspace(problem.low, problem.high, 2001)))
    return max(float(np.max(seen, initial=0.0, where=np.isfinite(seen))), 1e-300)
