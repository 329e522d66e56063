"""Plans of spectral heads: groups of an expression, keys per direction, values, and how the error is shared.

A sum of groups becomes one head whose tokens are the groups' tokens added up (a sum head); a group of several directions has
product keys.  Functions of one direction come with a curve error(tokens); the fewest tokens in all are found by giving the next
token to the group that gains most from it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.intervals import Interval
from maxaffine.heads.fitting import Function
from maxaffine.heads.spectral.affine_fit import AffineProducts, fit_affine, steepest
from maxaffine.heads.spectral.fit import AxisCurve, AxisFit, tensor_fit
from maxaffine.layer.grouped import Group as KeyGroup
from maxaffine.layer.spectral_keys import SpectralAxis, bernstein, chebyshev
from maxaffine.structure.groups import Direction, Group, groups_of, rotated_group, whole_group
from maxaffine.target.target import Target

Array = NDArray[np.float64]

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
    def tokens(self) -> int:
        """Product of the keys per direction."""
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
        return sum(group.tokens for group in self.groups)

    @property
    def expected(self) -> float:
        """Errors of the groups added up."""
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


class GroupPlanner:
    """Heads for one group, of growing size."""

    def __init__(
        self, group: Group, low: Array, high: Array, error: float, dtype: str, evaluate: Function | None = None,
        bonus: float = 0.0,
    ) -> None:  # fmt: skip
        self.group, self.error, self.dtype, self.evaluate = group, error, dtype, evaluate
        self.middle, self.half = scaled(group, low, high)
        self._centre = (self.middle.lo + self.middle.hi) / 2.0
        alone = group.dimension == 1
        self.curves = [AxisCurve(self._fibres(e), error, dtype, alone, bonus=bonus) for e in range(group.dimension)]
        self.lines = [AxisCurve(self._fibres(0), error, dtype, affine=True, bonus=bonus)] if alone else []
        self._scale: float | None = None
        self._affine: list[AffineProducts] | None = None

    @property
    def scale(self) -> float:
        """About the largest |f|."""
        if self._scale is None:
            diagonal = np.stack([chebyshev(33)] * self.group.dimension, axis=1)
            self._scale = float(np.abs(self.f(diagonal)).max()) or 1.0
        return self._scale

    def f(self, z: Array) -> Array:
        """The group's function on z (M, E) -> (M, K)."""
        if self.evaluate is not None:
            return self.evaluate(z)
        assert self.group.expression is not None
        return self.group.expression.evaluate(self._centre + z * self.half)

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
            found = self.f(points.reshape(-1, E))
            return found.reshape(len(z), -1)

        return along

    def plan(
        self, axes: tuple[SpectralAxis, ...], values: Array, expected: float, slopes: Array | None = None
    ) -> GroupPlan:
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
            fit = AxisCurve(self._columns(e, others), error, self.dtype, True, add=True).smallest(error / E, start=1, most=64)
            if fit is None:
                return None
            axes.append(fit.axis)
            factors.append(fit.values / np.where(others > 0, others, 1.0))
            expected += fit.error
        return GroupPlan(self.group, self.middle, self.half, tuple(axes), None, tuple(factors), expected)

    def _columns(self, e: int, others: Array) -> Function:
        """The factors of direction e side by side, each times the size of its partners: z (M,) -> (M, R)."""
        rows = self.group.factors
        assert rows is not None

        def columns(z: Array) -> Array:
            t = self._centre[e] + z[:, None] * self.half[e]
            parts = [np.ones(len(z)) if row[e] is None else row[e].evaluate(t)[:, 0] for row in rows]  # type: ignore[union-attr]
            return np.stack(parts, axis=1) * others

        return columns

    def single(self, fit: AxisFit) -> GroupPlan:
        """The plan of a group of one direction."""
        return self.plan((fit.axis,), fit.values, fit.error, None if fit.slopes is None else fit.slopes[..., None])

    def best_product(self, error: float) -> GroupPlan | None:
        """Factored in three and more directions where that is possible, else listed values."""
        found = self.factored(error) if self.group.dimension >= 3 else None
        return found or (self.product(error) if self.group.dimension <= 4 else None)

    def affine_product(self, error: float) -> GroupPlan | None:
        """Listed values affine in z, for up to four directions."""
        if self.group.dimension > (4 if self.group.factors is None else 3):
            return None
        if self._affine is None:
            E = self.group.dimension
            places = [None, steepest(self.f, E)] if E < 3 else [None]
            self._affine = [
                AffineProducts(self.f, E, self.error, self.scale, self.dtype, shifts=place)
                for i, place in enumerate(places)
                if i == 0 or place is not None
            ]
        factored = self.group.factors is not None and self.group.dimension > 2  # proved at once, whatever its size
        fits = [fit for one in self._affine if (fit := one.smallest(error, FEW if factored else None)) is not None]
        best = min(fits, key=lambda fit: fit.tokens, default=None)
        if best is None or (factored and best.tokens > FEW):
            return None
        return self.plan(best.axes, best.values, best.error, best.slopes)

    def product(self, error: float) -> GroupPlan | None:
        """Product keys for several directions: sizes from fibres, then corrected on the whole."""
        E = self.group.dimension
        most = MOST_AXIS.get(E, 24)
        fits = [curve.smallest(0.6 * error / E, start=1, most=most, polish=False) for curve in self.curves]
        if any(fit is None for fit in fits):
            return None
        counts = [len(fit) for fit in fits if fit is not None]
        return self._polish(counts, error, self.scale, most)

    def _polish(self, counts: list[int], error: float, scale: float, most: int) -> GroupPlan | None:
        """Grow until the whole fits, then shrink while it still does."""

        def attempt(sizes: list[int]) -> GroupPlan:
            axes = tuple(curve.best(n).axis for curve, n in zip(self.curves, sizes, strict=True))
            expected, values = tensor_fit(axes, self.f, error, scale, self.dtype)
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
        shrinking = True
        while shrinking:
            shrinking = False
            for e in np.argsort(counts):
                if counts[e] > 1:
                    trial = list(counts)
                    trial[e] -= 1
                    found = attempt(trial)
                    if found.expected <= error:
                        counts, current, shrinking = trial, found, True
                        break
        return current


