"""The gradient, centred on the token that attention prefers, in the log domain: it neither cancels nor underflows.

    -grad L = (1/n) sum_i |l'_i| sum_{t != j_i} a_it (m_i - gamma_it + gamma_ij) (k_ij - k_it),
    j_i = argmax_t a_it,   m_i = sum_t a_it (gamma_it - gamma_ij)

The usual form, with k_it minus its mean, gives exactly 0 for an input once 1 - a_ij < 1e-16: its support pairs, which decide
the direction, then no longer count, and descent turns to a wrong limit. Here every weight is kept as a logarithm.
"""

from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.margin.losses import Loss


@dataclass(frozen=True)
class Pull:
    """-grad L = exp(log_size) direction, and what was met on the way; leading axes are those of p."""

    direction: Array  # (.., d), unit, or 0 where the gradient is exactly 0
    log_size: Array  # (..,)
    chosen: AnyArray  # (.., n): j_i
    log_weights: Array  # (.., n, T): log a_it
    advantage: Array  # (.., n): m_i <= 0 where the preferred token is the best


def log_attention(keys: Array, p: Array) -> Array:
    """log softmax of k_it . p: (.., n, T)."""
    logits: Array = np.einsum("ntd,...d->...nt", keys, p)
    top = logits.max(axis=-1, keepdims=True)
    shifted = logits - top
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def pull(keys: Array, scores: Array, loss: Loss, p: Array) -> Pull:
    """-grad L at queries p (.., d); scores (n, T) or (.., n, T)."""
    log_a = log_attention(keys, p)
    chosen = log_a.argmax(axis=-1)
    scores = np.broadcast_to(scores, log_a.shape)
    of_chosen = np.take_along_axis(scores, chosen[..., None], axis=-1)
    behind = scores - of_chosen  # gamma_it - gamma_ij, 0 at j
    advantage, log_m, sign_m = _mean(log_a, behind)
    drive = advantage[..., None] - behind
    with np.errstate(divide="ignore"):
        # a tie with the chosen token is driven by m alone, which may be too small for a float
        log_drive = np.where(behind == 0, log_m[..., None], np.log(np.abs(drive)))
    sign = np.where(behind == 0, sign_m[..., None], np.sign(drive))
    log_pull = log_a + log_drive + loss.log_slope(of_chosen[..., 0] + advantage)[..., None]
    np.put_along_axis(log_pull, chosen[..., None], -np.inf, axis=-1)
    top = log_pull.max(axis=(-2, -1))
    finite = np.where(np.isfinite(top), top, 0.0)
    weights = sign * np.exp(log_pull - finite[..., None, None])
    flat_keys = keys.reshape(-1, keys.shape[-1])
    own = weights.sum(axis=-1)
    total = np.einsum("...m,md->...d", weights.reshape(*weights.shape[:-2], -1), -flat_keys)
    total = total + np.einsum("...n,...nd->...d", own, keys[np.arange(len(keys)), chosen])
    size = np.linalg.norm(total, axis=-1)
    with np.errstate(divide="ignore"):
        log_size = np.where(np.isfinite(top), finite + np.log(size) - np.log(len(keys)), -np.inf)
    return Pull(total / np.where(size > 0, size, 1.0)[..., None], log_size, chosen, log_a, advantage)


def _mean(log_a: Array, behind: Array) -> tuple[Array, Array, Array]:
    """m = sum a behind, log |m| and its sign, by a signed log-sum-exp."""
    with np.errstate(divide="ignore"):
        terms = log_a + np.log(np.abs(behind))
    top = terms.max(axis=-1)
    finite = np.where(np.isfinite(top), top, 0.0)
    total = (np.sign(behind) * np.exp(terms - finite[..., None])).sum(axis=-1)
    with np.errstate(divide="ignore"):
        log_m = np.where(np.isfinite(top), finite + np.log(np.abs(total)), -np.inf)
    return np.sign(total) * np.exp(log_m), log_m, np.sign(total)


def leakage(log_weights: Array, tokens: AnyArray) -> Array:
    """1 - a_i,alpha, summed over the other tokens so that it keeps its digits: (.., n)."""
    a = np.exp(log_weights)
    np.put_along_axis(a, np.broadcast_to(tokens, a.shape[:-1])[..., None], 0.0, axis=-1)
    total: Array = a.sum(axis=-1)
    return total


def gap(keys: Array, scores: Array, loss: Loss, p: Array, tokens: AnyArray) -> Array:
    """L(p) - L_alpha, where L_alpha has all attention on the chosen tokens; keeps its digits when tiny: (..,)."""
    at_chosen = scores[np.arange(len(scores)), tokens]
    behind = scores - at_chosen[:, None]
    advantage: Array = (np.exp(log_attention(keys, p)) * behind).sum(axis=-1)
    found: Array = loss.change(at_chosen, advantage).mean(axis=-1)
    return found
