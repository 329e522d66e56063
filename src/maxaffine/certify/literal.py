"""What the literal softmax loses: one softmax over all listed tokens, evaluated in float64 or float32 by any software.

Runtime `dense`, the matrices of `matrices()` multiplied by hand, the literal module, MultiheadAttention and ONNX's Attention
operator all compute, in a dtype of unit u and in orders of their own,

    column_g = sum_j softmax_j(logit_j + Lambda [j in group g]) v_j(x),        F = sum_g column_g.

Here is how far that may be from the layer of the stored numbers in exact arithmetic, for every x of the box; added to what is
proved of the layer it is a bound for all of these routes.

**Logits.**  What is wrong with a query (z, its products with W_Q, the scaling of MultiheadAttention) is the same for all keys: it
moves z.  What that does to the large numbers of a cluster's site moves all tokens of the cluster alike.  So it moves the masses
of clusters only, by at most eta in the logarithm.  A token's own error iota is one rounding of its stored slopes and offset,
E + 2 roundings of products and sums, and exp.  With p_k the head of cluster k, w its weights, and for some f
sum_k Omega_k |p_k - f| <= blend,

    |column - F_g|  <=  e^{2 eta} max_k (e^{2 iota_k} - 1) sum_j w_kj |v_j - p_k|  +  (e^{2 eta} - 1) 2 blend  +  lost  +  leak,

the maximum over the clusters where they are heard; those farther away have masses whose sum times their values is `far`.

**Sums** of N terms in any order lose gamma(2 N) (|F_g| + sum W |v - F_g|); `lost` is the error of a value.

**Leak.**  Another group's tokens have e^{-Lambda} Z'/Z of the weight.  log Z is convex in z: its largest value is at a corner,
and a tangent plane at any point is below it everywhere.

**Lookups** have one group; n_out columns are told apart by a bonus and mixed back by B^-1 (layer/matrices.py), which is at most
1 + 4 n/a, a = e^Lambda - 1: weights off by e^{2 eta} - 1 cost (1 + 4 n/a)(e^{2 eta} - 1) 2 max |v|.

Assumed: exp is accurate to 32 ulp; sums, products and quotients follow IEEE 754 in any order, fused or not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from maxaffine.certify.head_bounds import affine_moments, etas_for, mean_eta, moments, pieces
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, Dtype, compute_format, dtype_of, gamma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.layouts import group_bonus
from maxaffine.plan.keys import AxisKeys

Array = NDArray[np.float64]

U = FLOAT64.unit
UP = 1.0 + 1e-12
EXP_ULPS = 64.0  # 32 ulp, in units of u
SEEN = 46.0  # tokens farther below the largest weigh less than 1e-20
MOST_TOKENS = 1 << 16
LARGEST = {"float64": 1e300, "float32": 1e37}
ASSUMED = "exp is accurate to 32 ulp; sums, products and quotients follow IEEE 754 in any order"


@dataclass(frozen=True)
class Heard:
    """What the proof of a head knows of one group of clusters.

    `blend` bounds sum_k Omega_k |p_k - f| over the box and `size` |f|, for the function f that the group stands for; `reach`
    (C, E) bounds |t| where a cluster is heard (None: the whole box), `far` the masses of clusters beyond it times |f| + |v|.
    `kappa`: |p_k - f| <= eps + kappa (max S - S_k) for every cluster at every x, so that errors of scores, however large, cost
    2 kappa of them (theory, 10.2).  Beyond its reach a cluster trails by ever more: `edge` bounds the size of its logits where it
    begins to, and `pace` how much faster than its lag they grow there (infinite: not known).
    """

    blend: float
    size: float
    reach: Array | None = None
    far: float = 0.0
    edge: float = math.inf
    pace: float = math.inf
    kappa: float = math.inf


@dataclass(frozen=True)
class Added:
    """What the literal form adds to the bound of the layer: `rounding`, and the `leakage` between groups."""

    rounding: float
    leakage: float

    @property
    def total(self) -> float:
        """Both."""
        return (self.rounding + self.leakage) * UP


def arithmetic_of(layer: Layer | GroupedLayer, arithmetic: str | None) -> Dtype:
    """The format that a literal form computes in: the layer's own, or float64."""
    return compute_format(layer.dtype) if arithmetic is None else dtype_of(arithmetic)


