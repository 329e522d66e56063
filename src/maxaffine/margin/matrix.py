"""Training W, or K and Q with W = K Q^T, instead of the query: logits x_it.W z_i, the same problem with keys vec(x_it z_i^T).

With one query z for all inputs, descent on W with step eta is descent on p = W z with step eta |z|^2, exactly. The machine of W
is ATT-SVM in the Frobenius norm; that of (K, Q) is said (abstract of "Transformers as Support Vector Machines") to be the one in
the nuclear norm, which is solved here with a duality gap.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput
from maxaffine.margin.gradient import pull
from maxaffine.margin.losses import loss_of
from maxaffine.margin.problem import Tokens, numbers
from maxaffine.margin.svm import att_svm


def lift(X: Any, Z: Any, scores: Any) -> Tokens:
    """Tokens X (n, T, d) with queries Z (n, d) as tokens in d^2 dimensions: k.vec(W) = x.W z."""
    x = numbers("X", X, 3, "(inputs, tokens, dimension)")
    z = numbers("Z", Z, 2, "(inputs, dimension)")
    if len(z) != len(x):
        raise BadInput(f"`Z` has {len(z)} queries for {len(x)} inputs; there must be one per input.")
    return Tokens(np.einsum("ntd,ne->ntde", x, z).reshape(*x.shape[:2], -1), scores)


def factor_ngd(
    problem: Tokens, K: Array, Q: Array, loss: str = "log", step: float = 0.1, steps: int = 1000
) -> tuple[Array, Array]:
    """Normalised descent on K and Q together, of a lifted problem; where they end."""
    chosen, shape = loss_of(loss), (K.shape[0], Q.shape[0])
    K, Q = K.astype(np.float64), Q.astype(np.float64)
    for _ in range(steps):
        D = pull(problem.keys, problem.scores, chosen, (K @ Q.T).ravel()).direction.reshape(shape)
        on_K, on_Q = D @ Q, D.T @ K
        size = float(np.hypot(np.linalg.norm(on_K), np.linalg.norm(on_Q)))
        if size == 0:
            break
        K, Q = K + step / size * on_K, Q + step / size * on_Q
    return K, Q


@dataclass(frozen=True)
class NuclearSvm:
    """argmin |W|_* with the chosen tokens separated by 1; `below` is a proved lower bound of the least |W|_*."""

    W: Array
    norm: float
    below: float


def nuclear_svm(problem: Tokens, tokens: AnyArray, shape: tuple[int, int]) -> NuclearSvm:
    """min (|K|^2 + |Q|^2)/2 over K Q^T, which is the nuclear norm; any multipliers with |sum lambda g|_op <= 1 bound it below."""
    frobenius = att_svm(problem.keys, tokens)
    G, (rows, columns) = frobenius.differences.reshape(-1, *shape), shape
    rank = min(shape)
    u, s, vt = np.linalg.svd(frobenius.p.reshape(shape), full_matrices=False)
    root_s = np.sqrt(s + 1e-3 * s[0])

    def split(state: Array) -> tuple[Array, Array]:
        return state[: rows * rank].reshape(rows, rank), state[rows * rank :].reshape(columns, rank)

    def margins(state: Array) -> Array:
        K, Q = split(state)
        return np.asarray(np.einsum("mij,ir,jr->m", G, K, Q) - 1.0)

    def slopes(state: Array) -> Array:
        K, Q = split(state)
        return np.concatenate([(G @ Q).reshape(len(G), -1), (G.transpose(0, 2, 1) @ K).reshape(len(G), -1)], axis=1)

    done = minimize(
        lambda state: (0.5 * float(state @ state), state), np.concatenate([(u * root_s).ravel(), (vt.T * root_s).ravel()]),
        jac=True, method="SLSQP", constraints={"type": "ineq", "fun": margins, "jac": slopes},
        options={"maxiter": 500, "ftol": 1e-13},
    )  # fmt: skip
    K, Q = split(done.x)
    W = K @ Q.T
    W = W / min(1.0, float(np.einsum("mij,ij->m", G, W).min()))
    lam, _ = nnls(slopes(done.x).T, done.x)
    largest = float(np.linalg.norm(np.einsum("m,mij->ij", lam, G), 2))
    return NuclearSvm(W, float(np.linalg.norm(W, "nuc")), float(lam.sum()) / max(largest, 1e-300))
