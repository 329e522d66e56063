"""A kink along the graph of a function of one direction: a maximum of two convex polygons, and a smooth part.

    f = S + sigma max(phi_1(t) + m . x, phi_2(t)),        F = p_S + sum_k softmax_k(R v_k) sigma v_k

Both sides phi_1, phi_2 are convex (target/curved_maximum.py adds a function g to both and takes it off S), so each is the maximum
of its best affine pieces v_k, one token each: a convex function of curvature c is held to E by pieces of length 4 sqrt(E/c), and
the maximum of two maxima of affine functions is one softmax whose scores are R times its values.  Tokens grow like
error^(-1/2), whatever the switch looks like, because only one direction is curved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.plan.curved import lambert_of_exp
from maxaffine.plan.spectral import GroupPlan, GroupPlanner, _analytic
from maxaffine.target.box import Box
from maxaffine.target.curved_maximum import FREQUENCY, CurvedMaximum, CurvedSwitch, Lift
from maxaffine.target.expression import Expression

Array = NDArray[np.float64]
Split = tuple[float, tuple[float, tuple[float, ...], tuple[float, ...]]]

WAVES = (0, 2, 4, 6, 8, 12, 16, 24)  # of the function that makes both sides convex
LOOKS = 301  # points at which second derivatives are looked at
WITHIN = 33  # points per piece
POLYGONS, SMOOTH, BLEND = 0.93, 0.045, 0.022  # of the error: both polygons, the smooth part, the softness of the maximum
MOST = 6000


@dataclass(frozen=True)
class CurvedMaximumPlan:
    """Affine pieces (K, 2: slope and constant in z, t = middle + half z) of both sides, the sharpness, and the smooth groups."""

    found: CurvedMaximum
    side: int
    lift: Lift
    half: float
    inner: Array
    outer: Array
    sharpness: float
    smooth: tuple[GroupPlan, ...]
    centre: Array
    route: str = "curved maximum"

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return len(self.inner) + len(self.outer) + sum(part.tokens for part in self.smooth)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the side and the function that make both sides of the maximum convex."""
        lift = dataclasses.asdict(self.lift)
        return {
            "plan": "curved maximum", "method": "curved", "route": self.route, "side": self.side, "lift": lift,
            "pieces": [len(self.inner), len(self.outer)],
        }  # fmt: skip


class CurvedMaximumPlanner:
    """Plans of one switch on a box, for errors of any size."""

    def __init__(self, switch: CurvedSwitch, box: Box, dtype: str) -> None:
        self.switch, self.box, self.dtype = switch, box, dtype
        self.centre = np.asarray((box.low + box.high) / 2.0)
        direction = switch.apart[1].direction
        row = np.array([float(c) for c in direction])
        self.half = float(np.abs(row) @ (box.width / 2.0)) * (1.0 + 2.0**-40)
        self.origin = float(row @ self.centre)
        self._known: dict[int, Split | None] = {}

    def plan(self, error: float, most: int) -> CurvedMaximumPlan | None:
        """The fewest tokens among bases and numbers of waves; None where there are too many."""
        best: CurvedMaximumPlan | None = None
        worse = 0
        for cost, side, lift in self._lifts():
            limit = min(MOST, most if best is None else best.cells - 1)
            if worse < 2 and cost / math.sqrt(POLYGONS * error) <= limit:
                made = self._carry_out(side, lift, error, limit)
                best, worse = (best, worse + (best is not None)) if made is None else (made, 0)
        return best

    def _lifts(self) -> Iterator[tuple[float, int, Lift]]:
        """Bases and functions g with more and more waves, and the pieces that they ask for in units of error^(-1/2)."""
        z = np.linspace(-1.0, 1.0, LOOKS)
        bent = {side: self._bent(self.switch.apart[side].h, z) for side in (-1, 1)}
        for side, row in bent.items():
            if row is not None and row.min() >= -1e-9 * np.abs(row).max():  # convex as it is
                yield float(np.sqrt(np.maximum(row, 0.0)).mean()) / 2.0, side, Lift(self.origin, self.half)
                return
        none = Lift(self.origin, self.half)
        side = min((-1, 1), key=lambda side: len(self.switch.lifted(side, none).parts))
        for waves in WAVES:
            row = bent[side]
            if waves not in self._known and row is not None:
                self._known[waves] = _convex_split(row, z, waves)
            made = self._known.get(waves)
            if made is not None:
                yield made[0], side, Lift(self.origin, self.half, *made[1])

    def _bent(self, h: Expression, z: Array) -> Array | None:
        """h'' in z at points."""
        second = h.gradient().gradient()
        with np.errstate(all="ignore"):
            values = second.evaluate(self.origin + self.half * z[:, None])[:, 0] * self.half**2
        return values if np.isfinite(values).all() else None

    def _carry_out(self, side: int, lift: Lift, error: float, most: int) -> CurvedMaximumPlan | None:
        found = self.switch.lifted(side, lift)
        smooth = []
        for group in found.parts:
            if not _analytic(group, self.box.low, self.box.high):
                return None
            planner = GroupPlanner(group, self.box.low, self.box.high, error, self.dtype)
            made = _smooth_part(planner, 0.95 * SMOOTH * error / len(found.parts))
            if made is None:
                return None
            smooth.append(made)
            most -= made.tokens
        left = sum(float(c) * float(a) for c, a in zip(found.slopes, self.centre, strict=True)) * found.sign
        lean = sum(float(c) * float(a) for c, a in zip(found.lean, self.centre, strict=True))
        sides = []
        for phi, level in ((found.inner, left + lean), (found.outer, left)):
            pieces = polygon(lambda z, phi=phi, level=level: phi.evaluate(self.origin + self.half * z[:, None])[:, 0] + level,  # type: ignore[misc]
                             POLYGONS * error, most)  # fmt: skip
            if pieces is None:
                return None
            sides.append(pieces)
            most -= len(pieces)
        blend = float(lambert_of_exp(np.array([math.log(len(sides[0]) + len(sides[1]) - 1) - 1.0]))[0])  # W0((N-1)/e)
        sharpness = 2.0 ** math.ceil(math.log2(blend / (BLEND * error)))
        return CurvedMaximumPlan(found, side, lift, self.half, sides[0], sides[1], sharpness, tuple(smooth), self.centre)


