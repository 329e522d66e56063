"""The attack on files: every stored number moved, zeroed or swapped, every number of the record too, and hashed again.

A forged file must not pass the checker unless what it says is true.  `forge` makes the files, `observed` looks for the truth: the
layer of the forged tensors, run as it runs by default and as one literal softmax, against the target that the file names.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from maxaffine.attack.domain import EVERYWHERE, domain_of
from maxaffine.attack.search import at_entries, cells_of, integrated, running
from maxaffine.attack.starts import start_points
from maxaffine.checker import Verdict, check
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.scope import Scope
from maxaffine.layer.file import from_tensors
from maxaffine.proofs.known_error import sure_differences
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target

Tensors = dict[str, Any]
Path = tuple[str | int, ...]

SILENT = ("observed", "cost", "provenance", "hash", "format")  # parts of a record that promise nothing
MOVES = (1e-3, -1e-3, 1e-6, -1e-6)
WORDS = {
    "dtype": ("float64", "float32", "bfloat16"),
    "runtime": ("any", "arrays", "two-level", "dense"),
    "keys": ("product", "listed", "grouped"),
}
CELLS = 5000  # of the box, for integrals


def forge(
    tensors: Mapping[str, Any], record: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[tuple[str, Tensors, dict[str, Any]]]:
    """Forged files, each with one thing changed: what, tensors, record.  In random order; all of them are many thousands."""
    jobs: list[tuple[str, Callable[[Tensors, dict[str, Any]], bool]]] = []
    for name, tensor in tensors.items():
        jobs += [(f"{name}: {how}", _on_tensor(name, change)) for how, change in _tensor_changes(np.size(tensor), rng)]
    leaves = [path for path, value in _leaves(record) if isinstance(value, (int, float)) and not isinstance(value, bool)]
    for i, path in enumerate(leaves):
        told = ".".join(map(str, path))
        for how, value in _number_changes(_at(record, path)):
            jobs.append((f"{told}: {how}", _on_record(path, value)))
        other = leaves[(i + 1) % len(leaves)]
        jobs.append((f"{told}: swapped with {'.'.join(map(str, other))}", _swapped(path, other)))
    for path in (path for path, value in _leaves(record) if isinstance(value, str) and path[-1] in WORDS):
        for word in WORDS[str(path[-1])]:
            jobs.append((f"{'.'.join(map(str, path))}: {word}", _on_record(path, word)))
    for i in rng.permutation(len(jobs)):
        what, change = jobs[int(i)]
        made: Tensors = {name: np.array(tensor) for name, tensor in tensors.items()}
        told_record = copy.deepcopy(dict(record))
        if change(made, told_record):
            yield what, made, told_record


def _tensor_changes(size: int, rng: np.random.Generator) -> list[tuple[str, Callable[[Any], Any]]]:
    at = int(rng.integers(size)) if size else 0
    found: list[tuple[str, Callable[[Any], Any]]] = []
    for move in MOVES:
        found += [(f"entry {at} by {move:g}", partial(_moved, at, move)), (f"all by {move:g}", partial(_moved, None, move))]
    found.append((f"entry {at} zero", lambda flat: _with(flat, at, 0.0)))
    found.append(("all zero", lambda flat: flat * 0.0))
    found.append((f"entry {at} swapped", lambda flat: _swap(flat, at, (at + 1) % len(flat))))
    found.append(("reversed", lambda flat: flat[::-1].copy()))
    return found


def _moved(at: int | None, move: float, flat: Any) -> Any:
    """One entry or all of them by a relative amount; a zero alone by that amount."""
    if at is None:
        return flat * (1.0 + move)
    return _with(flat, at, flat[at] * (1.0 + move) if flat[at] else move)


def _with(flat: Any, at: int, value: Any) -> Any:
    flat[at] = value
    return flat


def _swap(flat: Any, i: int, j: int) -> Any:
    flat[i], flat[j] = flat[j].copy(), flat[i].copy()
    return flat


def _on_tensor(name: str, change: Callable[[Any], Any]) -> Callable[[Tensors, dict[str, Any]], bool]:
    def apply(tensors: Tensors, record: dict[str, Any]) -> bool:
        before = tensors[name]
        if before.size == 0:
            return False
        flat = change(before.astype(np.float64).reshape(-1))
        tensors[name] = np.ascontiguousarray(flat).reshape(before.shape).astype(before.dtype)
        return not np.array_equal(tensors[name], before)

    return apply


def _number_changes(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, int):
        return [(f"{value + step}", value + step) for step in (1, -1)] + ([("zero", 0)] if value else [])
    found = [(f"by {move:g}", value * (1.0 + move) if value else move) for move in MOVES]
    found += [(f"times {times:g}", value * times) for times in (0.3, 3.0)]
    return found + ([("zero", 0.0)] if value else [])


def _on_record(path: Path, value: Any) -> Callable[[Tensors, dict[str, Any]], bool]:
    def apply(tensors: Tensors, record: dict[str, Any]) -> bool:
        before = _at(record, path)
        _at(record, path[:-1])[path[-1]] = value
        return bool(before != value)

    return apply


def _swapped(path: Path, other: Path) -> Callable[[Tensors, dict[str, Any]], bool]:
    def apply(tensors: Tensors, record: dict[str, Any]) -> bool:
        one, two = _at(record, path), _at(record, other)
        _at(record, path[:-1])[path[-1]], _at(record, other[:-1])[other[-1]] = two, one
        return bool(one != two)

    return apply


def _at(record: Any, path: Path) -> Any:
    for key in path:
        record = record[key]
    return record


def _leaves(record: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Places and values of a record, but for what promises nothing."""
    pairs = record.items() if isinstance(record, Mapping) else enumerate(record)
    for key, value in pairs:
        if not path and key in SILENT:
            continue
        if isinstance(value, (Mapping, list)):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


