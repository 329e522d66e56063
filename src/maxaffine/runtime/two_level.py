"""`two-level`: softmax over clusters of their log-sum-exp, times a softmax inside each cluster in its own coordinates.

    S_k(z) = site_k(z) + sum_e logsumexp_j(alpha_kej t_e + beta_kej),     Omega = softmax(S),     F = sum_k Omega_k p_k(t)

This is one softmax over all tokens, exactly.  What is gained is precision: logits inside a cluster are small numbers of t, and
the large ones, those of the sites, only say which cluster answers.  z, t, the sites' scores, the masses Omega and all sums are
in float64; keys meet t, rounded to the dtype, in the dtype that computes; affine values are taken at t in float64.

With A_k = site_k + sum_e max_j (alpha_kej t_e + beta_kej) and W_ke = sum_j exp(alpha_kej t_e + beta_kej - max) this is

    F = sum_k exp(A_k - max A) (sum_j w_kj v_kj(t)) / sum_k exp(A_k - max A) prod_e W_ke,        w_kj = prod_e exp(.. - max)

over the clusters whose mass can exceed SKIP: no logarithm, one division, and exponentials only where they count.  A product is
multiplied out from what its factors say.  Large batches run in a compiled kernel, small ones in NumPy; both carry out the same
operations in the same order.
"""

import math
from dataclasses import dataclass
from functools import reduce
from operator import add, mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.rounding import compute_dtype
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime import grouped, parallel
from maxaffine.runtime.grouped import BRANCH
from maxaffine.runtime.kept import once
from maxaffine.runtime.softmax import outer_products
from maxaffine.runtime.windowed import exponential

SKIP = 2.0**-120  # masses below this are left out; their values would have to be 1e36 times the others' to be seen
UNSEEN = -345.0  # logits below the largest of their cluster by more have the weight zero: exp of it is below SKIP^4
PAIRS = 1 << 22  # numbers of values that are gathered at once
CHUNK = 32 << 20  # bytes that a batch may take in NumPy


@dataclass(frozen=True)
class Family:
    """Clusters of equal shape, stacked: their numbers in the group, and arrays with the clusters first."""

    members: NDArray[np.intp]
    origin: Array  # (F, E)
    radius: Array
    keys: tuple[tuple[AnyArray, AnyArray], ...]  # per coordinate slopes and offsets (F, p_e), in the dtype that computes
    values: Array  # (F, p_1, .., p_E, K (1 + E)), or (.., K) where no value is affine
    affine: bool


@once
def families(group: ClusterGroup, compute: np.dtype[np.floating]) -> tuple[Family, ...]:
    """The clusters of a group by shape, keys in the dtype that computes."""
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


def levels(layer: GroupedLayer, group: ClusterGroup, x: Array) -> tuple[Array, list[tuple[Array, list[Array]]]]:
    """Both levels at points (B, D): scores S (B, C) of the clusters; per family t (B, F, E) and the local weights (B, F, p_e)."""
    z = (x - layer.centre) @ group.matrix.T
    scores = z @ group.site_slopes.astype(np.float64).T + group.site_offsets.astype(np.float64)
    compute = compute_dtype(layer.dtype)
    local = []
    for family in families(group, compute):
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
        local.append((t, found))
    return scores, local


@dataclass(frozen=True)
class Program:
    """A group as flat tables: sites and places (C, E), keys one after the other, and where every cluster's begin."""

    matrix: Array  # (E, D)
    sites: Array
    offsets: Array  # (C,)
    origin: Array
    radius: Array
    first: NDArray[np.int64]  # (C, E), of the keys
    count: NDArray[np.int64]
    slopes: AnyArray  # of all keys, in the dtype that computes
    betas: AnyArray
    at: NDArray[np.int64]  # (C,), where values begin
    values: Array  # of all clusters, (p_1, .., p_E, K, width) each
    width: int  # 1, or 1 + E where values are affine
    floors: Array  # (C,): A_k - max A below which a mass is surely at most SKIP
    work: int  # keys and values that a query meets, in the units of parallel.py

    @property
    def tables(self) -> tuple[Any, ...]:
        """What the kernel takes between the centre of the layer and its output."""
        places = (self.matrix, self.sites, self.offsets, self.origin, self.radius, self.first, self.count)
        return (*places, self.slopes, self.betas, self.at, self.values, self.width, self.floors)


