"""Every way to run a layer on the CPU as a function of points (B, D): what a user would call, with the statement it carries.

A way is a route in one arithmetic and one variant: another layout, another opset, self or cross, x in float32 or float64.  It is
built when it is run for the first time; one that is not covered is never built.
"""

import copy
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from maxaffine.compiled import Compiled
from maxaffine.core.arrays import Array
from maxaffine.core.budget import count_text
from maxaffine.core.rounding import compute_format
from maxaffine.export.head import head_of
from maxaffine.export.safetensors_file import pack, run
from maxaffine.export.write import in_steps, module_answers, onnx_answers
from maxaffine.layer.layer import shaped
from maxaffine.layer.records import CrossMatrices, SelfMatrices
from maxaffine.proofs.routes import OPERATOR, TENSORS
from maxaffine.proofs.statement import Statement

Run = Callable[[Array], Array]

CHUNK = 1 << 21  # points times tokens that one call of a literal form takes
LISTED = 3000  # tokens up to which literal forms are built
NOT_K = "layout K adds scores up in x, not in x - centre"
FULL = 64  # tokens up to which all query columns of self-attention are multiplied out


@dataclass(frozen=True)
class Way:
    """A route in one variant: its statement, how to build what answers (B, D) with (B, K), and the x that it takes.

    `narrow`: x are float32 numbers.  `slow`: how many times the work of a vectorised softmax a point costs.
    """

    route: str
    variant: str
    statement: Statement
    build: Callable[[], Run]
    narrow: bool = False
    slow: float = 1.0

    @property
    def name(self) -> str:
        """The route and the variant."""
        return f"{self.route}, {self.variant}" if self.variant else self.route


def ways(compiled: Compiled, kept: Callable[[str], bool] = lambda route: True) -> Iterator[Way]:
    """All ways of a layer whose route is `kept`, those that are not covered among them."""
    for make in (_arrays, _tensors, _modules, _operators, _literal_modules, _matrices, _onnx, _safetensors):
        yield from (way for way in make(compiled) if kept(way.route))


def _own(compiled: Compiled) -> str:
    return compute_format(compiled.dtype).name


