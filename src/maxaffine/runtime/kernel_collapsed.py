# mypy: ignore-errors
"""The compiled kernel of `collapsed`: loops over blocks of queries that become vector instructions.

Every query goes through the same instructions wherever it stands: blocks have one width, the last one is filled up, and no
multiplication is fused with an addition, so that the results are those of the same formulas in NumPy, bit for bit.
"""

import numba as nb
import numpy as np

from maxaffine.runtime.kernel_exp import INDEX_TABLE, INTEGER, OPTIONS, OUT, ROW, TABLE

BLOCK = 256  # queries at a time: a few arrays of that length stay in the first-level cache


@nb.njit(inline="always")
def _horner(coefficients, at, count, z, out):
    """out = sum_k c_k z^k, coefficients from the highest degree down."""
    for q in range(BLOCK):
        out[q] = coefficients[at]
    k = at + 1
    end = at + count
    while end - k >= 8:
        c0, c1, c2, c3 = coefficients[k], coefficients[k + 1], coefficients[k + 2], coefficients[k + 3]
        c4, c5, c6, c7 = coefficients[k + 4], coefficients[k + 5], coefficients[k + 6], coefficients[k + 7]
        for q in range(BLOCK):
            t = z[q]
            v = out[q] * t + c0
            v = v * t + c1
            v = v * t + c2
            v = v * t + c3
            v = v * t + c4
            v = v * t + c5
            v = v * t + c6
            out[q] = v * t + c7
        k += 8
    while end - k >= 2:
        c0, c1 = coefficients[k], coefficients[k + 1]
        for q in range(BLOCK):
            t = z[q]
            v = out[q] * t + c0
            out[q] = v * t + c1
        k += 2
    if k < end:
        c0 = coefficients[k]
        for q in range(BLOCK):
            out[q] = out[q] * z[q] + c0


@nb.njit(inline="always")
def _clenshaw(coefficients, at, count, z, out, before):
    """out = sum_k c_k T_k(z), coefficients from the highest degree down; `before` is work space."""
    for q in range(BLOCK):
        out[q] = coefficients[at]
        before[q] = 0.0
    k = at + 1
    end = at + count
    while end - k > 4:
        c0, c1, c2, c3 = coefficients[k], coefficients[k + 1], coefficients[k + 2], coefficients[k + 3]
        for q in range(BLOCK):
            t = 2.0 * z[q]
            b0 = out[q]
            b1 = (c0 - before[q]) + t * b0
            b2 = (c1 - b0) + t * b1
            b3 = (c2 - b1) + t * b2
            before[q] = b3
            out[q] = (c3 - b2) + t * b3
        k += 4
    while end - k > 1:
        c0 = coefficients[k]
        for q in range(BLOCK):
            b0 = out[q]
            out[q] = (c0 - before[q]) + (2.0 * z[q]) * b0
            before[q] = b0
        k += 1
    if k < end:
        c0 = coefficients[k]
        for q in range(BLOCK):
            out[q] = (c0 - before[q]) + z[q] * out[q]


@nb.njit(inline="always")
def _multiply(held, fresh, columns, form, first):
    """held *= fresh, column by column; where form is 3 complex ones, their imaginary parts after the real ones."""
    if first:
        for b in range(columns):
            for q in range(BLOCK):
                held[b, q] = fresh[b, q]
    elif form == 3:
        R = columns // 2
        for r in range(R):
            for q in range(BLOCK):
                a, b = held[r, q], held[R + r, q]
                u, v = fresh[r, q], fresh[R + r, q]
                held[r, q] = a * u - b * v
                held[R + r, q] = a * v + b * u
    else:
        for b in range(columns):
            for q in range(BLOCK):
                held[b, q] = held[b, q] * fresh[b, q]


