"""Plans of sums some parts of which switch: clusters along a direction for those, product keys for the others.

The errors of the parts add up.  A part whose tokens do not depend on its share of the error (a kink between straight lines) gets
a small one; the others share the rest so that the tokens in all are fewest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.plan.axis_plan import Aim, AxisPlan, Problem, best_centre, expression_problem, make_plan
from maxaffine.plan.spectral import GroupPlan, GroupPlanner, _analytic
from maxaffine.target.box import Box
from maxaffine.target.sums import Sum

Array = NDArray[np.float64]

KINKS = {"float64": 0.05, "float32": 0.2, "bfloat16": 0.3}  # of a part's share, for its kinks
STRAIGHT = 0.75  # the same where the branches are straight lines, which clusters hold exactly
UNITS = 16  # parts of the error that are shared out, where few parts of the sum need them
CHOICES = (15, 1, 8, 4, 12)  # of them, in the order in which they are looked at
FEW = 6  # parts
SPARE = 1.25  # what a smooth part needs in units of its error on points
MOST = 1500


@dataclass(frozen=True)
class SumPlan:
    """One plan per part, in the order of the sum, and every part's share of the error."""

    found: Sum
    parts: tuple[AxisPlan | GroupPlan, ...]
    shares: tuple[float, ...]
    centre: Array
    route: str = "sums"

    @property
    def cells(self) -> int:
        """Tokens of all parts together."""
        return sum(part.cells if isinstance(part, AxisPlan) else part.tokens for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the directions of every part, what kind of keys it has, and its share of the error."""
        rows = []
        for group, part, share in zip(self.found.parts, self.parts, self.shares, strict=True):
            kind = "clusters" if isinstance(part, AxisPlan) else "products"
            rows.append({"directions": [[str(c) for c in w] for w in group.directions], "keys": kind, "share": share})
        return {"plan": "sums", "method": "sums", "route": self.route, "groups": rows}


@dataclass
class _Part:
    """Plans of one part by their share of the error; smaller shares never have fewer tokens."""

    make: Callable[[float], AxisPlan | GroupPlan | None]
    known: dict[float, AxisPlan | GroupPlan | None] = field(default_factory=dict)

    def plan(self, share: float) -> AxisPlan | GroupPlan | None:
        if share not in self.known:
            tighter = [other for other in self.known if other < share and self.known[other] is not None]
            looser = [other for other in self.known if other > share]
            if tighter and looser and self._count(self.known[max(tighter)]) <= self._count(self.known[min(looser)]):
                return self.known[max(tighter)]
            self.known[share] = self.make(share)
        return self.known[share]

    def tokens(self, share: float) -> float:
        return self._count(self.plan(share))

    @staticmethod
    def _count(found: AxisPlan | GroupPlan | None) -> float:
        return math.inf if found is None else found.cells if isinstance(found, AxisPlan) else found.tokens

    def straight(self, share: float) -> bool:
        """Whether its clusters hold their branches exactly, so that its share serves its kinks alone."""
        found = self.plan(share)
        return isinstance(found, AxisPlan) and max(cell.fit.error for cell in found.parts) <= 0.05 * share

    def needed(self, share: float) -> float:
        """What of its share it needs."""
        found = self.plan(share)
        return min(share, max(SPARE * found.expected, 1e-3 * share)) if isinstance(found, GroupPlan) else share


class SumPlanner:
    """Plans of one sum on a box, for errors of any size."""

    def __init__(self, found: Sum, box: Box, error: float, dtype: str) -> None:
        self.found, self.box, self.dtype = found, box, dtype
        self.centre = self._centre()
        self.why: str | None = None
        self._parts: list[_Part] = []
        for number, group in enumerate(found.parts):
            if not found.switching[number] and _analytic(group, box.low, box.high):
                planner = GroupPlanner(group, box.low, box.high, error, dtype)
                self._parts.append(_Part(self._smooth(planner)))
            elif group.dimension == 1:
                problem = expression_problem(found.along(number), box.low, box.high, error, self.centre)
                if any(link.kind == "jump" for link in problem.links):
                    self.why = "a part of the target jumps"
                self._parts.append(_Part(self._along(problem)))
            else:
                self.why = "a part of several directions is not smooth"

    def _centre(self) -> Array:
        """The middle of the box; along a variable that one part alone has, the place where that part is steepest."""
        low, high = self.box.low, self.box.high
        centre = np.asarray((low + high) / 2.0)
        for number, group in enumerate(self.found.parts):
            used = [i for i, c in enumerate(group.directions[0]) if c]
            if group.dimension > 1 or len(used) != 1 or not self.found.switching[number]:
                continue
            others = [w for k, other in enumerate(self.found.parts) if k != number for w in other.directions]
            if not any(w[used[0]] for w in others) and not self.found.slopes[used[0]]:
                centre[used[0]] = best_centre(self.found.along(number), low, high)[used[0]]
        return centre

    @staticmethod
    def _smooth(planner: GroupPlanner) -> Callable[[float], GroupPlan | None]:
        def make(share: float) -> GroupPlan | None:
            if planner.group.dimension > 1:
                return planner.affine_product(0.9 * share) or planner.best_product(0.9 * share)
            fit = planner.lines[0].smallest(0.94 * share, start=1)
            return None if fit is None else planner.single(planner.lines[0].polished(len(fit)))

        return make

    def _along(self, problem: Problem) -> Callable[[float], AxisPlan | None]:
        def make(share: float) -> AxisPlan | None:
            kinks = KINKS[self.dtype] if any(link.kind == "kink" for link in problem.links) else 0.0
            made = make_plan(problem, Aim((0.93 - kinks) * share, kinks * share, share, 0.0), self.dtype, MOST, None)
            if made is None or not kinks or max(cell.fit.error for cell in made.parts) > 0.05 * share:
                return made
            softer = make_plan(problem, Aim(0.1 * share, STRAIGHT * share, share, 0.0), self.dtype, MOST, None)
            return made if softer is None or softer.cells > made.cells else softer

        return make

    def plan(self, error: float) -> SumPlan | None:
        """The fewest tokens for an error; None where some part is out of reach."""
        count = len(self._parts)
        units = UNITS if count <= FEW else 3 * count
        unit = error / units
        flat = [part.tokens(unit) <= part.tokens((units - count + 1) * unit) for part in self._parts]
        curved = [part for part, straight in zip(self._parts, flat, strict=True) if not straight]
        shares = iter(_shared(curved, units - sum(flat), unit))
        chosen = [unit if straight else next(shares) * unit for straight in flat]
        needed = [part.needed(share) for part, share in zip(self._parts, chosen, strict=True)]
        loose = [part.straight(share) for part, share in zip(self._parts, chosen, strict=True)]
        plans = [part.plan(share) for part, share in zip(self._parts, chosen, strict=True)]
        if any(loose):  # kinks between straight lines are soft if they may be, which is kind to the literal layer
            left = error - sum(share for share, straight in zip(needed, loose, strict=True) if not straight)
            needed = [max(left / sum(loose), share) if straight else share for share, straight in zip(needed, loose, strict=True)]
            for i, (part, share, straight) in enumerate(zip(self._parts, needed, loose, strict=True)):
                plans[i] = part.make(share) if straight else plans[i]
        made = tuple(plan for plan in plans if plan is not None)
        return SumPlan(self.found, made, tuple(needed), self.centre) if len(made) == count else None


def _shared(parts: list[_Part], units: int, unit: float) -> list[float]:
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
