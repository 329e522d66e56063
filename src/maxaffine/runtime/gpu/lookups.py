"""The Triton kernel of lookups on a uniform grid: a window of sites around the query, gathered from the values.

Coordinates are formed in float64, so that the place inside a cell is known to the last digit however many cells there are;
weights and sums in the dtype of the queries, or in float32 where that is narrower.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl

from maxaffine.runtime.gpu.kernels import clamp


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
