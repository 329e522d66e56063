"""Exports as files: built, written beside their place, read back, judged, and only then renamed into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine._version import __version__
from maxaffine.core.arrays import AnyArray, Array
from maxaffine.core.budget import afford_bytes, count_text
from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.records import canonical_json, replace_atomically
from maxaffine.core.rounding import compute_format
from maxaffine.export.head import Head, head_of
from maxaffine.export.judge import Judged, judge, points
from maxaffine.layer.layer import shaped
from maxaffine.proofs.routes import OPERATOR
from maxaffine.proofs.statement import Statement
from maxaffine.runtime import chooser

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled

Run = Callable[[Array], AnyArray]  # points (B, D) -> answers in the shape of the target

LOOSE = 1.1  # times the bound of the layer, up to which a literal form is preferred
FORMATS = {"torch": ".safetensors", "mha": ".safetensors", "onnx": ".onnx", "safetensors": ".safetensors"}


def semantics(source: Compiled, said: Statement) -> dict[str, Any]:
    """What an export says about itself: a plain dictionary, JSON without NaN or infinities."""
    target = source.target
    return {
        "target": target.name or target.text or "callable",
        "inputs": [
            {"names": list(box.names), "low": box.low.tolist(), "high": box.high.tolist(),
             "shape": ["batch", box.d, box.n] if box.is_sequence else ["batch", box.dimension]}
            for box in target.boxes or (target.box,)
        ],
        "output": ["batch", *target.output_shape],
        "outside": "inputs outside the box are moved to the nearest point of it",
        "error": source.error,
        "norm": source.certificate.norm_label,
        "method": source.method,
        "dtype": source.weights.dtype,
        "certificate": source.certificate.to_json(),
        "observed": source.observed.error,
        "statement": said.to_json(),
        "producer": f"maxaffine {__version__}",
    }  # fmt: skip


def listed_head(source: Compiled) -> Head:
    """The head token by token, where memory allows."""
    layer = source.weights
    needed = 8 * layer.tokens * (layer.dimension + layer.d_out + 8) * 4
    way_out = "compile with a larger error, or use to_torch(form='fast'), which keeps the structure"
    afford_bytes(needed, f"all {count_text(layer.tokens)} tokens, listed for the export,", way_out)
    return head_of(layer)


def write_onnx(source: Compiled, path: str | Path, opset: int, form: str | None = None) -> tuple[Judged, ...]:
    """An ONNX model; returns how far it was seen from the layer, per dtype, and what is proved of it.

    `form` None: the Attention operator where its statement is at most LOOSE times the layer's, else by the structure.
    """
    _suffix(path, "onnx")
    from maxaffine.export.onnx_fast import build_fast
    from maxaffine.export.onnx_model import build

    if form is None:
        said, bound = source.statement("literal onnx"), source.certificate.bound
        near = said.bound is not None and bound is not None and said.bound <= LOOSE * bound
        form = "literal" if near or source.weights.hard else "fast"  # of a hard layer both are its softmax
    shapes, output, own = source.weights.inputs, source.target.output_shape, _own(source)
    said = source.statement("literal onnx" if form == "literal" else "onnx")
    head = listed_head(source) if form == "literal" else None
    rows: list[Judged] = []
    models: dict[str, bytes] = {}
    name = f"onnx opset {opset}, {form}"
    for dtype in ("float64", "float32"):
        here = _said_in(dtype, own, said)
        rest = output, shapes, dtype, opset, {**semantics(source, here), "dtype": dtype, "form": form}
        model = build_fast(source.weights, *rest) if head is None else build(head, *rest)
        models[dtype] = model.SerializeToString()
        rows.append(_judge(source, name, dtype, onnx_answers(models[dtype], dtype, shapes), here))

    def save(place: Path) -> None:
        place.write_bytes(models[own])
        _judge(source, name, own, onnx_answers(place.read_bytes(), own, shapes), said)

    replace_atomically(Path(path), save)
    return (*rows, *_softened(source))


def _own(source: Compiled) -> str:
    """The dtype that exports compute in as the layer does."""
    return compute_format(source.dtype).name


def _said_in(dtype: str, own: str, said: Statement) -> Statement:
    return said if dtype == own else said.withdrawn(f"it is proved in {own}")


def onnx_answers(model: bytes, dtype: str, shapes: tuple[tuple[int, int], ...]) -> Run:
    """What a model answers in ONNX Runtime to points in its dtype."""
    from maxaffine.export.onnx_model import session

    made = session(model)
    names = [one.name for one in made.get_inputs()]

    def run(x: Array) -> AnyArray:
        fed = {name: part.astype(dtype) for name, part in zip(names, shaped(x, shapes), strict=True)}
        return np.asarray(made.run(None, fed)[0])

    return run


def module_answers(module: Any, dtype: str, shapes: tuple[tuple[int, int], ...], gradient: bool = False) -> Run:
    """What a module answers to tensors of that dtype."""
    import torch

    def run(x: Array) -> AnyArray:
        parts = [torch.from_numpy(one.astype(dtype)).requires_grad_(gradient) for one in shaped(x, shapes)]
        with torch.set_grad_enabled(gradient):
            return np.asarray(module(*parts).detach().double().numpy())

    return run


def in_steps(run: Run, step: int) -> Run:
    """The same, that many points at a time."""
    return lambda x: np.concatenate([run(x[i : i + step]) for i in range(0, len(x), step)])


def _judge(source: Compiled, form: str, dtype: str, run: Run, said: Statement) -> Judged:
    layer = source.weights
    x = points(layer, source.observed.at)
    if dtype != "float64":
        x = np.clip(x.astype(np.float32).astype(np.float64), layer.low, layer.high)
    # The softmax itself, not a collapse of it: what is measured is what the export adds.
    softmax = ("two-level", "factorised", "dense", "blocked")
    names = ("hard",) if layer.hard and said.route == OPERATOR else softmax
    runtime = next(name for name in names if name in chooser.available(layer))
    expected = np.asarray(source(*source.target.split(x), runtime=runtime, outside="clamp"), dtype=np.float64)
    return judge(form, dtype, run, x, expected, said, _allowed(source, said, expected))


def _allowed(source: Compiled, said: Statement, expected: Array) -> float | None:
    """What an export may differ from the layer by: both are within their bounds of the target, where these speak of every x.

    Else (entries, a gap about jumps, L_p) what the literal softmax adds at any x, and room for the layer's own rounding.
    """
    bound = source.certificate.bound
    if said.bound is None or bound is None:
        return None
    if source.certificate.pointwise:  # |f(x)| <= |layer(x)| / (1 - bound)
        return (said.bound + bound) * float(np.abs(expected).max()) / (1.0 - bound) if bound < 1.0 else None
    if math.isinf(source.certificate.norm) and source.certificate.scope.every_x:
        return said.bound + bound
    scale = float(np.abs(expected).max()) + 1e-300
    room = max(1e-9 * scale, 0.05 * source.error) if source.weights.dtype == "float64" else max(1e-5 * scale, source.error)
    return room + said.parts.get("literal softmax", 0.0)


def _softened(source: Compiled) -> tuple[Judged, ...]:
    """A hard layer leaves as the softmax of its sharpness: how far that is from what the nearest key alone answers."""
    layer = source.weights
    if not layer.hard:
        return ()
    places = points(layer, source.observed.at)
    x = source.target.split(places)
    runtime = next(name for name in ("factorised", "dense", "blocked") if name in chooser.available(layer))
    soft, nearest = (np.asarray(source(*x, runtime=name, outside="clamp"), dtype=np.float64) for name in (runtime, "hard"))
    said = source.statement("module")
    return (Judged("softmax for nearest", layer.dtype, float(np.abs(soft - nearest).max()), len(places), said),)


def write_safetensors(source: Compiled, path: str | Path) -> tuple[Judged, ...]:
    """Weights under stable names; reading them back gives the same layer, bit for bit."""
    _suffix(path, "safetensors")
    from maxaffine.export.safetensors_file import pack, run, unpack
    from maxaffine.layer.file import to_tensors

    said = source.statement("safetensors")
    data = pack(source.weights, listed_head(source), semantics(source, said))
    rows: list[Judged] = []

    def save(place: Path) -> None:
        place.write_bytes(data)
        again = to_tensors(unpack(place)[0])[0]
        if not all(np.array_equal(again[name], array) for name, array in to_tensors(source.weights)[0].items()):
            raise Refused("the exported weights do not read back as the same layer; nothing is written.")
        rows.append(_judge(source, "safetensors", "float64", lambda x: source.target.present(run(place, x)), said))

    replace_atomically(Path(path), save)
    return (*rows, *_softened(source))


def write_torch(source: Compiled, path: str | Path, form: str, kind: str = "self") -> tuple[Judged, ...]:
    """The state of a module, as safetensors: form "fast" or "literal" of to_torch, or "mha" for MultiheadAttention."""
    _suffix(path, "torch")
    import torch
    from safetensors.torch import load_file, save_file

    own = _own(source)
    rows: list[Judged] = []

    def fresh() -> Any:
        return source.to_multihead_attention() if form == "mha" else source.to_torch(kind, form)

    said = source.statement({"mha": "multihead", "literal": "literal module"}.get(form, "module"))
    for dtype in ("float64", "float32"):
        module = fresh().to(getattr(torch, dtype))
        rows.append(_judge_module(source, module, form, dtype, _said_in(dtype, own, said)))
    state = {name: tensor.contiguous() for name, tensor in fresh().state_dict().items()}

    def save(place: Path) -> None:
        record = {**semantics(source, said), "module": form, "kind": kind}
        save_file(state, place, metadata={"maxaffine": canonical_json(record)})
        again = fresh()
        for tensor in again.state_dict().values():
            tensor.zero_()
        again.load_state_dict(load_file(place))
        _judge_module(source, again.to(getattr(torch, own)), form, own, said)

    replace_atomically(Path(path), save)
    return (*rows, *_softened(source))


def judge_module(source: Compiled, module: Any, form: str) -> Judged:
    """A module as it is handed out, judged where it stands."""
    return _judge_module(source, module, form, _own(source), module.statement)


def _judge_module(source: Compiled, module: Any, form: str, dtype: str, said: Statement) -> Judged:
    # small batches: literal self-attention holds tokens times tokens numbers for every point
    run = in_steps(module_answers(module, dtype, source.weights.inputs), 4096 if form == "kernel" else 16)
    return _judge(source, f"torch {form}", dtype, run, said)


def _suffix(path: str | Path, to: str) -> None:
    if Path(path).suffix != FORMATS[to]:
        raise BadInput(f"`path` (={str(path)!r}) must end in {FORMATS[to]}.")
