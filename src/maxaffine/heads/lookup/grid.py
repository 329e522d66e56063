"""Uniform product grids in cell units.

With P_i cells of width h_i on coordinate i the layer works in z_i = (x_i - centre_i)/h_i.  The sites are then the
half-integers c_k = k - (P_i - 1)/2, k = 0..P_i - 1, the keys a_k = c_k and the offsets b_k = -c_k^2/2, all of them exact in
floating point (up to 2^26 cells in float64), and the sharpness multiplies -|z - c|^2/2: it is rho = R h^2, dimensionless.
"""

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.keys import AxisKeys, Coordinates, ProductKeys
from maxaffine.target.box import Box


def axis_sites(count: int) -> Array:
    """c_k = k - (P - 1)/2."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2.0


def grid_keys(counts: tuple[int, ...]) -> ProductKeys:
    """Keys of the grid with these numbers of cells."""
    axes = []
    for count in counts:
        sites = axis_sites(count)
        axes.append(AxisKeys(sites, -0.5 * sites * sites))
    return ProductKeys(tuple(axes))


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
    sites = np.stack([axis_sites(count)[i] for count, i in zip(counts, index, strict=True)], axis=1)
    return np.asarray(coordinates.centre + sites / np.diag(coordinates.matrix))
