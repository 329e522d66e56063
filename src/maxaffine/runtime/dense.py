"""`dense`: the literal softmax over all N keys, in chunks of queries that fit the workspace."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.layer.layer import Layer
from maxaffine.runtime import softmax

Array = NDArray[Any]


def attention(layer: Layer, x: NDArray[np.float64]) -> Array:
    """The attention weights (B, N) of every key for every query, keys in row-major order."""
    slopes, offsets = layer.keys.listed()
    return softmax.weights(softmax.logits(layer, softmax.coordinates(layer, x), slopes, offsets))


def evaluate(layer: Layer, x: NDArray[np.float64]) -> Array:
    """F(x) = sum_j alpha_j(x) (c_j + G_j z): (B, d_out, n_out)."""
    alpha = attention(layer, x)  # (B, N)
    count = layer.keys.count
    out = alpha @ layer.values.reshape(count, -1)  # (B, d_out n_out)
    if layer.slopes is not None:
        z = softmax.coordinates(layer, x)
        mixed = alpha @ layer.slopes.reshape(count, -1)  # (B, d_out n_out E)
        out += np.einsum("bke,be->bk", mixed.reshape(len(x), -1, z.shape[1]), z)
    return out.reshape(len(x), layer.d_out, layer.n_out)


def bytes_per_query(layer: Layer) -> int:
    """Bytes per query: one row of logits and its copies."""
    return 2 * layer.keys.count * layer.values.itemsize