@once
def program_of(group: ClusterGroup, compute: np.dtype[np.floating]) -> Program:
    """The tables of a group, keys in the dtype that computes."""
    clusters, E = group.clusters, len(group.matrix)
    affine = any(cluster.slopes is not None for cluster in clusters)
    keys = [axis for cluster in clusters for axis in cluster.axes]
    starts = np.cumsum([0, *(len(axis) for axis in keys)])[:-1].reshape(len(clusters), E)
    values = []
    for cluster in clusters:
        table = cluster.values.astype(np.float64)[..., None]
        if affine:
            lean = np.zeros((*cluster.values.shape, E)) if cluster.slopes is None else cluster.slopes.astype(np.float64)
            table = np.concatenate([table, lean], axis=-1)
        values.append(table.ravel())
    counts = np.array([cluster.shape for cluster in clusters], dtype=np.int64)
    return Program(
        matrix=np.ascontiguousarray(group.matrix, dtype=np.float64),
        sites=np.ascontiguousarray(group.site_slopes, dtype=np.float64),
        offsets=np.ascontiguousarray(group.site_offsets, dtype=np.float64),
        origin=np.stack([cluster.origin for cluster in clusters]),
        radius=np.stack([cluster.radius for cluster in clusters]),
        first=np.ascontiguousarray(starts, dtype=np.int64),
        count=counts,
        slopes=np.concatenate([axis.slopes for axis in keys]).astype(compute),
        betas=np.concatenate([axis.offsets for axis in keys]).astype(compute),
        at=np.cumsum([0, *(len(table) for table in values)])[:-1].astype(np.int64),
        values=np.concatenate(values),
        width=1 + E if affine else 1,
        floors=math.log(SKIP) - 1e-9 - np.log(counts.astype(np.float64)).sum(axis=1),
        work=4 * int(counts.sum()) + 4 * len(clusters) + 200,
    )


