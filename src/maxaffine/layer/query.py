"""Two inputs: which numbers of a layer may depend on the query, and which on the context alone.

In cross-attention of two inputs keys and values are made of the context.  A score a . M (x - centre) + b may have both inputs in
it: the query meets the slopes a, and what the context puts into the coordinates is added to b.  A value is a column of the
context's tokens, so that it may be affine in the context, and never in the query.
"""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import AnyGroup
from maxaffine.layer.side_by_side import AnyLayer

LEANS = "its values would be affine in the query, and the tokens of cross-attention are made of the context alone"


def query_size(inputs: tuple[tuple[int, int], ...]) -> int:
    """How many coordinates, the first ones, belong to the query; 0 of a function of one input."""
    return 0 if len(inputs) == 1 else inputs[0][0] * inputs[0][1]


def leans_on_query(layer: AnyLayer) -> bool:
    """Whether some value is affine in a coordinate that has the query in it."""
    if layer.several:
        return any(leans_on_query(part.layer) for part in layer.parts)
    query = query_size(layer.inputs)
    if query == 0:
        return False
    if not layer.grouped:
        return layer.slopes is not None and bool(np.any(layer.slopes[..., _with(layer.coordinates.matrix, query)]))
    tilted = layer.tilt is not None and bool(np.any(layer.tilt[:, :query]))
    return tilted or any(_leans(group, query) for group in layer.groups)


def _leans(group: AnyGroup, query: int) -> bool:
    if group.factored:
        return any(_leans(factor, query) for factor in group.factors)
    own = _with(group.matrix, query)
    heads = group.clusters if isinstance(group, ClusterGroup) else (group,)
    return any(head.slopes is not None and np.any(head.slopes[..., own]) for head in heads)


def _with(matrix: Array, query: int) -> Array:
    """Which coordinates have a variable of the query in them."""
    return np.asarray(np.any(matrix[:, :query] != 0.0, axis=1))
