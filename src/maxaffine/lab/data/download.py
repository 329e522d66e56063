"""Downloads: verified by checksum, cached, resumed where they stopped, with progress.

A download grows in NAME.part; only a file with the published checksum gets its name.  A server that honours Range requests
continues a cut download; one that does not starts it again.
"""

import hashlib
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path

from maxaffine.core.errors import BadInput, Refused
from maxaffine.lab.data.catalogue import Download, dataset
from maxaffine.lab.data.source import DataSource, cache_folder

MIRROR = "MAXAFFINE_DATA_URL"  # a server with mnist/, fashion-mnist/, cifar10/ in place of the publishers'
BLOCK = 1 << 16
TRIES = 4  # connections in a row that bring nothing
TIMEOUT = 30.0  # seconds of silence


def fetch_all(
    names: Sequence[str], ask: Callable[[str], bool] | None = None, say: Callable[[str], None] = lambda sentence: None
) -> DataSource:
    """Put these data sets into the cache; with `ask` only after it answered yes."""
    files = [(name, file) for name in names for file in dataset(name).downloads]
    size = sum(file.bytes for _, file in files) / 1e6
    titles = ", ".join(dataset(name).title for name in names)
    if ask is not None and not ask(f"Download {titles} ({size:.0f} MB) into {str(cache_folder())!r}?"):
        raise Refused(f"the run needs {titles}; name a folder that has them with --data DIR.")
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    for name, file in files:
        url = f"{mirror}/{name}/{file.name}" if mirror else file.url
        fetch(Download(file.name, url, file.bytes, file.md5), cache_folder() / name, say)
    return DataSource(str(cache_folder()))


def fetch(file: Download, folder: Path, say: Callable[[str], None] = lambda sentence: None) -> Path:
    """The verified file in the folder, downloaded if it is not there."""
    path, part = folder / file.name, folder / f"{file.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and _md5(path) == file.md5:
            return path
        _complete(file, part, say)
        found = _md5(part)
        if found != file.md5:
            part.unlink()
            raise Refused(
                f"{file.url} has the MD5 checksum {found}, not the published {file.md5}; the download was discarded. "
                f"Try again, or put a sound {file.name} into {str(folder)!r}."
            )
        part.replace(path)
    except OSError as failure:
        where = f" {str(failure.filename)!r}" if failure.filename else ""
        raise BadInput(f"cannot keep {file.name}{where}: {failure.strerror or failure}; the downloaded part is kept.") from None
    return path


def _complete(file: Download, part: Path, say: Callable[[str], None]) -> None:
    """Fetch until the part has all bytes; give up after `TRIES` connections in a row that brought nothing."""
    idle, reason = 0, ""
    while (have := part.stat().st_size if part.exists() else 0) < file.bytes:
        try:
            _stream(file, part, have)
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as failure:
            reason = str(getattr(failure, "reason", failure)) or type(failure).__name__
            if isinstance(failure, urllib.error.HTTPError) and 400 <= failure.code < 500:
                idle = TRIES
        now = part.stat().st_size if part.exists() else 0
        idle = 0 if now > have and idle < TRIES else idle + 1
        if idle >= TRIES and now < file.bytes:
            raise Refused(
                f"cannot download {file.url}: {reason or 'the server sends nothing'}. {now:,} of {file.bytes:,} bytes are kept; "
                "the same command resumes it, or name a folder that has the data with --data DIR."
            )
        if now < file.bytes:
            say(f"{file.name}: the connection was cut after {now:,} of {file.bytes:,} bytes; resuming.")
            time.sleep(min(2.0, 0.1 * 2**idle))
    if part.stat().st_size > file.bytes:
        part.unlink()
        raise Refused(f"{file.url} sends more than the published {file.bytes:,} bytes; the download was discarded.")


def _stream(file: Download, part: Path, have: int) -> None:
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumed = answer.status == 206 and str(answer.headers.get("Content-Range", "")).startswith(f"bytes {have}-")
        at = have if resumed else 0
        said = time.monotonic()
        with part.open("r+b" if resumed else "wb") as handle:
            handle.seek(at)
            while block := answer.read(BLOCK):
                handle.write(block)
                at += len(block)
                if at > file.bytes:
                    break
                now = time.monotonic()
                if now - said > 1 or at == file.bytes:
                    said = now
                    _show(f"{file.name}: {at / 1e6:.1f} of {file.bytes / 1e6:.1f} MB", at == file.bytes)


def _show(line: str, last: bool) -> None:
    if sys.stderr is not None:
        terminal = sys.stderr.isatty()
        sys.stderr.write(f"\r{line}" + ("\n" if last else "") if terminal else f"{line}\n")
        sys.stderr.flush()


def _md5(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
