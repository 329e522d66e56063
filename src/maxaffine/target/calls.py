"""What is asked of a callable: counted, kept, and at most so many points.

Points asked again, equal to the bit, are answered from memory, so that searches may ask for the same grid as often as they like.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import OutOfCalls
from maxaffine.core.progress import Progress, silent
from maxaffine.target.spread import Spread, pieces
from maxaffine.target.store import Store

PER_POINT = 200  # bytes that a kept point takes beside its coordinates and values: its key and its place
MOST_BYTES = 1 << 28  # about a million points: more are hardly asked for twice
LEAST = 32  # points below which nothing can be said about a function

Evaluate = Callable[[Array], Array]


@dataclass(frozen=True)
class Way:
    """How new values are had: pieces in this process or by an executor, kept in a file, told as they come."""

    store: Store | None = None
    spread: Spread | None = None  # over an executor
    single: bool = False  # whether the function is called with single points
    progress: Progress = silent

    def values(self, points: Array, evaluate: Evaluate, count: int, most: int | None) -> Array:
        """evaluate(points), by pieces where that serves something."""
        if self.spread is None and self.store is None and not self.single:
            return evaluate(points)
        if self.spread is None or self.spread.is_cheap(points):
            parts = pieces(points, evaluate, self.single)
        else:
            parts = self.spread(points)
        found, done = np.empty((0,)), 0
        for part, values in parts:
            if done == 0:
                found = np.empty((len(points), *values.shape[1:]))
            found[part] = values
            done += len(values)
            if self.store is not None:
                self.store.append(points[part], values)
            self.progress("points of the function", count + done, most or count + len(points))
        return found


class Answers(Protocol):
    """Who answers for a callable's values at points (B, D)."""

    def ask(self, points: Array, evaluate: Evaluate) -> Array:
        """Values (B, d_out, n_out); `evaluate` calls the function itself."""
        ...


class Calls:
    """The points at which one compile evaluated a callable, and the values there.

    `count` is at how many points the function was evaluated, those included that a file of an earlier run answers; `most` are
    allowed now, of which `held` are kept back for a last look at a layer, and `denied` says whether more were wanted.  Of
    `allowed` ones in all, `reserve` are kept for a draw until `release`.  Memory ends at `max_bytes`: what comes after it is
    evaluated and counted again.  After `close` nothing is counted, kept or refused.
    """

    def __init__(
        self, most: int | None = None, max_bytes: float = MOST_BYTES, count: int = 0, reserve: int = 0,
        way: "Way | None" = None,
    ) -> None:  # fmt: skip
        self.count, self.allowed, self.held, self.denied = count, most, 0, False
        self.most = None if most is None else most - reserve
        self.recalled = 0  # points that the file of an earlier run answered
        self._room, self._open = min(max_bytes, MOST_BYTES), True
        self._places: dict[bytes, int] = {}
        self._values: Array = np.empty((0,))
        self._way, self._stored = way or Way(), {}
        if self._way.store is not None:
            points, values = self._way.store.points, self._way.store.values
            self._stored = dict(zip(_rows(points), values, strict=True))

    def __reduce__(self) -> Any:
        """In another process nothing is known of what is counted here: there the function is called as it is."""
        return _closed, ()

    @property
    def left(self) -> int | None:
        """Points that may still be asked for; None where there is no limit."""
        return None if self.most is None or not self._open else max(0, self.most - self.held - self.count)

    @property
    def is_watched(self) -> bool:
        """Whether evaluations are limited or kept in a file."""
        return self.allowed is not None or self._way.store is not None

    @property
    def limit(self) -> str:
        """The limit in words."""
        kept = 0 if self.allowed is None or self.most is None else self.allowed - self.most
        return f"`max_calls` (={self.allowed:,}{f', {kept:,} of them kept for the draw' if kept else ''})"

    def again(self, points: Array, evaluate: Evaluate) -> Array | None:
        """evaluate(points) whatever is known of them, counted; None where no call may be made for that."""
        if self._way.store is not None or (self.left is not None and self.left < len(points)):
            return None
        self.count += len(points)
        return evaluate(points)

    def release(self) -> None:
        """What was kept for a draw may be asked for now."""
        self.most, self.held = self.allowed, 0

    def close(self) -> None:
        """Forget the values, and let everything through from now on; the count stays."""
        self._open, self._places, self._values, self._stored = False, {}, np.empty((0,)), {}
        if self._way.store is not None:
            self._way.store.close()
        self._way = Way()

    def ask(self, points: Array, evaluate: Evaluate) -> Array:
        """evaluate(points), rows that are known taken from memory; OutOfCalls where the others are more than may be asked for."""
        if not self._open or not len(points):
            return evaluate(points)
        rows = _rows(points)
        places = np.fromiter((self._places.get(row, -1) for row in rows), np.intp, len(rows))
        new = np.flatnonzero(places < 0)
        if not len(new):
            return np.asarray(self._values[places])
        order: dict[bytes, int] = {}
        back = np.array([order.setdefault(rows[i], len(order)) for i in new])
        if self.left is not None and len(order) > self.left:
            self.denied = True
            raise OutOfCalls(len(order), self.left)
        found = self._evaluated(points[new[np.unique(back, return_index=True)[1]]], list(order), evaluate)
        self.count += len(order)
        result = np.empty((len(points), *found.shape[1:]))
        result[new] = found[back]
        if len(new) < len(points):
            known = places >= 0
            result[known] = self._values[places[known]]
        self._keep(list(order), found)
        return result

    def _evaluated(self, points: Array, rows: list[bytes], evaluate: Evaluate) -> Array:
        """Values at new points: from the file of an earlier run, the others from the function, kept as they come."""
        there = np.array([row in self._stored for row in rows])
        if not there.any():
            return self._way.values(points, evaluate, self.count, self.most)
        self.recalled += int(there.sum())
        known = np.stack([self._stored[row] for row in compress(rows, there.tolist())])
        if there.all():
            return known.reshape(len(points), *evaluate(points[:0]).shape[1:])
        rest = self._way.values(points[~there], evaluate, self.count + int(there.sum()), self.most)
        found = np.empty((len(points), *rest.shape[1:]))
        found[there], found[~there] = known.reshape(-1, *rest.shape[1:]), rest
        return found

    def _keep(self, rows: list[bytes], found: Array) -> None:
        """Remember the values of some points, as long as there is room."""
        each = PER_POINT + len(rows[0]) + 8 * int(np.prod(found.shape[1:]))
        fit = min(len(rows), int(self._room // each))
        have = len(self._places)
        if have + fit > len(self._values):
            grown = np.empty((max(2 * have, have + fit), *found.shape[1:]))
            if have:
                grown[:have] = self._values[:have]
            self._values = grown
        self._values[have : have + fit] = found[:fit]
        self._places.update(zip(rows[:fit], range(have, have + fit), strict=True))
        self._room -= fit * each


@contextmanager
def closed_on_failure(calls: Any) -> Iterator[None]:
    """What is begun with a file of evaluations either goes on, or lets go of the file."""
    try:
        yield
    except BaseException:
        if isinstance(calls, Calls):
            calls.close()
        raise


def _rows(points: Array) -> list[bytes]:
    """Every point as its bytes."""
    found: list[bytes] = np.ascontiguousarray(points).view(f"V{8 * points.shape[1]}").ravel().tolist()
    return found


def _closed() -> Calls:
    made = Calls()
    made.close()
    return made
