"""`windowed`: on a uniform grid only the sites near the query are looked at; the cost does not grow with the number of keys.

Along one coordinate, with the lower neighbour c of z (a half-integer site) and t = z - c - 1/2 in [-1/2, 1/2), the weights of the
sites at distance h = +-1/2, +-3/2, .. from c + 1/2 are, up to a common factor,

    e^{-rho (h^2 - 1/4)/2} e^{rho t h} = fade_h p^{2h},    p = e^{rho t / 2}:    one exponential and one division per coordinate.

2k sites are kept, those within k of z; the others together weigh at most 2 sum_{m >= k} e^{-rho (m^2 - 1/4)/2} of the nearest,
and k is the least for which that is at most TAIL.  Near the edge the window is moved inwards and keeps as many sites.
Everything is computed in float64, whatever dtype stores the values, with one exp that NumPy and the kernels share bit for bit.

Values beyond the caches cost a wait per row of the window.  Queries of a large batch, sorted by bins of cells (a counting sort),
share what has been fetched, and of a mapped file every page is faulted in once per batch.  A query's value is computed by the
same operations wherever it stands, so order and batch change nothing about it.
"""

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.mapped import give_back
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.layer import MAPPED, Layer
from maxaffine.runtime import parallel
from maxaffine.runtime.kept import once

TAIL = 2.0**-56  # weight of all sites left out, relative to the nearest one, per coordinate
LEAST_SHARPNESS = 0.05  # flatter grids have no window worth the name
LOG2E = 1.4426950408889634
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # log 2 to 32 bits, so that n LN2_HIGH is exact
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
SHIFT = 520
CHUNK = 1 << 11  # queries at a time in NumPy
UNORDERED = np.empty(0, dtype=np.int32)

FAR = 4 << 20  # bytes of values beyond which they are not expected in a cache
ROWS = 16  # rows of values per query from which on the order pays: three coordinates, or flat keys in two
MANY = 1 << 15  # queries from which on it pays
MANY_MAPPED = 1 << 12  # queries of a mapped file
PIECE = 1 << 22  # queries ordered together, 6 bytes each
BINS = 1 << 16
AROUND = 64 << 10  # bytes that a page fault of a mapped file brings in


def tail(rho: float, k: int) -> float:
    """2 sum_{m >= k} e^{-rho (m^2 - 1/4)/2}, rounded up."""
    total, m = 0.0, k
    while True:
        term = math.exp(-rho * (m * m - 0.25) / 2.0)
        total += term
        if term <= 1e-20 * total or term == 0.0:
            return 2.0 * total * (1 + 1e-9)
        m += 1


def window(rho: float, most: float) -> int:
    """k, the least half-width whose tail is at most `most`."""
    return next(k for k in itertools.count(1) if tail(rho, k) <= most)


def reason_not(layer: Layer) -> str | None:
    """None, or why this layer has no window."""
    if not layer.is_grid:
        return "its keys are not a product over the variables"
    if layer.slopes is not None or layer.dtype not in ("float64", "float32"):
        return "its values are affine in x or stored in bfloat16"
    if layer.sharpness < LEAST_SHARPNESS:
        return "its keys are too flat"
    if not all(len(axis) < 2**26 and _uniform(axis) for axis in layer.keys.axes):
        return "its keys are not those of a uniform grid"
    reach = layer.reach * (1 + 2.0**-51)
    if np.any(np.diag(layer.coordinates.matrix) * reach * (1 + 2.0**-51) > np.asarray(layer.keys.shape) / 2.0):
        return "its grid does not cover the box"
    return None


def _uniform(axis: AxisKeys) -> bool:
    """Sites k - (P - 1)/2 and offsets -site^2/2 to within the rounding of their dtype."""
    return axis.off_parabola <= 4.0 * float(np.finfo(axis.offsets.dtype).eps) * axis.largest_offset


@dataclass(frozen=True)
class Window:
    """What the kernels need of a layer."""

    centre: Array
    scale: Array
    middle: Array  # (P_i - 1)/2
    rho: float
    reach: int  # k
    widths: NDArray[np.int64]  # min(2k, P_i)
    fades: Array  # e^{-rho (h^2 - 1/4)/2}, h = 1/2, 3/2, ..
    strides: NDArray[np.int64]  # of the values, in numbers
    values: AnyArray  # flat, in the stored dtype
    outputs: int

    @property
    def visited(self) -> int:
        """Values that a query looks at."""
        return int(np.prod(self.widths)) * self.outputs

    @property
    def rows(self) -> int:
        """Rows of values that a query looks at."""
        return int(np.prod(self.widths[:-1]))

    @property
    def work(self) -> int:
        """Values visited and exponentials per query, in the units of parallel.py."""
        return self.visited + 40 * len(self.widths)


POWERS = np.ldexp(1.0, np.arange(-SHIFT, SHIFT + 1))


@once
def window_of(layer: Layer) -> Window | None:
    """The window of a layer, found once; None where it has none."""
    if reason_not(layer) is not None:
        return None
    counts = np.asarray(layer.keys.shape, dtype=np.int64)
    rho, outputs = layer.sharpness, layer.d_out * layer.n_out
    k = window(rho, TAIL)
    strides = outputs * np.cumprod([1, *counts[:0:-1]], dtype=np.int64)[::-1]
    fades = np.array([math.exp(-rho * ((h + 0.5) ** 2 - 0.25) / 2.0) for h in range(k)])
    return Window(
        np.array(layer.coordinates.centre), np.diag(layer.coordinates.matrix).copy(), (counts - 1) / 2.0, float(rho), k,
        np.minimum(2 * k, counts), fades, np.ascontiguousarray(strides), np.asarray(layer.values).reshape(-1), outputs,
    )  # fmt: skip


