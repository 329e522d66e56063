"""Lookups too large for memory: values computed in pieces, by any executor, and written straight into the layer's file.

A piece is a Task that travels as plain data: an expression as text, the grid, and which cells.  What comes back are its values
and what the certificate must know of them, so that nothing looks at all values at once.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.progress import Progress, silent
from maxaffine.core.records import canonical_json
from maxaffine.core.rounding import FLOAT64, numpy_dtype
from maxaffine.core.streams import Pending
from maxaffine.heads.lookup.grid import chunks, grid_coordinates, grid_keys, site_intervals, values_at
from maxaffine.heads.lookup.plan import GridPlan
from maxaffine.layer.keys import Coordinates
from maxaffine.layer.layer import MAPPED, Layer
from maxaffine.target.target import Target

STREAM = 256 << 20  # bytes of values from which on a lookup with a file to go to is streamed
CELLS = 1 << 17  # cells of a piece
WORKING = 480  # bytes per cell and output while a piece is computed: intervals and what their operations leave behind
RESERVE = 128 << 20  # bytes for everything that does not grow with the pieces
AHEAD = 2  # pieces asked for ahead, per worker
WAITING = 32  # of them at most


@dataclass(frozen=True)
class Task:
    """Cells start..stop of a grid; the target as JSON where it is an expression, else itself."""

    target: str | Target
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    counts: tuple[int, ...]
    start: int
    stop: int
    dtype: str
    function: Any = None  # of a callable: sent beside the target, as executors send functions in ways of their own


@dataclass(frozen=True)
class Seen:
    """What is known of the values of a piece: uncertainty of f at the sites, what storing lost, their size, how blurred sites."""

    uncertainty: float
    storage: float
    largest: float
    blur: tuple[float, ...]

    def worst(self, other: "Seen") -> "Seen":
        """The larger of both in every entry."""
        blur = tuple(max(a, b) for a, b in zip(self.blur, other.blur, strict=True))
        largest = max(self.largest, other.largest)
        return Seen(max(self.uncertainty, other.uncertainty), max(self.storage, other.storage), largest, blur)


@lru_cache(maxsize=8)
def _target(text: str) -> Target:
    return Target.from_json(json.loads(text))


def values_of(task: Task) -> tuple[NDArray[Any], Seen]:
    """Values (n, d_out, n_out) of a piece in the layer's dtype, and what was seen; runs in any process."""
    target = _target(task.target) if isinstance(task.target, str) else replace(task.target, function=task.function)
    coordinates = Coordinates(np.array(task.centre), np.diag(task.scale))
    sites = site_intervals(coordinates, task.counts, task.start, task.stop)
    blur = tuple(float(width) for width in (sites.hi - sites.lo).max(axis=0))
    middle, uncertainty = values_at(target, sites)
    values = np.asarray(middle, dtype=np.float64).astype(numpy_dtype(task.dtype))
    storage = float(np.abs(values.astype(np.float64) - middle).max()) * (1 + 4 * FLOAT64.unit)
    return values, Seen(uncertainty, storage, float(np.abs(values).max()), blur)


def tasks(plan: GridPlan, target: Target, dtype: str) -> Iterator[Task]:
    """The pieces of a plan, in the order of the values."""
    coordinates = grid_coordinates(target.box, plan.counts)
    carried = canonical_json(target.to_json()) if target.expression is not None else target
    centre, scale = tuple(coordinates.centre.tolist()), tuple(np.diag(coordinates.matrix).tolist())
    for start, stop in chunks(plan.cells, max(1, CELLS // (target.d_out * target.n_out))):
        yield Task(carried, centre, scale, plan.counts, start, stop, dtype, target.function)


def computed(pieces: Iterator[Task], executor: Any | None) -> Iterator[tuple[NDArray[Any], Seen]]:
    """Results in order, few pieces ahead of the one that is waited for."""
    if executor is None:
        yield from map(values_of, pieces)
        return
    ahead = min(AHEAD * (getattr(executor, "_max_workers", None) or 8), WAITING)
    waiting: deque[Any] = deque()
    try:
        for task in pieces:
            waiting.append(executor.submit(values_of, task))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def peak_bytes(plan: GridPlan, outputs: int) -> int:
    """Memory resident at most: one piece in the making, the finished ones that wait, the keys, and pages of the file."""
    piece = min(plan.cells * outputs, max(CELLS, outputs))
    return RESERVE + piece * (WORKING + 16 * WAITING) + 96 * sum(plan.counts) + min(8 * plan.cells * outputs, MAPPED)


def stream_grid(
    plan: GridPlan, target: Target, dtype: str, path: Any, executor: Any | None = None, progress: Progress = silent
) -> tuple[Layer, Seen, Pending]:
    """The layer of a grid plan with values mapped from the file that is being written; finish or discard the last."""
    stored = numpy_dtype(dtype)
    coordinates = grid_coordinates(target.box, plan.counts)
    keys = grid_keys(plan.counts).stored(stored)
    small = {
        "box.low": target.box.low, "box.high": target.box.high,
        "coordinates.centre": coordinates.centre, "coordinates.matrix": coordinates.matrix,
    }  # fmt: skip
    for i, axis in enumerate(keys.axes):
        small[f"keys.{i}.slopes"], small[f"keys.{i}.offsets"] = axis.slopes, axis.offsets
    specs: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {name: (a.dtype, a.shape) for name, a in small.items()}
    specs["values"] = (stored, (*plan.counts, target.d_out, target.n_out))
    pending = Pending(path, specs)
    try:
        for name, array in small.items():
            pending.append(name, array)
        seen, done = Seen(0.0, 0.0, 0.0, (0.0,) * len(plan.counts)), 0
        for values, one in computed(tasks(plan, target, dtype), executor):
            if not np.isfinite(values).all():
                raise AssertionError("a value is not finite: please report this")
            pending.append("values", values)
            seen, done = seen.worst(one), done + len(values)
            progress("values", done, plan.cells)
        mapped, box = pending.mapped("values"), target.box
        layer = Layer(coordinates, keys, plan.sharpness, mapped, box.low, box.high, target.input_shapes, dtype)
        layer.__dict__["largest"] = seen.largest  # known already: no need to read the file for it
    except BaseException:
        pending.discard()
        raise
    return layer, seen, pending
