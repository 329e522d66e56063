"""Sums some parts of which switch: clusters along one direction each beside product keys, tokens added up."""

import math
from collections.abc import Iterator

from maxaffine.core.errors import Refused
from maxaffine.heads.axis.plan import SOFTER
from maxaffine.heads.composite.aims import aimed
from maxaffine.heads.composite.sums_build import build_sums
from maxaffine.heads.composite.sums_plan import SumPlan, SumPlanner
from maxaffine.heads.composite.sums_prove import certify_sums
from maxaffine.heads.head import Example, Head
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.normalisers import biased
from maxaffine.request import Request
from maxaffine.structure.sums import Sum, sum_of


def why_not_composite(request: Request) -> str | None:
    """Sums and products are for expressions of one output, in the sup norm."""
    target = request.target
    if target.expression is None or target.n_out != 1 or target.d_out != 1 or math.isfinite(request.norm):
        return "only for expressions with one output, in the sup norm"
    return None


class Sums(Head[SumPlan]):
    """Parts side by side."""

    name = "sums"
    summary = "clusters along one direction each beside product keys, tokens added up"
    serves = "sums whose non-smooth terms each depend on one direction"
    examples = (Example("abs(sin(5*x)) + cos(y)**2", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),)

    def why_not(self, request: Request) -> str | None:
        """Expressions of one output, in the sup norm."""
        return why_not_composite(request)

    def propose(self, search: Search) -> Iterator[SumPlan]:
        """Sums where some parts switch, and each of those has one direction."""
        target = search.request.target
        assert target.expression is not None
        found = sum_of(target.expression, target.box)
        if found is None:
            raise Refused("not a sum whose non-smooth terms each depend on one direction")
        if any(found.is_product(n) for n in range(len(found.parts))):
            raise Refused("a non-smooth term depends on several directions")
        yield from sum_plans(found, search)

    def build(self, plan: SumPlan, request: Request) -> GroupedLayer:
        """One group per part, with biases between them."""
        return biased(build_sums(plan, request.target, request.dtype), request.error)

    def prove(self, layer: GroupedLayer, plan: SumPlan, request: Request, runtime: str) -> Certificate:
        """Part by part, errors added up."""
        return certify_sums(layer, plan, request.error, runtime)


def sum_plans(found: Sum, search: Search) -> Iterator[SumPlan]:
    """Plans for the parts of a sum; for a literal softmax with softer and softer kinks."""
    request = search.request
    if search.fewest is not None and 2 * len(found.parts) > search.fewest:
        raise Refused(f"{len(found.parts)} parts are no fewer than {search.fewest:,} tokens")
    for soft in (None, *(SOFTER if request.literal else ())):
        planner = SumPlanner(found, request.target.box, request.error, request.dtype, soft)
        if planner.why is not None:
            raise Refused(planner.why)
        yield from aimed(planner.plan, search)
