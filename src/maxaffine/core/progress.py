"""Progress: long loops report how far they are; who listens is the caller's matter.

A progress callback is `progress(stage, done, total)`; the command line draws a rich bar with it, a notebook may
print, and the default is silence.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""


@contextmanager
def bar(enabled: bool = True) -> Iterator[Progress]:
    """A rich progress bar on standard error, shown only for work that lasts longer than a second."""
    if not enabled:
        yield silent
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, object] = {}
    begun = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total)
        bars.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]
        if not bars.live.is_started and time.monotonic() - begun > 1.0:
            bars.start()

    try:
        yield report
    finally:
        if bars.live.is_started:
            bars.stop()
