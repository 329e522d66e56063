"""The nearest of increasing numbers, ties decided as SciPy decides them."""

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array


def nearest_index(nodes: Array, x: Array) -> NDArray[np.intp]:
    """Index of the nearest of increasing nodes, at a tie the lower: (x - a)/(b - a) <= 1/2, as SciPy decides it."""
    below = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, len(nodes) - 2)
    share = (x - nodes[below]) / (nodes[below + 1] - nodes[below])
    return np.asarray(np.where(share <= 0.5, below, below + 1))
