"""What a layer must pass: against the definition before it is handed out, by the checker before it is saved or believed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine import checker, reference
from maxaffine.checker import Verdict
from maxaffine.core.container import container_bytes, read_container
from maxaffine.core.errors import BadInput, MaxaffineError, Refused
from maxaffine.core.progress import Progress, silent
from maxaffine.core.rounding import compute_format
from maxaffine.layer.file import from_tensors, to_tensors
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import OutputsLayer
from maxaffine.proofs.pointwise import per_size
from maxaffine.proofs.routes import Source, most_said, statement
from maxaffine.runtime import chooser
from maxaffine.target.samples import Samples
from maxaffine.target.table import Table

LISTED = 1 << 16  # keys up to which a layer is compared with the definition
ROUNDED = 1e3  # units of what the values of tokens are, lost by a sum over all of them
SMALL = 1 << 22  # bytes up to which it is written and read back


def check(path: str | Path, table: Table | Samples | None = None) -> Verdict:
    """The independent checker's verdict of a saved file: `.passed`, its own `.bound`, and the `.reason`.

    `table`: the Table or Samples that the layer was compiled from; its file holds only the SHA-256 of it.
    """
    return verdict_of(path, *read_container(path), table)


def verdict_of(
    path: str | Path, tensors: Mapping[str, Any], record: Mapping[str, Any], table: Table | Samples | None = None,
    progress: Progress = silent,
) -> Verdict:  # fmt: skip
    """The same of what was read from the file."""
    target = record.get("target")
    if table is not None and not (isinstance(target, dict) and target.get("entries") is not None):
        raise BadInput(f"{str(path)!r} was not compiled from a table; leave the table out.")
    try:
        return checker.check(tensors, record, table, progress)
    except MaxaffineError as failure:
        raise BadInput(f"{str(path)!r} does not hold a compiled layer: {failure}") from None


def confirm(tensors: Mapping[str, Any], record: dict[str, Any], table: Table | Samples | None) -> None:
    """Refuse what the checker does not prove again; claims about the literal softmax that it does not confirm are withdrawn."""
    verdict = checker.check(tensors, record, table)
    for claim in () if verdict.passed else verdict.claims:
        if not claim.confirmed:
            record["literal"][claim.arithmetic] = {"why": "the independent checker does not confirm it"}
            verdict = checker.check(tensors, record, table)
    if not verdict.passed:
        raise Refused(f"the independent checker does not confirm this layer, so it is not saved: {verdict.reason}")


def validate(source: Source) -> None:
    """Never trust the own output: the layer must agree with the definition, and survive its file."""
    if source.weights.grouped:
        _agrees_with_softmax(source, source.weights)
        return
    if source.weights.keys.count <= LISTED:
        _agrees_with_definition(source.weights)
    if source.weights.nbytes <= SMALL:
        _survives_its_file(source.weights)


def _agrees_with_softmax(source: Source, layer: GroupedLayer | OutputsLayer) -> None:
    """The structure and the literal softmax over all tokens may differ by both their bounds."""
    x = np.random.default_rng(0).uniform(layer.low, layer.high, size=(4, layer.dimension))
    fast = chooser.evaluate(layer, x)
    said = statement(source, "dense")
    if not chooser.can(layer, "dense") or (said.bound is None and layer.has_clusters):
        return
    apart, bound = np.abs(fast - chooser.evaluate(layer, x, "dense")), source.certificate.bound
    if source.certificate.pointwise:
        apart = apart / np.abs(source.target.values(x))
    away = float(apart.max())
    lost = ROUNDED * compute_format(layer.dtype).unit * most_said(layer) * per_size(source.certificate)
    unproved = source.error + lost  # the sum over tokens loses what their values lose
    allowed = unproved if said.bound is None or bound is None else said.bound + bound
    if math.isinf(source.certificate.norm) and away > allowed:
        raise AssertionError("the layer disagrees with the literal softmax: please report this")


def _agrees_with_definition(layer: Layer) -> None:
    """Three points against maxaffine/reference.py; other dtypes and hard layers are only run."""
    x = np.random.default_rng(0).uniform(layer.low, layer.high, size=(3, layer.dimension))
    x = np.clip(x, layer.low, layer.high)
    got = chooser.evaluate(layer, x, None if not layer.hard else "factorised" if layer.is_product else "dense")
    if layer.dtype != "float64" or layer.hard:
        return
    slopes, offsets = (np.asarray(part, dtype=np.float64) for part in layer.keys.listed())
    values = layer.values.reshape(-1, layer.d_out, layer.n_out).astype(np.float64)
    scale = float(np.abs(values).max()) + 1e-300
    for row, z in zip(got, layer.coordinates(x), strict=True):
        literal = reference.lookup(layer.sharpness * (slopes @ z + offsets), values)
        if np.abs(row - literal).max() > 1e-6 * scale:
            raise AssertionError("the layer disagrees with the definition: please report this")


def _survives_its_file(layer: Layer) -> None:
    tensors, record = to_tensors(layer)
    again = from_tensors(tensors, record)
    if not isinstance(again, Layer) or not np.array_equal(again.values, layer.values) or not container_bytes(tensors, record):
        raise AssertionError("the layer does not survive its file: please report this")
