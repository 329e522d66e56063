"""L_p certificates of lookups, 1 <= p < infinity, for targets that may jump.

    ||F - f||_p <= ||f - g||_p (hard) + ||F - g||_p (soft),       g = the stored value on each cell

Hard part, never by quadrature: (1) enclosures of |f - y_j|^p on pieces of the cells, refined where they are loose, a piece
that a jump crosses counting with its full oscillation; (2) declared total variation on one axis, or a declared
integral modulus together with declared cell means; (3) Lipschitz constants.  Soft part: the smaller of

    F1  range(y) (|box| D cell_average(rho))^{1/p}          F2  C^{(D-1)/p} mu_p(rho)^{1/p} sum_i delta_i,

delta_i^p = sum_j |y_{j+e_i} - y_j|^p prod h, both computed from the stored values; logit errors multiply it by kappa^{1/p},
since perturbed weights are at most kappa times the exact ones.
"""

import math

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import dtype_of
from maxaffine.core.scope import Scope
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.grid import CHUNK, CellMeans, cell_widths, chunks, declared_means, site_intervals
from maxaffine.heads.lookup.prove_grid import runtime_rounding, values_of_cells
from maxaffine.layer.layer import Layer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.rounding import is_unit_grid, offset_error, rounding_of, window_leak
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

UP = 1.0 + 1e-9  # sums of up to 1e6 positive terms in float64
PIECES = 3_000_000  # pieces of cells that the enclosures may be refined into
ROUNDS = 100  # of refinement
LOOSENESS = 0.01  # refinement stops when the upper sum exceeds the lower one by less than this


def certify_integral(
    layer: Layer, target: Target, evidence: Evidence, p: float, runtime: str = "arrays", progress: Progress = silent
) -> Certificate:
    """Prove an L_p bound for a stored lookup on a uniform grid."""
    if not is_unit_grid(layer):
        raise Refused("the stored keys are not those of a uniform grid; the lookup theorems do not apply.")
    rounding = rounding_of(layer, runtime)
    eta = rounding.joint + layer.sharpness * offset_error(layer)
    hard, how = hard_part(layer, target, evidence, p, progress)
    soft = soft_part(layer, p)
    exact = min(soft)
    volume = float(np.prod(layer.high - layer.low)) ** (1.0 / p)
    parts = {
        "approximation": hard,
        "leakage": exact + volume * window_leak(layer, runtime),
        "rounding": exact * math.expm1(min(2.0 * eta / p, 700.0)) + volume * runtime_rounding(layer, rounding),
    }
    assumptions = [EXPONENTIAL, ELEMENTARY] if target.expression is not None else [EXPONENTIAL]
    argument = "F1" if soft[0] <= soft[1] else "F2"
    return Certificate.proved(
        p, parts, argument=f"L_p, {argument}", theorem=f"hard part by {how}; soft part by {argument}",
        assumptions=tuple(assumptions), dtype=layer.dtype, runtime=runtime,
        scope=Scope("integral"),
        details={"eta": eta, "sharpness": layer.sharpness, "hard": hard, "soft_F1": soft[0], "soft_F2": soft[1]},
    )  # fmt: skip


def soft_part(layer: Layer, p: float) -> tuple[float, float]:
    """(F1, F2), each the largest over the output entries."""
    values = layer.values.astype(np.float64).reshape(*layer.keys.shape, -1)
    D, rho = layer.dimension, layer.sharpness
    widths = cell_widths(layer.coordinates)
    flat = values.reshape(-1, values.shape[-1])
    spread = float((flat.max(axis=0) - flat.min(axis=0)).max())
    box = float(np.prod(layer.high - layer.low))
    first = spread * (box * D * theorems.cell_average(rho)) ** (1.0 / p)
    total = np.zeros(values.shape[-1])
    for axis in range(D):
        jumps = np.abs(np.diff(values, axis=axis)).reshape(-1, values.shape[-1])
        total += ((jumps**p).sum(axis=0) * float(np.prod(widths))) ** (1.0 / p)
    return first * UP, float(total.max()) * theorems.soft_constant(rho, p, D) * UP


