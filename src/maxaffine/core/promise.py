"""What a refusal names is asked for before it is named: an error at which the same request is served, found in little time.

A bound that was missed promises nothing: asked again, heads aim at another error and are fitted anew.  So it is asked for; then
errors that grow by little where they are refused and by much where that takes long, until one is served; then the middle of the
largest that was not and the smallest that was.  Errors that follow from plans of lookups are sure, and nothing larger is told.
"""

import math
import time
from collections.abc import Callable

from maxaffine.core.deadline import OutOfTime, deadline
from maxaffine.core.errors import Refused, TimeOver, rounded_up

SECONDS = 1.0  # after which a refusal is told, but for what is under way,
MORE = 0.5  # and so many more where it took longer itself
LONG = 1.0  # seconds of a refusal from which on an error that is sure is not compared with what would be tried
FARTHER = 1.5  # times an error that is refused: the next one at least; twice as much every time
FAR = 30.0  # the same of one that took too long
CLOSE = 4.0  # times an error that is not served: one that is near enough
LEAST = 0.1  # seconds of a try
LARGEST = 1e300  # error that is asked for
NEAR = 3  # tries near the bound that was missed


def kept(refusal: Refused, again: Callable[[float], object], asked: float, spent: float = 0.0) -> Refused:
    """The refusal, for which some seconds were spent, with an error that `again` was served for or that is sure, if any."""
    wanted = refusal.nearest_error
    if wanted is None or isinstance(refusal, TimeOver):
        return refusal
    trial = _Trial(asked, refusal.sure)
    trial.next(wanted, 1.0)
    tried = spent < LONG or refusal.sure is None
    end = time.monotonic() + (max(SECONDS - spent, min(MORE, spent)) if tried else 0.0)
    while not trial.settled and (left := end - time.monotonic()) > 0.0:
        try:
            with deadline(max(LEAST, left / 2.0)):
                again(trial.error)
            trial.served()
        except OutOfTime:
            trial.next(trial.error, FAR)
        except Refused as other:
            trial.refused(other)
    return refusal.naming(trial.high)


class _Trial:
    """The error that is asked for next, the largest one that was not served, and the smallest that was or is sure."""

    def __init__(self, low: float, high: float | None) -> None:
        self.low, self.high = low, high
        self.error, self.farther, self.count, self.settled = low, FARTHER, 0, False

    def next(self, error: float, times: float) -> None:
        """Ask for so many times an error that was not served, or for what lies between it and one that is."""
        self.low = self.low if times == 1.0 else max(self.low, error)
        self.count += 1
        if not error * times < LARGEST:
            self.settled = True
            return
        self.error = rounded_up(error * times)
        if self.high is not None and (self.error >= self.high or self.count > NEAR):
            self.error = rounded_up(math.sqrt(self.low) * math.sqrt(self.high))
            self.settled = self.high <= CLOSE * self.low or not self.low < self.error < self.high

    def served(self) -> None:
        """A smaller one is asked for where the one before was far away."""
        named, self.high, self.count = self.count == 1, self.error, NEAR
        self.next(self.low, self.high / self.low)
        self.settled = self.settled or named

    def refused(self, other: Refused) -> None:
        """Ask for the bound that was missed now, or for more and more."""
        self.high = other.sure if self.high is None else self.high
        missed = 0.0 if other.nearest_error in (None, other.sure) else other.nearest_error
        times = max(self.farther, (missed or 0.0) / self.error)
        self.farther *= 2.0
        self.next(self.error, times)
