"""Run a grouped layer: `factorised` (one softmax per group and direction) or `dense` (the literal softmax, leak and all).

Logits and exponentials are formed in the layer's dtype (float32 for bfloat16 tensors); sums are accumulated in float64.  Affine
values are taken at the same rounded z as the logits; the tilt is added in float64.  Sums over small tables are formed in an order
that the table alone decides, so that a query has the same bits in every batch (`in_order`); those over large ones by a BLAS.
"""

import numpy as np

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.rounding import compute_dtype, numpy_dtype
from maxaffine.layer.grouped import AnyGroup, Group, GroupedLayer


def coordinates(layer: GroupedLayer, group: AnyGroup, x: Array, at_once: bool = False) -> AnyArray:
    """z_g = M_g (x - centre) in float64, rounded once to the layer's dtype, then in the dtype that computes: (B, E).

    `at_once` in the dtype that computes, as exported forms have it, and the softmax over all tokens of clusters and of parts.
    """
    z = (x - layer.centre) @ group.matrix.T
    stored = z if at_once else z.astype(numpy_dtype(layer.dtype))
    return np.asarray(stored.astype(compute_dtype(layer.dtype)))


BRANCH = 8


def tree_terms(count: int) -> int:
    """Additions on the longest path of `tree_sum` over that many terms."""
    levels = 1
    while BRANCH**levels < count:
        levels += 1
    return (BRANCH - 1) * levels


def tree_sum(terms: Array) -> Array:
    """Sum along the last axis in a tree of BRANCH terms per level, so that the rounding grows with log N, not with N."""
    while terms.shape[-1] > BRANCH:
        extra = -terms.shape[-1] % BRANCH
        if extra:
            terms = np.concatenate([terms, np.zeros((*terms.shape[:-1], extra))], axis=-1)
        terms = terms.reshape(*terms.shape[:-1], -1, BRANCH).sum(axis=-1)
    return np.asarray(terms.sum(axis=-1))