def share(planners: list[GroupPlanner], error: float, affine: bool = True) -> list[GroupPlan] | None:
    """Fewest tokens in all for groups of one direction whose errors add up to at most `error`."""
    sizes = []
    curves = [planner.lines[0] if affine else planner.curves[0] for planner in planners]
    for curve in curves:
        fit = curve.smallest(error, start=1)
        if fit is None:
            return None
        sizes.append(len(fit))

    for _ in range(4000):
        now = [curve.best(n).error for curve, n in zip(curves, sizes, strict=True)]
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


def spectral_plans(target: Target, error: float, dtype: str, guess: bool = True) -> Iterator[SpectralPlan]:
    """Plans aimed at smaller and smaller expected errors; of several sets of directions the one with the fewest tokens.

    `guess` lets a callable be taken for a ridge where samples say so, which no proof can follow.
    """
    choices = _choices(target, error, dtype, guess)
    if not choices:
        return
    streams = [_stream(choices, error, affine) for affine in (True, False)]
    if dtype == "float64" and (plan := next(streams[0], None)) is not None:
        yield plan  # constant values are affine ones, and their rounding is no matter here
    waiting = [next(stream, None) for stream in streams]
    while any(plan is not None for plan in waiting):
        place = min((plan.cells, i) for i, plan in enumerate(waiting) if plan is not None)[1]
        plan = waiting[place]
        assert plan is not None
        yield plan
        waiting[place] = next(streams[place], None)


def _stream(choices: list[list[GroupPlanner]], error: float, affine: bool) -> Iterator[SpectralPlan]:
    """Plans of one kind of values, of growing size; of several sets of directions the one with the fewest tokens."""
    tokens = 0
    factored = any(planner.group.factors is not None and planner.group.dimension > 2 for one in choices for planner in one)
    for goal in (0.9,) if affine and factored else (0.97, 0.9, 0.8, 0.65, 0.45):
        plans = [plan for planners in choices if (plan := _carry_out(planners, goal * error, affine)) is not None]
        if not plans:
            return
        plan = min(plans, key=lambda one: one.cells)
        if plan.cells > tokens:
            tokens = plan.cells
            yield plan


def _carry_out(planners: list[GroupPlanner], error: float, affine: bool) -> SpectralPlan | None:
    """Groups of one direction share a part of the error, each group of several has its own."""
    singles = [planner for planner in planners if planner.group.dimension == 1]
    others = [planner for planner in planners if planner.group.dimension > 1]
    part = error / (len(others) + (1 if singles else 0))
    plans = share(singles, part, affine) if singles else []
    products = [planner.affine_product(part) if affine else planner.best_product(part) for planner in others]
    if plans is None or any(plan is None for plan in products):
        return None
    return SpectralPlan((*plans, *(p for p in products if p is not None)))


