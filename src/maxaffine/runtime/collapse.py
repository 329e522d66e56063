"""Collapse the heads of a grouped layer into polynomials of their directions, with a proved error.

A group's head g(z) = sum_j w_j(z) (c_j + G_j z) is analytic near [-1, 1]^E, so a short Chebyshev series says the same to within
any tolerance, without an exponential and without a sum over tokens.  Values that couple directions are split by singular values:

    train      g(z) ~ P_1(z_1) P_2(z_2) .. P_E(z_E), matrices        cores[e] (R_{e-1}, degree_e + 1, R_e), R_0 = 1, R_E = K
    products   g(z) ~ Re sum_r prod_b t_br(z of block b), a train per block of directions, whose columns are multiplied

Factored values are products as they stand (runtime/collapse_factors.py); listed ones of one or two directions become such.

The error of the numbers that are stored is proved as follows (Ehlich and Zeller).  On the ellipse of parameter r the weights
sum to at most S (runtime/collapse_directions.py), so that some polynomial q of degree m per direction is within
E = sum_k Leb^{k-1} 4 S max|c + G z| r^-m/(r-1) of g; the collapsed polynomial p has a degree of at most m; and q - p is at
most C = prod_k 1/cos(pi m_k / 2 n_k) times its maximum over n_k Chebyshev points per direction, where g is computed in extended
precision:

    |g - p| <= E + C (max over the points |g - p| + doubt + E).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import frozen
from maxaffine.runtime.collapse_directions import UNIT, Grid, along, grid_of, powers_of
from maxaffine.runtime.collapse_factors import blocks_of, fitted
from maxaffine.runtime.collapse_trains import split, train_at, train_doubt, truncated
from maxaffine.runtime.kept import once

SHARE = 2.0**-8  # of the error asked for that a certificate reserves for a collapse
FLOOR = 2.0**-42  # of the largest |g| that it may take besides, where the error asked for is near rounding
MOST_POINTS = 3_000_000
LOOSER = (16.0, 8.0, 4.0, 2.0, 1.0)  # sums of |coefficients| left out exceed what is seen at the points: tried in this order


@dataclass(frozen=True)
class CollapsedGroup:
    """Polynomials of one group in z = clip(matrix (x - centre), -1, 1), and what they differ from its head by at most."""

    matrix: Array  # (E, D)
    cores: tuple[Array, ...]  # one per direction
    blocks: tuple[int, ...]  # directions of every block; all in one where the group is a train
    parts: int  # 0 a train, 1 products of real columns, 2 of complex ones, their imaginary parts after the real ones
    basis: str  # "chebyshev": sum_k c_k T_k(z); "powers": sum_k c_k z^k
    error: float  # sup |g - p|, p in exact arithmetic
    rounding: float  # evaluating p by Clenshaw's or Horner's rule in float64
    largest: float  # a lower bound of sup |g| (of the sum over r of products of sup |factor|)


@dataclass(frozen=True)
class Collapsed:
    """The groups of a layer as polynomials; `error` bounds |F - sum_g p_g|, evaluation included, at every computed z."""

    centre: Array
    groups: tuple[CollapsedGroup, ...]
    error: float
    allowed: float


def allowance(tolerance: float, largest: float) -> float:
    """What collapsed groups may be off by in all; `largest` is the sum over the groups of sup |g| (or a bound of it)."""
    return tolerance + FLOOR * largest


def collapse(layer: GroupedLayer, tolerance: float = 0.0, basis: str = "auto") -> Collapsed:
    """The layer within `tolerance` and a rounding floor, evaluation included; Refused where that is not possible.

    `basis` is "chebyshev", "powers", or "auto": powers of z where Horner's rule rounds little enough, else Chebyshev.
    """
    found = _tried(layer, float(tolerance), basis)
    if isinstance(found, str):
        raise Refused(found)
    return found


@once
def _tried(layer: GroupedLayer, tolerance: float, basis: str) -> Collapsed | str:
    """The collapse, or why there is none: a refusal costs as much as a success."""
    try:
        return _collapse(layer, tolerance, basis)
    except Refused as refusal:
        return str(refusal)


def collapsible(layer: GroupedLayer) -> bool:
    """Whether every group is of a kind that collapses: product keys; and no affine function stands beside them."""
    return layer.tilt is None and not layer.has_clusters


def _collapse(layer: GroupedLayer, tolerance: float, basis: str) -> Collapsed:
    if not collapsible(layer):
        raise Refused("clusters do not collapse into polynomials.")
    groups = []
    for group in layer.products():
        share = tolerance / len(layer.groups)
        one = (listed_head if group.factors is None else _factored)(group, share, basis)
        allowed, off = allowance(share, one.largest), one.error + one.rounding
        if not off <= allowed:
            raise Refused(f"the polynomial of a group would be off by {off:.2g}, and {allowed:.2g} is allowed.")
        groups.append(one)
    total = math.fsum(group.error + group.rounding for group in groups) * (1 + 1e-12)
    return Collapsed(layer.centre, tuple(groups), total, allowance(tolerance, sum(group.largest for group in groups)))


def _factored(group: Group, tolerance: float, basis: str) -> CollapsedGroup:
    blocks = blocks_of(group, tolerance)
    largest = float(np.prod(np.stack([block.low for block in blocks]), axis=0).sum()) * (1 - 1e-10)
    allowed = allowance(tolerance, largest)
    kinds = ("powers", "chebyshev") if basis == "auto" else (basis,)
    for loose, kind in ((loose, kind) for loose in LOOSER for kind in kinds):
        cores, error, rounding = fitted(blocks, allowed, loose, kind)
        if error + rounding <= allowed:
            break
    made = tuple(frozen(core) for core in cores)
    return CollapsedGroup(group.matrix, made, group.block_sizes, len(blocks[0].parts), kind, error, rounding, largest)


# -- listed values


def listed_head(group: Group, tolerance: float, basis: str) -> CollapsedGroup:
    """One group with listed values, within `tolerance` and a rounding floor for z in [-1, 1]; `error` says how near it came."""
    assert group.values is not None
    E, values = len(group.axes), group.values.astype(np.float64)
    slopes = np.zeros((*values.shape, 0)) if group.slopes is None else group.slopes.astype(np.float64)
    sizes = np.abs(values) + np.abs(slopes).sum(axis=-1)
    most = float(sizes.max())
    grids = _grids(group, max(tolerance / max(most, 1e-300), 2.0**-60))
    exact, sums = _at_points(values, slopes, sizes, grids)
    largest, absolute = float(np.abs(exact).max()) * (1 - 1e-12), float(sums.max()) * (1 - 1e-12)
    doubt = absolute * (sum(grid.shaky for grid in grids) + (4 * E + 4) * UNIT) * (1 + 1e-9)
    remainder, leb = 0.0, 1.0
    for grid in grids:
        remainder += leb * grid.remainder * most
        leb *= 2.0 / math.pi * math.log(grid.degree + 1) + 1.0
    constant = math.prod(grid.constant for grid in grids)
    allowed = allowance(tolerance, largest)
    room = (allowed * 0.9 - remainder) / constant - doubt - remainder
    if room <= 0:
        raise Refused("the head cannot be computed precisely enough to be collapsed.")
    kinds = ("powers", "chebyshev") if basis == "auto" else (basis,)
    coefficients = exact  # all of them, (degree_1 + 1, .., degree_E + 1, K)
    for e, grid in enumerate(grids):
        coefficients = along(grid.transform(grid.degree + 1), coefficients, e)
    for loose, kind in ((loose, kind) for loose in LOOSER for kind in kinds):
        cores = split(truncated(coefficients, 0.5 * loose * room), 0.27 * loose * room)
        stored = tuple((powers_of(core, 1) if kind == "powers" else core).astype(np.float64) for core in cores)
        own, rounding = (float(train_doubt(stored, kind, unit).max()) for unit in (UNIT, FLOAT64.unit))
        if loose > LOOSER[-1] and rounding > 0.5 * allowed:
            continue
        away = float(np.abs(exact - train_at(stored, [grid.points for grid in grids], kind)).max())
        bound = float((remainder + constant * (away * (1 + 1e-9) + doubt + own + remainder)) * (1 + 1e-12))
        if bound + rounding <= allowed:
            break
    products = E <= 2 and values.shape[-1] == 1
    if products and E == 2:
        stored = stored[0], np.ascontiguousarray(stored[1].transpose(2, 1, 0))
    shape = ((1,) * E, 1) if products else ((E,), 0)
    return CollapsedGroup(group.matrix, tuple(frozen(core) for core in stored), *shape, kind, bound, rounding, largest)


def _at_points(values: Array, slopes: Array, sizes: Array, grids: list[Grid]) -> tuple[NDArray[np.floating], Array]:
    """g (n_1, .., n_E, K) at all points in extended precision, and sum_j w_j (|c_j| + |G_j|) there in float64."""
    E = len(grids)
    tensor: NDArray[np.floating] = np.concatenate([values[..., None], slopes], axis=-1).astype(np.longdouble)
    sums: NDArray[np.floating] = sizes
    for e, grid in enumerate(grids):
        tensor = along(grid.weights, tensor, e)
        sums = along(grid.weights.astype(np.float64), sums, e)
    exact = tensor[..., 0]
    for e in range(E) if slopes.shape[-1] else ():
        exact = exact + grids[e].points.reshape([-1 if i == e else 1 for i in range(E)] + [1]) * tensor[..., 1 + e]
    return exact, np.asarray(sums, dtype=np.float64)


def _grids(group: Group, allowed: float) -> list[Grid]:
    """Points of every direction, for a remainder of 1/64 of what is allowed."""
    E = len(group.axes)
    grids = [grid_of(axis, E, allowed / 64.0 / E / 6.0**e) for e, axis in enumerate(group.axes)]
    if math.prod(len(grid.points) for grid in grids) > MOST_POINTS:
        raise Refused("the head has too many directions at once for a collapse.")
    return grids