def literal(layer: Layer | GroupedLayer, heard: Sequence[Heard | None], arithmetic: str | None = None) -> Added:
    """The distance of the literal form from the layer; `heard` has an entry for every group, None for product keys.

    Refused where the form cannot be listed or its logits are not resolved.
    """
    form = arithmetic_of(layer, arithmetic)
    if layer.tokens > MOST_TOKENS:
        raise Refused(f"the literal softmax has {layer.tokens:,} tokens, and {MOST_TOKENS:,} are listed at most.")
    if isinstance(layer, Layer):
        return _lookup(layer, form)
    heard = heard or [None] * len(layer.groups)
    groups = []
    for group, one in zip(layer.groups, heard, strict=True):
        if isinstance(group, Group):
            groups.append(_product(layer, group, form))
        elif one is not None:
            groups.append(_clusters(layer, group, one, form))
        else:
            raise Refused("nothing is known of one of its groups.")
    size = sum(one.size for one in groups)
    rounding = sum(one.lost for one in groups) + (gamma(len(groups) + 4, form.unit) + form.unit) * size
    rounding += _tilt(layer, form)
    leakage = _leak(layer, groups) if len(groups) > 1 else 0.0
    if not math.isfinite(rounding + leakage):
        raise Refused(f"the logits of the literal softmax are not resolved in {form.name}.")
    return Added(rounding * UP, leakage * UP)


@dataclass(frozen=True)
class _Column:
    """One group in its own query column: what it loses, |F_g|, the error of its logits, the largest |value| of a token."""

    lost: float
    size: float
    eta: float
    top: float


_UNRESOLVED = _Column(math.inf, math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class _Query:
    """Coordinates of one group: |z| over the box (E,), and how far a computed z may be from that of the same float64 x.

    x itself is rounded before the layer sees it, which the bound of the layer counts.  A coordinate of one variable alone is
    wrong by a part of itself, the others by a part of the size of their terms.
    """

    matrix: Array
    size: Array
    part: float
    alone: NDArray[np.bool_]
    centre: Array

    @classmethod
    def of(cls, layer: GroupedLayer, matrix: Array, form: Dtype) -> _Query:
        """For a literal form in one arithmetic."""
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
        part = gamma(layer.dimension + 3, U) + gamma(layer.dimension + 8, form.unit)
        return cls(np.abs(matrix), np.abs(matrix) @ reach * UP, part, np.count_nonzero(matrix, axis=1) == 1, np.abs(layer.centre))

    def error(self, here: Array) -> Array:
        """Where |z_e| <= here[e]."""
        return self.part * np.where(self.alone, here, self.size) * UP

    def away(self, here: Array) -> Array:
        """|M| (|x| + |centre|) there, which values that are formed without centring are rounded by."""
        return np.asarray((np.where(self.alone, here, self.size) + 2.0 * (self.matrix @ self.centre)) * UP)


def _lean(layer: GroupedLayer) -> float:
    """A bound of |tilt (x - centre)|, which is added to the values of the first group's tokens."""
    if layer.tilt is None:
        return 0.0
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low)
    return float((np.abs(layer.tilt.astype(np.float64)) @ reach).max()) * 1.01


