"""A head of clusters in two or three directions as patches: polynomials on the cells of a uniform grid, with a proved distance.

On a cell only some clusters are heard: those whose mass may come within e^-reach of that of the cluster that is best in its
middle; where all their heads say the same to within a part of the room, that one alone.  For each of them the patch holds the
head p_k as a polynomial of v in [-1, 1]^E, and the difference of its mass to that of the first one as a quadratic in each v_e:

    F(z) = sum_k w_k p_k / sum_k w_k,      w_k = exp(S_k(z) - S_1(z)),
    S_k  = site_k + sum_e logsumexp_j (alpha_kej t_e + beta_kej)

Slopes of S_k in z_e lie between those of its keys, which says what S_k - S_1 may be anywhere on the cell.  The quadratic is the
interpolant at three Chebyshev points.  It is off by what is seen on SEEN equal steps and d^2/8 sup|S'' - 2 c_2| more, d a step,
S'' between 0 and s^2/4 for keys whose slopes spread over s.  Heads are collapsed where their cluster is heard
(runtime/cluster_series.py), expanded about each cell anew without a loss, and cut short: what is left out is at most the sum of
its Chebyshev coefficients.

All of this is done on cells that are a little wider (OVER), so that a patch is as near for a query that rounding has moved across
the edge of its cell.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly, chebvander
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.runtime.audible import MOST_HEARD, Heard, Keys, finer, heard_on, middles_of
from maxaffine.runtime.cluster_series import most_said, series_of
from maxaffine.runtime.kept import once

GRIDS = {2: (16, 32, 64, 128, 256, 384), 3: (4, 8, 16, 32, 48)}
STEEPEST = 8.0  # spread of a cluster's logits on half a cell
DEGREES = {2: (1, 2, 3, 5, 7), 3: (1, 2, 3)}  # per direction, tried in turn
SEEN = 32  # steps on a cell
LINE = 128 << 10  # bytes of patches that stay next to the arithmetic
WARP = 32  # queries that go together: they wait for the one that hears most
SOME = 48  # clusters of which every grid is tried in full
FINER = 1.1  # what a grid of twice as many cells per direction counts for
TRIED = 24  # clusters that a grid is chosen by


@dataclass(frozen=True)
class Patches:
    """Cells of the box [low, high] of z, the patches of each one after the other, and what they are off by."""

    low: Array  # (E,)
    high: Array
    shape: tuple[int, ...]
    first: NDArray[np.int64]  # (cells,), row by row
    count: NDArray[np.int64]
    values: Array  # (patches, degree + 1, ..), powers of v_0, v_1, .., 1 where the patch ends
    scores: Array  # (patches, 1 + 2 E): 1, v_0, v_1, .., v_0^2, v_1^2, ..
    error: float  # of the heads
    score_error: float  # of the differences of masses
    unheard: float  # what clusters say that are not heard, at most
    size: float

    @property
    def most(self) -> int:
        """The most patches of a cell."""
        return int(self.count.max())

    @property
    def degree(self) -> int:
        """Of the heads, per direction."""
        return int(self.values.shape[1]) - 1

    @property
    def stride(self) -> int:
        """Numbers of a patch as it is stored: rows of four or eight powers, and eight for the difference of masses."""
        return int((self.degree + 1) ** (len(self.shape) - 1)) * row_of(self.degree) + 8


def row_of(degree: int) -> int:
    """Numbers that a row of powers takes: four or eight."""
    return 4 if degree <= 3 else 8


@once
def patches(group: ClusterGroup, span: tuple[float, ...], tolerance: float) -> Patches:
    """The patches of a group where |z_e| <= span_e; Refused where they are too many."""
    E, high = len(group.matrix), np.array(span)
    low = -high
    if E not in GRIDS or group.outputs != 1:
        raise Refused("patches are for clusters of two or three directions and one output.")
    keys = Keys.of(group)
    most = sum(most_said(cluster, low, high) for cluster in group.clusters)
    reach = math.log(max(64.0 * most / tolerance, 1e4))
    best: tuple[float, int, Heard, Patches | None] | None = None
    known: dict[int, Heard] = {}
    for step, side in enumerate(GRIDS[E]):
        coarse = max((sides for sides in known if side % sides == 0), default=None)
        if coarse is None:
            heard = heard_on(keys, low, high, side, reach)
        else:
            heard = finer(keys, low, high, side, reach, known[coarse], coarse)
        if heard is None:
            continue
        known[side] = heard
        made, cost = None, _foreseen(keys, low, high, side, heard, tolerance)
        if len(group.clusters) <= SOME and math.isfinite(cost):
            made = _made(keys, low, high, side, heard, tolerance, reach)
            cost = waiting(E, made.degree, made.count, len(made.values))
        cost *= FINER**step
        if math.isfinite(cost) and (best is None or cost < best[0]):
            best = cost, side, heard, made
    if best is None:
        raise Refused(f"more than {MOST_HEARD} of its clusters meet in a small cell, or their heads are too steep there.")
    return _made(keys, low, high, best[1], best[2], tolerance, reach) if best[3] is None else best[3]


def _foreseen(keys: Keys, low: Array, high: Array, side: int, heard: Heard, tolerance: float) -> float:
    """About what a query waits for on a grid, by some of the clusters; infinite where they are too steep for its cells."""
    E = len(low)
    along = [middles_of(float(low[e]), float(high[e]), side) for e in range(E)]
    half = np.array([one for _, one in along])
    if not float(((keys.largest - keys.least) * half).max()) < STEEPEST:
        return math.inf
    place, degree = np.stack(np.unravel_index(heard.cell, (side,) * E), axis=1), 0
    present = np.unique(heard.cluster)
    for k in present[np.unique(np.linspace(0, len(present) - 1, TRIED).astype(int))]:
        mine = np.flatnonzero(heard.cluster == k)
        series, _, box = _series(keys.group.clusters[k], place[mine], along, tolerance / 4.0)
        degree = max(degree, _degree(np.abs(_local(series, place[mine], along, box)), 0.75 * tolerance))
    return math.inf if degree > DEGREES[E][-1] else waiting(E, degree, heard.count, len(heard.cell))


def waiting(E: int, degree: int, count: NDArray[np.int64], patches: int) -> float:
    """Reads of four numbers, of the patches that the slowest query of a warp hears; more where the table is far away."""
    powers = float((degree + 1) ** (E - 1) * row_of(degree))
    shares = [float((count >= m).mean()) for m in range(2, int(count.max()) + 1)]
    loops = sum(1.0 - (1.0 - share) ** WARP for share in shares)
    reads = 1.0 + powers / 4.0 + loops * (powers + 8) / 4.0
    return reads * (1.0 + math.log2(1.0 + 4.0 * (powers + 8) * patches / LINE) / 16.0)


def _alike(values: Array, heard: Heard, room: float) -> tuple[float, NDArray[np.bool_]]:
    """Cells whose heads are all within `room` of the best one's keep that one: what that costs, and the pairs that stay."""
    starts = np.concatenate([[0], np.cumsum(heard.count)[:-1]])
    first = starts[heard.cell]
    apart = np.maximum.reduceat(_sizes(values - values[first]), starts)  # per cell
    alike = apart <= room
    kept = ~alike[heard.cell] | (np.arange(len(first)) == first)
    return float(apart[alike].max(initial=0.0)), kept


