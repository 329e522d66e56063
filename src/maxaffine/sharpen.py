"""A compiled layer at another temperature: proved anew by its own head's theorem, or told what fails; its error is observed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from maxaffine.core.deadline import OutOfTime, deadline
from maxaffine.core.errors import BadInput, Refused, rounded_up
from maxaffine.heads import HEADS
from maxaffine.heads.entries.plan import EntriesPlan
from maxaffine.heads.entries.prove import certify_entries
from maxaffine.heads.entries.search import Attempts
from maxaffine.heads.found import BELOW, Found, as_asked, must_hold, search_worst, unconfirmed
from maxaffine.layer.temperature import MOST, Sharpened, at_temperature, check_factor
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.routes import literal_bounds
from maxaffine.request import Request
from maxaffine.search import found_again
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled

AIMS = (1.3, 4.0, 40.0)  # times the error seen, that proofs aim at one after the other
SETTLED = 3  # proofs until one promises what it aimed at
CONFIRMED = 1.2  # times the bound, that such a layer promises where the error asked for is out of reach
EMPTY = 1e6  # times what was seen and what was asked for: a bound beyond that says nothing


def with_sharpness(compiled: Compiled, r: Any, require: str | None = None) -> Compiled:
    """The same keys and values with every logit times r; what is proved of that layer, and the error observed."""
    r = check_factor(r)
    if require not in (None, "proved"):
        raise BadInput(f'`require` (={require!r}) must be "proved", or be left out.')
    if compiled.method == "hard":
        raise Refused("a hard layer answers with the nearest site: its sharpness is infinite already, at every `r`.")
    if r == 1.0:
        return compiled
    before = Sharpened.of(compiled.plan, compiled.error)
    if len(before.by) == MOST:
        raise Refused(f"`r` (={r:g}) would be the temperature number {MOST + 1} of this layer; start from the layer as compiled.")
    try:
        found, promised = sharpened(_search_of(compiled), r)
    except BadInput as failure:
        raise Refused(f"`r` (={r:g}) is too large for {compiled.dtype}: {str(failure).rstrip('.')}.") from None
    if require == "proved" and found.certificate.bound is None:
        raise Refused(f"`r` (={r:g}): {found.certificate.theorem}.")
    assert found.observed is not None
    now = Sharpened((*before.by, r), before.asked)
    return replace(
        compiled, weights=found.layer, certificate=found.certificate, observed=found.observed,
        error=promised, errors=None, plan={**found.plan.to_json(), **now.record()}, found=found, stated=None, standing="proved",
        file=None,
    )  # fmt: skip


def again(compiled: Compiled) -> Found:
    """The search that made a loaded layer, repeated; at another temperature with its numbers multiplied as they were."""
    told = Sharpened.of(compiled.plan, compiled.error)
    each = None if compiled.errors is None else list(compiled.errors)
    asked: dict[str, Any] = {"error": each or told.asked, "norm": compiled.norm, "gap": compiled.certificate.scope.gap}
    asked |= {"relative": "pointwise"} if compiled.certificate.pointwise else {}
    found = found_again(compiled.target, compiled.weights, compiled.method, compiled.declared, told.by, **asked)
    if not told.by:
        return found
    for r in told.by:
        found = _scaled(found, r)
    assert found.request is not None
    return replace(found, prove=partial(_certificate, found, _aimed(found.request, compiled.error)))


def literal_of(compiled: Compiled) -> Mapping[str, float | str]:
    """What is proved of the literal softmax; at another temperature only what the checker proves again.

    Groups lean on one another there as the bias between them shrinks, and the checker's constants are its own.
    """
    said = literal_bounds(compiled.weights, compiled.certificate)
    if not Sharpened.of(compiled.plan, compiled.error).by or not any(isinstance(bound, float) for bound in said.values()):
        return said
    lost = {claim.arithmetic: claim for claim in replace(compiled, stated=said).check().claims if not claim.confirmed}
    return {name: "the independent checker does not confirm it" if name in lost else bound for name, bound in said.items()}


def promise(certificate: Certificate, asked: float) -> float:
    """The error that a layer stands for: the one asked for where it is proved, else a little above what is."""
    bound = certificate.bound
    return asked if bound is None or bound <= asked * BELOW else rounded_up(CONFIRMED * bound)


def _search_of(compiled: Compiled) -> Found:
    """The search behind a layer; where it cannot be repeated, the layer with nothing to prove it by."""
    try:
        return compiled.search
    except Refused as failure:
        raise Refused(
            f"what made this layer is not known any more, and nothing is proved without it: {failure.reason} "
            "Compile its target, and change the temperature of that layer."
        ) from None


def sharpened(found: Found, r: float) -> tuple[Found, float]:
    """The layer at another temperature and the error that it promises; kind "none" where its head proves nothing of it."""
    request, made = found.request, _scaled(found, r)
    if request is None:
        raise Refused("what was asked for is not known any more; compile the target again.")
    if request.target.entries is not None:
        return _at_entries(made, request)
    head = HEADS[made.method]
    least = None if request.pointwise is None else request.pointwise.least
    blank = replace(made, certificate=replace(made.certificate, least=least))
    own = head.observe(request, blank) if least is None else None  # heads look at absolute errors
    observed = own or search_worst(request, blank)
    certificate, why, asked = None, found.certificate.theorem, _error(request)
    if found.certificate.drawn is not None:
        why = "the points were drawn for the layer at its own temperature, and nothing is known of it at another"
    if found.certificate.bound is not None:
        certificate, asked, why = _proved(made, request, observed.error)
    least, bound = max(observed.error, _error(request)), None if certificate is None else certificate.bound
    if bound is not None and bound > EMPTY * least:
        why = f"only {bound:.3g} is proved at this temperature, which says nothing beside {least:.3g}"
        certificate, asked = None, _error(request)
    if certificate is not None:
        if math.isinf(request.norm):
            must_hold(observed.error, certificate.bound)
        refusal = unconfirmed(replace(made, certificate=certificate), _aimed(request, asked))
        if refusal is not None:
            why = f"it is proved to {certificate.bound:.3g}, but the checker does not confirm that: {refusal.rstrip('.')}"
            certificate, asked = None, _error(request)
    prove = None if certificate is None else partial(_certificate, made, _aimed(request, asked))
    told = certificate or Certificate.nothing(request.norm, why, request.dtype)
    return replace(made, certificate=told, observed=observed, prove=prove), asked


def _scaled(found: Found, r: float) -> Found:
    """Layer and plan with every logit times r; what was proved of the one before is gone."""
    layer = at_temperature(found.layer, r)
    of_entries = isinstance(found.plan, EntriesPlan)
    plan = found.plan if of_entries else HEADS[found.method].sharpened(found.plan, r)
    nothing = Certificate.nothing(found.certificate.norm, "its temperature was changed", layer.dtype)
    return replace(found, layer=layer, plan=plan, certificate=nothing, observed=None, prove=None, pending=None)


def _aimed(request: Request, error: float) -> Request:
    """The request for another error, which is relative where the first one is."""
    asked = request.pointwise
    if asked is None:
        return replace(request, error=error, errors=None)
    relative = replace(asked, error=error)
    return replace(request, error=relative.absolute, pointwise=relative)


def _certificate(found: Found, request: Request, runtime: str) -> Certificate:
    """What the head proves of the layer on one runtime, in the measure that was asked for."""
    certificate = HEADS[found.method].prove(found.layer, found.plan, request, runtime)  # type: ignore[arg-type]
    return as_asked(replace(found, certificate=certificate), request).certificate


def _error(request: Request) -> float:
    """The error asked for, in the measure that was asked for."""
    return request.error if request.pointwise is None else request.pointwise.error


def _proved(made: Found, request: Request, seen: float) -> tuple[Certificate | None, float, str]:
    """A proof that aims at what the layer will promise, and that; None, and why, where there is none.

    Proofs aim higher and higher until one says something; the last one aims at the promise that this leads to, because what a
    certificate holds in reserve depends on its aim, and the one that is kept must be what `prove` says again.
    """
    asked, why = _error(request), ""
    aims = [asked] * (seen <= asked) + [times * seen for times in AIMS if times * seen > asked]
    try:
        with deadline(request.max_seconds):
            for aim in aims:
                certificate, why = _attempt(made, _aimed(request, aim))
                for _ in range(SETTLED) if certificate is not None else ():
                    assert certificate is not None
                    wanted = promise(certificate, asked)
                    certificate, why = _attempt(made, _aimed(request, wanted))
                    if certificate is None:
                        break
                    if certificate.bound is not None and certificate.bound <= wanted:
                        return certificate, wanted, ""
    except OutOfTime:
        why = f"`max_seconds` (={request.max_seconds:g}) was over while a proof was looked for"
    return None, asked, why or "at this temperature no bound settles"


def _attempt(made: Found, request: Request) -> tuple[Certificate | None, str]:
    """One proof with one aim."""
    try:
        certificate = _certificate(made, request, "two-level" if made.layer.has_clusters else "arrays")
    except Refused as failure:
        return None, f"at this temperature {failure.reason.rstrip('.')}"
    if certificate.bound is None:
        return None, certificate.theorem
    if not certificate.bound < math.inf:
        return None, "at this temperature no finite bound is proved"
    return certificate, ""


def _at_entries(made: Found, request: Request) -> tuple[Found, float]:
    """A layer of a table or of samples, verified at the entries."""
    data, plan = request.target.data, made.plan
    assert isinstance(data, Table | Samples) and isinstance(plan, EntriesPlan) and not made.layer.several
    certificate, verified = certify_entries(made.layer, data, request.error)
    found, promised = Attempts(request, data).found(made.method, plan.family, made.layer, certificate, verified), request.error
    if certificate.bound is not None:
        promised = promise(certificate, request.error)
        refusal = unconfirmed(found, replace(request, error=promised))
        if refusal is not None:
            why = f"it is proved to {certificate.bound:.3g}, but the checker does not confirm that: {refusal.rstrip('.')}"
            found, promised = replace(found, certificate=Certificate.nothing(request.norm, why, request.dtype)), request.error
    return replace(found, request=request), promised
