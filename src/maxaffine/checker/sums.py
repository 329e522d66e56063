"""Sums some parts of which switch, re-proved: the target's parts read off its expression again, each proved by itself.

Groups of clusters are proved along their direction (checker/axis_clusters.py) or factor by factor (checker/products.py), groups
of product keys by Chebyshev points and ellipses (checker/product_group.py); the first part that switches carries the affine part.
The sum of the parts is compared with the target at random points.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from maxaffine.checker.axis_clusters import BITS, AxisCheck
from maxaffine.checker.certificate import stated_scope
from maxaffine.checker.literal_clusters import Blend, cluster_column
from maxaffine.checker.literal_groups import Column, Frame, literal_bound
from maxaffine.checker.product_group import ProductGroup
from maxaffine.checker.products import factors_at, multiplied_out
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved
from maxaffine.checker.reader import Clusters, Layer, ProductKeys
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.sums import Sum, sum_of
from maxaffine.target.target import Target

MOST_PARTS = 64


def check_sums(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of groups of clusters and groups of product keys whose functions add up to the target."""
    if target.expression is None or target.n_out != 1 or target.d_out != 1:
        raise NotProved("its target is not one that sums are proved for.")
    found = sum_of(target.expression, target.box)
    if found is None or len(found.parts) > MOST_PARTS:
        raise NotProved("its target is not a sum of parts some of which switch.")
    _adds_up(found, target)
    layer, stored = record["layer"], Layer.read(tensors, record["layer"], target)
    dtype, counts = str(layer["dtype"]), [int(c) for c in layer.get("clusters", ())]
    rows = record["plan"]["groups"]
    same = len(counts) == len(rows) == len(found.parts) and dtype in DTYPES
    if not same or list(layer["directions"]) != [group.dimension for group in found.parts]:
        raise NotProved("its groups are not those of its target.")
    if any(bool(c) is not True for c, switching in zip(counts, found.switching, strict=True) if switching):
        raise NotProved("a part that switches has no clusters.")
    shares = [float(row["share"]) for row in rows]
    if not all(math.isfinite(share) and share > 0 for share in shares):
        raise NotProved("the shares of its parts are not positive numbers.")
    scale = error / math.fsum(shares)
    total = size = listed_off = 0.0  # the last: how far products are from their lists
    every, heads = True, 0
    groups: list[Blend | ProductGroup] = []
    stated = stated_scope(record["certificate"])
    for g, count in enumerate(counts):
        goal = shares[g] * scale
        if count and found.is_product(g):
            real = stated.inputs == "real"
            made = multiplied_out(stored, g, found.product(g, target.box), rows[g]["factors"], real, g == found.first)
            bound, top, listed_off = made.bound, made.size, listed_off + made.listed_off
            groups.append(made.known)
            every, heads = every and real, heads + count
        elif count:
            bound, real, top, known = _along(stored, found, g, goal)
            groups.append(known)
            every, heads = every and real, heads + count
        else:
            part = ProductGroup.of(stored, g, found.parts[g], 0.0)  # the two-level runtime adds no bias to its logits
            bound, top = part.prove(goal)
            groups.append(replace(part, extent=top))
        total, size = total + bound, size + top
        if not math.isfinite(total + size):
            raise NotProved("a part could not be bounded.")
    total += (compute_format(dtype).unit * 1.01 + (len(counts) + 6.0) * DOUBLE) * (size + total)
    if not Scope("box", "real" if every else "float64").covers(stated):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")
    whole = total * (1 + 1e-12)

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.of(stored, form)
        return literal_bound(frame, whole + listed_off, columns_of(stored, frame, groups))

    return Proved(whole, f"{len(counts)} parts, {heads} clusters", literal)


def columns_of(layer: Layer, frame: Frame, groups: Sequence[Blend | ProductGroup]) -> list[Column]:
    """The columns of a literal form, of clusters and of product keys."""
    columns = []
    for one, group in zip(groups, layer.groups, strict=True):
        if isinstance(one, Blend):
            assert not isinstance(group, ProductKeys)
            columns.append(cluster_column(group if isinstance(group, Clusters) else group.combined(), one, frame))
        else:
            columns.append(one.column(frame))
    return columns


def _adds_up(found: Sum, target: Target) -> None:
    """The parts and the affine part are the target at random points: the sum is not taken apart by code of this module."""
    x = target.box.sample(96, np.random.default_rng(29))
    f = target.enclose(x, x)
    total = Interval.point(np.zeros((len(x), 1)))
    for i, c in enumerate(found.slopes):
        if c:
            total = total + Interval.exact(c) * Interval(x[:, i : i + 1], x[:, i : i + 1])
    if found.constant:
        total = total + Interval.exact(found.constant)
    for g, group in enumerate(found.parts):
        if found.is_product(g):
            total = total + factors_at(found.product(g, target.box), x)
            continue
        assert group.expression is not None
        total = total + group.expression.enclose(Interval.stack([group.range(point, point) for point in x], axis=0))
    slack = 1e-9 * (1.0 + np.abs(total.lo))
    if np.any(total.hi + slack < f.lo[:, :, 0]) or np.any(total.lo - slack > f.hi[:, :, 0]):
        raise NotProved("the sum of its parts is not its target.")


def _along(layer: Layer, found: Sum, g: int, goal: float) -> tuple[float, bool, float, Blend]:
    """A group of clusters as if it stood alone: its bound, whether it holds for real x, and the size of its function.

    And what is known of it for a literal form.
    """
    group = layer.groups[g]
    if not isinstance(group, Clusters) or len(group.matrix) != 1:
        raise NotProved("a part that switches is not one of clusters along one direction.")
    try:
        check = AxisCheck.of(layer, group, found.along(g), goal, math.inf, None, g == found.first)
        with balls.precision(BITS):
            bound, every = check.prove()
            size = check.target.size() + check.affine_size
    except Refused as failure:
        raise NotProved(str(failure)) from None
    if check.target.jumps:
        raise NotProved("a part of its target jumps.")
    return bound, every, size, check.known_blend()
