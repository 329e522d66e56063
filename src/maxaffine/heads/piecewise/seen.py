"""Piecewise affine callables: planes that were seen, one affine function fitted to every region, regions of equal ones merged."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.heads.breaks.hyperplanes import Seen
from maxaffine.heads.breaks.planes import planes_of
from maxaffine.heads.piecewise.plan import PiecewisePlan
from maxaffine.heads.search import Search
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.structure.affine_pieces import Piece
from maxaffine.structure.convex_differences import frame
from maxaffine.structure.refinement import Refinement, Token, merged
from maxaffine.target.target import Target

STEEPER = (1.0, 8.0, 64.0)  # sharper scores, where blending the pieces leaves too much
AFFINE = 1e-12  # of the target's size: what a region may differ from an affine function by, to be called affine


@dataclass(frozen=True)
class SeenPieces(PiecewisePlan):
    """Affine pieces of a callable, one token each, and how the planes between them were found."""

    seen: Seen = field(kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """The record that a file keeps."""
        return super().to_json() | {"seen": self.seen.to_json()}


def seen_plans(search: Search) -> Iterator[SeenPieces]:
    """One token per affine piece, where every region is affine to within rounding and none jumps."""
    request = search.request
    seen = planes_of(request)
    pieces = None if seen.jumps else affine_pieces(request.target, seen)
    if pieces is None:
        raise Refused("the target jumps on planes" if seen.jumps else "not every region of the target is affine")
    found, miss = refinement(request.target, seen, pieces)
    if miss > 0.02 * request.error:
        raise Refused("no scores separate its pieces")
    count = len(found.tokens)
    for steeper in STEEPER:
        yield SeenPieces(found, steeper * (soft_gap(count) / (0.9 * request.error) if count > 1 else 1.0), seen=seen)


def affine_pieces(target: Target, seen: Seen) -> Array | None:
    """Slopes and constant (C, D + 1) of every region in u of [-1, 1]^D, where all of them are affine to within rounding."""
    middle, half = ((np.array([float(c) for c in row])) for row in frame(target.box))
    rng = np.random.default_rng(11)
    rows = []
    for cell in seen.cells:
        u = (rng.dirichlet(np.ones(len(cell)), 24 * cell.shape[1]) @ cell - middle) / half
        values = target.values(np.clip(middle + half * u, target.box.low, target.box.high))[:, 0, 0]
        A = np.append(u, np.ones((len(u), 1)), axis=1)
        row, _, _, _ = np.linalg.lstsq(A, values, rcond=None)
        if np.abs(A @ row - values).max() > max(AFFINE * float(np.abs(values).max()), 4.0 * seen.noise):
            return None
        rows.append(row)
    return np.array(rows)


def refinement(target: Target, seen: Seen, pieces: Array) -> tuple[Refinement, float]:
    """One token per different piece, with scores that hold them apart, and how far these miss that."""
    middle, half = frame(target.box)
    distinct: list[Array] = []
    scale = float(np.abs(pieces).sum(axis=1).max()) or 1.0
    numbers = []
    for row in pieces:
        same = [k for k, other in enumerate(distinct) if np.abs(row - other).max() <= 1e-9 * scale]
        if not same:
            distinct.append(row)
        numbers.append(same[0] if same else len(distinct) - 1)
    exact = [_snapped(row, 1e-13 * scale) for row in distinct]
    planes = [_in_u(plane, middle, half) for plane in seen.planes]
    steep = [_kink(pieces, seen.regions, i, plane) for i, plane in enumerate(planes)]
    tokens = []
    for signs, number in zip(seen.regions, numbers, strict=True):
        score = tuple(
            sum((sign * K * h[i] / 2 for sign, K, h in zip(signs, steep, planes, strict=True)), Fraction(0))
            for i in range(len(middle) + 1)
        )
        tokens.append(Token(score, (exact[number],)))
    if len(distinct) < len(tokens):
        found = merged(tokens)
        if found is not None and float(found[1]) <= 1e-9 * scale:
            return Refinement(tuple(found[0]), Fraction(0), middle, half), float(found[1])
    return Refinement(tuple(tokens), Fraction(0), middle, half), 0.0


def _in_u(plane: Piece, middle: tuple[Fraction, ...], half: tuple[Fraction, ...]) -> Piece:
    """h(middle + half u), as a function of u."""
    constant = plane[-1] + sum((a * m for a, m in zip(plane, middle, strict=False)), Fraction(0))
    return (*(a * h for a, h in zip(plane, half, strict=False)), constant)


def _kink(pieces: Array, regions: tuple[tuple[int, ...], ...], plane: int, h: Piece) -> Fraction:
    """The largest |v_+ - v_-| / |h| between regions that this plane alone tells apart, a little enlarged."""
    place = {signs: k for k, signs in enumerate(regions)}
    length = math.sqrt(float(sum(c * c for c in h[:-1])))
    worst = 0.0
    for signs, k in place.items():
        other = place.get((*signs[:plane], -signs[plane], *signs[plane + 1 :]))
        if other is not None:
            worst = max(worst, float(np.linalg.norm(pieces[k, :-1] - pieces[other, :-1])) / length)
    return Fraction(worst * (1.0 + 2.0**-20)).limit_denominator(1 << 24) + Fraction(1, 1 << 20)


def _snapped(row: Array, tolerance: float) -> Piece:
    """Coefficients that are small rationals to within rounding as such, the others as they are."""
    near = [Fraction(float(c)).limit_denominator(1000) for c in row]
    return tuple(a if abs(float(a) - float(c)) <= tolerance else Fraction(float(c)) for a, c in zip(near, row, strict=True))
