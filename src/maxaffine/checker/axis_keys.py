"""Keys along one coordinate, as every reader of a file has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array


@dataclass(frozen=True)
class Axis:
    """Stored slopes and offsets of keys along one coordinate, in float64."""

    a: Array
    b: Array

    @property
    def spread(self) -> float:
        """Range of the slopes."""
        return float(self.a.max() - self.a.min())

    @property
    def bare(self) -> bool:
        """Whether no key scores anything."""
        return not (np.any(self.a) or np.any(self.b))

    def weights(self, z: Any, kind: Any = np.float64) -> Any:
        """Softmax weights (M, N)."""
        scores = np.multiply.outer(np.asarray(z, dtype=kind), self.a.astype(kind)) + self.b.astype(kind)
        scores = np.exp(scores - scores.max(axis=1)[:, None])
        return scores / scores.sum(axis=1)[:, None]