def _made(keys: Keys, low: Array, high: Array, side: int, heard: Heard, tolerance: float, reach: float) -> Patches:
    """The patches on one grid."""
    group = keys.group
    E = len(low)
    along = [middles_of(float(low[e]), float(high[e]), side) for e in range(E)]
    place = np.stack(np.unravel_index(heard.cell, (side,) * E), axis=1)  # (pairs, E)
    expanded, error, size, degree = [], 0.0, 0.0, 0
    order = np.argsort(heard.cluster, kind="stable")
    starts = np.searchsorted(heard.cluster[order], np.arange(len(group.clusters) + 1))
    for k, cluster in enumerate(group.clusters):
        mine = order[starts[k] : starts[k + 1]]
        if len(mine) == 0:
            continue
        series, own, box = _series(cluster, place[mine], along, tolerance / 4.0)
        local = _local(series, place[mine], along, box)  # (cells, n_0, n_1, ..)
        expanded.append((mine, local))
        error = max(error, own)
        sizes = np.abs(local)
        size = max(size, float(_sizes(local).max()))
        degree = max(degree, _degree(sizes, 0.75 * tolerance))
    if degree > DEGREES[E][-1]:
        raise Refused("its heads take polynomials of too high a degree on small cells.")
    values = np.zeros((len(heard.cell), *(degree + 1,) * E))
    cut = 0.0
    for mine, local in expanded:
        kept = local[(slice(None), *(slice(degree + 1),) * E)]
        cut = max(cut, float((_sizes(local) - _sizes(kept)).max()) + 1e-14 * size)
        values[mine] = np.pad(kept, ((0, 0), *((0, degree + 1 - n) for n in kept.shape[1:])))
    lost, stays = _alike(values, heard, 0.125 * tolerance)
    heard, values, place = heard.of(stays), values[stays], place[stays]
    to_powers = np.stack([np.pad(cheb2poly(row), (0, degree + 1 - len(cheb2poly(row)))) for row in np.eye(degree + 1)])
    values = on_axes(values, [np.asarray(to_powers, dtype=np.float64)] * E)
    scores, score_error = _scores(keys, heard, place, along)
    first = np.concatenate([[0], np.cumsum(heard.count)[:-1]])
    unheard = 2.0 * math.exp(-reach) * sum(most_said(cluster, low, high) for cluster in group.clusters) + lost
    made = np.array(low), np.array(high), (side,) * E, first, heard.count, values, scores
    return Patches(*made, (error + cut) * (1 + 1e-9), score_error, unheard, size)


