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
    """Inside, `check` raises once so many seconds have passed; None: never."""
    token = _end.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(token)


def check() -> None:
    """Raise where the time is over."""
    end = _end.get()
    if end is not None and time.monotonic() > end:
        raise OutOfTime


def left() -> float | None:
    """Seconds until the deadline, at least a millisecond; None where there is none."""
    end = _end.get()
    return None if end is None else max(1e-3, end - time.monotonic())
