"""Sup-norm certificates over any keys: Theorem G4 on a given max-affine partition, Theorem I on covering centres.

G4, for every g > 0 and values y_j:   sup |F - f| <= max_j sup_{U_j^g} |f - y_j| + range (N-1) kappa e^{-R g},

U_j^g = {x : s_j(x) >= MaxAff(x) - g} the enlarged cells.  Each is boxed by linear programs whose DUAL solutions prove the
box: for any y >= 0, max {c.z : A z <= r, |z_i| <= 1} <= y.r + sum_i |c - A^T y|_i, whatever the solver did.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.core.scope import Scope
from maxaffine.heads.lookup import theorems
from maxaffine.heads.lookup.grid import enclose_in_pieces
from maxaffine.heads.lookup.plan import PartitionPlan
from maxaffine.heads.lookup.prove_grid import runtime_rounding
from maxaffine.layer.layer import Layer
from maxaffine.layer.maxaffine import MaxAffine
from maxaffine.proofs.assumptions import CALLABLE, ELEMENTARY, EXPONENTIAL
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.rounding import rounding_of
from maxaffine.target.evidence import Evidence
from maxaffine.target.target import Target


def cell_boxes(slopes: Array, offsets: Array, margin: float, progress: Progress = silent) -> tuple[Array, Array]:
    """Boxes (N, E) in [-1, 1]^E that contain the enlarged cells; low > high marks a cell proved empty."""
    count, E = slopes.shape
    low, high = -np.ones((count, E)), np.ones((count, E))
    for j in range(count):
        others = np.arange(count) != j
        A = slopes[others] - slopes[j]
        r = offsets[j] - offsets[others] + margin
        gap = _dual_bound(np.r_[np.zeros(E), 1.0], np.c_[A, np.ones(len(A))], r, slack=True)
        if gap < 0.0:
            low[j], high[j] = 1.0, -1.0
        else:
            for i in range(E):
                unit = np.eye(E)[i]
                high[j, i] = min(1.0, _dual_bound(unit, A, r))
                low[j, i] = max(-1.0, -_dual_bound(-unit, A, r))
        progress("cells", j + 1, count)
    return low, high


def _dual_bound(c: Array, A: Array, r: Array, slack: bool = False) -> float:
    """A proved upper bound of max c.z over A z <= r, |z_i| <= 1 (a last slack variable in [-reach, reach])."""
    from scipy.optimize import linprog

    reach = np.ones(len(c))
    if slack:
        reach[-1] = float(np.abs(r).max(initial=0.0) + np.abs(A[:, :-1]).sum(axis=1).max(initial=0.0)) + 1.0
    if len(A) == 0:
        return float(np.abs(c) @ reach)
    result = linprog(-c, A_ub=A, b_ub=r, bounds=np.c_[-reach, reach], method="highs")
    y = np.zeros(len(r)) if result.ineqlin is None or result.status != 0 else np.maximum(-result.ineqlin.marginals, 0.0)
    rest = c - A.T @ y
    uncertainty = gamma(len(r) + len(c) + 8, FLOAT64.unit)
    uncertainty *= float(y @ np.abs(r) + (np.abs(c) + np.abs(A).T @ y) @ reach)
    return float(y @ r + np.abs(rest) @ reach) + 4.0 * uncertainty


def certify_partition(
    layer: Layer, target: Target, evidence: Evidence, margin: float, runtime: str = "arrays", progress: Progress = silent
) -> Certificate:
    """Theorem G4 for a stored layer over any listed keys, enlarged by `margin` in units of the scores."""
    assert not layer.keys.is_product
    slopes, offsets = layer.keys.slopes.astype(np.float64), layer.keys.offsets.astype(np.float64)
    low, high = cell_boxes(slopes, offsets, margin, progress)
    approximation = _cell_oscillation(layer, target, evidence, low, high)
    values = layer.values.astype(np.float64)
    spread = 2.0 * approximation + float((values.max(axis=0) - values.min(axis=0)).max())
    rounding = rounding_of(layer, runtime)
    exact = spread * (layer.keys.count - 1) * math.exp(-layer.sharpness * margin)
    parts = {
        "approximation": approximation,
        "leakage": exact,
        "rounding": exact * (theorems.kappa_of(rounding.eta) - 1.0) + runtime_rounding(layer, rounding),
    }
    words = (EXPONENTIAL, ELEMENTARY) if target.expression is not None else (
        EXPONENTIAL, CALLABLE,
        *(f"{name} {evidence.source(name)}" for name in ("lipschitz", "euclidean") if getattr(evidence, name) is not None),
    )  # fmt: skip
    return Certificate.proved(
        math.inf, parts, argument="G4, given partition",
        theorem="G4: error <= max_j sup |f - y_j| on enlarged cells + range (N-1) e^{-R g}", assumptions=words,
        dtype=layer.dtype, runtime=runtime,
        details={"eta": rounding.eta, "sharpness": layer.sharpness, "margin": margin},
    )  # fmt: skip


def _cell_oscillation(layer: Layer, target: Target, evidence: Evidence, low: Array, high: Array) -> float:
    """max_j sup |f - y_j| over boxes given in coordinates."""
    alive = np.all(low <= high, axis=1)
    values = layer.values.astype(np.float64)[alive]
    scale, centre = Interval.point(np.diag(layer.coordinates.matrix)), Interval.point(layer.coordinates.centre)
    box = Interval.of(low[alive], high[alive]) / scale + centre
    left, right = np.maximum(box.lo, layer.low), np.minimum(box.hi, layer.high)
    if target.expression is not None:
        f = _enclosed(target, left, right)
        return float(np.maximum(f.hi - values, values - f.lo).max()) * (1 + 4 * FLOAT64.unit)
    middle = left / 2.0 + right / 2.0
    reach = np.maximum(right - middle, middle - left) * (1 + 4 * FLOAT64.unit)
    near = np.abs(target.values(middle) - values).max(axis=(1, 2))
    bounds = []
    if evidence.lipschitz is not None:
        bounds.append(reach @ evidence.lipschitz)
    if evidence.euclidean is not None:
        bounds.append(evidence.euclidean * np.linalg.norm(reach, axis=1))
    if not bounds:
        raise Refused("a given partition is proved for a callable only with `lipschitz=` declared.")
    return float((near + np.min(bounds, axis=0)).max()) * (1 + 1e-12)


def certify_centres(layer: Layer, target: Target, evidence: Evidence, radius: float, runtime: str = "arrays") -> Certificate:
    """Theorem I: for every x of the box within `radius` of a stored centre, error <= L sqrt(r^2 + 2 (log N + 2 eta)/R)."""
    assert not layer.keys.is_product
    scale = float(layer.coordinates.matrix[0, 0])
    slopes, offsets = layer.keys.slopes.astype(np.float64), layer.keys.offsets.astype(np.float64)
    square = (slopes * slopes).sum(axis=1) / 2.0
    drift = float(np.abs(offsets + square).max()) + gamma(layer.dimension + 2, FLOAT64.unit) * float(square.max())
    rounding = rounding_of(layer, runtime)
    eta = rounding.eta + layer.sharpness * drift
    multiplier = layer.sharpness * scale * scale
    L = euclidean_constant(evidence)
    exact = L * theorems.covering(radius, layer.keys.count, multiplier)
    rounded = L * theorems.covering(radius, layer.keys.count, multiplier, eta)
    centre = layer.coordinates.centre
    sites = Interval.point(slopes) / Interval.point(scale) + Interval.point(centre)
    values = layer.values.astype(np.float64)
    if target.expression is not None:
        f = target.enclose(sites.lo, sites.hi)
        uncertainty, storage = float((f.hi - f.lo).max()), float(np.abs(values - (f.lo / 2.0 + f.hi / 2.0)).max())
    else:
        points = sites.lo / 2.0 + sites.hi / 2.0
        uncertainty = L * float(np.linalg.norm(sites.hi - sites.lo, axis=1).max())
        storage = float(np.abs(values - target.values(points)).max())
    parts = {
        "approximation": L * radius,
        "leakage": exact - L * radius,
        "rounding": rounded - exact + storage + runtime_rounding(layer, rounding),
        "target_rounding": uncertainty,
    }
    name = "euclidean" if evidence.euclidean is not None else "lipschitz"
    return Certificate.proved(
        math.inf, parts, argument="I",
        theorem="I: centres within r of every x give error <= L sqrt(r^2 + 2 log N / R)",
        assumptions=(EXPONENTIAL, f"{name} {evidence.source(name)}"), dtype=layer.dtype, runtime=runtime,
        scope=Scope("centres", radius=radius, count=layer.keys.count),
        details={"eta": eta, "sharpness": layer.sharpness, "radius": radius, "multiplier": multiplier},
    )  # fmt: skip


def euclidean_constant(evidence: Evidence) -> float:
    """The Euclidean Lipschitz constant, from itself or from the constants per axis."""
    if evidence.euclidean is not None:
        return float(evidence.euclidean)
    if evidence.lipschitz is not None:
        return float(np.linalg.norm(evidence.lipschitz)) * (1 + 1e-14)
    raise Refused("covering centres need a Lipschitz constant; declare `lipschitz=` or give an expression.")


def partition_plan(
    partition: MaxAffine, target: Target, evidence: Evidence, error: float, progress: Progress = silent
) -> PartitionPlan:
    """Margin, sharpness and mid-range values for a given partition.

    The margin is a fiftieth of the median lead of the winning piece over the box; the sharpness makes what leaks past it
    a hundredth of the error.
    """
    rng = np.random.default_rng(0)
    leads = partition.margin(target.box.sample(4096, rng)) if len(partition.b) > 1 else np.ones(1)
    margin = float(np.median(leads)) / 50.0 or 1.0
    centre, half = (target.box.low + target.box.high) / 2.0, (target.box.high - target.box.low) / 2.0
    slopes, offsets = partition.A * half, partition.b + partition.A @ centre
    low, high = cell_boxes(slopes, offsets, margin, progress)
    empty = np.any(low > high, axis=1)
    low, high = np.where(empty[:, None], -1.0, low), np.where(empty[:, None], 1.0, high)
    left, right = target.box.clip(centre + half * low), target.box.clip(centre + half * high)
    if target.expression is not None:
        f = _enclosed(target, left, right)
        values = f.lo / 2.0 + f.hi / 2.0
    else:
        values = target.values(left / 2.0 + right / 2.0)
    spread = max(evidence.range_bound(target.box.width), error)
    spread = spread if math.isfinite(spread) else max(float(np.ptp(values)), error)
    sharpness = math.log(200.0 * max(len(partition.b) - 1, 1) * spread / error) / margin
    return PartitionPlan(partition, max(sharpness, 1e-300), margin, values)


def _enclosed(target: Target, left: Array, right: Array) -> Interval:
    return enclose_in_pieces(target, left, right, {1: 64, 2: 12, 3: 5}.get(left.shape[1], 2))