def _choices(target: Target, error: float, dtype: str, guess: bool) -> list[list[GroupPlanner]]:
    """The directions that the expression shows; where it shows none, rotated ones beside its variables."""
    planners = _planners(target, error, dtype, guess)
    if not planners:
        return []
    choices = [planners]
    group = planners[0].group
    if target.expression is None or len(planners) > 1 or group.dimension not in (2, 3) or group.factors is not None:
        return choices
    for directions in _rotations(target):
        turned = rotated_group(target.expression, directions)
        if turned is not None:
            planner = GroupPlanner(turned, target.box.low, target.box.high, error, dtype)
            if np.isfinite(planner.f(2.0 * np.random.default_rng(5).random((400, turned.dimension)) - 1.0)).all():
                choices.append([planner])
    return choices


def _rotations(target: Target) -> list[tuple[Direction, ...]]:
    """Directions to try: the active subspace (eigenvectors of the centred gradient covariance), and sums and differences.

    Any independent directions serve, since the expression is rewritten in them exactly; small fractions keep it short.  The
    directions of a sum of ridges are none of the eigenvectors, hence the sums and differences.
    """
    assert target.expression is not None
    names = target.box.names
    used = [i for i, name in enumerate(names) if name in target.expression.used]
    slopes = target.expression.gradient().evaluate(target.box.sample(300, np.random.default_rng(9)))
    slopes = slopes.reshape(-1, len(names))[:, used]
    found: list[tuple[Direction, ...]] = []
    slopes = slopes[np.isfinite(slopes).all(axis=1)]
    if len(slopes) > 10:
        _, vectors = np.linalg.eigh(np.cov(slopes, rowvar=False))
        rows = [_snapped(vector, used, len(names)) for vector in vectors.T[::-1]]
        found.append(tuple(rows))
    if len(used) == 2:
        plus = np.array([1.0, 1.0])
        found.append((_snapped(plus, used, len(names)), _snapped(np.array([1.0, -1.0]), used, len(names))))
    units = {tuple(Fraction(int(i == j)) for j in range(len(names))) for i in used}
    return [rows for k, rows in enumerate(found) if set(rows) != units and rows not in found[:k]]


def _snapped(vector: Array, used: list[int], dimension: int) -> Direction:
    """The direction with its largest entry 1 and the others fractions of denominators up to 12."""
    lead = float(vector[int(np.abs(vector).argmax())])
    row = [Fraction(0)] * dimension
    for i, c in zip(used, vector, strict=True):
        row[i] = Fraction(float(c) / lead).limit_denominator(12)
    return tuple(row)


def _planners(target: Target, error: float, dtype: str, guess: bool) -> list[GroupPlanner]:
    """One planner per group; none where the target is not one that spectral heads serve."""
    low, high = target.box.low, target.box.high
    if target.n_out != 1:
        return []
    if target.expression is None:
        found = (_ridge(target) if guess else None) or _all_variables(target)
        return [] if found is None else [GroupPlanner(found[0], low, high, error, dtype, found[1])]
    if not target.expression.is_continuous or not target.expression.used:
        return []
    with np.errstate(all="ignore"):
        if not np.isfinite(target.expression.evaluate(target.box.sample(256, np.random.default_rng(1)))).all():
            return []
    groups = groups_of(target.expression) if target.d_out == 1 else (whole_group(target.expression),)
    if any(group.dimension > 4 and group.factors is None for group in groups):
        return []
    if not all(_analytic(group, low, high) for group in groups):
        return []
    bonus = 60.0 if len(groups) > 1 else 0.0  # about what keeps groups apart
    return [GroupPlanner(group, low, high, error / len(groups), dtype, bonus=bonus) for group in groups]


