"""A group of clusters: one softmax whose keys form clusters, each a small head in coordinates of its own.

    F(z) = sum_k Omega_k(z) p_k(z),    p_k(z) = sum_j w_kj(t) (c_kj + G_kj t),    t = (z - origin_k) / radius_k
    logit of token (k, j) = site_k(z) + alpha_kj . t + beta_kj,    site_k(z) = a_k . z + b_k

w_kj is the softmax over the keys of cluster k alone and Omega_k the mass of the cluster, a softmax over clusters of
site_k(z) + logsumexp_j(alpha_kj . t + beta_kj).  This is one softmax over all tokens, exactly; which of the two forms is
evaluated is the runtime's matter.  A piecewise affine function has one token per cluster, a function on regions the same keys
in all of them, a tree of cells keys of its own in every cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.keys import AxisKeys, OnAxes, frozen


@dataclass(frozen=True)
class Cluster(OnAxes):
    """One cluster: keys per coordinate of t, values c (p_1, .., p_E, K), and G (.., K, E) where values are affine in t."""

    origin: Array  # (E,)
    radius: Array  # (E,), positive
    axes: tuple[AxisKeys, ...]
    values: Array
    slopes: Array | None = None

    def stored(self, dtype: np.dtype[np.generic], affine: bool) -> Cluster:
        """The cluster with keys and values rounded to `dtype`; origin and radius stay in float64.

        Where `affine`, constant values get slopes of zero.
        """
        slopes = np.zeros((*self.values.shape, len(self.axes))) if self.slopes is None else self.slopes
        kept = frozen(slopes, dtype) if affine else None
        return Cluster(frozen(self.origin), frozen(self.radius), self.stored_axes(dtype), frozen(self.values, dtype), kept)

    def arrays(self) -> list[Array]:
        """Every stored number."""
        return [self.origin, self.radius, *self.key_arrays, self.values, *([] if self.slopes is None else [self.slopes])]


@dataclass(frozen=True)
class ClusterGroup:
    """Clusters side by side under one softmax: M (E, D), the sites' slopes (C, E) and offsets (C,), and the clusters."""

    matrix: Array
    site_slopes: Array
    site_offsets: Array
    clusters: tuple[Cluster, ...]

    clustered: ClassVar[Literal[True]] = True
    factored: ClassVar[Literal[False]] = False

    @property
    def blocks(self) -> tuple[ClusterGroup, ...]:
        """What two levels run: the group itself."""
        return (self,)

    @property
    def combined(self) -> ClusterGroup:
        """The clusters of the literal layer."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Tokens of every cluster."""
        return tuple(cluster.count for cluster in self.clusters)

    @property
    def count(self) -> int:
        """N_g, all tokens."""
        return sum(self.shape)

    @property
    def outputs(self) -> int:
        """K."""
        return int(self.clusters[0].values.shape[-1])

    @property
    def work(self) -> int:
        """Tokens that an evaluation meets."""
        return self.count

    @property
    def is_affine(self) -> bool:
        """Whether some value is affine rather than constant."""
        return any(cluster.slopes is not None for cluster in self.clusters)

    @property
    def layout(self) -> str:
        """Tokens and clusters, as a person reads them."""
        return f"{self.count} in {len(self.clusters)} clusters"

    @property
    def nbytes(self) -> int:
        """Bytes that the stored arrays take."""
        return sum(a.nbytes for a in self.arrays())

    def scaled(self, by: tuple[float, ...]) -> ClusterGroup:
        """The same group in coordinates z / by, exact where these are powers of two."""
        scale = np.array(by)
        clusters = (replace(one, origin=one.origin / scale, radius=one.radius / scale) for one in self.clusters)
        sites = self.site_slopes.astype(np.float64) * scale
        return replace(self, matrix=self.matrix / scale[:, None], site_slopes=sites, clusters=tuple(clusters))

    def alone(self, k: int) -> ClusterGroup:
        """The same clusters for output k."""
        if self.outputs == 1:
            return self
        clusters = (
            replace(one, values=one.values[..., k : k + 1], slopes=None if one.slopes is None else one.slopes[..., k : k + 1, :])
            for one in self.clusters
        )
        return replace(self, clusters=tuple(clusters))

    def arrays(self) -> list[Array]:
        """Every stored number of sites and clusters."""
        return [self.site_slopes, self.site_offsets, *(a for cluster in self.clusters for a in cluster.arrays())]

    def stored(self, dtype: np.dtype[np.generic]) -> ClusterGroup:
        """The group with sites, keys and values rounded to `dtype`; if one cluster's values are affine, all clusters' are."""
        sites = frozen(self.site_slopes, dtype), frozen(self.site_offsets, dtype)
        return ClusterGroup(frozen(self.matrix), *sites, tuple(c.stored(dtype, self.is_affine) for c in self.clusters))

    def check(self, dimension: int) -> None:
        """Refuse shapes that do not belong together and numbers that are not finite."""
        E, C = len(self.matrix), len(self.clusters)
        if self.matrix.shape != (E, dimension) or C == 0:
            raise BadInput(f"a group of clusters needs at least one, and a `matrix` (E, {dimension}), not {self.matrix.shape}.")
        if self.site_slopes.shape != (C, E) or self.site_offsets.shape != (C,):
            raise BadInput(f"sites must be ({C}, {E}) slopes and ({C},) offsets.")
        for cluster in self.clusters:
            good = cluster.origin.shape == cluster.radius.shape == (E,) and len(cluster.axes) == E
            good = good and cluster.values.shape == (*cluster.shape, self.outputs)
            if not good or (cluster.slopes is not None and cluster.slopes.shape != (*cluster.values.shape, E)):
                raise BadInput(f"a cluster's keys {cluster.shape}, values and slopes do not belong together.")
            if not (cluster.radius > 0).all():
                raise BadInput("the radii of a cluster must be positive.")
        if not all(np.isfinite(a).all() for a in (self.matrix, *self.arrays())):
            raise BadInput("every number of a layer must be finite.")

    def listed(self) -> tuple[Array, Array]:
        """Slopes (N_g, E) in z and offsets (N_g,) of all keys, cluster after cluster: the literal layer's, in float64."""
        slopes, offsets = [], []
        for a, b, cluster in zip(self.site_slopes, self.site_offsets, self.clusters, strict=True):
            grids = np.meshgrid(*(axis.slopes.astype(np.float64) for axis in cluster.axes), indexing="ij")
            alpha = np.stack([grid.ravel() for grid in grids], axis=1) / cluster.radius
            betas = np.meshgrid(*(axis.offsets.astype(np.float64) for axis in cluster.axes), indexing="ij")
            slopes.append(np.asarray(a, dtype=np.float64) + alpha)
            offsets.append(float(b) + sum(beta.ravel() for beta in betas) - alpha @ cluster.origin)
        return np.concatenate(slopes), np.concatenate(offsets)

    def listed_values(self) -> tuple[Array, Array]:
        """Values (N_g, K) and slopes (N_g, K, E) in z of all tokens: value = c + G z, the literal layer's, in float64."""
        E = len(self.matrix)
        values, slopes = [], []
        for cluster in self.clusters:
            c = cluster.values.astype(np.float64).reshape(cluster.count, -1)
            G = np.zeros((*c.shape, E))
            if cluster.slopes is not None:
                G = cluster.slopes.astype(np.float64).reshape(cluster.count, -1, E) / cluster.radius
            values.append(c - G @ cluster.origin)
            slopes.append(G)
        return np.concatenate(values), np.concatenate(slopes)
