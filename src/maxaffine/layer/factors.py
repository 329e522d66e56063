"""A group that is a product of heads: it holds its factors, groups of clusters, and not their combinations.

    F_g(x) = shift + prod_b H_b(M_b (x - centre)),      H_b a group of clusters (layer/clusters.py)

Scores add up and values multiply, so that this is one softmax over all combinations of the factors' tokens, with the products of
their values.  Runtimes multiply what the factors say; the literal layer lists the combinations (`combined`).  Values of one
factor may be affine: those of a product are then affine as well.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, Literal

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text
from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.keys import frozen

LISTED = 1 << 16  # combinations of tokens that are listed at most; of more the layer knows the factors alone


@dataclass(frozen=True)
class FactorGroup:
    """The factors, and the shift (1,) that is added to their product, a float64 number in every dtype."""

    factors: tuple[ClusterGroup, ...]
    shift: Array

    clustered: ClassVar[Literal[False]] = False
    factored: ClassVar[Literal[True]] = True

    @property
    def blocks(self) -> tuple[ClusterGroup, ...]:
        """What two levels run: the factors."""
        return self.factors

    @cached_property
    def matrix(self) -> Array:
        """M (E, D), the factors' rows one after the other."""
        return np.concatenate([factor.matrix for factor in self.factors])

    @property
    def shape(self) -> tuple[int, ...]:
        """Tokens of every factor."""
        return tuple(factor.count for factor in self.factors)

    @property
    def count(self) -> int:
        """N_g, all combinations: implied by the factors, and an integer of any size."""
        return math.prod(self.shape)

    @property
    def work(self) -> int:
        """Tokens that an evaluation meets."""
        return sum(self.shape)

    @property
    def outputs(self) -> int:
        """K."""
        return self.factors[0].outputs

    @property
    def is_affine(self) -> bool:
        """Whether some value is affine rather than constant."""
        return any(factor.is_affine for factor in self.factors)

    @property
    def layout(self) -> str:
        """Tokens and clusters, as a person reads them."""
        return " x ".join(f"({factor.layout})" for factor in self.factors)

    @property
    def cluster_counts(self) -> tuple[int, ...]:
        """Clusters of every factor."""
        return tuple(len(factor.clusters) for factor in self.factors)

    @property
    def nbytes(self) -> int:
        """Bytes that the stored arrays take."""
        return sum(factor.nbytes for factor in self.factors) + self.shift.nbytes

    def stored(self, dtype: np.dtype[np.generic]) -> FactorGroup:
        """The group with its factors rounded to `dtype`."""
        return FactorGroup(tuple(factor.stored(dtype) for factor in self.factors), frozen(self.shift))

    def check(self, dimension: int) -> None:
        """Refuse shapes that do not belong together, numbers that are not finite, and several factors with affine values."""
        if len(self.factors) < 2 or self.shift.shape != (1,) or not np.isfinite(self.shift).all():
            raise BadInput("a product needs at least two factors and a finite shift.")
        for factor in self.factors:
            factor.check(dimension)
        if any(factor.outputs != 1 for factor in self.factors):
            raise BadInput("the factors of a product must have one output.")
        leaning = [any(np.any(cluster.slopes) for cluster in factor.clusters) for factor in self.factors]
        if sum(leaning) > 1:
            raise BadInput("the values of at most one factor of a product may be affine.")

    def check_listed(self) -> None:
        """Refuse to list more combinations than LISTED."""
        if self.count > LISTED:
            raise Refused(
                f"its {count_text(self.count)} tokens are all combinations of {' x '.join(map(str, self.shape))}, and {LISTED:,} "
                'are listed at most; run it by runtime="two-level", or export it by its structure.'
            )

    @cached_property
    def combined(self) -> ClusterGroup:
        """All combinations of the factors' clusters, in float64: the literal layer's, the last factor running fastest.

        Keys, places and slopes are the factors'; offsets are rounded sums and values rounded products, shifted.  Refused where
        there are more than LISTED tokens.
        """
        self.check_listed()
        clusters = tuple(self._cluster(cells) for cells in itertools.product(*(factor.clusters for factor in self.factors)))
        slopes = itertools.product(*(factor.site_slopes.astype(np.float64) for factor in self.factors))
        offsets = itertools.product(*(factor.site_offsets.astype(np.float64) for factor in self.factors))
        sites = np.array([np.concatenate(row) for row in slopes]), np.array([math.fsum(row) for row in offsets])
        return ClusterGroup(self.matrix, *sites, clusters)

    def _cluster(self, own: tuple[Cluster, ...]) -> Cluster:
        """One cluster of every factor: values prod_b v_b + shift, of which one may be affine in its coordinates."""
        values = [cluster.values[..., 0].astype(np.float64) for cluster in own]
        product = reduce(np.multiply.outer, values)
        slopes, first = np.zeros((*product.shape, 1, len(self.matrix))), 0
        for b, cluster in enumerate(own):
            for e in range(len(cluster.axes)):
                if cluster.slopes is not None and np.any(cluster.slopes[..., 0, e]):
                    lean = [cluster.slopes[..., 0, e].astype(np.float64) if i == b else one for i, one in enumerate(values)]
                    slopes[..., 0, first + e] = reduce(np.multiply.outer, lean)
            first += len(cluster.axes)
        origin, radius = (np.concatenate([getattr(one, name) for one in own]) for name in ("origin", "radius"))
        axes = tuple(axis for cluster in own for axis in cluster.axes)
        return Cluster(origin, radius, axes, (product + self.shift)[..., None], slopes)

    def listed(self) -> tuple[Array, Array]:
        """Slopes (N_g, E) in z and offsets (N_g,) of all keys, as `combined` has them."""
        return self.combined.listed()

    def listed_values(self) -> tuple[Array, Array]:
        """Values (N_g, K) and slopes (N_g, K, E) in z of all tokens, as `combined` has them."""
        return self.combined.listed_values()
