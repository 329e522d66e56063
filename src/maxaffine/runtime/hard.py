"""`hard`: the value of the nearest site, the softmax at infinite sharpness; the cost does not grow with the number of values.

Sites are compared with x as it comes, in float64 whatever the dtype of the values.  Product keys: the nearest site along every
variable by bisection, at a tie the lower one, as SciPy's RegularGridInterpolator.  Listed keys: SciPy's k-d tree, as its
NearestNDInterpolator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.nearest import nearest_index
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.layer import Layer
from maxaffine.runtime.kept import kept

Array = NDArray[Any]

CHUNK = 1 << 16  # queries at a time


def indices(layer: Layer, x: NDArray[np.float64]) -> NDArray[np.intp]:
    """Which key answers, in row-major order: (B,)."""
    assert layer.sites is not None
    if layer.is_product:
        along = tuple(nearest_index(nodes, x[:, i]) for i, nodes in enumerate(layer.sites))
        return np.asarray(np.ravel_multi_index(along, layer.keys.shape))
    return np.asarray(_tree(layer, layer.sites[0]).query(x)[1])


def evaluate(layer: Layer, x: NDArray[np.float64]) -> Array:
    """The nearest site's value: (B, d_out, n_out)."""
    values = layer.values.reshape(layer.keys.count, layer.d_out, layer.n_out)
    out = np.empty((len(x), layer.d_out, layer.n_out), dtype=compute_dtype(layer.dtype))
    for start in range(0, len(x), CHUNK):
        out[start : start + CHUNK] = values[indices(layer, x[start : start + CHUNK])]
    return out


def attention(layer: Layer, x: NDArray[np.float64]) -> Array:
    """The weights (B, N): one for the nearest site, zero for the others."""
    weights = np.zeros((len(x), layer.keys.count), dtype=compute_dtype(layer.dtype))
    weights[np.arange(len(x)), indices(layer, x)] = 1.0
    return weights


def _tree(layer: Layer, sites: NDArray[np.float64]) -> Any:
    """The k-d tree of the sites, grown once and kept as long as the layer lives."""
    from scipy.spatial import cKDTree

    return kept(layer, "tree", lambda: cKDTree(sites))
