"""Leave-one-out errors of ridge regression in closed form, for a whole path of ridges, and their gradient in the design matrix.

With weights w, ridge L and M = (A' W A + L I)^-1 the coefficients are c = M A' W y, the residuals r = y - A c, the leverage of
one copy of sample i is h_i = a_i' M a_i, and the residual that sample i would have, had one copy of it been left out, is
e_i = r_i / (1 - h_i).  The left-out error is sum_i w_i |e_i|^2.
"""

from typing import NamedTuple

import numpy as np

from maxaffine.core.arrays import Array

LEVERAGE = 1.0 - 1e-6  # no sample is its own whole answer: beyond this the quotient is rounding


class Ridge(NamedTuple):
    """The best of a path of ridges: its left-out error, the ridge (relative to the total weight), and the coefficients."""

    error: float
    ridge: float
    coefficients: Array


def best_ridge(A: Array, rows: Array, weights: Array, ridges: tuple[float, ...]) -> Ridge:
    """The ridge with the least left-out error: one eigendecomposition for all of them, of the smaller Gram matrix."""
    alive = weights > 0
    A, rows, weights = A[alive], rows[alive], weights[alive]
    root, total = np.sqrt(weights)[:, None], weights.sum()
    scaled, y = root * A, root * rows
    wide = A.shape[1] > A.shape[0]
    spectrum, V = np.linalg.eigh(scaled @ scaled.T if wide else scaled.T @ scaled)
    # Directions within rounding of none at all carry no fit; a ridge of zero is then the least-squares fit of least norm.
    seen = spectrum > 1e-12 * max(float(spectrum[-1]), 1e-300)
    spectrum, V = spectrum[seen], V[:, seen]
    U = V if wide else scaled @ V / np.sqrt(spectrum)
    projected, squares = U.T @ y, np.square(U) / weights[:, None]  # squares: of one copy of a sample
    shrink = spectrum[:, None] / (spectrum[:, None] + np.asarray(ridges) * total)  # a column per ridge
    room = 1.0 - np.clip(squares @ shrink, 0.0, LEVERAGE)
    errors = np.zeros(len(ridges))
    for output in range(y.shape[1]):
        left_out = (y[:, output, None] - U @ (shrink * projected[:, output, None])) / room
        errors += np.square(left_out).sum(axis=0)
    first = int(np.flatnonzero(errors <= errors.min() * (1 + 1e-9))[0])
    ridge = float(ridges[first])
    gain = (np.sqrt(spectrum) / (spectrum + ridge * total))[:, None] * projected
    back = scaled.T @ (V @ (gain / np.sqrt(spectrum)[:, None])) if wide else V @ gain
    return Ridge(float(errors[first]), ridge, back)


def left_out_gradient(A: Array, rows: Array, weights: Array, ridge: float) -> tuple[float, Array, float]:
    """Left-out error, its gradient in A, and its derivative in log ridge (relative to the total weight).

    From dc = M (dA' W r - A' W dA c) and dM = -M (dA' W A + A' W dA) M it is, with B = A M, g = 2 W e / (1 - h) and
    q = 2 w |e|^2 / (1 - h),

        -(g - W B A' g) c' - W r (B' g)' + 2 q B - 2 W A (B' q B).
    """
    amount = ridge * weights.sum()
    column = weights[:, None]
    M = np.linalg.inv(A.T @ (column * A) + amount * np.eye(A.shape[1]))
    B = A @ M
    c = B.T @ (column * rows)
    r = rows - A @ c
    room = 1.0 - np.minimum((A * B).sum(axis=1), LEVERAGE)
    e = r / room[:, None]
    squares = weights * np.square(e).sum(axis=1)
    g, q = 2.0 * column * e / room[:, None], 2.0 * squares / room
    gradient = -(g - column * (B @ (A.T @ g))) @ c.T - (column * r) @ (B.T @ g).T
    gradient += 2.0 * q[:, None] * B - 2.0 * column * (A @ (B.T @ (q[:, None] * B)))
    slope = float((g * (B @ c)).sum() - q @ np.square(B).sum(axis=1))
    return float(squares.sum()), gradient, amount * slope
