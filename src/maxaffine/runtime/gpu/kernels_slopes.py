"""The Triton kernel of gradients in x of layers with clusters: the derivative of what `clustered` computes, form by form.

    products of polynomials    factor by factor; of blended ones  (1 - s) l' + s r' + s (1 - s) g (r - l)
    series                     kernels.py
    tokens                     dF/dz_e = sum_j w_j (g_je + (a_je - a_e) (v_j - F)),    a of the token with the largest score
    patches                    the same with polynomials V_j for v_j and quadratics S_j for scores, V_j and F counted from V_0

Slopes in z are spread to the variables by the rows of M, three variables at a time.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from maxaffine.runtime.gpu.kernels import columns, coordinate, kept, term_at, variable, widened
from maxaffine.runtime.gpu.kernels_patches import affine_at, four, place_in, token_number
from maxaffine.runtime.gpu.kernels_pieces import product_at


@triton.jit
def _lean(away, a, table, NUMBERS: tl.constexpr, AT: tl.constexpr, E: tl.constexpr):
    """g + (a_j - a) (v_j - F) of one token in one direction, whose a_j stands at AT."""
    return tl.fma(token_number(away, table, NUMBERS, AT) - a, away, token_number(away, table, NUMBERS, AT + 1 + E))


@triton.jit
def _tokens(x_ptr, rows, inside, x0, x1, table, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
            PLACE: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The derivatives in z of one softmax over tokens; FORM as in kernels_patches.py."""
    E: tl.constexpr = FORM[PLACE + 1]
    COUNT: tl.constexpr = FORM[PLACE + 2]
    START: tl.constexpr = FORM[PLACE + 3]
    STRIDE: tl.constexpr = 2 + 2 * E
    z0 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE], D)
    z1, z2 = z0, z0
    if E > 1:
        z1 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE] + 2 + 5 * D, D)
    if E > 2:
        z2 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE] + 4 + 10 * D, D)
    top = affine_at(z0, z1, z2, table, NUMBERS, START, E)
    a0 = token_number(z0, table, NUMBERS, START + 1)
    a1 = token_number(z0, table, NUMBERS, START + (2 if E > 1 else 1))
    a2 = token_number(z0, table, NUMBERS, START + (3 if E > 2 else 1))
    for j in tl.static_range(1, COUNT):
        score = affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE, E)
        a0 = tl.where(score > top, token_number(z0, table, NUMBERS, START + j * STRIDE + 1), a0)
        if E > 1:
            a1 = tl.where(score > top, token_number(z0, table, NUMBERS, START + j * STRIDE + 2), a1)
        if E > 2:
            a2 = tl.where(score > top, token_number(z0, table, NUMBERS, START + j * STRIDE + 3), a2)
        top = tl.maximum(top, score, propagate_nan=tl.PropagateNan.ALL)
    zero = tl.full(z0.shape, 0.0, z0.dtype)
    above, below = zero, zero
    for j in tl.static_range(COUNT):
        weight = tl.exp(affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE, E) - top)
        below += weight
        above = tl.fma(weight, affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE + 1 + E, E), above)
    said = above / below
    s0, s1, s2 = zero, zero, zero
    for j in tl.static_range(COUNT):
        weight = tl.exp(affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE, E) - top)
        away = affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE + 1 + E, E) - said
        s0 = tl.fma(weight, _lean(away, a0, table, NUMBERS, START + j * STRIDE + 1, E), s0)
        if E > 1:
            s1 = tl.fma(weight, _lean(away, a1, table, NUMBERS, START + j * STRIDE + 2, E), s1)
        if E > 2:
            s2 = tl.fma(weight, _lean(away, a2, table, NUMBERS, START + j * STRIDE + 3, E), s2)
    return s0 / below, s1 / below, s2 / below


@triton.jit
def _step(value, slope, v, c):
    """One step of Horner's rule, and of its derivative."""
    return tl.fma(value, v, c), tl.fma(slope, v, value)


@triton.jit
def _row(v, table, at, live, ROW: tl.constexpr):
    """A row of four or eight powers of v, and its derivative."""
    c0, c1, c2, c3 = four(table, at, live)
    value, slope = c3, tl.full(v.shape, 0.0, v.dtype)
    if ROW == 8:
        d0, d1, d2, d3 = four(table, at + 4, live)
        value, slope = _step(d3, slope, v, d2)
        value, slope = _step(value, slope, v, d1)
        value, slope = _step(value, slope, v, d0)
        value, slope = _step(value, slope, v, c3)
    value, slope = _step(value, slope, v, c2)
    value, slope = _step(value, slope, v, c1)
    return _step(value, slope, v, c0)


