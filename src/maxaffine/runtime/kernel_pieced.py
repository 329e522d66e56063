# mypy: ignore-errors
"""The compiled kernel of `pieces`: the same operations in the same order as `pieced.in_numpy`, bit for bit, query by query."""

import numba as nb
import numpy as np

from maxaffine.runtime.kernel_exp import INDEX_TABLE, INDICES, INTEGER, OPTIONS, OUT, ROW, TABLE, exponential
from maxaffine.runtime.pieced import AUDIBLE, LEAST

BLOCK = 256  # queries at a time; the last block is filled up with what was there
FEW = 24  # sides that are compared with one by one


@nb.njit(inline="always")
def _coordinates(x, centre, rows, row, base, size, z):
    """z = M (x - centre), kept in [-1, 1]."""
    c, r = centre[0], rows[row, 0]
    for q in range(size):
        z[q] = r * (x[base + q, 0] - c)
    for i in range(1, x.shape[1]):
        c, r = centre[i], rows[row, i]
        for q in range(size):
            z[q] = z[q] + r * (x[base + q, i] - c)
    for q in range(size):
        v = z[q]
        v = 1.0 if v > 1.0 else v
        z[q] = -1.0 if v < -1.0 else v


@nb.njit(inline="always")
def _piece(numbers, at, powers, z):
    """The polynomial of one piece, its place kept in [-1, 1]."""
    y = (z - numbers[at]) * numbers[at + 1]
    y = 1.0 if y > 1.0 else y
    y = -1.0 if y < -1.0 else y
    out = numbers[at + 2] + 0.0 * y
    for j in range(at + 3, at + 2 + powers):
        out = out * y + numbers[j]
    return out


@nb.njit(inline="always")
def _polynomials(numbers, at, powers, z, y, out):
    """The polynomial of a piece for every query, their places kept in [-1, 1]."""
    for q in range(BLOCK):
        v = (z[q] - numbers[at[q]]) * numbers[at[q] + 1]
        v = 1.0 if v > 1.0 else v
        v = -1.0 if v < -1.0 else v
        y[q] = v
        out[q] = numbers[at[q] + 2] + 0.0 * v
    for j in range(3, powers + 2):
        for q in range(BLOCK):
            out[q] = out[q] * y[q] + numbers[at[q] + j]


@nb.njit(inline="always")
def _sides(numbers, bins, form, z, index):
    """How many of the sides are below every query."""
    count, start, first, many = form[1], form[4], form[5], form[6]
    if count <= FEW:
        for q in range(BLOCK):
            index[q] = 0
        for k in range(count):
            side = numbers[start + k]
            for q in range(BLOCK):
                index[q] += np.int64(z[q] > side)
        return
    for q in range(BLOCK):
        t = z[q] if z[q] == z[q] else 0.0
        found = bins[first + min(np.int64((t + 1.0) * (many / 2.0)), many - 1)]
        while found < count and t > numbers[start + found]:
            found += 1
        while found > 0 and not t > numbers[start + found - 1]:
            found -= 1
        index[q] = found


@nb.njit(inline="always")
def _factor(numbers, bins, form, z, index, mass, y, out):
    """One factor at its coordinates."""
    count, powers, start = form[1], form[2], form[4]
    stride, at = powers + 2, start + count + 1
    _sides(numbers, bins, form, z, index)
    if form[3] == 0:
        for q in range(BLOCK):
            index[q] = at + index[q] * stride
        _polynomials(numbers, index, powers, z, y, out)
        return
    pieces = at + 2 * (count + 1)
    for q in range(BLOCK):
        v = (z[q] - numbers[at + index[q]]) * numbers[at + count + 1 + index[q]]
        mass[q] = v
        index[q] = pieces + (index[q] + np.int64(v > 0.0)) * stride
    _polynomials(numbers, index, powers, z, y, out)
    for q in range(BLOCK):
        v = mass[q]
        if not (v >= AUDIBLE or v <= -AUDIBLE):
            first = index[q] - stride if v > 0.0 else index[q]
            left, right = _piece(numbers, first, powers, z[q]), _piece(numbers, first + stride, powers, z[q])
            share = 1.0 / (1.0 + exponential(-v if v == v else 0.0))
            out[q] = left + share * (right - left)


@nb.njit(inline="always")
def _patch(numbers, at, powers, E, v0, v1, v2):
    """Horner's rule in all directions, from the last number of a patch to the first."""
    out = 0.0
    for i in range(powers - 1, -1, -1):
        if E == 2:
            k = at + i * powers
            row = numbers[k + powers - 1] + 0.0 * v1
            for j in range(powers - 2, -1, -1):
                row = row * v1 + numbers[k + j]
        else:
            row = 0.0
            for m in range(powers - 1, -1, -1):
                k = at + (i * powers + m) * powers
                inner = numbers[k + powers - 1] + 0.0 * v2
                for j in range(powers - 2, -1, -1):
                    inner = inner * v2 + numbers[k + j]
                row = inner if m == powers - 1 else row * v1 + inner
        out = row if i == powers - 1 else out * v0 + row
    return out


@nb.njit(inline="always")
def _mass(numbers, at, E, v0, v1, v2):
    """A quadratic in every direction."""
    out = numbers[at] + (numbers[at + 1 + E] * v0 + numbers[at + 1]) * v0
    out = out + (numbers[at + 2 + E] * v1 + numbers[at + 2]) * v1
    if E == 3:
        out = out + (numbers[at + 3 + E] * v2 + numbers[at + 3]) * v2
    return out


