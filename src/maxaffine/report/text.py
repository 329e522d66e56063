"""What a person reads about a compiled layer: the summary, the diagnosis, the citation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from maxaffine.core.budget import count_text, size
from maxaffine.core.errors import BadInput
from maxaffine.layer.temperature import Sharpened
from maxaffine.proofs.literal import MOST_TOKENS
from maxaffine.proofs.routes import statements
from maxaffine.report import advice, by_output
from maxaffine.report.scope import in_words
from maxaffine.runtime import chooser

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled
    from maxaffine.heads.found import Found
    from maxaffine.proofs.observe import Observed
    from maxaffine.proofs.statement import Statement
    from maxaffine.target.target import Target

LONGEST = 400  # characters of a target that are shown


def short(compiled: Compiled) -> str:
    """A layer in a line."""
    c = compiled
    bound = "no bound" if c.bound is None else f"bound {c.bound:.4g}"
    bound = bound if c.certificate.drawn is None else c.certificate.drawn.words
    bound += " (stated, not checked)" if c.standing == "stated" and c.bound is not None else ""
    what = c.target.name or c.target.text or "callable"
    where = f" {c.certificate.where}" if c.certificate.scope.over == "entries" else ""
    return (
        f"<maxaffine.Compiled {what[:40]!r}: {c.method}, {count_text(c.tokens)} tokens, {bound}, "
        f"{c.certificate.kind}{where}, observed {c.observed.error:.3g}, {c.dtype}>"
    )


def rewritten(target: Target) -> list[str]:
    """A line where a target was rewritten, so that differences do not cancel (target/rewritten.py): as what."""
    if target.published is None or target.expression is None:
        return []
    return [f"as         {target.expression.describe(target.expression.outputs[0])}    the same function"]


def summary(compiled: Compiled) -> str:
    """A few lines: what was compiled, what is proved, what was observed."""
    c = compiled
    clustered = c.weights.has_clusters
    keys = c.weights.layout() + ("" if clustered else " keys")
    kind = "hard" if c.method == "hard" else "softmax"
    lines = [
        f"target     {_name(c)}",
        f"layer      one {kind} head, {c.attention_kind}-attention, {count_text(c.tokens)} token"
        f"{'' if c.tokens == 1 else 's'} ({keys}), {c.method}, "
        f"{'' if c.sharpness is None else f'sharpness {c.sharpness:.4g}, '}{c.dtype}, {size(c.weights.nbytes)}",
    ]
    reading = c.target.traced
    if reading is not None:
        far = f"; it and the target are {reading.agreement}" if reading.text is not None else ""
        lines.insert(1, f"function   {reading.name}, {reading.how}{far}")
    if c.target.boxes is not None:
        query, context = (", ".join(box.names) for box in c.target.boxes)
        lines.insert(1, f"inputs     two: the query {query}, and the context {context}, which keys and values are made of")
    if c.target.continued:
        lines.insert(1, "continued  quotients such as sin(u)/u are their limits where they are 0/0: the continuous extension")
    lines[1:1] = rewritten(c.target)
    told, word = Sharpened.of(c.plan, c.error), "asked"
    if told.by:
        lines.append(f"sharpened  every logit times {told.factor:.6g}; it was compiled for an error of {told.asked:g} at 1")
        word = "promised"
    drawn = c.certificate.drawn
    if drawn is not None:
        lines += [f"statistical {drawn.words} ({word}: {c.error:g})", f"           {drawn.how}"]
    elif c.bound is None:
        lines.append(f"proved     nothing: {c.certificate.theorem}")
    else:
        asked = by_output.asked(c.error, c.errors)
        lines.append(f"{c.certificate.kind:<10} error <= {c.bound:.6g} {c.certificate.where} ({word}: {asked})")
        lines.append(f"           by {c.certificate.theorem}")
        lines.append(f"           for {in_words(c.certificate.scope)}")
        if c.certificate.least is not None:
            lines.append(f"           where |f| >= {c.certificate.least:.6g}, so that no error is divided by zero")
    lines += by_output.lines(c)
    lines += _size(c)
    relative = " of |f(x)|" if c.certificate.pointwise else ""
    lines.append(f"observed   {observed_text(c.observed, c.bound, relative)} (not a bound)")
    if c.found is not None and c.found.ended is not None:
        lines.append(f"time       {c.found.ended}: a smaller layer may exist")
    if c.found is not None and c.found.smaller is not None:
        lines.append(_smaller(c.found.smaller))
    if drawn is not None:
        lines.append(f"calls      the function was evaluated at {drawn.fit:,} points to fit, and at {drawn.calls:,} drawn ones")
    elif c.calls is not None:
        lines.append(f"calls      the function was evaluated at {c.calls:,} points")
    if c.standing == "stated" and drawn is not None:
        lines.append("standing   stated in the file; a draw can be repeated with the function, not from the file")
    if c.standing == "stated" and c.bound is not None:
        lines.append("standing   stated in the file, not checked; layer.check() proves it again")
    return "\n".join(lines + _literal(c))


def _name(c: Compiled) -> str:
    """The name of the target; of a function that was read the expression itself."""
    shown = c.target.text if c.target.traced is not None and c.target.text else c.target.name or c.target.text or "callable"
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


def _smaller(found: Found) -> str:
    """What is given up by a proof from declared facts, and how to have it."""
    seen = "" if found.observed is None else f", error {found.observed.error:.3g} observed"
    return f'smaller    method="{found.method}" gives {_count(found.cost.tokens, "token")}{seen}, nothing proved'


def _apart(c: Compiled) -> list[str]:
    """How a separated layer takes its target apart."""
    if c.method != "separated" or "sizes" not in c.plan:
        return []
    (group,), sizes, sums = c.weights.products(), c.plan["sizes"], c.plan["sums"]  # type: ignore[union-attr]
    blocks = f"{len(sizes)} blocks of " if max(sizes) > 1 else ""
    lines = [f"split      {_count(group.rank, 'product')} over {blocks}{_count(sum(sizes), 'direction')}"]
    for one in sums:
        terms = len(one["exponents"]) + (one["constant"] != 0.0)
        lines.append(f"           an outer function as a sum of {_count(terms, 'exponential')}")
    return lines + [f"           by {name}" for name in c.plan.get("identities", [])]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _size(c: Compiled) -> list[str]:
    """How many bytes the layer takes where the table takes others; nothing where the table is not at hand."""
    data = c.target.data
    if data is None or not hasattr(data, "nbytes"):
        return []
    own, ratio = c.weights.nbytes, data.nbytes / c.weights.nbytes
    times = f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"
    return [f"size       {size(data.nbytes)} of axes and values against {size(own)} of keys and values, {times} as much"]


def observed_text(found: Observed, bound: float | None = None, of: str = "") -> str:
    """What the number is: the largest error seen, or an estimate of an integral, which may lie above the bound by its noise."""
    if math.isinf(found.norm):
        return f"error {found.error:.6g}{of} over {found.points:,} points"
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
    lines += _apart(c)
    if c.bound is not None:
        lines.append("parts of the bound")
        meaning = advice.meaning(c)
        for name, part in sorted(c.certificate.parts.items(), key=lambda item: -item[1]):
            lines.append(f"  {name:<16} {part:10.4g}  {100 * part / c.bound if c.bound else 0:5.1f}%  {meaning[name]}")
        lines.append(f"advice     {advice.advice(c)}")
        if c.target.entries is not None and c.certificate.scope.over == "entries":
            kind = "entries" if c.target.entries.kind == "table" else "samples"
            between = "returns the value of the nearest entry" if c.method == "hard" else "is smooth"
            lines.append(
                f"between    the bound holds at the {c.target.entries.count:,} {kind} and nowhere else: between them the layer "
                f"{between}, and nothing is claimed about it"
            )
        lines += ["assumes", *(f"  {line}" for line in c.certificate.assumptions)]
    elif c.certificate.drawn is not None:
        lines += ["assumes", *(f"  {line}" for line in c.certificate.assumptions)]
    else:
        lines.append("advice     give an expression, or declare `lipschitz=` or `modulus=`, to have the error proved")
    name, reason = c.runtime()
    lines.append(f"runtime    {name}: {reason}")
    lines.append(f"batches    {chooser.how_it_runs(c.weights, c.reserve, None, None, name)}")
    if batch is not None:
        lines.append(f"batch      {chooser.how_it_runs(c.weights, c.reserve, batch, None, name)}")
    if c.bound is None and c.certificate.drawn is None:
        return "\n".join([*lines, "routes     nothing is proved of any way to run this layer"])
    at = " at the entries" if c.certificate.scope.over == "entries" else ""
    head = f"the proved error{at}" if c.bound is not None else "what the draw says"
    lines.append(f"routes     {head} of every way to run this layer")
    lines += routes(c, device)
    return "\n".join(lines)


def _literal(c: Compiled) -> list[str]:
    """A warning where the literal softmax over all tokens, in this dtype, is not proved to reach the error asked for."""
    if c.bound is None or c.method == "hard" or (not c.weights.grouped and c.tokens > MOST_TOKENS):
        return []
    said = c.statement("multihead")
    if said.bound is None:
        return [f"literal    nothing is proved of the softmax over all tokens in {said.dtype}: {said.why}"]
    if said.bound <= c.error:
        return []
    bits = said.bits_for(c.error)
    enough = "" if bits is None else f" (a mantissa of {bits} bits would be enough)"
    return [
        f"literal    the softmax over all tokens in {said.dtype} is proved to {said.bound:.3g} only: its logits are rounded"
        f"{enough}; use literal=True (--literal) for a layer whose literal form meets the error"
    ]


def routes(compiled: Compiled, device: str = "cpu") -> list[str]:
    """Every way to run a layer on a device with what is proved of it, a line each."""
    found = statements(compiled, tuple(dict.fromkeys(("cpu", device))))
    width = max(len(_route(one)) for one in found)
    shown = [one.short for one in found]
    return [f"  {_route(one):<{width}}  {bound:<11}  {one.why}" for one, bound in zip(found, shown, strict=True)]


def _route(said: Statement) -> str:
    return f"{said.route}, {said.dtype}" + ("" if said.device == "cpu" else f", {said.device}")


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
