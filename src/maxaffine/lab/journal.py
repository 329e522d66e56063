"""The journal of a run: one JSON object per line, each with a checksum, on the disk before the next unit is counted as done.

    {"unit": ..., "values": ..., ..., "checksum": SHA-256 of the rest as canonical JSON}

A process killed while it writes leaves a last line without its end; reading drops it and says so, and the unit is done
again.  A damaged line with others after it cannot come from a kill: it is an error that names the line.  A disk that is full
cuts the journal back to its last whole line.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import canonical_json, plain, sha256

CHECKSUM = "checksum"


def sealed(entry: Mapping[str, Any]) -> bytes:
    """The line of an entry."""
    body = {key: plain(value) for key, value in entry.items() if key != CHECKSUM}
    line = {**body, CHECKSUM: sha256(canonical_json(body).encode())}
    return (json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _opened(line: bytes) -> dict[str, Any] | None:
    """The entry of a line, or None if the line is not what `sealed` made."""
    try:
        entry = json.loads(line.decode("utf-8"))
        claimed = entry.pop(CHECKSUM)
        return entry if sha256(canonical_json(entry).encode()) == claimed else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class Journal:
    """The lines of a run, appended one at a time."""

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda sentence: None) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        self._length = 0
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as failure:
            raise BadInput(f"cannot read {str(path)!r}: {failure.strerror or failure}; finished units are safe.") from None
        lines = content.split(b"\n")
        torn = lines.pop()  # empty, unless the writer was killed
        for number, line in enumerate(lines, start=1):
            entry = _opened(line)
            if entry is None and number == len(lines) and not torn:
                torn = line
                break
            if entry is None:
                raise BadInput(
                    f"line {number} of {str(path)!r} is damaged: it does not have its own checksum. Delete that line and run the "
                    f"same command (its unit is repeated, the other {len(lines) - 1} lines are kept), or use a new --out."
                )
            self.entries.append(entry)
            self._length += len(line) + 1
        if torn:
            warn(f"the last line of {str(path)!r} was cut short by an interruption; that unit is repeated.")

    def append(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Put an entry on the disk and return it as it will be read."""
        line = sealed(entry)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError as failure:
            raise self._refusal(failure) from None
        try:
            os.ftruncate(descriptor, self._length)
            os.lseek(descriptor, self._length, os.SEEK_SET)
            written = 0
            while written < len(line):
                written += os.write(descriptor, line[written:])
            os.fsync(descriptor)
        except OSError as failure:
            with suppress(OSError):
                os.ftruncate(descriptor, self._length)
            raise self._refusal(failure) from None
        finally:
            os.close(descriptor)
        self._length += len(line)
        stored = _opened(line[:-1])
        if stored is None:
            raise Refused("a result cannot be stored as JSON; use numbers, texts, lists and dictionaries with text keys.")
        self.entries.append(stored)
        return stored

    def _refusal(self, failure: OSError) -> Refused:
        return Refused(
            f"cannot write {str(self.path)!r}: {failure.strerror or failure}; the {len(self.entries)} finished units are kept. "
            "Free some space and run the same command to resume."
        )
