"""Plans of sums some parts of which switch: clusters along a direction, or products of them, and product keys for the others.

The errors of the parts add up.  A part whose tokens do not depend on its share of the error (a kink between straight lines) gets
a small one; the others share the rest so that the tokens in all are fewest.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxaffine.core.arrays import Array
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.axis.plan import AxisPlan, Soft, axis_group, expression_problem
from maxaffine.heads.composite.products_plan import MOST, AnyPlan, Part, ProductPlan, ProductPlanner, along, shared_centre
from maxaffine.heads.spectral.directions import is_analytic
from maxaffine.heads.spectral.plan import GroupPlan, GroupPlanner
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.structure.sums import Sum
from maxaffine.target.box import Box
from maxaffine.target.target import Target

UNITS = 16  # parts of the error that are shared out, where few parts of the sum need them
CHOICES = (15, 1, 8, 4, 12)  # of them, in the order in which they are looked at
FEW = 6  # parts
PRODUCTS = 0.75  # of the error, for all parts that are products of clusters, where there are others


@dataclass(frozen=True)
class SumPlan:
    """One plan per part, in the order of the sum, and every part's share of the error."""

    found: Sum
    parts: tuple[AnyPlan, ...]
    shares: tuple[float, ...]
    centre: Array
    argument: str = "sums"

    @property
    def cells(self) -> int:
        """Tokens of all parts together."""
        return sum(part.cells for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the directions of every part, what kind of keys it has, and its share of the error."""
        rows: list[dict[str, Any]] = []
        for group, part, share in zip(self.found.parts, self.parts, self.shares, strict=True):
            kind = "products" if isinstance(part, GroupPlan) else "clusters"
            rows.append({"directions": [[str(c) for c in w] for w in group.directions], "keys": kind, "share": share})
            if isinstance(part, ProductPlan):
                rows[-1]["factors"] = part.factors_json()
        return {"plan": "sums", "method": "sums", "argument": self.argument, "groups": rows}


def build_sums(plan: SumPlan, target: Target, dtype: str) -> GroupedLayer:
    """One group per part, and the affine part."""
    groups = [axis_group(part) if isinstance(part, AxisPlan) else part.build() for part in plan.parts]
    return layer_of(groups, target, dtype, plan.centre, plan.found.slopes)


class SumPlanner:
    """Plans of one sum on a box, for errors of any size."""

    def __init__(self, found: Sum, box: Box, error: float, dtype: str, soft: Soft | None = None, query: int = 0) -> None:
        self.found, self.box, self.dtype = found, box, dtype
        products = {n: found.product(n, box) for n in range(len(found.parts)) if found.is_product(n)}
        steep = [found.along(n) for n, group in enumerate(found.parts) if group.dimension == 1 and found.switching[n]]
        steep += [one for product in products.values() for one in product.factors]
        rest = [group for n, group in enumerate(found.parts) if not found.switching[n]]
        self.centre = shared_centre(steep, [w for group in rest for w in group.directions], found.slopes, box)
        self.why: str | None = None
        self._parts: list[Part] = []
        for number, group in enumerate(found.parts):
            if not found.switching[number] and is_analytic(group, box.low, box.high):
                planner = GroupPlanner(group, box.low, box.high, error, dtype, query=query)
                self._parts.append(Part(self._smooth(planner)))
            elif number in products:
                factors = ProductPlanner(products[number], box, error, dtype, self.centre, soft, query)
                self.why = self.why or factors.why
                self._parts.append(Part(lambda share, _, factors=factors: factors.plan(share)))  # type: ignore[misc]
            elif group.dimension == 1:
                problem = expression_problem(found.along(number), box.low, box.high, error, self.centre)
                if any(link.kind == "jump" for link in problem.links):
                    self.why = "a part of the target jumps"
                self._parts.append(Part(along(problem, dtype, not any(group.directions[0][:query]), soft=soft)))
            else:
                self.why = "a part of several directions is not smooth"

    @staticmethod
    def _smooth(planner: GroupPlanner) -> Callable[[float, int], GroupPlan | None]:
        def make(share: float, _: int) -> GroupPlan | None:
            if planner.group.dimension > 1:
                return planner.affine_product(0.9 * share) or planner.best_product(0.9 * share)
            fit = planner.lines[0].smallest(0.94 * share, start=1)
            return None if fit is None else planner.single(planner.lines[0].polished(len(fit)))

        return make

    def plan(self, error: float) -> SumPlan | None:
        """The fewest tokens for an error; None where some part is out of reach."""
        products = [self.found.is_product(n) for n in range(len(self._parts))]
        others = [part for part, product in zip(self._parts, products, strict=True) if not product]
        left = error if not any(products) else (1.0 - PRODUCTS) * error if others else 0.0
        found = iter(self._added(others, left))
        each = (error - left) / max(1, sum(products))
        rows = [(part.plan(each), each) if product else next(found) for part, product in zip(self._parts, products, strict=True)]
        made = tuple(plan for plan, _ in rows if plan is not None)
        return SumPlan(self.found, made, tuple(share for _, share in rows), self.centre) if len(made) == len(rows) else None

    def _added(self, parts: list[Part], error: float) -> list[tuple[AnyPlan | None, float]]:
        """Plans of parts whose tokens and errors add up, with their shares of the error."""
        if not parts:
            return []
        count = len(parts)
        units = UNITS if count <= FEW else 3 * count
        unit = error / units
        flat = [part.tokens(unit) <= part.tokens((units - count + 1) * unit) for part in parts]
        curved = [part for part, straight in zip(parts, flat, strict=True) if not straight]
        shares = iter(_shared(curved, units - sum(flat), unit))
        chosen = [unit if straight else next(shares) * unit for straight in flat]
        needed = [part.needed(share) for part, share in zip(parts, chosen, strict=True)]
        loose = [part.straight(share) for part, share in zip(parts, chosen, strict=True)]
        plans = [part.plan(share) for part, share in zip(parts, chosen, strict=True)]
        if any(loose):  # kinks between straight lines are soft if they may be, which is kind to the literal layer
            left = error - sum(share for share, straight in zip(needed, loose, strict=True) if not straight)
            needed = [max(left / sum(loose), share) if straight else share for share, straight in zip(needed, loose, strict=True)]
            for i, (part, share, straight) in enumerate(zip(parts, needed, loose, strict=True)):
                plans[i] = part.make(share, MOST) if straight else plans[i]
        return list(zip(plans, needed, strict=True))


def _shared(parts: list[Part], units: int, unit: float) -> list[float]:
    """Units of the error for parts whose tokens grow with accuracy: the fewest tokens in all."""
    if len(parts) <= 1:
        return [float(units)] * len(parts)
    if len(parts) > FEW:
        return [units / len(parts)] * len(parts)
    choices = sorted(n for n in CHOICES if n <= units - len(parts) + 1)
    for part in parts:
        for n in CHOICES:
            if n in choices:
                part.plan(n * unit)
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for part in parts:
        following: dict[int, tuple[float, list[int]]] = {}
        for used, (tokens, row) in best.items():
            for n in choices:
                here = tokens + part.tokens(n * unit)
                if used + n <= units and here < following.get(used + n, (math.inf, []))[0]:
                    following[used + n] = here, [*row, n]
        best = following
    if not best:
        return [units / len(parts)] * len(parts)
    _, row = min(best.values(), key=lambda pair: pair[0])
    return [float(n) for n in row]
