"""Plans of spectral heads: groups of an expression, keys per direction, values, and how the error is shared.

A sum of groups becomes one head whose tokens are the groups' tokens added up (a sum head); a group of several directions has
product keys.  Functions of one direction come with a curve error(tokens); the fewest tokens in all are found by giving the next
token to the group that gains most from it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from maxaffine.core import closest
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.heads.fitting import Function
from maxaffine.heads.spectral.affine_fit import AffineProducts, fit_affine, steepest
from maxaffine.heads.spectral.fit import AxisCurve, AxisFit, tensor_fit
from maxaffine.layer.grouped import Group as KeyGroup
from maxaffine.layer.spectral_keys import SpectralAxis, bernstein, chebyshev
from maxaffine.structure.groups import Group

POLISHED = 2  # tokens that values weighted for the sup norm may save
HOPELESS = 3  # times the tokens allowed, which sizes from fibres may have and still shrink to them
FEW = 400  # tokens up to which affine values are tried where values could be factored
MOST_AXIS = {1: 120, 2: 64, 3: 32, 4: 10}


@dataclass(frozen=True)
class GroupPlan:
    """One group: its directions, the scale t = middle + half z, keys per direction and values."""

    group: Group
    middle: Interval  # (E,), thin enclosures of directions . centre
    half: Array  # (E,)
    axes: tuple[SpectralAxis, ...]
    values: Array | None  # (N_1, .., N_E, K)
    factors: tuple[Array, ...] | None  # (N_e, R) per direction, where values are a sum of products
    expected: float
    evaluate: Function | None = None  # z (M, E) -> (M, K) of a callable
    slopes: Array | None = None  # (N_1, .., N_E, K, E), where values are affine in z

    @property
    def cells(self) -> int:
        """Tokens: the product of the keys per direction."""
        return math.prod(len(axis) for axis in self.axes)

    def build(self) -> KeyGroup:
        """Keys and values as fitted, in z = directions . (x - centre) / half."""
        keys = tuple(axis.keys for axis in self.axes)
        return KeyGroup(self.group.matrix() / self.half[:, None], keys, self.values, self.factors, self.slopes)


@dataclass(frozen=True)
class SpectralPlan:
    """A sum of groups, each with its keys and values."""

    groups: tuple[GroupPlan, ...]
    argument: str = "spectral"

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return sum(group.cells for group in self.groups)

    @property
    def expected(self) -> float:
        """The error that is expected of all groups together."""
        return sum(group.expected for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        """Plain data: which group of the expression each one is, and how its keys were made."""
        rows = []
        for made in self.groups:
            axes = [{"family": axis.family, "parameter": axis.parameter} for axis in made.axes]
            kind = "factored" if made.factors is not None else "constant" if made.slopes is None else "affine"
            rows.append({"directions": [[str(c) for c in w] for w in made.group.directions], "axes": axes, "values": kind})
        return {"plan": "spectral", "argument": self.argument, "groups": rows}


def scaled(group: Group, low: Array, high: Array) -> tuple[Interval, Array]:
    """Middle and half width with |t - middle| <= half on the box: z = (t - middle)/half stays inside [-1, 1]."""
    centre = (low + high) / 2.0
    reach = group.range(low, high)
    middle = group.range(centre, centre)
    half = np.maximum(reach.hi - middle.lo, middle.hi - reach.lo) * (1.0 + 2.0**-48)
    return middle, np.asarray(half)


def on_directions(group: Group, middle: Interval, half: Array, evaluate: Function | None) -> Function:
    """The group's function on z (M, E) -> (M, K): its expression, or `evaluate` of a callable."""
    if evaluate is not None:
        return evaluate
    expression, centre = group.expression, (middle.lo + middle.hi) / 2.0
    assert expression is not None
    return lambda z: expression.evaluate(centre + z * half)


def _scale(f: Function, dimension: int) -> float:
    """About the largest |f|, from points of the diagonal."""
    return float(np.abs(f(np.stack([chebyshev(33)] * dimension, axis=1))).max()) or 1.0


