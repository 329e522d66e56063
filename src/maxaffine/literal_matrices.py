"""The literal matrices of a compiled layer, with what is proved of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from maxaffine.core.budget import afford_bytes, count_text
from maxaffine.layer.matrices import matrices, matrices_bytes
from maxaffine.layer.records import CrossMatrices, SelfMatrices

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled


def of(compiled: Compiled, kind: str, layout: str | None, correction: str, bonus: float | None) -> SelfMatrices | CrossMatrices:
    """Kind "self" in layout Q, K or I, or "cross"; refused where they would not fit into the memory."""
    weights, what = compiled.weights, f"the literal matrices of {count_text(compiled.tokens)} tokens"
    if weights.grouped:
        afford_bytes(8 * compiled.tokens * (weights.dimension + 64), what, "ask for a larger error")
        return _stated(compiled, matrices(weights, kind, layout))
    if kind in ("self", "cross"):
        bytes_needed = matrices_bytes(weights, kind, layout or "Q")
        afford_bytes(bytes_needed, what, 'use layout "K", "cross", or a larger `error`')
    made = matrices(weights, kind, layout, correction, bonus)
    return made if (correction, bonus) != ("output", None) else _stated(compiled, made)


def _stated(compiled: Compiled, made: SelfMatrices | CrossMatrices) -> SelfMatrices | CrossMatrices:
    """The matrices with what is proved of them, or which numbers would hold the error."""
    if isinstance(made, SelfMatrices) and made.layout == "K":
        return replace(made, said="not covered: layout K adds scores up in x, not in x - centre; Q and I are covered")
    said = compiled.statement("matrices")
    bits = said.bits_for(compiled.error)
    wanted = "" if bits is None else f"; a mantissa of {bits} bits would hold {compiled.error:g}, or compile with literal=True"
    return replace(made, said=f"{said}{wanted}")
