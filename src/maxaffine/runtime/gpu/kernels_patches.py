"""Triton kernels of clusters of several directions: all scores in registers, or patches on the cells of a grid.

    tokens    F = sum_j exp(s_j - max s) v_j / sum_j exp(s_j - max s),      s_j and v_j affine in z, for a few dozen tokens
    patches   the same over the heads that are heard on the cell of z, polynomials of the place in the cell (runtime/patches.py)

Numbers of a token: b, a_1 .. a_E, c, g_1 .. g_E.  A patch: rows of four or eight powers of the last v_e, one per product of
powers of the others, then the quadratic of its mass; the first patch of a cell has the mass 0.  Sums over patches go along with
their largest score.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from maxaffine.runtime.gpu.kernels import coordinate


@triton.jit
def token_number(z, table, NUMBERS: tl.constexpr, AT: tl.constexpr):
    """One number of a token, everywhere."""
    if NUMBERS is None:
        return tl.broadcast_to(tl.load(table + AT), z.shape)
    else:
        return tl.full(z.shape, NUMBERS[AT], z.dtype)


@triton.jit
def affine_at(z0, z1, z2, table, NUMBERS: tl.constexpr, AT: tl.constexpr, E: tl.constexpr):
    """Entry AT plus the entries behind it times z."""
    out = tl.fma(z0, token_number(z0, table, NUMBERS, AT + 1), token_number(z0, table, NUMBERS, AT))
    if E > 1:
        out = tl.fma(z1, token_number(z0, table, NUMBERS, AT + 2), out)
    if E > 2:
        out = tl.fma(z2, token_number(z0, table, NUMBERS, AT + 3), out)
    return out


@triton.jit
def tokens(x_ptr, rows, inside, x0, x1, table, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
           PLACE: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """One softmax over COUNT tokens; FORM: maps, directions, tokens, first number."""
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
    for j in tl.static_range(1, COUNT):
        top = tl.maximum(top, affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE, E), propagate_nan=tl.PropagateNan.ALL)
    above = tl.full(z0.shape, 0.0, z0.dtype)
    below = tl.full(z0.shape, 0.0, z0.dtype)
    for j in tl.static_range(COUNT):
        weight = tl.exp(affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE, E) - top)
        below += weight
        above = tl.fma(weight, affine_at(z0, z1, z2, table, NUMBERS, START + j * STRIDE + 1 + E, E), above)
    return above / below


@triton.jit
def four(table, at, live):
    """Four numbers in a row, by one wide load."""
    quad = tl.load(table + at[:, None] + tl.arange(0, 4)[None, :], mask=live[:, None], other=0.0)
    even, odd = tl.split(tl.reshape(quad, (at.shape[0], 2, 2)))
    q0, q2 = tl.split(even)
    q1, q3 = tl.split(odd)
    return q0, q1, q2, q3


@triton.jit
def _row(v, table, at, live, ROW: tl.constexpr):
    """A row of four or eight powers of v by Horner's rule."""
    c0, c1, c2, c3 = four(table, at, live)
    row = c3
    if ROW == 8:
        d0, d1, d2, d3 = four(table, at + 4, live)
        row = tl.fma(tl.fma(tl.fma(tl.fma(d3, v, d2), v, d1), v, d0), v, c3)
    return tl.fma(tl.fma(tl.fma(row, v, c2), v, c1), v, c0)


@triton.jit
def _value(v0, v1, v2, table, at, live, E: tl.constexpr, POWERS: tl.constexpr, ROW: tl.constexpr):
    """The polynomial of a patch by Horner's rule in all directions."""
    out = tl.full(v0.shape, 0.0, v0.dtype)
    for i in tl.static_range(POWERS):
        if E == 2:
            row = _row(v1, table, at + (POWERS - 1 - i) * ROW, live, ROW)
        else:
            row = tl.full(v0.shape, 0.0, v0.dtype)
            for j in tl.static_range(POWERS):
                row = tl.fma(row, v1, _row(v2, table, at + ((POWERS - 1 - i) * POWERS + POWERS - 1 - j) * ROW, live, ROW))
        out = tl.fma(out, v0, row)
    return out


