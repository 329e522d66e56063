"""Max-affine functions and the partitions they cut.

    s_j(x) = a_j . x + b_j,   MaxAff(x) = max_j s_j(x),   U_j = { x : s_j(x) = MaxAff(x) }

A max-affine partition is the power (Laguerre) diagram of the sites a_j with weights w_j = 2 b_j + |a_j|^2,
because s_j(x) = |x|^2/2 - (|x - a_j|^2 - w_j)/2: the greatest piece is the site of least power distance.
Softmax(R s(x)) is the soft version of the indicator of these cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.keys import frozen
from maxaffine.target.box import Box

# Scores are formed for this many (point, piece) pairs at a time where the answer is small: 32 MiB of float64.
_PAIRS_AT_ONCE = 4_194_304
# A listed partition beyond this many numbers (N (D + 1) of them, 4 GiB) is refused before it is built.
_MOST_NUMBERS = 536_870_912


class BoxLike(Protocol):
    """Anything with the edges of a box: `low` and `high`, arrays of shape (D,)."""

    @property
    def low(self) -> Array:
        """Lower edges, (D,)."""

    @property
    def high(self) -> Array:
        """Upper edges, (D,)."""


@dataclass(frozen=True, eq=False, repr=False)
class MaxAffine:
    """The pieces s_j(x) = A[j] . x + b[j], j = 0..N-1, and the partition {U_j} they cut.

    `A` has shape (N, D) and `b` shape (N,); both are copied, held in float64 and read-only.
    Tie rule: where several pieces attain the maximum, the least index has the point.
    """

    A: Array
    b: Array

    def __post_init__(self) -> None:
        slopes = _finite("A", self.A)
        offsets = _finite("b", self.b)
        if slopes.ndim != 2 or slopes.shape[0] == 0 or slopes.shape[1] == 0:
            raise BadInput(
                f"`A` of shape {slopes.shape} must have shape (N, D), one row of slopes per piece, "
                "with at least one piece and one coordinate; for one variable pass a column, A[:, None]."
            )
        if offsets.shape != (slopes.shape[0],):
            raise BadInput(f"`b` of shape {offsets.shape} must have shape ({slopes.shape[0]},), one offset for each row of `A`.")
        object.__setattr__(self, "A", frozen(slopes))
        object.__setattr__(self, "b", frozen(offsets))

    # -- makers ---------------------------------------------------------------------------------------

    @classmethod
    def from_power_diagram(cls, sites: ArrayLike, weights: ArrayLike | None = None) -> MaxAffine:
        """a_j = site_j,  b_j = (w_j - |site_j|^2) / 2.

        The cell of j is { x : |x - site_j|^2 - w_j is least }; equal weights give the Voronoi diagram.

        Args:
            sites: (N, D).
            weights: (N,), or None for zeros.
        """
        points = _finite("sites", sites)
        if points.ndim != 2:
            raise BadInput(f"`sites` of shape {points.shape} must have shape (N, D); for one variable sites[:, None].")
        squares = _dots(points, points)
        if weights is None:
            return cls(points, -squares / 2)
        powers = _finite("weights", weights)
        if powers.shape != (len(points),):
            raise BadInput(f"`weights` of shape {powers.shape} must have shape ({len(points)},), one for each site.")
        return cls(points, (powers - squares) / 2)

    @classmethod
    def grid(cls, box: BoxLike | Mapping[str, Any], counts: int | Sequence[int] | NDArray[np.integer]) -> MaxAffine:
        """a_j = G v_j,  b_j = -v_j . G v_j / 2,  G = diag(1/h_i^2),  h_i = (u_i - l_i) / P_i.

        The v_j are all tuples of the centres c_k = l_i + (k - 1/2) h_i, k = 1..P_i, the last axis running
        fastest.  This is the dimensionless metric form: the cells are the grid's boxes, and
        Softmax(rho s(x)) is proportional to exp(-rho sum_i (x_i - v_ji)^2 / (2 h_i^2)).

        Args:
            box: the domain, with edges `low` and `high` of shape (D,), or a dictionary {"x": (-1, 1)}.
            counts: P_i, the number of cells on each axis; one number means the same on all.
        """
        box = _edged(box)
        low = np.asarray(box.low, dtype=np.float64)
        high = np.asarray(box.high, dtype=np.float64)
        cells = _counts(counts, low.size)
        numbers = (low.size + 1) * math.prod(cells)  # Python integers: 10**20 cells must be refused, not wrapped
        if numbers > _MOST_NUMBERS:
            raise Refused(
                f"`counts` (={_short(cells)}) asks for {math.prod(cells):,} pieces, "
                f"{8 * numbers / 2**30:,.1f} GiB to list; "
                "use fewer cells per axis, or keep the grid as a product of axes."
            )
        width = (high - low) / np.array(cells, dtype=np.float64)
        axes = [low[i] + (np.arange(cells[i]) + 0.5) * width[i] for i in range(low.size)]
        centres = np.stack([c.ravel() for c in np.meshgrid(*axes, indexing="ij")], axis=1)  # (N, D)
        slopes = centres / width**2
        return cls(slopes, -_dots(centres, slopes) / 2)

    # -- what it says at points -----------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """D, the number of coordinates of a point."""
        return int(self.A.shape[1])

    def __len__(self) -> int:
        return int(self.A.shape[0])

    def pieces(self, x: ArrayLike) -> Array:
        """s_j(x) = A[j] . x + b[j]: (..., D) -> (..., N).

        The sum runs coordinate by coordinate, so equal pieces get equal numbers whatever the batch, and ties
        are ties.
        """
        points, lead = self._points(x)
        return self._scores(points).reshape(*lead, len(self))

    def value(self, x: ArrayLike) -> Array:
        """MaxAff(x) = max_j s_j(x): (..., D) -> (...)."""
        return self._measured(x, lambda scores: scores.max(axis=1))

    def argmax(self, x: ArrayLike) -> NDArray[np.intp]:
        """j*(x) = the least j with s_j(x) = MaxAff(x): (..., D) -> (...)."""
        return self._measured(x, lambda scores: scores.argmax(axis=1))

    def margin(self, x: ArrayLike) -> Array:
        """Delta(x) = s_{j*}(x) - max_{j != j*} s_j(x): (..., D) -> (...).

        Zero on faces, infinite where there is but one piece.
        """
        if len(self) == 1:
            return np.full(self._points(x)[1], np.inf)
        return self._measured(x, lambda scores: np.diff(np.partition(scores, -2, axis=1)[:, -2:])[:, 0])

    def indicator(self, x: ArrayLike) -> Array:
        """E(x) = e_{j*(x)}, one 1 in each row: (..., D) -> (..., N)."""
        return np.asarray(self.argmax(x)[..., None] == np.arange(len(self)), dtype=np.float64)

    def enlarged(self, x: ArrayLike, g: float) -> NDArray[np.bool_]:
        """x in U_j^g = { s_j >= MaxAff - g }, the cells grown by g >= 0: (..., D) -> (..., N) booleans.

        At g = 0 these are the closed cells: every piece that ties for the maximum is true.
        """
        if not g >= 0:
            raise BadInput(f"`g` (={g}) must be zero or positive: how far below the maximum a piece may lie.")
        scores = self.pieces(x)
        return np.asarray(scores >= scores.max(axis=-1, keepdims=True) - g)

    # -- the same partition in other words ------------------------------------------------------------

    def to_power_diagram(self) -> tuple[Array, Array]:
        """Sites a_j (N, D) and weights w_j = 2 b_j + |a_j|^2 (N,): the power diagram with the same cells."""
        return self.A.copy(), 2 * self.b + _dots(self.A, self.A)

    def pulled_back(self, matrix: ArrayLike, centre: ArrayLike) -> MaxAffine:
        """The pieces as functions of x when they were written in z = matrix (x - centre).

        s_j(z) = a_j . z + b_j = (matrix^T a_j) . x + (b_j - (matrix^T a_j) . centre).

        Args:
            matrix: (E, D) with E = self.dimension.
            centre: (D,).
        """
        change = _finite("matrix", matrix)
        origin = _finite("centre", centre)
        if change.ndim != 2 or change.shape[0] != self.dimension or origin.shape != (change.shape[1],):
            raise BadInput(
                f"`matrix` of shape {change.shape} and `centre` of shape {origin.shape} must have shapes "
                f"({self.dimension}, D) and (D,): z = matrix (x - centre) has {self.dimension} coordinates."
            )
        slopes = self.A @ change
        return MaxAffine(slopes, self.b - _dots(slopes, origin[None, :]))

    def sliced(self, axes: Sequence[int], at: ArrayLike) -> MaxAffine:
        """s_j(y) = sum_{i in axes} A[j, i] y_i + (b_j + sum_{i not in axes} A[j, i] at_i).

        The partition of the coordinate plane through `at`.  The section of a power diagram is again a power
        diagram; pieces whose cells the plane misses become empty cells, so indices keep their meaning.

        Args:
            axes: which coordinates stay free, in the order wanted.
            at: (D,), where the others stand.
        """
        point = _finite("at", at)
        free = list(axes)
        if point.shape != (self.dimension,):
            raise BadInput(f"`at` of shape {point.shape} must have shape ({self.dimension},).")
        if not free or len(set(free)) != len(free) or not all(0 <= i < self.dimension for i in free):
            raise BadInput(f"`axes` (={free}) must be different coordinates among 0..{self.dimension - 1}.")
        held = [i for i in range(self.dimension) if i not in free]
        return MaxAffine(self.A[:, free], self.b + _dots(self.A[:, held], point[None, held]))

    # -- shapes of cells ------------------------------------------------------------------------------

    def polygons(self, box: BoxLike | Mapping[str, Any]) -> list[Array]:
        """The cells of two variables, clipped to the box: one (K, 2) array per piece, counter-clockwise.

        Empty cells, and those that meet the box in no area, are arrays of shape (0, 2); of equal pieces the
        least index has the cell.  The polygons tile the box.
        """
        from maxaffine.layer.polygons import cell_polygons

        box = _edged(box)
        return cell_polygons(self.A, self.b, box.low, box.high)

    def intervals(self, box: BoxLike | Mapping[str, Any]) -> Array:
        """The cells of one variable, clipped to the box: (N, 2), from and to; (nan, nan) where empty."""
        from maxaffine.layer.polygons import cell_intervals

        box = _edged(box)
        return cell_intervals(self.A, self.b, box.low, box.high)

    # -- plumbing -------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MaxAffine):
            return NotImplemented
        return np.array_equal(self.A, other.A) and np.array_equal(self.b, other.b)

    def __hash__(self) -> int:
        # Adding 0.0 turns -0.0 into 0.0: equal arrays must have equal hashes.
        return hash((self.A.shape, (self.A + 0.0).tobytes(), (self.b + 0.0).tobytes()))

    def __repr__(self) -> str:
        plural = "s" if self.dimension > 1 else ""
        return f"MaxAffine({len(self):,} pieces in {self.dimension} variable{plural})"

    def _points(self, x: ArrayLike) -> tuple[Array, tuple[int, ...]]:
        """The points as rows, (B, D), and the shape they came in."""
        points = np.asarray(x, dtype=np.float64)
        if points.ndim == 0 or points.shape[-1] != self.dimension:
            raise BadInput(
                f"`x` of shape {points.shape} must end in {self.dimension}, the number of variables; "
                "a batch has shape (B, D), for one variable x[:, None]."
            )
        return points.reshape(-1, self.dimension), points.shape[:-1]

    def _scores(self, points: Array) -> Array:
        """(B, D) -> (B, N), summed coordinate by coordinate."""
        scores = np.multiply.outer(points[:, 0], self.A[:, 0])
        for i in range(1, self.dimension):
            scores += np.multiply.outer(points[:, i], self.A[:, i])
        scores += self.b
        return scores

    def _measured(self, x: ArrayLike, measure: Callable[[Array], NDArray[Any]]) -> NDArray[Any]:
        """What `measure` makes of the scores (B, N) of some points at a time, (B,): (..., D) -> (...)."""
        points, lead = self._points(x)
        step = max(1, _PAIRS_AT_ONCE // len(self))
        parts = [measure(self._scores(points[i : i + step])) for i in range(0, max(1, len(points)), step)]
        return np.concatenate(parts).reshape(lead)


def _edged(box: Any) -> BoxLike:
    """A dictionary of pairs as the box that it stands for; what has edges as it is."""
    return box if hasattr(box, "low") and hasattr(box, "high") else Box.of(box)


def _finite(name: str, values: ArrayLike) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"`{name}` must be an array of numbers, every row of the same length.") from None
    if not np.isfinite(array).all():
        raise BadInput(f"`{name}` holds nan or inf; every entry must be a finite number.")
    return array


def _dots(left: Array, right: Array) -> Array:
    """Row-wise inner products, summed in the order of the coordinates."""
    return np.asarray((left * right).sum(axis=1), dtype=np.float64)


def _counts(counts: int | Sequence[int] | NDArray[np.integer], dimension: int) -> tuple[int, ...]:
    array = np.asarray(counts)
    if array.ndim == 0:
        array = np.full(dimension, array)
    if array.shape != (dimension,) or array.dtype.kind not in "iu" or not (array >= 1).all():
        raise BadInput(
            f"`counts` (={_short(counts)}) must be one whole number of cells, at least 1, "
            f"or one for each of the {dimension} axes of the box."
        )
    return tuple(int(p) for p in array)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
