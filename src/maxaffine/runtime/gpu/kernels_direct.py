"""The Triton kernel of the direct form: the target's own formula, instruction by instruction, all in registers.

The instructions are those of runtime/direct.py but for tables, each with a column of its own; a column that is read twice is
written out twice, and the compiler finds that.  Quotients and roots are rounded correctly.  Products are fused into the sums
that they stand in where the code says so, which takes roundings away and adds none.  Numbers of reductions stand in NUMBERS.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from maxaffine.runtime.direct import (
    ABSOLUTE,
    ADD,
    ATAN,
    CONSTANT,
    DIVIDE,
    EXP,
    LOAD,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    ROOT,
    SCALE,
    SCALE_ADD,
    SHIFT,
    SIGNED,
    SUBTRACT,
    WAVE,
)  # fmt: skip
from maxaffine.runtime.gpu.kernels import clamp, columns, variable

KINDS = (LOAD, CONSTANT, SCALE, SHIFT, ADD, SUBTRACT, SCALE_ADD, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM, ABSOLUTE, SIGNED, ROOT, EXP,
         WAVE, ATAN)  # fmt: skip
LOAD_, CONSTANT_, SCALE_, SHIFT_ = (tl.constexpr(kind) for kind in KINDS[:4])
ADD_, SUBTRACT_, SCALE_ADD_, MULTIPLY_, DIVIDE_ = (tl.constexpr(kind) for kind in KINDS[4:9])
MAXIMUM_, MINIMUM_, ABSOLUTE_, SIGNED_, ROOT_ = (tl.constexpr(kind) for kind in KINDS[9:14])
EXP_, WAVE_, ATAN_ = (tl.constexpr(kind) for kind in KINDS[14:])


@triton.jit
def _entry(like, NUMBERS: tl.constexpr, AT: tl.constexpr):
    """One number, everywhere."""
    return tl.full(like.shape, NUMBERS[AT], like.dtype)


@triton.jit
def _horner(z, NUMBERS: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr):
    """Coefficients from the highest degree down."""
    out = _entry(z, NUMBERS, AT)
    for k in tl.static_range(1, COUNT):
        out = tl.fma(out, z, _entry(z, NUMBERS, AT + k))
    return out


@triton.jit
def _power_of_two(n):
    """2^n for whole n within the normal numbers."""
    if n.dtype == tl.float64:
        return ((n.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        return ((n.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _quotient(a, b):
    """a / b, rounded correctly."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def _root(a):
    """The root of a, or of 0, rounded correctly."""
    a = tl.maximum(a, tl.full(a.shape, 0.0, a.dtype), propagate_nan=tl.PropagateNan.ALL)
    if a.dtype == tl.float64:
        return tl.sqrt(a)
    else:
        return tl.sqrt_rn(a)


@triton.jit
def _exp(a, NUMBERS: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr):
    """2^n P(r); numbers: 1/log 2, log 2 in two parts, the least argument, then P."""
    a = tl.maximum(a, _entry(a, NUMBERS, AT + 3), propagate_nan=tl.PropagateNan.ALL)
    n = tl.floor(tl.fma(a, _entry(a, NUMBERS, AT), tl.full(a.shape, 0.5, a.dtype)))
    r = tl.fma(-n, _entry(a, NUMBERS, AT + 2), tl.fma(-n, _entry(a, NUMBERS, AT + 1), a))
    return _horner(r, NUMBERS, AT + 4, COUNT - 4) * _power_of_two(n)


@triton.jit
def _wave(a, NUMBERS: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr):
    """+-(r + r (s Q(s))); numbers: 1/pi, pi in two parts, what is added before and after, how the sign is told, then Q."""
    turns = tl.floor(tl.fma(a, _entry(a, NUMBERS, AT), _entry(a, NUMBERS, AT + 3)))
    m = turns + _entry(a, NUMBERS, AT + 4)
    r = tl.fma(-m, _entry(a, NUMBERS, AT + 2), tl.fma(-m, _entry(a, NUMBERS, AT + 1), a))
    s = r * r
    found = tl.fma(r, s * _horner(s, NUMBERS, AT + 6, COUNT - 6), r)
    odd = ((turns + _entry(a, NUMBERS, AT + 5)).to(tl.int32) & 1) == 1
    return tl.where(odd, -found, found)


