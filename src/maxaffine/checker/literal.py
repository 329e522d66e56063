"""What a file claims of its literal form, and whether that is proved again.

The literal form is one softmax over all listed tokens: per query column g the group bias is added to the logits of the group g,
and the columns are added up.  It is what runtime `dense`, the matrices evaluated by hand, the literal module, MultiheadAttention
and the Attention operator of ONNX compute.  A record may claim a bound of it per arithmetic, {"float64": {"bound": b}} under
`literal`; where it claims none, nothing is said of the literal form.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from maxaffine.checker.proved import FORMS, NotProved, Proved

# The checker's own bound of a literal form may exceed the one claimed by this, since its constants are its own: for 300 layers of
# all heads and dtypes it is 0.4 to 1.27 times the one claimed.
CONFIRMS = 1.35


@dataclass(frozen=True)
class Claim:
    """A bound claimed of the literal form in one arithmetic, the checker's own, and why it is not confirmed."""

    arithmetic: str
    stated: float
    checked: float | None = None
    why: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether the checker's own bound is at most CONFIRMS times the one stated."""
        return self.checked is not None and self.checked <= CONFIRMS * self.stated


def claims_of(record: Mapping[str, Any]) -> tuple[Claim, ...]:
    """The claims of a record, doubted: known arithmetics, positive numbers; entries that are missing or null claim nothing."""
    stated = record.get("literal")
    if stated is None:
        return ()
    if not isinstance(stated, dict):
        raise NotProved("what it claims of its literal form cannot be read.")
    allowed = ("float64",) if record["layer"]["dtype"] == "float64" else ("float64", "float32")
    found = []
    for name, entry in sorted(stated.items()):
        if entry is None:
            continue
        if name not in allowed or not isinstance(entry, dict):
            raise NotProved(f"it claims a bound of its literal form in {str(name)[:20]!r}, which is not known.")
        bound = entry.get("bound")
        if bound is None:
            continue
        if type(bound) not in (int, float) or not (math.isfinite(bound) and bound > 0):
            raise NotProved(f"the bound it claims of its literal form in {name} is not a positive number.")
        found.append(Claim(name, float(bound)))
    return tuple(found)


def proved_again(claim: Claim, found: Proved) -> Claim:
    """The claim with the checker's own bound, or with what stands in the way."""
    named = f"Its literal form in {claim.arithmetic} is claimed to be within {claim.stated:.6g}"
    if found.literal is None:
        return replace(claim, why=f"{named}, and this checker proves no such claim of its kind of layer.")
    try:
        bound = found.literal(FORMS[claim.arithmetic], claim.stated)
    except NotProved as failure:
        return replace(claim, why=f"{named}, which is not proved: {failure}")
    if not math.isfinite(bound):
        return replace(claim, why=f"{named}, and the checker finds no bound at all.")
    checked = replace(claim, checked=bound)
    return checked if checked.confirmed else replace(checked, why=f"{named}, and the checker's own bound is {bound:.6g}.")
