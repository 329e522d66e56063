"""`two-level`: softmax over clusters of their log-sum-exp, times a softmax inside each cluster in its own coordinates.

    S_k(z) = site_k(z) + sum_e logsumexp_j(alpha_kej t_e + beta_kej),     Omega = softmax(S),     F = sum_k Omega_k p_k(t)

This is one softmax over all tokens, exactly.  What is gained is precision: logits inside a cluster are small numbers of t, and
the large ones, those of the sites, only say which cluster answers.  z, t, the sites' scores, the masses Omega and all sums are
in float64; keys meet t, rounded to the dtype, in the dtype that computes; affine values are taken at t in float64.  Clusters of
equal shape run together; a cluster whose mass is below SKIP at a query is left out there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import grouped

Array = NDArray[np.float64]

SKIP = 2.0**-120  # masses below this are left out; their values would have to be 1e36 times the others' to be seen
PAIRS = 1 << 22  # numbers of values that are gathered at once


@dataclass(frozen=True)
class Family:
    """Clusters of equal shape, stacked: their numbers in the group, and arrays with the clusters first."""

    members: NDArray[np.intp]
    origin: Array  # (F, E)
    radius: Array
    keys: tuple[tuple[NDArray[Any], NDArray[Any]], ...]  # per coordinate slopes and offsets (F, p_e), in the dtype that computes
    values: Array  # (F, p_1, .., p_E, K (1 + E)), or (.., K) where no value is affine
    affine: bool


@lru_cache(maxsize=8)
def _families(holder: "_Held") -> tuple[Family, ...]:
    group, compute = holder.group, holder.compute
    E, K = len(group.matrix), group.outputs
    by_shape: dict[tuple[tuple[int, ...], bool], list[int]] = {}
    for k, cluster in enumerate(group.clusters):
        by_shape.setdefault((cluster.shape, cluster.slopes is not None), []).append(k)
    found = []
    for (shape, affine), members in by_shape.items():
        clusters = [group.clusters[k] for k in members]
        values = np.stack([c.values for c in clusters]).astype(np.float64)
        if affine:
            lean = np.stack([c.slopes for c in clusters if c.slopes is not None]).astype(np.float64)
            values = np.concatenate([values[..., None], lean], axis=-1).reshape(len(members), *shape, K * (1 + E))
        slopes = [np.stack([c.axes[e].slopes for c in clusters]).astype(compute) for e in range(E)]
        offsets = [np.stack([c.axes[e].offsets for c in clusters]).astype(compute) for e in range(E)]
        keys = tuple(zip(slopes, offsets, strict=True))
        origin, radius = np.stack([c.origin for c in clusters]), np.stack([c.radius for c in clusters])
        found.append(Family(np.asarray(members, dtype=np.intp), origin, radius, keys, values, affine))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Held:
    """What the cache keys on: the group itself (groups are frozen, so the same object has the same numbers)."""

    group: ClusterGroup
    compute: np.dtype[np.floating]

    def __hash__(self) -> int:
        return hash((id(self.group), self.compute))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.group is self.group and other.compute == self.compute


def families(layer: GroupedLayer, group: ClusterGroup) -> tuple[Family, ...]:
    """The clusters of a group by shape; kept for the groups used last."""
    return _families(_Held(group, compute_dtype(layer.dtype)))


@dataclass(frozen=True)
class Levels:
    """Scores S (B, C) of the clusters, and per family t (B, F, E) in float64 with the local weights (B, F, p_e)."""

    scores: Array
    local: tuple[tuple[Array, tuple[Array, ...]], ...]


def levels(layer: GroupedLayer, group: ClusterGroup, x: Array) -> Levels:
    """Both levels at points (B, D)."""
    z = (x - layer.centre) @ group.matrix.T
    scores = z @ group.site_slopes.astype(np.float64).T + group.site_offsets.astype(np.float64)
    compute = compute_dtype(layer.dtype)
    local = []
    for family in families(layer, group):
        t = (z[:, None, :] - family.origin) / family.radius
        rounded = t.astype(compute)
        found = []
        for e, (slopes, offsets) in enumerate(family.keys):
            if slopes.shape[1] == 1:  # one key: its weight is one
                if slopes.any() or offsets.any():
                    scores[:, family.members] += (rounded[:, :, e] * slopes[:, 0] + offsets[:, 0]).astype(np.float64)
                found.append(np.ones((len(x), len(family.members), 1)))
                continue
            logits = rounded[:, :, e, None] * slopes
            logits += offsets
            top = logits.max(axis=-1, keepdims=True)
            logits -= top
            wide = np.exp(logits, out=logits).astype(np.float64)
            total = grouped.tree_sum(wide)
            scores[:, family.members] += top[:, :, 0].astype(np.float64) + np.log(total)
            found.append(wide / total[:, :, None])
        local.append((t, tuple(found)))
    return Levels(scores, tuple(local))


def masses(scores: Array) -> Array:
    """Omega (B, C): the softmax over clusters, float64."""
    return grouped.weights(scores)


def cluster_group(layer: GroupedLayer, group: ClusterGroup, x: Array) -> Array:
    """F_g(x): (B, K) float64."""
    found = levels(layer, group, x)
    omega = masses(found.scores)
    K, E = group.outputs, len(group.matrix)
    out = np.zeros((len(x), K))
    for family, (t, weights) in zip(families(layer, group), found.local, strict=True):
        mass = omega[:, family.members]
        rows, members = np.nonzero(mass > SKIP)
        for cut in _cuts(len(rows), family.values[0].size):
            b, f = rows[cut], members[cut]
            partial = family.values[f]  # (P, p_1, .., p_E, width)
            for e, w in enumerate(weights):
                partial = np.matmul(w[b, f][:, None, :], partial.reshape(len(b), family.values.shape[1 + e], -1))
            answer = partial.reshape(len(b), -1)
            if family.affine:
                mixed = answer.reshape(len(b), K, 1 + E)
                answer = mixed[:, :, 0] + np.einsum("pke,pe->pk", mixed[:, :, 1:], t[b, f])
            weighted = mass[b, f][:, None] * answer
            for k in range(K):
                out[:, k] += np.bincount(b, weighted[:, k], minlength=len(x))
    return out


def _cuts(count: int, size: int) -> Iterator[slice]:
    step = max(1, PAIRS // max(1, size))
    for first in range(0, count, step):
        yield slice(first, first + step)


def evaluate(layer: GroupedLayer, x: Array) -> NDArray[Any]:
    """F(x): (B, K, 1), groups of clusters by two levels, the others by one softmax per direction."""
    out = grouped.tilted(layer, x)
    for group in layer.groups:
        if isinstance(group, ClusterGroup):
            out += cluster_group(layer, group, x)
        else:
            out += grouped.product_group(layer, group, x)
    return out.astype(compute_dtype(layer.dtype))[:, :, None]


def attention(layer: GroupedLayer, x: Array) -> Array:
    """Weights (B, N) of every token, groups side by side, clusters one after the other."""
    parts = []
    for group in layer.groups:
        if not isinstance(group, ClusterGroup):
            alphas = grouped.axis_weights(layer, group, x)
            parts.append(_products(alphas))
            continue
        found = levels(layer, group, x)
        omega = masses(found.scores)
        columns: list[Array] = [np.zeros(0)] * len(group.clusters)
        for family, (_, weights) in zip(families(layer, group), found.local, strict=True):
            for f, k in enumerate(family.members):
                columns[k] = omega[:, k, None] * _products([w[:, f] for w in weights])
        parts.append(np.concatenate(columns, axis=1))
    return np.concatenate(parts, axis=1)


def _products(alphas: list[Array]) -> Array:
    whole = alphas[0]
    for alpha in alphas[1:]:
        whole = (whole[:, :, None] * alpha[:, None, :]).reshape(len(alpha), -1)
    return whole


def bytes_per_query(layer: GroupedLayer) -> int:
    """Bytes per query: scores, local coordinates and weights of all clusters; values are gathered within PAIRS."""
    largest = 0
    for group in layer.groups:
        if isinstance(group, ClusterGroup):
            keys = sum(sum(cluster.shape) for cluster in group.clusters)
            widest = max(cluster.count for cluster in group.clusters) * layer.d_out * (1 + len(group.matrix))
            largest = max(largest, 8 * (3 * keys + (8 + 2 * len(group.matrix)) * len(group.clusters) + 4 * min(widest, PAIRS)))
        else:
            largest = max(largest, grouped.product_bytes(layer, group))
    return largest
