"""Entries: what a table or a set of samples says about itself in a file, where its numbers are not kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.target.box import default_names

KINDS = ("table", "samples")
PIECE = 1 << 20  # numbers hashed at a time


@dataclass(frozen=True)
class Entries:
    """What is known of a table without its numbers: kind, entries per axis (or (N,)), how many are present, and a hash."""

    kind: str
    shape: tuple[int, ...]
    count: int  # entries that are present
    missing: int  # entries declared missing, which nothing is said about
    sha256: str

    @property
    def words(self) -> str:
        """As a person reads it."""
        shape = " x ".join(str(n) for n in self.shape)
        what = f"a table of {shape} entries" if self.kind == "table" else f"{self.count:,} samples"
        return f"{what}{f', {self.missing:,} of them missing' if self.missing and self.kind == 'table' else ''}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind, "shape": list(self.shape), "count": self.count, "missing": self.missing, "sha256": self.sha256,
        }  # fmt: skip

    @classmethod
    def from_json(cls, record: Any) -> Entries:
        """The inverse of to_json, doubted field by field."""
        if not isinstance(record, dict) or set(record) != {"kind", "shape", "count", "missing", "sha256"}:
            raise BadInput("the record of a table must have exactly the keys count, kind, missing, sha256, shape.")
        shape, numbers = record["shape"], (record["count"], record["missing"])
        whole = isinstance(shape, list) and 0 < len(shape) <= 64 and all(type(n) is int and 0 < n < 2**50 for n in shape)
        sane = record["kind"] in KINDS and whole and all(type(n) is int and 0 <= n < 2**50 for n in numbers)
        if not sane or not isinstance(record["sha256"], str) or not re.fullmatch("[0-9a-f]{64}", record["sha256"]):
            raise BadInput("the record of a table does not hold counts and a SHA-256.")
        return cls(record["kind"], tuple(shape), record["count"], record["missing"], record["sha256"])


def digest(title: str, arrays: Iterable[NDArray[Any]]) -> str:
    """SHA-256 over a title, and shape and numbers of every array as little-endian float64; every NaN is the same one."""
    found = hashlib.sha256(title.encode())
    for array in arrays:
        found.update(f"\n{array.shape}\n".encode())
        flat = np.ascontiguousarray(array, dtype="<f8").reshape(-1)
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            holes = np.isnan(piece)
            if holes.any():
                piece = np.where(holes, np.nan, piece)
            found.update(piece.tobytes())
    return found.hexdigest()


def numbers(what: str, given: Any) -> NDArray[np.float64]:
    """A float64 array of whatever was given, masked entries as NaN; BadInput for anything that is not real numbers."""
    try:
        array = np.ma.filled(given.astype(np.float64), np.nan) if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
    except (TypeError, ValueError, RuntimeError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiub" or array.dtype.kind == "b":
        raise BadInput(f"`{what}` must be an array of real numbers, not {getattr(array, 'dtype', type(given).__name__)}.")
    return np.ascontiguousarray(array, dtype=np.float64)


def check_missing(missing: Any) -> bool:
    """Whether missing entries are declared."""
    if missing not in ("refuse", "ignore"):
        raise BadInput(f'`missing` (={missing!r}) must be "refuse" or "ignore".')
    return bool(missing == "ignore")


def check_names(names: Any, dimension: int) -> tuple[str, ...]:
    """One name per variable: those given, or x, or x1, x2, ..; a Box refuses names that cannot be used."""
    if names is None:
        return default_names(dimension)
    if isinstance(names, str):
        names = (names,)
    try:
        found = tuple(names)
    except TypeError:
        found = ()
    if len(found) != dimension or not all(isinstance(name, str) for name in found):
        raise BadInput(f"`names` (={names!r}) must be {dimension} names, one per variable.")
    return found
