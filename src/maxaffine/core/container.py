"""One safetensors file: tensors plus one JSON record, written atomically, read with suspicion.

Before any tensor is touched the header is checked against stated limits: its size, the names, dtypes and shapes of the
tensors, that they fill the file exactly; then the record's hashes are compared with the bytes.  No pickle anywhere.

Files beyond BIG bytes are read in pieces and their large tensors mapped instead of loaded (core/streams.py writes such files).
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json, sha256, write_atomically

FORMAT = 2
READS = (1, 2)  # format 1 tells scopes in words
KEY = "maxaffine"  # the one entry of the safetensors metadata, a JSON text
HEADER_LIMIT = 4 << 20  # bytes of header, record included
TENSOR_LIMIT = 16_384  # tensors in a file
FILE_LIMIT = 64 << 30  # bytes
BIG = 256 << 20  # bytes of a file from which on large tensors are mapped
PIECE = 16 << 20  # bytes read at a time; smaller tensors of a big file are loaded
DTYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "BF16": np.dtype("<u2")}
NAME = re.compile(r"[a-z_]+(\.[a-z0-9_]+){0,11}")

Tensors = dict[str, NDArray[Any]]


def content_hash(tensors: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> str:
    """SHA-256 over names, shapes, bytes of the tensors and the record without its hash."""
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return joint_hash(record, ((name, a.dtype.str, a.shape, sha256(a.tobytes())) for name, a in arrays.items()))


def joint_hash(record: Mapping[str, Any], entries: Iterable[tuple[str, str, tuple[int, ...], str]]) -> str:
    """The same from (name, dtype, shape, SHA-256 of the bytes) of every tensor."""
    lines = [canonical_json({key: value for key, value in record.items() if key != "hash"})]
    lines += [f"{name} {dtype} {shape} {digest}" for name, dtype, shape, digest in sorted(entries)]
    return sha256("\n".join(lines).encode())


def write_container(path: str | Path, tensors: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> None:
    """Write tensors and record; the same input gives the same bytes."""
    if sum(tensor.nbytes for tensor in tensors.values()) > BIG:
        from maxaffine.core.streams import copy_container

        copy_container(path, tensors, record)
        return
    write_atomically(path, container_bytes(tensors, record))


def container_bytes(tensors: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> bytes:
    """The bytes of the file."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    full = {**record, "format": FORMAT}
    full["hash"] = content_hash(arrays, full)
    return bytes(save(arrays, metadata={KEY: canonical_json(full)}))


