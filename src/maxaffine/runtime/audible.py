"""Which clusters of a group are heard on which cells of a grid: those whose mass may come within e^-reach of the best one's.

The best one of a cell is that of its middle.  Slopes of masses in z_e lie between those of a cluster's keys, which says what the
difference of two masses may be anywhere on the cell.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64
from maxaffine.layer.clusters import ClusterGroup

OVER = 2.0**-10  # that what is made on a cell reaches over its edges, of half a cell
MOST_HEARD = 24  # clusters on one cell
MOST_PAIRS = 1 << 18
AT_ONCE = 1 << 23  # numbers of a block of cells by clusters


@dataclass(frozen=True)
class Keys:
    """What masses are made of: sites, and per direction the least and largest slope of a cluster's keys in z."""

    group: ClusterGroup
    sites: Array  # (C, E)
    offsets: Array
    least: Array  # (C, E)
    largest: Array

    @classmethod
    def of(cls, group: ClusterGroup) -> "Keys":
        """Of a group."""
        sites = group.site_slopes.astype(np.float64)
        ends = [[f([a.slopes.astype(np.float64) for a in c.axes], c.radius) for c in group.clusters] for f in (_least, _largest)]
        return cls(group, sites, group.site_offsets.astype(np.float64), sites + np.array(ends[0]), sites + np.array(ends[1]))

    def masses(self, e: int, z: Array) -> Array:
        """site_ke z + logsumexp along direction e, (C, len(z))."""
        found = np.empty((len(self.sites), len(z)))
        for k, cluster in enumerate(self.group.clusters):
            axis = cluster.axes[e]
            t = (z - cluster.origin[e]) / cluster.radius[e]
            logits = np.multiply.outer(axis.slopes.astype(np.float64), t) + axis.offsets.astype(np.float64)[:, None]
            top = logits.max(axis=0)
            found[k] = self.sites[k, e] * z + top + np.log(np.exp(logits - top).sum(axis=0))
        return found


def _least(slopes: list[Array], radius: Array) -> list[float]:
    return [float(one.min() / r) for one, r in zip(slopes, radius, strict=True)]


def _largest(slopes: list[Array], radius: Array) -> list[float]:
    return [float(one.max() / r) for one, r in zip(slopes, radius, strict=True)]


def middles_of(low: float, high: float, side: int) -> tuple[Array, float]:
    """Centres of cells along one direction, and half the width of a patch."""
    half = (high - low) / side / 2.0
    return np.asarray(low + half * (2.0 * np.arange(side) + 1.0), dtype=np.float64), half * (1.0 + OVER)


@dataclass(frozen=True)
class Heard:
    """Which clusters are heard on which cell, the best one first: pairs sorted by cell."""

    cell: NDArray[np.int64]
    cluster: NDArray[np.int64]
    best: NDArray[np.int64]  # per cell
    count: NDArray[np.int64]

    def of(self, kept: NDArray[np.bool_]) -> "Heard":
        """Some of the pairs."""
        count = np.bincount(self.cell[kept], minlength=len(self.count))
        return Heard(self.cell[kept], self.cluster[kept], self.best, count)


def heard_on(keys: Keys, low: Array, high: Array, side: int, reach: float) -> Heard | None:
    """Pairs of cells and clusters; None where a cell has too many."""
    C, E = keys.sites.shape
    masses, half = _inmiddles_of(keys, low, high, side)
    cells, clusters, best = [], [], []
    layer = side ** (E - 1)  # cells of a row
    rows = max(1, AT_ONCE // (layer * C))
    for start in range(0, side, rows):
        here = masses[0][start : start + rows]
        for mass in masses[1:]:
            here = (here[:, None, :] + mass).reshape(-1, C)
        here = here + keys.offsets
        top = here.argmax(axis=1)
        above = here - here[np.arange(len(here)), top][:, None]
        for e in range(E):
            least, largest = keys.least[:, e], keys.largest[:, e]
            above += half[e] * np.maximum(largest - least[top][:, None], largest[top][:, None] - least)
        pair = above >= -reach - 64.0 * FLOAT64.unit * float(np.abs(here).max())
        pair[np.arange(len(here)), top] = True
        if pair.sum(axis=1).max() > MOST_HEARD:
            return None
        row, cluster = np.nonzero(pair)
        cells.append(row + start * layer)
        clusters.append(cluster)
        best.append(top)
    return _paired(np.concatenate(cells), np.concatenate(clusters), np.concatenate(best))


def finer(keys: Keys, low: Array, high: Array, side: int, reach: float, coarse: Heard, sides: int) -> Heard | None:
    """The same from the pairs of a grid of fewer `sides`: who is not heard on a cell is not heard on its parts."""
    E, times = len(low), side // sides
    masses, half = _inmiddles_of(keys, low, high, side)
    place = np.stack(np.unravel_index(coarse.cell, (sides,) * E)) * times  # (E, pairs)
    starts = np.concatenate([[0], np.cumsum(coarse.count)[:-1]])
    k = coarse.cluster
    cells, clusters = [], []
    best = np.zeros(side**E, dtype=np.int64)
    for part in itertools.product(range(times), repeat=E):
        here = place + np.array(part)[:, None]
        mass = keys.offsets[k] + sum(masses[e][here[e], k] for e in range(E))
        top = np.maximum.reduceat(mass, starts)[coarse.cell]
        first = np.flatnonzero(mass == top)
        leader = np.zeros(len(starts), dtype=np.int64)
        leader[coarse.cell[first[::-1]]] = k[first[::-1]]
        led = leader[coarse.cell]
        above = mass - top
        for e in range(E):
            least, largest = keys.least[:, e], keys.largest[:, e]
            above = above + half[e] * np.maximum(largest[k] - least[led], largest[led] - least[k])
        pair = (above >= -reach - 64.0 * FLOAT64.unit * float(np.abs(mass).max())) | (k == led)
        cell = np.ravel_multi_index(tuple(here), (side,) * E)
        best[cell[first]] = led[first]
        cells.append(cell[pair])
        clusters.append(k[pair])
    return _paired(np.concatenate(cells), np.concatenate(clusters), best)


def _inmiddles_of(keys: Keys, low: Array, high: Array, side: int) -> tuple[list[Array], Array]:
    """Masses (side, C) in the middles of cells, per direction, and half widths, rounded up."""
    along = [middles_of(float(one), float(other), side) for one, other in zip(low, high, strict=True)]
    masses = [keys.masses(e, middles).T for e, (middles, _) in enumerate(along)]
    return masses, np.array([half for _, half in along]) * (1 + 1e-9)


def _paired(cell: NDArray[np.int64], cluster: NDArray[np.int64], best: NDArray[np.int64]) -> Heard | None:
    """Pairs in order; None where there are too many."""
    count = np.bincount(cell, minlength=len(best))
    if len(cell) > MOST_PAIRS or count.max() > MOST_HEARD:
        return None
    order = np.lexsort((cluster, cluster != best[cell], cell))
    return Heard(cell[order], cluster[order], best, count)