def hard_part(layer: Layer, target: Target, evidence: Evidence, p: float, progress: Progress = silent) -> tuple[float, str]:
    """||f - g||_p and the way it was proved, the best of those that apply."""
    found: list[tuple[float, str]] = []
    if target.expression is not None:
        found.append((_enclosed(layer, target, p, progress), "enclosures of |f - y|^p"))
    volume = float(np.prod(layer.high - layer.low))
    widths = cell_widths(layer.coordinates)
    # Before they were rounded to the dtype, the values were p-means of f on their cells.
    dtype = dtype_of(layer.dtype)
    stored = (8.0 * dtype.unit * float(np.abs(layer.values).max()) + dtype.tiny) * volume ** (1 / p)
    if evidence.lipschitz is not None:
        found.append((volume ** (1 / p) * evidence.reach(widths) * UP + stored, "Lipschitz constants"))
    if evidence.variation is not None and layer.dimension == 1:
        # y_j lies between values of f on its cell, so |f - y_j| <= Var_j there: sum_j h Var_j^p <= h V^p
        total = float(widths[0]) ** (1 / p) * float(evidence.variation[0])
        found.append((total * UP + stored, "declared total variation"))
    if evidence.integral_modulus is not None and evidence.cell_means is not None:
        reach = float(evidence.integral_modulus(widths))
        away = _from_means(layer, target, evidence.cell_means) * volume ** (1 / p)
        found.append((2.0 ** (layer.dimension / p) * reach * UP + away, "declared integral modulus and cell means"))
    if not found:
        raise Refused(
            "the L_p error of a callable cannot be proved without facts; declare `lipschitz=`, or on one axis "
            "`modulus=ma.TotalVariation(V)`, or give an expression."
        )
    return min(found)


def _from_means(layer: Layer, target: Target, means: CellMeans) -> float:
    """max |stored value - declared mean of its cell|."""
    worst, values = 0.0, values_of_cells(layer)
    for start, stop in chunks(len(values)):
        exact = declared_means(means, target, layer.coordinates, layer.keys.shape, start, stop)
        worst = max(worst, float(np.abs(values[start:stop] - exact).max()))
    return worst * UP


def _enclosed(layer: Layer, target: Target, p: float, progress: Progress) -> float:
    """By enclosures of |f - y|^p on boxes of the cells, per output."""
    count, D = layer.keys.count, layer.dimension
    values = layer.values.reshape(count, -1).astype(np.float64)
    cells = site_intervals(layer.coordinates, layer.keys.shape, 0, count, 0.5)
    low, high = np.maximum(cells.lo, layer.low), np.minimum(cells.hi, layer.high)
    # A jump that meets a cell's face leaves a hard part of zero; below this, refining buys nothing.
    negligible = float(np.prod(layer.high - layer.low)) * (1e-5 * float(np.ptp(values))) ** p

    def measure(low: Array, high: Array, values: Array) -> tuple[Array, Array]:
        parts = [target.enclose(low[k : k + CHUNK], high[k : k + CHUNK]) for k in range(0, len(low), CHUNK)]
        lo, hi = (np.concatenate(ends).reshape(values.shape) for ends in zip(*((f.lo, f.hi) for f in parts), strict=True))
        volume = np.prod(high - low, axis=1)[:, None]
        upper = volume * np.maximum(hi - values, values - lo) ** p * (1 + 1e-12)
        lower = volume * np.maximum(0.0, np.maximum(lo - values, values - hi)) ** p * (1 - 1e-12)
        return np.where(volume > 0, upper, 0.0), np.where(volume > 0, lower, 0.0)

    def enough(upper: Array, lower: Array, spent: int) -> bool:
        progress("enclosures", min(spent, PIECES), PIECES)
        worst = int(upper.argmax())
        gap = float(upper[worst] - lower[worst])
        return math.isfinite(gap) and gap <= LOOSENESS * p * max(float(upper[worst]), negligible)

    axes = None if D <= 3 else [int(axis) for axis in np.argsort((high - low).max(axis=0))[-3:]]
    upper, _ = boxes.integral(low, high, values, measure, enough, budget=PIECES, rounds=ROUNDS, share=0.9, axes=axes)
    return float(upper.max() ** (1.0 / p)) * UP if np.isfinite(upper).all() else math.inf