def _tilt(layer: GroupedLayer, form: Dtype) -> float:
    """What rounding does to the tilt, a part of every value of the first group."""
    if layer.tilt is None:
        return 0.0
    steep = np.abs(layer.tilt.astype(np.float64))
    terms = gamma(2 * layer.tokens + layer.dimension + 16, form.unit)
    away = np.maximum(np.abs(layer.low), np.abs(layer.high)) + np.abs(layer.centre)
    return terms * _lean(layer) + float((steep @ away).max()) * gamma(layer.dimension + 8, U)


def _lookup(layer: Layer, form: Dtype) -> Added:
    """Keys and values of a lookup, listed."""
    matrix, E, n = np.abs(layer.coordinates.matrix), len(layer.coordinates.matrix), layer.n_out
    reach = np.maximum(layer.high - layer.coordinates.centre, layer.coordinates.centre - layer.low) * (1 + 4 * U)
    largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
    size = matrix @ reach * UP
    error = (gamma(layer.dimension + 3, U) + gamma(layer.dimension + 8, form.unit)) * size * UP
    slopes, offsets = (np.abs(np.asarray(part, dtype=np.float64)) for part in layer.keys.listed())
    bonus = group_bonus(n, None) if n > 1 else 0.0
    tops = layer.sharpness * (slopes @ (size + error) + offsets) + bonus
    top = float(tops.max())
    eta = layer.sharpness * float((slopes @ error).max()) + (gamma(E + 12, form.unit) + gamma(2 * E + 8, U)) * top
    eta += form.unit * (min(2.0 * top, SEEN) + EXP_ULPS + 6.0)
    if len(layer.inputs) == 2:  # scores of the context are added up in x, not in x - centre
        away = matrix @ (largest + np.abs(layer.coordinates.centre))
        eta += layer.sharpness * (gamma(layer.dimension + 8, U) + gamma(4, form.unit)) * float((slopes @ away).max())
    values = np.abs(np.asarray(layer.values, dtype=np.float64))
    lost = gamma(6, form.unit) * float(values.max())
    if layer.slopes is not None:
        lean = np.abs(np.asarray(layer.slopes, dtype=np.float64))
        values = values + lean @ (size + error)
        away = matrix @ (largest + np.abs(layer.coordinates.centre))
        lost = float((lean @ error).max()) + gamma(E + layer.dimension + 12, form.unit) * float(values.max())
        lost += gamma(layer.dimension + 8, U) * float((lean @ away).max())
    if not (eta < 1.0 and top < LARGEST[form.name]):
        raise Refused(f"the logits of the literal softmax are not resolved in {form.name}.")
    most = float(values.max())
    sums = gamma(2 * layer.tokens + 4 * n + 16, form.unit) * math.exp(2.0 * eta) * most
    rounding = math.expm1(2.0 * eta) * 2.0 * most + math.exp(2.0 * eta) * lost + sums
    rounding += layer.tokens * (4.0 * form.tiny + 2.0 * math.exp(-SEEN) * 800.0 * form.unit) * most
    mixed = 1.0 + 4.0 * n / math.expm1(bonus) if n > 1 else 1.0
    return Added((mixed * rounding + 2.0 * form.unit * most) * UP, 0.0)


# ---------------------------------------------------------------------- groups of clusters


