"""What goes where: results to standard output, progress, warnings and errors to standard error."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Timer
from typing import Any

from maxaffine.core.progress import Progress, bar, silent
from maxaffine.core.records import plain


def say(text: str) -> None:
    """A line of the result, on standard output."""
    if sys.stdout is not None:
        sys.stdout.write(f"{text}\n")


def complain(sentence: str) -> None:
    """A sentence on standard error, with everything that could steer a terminal made visible."""
    with suppress(OSError, ValueError):  # nobody listens there
        if sys.stderr is not None:
            sys.stderr.write(f"maxaffine: {printable(sentence)}\n")
            sys.stderr.flush()


def printable(text: str) -> str:
    """The text with control characters written out, line breaks aside: messages quote what users and files contain."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def say_json(record: Mapping[str, Any]) -> None:
    """The one object of `--json`, on one line; NaN and infinities are null."""
    say(json.dumps(_readable(plain(dict(record))), allow_nan=False))


def _readable(value: Any) -> Any:
    """Whole numbers beyond every float, on which readers of JSON choke, as text; smaller ones are exact."""
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) >= 10**308 else value


def tell(json: bool, record: Mapping[str, Any], lines: Iterable[tuple[str, str]]) -> None:
    """The result of a command: one object, or lines of a label and a text."""
    if json:
        say_json(record)
        return
    for label, text in lines:
        say(printable(f"{label:<11}{text}"))


def answer(json: bool, record: Mapping[str, Any], rows: Iterable[tuple[str, ...]]) -> None:
    """The result of a command: one object, or rows as lines of aligned columns."""
    if json:
        say_json(record)
        return
    for line in table(rows):
        say(line)


def progress_bar(quiet: bool = False) -> AbstractContextManager[Progress]:
    """A bar on standard error for work over a second, if a person watches there."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    return bar(enabled=watched and not quiet)


@contextmanager
def stage(progress: Progress, name: str) -> Iterator[None]:
    """Work that cannot say how far it is: after a second its name and a clock are shown."""
    if progress is silent:
        yield
        return
    timer = Timer(1.1, progress, (name, 0, 1))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def table(rows: Iterable[tuple[str, ...]], gap: str = "  ") -> Iterator[str]:
    """Rows as lines of aligned columns."""
    kept = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*kept, strict=True)]
    for row in kept:
        yield gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
