"""`direct`: the target itself by sums, products and short polynomials, instead of the layer; proofs/direct.py proves how exact.

A program is a list of instructions, each of which makes one column of numbers from columns made before:

    load a column of x; c; c a; a + c; a + b; a - b; b + c a; a b; a / b; max; min; |a|; |a| with the sign of b; sqrt a
    exp       2^n P(r),                  n = floor(a / log 2 + 1/2), r = a - n log 2, |r| <= log(2)/2
    wave      +-(r + r (s Q(s))),        s = r^2, r = a - m pi, |r| <= pi/2: sin for whole m, cos for m between whole numbers
    atan      w + w (s Q(s)),            s = w^2, w the smaller of |a| and 1/|a|; pi/2 less that where it is 1/|a|; signed as a is
    table     P_i(w),                    i the bin of a among equal ones, w in [-1/2, 1/2] its place there

All in float64, nothing fused, in the same order in NumPy and in compiled code, so that a query's value has the same bits in every
batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.runtime import parallel
from maxaffine.runtime.windowed import LN2_HIGH, LN2_LOW, LOG2E

LOAD, CONSTANT, SCALE, SHIFT, ADD, SUBTRACT, SCALE_ADD, MULTIPLY, DIVIDE = range(9)
MAXIMUM, MINIMUM, ABSOLUTE, SIGNED, ROOT, EXP, WAVE, ATAN, TABLE = range(9, 18)

COUNTS = {EXP: (6, 9), WAVE: (4, 6)}
"""Of coefficients that compiled code has loops for; shorter polynomials are filled up with zeros, which changes no bit."""
CHUNK = 1 << 12  # queries at a time in NumPy
WHOLE = 6755399441055744.0  # 1.5 2^52: added to a whole number, it leaves that number in the last bits
HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
INVERSE_PI = float.fromhex("0x1.45f306dc9c883p-2")
PI_HIGH = float.fromhex("0x1.921fb54400000p+1")  # pi to 33 bits, so that m PI_HIGH is exact for |m| < 2^19, halves too
PI_LOW = float.fromhex("0x1.0b4611a626331p-33")


@dataclass(frozen=True)
class Program:
    """Rows (kind, column made, column a, column b, where numbers begin, how many), the numbers, and the columns that come out."""

    rows: NDArray[np.int64]
    numbers: Array
    outputs: NDArray[np.int64]
    columns: int  # that are needed at once
    work: int  # per query, in the units of parallel.py


def evaluate(program: Program, x: Array, threads: int | None = None) -> Array:
    """Values (B, K) at points (B, D) of the box, float64."""
    x = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty((len(x), len(program.outputs)))
    work = len(x) * program.work
    kernel = parallel.kernel("direct", work, len(x))
    if kernel is None:
        for start in range(0, len(x), CHUNK):
            out[start : start + CHUNK] = in_numpy(program, x[start : start + CHUNK])
    else:
        tables = program.rows, program.numbers, program.outputs, program.columns, out
        parallel.over(0, len(x), work, threads, lambda start, stop: kernel(x, *tables, start, stop))
    return out


def in_numpy(program: Program, x: Array) -> Array:
    """The kernel's operations in the same order, without numba: (B, K)."""
    columns: list[Array] = [np.empty(0)] * program.columns
    for kind, made, a, b, at, count in program.rows.tolist():
        c = program.numbers[at : at + count]
        if kind == LOAD:
            columns[made] = x[:, a]
        elif kind == CONSTANT:
            columns[made] = np.full(len(x), c[0])
        else:
            columns[made] = np.asarray(STEPS[kind](columns[a], columns[b], c))
    return np.stack([columns[k] for k in program.outputs], axis=1)


def _exp(a: Array, _: Array, c: Array) -> Array:
    """Numbers: the least argument that counts, then coefficients from the highest degree down."""
    y = np.where(a > c[0], a, c[0])
    n = np.floor(y * LOG2E + 0.5)
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    power = ((n + WHOLE).view(np.int64) + 1023) << 52
    return np.asarray(horner(c[1:], r) * power.view(np.float64))


def _wave(a: Array, _: Array, c: Array) -> Array:
    """Numbers: 1/2 and 0 for sin, 0 and 1/2 for cos; what the number of half turns is when the sign is +; coefficients."""
    n = np.floor(a * INVERSE_PI + c[0])
    m = n + c[1]
    r = (a - m * PI_HIGH) - m * PI_LOW
    s = r * r
    sign = ((n + c[2]) + WHOLE).view(np.int64) << 63
    found = r * (s * horner(c[3:], s)) + r
    return np.asarray((found.view(np.int64) ^ sign).view(np.float64))


def _atan(a: Array, _: Array, c: Array) -> Array:
    """Numbers: coefficients."""
    size = np.abs(a)
    w = np.where(size < 1.0, size, 1.0) / np.where(size > 1.0, size, 1.0)
    s = w * w
    found = w * (s * horner(c, s)) + w
    return np.copysign(np.where(size > 1.0, HALF_PI - found, found), a)


def _table(a: Array, _: Array, c: Array) -> Array:
    """Numbers: where the first bin begins, bins per unit, how many; per bin coefficients from the highest degree down."""
    bins = int(c[2])
    t = (a - c[0]) * c[1]
    t = np.where(t > 0.0, t, 0.0)
    t = np.where(t < c[2], t, c[2])
    i = np.minimum(t.astype(np.int64), bins - 1)
    w = (t - i) - 0.5
    coefficients = c[3:].reshape(bins, -1)
    out = np.asarray(coefficients[i, 0])
    for k in range(1, coefficients.shape[1]):
        out = out * w + coefficients[i, k]
    return out


def horner(coefficients: Array, z: Array) -> Array:
    """Coefficients from the highest degree down."""
    out = np.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        out = out * z + c
    return out


STEPS: dict[int, Callable[[Array, Array, Array], Array]] = {
    SCALE: lambda a, b, c: a * c[0],
    SHIFT: lambda a, b, c: a + c[0],
    ADD: lambda a, b, c: a + b,
    SUBTRACT: lambda a, b, c: a - b,
    SCALE_ADD: lambda a, b, c: b + a * c[0],
    MULTIPLY: lambda a, b, c: a * b,
    DIVIDE: lambda a, b, c: a / b,
    MAXIMUM: lambda a, b, c: np.where(a > b, a, b),
    MINIMUM: lambda a, b, c: np.where(a < b, a, b),
    ABSOLUTE: lambda a, b, c: np.abs(a),
    SIGNED: lambda a, b, c: np.copysign(a, b),
    ROOT: lambda a, b, c: np.sqrt(np.where(a > 0.0, a, 0.0)),
    EXP: _exp,
    WAVE: _wave,
    ATAN: _atan,
    TABLE: _table,
}
"""Every instruction but those that need no column, in NumPy."""


def as_answers(values: Array, d_out: int, n_out: int, dtype: np.dtype[np.floating]) -> AnyArray:
    """Values (B, K) as a layer gives them: (B, d_out, n_out) in the dtype that computes."""
    return values.astype(dtype, copy=False).reshape(len(values), d_out, n_out)
