"""Some entries of a target as a target of their own, of the variables that they depend on: what one part of a layer stands for.

An entry (r, c), row r of output token c, is numbered r n_out + c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.expression.texts import pieces, standing_alone
from maxaffine.target.box import Box
from maxaffine.target.calls import Evaluate
from maxaffine.target.target import Target


@dataclass(frozen=True)
class Seen:
    """Values of some entries of a callable, asked of the whole of it, which keeps what it was asked."""

    whole: Target
    entries: tuple[int, ...]

    def ask(self, points: Array, evaluate: Evaluate) -> Array:
        """Values (B, len(entries), 1)."""
        found = self.whole.values(points)
        return np.ascontiguousarray(found.reshape(len(points), -1)[:, list(self.entries), None])


def adds_up(target: Target, parts: Sequence[tuple[str, Sequence[tuple[int, int, int]]]]) -> bool:
    """Whether sums of outputs of some texts are the entries of a target: (k, e, sign), output k of a text is added to entry e.

    Decided by the expression's normal form: both are written into one graph, in which equal sums are one node.
    """
    assert target.expression is not None
    count = target.expression.count
    if any(":=" in text or len(pieces(text)) != 1 for text, _ in parts):
        return False
    terms: list[list[str]] = [[] for _ in range(count)]
    for text, writes in parts:
        (outputs,) = pieces(text)
        for k, e, sign in writes:
            terms[e].append(f"{'+' if sign > 0 else '-'} ({outputs[k]})")
    if not all(terms):
        return False
    sums = [f"0 {' '.join(one)}" for one in terms]
    both = Expression.parse(", ".join([_alone(target, range(count)), *sums]), target.box.names)
    return both.outputs[:count] == both.outputs[count:]


def part_of(target: Target, entries: Sequence[int]) -> tuple[tuple[int, ...], Target]:
    """The variables that some entries depend on, numbered, and the target of these entries on the box of these variables.

    Of two inputs the target of a part has two as well.

    Of a callable nothing is known about that: all variables.
    """
    shape = () if len(entries) == 1 else (len(entries),)
    box = target.box
    if target.expression is None:
        plain = box if target.boxes else Box.named(box.names, box.low, box.high)
        calls, inputs = Seen(target, tuple(entries)), target.inputs if target.boxes else "points"
        made = replace(target, box=plain, inputs=inputs, output_shape=shape, calls=calls, vectorize=False)
        return tuple(range(box.dimension)), made
    return of_text(target, _alone(target, entries), len(entries))


def _alone(target: Target, entries: Sequence[int]) -> str:
    """The text of some entries of an expression."""
    assert target.text is not None and target.expression is not None
    texts = [one for column in zip(*pieces(target.text), strict=True) for one in column]  # row by row
    if len(texts) != target.expression.count:
        raise BadInput("the outputs of the expression cannot be told apart in its text.")
    return standing_alone(", ".join(texts[e] for e in entries), target.text)


def of_text(target: Target, text: str, count: int) -> tuple[tuple[int, ...], Target]:
    """The same of the text of some outputs, in the variables of a target."""
    box, shape = target.box, () if count == 1 else (count,)
    used = Expression.parse(text, box.names).used
    sizes = [one.dimension for one in target.boxes or (box,)]
    boxes, variables, first = [], list[int](), 0
    for size in sizes:  # of two inputs each has a variable, so that it stays a function of two inputs
        own = [i for i in range(first, first + size) if box.names[i] in used] or [first]
        boxes.append(Box.named([box.names[i] for i in own], box.low[own], box.high[own]))
        variables, first = [*variables, *own], first + size
    return tuple(variables), Target.of(text, boxes[0] if len(boxes) == 1 else (boxes[0], boxes[1]), output_shape=shape)
