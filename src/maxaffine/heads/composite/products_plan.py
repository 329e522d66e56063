"""Plans of products of functions of one direction each: clusters along every direction, tokens and errors multiplied out.

    f = prod_i h_i(t_i) + affine,    F = prod_i F_i(t_i),    |F - f| <= prod_i (S_i + e_i) - prod_i S_i,    S_i = sup |h_i|

Scores add up, so the clusters of the layer are all combinations of the factors' clusters, and its values the products of theirs:
those of one factor may be affine, for the others' are constant.  Which one is, and how the error is shared out, is what makes
the fewest tokens.  What one factor of a product, or one part of a sum, costs for how much of the error, a `Part` says.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.plan import Aim, AxisPlan, Problem, Soft, axis_group, best_centre, expression_problem, make_plan
from maxaffine.heads.spectral.plan import GroupPlan
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.query import LEANS
from maxaffine.structure.directions import Direction
from maxaffine.structure.one_direction import OneDirection
from maxaffine.structure.products import Product
from maxaffine.target.box import Box
from maxaffine.target.target import Target

MOST_FACTORS = 24
NONE = -1  # no factor: of two inputs, where every factor has the query in it
STRAIN = 0.5  # values of one factor meet those of the others, rounded
KINKS = {"float64": 0.05, "float32": 0.2, "bfloat16": 0.3}  # of a part's share, for its kinks
STRAIGHT = 0.75  # the same where the branches are straight lines, which clusters hold exactly
SPARE = 1.25  # what a smooth part needs in units of its error on points
MOST = 1500  # tokens along one direction
FIRST = 1.2  # times the tokens of a plan that its first cells may have, before they are made longer
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


AnyPlan = AxisPlan | GroupPlan | ProductPlan


@dataclass
class Part:
    """Plans of one part by their share of the error and how many tokens there may be; smaller shares never have fewer tokens."""

    make: Callable[[float, int], AnyPlan | None]
    known: dict[float, AnyPlan | None] = field(default_factory=dict)
    beyond: dict[float, int] = field(default_factory=dict)  # by share how many tokens do not do

    def plan(self, share: float, most: int = MOST) -> AnyPlan | None:
        """The plan for a share; one for a smaller share where that has no more tokens than one for a larger share."""
        if share not in self.known:
            if most <= self.beyond.get(share, 0):
                return None
            tighter = [other for other in self.known if other < share and self.known[other] is not None]
            looser = [other for other in self.known if other > share]
            if tighter and looser and self._count(self.known[max(tighter)]) <= self._count(self.known[min(looser)]):
                return self.known[max(tighter)]
            found = self.make(share, most)
            if found is None and most < MOST:
                self.beyond[share] = most
                return None
            self.known[share] = found
        return self.known[share]

    def least(self, share: float) -> float:
        """Tokens that a share takes at least, as far as is known."""
        planned = [self._count(found) for other, found in self.known.items() if other >= share]
        return max([1.0, *planned, *(most + 1.0 for other, most in self.beyond.items() if other >= share)])

    def tokens(self, share: float, most: int = MOST) -> float:
        """Tokens for a share, infinite where it cannot be met with so many."""
        return self._count(self.plan(share, most))

    @staticmethod
    def _count(found: AnyPlan | None) -> float:
        return math.inf if found is None else found.cells

    def straight(self, share: float) -> bool:
        """Whether its clusters hold their branches exactly, so that its share serves its kinks alone."""
        found = self.plan(share)
        return isinstance(found, AxisPlan) and max(cell.fit.error for cell in found.parts) <= 0.05 * share

    def needed(self, share: float) -> float:
        """What of its share it needs."""
        found = self.plan(share)
        return min(share, max(SPARE * found.expected, 1e-3 * share)) if isinstance(found, GroupPlan) else share


def along(
    problem: Problem, dtype: str, affine: bool = True, strain: float = 0.0, soft: Soft | None = None
) -> Callable[[float, int], AxisPlan | None]:
    """Clusters along one direction for a share of the error, with affine or constant values."""

    def make(share: float, most: int) -> AxisPlan | None:
        kinks = KINKS[dtype] if any(link.kind == "kink" for link in problem.links) else 0.0
        if soft is not None and kinks:
            if soft.cells(problem, share, dtype) > most:
                return None
            aim = Aim((0.8 - soft.kinks) * share, soft.kinks * share, share, 0.0)
            return make_plan(problem, aim, dtype, most, None, affine, strain, soft.blur(problem, share, dtype))
        made = make_plan(problem, Aim((0.93 - kinks) * share, kinks * share, share, 0.0), dtype, most, None, affine, strain)
        if made is None or not kinks or max(cell.fit.error for cell in made.parts) > 0.05 * share:
            return made
        softer = make_plan(problem, Aim(0.1 * share, STRAIGHT * share, share, 0.0), dtype, most, None, affine, strain)
        return made if softer is None or softer.cells > made.cells else softer

    return make


def shared_centre(steep: Sequence[OneDirection], others: Sequence[Direction], slopes: Sequence[object], box: Box) -> Array:
    """The middle of the box; along a variable that one of `steep` alone has, the place where that is steepest."""
    centre = np.asarray((box.low + box.high) / 2.0)
    for number, one in enumerate(steep):
        used = [i for i, c in enumerate(one.direction) if c]
        beside = [*others, *(other.direction for k, other in enumerate(steep) if k != number)]
        if len(used) == 1 and not slopes[used[0]] and not any(w[used[0]] for w in beside):
            centre[used[0]] = best_centre(one, box.low, box.high)[used[0]]
    return centre


class ProductPlanner:
    """Plans of one product on a box, for errors of any size."""

    def __init__(
        self, found: Product, box: Box, error: float, dtype: str, centre: Array | None = None, soft: Soft | None = None,
        query: int = 0,
    ) -> None:  # fmt: skip
        many = len(found.factors) > MOST_FACTORS
        self.found, self.why = found, f"there are more than {MOST_FACTORS} directions" if many else None
        self.centre = shared_centre(found.factors, (), found.slopes, box) if centre is None else centre
        self.problems = [expression_problem(one, box.low, box.high, error, self.centre) for one in found.factors]
        if any(link.kind == "jump" for problem in self.problems for link in problem.links):
            self.why = "a factor of the target jumps"
        if any(found.slopes[:query]):
            self.why = LEANS
        self.lean = [i for i, one in enumerate(found.factors) if not any(one.direction[:query])] or [NONE]
        self.sizes = [_size(problem) for problem in self.problems]
        self._parts: list[dict[bool, Part]] = []
        for i, problem in enumerate(self.problems):  # factors that are alike are planned once
            like = next((j for j in range(i) if _alike(self.problems[j], problem)), None)
            own = {a: Part(along(problem, dtype, a, STRAIN, soft)) for a in (True, False)} if like is None else self._parts[like]
            self._parts.append(own)

    def plan(self, error: float) -> ProductPlan | None:
        """Few tokens for an error; None where there are too many."""
        even = (1.0 / len(self.problems),) * len(self.problems)
        tokens, affine, split = math.inf, self.lean[0], even
        for number in self.lean:
            found = self._tokens(error, even, number, tokens)
            tokens, affine = min((tokens, affine), (found, number))
        for number in range(len(even)):  # more for one of them, and still more where that has helped
            for grow in TILTS:
                weights = [part * (grow if i == number else 1.0) for i, part in enumerate(split)]
                tilted = tuple(weight / sum(weights) for weight in weights)
                found = self._tokens(error, tilted, affine, tokens)
                if not found < tokens:
                    break
                tokens, split = found, tilted
        if not tokens < math.inf:
            return None
        shares = self._shares(error, split)
        plans = []
        for i, (problem, share) in enumerate(zip(self.problems, shares, strict=True)):
            made = self._parts[i][i == affine].plan(share)
            assert isinstance(made, AxisPlan)
            own = replace(made, row=problem.row, centre=problem.centre, direction=problem.direction, slopes=problem.slopes)
            plans.append(own)
        return ProductPlan(self.found, tuple(plans), affine, shares, self.centre)

    def _shares(self, error: float, split: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(error * part / self._others(i) for i, part in enumerate(split))

    def _tokens(self, error: float, split: tuple[float, ...], affine: int, below: float) -> float:
        """Tokens of all factors together; infinite where they are not below a number."""
        parts = [(self._parts[i][i == affine], share) for i, share in enumerate(self._shares(error, split))]
        known = sorted(parts, key=lambda pair: pair[1] not in pair[0].known)
        tokens = 1.0
        for i, (part, share) in enumerate(known):
            others = tokens * math.prod(other.least(s) for other, s in known[i + 1 :])
            most = MOST if math.isinf(below) else min(MOST, math.ceil(below / others) - 1)
            tokens *= part.tokens(share, min(MOST, math.ceil(FIRST * most) + 1)) if most > 0 else math.inf
            if math.isinf(tokens):
                break
        return tokens

    def _others(self, number: int) -> float:
        """What an error of a factor is multiplied by."""
        return math.prod(size for i, size in enumerate(self.sizes) if i != number)


def _alike(one: Problem, other: Problem) -> bool:
    """Whether two problems are the same but for their directions, as far as points show."""
    ends = [[(piece[0], piece[1]) for piece in problem.pieces] for problem in (one, other)]
    if (one.low, one.high, one.links) != (other.low, other.high, other.links) or ends[0] != ends[1]:
        return False
    z = np.linspace(one.low, one.high, 257)
    pairs = [(one.f, other.f), *((a[2], b[2]) for a, b in zip(one.pieces, other.pieces, strict=True))]
    with np.errstate(all="ignore"):
        return all(np.array_equal(f(z), g(z), equal_nan=True) for f, g in pairs)


def _size(problem: Problem) -> float:
    """sup |h| on points, never zero."""
    with np.errstate(all="ignore"):
        seen = np.abs(problem.f(np.linspace(problem.low, problem.high, 2001)))
    return max(float(np.max(seen, initial=0.0, where=np.isfinite(seen))), 1e-300)
