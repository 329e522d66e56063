"""`collapsed`: a grouped layer evaluated as polynomials of its directions (runtime/collapse.py), no exponential, no token.

z is formed in float64 and clipped to [-1, 1]; polynomials by Horner's or Clenshaw's rule in float64, whatever the layer's dtype.
Small batches run in NumPy; large ones in compiled blocks on several threads.  Both perform the same operations in the same
order, so a query's value depends neither on its batch nor on the number of threads.
"""

import itertools
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
    """A collapsed layer as tables: one row of `groups` (kind, first direction, directions), one row of `directions` (offset of
    its coefficients, their number, columns in, columns out, basis, whether it ends a block) and one of `rows` per direction.

    Kinds: 0 a train, 1 products of single directions, 2 of blocks, 3 of complex blocks.  Bases: 0 powers, 1 Chebyshev, 2 powers
    of z^2, which Horner's rule in the rounded z^2 meets with no more roundings than Horner's rule in z.
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
        kind = 3 if group.parts == 2 else 2 if group.parts == 1 and max(group.blocks) > 1 else group.parts
        groups.append((kind, len(rows), len(group.cores)))
        ends = set(itertools.accumulate(group.blocks))
        for e, (row, core) in enumerate(zip(group.matrix, group.cores, strict=True)):
            columns = np.moveaxis(core, 1, 2)  # (in, out, degree + 1)
            even = group.basis == "powers" and columns.shape[2] > 2 and not columns[:, :, 1::2].any()
            columns = columns[:, :, ::2] if even else columns
            left, right, count = columns.shape
            pieces.append(columns[:, :, ::-1].reshape(-1))
            rows.append(row)
            directions.append((at, count, left, right, 2 if even else int(group.basis == "chebyshev"), int(e + 1 in ends)))
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
    for row, direction in zip(made.rows, made.directions, strict=True):
        one = np.zeros(len(x))
        for n, i in enumerate(np.flatnonzero(row)):
            one = row[i] * points[i] if n == 0 else one + row[i] * points[i]
        one = np.clip(one, -1.0, 1.0)
        z.append(one * one if direction[4] == 2 else one)
    for kind, first, E in made.groups:
        held: list[Array] = []
        state: list[Array] = []
        begins = True
        for e in range(first, first + E):
            at, count, left, right, basis, ends = (int(n) for n in made.directions[e])
            table = made.coefficients[at : at + left * right * count].reshape(left, right, count)
            rule = partial(_clenshaw if basis == 1 else _horner, z=z[e])
            if begins:
                state = [rule(table[0, b]) for b in range(right)]
            else:
                state = [reduce(add, [state[a] * rule(table[a, b]) for a in range(left)]) for b in range(right)]
            begins = bool(ends)
            if ends:
                held = state if not held else _multiplied(held, state, bool(kind == 3))
        if kind == 0:
            total += np.stack(held)
        else:
            for one in held[: len(held) // 2] if kind == 3 else held:
                total[0] += one
    return np.asarray(total.T)


def _multiplied(held: list[Array], more: list[Array], complex_: bool) -> list[Array]:
    """Columns times columns, where complex the imaginary parts after the real ones."""
    if not complex_:
        return [a * b for a, b in zip(held, more, strict=True)]
    R = len(held) // 2
    a, b, p, q = held[:R], held[R:], more[:R], more[R:]
    return [a[r] * p[r] - b[r] * q[r] for r in range(R)] + [a[r] * q[r] + b[r] * p[r] for r in range(R)]


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
