"""`collapsed`: a grouped layer evaluated as polynomials of its directions (runtime/collapse.py), no exponential, no token.

z is formed in float64 and clipped to [-1, 1]; polynomials by Horner's or Clenshaw's rule in float64, whatever the layer's dtype.
Small batches run in NumPy; large ones in compiled blocks on several threads.  Both perform the same operations in the same
order, so a query's value depends neither on its batch nor on the number of threads.
"""

from dataclasses import dataclass
from functools import partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import parallel
from maxaffine.runtime.collapse import Collapsed, collapse
from maxaffine.runtime.kept import once

CHUNK = 1 << 12  # queries at a time in NumPy


@dataclass(frozen=True)
class Program:
    """A collapsed layer as tables: one row of `groups` (products?, first direction, directions), one row of `directions`
    (offset of its coefficients, their number, columns in, columns out, 0 powers or 1 Chebyshev) and one of `rows` per direction.
    """

    centre: Array
    rows: Array  # (directions, D)
    coefficients: Array  # per polynomial from the highest degree down
    groups: NDArray[np.int64]
    directions: NDArray[np.int64]
    width: int  # columns of the widest core
    outputs: int


@once
def program(collapsed: Collapsed, outputs: int) -> Program:
    """The tables that kernels walk through."""
    rows: list[Array] = []
    pieces: list[Array] = []
    groups, directions = [], []
    at, width = 0, outputs
    for group in collapsed.groups:
        groups.append((int(group.products), len(rows), len(group.cores)))
        for row, core in zip(group.matrix, group.cores, strict=True):
            columns = core.T[None] if group.products else np.moveaxis(core, 1, 2)  # (in, out, degree + 1)
            left, right, count = columns.shape
            pieces.append(columns[:, :, ::-1].reshape(-1))
            rows.append(row)
            directions.append((at, count, left, right, int(group.basis == "chebyshev")))
            at, width = at + columns.size, max(width, right)
    return Program(
        np.ascontiguousarray(collapsed.centre), np.ascontiguousarray(rows), np.concatenate(pieces),
        np.array(groups, dtype=np.int64), np.array(directions, dtype=np.int64), width, outputs,
    )  # fmt: skip


def prepared(layer: GroupedLayer, tolerance: float = 0.0) -> Program:
    """The program of a layer; Refused where it does not collapse."""
    return program(collapse(layer, tolerance), layer.d_out)


def evaluate(layer: GroupedLayer, x: Array, tolerance: float = 0.0, threads: int | None = None) -> AnyArray:
    """F(x): (B, K, 1)."""
    made = prepared(layer, tolerance)
    x = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty((len(x), made.outputs))
    work = len(x) * made.coefficients.size
    kernel = parallel.kernel("collapsed", work, len(x))
    if kernel is None:
        for start in range(0, len(x), CHUNK):
            out[start : start + CHUNK] = in_numpy(made, x[start : start + CHUNK])
    else:
        tables = (made.centre, made.rows, made.coefficients, made.groups, made.directions, made.width, out)
        parallel.over(0, len(x), work, threads, lambda start, stop: kernel(x, *tables, start, stop))
    return out.astype(compute_dtype(layer.dtype), copy=False)[:, :, None]


def in_numpy(made: Program, x: Array) -> Array:
    """The same operations in the same order, without numba: (B, K)."""
    points = (x - made.centre).T.copy()
    total = np.zeros((made.outputs, len(x)))
    z = []
    for row in made.rows:
        one = np.zeros(len(x))
        for n, i in enumerate(np.flatnonzero(row)):
            one = row[i] * points[i] if n == 0 else one + row[i] * points[i]
        z.append(np.clip(one, -1.0, 1.0))
    for products, first, E in made.groups:
        state: list[Array] = []
        for e in range(E):
            at, count, left, right, kind = (int(n) for n in made.directions[first + e])
            table = made.coefficients[at : at + left * right * count].reshape(left, right, count)
            rule = partial(_clenshaw if kind else _horner, z=z[first + e])
            if e == 0:
                state = [rule(table[0, b]) for b in range(right)]
            elif products:
                state = [one * rule(table[0, b]) for b, one in enumerate(state)]
            else:
                state = [reduce(add, [state[a] * rule(table[a, b]) for a in range(left)]) for b in range(right)]
        if products:
            for one in state:
                total[0] += one
        else:
            total += np.stack(state)
    return np.asarray(total.T)


def _horner(coefficients: Array, z: Array) -> Array:
    out = np.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        out *= z
        out += c
    return out


def _clenshaw(coefficients: Array, z: Array) -> Array:
    out, before = np.full_like(z, coefficients[0]), np.zeros_like(z)
    twice = 2.0 * z
    for c in coefficients[1:-1]:
        out, before = (c - before) + twice * out, out
    return (coefficients[-1] - before) + z * out if len(coefficients) > 1 else out
