"""Products of functions of one direction each, and sums of them: clusters along every direction, multiplied."""

from collections.abc import Iterator
from functools import partial

from maxaffine.core.errors import Refused
from maxaffine.heads.axis.plan import SOFTER
from maxaffine.heads.composite.aims import aimed
from maxaffine.heads.composite.products_build import build_products
from maxaffine.heads.composite.products_plan import MOST_TOKENS, ProductPlan, ProductPlanner
from maxaffine.heads.composite.products_prove import certify_products
from maxaffine.heads.composite.sums_plan import SumPlan
from maxaffine.heads.composite.sums_search import Sums, sum_plans, why_not_composite
from maxaffine.heads.head import Example, Head
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request
from maxaffine.structure.products import product_of
from maxaffine.structure.sums import sum_of

FEW = 128  # tokens of product keys that smooth factors are left to


class Products(Head[ProductPlan | SumPlan]):
    """All combinations of the factors' clusters; sums with a product are sums."""

    name = "products"
    summary = "clusters along every factor's direction, all combinations of them"
    serves = "products of one-direction factors, and sums containing one"
    examples = (Example("abs(sin(7*x))*exp(y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-3),)

    def why_not(self, request: Request) -> str | None:
        """Expressions of one output, in the sup norm."""
        return why_not_composite(request)

    def propose(self, search: Search) -> Iterator[ProductPlan | SumPlan]:
        """Plans of a product, or of a sum with such a part; for a literal softmax with softer and softer kinks."""
        request, target, fewest = search.request, search.request.target, search.fewest
        assert target.expression is not None
        found = product_of(target.expression, target.box)
        if found is None:
            parts = sum_of(target.expression, target.box)
            if parts is None or not any(parts.is_product(n) for n in range(len(parts.parts))):
                raise Refused("not a product of one-direction factors, nor a sum containing one")
            yield from sum_plans(parts, search)
            return
        if fewest is not None and fewest <= (6 if any(found.switching) else FEW):
            raise Refused(f"another head has {fewest:,} tokens, and a product would hardly need fewer")
        for soft in (None, *(SOFTER if request.literal else ())):
            planner = ProductPlanner(found, target.box, request.error, request.dtype, soft=soft)
            if planner.why is not None:
                raise Refused(planner.why)
            yield from aimed(partial(planner.plan, most=MOST_TOKENS), search)

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
