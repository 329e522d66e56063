"""Products of functions of one direction each, re-proved: every factor along its own axis, then multiplied out.

At a computed z the weights inside a cluster are products over the coordinates, as computed, so a cluster (k_1, .., k_E) says
prod_i q_i + shift, q_i the computed head of cluster k_i of factor i, but for rounded sums and for what the stored values lack.
Masses: where every k_i is in the race, computed scores are wrong by eta = sum_i eta_i at most, and the normaliser is at least
e^-eta prod_i (1 - phi_i) times the exact one, phi_i the mass of factor i out of the race.  So a computed mass is at most the
product over i of mu_i Omega_i(k_i), mu_i = e^{2 eta_i}/(1 - phi_i), where k_i is in the race, and of
e^{eta_i + error of its score} Omega_i(k_i)/(1 - phi_i) where it is not.  With S_i = sup |h_i|, N_i >= sum Omega |h_i - p|, l_i
what wrong logits do to a head, X_i >= sum of masses times (S_i + |q_i|) out of the race, R_i = mu_i (S_i + N_i + l_i) and
Y_i = e^{eta_i} X_i/(1 - phi_i):

    |layer - prod h_i - shift|  <=  prod R_i - prod mu_i S_i  +  prod (R_i + Y_i) - prod R_i  +  sums and stored values.

What is read from the file, and what it lacks of a product: checker/products_stored.py.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.axis_cluster import DOUBLE, AxisParts
from maxaffine.checker.axis_clusters import BITS
from maxaffine.checker.literal_groups import Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.products_stored import Stored, hints_of
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.stored import NotProved, stated_scope
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.products import Product, product_of
from maxaffine.target.target import Target

Array = NDArray[np.float64]


def check_products(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a group of clusters over two or three coordinates, for a product of functions of one each."""
    if target.expression is None or target.n_out != 1 or target.d_out != 1:
        raise NotProved("its target is not one that products are proved for.")
    found = product_of(target.expression, target.box)
    if found is None or len(found.factors) not in (2, 3):
        raise NotProved("its target is not a product of functions of two or three directions.")
    _multiplies(found, target)
    stated = stated_scope(record["certificate"])
    if not Scope().covers(stated):
        raise NotProved("the x its certificate speaks of are not those that products are proved for.")
    rows = record["plan"]["factors"]
    bound, _, clusters, heard = multiplied_out(tensors, record["layer"], target, found, rows, stated.inputs == "real")

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.read(tensors, record["layer"], form)
        return literal_bound(frame, bound, [cluster_column(tensors, 0, heard, frame)])

    how = f"{len(found.factors)} factors, {clusters} clusters, each factor where its clusters are in the race"
    return Proved(bound, how, literal)


def multiplied_out(
    tensors: Mapping[str, Any], layer: Mapping[str, Any], target: Target, found: Product, told: Any, real: bool
) -> tuple[float, float, int, Heard]:
    """The bound of one group, for `real` x or for those that are numbers, a bound of its function's size, and its clusters.

    And what is known of them for a literal form.
    """
    rows = hints_of(told, found)
    stored = Stored.read(tensors, layer, target, found, rows)
    try:
        with balls.precision(BITS):
            checks = [stored.factor(e, found, row.share) for e, row in enumerate(rows)]
            parts = [check.parts() for check in checks]
            total, blend = _multiplied(parts, stored)
            total += stored.tilt_off
            sizes = [part.size for part in parts]
            for i, check in enumerate(checks):
                total += check._sway(check.drift + (check.real if real else 0.0)) * _others(sizes, i)
    except Refused as failure:
        raise NotProved(str(failure)) from None
    except OverflowError:
        raise NotProved("the factors that its record names leave float64.") from None
    if not math.isfinite(total):
        raise NotProved("its factors could not be bounded.")
    size = math.prod(sizes) + abs(stored.shift)
    said, mass = [part.size + part.weight for part in parts], sum(part.mass for part in parts)
    far = _grown(said, [part.far for part in parts]) + 2.0 * abs(stored.shift) * mass
    which = np.stack(np.unravel_index(np.arange(math.prod(stored.counts)), stored.counts), axis=1)
    reaches = [check.reaches() for check in checks]
    spans = [np.concatenate([one[side][which[:, e]] for e, one in enumerate(reaches)], axis=1) for side in (0, 1)]
    heard = Heard(blend, size, (spans[0], spans[1]), far * 1.1, mass)
    return total * (1 + 1e-11), size + stored.tilt, math.prod(stored.counts), heard


