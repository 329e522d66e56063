"""What a page asks of a process: one errand at a time, the others wait, and of those of one kind the last alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxaffine.studio.worker import Worker

AT_ONCE = 2  # compiles, over all pages
busy: set[int] = set()  # desks that compile
COMPILES = ("compile", "table", "keys", "compare", "frontier")  # what counts as one


@dataclass(frozen=True)
class Errand:
    """One request, and what is to be done with its answer or with the sentence that refuses it."""

    name: str
    arguments: tuple[Any, ...]
    then: Callable[[Any], None]
    wrong: Callable[[str, dict[str, Any]], None]
    words: str  # what is said while it is under way


class Desk:
    """A worker and its errands."""

    def __init__(self, progress: Callable[[str], None], lost: Callable[[], None]) -> None:
        self.worker = Worker()
        self._progress, self._lost = progress, lost
        self._under_way: Errand | None = None
        self._waiting: dict[str, Errand] = {}

    @property
    def compiles(self) -> bool:
        """Whether something is under way that may take long, which can be cancelled."""
        return id(self) in busy

    def ask(self, errand: Errand, kind: str = "") -> None:
        """As soon as the process is free; what waits and is of the same kind is forgotten."""
        key = kind or errand.name
        self._waiting.pop(key, None)
        self._waiting[key] = errand
        self._next()

    def drop_waiting(self) -> None:
        """What has not begun will not."""
        self._waiting.clear()

    def close(self) -> None:
        """Kill the process: nothing of its errands is left."""
        self.worker.stop()
        busy.discard(id(self))
        self._under_way = None
        self._waiting.clear()

    def stop(self) -> None:
        """The same, on a page that stays."""
        self.close()
        self._progress("")

    def tick(self) -> None:
        """What the process said since the last tick."""
        for kind, *said in self.worker.heard():
            if kind == "progress":
                stage, done, total = said
                self._progress(f"{stage}: {done:,} of {total:,}" if total > 1 else f"{stage} ..")
                continue
            errand, self._under_way = self._under_way, None
            busy.discard(id(self))
            self._progress("")
            if not self.worker.alive:  # and with it the layer
                self._waiting.clear()
                self._lost()
            if errand is not None:
                errand.then(said[0]) if kind == "done" else errand.wrong(said[0], said[1] if len(said) > 1 else {})
        self._next()

    def _next(self) -> None:
        if self.worker.busy or not self._waiting:
            return
        errand = self._waiting.pop(next(iter(self._waiting)))
        if errand.name in COMPILES:
            if len(busy) >= AT_ONCE:
                errand.wrong(f"{AT_ONCE} compiles are under way on other pages; try again when one has ended.", {})
                return
            busy.add(id(self))
        self._under_way = errand
        self._progress(errand.words)
        self.worker.ask(errand.name, *errand.arguments)
