"""Shared by the runtimes: coordinates rounded to the layer's dtype, logits, and stable weights over a row of keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.rounding import numpy_dtype
from maxaffine.layer.layer import Layer

Array = NDArray[Any]


def coordinates(layer: Layer, x: NDArray[np.float64]) -> Array:
    """z = M (x - centre) in float64, then rounded once to the layer's dtype: (B, E)."""
    return layer.coordinates(x).astype(numpy_dtype(layer.dtype))


def logits(layer: Layer, z: Array, slopes: Array, offsets: Array) -> Array:
    """sharpness * (a_j . z + b_j) as the literal head forms them, (sharpness z) . a_j + sharpness b_j: (B, n)."""
    sharpness = numpy_dtype(layer.dtype).type(layer.sharpness)
    scaled = z * sharpness
    scores = np.multiply.outer(scaled, slopes) if slopes.ndim == 1 else scaled @ slopes.T
    scores += offsets * sharpness
    return np.asarray(scores)


def weights(scores: Array) -> Array:
    """Row softmax, computed in place: exp(l - max l) / sum."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores
