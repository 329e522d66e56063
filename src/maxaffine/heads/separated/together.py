"""What values for directions that stay together would take, in figures: keys along each, as fibres through the box show."""

from __future__ import annotations

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text
from maxaffine.heads.separated.points import LINES, fibres
from maxaffine.request import Request
from maxaffine.structure.separate import MOST_BLOCK, NotSeparated


def together(why: NotSeparated, request: Request) -> str:
    """The reason, and about how many values the combinations of keys would be."""
    expression, box = request.target.expression, request.target.box
    if expression is None or len(why.together) <= MOST_BLOCK:
        return str(why)
    used = [i for i in range(box.dimension) if any(w[i] for w in why.together)]

    def f(z: Array) -> Array:
        x = np.tile(box.centre, (len(z), 1))
        x[:, used] += z * (box.width / 2.0)[used]
        return np.asarray(np.nan_to_num(expression.evaluate(x)[:, 0]))

    rows, tails = fibres(f, len(used), request.error / len(used), LINES, np.random.default_rng(request.seed))
    counts = [len(row) for row in rows]
    least = "more than " if any(tail > request.error for tail in tails) else "about "
    keys = " x ".join(str(n) for n in counts)
    total = count_text(math.prod(counts))
    return (
        f"{why}: values for all combinations of their keys would be {least}{keys} = {total}, and blocks of more than "
        f"{MOST_BLOCK} directions are not proved"
    )
