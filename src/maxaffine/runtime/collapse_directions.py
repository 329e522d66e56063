"""One direction of a collapse: Chebyshev points with the weights there, what is left beyond a degree, bases and their bounds.

What is left follows from how large the weights of a head become on a complex strip around its real interval.  For z = x + iy the
weights w_j(z) of keys a_j, b_j satisfy sum_j |w_j(z)| <= S with

    Bernstein keys of step delta, up to tau = max_j (|da_j||z| + |db_j|):   S = e^tau S0 / (1 - (e^tau - 1) S0),
                                                                            S0 = cos(delta y/2)^-n
any keys, |x - c| <= r':   S = 1/(1 - y^2 V/2),   V = sum_j w_j(c) (a_j - abar)^2 e^{|a_j - abar| r'},   abar = sum_j w_j(c) a_j

The second is taken on short pieces that cover the strip.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.polynomial.polynomial import polyvander
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import log_binomials

Extended = NDArray[np.longdouble]

UNIT = float(np.finfo(np.longdouble).eps) / 2.0  # 80-bit numbers where the platform has them, else float64
PI = np.longdouble("3.14159265358979323846264338327950288")
RADII = tuple(1.0 + 10.0**e for e in np.linspace(-2.0, 1.0, 25))
MOST_DEGREE = {1: 1500, 2: 600, 3: 100, 4: 36}
MOST_PIECES = 4000
OVERSAMPLING = 2  # Chebyshev points per degree at which the collapse is compared


def strip_sum(keys: AxisKeys, reach: float, height: float) -> float:
    """S for |Re z| <= reach, |Im z| <= height; infinite where nothing is known."""
    return min(_bernstein(keys, reach, height), _pieces(keys, reach, height))


def _bernstein(keys: AxisKeys, reach: float, height: float) -> float:
    a, b = keys.slopes.astype(np.float64), keys.offsets.astype(np.float64)
    n = len(a) - 1
    if n == 0:
        return 1.0
    delta = float(a[-1] - a[0]) / n
    if delta <= 0 or delta * height >= 3.14:
        return math.inf
    ideal, logs = a[0] + delta * np.arange(n + 1), log_binomials(n)
    shift = float(np.median(b - logs))
    moved = (np.abs(a - ideal) + 8 * FLOAT64.unit * np.abs(ideal)) * math.hypot(reach, height) + np.abs(b - logs - shift)
    tau = float(moved.max()) + 64 * FLOAT64.unit * (1.0 + n + float(np.abs(b).max()))
    exact = math.cos(delta * height / 2.0) ** -n * (1 + 1e-12 * (n + 1))
    rest = 1.0 - math.expm1(tau) * exact if tau < 1.0 else -1.0
    return math.exp(tau) * exact / rest if rest > 0 else math.inf


def _pieces(keys: AxisKeys, reach: float, height: float) -> float:
    a, b = keys.slopes.astype(np.float64), keys.offsets.astype(np.float64)
    spread = float(np.ptp(a))
    count = int(np.clip(4.0 * spread * reach, 4, MOST_PIECES))
    half = reach / count * (1 + 1e-12)
    centres = reach * (-1.0 + (2.0 * np.arange(count) + 1.0) / count)
    logs = np.multiply.outer(centres, a) + b
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    away = np.abs(a - (np.exp(logs) @ a)[:, None])
    size = float(np.abs(a).max()) * (1.0 + 2.0 * reach) + float(np.abs(b).max())
    with np.errstate(over="ignore"):
        # In logarithms: a key whose weight at the centre underflows may rule at the end of a piece.
        variance = (away**2 * np.exp(logs + away * half)).sum(axis=1) * (1 + 1e-9)
        variance *= np.exp(8.0 * FLOAT64.unit * (len(a) + 2) * size)  # rounding of the weights and of the mean
    rest = 1.0 - height * height * float(variance.max()) / 2.0
    return 1.0 / rest if rest > 0 else math.inf


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
    table = polyvander if kind == "powers" else chebvander
    return np.asarray(table(points, count - 1))


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
