"""Literal forms of a group of product keys: what its weights lose by moments, the error of z by its slopes."""

import itertools
import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64, Dtype, compute_format, gamma
from maxaffine.layer.blocks import largest_token, moduli
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import BLOCK_PIECES, column_moments, etas_for, mean_eta, moments
from maxaffine.proofs.literal_form import EXP_ULPS, LARGEST, SEEN, UNRESOLVED, UP, Column, Query, Softmax, U
from maxaffine.runtime.grouped import tree_terms

LITERAL = 1 << 16  # tokens up to which the literal softmax is one of the runtimes


def bias_error(layer: GroupedLayer, E: int) -> float:
    """Per direction, the rounding of the group bias in the logits of the own group."""
    return compute_format(layer.dtype).unit * layer.bonus / E if len(layer.groups) > 1 else 0.0


def literal_rounding(layer: GroupedLayer, group: Group) -> float:
    """What the literal softmax adds to a group whose values are sums of products.

    Its logits join all directions, so their errors eta_1 + .. + eta_E do not factor as the values do:
    sum_j w_j eta_e |c_j - F| with |prod f - prod g| <= sum_k prod_{i<k} |g_i| |f_k - g_k| prod_{i>k} |f_i|.
    """
    assert group.factors is not None
    E, rank, compute = len(group.axes), group.factors[0].shape[1], compute_format(layer.dtype)
    axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in group.axes)
    extra = bias_error(layer, E)
    lost, sizes, _, _ = factored_moments(group, axes, compute, E + 2, extra)
    worst = sum(float(etas_for((axis,), compute, E + 2)[0].max()) + extra for axis in axes)
    terms = 2 * tree_terms(layer.tokens) + E + rank + 8
    return math.exp(2.0 * worst) * lost + gamma(terms, FLOAT64.unit) * sizes


def product_column(layer: GroupedLayer, group: Group, form: Dtype, stands: Softmax) -> Column:
    """A spectral head: what its weights lose by second moments, the error of z by its slopes."""
    E = len(group.axes)
    query = Query.of(layer, group.matrix, form)
    size, error = query.size, query.error(query.size)
    bonus = stands.bonus
    loose = Dtype(form.name, form.unit, form.exp_floor, form.tiny, EXP_ULPS)
    axes = tuple(AxisKeys(a.slopes.astype(np.float64), a.offsets.astype(np.float64)) for a in group.axes)
    steep = np.array([float(np.abs(axis.slopes).max()) for axis in axes])
    sizes = float(steep @ (size + error)) + sum(float(np.abs(axis.offsets).max()) for axis in axes)
    if not (np.all(size <= 1.0 + 2.0**-9) and np.all(error < 2.0**-9) and sizes + bonus < LARGEST[form.name]):
        return UNRESOLVED
    extra = gamma(4, form.unit) * bonus / E  # the bonus among the products and sums of a logit
    most = {2: 160, 3: 24, 4: 12}.get(E) if group.slopes is not None else None
    etas = tuple(eta + extra for eta in etas_for(axes, loose, E + 8, most))
    eta = sum(float(one.max()) for one in etas) + float(steep @ error)
    if not eta < 1.0:
        return UNRESOLVED
    grown = math.exp(2.0 * eta)
    sums = gamma(2 * stands.tokens + 16, form.unit)
    if group.factors is not None:
        if group.is_plain:
            lost, absolute, largest, slope = factored_moments(group, axes, loose, E + 8, extra)
        else:  # wrong logits and a wrong query move a mean of values by (e^{2 eta} - 1) sum w |v| at most
            absolute = largest = _held(group, axes)
            lost, slope = math.expm1(2.0 * eta) * absolute, np.zeros(E)
        top = largest_token(group.factors, group.imaginary) * UP
        lost += gamma(E + group.rank + (8 if group.is_plain else 8 + 3 * len(group.factors)), form.unit) * absolute
    else:
        assert group.values is not None
        values = group.values.astype(np.float64)
        if group.slopes is None:
            found, top = moments(axes, values, None, etas), float(np.abs(values).max())
            lean = 0.0
        else:
            slopes = group.slopes.astype(np.float64)
            found = moments(axes, values, slopes, etas, most)
            top = float((np.abs(values) + np.abs(slopes).sum(axis=-1) * 1.01).max())
            steepness = np.abs(slopes)
            lean = float((steepness @ error).max())
            lean += gamma(layer.dimension + 8, U) * float((steepness @ query.away(size)).max())
        lost, absolute, largest, slope = found.rounding, found.absolute, found.largest, np.asarray(found.slopes)
        # affine values are formed in x: the terms of an oblique coordinate are as large as the box, however small it is
        formed = absolute if group.slopes is None or query.alone.all() else max(absolute, top)
        lost += gamma(2 * E + layer.dimension + 12, form.unit) * formed + lean
    total = grown * (lost + sums * 2.0 * absolute) + float(slope @ error)
    total += stands.tokens * (4.0 * form.tiny + 2.0 * math.exp(-SEEN) * 800.0 * form.unit) * top
    return Column(total * UP, largest * UP, eta, top)


def _held(group: Group, axes: tuple[AxisKeys, ...]) -> float:
    """A bound of sum w |c| for sums of products over blocks: what it is block by block, multiplied."""
    assert group.factors is not None
    held = np.ones(group.rank)
    for cut, block in zip(group.block_slices, moduli(group.factors, group.imaginary), strict=True):
        most = BLOCK_PIECES.get(cut.stop - cut.start, 8)
        held = held * column_moments(axes[cut], block, etas_for(axes[cut], FLOAT64, 1, most), most).absolute
    return float(held.sum()) * UP


def factored_moments(
    group: Group, axes: tuple[AxisKeys, ...], form: Dtype, terms: int, extra: float
) -> tuple[float, float, float, Array]:
    """sum_j w_j eta_j |c_j - F|, sum w |c|, |F| and |dF/dz_e| of sums of products of one real factor per direction.

    Logits join all directions, so their errors eta_1 + .. + eta_E do not factor as the values do:
    sum_j w_j eta_e |c_j - F| with |prod f - prod g| <= sum_k prod_{i<k} |g_i| |f_k - g_k| prod_{i>k} |f_i|.
    """
    assert group.factors is not None and group.is_plain
    E, rank = len(axes), group.factors[0].shape[1]
    means, found, steep = [], [], []  # found: per axis and product |g|, sum w|f|, sum w|f-g|, sum w eta|f-g|
    for axis, factor in zip(axes, group.factors, strict=True):
        (eta,) = etas_for((axis,), form, terms)
        eta = eta + extra
        means.append(mean_eta(axis, eta))
        rows, slopes = [], []
        for r in range(rank):
            column = factor[:, r : r + 1].astype(np.float64)
            shaken, plain = moments((axis,), column, None, (eta,)), moments((axis,), column, None, (np.ones_like(eta),))
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