def taken(layer: Layer) -> Window:
    """The window of a layer that has one."""
    made = window_of(layer)
    assert made is not None
    return made


def evaluate(layer: Layer, x: Array, threads: int | None = None) -> AnyArray:
    """F(x): (B, d_out, n_out)."""
    made = taken(layer)
    x = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty((len(x), made.outputs))
    work = len(x) * made.work
    kernel = parallel.kernel("windowed", work, len(x))
    mapped = layer.values if is_mapped(layer) else None
    grid = (made.centre, made.scale, made.middle, made.rho, made.reach)
    tables = (*grid, made.widths, made.fades, made.strides, made.values)

    def as_they_come(start: int, stop: int) -> None:
        if kernel is not None:
            parallel.over(start, stop, work, threads, lambda i, j: kernel(x, UNORDERED, *tables, out, i, j))
            return
        chunk = max(1, CHUNK * 64 // max(64, made.visited))
        for i in range(start, stop, chunk):
            out[i : min(i + chunk, stop)] = in_numpy(made, x[i : min(i + chunk, stop)])

    def by_cells(start: int, stop: int) -> None:
        for i in range(start, stop, PIECE):
            some, into = x[i : min(i + PIECE, stop)], out[i : min(i + PIECE, stop)]
            kernel(some, order(made, some)[0], *tables, into, 0, len(some))  # type: ignore[misc]

    def by_pages(some: Array, into: Array) -> None:
        ordered, bands = order(made, some)

        def run(start: int, stop: int) -> None:
            kernel(some, ordered, *tables, into, start, stop)  # type: ignore[misc]

        for first, last in resident(made, bands, MAPPED):
            parallel.over(first, last, work * (last - first) // len(x), threads, run)
            give_back(mapped)

    pays = kernel is not None and len(x) >= least_ordered(made, mapped is not None)
    if pays and mapped is None:
        parallel.over(0, len(x), work, threads, by_cells)
    elif pays:
        for i in range(0, len(x), PIECE):
            by_pages(x[i : i + PIECE], out[i : i + PIECE])
    else:
        step = max(1, len(x)) if mapped is None else queries_resident(made, MAPPED)
        for i in range(0, len(x), step):
            as_they_come(i, min(i + step, len(x)))
            give_back(mapped)
    return out.astype(compute_dtype(layer.dtype), copy=False).reshape(len(x), layer.d_out, layer.n_out)


def is_mapped(layer: Layer) -> bool:
    """Whether values are mapped from a file that is larger than what may be resident."""
    return isinstance(layer.values, np.memmap) and layer.values.nbytes > MAPPED


def least_ordered(made: Window, mapped: bool = False) -> float:
    """The smallest batch that is ordered; infinite where values fit a cache or queries look at few rows of them."""
    if mapped:
        return MANY_MAPPED
    return MANY if made.values.nbytes > FAR and made.rows >= ROWS else math.inf


def bins_of(made: Window) -> NDArray[np.int64]:
    """Bins per coordinate: at most BINS in all, and no more than cells."""
    counts = (2.0 * made.middle + 1.0).astype(np.int64)
    each = 1
    while (each + 1) ** len(counts) <= BINS:
        each += 1
    return np.minimum(counts, each)


def order(made: Window, x: Array) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
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
    return max(parallel.BLOCK, limit // (2 * made.rows * AROUND) // parallel.BLOCK * parallel.BLOCK)


def exponential(y: Array) -> Array:
    """exp(y) for |y| <= 350, to 2 ulp: 2^n times a Taylor polynomial of the rest."""
    n = np.floor(y * LOG2E + 0.5)
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    v = np.full_like(y, TAYLOR[0])
    for c in TAYLOR[1:]:
        v = v * r + c
    return np.asarray(v * POWERS[n.astype(np.int64) + SHIFT])


def in_numpy(made: Window, x: Array) -> Array:
    """The kernel's operations in the same order, without numba: (B, K)."""
    D = len(made.widths)
    start = np.zeros(len(x), dtype=np.int64)
    weights: list[list[Array]] = []
    for i in range(D):
        z = made.scale[i] * (x[:, i] - made.centre[i])
        least = made.reach - 1.0
        most = max(2.0 * made.middle[i] - made.reach, least)
        low = np.minimum(np.maximum(np.floor(z + made.middle[i]), least), most)
        t = (z - (low - made.middle[i])) - 0.5
        p = exponential(np.minimum(np.maximum(made.rho / 2.0 * t, -345.0), 345.0))
        start += (low.astype(np.int64) - made.reach + 1) * made.strides[i]
        width = int(made.widths[i])
        row: list[Array] = [p] * width
        inverse = 1.0 / p
        square, other = p * p, inverse * inverse
        for h in range(made.reach):
            if made.reach - 1 - h < width:
                row[made.reach - 1 - h] = made.fades[h] * inverse
            if made.reach + h < width:
                row[made.reach + h] = made.fades[h] * p
            if h + 1 < made.reach:
                p = p * square
                inverse = inverse * other
        share = 1.0 / reduce(operator.add, row)  # coordinate by coordinate: the product of the sums could overflow
        weights.append([one * share for one in row])
    outer = [(np.ones(len(x)), start)]
    for i in range(D - 1):
        outer = [(w * weights[i][j], at + j * made.strides[i]) for w, at in outer for j in range(int(made.widths[i]))]
    out = np.empty((len(x), made.outputs))
    for k in range(made.outputs):
        total = np.zeros(len(x))
        for w, at in outer:
            s = weights[-1][0] * made.values[at + k].astype(np.float64)
            for j in range(1, int(made.widths[-1])):
                s = s + weights[-1][j] * made.values[at + k + j * made.outputs].astype(np.float64)
            total = total + w * s
        out[:, k] = total
    return out
