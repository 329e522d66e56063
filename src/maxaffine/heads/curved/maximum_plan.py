"""Kinks along graphs of functions of one direction: a maximum of convex polygons, and a smooth part.

    f = S + sigma max_i(phi_i(t) + m_i . x),        F = p_S + sum_k softmax_k(R v_k) sigma v_k

All sides phi_i are convex (structure/curved_maxima.py adds a function g to each and takes it off S), so each is the maximum of
its best affine pieces v_k, one token each: a convex function of curvature c is held to E by pieces of length 4 sqrt(E/c), and the
maximum of maxima of affine functions is one softmax whose scores are R times its values.  Tokens grow like error^(-1/2), whatever
the switch looks like, because only one direction is curved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.expression.expression import Expression
from maxaffine.heads.assemble import layer_of, single_token
from maxaffine.heads.fitting import as_stored
from maxaffine.heads.spectral.directions import is_analytic
from maxaffine.heads.spectral.plan import GroupPlan, GroupPlanner
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.structure.curved_maxima import FREQUENCY, CurvedMaximum, CurvedSwitch, Lift, Side
from maxaffine.target.box import Box
from maxaffine.target.target import Target

Split = tuple[float, tuple[float, tuple[float, ...], tuple[float, ...]]]

WAVES = (0, 2, 4, 6, 8, 12, 16, 24)  # of the function that makes both sides convex
LOOKS = 301  # points at which second derivatives are looked at
WITHIN = 33  # points per piece
POLYGONS, SMOOTH, BLEND = 0.93, 0.045, 0.022  # of the error: both polygons, the smooth part, the softness of the maximum
MOST = 6000


@dataclass(frozen=True)
class CurvedMaximumPlan:
    """Affine pieces (K, 2: slope and constant in z, t = middle + half z) of every side, the sharpness, and the smooth groups."""

    found: CurvedMaximum
    base: int
    lift: Lift
    half: float
    pieces: tuple[Array, ...]
    sharpness: float
    smooth: tuple[GroupPlan, ...]
    centre: Array
    argument: str = "curved maximum"

    @property
    def cells(self) -> int:
        """Key tokens in all."""
        return sum(len(rows) for rows in self.pieces) + sum(part.cells for part in self.smooth)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the base and the function that make all sides of the maximum convex."""
        lift = dataclasses.asdict(self.lift)
        return {
            "plan": "curved maximum", "method": "curved", "argument": self.argument, "base": self.base, "lift": lift,
            "pieces": [len(rows) for rows in self.pieces],
        }  # fmt: skip


class CurvedMaximumPlanner:
    """Plans of one switch on a box, for errors of any size."""

    def __init__(self, switch: CurvedSwitch, box: Box, dtype: str) -> None:
        self.switch, self.box, self.dtype = switch, box, dtype
        self.centre = np.asarray((box.low + box.high) / 2.0)
        row = np.array([float(c) for c in switch.direction])
        self.half = float(np.abs(row) @ (box.width / 2.0)) * (1.0 + 2.0**-40)
        self.origin = float(row @ self.centre)
        self._known: dict[int, Split | None] = {}

    def plan(self, error: float, most: int) -> CurvedMaximumPlan | None:
        """The fewest tokens among bases and numbers of waves; None where there are too many."""
        best: CurvedMaximumPlan | None = None
        worse = 0
        for cost, base, lift in self._lifts():
            limit = min(MOST, most if best is None else best.cells - 1)
            if worse < 2 and cost / math.sqrt(POLYGONS * error) <= limit:
                made = self._carry_out(base, lift, error, limit)
                best, worse = (best, worse + (best is not None)) if made is None else (made, 0)
        return best

    def _lifts(self) -> Iterator[tuple[float, int, Lift]]:
        """Bases and functions g with more and more waves, and the pieces that they ask for in units of error^(-1/2)."""
        z = np.linspace(-1.0, 1.0, LOOKS)
        none = Lift(self.origin, self.half)
        most = self.box.dimension  # coordinates of the tokens
        bases = [base for base in range(len(self.switch.bases)) if len(self.switch.lifted(base, none).leans()) < most]
        found = [[self._bent(side.phi, z) for side in self.switch.heights[base]] for base in bases]
        bent = {}
        for base, bends in zip(bases, found, strict=True):
            known = [row for row in bends if row is not None]
            if len(known) == len(bends):
                bent[base] = np.stack(known)
        for base, rows in bent.items():
            if rows.min() >= -1e-9 * np.abs(rows).max():  # convex as they are
                yield float(np.sqrt(np.maximum(rows, 0.0)).mean(axis=1).sum()) / 2.0, base, none
                return
        if not bent:
            return
        base = min(bent, key=lambda base: len(self.switch.lifted(base, none).parts))
        for waves in WAVES:
            if waves not in self._known:
                self._known[waves] = _convex_split(bent[base], z, waves)
            made = self._known[waves]
            if made is not None:
                yield made[0], base, Lift(self.origin, self.half, *made[1])

    def _bent(self, h: Expression, z: Array) -> Array | None:
        """h'' in z at points."""
        second = h.gradient().gradient()
        with np.errstate(all="ignore"):
            values = second.evaluate(self.origin + self.half * z[:, None])[:, 0] * self.half**2
        return values if np.isfinite(values).all() else None

    def _carry_out(self, base: int, lift: Lift, error: float, most: int) -> CurvedMaximumPlan | None:
        found = self.switch.lifted(base, lift)
        smooth = []
        for group in found.parts:
            if not is_analytic(group, self.box.low, self.box.high):
                return None
            planner = GroupPlanner(group, self.box.low, self.box.high, error, self.dtype)
            made = _smooth_part(planner, 0.95 * SMOOTH * error / len(found.parts))
            if made is None:
                return None
            smooth.append(made)
            most -= made.cells
        left = sum(float(c) * float(a) for c, a in zip(found.slopes, self.centre, strict=True)) * found.sign
        sides = []
        for side in found.sides:
            level = left + sum(float(c) * float(a) for c, a in zip(side.lean, self.centre, strict=True))

            def phi(z: Array, side: Side = side, level: float = level) -> Array:
                return np.asarray(side.phi.evaluate(self.origin + self.half * z[:, None])[:, 0] + level)

            pieces = polygon(phi, POLYGONS * error, most)
            if pieces is None:
                return None
            sides.append(pieces)
            most -= len(pieces)
        blend = soft_gap(sum(len(rows) for rows in sides))
        sharpness = 2.0 ** math.ceil(math.log2(blend / (BLEND * error)))
        return CurvedMaximumPlan(found, base, lift, self.half, tuple(sides), sharpness, tuple(smooth), self.centre)


