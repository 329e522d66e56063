"""Spectral heads: plans of growing size until one is proved."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.head import Example, Head
from maxaffine.heads.lookup import plan as lookup
from maxaffine.heads.search import Search
from maxaffine.heads.spectral.directions import spectral_plans
from maxaffine.heads.spectral.plan import SpectralPlan
from maxaffine.heads.spectral.prove import certify_spectral
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.local_error import TooManyPoints
from maxaffine.proofs.normalisers import log_ratios
from maxaffine.request import Request


class Spectral(Head[SpectralPlan]):
    """Few keys per direction with fitted values; a callable about which nothing is declared is observed only."""

    name = "spectral"
    summary = "few keys per direction, values fitted; groups of keys add up"
    serves = "smooth functions, sums of functions of few directions each, products of one-variable functions"
    examples = (Example("sin(x) + cos(y)", {"x": (-math.pi, math.pi), "y": (-math.pi, math.pi)}, 1e-6),)

    def why_not(self, request: Request) -> str | None:
        """The sup norm, and something that is known about the target or may be observed."""
        if math.isfinite(request.norm):
            return "only in the sup norm"
        served = self.provable(request) or self.observable(request)
        return None if served else "callables only with `analytic=` or `derivatives=` declared"

    def provable(self, request: Request) -> bool:
        """Expressions, and callables of which `analytic` or `derivatives` are declared."""
        return request.target.expression is not None or _declared(request)

    def observable(self, request: Request) -> bool:
        """Callables that a lookup does not prove."""
        return request.target.expression is None and request.require is None and not lookup.provable(request.evidence)

    def propose(self, search: Search) -> Iterator[SpectralPlan]:
        """Plans aimed at smaller and smaller errors."""
        request, plan = search.request, None
        most = None if search.fewest is None else search.fewest - 1
        for plan in spectral_plans(request.target, request.error, request.dtype, not _declared(request), most):
            yield plan
            if isinstance(search.failure, TooManyPoints) and not self.observable(request):
                return
        if plan is None:
            raise Refused(f"not smooth enough, too many variables at once, or too much rounding in {request.dtype}")

    def build(self, plan: SpectralPlan, request: Request) -> GroupedLayer:
        """The layer with a bias between groups: the leak is a ten-thousandth of the error, in float64 as small as rounding."""
        layer = layer_of([made.build() for made in plan.groups], request.target, request.dtype)
        if len(layer.groups) == 1:
            return layer
        largest = sum(float(np.abs(made.values).max()) for made in plan.groups if made.values is not None)
        leak = 1e-4 * request.error
        if request.dtype == "float64":
            leak = min(leak, 1e-15 * max(largest, 1.0))
        return with_bonus(layer, wanted_bonus(log_ratios(layer), max(largest, 1.0), leak))

    def prove(self, layer: GroupedLayer, plan: SpectralPlan, request: Request, runtime: str) -> Certificate:
        """Group by group."""
        evidence = request.facts.declared if request.target.expression is None else None
        return certify_spectral(layer, plan, request.error, runtime, evidence)

    def asks_checker(self, certificate: Certificate, request: Request) -> bool:
        """Where rounding matters, which the checker counts in its own way."""
        return certificate.parts["rounding"] >= 0.01 * request.error


def _declared(request: Request) -> bool:
    declared = request.facts.declared
    return declared.ellipses is not None or declared.derivatives is not None


def with_bonus(layer: GroupedLayer, bonus: float) -> GroupedLayer:
    """The same layer with another bonus."""
    rounded = math.ceil(bonus)  # an integer is exact in every dtype up to 256
    return replace(layer, bonus=float(rounded))


def wanted_bonus(log_ratios: list[list[float]], largest: float, allowed: float) -> float:
    """Lambda for which the leak between groups is at most `allowed`."""
    pairs = [value for g, row in enumerate(log_ratios) for other, value in enumerate(row) if other != g]
    if not pairs:
        return 0.0
    worst = float(np.logaddexp.reduce(pairs))
    return max(1.0, worst + math.log(max(2.0 * largest, 1e-300) / allowed))
