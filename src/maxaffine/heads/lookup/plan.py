"""The lookup method: the paper's construction, P cells per coordinate and a sharpness from the error asked for.

Routes to a sup-norm bound with values f(cell centre), h_i the cell widths (docs/theory.md):

    E1  Lipschitz per axis       mean distance(rho) * sum_i L_i h_i
    E2  Euclidean Lipschitz      L sqrt(mean square(rho) sum_i h_i^2)
    E3  modulus w(max |x-y|)     w(max_i h_i) + range * D * tail(rho)
    E4  concave modulus in l1    w(mean distance(rho) sum_i h_i)
    G4  enclosures of f on cells enlarged by a margin g, values mid-range, for continuous f without any constant
    C   one value for the whole box, the middle of f's range, where the error is larger than half of it
    I   covering centres of a set of points given by the user

The planner takes the cheapest argument that applies; sharper than the paper's rho0 often saves tokens.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.grid import chunks, enclose_cells, grid_coordinates
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.target.box import Box
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

SHARPNESSES = (theorems.RHO0, 10.0, 14.0, 20.0, 28.0, 40.0)
MARGIN = 5 / 128  # enlargement of the cells on argument G4, in cells; a dyadic number, so that faces are exact
ENCLOSED_LIMIT = 1 << 20  # cells that argument G4 encloses at most
COUNT_LIMIT = 2**50  # cells per coordinate that are still counted exactly; memory refuses long before


@dataclass(frozen=True)
class GridPlan:
    """A uniform product grid: cells per coordinate, sharpness, and the argument of its proof."""

    argument: str
    counts: tuple[int, ...]
    sharpness: float
    predicted: float  # the bound before rounding, as the plan expects it
    norm: float = math.inf
    margin: float = 0.0

    @property
    def cells(self) -> int:
        """N = prod P_i."""
        return math.prod(self.counts)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"plan": "grid", "argument": self.argument, "counts": list(self.counts), "margin": self.margin}


def provable(evidence: Evidence) -> bool:
    """Whether some argument E1 to E4 applies."""
    facts = (evidence.lipschitz, evidence.euclidean, evidence.modulus, evidence.concave_modulus)
    return any(fact is not None for fact in facts)


def sup_norm_proposals(box: Box, evidence: Evidence, error: float) -> Iterator[GridPlan]:
    """The cheapest plan for the error, then for smaller ones, each with more cells than the last."""
    cells = 0
    for shrink in (1.0, 0.999, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5):
        plan = cheapest(sup_norm_plans(box, evidence, error * shrink))
        if plan is not None and plan.cells > cells:
            cells = plan.cells
            yield plan


def constant_plan(box: Box, evidence: Evidence, error: float) -> GridPlan | None:
    """Route C: one cell, where the range of f is known and half of it is at most `error`; jumps do not matter."""
    if evidence.extent is None:
        return None
    half = float((evidence.extent[1] / 2.0 - evidence.extent[0] / 2.0).max())
    return GridPlan("C", (1,) * box.dimension, theorems.RHO0, half) if half <= error else None


def sup_norm_plans(box: Box, evidence: Evidence, error: float) -> Iterator[GridPlan]:
    """Every plan that the evidence allows for this sup-norm error, before rounding is counted."""
    plans = (
        *_lipschitz_plans(box.width, evidence, error),
        *_euclidean_plans(box.width, evidence.euclidean, error),
        *_modulus_plans(box.width, evidence, error),
        *_concave_plans(box.width, evidence.concave_modulus, error),
    )
    yield from (plan for plan in plans if max(plan.counts) <= COUNT_LIMIT)


def _lipschitz_plans(width: Array, evidence: Evidence, error: float) -> Iterator[GridPlan]:
    if evidence.lipschitz is None:
        return
    rows = evidence.lipschitz[None] if evidence.per_output is None else evidence.per_output
    for rho in SHARPNESSES:
        counts = _weighted_counts(rows * width, error / theorems.mean_distance(rho))
        if counts is not None:
            yield GridPlan("E1", counts, rho, theorems.mean_distance(rho) * evidence.reach(width / counts))


def _euclidean_plans(width: Array, constant: float | None, error: float) -> Iterator[GridPlan]:
    for rho in (*SHARPNESSES, 80.0, 160.0) if constant is not None else ():
        assert constant is not None
        factor = constant * math.sqrt(theorems.mean_square(rho))
        counts = _norm_counts(width, error / factor if factor else math.inf)
        if counts is not None:
            yield GridPlan("E2", counts, rho, factor * float(np.linalg.norm(width / counts)))


def _modulus_plans(width: Array, evidence: Evidence, error: float) -> Iterator[GridPlan]:
    modulus, spread = evidence.modulus, evidence.range_bound(width)
    if modulus is None or not math.isfinite(spread):
        return
    reach = _largest(modulus, 0.98 * error, float(width.max()))
    if reach is not None and float(width.max()) / reach <= COUNT_LIMIT:
        rho = 2.0 * math.log1p(len(width) * max(spread, error) / (0.02 * error))
        counts = tuple(max(1, math.ceil(w / reach * (1 + 1e-12))) for w in width)
        leak = spread * len(width) * theorems.tail(rho)
        yield GridPlan("E3", counts, rho, modulus(float((width / counts).max())) + leak)


def _concave_plans(width: Array, modulus: Callable[[float], float] | None, error: float) -> Iterator[GridPlan]:
    if modulus is None:
        return
    reach = _largest(modulus, error, float(width.sum()))
    for rho in SHARPNESSES if reach is not None else ():
        assert reach is not None
        counts = _weighted_counts(width, reach / theorems.mean_distance(rho))
        if counts is not None:
            total = float((width / counts).sum())
            yield GridPlan("E4", counts, rho, modulus(theorems.mean_distance(rho) * total))


def cheapest(plans: Iterable[GridPlan]) -> GridPlan | None:
    """The plan with the fewest cells; of equal ones the least sharp, whose logits round least."""
    return min(plans, key=lambda plan: (plan.cells, plan.sharpness), default=None)


def _weighted_counts(weights: Array, limit: float) -> tuple[int, ...] | None:
    """Counts of small product with sum_i weights_ki / P_i <= limit for every row k (of least product for one row)."""
    rows = np.atleast_2d(weights)
    most = rows.max(axis=0)
    active = most > 0
    if not active.any():
        return (1,) * int(rows.shape[1])
    share = np.where(active, most * active.sum() / limit, 1.0)
    share *= max(float((rows / share).sum(axis=1).max()) / limit, 1e-12)  # several rows need less than their largest entries
    return _trim(np.maximum(share, 1.0), lambda counts: float((rows / counts).sum(axis=1).max()) <= limit)


def _norm_counts(width: Array, limit: float) -> tuple[int, ...] | None:
    """Counts of least product with |width / P|_2 <= limit."""
    share = np.maximum(width * math.sqrt(len(width)) / limit, 1.0)
    return _trim(share, lambda counts: float(np.linalg.norm(width / counts)) <= limit)


def _trim(share: Array, fits: Callable[[Array], bool]) -> tuple[int, ...] | None:
    """Round the continuous optimum up, then try every way of rounding some counts down."""
    if not np.all(np.isfinite(share)) or share.max() > COUNT_LIMIT:
        return None
    up = np.maximum(np.ceil(share * (1 - 1e-13)), 1.0)
    while not fits(up):
        up = np.where(share > 1.0, up + 1.0, up)
    best = up
    down = np.maximum(up - 1.0, 1.0)
    axes = range(len(share)) if len(share) <= 10 else range(0)
    for size in axes:
        for chosen in itertools.combinations(axes, size + 1):
            trial = up.copy()
            trial[list(chosen)] = down[list(chosen)]
            if np.prod(trial) < np.prod(best) and fits(trial):
                best = trial
    return tuple(int(count) for count in _lowered(best, fits))


def _lowered(counts: Array, fits: Callable[[Array], bool]) -> Array:
    """Lower one count after the other as far as it goes, each time the one that saves most.

    Where the continuous optimum asks for less than one cell on some coordinate, the others have room to spare.
    """
    while True:
        trials = []
        for axis in range(len(counts)):
            low, high, trial = 0, int(counts[axis]), counts.copy()
            while high - low > 1:
                trial[axis] = (low + high) // 2
                low, high = (low, int(trial[axis])) if fits(trial) else (int(trial[axis]), high)
            trial[axis] = high
            trials.append(trial)
        best = min(trials, key=lambda trial: float(np.prod(trial / counts)))
        if np.array_equal(best, counts):
            return counts
        counts = best


def _largest(modulus: Callable[[float], float], limit: float, reach: float) -> float | None:
    """The largest r <= reach (to one part in 1e9) with modulus(r) <= limit, by bisection; None where there is none."""
    if modulus(reach) <= limit:
        return reach
    low, high = 0.0, reach
    for _ in range(200):
        middle = (low + high) / 2.0 if low > 0.0 else high / 16.0
        if modulus(middle) <= limit:
            low = middle
        else:
            high = middle
        if high < 1e-300 or (low > 0.0 and high - low <= 1e-9 * high):
            break
    return low if low > 0.0 else None


def enclosed_proposals(target: Target, evidence: Evidence, error: float) -> Iterator[GridPlan]:
    """Route G4: equally many cells on every coordinate that the expression uses, found by doubling and bisection."""
    assert target.expression is not None
    active = tuple(name in target.expression.used for name in target.box.names)
    spread = evidence.range_bound(target.box.width)

    def plan(count: int) -> GridPlan:
        counts = tuple(count if on else 1 for on in active)
        rho = math.log(max(100.0 * len(counts) * spread / error, math.e)) / MARGIN
        return GridPlan("G4", counts, rho, error, margin=MARGIN)

    def fits(count: int) -> bool:
        return _half_oscillation(target, plan(count), 0.985 * error) <= 0.985 * error

    least = smallest_count(fits, 2, 200, lambda count: plan(count).cells > ENCLOSED_LIMIT)
    if least is None:
        raise Refused(
            f"`error` (={error:.4g}) cannot be proved by cell enclosures with up to {ENCLOSED_LIMIT:,} cells: "
            f"no Lipschitz constant is known ({evidence.why_not.rstrip('.')}). Ask for a larger error, an L_p norm, or "
            "declare `modulus=`."
        )
    for factor in (1.0, 1.02, 1.06, 1.15, 1.3, 1.6, 2.0):
        yield plan(math.ceil(least * factor))


def smallest_count(fits: Callable[[int], bool], start: int, fine: int, too_many: Callable[[int], bool]) -> int | None:
    """The least count that fits, to one part in `fine`, by doubling and bisection; None where it would be too many."""
    high = start
    while not fits(high):
        high *= 2
        if too_many(high):
            return None
    low = high // 2
    while high - low > max(1, low // fine):
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _half_oscillation(target: Target, plan: GridPlan, limit: float) -> float:
    """max over the enlarged cells of half the width of f's enclosure; ends where it exceeds the limit, edges first."""
    coordinates, worst = grid_coordinates(target.box, plan.counts), 0.0
    for start, stop in sorted(chunks(plan.cells), key=lambda one: min(one[0], plan.cells - one[0] - 1)):
        if worst > limit:
            return worst
        f = enclose_cells(target, coordinates, plan.counts, start, stop, plan.margin)
        worst = max(worst, float((f.hi / 2.0 - f.lo / 2.0).max()))
    return worst


