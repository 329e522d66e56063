"""Exports of stacks as files: built, run and compared with the stack, and only then renamed into their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json, replace_atomically
from maxaffine.export.judge import Judged
from maxaffine.export.write import FORMATS, module_answers, onnx_answers
from maxaffine.proofs.statement import Statement

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack

POINTS = 256


def write(stack: Stack, to: str, path: str | Path, opset: int) -> tuple[Judged, ...]:
    """An ONNX model, or the state of the module of MultiheadAttention blocks as safetensors."""
    if to not in ("onnx", "torch", "mha"):
        raise BadInput(f"`to` (={to!r}) is not known for a stack; choose one of onnx, torch, mha.")
    if Path(path).suffix != FORMATS[to]:
        raise BadInput(f"`path` (={str(path)!r}) must end in {FORMATS[to]}.")
    return _onnx(stack, path, opset) if to == "onnx" else _torch(stack, path)


def _onnx(stack: Stack, path: str | Path, opset: int) -> tuple[Judged, ...]:
    from maxaffine.stack.onnx_stack import build

    said = stack.statement("onnx")
    data = build(stack, opset, semantics(stack, said)).SerializeToString()
    shapes = ((stack.box.dimension, 1),)
    row = judged(stack, f"onnx opset {opset}, literal", onnx_answers(data, "float64", shapes), said)

    def save(place: Path) -> None:
        place.write_bytes(data)
        judged(stack, "onnx", onnx_answers(place.read_bytes(), "float64", shapes), said)

    replace_atomically(Path(path), save)
    return (row,)


def _torch(stack: Stack, path: str | Path) -> tuple[Judged, ...]:
    from safetensors.torch import load_file, save_file

    said, shapes = stack.statement("multihead"), ((stack.box.dimension, 1),)
    module = stack.to_torch()
    row = judged(stack, "torch, MultiheadAttention", module_answers(module, "float64", shapes), said)
    state = {name: tensor.contiguous().clone() for name, tensor in module.state_dict().items()}

    def save(place: Path) -> None:
        save_file(state, place, metadata={"maxaffine": canonical_json(semantics(stack, said))})
        again = stack.to_torch()
        again.load_state_dict(load_file(place))
        judged(stack, "torch", module_answers(again, "float64", shapes), said)

    replace_atomically(Path(path), save)
    return (row,)


def judged(stack: Stack, form: str, run: Callable[[Array], Any], said: Statement) -> Judged:
    """How far an export is seen from the stack; further than both bounds together is a fault."""
    x = stack.box.sample(POINTS, np.random.default_rng(0))
    x[-len(x) // 4 :] = np.where(x[-len(x) // 4 :] < stack.box.centre, stack.box.low, stack.box.high)
    x = np.concatenate([x, [stack.observed.at]])
    seen = float(np.abs(np.asarray(run(x)).ravel() - stack(x)).max())
    allowed = float(stack.certificate.bound or 0.0) + (said.bound if said.bound is not None else stack.error)
    if not seen <= allowed:
        raise AssertionError(f"the export is {seen!r} away from the stack: please report this")
    return Judged(form, "float64", seen, len(x), said)


def semantics(stack: Stack, said: Statement) -> dict[str, Any]:
    """What an export says about itself."""
    return {
        "target": stack.target.to_json(), "layers": stack.layers, "tokens": stack.tokens,
        "certificate": stack.certificate.to_json(), "statement": said.to_json(), "dtype": "float64", "form": "literal",
    }  # fmt: skip
