"""Products of functions of one direction each, re-proved: every factor along its own axis, then multiplied out.

A file holds the factors H_i, each a group of clusters along one direction, and a shift.  At a computed z what is computed of
factor i is within e_i of h_i (checker/axis_clusters.py), and the rounding of z moves h_i by m_i.  With S_i = sup |h_i|

    |prod H_i + shift - prod h_i - shift'|  <=  prod (S_i + e_i + m_i) - prod S_i + |shift - shift'| + rounding of the product.

The literal form lists all combinations of clusters: scores add up and masses multiply, so that with N_i >= sum Omega |h_i - p|
the masses times the distances from the target are at most prod (S_i + N_i) - prod S_i, and a combination is far where one of its
clusters is.  Offsets of the list are rounded sums and its values rounded products (`combined`): off by d and by rho of their
size they move what is listed by (e^{2 d} - 1) blend + e^{2 d} rho prod sum w (|c| + |G t|).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.axis_cluster import AxisParts
from maxaffine.checker.axis_clusters import AxisCheck, affine_error, in_balls
from maxaffine.checker.certificate import stated_scope
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import MOST_TOKENS, Column, Frame, literally
from maxaffine.checker.proved import DOUBLE, NotProved, Proved, exact
from maxaffine.checker.reader import Factored, Layer
from maxaffine.checker.target_parts import along, doubt_parts, expression_of
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.products import Product, product_of
from maxaffine.target.target import Target

MOST_FACTORS = 24
TOP = 1e300  # of partial products


def check_products(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a product of groups of clusters, for a product of functions of one direction each."""
    found = product_of(expression_of(target, "products"), target.box)
    if found is None or not 2 <= len(found.factors) <= MOST_FACTORS:
        raise NotProved(f"its target is not a product of functions of one direction each, of 2 to {MOST_FACTORS} of them.")
    doubt_parts(
        target, lambda x: factors_at(found, x) + along(found.slopes, x) + Interval.exact(found.constant),
        "the product of its factors is not its target.",
    )  # fmt: skip
    stated = stated_scope(record["certificate"])
    if not Scope().covers(stated):
        raise NotProved("the x its certificate speaks of are not those that products are proved for.")
    made = multiplied_out(layer, 0, found, record["plan"]["factors"], stated.inputs == "real")
    if len(layer.groups) != 1:
        raise NotProved("it is not a layer of one product.")
    how = f"{len(found.factors)} factors, {made.clusters} clusters, each factor where its clusters are in the race"
    return Proved(made.bound, how, literally(layer, made.bound + made.listed_off, lambda frame: [made.column(frame)]))


@dataclass(frozen=True)
class Multiplied:
    """A product, proved: its bound, a bound of its function, and of its list what is known and how far that is off."""

    bound: float
    size: float
    clusters: int
    known: Blend | None  # None where there are more combinations than a literal form is listed with
    listed_off: float
    group: Factored

    def column(self, frame: Frame) -> Column:
        """In its own column of a literal form, which lists all combinations."""
        if self.known is None:
            raise NotProved(f"its {self.group.tokens:,} tokens are implied by its factors and listed nowhere.")
        return cluster_column(self.group.combined(), self.known, frame)


@dataclass(frozen=True)
class Stored:
    """A product as a file has it: every factor as if it stood alone, the shift, and what it and the affine part lack."""

    dtype: str
    factors: list[AxisCheck]
    shift: float
    shift_off: float
    affine_size: float
    affine_off: float

    @classmethod
    def of(cls, layer: Layer, group: Factored, found: Product, rows: Any, alone: bool) -> "Stored":
        """The factors along their directions; `alone`: the layer's affine part is this product's."""
        if len(group.factors) != len(found.factors):
            raise NotProved("its factors are not along the directions of its target.")
        shares = _shares(rows, found, [len(one.sites) for one in group.factors])
        factors = [
            AxisCheck.of(layer, one, factor, share, math.inf, None, alone=False)
            for one, factor, share in zip(group.factors, found.factors, shares, strict=True)
        ]
        if any(one.target.jumps for one in factors):
            raise NotProved("a factor of its target jumps.")
        if sum(any(np.any(G) for G in one.slopes) for one in group.factors) > 1:
            raise NotProved("the values of more than one of its factors are affine.")
        affine = layer.affine_part[0] if layer.affine_part is not None and alone else np.zeros(len(layer.low))
        lift = found.constant + np.array(found.slopes) @ exact(layer.centre)
        lacks = abs(float(Fraction(group.shift) - lift)) * (1 + 1e-12)
        off, size = affine_error(found.slopes, affine, layer)
        return cls(layer.dtype, factors, group.shift, lacks, size, off)


def _shares(rows: Any, found: Product, counts: list[int]) -> list[float]:
    """The factors' shares of the error, from rows of the record that are doubted: they are hints, and prove nothing."""
    if not isinstance(rows, list) or len(rows) != len(found.factors):
        raise NotProved("its record does not have one row per factor of its target.")
    shares = []
    for row, factor, count in zip(rows, found.factors, counts, strict=True):
        if list(row["direction"]) != [str(c) for c in factor.direction] or type(row["clusters"]) is not int:
            raise NotProved("the directions of its factors are not those of its target.")
        share = row["share"]
        if row["clusters"] != count or type(share) not in (int, float) or not 0.0 < share < math.inf:
            raise NotProved("the clusters or the share of a factor are not numbers that can be used.")
        shares.append(float(share))
    return shares


