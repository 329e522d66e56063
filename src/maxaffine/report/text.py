"""What a person reads about a compiled layer: the summary, the diagnosis, the citation."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from maxaffine.core.budget import size
from maxaffine.core.errors import BadInput
from maxaffine.heads.lookup import theorems
from maxaffine.heads.spectral.plan import one_more
from maxaffine.proofs.literal import MOST_TOKENS
from maxaffine.report import entries
from maxaffine.report.scope import in_words
from maxaffine.runtime import chooser

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.proofs.observe import Observed
    from maxaffine.proofs.statement import Statement

CLUSTER_MEANING = {
    "approximation": "the pieces inside the clusters against the target",
    "leakage": "the blend between clusters where they meet (finite sharpness)",
}
SPECTRAL_MEANING = {
    "approximation": "the head's functions against the target, from points and ellipses",
    "leakage": "weight that groups of a sum head give each other",
}
MEANING = {
    "approximation": "one value per cell",
    "leakage": "weight outside the nearest cell (finite sharpness)",
    "rounding": "finite precision of keys, values, logits and sums",
    "target_rounding": "doubt about the target's own values",
}


def summary(compiled: Compiled) -> str:
    """A few lines: what was compiled, what is proved, what was observed."""
    c = compiled
    clustered = c.weights.has_clusters
    keys = c.weights.layout() + ("" if clustered else " keys")
    kind = "hard" if c.method == "hard" else "softmax"
    lines = [
        f"target     {c.target.name or c.target.text or 'callable'}",
        f"layer      one {kind} head, {c.attention_kind}-attention, {c.tokens:,} token{'' if c.tokens == 1 else 's'} ({keys}), "
        f"{c.method}, "
        f"{'' if c.sharpness is None else f'sharpness {c.sharpness:.4g}, '}{c.dtype}, {size(c.weights.nbytes)}",
    ]
    norm = c.certificate.norm_name
    if c.bound is None:
        lines.append(f"proved     nothing: {c.certificate.theorem}")
    else:
        lines.append(f"{c.certificate.kind:<10} error <= {c.bound:.6g} in the {norm} (asked: {c.error:g})")
        lines.append(f"           by {c.certificate.theorem}")
        lines.append(f"           for {in_words(c.certificate.scope)}")
    small = entries.smaller(c)
    if small:
        lines.append(f"size       {small}")
    lines.append(f"observed   {_observed(c.observed, c.bound)} (not a bound)")
    if c.standing == "stated" and c.bound is not None:
        lines.append("standing   stated in the file, not checked; layer.check() proves it again")
    literal = _literal(c)
    if literal:
        lines.append(f"literal    {literal}")
    return "\n".join(lines)


def _observed(found: Observed, bound: float | None = None) -> str:
    """What the number is: the largest error seen, or an estimate of an integral, which may lie above the bound by its noise."""
    if math.isinf(found.norm):
        return f"error {found.error:.6g} over {found.points:,} points"
    doubt = "" if found.standard_error is None else f" +- {found.standard_error:.1g} (standard error)"
    noise = bound is not None and found.surely <= bound < found.error
    above = ", above the bound by the noise of the estimate alone" if noise else ""
    return f"error {found.error:.4g}{doubt}, estimated from {found.points:,} points{above}"


def explain(compiled: Compiled, batch: int | None = None, device: str = "cpu") -> str:
    """Which part of the bound dominates, what to change, which runtime runs the layer, and what the batch decides."""
    c = compiled
    if device not in ("cpu", "cuda"):
        raise BadInput(f'`device` (={device!r}) must be "cpu" or "cuda".')
    lines = [summary(c)]
    if c.bound is not None:
        lines.append("parts of the bound")
        meaning = {**MEANING, **SPECTRAL_MEANING} if c.method == "spectral" else MEANING
        if c.weights.has_clusters:
            meaning = {**MEANING, **CLUSTER_MEANING}
        if c.certificate.scope.over == "entries":
            meaning = entries.MEANING
        for name, part in sorted(c.certificate.parts.items(), key=lambda item: -item[1]):
            lines.append(f"  {name:<16} {part:10.4g}  {100 * part / c.bound if c.bound else 0:5.1f}%  {meaning[name]}")
        lines.append("advice     " + _advice(c))
        if c.certificate.scope.over == "entries":
            lines.append("between    " + entries.between(c))
        lines.append("assumes")
        lines += [f"  {line}" for line in c.certificate.assumptions]
    else:
        lines.append("advice     give an expression, or declare `lipschitz=` or `modulus=`, to have the error proved")
    name, reason = c.runtime()
    lines.append(f"runtime    {name}: {reason}")
    lines.append(f"batches    {chooser.how_it_runs(c.weights, c.reserve, None, None, name)}")
    if batch is not None:
        lines.append(f"batch      {chooser.how_it_runs(c.weights, c.reserve, batch, None, name)}")
    lines.append("routes     the error that is proved of every way to run this layer")
    lines += routes(c, device)
    return "\n".join(lines)


def _literal(c: Compiled) -> str | None:
    """A warning where the literal softmax over all tokens, in this dtype, is not proved to reach the error asked for."""
    if c.bound is None or c.method == "hard" or (not c.weights.grouped and c.tokens > MOST_TOKENS):
        return None
    said = c.statement("multihead")
    if said.bound is None:
        return f"nothing is proved of the softmax over all tokens in {said.dtype}: {said.why}"
    if said.bound <= c.error:
        return None
    bits = said.bits_for(c.error)
    return (
        f"the softmax over all tokens in {said.dtype} is proved to {said.bound:.3g} only: its logits are rounded"
        f"{'' if bits is None else f' (a mantissa of {bits} bits would do)'}; "
        "literal=True (--literal) asks for a layer whose literal form meets the error"
    )


def routes(compiled: Compiled, device: str = "cpu") -> list[str]:
    """Every way to run a layer on a device with what is proved of it, a line each."""
    found = [one for one in compiled.statements() if one.device in ("cpu", device)]
    width = max(len(_route(one)) for one in found)
    shown = ["not covered" if one.bound is None else f"{one.bound:.4g}" for one in found]
    return [f"  {_route(one):<{width}}  {bound:<11}  {one.why}" for one, bound in zip(found, shown, strict=True)]


def _route(said: Statement) -> str:
    return f"{said.route}, {said.dtype}" + ("" if said.device == "cpu" else f", {said.device}")


def _advice(c: Compiled) -> str:
    parts = c.certificate.parts
    if c.method == "hard":
        return "the nearest entry answers as it is stored; only a wider dtype is closer" if c.bound else "nothing: it is exact"
    worst = max(parts, key=lambda name: parts[name])
    if c.certificate.scope.over == "entries":
        return entries.advice(c)
    if c.method == "spectral":
        return _spectral_advice(c, worst)
    if c.weights.grouped:
        return _cluster_advice(c, worst)
    assert c.sharpness is not None
    if worst == "rounding":
        return f"rounding in {c.dtype} dominates; use a wider dtype or ask for a larger error, which needs fewer cells"
    if worst == "leakage" and math.isfinite(c.norm):
        return "the transition layers between cells dominate; a larger sharpness costs no tokens"
    if worst == "leakage":
        return f"the softmax is soft (sharpness {c.sharpness:.3g}); a larger sharpness costs no tokens"
    if worst == "target_rounding":
        return "the target's own evaluation is the limit; nothing about the layer would help"
    counts = c.weights.keys.shape
    if c.certificate.argument == "C":
        return "one value for the whole box: half the range of the target is below the error; a smaller `error` adds tokens"
    if not c.weights.is_product:
        return "the size of the cells dominates; more or better placed sites are what would help"
    more = math.prod(n + 1 for n in counts) * c.weights.n_out
    gain = 1.0 - min(n / (n + 1) for n in counts if n > 1) if max(counts) > 1 else 0.0
    excess = 2.0 * theorems.mean_distance(c.sharpness) - 1.0
    return (
        f"the size of the cells dominates: one more cell per axis ({more:,} tokens) lowers it by {100 * gain:.1f}%; "
        f"the sharpness costs {100 * excess:.2g}% of it"
    )


def _cluster_advice(c: Compiled, worst: str) -> str:
    """What dominates a layer of clusters."""
    if worst == "rounding":
        return f"rounding in {c.dtype} dominates; a wider dtype helps, more tokens do not"
    if worst == "target_rounding":
        return "the target's own evaluation is the limit; nothing about the layer would help"
    if worst == "leakage":
        return "the blend between clusters dominates; steeper sites cost no tokens, and a smaller `error` makes them steeper"
    return "the fit inside the clusters dominates; a smaller `error` adds tokens"


def _spectral_advice(c: Compiled, worst: str) -> str:
    """What dominates, and what one more token per direction would buy."""
    if worst == "rounding":
        return f"rounding in {c.dtype} dominates; a wider dtype helps, more tokens do not"
    if worst == "target_rounding":
        return "the target's own evaluation is the limit; nothing about the layer would help"
    if c.spectral is None:
        return "the fit dominates; a smaller `error` adds tokens, each of which divides it by the target's rate of convergence"
    lines = []
    for made in c.spectral.groups:
        gains = one_more(made, c.error, c.dtype)
        if gains is not None:
            now, then = gains
            keys = " x ".join(str(len(axis)) for axis in made.axes)
            lines.append(f"a group of {keys} keys from {now:.2g} to {then:.2g}")
    more = "; ".join(lines[:4]) + (" ..." if len(lines) > 4 else "")
    return f"the fit dominates; one more token per direction would take {more}" if more else "the fit dominates"


def as_html(compiled: Compiled) -> str:
    """The summary for notebooks."""
    return f"<pre>{html.escape(summary(compiled))}</pre>"


PAPER = (
    "Liu, Hu, Song, Liu: Attention Mechanism, Max-Affine Partition, and Universal Approximation. "
    "NeurIPS 2025, arXiv 2504.19901."
)
OURS = "The maxaffine developers: maxaffine, docs/theory.md."


def cite(compiled: Compiled) -> str:
    """The theorems and papers that this compile used."""
    lines = [
        PAPER,
        "  the construction: attention as a max-affine partition, value reassignment (Propositions 3.2, 3.3)",
    ]
    if compiled.bound is not None:
        lines += [OURS, f"  {compiled.certificate.theorem}"]
    return "\n".join(lines)
