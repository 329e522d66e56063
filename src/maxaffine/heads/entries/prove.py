"""Certificates at entries: what a table or samples say, compared with the stored layer entry by entry.

The claim is finite, so it is verified and not derived: the layer of the stored numbers is evaluated in float64 at every entry,
and what the arithmetic of this evaluation and of any runtime may change is added,

    max_i |layer(x_i) - v_i|  <=  max_i (|F64(x_i) - v_i| + R_i).

R_i.  Logits of key j that are off by at most eta_j move a head g = sum_j w_j v_j by at most e^{2 eta} sum_j w_j eta_j |v_j - g|,
eta the largest of them; on product keys the logits are sums over the axes and so are these terms.  By Cauchy and Schwarz
sum_j w_j eta_j |v_j - g| <= sqrt(sum_j w_j eta_j) sqrt(sum_j w_j eta_j (v_j - g)^2), sums of products over the axes.  Where
eta max|v - g| alone is small enough, that is taken.  Coordinates z = m (x - centre) of one variable each are a difference and a
product: every runtime rounds them in the same way, so that the layer is evaluated at the very z that it is run at.

Nothing is said about any x that is no entry.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_format, gamma, numpy_dtype
from maxaffine.core.scope import Scope
from maxaffine.heads.fitting import spread
from maxaffine.heads.lookup.prove_grid import runtime_rounding
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys, ProductKeys
from maxaffine.layer.layer import Layer
from maxaffine.proofs.assumptions import ENTRIES, EXPONENTIAL
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import underflow
from maxaffine.proofs.rounding import rounding_of, window_leak
from maxaffine.runtime import softmax
from maxaffine.runtime.collapse import SHARE, allowance, collapsible
from maxaffine.runtime.grouped import tree_terms
from maxaffine.target.entries import Entries
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

Data = Table | Samples

BLOCK = 1 << 20  # numbers of a block of entries
SMALL = 0.01  # of the error asked for, that a coarse account of rounding may take
UP = 1.0 + 1e-9
THEOREM = "finite verification: the stored layer evaluated at every entry, plus what rounding may change there"


@dataclass(frozen=True)
class Verified:
    """The largest bound over the entries, the largest |F64 - v| alone, where that is, and over how many entries."""

    bound: float
    away: float
    at: tuple[float, ...]
    count: int


def scope_of(entries: Entries) -> Scope:
    """The entries and no other x."""
    return Scope("entries", count=entries.count, kind=entries.kind, sha256=entries.sha256[:16], missing=entries.missing)


def certify_entries(
    layer: Layer | GroupedLayer, data: Data, error: float, runtime: str = "arrays"
) -> tuple[Certificate, Verified]:
    """Prove max over the entries of |layer - value| for one runtime, or for all that a layer may run on.

    A hard layer's "arrays" is its runtime `hard`: the softmax that its others are is another function.
    """
    reserve, entries = 0.0, data.entries
    if layer.grouped:
        reserve = SHARE * error if runtime in ("arrays", "collapsed") and collapsible(layer) else 0.0
        found = _grouped(layer, data, error, reserve)
        if runtime == "arrays" and reserve and found.bound > error >= found.bound - _held(layer, reserve):
            # Large values that cancel: polynomials would cost what the layer has left, so it does without them.
            reserve, found = 0.0, _grouped(layer, data, error, 0.0)
    elif layer.hard and runtime in ("arrays", "hard"):
        found, runtime = _hard(layer, data), "hard"
    else:
        found = _softmax(layer, data, runtime)
    if found.count != entries.count:
        raise Refused(f"the layer is finite at {found.count:,} of the {entries.count:,} entries only.")
    parts = {"approximation": found.away, "rounding": max(found.bound - found.away, 0.0)}
    details = {"entries": float(entries.count), "missing": float(entries.missing)} | ({"collapse": reserve} if reserve else {})
    certificate = Certificate.proved(
        math.inf, parts, argument="entries", theorem=THEOREM, dtype=layer.dtype, runtime=runtime, scope=scope_of(entries),
        assumptions=(ENTRIES,) if runtime == "hard" else (EXPONENTIAL, ENTRIES), details=details,
    )  # fmt: skip
    return certificate, found


# -- product heads


@dataclass(frozen=True)
class Axes:
    """Entries as blocks: for a table rows of the first axis times the other axes, for samples rows of points."""

    z: list[Array]  # per direction: nodes of the axis, or coordinates of all samples
    on_grid: bool

    def contract(self, weights: list[Array], values: Array) -> Array:
        """values (N_1, .., N_E, ..) against one matrix of weights per direction: (n_1, .., n_E, ..) or (m, ..)."""
        if self.on_grid:
            return spread(weights, values)
        rest = values.shape[len(weights) :]
        partial = weights[0] @ values.reshape(len(values), -1)
        for w in weights[1:]:
            partial = np.matmul(w[:, None, :], partial.reshape(len(w), w.shape[1], -1))
        return partial.reshape(len(weights[0]), *rest)

    def place(self, e: int, rows: Array) -> Array:
        """Numbers per node of direction e, shaped to stand beside (entries.., K)."""
        return rows.reshape([-1 if i == e else 1 for i in range(len(self.z))] + [1]) if self.on_grid else rows[:, None]


def _held(layer: GroupedLayer, reserve: float) -> float:
    """What a bound holds for a collapse into polynomials."""
    return allowance(reserve, sum(_top(group) for group in layer.products())) * UP


def _top(group: Group) -> float:
    """An upper bound of |g| wherever |z| <= 1: the largest |c| + |G|."""
    sizes = np.abs(group.dense_values().astype(np.float64))
    if group.slopes is not None:
        sizes = sizes + np.abs(group.slopes.astype(np.float64)).sum(axis=-1)
    return float(sizes.max())


def _grouped(layer: GroupedLayer, data: Data, error: float, reserve: float) -> Verified:
    if len(layer.groups) != 1 or layer.tilt is not None or layer.has_clusters:
        raise Refused("entries are verified for one group of product keys.")
    (group,) = layer.products()
    if group.values is None or np.any(group.matrix != np.diag(np.diag(group.matrix))):
        raise Refused("entries are verified for listed values and one coordinate per variable.")
    compute = compute_format(layer.dtype)
    top = _top(group)
    nodes = data.axes if isinstance(data, Table) else data.X.T
    exact = [(x - layer.centre[e]) * group.matrix[e, e] for e, x in enumerate(nodes)]
    if any(float(np.abs(z).max()) > 1.0 for z in exact):
        raise Refused("an entry lies outside the box of the layer.")
    narrow = [z.astype(numpy_dtype(layer.dtype)).astype(np.float64) for z in exact]
    ways = [narrow]
    if reserve and layer.dtype != "float64":
        ways.append(exact)  # `collapsed` forms z in float64 and does not round it
    extra = (allowance(reserve, top) if reserve else 0.0) + underflow(layer) + 4.0 * compute.tiny * layer.tokens * top
    found = [_product(layer, group, data, z, error, top) for z in ways]
    worst = max(found, key=lambda one: one.bound)
    away = max(found, key=lambda one: one.away)
    return Verified((worst.bound + extra) * UP, away.away, away.at, away.count)


def _product(layer: GroupedLayer, group: Group, data: Data, z: list[Array], error: float, top: float) -> Verified:
    """One head of product keys at every entry."""
    assert group.values is not None
    c, G = group.values.astype(np.float64), None if group.slopes is None else group.slopes.astype(np.float64)
    compute, E = compute_format(layer.dtype), len(group.axes)
    keys = [AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in group.axes]
    pairs = [_weights(axis, nodes, compute.unit, compute.exp_ulps, E + 2) for axis, nodes in zip(keys, z, strict=True)]
    eta = sum(float(one.max()) for _, one in pairs)
    if not eta < 0.1:
        raise Refused(f"its logits are rounded by {eta:.2g} in {layer.dtype}.")
    # dense: a tree over all tokens; factorised: one dot product per direction; then normalisers; E + 1 products where affine
    affine = 0 if G is None else E + 2
    terms = max(tree_terms(layer.tokens), sum(len(axis) + 1 for axis in keys)) + 3 + affine
    shared = E * (max(tree_terms(layer.tokens), max(len(axis) for axis in keys)) + 2)
    sums = gamma(terms + shared, FLOAT64.unit) * top
    twice = 1.0 + FLOAT64.unit / compute.unit  # the runtime's arithmetic, and that of this evaluation
    coarse = math.exp(2.0 * eta) * eta * 2.0 * top
    fine = twice * coarse > SMALL * error
    level, lean = c, G
    if fine:  # an affine function that all tokens share has no part in v - g
        tokens = tuple(range(E))
        level = c - np.median(c, axis=tokens)
        lean = None if G is None else G - np.median(G, axis=tokens)
    best = Verified(0.0, -1.0, (), 0)
    for place, W, etas, values in _blocks(data, Axes(z, isinstance(data, Table)), pairs, layer.d_out):
        g = _head(place, W, c, G)
        rounding: Array | float = twice * coarse
        if fine:
            rounding = twice * math.exp(2.0 * eta) * _moved(place, W, etas, level, lean)
        away = np.abs(g - values)
        bound = away + rounding + 2.0 * sums + compute.unit * np.abs(g) * UP
        best = _worst(best, bound, away, place)
    return best


def _head(place: Axes, W: list[Array], c: Array, G: Array | None) -> Array:
    """sum_j w_j (c_j + G_j z)."""
    g = place.contract(W, c)
    if G is not None:
        for e in range(len(W)):
            g = g + place.place(e, place.z[e]) * place.contract(W, G[..., e])
    return g


def _moved(place: Axes, W: list[Array], etas: list[Array], c: Array, G: Array | None) -> Array:
    """Upper bounds of sum_e sum_j w_j eta_j^e |v_j - g| at every entry, by Cauchy and Schwarz, with room for cancellation."""
    E = len(W)
    g = _head(place, W, c, G)
    total = np.zeros(g.shape)
    for e in range(E):
        lost = [w * etas[i] if i == e else w for i, w in enumerate(W)]
        mass = place.place(e, lost[e].sum(axis=1))
        first = _head(place, lost, c, G)
        second = place.contract(lost, c * c)
        size = second + g * g * mass
        if G is not None:
            for i in range(E):
                zi = place.place(i, place.z[i])
                second = second + 2.0 * zi * place.contract(lost, c * G[..., i])
                size = size + E * zi * zi * place.contract(lost, G[..., i] ** 2)
                for k in range(i + 1):
                    both = place.contract(lost, G[..., i] * G[..., k])
                    second = second + (2.0 if k < i else 1.0) * zi * place.place(k, place.z[k]) * both
        square = np.maximum(second - 2.0 * g * first + g * g * mass, 0.0) + 1e-12 * size
        total += np.sqrt(square * mass)
    return np.asarray(total * UP)


def _weights(axis: AxisKeys, z: Array, unit: float, ulps: float, terms: int) -> tuple[Array, Array]:
    """Softmax weights (n, N) along one direction and the errors of their logits; those of weights that vanish are left out."""
    scores = np.multiply.outer(z, axis.slopes)
    scores += axis.offsets
    gap = scores.max(axis=1, keepdims=True) - scores
    size = np.multiply.outer(np.abs(z), np.abs(axis.slopes)) + np.abs(axis.offsets)
    weights = np.exp(-gap)
    weights /= weights.sum(axis=1, keepdims=True)
    etas = gamma(terms, unit) * size + unit * (gap + ulps + 3.0)
    return weights, np.where(gap > VANISHED + 2.0 * etas, 0.0, etas)


VANISHED = 800.0  # a gap beyond which a weight is below 1e-340: it is zero in every dtype, and was never more


def _blocks(
    data: Data, axes: Axes, pairs: list[tuple[Array, Array]], outputs: int
) -> Iterator[tuple[Axes, list[Array], list[Array], Array]]:
    """Blocks of entries: the part of the axes, weights, etas and values."""
    on_grid, values = isinstance(data, Table), data.values if isinstance(data, Table) else data.y
    others = values.shape[1:-1] if on_grid else [pair[0].shape[1] for pair in pairs[1:]]
    step = max(1, BLOCK // (math.prod(others) * outputs))
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        z, W, etas = (
            [one[part] if e == 0 or not on_grid else one for e, one in enumerate(rows)]
            for rows in (axes.z, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        )
        yield Axes(z, on_grid), W, etas, values[part]


def _worst(best: Verified, bound: Array, away: Array, place: Axes) -> Verified:
    """The larger of what was found before and what a block of entries adds; entries that are NaN are missing."""
    count = int(np.count_nonzero(np.isfinite(away).all(axis=-1)))
    if count == 0:
        return best
    known = np.isfinite(away)
    high = float(np.where(np.isnan(bound), np.inf, bound)[known].max())  # NaN: squares that overflow, of which nothing is known
    at, largest = best.at, float(np.nanmax(away))
    if largest > best.away:
        index = np.unravel_index(int(np.nanargmax(away)), away.shape)
        at = tuple(float(z[index[e] if place.on_grid else index[0]]) for e, z in enumerate(place.z))
    return Verified(max(best.bound, high), max(best.away, largest), at, best.count + count)


# -- lookups, and the nearest key


def _softmax(layer: Layer, data: Data, runtime: str) -> Verified:
    """A lookup at finite sharpness: weights in float64, all roundings as errors of the logits, those made here among them."""
    rounding = rounding_of(layer, runtime).worst(rounding_of(layer, "factorised" if layer.is_product else "dense"))
    if not rounding.joint < 0.2:
        raise Refused(f"its logits are rounded by {rounding.joint:.2g} in {layer.dtype}.")
    values = layer.values.reshape(*layer.keys.shape, -1).astype(np.float64)
    spread = float(values.max() - values.min())
    shake = math.expm1(2.0 * rounding.joint)
    fixed = 2.0 * runtime_rounding(layer, rounding) + window_leak(layer, runtime)
    if layer.keys.is_product and layer.is_grid and isinstance(data, Table):
        found = _lookup_grid(layer, layer.keys, values, data, 2.0 * shake * spread)
    else:
        found = _lookup_rows(layer, values.reshape(layer.keys.count, -1), data, shake, spread)
    return Verified((found.bound + fixed) * UP, found.away, found.at, found.count)


def _softmax_of(scores: Array, sharpness: float) -> Array:
    """The softmax of rows, in their own memory."""
    scores -= scores.max(axis=1, keepdims=True)
    scores *= sharpness
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _lookup_grid(layer: Layer, keys: ProductKeys, values: Array, data: Table, rounding: float) -> Verified:
    centre, matrix = layer.coordinates.centre, layer.coordinates.matrix
    z = [(nodes - centre[e]) * matrix[e, e] for e, nodes in enumerate(data.axes)]
    W = []
    for axis, one in zip(keys.axes, z, strict=True):
        scores = np.multiply.outer(one, axis.slopes.astype(np.float64)) + axis.offsets.astype(np.float64)
        W.append(_softmax_of(scores, layer.sharpness))
    best = Verified(0.0, -1.0, (), 0)
    for place, part, _, entries in _blocks(data, Axes(z, True), [(w, w) for w in W], layer.d_out * layer.n_out):
        away = np.abs(place.contract(part, values) - entries)
        best = _worst(best, away + rounding, away, place)
    return best


def _lookup_rows(layer: Layer, values: Array, data: Data, shake: float, spread: float) -> Verified:
    """Listed keys, entry by entry: the whole softmax, and sum_j w_j |c_j - g| <= sum_j w_j |c_j - level| + |level - g|."""
    slopes, offsets = (np.asarray(part, dtype=np.float64) for part in layer.keys.listed())
    level = np.median(values, axis=0)
    best = Verified(0.0, -1.0, (), 0)
    step = max(1, (4 * BLOCK) // len(offsets))
    for points, entries in data.blocks():
        for start in range(0, len(points), step):
            x = points[start : start + step]
            scores = _softmax_of(layer.coordinates(x) @ slopes.T + offsets, layer.sharpness)
            g = scores @ values
            apart = np.minimum(scores @ np.abs(values - level) + np.abs(g - level), spread)
            away = np.abs(g - entries[start : start + step])
            best = _worst(best, away + 2.0 * shake * apart * UP, away, Axes(list(x.T), False))
    return best


def _hard(layer: Layer, data: Data) -> Verified:
    """The nearest site, run as it is: at an entry the distance to its own site is exactly zero, so that no rounding is left.

    Samples at one point may each answer for the others.
    """
    best = Verified(0.0, -1.0, (), 0)
    if isinstance(data, Samples):
        if layer.is_product or layer.sites is None or not np.array_equal(layer.sites[0], data.X):
            raise Refused("the sites of the layer are not the samples.")
        _, group = np.unique(data.X, axis=0, return_inverse=True)
        values = layer.values.reshape(len(data.X), -1).astype(np.float64)
        order, group = np.argsort(group.ravel(), kind="stable"), group.ravel()
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        low, high = (op.reduceat(values[order], starts, axis=0)[group] for op in (np.minimum, np.maximum))
        away = np.maximum(high - data.y, data.y - low)
        return _worst(best, away * (1.0 + 4.0 * FLOAT64.unit), away, Axes(list(data.X.T), False))
    for points, entries in data.blocks():
        got = softmax.hard(layer, points).astype(np.float64).reshape(len(points), -1)
        away = np.abs(got - entries)
        best = _worst(best, away * (1.0 + 4.0 * FLOAT64.unit), away, Axes(list(points.T), False))
    return best