def _clusters(layer: GroupedLayer, group: ClusterGroup, heard: Heard, form: Dtype) -> _Column:
    query = _Query.of(layer, group.matrix, form)
    size = query.size
    bonus = layer.bonus if len(layer.groups) > 1 else 0.0
    whole = np.stack([(size * (1 + query.part) + np.abs(c.origin)) / c.radius for c in group.clusters]) * UP  # |t| over the box
    reach = whole if heard.reach is None else np.minimum(heard.reach, whole)
    spreads = []
    inside = shared = all_over = values = top = steepest = 0.0
    for k, cluster in enumerate(group.clusters):
        here = np.minimum(np.abs(cluster.origin) + cluster.radius * reach[k], size) * UP  # |z| where it is heard
        near, away = (_logit(group, k, cluster, z, query.error(z), bonus, form) for z in (here, size))
        blur = math.expm1(2.0 * min(near.own, 1.0))
        spreads.append(spread(cluster, reach[k], 0.01 * heard.blend / blur))
        inside = max(inside, blur * spreads[k] if near.own < 1.0 or cluster.count == 1 else math.inf)
        shared, all_over = max(shared, near.shared + near.own), max(all_over, away.shared + away.own)
        values = max(values, _value_error(layer, cluster, here, query, form))
        top, steepest = max(top, _largest(cluster, size * (1 + query.part))), max(steepest, away.slip)
        if not away.top < LARGEST[form.name]:
            return _UNRESOLVED
    if all(cluster.count == 1 for cluster in group.clusters) and math.isfinite(heard.kappa):
        moved = 2.0 * heard.kappa * all_over
        mean = heard.size + heard.blend + moved
        total = moved + values + gamma(2 * layer.tokens + layer.dimension + 20, form.unit) * 2.0 * mean
        total += layer.tokens * 4.0 * form.tiny * (top + heard.size)
        return _Column(total * UP, mean * UP, all_over, top + heard.size)
    far = math.expm1(2.0 * all_over) * 2.0 * heard.far if all_over < 0.1 else math.inf
    if not all_over < 0.1:
        far = _far(heard, 0.0 if query.alone.all() else steepest, len(size), bonus, form)
        all_over = shared + 1.0  # beyond its reach a cluster trails by more than its logits may be wrong
    if not (shared < 1.0 and math.isfinite(inside + far + top)):
        return _UNRESOLVED
    masses = math.exp(2.0 * shared)
    total = masses * (inside + far + values) + math.expm1(2.0 * shared) * 2.0 * heard.blend
    mean = heard.size + heard.blend + max(spreads) + 2.0 * heard.far  # sum W |v|
    total += masses * gamma(2 * layer.tokens + layer.dimension + 20, form.unit) * 2.0 * mean
    total += layer.tokens * (4.0 * form.tiny + 2.0 * math.exp(-SEEN) * 800.0 * form.unit) * (top + heard.size)
    return _Column(total * UP, (heard.size + heard.blend) * UP, all_over, top + heard.size)


def _far(heard: Heard, slip: float, E: int, bonus: float, form: Dtype) -> float:
    """What clusters beyond their reach say, exactly and as computed, where their logits are wrong by more than a little there.

    Lags lose a part of the size of the logits, which grows `pace` times as fast as they do, and `slip` everywhere.
    """
    part = 2.0 * (gamma(E + 40, form.unit) + gamma(2 * E + 20, U))
    if not (part * heard.pace <= 0.1 and part * (heard.edge + 2.0 * bonus) + 4.0 * slip <= 1.0):
        return math.inf
    return heard.far * (1.0 + 1.25 * math.exp(2.0 * part * (heard.edge + 2.0 * bonus) + 8.0 * slip))


@dataclass(frozen=True)
class _Logit:
    """Errors of a cluster's logits: what its tokens share, what each has for itself, what z adds; and the largest logit."""

    shared: float
    own: float
    slip: float
    top: float


def _logit(
    group: ClusterGroup, k: int, cluster: Cluster, z: Array, error: Array, bonus: float, form: Dtype
) -> _Logit:
    """Over |z_e| <= z[e]."""
    E = len(z)
    a, b = np.abs(group.site_slopes[k].astype(np.float64)), abs(float(group.site_offsets[k]))
    alpha = np.array([np.abs(axis.slopes.astype(np.float64)).max() for axis in cluster.axes]) / cluster.radius
    beta = sum(float(np.abs(axis.offsets.astype(np.float64)).max()) for axis in cluster.axes)
    inner = float(alpha @ (z + error + np.abs(cluster.origin))) + beta  # of what a token has for itself
    top = float((a + alpha) @ (z + error)) + b + beta + float(alpha @ np.abs(cluster.origin)) + bonus
    # the query's error, the scaling of queries, the constant row
    shared = float(a @ error) + gamma(12, form.unit) * (float(a @ z) + b + bonus)
    # slopes and offset as listed, in float64 and then in the form's dtype; products and sums; the query within the cluster
    own = float(alpha @ error) + gamma(12, form.unit) * inner + gamma(2 * E + 8, U) * inner
    own += 2.0 * U * top + gamma(E + 4, form.unit) * top
    own += form.unit * (min(2.0 * top, SEEN) + EXP_ULPS + 6.0)
    return _Logit(shared * UP, own * UP, float((a + alpha) @ error) * UP, top)


