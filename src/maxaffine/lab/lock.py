"""One process per run folder: a lock that the system releases when its owner dies, however it dies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from maxaffine.core.errors import BadInput, Refused


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for the duration; Refused with a sentence when another living process holds it.

    The file `lock` stays; it is the lock on it that counts, so one left behind by a dead process is simply taken over.
    """
    path = folder / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as failure:
        raise BadInput(f"cannot write in {str(folder)!r}: {failure.strerror or failure}; use another --out.") from None
    try:
        if not _take(descriptor):
            owner = os.pread(descriptor, 64, 0).decode(errors="replace").strip() if hasattr(os, "pread") else ""
            who = f"process {owner}" if owner.isdigit() else "another process"
            raise Refused(f"{who} is using {str(folder)!r}; wait until it finishes, or use another --out.")
        with suppress(OSError):  # the number is for people; a full disk must not keep a run from finishing
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)  # releases the lock


def _take(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
