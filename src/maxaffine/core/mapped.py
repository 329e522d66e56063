"""Arrays mapped from big files: looked at in pieces, their pages given back on the way."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESIDENT = 64 << 20  # bytes looked at before they are given back


def give_back(array: Any) -> None:
    """Pages of a file that an array is mapped from, read-only; they stay in the system's cache as long as it likes."""
    held = getattr(array, "_mmap", None)
    if held is not None and getattr(array, "mode", None) == "r" and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED)


def pieces(array: NDArray[Any], length: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """(start, array[start : start + length]) one after the other; of a mapped array few pages are resident at a time."""
    since = 0
    for start in range(0, len(array), length):
        piece = array[start : start + length]
        yield start, np.asarray(piece)
        since += piece.nbytes
        if since >= RESIDENT or start + length >= len(array):
            give_back(array)
            since = 0
