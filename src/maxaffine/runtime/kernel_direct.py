# mypy: ignore-errors
"""The compiled kernel of `direct`: every instruction is a loop over a block of queries that becomes vector instructions.

The same operations in the same order as `direct.in_numpy`, bit for bit: blocks have one width, the last one is filled up with its
last query, and no multiplication is fused with an addition.  No instruction writes to a column that it reads.
"""

import numba as nb
import numpy as np

from maxaffine.runtime import direct as steps
from maxaffine.runtime.direct import HALF_PI, INVERSE_PI, PI_HIGH, PI_LOW
from maxaffine.runtime.kernel_exp import INDEX_TABLE, INDICES, INTEGER, OPTIONS, OUT, ROW, TABLE, WHOLE
from maxaffine.runtime.windowed import LN2_HIGH, LN2_LOW, LOG2E

BLOCK = 256  # queries at a time: some dozens of columns of that length stay in the second-level cache, a few in the first


@nb.njit(inline="always")
def _horner(c, at, count, z, out):
    """out = sum_k c_k z^k, coefficients from the highest degree down."""
    if count == 1:
        for q in range(BLOCK):
            out[q] = c[at]
        return
    c0, c1 = c[at], c[at + 1]
    k, end = at + 2, at + count
    if count >= 5:
        c2, c3, c4 = c[at + 2], c[at + 3], c[at + 4]
        for q in range(BLOCK):
            t = z[q]
            out[q] = (((c0 * t + c1) * t + c2) * t + c3) * t + c4
        k = at + 5
    elif count == 4:
        c2, c3 = c[at + 2], c[at + 3]
        for q in range(BLOCK):
            t = z[q]
            out[q] = ((c0 * t + c1) * t + c2) * t + c3
        return
    else:
        for q in range(BLOCK):
            out[q] = c0 * z[q] + c1
    while end - k >= 4:
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        for q in range(BLOCK):
            t = z[q]
            out[q] = (((out[q] * t + c0) * t + c1) * t + c2) * t + c3
        k += 4
    while k < end:
        c0 = c[k]
        for q in range(BLOCK):
            out[q] = out[q] * z[q] + c0
        k += 1


@nb.njit(inline="always")
def _power(y):
    """The rest r of y, and 2^n, with e^y = 2^n e^r."""
    n = np.floor(y * LOG2E + 0.5)
    bits = (np.float64(n + WHOLE).view(np.int64) + 1023) << 52
    return (y - n * LN2_HIGH) - n * LN2_LOW, np.int64(bits).view(np.float64)


@nb.njit(inline="always")
def _exp(c, at, count, a, r, power, out):
    """out = exp(a); r and power are work space.  In one loop where the number of coefficients allows it."""
    least = c[at]
    if count == 7:
        c0, c1, c2, c3, c4, c5 = c[at + 1], c[at + 2], c[at + 3], c[at + 4], c[at + 5], c[at + 6]
        for q in range(BLOCK):
            t, scale = _power(a[q] if a[q] > least else least)
            out[q] = (((((c0 * t + c1) * t + c2) * t + c3) * t + c4) * t + c5) * scale
        return
    if count == 10:
        c0, c1, c2, c3, c4, c5 = c[at + 1], c[at + 2], c[at + 3], c[at + 4], c[at + 5], c[at + 6]
        c6, c7, c8 = c[at + 7], c[at + 8], c[at + 9]
        for q in range(BLOCK):
            t, scale = _power(a[q] if a[q] > least else least)
            v = ((((c0 * t + c1) * t + c2) * t + c3) * t + c4) * t + c5
            out[q] = (((v * t + c6) * t + c7) * t + c8) * scale
        return
    for q in range(BLOCK):
        r[q], power[q] = _power(a[q] if a[q] > least else least)
    _horner(c, at + 1, count - 1, r, out)
    for q in range(BLOCK):
        out[q] = out[q] * power[q]


@nb.njit(inline="always")
def _turned(a, before, after, odd):
    """The rest of an angle, and its sign in the highest bit."""
    n = np.floor(a * INVERSE_PI + before)
    m = n + after
    return (a - m * PI_HIGH) - m * PI_LOW, np.float64((n + odd) + WHOLE).view(np.int64) << 63


@nb.njit(inline="always")
def _signed(value, sign):
    return np.int64(np.float64(value).view(np.int64) ^ sign).view(np.float64)


@nb.njit(inline="always")
def _wave(c, at, count, a, r, s, sign, out):
    """out = sin(a) or cos(a); r, s and sign are work space.  In one loop where the number of coefficients allows it."""
    before, after, odd = c[at], c[at + 1], c[at + 2]
    if count == 7:
        c0, c1, c2, c3 = c[at + 3], c[at + 4], c[at + 5], c[at + 6]
        for q in range(BLOCK):
            t, bits = _turned(a[q], before, after, odd)
            u = t * t
            out[q] = _signed(t * (u * (((c0 * u + c1) * u + c2) * u + c3)) + t, bits)
        return
    if count == 9:
        c0, c1, c2, c3, c4, c5 = c[at + 3], c[at + 4], c[at + 5], c[at + 6], c[at + 7], c[at + 8]
        for q in range(BLOCK):
            t, bits = _turned(a[q], before, after, odd)
            u = t * t
            out[q] = _signed(t * (u * (((((c0 * u + c1) * u + c2) * u + c3) * u + c4) * u + c5)) + t, bits)
        return
    for q in range(BLOCK):
        t, sign[q] = _turned(a[q], before, after, odd)
        r[q] = t
        s[q] = t * t
    _horner(c, at + 3, count - 3, s, out)
    for q in range(BLOCK):
        out[q] = _signed(r[q] * (s[q] * out[q]) + r[q], sign[q])


