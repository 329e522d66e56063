"""The certificate of sums some parts of which switch: the parts' proofs added up, and the leak between groups where there is one.

    |F - f| <= sum_g sup |F_g - f_g| + rounding,

f = sum_g f_g + slopes . x exactly (target/sums.py).  The two-level runtime evaluates every group by itself: nothing leaks.  In
the literal layer query column g has a bonus Lambda on its own keys; with Z_g the normaliser of group g and v its values

    |column_g - F_g| <= sum_{g' != g} e^{-Lambda} (Z_g'/Z_g) (max |v_g'| + max |v_g|) e^{eta_g + eta_g'},

eta the errors of the logits: (A + B)/(a + b) - A/a = (B - (A/a) b)/(a + b).  log Z of a group of clusters is as large as its
steepest site, so Lambda is too, and logits of that size are rounded: u Lambda is part of eta, and where that is too much nothing
is said of the literal layer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from maxaffine.certify.axis_certificate import FLOATS
from maxaffine.certify.axis_clusters import prove_axis
from maxaffine.certify.axis_line import AxisTarget
from maxaffine.certify.certificate import EVERY_X, Certificate
from maxaffine.certify.lookup import ELEMENTARY, EXPONENTIAL
from maxaffine.certify.products import factor_layers, prove_product
from maxaffine.certify.spectral import FLINT, GroupBound, _factored, _listed, normaliser_range
from maxaffine.certify.two_level import LOGARITHM, UP, literal_errors, literal_rounding, output_rounding, query, tilt_error
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_format, dtype_of, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.plan.products import ProductPlan
from maxaffine.plan.spectral import GroupPlan
from maxaffine.plan.sums import SumPlan
from maxaffine.runtime.grouped import tree_terms

Array = NDArray[np.float64]

THEOREM = "sums: every part proved by itself, clusters along directions where it switches, and their errors added up"
LOOKS = 4001


def certify_sums(layer: GroupedLayer, plan: SumPlan, error: float, runtime: str = "any") -> Certificate:
    """The bound for the two-level runtime (also by default), or for the literal one (`dense`).

    Every part is proved to its share of `error`.
    """
    if len(layer.groups) != len(plan.parts):
        raise Refused("its groups are not those of its plan.")
    scale = error / sum(plan.shares)
    approximation = leakage = rounding = doubt = size = 0.0
    every = True
    literal = runtime == "dense"
    alone = layer if literal else replace(layer, bonus=0.0)  # without a bonus its rounding is none
    for number, (group, made, share) in enumerate(zip(layer.groups, plan.parts, plan.shares, strict=True)):
        if isinstance(group, ClusterGroup):
            if isinstance(made, ProductPlan):
                proof = prove_product(layer, group, made, share * scale)
            else:
                proof = prove_axis(layer, group, _target(layer, plan, number), share * scale)
            lost = proof.rounding
            blend = proof.approximation + proof.leakage + proof.doubt + lost  # what stored products lack is in what is lost
            if literal:
                lost += literal_rounding(layer, group, blend, proof.size, bonus=layer.bonus)
            parts = GroupBound(proof.approximation, proof.doubt, lost, proof.layer_size)
            leakage, every = leakage + proof.leakage, every and proof.every_x
        elif isinstance(made, GroupPlan):
            parts = _product(alone, group, made, share * scale)
        else:
            raise Refused("its groups are not those of its plan.")
        approximation, doubt, rounding = approximation + parts.approximation, doubt + parts.doubt, rounding + parts.rounding
        size += parts.largest
    if literal:
        leakage += literal_leak(layer, plan)
        rounding += gamma(2 * tree_terms(layer.tokens) + 8, FLOAT64.unit) * _lean(layer)  # the tilt in the weighted sum
    rounding += tilt_error(layer, plan.found.slopes) + output_rounding(layer, size * UP)
    if not math.isfinite(rounding + leakage):
        raise Refused(f"the logits of the literal softmax are not resolved in {layer.dtype}; the two-level runtime is proved.")
    return Certificate.proved(
        math.inf, {"approximation": approximation, "leakage": leakage, "rounding": rounding, "target_rounding": doubt},
        route="sums", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, EXPONENTIAL, ELEMENTARY, FLINT), domain=EVERY_X if every else FLOATS,
        details={"groups": float(len(layer.groups)), "bonus": layer.bonus},
    )  # fmt: skip


def _product(layer: GroupedLayer, group: Group, made: GroupPlan, error: float) -> GroupBound:
    if group.factors is not None:
        return _factored(layer, group, made, error)
    return _listed(layer, group, made, error, None)


def _target(layer: GroupedLayer, plan: SumPlan, number: int) -> AxisTarget:
    """A part of one direction, with slopes . centre where it carries the affine part."""
    found = plan.found.along(number)
    pairs = zip(found.slopes, layer.centre, strict=True)
    lift = sum((a * Fraction(float(c)) for a, c in pairs), Fraction(0))
    return AxisTarget(found.shifted(lift), found.direction)


# ---------------------------------------------------------------------- the literal layer


def normalisers(layer: GroupedLayer, plan: SumPlan) -> list[tuple[float, float]]:
    """Bounds of log Z_g over the box, Z_g = sum_j exp(logit_j) without the bonus."""
    found = []
    for group, made in zip(layer.groups, plan.parts, strict=True):
        if isinstance(group, Group):
            found.append(normaliser_range(group))
        elif isinstance(made, ProductPlan):
            found.append(_product_range(layer, made))
        else:
            found.append(_range(layer, group))
    return found


def _product_range(layer: GroupedLayer, made: ProductPlan) -> tuple[float, float]:
    """log Z of a product is the sum of its factors'; the stored offsets are sums, rounded."""
    low = high = 0.0
    for one in factor_layers(layer, made):
        (group,) = one.groups
        assert isinstance(group, ClusterGroup)
        bounds = _range(one, group)
        slack = 2.0 * dtype_of(layer.dtype).unit * float(np.abs(group.site_offsets.astype(np.float64)).max())
        low, high = low + bounds[0] - slack, high + bounds[1] + slack
    return low, high


