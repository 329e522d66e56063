"""Triton kernels of collapsed layers: short Chebyshev series per direction, no exponentials, no gathers.

    products   out_k = Re sum_terms sum_r prod_e p_er(z_e),     train   out_k = sum_rs p_r(z_1) P_rs(z_2) q_sk(z_3)

T_k comes from S_{k+1} = (-1)^k 2 z S_k + S_{k-1}, S_k = T_k up to the signs + + - - which the table absorbs: one fused
multiply-add per degree, shared by up to four series, and one more per coefficient.  Every query is computed by the same
operations wherever it stands in a batch.  Numbers come from memory or, where `NUMBERS` is given, from the code itself.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def _number(like, NUMBERS: tl.constexpr, INDEX: tl.constexpr):
    """Entry INDEX of the table, everywhere."""
    return tl.full(like.shape, NUMBERS[INDEX], like.dtype)


@triton.jit
def _add(total, t, NUMBERS: tl.constexpr, INDEX: tl.constexpr):
    """total + t * entry, nothing for an entry known to be zero."""
    if NUMBERS[INDEX] == 0.0:
        return total
    else:
        return tl.fma(t, tl.full(t.shape, NUMBERS[INDEX], t.dtype), total)


@triton.jit
def clamp(x, LOW, HIGH):
    """x kept in [LOW, HIGH]; not-a-number stays what it is."""
    x = tl.maximum(x, tl.full(x.shape, LOW, x.dtype), propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(x, tl.full(x.shape, HIGH, x.dtype), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def widened(x):
    """x in a dtype that is computed in: float32 holds the numbers of bfloat16 and float16 exactly."""
    if x.dtype == tl.bfloat16:  # noqa: SIM114  (dtypes are compared one by one in every version of Triton)
        return x.to(tl.float32)
    elif x.dtype == tl.float16:
        return x.to(tl.float32)
    else:
        return x


@triton.jit
def kept(slope, x, BOX: tl.constexpr, d: tl.constexpr):
    """The slope in x_d, nothing outside the box, where x is taken at its nearest point; not-a-number stays what it is."""
    outside = (x < tl.full(x.shape, BOX[2 * d], x.dtype)) | (x > tl.full(x.shape, BOX[2 * d + 1], x.dtype))
    return tl.where(outside, tl.full(x.shape, 0.0, x.dtype), slope)


@triton.jit
def _two_steps(z, t, before, a0, a1, a2, a3, table, at, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """Two degrees, the first of them odd, of series whose coefficients are read from memory."""
    for k in tl.static_range(2):
        a0 = tl.fma(t, tl.broadcast_to(tl.load(table + at + k * STRIDE), z.shape), a0)
        if WIDTH > 1:
            a1 = tl.fma(t, tl.broadcast_to(tl.load(table + at + k * STRIDE + 1), z.shape), a1)
        if WIDTH > 2:
            a2 = tl.fma(t, tl.broadcast_to(tl.load(table + at + k * STRIDE + 2), z.shape), a2)
            a3 = tl.fma(t, tl.broadcast_to(tl.load(table + at + k * STRIDE + 3), z.shape), a3)
        after = tl.fma(z + z if k else -2.0 * z, t, before)
        before = t
        t = after
    return t, before, a0, a1, a2, a3


@triton.jit
def _looped(z, table, once, START: tl.constexpr, COUNT: tl.constexpr, STRIDE: tl.constexpr, SPLIT: tl.constexpr,
            WIDTH: tl.constexpr):  # fmt: skip
    """`_series` with its numbers in memory, as a loop.  SPLIT is odd, or COUNT.

    `once` is 1, known only at run time: loops of a known length would be unrolled whole and fill all registers.
    """
    before = tl.full(z.shape, 1.0, z.dtype)
    t = z
    zero = tl.full(z.shape, 0.0, z.dtype)
    a0 = tl.broadcast_to(tl.load(table + START), z.shape)
    a1, a2, a3 = zero, zero, zero
    if WIDTH > 1:
        a1 = tl.broadcast_to(tl.load(table + START + 1), z.shape)
    if WIDTH > 2:
        a2 = tl.broadcast_to(tl.load(table + START + 2), z.shape)
        a3 = tl.broadcast_to(tl.load(table + START + 3), z.shape)
    for j in range(0, (SPLIT - 1) // 2 * once):
        at = START + STRIDE + 2 * j * STRIDE
        t, before, a0, a1, a2, a3 = _two_steps(z, t, before, a0, a1, a2, a3, table, at, STRIDE, WIDTH)
    b0, b1, b2, b3 = zero, zero, zero, zero
    for j in range(0, (COUNT - SPLIT) // 2 * once):
        at = START + SPLIT * STRIDE + 2 * j * STRIDE
        t, before, b0, b1, b2, b3 = _two_steps(z, t, before, b0, b1, b2, b3, table, at, STRIDE, WIDTH)
    if COUNT % 2 == 0:  # the last degree is odd
        b0 = tl.fma(t, tl.broadcast_to(tl.load(table + START + (COUNT - 1) * STRIDE), z.shape), b0)
        if WIDTH > 1:
            b1 = tl.fma(t, tl.broadcast_to(tl.load(table + START + (COUNT - 1) * STRIDE + 1), z.shape), b1)
        if WIDTH > 2:
            b2 = tl.fma(t, tl.broadcast_to(tl.load(table + START + (COUNT - 1) * STRIDE + 2), z.shape), b2)
            b3 = tl.fma(t, tl.broadcast_to(tl.load(table + START + (COUNT - 1) * STRIDE + 3), z.shape), b3)
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def _series(z, NUMBERS: tl.constexpr, START: tl.constexpr, COUNT: tl.constexpr, STRIDE: tl.constexpr,
            SPLIT: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """WIDTH (at most 4) series at z: entry START + k STRIDE + i is the coefficient of S_k in series i.

    Degrees below SPLIT and the others are summed apart, so that small coefficients do not round large sums.
    """
    up, down = z + z, -2.0 * z
    before = tl.full(z.shape, 1.0, z.dtype)
    t = z
    a0 = _number(z, NUMBERS, START)
    a1, a2, a3 = a0, a0, a0
    if WIDTH > 1:
        a1 = _number(z, NUMBERS, START + 1)
    if WIDTH > 2:
        a2 = _number(z, NUMBERS, START + 2)
        a3 = _number(z, NUMBERS, START + 3)
    zero = tl.full(z.shape, 0.0, z.dtype)
    s0, s1, s2, s3 = zero, zero, zero, zero
    for k in tl.static_range(1, COUNT):
        if k == SPLIT:
            s0, s1, s2, s3 = a0, a1, a2, a3
            a0, a1, a2, a3 = zero, zero, zero, zero
        a0 = _add(a0, t, NUMBERS, START + k * STRIDE)
        if WIDTH > 1:
            a1 = _add(a1, t, NUMBERS, START + k * STRIDE + 1)
        if WIDTH > 2:
            a2 = _add(a2, t, NUMBERS, START + k * STRIDE + 2)
            a3 = _add(a3, t, NUMBERS, START + k * STRIDE + 3)
        after = tl.fma(down if k % 2 else up, t, before)
        before = t
        t = after
    if SPLIT < COUNT:
        a0, a1, a2, a3 = s0 + a0, s1 + a1, s2 + a2, s3 + a3
    return a0, a1, a2, a3


@triton.jit
def coordinate(x_ptr, rows, inside, x0, x1, MAPS: tl.constexpr, PLACE: tl.constexpr, D: tl.constexpr):
    """z = clip(M (x - centre), -1, 1) of one direction; M in two parts, the box first where it is not what z in [-1, 1] says."""
    z = tl.full(x0.shape, MAPS[PLACE], x0.dtype)
    for d in tl.static_range(D):  # small parts first
        if MAPS[PLACE + 2 + 5 * d + 1] != 0.0:
            x = _variable(x_ptr, rows, inside, x0, x1, MAPS, PLACE, d, D)
            z = tl.fma(x, tl.full(x.shape, MAPS[PLACE + 2 + 5 * d + 1], x.dtype), z)
    for d in tl.static_range(D):
        if MAPS[PLACE + 2 + 5 * d] != 0.0:
            x = _variable(x_ptr, rows, inside, x0, x1, MAPS, PLACE, d, D)
            z = tl.fma(x, tl.full(x.shape, MAPS[PLACE + 2 + 5 * d], x.dtype), z)
    return clamp(z, -1.0, 1.0)


@triton.jit
def variable(x_ptr, rows, inside, x0, x1, d: tl.constexpr, D: tl.constexpr):
    """x_d."""
    x = x0
    if D > 2:
        x = widened(tl.load(x_ptr + rows * D + d, mask=inside, other=0.0))
    elif d == 1:
        x = x1
    return x


@triton.jit
def _variable(x_ptr, rows, inside, x0, x1, MAPS: tl.constexpr, PLACE: tl.constexpr, d: tl.constexpr, D: tl.constexpr):
    """x_d - centre_d."""
    x = variable(x_ptr, rows, inside, x0, x1, d, D)
    if MAPS[PLACE + 1] != 0.0:
        x = clamp(x, MAPS[PLACE + 2 + 5 * d + 3], MAPS[PLACE + 2 + 5 * d + 4])
    if MAPS[PLACE + 2 + 5 * d + 2] != 0.0:
        x = x - tl.full(x.shape, MAPS[PLACE + 2 + 5 * d + 2], x.dtype)
    return x


@triton.jit
def _direction(x_ptr, rows, inside, x0, x1, table, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
               PLACE: tl.constexpr, FIRST: tl.constexpr, RANK: tl.constexpr, WIDTH: tl.constexpr, SLOPE: tl.constexpr,
               D: tl.constexpr):  # fmt: skip
    """Series FIRST.. of one direction of a term, or their derivatives."""
    z = coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE], D)
    if FORM[PLACE + 4] == 1:  # even: a series in T_2(z)
        z = tl.fma(z + z, z, tl.full(z.shape, -1.0, z.dtype))
    START: tl.constexpr = (FORM[PLACE + 5] if SLOPE else FORM[PLACE + 2]) + FIRST
    if NUMBERS is None:
        return _looped(z, table, once, START, FORM[PLACE + 1], RANK, FORM[PLACE + 3], WIDTH)
    else:
        return _series(z, NUMBERS, START, FORM[PLACE + 1], RANK, FORM[PLACE + 3], WIDTH)


@triton.jit
def _chunk(x_ptr, rows, inside, x0, x1, table, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
           TERM: tl.constexpr, FIRST: tl.constexpr, WIDTH: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """sum over WIDTH products of one term, or the real part of half as many complex ones; direction SLOPE by its derivative."""
    q0, q1, q2, q3 = _direction(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM + 4, FIRST,
                                FORM[TERM + 1], WIDTH, SLOPE == 0, D)  # fmt: skip
    DIRECTIONS: tl.constexpr = FORM[TERM]
    for e in tl.static_range(1, DIRECTIONS):
        p0, p1, p2, p3 = _direction(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM + 4 + 6 * e, FIRST,
                                    FORM[TERM + 1], WIDTH, e == SLOPE, D)  # fmt: skip
        if FORM[TERM + 3] == 1:
            q0, q1 = q0 * p0 - q1 * p1, q0 * p1 + q1 * p0
            if WIDTH > 2:
                q2, q3 = q2 * p2 - q3 * p3, q2 * p3 + q3 * p2
        else:
            q0, q1, q2, q3 = q0 * p0, q1 * p1, q2 * p2, q3 * p3
    if FORM[TERM + 3] == 1:
        if WIDTH > 2:
            return q0 + q2
        else:
            return q0
    elif WIDTH == 1:
        return q0
    elif WIDTH == 2:
        return q0 + q1
    else:
        return (q0 + q1) + (q2 + q3)


@triton.jit
def term_at(x_ptr, rows, inside, x0, x1, table, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
          TERM: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """One term of a layer: a sum of products of series."""
    out = tl.full(x0.shape, 0.0, x0.dtype)
    RANK: tl.constexpr = FORM[TERM + 1]
    for first in tl.static_range(0, RANK, 4):
        if RANK - first >= 3:
            out += _chunk(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM, first, 4, SLOPE, D)
        elif RANK - first == 2:
            out += _chunk(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM, first, 2, SLOPE, D)
        else:
            out += _chunk(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM, first, 1, SLOPE, D)
    return out


@triton.jit
def columns(x_ptr, rows, inside, D: tl.constexpr):
    """The first two variables of the queries, in the dtype that is computed in; of two variables by one wide load."""
    if D == 2:
        both = tl.load(x_ptr + rows[:, None] * 2 + tl.arange(0, 2)[None, :], mask=inside[:, None], other=0.0)
        x0, x1 = tl.split(widened(both))
    else:
        x0 = widened(tl.load(x_ptr + rows * D, mask=inside, other=0.0))
        x1 = x0
    return x0, x1


@triton.jit(do_not_specialize=["once"])
def products(x_ptr, out_ptr, table, count, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
             TERMS: tl.constexpr, STRIDE: tl.constexpr, D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, K) = sums of products of series at x (count, D)."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    x0, x1 = columns(x_ptr, rows, inside, D)
    for k in tl.static_range(K):
        out = tl.full(x0.shape, 0.0, x0.dtype)
        for g in tl.static_range(TERMS):
            if FORM[g * STRIDE + 2] == k:
                out += term_at(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, g * STRIDE, -1, D)
        tl.store(out_ptr + rows * K + k, out, mask=inside)


@triton.constexpr_function
def _bends(MAPS, FORM, TERM, e, d):
    """Whether the term has a direction e, and that direction the variable d."""
    return e < FORM[TERM] and MAPS[FORM[TERM + 4 + 6 * e] + 2 + 5 * d] != 0.0


@triton.jit(do_not_specialize=["once"])
def product_slopes(x_ptr, weight_ptr, out_ptr, table, count, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
                   TERMS: tl.constexpr, STRIDE: tl.constexpr, BOX: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
                   BLOCK: tl.constexpr):  # fmt: skip
    """out (count, D) = sum_k weight_k (count, K) times the derivatives of output k, 0 outside the box."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    x0, x1 = columns(x_ptr, rows, inside, D)
    for d in tl.static_range(D):
        out = tl.full(x0.shape, 0.0, x0.dtype)
        for g in tl.static_range(TERMS):
            weight = widened(tl.load(weight_ptr + rows * K + FORM[g * STRIDE + 2], mask=inside, other=0.0))
            for e in tl.static_range((STRIDE - 4) // 6):
                if _bends(MAPS, FORM, g * STRIDE, e, d):
                    slope = term_at(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, g * STRIDE, e, D)
                    scale = tl.full(x0.shape, MAPS[FORM[g * STRIDE + 4 + 6 * e] + 2 + 5 * d], x0.dtype)
                    out = tl.fma(weight * scale, slope, out)
        out = kept(out, variable(x_ptr, rows, inside, x0, x1, d, D), BOX, d)
        tl.store(out_ptr + rows * D + d, out, mask=inside)


@triton.jit
def _loaded(z, table, start, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    """Four series at z whose coefficients begin at an entry known only at run time."""
    up, down = z + z, -2.0 * z
    before = tl.full(z.shape, 1.0, z.dtype)
    t = z
    a0 = tl.broadcast_to(tl.load(table + start), z.shape)
    a1 = tl.broadcast_to(tl.load(table + start + 1), z.shape)
    a2 = tl.broadcast_to(tl.load(table + start + 2), z.shape)
    a3 = tl.broadcast_to(tl.load(table + start + 3), z.shape)
    for k in tl.static_range(1, COUNT):
        a0 = tl.fma(t, tl.broadcast_to(tl.load(table + start + k * STRIDE), z.shape), a0)
        a1 = tl.fma(t, tl.broadcast_to(tl.load(table + start + k * STRIDE + 1), z.shape), a1)
        a2 = tl.fma(t, tl.broadcast_to(tl.load(table + start + k * STRIDE + 2), z.shape), a2)
        a3 = tl.fma(t, tl.broadcast_to(tl.load(table + start + k * STRIDE + 3), z.shape), a3)
        after = tl.fma(down if k % 2 else up, t, before)
        before = t
        t = after
    return a0, a1, a2, a3


@triton.jit
def train(x_ptr, out_ptr, table, count, MAPS: tl.constexpr, PLACE: tl.constexpr, N0: tl.constexpr,
          N1: tl.constexpr, N2: tl.constexpr, R0: tl.constexpr, R1: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
          ADD: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, K) (+)= sum_rs p_r(z_1) P_rs(z_2) q_sk(z_3); ranks R0, R1 are multiples of 4.

    Table: p (N0, R0), then P (R0, R1/4, N1, 4), then q (K, R1/4, N2, 4).
    """
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    x0, x1 = columns(x_ptr, rows, inside, D)
    z0 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, 0, D)
    z1 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, PLACE, D)
    z2 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, 2 * PLACE, D)
    for k in tl.static_range(K):
        out = tl.full(x0.shape, 0.0, x0.dtype)
        for s in range(0, R1 // 4):
            m0 = tl.full(x0.shape, 0.0, x0.dtype)
            m1, m2, m3 = m0, m0, m0
            for r in range(0, R0 // 4):
                p0, p1, p2, p3 = _loaded(z0, table, 4 * r, N0, R0)
                base = N0 * R0 + (4 * r * (R1 // 4) + s) * (N1 * 4)
                c0, c1, c2, c3 = _loaded(z1, table, base, N1, 4)
                m0, m1, m2, m3 = tl.fma(p0, c0, m0), tl.fma(p0, c1, m1), tl.fma(p0, c2, m2), tl.fma(p0, c3, m3)
                c0, c1, c2, c3 = _loaded(z1, table, base + N1 * R1, N1, 4)
                m0, m1, m2, m3 = tl.fma(p1, c0, m0), tl.fma(p1, c1, m1), tl.fma(p1, c2, m2), tl.fma(p1, c3, m3)
                c0, c1, c2, c3 = _loaded(z1, table, base + 2 * N1 * R1, N1, 4)
                m0, m1, m2, m3 = tl.fma(p2, c0, m0), tl.fma(p2, c1, m1), tl.fma(p2, c2, m2), tl.fma(p2, c3, m3)
                c0, c1, c2, c3 = _loaded(z1, table, base + 3 * N1 * R1, N1, 4)
                m0, m1, m2, m3 = tl.fma(p3, c0, m0), tl.fma(p3, c1, m1), tl.fma(p3, c2, m2), tl.fma(p3, c3, m3)
            last = N0 * R0 + R0 * N1 * R1 + (k * (R1 // 4) + s) * (N2 * 4)
            q0, q1, q2, q3 = _loaded(z2, table, last, N2, 4)
            out = tl.fma(q0, m0, tl.fma(q1, m1, tl.fma(q2, m2, tl.fma(q3, m3, out))))
        if ADD:
            out += tl.load(out_ptr + rows * K + k, mask=inside, other=0.0)
        tl.store(out_ptr + rows * K + k, out, mask=inside)
