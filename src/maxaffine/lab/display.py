"""What a person sees of a run: units done and left, the rate, the time to go, and the current metric, on standard error."""

import sys
import time
from typing import Any

EVERY = 10.0  # seconds between lines where nobody sits at a terminal


class Display:
    """A bar at a terminal (with rich, where it is installed), a line now and then elsewhere."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done = name, total, done
        self._before = done
        self._begun = self._said = time.monotonic()
        self._metric = ""
        self._bars: Any = None
        self._task: Any = None

    def __enter__(self) -> "Display":
        if sys.stderr is not None and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
            except ModuleNotFoundError:
                return self
            words = TextColumn("{task.fields[words]}", style="dim", markup=False)
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), words)
            self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bars.add_task(self.name, total=self.total, completed=self.done, words="")
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def metric(self, unit: str, name: str, value: float) -> None:
        """The current metric of a unit under way."""
        self._metric = f"{name} {value:.4g} in {unit}"
        self._show()

    def unit_done(self, unit: str, metric: dict[str, float]) -> None:
        """One more."""
        self.done += 1
        for name, value in metric.items():
            self._metric = f"{name} {value:.4g} in {unit}"
        self._show(self.done == self.total)

    def words(self) -> str:
        """Done, left, rate, time to go, metric."""
        left = self.total - self.done
        elapsed = time.monotonic() - self._begun
        fresh = self.done - self._before
        parts = [f"{left} left"]
        if fresh and elapsed > 0:
            rate = fresh / elapsed
            parts.append(f"{rate:.3g}/s" if rate >= 1 else f"{60 * rate:.3g}/min")
            if left:
                parts.append(f"{_duration(left / rate)} to go")
        return ", ".join(parts) + (f"; {self._metric}" if self._metric else "")

    def _show(self, at_once: bool = False) -> None:
        if self._bars is not None:
            self._bars.update(self._task, completed=self.done, words=self.words())
            return
        now = time.monotonic()
        if sys.stderr is not None and (at_once or now - self._said > EVERY):
            self._said = now
            sys.stderr.write(f"{self.name}: {self.done} of {self.total} done, {self.words()}\n")
            sys.stderr.flush()


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
