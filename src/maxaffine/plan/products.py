"""Plans of products of functions of one direction each: clusters along every direction, tokens and errors multiplied out.

    f = prod_i h_i(t_i) + affine,    F = prod_i F_i(t_i),    |F - f| <= prod_i (S_i + e_i) - prod_i S_i,    S_i = sup |h_i|

Scores add up, so the clusters of the layer are all combinations of the factors' clusters, and its values the products of theirs:
those of one factor may be affine, for the others' are constant.  Which one is, and how the error is shared out, is what makes
the fewest tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.plan.axis_plan import AxisPlan, Problem, expression_problem
from maxaffine.plan.axis_shares import Part, along, shared_centre
from maxaffine.target.box import Box
from maxaffine.target.products import Product

Array = NDArray[np.float64]

MOST_TOKENS = 60_000
SPLITS = {
    2: ((0.5, 0.5), (0.2, 0.8), (0.8, 0.2), (0.05, 0.95), (0.95, 0.05)),
    3: ((0.34, 0.33, 0.33), (0.1, 0.45, 0.45), (0.45, 0.1, 0.45), (0.45, 0.45, 0.1),
        (0.1, 0.1, 0.8), (0.1, 0.8, 0.1), (0.8, 0.1, 0.1)),
}  # fmt: skip


@dataclass(frozen=True)
class ProductPlan:
    """One plan per factor, the number of the one with affine values, and every factor's share of the error, in its own units."""

    found: Product
    factors: tuple[AxisPlan, ...]
    affine: int
    shares: tuple[float, ...]
    centre: Array
    route: str = "products"

    @property
    def cells(self) -> int:
        """Tokens: all combinations."""
        return math.prod(factor.cells for factor in self.factors)

    @property
    def shift(self) -> float:
        """What is added to every value: the affine part at the centre."""
        return float(self.lift)

    @property
    def lift(self) -> Fraction:
        """The affine part at the centre, exactly."""
        pairs = zip(self.found.slopes, self.centre, strict=True)
        return self.found.constant + sum((a * Fraction(float(c)) for a, c in pairs), Fraction(0))

    def to_json(self) -> dict[str, Any]:
        """Plain data: per factor its direction, clusters, tokens, share, and the value that tells it from the other factors."""
        rows = []
        for number, (factor, share) in enumerate(zip(self.factors, self.shares, strict=True)):
            values = np.concatenate([cell.fit.values for cell in factor.parts])
            at = int(np.abs(values).argmax())
            rows.append({
                "direction": [str(c) for c in factor.direction], "clusters": len(factor.parts), "tokens": factor.cells,
                "share": share, "anchor": at, "value": float(values[at]), "affine": number == self.affine,
            })  # fmt: skip
        return {"plan": "products", "method": "products", "route": self.route, "factors": rows}


class ProductPlanner:
    """Plans of one product on a box, for errors of any size."""

    def __init__(self, found: Product, box: Box, error: float, dtype: str) -> None:
        self.found, self.why = found, None if len(found.factors) in SPLITS else "there are more than three directions"
        self.centre = shared_centre(found.factors, (), found.slopes, box)
        self.problems = [expression_problem(one, box.low, box.high, error, self.centre) for one in found.factors]
        if any(link.kind == "jump" for problem in self.problems for link in problem.links):
            self.why = "a factor of the target jumps"
        self.sizes = [_size(problem) for problem in self.problems]
        self._parts = [{affine: Part(along(problem, dtype, affine)) for affine in (True, False)} for problem in self.problems]

    def plan(self, error: float, most: int) -> ProductPlan | None:
        """The fewest tokens for an error, at most `most`; None where that does not do."""
        best: tuple[float, int, tuple[float, ...]] | None = None
        for split in SPLITS[len(self.problems)]:
            shares = tuple(error * part / self._others(i) for i, part in enumerate(split))
            for affine in range(len(shares)):
                tokens = 1.0
                for i, share in enumerate(shares):
                    tokens *= self._parts[i][i == affine].tokens(share)
                    if tokens > most:
                        break
                else:
                    if best is None or tokens < best[0]:
                        best = tokens, affine, shares
        if best is None:
            return None
        _, affine, shares = best
        made = [self._parts[i][i == affine].plan(share) for i, share in enumerate(shares)]
        plans = tuple(plan for plan in made if isinstance(plan, AxisPlan))
        return ProductPlan(self.found, plans, affine, shares, self.centre)

    def _others(self, number: int) -> float:
        """What an error of a factor is multiplied by."""
        return math.prod(size for i, size in enumerate(self.sizes) if i != number)


def _size(problem: Problem) -> float:
    """sup |h| on points, never zero."""
    with np.errstate(all="ignore"):
        seen = np.abs(problem.f(np.linspace(problem.low, problem.high, 2001)))
    return max(float(np.max(seen, initial=0.0, where=np.isfinite(seen))), 1e-300)
