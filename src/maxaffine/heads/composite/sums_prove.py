"""The certificate of sums some parts of which switch: the parts' proofs added up, and the leak between groups where there is one.

    |F - f| <= sum_g sup |F_g - f_g| + rounding,

f = sum_g f_g + slopes . x exactly (structure/sums.py).  The two-level runtime evaluates every group by itself: nothing leaks; the
literal layer, where groups leak into each other, is proofs/literal.py's.
"""

import math
from dataclasses import replace
from fractions import Fraction

from maxaffine.core.errors import Refused
from maxaffine.core.scope import Scope
from maxaffine.heads.axis.line import AxisTarget
from maxaffine.heads.axis.plan import AxisPlan
from maxaffine.heads.axis.prove import prove_axis
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.heads.composite.products_prove import prove_product
from maxaffine.heads.composite.sums_plan import SumPlan
from maxaffine.heads.spectral.plan import GroupPlan
from maxaffine.heads.spectral.prove import GroupBound, product_bound
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import affine_part_error, output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.two_level import UP

THEOREM = "sums: the error of every part, proved by itself, added up"


def certify_sums(layer: GroupedLayer, plan: SumPlan, error: float, runtime: str = "two-level") -> Certificate:
    """The bound for the two-level runtime.

    Every part is proved to its share of `error`.
    """
    if len(layer.groups) != len(plan.parts):
        raise Refused("its groups are not those of its plan.")
    scale = error / sum(plan.shares)
    approximation = leakage = rounding = uncertainty = size = 0.0
    every = True
    alone = replace(layer, bonus=0.0)  # the groups are run one by one
    blends: list[ProvedBlend | None] = []
    for number, (group, made, share) in enumerate(zip(layer.groups, plan.parts, plan.shares, strict=True)):
        if isinstance(made, GroupPlan) and not (group.clustered or group.factored):
            blends.append(None)
            parts = product_bound(alone, group, made, share * scale)
        else:
            if isinstance(made, ProductPlan) and group.factored:
                proof = prove_product(layer, group, made, share * scale)
            elif isinstance(made, AxisPlan) and group.clustered:
                proof = prove_axis(layer, group, _target(layer, plan, number), share * scale)
            else:
                raise Refused("its groups are not those of its plan.")
            blends.append(proof.blend)
            parts = GroupBound(proof.approximation, proof.uncertainty, proof.rounding, proof.layer_size)
            leakage, every = leakage + proof.leakage, every and proof.every_x
        approximation, rounding = approximation + parts.approximation, rounding + parts.rounding
        uncertainty += parts.uncertainty
        size += parts.largest
    rounding += affine_part_error(layer, plan.found.slopes) + output_rounding(layer, size * UP)
    if not math.isfinite(rounding + leakage):
        raise Refused(f"far from its clusters some numbers leave {layer.dtype}.")
    return Certificate.proved(
        math.inf, {"approximation": approximation, "leakage": leakage, "rounding": rounding, "target_rounding": uncertainty},
        argument="sums", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, EXPONENTIAL, ELEMENTARY, FLINT), scope=Scope("box", "real" if every else "float64"),
        details={"groups": float(len(layer.groups)), "bonus": layer.bonus}, blends=tuple(blends),
    )  # fmt: skip


def _target(layer: GroupedLayer, plan: SumPlan, number: int) -> AxisTarget:
    """A part of one direction, with slopes . centre where it carries the affine part."""
    found = plan.found.along(number)
    pairs = zip(found.slopes, layer.centre, strict=True)
    lift = sum((a * Fraction(float(c)) for a, c in pairs), Fraction(0))
    return AxisTarget(found.shifted(lift), found.direction)