@dataclass(frozen=True)
class CentresPlan:
    """Theorem I: centres that cover a set of points within `radius`, multiplier R of -|x - v|^2/2."""

    centres: Array  # (N, D)
    radius: float
    multiplier: float
    predicted: float
    argument: str = "I"

    @property
    def cells(self) -> int:
        """N."""
        return len(self.centres)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the centres are the layer's keys."""
        return {"plan": "centres", "argument": self.argument, "radius": self.radius, "multiplier": self.multiplier}


def covering_plans(points: Array, euclidean: float, error: float) -> Iterator[CentresPlan]:
    """Few centres among the points with L sqrt(r^2 + 2 log N / R) <= error for every x within r of a centre.

    With R = 2 log N / ((k^2 - 1) r^2) the bound is k L r; k near 1 keeps the radius large and the centres few.
    """
    for k in (1.02, 1.1, 1.25, 1.6):
        if euclidean <= 0:
            yield covering_plan(points[:1], float(np.linalg.norm(points - points[0], axis=1).max()) + 1.0, 2.0, 0.0)
            return
        radius = error / (k * euclidean)
        centres = points[farthest_points(points, radius * (1 - 1e-6))[0]]
        yield covering_plan(centres, radius, k, euclidean)


def covering_plan(centres: Array, radius: float, k: float, euclidean: float) -> CentresPlan:
    """Given centres and radius: the multiplier for which the bound is k L r."""
    multiplier = 2.0 * math.log(max(len(centres), 2)) / ((k * k - 1.0) * radius * radius)
    return CentresPlan(centres, radius, multiplier, euclidean * k * radius)


def farthest_points(points: Array, radius: float) -> tuple[NDArray[np.intp], float]:
    """Indices of points chosen farthest first until all lie within `radius` of one; and the radius reached."""
    chosen = []
    for index, left in farthest_first(points):
        chosen.append(index)
        if left <= radius:
            break
    return np.asarray(chosen), left


def farthest_first(points: Array, start: int = 0) -> Iterator[tuple[int, float]]:
    """Without end, the index of the point farthest from those before it, and how far the rest is after that choice."""
    index, distance = start, np.full(len(points), np.inf)
    while True:
        distance = np.minimum(distance, np.linalg.norm(points - points[index], axis=1))
        yield index, float(distance.max())
        index = int(distance.argmax())


@dataclass(frozen=True)
class PartitionPlan:
    """A max-affine partition given by the user: scores times `sharpness`, cells enlarged by `margin`, and their values."""

    partition: MaxAffine
    sharpness: float
    margin: float
    values: Array  # (N, d_out, n_out)
    argument: str = "G4"

    @property
    def cells(self) -> int:
        """N."""
        return len(self.partition.b)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the pieces are the layer's keys."""
        return {"plan": "partition", "argument": self.argument, "margin": self.margin}


Plan = GridPlan | CentresPlan | PartitionPlan
