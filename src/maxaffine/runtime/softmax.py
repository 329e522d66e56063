"""Lookups by what their keys say: three ways to sum the softmax over all keys, and the nearest key alone.

    dense        the literal softmax over all N keys
    blocked      streaming log-sum-exp over blocks of keys, memory bounded for any number of keys: after a block with logits l the
                 running maximum m, normaliser s and numerator o become
                 m' = max(m, max l),   s' = s e^{m - m'} + sum e^{l - m'},   o' = o e^{m - m'} + sum e^{l - m'} c
    factorised   on product keys the softmax over prod P_i keys is the product of one softmax per coordinate, exactly
    hard         the value of the nearest site, the softmax at infinite sharpness; its cost does not grow with their number

Each gives F(x) = sum_j alpha_j(x) (c_j + G_j z), (B, d_out, n_out), z rounded to the layer's dtype.  Hard compares sites with x
as it comes, in float64: on product keys by bisection, at a tie the lower one, as SciPy's RegularGridInterpolator; listed keys by
SciPy's k-d tree, as its NearestNDInterpolator.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.errors import BadInput
from maxaffine.core.nearest import nearest_index
from maxaffine.core.rounding import compute_dtype, numpy_dtype
from maxaffine.layer.layer import Layer
from maxaffine.runtime.kept import once

BLOCK = 4096  # keys at a time: their listed slopes and one row of logits per query stay in the cache
CHUNK = 1 << 16  # queries at a time where the nearest key answers


def coordinates(layer: Layer, x: Array) -> AnyArray:
    """z = M (x - centre) in float64, then rounded once to the layer's dtype: (B, E)."""
    return layer.coordinates(x).astype(numpy_dtype(layer.dtype))


def logits(layer: Layer, z: AnyArray, slopes: AnyArray, offsets: AnyArray) -> AnyArray:
    """sharpness * (a_j . z + b_j) as the literal head forms them, (sharpness z) . a_j + sharpness b_j: (B, n)."""
    sharpness = numpy_dtype(layer.dtype).type(layer.sharpness)
    scaled = z * sharpness
    scores = np.multiply.outer(scaled, slopes) if slopes.ndim == 1 else scaled @ slopes.T
    scores += offsets * sharpness
    return np.asarray(scores)


def weights(scores: AnyArray) -> AnyArray:
    """Row softmax, computed in place: exp(l - max l) / sum."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def axis_weights(layer: Layer, x: Array) -> list[AnyArray]:
    """One softmax (B, P_i) per coordinate."""
    if not layer.is_product:
        raise BadInput('runtime "factorised" needs product keys; this layer lists its keys, use "dense" or "blocked".')
    z = coordinates(layer, x)
    return [weights(logits(layer, z[:, i], axis.slopes, axis.offsets)) for i, axis in enumerate(layer.keys.axes)]


def outer_products(alphas: list[AnyArray]) -> AnyArray:
    """Weights (B, N_i) per coordinate multiplied out, keys in row-major order: (B, prod N_i)."""
    return reduce(lambda whole, alpha: (whole[:, :, None] * alpha[:, None, :]).reshape(len(alpha), -1), alphas)


def attention(layer: Layer, x: Array, runtime: str) -> AnyArray:
    """The attention weights (B, N) of every key for every query as "dense", "factorised" or "hard" has them."""
    if runtime == "factorised":
        return outer_products(axis_weights(layer, x))
    if runtime == "hard":
        found = np.zeros((len(x), layer.keys.count), dtype=compute_dtype(layer.dtype))
        found[np.arange(len(x)), nearest(layer, x)] = 1.0
        return found
    return weights(logits(layer, coordinates(layer, x), *layer.keys.listed()))


def _mixed(layer: Layer, x: Array, mix: Callable[[AnyArray], AnyArray]) -> AnyArray:
    """F(x), where `mix` sums a table over the keys with their weights: (B, rest)."""
    out = mix(layer.values)
    if layer.slopes is not None:
        z = coordinates(layer, x)
        out += np.einsum("bke,be->bk", mix(layer.slopes).reshape(len(x), -1, z.shape[1]), z)
    return out.reshape(len(x), layer.d_out, layer.n_out)


def dense(layer: Layer, x: Array) -> AnyArray:
    """F(x) by the weights of all keys."""
    alpha = attention(layer, x, "dense")
    return _mixed(layer, x, lambda table: alpha @ table.reshape(layer.keys.count, -1))


def factorised(layer: Layer, x: Array) -> AnyArray:
    """F(x): values contracted with one vector of weights per coordinate."""
    first, *others = axis_weights(layer, x)

    def contract(table: AnyArray) -> AnyArray:
        partial = first @ table.reshape(len(table), -1)  # (B, P_2 .. rest)
        for alpha in others:
            partial = np.matmul(alpha[:, None, :], partial.reshape(len(x), alpha.shape[1], -1))
        return partial.reshape(len(x), -1)

    return _mixed(layer, x, contract)


def blocked(layer: Layer, x: Array) -> AnyArray:
    """F(x) block by block of keys."""
    z = coordinates(layer, x)
    count, outputs = layer.keys.count, layer.d_out * layer.n_out
    values = layer.values.reshape(count, outputs)
    gradients = None if layer.slopes is None else layer.slopes.reshape(count, outputs * z.shape[1])
    top = np.full((len(x), 1), -np.inf, dtype=z.dtype)
    total = np.zeros((len(x), 1), dtype=z.dtype)
    out = np.zeros((len(x), outputs), dtype=z.dtype)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        scores = logits(layer, z, *layer.keys.listed(start, stop))
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


def hard(layer: Layer, x: Array) -> AnyArray:
    """The nearest site's value."""
    values = layer.values.reshape(layer.keys.count, layer.d_out, layer.n_out)
    out = np.empty((len(x), layer.d_out, layer.n_out), dtype=compute_dtype(layer.dtype))
    for start in range(0, len(x), CHUNK):
        out[start : start + CHUNK] = values[nearest(layer, x[start : start + CHUNK])]
    return out


def nearest(layer: Layer, x: Array) -> NDArray[np.intp]:
    """Which key of a hard layer answers, in row-major order: (B,)."""
    assert layer.sites is not None
    if layer.is_product:
        along = tuple(nearest_index(nodes, x[:, i]) for i, nodes in enumerate(layer.sites))
        return np.asarray(np.ravel_multi_index(along, layer.keys.shape))
    return np.asarray(_tree(layer).query(x)[1])


@once
def _tree(layer: Layer) -> Any:
    """The k-d tree of the sites."""
    from scipy.spatial import cKDTree

    assert layer.sites is not None
    return cKDTree(layer.sites[0])


def bytes_per_query(layer: Layer, runtime: str) -> int:
    """Bytes per query: a row of logits and its copies, a block of them, or the largest partial contraction."""
    if runtime == "factorised":
        rest = layer.values.size // layer.keys.shape[0] * (1 if layer.slopes is None else 1 + layer.slopes.shape[-1])
        return (2 * rest + 3 * sum(layer.keys.shape)) * layer.values.itemsize
    rows = 2 * layer.keys.count if runtime == "dense" else 3 * min(BLOCK, layer.keys.count)
    return rows * layer.values.itemsize
