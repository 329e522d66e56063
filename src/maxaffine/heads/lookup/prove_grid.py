"""Sup-norm certificates of lookups on a uniform grid: E1 to E4 (values f(centre)), G4 (cell enclosures) and C (one value).

The proof speaks about the STORED layer: cell widths are read off its coordinates, its values are compared with
enclosures of f at the true centres, and every rounding enters as a logit error (proofs/rounding.py, heads/lookup/theorems.py).
"""

import math
from collections.abc import Callable

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_dtype, dtype_of
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.grid import cell_widths, chunks, enclose_cells, site_intervals, values_at
from maxaffine.layer.layer import Layer
from maxaffine.proofs.assumptions import CALLABLE, ELEMENTARY, EXPONENTIAL
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.rounding import Rounding, is_unit_grid, offset_error, rounding_of, window_leak
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target

THEOREMS = {
    "E1": "E1: |f(x)-f(y)| <= sum_i L_i|x_i-y_i| gives error <= (1/2 + 2q/(1-q)) sum_i L_i h_i",
    "E2": "E2: |f(x)-f(y)| <= L|x-y|_2 gives error <= L sqrt((1/4 + (2/rho) W0(1/e) + tau2) sum_i h_i^2)",
    "E3": "E3: modulus w in max|x_i-y_i| gives error <= w(max h_i) + range D q/(1-q)",
    "E4": "E4: concave modulus w in sum|x_i-y_i| gives error <= w((1/2 + 2q/(1-q)) sum_i h_i)",
    "C": "C: one token, error <= max(sup f - y, y - inf f), the range of f enclosed by branch and bound",
    "G4": "G4: error <= max_j sup |f - y_j| on cells enlarged by g + range D (e^{-rho g} + q/(1-q))",
}


def certify_grid(layer: Layer, target: Target, evidence: Evidence, argument: str, margin: float = 0.0,
                 runtime: str = "arrays", deviation: tuple[float, float] | None = None) -> Certificate:  # fmt: skip
    """Prove a sup-norm bound for a stored lookup on a uniform grid; `deviation` of its values where it is known already."""
    if not is_unit_grid(layer):
        raise Refused("the stored keys are not those of a uniform grid; the lookup theorems do not apply.")
    rounding = rounding_of(layer, runtime)
    eta = rounding.eta + layer.sharpness * offset_error(layer)
    approximation, bound = _BOUNDS[argument](layer, target, evidence, margin)
    exact, rounded = bound(0.0), bound(eta)
    leakage = exact - approximation if math.isfinite(exact) else math.inf
    moved = rounded - exact if math.isfinite(rounded) else math.inf
    if argument in ("G4", "C"):
        deviation = (0.0, 0.0)
    elif deviation is None:
        deviation = values_deviation(layer, target, evidence)
    parts = {
        "approximation": approximation, "leakage": leakage + window_leak(layer, runtime),
        "rounding": moved + deviation[1] + runtime_rounding(layer, rounding), "target_rounding": deviation[0],
    }  # fmt: skip
    assumptions = [EXPONENTIAL, ELEMENTARY if target.expression is not None else CALLABLE]
    assumptions += [f"{name} {evidence.source(name)}" for name in _USES[argument] if evidence.source(name) != "not known"]
    return Certificate.proved(
        math.inf, parts, argument=argument, theorem=THEOREMS[argument], assumptions=tuple(assumptions), dtype=layer.dtype,
        runtime=runtime, details={"eta": eta, "sharpness": layer.sharpness, "margin": margin},
    )  # fmt: skip


_USES = {
    "E1": ("lipschitz",), "E2": ("euclidean",), "E3": ("modulus", "range"), "E4": ("concave_modulus",), "G4": (),
    "C": ("range",),
}  # fmt: skip


def runtime_rounding(layer: Layer, rounding: Rounding) -> float:
    """Summation, stray weights, and products of weights with small values that underflow, in units of the output.

    Infinite where a sum of values, before it is divided by its normaliser, may be too large for the dtype.
    """
    largest, dtype = layer.largest, dtype_of(layer.dtype)
    if not largest * (1.0 + rounding.summation / dtype.unit) < float(np.finfo(compute_dtype(layer.dtype)).max) / 2.0:
        return math.inf
    underflow = rounding.summation / dtype.unit * dtype.tiny  # as many products and partial sums as `summation` counts
    return rounding.summation * largest + 2.0 * rounding.stray * largest + underflow


