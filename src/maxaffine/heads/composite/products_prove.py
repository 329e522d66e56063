"""The certificate of products of clusters: every factor proved along its own direction, and what multiplying them costs.

Scores add up, so masses and weights are products, and so are the pieces: with blends N_i = sup sum_k Omega_k |h_i - p_k| over the
clusters that answer (axis_clusters.py), S_i = sup |h_i|, T_i = S_i + N_i and a shift that all values share,

    |F - f| <= prod_i T_i - prod_i S_i                                             (telescoping: sum Omega_k |p_k| <= T_i)
             + prod_i (e^{2 eta_i} R_i + e^{eta_i} X_i) - prod_i e^{2 eta_i} R_i   (X_i: clusters far away, and their values)

Computed weights are products as well: errors of logits move the piece of factor i by l_i, and their product by
prod_i (T_i + l_i) - prod_i T_i; R_i = T_i + l_i and what sums lose.  Computed scores are wrong by at most eta = sum_i eta_i
where clusters answer, so computed masses are at most e^{2 eta}/(1 - phi) times the exact ones, phi the mass far away.  The stored
offsets are sums and the stored values products, both rounded: offsets off by d_i count with eta_i, and values off by rho times
their size cost rho prod_i sum w (|c| + |G t|).  The rounding of z moves every factor by its modulus.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_format, dtype_of, gamma
from maxaffine.core.scope import Scope
from maxaffine.heads.axis.line import AxisTarget
from maxaffine.heads.axis.parts import AxisParts, AxisProof
from maxaffine.heads.axis.plan import axis_group
from maxaffine.heads.axis.prove import prover
from maxaffine.heads.axis.scores import EXTENDED
from maxaffine.heads.composite.products_plan import ProductPlan
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT, LOGARITHM
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import affine_part_error, output_rounding
from maxaffine.proofs.literal_form import Heard
from maxaffine.proofs.two_level import UP
from maxaffine.runtime.grouped import tree_terms
from maxaffine.runtime.two_level import SKIP

Array = NDArray[np.float64]

THEOREM = "products: every factor proved by clusters along its own direction, their errors multiplied out"
U = FLOAT64.unit
NOT_A_PRODUCT = "its clusters are not the combinations of its factors' clusters."


def certify_products(layer: GroupedLayer, plan: ProductPlan, error: float, runtime: str = "two-level") -> Certificate:
    """The bound for the two-level runtime."""
    if len(layer.groups) != 1 or not layer.groups[0].clustered:
        raise Refused("it is not a layer of one group of clusters.")
    group = layer.groups[0]
    proof = prove_product(layer, group, plan, error)
    rounding = proof.rounding + affine_part_error(layer, plan.found.slopes) + output_rounding(layer, proof.layer_size)
    if not math.isfinite(rounding):
        raise Refused(f"far from its clusters some numbers leave {layer.dtype}.")
    parts = {
        "approximation": proof.approximation, "leakage": proof.leakage, "rounding": rounding, "target_rounding": proof.doubt,
    }  # fmt: skip
    return Certificate.proved(
        math.inf, parts, argument="products", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(LOGARITHM, EXPONENTIAL, ELEMENTARY, FLINT), scope=Scope("box", "real" if proof.every_x else "float64"),
        details={"factors": float(len(plan.factors)), "clusters": float(len(group.clusters))},
        heard=(proof.heard,),
    )  # fmt: skip


def factor_layers(layer: GroupedLayer, plan: ProductPlan) -> list[GroupedLayer]:
    """Every factor as a layer of its own."""
    return [replace(layer, groups=(axis_group(one),), bonus=0.0, tilt=None) for one in plan.factors]


def prove_product(layer: GroupedLayer, group: ClusterGroup, plan: ProductPlan, error: float) -> AxisProof:
    """Everything about one group of products but the tilt and the output; the shares of the plan are those of its factors."""
    if not np.array_equal(layer.centre, plan.centre):
        raise Refused("its centre is not that of its plan.")
    shift, alone = plan.shift, factor_layers(layer, plan)
    factors = [one for layer_of_one in alone for one in layer_of_one.cluster_groups()]
    stored = _compare(group, factors, plan.affine, shift, 2.0 * dtype_of(layer.dtype).unit)
    provers = [
        prover(one, own, AxisTarget(target.h, target.direction), share, None, len(factors), slack)
        for one, own, target, share, slack in zip(alone, factors, plan.found.factors, plan.shares, stored.offsets, strict=True)
    ]
    parts = [one.parts() for one in provers]
    bound = _joined(parts, plan.affine, stored.values, abs(shift), compute_format(layer.dtype).tiny)
    sizes = [part.size for part in parts]
    rounding = bound.rounding + abs(float(Fraction(shift) - plan.lift)) * UP
    real = sum(one.moved(True) * _others(sizes, i) for i, one in enumerate(provers))
    every = bound.near + bound.leak + rounding + real <= 0.99 * error
    rounding += real if every else sum(one.moved(False) * _others(sizes, i) for i, one in enumerate(provers))
    if not math.isfinite(bound.near + bound.leak + rounding):
        raise Refused("a factor could not be bounded.")
    size = bound.size + abs(shift)
    reach = np.stack([axis.ravel() for axis in np.meshgrid(*(part.reach for part in parts), indexing="ij")], axis=1)
    # what stored products lack is in the rounding
    known = Heard(
        (bound.near + bound.leak + rounding) * UP, size * UP, reach, bound.far * UP, sum(part.edge for part in parts),
        sum(part.pace for part in parts),
    )
    return AxisProof(
        (bound.near - bound.doubt) * UP, bound.leak * UP, rounding * UP, bound.doubt, size * UP,
        (size + bound.near + bound.leak + bound.rounding) * UP, (), every, sum(part.cells for part in parts),
        known,
    )  # fmt: skip


@dataclass(frozen=True)
class _Stored:
    """What storing did: per factor (C_i,) bounds for the offsets, and values off by this times prod |v| + |shift|."""

    offsets: list[Array]
    values: float


def _compare(group: ClusterGroup, factors: list[ClusterGroup], affine: int, shift: float, unit: float) -> _Stored:
    """The stored group against the combinations of its factors: keys, places and slopes alike, offsets and values nearly.

    Offsets are sums up to `unit` of their terms.
    """
    E, counts = len(factors), [len(one.clusters) for one in factors]
    rows = [one.matrix[0] for one in factors]
    if not np.array_equal(group.matrix, np.stack(rows)) or len(group.clusters) != math.prod(counts):
        raise Refused(NOT_A_PRODUCT)
    ratio = off = 0.0
    for k, numbers in enumerate(itertools.product(*(range(c) for c in counts))):
        own = [one.clusters[n] for one, n in zip(factors, numbers, strict=True)]
        slopes = [float(one.site_slopes[n, 0]) for one, n in zip(factors, numbers, strict=True)]
        if not (_same_keys(group.clusters[k], own) and np.array_equal(group.site_slopes[k].astype(np.float64), slopes)):
            raise Refused(NOT_A_PRODUCT)
        offsets = [float(one.site_offsets[n]) for one, n in zip(factors, numbers, strict=True)]
        lacks = abs(math.fsum([float(group.site_offsets[k]), *(-b for b in offsets)]))
        if lacks:
            ratio = max(ratio, lacks / sum(abs(b) for b in offsets) * UP) if any(offsets) else math.inf
        off = max(off, _values_off(group.clusters[k], own, affine, shift))
    if not (ratio <= unit and off < 0.1):
        raise Refused(NOT_A_PRODUCT)
    slack = [ratio * np.abs(one.site_offsets.astype(np.float64)) * UP for one in factors]
    return _Stored(slack, off * (1.0 + E * U))


def _same_keys(cluster: Cluster, own: list[Cluster]) -> bool:
    """Whether a cluster has its factors' keys, origins and radii."""
    return all(
        cluster.origin[e] == one.origin[0] and cluster.radius[e] == one.radius[0]
        and np.array_equal(cluster.axes[e].slopes, one.axes[0].slopes)
        and np.array_equal(cluster.axes[e].offsets, one.axes[0].offsets)
        for e, one in enumerate(own)
    )  # fmt: skip


