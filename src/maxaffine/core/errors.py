"""The two ways a request can fail, both of them sentences.

A message names the argument, its value, the rule and the way out:
"`error` (=0) must be positive; ask for an absolute sup-norm error such as 1e-3."
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self


class MaxaffineError(ValueError):
    """Base of every error that maxaffine raises on purpose."""


class BadInput(MaxaffineError):
    """An argument, a file or an expression that is malformed."""


class Refused(MaxaffineError):
    """A well-formed request that cannot be proved, afforded or represented.

    The message is the reason, then the nearest error within reach (where one is known), then what to try.  `tried` has a line
    for every attempt before; `remedy` the arguments that should help, by name.  `sure` is an error that is known to be met from
    a plan; others are tried before they are told (core/promise.py).
    """

    def __init__(
        self, reason: str, *, nearest_error: float | None = None, remedy: Mapping[str, Any] | None = None,
        tried: Iterable[str] = (), sure: float | None = None,
    ) -> None:  # fmt: skip
        nearest_error = _two_digits(nearest_error)
        self.reason, self.nearest_error, self.tried, self.sure = reason, nearest_error, tuple(tried), _two_digits(sure)
        self.remedy = dict(remedy or ({} if nearest_error is None else {"error": nearest_error}))
        met = "" if nearest_error is None else f" The nearest error within reach is about {nearest_error:.2g}."
        self.summary = f"{reason}{met}"
        way_out = ", ".join(_argument(name, value) for name, value in self.remedy.items())
        super().__init__(f"{self.summary} Try {way_out}." if way_out else self.summary)

    def naming(self, error: float | None, per: float = 1.0) -> Self:
        """The same with another error within reach, or none; in units of `per`."""
        remedy = {name: value for name, value in self.remedy.items() if name != "error"}
        scaled = [None if one is None else one / per for one in (error, self.sure)]
        return type(self)(self.reason, nearest_error=scaled[0], remedy=remedy, tried=self.tried, sure=scaled[1])

    @property
    def details(self) -> str:
        """What was tried, one line each."""
        return "\n".join(self.tried)


class TimeOver(Refused):
    """The time that a search may take is over, and it has no layer to return."""


class TooMany(Refused):
    """More tokens than memory holds; how many."""

    tokens: int = 0


class Missed(str):
    """Why a layer was not taken, and the nearest error that it reaches where it is proved at all."""

    nearest_error: float | None

    @classmethod
    def of(cls, what: str, refusal: Refused) -> Missed:
        """What was refused, and the reason."""
        made = cls(f"{what}: {refusal.reason.rstrip('.')}")
        made.nearest_error = refusal.nearest_error
        return made


def rounded_up(value: float) -> float:
    """Two digits, and no smaller than the value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    steps = math.ceil(value / unit)
    return next(found for k in range(-1, 3) if (found := float(f"{(steps + k) * unit:.2g}")) >= value)


def _two_digits(error: float | None) -> float | None:
    """As it is told: rounded up, so that what is read and typed is no smaller."""
    return rounded_up(error) if error is not None and 0.0 < error < math.inf else None


def _argument(name: str, value: Any) -> str:
    """In Python, and on the command line."""
    written = f"{value:g}" if isinstance(value, float) else str(value)
    quoted = f'"{value}"' if isinstance(value, str) else written
    return f"`{name}={quoted}` (--{name.replace('_', '-')} {written})"
