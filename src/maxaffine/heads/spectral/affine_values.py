"""Values affine in z on product keys: c_j + G_j z by ridge least squares, solved block by block.

Along one axis let B be the weights at the sample points and zB the same times z; zB = U C + Q with U a basis of B and Q what
lies outside it.  On a product of axes the columns of G_e reach the block (Q along e, U along the others), which no other column
touches: a ridge problem of its own that factorises.  What G_e puts into the block (U, .., U) is taken off the samples before
c is fitted there, so that (E + 1) N unknowns cost E + 1 Kronecker solves and no large matrix is ever formed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.fitting import spread
from maxaffine.layer.spectral_keys import SpectralAxis, weights


@dataclass(frozen=True)
class Basis:
    """One axis: weights W = U diag(S) Vt, z W = U C + Q diag(T) Rt."""

    U: Array
    S: Array
    Vt: Array
    C: Array
    Q: Array
    T: Array
    Rt: Array

    @classmethod
    def of(cls, axis: SpectralAxis, grid: Array) -> "Basis":
        """The bases of W and z W at the points of a grid."""
        W = weights(axis.keys, grid)
        U, S, Vt = np.linalg.svd(W, full_matrices=False)
        tall = grid[:, None] * W
        C = U.T @ tall
        rest = tall - U @ C
        rest -= U @ (U.T @ rest)
        return cls(U, S, Vt, C, *np.linalg.svd(rest, full_matrices=False))


def affine_values(bases: Sequence[Basis], samples: Array, damping: float) -> tuple[Array, Array]:
    """Values c (N_1, .., N_E, K) and slopes G (.., K, E) for samples on the product of the bases' grids."""
    E, damping = len(bases), min(damping, 1e100)  # its square is a number
    core = spread([b.U.T for b in bases], samples)
    slopes = []
    for e in range(E):
        left = spread([b.Q.T if i == e else b.U.T for i, b in enumerate(bases)], samples)
        singular = _outer([b.T if i == e else b.S for i, b in enumerate(bases)])
        solved = left * (singular / (singular**2 + damping**2))[..., None]
        G = spread([b.Rt.T if i == e else b.Vt.T for i, b in enumerate(bases)], solved)
        core = core - spread([b.C if i == e else b.S[:, None] * b.Vt for i, b in enumerate(bases)], G)
        slopes.append(G)
    singular = _outer([b.S for b in bases])
    values = spread([b.Vt.T for b in bases], core * (singular / (singular**2 + damping**2))[..., None])
    return values, np.stack(slopes, axis=-1)


def _outer(rows: list[Array]) -> Array:
    total = rows[0]
    for row in rows[1:]:
        total = np.multiply.outer(total, row)
    return total
