"""A stack in a notebook: its numbers, the nodes' shares of the bound beside the error asked for, and a picture of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maxaffine.core.errors import MaxaffineError
from maxaffine.report import style
from maxaffine.report.notebook import Part, bar, image, page
from maxaffine.report.scope import in_words
from maxaffine.report.text import observed_text
from maxaffine.stack.picture import figure
from maxaffine.stack.text import counted, summary, table

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE)  # of the nodes of the largest shares
DRAWN = 60  # nodes up to which there is a picture


def as_html(stack: Stack) -> str:
    """What a notebook shows of a stack that ends a cell."""
    texts = {"nodes": "\n".join(table(stack)), "as text": summary(stack)}
    return page(_rows(stack), _bar(stack), _picture(stack), texts)


def _rows(s: Stack) -> list[tuple[str, str]]:
    """The numbers, a line each."""
    heads = f"{counted(s.tokens, 'token')} in {counted(len(s.nodes), 'head')}"
    proved = "nothing" if s.bound is None else f"error <= {style.above(s.bound)}, {in_words(s.certificate.scope)}"
    top = max(s.nodes, key=lambda node: node.share)
    return [
        ("target", s.target.name or s.target.text or "a formula"),
        ("stack", f"{counted(s.layers, 'attention layer')}, {heads}, {s.dtype}"),
        (s.certificate.kind, proved),
        ("asked", f"{s.error:g}"),
        ("observed", f"{observed_text(s.observed, s.bound)} (not a bound)"),
        ("dominates", f"{top.name} = {top.function}, {100 * top.share:.0f}% of the bound"),
    ]


def _bar(s: Stack) -> str:
    """The shares of the nodes, the largest in colours, and what is left: rounding of inputs and of the output."""
    if s.bound is None or not s.error > 0.0:
        return ""
    ordered = sorted(s.nodes, key=lambda node: -node.share)
    parts = [
        Part(f"{node.name} = {node.function}", node.share * s.bound, f"{100 * node.share:.1f}%", colour)
        for node, colour in zip(ordered, COLOURS, strict=False)
    ]
    rest = max(s.bound - sum(part.size for part in parts), 0.0)
    others = Part("the others", rest, f"{100 * rest / s.bound:.1f}%, with rounding of inputs and output", style.QUIET)
    return bar([*parts, others], s.bound, s.error, s.observed.error)


def _picture(s: Stack) -> str:
    """The nodes layer by layer; nothing of stacks that would not be read."""
    if len(s.nodes) > DRAWN:
        return ""
    try:
        with style.look():
            return image(figure(s), "the nodes of the stack, layer by layer").replace("<img ", '<img style="max-width:100%" ', 1)
    except (MaxaffineError, ValueError):
        return ""
