"""The Triton kernels of lookups on a uniform grid: a window of sites around the query, gathered from the values.

The derivative is sum_j w_j rho (j - t) (v_j - F), values counted from that of the first site of the window.

Coordinates are formed in float64, so that the place inside a cell is known to the last digit however many cells there are;
weights and sums in the dtype of the queries, or in float32 where that is narrower.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from maxaffine.runtime.gpu.kernels import clamp, columns, kept, variable, widened


@triton.jit
def _window(x_ptr, rows, inside, d: tl.constexpr, MAPS: tl.constexpr, FORM: tl.constexpr, D: tl.constexpr,
            dtype: tl.constexpr):  # fmt: skip
    """Index of the window's first site and t, the query minus that site, in the dtype."""
    x = clamp(tl.load(x_ptr + rows * D + d, mask=inside, other=0.0).to(tl.float64), MAPS[5 * d + 3], MAPS[5 * d + 4])
    z = (x - tl.full(x.shape, MAPS[5 * d], tl.float64)) * tl.full(x.shape, MAPS[5 * d + 1], tl.float64)
    s = z + tl.full(x.shape, MAPS[5 * d + 2], tl.float64)  # 0 at the first site
    first = tl.floor(s) - tl.full(s.shape, FORM[3 * d + 1] // 2 - 1, tl.float64)
    first = tl.maximum(first, tl.full(s.shape, 0.0, tl.float64))
    first = tl.minimum(first, tl.full(s.shape, FORM[3 * d] - FORM[3 * d + 1], tl.float64))
    return first.to(tl.int64), (s - first).to(dtype)


@triton.jit
def _logit(t, j: tl.constexpr, RHO: tl.constexpr):
    """-rho (t - j)^2 / 2."""
    away = t - tl.full(t.shape, j, t.dtype)
    return away * away * tl.full(t.shape, -0.5 * RHO, t.dtype)


@triton.jit
def _nearest(t, WIDTH: tl.constexpr, RHO: tl.constexpr):
    """The largest logit of the window."""
    top = _logit(t, 0, RHO)
    for j in tl.static_range(1, WIDTH):
        top = tl.maximum(top, _logit(t, j, RHO), propagate_nan=tl.PropagateNan.ALL)
    return top


@triton.jit
def _weight(t, top, j: tl.constexpr, RHO: tl.constexpr):
    """e^{logit - largest}."""
    return tl.exp(_logit(t, j, RHO) - top)


@triton.jit
def windowed(x_ptr, values, out_ptr, count, MAPS: tl.constexpr, FORM: tl.constexpr, RHO: tl.constexpr, D: tl.constexpr,
             K: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, K) = softmax over the window times values.

    MAPS per variable: centre, scale, first site, box; FORM per variable: sites, width of the window, stride of the values.
    """
    dtype: tl.constexpr = tl.float64 if out_ptr.dtype.element_ty == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    at0, t0 = _window(x_ptr, rows, inside, 0, MAPS, FORM, D, dtype)
    at1, t1, at2, t2 = at0, t0, at0, t0
    if D > 1:
        at1, t1 = _window(x_ptr, rows, inside, 1, MAPS, FORM, D, dtype)
    if D > 2:
        at2, t2 = _window(x_ptr, rows, inside, 2, MAPS, FORM, D, dtype)
    W0: tl.constexpr = FORM[1]
    W1: tl.constexpr = FORM[4] if D > 1 else 1
    W2: tl.constexpr = FORM[7] if D > 2 else 1
    top0, top1, top2 = _nearest(t0, W0, RHO), t1, t2
    if D > 1:
        top1 = _nearest(t1, W1, RHO)
    if D > 2:
        top2 = _nearest(t2, W2, RHO)
    for k in tl.static_range(K):
        total = tl.full(t0.shape, 0.0, dtype)
        norm = tl.full(t0.shape, 0.0, dtype)
        for i in tl.static_range(W0):
            w0 = _weight(t0, top0, i, RHO)
            base0 = (at0 + i) * FORM[2] + k
            for j in tl.static_range(W1):
                w1, base1 = w0, base0
                if D > 1:
                    w1 = w0 * _weight(t1, top1, j, RHO)
                    base1 = base0 + (at1 + j) * FORM[5]
                for m in tl.static_range(W2):
                    w2, base2 = w1, base1
                    if D > 2:
                        w2 = w1 * _weight(t2, top2, m, RHO)
                        base2 = base1 + (at2 + m) * FORM[8]
                    total = tl.fma(w2, tl.load(values + base2, mask=inside, other=0.0).to(dtype), total)
                    norm += w2
        tl.store(out_ptr + rows * K + k, total / norm, mask=inside)


@triton.jit
def _turned(total, away, weight, t, j: tl.constexpr, value, RHO: tl.constexpr):
    """Sums of the weights times rho (j - t), with values and without."""
    lean = weight * (tl.full(t.shape, j, t.dtype) - t) * tl.full(t.shape, RHO, t.dtype)
    return tl.fma(lean, value, total), away + lean


@triton.jit
def _spread(out, weight, total, away, said, norm, SCALE: tl.constexpr):
    """What one output adds to the slope in one variable."""
    return tl.fma(weight * tl.full(out.shape, SCALE, out.dtype), (total - said * away) / norm, out)


@triton.jit
def windowed_slopes(x_ptr, weight_ptr, values, out_ptr, count, MAPS: tl.constexpr, FORM: tl.constexpr, RHO: tl.constexpr,
                    BOX: tl.constexpr, D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out (count, D) = sum_k weight_k (count, K) times the derivatives of output k, 0 outside the box; at most 3 variables."""
    dtype: tl.constexpr = tl.float64 if out_ptr.dtype.element_ty == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    at0, t0 = _window(x_ptr, rows, inside, 0, MAPS, FORM, D, dtype)
    at1, t1, at2, t2 = at0, t0, at0, t0
    if D > 1:
        at1, t1 = _window(x_ptr, rows, inside, 1, MAPS, FORM, D, dtype)
    if D > 2:
        at2, t2 = _window(x_ptr, rows, inside, 2, MAPS, FORM, D, dtype)
    W0: tl.constexpr = FORM[1]
    W1: tl.constexpr = FORM[4] if D > 1 else 1
    W2: tl.constexpr = FORM[7] if D > 2 else 1
    top0, top1, top2 = _nearest(t0, W0, RHO), t1, t2
    if D > 1:
        top1 = _nearest(t1, W1, RHO)
    if D > 2:
        top2 = _nearest(t2, W2, RHO)
    zero = tl.full(t0.shape, 0.0, dtype)
    o0, o1, o2 = zero, zero, zero
    for k in tl.static_range(K):
        total, norm = zero, zero
        g0, g1, g2 = zero, zero, zero
        a0, a1, a2 = zero, zero, zero
        first = at0 * FORM[2] + k
        if D > 1:
            first += at1 * FORM[5]
        if D > 2:
            first += at2 * FORM[8]
        base = tl.load(values + first, mask=inside, other=0.0).to(dtype)
        for i in tl.static_range(W0):
            w0 = _weight(t0, top0, i, RHO)
            for j in tl.static_range(W1):
                w1 = w0
                place = first + i * FORM[2]
                if D > 1:
                    w1 = w0 * _weight(t1, top1, j, RHO)
                    place += j * FORM[5]
                for m in tl.static_range(W2):
                    w2, here = w1, place
                    if D > 2:
                        w2 = w1 * _weight(t2, top2, m, RHO)
                        here += m * FORM[8]
                    value = tl.load(values + here, mask=inside, other=0.0).to(dtype) - base
                    total = tl.fma(w2, value, total)
                    norm += w2
                    g0, a0 = _turned(g0, a0, w2, t0, i, value, RHO)
                    if D > 1:
                        g1, a1 = _turned(g1, a1, w2, t1, j, value, RHO)
                    if D > 2:
                        g2, a2 = _turned(g2, a2, w2, t2, m, value, RHO)
        weight, said = widened(tl.load(weight_ptr + rows * K + k, mask=inside, other=0.0)), total / norm
        o0 = _spread(o0, weight, g0, a0, said, norm, MAPS[1])
        if D > 1:
            o1 = _spread(o1, weight, g1, a1, said, norm, MAPS[6])
        if D > 2:
            o2 = _spread(o2, weight, g2, a2, said, norm, MAPS[11])
    x0, x1 = columns(x_ptr, rows, inside, D)
    tl.store(out_ptr + rows * D, kept(o0, x0, BOX, 0), mask=inside)
    if D > 1:
        tl.store(out_ptr + rows * D + 1, kept(o1, variable(x_ptr, rows, inside, x0, x1, 1, D), BOX, 1), mask=inside)
    if D > 2:
        tl.store(out_ptr + rows * D + 2, kept(o2, variable(x_ptr, rows, inside, x0, x1, 2, D), BOX, 2), mask=inside)
