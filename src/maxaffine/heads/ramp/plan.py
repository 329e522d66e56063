"""Plans of ramp nets: knots along the direction, so close that chords serve, and sites per ramp, so many that ramps serve.

    chord on a cell of width h:  |f - chord| <= min(h^2 sup |f''| / 8,  h (sup f' - inf f') / 4,  sup f - inf f)
    ramp of p steps:             |ramp head - ramp| <= kappa |C| / p,   C the rise of f on the cell

Cells are halved until the first is met, which grades them towards kinks and singular ends by itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import numpy_dtype
from maxaffine.expression.expression import Expression
from maxaffine.heads.assemble import layer_of
from maxaffine.heads.ramp.ideal import Ramps, ideal_error
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.ramp.constants import BEST, joint, kappa, met
from maxaffine.structure.directions import Direction
from maxaffine.structure.one_direction import OneDirection
from maxaffine.target.target import Target

FIRST = 4  # cells to begin with
MOST_RAMPS = 800
DEEPEST = 60  # halvings
ROUNDS = 6


@dataclass(frozen=True)
class Chords:
    """A target in z on knots: cells [knots_k, knots_k+1] on which chords err by at most `error`."""

    knots: Array
    error: float


@dataclass(frozen=True)
class RampPlan:
    """Ramps of steps[k] steps and rise rises[k] on the cells between knots, in z = row . (x - centre); f(knots[0]) = start."""

    found: OneDirection
    row: Array
    centre: Array
    knots: Array
    steps: tuple[int, ...]
    start: float
    rises: Array
    rho: float = BEST

    @property
    def cells(self) -> int:
        """Tokens of all heads."""
        return sum(p + 1 for p in self.steps)

    @property
    def direction(self) -> Direction:
        """w of z."""
        return self.found.direction

    def to_json(self) -> dict[str, Any]:
        """What the file keeps; the checker reads tensors and target alone."""
        return {"plan": "ramp", "method": "ramp", "rho": self.rho, "ramps": len(self.steps)}


def chord_error(f: Expression, low: Array, high: Array) -> Array:
    """Bounds (n,) of |f - chord| on cells, infinite where f is not enclosed."""
    box, h = Interval(low[:, None], high[:, None]), high - low
    slope = f.gradient()
    values, steep, bend = f.enclose(box), slope.enclose(box), slope.gradient().enclose(box)
    found = np.stack([(values.hi - values.lo)[:, 0], h * (steep.hi - steep.lo)[:, 0] / 4.0, h**2 * bend.magnitude[:, 0] / 8.0])
    # a chord between ends of finite range needs f to be continuous: where f may jump its slope has no finite enclosure
    found = np.where(np.isfinite(found), found, np.inf)
    return np.asarray(found.min(axis=0) * (1 + 1e-12))


def chords(f: Expression, first: float, last: float, error: float) -> Chords:
    """Knots from first to last by halving cells; Refused where halving does not help."""
    edges = np.linspace(first, last, FIRST + 1)
    edges[0], edges[-1] = first, last
    low, high, done = edges[:-1], edges[1:], []
    for _ in range(DEEPEST):
        off = chord_error(f, low, high)
        met = off <= error
        done.append(np.stack([low[met], off[met]], axis=1))
        low, high = low[~met], high[~met]
        if not len(low):
            rows = np.concatenate(done)
            knots = np.append(np.sort(rows[:, 0]), last)
            return Chords(knots, float(rows[:, 1].max()))
        middle = low + (high - low) / 2.0
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        if len(low) + sum(len(rows) for rows in done) > MOST_RAMPS:
            break
    told = f"chords on {MOST_RAMPS} ramps leave more than {error:.3g}, or the target jumps"
    raise Refused(f'{told}: ask for a larger error, or leave the method at "auto"')


def make_plan(
    found: OneDirection, f: Expression, row: Array, centre: Array, made: Chords, room: float, rho: float, dtype: str
) -> RampPlan:
    """Steps per ramp so that ramps err by at most `room`, and rises as they are stored: each makes up for the rounding before."""
    values = f.evaluate(made.knots[:, None])[:, 0]
    narrow = numpy_dtype(dtype).type
    start = float(narrow(values[0]))
    rises, at = np.empty(len(values) - 1), start
    for k, value in enumerate(values[1:]):
        rises[k] = float(narrow(value - at))
        at += rises[k]
    steps = _steps(made.knots, rises, room, rho)
    return RampPlan(found, row, centre, made.knots, tuple(map(int, steps)), start, rises, rho)


def _steps(knots: Array, rises: Array, room: float, rho: float) -> Array:
    """Steps per ramp: all heights about alike, as large as the error of all heads together allows."""
    height = room / max(kappa(rho), joint(rho))
    for _ in range(ROUNDS):
        p = np.maximum(np.ceil(np.abs(rises) / height), 1.0)
        found = ideal_error(Ramps(knots[:-1], knots[1:], p, rises / p, np.zeros(len(p))), rho, met)[0] * 1.01
        if found <= room:
            break
        height *= max(0.5, min(0.99, room / found))
    return p


def keys_of(plan: RampPlan, k: int) -> tuple[Array, Array]:
    """Slopes and offsets of ramp k: (rho/2)(2 t' j - j^2), t' and j from the middle of the cell, in float64."""
    p = plan.steps[k]
    low, high = plan.knots[k], plan.knots[k + 1]
    j = np.arange(p + 1) - p / 2.0
    slopes = plan.rho * p * j / (high - low)
    return slopes, -slopes * ((low + high) / 2.0) - 0.5 * plan.rho * j**2


def values_of(plan: RampPlan, k: int) -> Array:
    """Values of ramp k: equal steps from 0 to its rise, and the start on top of the first."""
    p = plan.steps[k]
    return np.asarray((plan.start if k == 0 else 0.0) + plan.rises[k] * np.arange(p + 1) / p)


def build_ramps(plan: RampPlan, target: Target, dtype: str) -> GroupedLayer:
    """One group per ramp, all on the same coordinate."""
    groups = [
        Group(plan.row[None], (AxisKeys(*keys_of(plan, k)),), values_of(plan, k)[:, None]) for k in range(len(plan.steps))
    ]
    return layer_of(groups, target, dtype, plan.centre)
