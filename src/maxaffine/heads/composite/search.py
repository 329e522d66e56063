"""Sums some parts of which switch, and products of functions of one direction each: clusters along every direction.

Tokens of a sum add up, those of a product multiply; a sum with a product in it is asked of the products.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from maxaffine.core.errors import Refused
from maxaffine.heads.axis.plan import SOFTER, Soft
from maxaffine.heads.composite.products_plan import ProductPlan, ProductPlanner, build_products
from maxaffine.heads.composite.products_prove import certify_products
from maxaffine.heads.composite.sums_plan import SumPlan, SumPlanner, build_sums
from maxaffine.heads.composite.sums_prove import certify_sums
from maxaffine.heads.found import P
from maxaffine.heads.head import Example, Head
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.normalisers import biased
from maxaffine.request import Request
from maxaffine.structure.products import product_of
from maxaffine.structure.sums import Sum, sum_of

AIMS = (0.97, 0.9, 0.8, 0.62)  # of the error, for all parts together
FEW = 128  # tokens of product keys that smooth factors are left to


class _Composite(Head[P]):
    """For expressions of one output, in the sup norm."""

    def why_not(self, request: Request) -> str | None:
        """One output of an expression, in the sup norm."""
        target = request.target
        if target.expression is None or target.n_out != 1 or target.d_out != 1 or math.isfinite(request.norm):
            return "only for expressions with one output, in the sup norm"
        return None


class Sums(_Composite[SumPlan]):
    """Parts side by side."""

    name = "sums"
    summary = "clusters along one direction each beside product keys, tokens added up"
    serves = "sums whose non-smooth terms each depend on one direction"
    examples = (Example("abs(sin(5*x)) + cos(y)**2", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),)

    def propose(self, search: Search) -> Iterator[SumPlan]:
        """Sums where some parts switch, and each of those has one direction."""
        request, target = search.request, search.request.target
        assert target.expression is not None
        found = sum_of(target.expression, target.box, request.target.query)
        if found is None:
            raise Refused("not a sum whose non-smooth terms each depend on one direction")
        if any(found.is_product(n) for n in range(len(found.parts))):
            raise Refused("a non-smooth term depends on several directions")
        yield from _sum_plans(found, search)

    def build(self, plan: SumPlan, request: Request) -> GroupedLayer:
        """One group per part, with biases between them."""
        return biased(build_sums(plan, request.target, request.dtype), request.error)

    def prove(self, layer: GroupedLayer, plan: SumPlan, request: Request, runtime: str) -> Certificate:
        """Part by part, errors added up."""
        return certify_sums(layer, plan, request.error, runtime)


class Products(_Composite[ProductPlan | SumPlan]):
    """All combinations of the factors' clusters; sums with a product are sums."""

    name = "products"
    summary = "clusters along every factor's direction, all combinations of them"
    serves = "products of one-direction factors, and sums containing one"
    examples = (Example("abs(sin(7*x))*exp(y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),)

    def propose(self, search: Search) -> Iterator[ProductPlan | SumPlan]:
        """Plans of a product, or of a sum with such a part."""
        request, target, fewest = search.request, search.request.target, search.fewest
        assert target.expression is not None
        found = product_of(target.expression, target.box)
        if found is None:
            parts = sum_of(target.expression, target.box, request.target.query)
            if parts is None or not any(parts.is_product(n) for n in range(len(parts.parts))):
                raise Refused("not a product of one-direction factors, nor a sum containing one")
            yield from _sum_plans(parts, search)
            return
        if fewest is not None and fewest <= (6 if any(found.switching) else FEW):
            raise Refused(f"another head has {fewest:,} tokens, and a product would hardly need fewer")
        asked = target.box, request.error, request.dtype, None
        yield from _aimed(lambda soft: ProductPlanner(found, *asked, soft, request.target.query), search)

    def build(self, plan: ProductPlan | SumPlan, request: Request) -> GroupedLayer:
        """One group over all directions, or one per part of a sum."""
        if isinstance(plan, SumPlan):
            return Sums().build(plan, request)
        return build_products(plan, request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: ProductPlan | SumPlan, request: Request, runtime: str) -> Certificate:
        """Factor by factor."""
        if isinstance(plan, SumPlan):
            return Sums().prove(layer, plan, request, runtime)
        return certify_products(layer, plan, request.error, runtime)


def _sum_plans(found: Sum, search: Search) -> Iterator[SumPlan]:
    """Plans for the parts of a sum."""
    request = search.request
    if search.fewest is not None and 2 * len(found.parts) > search.fewest:
        raise Refused(f"{len(found.parts)} parts are no fewer than {search.fewest:,} tokens")
    target = request.target
    return _aimed(lambda soft: SumPlanner(found, target.box, request.error, request.dtype, soft, target.query), search)


def _aimed(planner_of: Callable[[Soft | None], Any], search: Search) -> Iterator[Any]:
    """Plans that aim ever farther below the error; for a literal softmax with softer and softer kinks.

    They have fewer than `fewest` tokens; else a reason is noted why there is none.
    """
    request, fewest = search.request, search.fewest
    for soft in (None, *(SOFTER if request.literal else ())):
        planner, before = planner_of(soft), 0
        if planner.why is not None:
            raise Refused(planner.why)
        for aim in AIMS:
            plan = planner.plan(aim * request.error)
            if plan is None:
                search.note(f"a part needs more tokens than there may be, or values larger than {request.dtype} can add up")
                break
            if fewest is not None and plan.cells >= fewest:
                search.note(f"{plan.cells:,} tokens are no fewer than {fewest:,}")
                break
            if plan.cells != before or aim >= AIMS[1]:
                before = plan.cells
                yield plan
