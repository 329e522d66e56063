"""Plans of piecewise affine targets: one token per piece, its score a convex lifting of the pieces, its value the piece.

    logit of token k = R (s_k(x) - gauge(x)),     value of token k = v_k(x),     |v_k - f| <= max s - s_k + error  everywhere

(structure/convex_differences.py).  The softmax of such scores errs by at most W0((N-1)/e)/R, so that R alone sets the error.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.assemble import layer_of, single_token
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.structure.affine_pieces import Piece
from maxaffine.structure.refinement import Refinement
from maxaffine.target.target import Target


@dataclass(frozen=True)
class PiecewisePlan:
    """Exact pieces and the sharpness R."""

    pieces: Refinement
    sharpness: float
    argument: str = "PWA"

    @property
    def cells(self) -> int:
        """Tokens."""
        return len(self.pieces.tokens)

    @property
    def gauge(self) -> Piece:
        """An affine function between the scores, which takes nothing from the softmax and keeps logits small."""
        columns = list(zip(*(token.score for token in self.pieces.tokens), strict=True))
        return tuple((min(column) + max(column)) / 2 for column in columns)

    @property
    def used(self) -> tuple[int, ...]:
        """Variables that some score or value depends on; the first one where there is none."""
        D = len(self.pieces.middle)
        rows = [piece for token in self.pieces.tokens for piece in (token.score, *token.values)]
        return tuple(i for i in range(D) if any(row[i] for row in rows)) or (0,)

    def logits(self) -> list[Piece]:
        """R (s_k - gauge), exact, as functions of u."""
        R, gauge = Fraction(self.sharpness), self.gauge
        return [tuple(R * (s - g) for s, g in zip(token.score, gauge, strict=True)) for token in self.pieces.tokens]

    def in_z(self, piece: Piece, centre: Array) -> Piece:
        """A function of u as one of z = x - centre: slopes, then the constant."""
        slopes = [c / h for c, h in zip(piece, self.pieces.half, strict=False)]
        away = [Fraction(float(x)) - m for x, m in zip(centre, self.pieces.middle, strict=True)]
        shift = sum((a * d for a, d in zip(slopes, away, strict=True)), Fraction(0))
        return (*slopes, piece[-1] + shift)

    def to_json(self) -> dict[str, Any]:
        """The record that a file keeps."""
        names = {"plan": "piecewise", "method": "piecewise", "argument": self.argument}
        return {**names, "sharpness": self.sharpness, "tokens": self.cells}


def build_piecewise(plan: PiecewisePlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer: one cluster of one token per piece, its numbers rounded once from the exact ones."""
    centre, used = (target.box.low + target.box.high) / 2.0, list(plan.used)

    def rounded(pieces: Iterable[Piece]) -> Array:
        return np.array([[float(c) for c in plan.in_z(piece, centre)] for piece in pieces])

    sites = rounded(plan.logits())
    values = [rounded(token.values) for token in plan.pieces.tokens]
    tokens = tuple(single_token(rows[:, -1], rows[:, used]) for rows in values)
    matrix = np.eye(target.box.dimension)[used]
    return layer_of([ClusterGroup(matrix, sites[:, used], sites[:, -1], tokens)], target, dtype)
