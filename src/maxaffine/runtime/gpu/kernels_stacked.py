"""The Triton kernel of a stack: all nodes in one launch, every value in registers.

    v_k = phi_k(T_k v),    v = inputs, then nodes;    out = T v

ROWS holds affine maps: how many terms, the constant, then index and weight of every term.  NODES: kind, places of two rows,
head, scales and lift as factors, the box that arguments of heads and roots are kept in.  HEADS: what is added, first and number
of its products of polynomials, of its products of series and of its softmaxes over tokens, its directions, and which of the three
are in the code.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, assignment"
# ruff: noqa: RUF005  (Triton adds tuples, and unpacks none)

import triton
import triton.language as tl

from maxaffine.runtime.gpu.kernels import clamp, term_at
from maxaffine.runtime.gpu.kernels_patches import tokens
from maxaffine.runtime.gpu.kernels_pieces import product_at
from maxaffine.runtime.gpu.stack_program import ABSOLUTE, HEAD, LENGTH, POSITIVE, PRODUCT, ROOT, SQUARE

HEAD_, ROOT_, PRODUCT_, SQUARE_ = (tl.constexpr(kind) for kind in (HEAD, ROOT, PRODUCT, SQUARE))
ABSOLUTE_, POSITIVE_, LENGTH_ = tl.constexpr(ABSOLUTE), tl.constexpr(POSITIVE), tl.constexpr(LENGTH)
PER_NODE, PER_HEAD = tl.constexpr(11), tl.constexpr(11)


@triton.jit
def _added(out, v, WEIGHT: tl.constexpr):
    """out + WEIGHT v, rounded once."""
    if WEIGHT == 1.0:
        return out + v
    elif WEIGHT == -1.0:
        return out - v
    else:
        return tl.fma(v, tl.full(v.shape, WEIGHT, v.dtype), out)


@triton.jit
def _first(v, CONSTANT: tl.constexpr, WEIGHT: tl.constexpr):
    """CONSTANT + WEIGHT v, rounded once or not at all."""
    if CONSTANT != 0.0:
        return _added(tl.full(v.shape, CONSTANT, v.dtype), v, WEIGHT)
    elif WEIGHT == 1.0:
        return v
    elif WEIGHT == -1.0:
        return -v
    else:
        return v * tl.full(v.shape, WEIGHT, v.dtype)


@triton.jit
def _row(values, ROWS: tl.constexpr, AT: tl.constexpr):
    """An affine map from left to right."""
    COUNT: tl.constexpr = ROWS[AT]
    if COUNT == 0:
        return tl.full(values[0].shape, ROWS[AT + 1], values[0].dtype)
    else:
        out = _first(values[ROWS[AT + 2]], ROWS[AT + 1], ROWS[AT + 3])
        for i in tl.static_range(1, COUNT):
            out = _added(out, values[ROWS[AT + 2 + 2 * i]], ROWS[AT + 3 + 2 * i])
        return out


@triton.jit
def _head(x_ptr, rows, inside, u, w, once, pieces, series, scores, PIECES: tl.constexpr, SERIES: tl.constexpr,
          SCORES: tl.constexpr, MAPS: tl.constexpr, PIECE_FORM: tl.constexpr, PIECE_STRIDE: tl.constexpr,
          SERIES_FORM: tl.constexpr, SERIES_STRIDE: tl.constexpr, SCORE_FORM: tl.constexpr, HEADS: tl.constexpr,
          AT: tl.constexpr):  # fmt: skip
    """One head at its arguments."""
    out = tl.full(u.shape, HEADS[AT], u.dtype)
    E: tl.constexpr = HEADS[AT + 7]
    FIRST_PIECE: tl.constexpr = HEADS[AT + 1]
    LAST_PIECE: tl.constexpr = HEADS[AT + 1] + HEADS[AT + 2]
    for g in tl.static_range(FIRST_PIECE, LAST_PIECE):
        if HEADS[AT + 8] == 1:
            out += product_at(x_ptr, rows, inside, u, w, pieces, once, PIECES, MAPS, PIECE_FORM, g * PIECE_STRIDE, -1, E)
        else:
            out += product_at(x_ptr, rows, inside, u, w, pieces, once, None, MAPS, PIECE_FORM, g * PIECE_STRIDE, -1, E)
    FIRST_SERIES: tl.constexpr = HEADS[AT + 3]
    LAST_SERIES: tl.constexpr = HEADS[AT + 3] + HEADS[AT + 4]
    for g in tl.static_range(FIRST_SERIES, LAST_SERIES):
        if HEADS[AT + 9] == 1:
            out += term_at(x_ptr, rows, inside, u, w, series, once, SERIES, MAPS, SERIES_FORM, g * SERIES_STRIDE, -1, E)
        else:
            out += term_at(x_ptr, rows, inside, u, w, series, once, None, MAPS, SERIES_FORM, g * SERIES_STRIDE, -1, E)
    FIRST_SCORES: tl.constexpr = HEADS[AT + 5]
    LAST_SCORES: tl.constexpr = HEADS[AT + 5] + HEADS[AT + 6]
    for g in tl.static_range(FIRST_SCORES, LAST_SCORES):
        if HEADS[AT + 10] == 1:
            out += tokens(x_ptr, rows, inside, u, w, scores, SCORES, MAPS, SCORE_FORM, 4 * g, E)
        else:
            out += tokens(x_ptr, rows, inside, u, w, scores, None, MAPS, SCORE_FORM, 4 * g, E)
    return out


@triton.jit
def _asked(values, ROWS: tl.constexpr, NODES: tl.constexpr, AT: tl.constexpr, e: tl.constexpr):
    """Argument e of a node, inside its box."""
    out = _row(values, ROWS, NODES[AT + 1 + e])
    if NODES[AT + 4 + e] != 1.0:
        out = out * tl.full(out.shape, NODES[AT + 4 + e], out.dtype)
    return clamp(out, NODES[AT + 7 + 2 * e], NODES[AT + 8 + 2 * e])


@triton.jit
def _root(u):
    """A root, rounded correctly."""
    if u.dtype == tl.float64:
        return tl.sqrt(u)
    else:
        return tl.sqrt_rn(u)


@triton.jit
def _plain(values, ROWS: tl.constexpr, NODES: tl.constexpr, AT: tl.constexpr):
    """A node that is computed as it stands."""
    KIND: tl.constexpr = NODES[AT]
    u = _row(values, ROWS, NODES[AT + 1])
    if KIND == SQUARE_:
        return u * u
    elif KIND == ABSOLUTE_:
        return tl.abs(u)
    elif KIND == POSITIVE_:
        return tl.maximum(u, tl.full(u.shape, 0.0, u.dtype), propagate_nan=tl.PropagateNan.ALL)
    else:
        w = _row(values, ROWS, NODES[AT + 2])
        if KIND == PRODUCT_:
            return u * w
        else:
            return _root(tl.fma(u, u, w * w))


@triton.jit
def _input(x_ptr, rows, inside, BOX: tl.constexpr, d: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """x_d, inside the box."""
    x = tl.load(x_ptr + rows * D + d, mask=inside, other=0.0)
    if WIDE:
        x = x.to(tl.float64)
    return clamp(x, BOX[2 * d], BOX[2 * d + 1])


@triton.jit(do_not_specialize=["once"])
def stacked(x_ptr, out_ptr, pieces, series, scores, count, once, PIECES: tl.constexpr, SERIES: tl.constexpr, SCORES: tl.constexpr,
            MAPS: tl.constexpr, PIECE_FORM: tl.constexpr, PIECE_STRIDE: tl.constexpr, SERIES_FORM: tl.constexpr,
            SERIES_STRIDE: tl.constexpr, SCORE_FORM: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, NODES: tl.constexpr,
            COUNT: tl.constexpr, RESULT: tl.constexpr, BOX: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    """out (count,) at x (count, D); computed in float64 where WIDE."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    values = (_input(x_ptr, rows, inside, BOX, 0, D, WIDE),)
    for d in tl.static_range(1, D):
        values = values + (_input(x_ptr, rows, inside, BOX, d, D, WIDE),)
    for k in tl.static_range(COUNT):
        if NODES[k * PER_NODE] == HEAD_:
            u = _asked(values, ROWS, NODES, k * PER_NODE, 0)
            w = u
            if HEADS[NODES[k * PER_NODE + 3] * PER_HEAD + 7] == 2:
                w = _asked(values, ROWS, NODES, k * PER_NODE, 1)
            v = _head(x_ptr, rows, inside, u, w, once, pieces, series, scores, PIECES, SERIES, SCORES, MAPS, PIECE_FORM,
                      PIECE_STRIDE, SERIES_FORM, SERIES_STRIDE, SCORE_FORM, HEADS,
                      NODES[k * PER_NODE + 3] * PER_HEAD)  # fmt: skip
            if NODES[k * PER_NODE + 6] != 1.0:
                v = v * tl.full(v.shape, NODES[k * PER_NODE + 6], v.dtype)
        elif NODES[k * PER_NODE] == ROOT_:
            v = _root(_asked(values, ROWS, NODES, k * PER_NODE, 0))
        else:
            v = _plain(values, ROWS, NODES, k * PER_NODE)
        values = values + (v,)
    tl.store(out_ptr + rows, _row(values, ROWS, RESULT).to(out_ptr.dtype.element_ty), mask=inside)