def _chunked(run: Callable[[Array], Any], compiled: Compiled) -> Run:
    """A form in chunks of points, its answers in rows; implied tokens are not met."""
    met = compiled.weights.work if compiled.tokens > LISTED else compiled.tokens
    return in_steps(lambda x: _flat(run(x), len(x)), max(1, CHUNK // max(met, 1)))


def _flat(answer: Any, count: int) -> Array:
    return np.asarray(answer, dtype=np.float64).reshape(count, -1)


def _arrays(compiled: Compiled) -> Iterator[Way]:
    def call(layer: Compiled, runtime: str | None) -> Run:
        return lambda x: _flat(layer(*compiled.target.split(x), runtime=runtime), len(x))

    def loaded() -> Run:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "layer.safetensors"
            place.write_bytes(compiled.to_bytes())
            return call(Compiled.load(place), None)

    yield Way("arrays", "", compiled.statement("arrays"), partial(call, compiled, None))
    yield Way("arrays", "loaded", compiled.statement("arrays"), loaded)
    for runtime in compiled.runtimes():
        route = "nearest" if runtime == "hard" else runtime
        yield Way(route, "", compiled.statement(route), partial(call, compiled, runtime))
    yield Way("attention", "", compiled.statement("attention"), partial(call, compiled, None))


def _tensors(compiled: Compiled) -> Iterator[Way]:
    import torch

    def call(dtype: str, gradient: bool, runtime: str | None) -> Run:
        def run(x: Array) -> Array:
            parts = [torch.from_numpy(part.astype(dtype)).requires_grad_(gradient) for part in compiled.target.split(x)]
            found: Any = compiled(*parts, runtime=runtime)
            return _flat(found.detach().double().numpy(), len(x))

        return run

    asked = ((False, None), (True, None), (False, "factorised"))
    for dtype in ("float64", "float32"):
        for route, (gradient, runtime) in zip(TENSORS, asked, strict=True):
            yield Way(route, "", compiled.statement(route, dtype), partial(call, dtype, gradient, runtime), dtype == "float32")


def _called(module: Any, dtype: str, compiled: Compiled, gradient: bool = False) -> Run:
    return _chunked(module_answers(module, dtype, compiled.weights.inputs, gradient), compiled)


def _modules(compiled: Compiled) -> Iterator[Way]:
    said, own = compiled.statement("module"), _own(compiled)
    made = cache(compiled.to_torch)
    yield Way("module", "", said, lambda: _called(made(), "float64", compiled))
    yield Way("module", "with gradients", said, lambda: _called(made(), "float64", compiled, True))
    yield Way("module", "trainable", said, lambda: _called(compiled.to_torch(trainable=True), "float64", compiled))
    if own == "float32":
        yield Way("module", "float32 x", said, lambda: _called(made(), "float32", compiled), True)
    if said.covered:  # converted, the module withdraws its statement
        module = copy.deepcopy(made())
        other = module.double() if own == "float32" else module.float()
        changed = other.statement
        assert changed is not None
        variant = "in float64" if own == "float32" else "in float32"
        yield Way("module", variant, changed, lambda: _called(other, "float64", compiled))


def _operators(compiled: Compiled) -> Iterator[Way]:
    made = cache(lambda: compiled.to_torch(form="kernel"))

    def build(dtype: str, gradient: bool) -> Run:
        return _called(made(), dtype, compiled, gradient)

    for dtype, gradient in (("float64", False), ("float64", True), ("float32", False)):
        said = compiled.statement(OPERATOR, dtype)
        yield Way(OPERATOR, "with gradients" if gradient else "", said, partial(build, dtype, gradient), dtype == "float32")


def _literal_modules(compiled: Compiled) -> Iterator[Way]:
    said = _listable(compiled, compiled.statement("literal module"))
    kinds = ("cross",) if compiled.target.inputs == "pair" else ("self", "cross")
    made = cache(lambda kind: compiled.to_torch(kind, "literal"))

    def build(kind: str, dtype: str) -> Run:
        return _called(made(kind), dtype, compiled)

    for kind in kinds:
        yield Way("literal module", kind, said, partial(build, kind, "float64"), slow=4.0)
    if _own(compiled) == "float32":
        yield Way("literal module", "float32 x", said, partial(build, kinds[0], "float32"), True, 4.0)
    said = _listable(compiled, compiled.statement("multihead"))
    yield Way("multihead", "", said, lambda: _called(compiled.to_multihead_attention(), "float64", compiled), slow=4.0)


def _listable(compiled: Compiled, said: Statement) -> Statement:
    """The statement, unless the trial does not build so many tokens."""
    many = said.covered and compiled.tokens > LISTED
    return said.withdrawn(f"{count_text(compiled.tokens)} tokens are not listed in this trial") if many else said


def _matrices(compiled: Compiled) -> Iterator[Way]:
    said = _listable(compiled, compiled.statement("matrices"))
    places = [("self", "Q"), ("self", "K"), ("self", "I"), ("cross", None)]

    def build(kind: str, layout: str | None) -> Run:
        return by_hand(compiled.matrices(kind, layout), compiled.weights.inputs)

    for kind, layout in places[3:] if compiled.target.inputs == "pair" else places:
        here = said.withdrawn(NOT_K) if layout == "K" and said.covered else said
        yield Way("matrices", layout or kind, here, partial(build, kind, layout), slow=40.0)


def by_hand(made: SelfMatrices | CrossMatrices, shapes: Any) -> Run:
    """The definition, point by point: Linear, the three products, one softmax over columns, W_O."""
    one: Callable[..., Array] = made if isinstance(made, CrossMatrices) else partial(made, full=len(made.W_O) <= FULL)

    def run(x: Array) -> Array:
        parts = [part.reshape(len(x), d, n) for part, (d, n) in zip(shaped(x, shapes), shapes, strict=True)]
        return np.stack([one(*(part[i] for part in parts)).ravel() for i in range(len(x))])

    return run


def _onnx(compiled: Compiled) -> Iterator[Way]:
    layer, own = compiled.weights, _own(compiled)

    def build(literal: bool, opset: int) -> Run:
        from maxaffine.export import onnx_fast, onnx_model

        rest: Any = compiled.target.output_shape, layer.inputs, own, opset, {}
        model = onnx_model.build(head_of(layer), *rest) if literal else onnx_fast.build_fast(layer, *rest)
        return _chunked(onnx_answers(model.SerializeToString(), own, layer.inputs), compiled)

    said, listed = compiled.statement("onnx"), _listable(compiled, compiled.statement("literal onnx"))
    for opset in (23, 17):
        yield Way("onnx", f"opset {opset}", said, partial(build, False, opset), own == "float32")
        yield Way("literal onnx", f"opset {opset}", listed, partial(build, True, opset), own == "float32", 4.0)


def _safetensors(compiled: Compiled) -> Iterator[Way]:
    def build() -> Run:
        folder = tempfile.mkdtemp()
        place = Path(folder) / "export.safetensors"
        place.write_bytes(pack(compiled.weights, head_of(compiled.weights), {}))
        answer = _chunked(lambda x: run(place, x), compiled)
        weakref.finalize(answer, shutil.rmtree, folder, ignore_errors=True)
        return answer

    yield Way("safetensors", "", _listable(compiled, compiled.statement("safetensors")), build, slow=4.0)
