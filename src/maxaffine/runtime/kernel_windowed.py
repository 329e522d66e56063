# mypy: ignore-errors
"""The compiled kernels of `windowed`: blocks of queries in SIMD, values fetched ahead of their use; queries ordered by cells.

The same operations in the same order as `windowed.in_numpy`, bit for bit.
"""

import numba as nb
import numpy as np

from maxaffine.runtime.kernel_exp import INDICES, INTEGER, OPTIONS, OUT, ROW, TABLE, exponential, given
from maxaffine.runtime.windowed import FAR

BLOCK = 256  # queries at a time


@nb.njit(
    [
        nb.float64(
            TABLE, given(nb.int32, 1), ROW, ROW, ROW, nb.float64, INTEGER, INDICES, ROW, INDICES, given(kind, 1), OUT,
            INTEGER, INTEGER,
        )
        for kind in (nb.float64, nb.float32)
    ],
    **OPTIONS,
)  # fmt: skip
def windowed(x, order, centre, scale, middle, rho, reach, widths, fades, strides, values, out, start, stop):
    """Queries order[start..stop] (start..stop where `order` is empty) of a lookup on a uniform grid; see runtime/windowed.py."""
    D = x.shape[1]
    K = out.shape[1]
    half = rho / 2.0
    combinations = 1
    for i in range(D - 1):
        combinations *= widths[i]
    row = np.empty(BLOCK, dtype=np.int64)
    point = np.zeros(BLOCK)
    up = np.empty(BLOCK)
    down = np.empty(BLOCK)
    square = np.empty(BLOCK)
    other = np.empty(BLOCK)
    at = np.zeros(BLOCK, dtype=np.uint64)  # unsigned: an index that may be negative is tested at every use
    outer = np.empty(BLOCK)
    inner = np.empty(BLOCK)
    total = np.empty(BLOCK)
    weights = np.empty((D, 2 * reach, BLOCK))
    far = values.size * values.itemsize > FAR
    sink = 0.0
    for base in range(start, stop, BLOCK):
        size = min(BLOCK, stop - base)
        for q in range(BLOCK):
            at[q] = 0
        for q in range(size):
            row[q] = order[base + q] if order.size else base + q
        for i in range(D):
            c, m = centre[i], middle[i]
            least = reach - 1.0
            most = max(2.0 * m - reach, least)  # the highest lower neighbour whose window ends inside the grid
            for q in range(size):
                point[q] = x[row[q], i]
            for q in range(size, BLOCK):
                point[q] = c
            for q in range(BLOCK):
                z = scale[i] * (point[q] - c)
                low = min(max(np.floor(z + m), least), most)
                t = (z - (low - m)) - 0.5
                p = exponential(min(max(half * t, -345.0), 345.0))
                at[q] += np.uint64((np.int64(low) - reach + 1) * strides[i])
                up[q] = p
                down[q] = 1.0 / p
            for q in range(BLOCK):
                square[q] = up[q] * up[q]
                other[q] = down[q] * down[q]
            for h in range(reach):
                f, low_site, high_site = fades[h], reach - 1 - h, reach + h
                for q in range(BLOCK):
                    weights[i, low_site, q] = f * down[q]
                    weights[i, high_site, q] = f * up[q]
                    up[q] = up[q] * square[q]
                    down[q] = down[q] * other[q]
            for q in range(BLOCK):
                total[q] = weights[i, 0, q]
            for j in range(1, widths[i]):
                for q in range(BLOCK):
                    total[q] = total[q] + weights[i, j, q]
            for q in range(BLOCK):
                total[q] = 1.0 / total[q]
            for j in range(widths[i]):
                for q in range(BLOCK):
                    weights[i, j, q] = weights[i, j, q] * total[q]
        if far:  # ask for the rows of all queries of the block at once, so that their latencies overlap
            for n in range(combinations):
                shift = 0
                rest = n
                size_left = combinations
                for i in range(D - 1):
                    size_left //= widths[i]
                    j = rest // size_left
                    rest -= j * size_left
                    shift += j * strides[i]
                first, second = np.uint64(shift), np.uint64(shift + (widths[D - 1] - 1) * K)
                touched, again = 0.0, 0.0
                for q in range(size):
                    touched += values[at[q] + first]
                    again += values[at[q] + second]
                sink += touched + again
        for k in range(K):
            for q in range(BLOCK):
                total[q] = 0.0
            for n in range(combinations):
                shift = k
                rest = n
                for q in range(BLOCK):
                    outer[q] = 1.0
                size_left = combinations
                for i in range(D - 1):
                    size_left //= widths[i]
                    j = rest // size_left
                    rest -= j * size_left
                    shift += j * strides[i]
                    for q in range(BLOCK):
                        outer[q] = outer[q] * weights[i, j, q]
                first = np.uint64(shift)
                for q in range(BLOCK):
                    inner[q] = weights[D - 1, 0, q] * np.float64(values[at[q] + first])
                j = 1
                while j + 1 < widths[D - 1]:
                    first, second = np.uint64(shift + j * K), np.uint64(shift + (j + 1) * K)
                    for q in range(BLOCK):
                        one = inner[q] + weights[D - 1, j, q] * np.float64(values[at[q] + first])
                        inner[q] = one + weights[D - 1, j + 1, q] * np.float64(values[at[q] + second])
                    j += 2
                if j < widths[D - 1]:
                    first = np.uint64(shift + j * K)
                    for q in range(BLOCK):
                        inner[q] = inner[q] + weights[D - 1, j, q] * np.float64(values[at[q] + first])
                for q in range(BLOCK):
                    total[q] = total[q] + outer[q] * inner[q]
            for q in range(size):
                out[row[q], k] = total[q]
    return sink


@nb.njit(nb.void(TABLE, ROW, ROW, INDICES, nb.int32[::1], nb.int64[::1]), **OPTIONS)
def by_cells(x, low, density, bins, order, ends):
    """`order`: the queries sorted by bins, as they came within one; `ends`: how many lie in each bin or before it."""
    D = x.shape[1]
    keys = np.empty(len(x), dtype=np.uint16)
    for q in range(len(x)):
        key = 0
        for i in range(D):
            key = key * bins[i] + min(max(np.int64((x[q, i] - low[i]) * density[i]), 0), bins[i] - 1)
        keys[q] = key
        ends[key] += 1
    total = 0
    for key in range(len(ends)):
        held = ends[key]
        ends[key] = total
        total += held
    for q in range(len(x)):
        key = keys[q]
        order[ends[key]] = q
        ends[key] += 1
