"""Layers side by side by their literal form: one softmax over the tokens of all parts, once per group."""

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.side_by_side import OutputsLayer
from maxaffine.runtime import grouped


def evaluate(layer: OutputsLayer, x: Array) -> AnyArray:
    """F(x): (B, d_out, n_out); values of a part are zero in the rows of others, and W_O hands a column to its output token."""
    compute = compute_dtype(layer.dtype)
    places = [part.seen(x) for part in layer.parts]
    logits = [one for part, own in zip(layer.parts, places, strict=True) for one in grouped.literal_logits(part.layer, own, True)]
    edges = np.cumsum([0, *(one.shape[1] for one in logits)])
    values = np.zeros((len(x), layer.d_out, layer.tokens))
    token = 0
    for part, own in zip(layer.parts, places, strict=True):
        block = slice(token, token + part.layer.tokens)
        said = grouped.literal_values(part.layer, own, True)  # (K, N) or (B, K, N)
        for k, row in enumerate(layer.rows(part)):
            values[:, row, block] = said[..., k, :]
        token = block.stop
    out = np.zeros((len(x), layer.d_out, layer.n_out))
    for g, (part, _) in enumerate(layer.members()):
        scores = np.concatenate(logits, axis=1)
        scores[:, edges[g] : edges[g + 1]] += compute.type(layer.bonus)
        column = grouped.tree_sum(grouped.weights(scores)[:, None, :] * values)
        for token, sign in part.columns(layer.n_out):
            out[:, :, token] += sign * column
    return out.astype(compute)


def bytes_per_query(layer: OutputsLayer) -> int:
    """Bytes per query of the logits and values of all tokens."""
    return 8 * (6 + (4 if layer.is_affine else 2) * layer.d_out) * layer.tokens
