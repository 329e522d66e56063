"""The direct form of a layer's target, within the bound that the layer states: made at the first use, and kept.

It follows from the target and that bound alone, so a loaded layer has the same one, and its answers the same bits.
"""

import math
from dataclasses import replace
from typing import Any, Protocol

from maxaffine.core import boxes
from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.rounding import compute_dtype, compute_format, dtype_of
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.proofs.assumptions import ELEMENTARY, FLINT
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.direct import Direct, direct, formed
from maxaffine.runtime.direct import as_answers
from maxaffine.runtime.direct import evaluate as run
from maxaffine.runtime.gpu.direct import DirectProgram, direct_program
from maxaffine.runtime.kept import once
from maxaffine.target.target import Target

THEOREM = "the target's own formula by short polynomials, each proved by itself, and every rounding added up"
ON_DEVICE = "the target's own formula in one kernel, every series and rounding of that dtype added up"
ASSUMED = (ELEMENTARY, FLINT, "sums, products, quotients and square roots follow IEEE 754")


class Source(Protocol):
    """What a form is made of: a compiled or loaded layer."""

    @property
    def target(self) -> Target: ...  # noqa: D102
    @property
    def weights(self) -> AnyLayer: ...  # noqa: D102
    @property
    def certificate(self) -> Certificate: ...  # noqa: D102


def form(source: Source) -> Direct | str:
    """The form, or why there is none, without a full stop."""
    return _form(source)


def why_not(source: Source) -> str | None:
    """Why a layer has none; None where it has one."""
    found = form(source)
    return found if isinstance(found, str) else None


@once
def _form(source: Source) -> Direct | str:
    filed = getattr(source, "filed", None)
    certificate: Certificate = filed[0] if filed else source.certificate  # a check may raise a bound, and changes no bit
    target = source.target
    if target.expression is None:
        return "its target is no formula"
    if certificate.bound is None:
        return certificate.theorem.rstrip(".")
    if not math.isinf(certificate.norm) or certificate.pointwise or certificate.scope.over != "box":
        return "its error is not meant in the sup norm over the box"
    format_ = compute_format(source.weights.dtype)
    try:
        return direct(
            target.expression, target.box.low, target.box.high, certificate.bound,
            certificate.scope.inputs == "real", 0.0 if format_.name == "float64" else format_.unit,
        )  # fmt: skip
    except Refused as refusal:
        return str(refusal).rstrip(".")


def evaluate(source: Source, x: Array, threads: int | None = None) -> AnyArray:
    """Values (B, d_out, n_out) at points (B, D) of the box; BadInput where there is no form."""
    made = form(source)
    if isinstance(made, str):
        raise BadInput(f"`runtime` (='direct') cannot run this layer: {made}.")
    target = source.target
    return as_answers(run(made.program, x, threads), target.d_out, target.n_out, compute_dtype(source.weights.dtype))


PARTS = {1: 64, 2: 8, 3: 4, 4: 3, 5: 2, 6: 2}  # of a side: roundings are bounded box by box
FINEST = 1e-30  # series as good as the dtype has them


@once
def on_device(source: Source, dtype: str) -> DirectProgram | str:
    """The form for tensors of a dtype on a GPU, in its arithmetic and with a bound of its own, or why there is none.

    Its queries are numbers of the dtype and are not rounded.  Its series are the same on every part of the box.
    """
    target, certificate = source.target, source.certificate
    if target.expression is None:
        return "its target is no formula"
    if certificate.bound is None:
        return certificate.theorem.rstrip(".")
    if not math.isinf(certificate.norm) or certificate.pointwise or certificate.scope.over != "box":
        return "its error is not meant in the sup norm over the box"
    low, high, format_ = target.box.low, target.box.high, dtype_of(dtype)
    sides = boxes.grid(low, high, PARTS.get(len(low), 1))
    try:
        columns, outputs, whole = formed(target.expression, low, high, FINEST, False, 0.0, format_, math.inf)
        rows, bound = columns.listed(outputs), 0.0
        for least, most in zip(*sides, strict=True):
            made, places, off = formed(target.expression, least, most, FINEST, False, 0.0, format_, math.inf)
            if made.listed(places) != rows:  # where a part is known to be simpler than the whole
                bound = whole
                break
            bound = max(bound, off)
        return direct_program(*rows, low, high, dtype, bound)
    except Refused as refusal:
        return str(refusal).rstrip(".")


def certificate_of(source: Source) -> Certificate:
    """The layer's certificate with the form's own bound."""
    made = form(source)
    if isinstance(made, str):
        raise BadInput(f"`runtime` (='direct') cannot run this layer: {made}.")
    parts: dict[str, Any] = {"approximation": made.bound, "leakage": 0.0, "rounding": 0.0, "target_rounding": 0.0}
    return replace(
        source.certificate, bound=made.bound, parts=parts, runtime="direct", theorem=THEOREM, assumptions=ASSUMED, details={},
        blends=(), within=(),
    )  # fmt: skip
