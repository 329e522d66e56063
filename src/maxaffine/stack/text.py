"""What a person reads about a stack: the summary, its nodes with their shares of the bound, the citation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from maxaffine.core.errors import BadInput
from maxaffine.report.scope import in_words
from maxaffine.report.text import OURS, PAPER, rewritten
from maxaffine.stack.routes import statements

if TYPE_CHECKING:
    from maxaffine.stack.stack import NodeProof, Stack

STYLES = {
    "lean": "one direction per head, products of two by u*w",
    "log": "products of positive factors as exponentials of sums of logarithms",
    "fused": "the last two factors of a product in one head",
}
FIRST = {
    "cleared": "; denominators multiplied into each other first",
    "gathered": "; factors cancelled and common ones taken out first",
    "folded": "; every norm folded",
}
LISTED = 60  # nodes that `explain` lists


def counted(n: int, what: str) -> str:
    """A number and its noun."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def summary(stack: Stack) -> str:
    """A few lines: what was compiled, what is proved, what was observed."""
    s = stack
    lines = [
        f"target     {s.target.name or s.target.text}",
        f"stack      {counted(s.layers, 'attention layer')}, {counted(s.tokens, 'token')} in "
        f"{counted(len(s.nodes), 'head')}, {s.dtype}",
    ]
    lines[1:1] = rewritten(s.target)
    lines += _layers(s)
    proved = f"error <= {s.certificate.bound or 0.0:.6g} in the sup norm"
    lines += [
        f"{s.certificate.kind:<10} {proved} (asked: {s.error:g})",
        f"           by {s.certificate.theorem}",
        f"           for {in_words(s.certificate.scope)}",
        f"observed   error {s.observed.error:.6g} over {s.observed.points:,} points (not a bound)",
    ]
    if s.ended is not None:
        lines.append(f"time       {s.ended}: a smaller stack may exist")
    if s.standing == "stated":
        lines.append("standing   stated in the file, not checked; stack.check() proves it again")
    return "\n".join(lines)


def _layers(stack: Stack) -> list[str]:
    """A line per layer, or for several in a row that are alike."""
    lines, told = list[str](), [_level(stack, level) for level in stack.levels]
    for what, group in itertools.groupby(range(len(told)), key=told.__getitem__):
        first, *rest = group
        which = f"layers {first + 1} to {rest[-1] + 1}, each" if rest else f"layer {first + 1}"
        lines.append(f"           {which}: {what}")
    return lines


def _level(stack: Stack, level: tuple[int, ...]) -> str:
    nodes = [stack.plan.flat.nodes[k] for k in level]
    kinds: dict[str, int] = {}
    for node in nodes:
        kinds[node.function.text] = kinds.get(node.function.text, 0) + 1
    shown = [f"{n} x {text}" if n > 1 else text for text, n in kinds.items()]
    if len(shown) > 6:
        shown = [*shown[:5], f"{len(shown) - 5} more"]
    return f"{counted(sum(stack.heads[node.head].tokens for node in nodes), 'token')}: {', '.join(shown)}"


def explain(stack: Stack, device: str = "cpu") -> str:
    """The summary, every node with its share of the bound, and every way to run the stack on a device, and on the CPU."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f'`device` (={device!r}) must be "cpu" or "cuda".')
    s = stack
    style, _, first = s.style.partition(", ")
    how = STYLES.get(style, style) + FIRST.get(first, "")
    lines = [summary(s), f"cut        {how}"]
    lines += [f"tried      {one}" for one in s.tried]
    lines.append("nodes      error <= sum of W beta, and rounding: beta is the error of a head, W what it weighs in the answer")
    lines += table(s)
    rough = [node.name for node in s.nodes if node.rough]
    if rough:
        lines.append(f"rough      {', '.join(rough)}: slopes are not bounded; what errors of the arguments do is in the share")
    lines.append("parts of the bound")
    bound = s.certificate.bound or 1.0
    for name, part in sorted(s.certificate.parts.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<16} {part:10.4g}  {100 * part / bound:5.1f}%")
    top = max(s.nodes, key=lambda node: node.share)
    lines.append(f"dominates  {top.name} = {top.function}, {100 * top.share:.0f}% of the bound")
    lines += ["assumes", *(f"  {line}" for line in s.certificate.assumptions)]
    lines.append("routes     the proved error of every way to run this stack")
    for said in statements(s, tuple(dict.fromkeys(("cpu", device)))):
        shown = "not covered" if said.bound is None else f"{said.bound:.4g}"
        where = f"{said.route}, {said.dtype}" + ("" if said.device == "cpu" else f", {said.device}")
        lines.append(f"  {where:<26}  {shown:<11}  {said.why}")
    return "\n".join(lines)


def table(stack: Stack) -> list[str]:
    """A line per node."""
    arguments = {node.name: ", ".join(_short(one.text) for one in node.arguments) for node in stack.plan.nodes}
    shown = sorted(stack.nodes, key=lambda node: -node.share)[:LISTED]
    kept = [node for node in stack.nodes if node in shown]
    rows = [_row(node, arguments[node.name]) for node in kept]
    wide = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"  {'node':<{wide[0]}}  {'of':<{wide[1]}}  layer  tokens      beta         W   share"]
    lines += [f"  {row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]}" for row in rows]
    if len(kept) < len(stack.nodes):
        lines.append(f"  and {len(stack.nodes) - len(kept)} more of smaller shares")
    return [*lines, f"  output = {_short(stack.plan.output.text, 100)}"]


def _row(node: NodeProof, arguments: str) -> tuple[str, str, str]:
    numbers = f"{node.layer:>5}  {node.tokens:>6}  {node.beta:>8.2g}  {node.weight:>8.2g}  {100 * node.share:>5.1f}%"
    return f"{node.name} = {node.function}", arguments, numbers


def _short(words: str, most: int = 44) -> str:
    return words if len(words) <= most else f"{words[: most - 3]}..."


def cite(stack: Stack) -> str:
    """The theorems and papers behind a stack."""
    lines = [PAPER, "  one softmax attention layer per layer of the stack", OURS, f"  {stack.certificate.theorem}"]
    lines += sorted({f"  {head.certificate.theorem}" for head in stack.heads})
    return "\n".join(lines)
