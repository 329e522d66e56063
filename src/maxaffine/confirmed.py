"""What a loaded layer states once the checker has passed it: nothing below what the checker itself proved.

The checker's constants are its own, so it passes bounds that are up to a fifth below its own; a file that was edited by so much
passes as well.  From then on the larger of both numbers is stated.
"""

from collections.abc import Mapping
from dataclasses import replace

from maxaffine.checker import Verdict
from maxaffine.proofs.certificate import Certificate

Literal = Mapping[str, float | str]


def confirmed(certificate: Certificate, literal: Literal, verdict: Verdict) -> tuple[Certificate, dict[str, float | str]]:
    """Certificate and literal bounds of a layer whose file passed with this verdict."""
    assert verdict.bound is not None
    found = certificate.raised(verdict.bound)
    if found.within:
        assert len(found.within) == len(verdict.parts)
        found = replace(found, within=tuple(one.raised(own) for one, own in zip(found.within, verdict.parts, strict=True)))
    if verdict.largest is not None:
        found = found.with_details(largest=max(float(found.details["largest"]), verdict.largest))
    checked = {claim.arithmetic: claim.checked for claim in verdict.claims}
    said: dict[str, float | str] = {}
    for name, stated in literal.items():
        own = checked.get(name)
        said[name] = max(stated, own) if isinstance(stated, float) and own is not None else stated
    return found, said