def read_container(path: str | Path) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and record of a file, every limit and hash checked; anything foreign is refused with a sentence."""
    path = Path(path)
    shown = repr(str(path))
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise BadInput(f"{shown} is a folder; name a file that maxaffine saved.")
        with path.open("rb") as handle:
            header = _header(handle.read(8), handle, size, shown)
    except OSError as failure:
        raise BadInput(f"cannot read {shown}: {failure.strerror or failure}.") from None
    record = _record(header, shown)
    if size > BIG:
        return _mapped(path, header, record, shown), record
    tensors = _load(path, header, shown)
    if content_hash(tensors, record) != record["hash"]:
        raise BadInput(f"{shown} was changed after it was saved: its content hash does not match. Compile it again.")
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise BadInput(f"{shown} holds numbers that are not finite in {name!r}; it was not saved by maxaffine.")
    return tensors, record


def _header(prefix: bytes, handle: Any, size: int, shown: str) -> dict[str, Any]:
    length = int.from_bytes(prefix, "little") if len(prefix) == 8 else -1
    if length < 2 or size > FILE_LIMIT:
        raise BadInput(f"{shown} is not a safetensors file (or over {FILE_LIMIT >> 30} GiB); name a file that maxaffine saved.")
    if length > HEADER_LIMIT:
        raise BadInput(f"{shown} claims a header of {length:,} bytes, above the limit of {HEADER_LIMIT:,}; it is refused.")
    if length > size - 8:
        raise BadInput(f"{shown} is cut short or is no safetensors file: its header should be {length:,} bytes long.")
    try:
        header = json.loads(handle.read(length).decode("utf-8"), object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise BadInput(f"{shown} is not a safetensors file: its header is not JSON.") from None
    if not isinstance(header, dict) or len(header) > TENSOR_LIMIT:
        raise BadInput(f"{shown} has a header that maxaffine does not write; it is refused.")
    _layout(header, size - 8 - length, shown)
    return header


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names are all different: of a doubled name, two readers might believe different values."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _layout(header: dict[str, Any], data: int, shown: str) -> None:
    """Every tensor well named, of a known dtype, and together filling the data exactly."""
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            sane = all(type(n) is int and 0 < n <= 2**40 for n in shape) and len(shape) <= 66
            sane = sane and type(begin) is int and type(end) is int
            sane = sane and NAME.fullmatch(name) is not None and math.prod(shape) * dtype.itemsize == end - begin
        except (TypeError, KeyError, ValueError):
            sane = False
        if not sane:
            raise BadInput(f"{shown} has a tensor {name[:60]!r} that maxaffine does not write; it is refused.")
        spans.append((begin, end))
    spans.sort()
    ends = [0, *(end for _, end in spans)]
    if [begin for begin, _ in spans] != ends[:-1] or ends[-1] != data:
        raise BadInput(f"{shown} is cut short or padded: its tensors do not fill the file.")


def _record(header: dict[str, Any], shown: str) -> dict[str, Any]:
    text = header.get("__metadata__", {})
    text = text.get(KEY) if isinstance(text, dict) else None
    if not isinstance(text, str):
        raise BadInput(f"{shown} is a safetensors file of something else; name a file that maxaffine saved.")
    try:
        record = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("hash"), str):
        raise BadInput(f"{shown} has a record that is not JSON; it is refused.")
    if record.get("format") not in READS:
        has = f"{shown} has format {record.get('format')!r}, and this version of maxaffine reads formats 1 and 2"
        raise BadInput(f"{has}; make the file again with `maxaffine compile ... --out FILE`.")
    return record


def _mapped(path: Path, header: dict[str, Any], record: Mapping[str, Any], shown: str) -> Tensors:
    """Tensors of a big file: small ones loaded, large ones mapped; hash and finiteness from one reading in pieces."""
    tensors: Tensors = {}
    entries = []
    with path.open("rb") as handle:
        base = 8 + int.from_bytes(handle.read(8), "little")
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
            if entry["dtype"] == "BF16":
                raise BadInput(f"{shown} holds a large layer in bfloat16, which maxaffine does not write.")
            digest = hashlib.sha256()
            handle.seek(base + begin)
            held = []
            for start in range(begin, end, PIECE):
                piece = handle.read(min(PIECE, end - start))
                digest.update(piece)
                numbers = np.frombuffer(piece, dtype=dtype)
                if not np.isfinite(numbers).all():
                    raise BadInput(f"{shown} holds numbers that are not finite in {name!r}; it was not saved by maxaffine.")
                if end - begin <= PIECE:
                    held.append(numbers)
            entries.append((name, dtype.str, shape, digest.hexdigest()))
            if held:
                tensors[name] = held[0].reshape(shape)
            else:
                tensors[name] = np.memmap(path, dtype, mode="r", offset=base + begin, shape=shape)
    if joint_hash(record, entries) != record["hash"]:
        raise BadInput(f"{shown} was changed after it was saved: its content hash does not match. Compile it again.")
    return tensors


def _load(path: Path, header: dict[str, Any], shown: str) -> Tensors:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in header if name != "__metadata__"}
    except (SafetensorError, OSError, ValueError) as failure:
        raise BadInput(f"{shown} is not a sound safetensors file: {failure}.") from None
