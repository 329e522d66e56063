"""Piecewise affine targets that are given as data: ReLU networks and laws on polyhedral regions, written out as expressions.

    ReluNetwork      x -> W_L relu(.. relu(W_1 x + b_1) ..) + b_L       as nested max(0, ...)
    PiecewiseAffine  x -> slopes_i x + offsets_i  where A_i x <= b_i    as max_i min_j f_j over the j with f_j >= f_i on region i

The second is the lattice form of a continuous piecewise affine function; regions are cut first wherever two pieces cross, so
that it holds.  Once written out, such a target is an expression like any other: it can be proved, saved and checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.polytopes import Affine, Polytope, TooLarge, value
from maxaffine.target.box import Box

LONGEST = 10_000  # characters of an expression
MEETING = 1e-9  # pieces may differ by this much of their size where regions meet, and regions may leave gaps of this width


def written(source: Any, box: Box) -> str | None:
    """The expression of a network or a law; None for anything else."""
    return source.text(box) if isinstance(source, (ReluNetwork, PiecewiseAffine)) else None


def _sum(terms: Sequence[tuple[float, str]], constant: float) -> str:
    """constant + sum of c times what is named; repr is the shortest decimal that reads back as the same float64 number."""
    text = ""
    for c, name in terms:
        if c:
            sign = "-" if c < 0 else "+" if text else ""
            text += f"{sign}{name}" if abs(c) == 1.0 else f"{sign}{float(abs(c))!r}*{name}"
    if constant or not text:
        text += ("-" if constant < 0 else "+" if text else "") + repr(float(abs(constant)))
    return text


def _finite(rows: Any, name: str) -> Array:
    array = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(array).all():
        raise BadInput(f"`{name}` must hold finite numbers only.")
    return array


def _affordable(text: str, what: str) -> str:
    if len(text) > LONGEST:
        raise Refused(
            f"{what} takes {len(text):,} characters written out as an expression, and at most {LONGEST:,} are read; "
            "give a smaller one, or numbers of fewer digits."
        )
    return text


@dataclass(frozen=True)
class ReluNetwork:
    """A network of affine layers with relu between them: weights (n_l, n_{l-1}) and biases (n_l,), the last layer without relu.

    The target is the network whose numbers are the shortest decimals that read back as the given float64 ones.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    last_relu: bool = False

    def __init__(self, weights: Sequence[ArrayLike], biases: Sequence[ArrayLike], last_relu: bool = False) -> None:
        W = tuple(_finite(w, "weights") for w in weights)
        b = tuple(_finite(v, "biases").ravel() for v in biases)
        if not W or len(W) != len(b) or any(w.ndim != 2 or len(v) != len(w) for w, v in zip(W, b, strict=True)):
            raise BadInput("`weights` must be matrices (n_l, n_{l-1}), one per layer, and `biases` one row (n_l,) for each.")
        if any(after.shape[1] != len(before) for before, after in pairwise(W)):
            raise BadInput("every matrix of `weights` must take as many numbers as the layer before it gives.")
        object.__setattr__(self, "weights", W)
        object.__setattr__(self, "biases", b)
        object.__setattr__(self, "last_relu", bool(last_relu))

    def __call__(self, x: ArrayLike) -> Array:
        """Values (B, K) at points (B, D), float64."""
        h = np.asarray(x, dtype=np.float64)
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = h @ w.T + b
            if layer + 1 < len(self.weights) or self.last_relu:
                h = np.maximum(h, 0.0)
        return h

    def text(self, box: Box) -> str:
        """The network as an expression of the box's variables, outputs separated by commas."""
        if self.weights[0].shape[1] != box.dimension:
            raise BadInput(f"the network takes {self.weights[0].shape[1]} numbers and the box has {box.dimension} variables.")
        names = list(box.names)
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            sums = [_sum(list(zip(row, names, strict=True)), float(c)) for row, c in zip(w.tolist(), b, strict=True)]
            if layer + 1 < len(self.weights) or self.last_relu:
                names = [f"max(0,{text})" for text in sums]
            else:
                names = sums
            _affordable(",".join(names), "this network")
        return ",".join(names)


