"""Polynomials of a few directions as tensor trains P_1(z_1) P_2(z_2) .. P_E(z_E) of matrices: cut short, split, summed, rounded.

Cores are (R_{e-1}, degree_e + 1, R_e), R_0 = 1, and R_E = K columns come out.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import gamma
from maxaffine.runtime.collapse_directions import Extended, basis_at, column_bounds


def truncated(tensor: NDArray[np.floating], room: float) -> Extended:
    """The coefficients of few degrees: those left out sum to about `room`."""
    E = tensor.ndim - 1
    for e in range(E):
        slabs = np.abs(tensor).max(axis=-1).sum(axis=tuple(i for i in range(E) if i != e)).astype(np.float64)
        tails = np.cumsum(slabs[::-1])[::-1]  # tails[k]: everything of degree k and more
        tensor = np.take(tensor, np.arange(max(1, int(np.count_nonzero(tails > room / E)))), axis=e)
    return tensor.astype(np.longdouble)


def split(coefficients: Extended, room: float) -> list[Extended]:
    """A tensor train of the coefficients within about `room`: cores (R_{e-1}, degree + 1, R_e)."""
    E = coefficients.ndim - 1
    cores: list[Extended] = []
    rest = coefficients[None]
    for _ in range(E - 1):
        rank, count = rest.shape[:2]
        matrix = rest.reshape(rank * count, -1)
        left, values, _right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
        # the sum of |coefficients| of a discarded term is at most sigma |u|_1 |v|_1
        weight = values * np.abs(left).sum(axis=0) * np.abs(_right).sum(axis=1)
        tails = np.cumsum(weight[::-1])[::-1]
        kept = max(1, int(np.count_nonzero(tails > room / (E - 1))))
        scale = np.sqrt(values[:kept] / values[0]) if values[0] > 0 else np.ones(kept)
        scale[scale == 0] = 1.0
        basis = left[:, :kept].astype(np.longdouble)
        rest = ((basis.T @ matrix) / scale[:, None]).reshape(kept, *coefficients.shape[len(cores) + 1 :])
        cores.append((basis * scale).reshape(rank, count, kept))
    return [*cores, rest]


def train_at(cores: Sequence[Array], points: Sequence[Extended], kind: str) -> Extended:
    """The train at all points (n_1, .., n_E, K), in extended precision."""
    state: NDArray[np.floating] = np.ones((1, 1), dtype=np.longdouble)  # (points so far, R)
    shape: list[int] = []
    for core, z in zip(cores, points, strict=True):
        table = np.tensordot(basis_at(kind, z, core.shape[1]), core.astype(np.longdouble), axes=(1, 1))  # (n, a, b)
        state = np.tensordot(state, table, axes=(1, 1)).reshape(-1, core.shape[2])
        shape.append(len(z))
    return state.reshape(*shape, -1).astype(np.longdouble)


def train_doubt(cores: Sequence[Array], kind: str, unit: float) -> Array:
    """A bound of the rounding of every column of the train in arithmetic of unit roundoff `unit`: (K,)."""
    size, lost = np.ones(1), np.zeros(1)
    for core in cores:
        top, rounding = column_bounds(core, 1, kind, unit)  # (R_{e-1}, R_e)
        moved = size @ rounding + lost @ (top + rounding)
        size = size @ top
        lost = (moved + gamma(core.shape[0] + 2, unit) * (size + moved)) * (1 + 1e-12)
    return lost
