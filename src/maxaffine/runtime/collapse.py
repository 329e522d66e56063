"""Collapse the heads of a grouped layer into polynomials of their directions, with a proved error.

A group's head g(z) = sum_j w_j(z) (c_j + G_j z) is analytic near [-1, 1]^E, so a short Chebyshev series says the same to within
any tolerance, without an exponential and without a sum over tokens.  Values that couple directions are split by singular values:

    products   g(z) ~ sum_r prod_e p_er(z_e)                         cores[e] (degree_e + 1, R)
    train      g(z) ~ P_1(z_1) P_2(z_2) .. P_E(z_E), matrices        cores[e] (R_{e-1}, degree_e + 1, R_e), R_0 = 1, R_E = K

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
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import frozen
from maxaffine.runtime.collapse_directions import UNIT, Extended, Grid, along, basis_at, column_bounds, grid_of, powers_of
from maxaffine.runtime.kept import once

SHARE = 2.0**-8  # of the error asked for that a certificate reserves for a collapse
FLOOR = 2.0**-42  # of the largest |g| that it may take besides, where the error asked for is near rounding
DENSE = 64  # points per degree where the size of a polynomial is looked at
MOST_POINTS = 3_000_000
LOOSER = (16.0, 8.0, 4.0, 2.0, 1.0)  # sums of |coefficients| left out exceed what is seen at the points: tried in this order


@dataclass(frozen=True)
class CollapsedGroup:
    """Polynomials of one group in z = clip(matrix (x - centre), -1, 1), and what they differ from its head by at most."""

    matrix: Array  # (E, D)
    cores: tuple[Array, ...]
    products: bool
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
    """Whether every group is of a kind that collapses: product keys with listed values or real factors of one direction each.

    And no affine function beside them.
    """
    return layer.tilt is None and not layer.has_clusters and not _beyond(layer)


def _beyond(layer: GroupedLayer) -> bool:
    """Whether some factors are complex or of blocks of directions."""
    return any(group.factors is not None and not group.is_plain for group in layer.products())


def _collapse(layer: GroupedLayer, tolerance: float, basis: str) -> Collapsed:
    if not collapsible(layer):
        if not layer.has_clusters and _beyond(layer):
            raise Refused("factors that are complex, or of blocks of directions, do not collapse into polynomials.")
        raise Refused("clusters do not collapse into polynomials.")
    groups = []
    for group in layer.products():
        share = tolerance / len(layer.groups)
        one = (_listed if group.factors is None else _factored)(group, share, basis)
        allowed, off = allowance(share, one.largest), one.error + one.rounding
        if not off <= allowed:
            raise Refused(f"the polynomial of a group would be off by {off:.2g}, and {allowed:.2g} is allowed.")
        groups.append(one)
    total = math.fsum(group.error + group.rounding for group in groups) * (1 + 1e-12)
    return Collapsed(layer.centre, tuple(groups), total, allowance(tolerance, sum(group.largest for group in groups)))


# -- listed values


def _listed(group: Group, tolerance: float, basis: str) -> CollapsedGroup:
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
        cores = _split(_truncated(coefficients, 0.5 * loose * room), 0.27 * loose * room)
        stored = tuple((powers_of(core, 1) if kind == "powers" else core).astype(np.float64) for core in cores)
        own, rounding = _train_doubt(stored, kind, UNIT), _train_doubt(stored, kind, FLOAT64.unit)
        if loose > LOOSER[-1] and rounding > 0.5 * allowed:
            continue
        away = float(np.abs(exact - _train_at(stored, grids, kind)).max())
        bound = float((remainder + constant * (away * (1 + 1e-9) + doubt + own + remainder)) * (1 + 1e-12))
        if bound + rounding <= allowed:
            break
    products = E <= 2 and values.shape[-1] == 1
    if products:
        stored = (stored[0][0],) if E == 1 else (stored[0][0], stored[1][:, :, 0].T.copy())
    frozen_cores = tuple(frozen(core) for core in stored)
    return CollapsedGroup(group.matrix, frozen_cores, products, kind, bound, rounding, largest)


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


def _truncated(tensor: NDArray[np.floating], room: float) -> Extended:
    """The coefficients of few degrees: those left out sum to about `room`."""
    E = tensor.ndim - 1
    for e in range(E):
        slabs = np.abs(tensor).max(axis=-1).sum(axis=tuple(i for i in range(E) if i != e)).astype(np.float64)
        tails = np.cumsum(slabs[::-1])[::-1]  # tails[k]: everything of degree k and more
        tensor = np.take(tensor, np.arange(max(1, int(np.count_nonzero(tails > room / E)))), axis=e)
    return tensor.astype(np.longdouble)


def _split(coefficients: Extended, room: float) -> list[Extended]:
    """A tensor train of the coefficients within about `room`: cores (R_{e-1}, degree + 1, R_e)."""
    E = coefficients.ndim - 1
    cores: list[Extended] = []
    rest = coefficients[None]
    for _ in range(E - 1):
        rank, count = rest.shape[:2]
        matrix = rest.reshape(rank * count, -1)
        left, values, _right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
        # the sum of |coefficients| of a discarded term is at most sigma |u|_1 |v|_1
        weight = values * np.abs(left).sum(axis=0) * np.abs(_right).sum(axis=1)
        tails = np.cumsum(weight[::-1])[::-1]
        kept = max(1, int(np.count_nonzero(tails > room / (E - 1))))
        scale = np.sqrt(values[:kept] / values[0]) if values[0] > 0 else np.ones(kept)
        scale[scale == 0] = 1.0
        basis = left[:, :kept].astype(np.longdouble)
        rest = ((basis.T @ matrix) / scale[:, None]).reshape(kept, *coefficients.shape[len(cores) + 1 :])
        cores.append((basis * scale).reshape(rank, count, kept))
    return [*cores, rest]


def _train_at(cores: tuple[Array, ...], grids: list[Grid], kind: str) -> Extended:
    """The train at all points (n_1, .., n_E, K), in extended precision."""
    state: NDArray[np.floating] = np.ones((1, 1), dtype=np.longdouble)  # (points so far, R)
    shape: list[int] = []
    for core, grid in zip(cores, grids, strict=True):
        table = np.einsum("nk,akb->nab", basis_at(kind, grid.points, core.shape[1]), core.astype(np.longdouble))
        state = np.tensordot(state, table, axes=(1, 1)).reshape(-1, core.shape[2])
        shape.append(len(grid.points))
    return state.reshape(*shape, -1).astype(np.longdouble)


def _train_doubt(cores: tuple[Array, ...], kind: str, unit: float) -> float:
    """A bound of the rounding of the train in arithmetic of unit roundoff `unit`."""
    size, lost = np.ones(1), np.zeros(1)
    for core in cores:
        top, rounding = column_bounds(core, 1, kind, unit)  # (R_{e-1}, R_e)
        moved = size @ rounding + lost @ (top + rounding)
        size = size @ top
        lost = (moved + gamma(core.shape[0] + 2, unit) * (size + moved)) * (1 + 1e-12)
    return float(lost.max())


# -- sums of products


def _factored(group: Group, tolerance: float, basis: str) -> CollapsedGroup:
    assert group.factors is not None
    factors = [factor.astype(np.float64) for factor in group.factors]
    E, R = len(factors), factors[0].shape[1]
    grids = [grid_of(axis, 1, 1e-20) for axis in group.axes]
    exact = [grid.weights @ factor.astype(np.longdouble) for grid, factor in zip(grids, factors, strict=True)]  # (n, R)
    low = np.stack([np.abs(one).max(axis=0).astype(np.float64) for one in exact])  # (E, R), below sup |g_er|
    largest = float(np.prod(low, axis=0).sum()) * (1 - 1e-10)
    allowed = allowance(tolerance, largest)
    tops = np.stack([grid.constant * low[e] * (1 + 1e-9) + 1e-300 for e, grid in enumerate(grids)])
    scale = np.prod(low + 1e-300, axis=0)
    cores: list[Array] = []
    errors, roundings, sizes = (np.empty((E, R)) for _ in range(3))
    kinds = ("powers", "chebyshev") if basis == "auto" else (basis,)
    for kind in kinds:
        cores = []
        for e, grid in enumerate(grids):
            most = np.abs(factors[e]).max(axis=0)
            weight = scale / (low[e] + 1e-300)  # what an error of this factor is multiplied by
            room = 0.4 * allowed / (E * R) / grid.constant
            core = _columns(exact[e], grid, room / np.maximum(weight, 1e-300))
            stored = (powers_of(core, 0) if kind == "powers" else core).astype(np.float64)
            at = basis_at(kind, grid.points, len(stored)) @ stored.astype(np.longdouble)
            away = np.abs(exact[e] - at).max(axis=0).astype(np.float64) * (1 + 1e-9)
            doubt = grid.shaky * most + column_bounds(stored, 0, kind, UNIT)[1]
            errors[e] = grid.remainder * most + grid.constant * (away + doubt + grid.remainder * most)
            roundings[e] = column_bounds(stored, 0, kind, FLOAT64.unit)[1]
            sizes[e] = tops[e] + grid.constant * (doubt + grid.remainder * most) + grid.remainder * most
            cores.append(frozen(stored))
        lost, rounding = _multiplied(sizes, errors, roundings)
        if lost + rounding > allowed and E > 2:  # bounds of |g| from few points are loose, and their product is more so
            looked = np.stack([_seen(core, kind) for core in cores]) + errors + roundings
            lost, rounding = _multiplied(np.minimum(sizes, looked), errors, roundings)
        if lost + rounding <= allowed:
            break
    return CollapsedGroup(group.matrix, tuple(cores), True, kind, lost, rounding, largest)


def _multiplied(sizes: Array, errors: Array, roundings: Array) -> tuple[float, float]:
    """What sums of products are off by, (E, R) each: |prod (g + d) - prod g| <= prod (|g| + |d|) - prod |g|; and rounding."""
    E, R = sizes.shape
    lost = float((np.prod(sizes + errors, axis=0) - np.prod(sizes, axis=0)).sum())
    whole = np.prod(sizes + errors + roundings, axis=0)
    rounding = float((whole - np.prod(sizes + errors, axis=0)).sum()) + gamma(E + R + 2, FLOAT64.unit) * float(whole.sum())
    guard = 4.0 * FLOAT64.unit * (E + R + 4) * float(whole.sum())  # of these products themselves
    return lost + guard, rounding


def _seen(core: Array, kind: str) -> Array:
    """sup |polynomial| on [-1, 1] of every column: at most 1/cos(pi degree/(2 points)) times what many Chebyshev points see."""
    degree = max(1, len(core) - 1)
    points = DENSE * degree
    z = np.cos(np.pi * (np.arange(points) + 0.5) / points).astype(np.longdouble)
    most = np.abs(basis_at(kind, z, len(core)) @ core.astype(np.longdouble)).max(axis=0).astype(np.float64)
    return np.asarray(most * (1.0 / math.cos(math.pi * degree / (2.0 * points)) + 1e-9))


def _columns(exact: NDArray[np.floating], grid: Grid, room: Array) -> Extended:
    """Chebyshev coefficients (degree + 1, R) of columns, each about room_r away."""
    tensor = grid.transform(grid.degree + 1) @ exact
    tails = np.cumsum(np.abs(tensor[::-1]), axis=0)[::-1].astype(np.float64)
    kept = max(1, int((tails > room).any(axis=1).sum()))
    return np.asarray(tensor[:kept], dtype=np.longdouble)
