"""Big files written piece by piece: the header's place is kept free, tensors are filled in, the record comes last.

The file grows beside its place under a temporary name and is renamed when it is whole; until then nothing is at its place.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.container import DTYPES, FORMAT, HEADER_LIMIT, KEY, PIECE, joint_hash
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import canonical_json, put_in_place, temporary_beside, unless_it_fails

HEADER = 64 << 10  # bytes kept free for header and record
NAMES = {dtype.str: name for name, dtype in DTYPES.items()}
Spec = tuple["np.dtype[Any]", tuple[int, ...]]


class Pending:
    """A container being written; every tensor is written once, from its beginning to its end."""

    def __init__(self, path: str | Path, specs: Mapping[str, Spec], header: int = HEADER) -> None:
        self.path = Path(path)
        self.header = header
        self.specs = {name: specs[name] for name in sorted(specs, key=lambda n: (-specs[n][0].itemsize, n == "values", n))}
        self.spans: dict[str, tuple[int, int]] = {}
        at = 0
        for name, (dtype, shape) in self.specs.items():
            if dtype.str not in NAMES:
                raise BadInput(f"large layers are stored in float64 or float32, not in {dtype}.")
            self.spans[name] = at, at + int(np.prod(shape, dtype=object)) * dtype.itemsize
            at = self.spans[name][1]
        self.temporary = temporary_beside(self.path)
        free = shutil.disk_usage(self.path.parent).free
        if at + header > free:
            self.temporary.unlink()
            raise Refused(f"{str(path)!r} would take {at + header:,} bytes, and {free:,} are free in its folder.")
        self._handle = self.temporary.open("r+b")
        self._digests = {name: hashlib.sha256() for name in self.specs}
        self._written = dict.fromkeys(self.specs, 0)

    def append(self, name: str, numbers: NDArray[Any]) -> None:
        """The next numbers of a tensor, in row-major order."""
        dtype, (begin, end) = self.specs[name][0], self.spans[name]
        data = np.ascontiguousarray(numbers, dtype=dtype).reshape(-1).view(np.uint8).data
        if self._written[name] + len(data) > end - begin:
            raise AssertionError(f"too many numbers for {name!r}: please report this")
        try:
            with unless_it_fails(self.path):
                self._handle.seek(self.header + begin + self._written[name])
                self._handle.write(data)
        except BadInput:
            self.discard()
            raise
        self._digests[name].update(data)
        self._written[name] += len(data)

    def mapped(self, name: str) -> NDArray[Any]:
        """A tensor that has been written, as a read-only map of the file."""
        self._handle.flush()
        dtype, shape = self.specs[name]
        return np.memmap(self.temporary, dtype, mode="r", offset=self.header + self.spans[name][0], shape=shape)

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write the header and rename the file into its place."""
        for name, (begin, end) in self.spans.items():
            if self._written[name] != end - begin:
                raise AssertionError(f"{name!r} is not complete: please report this")
        full = {**record, "format": FORMAT}
        entries = [
            (name, dtype.str, shape, self._digests[name].hexdigest()) for name, (dtype, shape) in self.specs.items()
        ]
        full["hash"] = joint_hash(full, entries)
        header: dict[str, Any] = {"__metadata__": {KEY: canonical_json(full)}}
        for name, (dtype, shape) in self.specs.items():
            header[name] = {"dtype": NAMES[dtype.str], "shape": list(shape), "data_offsets": list(self.spans[name])}
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > self.header - 8:
            room = f"{len(text):,} bytes, more than the {self.header - 8:,} kept free"
            raise BadInput(f"the record of {str(self.path)!r} takes {room}.")
        text = text.ljust(self.header - 8)
        try:
            with unless_it_fails(self.path):
                self._handle.seek(0)
                self._handle.write(len(text).to_bytes(8, "little") + text)
                self._handle.close()
                put_in_place(self.temporary, self.path)
        finally:
            self.discard()

    def discard(self) -> None:
        """Leave no trace of an unfinished file."""
        with contextlib.suppress(OSError):
            self._handle.close()
        with contextlib.suppress(OSError):
            self.temporary.unlink()


def copy_container(path: str | Path, tensors: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> None:
    """Write tensors that may be maps of another file, a piece at a time."""
    room = 2 * len(canonical_json(record)) + 256 * len(tensors) + HEADER
    header = min(HEADER_LIMIT, -(-room // HEADER) * HEADER)
    pending = Pending(path, {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, header)
    try:
        for name, tensor in tensors.items():
            flat = tensor.reshape(-1)
            step = PIECE // tensor.itemsize
            for start in range(0, flat.size, step):
                pending.append(name, flat[start : start + step])
        pending.finish(record)
    finally:
        pending.discard()
