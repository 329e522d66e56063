"""Uniform product grids in cell units: their keys, their cells as intervals in x, and the target on them.

With P_i cells of width h_i on coordinate i the layer works in z_i = (x_i - centre_i)/h_i.  The sites are then the
half-integers c_k = k - (P_i - 1)/2, k = 0..P_i - 1, the keys a_k = c_k and the offsets b_k = -c_k^2/2, all of them exact in
floating point (up to 2^26 cells in float64), and the sharpness multiplies -|z - c|^2/2: it is rho = R h^2, dimensionless.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.layer.keys import AxisKeys, Coordinates, ProductKeys
from maxaffine.target.box import Box
from maxaffine.target.target import Target

SAMPLES = 1 << 19  # on a product of axes, at a time
CHUNK = 1 << 15  # cells enclosed at a time: bounded memory, and intervals that stay in the cache

CellMeans = Callable[[Array, Array], Array]


def axis_sites(count: int) -> Array:
    """c_k = k - (P - 1)/2."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2.0


def grid_keys(counts: tuple[int, ...]) -> ProductKeys:
    """Keys of the grid with these numbers of cells."""
    return ProductKeys(tuple(AxisKeys(sites, -0.5 * sites * sites) for sites in map(axis_sites, counts)))


def grid_coordinates(box: Box, counts: tuple[int, ...]) -> Coordinates:
    """z_i = (x_i - centre_i)/h_i, the scale rounded down so that the cells cover the box."""
    centre = (box.low + box.high) / 2.0
    half = np.maximum(box.high - centre, centre - box.low)
    scale = np.asarray(counts, dtype=np.float64) / 2.0 / half * (1.0 - 2.0**-48)
    return Coordinates(centre, np.diag(scale))


def cell_widths(coordinates: Coordinates) -> Array:
    """h_i = 1/scale_i, rounded up."""
    return np.asarray((1.0 / np.diag(coordinates.matrix)) * (1.0 + 2.0**-51))


def cell_centres(coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int) -> Array:
    """Centres in x (n, D) of the cells start..stop in row-major order, to within rounding."""
    index = np.unravel_index(np.arange(start, stop), counts)
    sites = np.stack([i - (count - 1) / 2.0 for count, i in zip(counts, index, strict=True)], axis=1)
    return np.asarray(coordinates.centre + sites / np.diag(coordinates.matrix))


def chunks(count: int, step: int = CHUNK) -> Iterator[tuple[int, int]]:
    """The cells 0..count in pieces start..stop."""
    return ((start, min(start + step, count)) for start in range(0, count, step))


def site_intervals(coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int, reach: float = 0.0) -> Interval:
    """Intervals (n, D) in x that hold centre_i + (c_k +- reach) / scale_i exactly, for the cells start..stop.

    `reach` is a multiple of 2^-10, so that c_k +- reach is exact.
    """
    assert reach * 1024 == int(reach * 1024)
    index = np.unravel_index(np.arange(start, stop), counts)
    cells = []
    for i, (count, k) in enumerate(zip(counts, index, strict=True)):
        scale, centre = coordinates.matrix[i, i], coordinates.centre[i]
        first = int(k.min(initial=count))  # only those that occur: a chunk of a long axis is a small part of it
        sites = np.arange(first, int(k.max(initial=-1)) + 1, dtype=np.float64) - (count - 1) / 2.0
        found = Interval.of(sites - reach, sites + reach) / Interval.point(scale) + Interval.point(centre)
        cells.append(found[k - first])
    return Interval.stack(cells)


def clipped_cells(
    target: Target, coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int, margin: float = 0.0
) -> tuple[Array, Array]:
    """Low and high ends (n, D) of the cells start..stop, enlarged by `margin` cells and clipped to the box."""
    cells = site_intervals(coordinates, counts, start, stop, 0.5 + margin)
    return np.maximum(cells.lo, target.box.low), np.minimum(cells.hi, target.box.high)


def enclose_cells(
    target: Target, coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int, margin: float
) -> Interval:
    """Enclosures (n, d_out, n_out) of f on the cells start..stop, enlarged and clipped."""
    low, high = clipped_cells(target, coordinates, counts, start, stop, margin)
    return enclose_in_pieces(target, low, high, {1: 16, 2: 4}.get(len(counts), 2 if len(counts) <= 6 else 1))


def enclose_in_pieces(target: Target, low: Array, high: Array, pieces: int) -> Interval:
    """Enclosures of f on boxes (n, D), each cut into pieces^D, whose hull is sharper than one evaluation."""
    hull: Interval | None = None
    for piece in np.ndindex(*(pieces,) * low.shape[1]):
        # Neighbouring pieces round their common face alike, so that together they cover the box.
        k = np.asarray(piece)
        left = low + (high - low) * (k / pieces)
        right = np.where(k + 1 == pieces, high, low + (high - low) * ((k + 1) / pieces))
        f = target.enclose(np.minimum(left, right), np.maximum(left, right))
        hull = f if hull is None else hull.hull(f)
    assert hull is not None
    return hull


