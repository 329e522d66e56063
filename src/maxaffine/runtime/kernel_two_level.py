# mypy: ignore-errors
"""The compiled kernel of `two-level`: which clusters answer, then those that do, both in SIMD over blocks of queries.

The same operations in the same order as `two_level.in_numpy`, bit for bit, wherever a query stands in a batch.
"""

import numba as nb
import numpy as np

from maxaffine.runtime.kernel_exp import INDEX_TABLE, INDICES, INTEGER, OPTIONS, OUT, ROW, TABLE, exponential, given
from maxaffine.runtime.two_level import BRANCH, UNSEEN

BLOCK, NUMBERS = 1024, 1 << 17  # queries at a time, fewer where their scores against all clusters would not stay in the cache


@nb.njit(inline="always")
def _total(work, count, many, out):
    """out *= the sum of `count` rows of work in a tree of BRANCH rows per level, each summed from the left."""
    while count > 1:
        made = 0
        for first in range(0, count, BRANCH):
            for i in range(many):
                work[made, i] = work[first, i]
            for j in range(first + 1, min(first + BRANCH, count)):
                for i in range(many):
                    work[made, i] = work[made, i] + work[j, i]
            made += 1
        count = made
    for i in range(many):
        out[i] = out[i] * work[0, i]


@nb.njit(
    [
        nb.void(
            TABLE, ROW, TABLE, TABLE, ROW, TABLE, TABLE, INDEX_TABLE, INDEX_TABLE, given(kind, 1), given(kind, 1), INDICES,
            ROW, INTEGER, ROW, OUT, INTEGER, INTEGER,
        )
        for kind in (nb.float64, nb.float32)
    ],
    **OPTIONS,
)  # fmt: skip
def two_level(
    x, centre, matrix, sites, offsets, origin, radius, first, count, slopes, betas, at, values, width, floors, out,
    start, stop,
):  # fmt: skip
    """Adds queries start..stop of a group of clusters to `out`; see two_level.Program for the tables."""
    C, E = sites.shape
    block = max(128, min(BLOCK, NUMBERS // C, (stop - start + 127) // 128 * 128))
    D = x.shape[1]
    K = out.shape[1]
    keys, longest = 0, 0
    for k in range(C):
        size = K * width
        for e in range(E):
            keys = max(keys, count[k, e])
            size *= count[k, e]
        longest = max(longest, size)
    z = np.empty((E, block))
    scores = np.empty((C, block))
    best = np.empty(block)
    t = np.empty(block, dtype=slopes.dtype)
    top = np.empty(block, dtype=slopes.dtype)
    above = np.empty((K, block))
    below = np.empty(block)
    lost = np.empty(block)
    picked = np.empty(block + 1, dtype=np.int64)  # queries that a cluster answers; what follows is about them
    mass = np.empty(block)
    norm = np.empty(block)
    local = np.empty((E, block))
    logits = np.empty((keys, block), dtype=slopes.dtype)
    weights = np.empty((keys, block))
    work = np.empty((keys, block))
    partial = np.empty((longest, block))
    for base in range(start, stop, block):
        size = min(block, stop - base)
        for e in range(E):
            for q in range(size):
                z[e, q] = matrix[e, 0] * (x[base + q, 0] - centre[0])
            for i in range(1, D):
                for q in range(size):
                    z[e, q] = z[e, q] + matrix[e, i] * (x[base + q, i] - centre[i])
            for q in range(size, block):
                z[e, q] = 0.0
        for q in range(block):
            best[q] = -np.inf
            below[q] = 0.0
            lost[q] = 0.0
        for m in range(K):
            for q in range(block):
                above[m, q] = 0.0
        for k in range(C):
            for q in range(block):
                scores[k, q] = sites[k, 0] * z[0, q]
            for e in range(1, E):
                for q in range(block):
                    scores[k, q] = scores[k, q] + sites[k, e] * z[e, q]
            for q in range(block):
                scores[k, q] = scores[k, q] + offsets[k]
            for e in range(E):
                o, r, begin = origin[k, e], radius[k, e], first[k, e]
                if count[k, e] == 1 and slopes[begin] == 0.0 and betas[begin] == 0.0:
                    continue
                for q in range(block):
                    t[q] = (z[e, q] - o) / r
                for q in range(block):
                    top[q] = t[q] * slopes[begin] + betas[begin]
                for j in range(begin + 1, begin + count[k, e]):
                    for q in range(block):
                        other = t[q] * slopes[j] + betas[j]
                        top[q] = other if other > top[q] else top[q]
                for q in range(block):
                    scores[k, q] = scores[k, q] + top[q]
            for q in range(block):
                best[q] = scores[k, q] if scores[k, q] > best[q] else best[q]
        for k in range(C):
            floor = floors[k]
            many = 0
            for q in range(size):
                picked[many] = q
                many += scores[k, q] - best[q] >= floor
            if many == 0:
                continue
            rest = K * width
            for e in range(E):
                rest *= count[k, e]
            for i in range(many):
                mass[i] = exponential(scores[k, picked[i]] - best[picked[i]])
                norm[i] = 1.0
            for e in range(E):
                n, begin, o, r = count[k, e], first[k, e], origin[k, e], radius[k, e]
                for i in range(many):
                    local[e, i] = (z[e, picked[i]] - o) / r
                rest //= n
                if n == 1:  # its weight is one
                    if e == 0:
                        for j in range(rest):
                            v = values[at[k] + j]
                            for i in range(many):
                                partial[j, i] = v
                    continue
                for i in range(many):
                    t[i] = local[e, i]
                    top[i] = t[i] * slopes[begin] + betas[begin]
                    logits[0, i] = top[i]
                for j in range(1, n):
                    slope, beta = slopes[begin + j], betas[begin + j]
                    for i in range(many):
                        other = t[i] * slope + beta
                        logits[j, i] = other
                        top[i] = other if other > top[i] else top[i]
                for j in range(n):
                    for i in range(many):
                        y = np.float64(logits[j, i] - top[i])
                        held = exponential(y if y > UNSEEN else UNSEEN)
                        held = held if y >= UNSEEN else 0.0
                        weights[j, i] = held
                        work[j, i] = held
                _total(work, n, many, norm)
                if e == 0:
                    for j in range(n):
                        for m in range(rest):
                            v = values[at[k] + j * rest + m]
                            if j == 0:
                                for i in range(many):
                                    partial[m, i] = weights[0, i] * v
                            else:
                                for i in range(many):
                                    partial[m, i] = partial[m, i] + weights[j, i] * v
                else:
                    for m in range(rest):
                        for i in range(many):
                            partial[m, i] = weights[0, i] * partial[m, i]
                    for j in range(1, n):
                        for m in range(rest):
                            for i in range(many):
                                partial[m, i] = partial[m, i] + weights[j, i] * partial[j * rest + m, i]
            for m in range(K):
                for e in range(width - 1):
                    for i in range(many):
                        partial[m * width, i] = partial[m * width, i] + partial[m * width + 1 + e, i] * local[e, i]
                for i in range(many):
                    above[m, picked[i]] = above[m, picked[i]] + mass[i] * partial[m * width, i]
            for i in range(many):
                q = picked[i]
                term = mass[i] * norm[i] - lost[q]  # added with what the sum before it lost
                total = below[q] + term
                lost[q] = (total - below[q]) - term
                below[q] = total
        for m in range(K):
            for q in range(size):
                out[base + q, m] = out[base + q, m] + above[m, q] / below[q]
