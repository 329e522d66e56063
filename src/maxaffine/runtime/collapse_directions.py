"""One direction of a collapse: Chebyshev points with the weights there, what is left beyond a degree, bases and their bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import gamma
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime.strips import strip_sum

Extended = NDArray[np.longdouble]

UNIT = float(np.finfo(np.longdouble).eps) / 2.0  # 80-bit numbers where the platform has them, else float64
PI = np.longdouble("3.14159265358979323846264338327950288")
RADII = tuple(1.0 + 10.0**e for e in np.linspace(-2.0, 1.0, 25))
MOST_DEGREE = {1: 1500, 2: 600, 3: 100, 4: 36}
OVERSAMPLING = 2  # Chebyshev points per degree at which the collapse is compared


@dataclass(frozen=True)
class Grid:
    """Chebyshev points of one direction, the weights there in extended precision, and the remainder of degree `degree`."""

    degree: int
    remainder: float  # per unit of max |c| + |G|
    points: Extended
    weights: Extended  # (n, N)
    shaky: float  # relative error of the weights

    @property
    def constant(self) -> float:
        """Ehlich and Zeller's factor."""
        return 1.0 / math.cos(math.pi * self.degree / (2.0 * len(self.points))) * (1 + 1e-14)

    def transform(self, count: int) -> Extended:
        """(count, n): values at the points -> the first Chebyshev coefficients of their interpolant."""
        n = len(self.points)
        angle = PI * (2 * np.arange(n, dtype=np.longdouble) + 1) / (2 * n)
        rows = np.cos(np.multiply.outer(np.arange(count, dtype=np.longdouble), angle)) * (np.longdouble(2) / n)
        rows[0] /= 2
        return np.asarray(rows, dtype=np.longdouble)


def grid_of(axis: AxisKeys, E: int, allowed: float) -> Grid:
    """Points for which the remainder is at most `allowed` (per unit of max |c|)."""
    best: tuple[int, float] | None = None
    for r in RADII:
        long, short = (r + 1.0 / r) / 2.0 * (1 + 1e-12), (r - 1.0 / r) / 2.0 * (1 + 1e-12)
        S = strip_sum(axis, long, short) * long  # affine values grow with |z| <= long
        if not math.isfinite(S):
            break
        m = max(2, math.ceil(math.log(max(4.0 * S / ((r - 1.0) * allowed), 1.0)) / math.log(r) * (1 + 1e-12)))
        if best is None or m < best[0]:
            best = m, 4.0 * S * r**-m / (r - 1.0) * (1 + 1e-10)
    if best is None or best[0] > MOST_DEGREE.get(E, 0):
        raise Refused("the head is too steep for one polynomial per direction.")
    n = OVERSAMPLING * best[0]
    points = np.cos(PI * (2 * np.arange(n, dtype=np.longdouble) + 1) / (2 * n))
    a, b = axis.slopes.astype(np.longdouble), axis.offsets.astype(np.longdouble)
    scores = np.multiply.outer(points, a) + b
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(axis=1, keepdims=True)
    # rounding of points, logits, exp (4 ulp) and sums in the extended format; a moved point moves every logit difference
    spread = float(np.ptp(axis.slopes))
    logit = 4.0 * float(np.abs(axis.slopes).max() + np.abs(axis.offsets).max()) + spread + 30.0
    shaky = 2.0 * UNIT * logit + gamma(2 * len(axis) + 4, UNIT) + 16.0 * UNIT * spread
    return Grid(best[0], best[1], points, weights, shaky * (1 + 1e-9))


def along(matrix: NDArray[np.floating], tensor: NDArray[np.floating], axis: int) -> NDArray[np.floating]:
    """The matrix applied to one axis of a tensor."""
    return np.asarray(np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis))


def basis_at(kind: str, points: Extended, count: int) -> Extended:
    """(n, count): T_k or z^k at the points, in extended precision."""
    rows = np.ones((count, len(points)), dtype=np.longdouble)
    for k in range(1, count):
        if kind == "powers" or k == 1:
            rows[k] = rows[k - 1] * points
        else:
            rows[k] = 2 * points * rows[k - 1] - rows[k - 2]
    return rows.T


def powers_of(core: Extended, axis: int) -> Extended:
    """Chebyshev coefficients along one axis turned into those of powers."""
    count = core.shape[axis]
    table = np.zeros((count, count), dtype=np.longdouble)  # rows k: T_k in powers, exact integers
    table[0, 0] = 1
    if count > 1:
        table[1, 1] = 1
    for k in range(2, count):
        table[k, 1:] = 2 * table[k - 1, :-1]
        table[k] -= table[k - 2]
    return np.asarray(along(table.T, core, axis), dtype=np.longdouble)


def column_bounds(core: Array, axis: int, basis: str, unit: float) -> tuple[Array, Array]:
    """Per polynomial of a core: a bound of |p| on [-1, 1], and of its rounding by Horner's or Clenshaw's rule.

    Horner: sum_k gamma(2k + 2) |c_k|.  Clenshaw: a rounding d_k of b_k = c_k + 2 z b_{k+1} - b_{k+2} moves p by d_k T_k(z),
    |d_k| <= u (2|b_{k+1}| + |c_k| + |b_{k+2}| + |b_k|) and |b_k| <= sum_{j >= k} (j - k + 1)|c_j|.
    """
    c = np.moveaxis(np.abs(core.astype(np.float64)), axis, 0)
    count = len(c)
    k = np.arange(count).reshape(-1, *[1] * (c.ndim - 1))
    size = c.sum(axis=0) * (1 + 1e-12)
    if basis == "powers":
        return size, (gamma(2 * count + 2, unit) / (2 * count + 2) * (2 * k + 2) * c).sum(axis=0) * (1 + 1e-12)
    b = np.zeros((count + 2, *c.shape[1:]))
    tail = np.zeros(c.shape[1:])
    for i in range(count - 1, -1, -1):
        tail = tail + c[i]
        b[i] = b[i + 1] + tail  # sum_{j >= i} (j - i + 1) |c_j|
    steps = 2.0 * b[1 : count + 1] + c + b[2 : count + 2] + b[:count]
    return size, unit * (1 + 1e-12 + 8.0 * unit * count * count) * steps.sum(axis=0) * (1 + 1e-12)