def _smooth_part(planner: GroupPlanner, error: float) -> GroupPlan | None:
    if planner.group.dimension > 1:
        return planner.affine_product(error) or planner.best_product(error)
    fit = planner.lines[0].smallest(error, start=1)
    return None if fit is None else planner.single(planner.lines[0].polished(len(fit)))


def _convex_split(bent: Array, z: Array, waves: int) -> Split | None:
    """g with g'' = q >= max(0, -bent) and few pieces: the mean of (sqrt q + sqrt(bent + q))/2, and g's numbers.

    Linear programs, each with the weights that make it the linearisation of that mean at the solution of the one before.
    """
    from scipy.optimize import linprog

    size = float(np.abs(bent).max())
    turns = float(FREQUENCY) * np.arange(1, waves + 1)
    columns = np.concatenate([np.ones((len(z), 1)), *(wave(np.multiply.outer(z, turns)) for wave in (np.cos, np.sin))], axis=1)
    needed, weights = np.maximum(0.0, -bent) + 1e-4 * size, np.ones(len(z))
    best: tuple[float, Array] | None = None
    for _ in range(5):
        limits = [(-8.0 * size, 8.0 * size)] * columns.shape[1]
        answer = linprog(weights @ columns, A_ub=-columns, b_ub=-needed, bounds=limits, method="highs")
        if answer.status != 0:
            break
        q = columns @ answer.x
        cost = float((np.sqrt(np.maximum(q, 0.0)) + np.sqrt(np.maximum(bent + q, 0.0))).mean()) / 2.0
        if best is None or cost < best[0]:
            best = cost, np.asarray(answer.x)
        weights = 1.0 / np.sqrt(np.maximum(q, 0.0) + 0.01 * size) + 1.0 / np.sqrt(np.maximum(bent + q, 0.0) + 0.01 * size)
    if best is None:
        return None
    cosines, sines = (tuple(float(c) for c in -row / turns**2) for row in (best[1][1 : 1 + waves], best[1][1 + waves :]))
    return best[0], (float(best[1][0]) / 2.0, cosines, sines)


def polygon(phi: Callable[[Array], Array], error: float, most: int) -> Array | None:
    """Slopes and constants (K, 2) of affine pieces whose maximum is a convex phi on [-1, 1] up to `error`; None above `most`."""
    z = np.linspace(-1.0, 1.0, 12 * LOOKS + 1)
    values = phi(z)
    bent = np.abs(np.diff(values, 2))
    density = np.sqrt(bent + 1e-12 * (bent.max() + np.abs(values).max() * 2.0**-50))
    count = max(1, math.ceil(density.sum() / 4.0 / math.sqrt(error) * 0.98))
    if not math.isfinite(density.sum()):
        return None
    while count <= most:
        pieces, away = _pieces(phi, z[1:-1], density, count)
        if away <= error:
            return pieces
        count = max(count + 1, math.ceil(count * min(1.2, math.sqrt(away / error))))
    return None


def _pieces(phi: Callable[[Array], Array], z: Array, density: Array, count: int) -> tuple[Array, float]:
    """That many pieces with errors as equal as a few steps make them, and the largest error."""
    best: tuple[Array, float] | None = None
    total = np.concatenate([[0.0], np.cumsum(density)])
    ends = np.concatenate([[-1.0], (z[1:] + z[:-1]) / 2.0, [1.0]])
    cuts = np.interp(np.linspace(0.0, total[-1], count + 1), total, ends)
    for _ in range(6):
        cuts[0], cuts[-1] = -1.0, 1.0
        within = cuts[:-1, None] + np.diff(cuts)[:, None] * np.linspace(0.0, 1.0, WITHIN)
        values = phi(within.ravel()).reshape(within.shape)
        slopes = (values[:, -1] - values[:, 0]) / np.maximum(np.diff(cuts), 1e-300)
        above = values[:, :1] + slopes[:, None] * (within - within[:, :1]) - values
        high, low = above.max(axis=1), above.min(axis=1)
        errors = (high - low) / 2.0
        worst = float(errors.max()) * (1.0 + 1.0 / WITHIN**2)
        if best is None or worst < best[1]:
            shifted = values[:, 0] - slopes * cuts[:-1] - (high + low) / 2.0
            best = np.stack([slopes, shifted], axis=1), worst
        heights = np.sqrt(np.maximum(errors, 1e-3 * errors.max() + 1e-300))
        cuts = np.interp(np.linspace(0.0, heights.sum(), count + 1), np.concatenate([[0.0], np.cumsum(heights)]), cuts)
    assert best is not None
    return best
