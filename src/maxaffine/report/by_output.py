"""Layers of several outputs, told output by output: tokens, method, and what is proved of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text
from maxaffine.proofs.side_by_side import adding_up, over_entries, scale_of

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled

MOST = 12  # parts that a summary lists


def bounds(compiled: Compiled) -> Array | None:
    """The proved bound of every output, in the target's shape; that of the layer where its outputs share a head."""
    c = compiled
    if c.certificate.bound is None:
        return None
    found = np.full(c.weights.d_out * c.weights.n_out, c.certificate.bound)
    if c.weights.several and c.certificate.within:
        found = over_entries(c.weights, _part_bounds(c)) + adding_up(c.weights)
    return found.reshape(c.target.output_shape)


def _part_bounds(c: Compiled) -> list[float]:
    """The bounds of the parts in the norm of the layer."""
    assert c.weights.several
    width, found = c.weights.high - c.weights.low, []
    for part, one in zip(c.weights.parts, c.certificate.within, strict=True):
        assert one.bound is not None
        found.append(one.bound * scale_of(width, part.layer.high - part.layer.low, c.certificate.norm, one.norm))
    return found


def rows(compiled: Compiled) -> list[dict[str, Any]]:
    """Every part as plain data: its outputs (row, token) counted from 1, its tokens, method and bound; what it is a term of."""
    c = compiled
    if not c.weights.several:
        return []
    told = _part_bounds(c) if c.certificate.within else [None] * len(c.weights.parts)
    made, several = [], over_entries(c.weights, [1.0] * len(c.weights.parts)) > 1.0
    for part, own, bound, planned in zip(c.weights.parts, c.weights.writes(), told, c.plan["parts"], strict=True):
        places = [[e // c.weights.n_out + 1, e % c.weights.n_out + 1] for _, e, _ in own]
        row = {"outputs": places, "tokens": part.layer.tokens, "method": planned["method"], "bound": bound}
        made.append({**row, "term": True} if any(several[e] for _, e, _ in own) else row)
    return made


def asked(error: float, errors: Sequence[float] | None) -> str:
    """The error asked for, or those of the outputs in their order, row by row; of many their range."""
    if errors is None:
        return f"{error:g}"
    return ", ".join(f"{one:g}" for one in errors) if len(errors) <= MOST else f"{min(errors):g} to {max(errors):g}"


def lines(compiled: Compiled) -> list[str]:
    """A line for every part, the first ones of many."""
    found = rows(compiled)
    if not found:
        return []
    tokens = compiled.weights.n_out > 1
    cells = []
    for row in found[:MOST]:
        places = ", ".join(f"({r}, {c})" if tokens else str(r) for r, c in row["outputs"])
        many = f"{count_text(row['tokens'])} token{'' if row['tokens'] == 1 else 's'}"
        bound = "" if row["bound"] is None else f"{'adds ' if 'term' in row else ''}error <= {row['bound']:.6g}"
        cells.append((places, many, row["method"], bound))
    widths = [max(len(cell[i]) for cell in cells) for i in range(3)]
    texts = ["  ".join((*(text.ljust(width) for text, width in zip(cell, widths, strict=False)), cell[3])) for cell in cells]
    if len(found) > MOST:
        texts.append(f"and {len(found) - MOST} more")
    return [f"{'outputs' if i == 0 else '':<10} {text}".rstrip() for i, text in enumerate(texts)]
