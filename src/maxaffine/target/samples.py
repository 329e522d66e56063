"""Samples: values at scattered points, as a target of `compile`.

    Samples(X, y)                          X (N, D), or (N,) for one variable; y (N,) or (N, K)
    Samples.from_frame(frame, "z")         columns by name, "z" the values

Samples say something at their points and nowhere else, and so does the certificate of a layer compiled from them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.target.box import Box
from maxaffine.target.entries import Entries, check_missing, check_names, digest, numbers
from maxaffine.target.target import Target

BLOCK = 1 << 16  # points handed out together


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Samples:
    """Values y at points X; immutable.

    Args:
        X: points (N, D), at least two different ones; a row (N,) for one variable.
        y: (N,), or (N, K) for K values per point.
        names: of the variables; by default x, or x1, x2, ..
        missing: "refuse" values that are NaN, infinite or masked, or "ignore" their points.  Points must be finite always.
        name: what the samples are called in files and figures.
    """

    X: Array  # (N, D), the points with values, in the order given
    y: Array  # (N, K)
    output_shape: tuple[int, ...]  # () or (K,)
    box: Box
    name: str
    _missing: int
    _rows: NDArray[np.intp]  # where the points stand in what was given

    def __init__(
        self, X: ArrayLike, y: ArrayLike, names: Sequence[str] | None = None, *, missing: str = "refuse", name: str = "samples"
    ) -> None:
        ignore = check_missing(missing)
        points, values = numbers("X", X), numbers("y", y)
        points = points[:, None] if points.ndim == 1 else points
        if points.ndim != 2 or 0 in points.shape:
            raise BadInput(f"`X` of shape {points.shape} must be points (N, D).")
        if values.ndim not in (1, 2) or len(values) != len(points) or values.size == 0:
            N = len(points)
            raise BadInput(f"`y` of shape {values.shape} must be ({N},) or ({N}, K), one row per point of `X`.")
        bad = np.argwhere(~np.isfinite(points))
        if bad.size:
            raise BadInput(f"`X` has {len(bad):,} numbers that are not finite, the first in row {bad[0][0]}; leave them out.")
        outputs = () if values.ndim == 1 else (int(values.shape[1]),)
        values = values.reshape(len(points), -1)
        there = np.asarray(np.isfinite(values).all(axis=1))
        count = int(len(there) - np.count_nonzero(there))
        if count and not ignore:
            raise BadInput(
                f"{count:,} of {len(there):,} rows of `y` are missing or not finite, the first is row {int(np.argmin(there))}; "
                'leave them out, or pass missing="ignore" and nothing is said about them.'
            )
        rows = np.flatnonzero(there)
        points, values = np.array(points[rows], order="C"), np.array(values[rows], order="C")
        if len(points) < 1:
            raise BadInput("every row of `y` is missing; there is nothing to compile.")
        low, high = points.min(axis=0), points.max(axis=0)
        flat = np.flatnonzero(low == high)
        if flat.size:
            raise BadInput(
                f"column {flat[0]} of `X` is {low[flat[0]]:.9g} in every row; leave it out, it tells nothing about the values."
            )
        with np.errstate(over="ignore"):
            if not np.isfinite(high - low).all():
                raise BadInput("`X` reaches farther than float64 can hold; scale it.")
        for array in (points, values, rows):
            array.flags.writeable = False
        box = Box.named(check_names(names, points.shape[1]), low, high)
        vars(self).update(X=points, y=values, output_shape=outputs, box=box, name=str(name), _missing=count, _rows=rows)

    @classmethod
    def from_frame(
        cls, frame: Any, values: str | Sequence[str], variables: Sequence[str] | None = None, *, missing: str = "refuse",
        name: str = "samples",
    ) -> "Samples":  # fmt: skip
        """Samples of a frame (pandas, polars): `values` names its column of values, or several; the others are the variables.

        `variables`: which columns those are, where others are to be left out.
        """
        labels = list(getattr(frame, "columns", ()))
        outputs = [values] if isinstance(values, str) else list(values)
        inputs = [label for label in labels if label not in outputs] if variables is None else list(variables)
        for column in (*outputs, *inputs):
            if labels.count(column) != 1:
                has = ", ".join(str(label)[:40] for label in labels[:12]) or "none"
                raise BadInput(f"the frame must have one column {column!r}; it has {has}.")
        if not inputs or not outputs:
            raise BadInput("a frame of samples needs a column of values, and at least one of a variable.")
        X, Y = (np.stack([numbers(label, frame[label]) for label in some], axis=1) for some in (inputs, outputs))
        return cls(X, Y[:, 0] if isinstance(values, str) else Y, inputs, missing=missing, name=name)

    @property
    def dimension(self) -> int:
        """D."""
        return int(self.X.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return self.box.names

    @property
    def nbytes(self) -> int:
        """Bytes of points and values as float64."""
        return self.X.nbytes + self.y.nbytes

    @cached_property
    def entries(self) -> Entries:
        """Counts and SHA-256 of the numbers."""
        return Entries("samples", (len(self.X),), len(self.X), self._missing, digest("maxaffine samples 1", (self.X, self.y)))

    @property
    def largest(self) -> float:
        """max |value|."""
        return float(np.abs(self.y).max())

    def contradiction(self, error: float) -> str | None:
        """None, or which two rows are at one point with values that no function has to within `error`."""
        order = np.lexsort(self.X.T[::-1])
        sorted_points = self.X[order]
        same = np.concatenate([[False], (sorted_points[1:] == sorted_points[:-1]).all(axis=1)])
        if not same.any():
            return None
        groups = np.cumsum(~same) - 1
        values = self.y[order]
        lows, highs = (op.reduceat(values, np.flatnonzero(~same), axis=0) for op in (np.minimum, np.maximum))
        worst = np.argwhere(highs - lows > 2.0 * error)
        if not len(worst):
            return None
        group, k = (int(i) for i in worst[0])
        members = np.sort(order[groups == group])
        column = self.y[members, k]
        a, b = int(members[column.argmin()]), int(members[column.argmax()])
        one, two = sorted((a, b))
        return (
            f"rows {self._rows[one]} and {self._rows[two]} of `X` are the same point and their values {self.y[one, k]:.9g} and "
            f"{self.y[two, k]:.9g} are more than twice the error ({error:g}) apart; no function is near both. "
            "Average them, or ask for a larger error."
        )

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """Points (m, D) and values (m, K), block by block."""
        for start in range(0, len(self.X), BLOCK):
            yield self.X[start : start + BLOCK], self.y[start : start + BLOCK]

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(self.X)

    def nearest(self, x: ArrayLike) -> Array:
        """Values (B, K) of the sample nearest to every point (B, D), as SciPy's NearestNDInterpolator finds it."""
        return np.asarray(self.y[self._tree.query(np.asarray(x, dtype=np.float64))[1]])

    def snapped(self, x: ArrayLike) -> Array:
        """The sample nearest to every point (B, D), as a point (B, D)."""
        return np.asarray(self.X[self._tree.query(np.asarray(x, dtype=np.float64))[1]])

    @cached_property
    def target(self) -> Target:
        """The target that `compile` takes: at a point that is no sample it is the nearest one, which is what figures show."""
        return Target(self.box, self.output_shape, "points", None, self._call, None, self.name, data=self)

    def _call(self, x: Array) -> Array:
        return self.nearest(x).reshape(len(x), *self.output_shape)

    def __repr__(self) -> str:
        holes = f", {self._missing:,} missing" if self._missing else ""
        return f"<maxaffine.Samples {self.name!r}: {len(self.X):,} points of {', '.join(self.names)}{holes}>"