def spread(cluster: Cluster, reach: Array, enough: float = 0.0) -> float:
    """sup over |t_e| <= reach_e of sum_j w_j |v_j - p|, p the mean of the values v_j under the weights w_j.

    At most the root of the second moment about any affine function m, and so at most max |v_j - m|, which is taken where it is
    small `enough`; else it is followed from piece to piece.
    """
    if cluster.count == 1:
        return 0.0
    c = cluster.values.astype(np.float64).reshape(cluster.count, -1)
    G = np.zeros((*c.shape, len(reach)))
    if cluster.slopes is not None:
        G = cluster.slopes.astype(np.float64).reshape(*c.shape, -1)
    level, lean = (c.max(axis=0) + c.min(axis=0)) / 2.0, (G.max(axis=0) + G.min(axis=0)) / 2.0
    crude = float((np.abs(c - level) + np.abs(G - lean) @ reach).max()) * (1 + 1e-9)
    if crude <= enough or not math.isfinite(crude):
        return crude
    if len(reach) > 1:
        return min(crude, _several(cluster, c, G, reach))
    (axis,) = cluster.axes
    slopes, offsets = axis.slopes.astype(np.float64), axis.offsets.astype(np.float64)
    span, r = float(np.ptp(slopes)), float(reach[0])
    count = int(np.clip(60.0 * span * r, 32, 4000))
    half = r / count * (1 + 1e-12)
    grow = math.exp(min(span * half, 50.0))  # of a weight, from the middle of a piece
    t = -r + half * (2.0 * np.arange(count) + 1.0)
    logits = np.multiply.outer(t, slopes) + offsets
    w = np.exp(logits - logits.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    worst = 0.0
    for column in range(c.shape[1]):
        steep = G[:, column, 0] - lean[column, 0]
        v = c[:, column] - level[column] + np.multiply.outer(t, steep)
        apart = (w * np.abs(v - (w * v).sum(axis=1, keepdims=True))).sum(axis=1)
        # the mean moves by (grow - 1) sum w |v - p| + grow sum w |G| half inside a piece
        moved = (w * np.abs(steep)).sum(axis=1) * half
        worst = max(worst, float(((2.0 * grow - 1.0) * apart + 2.0 * grow * moved).max()))
    return min(crude, worst * (1 + 1e-9))


def _several(cluster: Cluster, c: Array, G: Array, reach: Array) -> float:
    """`spread` along several coordinates, by second moments on equal pieces."""
    axes = tuple(
        AxisKeys(axis.slopes.astype(np.float64) * r, axis.offsets.astype(np.float64))
        for axis, r in zip(cluster.axes, reach, strict=True)
    )
    most, E = {2: 24, 3: 10}.get(len(axes), 6), len(axes)
    ones = tuple(np.full((len(nodes), len(axis)), 1.0 / E) for axis, (nodes, _) in zip(axes, pieces(axes, most), strict=True))
    shape = (*cluster.shape, c.shape[1])
    try:
        return affine_moments(axes, c.reshape(shape), (G * reach).reshape(*shape, E), ones, most).rounding
    except Refused:
        return math.inf


def _value_error(layer: GroupedLayer, cluster: Cluster, here: Array, query: _Query, form: Dtype) -> float:
    """The largest error of a computed value of a cluster's tokens where it is heard; sums of such are counted elsewhere."""
    E = len(here)
    c = np.abs(cluster.values.astype(np.float64)).reshape(cluster.count, -1)
    if cluster.slopes is None:
        return gamma(6, form.unit) * float(c.max()) * UP
    G = np.abs(cluster.slopes.astype(np.float64)).reshape(*c.shape, E) / cluster.radius
    error = query.error(here)
    sizes = c + G @ (np.abs(cluster.origin) + here + error)
    lost = G @ error + (gamma(2 * E + 10, U) + gamma(E + layer.dimension + 8, form.unit)) * sizes
    return float((lost + gamma(layer.dimension + 8, U) * (G @ query.away(here))).max()) * UP


def _largest(cluster: Cluster, size: Array) -> float:
    """The largest |value| of a cluster's tokens over |z_e| <= size_e."""
    c = np.abs(cluster.values.astype(np.float64)).reshape(cluster.count, -1)
    if cluster.slopes is not None:
        G = np.abs(cluster.slopes.astype(np.float64)).reshape(*c.shape, -1) / cluster.radius
        c = c + G @ (np.abs(cluster.origin) + size)
    return float(c.max()) * UP


# ---------------------------------------------------------------------- groups of product keys


def _product(layer: GroupedLayer, group: Group, form: Dtype) -> _Column:
    """A spectral head: what its weights lose by second moments, the error of z by its slopes."""
    E = len(group.axes)
    query = _Query.of(layer, group.matrix, form)
    size, error = query.size, query.error(query.size)
    bonus = layer.bonus if len(layer.groups) > 1 else 0.0
    loose = Dtype(form.name, form.unit, form.exp_floor, form.tiny, EXP_ULPS)
    axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in group.axes)
    steep = np.array([float(np.abs(axis.slopes).max()) for axis in axes])
    sizes = float(steep @ (size + error)) + sum(float(np.abs(axis.offsets).max()) for axis in axes)
    if not (np.all(size <= 1.0 + 2.0**-9) and np.all(error < 2.0**-9) and sizes + bonus < LARGEST[form.name]):
        return _UNRESOLVED
    extra = gamma(4, form.unit) * bonus / E  # the bonus among the products and sums of a logit
    most = {2: 160, 3: 24, 4: 12}.get(E) if group.slopes is not None else None
    etas = tuple(eta + extra for eta in etas_for(axes, loose, E + 8, most))
    eta = sum(float(one.max()) for one in etas) + float(steep @ error)
    if not eta < 1.0:
        return _UNRESOLVED
    grown = math.exp(2.0 * eta)
    sums = gamma(2 * layer.tokens + 16, form.unit)
    if group.factors is not None:
        lost, absolute, largest, slope = _factored(group, axes, loose, E + 8, extra)
        top = float(np.prod(np.stack([np.abs(f.astype(np.float64)).max(axis=0) for f in group.factors]), axis=0).sum()) * UP
        lost += gamma(E + group.factors[0].shape[1] + 8, form.unit) * absolute
    else:
        assert group.values is not None
        values = group.values.astype(np.float64)
        if group.slopes is None:
            found, top = moments(axes, values, etas), float(np.abs(values).max())
            lean = 0.0
        else:
            slopes = group.slopes.astype(np.float64)
            found = affine_moments(axes, values, slopes, etas, most)
            top = float((np.abs(values) + np.abs(slopes).sum(axis=-1) * 1.01).max())
            steepness = np.abs(slopes)
            lean = float((steepness @ error).max())
            lean += gamma(layer.dimension + 8, U) * float((steepness @ query.away(size)).max())
        lost, absolute, largest, slope = found.rounding, found.absolute, found.largest, np.asarray(found.slopes)
        lost += gamma(2 * E + layer.dimension + 12, form.unit) * absolute + lean
    total = grown * (lost + sums * 2.0 * absolute) + float(slope @ error)
    total += layer.tokens * (4.0 * form.tiny + 2.0 * math.exp(-SEEN) * 800.0 * form.unit) * top
    return _Column(total * UP, largest * UP, eta, top)