def _series(
    cluster: Cluster, place: NDArray[np.int64], along: list[tuple[Array, float]], tolerance: float
) -> tuple[Array, float, list[tuple[float, float]]]:
    """Chebyshev coefficients of a cluster's head on the box of its cells, what they are off by, and that box: middle and half."""
    box = []
    for e, (middles, half) in enumerate(along):
        start, stop = middles[place[:, e].min()] - half, middles[place[:, e].max()] + half
        box.append((float((start + stop) / 2.0), float((stop - start) / 2.0 * (1 + 1e-12))))
    middle, wide = np.array(box).T
    found, error = series_of(cluster, middle, wide, tolerance)
    if len(box) == 2:
        series: Array = found.cores[0][0] @ found.cores[1][0].T
    else:  # a train
        series = np.einsum("anb,bmc,clk->nml", *found.cores)
    return series.astype(np.float64), error, box


def _sizes(values: Array) -> Array:
    """Sums of |coefficients|, of every patch."""
    return np.asarray(np.abs(values).reshape(len(values), -1).sum(axis=1))


def on_axes(values: Array, maps: list[Array]) -> Array:
    """Coefficients of every patch under one linear map (n, m) per direction."""
    for e, one in enumerate(maps):
        values = np.moveaxis(np.moveaxis(values, 1 + e, -1) @ one, -1, 1 + e)
    return np.ascontiguousarray(values)


def _local(series: Array, place: NDArray[np.int64], along: list[tuple[Array, float]], box: list[tuple[float, float]]) -> Array:
    """The same polynomial in the coordinates of each cell: (cells, n_0, n_1, ..)."""
    E, maps = len(box), []
    for e in range(E):
        n = series.shape[e]
        angle = (2.0 * np.arange(n) + 1.0) * np.pi / (2.0 * n)
        nodes = np.cos(angle)
        unique, back = np.unique(place[:, e], return_inverse=True)
        at = (along[e][0][unique][:, None] + along[e][1] * nodes - box[e][0]) / box[e][1]
        table = chebvander(at, n - 1)  # (cells, nodes, n)
        rows = np.cos(np.multiply.outer(np.arange(n), angle)) * (2.0 / n)
        rows[0] /= 2.0
        maps.append((rows @ table)[back])  # (pairs, n, n)
    how = {2: "pai,pbj,ij->pab", 3: "pai,pbj,pck,ijk->pabc"}[E]
    return np.asarray(np.einsum(how, *maps, series, optimize=True))


