"""What all literal forms share: what a proof knows of a group, coordinates as they are computed, and one group's column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64, Dtype, gamma
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.side_by_side import OutputsLayer

U = FLOAT64.unit
UP = 1.0 + 1e-12
EXP_ULPS = 64.0  # 32 ulp, in units of u
SEEN = 46.0  # tokens farther below the largest weigh less than 1e-20
LARGEST = {"float64": 1e300, "float32": 1e37}


@dataclass(frozen=True)
class ProvedBlend:
    """What the proof of a head knows of one group of clusters.

    `blend` bounds sum_k Omega_k |p_k - f| over the box and `size` |f|, for the function f that the group stands for; `reach`
    (C, E) bounds |t| where a cluster answers (None: the whole box), `far` the masses of clusters beyond it times |f| + |v|.
    `kappa`: |p_k - f| <= eps + kappa (max S - S_k) for every cluster at every x, so that errors of scores, however large, cost
    2 kappa of them (theory, 10.2).  Beyond its reach a cluster trails by ever more: `edge` bounds the size of its logits where it
    begins to, and `pace` how much faster than its lag they grow there (infinite: not known).
    """

    blend: float
    size: float
    reach: Array | None = None
    far: float = 0.0
    edge: float = math.inf
    pace: float = math.inf
    kappa: float = math.inf
    weight: float = math.inf  # of a product: sum_k Omega_k sum_j w_kj of the products of |c_j| + |G_j t| and of |shift|


@dataclass(frozen=True)
class Column:
    """One group in its own query column: what it loses, |F_g|, the error of its logits, the largest |value| of a token."""

    lost: float
    size: float
    eta: float
    top: float


UNRESOLVED = Column(math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class Softmax:
    """The softmax that a group stands in: how many tokens it has in all, and the bias of the group's own column."""

    tokens: int
    bonus: float

    @classmethod
    def of(cls, layer: GroupedLayer | OutputsLayer) -> Softmax:
        """Of a layer; a group that stands alone needs no bias."""
        alone = sum(1 for _ in layer.members()) == 1 if layer.several else len(layer.groups) == 1
        return cls(layer.tokens, 0.0 if alone else layer.bonus)


@dataclass(frozen=True)
class Query:
    """Coordinates of one group: |z| over the box (E,), and how far a computed z may be from that of the same float64 x.

    x itself is rounded before the layer sees it, which the bound of the layer counts.  A coordinate of one variable alone is
    wrong by a part of itself, the others by a part of the size of their terms.
    """

    matrix: Array
    size: Array
    part: float
    alone: NDArray[np.bool_]
    centre: Array

    @classmethod
    def of(cls, layer: GroupedLayer, matrix: Array, form: Dtype) -> Query:
        """For a literal form in one arithmetic."""
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
        part = gamma(layer.dimension + 3, U) + gamma(layer.dimension + 8, form.unit)
        return cls(np.abs(matrix), np.abs(matrix) @ reach * UP, part, np.count_nonzero(matrix, axis=1) == 1, np.abs(layer.centre))

    def error(self, here: Array) -> Array:
        """Where |z_e| <= here[e]."""
        return self.part * np.where(self.alone, here, self.size) * UP

    def away(self, here: Array) -> Array:
        """|M| (|x| + |centre|) there, which values that are formed without centring are rounded by."""
        return np.asarray((np.where(self.alone, here, self.size) + 2.0 * (self.matrix @ self.centre)) * UP)


def affine_size(layer: GroupedLayer) -> float:
    """A bound of |tilt (x - centre)|, which is added to the values of the first group's tokens."""
    if layer.tilt is None:
        return 0.0
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low)
    return float((np.abs(layer.tilt.astype(np.float64)) @ reach).max()) * 1.01