def cluster_group(layer: GroupedLayer, group: ClusterGroup, x: Array, out: Array, threads: int | None = None) -> None:
    """Adds F_g(x) to `out` (B, K) float64."""
    compute = compute_dtype(layer.dtype)
    program = program_of(group, compute)
    work = len(x) * program.work
    kernel = parallel.kernel("two_level", work, len(x))
    if kernel is not None:
        x, centre = np.ascontiguousarray(x), np.ascontiguousarray(layer.centre)
        parallel.over(0, len(x), work, threads, lambda start, stop: kernel(x, centre, *program.tables, out, start, stop))
        return
    step, held = max(1, CHUNK // bytes_per_query(layer)), families(group, compute)
    for start in range(0, len(x), step):
        out[start : start + step] += in_numpy(program, held, layer.centre, x[start : start + step])


def factor_group(layer: GroupedLayer, group: FactorGroup, x: Array, threads: int | None = None) -> Array:
    """The product of the factors from the left, and the shift: (B, K) float64."""
    product = np.ones((len(x), group.outputs))
    for factor in group.factors:
        value = np.zeros_like(product)
        cluster_group(layer, factor, x, value, threads)
        product *= value
    product += group.shift
    return product


def in_numpy(program: Program, held: tuple[Family, ...], centre: Array, x: Array) -> Array:
    """The kernel's operations in the same order, without numba: (B, K)."""
    z = [reduce(add, map(mul, row, (x - centre).T)) for row in program.matrix]
    scores = reduce(add, [one[:, None] * site for one, site in zip(z, program.sites.T, strict=True)]) + program.offsets
    for family in held:
        here = scores[:, family.members]
        for e, (slopes, offsets) in enumerate(family.keys):
            t = ((z[e][:, None] - family.origin[:, e]) / family.radius[:, e]).astype(slopes.dtype)
            here = here + reduce(np.maximum, [t * a + b for a, b in zip(slopes.T, offsets.T, strict=True)])
        scores[:, family.members] = here
    behind = scores - scores.max(axis=1, keepdims=True)
    rows, clusters = np.nonzero(behind >= program.floors)  # by query, and then by cluster
    mass = exponential(behind[rows, clusters])
    K = len(program.values[program.at[-1] :]) // int(program.count[-1].prod()) // program.width
    above, below = np.empty((len(rows), K)), np.empty(len(rows))
    for family in held:
        place = np.full(len(program.at), -1)
        place[family.members] = np.arange(len(family.members))
        mine = np.flatnonzero(place[clusters] >= 0)
        step = max(1, PAIRS // max(1, family.values[0].size))
        for first in range(0, len(mine), step):
            pairs = mine[first : first + step]
            answer, norm = _heads(family, place[clusters[pairs]], [one[rows[pairs]] for one in z], K)
            above[pairs], below[pairs] = mass[pairs, None] * answer, mass[pairs] * norm
    return _quotients(rows, above, below, len(x))


def _heads(family: Family, f: NDArray[np.intp], z: list[Array], K: int) -> tuple[Array, Array]:
    """sum_j w_j v_j(t) (P, K) and prod_e W_e (P,) of pairs of a query and a cluster of one family."""
    partial, norm, local = family.values[f].reshape(len(f), -1), np.ones(len(f)), []
    for e, (slopes, offsets) in enumerate(family.keys):
        local.append((z[e] - family.origin[f, e]) / family.radius[f, e])
        logits = local[e].astype(slopes.dtype)[:, None] * slopes[f] + offsets[f]
        logits = (logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
        weights = np.where(logits >= UNSEEN, exponential(np.maximum(logits, UNSEEN)), 0.0)
        norm = norm * _total(list(weights.T))
        table = partial.reshape(len(f), slopes.shape[1], -1)
        partial = reduce(add, [weights[:, j, None] * table[:, j] for j in range(slopes.shape[1])])
    mixed = partial.reshape(len(f), K, -1)
    answer = mixed[:, :, 0]
    for e in range(mixed.shape[2] - 1):
        answer = answer + mixed[:, :, 1 + e] * local[e][:, None]
    return answer, norm


def _total(terms: list[Array]) -> Array:
    """The sum in a tree of BRANCH terms per level, each summed from the left."""
    while len(terms) > 1:
        terms = [reduce(add, terms[i : i + BRANCH]) for i in range(0, len(terms), BRANCH)]
    return terms[0]


def _quotients(rows: NDArray[np.intp], above: Array, below: Array, count: int) -> Array:
    """sum above / sum below over the pairs of every query, one after the other; the lower sum with what it loses (Kahan)."""
    top, bottom, lost = np.zeros((count, above.shape[1])), np.zeros(count), np.zeros(count)
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    for r in range(int(rank.max(initial=-1)) + 1):
        pairs = np.flatnonzero(rank == r)
        at = rows[pairs]
        top[at] = top[at] + above[pairs]
        term = below[pairs] - lost[at]
        total = bottom[at] + term
        lost[at] = (total - bottom[at]) - term
        bottom[at] = total
    return np.asarray(top / bottom[:, None])


def evaluate(layer: GroupedLayer, x: Array, threads: int | None = None) -> AnyArray:
    """F(x): (B, K, 1), groups of clusters by two levels, products factor by factor, the others by one softmax per direction."""
    out = grouped.tilted(layer, x)
    for group in layer.groups:
        if group.clustered:
            cluster_group(layer, group, x, out, threads)
        elif group.factored:
            out += factor_group(layer, group, x, threads)
        else:
            out += grouped.product_group(layer, group, x)
    return out.astype(compute_dtype(layer.dtype))[:, :, None]


def attention(layer: GroupedLayer, x: Array) -> Array:
    """Weights (B, N) of every token, groups side by side, clusters one after the other."""
    parts = []
    for group in layer.groups:
        if not (group.clustered or group.factored):
            parts.append(outer_products(grouped.axis_weights(layer, group, x)))
            continue
        listed = group.combined
        scores, local = levels(layer, listed, x)
        omega = grouped.weights(scores)
        columns: list[Array] = [np.zeros(0)] * len(listed.clusters)
        for family, (_, weights) in zip(families(listed, compute_dtype(layer.dtype)), local, strict=True):
            for f, k in enumerate(family.members):
                columns[k] = omega[:, k, None] * outer_products([w[:, f] for w in weights])
        parts.append(np.concatenate(columns, axis=1))
    return np.concatenate(parts, axis=1)


@once
def bytes_per_query(layer: GroupedLayer) -> int:
    """Bytes per query: scores, local coordinates and weights of all clusters; values are gathered within PAIRS."""
    largest = [grouped.product_bytes(layer, group) for group in layer.groups if not (group.clustered or group.factored)]
    for group in layer.cluster_groups():
        keys = sum(sum(cluster.shape) for cluster in group.clusters)
        widest = max(cluster.count for cluster in group.clusters) * layer.d_out * (1 + len(group.matrix))
        largest.append(8 * (3 * keys + (8 + 2 * len(group.matrix)) * len(group.clusters) + 4 * min(widest, PAIRS)))
    return max(largest)