@nb.njit(nb.void(TABLE, ROW, TABLE, ROW, INDEX_TABLE, INDEX_TABLE, INTEGER, OUT, INTEGER, INTEGER), **OPTIONS)
def collapsed(x, centre, rows, coefficients, groups, directions, work, out, start, stop):
    """Queries start..stop of a collapsed layer; see runtime/collapsed.py for the tables."""
    D = x.shape[1]
    K = out.shape[1]
    Z = rows.shape[0]
    z = np.empty((Z, BLOCK))
    points = np.zeros((D, BLOCK))
    total = np.empty((K, BLOCK))
    state = np.empty((work, BLOCK))
    fresh = np.empty((work, BLOCK))
    held = np.empty((work, BLOCK))
    one = np.empty(BLOCK)
    before = np.empty(BLOCK)
    for base in range(start, stop, BLOCK):
        size = min(BLOCK, stop - base)
        for i in range(D):
            c = centre[i]
            if size == BLOCK:
                for q in range(BLOCK):
                    points[i, q] = x[base + q, i] - c
            else:
                for q in range(size):
                    points[i, q] = x[base + q, i] - c
        for d in range(Z):
            first = True
            for i in range(D):
                m = rows[d, i]
                if m != 0.0:
                    if first:
                        for q in range(BLOCK):
                            z[d, q] = m * points[i, q]
                        first = False
                    else:
                        for q in range(BLOCK):
                            z[d, q] = z[d, q] + m * points[i, q]
            if first:
                for q in range(BLOCK):
                    z[d, q] = 0.0
            for q in range(BLOCK):
                z[d, q] = min(max(z[d, q], -1.0), 1.0)
            if directions[d, 4] == 2:
                for q in range(BLOCK):
                    z[d, q] = z[d, q] * z[d, q]
        for k in range(K):
            for q in range(BLOCK):
                total[k, q] = 0.0
        for g in range(groups.shape[0]):
            form, first_direction, E = groups[g, 0], groups[g, 1], groups[g, 2]
            if form == 1:
                for r in range(directions[first_direction, 3]):
                    for e in range(E):
                        d = first_direction + e
                        at, count, kind = directions[d, 0], directions[d, 1], directions[d, 4]
                        if kind != 1:
                            _horner(coefficients, at + r * count, count, z[d], one)
                        else:
                            _clenshaw(coefficients, at + r * count, count, z[d], one, before)
                        if e == 0:
                            for q in range(BLOCK):
                                state[0, q] = one[q]
                        else:
                            for q in range(BLOCK):
                                state[0, q] = state[0, q] * one[q]
                    for q in range(BLOCK):
                        total[0, q] = total[0, q] + state[0, q]
                continue
            begins, first_block = True, True
            for e in range(E):
                d = first_direction + e
                at, count, kind = directions[d, 0], directions[d, 1], directions[d, 4]
                left, right = directions[d, 2], directions[d, 3]
                for b in range(right):
                    for a in range(left):
                        if kind != 1:
                            _horner(coefficients, at + (a * right + b) * count, count, z[d], one)
                        else:
                            _clenshaw(coefficients, at + (a * right + b) * count, count, z[d], one, before)
                        if begins:
                            for q in range(BLOCK):
                                fresh[b, q] = one[q]
                        elif a == 0:
                            for q in range(BLOCK):
                                fresh[b, q] = state[0, q] * one[q]
                        else:
                            for q in range(BLOCK):
                                fresh[b, q] = fresh[b, q] + state[a, q] * one[q]
                begins = directions[d, 5] != 0
                if begins:
                    _multiply(held, fresh, right, form, first_block)
                    first_block = False
                else:
                    for b in range(right):
                        for q in range(BLOCK):
                            state[b, q] = fresh[b, q]
                last = right
            if form == 0:
                for k in range(K):
                    for q in range(BLOCK):
                        total[k, q] = total[k, q] + held[k, q]
            else:
                for r in range(last // 2 if form == 3 else last):
                    for q in range(BLOCK):
                        total[0, q] = total[0, q] + held[r, q]
        for k in range(K):
            if size == BLOCK:
                for q in range(BLOCK):
                    out[base + q, k] = total[k, q]
            else:
                for q in range(size):
                    out[base + q, k] = total[k, q]
