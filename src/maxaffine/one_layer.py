"""One layer: search for the smallest one that is proved, look at it, validate it, save it."""

import time
import warnings
from dataclasses import replace

from maxaffine.compiled import Compiled
from maxaffine.core.errors import Refused
from maxaffine.drawing import with_draw
from maxaffine.heads.found import Found, literal_failure, search_worst
from maxaffine.proofs.certificate import Certificate
from maxaffine.request import Request
from maxaffine.search import search
from maxaffine.target.calls import Calls
from maxaffine.validate import validate


def one_layer(request: Request, method: str, kind: str, begun: float) -> Compiled:
    """Searched for, finished, and nothing left behind."""
    found: Found | None = None
    try:
        found = with_draw(request, search(request, method), lambda other: search(other, method))
        return _finished(request, found, "cross" if request.target.inputs == "pair" else kind, begun)
    finally:
        if found is not None and found.pending is not None:
            found.pending.discard()
        if isinstance(request.target.calls, Calls):
            request.target.calls.close()


def _read_from(request: Request, certificate: Certificate) -> Certificate:
    """What a certificate says of a function that was read, or why it was not."""
    reading = request.target.traced
    if reading is None:
        return certificate
    if reading.text is not None:
        return replace(certificate, assumptions=(*certificate.assumptions, reading.assumption))
    if certificate.kind != "none":
        return certificate
    warnings.warn(f"nothing is proved of this layer: the function was not read: {reading.why}.", stacklevel=5)
    return replace(certificate, theorem=f"{certificate.theorem}; it was not read as a formula: {reading.why}")


def _finished(request: Request, found: Found, kind: str, begun: float) -> Compiled:
    """The compiled layer, judged, and saved where that is asked for."""
    rough = literal_failure(found.layer, found.certificate, request)
    if rough is not None:
        raise Refused(f"`literal`: {rough}. Leave it out: the layer itself is proved to {found.certificate.bound:.3g}.")
    compiled = Compiled(
        target=request.target,
        weights=found.layer,
        certificate=_read_from(request, found.certificate),
        observed=found.observed or search_worst(request, found),
        error=request.asked(found.certificate),
        errors=request.errors if found.method == "outputs" else None,
        method=found.method,
        attention_kind=kind,
        plan=found.plan.to_json(),
        cost=found.cost,
        found=found,
        declared=request.facts.declared.record(),
    )
    validate(compiled)
    calls = request.target.calls
    count = calls.count if isinstance(calls, Calls) else None
    compiled = replace(compiled, seconds=time.perf_counter() - begun, calls=count)
    if request.out is None:
        return compiled
    if found.pending is not None:
        found.pending.finish(compiled._record()[1])
    else:
        compiled.save(request.out)
    return replace(compiled, file=str(request.out))