def _multiplies(found: Product, target: Target) -> None:
    """The factors' product and the affine part are the target at random points: this module takes no product apart itself."""
    x = target.box.sample(120, np.random.default_rng(31))
    value = target.enclose(x, x)
    known = np.isfinite(value.lo[:, 0, 0]) & np.isfinite(value.hi[:, 0, 0])
    whole = factors_at(found, x) + _along(found.slopes, x) + Interval.exact(found.constant)
    apart = (whole.hi[:, 0] < value.lo[:, 0, 0]) | (whole.lo[:, 0] > value.hi[:, 0, 0])
    if np.any(apart) or np.count_nonzero(known & np.isfinite(whole.lo[:, 0]) & np.isfinite(whole.hi[:, 0])) < 60:
        raise NotProved("the product of its factors is not its target.")


def factors_at(found: Product, x: Array) -> Interval:
    """The factors' product at points (B, D), enclosed: (B, 1)."""
    whole = Interval.point(np.ones((len(x), 1)))
    for factor in found.factors:
        whole = whole * factor.h.enclose(_along(factor.direction, x))
    return whole


def _along(w: tuple[Fraction, ...], x: Array) -> Interval:
    """w . x at points, (B, 1)."""
    total = Interval.point(np.zeros((len(x), 1)))
    for c, column in zip(w, x.T, strict=True):
        if c:
            total = total + Interval.exact(c) * Interval.point(column[:, None])
    return total


def _others(numbers: list[float], *left: int) -> float:
    return math.prod(number for i, number in enumerate(numbers) if i not in left)


def _grown(base: list[float], more: list[float]) -> float:
    """prod (base + more) - prod base, all of them at least 0."""
    total = 0.0
    for i, extra in enumerate(more):
        total += extra * math.prod(base[:i]) * math.prod(a + b for a, b in zip(base[i + 1 :], more[i + 1 :], strict=True))
    return total


def _multiplied(parts: list[AxisParts], stored: Stored) -> tuple[float, float]:
    """The bound at a computed z, with the rounding of the output; the stored tilt and the rounding of z left out.

    And that of the clusters' masses times their distance from the target alone.
    """
    if not all(part.eta < 0.2 and part.mass < 0.1 for part in parts):
        raise NotProved("the scores of its clusters are lost to rounding.")
    mu = [math.exp(2.0 * part.eta) / (1.0 - part.mass) for part in parts]
    reached = [m * part.size for m, part in zip(mu, parts, strict=True)]
    extra = [m * (part.near + part.lost) for m, part in zip(mu, parts, strict=True)]
    whole = [a + b for a, b in zip(reached, extra, strict=True)]
    out = [math.exp(part.eta) / (1.0 - part.mass) * part.far for part in parts]
    blend = _grown(reached, extra) + _grown(whole, out)
    # Rounded sums inside a cluster and stored values, relative to |c| + |G t|, in the race at most `weight` in the mean; bounds
    # of the masses of one factor add up to 2 at most.
    heavy = [m * part.weight + y for m, part, y in zip(mu, parts, out, strict=True)]
    terms = DOUBLE * sum(1.5 * part.keys + 50.0 for part in parts)
    a, shift, many = stored.affine, abs(stored.shift), 2.0 ** (len(parts) - 1)
    heads = (terms * (1.0 + stored.off) + stored.off) * (math.prod(heavy) + stored.floor + many * stored.lean_floor * heavy[a])
    largest = [part.largest for part in parts]
    unseen = math.prod(largest) + stored.floor + stored.lean_floor * largest[a]
    heads += math.prod(part.keys for part in parts) * 2.0**-147 * unseen
    total = blend + heads
    C = math.prod(stored.counts)
    says = math.prod(w + y for w, y in zip(whole, out, strict=True)) + shift + heads
    total += ((8 * (2 + int(math.log(C + 1, 8))) + C + 14) * DOUBLE + C * 2.0**-117) * says
    size = math.prod(part.size for part in parts) + shift + total + stored.tilt
    total += stored.shift_off + (compute_format(stored.dtype).unit + 6.0 * DOUBLE) * size
    return total, blend + heads + stored.shift_off