def _analytic(group: Group, low: Array, high: Array) -> bool:
    """Whether the group is analytic on the whole range of its directions, as far as a quick look tells.

    Pieces on which complex balls say nothing are halved; a piece too small to halve again sits on a kink or a pole.
    """
    reach = group.range(low, high)
    expressions = [group.expression] if group.factors is None else [f for row in group.factors for f in row if f is not None]
    for index, expression in enumerate(expressions):
        assert expression is not None
        if group.factors is None:
            stack = [(reach.lo.copy(), reach.hi.copy())]
        else:
            places = [e for row in group.factors for e, f in enumerate(row) if f is not None]
            e = places[index]
            stack = [(reach.lo[e : e + 1].copy(), reach.hi[e : e + 1].copy())]
        smallest = (stack[0][1] - stack[0][0]) * 2.0**-10
        looked = 0
        with balls.precision(53):
            while stack and looked < LOOKS:
                left, right = stack.pop()
                looked += 1
                if all(out.is_finite() for out in expression.enclose_ball(balls.box(left, right))):
                    continue
                axis = int(np.argmax((right - left) / smallest))
                if right[axis] - left[axis] < smallest[axis]:
                    return False
                middle = (left[axis] + right[axis]) / 2.0
                upper, lower = left.copy(), right.copy()
                upper[axis], lower[axis] = middle, middle
                stack += [(left, lower), (upper, right)]
    return True


LOOKS = 1500  # pieces that the quick look takes at most


def _all_variables(target: Target) -> tuple[Group, Function] | None:
    """A callable of up to three variables, on product keys."""
    D = target.box.dimension
    if D > 3:
        return None
    directions = tuple(tuple(Fraction(int(i == j)) for j in range(D)) for i in range(D))
    middle, half = (target.box.low + target.box.high) / 2.0, (target.box.high - target.box.low) / 2.0

    def evaluate(z: Array) -> Array:
        return target.values(target.box.clip(middle + z * half))[:, :, 0]

    return Group(directions, None, None), evaluate


def _ridge(target: Target) -> tuple[Group, Function] | None:
    """A callable that depends on one direction alone, seen on sampled gradients; the direction in small fractions."""
    D = target.box.dimension
    if D < 2 or target.d_out != 1:
        return None
    rng = np.random.default_rng(3)
    middle, half = (target.box.low + target.box.high) / 2.0, (target.box.high - target.box.low) / 2.0
    x = target.box.low + (0.02 + 0.96 * rng.random((120, D))) * target.box.width
    step = 1e-4 * half
    slopes = np.stack([
        (target.values(x + step * row) - target.values(x - step * row))[:, 0, 0] / (2.0 * step[i])
        for i, row in enumerate(np.eye(D))
    ], axis=1)  # fmt: skip
    _, size, rows = np.linalg.svd(slopes, full_matrices=False)
    if not size[0] > 0 or size[1] > 1e-5 * size[0]:
        return None
    lead = int(np.abs(rows[0]).argmax())
    direction = tuple(Fraction(float(c / rows[0][lead])).limit_denominator(12) for c in rows[0])
    w = np.array([float(c) for c in direction])
    if np.abs(w - rows[0] / rows[0][lead]).max() > 1e-4:
        return None

    def evaluate(z: Array) -> Array:
        return target.values(target.box.clip(middle + np.sign(w) * half * z))[:, :, 0]  # t runs over its whole range

    probe = target.box.sample(200, rng)
    z = ((probe - middle) @ w / (np.abs(w) @ half))[:, None]
    if np.abs(evaluate(z)[:, 0] - target.values(probe)[:, 0, 0]).max() > 1e-9 * (1.0 + np.abs(target.values(probe)).max()):
        return None
    return Group((direction,), None, None), evaluate


def one_more(made: GroupPlan, error: float, dtype: str) -> tuple[float, float] | None:
    """Expected errors of a group as it is and with one more token per direction; None where it is not refitted."""
    if made.values is None or made.group.dimension > 2:
        return None
    centre = (made.middle.lo + made.middle.hi) / 2.0

    def f(z: Array) -> Array:
        if made.evaluate is not None:
            return made.evaluate(z)
        assert made.group.expression is not None
        return made.group.expression.evaluate(centre + z * made.half)

    if made.group.dimension == 1:
        curve = AxisCurve(lambda z: f(z[:, None]), error, dtype, affine=True)
        return made.expected, curve.best(len(made.axes[0]) + 1).error
    axes = tuple(bernstein(len(axis) + 1, axis.parameter, dtype, axis.shift) for axis in made.axes if axis.family == "bernstein")
    if len(axes) != made.group.dimension:
        return None
    scale = float(np.abs(f(np.stack([chebyshev(33)] * len(axes), axis=1))).max()) or 1.0
    if made.slopes is not None:
        return made.expected, fit_affine(axes, f, error, scale, dtype).error
    return made.expected, tensor_fit(axes, f, error, scale, dtype)[0]