def _factored(
    group: Group, axes: tuple[AxisKeys, ...], form: Dtype, terms: int, extra: float
) -> tuple[float, float, float, Array]:
    """sum_j w_j eta_j |c_j - F|, sum w |c|, |F| and |dF/dz_e| of values that are sums of products.

    Logits join all directions, so their errors eta_1 + .. + eta_E do not factor as the values do:
    sum_j w_j eta_e |c_j - F| with |prod f - prod g| <= sum_k prod_{i<k} |g_i| |f_k - g_k| prod_{i>k} |f_i|.
    """
    assert group.factors is not None
    E, rank = len(axes), group.factors[0].shape[1]
    means, found, steep = [], [], []  # found: per axis and product |g|, sum w|f|, sum w|f-g|, sum w eta|f-g|
    for axis, factor in zip(axes, group.factors, strict=True):
        (eta,) = etas_for((axis,), form, terms)
        eta = eta + extra
        means.append(mean_eta(axis, eta))
        rows, slopes = [], []
        for r in range(rank):
            column = factor[:, r : r + 1].astype(np.float64)
            shaken, plain = moments((axis,), column, (eta,)), moments((axis,), column, (np.ones_like(eta),))
            rows.append((shaken.largest, shaken.absolute, plain.rounding, shaken.rounding))
            slopes.append(shaken.slopes[0])
        found.append(rows)
        steep.append(slopes)
    lost = sizes = largest = 0.0
    lean = np.zeros(E)
    for r in range(rank):
        sizes += math.prod(rows[r][1] for rows in found)
        largest += math.prod(rows[r][0] for rows in found)
        for e in range(E):
            lean[e] += steep[e][r] * math.prod(rows[r][0] for i, rows in enumerate(found) if i != e)
        for k, e in itertools.product(range(E), repeat=2):
            piece = 1.0
            for i, rows in enumerate(found):
                top, size, apart, moved = rows[r]
                if i < k:
                    piece *= top * means[i] if i == e else top
                elif i == k:
                    piece *= moved if i == e else apart
                else:
                    piece *= moved + means[i] * top if i == e else size
            lost += piece
    return lost, sizes, largest, lean


