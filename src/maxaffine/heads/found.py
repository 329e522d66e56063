"""What a search returns: a plan carried out, with its layer, certificate, cost and the way to prove it again."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker import Verdict, check
from maxaffine.core.budget import Cost
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.rounding import compute_format
from maxaffine.core.streams import Pending
from maxaffine.layer.file import to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed, local_evaluation, observe
from maxaffine.proofs.observe_few import observe_few
from maxaffine.proofs.observe_integral import observe_integral
from maxaffine.proofs.pointwise import measured
from maxaffine.proofs.routes import literal_bounds
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.target.calls import Calls
from maxaffine.target.interpolant import Interpolant
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

# The compiler aims a little below the error asked for, so that the independent checker, whose constants are its own,
# can confirm it.
BELOW = 1.0 - 2e-3
NO_FACTS = "the target is a callable and nothing was declared about it; the error is only observed"
PROOF = (
    "a proof would need the function as an expression, or in at most 4 variables its ellipses (`analytic=`) or derivatives "
    "(`derivatives=`) declared"
)
MANY = 4  # variables, from which a layer that is only observed says so


class Discontinuous(Refused):
    """The target jumps, so no method can follow it in the sup norm: the search ends."""


class Planned(Protocol):
    """A plan: pure data, which knows its tokens and its record."""

    @property
    def cells(self) -> int:
        """Tokens per output token."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The record that the file keeps."""
        ...


P = TypeVar("P", bound=Planned)


class Prover(Protocol):
    """What of a head its layers need when they are parts of another one: proofs of other numbers, plans of other temperatures."""

    def prove(self, layer: Any, plan: Any, request: Request, runtime: str) -> Certificate:
        """What is proved about a stored layer on one runtime."""
        ...

    def sharpened(self, plan: Any, r: float) -> Any:
        """The plan of the layer whose logits are r times as large."""
        ...


Ask = Callable[[Request, int | None], "Found"]  # a search for one part of an output, of fewer than so many tokens; or Refused


@dataclass(frozen=True)
class Found:
    """A plan carried out: its layer, certificate and cost; `prove(runtime)` certifies it for one runtime alone."""

    method: str
    plan: Planned
    layer: AnyLayer
    certificate: Certificate
    cost: Cost
    observed: Observed | None = None
    prove: Callable[[str], Certificate] | None = None
    head: "Prover | None" = None  # which made and proved it
    around: tuple[NDArray[np.float64], float] | None = None  # points and a radius, where the layer speaks of their balls alone
    pending: Pending | None = None  # the file that its values were written to, still to be finished
    request: Request | None = None  # what was asked for
    ended: str | None = None  # what was looked for when `max_seconds` was over, where a smaller layer may exist
    smaller: "Found | None" = None  # a layer of fewer tokens of which nothing is proved, where this one is


def grouped_cost(layer: GroupedLayer | OutputsLayer) -> Cost:
    """Tokens, bytes and flops of a grouped layer, or of layers side by side."""
    groups = [group for _, group in layer.members()] if layer.several else layer.groups
    flops = 40 * sum(sum(group.shape) for group in groups) + layer.nbytes // 2
    return Cost(layer.tokens, layer.nbytes, 4 * layer.nbytes, flops)


def search_worst(request: Request, found: Found, interpolant: Interpolant | None = None) -> Observed:
    """The largest error of a layer that a search finds; one above the proved bound is a fault and stops the compile.

    In the sup norm that error is known for certain (proofs/known_error.py); in L_p it is an estimate, which may be off.  A
    callable with an interpolant, or with few calls left, is asked at few points.
    """
    layer, flops = found.layer, found.cost.flops
    mapped = not layer.grouped and isinstance(layer.values, np.memmap)  # then `windowed` gives pages back
    local = local_evaluation(layer) if not layer.grouped and not mapped else None
    evaluate = partial(chooser.evaluate, layer) if local is None else local
    if local is not None or mapped:
        flops = min(flops, 40_000)
    request.progress("search for the worst point", 0, 1)
    if math.isfinite(request.norm):
        return observe_integral(evaluate, request.target, layer, request.norm, request.seed, flops, found.certificate.bound)
    start, reach = found.around or (None, 0.0)
    calls = request.target.calls
    if isinstance(calls, Calls) and start is None and (interpolant is not None or calls.left is not None):
        observed = observe_few(evaluate, request.target, layer, request.seed, flops, calls, interpolant)
        must_hold(observed.error, found.certificate.bound)
        return observed
    relative = found.certificate.pointwise
    observed = observe(evaluate, request.target, layer, request.seed, flops, start, reach, relative)
    must_hold(observed.error, found.certificate.bound)
    return observed