def _degree(sizes: Array, tolerance: float) -> int:
    """The least degree per direction, of those that kernels take, beyond which coefficients add up to no more than that."""
    E, whole = sizes.ndim - 1, _sizes(sizes)
    for degree in DEGREES[E]:
        if float((whole - _sizes(sizes[(slice(None), *(slice(degree + 1),) * E)])).max()) <= tolerance:
            return degree
    return DEGREES[E][-1] + 1


def _scores(keys: Keys, heard: Heard, place: NDArray[np.int64], along: list[tuple[Array, float]]) -> tuple[Array, float]:
    """The differences of masses as quadratics, and what a quadratic is off by."""
    nodes = np.cos(np.array([1.0, 3.0, 5.0]) * np.pi / 6.0)
    fit = np.linalg.inv(np.stack([np.ones(3), nodes, nodes * nodes], axis=1))
    best = heard.best[heard.cell]
    apart = keys.offsets[heard.cluster] - keys.offsets[best]
    E = len(along)
    scores = np.zeros((len(heard.cell), 1 + 2 * E))
    off = 0.0
    for e in range(E):
        middles, half = along[e]
        masses = np.stack([keys.masses(e, middles + half * node) for node in nodes], axis=-1)  # (C, side, 3)
        fitted = masses @ fit.T
        found = fitted[heard.cluster, place[:, e]] - fitted[best, place[:, e]]
        apart = apart + found[:, 0]
        scores[:, 1 + e], scores[:, 1 + E + e] = found[:, 1], found[:, 2]
        off += _bent(keys, e, middles, half, fitted, np.unique(np.stack([heard.cluster, place[:, e]], axis=1), axis=0))
    scores[:, 0] = apart
    scores[heard.cluster == best] = 0.0
    size = float(np.abs(keys.offsets).max() + (np.abs(keys.sites) @ np.array([np.abs(m).max() for m, _ in along])).max())
    return scores, 2.0 * off + 64.0 * FLOAT64.unit * size


def _bent(keys: Keys, e: int, middles: Array, half: float, fitted: Array, pairs: NDArray[np.int64]) -> float:
    """What a quadratic along direction e is off by, on the cells (clusters, rows) where it is used."""
    v = np.linspace(-1.0, 1.0, SEEN + 1)
    worst = 0.0
    starts = np.searchsorted(pairs[:, 0], np.arange(len(keys.sites) + 1))
    for k, cluster in enumerate(keys.group.clusters):
        rows = pairs[starts[k] : starts[k + 1], 1]
        spread = float(keys.largest[k, e] - keys.least[k, e]) * half
        if len(rows) == 0 or spread == 0.0:
            continue
        axis, z = cluster.axes[e], middles[rows][:, None] + half * v  # (rows, steps)
        t = (z - cluster.origin[e]) / cluster.radius[e]
        logits = axis.slopes.astype(np.float64)[:, None, None] * t + axis.offsets.astype(np.float64)[:, None, None]
        top = logits.max(axis=0)
        exact = keys.sites[k, e] * z + top + np.log(np.exp(logits - top).sum(axis=0))
        c = fitted[k, rows]
        away = float(np.abs(exact - (c[:, :1] + c[:, 1:2] * v + c[:, 2:] * v * v)).max())
        bend = spread * spread / 4.0 + 2.0 * float(np.abs(c[:, 2]).max())
        worst = max(worst, away + (2.0 / SEEN) ** 2 / 8.0 * bend)
    return worst
