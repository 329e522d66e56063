"""Plans on the regions of a callable: planes that were seen, keys that all regions share, values fitted inside each.

Where every region is affine to within rounding, regions of equal pieces are merged and one token holds each (heads/piecewise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.rounding import compute_format
from maxaffine.heads.piecewise.plan import PiecewisePlan
from maxaffine.heads.regions.fit import RegionProducts
from maxaffine.heads.regions.hyperplanes import Seen
from maxaffine.heads.regions.plan import half_widths, scores
from maxaffine.heads.spectral.affine_fit import ProductFit
from maxaffine.structure.convex_differences import Piece, Refinement, Token, frame, merged
from maxaffine.target.target import Target

Array = NDArray[np.float64]

AFFINE = 1e-12  # of the target's size: what a region may differ from an affine function by, to be called affine


@dataclass(frozen=True)
class SeenPlan:
    """Planes that were seen, the steepness of every one, and keys with the values of every region."""

    seen: Seen
    steepness: tuple[float, ...]
    half: Array  # x = centre + half z
    fit: ProductFit  # one output per region
    gap: float | None = None
    argument: str = "regions"

    @property
    def cells(self) -> int:
        """Tokens."""
        return len(self.seen.regions) * self.fit.tokens

    def sites(self, centre: Array) -> list[tuple[Fraction, ...]]:
        """Exact slopes in x - centre and constant of every region's score."""
        return scores(self.seen.planes, self.seen.regions, self.steepness, centre)

    def to_json(self) -> dict[str, Any]:
        """Plain data: how the planes were found, the steepness of each, and how keys were made."""
        axes = [{"family": axis.family, "parameter": axis.parameter} for axis in self.fit.axes]
        signs = [list(row) for row in self.seen.regions]
        found: dict[str, Any] = {"plan": "regions", "method": "regions", "argument": self.argument, "axes": axes, "signs": signs}
        return found | {"steepness": list(self.steepness), "gap": self.gap, "seen": self.seen.to_json()}


@dataclass(frozen=True)
class SeenPieces(PiecewisePlan):
    """Affine pieces of a callable, one token each, and how the planes between them were found."""

    seen: Seen | None = None

    def to_json(self) -> dict[str, Any]:
        """The record that a file keeps."""
        return super().to_json() | ({} if self.seen is None else {"seen": self.seen.to_json()})


class RegionFits:
    """Heads for all regions at once, on shared keys."""

    def __init__(self, target: Target, seen: Seen, error: float, dtype: str, steep: float) -> None:
        """`steep`: the size of the scores beside which the values stand; the literal softmax rounds them, which limits values."""
        box, D = target.box, target.box.dimension
        centre, half = half_widths(box)

        def f(z: Array) -> Array:
            return target.values(np.clip(centre + z * half, box.low, box.high))[:, 0]

        scale = float(np.abs(f(np.random.default_rng(3).uniform(-1.0, 1.0, (400, D)))).max()) or 1.0
        unit = compute_format(dtype).unit
        self._tight = max(20.0 * scale, 0.2 * error / (unit * max(steep, 1.0)))
        cells = [(cell - centre) / half for cell in seen.cells]
        self._fits = [
            RegionProducts(f, cells, D, error, scale, dtype, largest) for largest in (max(self._tight, 1e6 * scale), self._tight)
        ]

    def smallest(self, error: float, most: int | None) -> ProductFit | None:
        """The fewest tokens per region, of two sizes that differ little the one with smaller values."""
        loose = self._fits[0].smallest(error, most)
        if loose is None or (most is not None and loose.tokens > most):
            return None
        if max(float(np.abs(loose.values).max()), float(np.abs(loose.slopes).max())) <= self._tight:
            return loose
        limit = loose.tokens * 4 // 3 if most is None else min(most, loose.tokens * 4 // 3)
        tight = self._fits[1].smallest(error, limit)
        return loose if tight is None or tight.tokens > limit else tight


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
