"""The search for the smallest layer of a kind: propose, build, afford, prove, ask the checker, until one plan does.

    propose -> build -> afford -> prove -> literal softmax? -> does the checker confirm it? -> else the next plan

A layer for a callable about which nothing is known is observed instead of proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from maxaffine.core import closest
from maxaffine.core.budget import afford, count_text
from maxaffine.core.deadline import check
from maxaffine.core.errors import Missed, Refused
from maxaffine.core.rounding import compute_format
from maxaffine.heads.found import (
    BELOW,
    Ask,
    Found,
    P,
    agreed,
    grouped_cost,
    largest_part,
    literal_failure,
    must_hold,
    search_worst,
)
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.query import LEANS, leans_on_query
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request
from maxaffine.runtime import chooser

if TYPE_CHECKING:
    from maxaffine.heads.head import Head


GLANCE = 2e8  # flops of a look at a layer before it is proved
FITTED = 16.0  # roundings of the largest value, below which no fitted head is proved
REACHED = 4000.0  # roundings of the largest value that certificates of smooth targets come down to in float64,
REACHED_ELSEWHERE = 100.0  # and in other dtypes, where heads are made for their rounding, times the variables squared


class Unconfirmed(Refused):
    """The checker does not confirm what was proved."""


@dataclass
class Search:
    """One search: what was asked, below how many tokens, why plans failed, and the failure of the last one."""

    request: Request
    reasons: list[str]
    fewest: int | None = None
    failure: Refused | None = None
    ask: Ask | None = None  # how parts of an output are searched for

    def most(self, limit: int) -> int:
        """Tokens that a plan may have, of at most `limit`."""
        return limit if self.fewest is None else min(limit, self.fewest - 1)

    def most_each(self, count: int) -> int | None:
        """Tokens that each of `count` equal parts may have; None where there is no limit."""
        if self.fewest is None:
            return None
        each = (self.fewest - 1) // count
        if each == 0:
            raise Refused(f"{count} regions need at least as many tokens, and another head has fewer")
        return each

    def note(self, reason: str) -> None:
        """Remember why something does not do."""
        self.reasons.append(reason)


def search(head: Head[P], asked: Search) -> Found | None:
    """The first plan of a head that is proved, or for a callable observed to fit; reasons are noted where there is none."""
    request = asked.request
    why_not = head.why_not(request)
    if why_not is not None:
        asked.note(why_not)
        return None
    apart = request.pointwise is not None and head.relative
    if head.fitted and not apart and request.error < FITTED * compute_format(request.dtype).unit * request.largest:
        asked.note(_below(request))
        return None
    provable, observable = head.provable(request), head.observable(request)
    seen: Found | None = None
    for plan in _quietly(head.propose(asked)):
        if asked.fewest is not None and plan.cells >= asked.fewest:
            asked.note(f"{plan.cells:,} tokens are needed, and another head has {asked.fewest:,}")
            break
        check()
        request.progress(f"{head.name} head of {count_text(plan.cells)} tokens", 0, 1)
        with np.errstate(all="ignore"):
            layer = head.build(plan, request)
        if leans_on_query(layer):
            asked.note(LEANS)
            continue
        cost = grouped_cost(layer)
        afford(cost, request.max_bytes, f"the {head.name} layer for error {request.error:g}")
        asked.failure = None
        if provable:
            try:
                found = _proved(head, plan, layer, request)
                told = f"proved to {found.certificate.bound:.3g}"
                request.progress(f"{head.name} head of {count_text(plan.cells)} tokens: {told}", 1, 1)
                return found
            except Refused as failure:
                asked.failure = failure
                if failure.nearest_error is not None:
                    closest.proved(plan.cells, failure.nearest_error)
                asked.note(Missed.of(f"{count_text(plan.cells)} tokens", failure))
                request.progress(f"{head.name} head of {asked.reasons[-1]}", 1, 1)
        if observable and seen is None:
            why = asked.reasons[-1] if provable else head.why_unproved(plan, request)
            nothing = Certificate.nothing(request.norm, why, request.dtype)
            try:
                seen = _observed(head, request, Found(head.name, plan, layer, nothing, cost))
            except Refused as failure:
                asked.failure = failure
                asked.note(f"{count_text(plan.cells)} tokens leave {failure.reason}")
        if seen is not None and not provable:
            break
    return seen


def _below(request: Request) -> Missed:
    """An error that the rounding of sums alone exceeds, and about what such heads are proved to."""
    rounding = compute_format(request.dtype).unit * request.largest
    told = f"values near {request.largest:.3g} are rounded by {rounding:.2g} in {request.dtype}, several times in every sum"
    reached = REACHED if request.dtype == "float64" else REACHED_ELSEWHERE * request.target.dimension**2
    return Missed.of("rounding", Refused(told, nearest_error=reached * rounding))


def _quietly(plans: Iterator[P]) -> Iterator[P]:
    """The plans, made without warnings: what overflows in a fit is judged infinitely bad there."""
    while True:
        with np.errstate(all="ignore"):
            plan = next(plans, None)
        if plan is None:
            return
        yield plan


def _proved(head: Head[P], plan: P, layer: GroupedLayer, request: Request) -> Found:
    """The layer with its certificate, where that fits the error and the checker agrees; else Refused."""
    seen = _glance(layer, request)
    if seen > request.error:
        closest.looked(layer.tokens, seen)
        raise Refused(f"off by {seen:.3g} at a point that was looked at")
    closest.begun(layer.tokens, seen)
    prove = partial(head.prove, layer, plan, request)
    certificate = prove("two-level" if layer.has_clusters else "arrays")
    bound = certificate.bound
    assert bound is not None
    wanted = request.asked(certificate)
    if not bound <= wanted * BELOW:
        reason = f"proved only to {bound:.3g} in {request.dtype}, of which {largest_part(certificate)}"
        raise Refused(reason, nearest_error=bound / BELOW * (request.error / wanted))
    rough = literal_failure(layer, certificate, request)
    if rough is not None:
        raise Refused(rough)
    found = Found(head.name, plan, layer, certificate, grouped_cost(layer), prove=prove, head=head)
    found, refusal = agreed(found, request) if head.asks_checker(certificate, request) else (found, None)
    if refusal is not None:
        raise Unconfirmed(f"proved to {bound:.3g}, but the checker does not confirm it: {refusal}")
    observed = head.observe(request, found)
    if observed is not None and math.isinf(request.norm):  # in L_p it is an estimate
        must_hold(observed.error, found.certificate.bound)
    return replace(found, observed=observed)


def _glance(layer: GroupedLayer, request: Request) -> float:
    """The largest error at some thousand points, before a proof is begun; 0 where jumps are excluded or in L_p."""
    several = request.errors is not None and layer.several
    if request.gap is not None or not math.isinf(request.norm) or request.target.expression is None or several:
        return 0.0
    x, exact = request.probe
    some = slice(0, int(np.clip(GLANCE / grouped_cost(layer).flops, 64, len(x))))
    with np.errstate(all="ignore"):
        away = np.abs(chooser.evaluate(layer, x[some]) - exact[some])
        if request.pointwise is not None:
            away = away * (request.pointwise.least / np.abs(exact[some]))
    return float(np.max(away, initial=0.0, where=np.isfinite(away)))


def _observed(head: Head[P], request: Request, found: Found) -> Found:
    """The layer, if the errors that are seen are below the one asked for; else Refused."""
    observed = head.observe(request, found) or search_worst(request, found)
    if observed.error > request.error:
        closest.looked(found.cost.tokens, observed.error)
        raise Refused(f"an observed error of {observed.error:.3g}", nearest_error=observed.error)
    return replace(found, observed=observed)
