"""The attack head by head: layers as compiled in every runtime, and with stored numbers moved and everything proved anew.

A moved layer is a layer like any other: the checker, which reads tensors and target alone, and the certificate of its method
speak about it, with whatever bound they find.  No point may lie above one.  Refusals are counted, never wrong.
"""

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from maxaffine.attack.case import Case
from maxaffine.attack.domain import Domain, domain_of
from maxaffine.attack.layers import chosen
from maxaffine.attack.moves import moved, narrowed, promised
from maxaffine.attack.search import DRAWS, Found, cells_of, integrated, running, worst_point
from maxaffine.attack.targets import HEADS
from maxaffine.checker import check
from maxaffine.core.errors import MaxaffineError
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import face_biased
from maxaffine.proofs.routes import dense_is_counted, literal_bounds
from maxaffine.run import Run
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

MOVES = 5  # moved copies of every layer
MOST_TOKENS = 6000
LITERAL = 2048  # tokens up to which the literal softmax is searched
CELLS = 12_000  # of the box, for integrals


@dataclass
class Row:
    """One head: what was attacked, what was proved anew, and the largest error in units of the bound (below 1 if all is well)."""

    head: str
    layers: int = 0
    unserved: int = 0  # requests that the head refused
    statements: int = 0  # bounds of layers as compiled, one per runtime
    moved: int = 0
    proved: int = 0  # bounds of moved layers, by the checker or by the certificate
    refused: int = 0  # the same, refused
    points: int = 0
    worst: float = 0.0
    worst_moved: float = 0.0
    worst_case: str = ""
    violations: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def judge(self, what: str, case: Case, bound: float, found: Found) -> None:
        """One bound against the worst point found."""
        self.points += found.points
        ratio = found.error / bound if bound > 0 else (0.0 if found.error == 0 else math.inf)
        as_compiled = what.startswith("as compiled")
        if as_compiled:
            self.statements += 1
            self.worst = max(self.worst, ratio)
        else:
            self.proved += 1
            self.worst_moved = max(self.worst_moved, ratio)
        if ratio >= max(self.worst, self.worst_moved):
            self.worst_case = f"{what}: {case.text} on {case.box}, error {case.error:.3g}, {case.dtype}"
        if not found.error <= bound:
            self.violations.append({
                "what": what, "through": found.through, "target": case.text, "box": repr(case.box), "error": case.error,
                "dtype": case.dtype, "method": case.method, "norm": case.norm, "gap": case.gap, "bound": bound,
                "found": found.error, "at": [float(v) for v in np.ravel(found.at)],
            })  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def attack_heads(
    compile: Callable[..., Any], heads: Sequence[str] | None = None, *, layers: int = 8, seed: int = 0,
    seconds: float | None = None, moves: int = MOVES, progress: Progress = silent,
) -> list[Row]:  # fmt: skip
    """A row per head, each from `layers` layers or as many as fit into its share of `seconds`."""
    names, rows = chosen(heads, HEADS), []
    for number, name in enumerate(names):
        row, begun = Row(name), time.perf_counter()
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])  # whatever other heads there are
        share = math.inf if seconds is None else seconds / len(names)
        while row.layers < layers and row.unserved < 12 * layers and time.perf_counter() - begun < share:
            progress(f"attack on {name}", number * layers + row.layers, layers * len(names))
            _attack_one(row, compile, HEADS[name](rng), moves, np.random.default_rng(rng.integers(1 << 62)))
        row.seconds = time.perf_counter() - begun
        rows.append(row)
    return rows


def _attack_one(row: Row, compile: Callable[..., Any], case: Case, moves: int, rng: np.random.Generator) -> None:
    try:
        compiled = compile(case.text, case.box, error=case.error, method=case.method, dtype=case.dtype, norm=case.norm,
                           gap=case.gap, run=Run(max_bytes=1 << 28))  # fmt: skip
    except MaxaffineError:
        row.unserved += 1
        return
    layer = compiled.weights
    if compiled.certificate.kind != "proved" or layer.work > MOST_TOKENS:
        row.unserved += 1
        return
    row.layers += 1
    for runtime in compiled.runtimes():
        if runtime in ("direct", "pieces") or (runtime == "dense" and layer.tokens > LITERAL):
            continue  # these have bounds of their own: the attack on routes searches them
        try:
            statement = compiled.certificate_for(runtime)
        except MaxaffineError:
            continue
        if statement.bound is not None and math.isfinite(statement.bound):
            domain = domain_of(statement.scope, compiled.target, layer)
            if domain is not None:
                found = _search(layer, compiled.target, rng, runtime, domain, case, compiled.reserve)
                row.judge(f"as compiled, {runtime}", case, statement.bound, found)
    tensors, record = compiled._record()
    for _ in range(moves):
        row.moved += 1
        try:
            made, told, what = moved(tensors, record, rng)
            other = from_tensors(made, told["layer"])
        except MaxaffineError:
            row.refused += 1
            continue
        told = narrowed(told, rng)
        seen = _seen(other, compiled.target, rng, case, domain_of(Scope.of(told["certificate"]), compiled.target, other))
        told = promised(told, max(seen, 0.5 * case.error), rng)
        _checked(row, case, compiled.target, made, told, other, f"checker, {what}", rng)
        _certified(row, case, compiled, other, float(told["error"]), f"certificate, {what}", rng)


