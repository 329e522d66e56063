"""`windowed`: on a uniform grid only the sites near the query are looked at; the cost does not grow with the number of keys.

Along one coordinate, with the lower neighbour c of z (a half-integer site) and t = z - c - 1/2 in [-1/2, 1/2), the weights of the
sites at distance h = +-1/2, +-3/2, .. from c + 1/2 are, up to a common factor,

    e^{-rho (h^2 - 1/4)/2} e^{rho t h} = fade_h p^{2h},    p = e^{rho t / 2}:    one exponential and one division per coordinate.

2k sites are kept, those within k of z; the others together weigh at most 2 sum_{m >= k} e^{-rho (m^2 - 1/4)/2} of the nearest,
and k is the least for which that is at most TAIL.  Near the edge the window is moved inwards and keeps as many sites.
Queries of a large batch over values beyond the caches are answered in the order of their cells (runtime/cell_order.py).
Everything is computed in float64, whatever dtype stores the values, with one exp that NumPy and the kernels share bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.mapped import give_back
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.layer import MAPPED, Layer
from maxaffine.runtime import cell_order, parallel
from maxaffine.runtime.kept import kept

TAIL = 2.0**-56  # weight of all sites left out, relative to the nearest one, per coordinate
LEAST_SHARPNESS = 0.05  # flatter grids have no window worth the name
LOG2E = 1.4426950408889634
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # log 2 to 32 bits, so that n LN2_HIGH is exact
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
SHIFT = 520
CHUNK = 1 << 11  # queries at a time in NumPy
UNORDERED = np.empty(0, dtype=np.int32)


def tail(rho: float, k: int) -> float:
    """2 sum_{m >= k} e^{-rho (m^2 - 1/4)/2}, rounded up."""
    total, m = 0.0, k
    while True:
        term = math.exp(-rho * (m * m - 0.25) / 2.0)
        total += term
        if term <= 1e-20 * total or term == 0.0:
            return 2.0 * total * (1 + 1e-9)
        m += 1


def window(rho: float) -> int:
    """k, the least half-width whose tail is at most TAIL."""
    k = 1
    while tail(rho, k) > TAIL:
        k += 1
    return k


def reason_not(layer: Layer) -> str | None:
    """None, or why this layer has no window."""
    if not layer.is_grid:
        return "its keys are not a product over the variables"
    if layer.slopes is not None or layer.dtype not in ("float64", "float32"):
        return "its values are affine in x or stored in bfloat16"
    if layer.sharpness < LEAST_SHARPNESS:
        return "its keys are too flat"
    for axis in layer.keys.axes:
        count = len(axis)
        if count >= 2**26 or not _uniform(axis.slopes, axis.offsets):
            return "its keys are not those of a uniform grid"
    reach = np.maximum(layer.high - layer.coordinates.centre, layer.coordinates.centre - layer.low) * (1 + 2.0**-51)
    if np.any(np.diag(layer.coordinates.matrix) * reach * (1 + 2.0**-51) > np.asarray(layer.keys.shape) / 2.0):
        return "its grid does not cover the box"
    return None


def _uniform(slopes: Array, offsets: Array) -> bool:
    """Sites k - (P - 1)/2 and offsets -site^2/2 to within the rounding of their dtype."""
    sites = np.arange(len(slopes)) - (len(slopes) - 1) / 2.0
    if not np.array_equal(slopes.astype(np.float64), sites):
        return False
    away = float(np.abs(offsets.astype(np.float64) + sites * sites / 2.0).max())
    return away <= 4.0 * float(np.finfo(offsets.dtype).eps) * float(np.abs(offsets).max())


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
    values: NDArray[Any]  # flat, in the stored dtype
    outputs: int

    @property
    def visited(self) -> int:
        """Values that a query looks at."""
        return int(np.prod(self.widths)) * self.outputs


POWERS = np.ldexp(1.0, np.arange(-SHIFT, SHIFT + 1))


def window_of(layer: Layer) -> Window | None:
    """The window of a layer, found once; None where it has none."""
    return kept(layer, "window", lambda: _window(layer) if reason_not(layer) is None else None)


def _window(layer: Layer) -> Window:
    counts = np.asarray(layer.keys.shape, dtype=np.int64)
    rho, outputs = layer.sharpness, layer.d_out * layer.n_out
    k = window(rho)
    strides = np.ones(len(counts), dtype=np.int64) * outputs
    for i in range(len(counts) - 2, -1, -1):
        strides[i] = strides[i + 1] * counts[i + 1]
    fades = np.array([math.exp(-rho * ((h + 0.5) ** 2 - 0.25) / 2.0) for h in range(k)])
    return Window(
        np.array(layer.coordinates.centre), np.diag(layer.coordinates.matrix).copy(), (counts - 1) / 2.0, float(rho), k,
        np.minimum(2 * k, counts), fades, strides, np.asarray(layer.values).reshape(-1), outputs,
    )  # fmt: skip


def evaluate(layer: Layer, x: Array, threads: int | None = None) -> NDArray[Any]:
    """F(x): (B, d_out, n_out)."""
    made = window_of(layer)
    assert made is not None
    x = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty((len(x), made.outputs))
    work = len(x) * work_per_query(made)
    kernel = parallel.kernel("windowed", work, len(x))
    mapped = layer.values if is_mapped(layer) else None
    grid = (made.centre, made.scale, made.middle, made.rho, made.reach)
    tables = (*grid, made.widths, made.fades, POWERS, made.strides, made.values)

    def as_they_come(start: int, stop: int) -> None:
        if kernel is not None:
            parallel.over(stop - start, work, threads, lambda i, j: kernel(x, UNORDERED, *tables, out, start + i, start + j))
            return
        chunk = max(1, CHUNK * 64 // max(64, made.visited))
        for i in range(start, stop, chunk):
            out[i : min(i + chunk, stop)] = in_numpy(made, x[i : min(i + chunk, stop)])

    def by_cells(start: int, stop: int) -> None:
        for i in range(start, stop, cell_order.PIECE):
            some, into = x[i : min(i + cell_order.PIECE, stop)], out[i : min(i + cell_order.PIECE, stop)]
            kernel(some, cell_order.order(made, some)[0], *tables, into, 0, len(some))  # type: ignore[misc]

    def by_pages(some: Array, into: Array) -> None:
        order, bands = cell_order.order(made, some)

        def run(start: int, stop: int) -> None:
            kernel(some, order, *tables, into, start, stop)  # type: ignore[misc]

        for first, last in cell_order.resident(made, bands, MAPPED):
            parallel.over(last - first, work * (last - first) // len(x), threads, _shifted(run, first))
            give_back(mapped)

    if mapped is None:
        if kernel is not None and cell_order.pays(made, len(x)):
            parallel.over(len(x), work, threads, by_cells)
        else:
            as_they_come(0, len(x))
    elif kernel is not None and cell_order.pays(made, len(x), mapped=True):
        for i in range(0, len(x), cell_order.PIECE):
            by_pages(x[i : i + cell_order.PIECE], out[i : i + cell_order.PIECE])
    else:
        step = cell_order.queries_resident(made, MAPPED)
        for i in range(0, len(x), step):
            as_they_come(i, min(i + step, len(x)))
            give_back(mapped)
    return out.astype(compute_dtype(layer.dtype), copy=False).reshape(len(x), layer.d_out, layer.n_out)


def is_mapped(layer: Layer) -> bool:
    """Whether values are mapped from a file that is larger than what may be resident."""
    return isinstance(layer.values, np.memmap) and layer.values.nbytes > MAPPED


def work_per_query(made: Window) -> int:
    """Values visited and exponentials, in the units of parallel.py."""
    return made.visited + 40 * len(made.widths)


def _shifted(run: Callable[[int, int], None], by: int) -> Callable[[int, int], None]:
    return lambda start, stop: run(by + start, by + stop)


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
        total = row[0]
        for one in row[1:]:
            total = total + one
        total = 1.0 / total  # coordinate by coordinate: the product of the sums could overflow
        weights.append([one * total for one in row])
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
