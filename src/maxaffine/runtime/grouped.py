"""Run a grouped layer: `factorised` (one softmax per group and direction) or `dense` (the literal softmax, leak and all).

Logits and exponentials are formed in the layer's dtype (float32 for bfloat16 tensors); sums are accumulated in float64.  Affine
values are taken at the same rounded z as the logits; the tilt is added in float64.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.rounding import compute_dtype, numpy_dtype
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer

Array = NDArray[Any]


def coordinates(layer: GroupedLayer, group: Group | ClusterGroup, x: NDArray[np.float64]) -> Array:
    """z_g = M_g (x - centre) in float64, rounded once to the layer's dtype, then in the dtype that computes: (B, E)."""
    z = (x - layer.centre) @ group.matrix.T
    return np.asarray(z.astype(numpy_dtype(layer.dtype)).astype(compute_dtype(layer.dtype)))


BRANCH = 8


def tree_terms(count: int) -> int:
    """Additions on the longest path of `tree_sum` over that many terms."""
    levels = 1
    while BRANCH**levels < count:
        levels += 1
    return (BRANCH - 1) * levels


def tree_sum(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum along the last axis in a tree of BRANCH terms per level, so that the rounding grows with log N, not with N."""
    while terms.shape[-1] > BRANCH:
        extra = -terms.shape[-1] % BRANCH
        if extra:
            terms = np.concatenate([terms, np.zeros((*terms.shape[:-1], extra))], axis=-1)
        terms = terms.reshape(*terms.shape[:-1], -1, BRANCH).sum(axis=-1)
    return np.asarray(terms.sum(axis=-1))


def weights(scores: Array) -> NDArray[np.float64]:
    """Row softmax: exponentials in the dtype of the scores, their sum and the division in float64."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    wide = scores.astype(np.float64)
    return np.asarray(wide / tree_sum(wide)[..., None])


def axis_weights(layer: GroupedLayer, group: Group, x: NDArray[np.float64]) -> list[Array]:
    """One softmax (B, N_e) per direction, float64."""
    compute = compute_dtype(layer.dtype)
    z = coordinates(layer, group, x)
    found = []
    for e, axis in enumerate(group.axes):
        scores = np.multiply.outer(z[:, e], axis.slopes.astype(compute))
        scores += axis.offsets.astype(compute)
        found.append(weights(scores))
    return found


def evaluate(layer: GroupedLayer, x: NDArray[np.float64]) -> Array:
    """F(x): (B, K, 1), every group by its own softmax."""
    out = tilted(layer, x)
    for group in layer.products():
        out += product_group(layer, group, x)
    return out.astype(compute_dtype(layer.dtype))[:, :, None]


def tilted(layer: GroupedLayer, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """tilt (x - centre), (B, K) float64."""
    if layer.tilt is None:
        return np.zeros((len(x), layer.d_out))
    return np.asarray((x - layer.centre) @ layer.tilt.astype(np.float64).T)


def product_group(layer: GroupedLayer, group: Group, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """F_g(x): (B, K) float64, one softmax per direction."""
    alphas = axis_weights(layer, group, x)
    if group.factors is not None:
        product = np.ones((len(x), group.factors[0].shape[1]))
        for alpha, factor in zip(alphas, group.factors, strict=True):
            product *= alpha @ factor.astype(np.float64)
        return np.asarray(product.sum(axis=1, keepdims=True))
    assert group.values is not None
    values = group.values.astype(np.float64)
    if group.slopes is not None:
        values = np.concatenate([values[..., None], group.slopes.astype(np.float64)], axis=-1)
    partial = alphas[0] @ values.reshape(len(values), -1)
    for alpha in alphas[1:]:
        partial = np.matmul(alpha[:, None, :], partial.reshape(len(x), alpha.shape[1], -1))
    if group.slopes is None:
        return np.asarray(partial.reshape(len(x), -1))
    mixed = partial.reshape(len(x), layer.d_out, -1)
    z = coordinates(layer, group, x).astype(np.float64)
    return np.asarray(mixed[:, :, 0] + np.einsum("bke,be->bk", mixed[:, :, 1:], z))


def _literal_logits(layer: GroupedLayer, x: NDArray[np.float64]) -> list[Array]:
    """Logits (B, N_g) of every group's keys, as the literal head forms them."""
    compute = compute_dtype(layer.dtype)
    found = []
    for group in layer.groups:
        slopes, offsets = group.listed()
        found.append(coordinates(layer, group, x) @ slopes.astype(compute).T + offsets.astype(compute))
    return found


def evaluate_dense(layer: GroupedLayer, x: NDArray[np.float64]) -> Array:
    """F(x) by one softmax over all tokens per query column, the bonus on its own group, columns added up: (B, K, 1)."""
    compute = compute_dtype(layer.dtype)
    logits = _literal_logits(layer, x)
    values = _literal_values(layer, x)
    edges = np.cumsum([0, *(group.count for group in layer.groups)])
    out = np.zeros((len(x), layer.d_out))
    for g in range(len(layer.groups)):
        scores = np.concatenate(logits, axis=1)
        scores[:, edges[g] : edges[g + 1]] += compute.type(layer.bonus)
        out += tree_sum(weights(scores)[:, None, :] * values)
    return out.astype(compute)[:, :, None]


def _literal_values(layer: GroupedLayer, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of all tokens, (K, N), or (B, K, N) where they depend on x: what the value rows of the literal layer hold."""
    parts = []
    for g, group in enumerate(layer.groups):
        c, G = group.listed_values()
        value = c.T
        if layer.is_affine:
            value = value + np.einsum("be,nke->bkn", coordinates(layer, group, x).astype(np.float64), G)
        if g == 0 and layer.tilt is not None:
            value = value + tilted(layer, x)[:, :, None]
        parts.append(value)
    return np.concatenate(parts, axis=-1)


def attention(layer: GroupedLayer, x: NDArray[np.float64]) -> Array:
    """Weights (B, N): for every group those of its own query column, side by side (each group sums to one)."""
    return np.concatenate([weights(scores) for scores in _literal_logits(layer, x)], axis=1)


def bytes_per_query(layer: GroupedLayer) -> int:
    """Bytes per query of the factorised path."""
    return max(product_bytes(layer, group) for group in layer.products())


def product_bytes(layer: GroupedLayer, group: Group) -> int:
    """Bytes per query of one group of product keys."""
    rest = group.count // group.shape[0] if group.values is not None else 1
    width = layer.d_out * (1 if group.slopes is None else 1 + len(group.axes))
    return 8 * (2 * rest * width + 4 * sum(group.shape))


def bytes_per_query_dense(layer: GroupedLayer) -> int:
    """Bytes per query of the literal path."""
    return 8 * (4 + (4 if layer.is_affine else 2) * layer.d_out) * layer.tokens