def _values_off(cluster: Cluster, own: list[Cluster], affine: int, shift: float) -> float:
    """The largest |stored - product| over |product| + |shift|, for values and slopes; infinite where only one of them is zero."""
    wide = np.longdouble
    values = [one.values[:, 0].astype(wide) for one in own]
    slopes = list(values)
    slopes[affine] = _lean(own[affine]).astype(wide)
    if any(np.any(_lean(one)) for e, one in enumerate(own) if e != affine):
        raise Refused("more than one of its factors has affine values.")
    lean = np.zeros((*cluster.values.shape, len(own))) if cluster.slopes is None else cluster.slopes
    others = [e for e in range(len(own)) if e != affine]
    if np.any(lean[..., others]):
        return math.inf
    worst = 0.0
    for exact, here, added in (
        (reduce(np.multiply.outer, values), cluster.values[..., 0], shift),
        (reduce(np.multiply.outer, slopes), lean[..., 0, affine], 0.0),
    ):
        size = np.abs(exact) + abs(added)
        away = np.abs(here.astype(wide) - (exact + wide(added)))
        if np.any((size == 0) & (away > 0)):
            return math.inf
        quotient = np.divide(away, size, out=np.zeros_like(size), where=size > 0)
        worst = max(worst, float(quotient.max()) * UP)
    return worst + 4.0 * (len(own) + 1) * EXTENDED


