"""Layers for the kernel `clustered`: every group in the form that suits it, and the bound of their sum.

    groups along one direction, and products of such    polynomials between edges        runtime/gpu/pieces.py
    groups of a few single tokens                        all scores in registers          runtime/gpu/listed.py
    groups of two or three directions                    patches on a grid of cells       runtime/gpu/patched.py
    groups of product keys, and of one cluster           series                           runtime/gpu/tables.py
    but steep ones, of few keys along one direction      all scores in registers
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import AnyGroup, Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime.gpu import pieces
from maxaffine.runtime.gpu.listed import Listed, listed
from maxaffine.runtime.gpu.patched import Patched, patched
from maxaffine.runtime.gpu.pieces import Product
from maxaffine.runtime.gpu.tables import Polynomials, polynomials
from maxaffine.runtime.gpu.tables import size as series_size

STEPS, STEEP = 8, 24.0  # keys of a step at most, and how far they are apart at least
LEAST = 1e-15  # of the largest value of a token: what is always allowed


@dataclass(frozen=True)
class Clustered:
    """A layer in the forms of its groups, and sup |kernel - layer| over the box, all roundings counted."""

    products: tuple[Product, ...]
    smooth: Polynomials | None
    listed: tuple[Listed, ...]
    patched: tuple[Patched, ...]
    shift: tuple[float, ...]
    centre: Array
    low: Array
    high: Array
    outputs: int
    dtype: str
    bound: float
    parts: dict[str, float]

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.centre)

    @property
    def size(self) -> float:
        """A bound of what all groups add up to."""
        own = [math.prod(factor.size for factor in one.factors) for one in self.products]
        own += [series_size(term.cores, term.complex_) for term in (self.smooth.terms if self.smooth else ())]
        return math.fsum([*own, *(one.size for one in self.listed), *(one.size for one in self.patched)])

    @property
    def multiplications(self) -> int:
        """Multiply-adds per query, about."""
        own = sum(len(factor.powers[0]) * (2 if factor.soft else 1) for one in self.products for factor in one.factors)
        own += sum(len(one.values) * (3 + 3 * len(one.rows)) for one in self.listed)
        own += sum((one.made.degree + 1) ** 2 for one in self.patched)
        return own + (0 if self.smooth is None else self.smooth.multiplications)

    @property
    def words(self) -> str:
        """What a query costs, for a person."""
        many = sum(len(factor.powers) for one in self.products for factor in one.factors)
        said = [f"{many} polynomials between edges"] if many else []
        said += [f"{sum(len(one.values) for one in self.listed)} tokens in registers"] if self.listed else []
        said += [f"{len(one.made.values):,} patches, {one.made.count.mean():.2g} per query" for one in self.patched]
        return ", ".join(said or ["short series"])


def clustered(layer: GroupedLayer, dtype: str, tolerance: float, with_series: bool = True) -> Clustered:
    """The forms of a layer, to within `tolerance` beside rounding; without series all groups become pieces or patches."""
    reach, box = layer.reach * (1 + 1e-12), (layer.centre, layer.low, layer.high)
    products: list[Product] = []
    tokens: list[Listed] = []
    patches: list[Patched] = []
    smooth: list[Group] = []
    shift = np.zeros(layer.d_out)
    values = [c.values for group in layer.cluster_groups() for c in group.clusters]
    least = LEAST * max((float(np.abs(one).max()) for one in values), default=0.0)
    share = max(tolerance, least, 1e-300) / len(layer.groups)
    for one in layer.groups:
        held = pieces.inside(one, reach) if isinstance(one, ClusterGroup) else one
        group = _plain(held) if with_series else _alone(held)
        if isinstance(group, Group) and _is_steep(group):
            tokens.append(listed(as_tokens(group), layer.centre, reach, dtype))
        elif isinstance(group, Group):
            smooth.append(group)
        elif group.factored or len(group.matrix) == 1:
            shift += group.shift if group.factored else 0.0
            for k in range(layer.d_out):
                products.append(Product(k, pieces.factors(group.blocks, box, k, dtype, share)))
        else:
            for k in range(layer.d_out):
                alone = group.alone(k)
                try:
                    if not with_series:
                        raise Refused("tokens have no pieces.")
                    tokens.append(replace(listed(alone, layer.centre, reach, dtype), output=k))
                except Refused:
                    patches.append(replace(patched(alone, layer.centre, reach, dtype, share), output=k))
    if layer.tilt is not None:
        rows = enumerate(layer.tilt.astype(np.float64))
        products += [Product(k, (pieces.affine_factor(row, layer.centre, reach, dtype),)) for k, row in rows]
    series = _series(layer, smooth, dtype, share * len(smooth)) if smooth else None
    parts = _parts(products, series, tokens, patches, shift, layer.d_out, dtype)
    bound = math.fsum(parts.values()) * (1 + 1e-9)
    stored = tuple(float(one) for one in shift.astype(dtype))
    forms = tuple(products), series, tuple(tokens), tuple(patches), stored
    return Clustered(*forms, layer.centre, layer.low, layer.high, layer.d_out, dtype, bound, parts)


def _plain(group: AnyGroup) -> AnyGroup:
    """A single cluster is a group of product keys in coordinates of its own."""
    if not isinstance(group, ClusterGroup) or len(group.clusters) > 1 or len(group.matrix) == 1:
        return group
    (cluster,) = group.clusters
    lean = cluster.origin / cluster.radius
    axes = tuple(
        AxisKeys(axis.slopes.astype(np.float64) / r, axis.offsets.astype(np.float64) - axis.slopes.astype(np.float64) * o)
        for axis, r, o in zip(cluster.axes, cluster.radius, lean, strict=True)
    )
    values = cluster.values.astype(np.float64)
    if cluster.slopes is None:
        return Group(group.matrix, axes, values=values)
    tilts = cluster.slopes.astype(np.float64)
    return Group(group.matrix, axes, values=values - tilts @ lean, slopes=tilts / cluster.radius)


def _alone(group: AnyGroup) -> AnyGroup:
    """A group of product keys is a single cluster."""
    if not isinstance(group, Group):
        return group
    if group.values is None:
        raise Refused("factored values of one cluster have no pieces.")
    E = len(group.axes)
    slopes = None if group.slopes is None else group.slopes.astype(np.float64)
    cluster = Cluster(np.zeros(E), np.ones(E), group.axes, group.values.astype(np.float64), slopes)
    return ClusterGroup(group.matrix, np.zeros((1, E)), np.zeros(1), (cluster,))


def _is_steep(group: Group) -> bool:
    """Whether a group is a step rather than a polynomial: few keys along one direction, far apart."""
    if len(group.axes) > 1 or group.values is None or group.values.shape[-1] > 1 or len(group.axes[0].slopes) > STEPS:
        return False
    return float(np.ptp(group.axes[0].slopes.astype(np.float64))) > STEEP


def as_tokens(group: Group) -> ClusterGroup:
    """The keys of a group along one direction as clusters of one token each."""
    assert group.values is not None
    (axis,), none = group.axes, AxisKeys(np.zeros(1), np.zeros(1))
    tilts = [None] * len(axis.slopes) if group.slopes is None else [one[None].astype(np.float64) for one in group.slopes]
    values = group.values.astype(np.float64)
    clusters = [
        Cluster(np.zeros(1), np.ones(1), (none,), value[None], tilt) for value, tilt in zip(values, tilts, strict=True)
    ]
    slopes, offsets = axis.slopes.astype(np.float64)[:, None], axis.offsets.astype(np.float64)
    return ClusterGroup(group.matrix, slopes, offsets, tuple(clusters))


def _series(layer: GroupedLayer, groups: list[Group], dtype: str, tolerance: float) -> Polynomials:
    """The smooth part by itself."""
    made = polynomials(replace(layer, groups=tuple(groups), tilt=None, dtype="float64"), dtype, tolerance)
    if made.trains:
        raise Refused("the smooth part couples three directions.")
    return made


def _parts(
    products: list[Product], smooth: Polynomials | None, tokens: list[Listed], patches: list[Patched], shift: Array, outputs: int,
    dtype: str,
) -> dict[str, float]:  # fmt: skip
    """The bound of the worst output, in parts."""
    unit = dtype_of(dtype).unit
    worst = dict.fromkeys(("pieces", "evaluation", "query"), 0.0)
    for k in range(outputs):
        terms = [one for one in products if one.output == k]
        own, size = pieces.off(terms, dtype)
        count = len(terms) + 2
        beside: list[Listed | Patched] = [*tokens, *patches]
        for part in beside:
            if part.output == k:
                own["pieces"] += part.scored if isinstance(part, Listed) else part.off
                own["evaluation"] += part.evaluated
                own["query"] += part.moved
                size, count = size + part.size, count + 1
        if smooth is not None:
            mine = [term for term in smooth.terms if term.output == k]
            size += math.fsum(float(np.prod([np.abs(core).sum(axis=0) for core in term.cores], axis=0).sum()) for term in mine)
            count += len(mine)
        own["evaluation"] += gamma(count, unit) * (size + abs(float(shift[k]))) if count > 3 or shift[k] else 0.0
        if math.fsum(own.values()) > math.fsum(worst.values()):
            worst = own
    return worst | ({} if smooth is None else {"smooth part": smooth.bound})
