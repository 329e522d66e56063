"""What is proved of a stack of literal layers: the same theorem with the errors of the heads' literal softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from maxaffine.stack.cutting import Cutting
from maxaffine.stack.heads import Made, in_units
from maxaffine.stack.ranges import UP, Unbounded
from maxaffine.stack.split import proved
from maxaffine.target.box import Box


def literal_of(cutting: Cutting, box: Box, heads: Sequence[Made]) -> float | str:
    """A bound of the stack whose heads are literal softmax layers in float64, or why there is none."""
    betas = []
    for name, one in zip(cutting.names, heads, strict=True):
        bound = one.head.literal["float64"]
        if isinstance(bound, str):
            return f"of the literal head of {name} nothing is proved: {bound}"
        betas.append(in_units(float(bound), one.asked.lift))
    try:
        found = proved(cutting, box, heads, np.array(betas))
    except Unbounded as failure:
        return f"with literal heads {failure}"
    if found is not None and found.ranges.rough:
        names = ", ".join(cutting.names[k] for k in found.ranges.rough)
        return f"arguments of {names}, of unbounded slope, are moved into the box of their head, and literal layers move nothing"
    if found is None or not math.isfinite(found.bound):
        return "the literal heads are too rough: the arguments of a node may leave the box of its head"
    return found.bound * UP
