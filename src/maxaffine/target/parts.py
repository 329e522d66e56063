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
    assert target.text is not None
    texts = [one for column in zip(*pieces(target.text), strict=True) for one in column]  # row by row
    if len(texts) != target.expression.count:
        raise BadInput("the outputs of the expression cannot be told apart in its text.")
    text = standing_alone(", ".join(texts[e] for e in entries), target.text)
    used = Expression.parse(text, box.names).used
    sizes = [one.dimension for one in target.boxes or (box,)]
    boxes, variables, first = [], list[int](), 0
    for size in sizes:  # of two inputs each has a variable, so that it stays a function of two inputs
        own = [i for i in range(first, first + size) if box.names[i] in used] or [first]
        boxes.append(Box.named([box.names[i] for i in own], box.low[own], box.high[own]))
        variables, first = [*variables, *own], first + size
    return tuple(variables), Target.of(text, boxes[0] if len(boxes) == 1 else (boxes[0], boxes[1]), output_shape=shape)
