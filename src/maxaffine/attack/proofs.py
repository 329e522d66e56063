"""The attack on the proofs: random layers, their errors maximised, against what was proved of them.

Layers are attacked as compiled, and again with keys and values of the stored layer perturbed and everything certified anew,
by the certificate and by the independent checker: not one point may lie above a proved bound.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from maxaffine.attack.adversary import worst_error
from maxaffine.attack.smooth_targets import Case, random_case
from maxaffine.checker import check
from maxaffine.core.errors import MaxaffineError
from maxaffine.core.progress import Progress, silent
from maxaffine.heads.spectral.prove import certify_spectral
from maxaffine.layer.file import from_tensors
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.keys import AxisKeys
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

MOST_TOKENS = 20_000  # of a lookup under attack: more keys are slower, not harder


@dataclass
class Tally:
    """What was attacked and what was found; `worst` is the largest observed/proved ratio, which must stay below 1."""

    layers: int = 0
    proved: int = 0
    refused: int = 0
    perturbed: int = 0
    rechecked: int = 0
    unprovable: int = 0  # perturbed layers that the proofs refused, or bounded by nothing
    points: int = 0
    worst: float = 0.0
    worst_case: str = ""
    by_dtype: dict[str, int] = field(default_factory=dict)
    by_argument: dict[str, int] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def record(self, what: str, case: Case, bound: float, error: float, at: Any) -> None:
        """One bound against one error found."""
        self.points += 1
        ratio = error / bound if bound > 0 else (0.0 if error == 0 else float("inf"))
        if ratio > self.worst:
            self.worst, self.worst_case = ratio, f"{what}: {case.text} on {case.box}, {case.error:.3g}, {case.dtype}"
        if not error <= bound:
            place = [float(v) for v in np.ravel(at)]
            self.violations.append({"what": what, "target": case.text, "box": repr(case.box), "error": case.error,
                                    "dtype": case.dtype, "bound": bound, "found": error, "at": place})  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


def attack(
    compile: Callable[..., Any], *, layers: int = 500, seed: int = 0, seconds: float | None = None, progress: Progress = silent
) -> Tally:
    """Attack `layers` random layers made by `compile`, or as many as fit into `seconds`."""
    begun, tally, rng = time.perf_counter(), Tally(), np.random.default_rng(seed)
    while tally.layers < layers and (seconds is None or time.perf_counter() - begun < seconds):
        case = random_case(rng)
        progress("attack", tally.layers, layers)
        one = np.random.default_rng(rng.integers(1 << 62))
        try:
            compiled = compile(case.text, case.box, error=case.error, method=case.method, dtype=case.dtype, norm=case.norm,
                               max_bytes=1 << 28)  # fmt: skip
        except MaxaffineError:
            tally.refused += 1
            continue
        if compiled.tokens > MOST_TOKENS and case.method == "lookup":
            tally.refused += 1
            continue
        tally.layers += 1
        tally.by_dtype[case.dtype] = tally.by_dtype.get(case.dtype, 0) + 1
        argument = compiled.certificate.argument
        tally.by_argument[argument] = tally.by_argument.get(argument, 0) + 1
        if compiled.certificate.kind == "proved":
            tally.proved += 1
            _attack_one(tally, case, compiled, one)
    tally.seconds = time.perf_counter() - begun
    return tally


def _attack_one(tally: Tally, case: Case, compiled: Any, rng: np.random.Generator) -> None:
    if case.norm != "inf":
        tally.record("as compiled, L_p by quadrature", case, compiled.bound, compiled.observed.surely, compiled.observed.at)
        return
    scale = 10.0 ** rng.uniform(-9.0, -1.0)
    if compiled.weights.has_clusters:
        _attack_clusters(tally, case, compiled, scale, rng)
        return
    _storm(tally, "as compiled", case, compiled.weights, compiled.target, compiled.bound, rng)
    if compiled.weights.grouped:
        layer = perturbed(compiled.weights, scale, rng)
        tally.perturbed += 1
        try:
            bound = certify_spectral(layer, compiled.spectral, case.error).bound
        except MaxaffineError:
            bound = None
        if bound is None or not np.isfinite(bound):
            tally.unprovable += 1
        else:
            _storm(tally, f"perturbed by {scale:.1e}", case, layer, compiled.target, bound, rng)
    if rng.random() < 0.4:
        _recheck(tally, case, compiled, 0.0 if rng.random() < 0.3 else scale, rng)


def _attack_clusters(tally: Tally, case: Case, compiled: Any, scale: float, rng: np.random.Generator) -> None:
    """Layers of clusters: every runtime against the bound that is proved of it alone, then the checker on moved numbers."""
    for runtime in chooser.available(compiled.weights):
        try:
            bound = compiled.certificate_for(runtime).bound
        except MaxaffineError:
            bound = None
        if bound is not None and np.isfinite(bound):
            _storm(tally, "as compiled", case, compiled.weights, compiled.target, bound, rng, (runtime,))
    _recheck(tally, case, compiled, 0.0, rng)
    _recheck(tally, case, compiled, scale, rng)


def _storm(
    tally: Tally, what: str, case: Case, layer: Any, target: Target, bound: float, rng: np.random.Generator,
    runtimes: tuple[str, ...] | None = None,
) -> None:  # fmt: skip
    """Runtimes of a layer (all of them by default) against its bound."""
    for runtime in chooser.available(layer) if runtimes is None else runtimes:
        if runtime == "dense" and layer.tokens > 4096:
            continue
        error, at = worst_error(layer, target, rng, runtime)
        tally.record(f"{what}, {runtime}", case, bound, error, at)


def _recheck(tally: Tally, case: Case, compiled: Any, scale: float, rng: np.random.Generator) -> None:
    """The checker's own bound of the (perturbed) file against the error of the layer that the file holds."""
    tensors, record = compiled._record()
    tensors = {name: np.array(tensor) for name, tensor in tensors.items()}
    for name in tensors if scale else ():
        if name.endswith("values") or (name.startswith("group") and name.endswith(("slopes", "offsets", "factor"))):
            wide = tensors[name].astype(np.float64)
            if compiled.weights.has_clusters and not wide.any():
                continue  # keys of single tokens
            size = float(np.abs(wide).max()) or 1.0
            tensors[name] = (wide + scale * size * rng.normal(size=wide.shape)).astype(tensors[name].dtype)
    tally.rechecked += 1
    try:
        bound = check(tensors, record).bound
    except MaxaffineError:
        bound = None
    if bound is None or not np.isfinite(bound):
        tally.unprovable += 1
        return
    layer = from_tensors(tensors, record["layer"])
    own = ("two-level",) if layer.has_clusters else None  # what the checker speaks of
    _storm(tally, f"checker, perturbed by {scale:.1e}", case, layer, compiled.target, bound, rng, own)


def perturbed(layer: GroupedLayer, scale: float, rng: np.random.Generator) -> GroupedLayer:
    """The layer with every stored slope, offset and value moved by about `scale` of its kind's size."""

    def moved(a: Any) -> Any:
        wide = np.asarray(a).astype(np.float64)
        return wide + scale * (float(np.abs(wide).max()) or 1.0) * rng.normal(size=wide.shape)

    groups = []
    for group in layer.products():
        axes = tuple(AxisKeys(moved(axis.slopes), moved(axis.offsets)) for axis in group.axes)
        values = None if group.values is None else moved(group.values)
        factors = None if group.factors is None else tuple(moved(f) for f in group.factors)
        groups.append(Group(group.matrix, axes, values, factors, None if group.slopes is None else moved(group.slopes)))
    return replace(layer, groups=tuple(groups))
