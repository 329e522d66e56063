"""Triton kernels of layers with clusters.  Of groups along one direction each: products of polynomials between edges.

    out_k = sum_terms prod_f p_f(z_f)  +  products of series (kernels.py)  +  tokens and patches (kernels_patches.py)

Factor f looks up, coefficient by coefficient, the polynomial of the interval that z_f is in: by comparisons with edges that are
written into the code, or by counting the edges below z_f and reading from memory.  The soft form takes the polynomials on both
sides of the nearest edge and their share sigma(g (z - e)).  Rows of a factor, all of one entry per interval: middle, scale,
then the powers from the constant one on; before them the edges, and for the soft form gains and the points between the edges.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from maxaffine.runtime.gpu.kernels import clamp, columns, coordinate, term_at
from maxaffine.runtime.gpu.kernels_patches import patched, tokens


@triton.jit
def _below(z, table, once, START: tl.constexpr, COUNT: tl.constexpr):
    """How many of COUNT numbers in memory are below z."""
    index = tl.full(z.shape, 0, tl.int32)
    for k in range(0, COUNT * once):
        index += (z > tl.load(table + START + k)).to(tl.int32)
    return index


@triton.jit
def _chosen(z, index, table, NUMBERS: tl.constexpr, SIDES: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr):
    """Entry AT + (how many of the COUNT - 1 numbers from SIDES on are below z)."""
    if NUMBERS is None:
        return tl.load(table + AT + index)
    else:
        found = tl.full(z.shape, NUMBERS[AT], z.dtype)
        for k in tl.static_range(1, COUNT):
            here = z > tl.full(z.shape, NUMBERS[SIDES + k - 1], z.dtype)
            found = tl.where(here, tl.full(z.shape, NUMBERS[AT + k], z.dtype), found)
        return found


@triton.jit
def _polynomial(z, index, table, NUMBERS: tl.constexpr, SIDES: tl.constexpr, AT: tl.constexpr, COUNT: tl.constexpr,
                ROW: tl.constexpr, POWERS: tl.constexpr, WITHIN: tl.constexpr, SLOPE: tl.constexpr):  # fmt: skip
    """p(y) by Horner's rule, y = (z - middle) scale, or its derivative in z; y kept in [-1, 1] where WITHIN."""
    scale = _chosen(z, index, table, NUMBERS, SIDES, AT + ROW, COUNT)
    y = (z - _chosen(z, index, table, NUMBERS, SIDES, AT, COUNT)) * scale
    if WITHIN:
        y = clamp(y, -1.0, 1.0)
    if SLOPE:
        if POWERS == 1:
            return y * 0.0
        out = _chosen(z, index, table, NUMBERS, SIDES, AT + (1 + POWERS) * ROW, COUNT) * (POWERS - 1.0)
        for j in tl.static_range(POWERS - 2):
            c = _chosen(z, index, table, NUMBERS, SIDES, AT + (POWERS - j) * ROW, COUNT)
            out = tl.fma(out, y, c * (POWERS - 2.0 - j))
        return out * scale
    else:
        out = _chosen(z, index, table, NUMBERS, SIDES, AT + (1 + POWERS) * ROW, COUNT)
        for j in tl.static_range(POWERS - 1):
            out = tl.fma(out, y, _chosen(z, index, table, NUMBERS, SIDES, AT + (POWERS - j) * ROW, COUNT))
        return out


