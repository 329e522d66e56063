"""Exports as files: built, written beside their place, read back, judged, and only then renamed into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.budget import afford_bytes
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import canonical_json, replace_atomically
from maxaffine.export.head import Head, head_of
from maxaffine.export.judge import Judged, judge, points
from maxaffine.export.semantics import semantics
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.statement import Statement
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Array = NDArray[Any]

LOOSE = 1.1  # times the bound of the layer, up to which a literal form is preferred
FORMATS = {"torch": ".safetensors", "mha": ".safetensors", "onnx": ".onnx", "safetensors": ".safetensors"}


class Source(Protocol):
    """What is exported: a compiled layer."""

    @property
    def target(self) -> Target: ...  # noqa: D102
    @property
    def weights(self) -> Layer | GroupedLayer: ...  # noqa: D102
    @property
    def certificate(self) -> Certificate: ...  # noqa: D102
    @property
    def observed(self) -> Observed: ...  # noqa: D102
    @property
    def error(self) -> float: ...  # noqa: D102
    @property
    def method(self) -> str: ...  # noqa: D102

    def to_torch(self, kind: str = "self", form: str = "fast", trainable: bool = False) -> Any: ...  # noqa: D102
    def to_multihead_attention(self) -> Any: ...  # noqa: D102
    def statement(self, route: str = "arrays", dtype: str | None = None, device: str = "cpu") -> Statement: ...  # noqa: D102
    def __call__(self, *x: Any, runtime: str | None = None, outside: str = "error") -> Array: ...  # noqa: D102


def meaning(source: Source, said: Statement) -> dict[str, Any]:
    """The record that travels with an export."""
    layer = source.weights
    return semantics(source.target, source.certificate, source.observed, source.error, source.method, layer.dtype, said)


def listed_head(source: Source) -> Head:
    """The head token by token, where memory allows."""
    layer = source.weights
    needed = 8 * layer.tokens * (layer.dimension + layer.d_out + 8) * 4
    way_out = "compile with a larger error, or use to_torch(form='fast'), which keeps the structure"
    afford_bytes(needed, f"all {layer.tokens:,} tokens, listed for the export,", way_out)
    return head_of(layer)


def write_onnx(source: Source, path: str | Path, opset: int, form: str | None = None) -> tuple[Judged, ...]:
    """An ONNX model; returns how far it was seen from the layer, per dtype, and what is proved of it.

    `form` None: the Attention operator where its statement is at most LOOSE times the layer's, else by the structure.
    """
    _suffix(path, "onnx")
    from maxaffine.export.onnx_fast import build_fast
    from maxaffine.export.onnx_model import build, session

    if form is None:
        said, bound = source.statement("literal onnx"), source.certificate.bound
        near = said.bound is not None and bound is not None and said.bound <= LOOSE * bound
        form = "literal" if near or _softened_only(source) else "fast"
    route = "literal onnx" if form == "literal" else "onnx"
    shapes, output = source.weights.inputs, source.target.output_shape
    own = "float64" if source.weights.dtype == "float64" else "float32"
    head = listed_head(source) if form == "literal" else None
    rows: list[Judged] = []
    data = b""
    name = f"onnx opset {opset}, {form}"
    for dtype in ("float64", "float32"):
        said = source.statement(route)
        if dtype != own:
            said = said.withdrawn(f"it is proved in {own}")
        record = {**meaning(source, said), "dtype": dtype, "form": form}
        if head is not None:
            made = build(head, output, shapes, dtype, opset, record).SerializeToString()
        else:
            made = build_fast(source.weights, output, shapes, dtype, opset, record).SerializeToString()
        rows.append(_judge(source, name, dtype, _feeder(session(made), dtype, shapes), said))
        data = made if dtype == own else data

    def save(place: Path) -> None:
        place.write_bytes(data)
        _judge(source, name, own, _feeder(session(place.read_bytes()), own, shapes), source.statement(route))

    replace_atomically(Path(path), save)
    return (*rows, *_softened(source))


def _softened_only(source: Source) -> bool:
    """Whether the layer is hard: its exports are the softmax in any form."""
    return source.weights.hard


def _feeder(made: Any, dtype: str, shapes: tuple[tuple[int, int], ...]) -> Callable[[Array], Array]:
    names = [one.name for one in made.get_inputs()]

    def run(x: Array) -> Array:
        parts = _shaped(x, shapes)
        fed = {name: part.astype(dtype) for name, part in zip(names, parts, strict=True)}
        return np.asarray(made.run(None, fed)[0])

    return run


def _shaped(x: Array, shapes: tuple[tuple[int, int], ...]) -> list[Array]:
    """Points (B, D) as the arrays that a user hands over: (B, D), (B, d, n), or one for each input."""
    parts, first = [], 0
    for d, n in shapes:
        part = x[:, first : first + d * n]
        parts.append(np.ascontiguousarray(part if n == 1 else part.reshape(-1, n, d).transpose(0, 2, 1)))
        first += d * n
    return parts


def handed(target: Target, x: Array) -> list[Array]:
    """Points (B, D) as the layer itself takes them: sequences are (B, d, n) even where n is 1."""
    parts, first = [], 0
    for box in target.boxes or (target.box,):
        part = np.ascontiguousarray(x[:, first : first + box.dimension])
        parts.append(np.ascontiguousarray(box.unflatten(part)) if box.is_sequence else part)
        first += box.dimension
    return parts


def _judge(source: Source, form: str, dtype: str, run: Callable[[Array], Any], said: Statement) -> Judged:
    layer = source.weights
    x = points(layer, source.observed.at)
    if dtype != "float64":
        x = x.astype(np.float32).astype(np.float64)
        x = np.clip(x, layer.low, layer.high)
    # The softmax itself, not a collapse of it: what is measured is what the export adds.
    runtime = next(name for name in ("two-level", "factorised", "dense", "blocked") if name in chooser.available(layer))
    expected = np.asarray(source(*handed(source.target, x), runtime=runtime, outside="clamp"), dtype=np.float64)
    return judge(form, dtype, run, x, expected, said, _allowed(source, said, expected))


def _allowed(source: Source, said: Statement, expected: Array) -> float | None:
    """What an export may differ from the layer by: both are within their bounds of the target, where these speak of every x.

    Else (entries, a gap about jumps, L_p) what the literal softmax adds at any x, and room for the layer's own rounding.
    """
    bound = source.certificate.bound
    if said.bound is None or bound is None:
        return None
    if math.isinf(source.certificate.norm) and source.certificate.scope.every_x:
        return said.bound + bound
    scale = float(np.abs(expected).max()) + 1e-300
    room = max(1e-9 * scale, 0.05 * source.error) if source.weights.dtype == "float64" else max(1e-5 * scale, source.error)
    return room + said.parts.get("literal softmax", 0.0)


def _softened(source: Source) -> tuple[Judged, ...]:
    """A hard layer leaves as the softmax of its sharpness: how far that is from what the nearest key alone answers."""
    layer = source.weights
    if not layer.hard:
        return ()
    places = points(layer, source.observed.at)
    x = handed(source.target, places)
    runtime = next(name for name in ("factorised", "dense", "blocked") if name in chooser.available(layer))
    soft, nearest = (np.asarray(source(*x, runtime=name, outside="clamp"), dtype=np.float64) for name in (runtime, "hard"))
    said = source.statement("module")
    return (Judged("softmax for nearest", layer.dtype, float(np.abs(soft - nearest).max()), len(places), said),)


def write_safetensors(source: Source, path: str | Path) -> tuple[Judged, ...]:
    """Weights under stable names; reading them back gives the same layer, bit for bit."""
    _suffix(path, "safetensors")
    from maxaffine.export.safetensors_file import pack, run, unpack
    from maxaffine.layer.file import to_tensors

    said = source.statement("safetensors")
    data = pack(source.weights, listed_head(source), meaning(source, said))
    rows: list[Judged] = []

    def save(place: Path) -> None:
        place.write_bytes(data)
        again = to_tensors(unpack(place)[0])[0]
        if not all(np.array_equal(again[name], array) for name, array in to_tensors(source.weights)[0].items()):
            raise Refused("the exported weights do not read back as the same layer; nothing is written.")
        rows.append(_judge(source, "safetensors", "float64", lambda x: source.target.present(run(place, x)), said))

    replace_atomically(Path(path), save)
    return (*rows, *_softened(source))


def write_torch(source: Source, path: str | Path, form: str, kind: str = "self") -> tuple[Judged, ...]:
    """The state of a module, as safetensors: form "fast" or "literal" of to_torch, or "mha" for MultiheadAttention."""
    _suffix(path, "torch")
    import torch
    from safetensors.torch import load_file, save_file

    own = "float64" if source.weights.dtype == "float64" else "float32"
    rows: list[Judged] = []

    def fresh() -> Any:
        return source.to_multihead_attention() if form == "mha" else source.to_torch(kind, form)

    said = source.statement({"mha": "multihead", "literal": "literal module"}.get(form, "module"))
    for dtype in ("float64", "float32"):
        module = fresh().to(getattr(torch, dtype))
        here = said if dtype == own else said.withdrawn(f"it is proved in {own}")
        rows.append(_judge(source, f"torch {form}", dtype, _caller(module, dtype, source.weights.inputs), here))
    state = {name: tensor.contiguous() for name, tensor in fresh().state_dict().items()}

    def save(place: Path) -> None:
        record = {**meaning(source, said), "module": form, "kind": kind}
        save_file(state, place, metadata={"maxaffine": canonical_json(record)})
        again = fresh()
        for tensor in again.state_dict().values():
            tensor.zero_()
        again.load_state_dict(load_file(place))
        _judge(source, f"torch {form}", own, _caller(again.to(getattr(torch, own)), own, source.weights.inputs), said)

    replace_atomically(Path(path), save)
    return (*rows, *_softened(source))


def judge_module(source: Source, module: Any, form: str) -> Judged:
    """A module as it is handed out, judged where it stands."""
    own = "float64" if source.weights.dtype == "float64" else "float32"
    return _judge(source, f"torch {form}", own, _caller(module, own, source.weights.inputs), module.statement)


def _caller(module: Any, dtype: str, shapes: tuple[tuple[int, int], ...]) -> Callable[[Array], Array]:
    import torch

    def run(x: Array) -> Array:
        with torch.no_grad():
            parts = [module(*(torch.from_numpy(part.astype(dtype)) for part in _shaped(chunk, shapes))) for chunk in _chunks(x)]
        return np.concatenate([part.double().numpy() for part in parts])

    return run


def _chunks(x: Array) -> list[Array]:
    """Small batches: literal self-attention holds tokens times tokens numbers for every point."""
    return [x[i : i + 16] for i in range(0, len(x), 16)]


def _suffix(path: str | Path, to: str) -> None:
    if Path(path).suffix != FORMATS[to]:
        raise BadInput(f"`path` (={str(path)!r}) must end in {FORMATS[to]}.")