# ---------------------------------------------------------------------- what is true


@dataclass(frozen=True)
class Truth:
    """The largest errors found of a file's layer: as it runs by default, and literally; certain lower bounds of them."""

    default: float
    dense: float


@dataclass
class Counts:
    """How many forged files were refused, could not be read, or passed; and those that passed and say what is false."""

    refused: int = 0
    unreadable: int = 0
    passed: int = 0
    slightly: int = 0  # a stated bound that is false by less than the checker's own constants allow
    false: list[str] = field(default_factory=list)


def attack_file(
    tensors: Mapping[str, Any], record: Mapping[str, Any], rng: np.random.Generator, files: int,
    table: Table | Samples | None = None, points: int = 2000,
) -> Counts:  # fmt: skip
    """Forge that many files of a layer, let the checker judge them, and judge those that pass."""
    counts = Counts()
    for what, made, told in forge(tensors, record, rng):
        if files <= 0:
            break
        files -= 1
        try:
            verdict = check(made, told, table)
        except BadInput:
            counts.unreadable += 1
            continue
        if not verdict.passed:
            counts.refused += 1
            continue
        counts.passed += 1
        try:
            truth = observed(made, told, rng, table, points)
        except (BadInput, Refused):  # a file that no reader takes says nothing
            continue
        counts.false += [f"{what}: {lie}" for lie in lies(verdict, told, truth)]
        stated = float(told["certificate"]["bound"])
        claimed = min((claim.stated for claim in verdict.claims), default=math.inf)
        counts.slightly += truth.default > stated or truth.dense > claimed
    return counts


def lies(verdict: Verdict, record: Mapping[str, Any], truth: Truth) -> list[str]:
    """What a verdict says that is not true, as sentences."""
    found = []
    if verdict.bound is not None and truth.default > min(verdict.bound, verdict.error):
        found.append(f"error {truth.default!r} above {verdict.bound!r}, of {verdict.error!r} promised")
    for claim in verdict.claims:
        if claim.arithmetic == _arithmetic(record) and claim.checked is not None and truth.dense > claim.checked:
            found.append(f"literal error {truth.dense!r} above {claim.checked!r}")
    if record["certificate"]["runtime"] == "any" and verdict.bound is not None and truth.dense > verdict.bound:
        found.append(f"literal error {truth.dense!r} above {verdict.bound!r}, stated for every runtime")
    return found


def _arithmetic(record: Mapping[str, Any]) -> str:
    return "float64" if record["layer"]["dtype"] == "float64" else "float32"


def observed(
    tensors: Mapping[str, Any], record: Mapping[str, Any], rng: np.random.Generator, table: Table | Samples | None = None,
    points: int = 2000,
) -> Truth:  # fmt: skip
    """Certain lower bounds of the errors of a file's layer, from points near switches, on faces and anywhere."""
    layer = from_tensors(dict(tensors), record["layer"])
    target = Target.from_json(record["target"])
    runs = [running(layer, None, record["certificate"].get("details", {}).get("collapse"))]
    runs += [] if layer.hard else [running(layer, "dense")]
    if table is not None:
        errors = [at_entries(run, table).error for run in runs]
    elif record["norm"] not in ("inf", "pointwise"):
        p = float(record["norm"])
        cells = cells_of(runs[0], target, p, rng, CELLS)
        errors = [integrated(run, target, p, cells, rng).error for run in runs]
    else:
        domain = domain_of(Scope.of(record["certificate"]), target, layer) or EVERYWHERE
        x = start_points(layer, target, domain, rng)
        x = x[rng.permutation(len(x))[: 2 * points]]
        x = x[domain.keeps(x)]
        sizes = target.enclose(x, x).magnitude.reshape(len(x), -1) if record["norm"] == "pointwise" else 1.0
        errors = [float((sure_differences(run, target, x) / sizes).max(initial=0.0)) for run in runs]
    return Truth(errors[0], errors[1] if len(errors) > 1 else 0.0)