class GroupPlanner:
    """Heads for one group, of growing size."""

    def __init__(
        self, group: Group, low: Array, high: Array, error: float, dtype: str, evaluate: Function | None = None,
        bonus: float = 0.0, query: int = 0,
    ) -> None:  # fmt: skip
        self.lean = tuple(not any(w[:query]) for w in group.directions)  # values may not be affine in the query's coordinates
        self.group, self.error, self.dtype, self.evaluate = group, error, dtype, evaluate
        self.middle, self.half = scaled(group, low, high)
        self._centre = (self.middle.lo + self.middle.hi) / 2.0
        self.f = on_directions(group, self.middle, self.half, evaluate)
        alone = group.dimension == 1
        self.curves = [AxisCurve(self._fibres(e), error, dtype, alone, bonus=bonus) for e in range(group.dimension)]
        self.lines = [AxisCurve(self._fibres(0), error, dtype, affine=self.lean[0], bonus=bonus)] if alone else []

    @cached_property
    def scale(self) -> float:
        """About the largest |f|."""
        return _scale(self.f, self.group.dimension)

    @cached_property
    def _affine(self) -> list[AffineProducts]:
        """Searches for affine values, with heads about the middle, and about where f is far steeper than elsewhere."""
        E = self.group.dimension
        steep = steepest(self.f, E) if E < 3 else None
        places = [None] if steep is None else [None, steep]
        return [AffineProducts(self.f, E, self.error, self.scale, self.dtype, shifts=place, lean=self.lean) for place in places]

    def _fibres(self, e: int) -> Function:
        """The group along direction e through some points: z (M,) -> (M, fibres)."""
        E = self.group.dimension
        if E == 1:
            return lambda z: self.f(z[:, None])
        rng = np.random.default_rng(7)
        others = np.concatenate([rng.uniform(-1, 1, (14, E)), np.zeros((1, E)), rng.choice([-1.0, 1.0], (5, E))])

        def along(z: Array) -> Array:
            points = np.repeat(others[None], len(z), axis=0)  # (M, F, E)
            points[:, :, e] = z[:, None]
            return self.f(points.reshape(-1, E)).reshape(len(z), -1)

        return along

    def plan(self, axes: tuple[SpectralAxis, ...], values: Array, expected: float, slopes: Array | None = None) -> GroupPlan:
        """A plan of this group."""
        return GroupPlan(self.group, self.middle, self.half, axes, values, None, expected, self.evaluate, slopes)

    def factored(self, error: float) -> GroupPlan | None:
        """A sum of products, every factor fitted on its own direction: tokens are implied, any number of directions."""
        rows = self.group.factors
        if rows is None:
            return None
        E = self.group.dimension
        sizes = np.ones((len(rows), E))
        for r, row in enumerate(rows):
            for e, factor in enumerate(row):
                if factor is not None:
                    z = np.linspace(-1.0, 1.0, 401)[:, None]
                    sizes[r, e] = float(np.abs(factor.evaluate(self._centre[e] + z * self.half[e])).max())
        axes, factors, expected = [], [], 0.0
        for e in range(E):
            others = np.prod(np.delete(sizes, e, axis=1), axis=1)
            moving = [r for r, row in enumerate(rows) if row[e] is not None]
            curve = AxisCurve(self._columns(e, others, moving), error, self.dtype, True, add=True)
            fit = curve.smallest(error / E, start=1, most=64)
            if fit is None:
                return None
            axes.append(fit.axis)
            values = np.ones((len(fit.axis), len(rows)))  # weights add up to one: a factor 1 is held exactly
            values[:, moving] = fit.values / np.where(others > 0, others, 1.0)[moving]
            factors.append(values)
            expected += fit.error
        return GroupPlan(self.group, self.middle, self.half, tuple(axes), None, tuple(factors), expected)

    def _columns(self, e: int, others: Array, moving: list[int]) -> Function:
        """The factors of direction e side by side, each times the size of its partners: z (M,) -> (M, R)."""
        rows = self.group.factors
        assert rows is not None

        def columns(z: Array) -> Array:
            t = self._centre[e] + z[:, None] * self.half[e]
            parts = [rows[r][e].evaluate(t)[:, 0] for r in moving]  # type: ignore[union-attr]
            return np.stack(parts, axis=1) * others[moving]

        return columns

    def single(self, fit: AxisFit) -> GroupPlan:
        """The plan of a group of one direction."""
        return self.plan((fit.axis,), fit.values, fit.error, None if fit.slopes is None else fit.slopes[..., None])

    def best_product(self, error: float, most: int | None = None) -> GroupPlan | None:
        """Factored in three and more directions where that is possible, else listed values."""
        found = self.factored(error) if self.group.dimension >= 3 else None
        return found or (self.product(error, most) if self.group.dimension <= 4 else None)

    def affine_product(self, error: float, most: int | None = None) -> GroupPlan | None:
        """Listed values affine in z, for up to four directions, of at most so many tokens."""
        if not any(self.lean):
            return self.best_product(error, most)
        if self.group.dimension > (4 if self.group.factors is None else 3):
            return None
        factored = self.group.factors is not None and self.group.dimension > 2  # proved at once, whatever its size
        most = min(FEW, most or FEW) if factored else most
        fits = [fit for one in self._affine if (fit := one.smallest(error, most)) is not None]
        best = min(fits, key=lambda fit: (fit.tokens, fit.error), default=None)
        if best is None or (most is not None and best.tokens > most):
            return None
        return self.plan(best.axes, best.values, best.error, best.slopes)

    def product(self, error: float, tokens: int | None = None, along: int | None = None) -> GroupPlan | None:
        """Product keys for several directions: sizes from fibres, then corrected on the whole.

        At most so many tokens, and so many keys `along` one direction.
        """
        E = self.group.dimension
        most = along or MOST_AXIS.get(E, 24)
        counts: list[int] = []
        for curve in self.curves:
            left = most if tokens is None else min(most, HOPELESS * tokens // math.prod(counts))
            fit = curve.smallest(0.6 * error / E, start=1, most=left, polish=False) if left else None
            if fit is None:
                return None
            counts.append(len(fit))
        return self._polish(counts, error, most)

    def _polish(self, counts: list[int], error: float, most: int) -> GroupPlan | None:
        """Grow until the whole fits, then shrink while it still does."""

        def attempt(sizes: list[int]) -> GroupPlan:
            axes = tuple(curve.best(n).axis for curve, n in zip(self.curves, sizes, strict=True))
            expected, values = tensor_fit(axes, self.f, error, self.scale, self.dtype)
            closest.fitted(math.prod(sizes), expected)
            return self.plan(axes, values, expected)

        current = attempt(counts)
        for _ in range(24):
            if current.expected <= error:
                break
            worst = int(np.argmax([curve.best(n).error for curve, n in zip(self.curves, counts, strict=True)]))
            counts[worst] += max(1, counts[worst] // 12)
            if max(counts) > most:
                return None
            current = attempt(counts)
        if current.expected > error:
            return None
        while True:
            fewer = ([n - int(i == e) for i, n in enumerate(counts)] for e in np.argsort(counts) if counts[e] > 1)
            smaller = next(((trial, found) for trial in fewer if (found := attempt(trial)).expected <= error), None)
            if smaller is None:
                return current
            counts, current = smaller


def share(planners: list[GroupPlanner], error: float, affine: bool = True, most: int | None = None) -> list[GroupPlan] | None:
    """Fewest tokens in all, at most `most`, for groups of one direction whose errors add up to at most `error`."""
    sizes: list[int] = []
    curves = [planner.lines[0] if affine else planner.curves[0] for planner in planners]
    for curve in curves:
        left = MOST_AXIS[1] if most is None else min(MOST_AXIS[1], most - sum(sizes) + POLISHED)
        fit = curve.smallest(error, start=1, most=left) if left > 0 else None
        if fit is None:
            return None
        sizes.append(len(fit))

    for _ in range(4000):
        now = [curve.best(n).error for curve, n in zip(curves, sizes, strict=True)]
        closest.fitted(sum(sizes), sum(now))
        if sum(now) <= error:
            break
        gains = []
        for curve, n, here in zip(curves, sizes, now, strict=True):
            steps = [(here - curve.best(n + d).error) / d for d in (1, 2) if n + d <= 120]
            gains.append(max(steps, default=-1.0))
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            return None
        sizes[best] += 1 if curves[best].best(sizes[best] + 1).error < now[best] else 2
    else:
        return None
    fits = [curve.polished(n) for curve, n in zip(curves, sizes, strict=True)]
    for i in np.argsort([-n for n in sizes]):  # polishing may have earned a token back here and there
        while sizes[i] > 1:
            rest = sum(fit.error for k, fit in enumerate(fits) if k != i)
            fewer = curves[i].polished(sizes[i] - 1)
            if rest + fewer.error > error:
                break
            sizes[i], fits[i] = sizes[i] - 1, fewer
    return [planner.single(fit) for planner, fit in zip(planners, fits, strict=True)]


def one_more(made: GroupPlan, error: float, dtype: str) -> tuple[float, float] | None:
    """Expected errors of a group as it is and with one more token per direction; None where it is not refitted."""
    if made.values is None or made.group.dimension > 2:
        return None
    f = on_directions(made.group, made.middle, made.half, made.evaluate)
    if made.group.dimension == 1:
        curve = AxisCurve(lambda z: f(z[:, None]), error, dtype, affine=True)
        return made.expected, curve.best(len(made.axes[0]) + 1).error
    axes = tuple(bernstein(len(axis) + 1, axis.parameter, dtype, axis.shift) for axis in made.axes if axis.family == "bernstein")
    if len(axes) != made.group.dimension:
        return None
    scale = _scale(f, len(axes))
    if made.slopes is not None:
        return made.expected, fit_affine(axes, f, error, scale, dtype).error
    return made.expected, tensor_fit(axes, f, error, scale, dtype)[0]