# ---------------------------------------------------------------------- between the groups


def normaliser_range(layer: GroupedLayer, group: Group | ClusterGroup) -> tuple[float, float]:
    """Bounds of log Z_g over the box, Z_g = sum_j exp(logit_j) without the bonus.

    log Z is convex in z: the largest value is at a corner of the coordinates' box, and every tangent plane is below it.
    """
    E = len(group.matrix)
    if isinstance(group, Group):  # a sum over its directions
        low = high = 0.0
        for e, axis in enumerate(group.axes):
            size = _Query.of(layer, group.matrix[e : e + 1], FLOAT64).size
            bounds = _convex(axis.slopes.astype(np.float64)[:, None], axis.offsets.astype(np.float64), size)
            low, high = low + bounds[0], high + bounds[1]
        return low, high
    size = _Query.of(layer, group.matrix, FLOAT64).size
    slopes, offsets = group.listed()
    return _convex(slopes, offsets, size) if E <= 6 else (-math.inf, math.inf)


def _convex(slopes: Array, offsets: Array, size: Array) -> tuple[float, float]:
    """Bounds of log sum_j exp(a_j . z + b_j) over |z_e| <= size_e."""
    E = len(size)
    slack = 64.0 * U * (float((np.abs(slopes) @ size + np.abs(offsets)).max()) + 1.0) + 1e-12 + 1e-15 * len(offsets)

    def level(z: Array) -> tuple[float, Array]:
        logits = slopes @ z + offsets
        top = float(logits.max())
        w = np.exp(logits - top)
        total = float(w.sum())
        return top + math.log(total), (w @ slopes) / total

    corners = [np.array(signs) * size for signs in itertools.product((-1.0, 1.0), repeat=E)]
    high = max(level(z)[0] for z in corners) + slack
    # Cutting planes (Kelley): the next point is where the tangents so far are lowest; a mean of tangents is below log Z as well.
    cuts: list[tuple[float, Array]] = []
    best, least, z = -math.inf, math.inf, np.zeros(E)
    for _ in range(40 * E):
        value, lean = level(z)
        cuts.append((value - float(lean @ z), lean))
        least = min(least, value)
        rows = np.array([[*one, -1.0] for _, one in cuts])
        found = linprog(
            [*([0.0] * E), 1.0], A_ub=rows, b_ub=[-c for c, _ in cuts], bounds=[*((-s, s) for s in size), (None, None)]
        )
        if found.x is None:
            break
        shares = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0)
        shares /= max(float(shares.sum()), 1e-300)
        mean = shares @ np.array([one for _, one in cuts])
        best = max(best, float(shares @ np.array([c for c, _ in cuts])) - float(np.abs(mean) @ size))
        z = np.clip(found.x[:E], -size, size)
        if least - best < 0.05:
            break
    return best - slack - 1e-9, high


