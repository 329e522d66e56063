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

the maximum over the clusters where they answer; those farther away have masses whose sum times their values is `far`.

**Sums** of N terms in any order lose gamma(2 N) (|F_g| + sum W |v - F_g|); `lost` is the error of a value.

**Leak.**  Another group's tokens have e^{-Lambda} Z'/Z of the weight.  log Z is convex in z: its largest value is at a corner,
and a tangent plane at any point is below it everywhere.

**Lookups** have one group; n_out columns are told apart by a bonus and mixed back by B^-1 (layer/matrices.py), which is at most
1 + 4 n/a, a = e^Lambda - 1: weights off by e^{2 eta} - 1 cost (1 + 4 n/a)(e^{2 eta} - 1) 2 max |v|.

Assumed: exp is accurate to 32 ulp; sums, products and quotients follow IEEE 754 in any order, fused or not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxaffine.core.budget import count_text
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import Dtype, compute_format, dtype_of, gamma
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import AnyLayer, OutputsLayer
from maxaffine.layer.tables import group_bonus
from maxaffine.proofs.crossed import with_crossed_keys
from maxaffine.proofs.literal_clusters import cluster_column, factor_column
from maxaffine.proofs.literal_form import EXP_ULPS, LARGEST, SEEN, UP, Column, ProvedBlend, Softmax, U, affine_size
from maxaffine.proofs.literal_products import product_column
from maxaffine.proofs.normalisers import leak

MOST_TOKENS = 1 << 16


@dataclass(frozen=True)
class Added:
    """What the literal form adds to the bound of the layer: `rounding`, and the `leakage` between groups."""

    rounding: float
    leakage: float

    @property
    def total(self) -> float:
        """Both."""
        return (self.rounding + self.leakage) * UP


def arithmetic_of(layer: AnyLayer, arithmetic: str | None) -> Dtype:
    """The format that a literal form computes in: the layer's own, or float64."""
    return compute_format(layer.dtype) if arithmetic is None else dtype_of(arithmetic)


def literal(layer: Layer | GroupedLayer, proved: Sequence[ProvedBlend | None], arithmetic: str | None = None) -> Added:
    """The distance of the literal form from the layer; `proved` has an entry for every group, None for product keys.

    Refused where the form cannot be listed or its logits are not resolved.
    """
    form = arithmetic_of(layer, arithmetic)
    _doubt_size(layer)
    if not layer.grouped:
        return _lookup(layer, form)
    stands = Softmax.of(layer)
    groups = _columns(layer, proved, form, stands)
    return _added(layer, groups, form, leak(layer, _tops(layer, groups), [one.eta for one in groups]), stands)


def literal_parts(
    layer: OutputsLayer, proved: Sequence[Sequence[ProvedBlend | None]], arithmetic: str | None = None
) -> list[Added]:
    """The same of layers side by side, part by part; `proved` has an entry for every part.

    A part writes to its own rows and columns of the output alone, in which all other tokens have the value 0, or are leaked to:
    what is lost is what it loses in a softmax over all tokens, and at most the leak between all groups of all parts.
    """
    form = arithmetic_of(layer, arithmetic)
    _doubt_size(layer)
    stands = Softmax.of(layer)
    columns = [_columns(part.layer, one, form, stands) for part, one in zip(layer.parts, proved, strict=True)]
    tops = [top for part, groups in zip(layer.parts, columns, strict=True) for top in _tops(part.layer, groups)]
    etas = [one.eta for groups in columns for one in groups]
    leaked = leak(layer, tops, etas)
    leaked *= 1.0 + gamma(2 * layer.tokens + len(tops) + 16, form.unit)  # summed with the others in every column
    pairs = zip(layer.parts, columns, strict=True)
    return [_added(part.layer, groups, form, leaked, stands, len(tops)) for part, groups in pairs]


def _doubt_size(layer: AnyLayer) -> None:
    if layer.tokens > MOST_TOKENS:
        raise Refused(f"the literal softmax has {count_text(layer.tokens)} tokens, and {MOST_TOKENS:,} are listed at most.")


def _columns(layer: GroupedLayer, proved: Sequence[ProvedBlend | None], form: Dtype, stands: Softmax) -> list[Column]:
    """Every group in its own query column."""
    groups = []
    for group, one in zip(layer.groups, proved or [None] * len(layer.groups), strict=True):
        if not (group.clustered or group.factored):
            groups.append(product_column(layer, group, form, stands))
        elif one is None:
            raise Refused("nothing is known of one of its groups.")
        elif group.factored:
            groups.append(factor_column(layer, group, one, form, stands))
        else:
            groups.append(cluster_column(layer, group, one, form, stands))
    return [with_crossed_keys(layer, group, one, form) for group, one in zip(layer.groups, groups, strict=True)]


def _tops(layer: GroupedLayer, groups: Sequence[Column]) -> list[float]:
    """The largest |value| of a token of every group."""
    return [one.top + (affine_size(layer) if g == 0 else 0.0) for g, one in enumerate(groups)]


def _added(
    layer: GroupedLayer, groups: Sequence[Column], form: Dtype, leakage: float, stands: Softmax, summed: int | None = None
) -> Added:
    """What the columns lose, and the sum over the columns of all groups of the softmax, `summed` of them."""
    size = sum(one.size for one in groups)
    count = len(groups) if summed is None else summed
    rounding = sum(one.lost for one in groups) + (gamma(count + 4, form.unit) + form.unit) * size
    rounding += _affine_part(layer, form, stands)
    if not math.isfinite(rounding + leakage):
        raise Refused(f"the logits of the literal softmax are not resolved in {form.name}.")
    return Added(rounding * UP, leakage * UP)


def _affine_part(layer: GroupedLayer, form: Dtype, stands: Softmax) -> float:
    """What rounding does to the affine part, a part of every value of the first group."""
    if layer.tilt is None:
        return 0.0
    steep = np.abs(layer.tilt.astype(np.float64))
    terms = gamma(2 * stands.tokens + layer.dimension + 16, form.unit)
    away = np.maximum(np.abs(layer.low), np.abs(layer.high)) + np.abs(layer.centre)
    return terms * affine_size(layer) + float((steep @ away).max()) * gamma(layer.dimension + 8, U)


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
