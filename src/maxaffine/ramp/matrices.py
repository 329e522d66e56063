"""The literal matrices of ramp heads: Z = sum_i P_i X Q_i + R_0, then softmax attention by the definition.

    rows of Z  [ w_i * x_i (d) ; t_i ; 1 ; k ; k (L_0 + L_k) ; L_k ]      one column per token, m = max(n, p + 1) of them
    W_Q        rows w * x, t, 1           W_K  2 beta on the row k, d + 1 times; -beta on the row k (L_0 + L_k)
    W_V        row L_k                    so logit = beta (2 k s - k (L_0 + L_k)),  s = w . x + t

A linear map may mix and lengthen the sequence here, as in the paper; with H heads of n tokens nothing is lengthened.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from maxaffine import reference
from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.ramp.head import RampHead, RampHeads

SILENT = 1000.0  # below the logit of site 0: a weight of exactly 0


@dataclass(frozen=True)
class HeadMatrices:
    """Of one attention head on Z: W_Q, W_K, W_V, W_O."""

    W_Q: Array
    W_K: Array
    W_V: Array
    W_O: Array

    def __call__(self, Z: Array) -> Array:
        """Attention by its definition."""
        return reference.self_attention(Z, self.W_Q, self.W_K, self.W_V, self.W_O)


@dataclass(frozen=True)
class Literal:
    """A linear map and heads whose outputs are added up, with a constant."""

    P: tuple[Array, ...]
    Q: tuple[Array, ...]
    R_0: Array
    heads: tuple[HeadMatrices, ...]
    constant: float = 0.0

    def __call__(self, X: ArrayLike) -> Array:
        """From X (d, n) to the ramps of its tokens (1, n)."""
        Z = reference.linear(np.asarray(X, dtype=np.float64), self.P, self.Q, self.R_0)
        return np.asarray(sum(head(Z) for head in self.heads) + self.constant)


def _mapped(w: Array, t: Array, rows: int, columns: int) -> tuple[tuple[Array, ...], tuple[Array, ...], Array]:
    """P_i, Q_i and the rows w_i * x_i, t_i, 1 of R_0; one product where all w_i are equal."""
    n, d = w.shape
    R_0 = np.zeros((rows, columns))
    R_0[d, :n], R_0[d + 1] = t, 1.0
    alike = bool((w == w[0]).all())
    P, Q = [], []
    for i in range(1 if alike else n):
        scale, place = np.zeros((rows, d)), np.zeros((n, columns))
        scale[:d] = np.diag(w[i])
        place[range(n) if alike else [i], range(n) if alike else [i]] = 1.0
        P.append(scale)
        Q.append(place)
    return tuple(P), tuple(Q), R_0


def inputs(w: ArrayLike, t: ArrayLike) -> tuple[Array, Array]:
    """Weights (n, d) and shifts (n,), checked."""
    weights, shifts = np.atleast_2d(np.asarray(w, dtype=np.float64)), np.atleast_1d(np.asarray(t, dtype=np.float64))
    if weights.ndim != 2 or shifts.shape != weights.shape[:1]:
        raise BadInput(f"`w` {weights.shape} must be (n, d) and `t` {shifts.shape} (n,): one direction and shift per token.")
    if not (np.isfinite(weights).all() and np.isfinite(shifts).all()):
        raise BadInput("`w` and `t` must be finite numbers.")
    return weights, shifts


def _selecting(d: int, rows: int) -> Array:
    W_Q = np.zeros((d + 2, rows))
    W_Q[range(d + 2), range(d + 2)] = 1.0
    return W_Q


def head_matrices(head: RampHead, w: ArrayLike, t: ArrayLike) -> Literal:
    """One head that says Range_[a,b](w_i . x_i + t_i) in every token i; the linear map lengthens n tokens to p + 1.

    Where more tokens come in than there are sites, those without a site have a logit of -SILENT, and site 0 always has 0.
    """
    weights, shifts = inputs(w, t)
    n, d = weights.shape
    m, rows = max(n, head.tokens), d + 5
    P, Q, R_0 = _mapped(weights, shifts, rows, m)
    k, L = np.arange(head.tokens), head.sites
    R_0[d + 3] = SILENT / head.beta
    R_0[d + 2 :, : head.tokens] = k, k * (L[0] + L), L
    W_K = np.zeros((d + 2, rows))
    W_K[: d + 1, d + 2], W_K[d + 1, d + 3] = 2.0 * head.beta, -head.beta
    W_V = np.zeros((1, rows))
    W_V[0, d + 4] = 1.0
    return Literal(P, Q, R_0, (HeadMatrices(_selecting(d, rows), W_K, W_V, np.eye(m)[:, :n]),))


def heads_matrices(heads: RampHeads, w: ArrayLike, t: ArrayLike) -> Literal:
    """H heads on the n tokens themselves: a token-wise linear map, positions k and k^2 as its encoding, no token added."""
    weights, shifts = inputs(w, t)
    n, d = weights.shape
    if n != heads.n:
        raise BadInput(f"`n` (={heads.n}) must be the number of tokens that come in, {n}.")
    rows, k = d + 4, np.arange(n)
    P, Q, R_0 = _mapped(weights, shifts, rows, n)
    R_0[d + 2], R_0[d + 3] = k, k**2
    beta, found = heads.rho / (2.0 * heads.step), []
    for h in range(heads.H):
        low = heads.a + h * (heads.n - 1) * heads.step
        W_K, W_V = np.zeros((d + 2, rows)), np.zeros((1, rows))
        W_K[: d + 1, d + 2] = 2.0 * beta
        W_K[d + 1, d + 2], W_K[d + 1, d + 3] = -2.0 * beta * low, -beta * heads.step
        W_V[0, d + 2] = heads.step
        found.append(HeadMatrices(_selecting(d, rows), W_K, W_V, np.eye(n)))
    return Literal(P, Q, R_0, tuple(found), heads.a)