def _leak(layer: GroupedLayer, groups: Sequence[_Column]) -> float:
    """What the other groups contribute to every query column."""
    levels = [normaliser_range(layer, group) for group in layer.groups]
    lean = _lean(layer)
    tops = [one.top + (lean if g == 0 else 0.0) for g, one in enumerate(groups)]
    total = 0.0
    for g, k in itertools.permutations(range(len(groups)), 2):
        ratio = levels[k][1] - levels[g][0] - layer.bonus + 2.0 * (groups[g].eta + groups[k].eta)
        total += math.exp(min(ratio, 700.0)) * (tops[g] + tops[k]) if math.isfinite(ratio) else math.inf
    return total * (1 + 1e-9)


def biased(layer: GroupedLayer, error: float) -> GroupedLayer:
    """The layer with the bonus that its literal form needs: the leak is far below the error, and as small as rounding."""
    allowed = min(1e-4 * error, 1e-14) if layer.dtype == "float64" else 1e-4 * error
    return replace(layer, bonus=wanted_bonus(layer, allowed))


def wanted_bonus(layer: GroupedLayer, allowed: float) -> float:
    """Lambda, of few bits, for which the leak of the literal layer is about `allowed` where its logits are resolved."""
    if len(layer.groups) == 1:
        return 0.0
    levels = [normaliser_range(layer, group) for group in layer.groups]
    worst = max(levels[k][1] - levels[g][0] for g, k in itertools.permutations(range(len(levels)), 2))
    tops = sum(_most(layer, group) for group in layer.groups) + _lean(layer) + 1e-300
    wanted = max(1.0, worst + math.log(len(levels) ** 2 * 2.0 * tops / allowed) + 1.0) if math.isfinite(tops) else worst + 100.0
    mantissa, exponent = math.frexp(wanted)
    return math.ldexp(math.ceil(mantissa * 256.0) / 256.0, exponent)


def _most(layer: GroupedLayer, group: Group | ClusterGroup) -> float:
    """The largest |value| of a token of a group over the box."""
    size = _Query.of(layer, group.matrix, FLOAT64).size * 1.01
    if isinstance(group, ClusterGroup):
        return max(_largest(cluster, size) for cluster in group.clusters)
    if group.factors is not None:
        return float(np.prod(np.stack([np.abs(f.astype(np.float64)).max(axis=0) for f in group.factors]), axis=0).sum())
    c, G = group.listed_values()
    return float((np.abs(c) + np.abs(G) @ size).max())
