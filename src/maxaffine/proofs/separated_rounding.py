"""What finite precision does to sums of products over blocks: the error of every factor, and what becomes of it in products.

    F = Re sum_r prod_b h_rb,      h_rb = sum_j w_j (A_b[j, r] + i B_b[j, r])      (layer/blocks.py)

Factor by factor: a logit that is off by eta_j moves h by at most e^{2 eta} sum_j w_j eta_j |c_j - h|, a query that is off by q
by q sup |dh/dz|, sums by gamma times sum_j w_j |c_j|; real and imaginary part alone, and the modulus by Pythagoras.  If every
factor is within e_rb of f_rb, |f_rb| <= s_rb, then |prod h - prod f| <= prod (s + e) - prod s, whose first-order part is the
telescope sum_b e_b prod_{l != b} s_l: what a factor loses is multiplied by the sizes of its partners and by nothing else.
Products and sums over r lose gamma of the sizes; a complex product at most sqrt(2) gamma(2) of its modulus (Brent, Percival and
Zimmermann 2007: sqrt(5) u), in any order and with or without fused operations.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import BLOCK_PIECES, ColumnMoments, column_moments, etas_for

MOST = 2.0**1000  # beyond which products are not followed


@dataclass(frozen=True)
class Rounded:
    """Per block (R,): what its factors are off by as computed, what no |factor| exceeds, and the error of its logits."""

    errors: tuple[Array, ...]
    sizes: tuple[Array, ...]
    etas: tuple[float, ...]

    @property
    def eta(self) -> float:
        """The error of a logit of the group."""
        return sum(self.etas)


def rounding(layer: GroupedLayer, group: Group, query: Array) -> Rounded:
    """What is computed of every factor against the stored factor at the exact query; `query` (E,) bounds |computed z - z|.

    Logits and exponentials in the dtype that computes, sums in float64 in any order; by any runtime that follows the structure.
    """
    if group.factors is None:
        raise Refused("the values of a group are listed, and no sum of products.")
    if not (np.all(np.asarray(query) >= 0.0) and np.all(np.isfinite(query)) and len(query) == len(group.axes)):
        raise Refused("the errors of a group's queries are not known.")
    known: dict[tuple[bytes, ...], tuple[ColumnMoments, ColumnMoments | None, tuple[Array, ...]]] = {}
    errors, sizes, etas = [], [], []
    for b, (cut, factor) in enumerate(zip(group.block_slices, group.factors, strict=True)):
        axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in group.axes[cut])
        parts = [factor] if group.imaginary is None else [factor, group.imaginary[b]]
        name = tuple(array.tobytes() for array in (*(a for axis in axes for a in (axis.slopes, axis.offsets)), *parts))
        if name not in known:  # directions alike, as of |x|^2, are followed once
            known[name] = _moments(layer, axes, [part.astype(np.float64) for part in parts])
        real, imaginary, blocks_etas = known[name]
        error = _error(layer, axes, real, factor, query[cut], blocks_etas)
        size = real.largest
        if imaginary is not None:
            error = np.hypot(error, _error(layer, axes, imaginary, parts[1], query[cut], blocks_etas))
            size = np.hypot(size, imaginary.largest)
        errors.append(error * (1 + 1e-12))
        sizes.append(size * (1 + 1e-12))
        etas.append(sum(float(eta.max()) for eta in blocks_etas))
    if not all(np.isfinite(one).all() for one in (*errors, *sizes)):
        raise Refused("the factors of a group are too large, or its keys too steep, to be followed in their dtype.")
    return Rounded(tuple(errors), tuple(sizes), tuple(etas))


def _moments(
    layer: GroupedLayer, axes: tuple[AxisKeys, ...], parts: list[Array]
) -> tuple[ColumnMoments, ColumnMoments | None, tuple[Array, ...]]:
    """Moments of the real and the imaginary part of a block's factors, and the errors of its logits."""
    d, compute = len(axes), compute_format(layer.dtype)
    if d > max(BLOCK_PIECES):
        raise Refused(f"a block of factors has {d} directions, and {max(BLOCK_PIECES)} are followed at most.")
    extra = compute.unit * layer.bonus if len(layer.groups) > 1 else 0.0
    etas = tuple(eta + extra for eta in etas_for(axes, compute, d + 2, BLOCK_PIECES[d]))
    found = [column_moments(axes, part, etas, BLOCK_PIECES[d]) for part in parts]
    return found[0], found[1] if len(found) > 1 else None, etas


