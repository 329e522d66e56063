"""From groups to the answer: the affine part, the sum over groups, the last rounding, and what leaves the formats.

    F = affine part . (x - centre) + sum_g F_g,        rounded once to the dtype.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from maxaffine.core.rounding import FLOAT64, compute_dtype, compute_format, gamma
from maxaffine.layer.blocks import largest_token, moduli
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.factors import LISTED
from maxaffine.layer.grouped import AnyGroup, GroupedLayer
from maxaffine.proofs.two_level import LARGEST, UP, U, largest_value, query, whole_reach

MOST_COUNTED = 1 << 53  # tokens; where more are implied, stored numbers count


def underflow(layer: GroupedLayer, known: Sequence[float | None] = ()) -> float:
    """What results below the smallest normal number lose: the answer in its dtype, products and sums of values in float64.

    Infinite where an answer, or a sum of values before it is divided by its normaliser, may be too large for its dtype, or what
    leads to the scores of clusters may be: far from a small cluster its local coordinate is a large number.  `known` bounds
    |F_g| of groups whose factors were followed one by one (proofs/separated_rounding.py): then only their sums are looked at.
    """
    most, held = float(np.finfo(compute_dtype(layer.dtype)).max), _beside(layer, known)
    of_blocks = sum(_sums(group) for group, one in zip(layer.groups, held, strict=True) if one is not None)
    listed = sum(_added_up(group) for group, one in zip(layer.groups, held, strict=True) if one is None)
    size = token_values(layer, known)
    if not (size < most / 2.0 and size * float(min(listed, 2**1000)) + of_blocks < 2.0**1020 and _resolved(layer)):
        return math.inf
    return compute_format(layer.dtype).tiny + lost_below(layer)


def _beside(layer: GroupedLayer, known: Sequence[float | None]) -> list[float | None]:
    return [*known, *([None] * (len(layer.groups) - len(known)))]


def _added_up(group: AnyGroup) -> int:
    """Tokens whose values are added up: of a product at most those that are listed, for its factors are looked at one by one."""
    return min(group.count, LISTED) if group.factored else group.count


def _sums(group: AnyGroup) -> float:
    """The largest sum of the values of a block of factors before it is divided by its normaliser."""
    if group.clustered or group.factored or group.factors is None:
        return math.inf
    return max(float(one.max()) * math.prod(one.shape[:-1]) for one in moduli(group.factors, group.imaginary))


def lost_below(layer: GroupedLayer) -> float:
    """What products and sums below the smallest normal number of float64 lose in all.

    As many times as there are stored numbers, so that the checker, which counts those, confirms the bound.
    """
    numbers = layer.nbytes // layer.itemsize + sum(group.matrix.size + 4 * len(group.shape) for group in layer.groups)
    listed = layer.tokens if layer.tokens <= MOST_COUNTED else 0  # more are implied, and no runtime meets them
    return 100.0 * (layer.dimension + 2) * max(listed, numbers + 4 * layer.dimension) * FLOAT64.tiny


def _resolved(layer: GroupedLayer) -> bool:
    """Whether local coordinates, logits, scores and sums of values of all clusters are numbers of their formats on the box."""
    most, wide = LARGEST[compute_format(layer.dtype).name], LARGEST["float64"]
    for group in layer.cluster_groups():
        q, reach = query(layer, group), whole_reach(layer, group)
        if not _largest(layer, group) * group.count < 2.0**1020:
            return False
        sites = np.abs(group.site_slopes.astype(np.float64)) @ (q.size + q.error) + np.abs(group.site_offsets.astype(np.float64))
        if not (reach < most).all():
            return False
        for cluster, row, site in zip(group.clusters, reach, sites, strict=True):
            tops = [
                float(np.abs(axis.slopes.astype(np.float64)).max() * t + np.abs(axis.offsets.astype(np.float64)).max())
                for axis, t in zip(cluster.axes, row, strict=True)
            ]
            if not (max(tops) < most and float(site) + sum(tops) < wide):
                return False
    return True


def _largest(layer: GroupedLayer, group: ClusterGroup) -> float:
    """The largest |value| of a token over the box."""
    return max(largest_value(c, row) for c, row in zip(group.clusters, whole_reach(layer, group), strict=True))


def token_values(layer: GroupedLayer, known: Sequence[float | None] = ()) -> float:
    """A bound of |F| over the box from the values of its tokens alone: the largest of every group, and the affine part.

    For groups of which a bound is `known`, that is taken.
    """
    reach, total = np.maximum(layer.high - layer.centre, layer.centre - layer.low), 0.0
    if layer.tilt is not None:
        total += float((np.abs(layer.tilt.astype(np.float64)) @ reach).max())
    for group, one in zip(layer.groups, _beside(layer, known), strict=True):
        if one is not None:
            total += one
        elif group.factored:
            total += math.prod(_largest(layer, part) for part in group.factors) * 1.01 + abs(float(group.shift[0]))
        elif group.clustered:
            total += _largest(layer, group)
        elif group.values is not None:
            z = np.abs(group.matrix) @ reach
            lean = 0.0 if group.slopes is None else np.abs(group.slopes.astype(np.float64)) @ z
            total += float((np.abs(group.values.astype(np.float64)) + lean).max())
        elif group.factors is not None:
            total += largest_token(group.factors, group.imaginary)
    return total * 1.01


def output_rounding(layer: GroupedLayer, size: float) -> float:
    """The affine part, the sum over the groups, and the last rounding to the dtype; `size` bounds |F|.  And what underflows."""
    lost = underflow(layer)
    if layer.tilt is not None:
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
        largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
        lean = np.abs(layer.tilt.astype(np.float64))
        lost += float((lean @ (U * largest + gamma(layer.dimension + 3, U) * reach)).max())
        size = size + float((lean @ reach).max())
    return (lost + (compute_format(layer.dtype).unit + gamma(len(layer.groups) + 3, U)) * size) * UP


def affine_part_error(layer: GroupedLayer, slopes: Sequence[Fraction]) -> float:
    """How far the stored affine part is from the target's, over the box."""
    stored = np.zeros(layer.dimension) if layer.tilt is None else layer.tilt[0].astype(np.float64)
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 1e-15)
    rows = zip(slopes, stored, reach, strict=True)
    return sum(abs(float(a - Fraction(float(b)))) * float(r) * UP for a, b, r in rows)