def _smooth_part(planner: GroupPlanner, error: float) -> GroupPlan | None:
    if planner.group.dimension > 1:
        return planner.affine_product(error) or planner.best_product(error)
    fit = planner.lines[0].smallest(error, start=1)
    return None if fit is None else planner.single(planner.lines[0].polished(len(fit)))


def _convex_split(bent: Array, z: Array, waves: int) -> Split | None:
    """g with g'' = q >= -bent of every side (S, M) and few pieces: the mean of sum_i sqrt(bent_i + q)/2, and g's numbers.

    Linear programs, each with the weights that make it the linearisation of that mean at the solution of the one before.
    """
    from scipy.optimize import linprog

    size = float(np.abs(bent).max())
    turns = float(FREQUENCY) * np.arange(1, waves + 1)
    columns = np.concatenate([np.ones((len(z), 1)), *(wave(np.multiply.outer(z, turns)) for wave in (np.cos, np.sin))], axis=1)
    needed, weights = np.maximum(0.0, -bent.min(axis=0)) + 1e-4 * size, np.ones(len(z))
    best: tuple[float, Array] | None = None
    for _ in range(5):
        limits = [(-8.0 * size, 8.0 * size)] * columns.shape[1]
        answer = linprog(weights @ columns, A_ub=-columns, b_ub=-needed, bounds=limits, method="highs")
        if answer.status != 0:
            break
        q = columns @ answer.x
        cost = float(np.sqrt(np.maximum(bent + q, 0.0)).mean(axis=1).sum()) / 2.0
        if best is None or cost < best[0]:
            best = cost, np.asarray(answer.x)
        weights = (1.0 / np.sqrt(np.maximum(bent + q, 0.0) + 0.01 * size)).sum(axis=0)
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


def build_curved_maximum(plan: CurvedMaximumPlan, target: Target, dtype: str) -> GroupedLayer:
    """The layer: single tokens whose scores are R times their values, beside the smooth part.

    Coordinates of the tokens: t, scaled, and the sides' affine parts; a power of two makes scores of values.
    """
    found, leans = plan.found, plan.found.leans()
    rows = [np.array([float(c) for c in row]) for row in (found.direction, *leans)]
    matrix = np.stack([rows[0] / plan.half, *rows[1:]])
    stored = as_stored(np.concatenate(plan.pieces), dtype)
    c, G = stored[:, 1], stored[:, 0]
    across = [[float(side.lean == row) for row in leans] for side, own in zip(found.sides, plan.pieces, strict=True) for _ in own]
    lean = np.concatenate([G[:, None], np.array(across)], axis=1)
    tokens = tuple(single_token(found.sign * c[k : k + 1], found.sign * lean[k : k + 1]) for k in range(len(c)))
    group = ClusterGroup(matrix, plan.sharpness * lean, plan.sharpness * c, tokens)
    return layer_of([group, *(part.build() for part in plan.smooth)], target, dtype, plan.centre, found.slopes)