@triton.jit
def _atan(a, NUMBERS: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr):
    """w + w (s Q(s)); numbers: pi/2, then Q."""
    size = tl.abs(a)
    one = tl.full(a.shape, 1.0, a.dtype)
    w = tl.where(size > 1.0, _quotient(one, tl.maximum(size, one)), size)
    s = w * w
    found = tl.fma(w, s * _horner(s, NUMBERS, AT + 1, COUNT - 1), w)
    found = tl.where(size > 1.0, _entry(a, NUMBERS, AT) - found, found)
    return tl.where(a < 0.0, -found, found)


@triton.jit
def _pair(a, b, KIND: tl.constexpr, NUMBERS: tl.constexpr, AT: tl.constexpr):
    """An instruction that reads two columns."""
    if KIND == ADD_:
        return a + b
    elif KIND == SUBTRACT_:
        return a - b
    elif KIND == SCALE_ADD_:
        return tl.fma(a, _entry(a, NUMBERS, AT), b)
    elif KIND == MULTIPLY_:
        return a * b
    elif KIND == DIVIDE_:
        return _quotient(a, b)
    elif KIND == MAXIMUM_:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif KIND == MINIMUM_:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.where(b < 0.0, -a, a)


@triton.jit
def _column(x_ptr, rows, inside, x0, x1, NUMBERS: tl.constexpr, FORM: tl.constexpr, BOX: tl.constexpr, PLACE: tl.constexpr,
            D: tl.constexpr):  # fmt: skip
    """What instruction PLACE makes; FORM: kind, columns a and b, where its numbers begin, how many."""
    KIND: tl.constexpr = FORM[5 * PLACE]
    A: tl.constexpr = FORM[5 * PLACE + 1]
    B: tl.constexpr = FORM[5 * PLACE + 2]
    AT: tl.constexpr = FORM[5 * PLACE + 3]
    COUNT: tl.constexpr = FORM[5 * PLACE + 4]
    if KIND == LOAD_:
        return clamp(variable(x_ptr, rows, inside, x0, x1, A, D), BOX[2 * A], BOX[2 * A + 1])
    elif KIND == CONSTANT_:
        return _entry(x0, NUMBERS, AT)
    else:  # what follows a return is compiled as well: every case is a branch
        a = _column(x_ptr, rows, inside, x0, x1, NUMBERS, FORM, BOX, A, D)
        if KIND == SCALE_:
            return a * _entry(x0, NUMBERS, AT)
        elif KIND == SHIFT_:
            return a + _entry(x0, NUMBERS, AT)
        elif KIND == ABSOLUTE_:
            return tl.abs(a)
        elif KIND == ROOT_:
            return _root(a)
        elif KIND == EXP_:
            return _exp(a, NUMBERS, AT, COUNT)
        elif KIND == WAVE_:
            return _wave(a, NUMBERS, AT, COUNT)
        elif KIND == ATAN_:
            return _atan(a, NUMBERS, AT, COUNT)
        else:
            b = _column(x_ptr, rows, inside, x0, x1, NUMBERS, FORM, BOX, B, D)
            return _pair(a, b, KIND, NUMBERS, AT)


@triton.jit
def direct(x_ptr, out_ptr, count, NUMBERS: tl.constexpr, FORM: tl.constexpr, BOX: tl.constexpr, OUTPUTS: tl.constexpr,
           D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, K): the columns that come out."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    x0, x1 = columns(x_ptr, rows, inside, D)
    for k in tl.static_range(K):
        tl.store(out_ptr + rows * K + k, _column(x_ptr, rows, inside, x0, x1, NUMBERS, FORM, BOX, OUTPUTS[k], D), mask=inside)
