"""Tensors of a stranger's safetensors file, or of a folder of them: the header is doubted first, then single tensors are read.

Nothing in such a file is ever executed: pickles (.bin, .pt, .pkl) are refused by their look, names in an index may not leave the
folder, shapes must agree with the bytes, and a file above `max_bytes` is refused before it is read.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.budget import size as shown_size
from maxaffine.core.errors import BadInput

MAX_BYTES = 4 << 30
HEADER_LIMIT = 64 << 20
JSON_LIMIT = 16 << 20
TENSOR_LIMIT = 200_000
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
FLOATS: dict[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")  # of a model on a hub
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int


@dataclass(frozen=True)
class Weights:
    """The tensors of a model by name; one is read when it is asked for."""

    entries: dict[str, Entry]
    shown: str

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> Array:
        """The tensor in float64, finite."""
        entry = self._entry(name)
        if entry.dtype not in FLOATS:
            raise BadInput(f"{self.shown}: tensor {name!r} has dtype {entry.dtype}, and weights must be floating point.")
        stored = np.dtype(FLOATS[entry.dtype])
        raw = np.fromfile(entry.file, dtype=stored, count=math.prod(entry.shape), offset=entry.begin).reshape(entry.shape)
        if entry.dtype == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        out = raw.astype(np.float64)
        if not np.isfinite(out).all():
            raise BadInput(f"{self.shown}: tensor {name!r} holds numbers that are not finite.")
        return out

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, unread."""
        return self._entry(name).shape

    def _entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise BadInput(f"{self.shown} has no tensor {name!r}; it is not a model of the kind its names suggest.")
        return self.entries[name]


def _how_to_get(path: Path) -> str:
    """The way to a model of that name: nothing is downloaded by this package."""
    named = path.suffix == "" and len(path.parts) <= 2 and not path.is_absolute() and NAME.fullmatch(str(path)) is not None
    name, folder = (str(path), path.name) if named else ("NAME", "FOLDER")
    files = "config.json model.safetensors tokenizer.json"
    return (
        "Models are not downloaded for you: `pip install huggingface_hub`, then "
        f"`hf download {name} {files} --local-dir {folder}`, then `maxaffine inspect {folder}`; or "
        f"`save_pretrained({folder!r})` of a model that you have in transformers."
    )


def read_weights(path: str | Path, max_bytes: int = MAX_BYTES) -> tuple[Weights, dict[str, Any]]:
    """Tensors and configuration (config.json, {} where there is none) of a .safetensors file or of a folder of a model."""
    path = Path(path)
    shown = repr(str(path))
    if path.suffix.lower() in PICKLES:
        raise BadInput(f"{shown} looks like a pickle, which may run code when it is read; convert it to .safetensors.")
    if not path.exists():
        raise BadInput(f"{shown} does not exist; name a .safetensors file or the folder of a model. {_how_to_get(path)}")
    folder = path if path.is_dir() else path.parent
    files = _files(path, shown)
    entries: dict[str, Entry] = {}
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > max_bytes:
            raise BadInput(f"{shown} has more than {shown_size(max_bytes)}; raise the limit with --max-bytes if you trust it.")
        for name, entry in _header(file).items():
            if name in entries:
                raise BadInput(f"{shown} holds the tensor {name[:80]!r} twice.")
            entries[name] = entry
    config = folder / "config.json"
    return Weights(entries, shown), read_json(config) if config.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of bounded size."""
    try:
        if path.stat().st_size > JSON_LIMIT:
            raise BadInput(f"{str(path)!r} is above {shown_size(JSON_LIMIT)}, too large for a configuration file.")
        made = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise BadInput(f"cannot read {str(path)!r}: {failure.strerror or failure}.") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{str(path)!r} is not JSON.") from None
    if not isinstance(made, dict):
        raise BadInput(f"{str(path)!r} must hold a JSON object.")
    return made


def _files(path: Path, shown: str) -> list[Path]:
    if path.is_file():
        return [path]
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise BadInput(f"{str(index)!r} has no weight_map.")
        files = []
        for name in dict.fromkeys(names.values()):
            plain = isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name and "\\" not in name
            if not plain:
                raise BadInput(f"{str(index)!r} names the file {str(name)[:80]!r}, which is not a plain name beside it; refused.")
            if not (path / name).is_file():
                raise BadInput(f"{str(index)!r} names {name!r}, which is missing; the model is incomplete.")
            files.append(path / name)
        return files
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    pickles = sorted(p.name for p in path.iterdir() if p.suffix.lower() in PICKLES)
    if pickles:
        raise BadInput(f"{shown} holds only pickles ({pickles[0]}), which may run code when read; convert them to .safetensors.")
    raise BadInput(f"{shown} holds no model.safetensors; name the file or the folder of a model.")


def _header(file: Path) -> dict[str, Entry]:
    shown = repr(str(file))
    try:
        with file.open("rb") as handle:
            prefix = handle.read(8)
            length, size = int.from_bytes(prefix, "little"), file.stat().st_size
            if prefix[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK"):
                raise BadInput(f"{shown} is a pickle or an archive of one, not a safetensors file; it is not read.")
            if len(prefix) < 8 or not 2 <= length <= min(HEADER_LIMIT, size - 8):
                raise BadInput(f"{shown} is not a sound safetensors file: it claims a header of {length:,} bytes.")
            header = json.loads(handle.read(length).decode("utf-8"))
    except OSError as failure:
        raise BadInput(f"cannot read {shown}: {failure.strerror or failure}.") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as failure:
        if isinstance(failure, BadInput):
            raise
        raise BadInput(f"{shown} is not a safetensors file: its header is not JSON.") from None
    if not isinstance(header, dict) or len(header) > TENSOR_LIMIT:
        raise BadInput(f"{shown} has an invalid header.")
    entries = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            sane = all(type(n) is int and 0 <= n <= 2**40 for n in (*shape, begin, end)) and len(shape) <= 16
            sane = sane and math.prod(shape) * WIDTHS[dtype] == end - begin and 8 + length + end <= size
        except (TypeError, KeyError, ValueError):
            sane = False
        if not sane:
            raise BadInput(f"{shown} has a tensor {name[:80]!r} whose shape does not match its bytes.")
        entries[name] = Entry(file, dtype, shape, 8 + length + begin)
    return entries