def as_asked(found: Found, request: Request) -> Found:
    """The same with its certificate relative to |f(x)| where that was asked for; what was observed is observed again."""
    asked, prove = request.pointwise, found.prove
    if asked is None:
        return found
    if found.certificate.bound is None:
        raise Refused(f"an error relative to |f(x)| must be proved, and it is not: {found.certificate.theorem}.")
    again = None if prove is None else lambda runtime: measured(prove(runtime), asked)
    observed = found.observed if found.certificate.pointwise else None
    return replace(found, certificate=measured(found.certificate, asked), prove=again, observed=observed)


def must_hold(observed: float, bound: float | None) -> None:
    """An error above the proved bound is a fault, and stops the compile."""
    if bound is not None and observed > bound:
        raise AssertionError(f"observed error {observed!r} exceeds the proved bound {bound!r}: please report this")


def literal_failure(layer: AnyLayer, certificate: Certificate, request: Request) -> str | None:
    """Why the literal softmax of a layer does not do, where one is asked for that meets the error."""
    if not request.literal or certificate.bound is None:
        return None
    bound = literal_bounds(layer, certificate)[compute_format(layer.dtype).name]
    if isinstance(bound, str):
        return bound
    return None if bound <= request.asked(certificate) * BELOW else f"the literal softmax is proved to {bound:.3g} only"


def largest_part(certificate: Certificate) -> str:
    """The largest term of a bound, by name."""
    worst = max(certificate.parts, key=lambda name: certificate.parts[name])
    return f"{worst.replace('_', ' ')} {certificate.parts[worst]:.3g}"


def agreed(found: Found, request: Request) -> tuple[Found, str | None]:
    """The layer, and None, or why the checker would refuse its file.

    Where the checker proves the error asked for and not the bound, whose rounding it counts in a coarser way, its own is stated.
    """
    verdict = _asked_checker(found, request)
    if verdict is None or (not isinstance(verdict, str) and verdict.passed):
        return found, None
    if isinstance(verdict, str):
        return found, verdict
    made, bound = found.certificate, verdict.bound
    plain = made.bound is not None and not made.within and request.pointwise is None and request.errors is None
    if not plain or bound is None or verdict.confirmed or not bound <= request.error * BELOW:
        return found, verdict.reason
    prove = None if found.prove is None else partial(_raised, found.prove, bound)
    found = replace(found, certificate=made.raised(bound), prove=prove)
    return found, unconfirmed(found, request)


def _raised(prove: Callable[[str], Certificate], bound: float, runtime: str) -> Certificate:
    return prove(runtime).raised(bound)


def unconfirmed(found: Found, request: Request) -> str | None:
    """None, or why the checker would refuse the file of this layer."""
    verdict = _asked_checker(found, request)
    return verdict if verdict is None or isinstance(verdict, str) else None if verdict.passed else verdict.reason


def _asked_checker(found: Found, request: Request) -> Verdict | str | None:
    """What the checker says of the file of this layer; None where it cannot be asked."""
    target, certificate = request.target, measured(found.certificate, request.pointwise)
    if target.expression is None and target.entries is None:
        return None
    tensors, description = to_tensors(found.layer)
    record = {
        "layer": description, "target": target.to_json(), "error": request.asked(certificate),
        "norm": certificate.norm_label, "certificate": certificate.to_json(), "plan": found.plan.to_json(),
        "declared": request.facts.declared.record(),
    }  # fmt: skip
    data = target.data if isinstance(target.data, Table | Samples) else None
    try:
        return check(tensors, record, data, request.progress)
    except BadInput as failure:
        return str(failure)
