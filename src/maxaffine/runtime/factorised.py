"""`factorised`: on product keys the softmax over prod P_i keys is the product of one softmax per coordinate, exactly.

    alpha_j(x) = prod_i alpha^i_{j_i}(z_i),      F(x) = values contracted with one vector of weights per coordinate
"""

import string
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput
from maxaffine.layer.layer import Layer
from maxaffine.runtime import softmax

Array = NDArray[Any]


def axis_weights(layer: Layer, x: NDArray[np.float64]) -> list[Array]:
    """One softmax (B, P_i) per coordinate."""
    if not layer.is_product:
        raise BadInput('runtime "factorised" needs product keys; this layer lists its keys, use "dense" or "blocked".')
    z = softmax.coordinates(layer, x)
    return [
        softmax.weights(softmax.logits(layer, z[:, i], axis.slopes, axis.offsets))
        for i, axis in enumerate(layer.keys.axes)
    ]


def evaluate(layer: Layer, x: NDArray[np.float64]) -> Array:
    """F(x): (B, d_out, n_out)."""
    alphas = axis_weights(layer, x)
    out = _contract(alphas, layer.values)
    if layer.slopes is not None:
        z = softmax.coordinates(layer, x)
        mixed = _contract(alphas, layer.slopes)
        out += np.einsum("bke,be->bk", mixed.reshape(len(x), -1, z.shape[1]), z)
    return out.reshape(len(x), layer.d_out, layer.n_out)


def _contract(alphas: list[Array], values: Array) -> Array:
    """values (P_1, .., P_E, rest) contracted with weights (B, P_i): (B, rest)."""
    queries = len(alphas[0])
    partial = alphas[0] @ values.reshape(len(values), -1)  # (B, P_2 .. rest)
    for alpha in alphas[1:]:
        partial = np.matmul(alpha[:, None, :], partial.reshape(queries, alpha.shape[1], -1))
    return partial.reshape(queries, -1)


def attention(layer: Layer, x: NDArray[np.float64]) -> Array:
    """The attention weights (B, N), the outer products of the weights per coordinate."""
    alphas = axis_weights(layer, x)
    letters = string.ascii_lowercase[1 : 1 + len(alphas)]
    pattern = ",".join(f"a{letter}" for letter in letters) + f"->a{letters}"
    return np.asarray(np.einsum(pattern, *alphas)).reshape(len(x), -1)


def bytes_per_query(layer: Layer) -> int:
    """Bytes per query: the largest partial contraction and the axis weights."""
    rest = layer.values.size // layer.keys.shape[0] * (1 if layer.slopes is None else 1 + layer.slopes.shape[-1])
    return (2 * rest + 3 * sum(layer.keys.shape)) * layer.values.itemsize
