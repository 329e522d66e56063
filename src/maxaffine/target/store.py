"""Evaluations kept on disk: what a function was asked and what it said, so that a run that was killed goes on where it stopped.

    {"maxaffine evaluations": 1, "variables": [..], "output_shape": [..], "function": [..], ..}            one line of JSON
    x (D float64), f(x) (K float64), CRC-32 of both                                                        one record per point

Records are appended as soon as values are there and handed to the operating system at once.  A process that is killed leaves at
most a record without its end, which is dropped.  Nothing is executed when a file is read: the header is checked field by field,
every record by its checksum, and the code of the function must be what the file was made with (fingerprint.py).  Where it was
given other numbers then, or another version of Python runs it, it is called at some of the points and must say the same.
"""

import json
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.target.fingerprint import fingerprint

MAGIC = "maxaffine evaluations"
LONGEST = 1 << 20  # bytes of a header
AGREES = 1e-9  # relative, where a function is compared with what it said
LOOKED = 5  # points of that


class Store:
    """The evaluations in a file: `points` (n, D) and `values` (n, K) as read, and `append` for new ones."""

    def __init__(
        self, path: str | Path, variables: tuple[str, ...], output_shape: tuple[int, ...], function: Any, single: bool = False
    ) -> None:
        self.path = Path(path)
        self._row = len(variables) + max(1, int(np.prod(output_shape, dtype=int)))
        self._record = np.dtype([("row", "<f8", (self._row,)), ("crc", "<u4")])
        self._doubtful, self.asked_again = False, 0  # points at which the function was compared with what is kept
        header = {
            MAGIC: 1, "variables": list(variables), "output_shape": list(output_shape), "single": single,
            "function": list(fingerprint(function)), "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        }  # fmt: skip
        try:
            self.path.touch(exist_ok=True)
            self._file: BinaryIO = self.path.open("r+b", buffering=0)
        except (OSError, ValueError) as failure:
            told = getattr(failure, "strerror", None) or failure
            raise BadInput(f"`cache` (={str(path)!r}) cannot be opened: {told}.") from None
        try:
            self._lock()
            rows = self._opened(header)
        except BaseException:
            self.close()
            raise
        self.points, self.values = rows[:, : len(variables)], rows[:, len(variables) :]

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows keeps a file that is open from nobody
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"`cache` (={str(self.path)!r}) is in use by another run; name another file.") from None

    def _opened(self, header: dict[str, Any]) -> Array:
        """The rows of a file, which is begun where it is empty."""
        content = self._file.read() or b""
        if not content:
            self._file.write(json.dumps(header).encode() + b"\n")
            return np.empty((0, self._row))
        found = _header(content, self.path)
        line = content.index(b"\n") + 1
        for name, what in (("variables", "other variables"), ("output_shape", "another shape of outputs")):
            if found.get(name) != header[name]:
                raise BadInput(f"`cache` (={str(self.path)!r}) has {what} ({found.get(name)}); name another file.")
        told, same = found.get("function"), found.get("python") == header["python"]
        self._doubtful = not same or told != header["function"]
        if same and (not isinstance(told, list) or told[:1] != header["function"][:1]):
            raise BadInput(
                f"`cache` (={str(self.path)!r}) was made with another function, or with this one before it was changed; delete "
                "it, or name another file."
            )
        whole = (len(content) - line) // self._record.itemsize
        records = np.frombuffer(content, self._record, whole, line)
        good = self._sound(records)
        self._file.truncate(line + good * self._record.itemsize)
        self._file.seek(0, os.SEEK_END)
        return np.array(records["row"][:good])

    def _sound(self, records: Any) -> int:
        """How many records are whole; a last one that is not was being written when its run ended."""
        for number, record in enumerate(records):
            if zlib.crc32(record["row"].tobytes()) != record["crc"] or not np.isfinite(record["row"]).all():
                if number == len(records) - 1:
                    return number
                raise BadInput(f"`cache` (={str(self.path)!r}) is damaged at evaluation {number + 1:,}; delete it.")
        return len(records)

    def compare(self, evaluate: Callable[[Array], Array]) -> None:
        """Where the function was given other numbers, or runs by another Python: what it says at some points is compared."""
        if not len(self.points) or not self._doubtful:
            return
        some = np.unique(np.linspace(0, len(self.points) - 1, LOOKED).astype(int))
        exact, self.asked_again = evaluate(self.points[some]).reshape(len(some), -1), len(some)
        if not np.allclose(exact, self.values[some], rtol=AGREES, atol=AGREES * float(np.abs(self.values).max())):
            raise BadInput(f"`cache` (={str(self.path)!r}) has other values than the function has now; delete it.")

    def append(self, points: Array, values: Array) -> None:
        """Keep some evaluations: in the hands of the operating system when this returns."""
        records = np.empty(len(points), self._record)
        records["row"] = np.concatenate([points, values.reshape(len(points), -1)], axis=1)
        records["crc"] = [zlib.crc32(row.tobytes()) for row in records["row"]]
        try:
            self._file.write(records.tobytes())
        except OSError as failure:
            raise BadInput(f"`cache` (={str(self.path)!r}) cannot be written: {failure.strerror or failure}.") from None

    def close(self) -> None:
        """On the disk, and free for others."""
        with suppress(OSError, ValueError):
            os.fsync(self._file.fileno())
        self._file.close()


def _header(content: bytes, path: Path) -> dict[str, Any]:
    """The first line, where the file is one of evaluations."""
    end = content.find(b"\n", 0, LONGEST)
    try:
        found = json.loads(content[:end].decode("utf-8")) if end > 0 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get(MAGIC) != 1:
        raise BadInput(f"`cache` (={str(path)!r}) exists and holds no evaluations; name another file, it is left as it is.")
    return found


def kept_shape(path: str | Path, single: bool) -> tuple[int, ...] | None:
    """The shape of the outputs that a file of evaluations tells, so that nobody has to call the function for it.

    None where there is no file, or where its function was called in another way, with single points or with batches.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(LONGEST)
    except OSError:
        return None
    if not content:
        return None
    header = _header(content, Path(path))
    shape = header.get("output_shape")
    good = isinstance(shape, list) and len(shape) <= 2 and all(type(n) is int and 1 <= n <= 1_000_000 for n in shape)
    if not good:
        raise BadInput(f"`cache` (={str(path)!r}) is damaged in its first line; delete it, or name another file.")
    return tuple(shape) if header.get("single") is bool(single) else None  # type: ignore[arg-type]
