"""What a person reads about a layer for a table or samples: that its bound is one at entries, and what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxaffine.core.budget import size

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled

MEANING = {
    "approximation": "the layer against the values, at the worst entry",
    "leakage": "not counted apart: the layer is evaluated as it is",
    "rounding": "finite precision of logits and sums, in this verification and in any runtime",
    "target_rounding": "none: the values are the table's own numbers",
}


def between(c: Compiled) -> str:
    """The line that keeps a bound at entries from being read as one over the box."""
    entries = c.target.entries
    assert entries is not None
    smooth = "is the value of the nearest entry" if c.method == "hard" else "is smooth"
    return (
        f"the bound holds at the {entries.count:,} {'entries' if entries.kind == 'table' else 'samples'} and nowhere else: "
        f"between them the layer {smooth}, and nothing is claimed about it there"
    )


def smaller(c: Compiled) -> str | None:
    """How many bytes the layer takes where the table takes others; None where the table is not at hand."""
    data = c.target.data
    if data is None or not hasattr(data, "nbytes"):
        return None
    own, ratio = c.weights.nbytes, data.nbytes / c.weights.nbytes
    times = f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"
    return f"{size(data.nbytes)} of axes and values against {size(own)} of keys and values, {times} as much"


def advice(c: Compiled) -> str:
    """What dominates, and what to change."""
    parts = c.certificate.parts
    entries = c.target.entries
    assert entries is not None
    if c.method == "hard":
        return "one token per entry answers alone; ask for an `error` and fewer tokens may do"
    if c.tokens >= entries.count:
        return "the values are rough: no fewer tokens than entries reached the error; ask for a larger one"
    if parts["rounding"] > parts["approximation"]:
        return f"rounding in {c.dtype} dominates; a wider dtype helps, more tokens do not"
    return "the fit dominates; a smaller `error` adds tokens, a larger one takes some away"
