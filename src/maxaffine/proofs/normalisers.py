"""Between the groups of a literal layer: the range of their normalisers, the leak, and the bias that keeps them apart.

log Z_g is convex in z: its largest value is at a corner of the box of coordinates, and every mean of tangent planes is below it.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import FLOAT64
from maxaffine.core.tangents import Tangents
from maxaffine.layer.blocks import largest_token
from maxaffine.layer.grouped import AnyGroup, GroupedLayer
from maxaffine.layer.side_by_side import OutputsLayer
from maxaffine.proofs.literal_form import Query, U, affine_size
from maxaffine.proofs.two_level import largest_value

AnyGrouped = TypeVar("AnyGrouped", GroupedLayer, OutputsLayer)


def normaliser_range(layer: GroupedLayer, group: AnyGroup) -> tuple[float, float]:
    """Bounds of log Z_g over the box, Z_g = sum_j exp(logit_j) without the bias of its group.

    log Z is convex in z: the largest value is at a corner of the coordinates' box, and every tangent plane is below it.
    """
    if group.factored:  # the logits of a product are sums, up to the rounding of the listed offsets
        parts = [normaliser_range(layer, factor) for factor in group.factors]
        slack = 1e-12 + 4.0 * U * sum(float(np.abs(factor.site_offsets.astype(np.float64)).max()) for factor in group.factors)
        return sum(low for low, _ in parts) - slack, sum(high for _, high in parts) + slack
    E = len(group.matrix)
    if not group.clustered:  # a sum over its directions
        low = high = 0.0
        for e, axis in enumerate(group.axes):
            size = Query.of(layer, group.matrix[e : e + 1], FLOAT64).size
            bounds = _convex(axis.slopes.astype(np.float64)[:, None], axis.offsets.astype(np.float64), size)
            low, high = low + bounds[0], high + bounds[1]
        return low, high
    size = Query.of(layer, group.matrix, FLOAT64).size
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
    if E == 1:
        return _least_on_line(lambda z: level(np.array([z])), float(size[0])) - slack - 1e-9, high
    # Cutting planes (Kelley): the next point is where the tangents so far are lowest; a mean of tangents is below log Z as well.
    cuts: list[tuple[float, Array]] = []
    tangents = Tangents(size)
    best, least, z = -math.inf, math.inf, np.zeros(E)
    for _ in range(40 * E):
        value, lean = level(z)
        cuts.append((value - float(lean @ z), lean))
        tangents.add(*cuts[-1])
        least = min(least, value)
        found = tangents.solve()
        if found is None:
            break
        shares, place = found
        mean = shares @ np.array([one for _, one in cuts])
        best = max(best, float(shares @ np.array([c for c, _ in cuts])) - float(np.abs(mean) @ size))
        z = np.clip(place, -size, size)
        if least - best < 0.05:
            break
    return best - slack - 1e-9, high


def _least_on_line(level: Callable[[float], tuple[float, Array]], size: float) -> float:
    """A lower bound of a convex function on [-size, size]: where the tangents on both sides of its least place meet."""
    left, right = -size, size
    (low, down), (high, up) = level(left), level(right)
    if not (down[0] < 0.0 < up[0]):
        return min(low, high)
    while True:
        meet = (low - float(down[0]) * left - high + float(up[0]) * right) / float(up[0] - down[0])
        bound = low + float(down[0]) * (meet - left)
        middle = (left + right) / 2.0
        if min(low, high) - bound < 0.05 or middle in (left, right):
            return bound
        value, slope = level(middle)
        if slope[0] < 0.0:
            left, low, down = middle, value, slope
        else:
            right, high, up = middle, value, slope


def members(layer: GroupedLayer | OutputsLayer) -> list[tuple[GroupedLayer, AnyGroup]]:
    """The groups of a literal layer in the order of their query columns, each with the layer whose coordinates it has."""
    return [(part.layer, group) for part, group in layer.members()] if layer.several else [(layer, one) for one in layer.groups]


def log_ratios(layer: GroupedLayer | OutputsLayer) -> list[list[float]]:
    """Bounds of log Z_k / Z_g over the box, row g, column k."""
    levels = [normaliser_range(own, group) for own, group in members(layer)]
    return [[other[1] - own[0] for other in levels] for own in levels]


def leak(layer: GroupedLayer | OutputsLayer, sizes: Sequence[float], etas: Sequence[float]) -> float:
    """What the other groups contribute to every query column: sum over g != k of e^{-Lambda} Z_k/Z_g (|F_g| + |F_k|).

    `sizes` bounds what the tokens of every group say, `etas` the errors of their logits, which change a ratio by e^{2 eta} each.
    """
    if len(sizes) == 1:
        return 0.0
    ratios, total = log_ratios(layer), 0.0
    for g, k in itertools.permutations(range(len(sizes)), 2):
        ratio = ratios[g][k] - layer.bonus + 2.0 * (etas[g] + etas[k])
        total += math.exp(min(ratio, 700.0)) * (sizes[g] + sizes[k]) if math.isfinite(ratio) else math.inf
    return total * (1 + 1e-9)


def biased(layer: AnyGrouped, error: float) -> AnyGrouped:
    """The layer with the group bias that its literal form needs: the leak is far below the error, and as small as rounding."""
    allowed = min(1e-4 * error, 1e-14) if layer.dtype == "float64" else 1e-4 * error
    return replace(layer, bonus=wanted_bonus(layer, allowed))


def wanted_bonus(layer: GroupedLayer | OutputsLayer, allowed: float) -> float:
    """Lambda, of few bits, for which the leak of the literal layer is about `allowed` where its logits are resolved."""
    groups = members(layer)
    if len(groups) == 1:
        return 0.0
    ratios = log_ratios(layer)
    worst = max(ratios[g][k] for g, k in itertools.permutations(range(len(ratios)), 2))
    tops = sum(_most(*one) for one in groups) + 1e-300
    tops += sum(affine_size(part.layer) for part in layer.parts) if layer.several else affine_size(layer)
    wanted = max(1.0, worst + math.log(len(ratios) ** 2 * 2.0 * tops / allowed) + 1.0) if math.isfinite(tops) else worst + 100.0
    mantissa, exponent = math.frexp(wanted)
    return math.ldexp(math.ceil(mantissa * 256.0) / 256.0, exponent)


def _most(layer: GroupedLayer, group: AnyGroup) -> float:
    """The largest |value| of a token of a group over the box."""
    if group.factored:
        return math.prod(_most(layer, factor) for factor in group.factors) * 1.01 + abs(float(group.shift[0]))
    size = Query.of(layer, group.matrix, FLOAT64).size * 1.01
    if group.clustered:
        return max(largest_value(c, (size + np.abs(c.origin)) / c.radius) for c in group.clusters)
    if group.factors is not None:
        return largest_token(group.factors, group.imaginary)
    c, G = group.listed_values()
    return float((np.abs(c) + np.abs(G) @ size).max())
