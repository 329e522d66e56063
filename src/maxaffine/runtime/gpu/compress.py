"""Shorter sums of products: the fewest terms of two or three directions that say the same to within a proved room.

A sum over r of p_r(z_1) q_r(z_2), or a train p(z_1) P(z_2) q(z_3), is put in the order of its singular values, and the smallest
are left out as long as

    sup |left out| <= prod_e C_e max over Chebyshev points |left out|,     C = 1/cos(pi n / 2M)   (Ehlich and Zeller)

stays within the room: singular values of coefficients alone overstate what a term can do at any one point.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.runtime.gpu.rounding import points

TRIALS = 48
MOST_POINTS = 2_000_000


def fewest_products(cores: tuple[Array, ...], room: float) -> tuple[tuple[Array, ...], float]:
    """Cores (n_e, R') of as few products as the room allows, and the supremum of what was left out.  Two directions only."""
    if len(cores) != 2 or cores[0].shape[1] < 2:
        return cores, 0.0
    first, second = (np.asarray(core, dtype=np.float64) for core in cores)
    q1, r1 = np.linalg.qr(first)
    q2, r2 = np.linalg.qr(second)
    left, values, right = np.linalg.svd(r1 @ r2.T, full_matrices=False)  # a core may have fewer rows than columns
    u, v = q1 @ left * np.sqrt(values), q2 @ right.T * np.sqrt(values)
    (T1, C1), (T2, C2) = _basis(len(first)), _basis(len(second))
    exact = (T1 @ first) @ (T2 @ second).T
    at1, at2 = T1 @ u, T2 @ v
    rounding = 1e-13 * float((np.abs(T1 @ first) @ np.abs(T2 @ second).T).max())
    for rank in range(1, len(values)):
        away = float(np.abs(exact - at1[:, :rank] @ at2[:, :rank].T).max())
        lost = (C1 * C2 * (away + rounding)) * (1 + 1e-9)
        if lost <= room:
            return (u[:, :rank].copy(), v[:, :rank].copy()), lost
    return cores, 0.0


def fewest_train(cores: tuple[Array, ...], room: float) -> tuple[tuple[Array, ...], float]:
    """A train of three directions with ranks as small as the room allows, and the supremum of what was left out."""
    (_, n0, R0), (_, n1, R1), (_, n2, K) = (core.shape for core in cores)
    bases = [_basis(n, 3) for n in (n0, n1, n2)]
    if math.prod(len(T) for T, _ in bases) * K > MOST_POINTS or room <= 0:
        return cores, 0.0
    whole = np.einsum("akb,blc,cmd->klmd", *cores)  # (n0, n1, n2, K)
    exact = _at(whole, bases)
    size = np.einsum("akb,blc,cmd->d", *(np.abs(core) for core in cores)).max()
    factor = math.prod(C for _, C in bases)
    left, values, right = np.linalg.svd(whole.reshape(n0, -1), full_matrices=False)
    pairs = [(a, b) for a in range(1, R0 + 1) for b in range(1, R1 + 1) if (a, b) != (R0, R1)]
    pairs.sort(key=lambda pair: (pair[0] * pair[1] * n1 + pair[0] * n0 + pair[1] * n2, pair))
    for a, b in pairs[:TRIALS]:
        rest = (values[:a, None] * right[:a]).reshape(a * n1, n2 * K)
        u, s, v = np.linalg.svd(rest, full_matrices=False)
        b = min(b, len(s))
        shorter = left[:, :a][None], u[:, :b].reshape(a, n1, b), (s[:b, None] * v[:b]).reshape(b, n2, K)
        away = float(np.abs(exact - _at(np.einsum("akb,blc,cmd->klmd", *shorter), bases)).max())
        lost = factor * (away + 1e-13 * size) * (1 + 1e-9)
        if lost <= room:
            return tuple(np.ascontiguousarray(core) for core in shorter), lost
    return cores, 0.0


def as_products(cores: tuple[Array, ...], output: int) -> tuple[Array, ...]:
    """One output of a train with ranks R, R' as R R' products."""
    first, middle, last = cores
    R0, R1 = middle.shape[0], middle.shape[2]
    return (
        np.repeat(first[0], R1, axis=1),
        np.moveaxis(middle, 1, 0).reshape(middle.shape[1], R0 * R1),
        np.tile(last[:, :, output].T, (1, R0)),
    )


def _basis(count: int, oversampling: int = 8) -> tuple[Array, float]:
    """T_0 .. T_{count-1} at Chebyshev points, and Ehlich and Zeller's factor."""
    z, factor = points(count - 1, oversampling)
    return np.cos(np.multiply.outer(np.arccos(z), np.arange(count))), factor


def _at(coefficients: Array, bases: list[tuple[Array, float]]) -> Array:
    """Values at all points of a product of three sets."""
    for e, (T, _) in enumerate(bases):
        coefficients = np.moveaxis(np.tensordot(T, coefficients, axes=(1, e)), 0, e)
    return coefficients