def _error(
    layer: GroupedLayer, axes: tuple[AxisKeys, ...], found: ColumnMoments, values: Array, query: Array, etas: tuple[Array, ...]
) -> Array:
    """What one part of a block's factors is off by as computed, (R,)."""
    compute, worst = compute_format(layer.dtype), sum(float(eta.max()) for eta in etas)
    if not worst < 1.0:
        raise Refused(f"the logits of a group are not resolved in {compute.name}.")
    terms = sum(2 * len(axis) + 6 for axis in axes)  # dot products and normalisers, added in any order
    error = math.exp(2.0 * worst) * (found.rounding + gamma(terms, FLOAT64.unit) * found.absolute)
    error += query @ found.slopes
    tops = np.abs(values.astype(np.float64)).max(axis=tuple(range(values.ndim - 1)))
    return np.asarray(error + 4.0 * compute.tiny * math.prod(len(axis) for axis in axes) * tops)


@np.errstate(over="ignore", invalid="ignore")
def multiplied(sizes: Array, plain: Array, rounded: Array) -> tuple[float, float, float]:
    """sum_r prod (s + e) - prod s for errors `plain`, and for those and `rounded`; and sum_r prod (s + e).  All (R, blocks)."""
    exact = float((np.prod(sizes + plain, axis=1) - np.prod(sizes, axis=1)).sum())
    whole = float((np.prod(sizes + plain + rounded, axis=1) - np.prod(sizes, axis=1)).sum())
    largest = float(np.prod(sizes + plain, axis=1).sum())
    return (exact, whole, largest) if math.isfinite(exact + whole + largest) else (math.inf, math.inf, math.inf)


def accounted(layer: GroupedLayer, group: Group, sizes: Array, plain: Array, rounded: Rounded) -> tuple[float, float, float]:
    """A group's error before rounding, what rounding adds to it, and a bound of |group|; infinite where it cannot be followed.

    `sizes` (R, blocks) bound |f_rb| of the target's factors and `plain` how far the stored factors are from them.  The literal
    softmax has a bound of its own.
    """
    off = np.stack(rounded.errors, axis=1)
    exact, whole, largest = multiplied(sizes, plain, off)
    guard = 4.0 * FLOAT64.unit * (sum(sizes.shape) + 4) * (whole + 2.0 * largest)  # of these products and sums themselves
    lost = whole - exact + guard + products_lost(group, sizes + plain + off) if math.isfinite(whole) else math.inf
    return (exact + guard, lost, largest + lost) if math.isfinite(lost) else (math.inf, math.inf, math.inf)


@np.errstate(over="ignore", invalid="ignore")
def products_lost(group: Group, sizes: Array) -> float:
    """What the products over blocks and the sum over r lose in float64; `sizes` (R, blocks) bound |factor| as computed.

    Infinite where a product of some of the factors, in any order, may leave the format.
    """
    rank, blocks = sizes.shape
    largest = float(np.prod(np.maximum(sizes, 1.0), axis=1).sum())  # of a product of any of the factors
    if not largest < MOST:
        return math.inf
    terms = rank + (blocks if group.imaginary is None else 3 * blocks) + 4
    whole = float(np.prod(sizes, axis=1).sum())
    return float((gamma(terms, FLOAT64.unit) * whole + 8.0 * rank * blocks * FLOAT64.tiny * largest) * (1 + 1e-12))
