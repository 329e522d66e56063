"""`blocked`: streaming log-sum-exp over blocks of keys; memory is bounded for any number of keys.

After a block with logits l the running maximum m, normaliser s and numerator o become

    m' = max(m, max l),   s' = s e^{m - m'} + sum e^{l - m'},   o' = o e^{m - m'} + sum e^{l - m'} c.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.layer.layer import Layer
from maxaffine.runtime import softmax

Array = NDArray[Any]

BLOCK = 4096  # keys at a time: their listed slopes and one row of logits per query stay in the cache


def evaluate(layer: Layer, x: NDArray[np.float64]) -> Array:
    """F(x) = sum_j alpha_j(x) (c_j + G_j z): (B, d_out, n_out)."""
    z = softmax.coordinates(layer, x)
    count, outputs = layer.keys.count, layer.d_out * layer.n_out
    values = layer.values.reshape(count, outputs)
    gradients = None if layer.slopes is None else layer.slopes.reshape(count, outputs * z.shape[1])
    top = np.full((len(x), 1), -np.inf, dtype=z.dtype)
    total = np.zeros((len(x), 1), dtype=z.dtype)
    out = np.zeros((len(x), outputs), dtype=z.dtype)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        scores = softmax.logits(layer, z, *layer.keys.listed(start, stop))
        raised = np.maximum(top, scores.max(axis=1, keepdims=True))
        fade = np.exp(top - raised)
        weight = np.exp(scores - raised)
        total = total * fade + weight.sum(axis=1, keepdims=True)
        out = out * fade + weight @ values[start:stop]
        if gradients is not None:
            mixed = (weight @ gradients[start:stop]).reshape(len(x), outputs, -1)
            out += np.einsum("bke,be->bk", mixed, z)
        top = raised
    return (out / total).reshape(len(x), layer.d_out, layer.n_out)


def bytes_per_query(layer: Layer) -> int:
    """Bytes per query: one block of logits and its copies."""
    return 3 * min(BLOCK, layer.keys.count) * layer.values.itemsize