def _range(layer: GroupedLayer, group: ClusterGroup) -> tuple[float, float]:
    """Along one coordinate: log Z at many z, and the steepest token times half their distance."""
    if len(group.matrix) != 1:
        raise Refused("the normaliser of clusters is bounded along one coordinate.")
    slopes, offsets = group.listed()
    reach = float(query(layer, group).size[0]) * (1 + 1e-9)
    z = np.linspace(-reach, reach, LOOKS)
    low, high = math.inf, -math.inf
    for part in np.array_split(z, max(1, LOOKS * len(offsets) // 2_000_000)):
        scores = np.multiply.outer(part, slopes[:, 0]) + offsets
        top = scores.max(axis=1)
        level = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        low, high = min(low, float(level.min())), max(high, float(level.max()))
    steep, size = float(np.abs(slopes).max()), float(np.abs(slopes).max() * reach + np.abs(offsets).max())
    slack = steep * reach / (LOOKS - 1) * UP + 64.0 * FLOAT64.unit * (size + 1.0) + 1e-9
    return low - slack, high + slack


def _sizes(layer: GroupedLayer) -> list[tuple[float, float]]:
    """Per group the largest error of a logit and the largest |value|, the tilt counted with the first."""
    found = []
    compute = compute_format(layer.dtype)
    for number, group in enumerate(layer.groups):
        if isinstance(group, ClusterGroup):
            eta, _, top = literal_errors(layer, group, layer.bonus)
        else:
            E = len(group.axes)
            sizes = sum(float((np.abs(a.slopes.astype(np.float64)) * 1.01 + np.abs(a.offsets.astype(np.float64))).max())
                        for a in group.axes)  # fmt: skip
            moved = 0.01 * sum(float(np.abs(a.slopes.astype(np.float64)).max()) for a in group.axes)  # |z| errs by less than 2^-8
            eta = moved + gamma(E + 4, compute.unit) * (sizes + layer.bonus)
            eta += compute.unit * (-compute.exp_floor + compute.exp_ulps + 4.0)
            if group.factors is not None:  # tokens are implied: no list of them is made
                columns = [np.abs(factor.astype(np.float64)).max(axis=0) for factor in group.factors]
                top = float(np.prod(np.stack(columns), axis=0).sum()) * UP
            else:
                c, G = group.listed_values()
                top = float((np.abs(c) + 1.01 * np.abs(G).sum(axis=-1)).max())
        found.append((eta, top + (_lean(layer) if number == 0 else 0.0)))
    return found


def _lean(layer: GroupedLayer) -> float:
    """A bound of |tilt (x - centre)|, which is added to the values of the first group's tokens."""
    if layer.tilt is None:
        return 0.0
    reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low)
    return float((np.abs(layer.tilt.astype(np.float64)) @ reach).max()) * 1.01


def pair_leaks(layer: GroupedLayer, plan: SumPlan) -> list[float]:
    """log of (Z_g'/Z_g)(max |v_g'| + max |v_g|) e^{eta_g + eta_g'} for every ordered pair of groups."""
    levels, sizes = normalisers(layer, plan), _sizes(layer)
    found = []
    for g, (own, (eta, top)) in enumerate(zip(levels, sizes, strict=True)):
        for other, (level, (more, height)) in enumerate(zip(levels, sizes, strict=True)):
            if other != g:
                found.append(level[1] - own[0] + eta + more + math.log(top + height + 1e-300))
    return found


def wanted_bonus(layer: GroupedLayer, plan: SumPlan, allowed: float) -> float:
    """Lambda, with few bits, for which the leak of the literal layer is at most `allowed` (with exact logits)."""
    levels, sizes = normalisers(layer, plan), [top for _, top in _sizes(layer)]
    worst = max(
        other[1] - own[0] for g, own in enumerate(levels) for k, other in enumerate(levels) if k != g
    )  # fmt: skip
    tops = sum(top for top in sizes if math.isfinite(top)) + 1e-300
    wanted = max(1.0, worst + math.log(len(levels) ** 2 * 2.0 * tops / allowed) + 1.0)
    mantissa, exponent = math.frexp(wanted)
    return math.ldexp(math.ceil(mantissa * 256.0) / 256.0, exponent)


def literal_leak(layer: GroupedLayer, plan: SumPlan) -> float:
    """What the other groups contribute to every query column of the literal layer; infinite where logits are not resolved."""
    pairs = pair_leaks(layer, plan)
    if not all(math.isfinite(pair) for pair in pairs):
        return math.inf
    return sum(math.exp(min(pair - layer.bonus, 700.0)) for pair in pairs) * (1 + 1e-9)
