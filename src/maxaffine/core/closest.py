"""How close a search came: its best layer so far, the smallest bound that was proved, the closest fit, and the head in hand.

Fits tell it as they are made, wherever they are; who listens to progress hears of those that are much closer than before.  A fit
is off by its error at the points where it was looked at: nothing is proved of it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from maxaffine.core.budget import count_text
from maxaffine.core.progress import Progress, silent

CLOSER = 0.3  # of the error of the fit that was told last: what the next one has


@dataclass(frozen=True)
class Attempt:
    """A head of so many tokens, with the error of its fit or the bound that was proved of it."""

    error: float
    tokens: int
    head: str


@dataclass
class Journal:
    """What one search has so far."""

    progress: Progress = silent
    head: str = ""  # that is being looked for
    fits: bool = False  # whether what is fitted now is the whole target
    parts: bool = False  # whether layers are for a part of it
    fit: Attempt | None = None
    proof: Attempt | None = None
    begun: Attempt | None = None  # whose proof was begun
    covered: tuple[str, int, float] | None = None  # by a head, with so many tokens, so large a share of the box
    pieces: int = 0  # of the target, for which layers were made
    best: Any = None  # the layer that is returned where time ends
    reasons: dict[str, list[str]] = field(default_factory=dict)  # why heads do not serve
    told: float = math.inf

    def ask(self, head: str) -> None:
        """Another head is looked for."""
        self.head, self.covered, self.begun, self.pieces = head, None, None, 0


_journal: ContextVar[Journal | None] = ContextVar("journal", default=None)


@contextmanager
def watched(progress: Progress) -> Iterator[Journal]:
    """A journal of the search inside."""
    mine = Journal(progress)
    token = _journal.set(mine)
    try:
        yield mine
    finally:
        _journal.reset(token)


def journal() -> Journal:
    """That of the search around; one that nobody reads where there is none."""
    return _journal.get() or Journal()


@contextmanager
def fits_of(whole: bool) -> Iterator[None]:
    """Inside, fits are of the whole target, or of a part of it alone."""
    mine = journal()
    before, mine.fits = mine.fits, whole
    try:
        yield
    finally:
        mine.fits = before


@contextmanager
def of_a_part() -> Iterator[None]:
    """Inside, layers are for a part of the target, and say nothing of how close the whole is."""
    mine = journal()
    before, mine.parts = mine.parts, True
    try:
        yield
    finally:
        mine.parts = before


def fitted(tokens: int, error: float) -> None:
    """A fit of so many tokens is off by so much at the points where it was looked at."""
    if journal().fits:
        looked(tokens, error)


def looked(tokens: int, error: float) -> None:
    """A layer of so many tokens is off by so much at the points where it was looked at."""
    mine = journal()
    if mine.parts or not error < (math.inf if mine.fit is None else mine.fit.error):
        return
    mine.fit = Attempt(error, tokens, mine.head)
    if error <= CLOSER * mine.told:
        mine.told = error
        mine.progress(f"{mine.head} head of {count_text(tokens)} tokens: fitted to {error:.2g}", 0, 1)


def begun(tokens: int, error: float) -> None:
    """A layer of so many tokens that is off by so much at some points is about to be proved."""
    mine = journal()
    if not mine.parts:
        mine.begun = Attempt(error, tokens, mine.head)


def proved(tokens: int, bound: float) -> None:
    """A layer of so many tokens is proved to an error that is larger than the one asked for."""
    mine = journal()
    mine.begun = None
    if not mine.parts and bound < (math.inf if mine.proof is None else mine.proof.error):
        mine.proof = Attempt(bound, tokens, mine.head)


def covered(tokens: int, share: float) -> None:
    """Cells with so many tokens in all fit the target on so large a share of the box."""
    mine = journal()
    if mine.fits and not mine.parts and share > (0.0 if mine.covered is None else mine.covered[2]):
        mine.covered = mine.head, tokens, share