@nb.njit(inline="always")
def _places(numbers, start, E, e, sides, z, index):
    """The cell along one direction into `index`, and the place in it into z."""
    scale, half = numbers[start + e], numbers[start + E + e]
    for q in range(BLOCK):
        s = z[q] * scale + half
        b = np.floor(s)
        b = b if b > 0.0 else 0.0  # also of not-a-number
        b = b if b < sides - 1.0 else sides - 1.0
        index[q] = index[q] * sides + np.int64(b)
        z[q] = 2.0 * (s - b) - 1.0


@nb.njit(inline="always")
def _rows(numbers, at, powers, v, out):
    """A row of powers for every query."""
    for q in range(BLOCK):
        out[q] = numbers[at[q] + powers - 1] + 0.0 * v[q]
    for j in range(powers - 2, -1, -1):
        for q in range(BLOCK):
            out[q] = out[q] * v[q] + numbers[at[q] + j]


@nb.njit(inline="always")
def _planes(numbers, at, powers, u, v, row, out):
    """Rows of rows for every query; `at` comes back as it was."""
    step = (powers - 1) * powers
    for q in range(BLOCK):
        at[q] += step
    _rows(numbers, at, powers, v, out)
    for _ in range(powers - 1):
        for q in range(BLOCK):
            at[q] -= powers
        _rows(numbers, at, powers, v, row)
        for q in range(BLOCK):
            out[q] = out[q] * u[q] + row[q]


@nb.njit(inline="always")
def _grid(numbers, cells, form, z, index, count, row, plane, out):
    """One group by its patches."""
    E, powers, celled, start, width = form[1], form[2], form[4], form[5], form[6]
    size = powers * powers if E == 2 else powers * powers * powers
    for q in range(BLOCK):
        index[q] = 0
    for e in range(E):
        _places(numbers, start, E, e, form[7 + e], z[e], index)
    for q in range(BLOCK):
        packed = cells[celled + index[q]]
        count[q] = packed & 31
        index[q] = start + 2 * E + (packed >> 5) * width
    if E == 2:
        _planes(numbers, index, powers, z[0], z[1], row, out)
    else:
        step = powers * powers
        for q in range(BLOCK):
            index[q] += (powers - 1) * step
        _planes(numbers, index, powers, z[1], z[2], row, out)
        for _ in range(powers - 1):
            for q in range(BLOCK):
                index[q] -= step
            _planes(numbers, index, powers, z[1], z[2], row, plane)
            for q in range(BLOCK):
                out[q] = out[q] * z[0, q] + plane[q]
    if form[3] == 1:
        return
    for q in range(BLOCK):
        if count[q] > 1:
            out[q] = _shared(numbers, index[q], count[q], width, size, powers, E, z[0, q], z[1, q], z[2, q], out[q])


@nb.njit(inline="always")
def _shared(numbers, at, count, width, size, powers, E, v0, v1, v2, value):
    """Several heads and their shares; `value` is that of the first."""
    top = 0.0
    for m in range(1, count):
        mass = _mass(numbers, at + m * width + size, E, v0, v1, v2)
        top = mass if mass > top else top
    above, below = 0.0, 0.0
    for m in range(count):
        mass = _mass(numbers, at + m * width + size, E, v0, v1, v2) if m > 0 else 0.0
        behind = mass - top
        behind = behind if behind == behind else 0.0
        weight = exponential(behind) if behind >= LEAST else 0.0
        if m > 0:
            value = _patch(numbers, at + m * width, powers, E, v0, v1, v2)
        above = above + weight * value
        below = below + weight
    return above / below


TABLES = TABLE, INDEX_TABLE, INDEX_TABLE, INDEX_TABLE, ROW, INDICES, INDICES, ROW


@nb.njit(nb.void(TABLE, ROW, *TABLES, OUT, INTEGER, INTEGER), **OPTIONS)
def pieced(x, centre, rows, terms, factors, grids, numbers, bins, cells, shift, out, start, stop):
    """Queries start..stop; see pieced.Program for the tables."""
    z = np.zeros((3, BLOCK))
    whole, one, mass, y = np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK)
    row, plane = np.zeros(BLOCK), np.zeros(BLOCK)
    index, count = np.zeros(BLOCK, dtype=np.int64), np.zeros(BLOCK, dtype=np.int64)
    for base in range(start, stop, BLOCK):
        size = min(BLOCK, stop - base)
        for k in range(len(shift)):
            for q in range(size):
                out[base + q, k] = shift[k]
        for t in range(len(terms)):
            output, many, first = terms[t, 0], terms[t, 1], terms[t, 2]
            if many == 0:
                for e in range(grids[first, 1]):
                    _coordinates(x, centre, rows, grids[first, 0] + e, base, size, z[e])
                _grid(numbers, cells, grids[first], z, index, count, row, plane, whole)
            for f in range(many):
                _coordinates(x, centre, rows, factors[first + f, 0], base, size, z[0])
                if f == 0:
                    _factor(numbers, bins, factors[first + f], z[0], index, mass, y, whole)
                else:
                    _factor(numbers, bins, factors[first + f], z[0], index, mass, y, one)
                    for q in range(BLOCK):
                        whole[q] = whole[q] * one[q]
            for q in range(size):
                out[base + q, output] = out[base + q, output] + whole[q]
