"""A deadline for the work inside: searches and proofs ask from time to time, and end with `OutOfTime` once it has passed.

`OutOfTime` is no refusal, so that nothing which takes refusals for reasons goes on; the search turns it into the best layer found
so far, or into a refusal that says how close it came.  `OutOfCalls` is the same for evaluations of a callable (target/calls.py).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_end: ContextVar[float | None] = ContextVar("deadline", default=None)


class OutOfTime(Exception):
    """The time that a compile may take is over."""


class OutOfCalls(Exception):
    """More evaluations of a callable are wanted than are left."""

    def __init__(self, wanted: int, left: int) -> None:
        super().__init__(f"{wanted:,} more points of the function are wanted, and `max_calls` leaves {left:,}")


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Inside, `check` raises once so many seconds have passed, or those of a deadline around it; None: those alone."""
    ends = [end for end in (_end.get(), None if seconds is None else time.monotonic() + seconds) if end is not None]
    with _until(min(ends, default=None)):
        yield


@contextmanager
def extended(seconds: float) -> Iterator[None]:
    """Inside, so many seconds are left, also where a deadline around it has passed: for what is made of what is there."""
    with _until(time.monotonic() + seconds):
        yield


@contextmanager
def _until(end: float | None) -> Iterator[None]:
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def check() -> None:
    """Raise where the time is over."""
    end = _end.get()
    if end is not None and time.monotonic() > end:
        raise OutOfTime
