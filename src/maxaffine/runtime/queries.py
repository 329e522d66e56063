"""Queries as users write them, turned into points (B, D) of the box.

Plain box: (B, D), one point (D,), on a one-variable box also a scalar or a batch (B,).  Sequence box: (B, d, n) or (d, n).
Two inputs: one array for each.  A query beyond an edge by no more than the rounding of its own dtype (float32(pi) > pi)
is clamped; farther out it is an error unless outside="clamp".  Tensors follow the same rules (runtime/torch_runtime.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.target.box import Box

if TYPE_CHECKING:  # judging routes on a device needs neither expressions nor their balls
    from maxaffine.target.target import Target

FOLD = 1024  # rows that are looked at side by side
NOT_FINITE = "queries must be finite numbers; NaN or infinity came."


def boxes_for(target: Target, count: int, outside: str) -> tuple[Box, ...]:
    """One box for every input, where as many came as there are."""
    if outside not in ("error", "clamp"):
        raise BadInput(f'`outside` (={outside!r}) must be "error" or "clamp".')
    boxes = target.boxes or (target.box,)
    if count != len(boxes):
        raise BadInput(f"this layer takes {len(boxes)} input{'s' if len(boxes) > 1 else ''}, and {count} came.")
    return boxes


def as_points(target: Target, *x: ArrayLike, outside: str = "error") -> tuple[Array, bool]:
    """Points (B, D) in float64 and whether a single point came."""
    parts, single = [], []
    for box, one in zip(boxes_for(target, len(x), outside), x, strict=True):
        try:
            if np.iscomplexobj(one):
                raise TypeError
            array = np.asarray(one, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadInput(f"a query must be an array of numbers, not {type(one).__name__}.") from None
        flat, alone = flattened(box, array)
        parts.append(inside(box, flat, unit_of(np.asarray(one).dtype), outside))
        single.append(alone)
    if len({len(part) for part in parts}) != 1 or len(set(single)) != 1:
        raise BadInput(f"both inputs must hold the same number of points; {[len(part) for part in parts]} came.")
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), single[0]


def flattened(box: Box, x: Any) -> tuple[Any, bool]:
    """Points (B, D) of an array or tensor in any shape that a query may have, and whether a single point came."""
    D = box.dimension
    if box.is_sequence:
        alone, shape = x.ndim == 2, tuple(x.shape)
        x = x[None] if alone else x
        if tuple(x.shape[1:]) != (box.d, box.n):
            raise BadInput(f"queries must have shape (B, {box.d}, {box.n}) or ({box.d}, {box.n}), and {shape} came.")
        return x.swapaxes(1, 2).reshape(len(x), D), alone
    if D == 1 and x.ndim <= 1:
        return x.reshape(-1, 1), x.ndim == 0
    if tuple(x.shape) == (D,):
        return x[None], True
    if x.ndim != 2 or x.shape[1] != D:
        raise BadInput(f"queries must have shape (B, {D}) or ({D},), and {tuple(x.shape)} came.")
    return x, False


def unit_of(dtype: np.dtype[Any]) -> float:
    """The rounding of a dtype: by so much of an edge a query may lie beyond it."""
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-52


def inside(box: Box, points: Array, unit: float | Array, outside: str) -> Array:
    """The points, those beyond an edge by no more than their rounding moved to it; `unit` is one number or one per variable."""
    columns = zip(_few_rows(points).T, box.low, box.high, strict=True)
    if len(points) and all(column.min() >= low and column.max() <= high for column, low, high in columns):
        return points
    if not np.isfinite(points).all():
        raise BadInput(NOT_FINITE)
    if outside == "error":
        slack = unit * np.maximum(np.abs(box.low), np.abs(box.high))
        bad = np.argwhere((points < box.low - slack) | (points > box.high + slack))
        if len(bad):
            row, column = bad[0]
            raise beyond(box, row, column, points)
    return np.asarray(np.clip(points, box.low, box.high))


def _few_rows(points: Array) -> Array:
    """Rows that have the least and the largest of every column, NaN where there is one: few of them where `points` are many."""
    D, most = points.shape[1], len(points) // FOLD * FOLD
    if D == 1 or most < 4 * FOLD or not points.flags.c_contiguous:
        return points
    wide = points[:most].reshape(-1, FOLD * D)  # many rows at once, in loops that vectorise
    ends = [which.reduce(wide, axis=0).reshape(FOLD, D) for which in (np.minimum, np.maximum)]
    return np.concatenate([*ends, points[most:]])


def beyond(box: Box, row: int, column: int, points: Any) -> BadInput:
    """What is said of a query outside the box."""
    return BadInput(
        f"query {row} has {box.names[column]} = {float(points[row, column]):.9g}, outside "
        f'[{box.low[column]:.9g}, {box.high[column]:.9g}]; pass outside="clamp" to use the nearest point of the box.'
    )