@triton.jit
def _value(v0, v1, v2, table, at, live, E: tl.constexpr, POWERS: tl.constexpr, ROW: tl.constexpr):
    """The polynomial of a patch, and its derivatives in v."""
    zero = tl.full(v0.shape, 0.0, v0.dtype)
    out, s0, s1, s2 = zero, zero, zero, zero
    for i in tl.static_range(POWERS):
        if E == 2:
            row, r1 = _row(v1, table, at + (POWERS - 1 - i) * ROW, live, ROW)
            r2 = zero
        else:
            row, r1, r2 = zero, zero, zero
            for j in tl.static_range(POWERS):
                one, own = _row(v2, table, at + ((POWERS - 1 - i) * POWERS + POWERS - 1 - j) * ROW, live, ROW)
                row, r1 = _step(row, r1, v1, one)
                r2 = tl.fma(r2, v1, own)
        out, s0 = _step(out, s0, v0, row)
        s1, s2 = tl.fma(s1, v0, r1), tl.fma(s2, v0, r2)
    return out, s0, s1, s2


@triton.jit
def _mass(v0, v1, v2, table, at, live, E: tl.constexpr):
    """The quadratic of a patch's mass, and its derivatives in v."""
    s0, s1, s2, s3 = four(table, at, live)
    if E == 2:
        s4 = tl.load(table + at + 4, mask=live, other=0.0)
        out = tl.fma(tl.fma(s3, v0, s1), v0, tl.fma(tl.fma(s4, v1, s2), v1, s0))
        return out, tl.fma(s3, v0 + v0, s1), tl.fma(s4, v1 + v1, s2), s0 * 0.0
    else:
        s4, s5, s6, _ = four(table, at + 4, live)
        out = tl.fma(tl.fma(s4, v0, s1), v0, tl.fma(tl.fma(s5, v1, s2), v1, tl.fma(tl.fma(s6, v2, s3), v2, s0)))
        return out, tl.fma(s4, v0 + v0, s1), tl.fma(s5, v1 + v1, s2), tl.fma(s6, v2 + v2, s3)


@triton.jit
def _patched(x_ptr, rows, inside, x0, x1, table, cells, MAPS: tl.constexpr, FORM: tl.constexpr, PLACE: tl.constexpr,
             D: tl.constexpr):  # fmt: skip
    """The derivatives in z of one group by its patches; FORM as in kernels_patches.py."""
    E: tl.constexpr = FORM[PLACE + 3]
    POWERS: tl.constexpr = FORM[PLACE + 4]
    ROW: tl.constexpr = FORM[PLACE + 5]
    MASS: tl.constexpr = POWERS * ROW if E == 2 else POWERS * POWERS * ROW
    NEXT: tl.constexpr = 2 + 5 * D
    b0, v0 = place_in(coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE], D), FORM[PLACE + 10], FORM[PLACE + 7])
    b1, v1 = place_in(coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE] + NEXT, D), FORM[PLACE + 11], FORM[PLACE + 8])
    cell, v2 = b0 * FORM[PLACE + 8] + b1, v1
    if E == 3:
        z2 = coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE] + 2 * NEXT, D)
        b2, v2 = place_in(z2, FORM[PLACE + 12], FORM[PLACE + 9])
        cell = cell * FORM[PLACE + 9] + b2
    packed = tl.load(cells + FORM[PLACE + 1] + cell, mask=inside, other=0)
    count = packed & 31
    at = FORM[PLACE + 2] + (packed >> 5) * (MASS + 8)
    base, s0, s1, s2 = _value(v0, v1, v2, table, at, inside, E, POWERS, ROW)
    if FORM[PLACE + 6] > 1:
        zero = tl.full(v0.shape, 0.0, v0.dtype)
        below, top, above = tl.full(v0.shape, 1.0, v0.dtype), zero, zero
        m0, m1, m2 = zero, zero, zero  # sums of weights times slopes of masses
        for m in range(1, tl.max(count, axis=0)):
            live = m < count
            here = at + m * (MASS + 8)
            value, p0, p1, p2 = _value(v0, v1, v2, table, here, live, E, POWERS, ROW)
            score, q0, q1, q2 = _mass(v0, v1, v2, table, here + MASS, live, E)
            score = tl.where(live, score, tl.full(score.shape, -1e30, score.dtype))
            away = value - base
            most = tl.maximum(top, score)
            keep, weight = tl.exp(top - most), tl.exp(score - most)
            above, below = tl.fma(weight, away, above * keep), tl.fma(below, keep, weight)
            s0, m0 = tl.fma(weight, tl.fma(q0, away, p0), s0 * keep), tl.fma(weight, q0, m0 * keep)
            s1, m1 = tl.fma(weight, tl.fma(q1, away, p1), s1 * keep), tl.fma(weight, q1, m1 * keep)
            if E == 3:
                s2, m2 = tl.fma(weight, tl.fma(q2, away, p2), s2 * keep), tl.fma(weight, q2, m2 * keep)
            top = most
        said = above / below
        s0, s1, s2 = (s0 - said * m0) / below, (s1 - said * m1) / below, (s2 - said * m2) / below
    s0 *= tl.full(s0.shape, 2.0 * FORM[PLACE + 10], s0.dtype)  # dv/dz
    s1 *= tl.full(s0.shape, 2.0 * FORM[PLACE + 11], s0.dtype)
    s2 *= tl.full(s0.shape, 2.0 * FORM[PLACE + 12], s0.dtype)
    return s0, s1, s2


