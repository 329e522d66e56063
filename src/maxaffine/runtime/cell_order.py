"""Large batches of `windowed` in the order of their cells, so that values are read nearly in sequence; answers keep their bits.

Values beyond the caches cost a wait per row of the window.  Queries sorted by bins of cells (a counting sort) share what has
been fetched, and of a mapped file every page is faulted in once per batch.  A query's value is computed by
the same operations wherever it stands, so order and batch change nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maxaffine.runtime import parallel

if TYPE_CHECKING:
    from maxaffine.runtime.windowed import Window

FAR = 4 << 20  # bytes of values beyond which they are not expected in a cache
ROWS = 16  # rows of values per query from which on the order pays: three coordinates, or flat keys in two
MANY = 1 << 15  # queries from which on it pays
MANY_MAPPED = 1 << 12  # queries of a mapped file
PIECE = 1 << 22  # queries ordered together, 6 bytes each
BINS = 1 << 16
AROUND = 64 << 10  # bytes that a page fault of a mapped file brings in


def pays(made: Window, count: int, mapped: bool = False) -> bool:
    """Whether so many queries are answered faster in the order of their cells."""
    return count >= least(made, mapped)


def least(made: Window, mapped: bool = False) -> float:
    """The smallest batch that is ordered; infinite where values fit a cache or queries look at few rows of them."""
    if mapped:
        return MANY_MAPPED
    return MANY if made.values.nbytes > FAR and rows_of(made) >= ROWS else np.inf


def rows_of(made: Window) -> int:
    """Rows of values that a query looks at."""
    return int(np.prod(made.widths[:-1]))


def bins_of(made: Window) -> NDArray[np.int64]:
    """Bins per coordinate: at most BINS in all, and no more than cells."""
    counts = (2.0 * made.middle + 1.0).astype(np.int64)
    each = 1
    while (each + 1) ** len(counts) <= BINS:
        each += 1
    return np.minimum(counts, each)


def order(made: Window, x: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The order of queries by bins, and how many of them lie in each band of the first coordinate or before it."""
    from maxaffine.runtime import kernel_windowed

    bins = bins_of(made)
    width = (2.0 * made.middle + 1.0) / made.scale
    found, ends = np.empty(len(x), dtype=np.int32), np.zeros(int(np.prod(bins)), dtype=np.int64)
    kernel_windowed.by_cells(x, made.centre - width / 2.0, bins / width, bins, found, ends)
    return found, ends.reshape(int(bins[0]), -1)[:, -1]


def resident(made: Window, bands: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Stretches of ordered queries that look at `limit` bytes at most, by the bands they lie in or by their number."""
    sites, plane = 2.0 * float(made.middle[0]) + 1.0, float(made.strides[0] * made.values.itemsize)
    together = int((limit / plane - float(made.widths[0]) - 2.0) * len(bands) / sites)  # bands, with a window at their end
    first, end, step = 0, int(bands[-1]), queries_resident(made, limit)
    while first < end:
        band = int(np.searchsorted(bands, first, side="right"))
        last = int(bands[min(band + together, len(bands)) - 1]) if together > 0 else first
        last = min(max(last, first + step), end)
        yield first, last
        first = last


def queries_resident(made: Window, limit: int) -> int:
    """Queries that look at `limit` bytes at most, wherever they are: a row may straddle what two page faults bring in."""
    return max(parallel.BLOCK, limit // (2 * rows_of(made) * AROUND) // parallel.BLOCK * parallel.BLOCK)
