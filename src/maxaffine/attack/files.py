"""The attack on files: every stored number moved, zeroed or swapped, every number of the record too, and hashed again.

A forged file must not pass the checker unless what it says is true.  `forge` makes the files, `observed` looks for the truth: the
layer of the forged tensors, run as it runs by default and as one literal softmax, against the target that the file names.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.attack.points import Domain, _near_target, domain_of
from maxaffine.checker import Verdict, check
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.scope import Scope
from maxaffine.layer.file import from_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.runtime import chooser
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Tensors = dict[str, Any]
Path = tuple[str | int, ...]

SILENT = ("observed", "cost", "provenance", "hash", "format")  # parts of a record that promise nothing
MOVES = (1e-3, -1e-3, 1e-6, -1e-6)
WORDS = {
    "dtype": ("float64", "float32", "bfloat16"),
    "runtime": ("any", "arrays", "two-level", "dense"),
    "keys": ("product", "listed", "grouped"),
}
NOISE = 6.0  # standard errors by which an estimated integral must exceed a bound


def forge(
    tensors: Mapping[str, Any], record: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[tuple[str, Tensors, dict[str, Any]]]:
    """Forged files, each with one thing changed: what, tensors, record.  In random order; all of them are many thousands."""
    jobs: list[tuple[str, Callable[[Tensors, dict[str, Any]], bool]]] = []
    for name, tensor in tensors.items():
        jobs += [(f"{name}: {how}", _on_tensor(name, change)) for how, change in _tensor_changes(np.size(tensor), rng)]
    leaves = [path for path in _numbers(record) if path[0] not in SILENT]
    for i, path in enumerate(leaves):
        told = ".".join(map(str, path))
        for how, value in _number_changes(_at(record, path)):
            jobs.append((f"{told}: {how}", _on_record(path, value)))
        other = leaves[(i + 1) % len(leaves)]
        jobs.append((f"{told}: swapped with {'.'.join(map(str, other))}", _swapped(path, other)))
    for path in _words(record):
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


def _numbers(record: Any, path: Path = ()) -> Iterator[Path]:
    """Places of all numbers of a record."""
    pairs = record.items() if isinstance(record, Mapping) else enumerate(record) if isinstance(record, list) else ()
    for key, value in pairs:
        if isinstance(value, (Mapping, list)):
            yield from _numbers(value, (*path, key))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (*path, key)


def _words(record: Any, path: Path = ()) -> Iterator[Path]:
    pairs = record.items() if isinstance(record, Mapping) else enumerate(record) if isinstance(record, list) else ()
    for key, value in pairs:
        if isinstance(value, (Mapping, list)):
            yield from _words(value, (*path, key))
        elif isinstance(value, str) and key in WORDS and path[:1] not in [(name,) for name in SILENT]:
            yield (*path, key)


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
    reserve = record["certificate"].get("details", {}).get("collapse")
    runtimes: list[tuple[str | None, float | None]] = [(None, reserve)]
    if not layer.hard:
        runtimes.append(("dense", None))
    if table is not None:
        x, low, high = _entries(table)
    elif record["norm"] != "inf":
        found = [_integral(layer, target, float(record["norm"]), rng, *one) for one in runtimes]
        return Truth(found[0], found[-1] if len(found) > 1 else 0.0)
    else:
        x = _points(layer, target, record, rng, points)
        value = target.enclose(x, x)
        low, high = value.lo, value.hi
    errors = []
    for runtime, tolerance in runtimes:
        with np.errstate(all="ignore"):
            y = chooser.evaluate(layer, x, runtime, tolerance).astype(np.float64).reshape(low.shape)
        away = np.where(np.isnan(y), np.inf, np.maximum(low - y, y - high))
        errors.append(float(np.where(np.isnan(away), -1.0, away).max(initial=0.0)))
    return Truth(errors[0], errors[1] if len(errors) > 1 else 0.0)


def _entries(table: Table | Samples) -> tuple[Array, Array, Array]:
    rows, values = zip(*table.blocks(), strict=True)
    x, y = np.concatenate(rows), np.concatenate(values)
    known = np.isfinite(y).all(axis=1)
    return x[known], y[known], y[known]


def _points(
    layer: Layer | GroupedLayer, target: Target, record: Mapping[str, Any], rng: np.random.Generator, count: int
) -> Array:
    """Points that the certificate speaks of."""
    low, high = layer.low, layer.high
    x = rng.uniform(low, high, (count, len(low)))
    on_face = rng.random(x.shape)
    x = np.where(on_face < 0.06, low, np.where(on_face > 0.94, high, x))
    scope = Scope.of(record["certificate"])
    domain = domain_of(scope, target) or Domain()
    if layer.grouped:
        x = np.concatenate([x, *_near_target(layer, target, domain, rng)])
    x = np.clip(x, low, high)
    if scope.radius is not None and not layer.grouped:
        sites = np.asarray(layer.keys.listed()[0], dtype=np.float64) / np.diag(layer.coordinates.matrix)
        away = rng.normal(size=(count, len(low)))
        away *= scope.radius * rng.random((count, 1)) / np.linalg.norm(away, axis=1, keepdims=True)
        x = np.clip(layer.coordinates.centre + sites[rng.integers(0, len(sites), count)] + away, low, high)
    return x[domain.keeps(x)]


def _integral(
    layer: Layer | GroupedLayer, target: Target, p: float, rng: np.random.Generator, runtime: str | None, tolerance: float | None
) -> float:
    """The L_p norm of the error less a few standard errors, from points one in every cell of a grid."""
    D = layer.dimension
    side = {1: 40_000, 2: 200}.get(D, max(2, round(40_000 ** (1.0 / D))))
    grid = np.stack([a.ravel() for a in np.meshgrid(*[np.arange(side)] * D, indexing="ij")], axis=1)
    x = layer.low + (layer.high - layer.low) * (grid + rng.random(grid.shape)) / side
    y = chooser.evaluate(layer, x, runtime, tolerance).astype(np.float64)
    power = (np.abs(y - target.values(x)) ** p).reshape(len(x), -1)
    mean, scatter = power.mean(axis=0), power.std(axis=0) / math.sqrt(len(x))
    volume = float(np.prod(layer.high - layer.low))
    return float((np.maximum(mean - NOISE * scatter, 0.0) * volume).max() ** (1.0 / p))
