"""Readers of the published formats: idx and CIFAR binary batches, plain, in .gz or .xz, or inside the upstream archive.

An idx file is two zero bytes, a type (8: unsigned byte), the number of dimensions, the sizes as big-endian 32-bit numbers,
then the bytes.  A CIFAR record is one label, then 1024 red, 1024 green and 1024 blue bytes, row by row.
"""

import gzip
import lzma
import math
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput

Bytes = NDArray[np.uint8]

UNPACKED_LIMIT = 1 << 30  # bytes of one file as unpacked; the largest published one has 47 MB
RECORD = 1 + 3 * 32 * 32  # bytes of one CIFAR image with its label


def find(folder: Path, name: str, archive: str | None = None) -> Path | None:
    """The file that holds `name`: itself, itself packed, or the archive."""
    candidates = [folder / name, folder / f"{name}.gz", folder / f"{name}.xz"]
    if archive is not None:
        candidates += [folder / "cifar-10-batches-bin" / name, folder / archive]
    return next((path for path in candidates if path.is_file()), None)


def unpack(path: Path, name: str) -> bytes:
    """The bytes of `name`, whatever it is packed in."""
    try:
        if path.name.endswith((".tar.gz", ".tgz")):
            return _member(path, name)
        opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "rb") as handle:
            return _limited(handle, path)
    except (EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as failure:
        raise BadInput(f"{str(path)!r} is cut short or damaged ({failure}); delete it and get it again.") from None
    except OSError as failure:
        raise BadInput(f"cannot read {str(path)!r}: {failure.strerror or failure}.") from None


def _limited(handle: IO[bytes], path: Path) -> bytes:
    data = handle.read(UNPACKED_LIMIT + 1)
    if len(data) > UNPACKED_LIMIT:
        raise BadInput(f"{str(path)!r} unpacks to more than {UNPACKED_LIMIT >> 20} MiB; it is not a file of these data sets.")
    return data


def _member(path: Path, name: str) -> bytes:
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.isfile() and Path(entry.name).name == name:
                handle = archive.extractfile(entry)
                assert handle is not None  # a plain file
                return _limited(handle, path)
    raise BadInput(f"{str(path)!r} has no member {name!r}; it is not the upstream archive of the binary version.")


def idx(data: bytes, dimensions: int, shown: str) -> Bytes:
    """The array of an idx file of unsigned bytes, (n,) or (n, height, width)."""
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, 8, dimensions)):
        raise BadInput(f"{shown} is not an idx file of unsigned bytes in {dimensions} dimension(s).")
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    if len(data) - start != math.prod(shape):
        raise BadInput(f"{shown} should hold {' x '.join(map(str, shape))} bytes and holds {len(data) - start:,}; get it again.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def cifar(data: bytes, shown: str) -> tuple[Bytes, Bytes]:
    """Images (n, 32, 32, 3) and labels (n,) of a CIFAR-10 binary batch."""
    if not data or len(data) % RECORD:
        raise BadInput(f"{shown} has {len(data):,} bytes, which are not whole records of {RECORD}; get it again.")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, 0].copy()
