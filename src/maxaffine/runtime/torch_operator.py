"""Layers and stacks as operators of PyTorch, nodes of a graph: torch.compile does not break at them, CUDA graphs record them.

    maxaffine::layer(x, layer, outputs)     F(x), (B, outputs) in the dtype of x, points outside the box taken at its nearest one
    maxaffine::slopes(x, weight, layer)     sum_k weight_k dF_k/dx, (B, D)

Inside runs what `layer(tensor)` runs (runtime/torch_runtime.py): on a CUDA device its kernel, which reads bfloat16 and float16 as
they are, so that nothing stands between it and its neighbours in the graph.  `layer` names the numbers by their hash: the same
graph means the same function in every process, and finds it there once its module has been made.
"""

import hashlib
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch

from maxaffine.core.errors import Refused
from maxaffine.core.records import canonical_json
from maxaffine.layer import file as layer_file
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.runtime.torch_runtime import NARROW, TorchLayer, tolerance, torch_layer, widened

Tensor = torch.Tensor


class Runs(Protocol):
    """What an operator runs on one device and in one dtype; points outside the box are taken at its nearest one."""

    @property
    def has_slopes(self) -> bool: ...  # noqa: D102
    def __call__(self, x: Tensor) -> Tensor: ...  # noqa: D102
    def plain(self, x: Tensor) -> Tensor: ...  # noqa: D102
    def slopes(self, x: Tensor, weight: Tensor) -> Tensor: ...  # noqa: D102


class Operator(ABC):
    """What the operators know by its `key`, as long as this lives; `registered` puts it there.

    `digest` is of the numbers, `known` what else decides the answers.
    """

    outputs: int

    def __init__(self, digest: str, known: object = None) -> None:
        self.digest = digest
        self.key = f"{digest[:32]}-{hashlib.sha256(repr(known).encode()).hexdigest()[:8]}"
        self._made: dict[tuple[torch.device, torch.dtype], Runs] = {}

    def on(self, x: Tensor) -> Runs:
        """What runs tensors like x."""
        place = x.device, torch.float32 if x.dtype in NARROW else x.dtype
        if place not in self._made:
            # In a thread of its own, which has none of the modes of this one: no inference mode, no fake tensors, and memory
            # that is not a CUDA graph's, which its next replay would overwrite.
            with ThreadPoolExecutor(1) as fresh:
                self._made[place] = fresh.submit(self.make, *place).result()
        return self._made[place]

    @abstractmethod
    def make(self, device: torch.device, dtype: torch.dtype) -> Runs:
        """What runs tensors of that device and dtype, with its tables there."""

    def __deepcopy__(self, memo: Any) -> Self:
        """The same, which does not change."""
        return self


Known = TypeVar("Known", bound=Operator)
_KNOWN: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()


def registered(made: Known) -> Known:
    """The operator, or the one that is there under its key."""
    found = _KNOWN.setdefault(made.key, made)
    assert isinstance(found, type(made))
    return found


class LayerOperator(Operator):
    """The operator of one layer."""

    def __init__(self, layer: AnyLayer, narrow: float, reserve: float) -> None:
        super().__init__(digest_of(layer), (narrow, reserve))
        self.layer, self.known = layer, (narrow, reserve)
        self.outputs = layer.d_out * layer.n_out

    def make(self, device: torch.device, dtype: torch.dtype) -> TorchLayer:
        """The layer on tensors."""
        return torch_layer(self.layer, device, dtype, None, tolerance(self.layer, device, dtype, *self.known))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return operator, (self.layer, *self.known)


def operator(layer: AnyLayer, narrow: float, reserve: float) -> LayerOperator:
    """The operator of a layer; runtime/gpu/choice.py says where polynomials may differ from it by `narrow` or `reserve`."""
    return registered(LayerOperator(layer, narrow, reserve))


def digest_of(layer: AnyLayer) -> str:
    """The SHA-256 of all numbers of a layer and of how they belong together."""
    arrays, record = layer_file.to_tensors(layer)
    found = hashlib.sha256(canonical_json(record).encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _known(key: str) -> Operator:
    made = _KNOWN.get(key)
    if made is None:
        raise Refused(
            f"the layer {key} of this graph is not there: keep the module that it was made of, or make it again by "
            '`to_torch(form="kernel")` from the same layer or stack.'
        )
    return made


def _values(x: Tensor, layer: str, outputs: int) -> Tensor:
    return _known(layer).on(x).plain(x)


def _slopes(x: Tensor, weight: Tensor, layer: str) -> Tensor:
    made, dtype = _known(layer).on(x), x.dtype
    if made.has_slopes:
        return made.slopes(x, weight)
    # Operators run below autograd, and what has no kernel of its own is differentiated here.
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False):
        return made.slopes(widened(x), widened(weight)).to(dtype).contiguous()


def _remember(ctx: Any, inputs: tuple[Tensor, str, int], output: Tensor) -> None:
    x, ctx.layer, _ = inputs
    ctx.save_for_backward(x)


def _backward(ctx: Any, weight: Tensor) -> tuple[Tensor, None, None]:
    (x,) = ctx.saved_tensors
    if not torch.is_grad_enabled():
        return torch.ops.maxaffine.slopes(x, weight, ctx.layer), None, None
    value = _known(ctx.layer).on(x)(widened(x)).to(x.dtype)  # create_graph=True: the gradient itself is to be differentiated
    (found,) = torch.autograd.grad(value, x, weight.reshape(value.shape), create_graph=True)
    return found, None, None


_LIBRARY = torch.library.Library("maxaffine", "DEF")
_LIBRARY.define("layer(Tensor x, str layer, SymInt outputs) -> Tensor")
_LIBRARY.define("slopes(Tensor x, Tensor weight, str layer) -> Tensor")
_LIBRARY.impl("layer", _values, "CompositeExplicitAutograd")
_LIBRARY.impl("slopes", _slopes, "CompositeExplicitAutograd")
torch.library.register_fake("maxaffine::layer", lambda x, layer, outputs: x.new_empty((x.shape[0], outputs)), lib=_LIBRARY)
torch.library.register_fake("maxaffine::slopes", lambda x, weight, layer: x.new_empty(x.shape), lib=_LIBRARY)
torch.library.register_autograd("maxaffine::layer", _backward, setup_context=_remember, lib=_LIBRARY)
