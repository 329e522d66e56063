"""Sums some parts of which switch, re-proved: the target's parts read off its expression again, each proved by itself.

Groups of clusters are proved along their direction (checker/axis_clusters.py) or factor by factor (checker/products.py), groups
of product keys by Chebyshev points and ellipses (checker/spectral.py); the first part that switches carries the tilt.  The sum
of the parts is compared with the target at random points.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from maxaffine.checker.axis_clusters import BITS, AxisCheck
from maxaffine.checker.literal_groups import Column, Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.products import factors_at, multiplied_out, unfolded
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.spectral import _Part
from maxaffine.checker.stored import NotProved, stated_scope
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.sums import Sum, sum_of
from maxaffine.target.target import Target

DOUBLE = 2.0**-53
FRAME = ("box.low", "box.high", "coordinates.centre")
MOST_PARTS = 64


def check_sums(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of groups of clusters and groups of product keys whose functions add up to the target."""
    if target.expression is None or target.n_out != 1 or target.d_out != 1:
        raise NotProved("its target is not one that sums are proved for.")
    found = sum_of(target.expression, target.box)
    if found is None or len(found.parts) > MOST_PARTS:
        raise NotProved("its target is not a sum of parts some of which switch.")
    _adds_up(found, target)
    layer = record["layer"]
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
    known = {name for name in tensors if name.startswith("group.")}
    if set(tensors) - known - {"tilt"} != set(FRAME):
        raise NotProved("its tensors are not those of a sum.")
    for g in range(len(counts)):
        known -= {name for name in known if name.startswith(f"group.{g}.")}
    if known:
        raise NotProved("it has more groups than its target has parts.")
    total = size = listed_off = 0.0  # the last: how far products are from their lists
    every, heads = True, 0
    groups: list[Heard | _Part] = []
    stated = stated_scope(record["certificate"])
    for g, count in enumerate(counts):
        goal = shares[g] * scale
        if count and found.is_product(g):
            names, own = _alone(tensors, layer, found, g)
            real = stated.inputs == "real"
            made = multiplied_out(names, own, target, found.product(g, target.box), rows[g]["factors"], real)
            bound, top, listed_off = made.bound, made.size, listed_off + made.listed_off
            groups.append(made.heard)
            every, heads = every and real, heads + count
        elif count:
            bound, real, top, heard = _along(tensors, layer, target, found, g, goal)
            groups.append(heard)
            every, heads = every and real, heads + count
        else:
            part = _smooth(tensors, dtype, found, g, target)
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
        return literal_bound(*columns_of(unfolded(tensors), layer, form, whole + listed_off, groups))

    return Proved(whole, f"{len(counts)} parts, {heads} clusters", literal)


def columns_of(
    tensors: Mapping[str, Any], layer: Mapping[str, Any], form: Form, bound: float, groups: Sequence[Heard | _Part]
) -> tuple[Frame, float, list[Column]]:
    """The columns of a literal form, of clusters and of product keys."""
    frame = Frame.read(tensors, layer, form)
    columns = [
        cluster_column(tensors, g, one, frame) if isinstance(one, Heard) else one.column(frame) for g, one in enumerate(groups)
    ]
    return frame, bound, columns


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


def _alone(
    tensors: Mapping[str, Any], layer: Mapping[str, Any], found: Sum, g: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A group of clusters as if it stood alone, the first one that switches with the tilt: tensors and description."""
    names = {name: tensors[name] for name in FRAME}
    names |= {f"group.0.{n.removeprefix(f'group.{g}.')}": tensor for n, tensor in tensors.items() if n.startswith(f"group.{g}.")}
    if g == found.first and "tilt" in tensors:
        names["tilt"] = tensors["tilt"]
    factors = [layer["factors"][g]] if "factors" in layer else []
    return names, {**layer, "directions": [found.parts[g].dimension], "clusters": [layer["clusters"][g]], "factors": factors}


def _along(
    tensors: Mapping[str, Any], layer: Mapping[str, Any], target: Target, found: Sum, g: int, goal: float
) -> tuple[float, bool, float, Heard]:
    """A group of clusters as if it stood alone: its bound, whether it holds for real x, and the size of its function.

    And what is known of it for a literal form.
    """
    names, own = _alone(tensors, layer, found, g)
    try:
        check = AxisCheck.read(names, own, target, found.along(g), goal, math.inf, None)
        with balls.precision(BITS):
            bound, every, jumps = check.prove()
            size = check._size() + check.tilt
    except Refused as failure:
        raise NotProved(str(failure)) from None
    if jumps:
        raise NotProved("a part of its target jumps.")
    return bound, every, size, check.heard()


def _smooth(tensors: Mapping[str, Any], dtype: str, found: Sum, g: int, target: Target) -> _Part:
    """A group of product keys, to be proved; the two-level runtime adds no bonus to its logits."""
    group = found.parts[g]
    low, high, centre = (np.asarray(tensors[name], dtype=np.float64) for name in FRAME)
    if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
        raise NotProved("the layer and the target speak about different boxes.")
    if not np.all((centre >= low) & (centre <= high)):
        raise NotProved("its centre lies outside the box.")
    own = {name: np.asarray(tensor) for name, tensor in tensors.items() if name.startswith(f"group.{g}.")}
    exact = f"group.{g}.matrix"
    keys = {f"group.{g}.{e}.{name}" for e in range(group.dimension) for name in ("slopes", "offsets")}
    kinds = ({f"group.{g}.values"}, {f"group.{g}.values", f"group.{g}.value_slopes"},
             {f"group.{g}.{e}.factor" for e in range(group.dimension)})  # fmt: skip
    if not any(set(own) == {exact} | keys | kind for kind in kinds):
        raise NotProved("its tensors are not those of a group of product keys.")
    if any(str(tensor.dtype) != ("float64" if name == exact else dtype) for name, tensor in own.items()):
        raise NotProved("a tensor is not in the dtype that the record states.")
    if not all(np.isfinite(tensor.astype(np.float64)).all() for tensor in own.values()):
        raise NotProved("a tensor holds numbers that are not finite.")
    return _Part.read(own, g, group, centre, low, high, dtype, 0.0, 1)
