"""What is asked of a callable: counted, kept, and at most so many points.

Points asked again, equal to the bit, are answered from memory, so that searches may ask for the same grid as often as they like.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import OutOfCalls

PER_POINT = 200  # bytes that a kept point takes beside its coordinates and values: its key and its place
MOST_BYTES = 1 << 28  # about a million points: more are hardly asked for twice
LEAST = 32  # points below which nothing can be said about a function

Evaluate = Callable[[Array], Array]


class Answers(Protocol):
    """Who answers for a callable's values at points (B, D)."""

    def ask(self, points: Array, evaluate: Evaluate) -> Array:
        """Values (B, d_out, n_out); `evaluate` calls the function itself."""
        ...


class Calls:
    """The points at which one compile evaluated a callable, and the values there.

    `count` is at how many points the function was evaluated; `most` are allowed, of which `held` are kept back for a last look at
    a layer, and `denied` says whether more were wanted.  Memory ends at `max_bytes`: what comes after it is evaluated and
    counted again.  After `close` nothing is counted, kept or refused.
    """

    def __init__(self, most: int | None = None, max_bytes: float = MOST_BYTES, count: int = 0) -> None:
        self.count, self.most, self.held, self.denied = count, most, 0, False
        self._room, self._open = min(max_bytes, MOST_BYTES), True
        self._places: dict[bytes, int] = {}
        self._values: Array = np.empty((0,))

    def __reduce__(self) -> Any:
        """In another process nothing is known of what is counted here: there the function is called as it is."""
        return _closed, ()

    @property
    def left(self) -> int | None:
        """Points that may still be asked for; None where there is no limit."""
        return None if self.most is None or not self._open else max(0, self.most - self.held - self.count)

    def close(self) -> None:
        """Forget the values, and let everything through from now on; the count stays."""
        self._open, self._places, self._values = False, {}, np.empty((0,))

    def ask(self, points: Array, evaluate: Evaluate) -> Array:
        """evaluate(points), rows that are known taken from memory; OutOfCalls where the others are more than may be asked for."""
        if not self._open or not len(points):
            return evaluate(points)
        rows = np.ascontiguousarray(points).view(f"V{8 * points.shape[1]}").ravel().tolist()
        places = np.fromiter((self._places.get(row, -1) for row in rows), np.intp, len(rows))
        new = np.flatnonzero(places < 0)
        if not len(new):
            return np.asarray(self._values[places])
        order: dict[bytes, int] = {}
        back = np.array([order.setdefault(rows[i], len(order)) for i in new])
        if self.left is not None and len(order) > self.left:
            self.denied = True
            raise OutOfCalls(len(order), self.left)
        found = evaluate(points[new[np.unique(back, return_index=True)[1]]])
        self.count += len(order)
        result = np.empty((len(points), *found.shape[1:]))
        result[new] = found[back]
        if len(new) < len(points):
            known = places >= 0
            result[known] = self._values[places[known]]
        self._keep(list(order), found)
        return result

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


def _closed() -> Calls:
    made = Calls()
    made.close()
    return made
