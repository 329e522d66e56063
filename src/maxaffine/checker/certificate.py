"""What a certificate states besides a number: the norm, the dtype, the runtimes and the scope must be those proved here."""

import math
from collections.abc import Mapping
from typing import Any

from maxaffine.checker.literal import Claim
from maxaffine.checker.proved import NotProved
from maxaffine.core.errors import BadInput
from maxaffine.core.scope import Scope


def stated_scope(certificate: Mapping[str, Any]) -> Scope:
    """The x that a certificate speaks of."""
    try:
        return Scope.of(certificate)
    except BadInput as failure:
        raise NotProved(f"{failure}.") from None


def stated_gap(record: Mapping[str, Any]) -> float | None:
    """The gap about jumps that the certificate excludes, which the plan must have as well (format 1 states six digits of it)."""
    gap, planned = stated_scope(record["certificate"]).gap, record["plan"].get("gap")
    if gap is None:
        return None
    if not gap > 0.0 or not isinstance(planned, float) or not abs(planned - gap) <= 1e-5 * gap:
        raise NotProved("the gap about the jumps of its target is not the one its certificate speaks of.")
    return gap


def stated_norm(record: Mapping[str, Any], most: float = math.inf) -> float:
    """p of the L_p norm that a record speaks of, from 1 to `most`; infinite for the sup norm."""
    norm = math.inf if record["norm"] == "inf" else float(record["norm"])
    if not norm >= 1.0 or most < norm < math.inf:
        raise NotProved(f"its norm (={str(record['norm'])[:20]!r}) is neither the sup norm nor L_p with p from 1 to {most:g}.")
    return norm


def stated_reserve(record: Mapping[str, Any]) -> float:
    """What a file reserves for runtimes that evaluate polynomials in place of a head."""
    reserve = float(record["certificate"].get("details", {}).get("collapse", 0.0))
    if not 0.0 <= reserve < math.inf:
        raise NotProved("what it reserves for a collapse is not a number of at least 0.")
    return reserve


def stated_bound(claimed: Any) -> float:
    """The bound that a file states; not a number where it states none."""
    return float(claimed) if isinstance(claimed, (int, float)) and not isinstance(claimed, bool) else math.nan


def doubt_certificate(record: Mapping[str, Any], claims: tuple[Claim, ...], own_scope: bool) -> None:
    """NotProved where a certificate speaks of anything else; `own_scope`: a rule compares the scope itself."""
    certificate, layer, plan = record["certificate"], record["layer"], record["plan"]
    if certificate.get("norm") != record["norm"]:
        raise NotProved(f"its certificate speaks of the norm {str(certificate.get('norm'))[:20]!r}, its record of another.")
    if layer.get("hard", False) is not False:
        raise NotProved("it answers with the nearest key alone, which is proved for tables and samples only.")
    if certificate.get("dtype") != layer["dtype"]:
        raise NotProved("its certificate speaks of another dtype than the one its numbers are stored in.")
    clusters = layer["keys"] == "grouped" and any(layer.get("clusters", ()))
    if certificate.get("runtime") not in ("any", "two-level" if clusters else "arrays"):
        raise NotProved(f"its certificate speaks of the runtime {str(certificate.get('runtime'))[:20]!r} alone; not re-proved.")
    if certificate["runtime"] == "any":
        # "any" is every form: the literal one as well, which is a claim of its own
        stated = stated_bound(certificate.get("bound"))
        if not any(claim.arithmetic == "float64" and claim.stated <= stated for claim in claims):
            raise NotProved("its certificate speaks of every runtime, and nothing as small is claimed of its literal form.")
    own_scope = own_scope or (layer["keys"] == "listed" and plan.get("plan") == "centres")
    if not own_scope and not Scope("box" if record["norm"] == "inf" else "integral").covers(stated_scope(certificate)):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")