@triton.constexpr_function
def _entry(MAPS, PLACE, d, D):
    """Entry d of a row of M, 0 behind its end."""
    return MAPS[PLACE + 2 + 5 * d] if d < D else 0.0


@triton.constexpr_function
def _leans(MAPS, FORM, TERM, AT, STEP, f, first, D):
    """Whether a term has a factor f, and that factor's direction one of three variables."""
    return f < FORM[TERM] and any(MAPS[FORM[TERM + AT + STEP * f] + 2 + 5 * d] != 0.0 for d in range(first, min(first + 3, D)))


@triton.jit
def _spread(o0, o1, o2, slope, MAPS: tl.constexpr, PLACE: tl.constexpr, FIRST: tl.constexpr, D: tl.constexpr):
    """What a slope in z adds to the slopes in three variables."""
    if _entry(MAPS, PLACE, FIRST, D) != 0.0:
        o0 = tl.fma(slope, tl.full(slope.shape, _entry(MAPS, PLACE, FIRST, D), slope.dtype), o0)
    if _entry(MAPS, PLACE, FIRST + 1, D) != 0.0:
        o1 = tl.fma(slope, tl.full(slope.shape, _entry(MAPS, PLACE, FIRST + 1, D), slope.dtype), o1)
    if _entry(MAPS, PLACE, FIRST + 2, D) != 0.0:
        o2 = tl.fma(slope, tl.full(slope.shape, _entry(MAPS, PLACE, FIRST + 2, D), slope.dtype), o2)
    return o0, o1, o2


@triton.jit
def _spread_all(o0, o1, o2, s0, s1, s2, MAPS: tl.constexpr, PLACE: tl.constexpr, E: tl.constexpr, FIRST: tl.constexpr,
                D: tl.constexpr):  # fmt: skip
    """What the slopes in up to three directions add."""
    o0, o1, o2 = _spread(o0, o1, o2, s0, MAPS, PLACE, FIRST, D)
    if E > 1:
        o0, o1, o2 = _spread(o0, o1, o2, s1, MAPS, PLACE + 2 + 5 * D, FIRST, D)
    if E > 2:
        o0, o1, o2 = _spread(o0, o1, o2, s2, MAPS, PLACE + 4 + 10 * D, FIRST, D)
    return o0, o1, o2


@triton.jit
def _weight(weight_ptr, rows, inside, k: tl.constexpr, K: tl.constexpr):
    """What output k counts."""
    return widened(tl.load(weight_ptr + rows * K + k, mask=inside, other=0.0))


@triton.jit
def _stored(out_ptr, x_ptr, rows, inside, x0, x1, slope, BOX: tl.constexpr, d: tl.constexpr, D: tl.constexpr):
    """The slope in x_d written, 0 outside the box."""
    if d < D:
        slope = kept(slope, variable(x_ptr, rows, inside, x0, x1, d, D), BOX, d)
        tl.store(out_ptr + rows * D + d, slope, mask=inside)