@triton.jit
def _mass(v0, v1, v2, table, at, live, E: tl.constexpr):
    """The quadratic of a patch's mass."""
    s0, s1, s2, s3 = four(table, at, live)
    if E == 2:
        s4 = tl.load(table + at + 4, mask=live, other=0.0)
        out = tl.fma(tl.fma(s3, v0, s1), v0, tl.fma(tl.fma(s4, v1, s2), v1, s0))
    else:
        s4, s5, s6, _ = four(table, at + 4, live)
        out = tl.fma(tl.fma(s4, v0, s1), v0, tl.fma(tl.fma(s5, v1, s2), v1, tl.fma(tl.fma(s6, v2, s3), v2, s0)))
    return out


@triton.jit
def place_in(z, SCALE: tl.constexpr, SIDE: tl.constexpr):
    """The cell that z is in, and its place in [-1, 1] there; cells lie evenly about 0, SCALE of them per unit."""
    s = tl.fma(z, tl.full(z.shape, SCALE, z.dtype), tl.full(z.shape, SIDE / 2.0, z.dtype))
    b = tl.minimum(tl.maximum(tl.floor(s), tl.full(s.shape, 0.0, s.dtype)), tl.full(s.shape, SIDE - 1.0, s.dtype))
    v = 2.0 * (s - b) - 1.0
    return b.to(tl.int32), v


@triton.jit
def patched(x_ptr, rows, inside, x0, x1, table, cells, MAPS: tl.constexpr, FORM: tl.constexpr, PLACE: tl.constexpr,
            D: tl.constexpr):  # fmt: skip
    """One group by its patches; FORM: maps, first cell, first number, directions, powers, numbers per row, most patches, and
    cells per direction and per unit of three directions."""
    E: tl.constexpr = FORM[PLACE + 3]
    POWERS: tl.constexpr = FORM[PLACE + 4]
    ROW: tl.constexpr = FORM[PLACE + 5]
    MASS: tl.constexpr = POWERS * ROW if E == 2 else POWERS * POWERS * ROW
    NEXT: tl.constexpr = 2 + 5 * D
    SIDE2: tl.constexpr = FORM[PLACE + 9]
    b0, v0 = place_in(coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE], D), FORM[PLACE + 10], FORM[PLACE + 7])
    b1, v1 = place_in(coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE] + NEXT, D), FORM[PLACE + 11], FORM[PLACE + 8])
    cell, v2 = b0 * FORM[PLACE + 8] + b1, v1
    if E == 3:
        b2, v2 = place_in(coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE] + 2 * NEXT, D), FORM[PLACE + 12], SIDE2)
        cell = cell * SIDE2 + b2
    packed = tl.load(cells + FORM[PLACE + 1] + cell, mask=inside, other=0)
    count = packed & 31
    at = FORM[PLACE + 2] + (packed >> 5) * (MASS + 8)
    above = _value(v0, v1, v2, table, at, inside, E, POWERS, ROW)
    if FORM[PLACE + 6] > 1:
        below = tl.full(v0.shape, 1.0, v0.dtype)
        top = tl.full(v0.shape, 0.0, v0.dtype)
        for m in range(1, tl.max(count, axis=0)):  # of the block: a query that hears fewer is left as it is
            live = m < count
            here = at + m * (MASS + 8)
            value = _value(v0, v1, v2, table, here, live, E, POWERS, ROW)
            score = _mass(v0, v1, v2, table, here + MASS, live, E)
            score = tl.where(live, score, tl.full(score.shape, -1e30, score.dtype))
            most = tl.maximum(top, score)
            keep, weight = tl.exp(top - most), tl.exp(score - most)
            above = tl.fma(weight, value, above * keep)
            below = tl.fma(below, keep, weight)
            top = most
        above = above / below
    return above
