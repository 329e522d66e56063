"""The certificate of products of clusters: every factor proved along its own direction, and their errors multiplied out.

    F = shift + prod_i H_i(z_i),    |H_i - h_i| <= e_i as computed    =>    |F - f| <= prod_i (S_i + e_i) - prod_i S_i + rounding,

f = shift + prod_i h_i and S_i = sup |h_i|, by telescoping.  e_i adds up what is near the query, what is far, rounding in the
two-level runtime (heads/axis/prove.py) and what the rounding of z does to h_i.  The products and the last sum are E roundings.

For the literal layer, whose clusters are all combinations: masses are products, so that with N_i = sup sum_k Omega_k |h_i - p_k|
over all clusters sum_k Omega_k |f - p_k| <= prod_i (S_i + N_i) - prod_i S_i, and a combination is far where one of its clusters
is: masses times values are at most prod_i (W_i + X_i) - prod_i W_i, W_i >= sum w (|c| + |G t|) near the query and X_i far away.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.core.scope import Scope
from maxaffine.heads.axis.line import AxisParts, AxisProof, AxisTarget
from maxaffine.heads.axis.prove import prover
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.layer.factors import LISTED, FactorGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import affine_part_error, lost_below, output_rounding
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.two_level import UP, U

THEOREM = "products: the error of every factor along its own direction, multiplied out"
MOST = 1e300  # products of factors that are not followed beyond


def certify_products(layer: GroupedLayer, plan: ProductPlan, error: float, runtime: str = "two-level") -> Certificate:
    """The bound for the two-level runtime."""
    if len(layer.groups) != 1 or not layer.groups[0].factored:
        raise Refused("it is not a layer of one product.")
    group = layer.groups[0]
    proof = prove_product(layer, group, plan, error)
    rounding = proof.rounding + affine_part_error(layer, plan.found.slopes) + output_rounding(layer, proof.layer_size)
    if not math.isfinite(rounding):
        raise Refused(f"far from its clusters some numbers leave {layer.dtype}.")
    parts = {
        "approximation": proof.approximation, "leakage": proof.leakage, "rounding": rounding,
        "target_rounding": proof.uncertainty,
    }  # fmt: skip
    return Certificate.proved(
        math.inf, parts, argument="products", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, EXPONENTIAL, ELEMENTARY, FLINT), scope=Scope("box", "real" if proof.every_x else "float64"),
        details={"factors": float(len(plan.factors)), "clusters": float(math.prod(group.cluster_counts))},
        blends=(proof.blend,),
    )  # fmt: skip


def prove_product(layer: GroupedLayer, group: FactorGroup, plan: ProductPlan, error: float) -> AxisProof:
    """Everything about one product but the tilt and the output; the shares of the plan are those of its factors."""
    if len(group.factors) != len(plan.found.factors) or not np.array_equal(layer.centre, plan.centre):
        raise Refused("its factors or its centre are not those of its plan.")
    provers = [
        prover(layer, factor, AxisTarget(target.h, target.direction), share)
        for factor, target, share in zip(group.factors, plan.found.factors, plan.shares, strict=True)
    ]
    found = [one.computed() for one in provers]
    parts, shift = [part for part, _ in found], float(group.shift[0])
    off = abs(float(Fraction(shift) - plan.lift)) * UP

    def total(real: bool) -> Multiplied:
        lost = [rounding * UP + lost_below(layer) + one.moved(real) for one, (_, rounding) in zip(provers, found, strict=True)]
        return multiplied(parts, lost, shift, off)

    bound = total(True)
    every = bound.near + bound.leak + bound.rounding <= 0.99 * error
    bound = bound if every else total(False)
    if not math.isfinite(bound.near + bound.leak + bound.rounding):
        raise Refused("a factor could not be bounded.")
    size = math.prod(part.size for part in parts) + abs(shift)
    return AxisProof(
        (bound.near - bound.uncertainty) * UP, bound.leak * UP, bound.rounding * UP, bound.uncertainty, size * UP,
        bound.whole * UP, (),
        every, sum(part.cells for part in parts), _blend(parts, abs(shift)),
    )  # fmt: skip


@dataclass(frozen=True)
class Multiplied:
    """Of a product: what is near the query, far from it and rounding, a bound of the computed |F|, how uncertain `near` is."""

    near: float
    leak: float
    rounding: float
    whole: float
    uncertainty: float


def multiplied(parts: list[AxisParts], lost: list[float], shift: float, off: float) -> Multiplied:
    """The factors' parts multiplied out; `lost` is what rounding does to each of them, `off` what the shift lacks."""
    sizes, blends = [part.size for part in parts], [part.near + part.leak for part in parts]
    reached = [size + blend for size, blend in zip(sizes, blends, strict=True)]
    tops = [a + b for a, b in zip(reached, lost, strict=True)]
    if not math.prod(max(top, 1.0) for top in tops) < MOST:
        raise Refused("a factor could not be bounded.")
    near, whole = excess(sizes, [part.near for part in parts]), math.prod(tops) * UP + abs(shift)
    others = [math.prod(top for k, top in enumerate(reached) if k != i) for i in range(len(parts))]
    uncertainty = sum(part.uncertainty * other for part, other in zip(parts, others, strict=True)) * UP
    below = (len(parts) + 1) * FLOAT64.tiny * math.prod(max(top, 1.0) for top in tops)  # partial products, whatever their order
    rounding = excess(reached, lost) + off + gamma(len(parts) + 2, U) * whole + below
    return Multiplied(near, max(excess(sizes, blends) - near, 0.0), rounding, whole, min(uncertainty, near))


def _blend(parts: list[AxisParts], shift: float) -> ProvedBlend:
    """What is known of all combinations of the clusters, for the literal layer."""
    sizes, blends = [part.size for part in parts], [part.near + part.leak for part in parts]
    size = math.prod(sizes) * UP + shift
    weights, leaks = [part.heads.summed for part in parts], [part.leak for part in parts]
    far = 2.0 * (excess(weights, leaks) + sum(part.far for part in parts) * (size + shift))
    reach = None  # where more combinations are implied than are listed, anywhere
    if math.prod(len(part.reach) for part in parts) <= LISTED:
        reach = np.stack([axis.ravel() for axis in np.meshgrid(*(part.reach for part in parts), indexing="ij")], axis=1)
    weight = math.prod(w + x for w, x in zip(weights, leaks, strict=True)) * UP + shift
    return ProvedBlend(
        excess(sizes, blends), size, reach, far * UP, sum(part.edge for part in parts), sum(part.pace for part in parts),
        weight=weight,
    )  # fmt: skip


def excess(base: list[float], more: list[float]) -> float:
    """prod (base + more) - prod base, without cancellation."""
    total, grown = 0.0, 1.0
    for i, (a, b) in enumerate(zip(base, more, strict=True)):
        total += grown * b * math.prod(base[i + 1 :])
        grown *= a + b
    return total * UP
