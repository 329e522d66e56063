"""Plans for tables and samples: keys on sites, heads of few keys fitted to the entries, and how they are told in a file.

Keys on sites v_1 < v_2 < .. of one coordinate hand over half-way, with slopes that step by rho / (v_{k+1} - v_k):

    a_{k+1} - a_k = rho / (v_{k+1} - v_k),      b_{k+1} - b_k = -(a_{k+1} - a_k) (v_k + v_{k+1}) / 2,

so that at every site its own key leads its neighbours by rho/2, however unevenly the sites are spaced.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.keys import AxisKeys


@dataclass(frozen=True)
class EntriesPlan:
    """Keys for entries: "bernstein" heads, keys on "sites" (along axes or listed), a uniform "grid" of all entries, or "hard"."""

    family: str
    counts: tuple[int, ...]

    @property
    def cells(self) -> int:
        """N."""
        return math.prod(self.counts)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"plan": "entries", "family": self.family, "counts": list(self.counts)}


def site_keys(sites: Array, rho: float) -> AxisKeys:
    """Keys on increasing sites, neighbours handing over half-way; about the middle slope, so that slopes stay small."""
    steps = rho / np.diff(sites)
    slopes = np.concatenate([[0.0], np.cumsum(steps)])
    slopes -= (slopes[0] + slopes[-1]) / 2.0
    middles = (sites[:-1] + sites[1:]) / 2.0
    offsets = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * middles)])
    return AxisKeys(slopes, offsets - float(offsets.max()))


def is_uniform(nodes: Array) -> bool:
    """Whether nodes are equidistant to within the rounding of their numbers."""
    steps = np.diff(nodes)
    wanted = (nodes[-1] - nodes[0]) / (len(nodes) - 1)
    blur = 8.0 * 2.0**-52 * float(np.abs(nodes).max())
    return bool(np.all(np.abs(steps - wanted) <= blur + 1e-12 * wanted)) and blur < 1e-6 * wanted
