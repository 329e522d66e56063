"""What the kernels' arithmetic adds: rounding of series in the order in which the kernels sum them, and of the coordinates.

A series p = sum_k c_k T_k is computed by T_{k+1} = 2 z T_k - T_{k-1} and a sum from degree 0 upwards, one rounding each:

    a rounding d_j of T_j moves p by d_j b_j(z),  b_j = sum_{k >= j} c_k U_{k-j}  (Clenshaw's own quantities)
    a rounding of the sum after degree j moves p by u |S_j|,  S_j the partial sum;  rounded coefficients by sum |dc_k|

Suprema of polynomials of degree n over [-1, 1] are at most 1/cos(pi n / 2M) times the maximum over M Chebyshev points
(Ehlich and Zeller).  First-order sums are enlarged by 1 + 8 n^2 u + 1e-6 for everything of second order.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64, gamma

OVERSAMPLING = 8
SHORT = 4  # series of at most that many degrees are summed in one piece
TAIL = 1.0 / 32.0  # of the sum of |coefficients| that the second piece of a longer series holds


def split(core: Array) -> int:
    """The degree, an odd one, at which the second piece of the sum begins; the length of the series where there is one piece."""
    count = len(core)
    if count <= SHORT + 2:
        return count
    sizes = np.abs(core).max(axis=1)
    tails = np.cumsum(sizes[::-1])[::-1]
    first = int(np.count_nonzero(tails > TAIL * tails[0]))
    odd = max(SHORT + 1, first + 1 - first % 2)
    return odd if odd < count - 2 else count


def points(degree: int, oversampling: int = OVERSAMPLING) -> tuple[Array, float]:
    """Chebyshev points and the factor from a maximum over them to the supremum of a polynomial of that degree."""
    count = oversampling * max(degree, 1)
    z = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    return z, 1.0 / math.cos(math.pi * degree / (2.0 * count)) * (1 + 1e-9)


def series(core: Array, unit: float, complex_: bool = False) -> tuple[Array, Array, Array]:
    """Per column of (degree + 1, R): sup |p|, sup |p'| and the rounding of the kernels' evaluation; moduli of complex pairs."""
    if is_even(core):  # p(z) = q(w), w = 2 z^2 - 1 rounded once; p' = 4 z q'
        size, slope, lost = _series(core[::2], unit, complex_)
        return size, 4.0 * slope, lost + unit * (1 + 1e-6) * slope
    return _series(core, unit, complex_)


def is_even(core: Array) -> bool:
    """Whether all columns are series in T_0, T_2, T_4 .., long enough to be taken in T_2."""
    return len(core) > 4 and not core[1::2].any()


def _series(core: Array, unit: float, complex_: bool) -> tuple[Array, Array, Array]:
    count, rank = core.shape
    of = moduli if complex_ else np.abs
    z, factor = points(count - 1)
    T = np.cos(np.multiply.outer(np.arange(count), np.arccos(z)))  # (n, M)
    terms = core[:, None, :] * T[:, :, None]  # (n, M, R)
    cut = split(core)
    lower, upper = np.cumsum(terms[:cut], axis=0), np.cumsum(terms[cut:], axis=0)
    sums = np.abs(lower).max(axis=1)[1:].sum(axis=0) + np.abs(upper).max(axis=1).sum(axis=0)
    values = terms.sum(axis=0)
    whole = np.abs(values).max(axis=0)
    b_next, b_after = np.zeros((len(z), rank)), np.zeros((len(z), rank))
    shaken = np.zeros(rank)
    for j in range(count - 1, 1, -1):
        b = core[j] + 2.0 * z[:, None] * b_next - b_after
        shaken += np.abs(b).max(axis=0)
        b_next, b_after = b, b_next
    stored = np.abs(core - core.astype(np.float32)).sum(axis=0) if unit > FLOAT64.unit else np.zeros(rank)
    slack = 1.0 + 8.0 * count * count * unit + 1e-6
    lost = (unit * (factor * (sums + shaken + whole) + np.abs(core).sum(axis=0)) + stored) * slack
    steep = np.polynomial.chebyshev.chebder(core, axis=0) if count > 1 else np.zeros((1, rank))
    slope = of(np.tensordot(T[: len(steep)], steep, axes=(0, 0))).max(axis=0) * factor * (1 + 1e-9)
    return of(values).max(axis=0) * factor * (1 + 1e-9), slope, moduli(lost) if complex_ else lost


def coordinate(row: Array, centre: Array, reach: Array, unit: float) -> float:
    """|computed z - M (x - centre)| for |x - centre| <= reach, both clipped to [-1, 1].

    x - centre is rounded once unless the centre is zero; M has two parts, so that only the sums and the last rounding count.
    """
    size = np.abs(row) * reach
    centred = centre.astype(np.float32 if unit > FLOAT64.unit else np.float64) != 0.0
    error = unit * float(size[centred].sum())
    variables = int(np.count_nonzero(row))
    error += unit * float(size.sum()) * max(variables - 1, 0) + unit / 2.0 * max(1.0, float(size.sum()))
    exact = 4.0 * unit * unit if unit > FLOAT64.unit else unit  # M in one part
    return (error + exact * float(size.sum()) + 4.0 * FLOAT64.unit * float((np.abs(row) * np.abs(centre)).sum())) * (1 + 1e-6)


def moduli(columns: Array) -> Array:
    """Of columns in pairs, real and imaginary: (.., 2R) -> (.., R), rounded up a little."""
    return np.asarray(np.hypot(columns[..., ::2], columns[..., 1::2]) * (1 + 2.0**-50))


def of_products(
    rows: Array, cores: tuple[Array, ...], centre: Array, reach: Array, unit: float, complex_: bool = False
) -> tuple[float, float]:
    """Rounding of one term sum_r prod_e p_er, and what rounded coordinates cost, over the box.

    A complex product is off by at most sqrt(2) gamma(2) of its modulus, less than three roundings.
    """
    found = [series(core, unit, complex_) for core in cores]
    sizes = np.stack([one[0] for one in found])  # (E, R)
    lost = np.stack([one[2] for one in found])
    moved = 0.0
    for e, row in enumerate(rows):
        others = np.prod(np.delete(sizes + lost, e, axis=0), axis=0)
        moved += coordinate(row, centre, reach, unit) * float((found[e][1] * others).sum())
    whole = np.prod(sizes + lost, axis=0)
    evaluated = float((whole - np.prod(sizes, axis=0)).sum()) + 1e-15 * float(whole.sum())
    rank = cores[0].shape[1]
    additions = min(rank - 1, 2) + -(-rank // 4) - 1  # inside a chunk of four, then chunk by chunk
    evaluated += gamma((3 if complex_ else 1) * (len(rows) - 1) + additions, unit) * float(whole.sum())
    return evaluated, moved


def of_train(rows: Array, cores: tuple[Array, ...], centre: Array, reach: Array, unit: float) -> tuple[float, float]:
    """The same for a train p(z_1) P(z_2) q(z_3)."""
    parts = []
    for core in cores:
        before, count, after = core.shape
        size, slope, lost = series(np.moveaxis(core, 1, 0).reshape(count, before * after), unit)
        parts.append([part.reshape(before, after) for part in (size, slope, lost)])
    size, lost = np.ones(1), np.zeros(1)
    for core, (top, _, rounding) in zip(cores, parts, strict=True):
        moved = size @ rounding + lost @ (top + rounding)
        size = size @ top
        lost = moved + gamma(core.shape[0] + 4, unit) * (size + moved)
    drift = 0.0
    for e, row in enumerate(rows):
        state = np.ones(1)
        for i, (top, slope, rounding) in enumerate(parts):
            state = state @ ((slope if i == e else top) + rounding)
        drift += coordinate(row, centre, reach, unit) * float(state.max())
    return float(lost.max()) * (1 + 1e-9), drift
