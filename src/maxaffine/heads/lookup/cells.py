"""The cells of a uniform grid as intervals in x, and enclosures of the target on them."""

from collections.abc import Callable

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.heads.lookup.grid import axis_sites, cell_centres
from maxaffine.layer.keys import Coordinates
from maxaffine.target.target import Target

CHUNK = 1 << 15  # cells enclosed at a time: bounded memory, and intervals that stay in the cache


def site_intervals(
    coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int, reach: float = 0.0
) -> Interval:
    """Intervals (n, D) in x that hold centre_i + (c_k +- reach) / scale_i exactly, for the cells start..stop.

    `reach` is a multiple of 2^-10, so that c_k +- reach is exact.
    """
    assert reach * 1024 == int(reach * 1024)
    index = np.unravel_index(np.arange(start, stop), counts)
    low, high = [], []
    for i, (count, k) in enumerate(zip(counts, index, strict=True)):
        scale, centre = coordinates.matrix[i, i], coordinates.centre[i]
        sites = axis_sites(count)
        cell = Interval.of(sites - reach, sites + reach) / Interval.point(scale) + Interval.point(centre)
        low.append(cell.lo[k])
        high.append(cell.hi[k])
    return Interval(np.stack(low, axis=1), np.stack(high, axis=1))


def enclose_cells(
    target: Target,
    coordinates: Coordinates,
    counts: tuple[int, ...],
    start: int,
    stop: int,
    margin: float,
    pieces: int = 0,
) -> Interval:
    """Enclosures (n, d_out, n_out) of f on the cells start..stop enlarged by `margin` cells and clipped to the box.

    The cells are cut into pieces^D boxes each (by default 16, 4, 2 per coordinate in one, two, more dimensions),
    whose hull is sharper than one evaluation.
    """
    D = len(counts)
    pieces = pieces or {1: 16, 2: 4}.get(D, 2 if D <= 6 else 1)
    cells = site_intervals(coordinates, counts, start, stop, 0.5 + margin)
    low, high = np.maximum(cells.lo, target.box.low), np.minimum(cells.hi, target.box.high)
    hull: Interval | None = None
    for piece in np.ndindex(*(pieces,) * D):
        # Neighbouring pieces round their common face alike, so that together they cover the cell.
        left = low + (high - low) * (np.asarray(piece) / pieces)
        right = low + (high - low) * ((np.asarray(piece) + 1) / pieces)
        right = np.where(np.asarray(piece) + 1 == pieces, high, right)
        f = target.enclose(np.minimum(left, right), np.maximum(left, right))
        hull = f if hull is None else hull.hull(f)
    assert hull is not None
    return hull


def cell_samples(
    target: Target, coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int
) -> Array:
    """f on a regular subgrid of midpoints in each of the cells start..stop: (n, samples, d_out, n_out)."""
    D = len(counts)
    per_axis = {1: 64, 2: 12, 3: 6}.get(D, 3)
    step = 1.0 / np.diag(coordinates.matrix)
    offsets = (np.arange(per_axis) + 0.5) / per_axis - 0.5
    mesh = np.stack(np.meshgrid(*[offsets] * D, indexing="ij"), axis=-1).reshape(-1, D) * step  # (S, D)
    centres = cell_centres(coordinates, counts, start, stop)
    points = (centres[:, None, :] + mesh).reshape(-1, D)
    samples = target.values(np.clip(points, target.box.low, target.box.high))
    return samples.reshape(len(centres), len(mesh), target.d_out, target.n_out)


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


CellMeans = Callable[[Array, Array], Array]


def declared_means(
    means: CellMeans, target: Target, coordinates: Coordinates, counts: tuple[int, ...], start: int, stop: int
) -> Array:
    """The user's exact means of f over the cells start..stop, clipped to the box: (n, d_out, n_out)."""
    cells = site_intervals(coordinates, counts, start, stop, 0.5)
    low, high = np.maximum(cells.lo, target.box.low), np.minimum(cells.hi, target.box.high)
    try:
        found = np.asarray(means(low, high), dtype=np.float64)
    except Exception as failure:
        raise BadInput(f"`means` raised {type(failure).__name__} for boxes of shape {low.shape}: {failure}.") from None
    if found.size != len(low) * target.d_out * target.n_out or len(found) != len(low) or not np.isfinite(found).all():
        raise BadInput(f"`means` returned {found.shape} for {len(low)} boxes; one finite mean per box and output is wanted.")
    return found.reshape(len(low), target.d_out, target.n_out)