@triton.jit(do_not_specialize=["once"])
def clustered_slopes(x_ptr, weight_ptr, out_ptr, table, smooth, listed, cells, patches, count, once, NUMBERS: tl.constexpr,
                     MAPS: tl.constexpr, FORM: tl.constexpr, TERMS: tl.constexpr, STRIDE: tl.constexpr, SMOOTH: tl.constexpr,
                     SMOOTH_MAPS: tl.constexpr, SMOOTH_FORM: tl.constexpr, SMOOTH_TERMS: tl.constexpr,
                     SMOOTH_STRIDE: tl.constexpr, LISTED: tl.constexpr, LISTED_MAPS: tl.constexpr, LISTED_FORM: tl.constexpr,
                     LISTED_OUTPUTS: tl.constexpr, LISTED_TERMS: tl.constexpr, PATCH_MAPS: tl.constexpr,
                     PATCH_FORM: tl.constexpr, PATCH_OUTPUTS: tl.constexpr, PATCH_TERMS: tl.constexpr, BOX: tl.constexpr,
                     D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, D) = sum_k weight_k (count, K) times the derivatives of output k, 0 outside the box."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x0, x1 = columns(x_ptr, at, inside, D)
    for first in tl.static_range(0, D, 3):
        o0 = tl.full(x0.shape, 0.0, x0.dtype)
        o1, o2 = o0, o0
        for g in tl.static_range(TERMS):
            for f in tl.static_range((STRIDE - 2) // 5):
                if _leans(MAPS, FORM, g * STRIDE, 2, 5, f, first, D):
                    slope = product_at(x_ptr, at, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, g * STRIDE, f, D)
                    slope *= _weight(weight_ptr, at, inside, FORM[g * STRIDE + 1], K)
                    o0, o1, o2 = _spread(o0, o1, o2, slope, MAPS, FORM[g * STRIDE + 2 + 5 * f], first, D)
        for g in tl.static_range(SMOOTH_TERMS):
            for e in tl.static_range((SMOOTH_STRIDE - 4) // 6):
                if _leans(SMOOTH_MAPS, SMOOTH_FORM, g * SMOOTH_STRIDE, 4, 6, e, first, D):
                    slope = term_at(x_ptr, at, inside, x0, x1, smooth, once, SMOOTH, SMOOTH_MAPS, SMOOTH_FORM,
                                    g * SMOOTH_STRIDE, e, D)  # fmt: skip
                    slope *= _weight(weight_ptr, at, inside, SMOOTH_FORM[g * SMOOTH_STRIDE + 2], K)
                    o0, o1, o2 = _spread(o0, o1, o2, slope, SMOOTH_MAPS, SMOOTH_FORM[g * SMOOTH_STRIDE + 4 + 6 * e], first, D)
        for g in tl.static_range(LISTED_TERMS):
            s0, s1, s2 = _tokens(x_ptr, at, inside, x0, x1, listed, LISTED, LISTED_MAPS, LISTED_FORM, 4 * g, D)
            w = _weight(weight_ptr, at, inside, LISTED_OUTPUTS[g], K)
            o0, o1, o2 = _spread_all(o0, o1, o2, w * s0, w * s1, w * s2, LISTED_MAPS, LISTED_FORM[4 * g],
                                     LISTED_FORM[4 * g + 1], first, D)  # fmt: skip
        for g in tl.static_range(PATCH_TERMS):
            s0, s1, s2 = _patched(x_ptr, at, inside, x0, x1, patches, cells, PATCH_MAPS, PATCH_FORM, 13 * g, D)
            w = _weight(weight_ptr, at, inside, PATCH_OUTPUTS[g], K)
            o0, o1, o2 = _spread_all(o0, o1, o2, w * s0, w * s1, w * s2, PATCH_MAPS, PATCH_FORM[13 * g],
                                     PATCH_FORM[13 * g + 3], first, D)  # fmt: skip
        _stored(out_ptr, x_ptr, at, inside, x0, x1, o0, BOX, first, D)
        _stored(out_ptr, x_ptr, at, inside, x0, x1, o1, BOX, first + 1, D)
        _stored(out_ptr, x_ptr, at, inside, x0, x1, o2, BOX, first + 2, D)