def _checked(
    row: Row, case: Case, target: Target, tensors: Mapping[str, Any], record: Mapping[str, Any], layer: Any, what: str,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """What the checker says of a file with these tensors."""
    domain = domain_of(Scope.of(record["certificate"]), target, layer)
    try:
        bound = check(tensors, record).bound
    except MaxaffineError:
        bound = None
    if bound is None or not math.isfinite(bound) or domain is None:
        row.refused += 1
        return
    spoken = ("two-level",) if layer.has_clusters else [name for name in chooser.available(layer) if name != "collapsed"]
    for runtime in spoken:
        if runtime != "dense" or (layer.tokens <= LITERAL and dense_is_counted(layer, str(record["plan"].get("argument")))):
            row.judge(f"{what}, {runtime}", case, bound, _search(layer, target, rng, runtime, domain, case, None))


def _certified(
    row: Row, case: Case, compiled: Any, layer: Any, error: float, what: str, rng: np.random.Generator
) -> None:
    """What the certificate of the method says of another layer."""
    prove = compiled.prove
    if not layer.grouped or not isinstance(prove, partial) or not any(arg is compiled.weights for arg in prove.args):
        return  # certificates of lookups rest on keys as they were planned
    runtime = str(rng.choice(chooser.available(layer)))
    if runtime == "dense" and layer.tokens > LITERAL:
        return
    try:
        statement: Certificate = prove.func(*(_with(arg, compiled, layer, error) for arg in prove.args), runtime)
    except MaxaffineError:
        row.refused += 1
        return
    domain = domain_of(statement.scope, compiled.target, layer) if statement.bound is not None else None
    if statement.bound is None or not math.isfinite(statement.bound) or domain is None:
        row.refused += 1
        return
    bound: float | str = statement.bound
    if runtime == "dense" and (layer.has_clusters or layer.several):  # its own statement is that of the literal softmax
        bound = literal_bounds(layer, statement)[compute_format(layer.dtype).name]
    if isinstance(bound, str):
        row.refused += 1
        return
    row.judge(f"{what}, {runtime}", case, bound, _search(layer, compiled.target, rng, runtime, domain, case, None))


def _with(arg: Any, compiled: Any, layer: Any, error: float) -> Any:
    """An argument of the proof with the other layer, and the other error, in the places of the own ones."""
    if arg is compiled.weights:
        return layer
    if isinstance(arg, float) and arg == compiled.error:
        return error
    if is_dataclass(arg) and not isinstance(arg, type) and getattr(arg, "error", None) == compiled.error:
        return replace(arg, error=error)
    return arg


def _search(
    layer: Any, target: Target, rng: np.random.Generator, runtime: str, domain: Domain, case: Case, reserve: float | None
) -> Found:
    if case.norm == "inf":
        return worst_point(layer, target, rng, runtime, domain, reserve)
    return _integral(layer, target, float(case.norm), runtime, rng)


def _integral(layer: Any, target: Target, p: float, runtime: str, rng: np.random.Generator) -> Found:
    run = running(layer, runtime)
    found = integrated(run, target, p, cells_of(run, target, p, rng, CELLS), rng)
    return replace(found, points=CELLS * DRAWS, through=f"{runtime}, integral")


def _seen(layer: Any, target: Target, rng: np.random.Generator, case: Case, domain: Domain | None) -> float:
    """About the error of a layer, to promise something near it."""
    if case.norm != "inf":
        return _integral(layer, target, float(case.norm), chooser.choose(layer)[0], rng).error
    x = face_biased(layer, 600, rng)
    away = np.abs(running(layer)(x) - target.values(x).reshape(len(x), -1)).max(axis=1)
    kept = np.isfinite(away) & (True if domain is None else domain.keeps(x))
    return float(away[kept].max(initial=0.0))


HEADINGS = ("head", "layers", "statements", "moved", "proved", "refused", "points", "worst", "moved", "violations", "s")


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line per head, and their sum."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for row in rows:
        lines.append((
            row.head, str(row.layers), str(row.statements), str(row.moved), str(row.proved), str(row.refused), f"{row.points:,}",
            f"{row.worst:.4f}", f"{row.worst_moved:.4f}", str(len(row.violations)), f"{row.seconds:.0f}",
        ))  # fmt: skip
    total = [sum(getattr(row, name) for row in rows) for name in ("layers", "statements", "moved", "proved", "refused", "points")]
    lines.append((
        "all", *(f"{n:,}" for n in total), f"{max(row.worst for row in rows):.4f}",
        f"{max(row.worst_moved for row in rows):.4f}", str(sum(len(row.violations) for row in rows)),
        f"{sum(row.seconds for row in rows):.0f}",
    ))  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )
