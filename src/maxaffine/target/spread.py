"""Evaluations by pieces: in this process or by an executor, each handed on as soon as it is there.

An executor gets the function itself and some points at a time, as many as take about BRIEF, and nothing that takes less in all:
then sending would cost more than it saves.  Any concurrent.futures.Executor serves, of threads, of processes, of loky, of a Dask
cluster.  Without one, pieces double while that makes a point cheaper or a piece takes less than BRIEF.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused

PIECES = 64  # that an executor gets first, when nobody knows how long a point takes,
MOST = 1024  # and at most
FIRST = 4  # points: some functions do not like to be called with one
BRIEF = 0.1  # seconds of a piece in this process, unless larger ones make points cheaper
CHEAPER = 0.75  # times the seconds per point of the piece before

Task = Callable[[Array], tuple[Callable[..., Any], tuple[Any, ...]]]
Piece = tuple[slice, Array]


def pieces(points: Array, evaluate: Callable[[Array], Array], single: bool) -> Iterator[Piece]:
    """Values piece by piece in this process; one point at a time where the function is called with single points anyway."""
    start, size, before = 0, 1 if single else FIRST, np.inf
    while start < len(points):
        part = slice(start, min(start + size, len(points)))
        begun = time.perf_counter()
        yield part, evaluate(points[part])
        each = (time.perf_counter() - begun) / (part.stop - part.start)
        if not single and (each * size < BRIEF or each < CHEAPER * before):
            size *= 2
        start, before = part.stop, each


class Spread:
    """Evaluations by an executor: `task` says what it runs for some points, `judge` looks at what came back."""

    def __init__(self, executor: Any, task: Task, judge: Callable[[Array, Any], Array]) -> None:
        self._executor, self._task, self._judge = executor, task, judge
        self._each: float | None = None  # seconds of a point, the least that was seen

    def is_cheap(self, points: Array) -> bool:
        """Whether these points take less here than it takes to send them."""
        return self._each is not None and self._each * len(points) < BRIEF

    def __call__(self, points: Array) -> Iterator[Piece]:
        """Values piece by piece, in the order in which they are done."""
        count = PIECES if self._each is None else int(np.clip(self._each * len(points) / BRIEF, 1, MOST))
        futures: dict[Future[Any], slice] = {}
        try:
            start = 0
            for part in np.array_split(points, min(count, len(points))):
                function, arguments = self._task(part)
                futures[self._executor.submit(timed, function, arguments)] = slice(start, start + len(part))
                start += len(part)
            for future in as_completed(list(futures)):
                place = futures.pop(future)
                seconds, found = _result(future)
                each = seconds / (place.stop - place.start)
                self._each = each if self._each is None else min(self._each, each)
                yield place, self._judge(points[place], found)
        finally:
            for future in futures:
                future.cancel()


def timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, Any]:
    """What runs in a worker: the seconds, and what was found."""
    begun = time.perf_counter()
    found = function(*arguments)
    return time.perf_counter() - begun, found


def _result(future: Future[Any]) -> Any:
    """What a worker found; what went wrong on the way in a sentence."""
    try:
        return future.result()
    except (BadInput, Refused):
        raise
    except Exception as failure:
        if "pickle" in f"{type(failure).__name__} {failure}".lower():
            raise BadInput(
                f"`executor` cannot send the function to its workers ({failure}): define it at the top of a module, or use an "
                "executor that sends code, such as those of loky and Dask."
            ) from None
        raise Refused(f"`executor`: a worker did not answer ({type(failure).__name__}: {failure}).") from failure