def _lean(cluster: Cluster) -> Array:
    """The slopes (p,) of a cluster of one coordinate."""
    return np.zeros(cluster.count) if cluster.slopes is None else cluster.slopes[:, 0, 0]


@dataclass(frozen=True)
class _Bound:
    """Of the whole, in the two-level runtime: near, leak, rounding (of z and of the output left out), sup |prod h|, doubt."""

    near: float
    leak: float
    rounding: float
    size: float
    doubt: float
    far: float  # masses of tokens far away times their values and |prod h|


def _others(numbers: list[float], *left: int) -> float:
    """The product of all numbers but some."""
    return math.prod(number for i, number in enumerate(numbers) if i not in left) * UP


def _joined(parts: list[AxisParts], affine: int, off: float, shift: float, tiny: float) -> _Bound:
    """The factors' parts multiplied out; `off` is what storing did to values, `shift` what all of them share."""
    E = len(parts)
    sizes, tops = [part.size for part in parts], [part.size + part.near for part in parts]
    eta, far = sum(part.eta for part in parts), sum(part.far for part in parts)
    if not (eta < 1.0 and far <= 0.25):
        raise Refused("the scores of its clusters are lost to rounding.")
    size = math.prod(sizes) * UP
    near = _excess(sizes, [part.near for part in parts])
    doubt = min(sum(part.doubt * _others(tops, i) for i, part in enumerate(parts)), near)
    masses = math.exp(2.0 * eta) / (1.0 - far)
    heads = [part.heads for part in parts]
    terms = sum(head.keys + tree_terms(head.keys) + 12 for head in heads)
    summed = [head.summed for head in heads]
    blur = math.exp(min(2.04 * sum(head.eta for head in heads), 50.0))  # of computed weights, above the exact ones
    sums = blur * gamma(terms, U)
    lost = _excess(tops, [head.moved for head in heads]) + sums * (math.prod(summed) + shift)
    lost += blur * 4 * U * heads[affine].reach * heads[affine].lean * _others(summed, affine)
    lost += math.prod(head.keys for head in heads) * tiny * (math.prod(head.largest for head in heads) + shift)
    # where some factor is far away, the others' pieces as computed
    computed = [top + head.moved for top, head in zip(tops, heads, strict=True)]
    reached = [math.exp(2.0 * part.eta) * top for part, top in zip(parts, computed, strict=True)]
    added = [math.exp(2.0 * part.eta) * size for part, size in zip(parts, summed, strict=True)]
    away = [math.exp(p.eta) * p.leak for p in parts]
    leak = (_excess(reached, away) + sums * _excess(added, away)) / (1.0 - far)
    count = math.prod(part.count for part in parts)
    rounding = (masses - 1.0) * near + masses * lost
    rounding += masses * blur * off * (math.prod(a + b for a, b in zip(summed, away, strict=True)) + shift)
    rounding += masses * gamma(tree_terms(count) + count + 8, U) * (math.prod(computed) + leak + shift)
    rounding += count * (SKIP + 4.0 * FLOAT64.tiny) * (math.prod(part.largest for part in parts) + shift)
    distant = 2.0 * (_excess(added, away) / (1.0 - far) + sum(math.exp(2.0 * p.eta) * p.far for p in parts) * (size + shift))
    return _Bound(near, leak, rounding * (1.0 + E * 1e-12), size, doubt, distant)


def _excess(base: list[float], more: list[float]) -> float:
    """prod (base + more) - prod base, without cancellation."""
    total, grown = 0.0, 1.0
    for i, (a, b) in enumerate(zip(base, more, strict=True)):
        total += grown * b * math.prod(base[i + 1 :])
        grown *= a + b
    return total * UP