@dataclass(frozen=True)
class PiecewiseAffine:
    """A law on polyhedral regions: slopes[i] x + offsets[i] where A_i x <= b_i, for regions (A_i, b_i).

    Slopes are (D,) or (K, D) per region, offsets a number or (K,).  Regions must cover the box and pieces must meet where
    regions do, each up to 1e-9 of its size, which is what laws from a solver are off by; the target is the continuous function
    that agrees with the law up to that.
    """

    regions: tuple[tuple[Array, Array], ...]
    slopes: Array  # (N, K, D)
    offsets: Array  # (N, K)

    def __init__(self, regions: Sequence[tuple[ArrayLike, ArrayLike]], slopes: ArrayLike, offsets: ArrayLike) -> None:
        pairs = tuple((np.atleast_2d(_finite(A, "regions")), np.atleast_1d(_finite(b, "regions"))) for A, b in regions)
        G, c = _finite(slopes, "slopes"), _finite(offsets, "offsets")
        G = G[:, None, :] if G.ndim == 2 else G
        c = c[:, None] if c.ndim == 1 else c
        if not pairs or G.ndim != 3 or c.shape != G.shape[:2] or len(pairs) != len(G):
            raise BadInput("`slopes` must be (N, D) or (N, K, D) and `offsets` (N,) or (N, K), one for each of the N `regions`.")
        if any(A.shape != (len(b), G.shape[2]) for A, b in pairs):
            raise BadInput(f"every region must be a pair A (m, {G.shape[2]}), b (m,) for A x <= b.")
        object.__setattr__(self, "regions", pairs)
        object.__setattr__(self, "slopes", G)
        object.__setattr__(self, "offsets", c)

    def text(self, box: Box) -> str:
        """The law as an expression; BadInput where regions leave something out or pieces do not meet."""
        if self.slopes.shape[2] != box.dimension:
            raise BadInput(f"the law takes {self.slopes.shape[2]} numbers and the box has {box.dimension} variables.")
        try:
            cells = self._cells(box)
        except TooLarge as failure:
            raise Refused(f"the regions of this law are not listed: {failure}.") from None
        self._cover(box)
        outputs = [self._lattice(cells, k, box) for k in range(self.slopes.shape[1])]
        return _affordable(",".join(outputs), "this law")

    def _pieces(self, k: int) -> list[Affine]:
        return [
            (*(Fraction(float(a)) for a in row), Fraction(float(c)))
            for row, c in zip(self.slopes[:, k], self.offsets[:, k], strict=True)
        ]

    def _halves(self, i: int, box: Box, enlarged: float = 0.0) -> list[Affine]:
        """a . x - b - margin for every side of region i."""
        A, b = self.regions[i]
        wide = np.maximum(np.abs(box.low), np.abs(box.high))
        margin = [enlarged * (float(np.abs(row) @ wide) + abs(float(c))) for row, c in zip(A, b, strict=True)]
        rows = zip(A, b, margin, strict=True)
        return [(*(Fraction(float(a)) for a in row), -Fraction(float(c)) - Fraction(r)) for row, c, r in rows]

    def _cells(self, box: Box) -> list[Polytope | None]:
        """The regions inside the box."""
        whole = Polytope.box(list(box.low), list(box.high))
        return [whole.clipped(self._halves(i, box)) for i in range(len(self.regions))]

    def _cover(self, box: Box) -> None:
        """BadInput where a part of the box with inner points is in no region."""
        left = [Polytope.box(list(box.low), list(box.high))]
        for i in range(len(self.regions)):
            outside = []
            for part in left:
                inside: Polytope | None = part
                for h in self._halves(i, box, MEETING):
                    if inside is None:
                        break
                    inner, outer = inside.cut(h)
                    if outer is not None and outer.spans():
                        outside.append(outer)
                    inside = inner if inner is not None and inner.spans() else None
            left = outside
            if len(left) > 10_000:
                raise Refused("the regions of this law are too many to check that they cover the box.")
        if left:
            point = ", ".join(f"{name} = {float(c):.6g}" for name, c in zip(box.names, left[0].middle, strict=True))
            raise BadInput(f"the regions of the law do not cover the box: {point} is in none of them.")

    def _lattice(self, cells: list[Polytope | None], k: int, box: Box) -> str:
        pieces = self._pieces(k)
        wide = [Fraction(float(w)) for w in np.maximum(np.abs(box.low), np.abs(box.high))]
        size = max(abs(p[-1]) + sum((abs(a) * w for a, w in zip(p, wide, strict=False)), Fraction(0)) for p in pieces)
        margin = Fraction(MEETING) * max(size, Fraction(1, 10**6))
        self._meet(cells, pieces, margin * 64, box)
        distinct = list(dict.fromkeys(piece for piece, cell in zip(pieces, cells, strict=True) if cell is not None))
        families: set[frozenset[int]] = set()
        for own, cell in zip(pieces, cells, strict=True):
            parts = [] if cell is None else [cell]
            for other in distinct:  # cut where two pieces cross, so that every piece is above or below the own one
                h = tuple(a - b for a, b in zip(other, own, strict=True))
                parts = [p for part in parts for p in _halved(part, h)]
            for part in parts:
                above = [
                    j for j, f in enumerate(distinct)
                    if all(value(f, v) - value(own, v) >= -margin for v in part.vertices)
                ]  # fmt: skip
                families.add(frozenset(above))
        smallest = [f for f in families if not any(g < f for g in families)]
        for own, cell in zip(pieces, cells, strict=True):
            for v in () if cell is None else (*cell.vertices, cell.middle):
                heights = [value(f, v) for f in distinct]
                if abs(max(min(heights[j] for j in family) for family in smallest) - value(own, v)) > 64 * margin:
                    raise Refused("the law is no maximum of minima of its pieces; do its regions overlap?")
        texts = []
        for family in sorted(smallest, key=sorted):
            chosen = [[float(c) for c in distinct[j]] for j in sorted(family)]
            rows = [_sum(list(zip(row, box.names, strict=False)), row[-1]) for row in chosen]
            texts.append(rows[0] if len(rows) == 1 else f"min({','.join(rows)})")
        return texts[0] if len(texts) == 1 else f"max({','.join(texts)})"

    def _meet(self, cells: list[Polytope | None], pieces: list[Affine], margin: Fraction, box: Box) -> None:
        """BadInput where two regions share points at which their pieces differ."""
        for i, cell in enumerate(cells):
            for j in range(i):
                if cell is None or cells[j] is None or pieces[i] == pieces[j]:
                    continue
                common = cell.clipped(self._halves(j, box, MEETING))
                if common is None:
                    continue
                h = tuple(a - b for a, b in zip(pieces[i], pieces[j], strict=True))
                worst = max(common.vertices, key=lambda v: abs(value(h, v)))
                if abs(value(h, worst)) > margin:
                    point = ", ".join(f"{name} = {float(c):.6g}" for name, c in zip(box.names, worst, strict=True))
                    raise BadInput(
                        f"the law is not continuous: at {point} regions {j + 1} and {i + 1} differ by "
                        f"{abs(float(value(h, worst))):.3g}; a layer in the sup norm needs pieces that meet."
                    )


def _halved(part: Polytope, h: Affine) -> list[Polytope]:
    negative, positive = part.sides(h)
    if not (negative and positive):
        return [part]
    return [p for p in part.cut(h) if p is not None]
