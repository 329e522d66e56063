"""Plans for an L_p error: cells from the residual of p-means seen on samples, sharpness from the soft part's closed form."""

import math
from collections.abc import Iterator

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.grid import all_samples, grid_coordinates, p_mean
from maxaffine.heads.lookup.plan import GridPlan, smallest_count
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

CELL_LIMIT = 1 << 21
FORESEEN = 32  # cells along a variable from which on it is foreseen what the most of them reach
BEYOND = 1.5  # times the error wanted: what is foreseen is no less
SOFT_SHARE = 0.04  # of the error is left to the transition layers between cells; sharpness is what pays for it
SHARPEST = 1e7  # logits then reach 1e7 P^2/4, still resolved in float64


def provable(evidence: Evidence, dimension: int) -> bool:
    """Whether an L_p error of a callable can be proved from declared facts."""
    if evidence.lipschitz is not None or (evidence.variation is not None and dimension == 1):
        return True
    return evidence.integral_modulus is not None and evidence.cell_means is not None


def plans(target: Target, evidence: Evidence, error: float, p: float) -> Iterator[GridPlan]:
    """Grids of growing size, the first one where samples say that the hard part fits."""
    used = target.expression.used if target.expression is not None else target.box.names
    active = [name in used for name in target.box.names]
    D = max(1, sum(active))

    def counts(count: int) -> tuple[int, ...]:
        return tuple(count if on else 1 for on in active)

    most = 2 ** int(math.log2(CELL_LIMIT) / D)  # counts are doubled
    refusal = f"`error` (={error:.4g}) in L_{p:g} needs more than {CELL_LIMIT:,} cells; ask for a larger error."

    def fits(count: int) -> bool:
        declared = target.expression is None and provable(evidence, len(active))
        seen = declared_residual(target, evidence, counts(count), p) if declared else residual(target, counts(count), p)[0]
        within = seen * count / most / 0.93  # values that are constant on cells gain at most what cells get narrower
        if count >= FORESEEN and within > BEYOND * error:
            raise Refused(refusal, nearest_error=1.1 * within)
        return seen <= 0.93 * error

    least = smallest_count(fits, 1, 64, lambda count: math.prod(counts(count)) > CELL_LIMIT)
    if least is None:
        raise Refused(refusal)
    for factor in (1.0, 1.05, 1.12, 1.25, 1.5, 2.0, 3.0):
        chosen = counts(math.ceil(least * factor))
        if math.prod(chosen) > 4**D * CELL_LIMIT:
            return
        hard, steps = residual(target, chosen, p)
        yield GridPlan("L_p", chosen, sharpness(steps, SOFT_SHARE * error, p, len(chosen)), hard, norm=p)


def declared_residual(target: Target, evidence: Evidence, counts: tuple[int, ...], p: float) -> float:
    """The hard part as declared facts prove it for a callable, whose cells cannot be enclosed: the least that applies."""
    widths, root = target.box.width / np.asarray(counts), float(target.box.volume) ** (1.0 / p)
    bounds = [math.inf]
    if evidence.lipschitz is not None:
        bounds.append(root * evidence.reach(widths))
    if evidence.variation is not None and len(counts) == 1:
        bounds.append(float(widths[0]) ** (1.0 / p) * float(evidence.variation[0]))
    if evidence.integral_modulus is not None and evidence.cell_means is not None:
        bounds.append(2.0 ** (len(counts) / p) * float(evidence.integral_modulus(widths)))
    return min(bounds)


def residual(target: Target, counts: tuple[int, ...], p: float) -> tuple[float, float]:
    """||f - p-mean||_p seen on samples, and sum_i delta_i of the soft part; the largest over the outputs."""
    coordinates = grid_coordinates(target.box, counts)
    cells = math.prod(counts)
    total = np.zeros(target.d_out * target.n_out)
    values = np.empty((cells, len(total)))
    for start, stop, samples in all_samples(target, coordinates, counts):
        values[start:stop] = p_mean(samples, p)
        total += (np.abs(samples - values[start:stop, None]) ** p).mean(axis=1).sum(axis=0)
    volume = target.box.volume / cells
    grid = values.reshape(*counts, len(total))
    steps = np.zeros(len(total))
    for axis in range(len(counts)):
        jumps = np.abs(np.diff(grid, axis=axis)).reshape(-1, len(total))
        steps += ((jumps**p).sum(axis=0) * volume) ** (1.0 / p)
    return float((total * volume).max() ** (1.0 / p)), float(steps.max())


def sharpness(steps: float, limit: float, p: float, dimension: int) -> float:
    """The least sharpness from 20 up, in steps of 1.25, for which the soft part F2 is at most `limit`."""
    rho = 20.0
    while rho < SHARPEST and steps * theorems.soft_constant(rho, p, dimension) > limit:
        rho *= 1.25
    return rho
