"""The same keys and values at another temperature: every logit times r, biases between groups included.

    F_r(x) = sum_j softmax_j(r l_j(x)) v_j(x),      r = 1 the layer itself, r -> inf its hard limit, r -> 0 plain means

Stored numbers are multiplied and rounded once to the dtype, which is exact where r is a power of two; values stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.factors import FactorGroup
from maxaffine.layer.grouped import AnyGroup, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.side_by_side import AnyLayer

MOST = 16  # temperatures one after the other
LIMITS = 2.0**-60, 2.0**60


@dataclass(frozen=True)
class Sharpened:
    """By which factors, one after the other, and the error that the layer was compiled for; what a file keeps of it."""

    by: tuple[float, ...] = ()
    asked: float = 0.0

    @classmethod
    def of(cls, plan: Mapping[str, Any], error: float) -> Sharpened:
        """What a plan's record says; a layer at its own temperature has nothing there."""
        told = plan.get("sharpened")
        if told is None:
            return cls((), error)
        try:
            by, asked = tuple(float(r) for r in told["by"]), float(told["asked"])
        except (KeyError, TypeError, ValueError):
            raise BadInput("the record of its temperatures cannot be read.") from None
        if not (1 <= len(by) <= MOST and all(LIMITS[0] <= r <= LIMITS[1] for r in by) and 0.0 < asked < math.inf):
            raise BadInput("the record of its temperatures cannot be read.")
        return cls(by, asked)

    @property
    def factor(self) -> float:
        """All of them together."""
        return math.prod(self.by)

    def record(self) -> dict[str, Any]:
        """Plain data, for the plan of a file."""
        return {"sharpened": {"by": list(self.by), "asked": self.asked}} if self.by else {}


def check_factor(r: Any, name: str = "r") -> float:
    """r as a positive number."""
    try:
        found = float(r)
    except (TypeError, ValueError):
        found = math.nan
    if not 0.0 < found < math.inf or isinstance(r, bool):
        raise BadInput(f"`{name}` (={r!r}) multiplies every logit: give a positive number, such as 0.5 or 2.")
    if not LIMITS[0] <= found <= LIMITS[1]:
        raise BadInput(f"`{name}` (={r!r}) must lie between {LIMITS[0]:.3g} and {LIMITS[1]:.3g}.")
    return found


def at_temperature(layer: AnyLayer, r: float) -> AnyLayer:
    """The layer whose logits are r times as large; BadInput where they leave the numbers of its dtype."""
    if r == 1.0:
        return layer
    with np.errstate(over="ignore"):
        if not layer.grouped:
            return replace(layer, sharpness=layer.sharpness * r)
        if layer.several:
            parts = tuple(replace(part, layer=_grouped(part.layer, r)) for part in layer.parts)
            return replace(layer, parts=parts, bonus=layer.bonus * r)
        return _grouped(layer, r)


def _grouped(layer: GroupedLayer, r: float) -> GroupedLayer:
    return replace(layer, groups=tuple(_group(group, r) for group in layer.groups), bonus=layer.bonus * r)


def _group(group: AnyGroup, r: float) -> AnyGroup:
    if isinstance(group, FactorGroup):  # scores of a product are the sums of its factors'
        return replace(group, factors=tuple(_clusters(factor, r) for factor in group.factors))
    return _clusters(group, r) if isinstance(group, ClusterGroup) else replace(group, axes=_axes(group.axes, r))


def _clusters(group: ClusterGroup, r: float) -> ClusterGroup:
    clusters = tuple(replace(cluster, axes=_axes(cluster.axes, r)) for cluster in group.clusters)
    sites = _times(group.site_slopes, r), _times(group.site_offsets, r)
    return replace(group, site_slopes=sites[0], site_offsets=sites[1], clusters=clusters)


def _axes(axes: tuple[AxisKeys, ...], r: float) -> tuple[AxisKeys, ...]:
    return tuple(AxisKeys(_times(axis.slopes, r), _times(axis.offsets, r)) for axis in axes)


def _times(numbers: Array, r: float) -> Array:
    """r times stored numbers, rounded to float64 here and to the dtype where the layer keeps them."""
    found = np.asarray(numbers, dtype=np.float64) * r
    if not np.isfinite(found.astype(numbers.dtype)).all():
        raise BadInput("its logits leave the numbers of its dtype")
    return found
