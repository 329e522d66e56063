"""sup |f - p| on a box where f has kinks: enclosures of first order, on boxes halved where they are loose.

    f - p  in  (f - p)(c) + (grad f(Q) - grad p(Q)) . (Q - c)        and        f(Q) - p(Q)

grad f(Q) is enclosed by intervals, kinks included (one-sided derivatives), and where it is not known f is enclosed as it is.
Of the piece p, value and gradient at c are computed and its second derivatives are bounded once for all.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import Index, Mask, Rest
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64
from maxaffine.expression.expression import Expression
from maxaffine.proofs.head_bounds import axis_weights
from maxaffine.proofs.product_head import Head
from maxaffine.proofs.sources import FromAffine

ROUNDS = 60


@dataclass(frozen=True)
class PieceAt:
    """p_k at many points, for one output."""

    head: Head
    k: int

    def at(self, t: Array) -> tuple[Array, Array]:
        """Values (B,) and gradients (B, E)."""
        E = self.head.dimension
        W = [axis_weights(axis, t[:, e]) for e, axis in enumerate(self.head.axes)]
        lean = [w * (axis.slopes - (w @ axis.slopes)[:, None]) for w, axis in zip(W, self.head.axes, strict=True)]
        values = self.head.values[..., self.k]
        G = np.zeros((*values.shape, E)) if self.head.slopes is None else self.head.slopes[..., self.k, :]
        columns = np.concatenate([values[..., None], G], axis=-1)
        mixed = contract(W, columns)  # (B, 1 + E)
        value = mixed[:, 0] + (mixed[:, 1:] * t).sum(axis=1)
        slope = np.empty_like(t)
        for e in range(E):
            moved = contract([lean[i] if i == e else W[i] for i in range(E)], columns)
            slope[:, e] = moved[:, 0] + (moved[:, 1:] * t).sum(axis=1) + mixed[:, 1 + e]
        return value, slope

    def curvature(self) -> Array:
        """Bounds (E, E) of the second derivatives on |t| <= 1, from the range of the slopes and of the values."""
        E = self.head.dimension
        values = self.head.values[..., self.k]
        spread = np.array([float(np.ptp(axis.slopes)) for axis in self.head.axes])
        G = np.zeros((*values.shape, E)) if self.head.slopes is None else self.head.slopes[..., self.k, :]
        flat = G.reshape(-1, E)
        away = np.abs(values - (values.max() + values.min()) / 2.0)
        away = away + np.abs(G - (flat.max(axis=0) + flat.min(axis=0)) / 2.0).sum(axis=-1)
        ranges = np.ptp(flat, axis=0)
        # d2 p = sum w [(a_e - abar_e)(a_f - abar_f) - cov_ef] v + sum w (a_e - abar_e) G_f + the same with e and f changed
        return np.asarray(
            1.001 * (2.0 * np.outer(spread, spread) * float(away.max()) + np.outer(spread, ranges) + np.outer(ranges, spread))
        )

    def size(self) -> float:
        """A bound of |c| + |G| for rounding."""
        G = 0.0 if self.head.slopes is None else np.abs(self.head.slopes[..., self.k, :]).sum(axis=-1)
        return float((np.abs(self.head.values[..., self.k]) + G).max())


def contract(W: list[Array], columns: Array) -> Array:
    """columns (p_1, .., p_E, n) with weights (B, p_e) row by row: (B, n)."""
    out = np.tensordot(W[0], columns, axes=(1, 0))
    for w in W[1:]:
        out = np.einsum("bj,bj...->b...", w, out)
    return np.asarray(out)


def supremum(head: Head, error: float, budget: int) -> float:
    """A bound of |f - p| over |t| <= 1, at most `error`; Refused where that is not shown with `budget` boxes."""
    source = head.source
    if not isinstance(source, FromAffine):
        raise Refused("only expressions can be enclosed.")
    return max(_one(source, source.expression.output(k), PieceAt(head, k), error, budget) for k in range(head.values.shape[-1]))


def _one(source: FromAffine, expression: Expression, piece: PieceAt, error: float, budget: int) -> float:
    E = piece.head.dimension
    gradient = expression.gradient()
    bent, rounding = piece.curvature(), 200.0 * FLOAT64.unit * (piece.size() + 1.0) * max(1.0, _steepness(piece))
    scale = Interval(np.diagonal(source.matrix.lo), np.diagonal(source.matrix.hi))

    def measure(low: Array, high: Array, _: Index) -> tuple[Array, Mask, Rest]:
        bound, floor, loose = _measure(source, expression, gradient, piece, scale, bent, low, high)
        if float(floor.max()) > error:
            raise Refused(f"a piece is off by {float(floor.max()):.3g} on its box.")
        return bound + rounding, bound + rounding <= error, lambda rows: (loose[rows], None)

    why = f"an error below {error:.3g} near a kink"
    return boxes.supremum(-np.ones((1, E)), np.ones((1, E)), measure, budget=budget, rounds=ROUNDS, refusal=why)[0]


def _steepness(piece: PieceAt) -> float:
    return 1.0 + max(float(np.abs(a.slopes).max() + np.abs(a.offsets).max()) for a in piece.head.axes)


def _measure(
    source: FromAffine, expression: Expression, gradient: Expression, piece: PieceAt, scale: Interval, bent: Array,
    low: Array, high: Array,
) -> tuple[Array, Array, NDArray[np.intp]]:  # fmt: skip
    """Upper bounds of |f - p| on boxes of t, lower bounds of its supremum, and the axis to halve."""
    centre, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-15)
    value, slope = piece.at(centre)
    change = half @ bent  # of the gradient of p inside the box
    p_range = (np.abs(slope) * half).sum(axis=1) + 0.5 * (change * half).sum(axis=1)
    mid = source.at(list(centre.T), 0.0)
    shape = (len(low), len(scale.lo))
    offset = Interval(np.broadcast_to(source.offset.lo, shape), np.broadcast_to(source.offset.hi, shape))
    x = Interval(low, high) * scale + offset
    f = expression.enclose(x)
    steep = gradient.enclose(x)
    grad = Interval(steep.lo * 1.0, steep.hi) * scale
    error_low, error_high = mid.lo[:, 0] - value, mid.hi[:, 0] - value
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.maximum(np.abs(grad.hi - slope), np.abs(grad.lo - slope)) + change
        first = np.maximum(np.abs(error_low), np.abs(error_high)) + (apart * half).sum(axis=1)
        whole = np.maximum(f.hi[:, 0] - value, value - f.lo[:, 0]) + p_range
        known = np.isfinite(grad.lo).all(axis=1) & np.isfinite(grad.hi).all(axis=1)
        bound = np.where(known, np.minimum(first, whole), whole) * (1 + 1e-12)
        gain = np.where(np.isfinite(apart), apart, 1e300) * half
    bound = np.where(np.isnan(bound), math.inf, bound)
    floor = np.maximum(np.maximum(error_low, -error_high), 0.0)
    floor = np.where(np.isfinite(floor), floor, 0.0)
    return bound, floor, np.where(known, gain.argmax(axis=1), half.argmax(axis=1))
