"""Piecewise affine layers re-proved: the target's own cells, cut exactly, against every token at every vertex.

With l the token that is best in the middle of a cell, every token k is compared at the cell's vertices:

    |v_k - f| <= kappa (S_l - S_k) + rest     holds on the cell if it holds at its vertices, all terms being affine there,

and then |layer - f| <= kappa W0((N - 1) e^{2 eta - 1}) + rest + rounding by the soft gap (checker/soft_gap.py), scores wrong by
eta.  kappa is the smallest number that the vertices allow.  In many variables cells are half spaces: checker/piecewise_dual.py.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from maxaffine.checker.affine_tokens import AffineTokens
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import literally
from maxaffine.checker.piecewise_cells import CELLS, Cell, cells_of
from maxaffine.checker.piecewise_dual import compared_by_duality
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.checker.soft_gap import soft_gap
from maxaffine.checker.target_parts import expression_of
from maxaffine.core.arrays import Array
from maxaffine.core.polytopes import Polytope, TooLarge
from maxaffine.core.rounding import DTYPES
from maxaffine.target.target import Target

MOST_VARIABLES = 7  # beyond this, boxes have too many corners
WORK = 20_000_000  # comparisons of a token with a vertex


def check_piecewise(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a layer whose clusters are single tokens."""
    expression = expression_of(target, "piecewise affine layers", one_output=False)
    if len(layer.groups) != 1 or layer.affine_part is not None:
        raise NotProved("it is not a layer of one group of clusters.")
    tokens = AffineTokens.of(layer)
    if target.box.dimension <= MOST_VARIABLES:
        try:
            whole = Polytope.box(list(layer.low), list(layer.high))
            cells = list(cells_of(expression, whole, layer.low, layer.high))
            kappa, rest = _compared(tokens, cells)
        except TooLarge as failure:
            raise NotProved(f"its cells are not listed: {failure}.") from None
        how = f"{len(cells):,} cells of the target, every token at every vertex"
    else:
        kappa = (1 + 1e-9) / float(record["plan"]["sharpness"])  # any number will do: what it misses is counted
        rest, count = compared_by_duality(tokens, expression, error, kappa)
        how = f"{count:,} cells of the target, every token by duality"
    eta, lost = tokens.rounding()
    blend = float(soft_gap(len(tokens.scores) - 1, kappa, 2.0 * eta)) + rest
    bound = blend + lost
    literal = literally(layer, bound, lambda frame: [cluster_column(tokens.group, Blend(blend, _size(target)), frame)])
    return Proved(bound, how, literal)


def _size(target: Target) -> float:
    """A bound of |f| over the box."""
    found = float(target.enclose(target.box.low[None], target.box.high[None]).magnitude.max())
    if not math.isfinite(found):
        raise NotProved("the target could not be enclosed on the box.")
    return found


def _compared(tokens: AffineTokens, cells: list[Cell]) -> tuple[float, float]:
    """(kappa, rest) with |v_k - f| <= kappa (S_l - S_k) + rest on every cell, for every token and output.

    A cell on which two tokens are best in turn is cut where they tie.
    """
    S, V = tokens.scores.astype(np.float64), tokens.values.astype(np.float64)  # (N, D + 1) and (N, K, D + 1)
    K, D = V.shape[1], len(tokens.centre)
    wide = np.append(tokens.layer.reach * 1.0000001, 1.0)
    score_size, value_size = float((np.abs(S) @ wide).max()), float((np.abs(V) @ wide).max())
    tie = 1e-6 + 64.0 * DTYPES[tokens.layer.dtype].unit * score_size
    rows: list[tuple[Array, Array, float]] = []
    target_size, work, left = 0.0, 0, list(cells)
    while left:
        cell = left.pop()
        w = (np.array(cell.part.vertices, dtype=object) - tokens.centre).astype(np.float64)
        middle = (np.array(cell.part.middle, dtype=object) - tokens.centre).astype(np.float64)
        best = int((S[:, :-1] @ middle + S[:, -1]).argmax())
        scores = w @ S[:, :-1].T + S[:, -1]  # (vertices, N)
        gap = scores[:, best : best + 1] - scores
        work += gap.size * K
        if work > WORK or len(left) + len(rows) > CELLS:
            raise NotProved("its cells have more vertices than this check compares.")
        if gap.min() < -tie:
            rival = int(gap.min(axis=0).argmin())
            parts = cell.part.cut(tuple(tokens.in_x(tokens.scores[best] - tokens.scores[rival])))  # where they tie
            if all(part is not None for part in parts):
                left += [Cell(part, cell.outputs, cell.uncertainty) for part in parts if part is not None]
                continue
        outputs = np.array(cell.outputs, dtype=object)
        F = np.column_stack([outputs[:, :-1], outputs[:, -1] + outputs[:, :-1] @ tokens.centre]).astype(np.float64)  # (K, D + 1)
        target_size = max(target_size, float((np.abs(F) @ wide).max()))
        f = w @ F[:, :-1].T + F[:, -1]  # (vertices, K)
        v = np.einsum("vd,nkd->vnk", w, V[:, :, :-1]) + V[:, :, -1]
        rows.append((gap, np.abs(v - f[:, None, :]).max(axis=2), float(cell.uncertainty) * (1 + 1e-12)))
    kappa, least = 0.0, min(1.0, max((float(gap.max()) for gap, _, _ in rows), default=0.0) / 2.0)
    for gap, away, _ in rows:
        clear = gap > least  # of flat scores the larger half
        if clear.any():
            kappa = max(kappa, float((away[clear] / gap[clear]).max()))
    kappa *= 1 + 1e-9
    rest = max(float((away - kappa * gap).max()) + extra for gap, away, extra in rows)
    # Vertices and functions were rounded to float64, and sums of D + 1 products: all relative to their sizes.
    blur = (4 * D + 16) * DOUBLE * (value_size + target_size + 2.0 * kappa * score_size)
    return kappa, max(rest, 0.0) + blur
