"""A layer, or a stack, as a torch.nn.Module of one operator: inside a compiled model it is one kernel.

It answers as `layer(tensor)` does, in the dtype of the tensors that come, but for points outside the box, which are moved to its
nearest point.  It holds no numbers that could be trained or converted: `.half()`, `.to(dtype)` change nothing.  Its state is the
fingerprint of its layer, so that the state of another one is refused and not passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor

from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import compute_format
from maxaffine.export.stated_module import Stated
from maxaffine.export.torch_module import Exported
from maxaffine.export.write import judge_module
from maxaffine.proofs.routes import OPERATOR, narrow_tolerance
from maxaffine.proofs.statement import Statement
from maxaffine.runtime.torch_operator import Operator, operator
from maxaffine.runtime.torch_runtime import DTYPES, NARROW

if TYPE_CHECKING:
    from maxaffine.compiled import Compiled


class Source(Protocol):
    """A layer or a stack, as far as a module asks it."""

    def statement(self, route: str, dtype: str | None, device: str) -> Statement: ...  # noqa: D102


class KernelModule(Stated):
    """A module of one operator; `statement` is for tensors of its `own` dtype on the module's device."""

    fingerprint: Tensor
    source: Source
    operator: Operator
    own: str

    def hold(self, source: Source, operator: Operator, own: str) -> None:
        """Keep what the module computes with, and its fingerprint."""
        self.source, self.operator, self.own = source, operator, own
        self.key, self.outputs = operator.key, operator.outputs
        self.register_buffer("fingerprint", torch.tensor(list(bytes.fromhex(operator.digest)), dtype=torch.uint8))
        self.state()

    def statement_for(self, dtype: torch.dtype) -> Statement:
        """What is proved for tensors of that dtype on the module's device."""
        name, device = str(dtype).removeprefix("torch."), self.low.device.type
        if device not in ("cpu", "cuda"):
            return self.source.statement(OPERATOR, name, "cpu").withdrawn(f"nothing is proved of tensors on {device}")
        return self.source.statement(OPERATOR, name, device)

    def answers(self, points: Tensor) -> Tensor:
        """What the operator answers to points (B, D): (B, K) in their dtype."""
        if points.dtype not in (*DTYPES, *NARROW) or points.dim() != 2 or points.shape[1] != len(self.low):
            raise BadInput(
                f"`x` (={tuple(points.shape)}, {points.dtype}) must hold batches of {len(self.low)} variables, in float64, "
                "float32, bfloat16 or float16."
            )
        found: Tensor = torch.ops.maxaffine.layer(points, self.key, self.outputs)
        return found

    def state(self) -> None:
        """State what is proved where the module is now."""
        self.statement = self.statement_for(getattr(torch, self.own))

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.state()
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        other = state_dict.get(f"{prefix}fingerprint")
        if isinstance(other, Tensor) and bytes(other.cpu().tolist()).hex() != self.operator.digest:
            raise BadInput(
                f"the state under {prefix!r} is of another layer: this form holds a kernel, not numbers that can be changed. "
                'Make the module of that layer, or leave `form` out.'
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


class KernelLayer(KernelModule, Exported):
    """A layer as one operator."""

    def __init__(self, source: Compiled, operator: Operator) -> None:
        super().__init__(source.weights, source.target.output_shape, "low")
        self.hold(source, operator, compute_format(source.weights.dtype).name)

    def forward(self, *x: Tensor) -> Tensor:
        """Values of the layer, in the dtype of x."""
        return self.present(self.answers(self.joined(*x)))


def to_kernel(source: Compiled, trainable: bool = False) -> KernelLayer:
    """The module of a layer, run against it before it is handed out."""
    if trainable:
        raise BadInput('`trainable` (=True): a kernel has no parameters to learn; use form="fast", whose keys and values are.')
    made = operator(source.weights, narrow_tolerance(source), source.reserve or 0.0)
    module = KernelLayer(source, made)
    module.semantics = source.semantics(module.statement)
    judge_module(source, module, "kernel")
    return module
