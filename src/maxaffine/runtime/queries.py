"""Queries as users write them, turned into points (B, D) of the box.

Plain box: (B, D), one point (D,), on a one-variable box also a scalar or a batch (B,).  Sequence box: (B, d, n) or (d, n).
Two inputs: one array for each.  A query beyond an edge by no more than the rounding of its own dtype (float32(pi) > pi)
is clamped; farther out it is an error unless outside="clamp".
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.target.box import Box
from maxaffine.target.target import Target


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
        flat, alone = _flatten(box, one)
        parts.append(_inside(box, flat, np.asarray(one).dtype, outside))
        single.append(alone)
    if len({len(part) for part in parts}) != 1 or len(set(single)) != 1:
        raise BadInput(f"both inputs must hold the same number of points; {[len(part) for part in parts]} came.")
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), single[0]


def _flatten(box: Box, x: ArrayLike) -> tuple[Array, bool]:
    try:
        if np.iscomplexobj(x):
            raise TypeError
        array = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"a query must be an array of numbers, not {type(x).__name__}.") from None
    if box.is_sequence:
        if array.ndim == 2:
            array, alone = array[None], True
        else:
            alone = False
        if array.shape[1:] != (box.d, box.n):
            raise BadInput(f"queries must have shape (B, {box.d}, {box.n}) or ({box.d}, {box.n}), and {array.shape} came.")
        return box.flatten(array), alone
    D = box.dimension
    if D == 1 and array.ndim <= 1:
        return array.reshape(-1, 1), array.ndim == 0
    if array.shape == (D,):
        return array[None], True
    if array.ndim != 2 or array.shape[1] != D:
        raise BadInput(f"queries must have shape (B, {D}) or ({D},), and {array.shape} came.")
    return array, False


def _surely_inside(box: Box, points: Array) -> bool:
    """One look at every column: all numbers between the edges, none of them NaN."""
    return all(
        points[:, i].min() >= box.low[i] and points[:, i].max() <= box.high[i] for i in range(points.shape[1])
    )


def _inside(box: Box, points: Array, dtype: np.dtype[Any], outside: str) -> Array:
    if len(points) and _surely_inside(box, points):
        return points
    if not np.isfinite(points).all():
        raise BadInput("queries must be finite numbers; NaN or infinity came.")
    unit = 0.0
    if outside == "error":
        kind = np.dtype(dtype)
        unit = float(np.finfo(kind).eps) if kind.kind == "f" else 2.0**-52
    slack = unit * np.maximum(np.abs(box.low), np.abs(box.high))
    if outside == "error":
        bad = (points < box.low - slack) | (points > box.high + slack)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise BadInput(
                f"query {row} has {box.names[column]} = {points[row, column]:.9g}, outside "
                f'[{box.low[column]:.9g}, {box.high[column]:.9g}]; pass outside="clamp" to use the nearest point of the box.'
            )
    return np.asarray(np.clip(points, box.low, box.high))