def values_of_cells(layer: Layer) -> Array:
    """The stored values (N, d_out, n_out), in the order of the cells."""
    return layer.values.reshape(layer.keys.count, layer.d_out, layer.n_out).astype(np.float64)


Bound = Callable[[float], float]  # of the error, for logits off by eta


def _e1(layer: Layer, target: Target, evidence: Evidence, margin: float) -> tuple[float, Bound]:
    reach = evidence.reach(cell_widths(layer.coordinates)) * (1 + 1e-14)
    return 0.5 * reach, lambda eta: theorems.mean_distance(layer.sharpness, eta) * reach


def _e2(layer: Layer, target: Target, evidence: Evidence, margin: float) -> tuple[float, Bound]:
    assert evidence.euclidean is not None
    reach = evidence.euclidean * float(np.linalg.norm(cell_widths(layer.coordinates))) * (1 + 1e-14)
    return 0.5 * reach, lambda eta: math.sqrt(theorems.mean_square(layer.sharpness, eta)) * reach


def _e3(layer: Layer, target: Target, evidence: Evidence, margin: float) -> tuple[float, Bound]:
    assert evidence.modulus is not None
    near = float(evidence.modulus(float(cell_widths(layer.coordinates).max())))
    spread = evidence.range_bound(layer.high - layer.low) * layer.dimension
    return near, lambda eta: near + spread * theorems.tail(layer.sharpness, eta)


def _e4(layer: Layer, target: Target, evidence: Evidence, margin: float) -> tuple[float, Bound]:
    modulus, total = evidence.concave_modulus, float(cell_widths(layer.coordinates).sum()) * (1 + 1e-14)
    assert modulus is not None
    return float(modulus(0.5 * total)), lambda eta: float(modulus(theorems.mean_distance(layer.sharpness, eta) * total))


def _g4(layer: Layer, target: Target, evidence: Evidence, margin: float) -> tuple[float, Bound]:
    approximation = 0.0
    lowest, highest = float(layer.values.min()), float(layer.values.max())
    values = values_of_cells(layer)
    for start, stop in chunks(len(values)):
        f = enclose_cells(target, layer.coordinates, layer.keys.shape, start, stop, margin)
        lowest, highest = min(lowest, float(f.lo.min())), max(highest, float(f.hi.max()))
        away = np.maximum(f.hi - values[start:stop], values[start:stop] - f.lo)
        approximation = max(approximation, float(away.max()) * (1 + 4 * FLOAT64.unit))
    spread = (highest - lowest) * (1 + 4 * FLOAT64.unit) * layer.dimension
    return approximation, lambda eta: approximation + spread * theorems.outside_enlarged(layer.sharpness, margin, eta)


def _c(layer: Layer, target: Target, evidence: Evidence, margin: float) -> tuple[float, Bound]:
    """The softmax over one key is 1 whatever its logit, so nothing leaks."""
    if evidence.extent is None or layer.keys.count != 1:
        raise Refused("one value for the whole box is proved where there is one key and the range of the target is known.")
    value = layer.values.reshape(-1).astype(np.float64)
    away = float(np.maximum(evidence.extent[1] - value, value - evidence.extent[0]).max()) * (1 + 4 * FLOAT64.unit)
    return away, lambda eta: away


_BOUNDS = {"E1": _e1, "E2": _e2, "E3": _e3, "E4": _e4, "G4": _g4, "C": _c}


def values_deviation(layer: Layer, target: Target, evidence: Evidence) -> tuple[float, float]:
    """max_j of the uncertainty about f(centre_j) and of |stored value - best value|: (target_rounding, storage)."""
    uncertainty, storage = 0.0, 0.0
    values = values_of_cells(layer)
    for start, stop in chunks(len(values)):
        sites = site_intervals(layer.coordinates, layer.keys.shape, start, stop)
        middle, blur = values_at(target, sites)
        if target.expression is None:
            blur = evidence.range_bound((sites.hi - sites.lo).max(axis=0))
        uncertainty = max(uncertainty, blur)
        storage = max(storage, float(np.abs(values[start:stop] - middle).max()))
    return uncertainty, storage * (1 + 4 * FLOAT64.unit)
