"""Piecewise affine targets: one token per piece, proved in closed form; the pieces of a callable are seen."""

import math
from collections.abc import Iterator
from dataclasses import replace

from maxaffine.core.errors import Refused
from maxaffine.heads.breaks.planes import observe_seen, why_not_seen, why_unproved
from maxaffine.heads.found import BELOW, Found
from maxaffine.heads.head import Example, Head
from maxaffine.heads.piecewise.plan import PiecewisePlan, build_piecewise
from maxaffine.heads.piecewise.prove import certify_piecewise
from maxaffine.heads.piecewise.seen import SeenPieces, seen_plans
from maxaffine.heads.search import Search, Unconfirmed
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.request import Request
from maxaffine.structure.affine_pieces import NotPiecewise
from maxaffine.structure.convex_differences import differences
from maxaffine.structure.refinement import refine

BLEND = 0.9  # share of the error that the blend between the pieces may take; the rest is for rounding
STEEPER = (1.0, 4.0, 64.0, 4096.0)  # sharper scores, where rounding leaves less than that


class Piecewise(Head[PiecewisePlan]):
    """One token per affine piece."""

    name = "piecewise"
    fitted = False
    summary = "one token per affine piece, its score a convex lifting of the pieces"
    serves = "continuous, piecewise affine functions of any number of variables"
    examples = (Example("max(x, y) + min(x - y, .5)", {"x": (-1, 1), "y": (-1, 1)}, 1e-6),)

    def why_not(self, request: Request) -> str | None:
        """One output token, in the sup norm."""
        if math.isfinite(request.norm):
            return "only in the sup norm"
        if request.target.expression is None:
            return why_not_seen(request, 6)
        return None if request.target.n_out == 1 else "only for expressions with one output token, in the sup norm"

    def propose(self, search: Search) -> Iterator[PiecewisePlan]:
        """The pieces, with scores as sharp as the error asks, then sharper ones."""
        request, target = search.request, search.request.target
        if target.expression is None:
            yield from seen_plans(search)
            return
        try:
            pieces = refine(differences(target.expression, target.box), target.box, 1e-3 * request.error)
        except NotPiecewise as failure:
            raise Refused(f"not piecewise affine: {failure}") from None
        count = len(pieces.tokens)
        for steeper in STEEPER:
            sharpness = steeper * (soft_gap(count) / (BLEND * BELOW * request.error) if count > 1 else 1.0)
            if not sharpness < 1e300:
                raise Refused(f"an error of {request.error:g} needs scores beyond the range of float64")
            yield PiecewisePlan(pieces, sharpness)
            if isinstance(search.failure, Unconfirmed):  # steeper scores would not change the checker's mind
                return

    def build(self, plan: PiecewisePlan, request: Request) -> GroupedLayer:
        """One cluster of one token per piece."""
        return build_piecewise(plan, request.target, request.dtype)

    def prove(self, layer: GroupedLayer, plan: PiecewisePlan, request: Request, runtime: str) -> Certificate:
        """By the convex lifting."""
        return certify_piecewise(layer, plan, runtime)

    def sharpened(self, plan: PiecewisePlan, r: float) -> PiecewisePlan:
        """R is r times as large."""
        return replace(plan, sharpness=plan.sharpness * r)

    def why_unproved(self, plan: PiecewisePlan, request: Request) -> str:
        """The pieces of a callable are seen."""
        assert isinstance(plan, SeenPieces)
        return why_unproved(plan.seen, request)

    def observe(self, request: Request, found: Found) -> Observed | None:
        """Near the planes that were seen."""
        return observe_seen(request, found.plan.seen, found) if isinstance(found.plan, SeenPieces) else None