@triton.jit
def _factor(x_ptr, rows, inside, x0, x1, table, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
            PLACE: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """One factor at its coordinate; FORM: maps, intervals, powers, whether it is soft, first number of its table."""
    z = coordinate(x_ptr, rows, inside, x0, x1, MAPS, FORM[PLACE], D)
    PIECES: tl.constexpr = FORM[PLACE + 1]
    POWERS: tl.constexpr = FORM[PLACE + 2]
    START: tl.constexpr = FORM[PLACE + 4]
    index = tl.full(z.shape, 0, tl.int32)
    if FORM[PLACE + 3] == 1:
        SIDES: tl.constexpr = START + 2 * (PIECES - 1)
        AT: tl.constexpr = SIDES + PIECES - 2
        if NUMBERS is None:
            index = _below(z, table, once, SIDES, PIECES - 2)
        left = _polynomial(z, index, table, NUMBERS, SIDES, AT, PIECES - 1, PIECES, POWERS, True, False)
        right = _polynomial(z, index, table, NUMBERS, SIDES, AT + 1, PIECES - 1, PIECES, POWERS, True, False)
        away = z - _chosen(z, index, table, NUMBERS, SIDES, START, PIECES - 1)
        mass = away * _chosen(z, index, table, NUMBERS, SIDES, START + PIECES - 1, PIECES - 1)
        share = 1.0 / (1.0 + tl.exp(-clamp(mass, -80.0, 80.0)))
        out = tl.fma(share, right - left, left)
        if SLOPE:
            left_slope = _polynomial(z, index, table, NUMBERS, SIDES, AT, PIECES - 1, PIECES, POWERS, True, True)
            right_slope = _polynomial(z, index, table, NUMBERS, SIDES, AT + 1, PIECES - 1, PIECES, POWERS, True, True)
            gain = _chosen(z, index, table, NUMBERS, SIDES, START + PIECES - 1, PIECES - 1)
            turn = share * (1.0 - share) * gain * (right - left)
            turn = tl.where(tl.abs(mass) < 80.0, turn, tl.full(turn.shape, 0.0, turn.dtype))
            out = tl.fma(share, right_slope - left_slope, left_slope) + turn
        return out
    else:
        if NUMBERS is None:
            index = _below(z, table, once, START, PIECES - 1)
        return _polynomial(z, index, table, NUMBERS, START, START + PIECES - 1, PIECES, PIECES, POWERS, False, SLOPE)


@triton.jit
def product_at(x_ptr, rows, inside, x0, x1, table, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr,
               TERM: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The factors of one term multiplied from the left; factor SLOPE by its derivative."""
    out = _factor(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM + 2, SLOPE == 0, D)
    FACTORS: tl.constexpr = FORM[TERM]
    for f in tl.static_range(1, FACTORS):
        out *= _factor(x_ptr, rows, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, TERM + 2 + 5 * f, f == SLOPE, D)
    return out


@triton.jit(do_not_specialize=["once"])
def clustered(x_ptr, out_ptr, table, smooth, listed, cells, patches, count, once, NUMBERS: tl.constexpr, MAPS: tl.constexpr,
              FORM: tl.constexpr, TERMS: tl.constexpr, STRIDE: tl.constexpr, SHIFT: tl.constexpr, SMOOTH: tl.constexpr,
              SMOOTH_MAPS: tl.constexpr, SMOOTH_FORM: tl.constexpr, SMOOTH_TERMS: tl.constexpr, SMOOTH_STRIDE: tl.constexpr,
              LISTED: tl.constexpr, LISTED_MAPS: tl.constexpr, LISTED_FORM: tl.constexpr, LISTED_OUTPUTS: tl.constexpr,
              LISTED_TERMS: tl.constexpr, PATCH_MAPS: tl.constexpr, PATCH_FORM: tl.constexpr, PATCH_OUTPUTS: tl.constexpr,
              PATCH_TERMS: tl.constexpr, D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, K) = shift + sums of products of polynomials between edges, of products of series, of tokens, of patches."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x0, x1 = columns(x_ptr, at, inside, D)
    for k in tl.static_range(K):
        out = tl.full(x0.shape, SHIFT[k], x0.dtype)
        for g in tl.static_range(TERMS):
            if FORM[g * STRIDE + 1] == k:
                out += product_at(x_ptr, at, inside, x0, x1, table, once, NUMBERS, MAPS, FORM, g * STRIDE, -1, D)
        for g in tl.static_range(SMOOTH_TERMS):
            if SMOOTH_FORM[g * SMOOTH_STRIDE + 2] == k:
                out += term_at(x_ptr, at, inside, x0, x1, smooth, once, SMOOTH, SMOOTH_MAPS, SMOOTH_FORM, g * SMOOTH_STRIDE,
                               -1, D)  # fmt: skip
        for g in tl.static_range(LISTED_TERMS):
            if LISTED_OUTPUTS[g] == k:
                out += tokens(x_ptr, at, inside, x0, x1, listed, LISTED, LISTED_MAPS, LISTED_FORM, 4 * g, D)
        for g in tl.static_range(PATCH_TERMS):
            if PATCH_OUTPUTS[g] == k:
                out += patched(x_ptr, at, inside, x0, x1, patches, cells, PATCH_MAPS, PATCH_FORM, 13 * g, D)
        tl.store(out_ptr + at * K + k, out, mask=inside)
