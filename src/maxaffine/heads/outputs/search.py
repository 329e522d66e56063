"""Layers of several outputs: a head for every output, or for outputs that share their variables, side by side."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.found import Found, search_worst
from maxaffine.heads.head import Example, Head
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.outputs.plan import OutputsPlan, Planner, build_outputs
from maxaffine.heads.search import Search
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import OutputsLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.side_by_side import certify_outputs, scale_of
from maxaffine.request import Request


class Outputs(Head[OutputsPlan]):
    """Parts that are proved as the heads they are."""

    name = "outputs"
    summary = "every output by a head of its own, side by side; tokens add up"
    serves = "several outputs of different nature, sequences"
    fitted = False  # its parts ask that themselves
    examples = (Example("abs(x), sin(y)", {"x": (-1, 1), "y": (-1, 1)}, 1e-4),)

    def why_not(self, request: Request) -> str | None:
        """Several outputs with absolute errors."""
        if request.target.d_out * request.target.n_out == 1:
            return "only for several outputs"
        if request.pointwise is not None:
            return "only for absolute errors"
        facts = request.facts.declared
        smooth = facts.ellipses is not None or facts.derivatives is not None
        if request.target.expression is None and not smooth and lookup.provable(request.evidence):
            return "callables with a declared constant or modulus are proved by lookups"
        return None

    def provable(self, request: Request) -> bool:
        """What is proved of the parts is proved of them all."""
        return True

    def observable(self, request: Request) -> bool:
        """Callables some of whose outputs are observed only."""
        return request.target.expression is None and request.require is None and not lookup.provable(request.evidence)

    def propose(self, search: Search) -> Iterator[OutputsPlan]:
        """One plan: the smallest layer of every part."""
        if search.ask is None:
            raise Refused("parts are not searched for here")
        plan = Planner(search.request, search.reasons, search.ask).plan(search.fewest)
        if plan is not None:
            yield plan

    def build(self, plan: OutputsPlan, request: Request) -> OutputsLayer:  # type: ignore[override]
        """Layers side by side."""
        return build_outputs(plan, request)

    def prove(  # type: ignore[override]
        self, layer: OutputsLayer, plan: OutputsPlan, request: Request, runtime: str
    ) -> Certificate:
        """Every part as the head it is."""

        aim = request.error / plan.asked

        def proved(number: int, part: GroupedLayer) -> Certificate:
            made = plan.parts[number]
            found, asked = made.found, replace(made.request, error=aim * made.request.error)
            if part is found.layer and found.certificate.kind == "proved" and aim == 1.0:
                return found.certificate
            if found.head is None:
                raise Refused(f"nothing is proved of one of its outputs: {found.certificate.theorem}")
            return found.head.prove(part, found.plan, asked, "two-level" if part.has_clusters else "arrays")

        return certify_outputs(layer, request.norm, proved)

    def sharpened(self, plan: OutputsPlan, r: float) -> OutputsPlan:
        """Every part at that temperature."""
        return plan.sharpened(r)

    def why_unproved(self, plan: OutputsPlan, request: Request) -> str:
        """The reason of the first part that is not proved."""
        whys = [part.found.certificate.theorem for part in plan.parts if part.found.certificate.kind != "proved"]
        return whys[0] if whys else super().why_unproved(plan, request)

    def asks_checker(self, certificate: Certificate, request: Request) -> bool:
        """The searches for the parts have asked."""
        return False

    def observe(self, request: Request, found: Found) -> Observed | None:
        """The largest of what was observed of the parts."""
        plan, box = found.plan, request.target.box
        assert isinstance(plan, OutputsPlan)
        if any(part.term is not None for part in plan.parts):
            return None  # what terms err by may cancel
        seen = []
        for part in plan.parts:
            observed = part.found.observed or search_worst(part.request, part.found)
            at = np.array(box.centre)
            if len(observed.at) == len(part.variables):
                at[list(part.variables)] = observed.at
            scale = scale_of(box.width, part.request.target.box.width, request.norm, part.request.norm)
            doubt = None if observed.standard_error is None else scale * observed.standard_error
            told = replace(observed, error=scale * observed.error, standard_error=doubt, norm=request.norm)
            seen.append(replace(told, at=tuple(float(v) for v in at) if observed.at else ()))
        points = sum(one.points for one in seen)
        return replace(max(seen, key=lambda one: one.error), points=points)
