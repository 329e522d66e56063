"""Sums some parts of which switch, re-proved: the target's parts read off its expression again, each proved by itself.

Groups of clusters are proved along their direction (checker/axis_clusters.py) or factor by factor (checker/products.py), groups
of product keys by Chebyshev points and ellipses (checker/product_group.py); the first part that switches carries the affine part.
The sum of the parts is compared with the target at random points.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from maxaffine.checker.axis_clusters import AxisCheck, in_balls
from maxaffine.checker.certificate import stated_scope
from maxaffine.checker.literal_clusters import cluster_column
from maxaffine.checker.literal_groups import Column, Frame, literally
from maxaffine.checker.product_group import ProductGroup
from maxaffine.checker.products import factors_at, multiplied_out
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Clusters, Layer, ProductKeys
from maxaffine.checker.target_parts import along, doubt_parts, expression_of, group_at
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.sums import Sum, sum_of
from maxaffine.target.target import Target

MOST_PARTS = 64


def check_sums(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of groups of clusters and groups of product keys whose functions add up to the target."""
    found = sum_of(expression_of(target, "sums"), target.box, target.query)
    if found is None or len(found.parts) > MOST_PARTS:
        raise NotProved("its target is not a sum of parts some of which switch.")
    doubt_parts(target, lambda x: _value(found, target, x), "the sum of its parts is not its target.")
    rows = record["plan"]["groups"]
    if len(rows) != len(found.parts) or [len(one.matrix) for one in layer.groups] != [one.dimension for one in found.parts]:
        raise NotProved("its groups are not those of its target.")
    if any(isinstance(one, ProductKeys) for one, switching in zip(layer.groups, found.switching, strict=True) if switching):
        raise NotProved("a part that switches has no clusters.")
    shares = [float(row["share"]) for row in rows]
    if not all(math.isfinite(share) and share > 0 for share in shares):
        raise NotProved("the shares of its parts are not positive numbers.")
    scale = error / math.fsum(shares)
    stated = stated_scope(record["certificate"])
    total = size = listed_off = 0.0  # the last: how far products are from their lists
    every, clusters = True, 0
    columns: list[Callable[[Frame], Column]] = []
    for g, (group, share) in enumerate(zip(layer.groups, shares, strict=True)):
        if isinstance(group, ProductKeys):
            part = ProductGroup.of(layer, g, found.parts[g], 0.0)  # the two-level runtime adds no bias to its logits
            bound, top = part.prove(share * scale)
            columns.append(replace(part, extent=top).column)
        elif found.is_product(g):
            real = stated.inputs == "real"
            made = multiplied_out(layer, g, found.product(g, target.box), rows[g]["factors"], real, g == found.first)
            bound, top, listed_off = made.bound, made.size, listed_off + made.listed_off
            columns.append(made.column)
            every, clusters = every and real, clusters + made.clusters
        else:
            if not isinstance(group, Clusters) or len(group.matrix) != 1:
                raise NotProved("a part that switches is not one of clusters along one direction.")
            bound, real, top, check = _along(layer, group, found, g, share * scale)
            columns.append(partial(cluster_column, group, check.known_blend()))
            every, clusters = every and real, clusters + len(check.clusters)
        total, size = total + bound, size + top
        if not math.isfinite(total + size):
            raise NotProved("a part could not be bounded.")
    total += (compute_format(layer.dtype).unit * 1.01 + (len(columns) + 6.0) * DOUBLE) * (size + total)
    if not Scope("box", "real" if every else "float64").covers(stated):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")
    whole = total * (1 + 1e-12)
    literal = literally(layer, whole + listed_off, lambda frame: [column(frame) for column in columns])
    return Proved(whole, f"{len(columns)} parts, {clusters} clusters", literal)


def _value(found: Sum, target: Target, x: Array) -> Interval:
    """What the parts and the affine part add up to at points."""
    total = along(found.slopes, x) + Interval.exact(found.constant)
    for g, group in enumerate(found.parts):
        total = total + (factors_at(found.product(g, target.box), x) if found.is_product(g) else group_at(group, x))
    return total


def _along(layer: Layer, group: Clusters, found: Sum, g: int, goal: float) -> tuple[float, bool, float, AxisCheck]:
    """A group of clusters as if it stood alone: its bound, whether it holds for real x, and the size of its function."""
    with in_balls():
        check = AxisCheck.of(layer, group, found.along(g), goal, math.inf, None, g == found.first)
        bound, every = check.prove()
        size = check.target.size() + check.affine_size
    if check.target.jumps:
        raise NotProved("a part of its target jumps.")
    return bound, every, size, check
