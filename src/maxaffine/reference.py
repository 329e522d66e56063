"""The definition: a sum of linear maps, then one softmax attention head.  NumPy, float64.

    Linear(X)       = sum_i P_i X Q_i + R_0                              (p, m)
    Attn_s(Z)       = W_V Z   softmax((W_K Z)^T   W_Q Z)   W_O            self
    Attn_c(Z_K,Z_Q) = W_V Z_K softmax((W_K Z_K)^T W_Q Z_Q) W_O            cross

Tokens are columns, the softmax acts on columns, and no scale is hidden: the 1/sqrt(d_k) of library
attention is part of W_Q here.  Every other implementation in maxaffine is judged against this file.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(logits: Array) -> Array:
    """Column softmax, exp(l - max l) / sum exp(l - max l): columns are positive and sum to one."""
    shifted = np.exp(logits - logits.max(axis=-2, keepdims=True))  # (keys, queries)
    return np.asarray(shifted / shifted.sum(axis=-2, keepdims=True))


def linear(X: Array, P: Sequence[Array], Q: Sequence[Array], R_0: Array) -> Array:
    """Linear(X) = sum_i P_i X Q_i + R_0, the general affine map from (d, n) to (p, m) matrices."""
    Z = np.array(R_0, dtype=np.float64)  # (p, m)
    for P_i, Q_i in zip(P, Q, strict=True):
        Z = Z + P_i @ X @ Q_i  # (p, d) (d, n) (n, m)
    return Z


def attention_weights(Z_K: Array, Z_Q: Array, W_K: Array, W_Q: Array) -> Array:
    """softmax((W_K Z_K)^T W_Q Z_Q): one column of weights over the keys per query."""
    return softmax((W_K @ Z_K).T @ (W_Q @ Z_Q))  # (m_k, k) (k, m_q) -> (m_k, m_q)


def self_attention(Z: Array, W_Q: Array, W_K: Array, W_V: Array, W_O: Array) -> Array:
    """Attn_s(Z) = W_V Z softmax((W_K Z)^T W_Q Z) W_O: (d_out, n_out)."""
    return cross_attention(Z, Z, W_Q, W_K, W_V, W_O)


def cross_attention(Z_K: Array, Z_Q: Array, W_Q: Array, W_K: Array, W_V: Array, W_O: Array) -> Array:
    """Attn_c(Z_K, Z_Q) = W_V Z_K softmax((W_K Z_K)^T W_Q Z_Q) W_O: (d_out, n_out)."""
    weights = attention_weights(Z_K, Z_Q, W_K, W_Q)  # (m_k, m_q)
    return (W_V @ Z_K) @ weights @ W_O  # (d_out, m_k) (m_k, m_q) (m_q, n_out)


def lookup(logits: Array, values: Array) -> Array:
    """sum_j softmax_j(logits) values_j, what a compiled layer says: logits (N,), values (N, d_out, n_out)."""
    return np.asarray(np.einsum("j,jrc->rc", softmax(logits[:, None])[:, 0], values))