def weights(scores: AnyArray) -> Array:
    """Row softmax: exponentials in the dtype of the scores, their sum and the division in float64."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    wide = scores.astype(np.float64)
    return np.asarray(wide / tree_sum(wide)[..., None])


def axis_weights(layer: GroupedLayer, group: Group, x: Array) -> list[AnyArray]:
    """One softmax (B, N_e) per direction, float64."""
    compute = compute_dtype(layer.dtype)
    z = coordinates(layer, group, x)
    found = []
    for e, axis in enumerate(group.axes):
        scores = np.multiply.outer(z[:, e], axis.slopes.astype(compute))
        scores += axis.offsets.astype(compute)
        found.append(weights(scores))
    return found


def evaluate(layer: GroupedLayer, x: Array) -> AnyArray:
    """F(x): (B, K, 1), every group by its own softmax."""
    out = tilted(layer, x)
    for group in layer.products():
        out += product_group(layer, group, x)
    return out.astype(compute_dtype(layer.dtype))[:, :, None]


def tilted(layer: GroupedLayer, x: Array) -> Array:
    """tilt (x - centre), (B, K) float64."""
    if layer.tilt is None:
        return np.zeros((len(x), layer.d_out))
    return np.ascontiguousarray(_mixed((x - layer.centre).T, layer.tilt.astype(np.float64).T).T)


SMALL = 256  # numbers of a table up to which its sums are formed in a fixed order, query by query; beyond, by a BLAS
BLOCK = 1 << 19  # numbers of a block of queries: they stay in the cache
TOGETHER = 24  # directions whose weights count as if they were there at once


def in_order(layer: GroupedLayer) -> bool:
    """Whether no sum over the keys of a product group is left to a BLAS, whose order depends on the batch."""
    tilt = 0 if layer.tilt is None else layer.tilt.size
    tables = [_largest_table(layer, group) for group in layer.groups if not (group.clustered or group.factored)]
    return max([tilt, *tables]) <= SMALL


def _largest_table(layer: GroupedLayer, group: Group) -> int:
    tables = [factor.size for factor in group.factors] if group.factors is not None else [group.count * _width(layer, group)]
    return max(0 if _is_selection(group.matrix) else group.matrix.size, *tables)


def _is_selection(matrix: Array) -> bool:
    """Whether every direction is one scaled variable, of so many that sums of all would be left to a BLAS."""
    return bool(matrix.size > SMALL and np.all(np.count_nonzero(matrix, axis=1) == 1))


def _projected(matrix: Array, away: Array) -> Array:
    """M (x - centre), (E, B): one product where one variable is met, the same number in every order of summation."""
    if not _is_selection(matrix):
        return _mixed(away, matrix.T)
    places = np.argmax(matrix != 0.0, axis=1)
    return np.asarray(matrix[np.arange(len(matrix)), places][:, None] * away[places])


def _width(layer: GroupedLayer, group: Group) -> int:
    """Numbers per token of a group with values."""
    return layer.d_out * (1 if group.slopes is None else 1 + len(group.axes))


def product_group(layer: GroupedLayer, group: Group, x: Array) -> Array:
    """F_g(x): (B, K) float64, one softmax per direction, by blocks of queries that stay in the cache."""
    step = max(64, BLOCK // max(_largest_table(layer, group), _numbers_at_once(group)))
    parts = [_block(layer, group, x[start : start + step]) for start in range(0, len(x), step)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _block(layer: GroupedLayer, group: Group, x: Array) -> Array:
    """Queries along the last axis, so that every operation is one of whole rows, whatever the batch is."""
    compute = compute_dtype(layer.dtype)
    z = _projected(group.matrix, (x - layer.centre).T).astype(numpy_dtype(layer.dtype)).astype(compute)
    if group.factors is not None:
        return np.asarray(_folded(_products(group, z))[:, None])
    assert group.values is not None
    alphas = _alphas(group, z, slice(0, len(group.axes)))
    values = group.values.astype(np.float64)
    if group.slopes is not None:
        values = np.concatenate([values[..., None], group.slopes.astype(np.float64)], axis=-1)
    mixed = _contracted(alphas, values).reshape(layer.d_out, -1, len(x))
    answer = mixed[:, 0]
    for e in range(mixed.shape[1] - 1):
        answer = answer + mixed[:, 1 + e] * z[e].astype(np.float64)
    return np.ascontiguousarray(answer.T)


def _alphas(group: Group, z: AnyArray, cut: slice) -> list[Array]:
    """The softmax (N_e, B) of some of the directions."""
    axes = zip(z[cut], group.axes[cut], strict=True)
    return [_row_weights(one, axis.slopes.astype(z.dtype), axis.offsets.astype(z.dtype)) for one, axis in axes]


def _contracted(alphas: list[Array], values: Array) -> Array:
    """values (N_1, .., N_d, rest) met with the weights of d directions, the first first: (rest, B)."""
    partial = _mixed(alphas[0], values.reshape(len(values), -1))
    for alpha in alphas[1:]:
        partial = _folded(alpha[:, None, :] * partial.reshape(len(alpha), -1, alpha.shape[1]))
    return partial


def _products(group: Group, z: AnyArray) -> Array:
    """The product of all blocks' factors, its real part where they are complex: (R, B); weights are formed block by block."""
    assert group.factors is not None
    real = np.ones((group.rank, z.shape[1]))
    imaginary = np.zeros_like(real) if group.imaginary is not None else None
    for b, (cut, factor) in enumerate(zip(group.block_slices, group.factors, strict=True)):
        alphas = _alphas(group, z, cut)
        p = _contracted(alphas, factor.astype(np.float64))
        if imaginary is None:
            real *= p
            continue
        assert group.imaginary is not None
        q = _contracted(alphas, group.imaginary[b].astype(np.float64))
        real, imaginary = real * p - imaginary * q, real * q + imaginary * p
    return real


def _row_weights(z: AnyArray, slopes: AnyArray, offsets: AnyArray) -> Array:
    """The softmax of one direction, keys first: (N, B), exponentials in the dtype of z, sum and division in float64."""
    scores = slopes[:, None] * z
    scores += offsets[:, None]
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    wide = scores.astype(np.float64)
    wide /= _folded(wide.copy())
    return wide