@nb.njit(inline="always")
def _atan(c, at, count, a, w, s, out):
    """out = atan(a); w and s are work space."""
    for q in range(BLOCK):
        size = abs(a[q])
        t = (size if size < 1.0 else 1.0) / (size if size > 1.0 else 1.0)
        w[q] = t
        s[q] = t * t
    _horner(c, at, count, s, out)
    for q in range(BLOCK):
        found = w[q] * (s[q] * out[q]) + w[q]
        found = HALF_PI - found if abs(a[q]) > 1.0 else found
        out[q] = np.copysign(found, a[q])


@nb.njit(inline="always")
def _table(c, at, count, a, w, place, out):
    """out = the polynomial of the bin of a; w and place are work space."""
    low, scale, most = c[at], c[at + 1], c[at + 2]
    bins = np.int64(most)
    each = (count - 3) // bins
    for q in range(BLOCK):
        t = (a[q] - low) * scale
        t = t if t > 0.0 else 0.0
        t = t if t < most else most
        i = min(np.int64(t), bins - 1)
        w[q] = (t - i) - 0.5
        place[q] = at + 3 + i * each
    if bins == 1:
        _horner(c, at + 3, each, w, out)
        return
    for q in range(BLOCK):
        out[q] = c[place[q]]
    for k in range(1, each):
        for q in range(BLOCK):
            out[q] = out[q] * w[q] + c[place[q] + k]


@nb.njit(inline="always")
def _load(flat, D, i, base, size, out):
    """Variable i of the queries from `base` on; strides that are known make vector instructions."""
    if size == BLOCK and D == 1:
        for q in range(BLOCK):
            out[q] = flat[base + q]
    elif size == BLOCK and D == 2:
        for q in range(BLOCK):
            out[q] = flat[2 * (base + q) + i]
    elif size == BLOCK and D == 3:
        for q in range(BLOCK):
            out[q] = flat[3 * (base + q) + i]
    else:
        at = D * base + i
        for q in range(size):
            out[q] = flat[at]
            at += D
        for q in range(size, BLOCK):
            out[q] = out[size - 1]


@nb.njit(nb.void(TABLE, INDEX_TABLE, ROW, INDICES, INTEGER, OUT, INTEGER, INTEGER), **OPTIONS)
def direct(x, rows, numbers, outputs, columns, out, start, stop):
    """Queries start..stop of a program; see runtime/direct.py for its instructions."""
    flat, answers = x.reshape(-1), out.reshape(-1)
    held = np.empty((columns, BLOCK))
    one, two = np.empty(BLOCK), np.empty(BLOCK)
    whole = np.empty(BLOCK, dtype=np.int64)
    for base in range(start, stop, BLOCK):
        size = min(BLOCK, stop - base)
        for step in range(rows.shape[0]):
            kind, a, b, at, count = rows[step, 0], rows[step, 2], rows[step, 3], rows[step, 4], rows[step, 5]
            made = held[rows[step, 1]]
            first, second = held[a if kind != steps.LOAD else 0], held[b]
            if kind == steps.LOAD:
                _load(flat, x.shape[1], a, base, size, made)
            elif kind == steps.CONSTANT:
                made[:] = numbers[at]
            elif kind == steps.SCALE:
                c = numbers[at]
                for q in range(BLOCK):
                    made[q] = first[q] * c
            elif kind == steps.SHIFT:
                c = numbers[at]
                for q in range(BLOCK):
                    made[q] = first[q] + c
            elif kind == steps.ADD:
                for q in range(BLOCK):
                    made[q] = first[q] + second[q]
            elif kind == steps.SUBTRACT:
                for q in range(BLOCK):
                    made[q] = first[q] - second[q]
            elif kind == steps.SCALE_ADD:
                c = numbers[at]
                for q in range(BLOCK):
                    made[q] = second[q] + first[q] * c
            elif kind == steps.MULTIPLY:
                for q in range(BLOCK):
                    made[q] = first[q] * second[q]
            elif kind == steps.DIVIDE:
                for q in range(BLOCK):
                    made[q] = first[q] / second[q]
            elif kind == steps.MAXIMUM:
                for q in range(BLOCK):
                    made[q] = first[q] if first[q] > second[q] else second[q]
            elif kind == steps.MINIMUM:
                for q in range(BLOCK):
                    made[q] = first[q] if first[q] < second[q] else second[q]
            elif kind == steps.ABSOLUTE:
                for q in range(BLOCK):
                    made[q] = abs(first[q])
            elif kind == steps.SIGNED:
                for q in range(BLOCK):
                    made[q] = np.copysign(first[q], second[q])
            elif kind == steps.ROOT:
                for q in range(BLOCK):
                    made[q] = np.sqrt(first[q] if first[q] > 0.0 else 0.0)
            elif kind == steps.EXP:
                _exp(numbers, at, count, first, one, two, made)
            elif kind == steps.WAVE:
                _wave(numbers, at, count, first, one, two, whole, made)
            elif kind == steps.ATAN:
                _atan(numbers, at, count, first, one, two, made)
            else:
                _table(numbers, at, count, first, one, whole, made)
        for k in range(outputs.shape[0]):
            made = held[outputs[k]]
            if size == BLOCK and outputs.shape[0] == 1:
                for q in range(BLOCK):
                    answers[base + q] = made[q]
            else:
                for q in range(size):
                    out[base + q, k] = made[q]
