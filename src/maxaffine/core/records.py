"""Records: canonical JSON, hashes, and files that are replaced whole or not at all."""

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from maxaffine.core.errors import BadInput


def plain(value: Any) -> Any:
    """The value as JSON knows it: NumPy scalars and arrays unwrapped, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


def temporary_beside(path: Path) -> Path:
    """A new empty file in the folder of `path`, for what is to be renamed over it."""
    folder = path.parent
    if not folder.is_dir():
        raise BadInput(f"cannot write {str(path)!r}: the folder {str(folder)!r} does not exist; make it first.")
    if path.is_dir():
        raise BadInput(f"cannot write {str(path)!r}: it is a folder; name a file.")
    try:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as failure:
        raise BadInput(f"cannot write {str(path)!r}: {failure.strerror or failure}.") from None
    os.close(descriptor)
    return Path(name)


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a finished file over `path`, its bytes on the disk and its permissions those of a new file."""
    with temporary.open("rb+") as handle:
        os.fsync(handle.fileno())
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o666 & ~mask)
    temporary.replace(path)


@contextlib.contextmanager
def unless_it_fails(path: Path) -> Iterator[None]:
    """A failure of the disk as a sentence."""
    try:
        yield
    except OSError as failure:
        raise BadInput(f"cannot write {str(path)!r}: {failure.strerror or failure}; nothing was changed.") from None


def replace_atomically(path: str | Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it over `path`; on any failure leave no trace."""
    path = Path(path)
    temporary = temporary_beside(path)
    try:
        with unless_it_fails(path):
            write(temporary)
            put_in_place(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_atomically(path: str | Path, data: bytes) -> None:
    """Replace the file by these bytes, whole or not at all."""
    replace_atomically(path, lambda temporary: temporary.write_bytes(data))
