"""Which directions a spectral head has: groups of an expression, rotated ones, a ridge of a callable; and plans for them."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from maxaffine.core import balls, closest
from maxaffine.core.arrays import Array
from maxaffine.heads.fitting import Function, from_unit_box
from maxaffine.heads.spectral.plan import GroupPlanner, SpectralPlan, share
from maxaffine.structure.directions import Direction
from maxaffine.structure.groups import Group, groups_of, rotated_group, shared_groups, whole_group
from maxaffine.target.target import Target

LOOKS = 1500  # pieces that the quick look for singular points takes at most


def spectral_plans(
    target: Target, error: float, dtype: str, guess: bool = True, most: int | None = None
) -> Iterator[SpectralPlan]:
    """Plans aimed at smaller and smaller expected errors; of several sets of directions the one with the fewest tokens.

    Plans of more than `most` tokens are not looked for.  `guess` lets a callable be taken for a ridge where samples say so, which
    no proof can follow.
    """
    choices = _choices(target, error, dtype, guess)
    if not choices:
        return
    streams = [_stream(choices, error, affine, most) for affine in (True, False)]
    if dtype == "float64" and (plan := next(streams[0], None)) is not None:
        yield plan  # constant values are affine ones, and their rounding is no matter here
    waiting = [next(stream, None) for stream in streams]
    while any(plan is not None for plan in waiting):
        place = min((plan.cells, i) for i, plan in enumerate(waiting) if plan is not None)[1]
        plan = waiting[place]
        assert plan is not None
        yield plan
        waiting[place] = next(streams[place], None)


def _stream(choices: list[list[GroupPlanner]], error: float, affine: bool, most: int | None) -> Iterator[SpectralPlan]:
    """Plans of one kind of values, of growing size; of several sets of directions the one with the fewest tokens."""
    tokens, expected = 0, 0.0
    factored = any(planner.group.factors is not None and planner.group.dimension > 2 for one in choices for planner in one)
    for goal in (0.9,) if affine and factored else (0.97, 0.9, 0.8, 0.65, 0.45):
        plan: SpectralPlan | None = None
        for planners in choices:  # of later ones only those with fewer tokens
            limit = most if plan is None else plan.cells - 1
            plan = _carry_out(planners, goal * error, affine, limit) or plan
        if plan is None:
            return
        if plan.cells > tokens or plan.expected < expected:
            tokens, expected = plan.cells, 0.95 * plan.expected
            yield plan


def _carry_out(planners: list[GroupPlanner], error: float, affine: bool, most: int | None) -> SpectralPlan | None:
    """Groups of one direction share a part of the error, each group of several has its own; at most so many tokens."""
    singles = [planner for planner in planners if planner.group.dimension == 1]
    others = [planner for planner in planners if planner.group.dimension > 1]
    part = error / (len(others) + (1 if singles else 0))
    with closest.fits_of(not others or len(planners) == 1):
        plans = share(singles, part, affine, most) if singles else []
        if plans is None:
            return None
        made = SpectralPlan(tuple(plans))
        for planner in others:
            left = None if most is None else most - made.cells
            if left is not None and left < 1:
                return None
            product = planner.affine_product(part, left) if affine else planner.best_product(part, left)
            if product is None:
                return None
            made = SpectralPlan((*made.groups, product))
    return made if most is None or made.cells <= most else None


def _choices(target: Target, error: float, dtype: str, guess: bool) -> list[list[GroupPlanner]]:
    """The directions that the expression shows; where it shows none, rotated ones beside its variables."""
    planners = _planners(target, error, dtype, guess)
    choices = [planners] if planners else []
    if target.expression is not None and target.d_out > 1 and (shared := _shared_planners(target, error, dtype)):
        choices.append(shared)
    if target.expression is None or len(planners) != 1:
        return choices
    group = planners[0].group
    if group.dimension not in (2, 3) or group.factors is not None:
        return choices
    for directions in _rotations(target):
        turned = rotated_group(target.expression, directions)
        if turned is not None:
            planner = GroupPlanner(turned, target.box.low, target.box.high, error, dtype, query=target.query)
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
        found.append(tuple(_snapped(vector, used, len(names)) for vector in vectors.T[::-1]))
    if len(used) == 2:
        found.append(tuple(_snapped(np.array([1.0, sign]), used, len(names)) for sign in (1.0, -1.0)))
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
        return [] if found is None else [GroupPlanner(found[0], low, high, error, dtype, found[1], query=target.query)]
    if not target.expression.is_continuous or not target.expression.used:
        return []
    with np.errstate(all="ignore"):
        if not np.isfinite(target.expression.evaluate(target.box.sample(256, np.random.default_rng(1)))).all():
            return []
    groups = groups_of(target.expression) if target.d_out == 1 else (whole_group(target.expression),)
    return _of_groups(groups, target, error, dtype)


def _shared_planners(target: Target, error: float, dtype: str) -> list[GroupPlanner]:
    """One planner per group of several outputs, where these are sums over some directions that they share."""
    assert target.expression is not None
    if target.n_out != 1 or not target.expression.is_continuous or not target.expression.used:
        return []
    groups = shared_groups(target.expression)
    return _of_groups(groups, target, error, dtype) if len(groups) > 1 else []


def _of_groups(groups: Sequence[Group], target: Target, error: float, dtype: str) -> list[GroupPlanner]:
    low, high = target.box.low, target.box.high
    many = any(group.dimension > 4 and group.factors is None for group in groups)
    if many or not all(is_analytic(group, low, high) for group in groups):
        return []
    bonus = 60.0 if len(groups) > 1 else 0.0  # about what keeps groups apart
    return [GroupPlanner(group, low, high, error / len(groups), dtype, bonus=bonus, query=target.query) for group in groups]


def is_analytic(group: Group, low: Array, high: Array) -> bool:
    """Whether the group is analytic on the whole range of its directions, as far as a quick look tells.

    Pieces on which complex balls say nothing are halved; a piece too small to halve again sits on a kink or a pole.
    """
    reach = group.range(low, high)
    parts = [(group.expression, slice(None))]
    if group.factors is not None:
        parts = [(factor, slice(e, e + 1)) for row in group.factors for e, factor in enumerate(row) if factor is not None]
    for expression, own in parts:
        assert expression is not None
        stack = [(reach.lo[own], reach.hi[own])]
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


def _all_variables(target: Target) -> tuple[Group, Function] | None:
    """A callable of up to three variables, on product keys."""
    D = target.box.dimension
    if D > 3:
        return None
    directions = tuple(tuple(Fraction(int(i == j)) for j in range(D)) for i in range(D))
    within = from_unit_box(target.box)
    return Group(directions, None, None), lambda z: target.values(within(z))[:, :, 0]


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
