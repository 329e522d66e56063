"""Plans by their share of the error: what one part of a sum, or one factor of a product, costs for how much of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.axis.plan import Aim, AxisPlan, Problem, Soft, best_centre, make_plan
from maxaffine.heads.spectral.plan import GroupPlan
from maxaffine.structure.groups import Direction
from maxaffine.structure.one_direction import OneDirection
from maxaffine.target.box import Box

if TYPE_CHECKING:
    from maxaffine.heads.composite.products_plan import ProductPlan

KINKS = {"float64": 0.05, "float32": 0.2, "bfloat16": 0.3}  # of a part's share, for its kinks
STRAIGHT = 0.75  # the same where the branches are straight lines, which clusters hold exactly
SPARE = 1.25  # what a smooth part needs in units of its error on points
MOST = 1500


@dataclass
class Part:
    """Plans of one part by their share of the error; smaller shares never have fewer tokens."""

    make: Callable[[float], AxisPlan | GroupPlan | ProductPlan | None]
    known: dict[float, AxisPlan | GroupPlan | ProductPlan | None] = field(default_factory=dict)

    def plan(self, share: float) -> AxisPlan | GroupPlan | ProductPlan | None:
        """The plan for a share; one for a smaller share where that has no more tokens than one for a larger share."""
        if share not in self.known:
            tighter = [other for other in self.known if other < share and self.known[other] is not None]
            looser = [other for other in self.known if other > share]
            if tighter and looser and self._count(self.known[max(tighter)]) <= self._count(self.known[min(looser)]):
                return self.known[max(tighter)]
            self.known[share] = self.make(share)
        return self.known[share]

    def tokens(self, share: float) -> float:
        """Tokens for a share, infinite where it cannot be met."""
        return self._count(self.plan(share))

    @staticmethod
    def _count(found: AxisPlan | GroupPlan | ProductPlan | None) -> float:
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
) -> Callable[[float], AxisPlan | None]:
    """Clusters along one direction for a share of the error, with affine or constant values."""

    def make(share: float) -> AxisPlan | None:
        kinks = KINKS[dtype] if any(link.kind == "kink" for link in problem.links) else 0.0
        if soft is not None and kinks:
            if soft.cells(problem, share, dtype) > MOST:
                return None
            aim = Aim((0.8 - soft.kinks) * share, soft.kinks * share, share, 0.0)
            return make_plan(problem, aim, dtype, MOST, None, affine, strain, soft.blur(problem, share, dtype))
        made = make_plan(problem, Aim((0.93 - kinks) * share, kinks * share, share, 0.0), dtype, MOST, None, affine, strain)
        if made is None or not kinks or max(cell.fit.error for cell in made.parts) > 0.05 * share:
            return made
        softer = make_plan(problem, Aim(0.1 * share, STRAIGHT * share, share, 0.0), dtype, MOST, None, affine, strain)
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
