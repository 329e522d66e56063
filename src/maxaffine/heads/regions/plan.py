"""Plans on regions: product keys that all regions share, values of every branch, and scores that switch on the planes.

    logit of token (region, j) = sum_i lam_i sign_i h_i(x) + key_j(z),      value = c_j + G_j z of the region's branch

The keys' log-sum-exp is the same in every region and cancels: the softmax over regions switches exactly on the planes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.breaks.hyperplanes import Seen
from maxaffine.heads.spectral.affine_fit import AffineProducts, ProductFit
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.structure.planes import Arrangement, Plane
from maxaffine.target.box import Box
from maxaffine.target.target import Target


@dataclass(frozen=True)
class RegionsPlan:
    """An arrangement, or planes seen in a callable; the steepness of every plane, and keys with the values of all regions."""

    layout: Arrangement | Seen
    steepness: tuple[float, ...]  # lam_i, of few bits
    half: Array  # x = centre + half z
    fit: ProductFit  # one output per region
    gap: float | None = None  # distance from the planes of jumps within which nothing is said
    slopes: tuple[float, ...] = ()  # of what the two sides of every plane differ by, which a proof starts from
    argument: str = "regions"

    @property
    def arrangement(self) -> Arrangement:
        """The planes and branches of an expression."""
        assert isinstance(self.layout, Arrangement)
        return self.layout

    @property
    def cells(self) -> int:
        """Tokens."""
        return len(self.layout.regions) * self.fit.tokens

    def sites(self, centre: Array) -> list[tuple[Fraction, ...]]:
        """Exact slopes in x - centre and constant of every region's score."""
        return scores(self.layout.planes, self.layout.regions, self.steepness, centre)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the steepness of the planes in their order, and how keys were made."""
        axes = [{"family": axis.family, "parameter": axis.parameter} for axis in self.fit.axes]
        signs = [list(row) for row in self.layout.regions]
        found: dict[str, Any] = {"plan": "regions", "method": "regions", "argument": self.argument, "axes": axes, "signs": signs}
        found |= {"steepness": list(self.steepness), "gap": self.gap}
        return found | ({"seen": self.layout.to_json()} if isinstance(self.layout, Seen) else {})


def scores(
    planes: Sequence[Plane], regions: Sequence[tuple[int, ...]], steepness: Sequence[float], centre: Array
) -> list[tuple[Fraction, ...]]:
    """sum_i lam_i sign_i h_i of every region, exactly: slopes in x - centre, then the constant."""
    rows = []
    for signs in regions:
        total = [Fraction(0)] * (len(centre) + 1)
        for sign, lam, plane in zip(signs, steepness, planes, strict=True):
            for i, c in enumerate(plane):
                total[i] += sign * Fraction(lam) * c
        total[-1] += sum((a * Fraction(float(c)) for a, c in zip(total, centre, strict=False)), Fraction(0))
        rows.append(tuple(total))
    return rows


def half_widths(box: Box) -> tuple[Array, Array]:
    """Centre, and half widths a little above the box's own: z = (x - centre)/half stays inside [-1, 1]."""
    centre = (box.low + box.high) / 2.0
    return centre, np.maximum(box.high - centre, centre - box.low) * (1.0 + 2.0**-48)


class BranchFits:
    """Heads for all branches at once, on shared keys."""

    def __init__(self, branches: list[Expression], box: Box, error: float, dtype: str, steep: float, query: int = 0) -> None:
        centre, half = half_widths(box)
        distinct = list({branch.describe(branch.outputs[0]): branch for branch in branches}.values())
        self._which = [[one.describe(one.outputs[0]) for one in distinct].index(b.describe(b.outputs[0])) for b in branches]

        def f(z: Array) -> Array:
            return np.concatenate([branch.evaluate(centre + z * half) for branch in distinct], axis=1)

        E = box.dimension
        sample = f(np.random.default_rng(3).uniform(-1.0, 1.0, (200, E)))
        self.finite = bool(np.isfinite(sample).all())
        scale = float(np.abs(sample).max()) if self.finite else 1.0
        # the literal softmax rounds logits of that size, which costs as much as the values differ
        largest = max(20.0 * (scale or 1.0), 0.05 * error / (compute_format(dtype).unit * max(steep, 1.0)))
        lean = tuple(e >= query for e in range(E))
        self._tight = AffineProducts(f, E, error, scale or 1.0, dtype, largest, lean=lean)
        self._loose = AffineProducts(f, E, error, scale or 1.0, dtype, lean=lean)

    def smallest(self, error: float, most: int | None) -> ProductFit | None:
        """The fewest tokens per region, of two sizes that differ little the one with smaller values; values (.., regions)."""
        fit, loose = self._tight.smallest(error, most), self._loose.smallest(error, most)
        if fit is None or (loose is not None and loose.tokens < 0.75 * fit.tokens):
            fit = loose
        if fit is None or (most is not None and fit.tokens > most):
            return None
        return ProductFit(fit.error, fit.axes, fit.values[..., self._which], fit.slopes[..., self._which, :])


def few_bits(number: float) -> float:
    """The next number above with 8 bits: sums of few of them with simple planes are exact."""
    if number <= 0.0:
        return 1.0
    mantissa, exponent = math.frexp(number)
    return math.ldexp(math.ceil(mantissa * 256.0) / 256.0, exponent)


def build_regions(plan: RegionsPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer: one cluster per region, all with the same keys; z = x - centre, t = z / half, scores rounded once."""
    D = target.box.dimension
    centre, _ = half_widths(target.box)
    sites = np.array([[float(c) for c in row] for row in plan.sites(centre)])
    keys = tuple(axis.keys for axis in plan.fit.axes)
    clusters = tuple(
        Cluster(np.zeros(D), plan.half, keys, plan.fit.values[..., k : k + 1], plan.fit.slopes[..., k : k + 1, :])
        for k in range(len(sites))
    )
    return layer_of([ClusterGroup(np.eye(D), sites[:, :-1], sites[:, -1], clusters)], target, dtype)