def _mixed(rows: Array, table: Array) -> Array:
    """sum_n table_nr rows_nb: (R, B), in an order that the table alone decides where it is small."""
    if table.size > SMALL:
        return np.asarray(table.T @ rows)
    return _folded(table[:, :, None] * rows[:, None, :])


def _folded(terms: Array) -> Array:
    """The sum over the first axis, the upper half added to the lower one until one is left; `terms` is used up."""
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        terms[: len(terms) - half] += terms[half:]
        terms = terms[:half]
    return np.asarray(terms[0])


def literal_logits(layer: GroupedLayer, x: Array, at_once: bool = False) -> list[AnyArray]:
    """Logits (B, N_g) of every group's keys, as the literal head forms them."""
    at_once = at_once or layer.has_clusters
    compute = compute_dtype(layer.dtype)
    found = []
    for group in layer.groups:
        slopes, offsets = group.listed()
        found.append(coordinates(layer, group, x, at_once) @ slopes.astype(compute).T + offsets.astype(compute))
    return found


def evaluate_dense(layer: GroupedLayer, x: Array) -> AnyArray:
    """F(x) by one softmax over all tokens per query column, the bonus on its own group, columns added up: (B, K, 1)."""
    compute = compute_dtype(layer.dtype)
    logits = literal_logits(layer, x)
    values = literal_values(layer, x)
    edges = np.cumsum([0, *(group.count for group in layer.groups)])
    out = np.zeros((len(x), layer.d_out))
    for g in range(len(layer.groups)):
        scores = np.concatenate(logits, axis=1)
        scores[:, edges[g] : edges[g + 1]] += compute.type(layer.bonus)
        out += tree_sum(weights(scores)[:, None, :] * values)
    return out.astype(compute)[:, :, None]


def literal_values(layer: GroupedLayer, x: Array, at_once: bool = False) -> Array:
    """Values of all tokens, (K, N), or (B, K, N) where they depend on x: what the value rows of the literal layer hold."""
    parts, at_once = [], at_once or layer.has_clusters
    for g, group in enumerate(layer.groups):
        c, G = group.listed_values()
        value = c.T
        if layer.is_affine:
            value = value + np.einsum("be,nke->bkn", coordinates(layer, group, x, at_once).astype(np.float64), G)
        if g == 0 and layer.tilt is not None:
            value = value + tilted(layer, x)[:, :, None]
        parts.append(value)
    return np.concatenate(parts, axis=-1)


def attention(layer: GroupedLayer, x: Array) -> AnyArray:
    """Weights (B, N): for every group those of its own query column, side by side (each group sums to one)."""
    return np.concatenate([weights(scores) for scores in literal_logits(layer, x)], axis=1)


def bytes_per_query(layer: GroupedLayer) -> int:
    """Bytes per query of the factorised path."""
    return max(product_bytes(layer, group) for group in layer.products())


def product_bytes(layer: GroupedLayer, group: Group) -> int:
    """Bytes per query of one group of product keys."""
    if group.factors is not None:
        return 8 * (2 * layer.d_out + _numbers_at_once(group) + _while_multiplied(group))
    rest = group.count // group.shape[0]
    return 8 * (2 * rest * _width(layer, group) + 4 * sum(group.shape))


def _numbers_at_once(group: Group) -> int:
    """Numbers per query of the weights that are there at once; of many directions, those of one block."""
    if len(group.axes) <= TOGETHER:
        return 4 * sum(group.shape)
    return 4 * max(sum(group.shape[cut]) for cut in group.block_slices)


def _while_multiplied(group: Group) -> int:
    """Numbers per query of what is left of a block's factor when its first direction is met, and of the products so far."""
    if group.is_plain and len(group.axes) <= TOGETHER:
        return 0
    assert group.factors is not None
    return group.rank * 6 + 4 * max(factor.size // len(factor) for factor in group.factors)


def bytes_per_query_dense(layer: GroupedLayer) -> int:
    """Bytes per query of the literal path."""
    return 8 * (4 + (4 if layer.is_affine else 2) * layer.d_out) * layer.tokens