def cell_samples(target: Target, coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int) -> Array:
    """f on a regular subgrid of midpoints in each of the cells start..stop: (n, samples, d_out, n_out)."""
    D = len(counts)
    step = 1.0 / np.diag(coordinates.matrix)
    mesh = np.stack(np.meshgrid(*[_midpoints(D)] * D, indexing="ij"), axis=-1).reshape(-1, D) * step
    centres = cell_centres(coordinates, counts, start, stop)
    points = (centres[:, None, :] + mesh).reshape(-1, D)
    samples = target.values(np.clip(points, target.box.low, target.box.high))
    return samples.reshape(len(centres), len(mesh), target.d_out, target.n_out)


def _midpoints(D: int) -> Array:
    """Places along a cell, in its widths from its centre."""
    per_axis = {1: 64, 2: 12, 3: 6}.get(D, 3)
    return (np.arange(per_axis) + 0.5) / per_axis - 0.5


def all_samples(target: Target, coordinates: Coordinates, counts: tuple[int, ...]) -> Iterator[tuple[int, int, Array]]:
    """start, stop and the same samples (n, samples, K) of those cells, for all cells.

    Those of an expression stand on a product of axes, where every operation takes the axes that it depends on.
    """
    D, cells = len(counts), math.prod(counts)
    along, row = len(_midpoints(D)), cells // counts[0]
    step = SAMPLES // (row * along**D)
    if target.expression is None or step == 0:
        for start, stop in chunks(cells, CHUNK // 32):
            found = cell_samples(target, coordinates, counts, start, stop)
            yield start, stop, found.reshape(stop - start, -1, target.d_out * target.n_out)
        return
    sides = []
    for i, count in enumerate(counts):
        scale = coordinates.matrix[i, i]
        places = (coordinates.centre[i] + axis_sites(count)[:, None] / scale + _midpoints(D) * (1.0 / scale)).ravel()
        sides.append(np.clip(places, target.box.low[i], target.box.high[i]).reshape([-1 if k == i else 1 for k in range(D)]))
    for first in range(0, counts[0], step):
        last = min(first + step, counts[0])
        found = target.expression.evaluate_on([sides[0][first * along : last * along], *sides[1:]])
        if not np.isfinite(found).all():  # the point and what is wrong there are named
            cell_samples(target, coordinates, counts, first * row, last * row)
        own = [n for count in (last - first, *counts[1:]) for n in (count, along)]
        order = [*range(0, 2 * D, 2), *range(1, 2 * D, 2), 2 * D]
        yield first * row, last * row, found.reshape(*own, -1).transpose(order).reshape((last - first) * row, along**D, -1)


def p_mean(samples: Array, p: float) -> Array:
    """argmin_y sum_s |f_s - y|^p along axis 1: the median for p = 1, the mean for p = 2."""
    if p == 1.0:
        return np.asarray(np.median(samples, axis=1))
    if p == 2.0:
        return np.asarray(samples.mean(axis=1))
    low, high = samples.min(axis=1), samples.max(axis=1)
    for _ in range(60):  # the derivative is increasing in y: bisection
        middle = low / 2.0 + high / 2.0
        away = middle[:, None] - samples
        slope = (np.sign(away) * np.abs(away) ** (p - 1.0)).sum(axis=1)
        low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
    return np.asarray(low / 2.0 + high / 2.0)


def declared_means(
    means: CellMeans, target: Target, coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int
) -> Array:
    """The user's exact means of f over the cells start..stop, clipped to the box: (n, d_out, n_out)."""
    low, high = clipped_cells(target, coordinates, counts, start, stop)
    try:
        found = np.asarray(means(low, high), dtype=np.float64)
    except Exception as failure:
        raise BadInput(f"`means` raised {type(failure).__name__} for boxes of shape {low.shape}: {failure}.") from None
    if found.size != len(low) * target.d_out * target.n_out or len(found) != len(low) or not np.isfinite(found).all():
        raise BadInput(f"`means` returned {found.shape} for {len(low)} boxes; one finite mean per box and output is wanted.")
    return found.reshape(len(low), target.d_out, target.n_out)


def values_at(target: Target, sites: Interval) -> tuple[Array, float]:
    """f (n, d_out, n_out) at sites known to within intervals, and how uncertain it is; a callable is asked at their middle."""
    if target.expression is None:
        return target.values(np.clip((sites.lo + sites.hi) / 2.0, target.box.low, target.box.high)), 0.0
    f = target.enclose(sites.lo, sites.hi)
    return f.lo / 2.0 + f.hi / 2.0, float((f.hi - f.lo).max())