def multiplied_out(layer: Layer, g: int, found: Product, rows: Any, real: bool, alone: bool = True) -> Multiplied:
    """The bound of one product, for `real` x or for those that are numbers, and what is known of it for a literal form."""
    group = layer.groups[g]
    if not isinstance(group, Factored):
        raise NotProved("a product of its target is not one of groups of clusters.")
    try:
        with in_balls():
            stored = Stored.of(layer, group, found, rows, alone)
            pairs = [check.computed() for check in stored.factors]
            moved = [check.target.change(check.drift + (check.real if real else 0.0)) for check in stored.factors]
    except OverflowError:
        raise NotProved("the factors that its record names leave float64.") from None
    numbers = 20.0 * (len(layer.low) + 1) * sum(one.tokens for one in group.factors)  # that are stored, at most
    lost = 100.0 * (len(layer.low) + 2) * numbers * 2.0**-1074  # results below the smallest normal number
    parts = [part for part, _ in pairs]
    errors = [error + more + lost for (_, error), more in zip(pairs, moved, strict=True)]
    total = multiplied([part.size for part in parts], errors, stored)
    known, off = _listed(parts, stored) if group.tokens <= MOST_TOKENS else (None, math.inf)
    size = math.prod(part.size for part in parts) + abs(stored.shift)
    count = math.prod(len(one.clusters) for one in stored.factors)
    return Multiplied(total * (1 + 1e-11), size + stored.affine_size, count, known, off, group)


def multiplied(sizes: list[float], errors: list[float], stored: Stored) -> float:
    """The bound of what is computed: the factors' errors multiplied out, rounding of the product and of the output."""
    tops = [size + error for size, error in zip(sizes, errors, strict=True)]
    if not math.prod(max(top, 1.0) for top in tops) < TOP:
        raise NotProved("its factors could not be bounded.")
    whole = math.prod(tops) + abs(stored.shift)
    total = _grown(sizes, errors) + (len(sizes) + 3) * DOUBLE * whole + stored.shift_off + stored.affine_off
    total += len(sizes) * 2.0**-1021 * math.prod(max(top, 1.0) for top in tops)  # products that fall below the normal numbers
    return total + (compute_format(stored.dtype).unit + 6.0 * DOUBLE) * (whole + stored.affine_size)


def _listed(parts: list[AxisParts], stored: Stored) -> tuple[Blend, float]:
    """What is known of all combinations as they are listed, and how far the list is from the product."""
    E, sizes = len(parts), [part.size for part in parts]
    blends = [part.blend for part in parts]
    offset = 1.01 * E * DOUBLE * sum(max(abs(cluster.b) for cluster in one.clusters) for one in stored.factors)
    wider, part_off = math.expm1(2.0 * offset) * (1 + 1e-9), 1.01 * (E + 1) * DOUBLE
    grown = 1.0 + wider
    blend, mass = _grown(sizes, blends), sum(part.mass for part in parts)
    weight = math.prod(part.weight + part.far for part in parts) + abs(stored.shift)
    numbers = [max(float(np.abs(a).max()) for cluster in one.clusters for a in (cluster.c, cluster.G)) for one in stored.factors]
    wide = max(max(abs(t) for t in cluster.t(one.low, one.high)) for one in stored.factors for cluster in one.clusters)
    below = E * 2.0**-1074 * math.prod(max(top, 1.0) for top in numbers) * (1.0 + wide)
    off = (wider * blend + grown * (part_off * weight + below)) * (1 + 1e-11)
    far = _grown([part.size + part.weight for part in parts], [part.far for part in parts]) + 2.0 * abs(stored.shift) * mass
    counts = tuple(len(one.clusters) for one in stored.factors)
    which = np.stack(np.unravel_index(np.arange(math.prod(counts)), counts), axis=1)
    reaches = [one.reaches() for one in stored.factors]
    spans = [np.concatenate([one[side][which[:, e]] for e, one in enumerate(reaches)], axis=1) for side in (0, 1)]
    size = math.prod(sizes) + abs(stored.shift)
    return Blend(blend + off, size, (spans[0], spans[1]), far * 1.1 * grown, mass * grown), off


def factors_at(found: Product, x: Array) -> Interval:
    """The factors' product at points (B, D), enclosed: (B, 1)."""
    whole = Interval.point(np.ones((len(x), 1)))
    for factor in found.factors:
        whole = whole * factor.h.enclose(along(factor.direction, x))
    return whole


def _grown(base: list[float], more: list[float]) -> float:
    """prod (base + more) - prod base, all of them at least 0."""
    total = 0.0
    for i, extra in enumerate(more):
        total += extra * math.prod(base[:i]) * math.prod(a + b for a, b in zip(base[i + 1 :], more[i + 1 :], strict=True))
    return total
