"""A stack as a torch.nn.Module of one operator: on a CUDA device one kernel for all nodes, where they fit (device.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from maxaffine.core.errors import BadInput
from maxaffine.core.records import canonical_json
from maxaffine.export.kernel_module import KernelModule
from maxaffine.runtime.queries import flattened
from maxaffine.runtime.torch_operator import Operator, digest_of, registered
from maxaffine.stack import tensors

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack


class OnTensors:
    """A stack on tensors, as operators ask it."""

    has_slopes = False

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def __call__(self, x: Tensor) -> Tensor:
        """(B, 1) at points (B, D), differentiable any number of times."""
        return tensors.by_operations(self.stack, x)[:, None]

    def plain(self, x: Tensor) -> Tensor:
        """The same without gradients, by the kernel where there is one."""
        with torch.no_grad():
            return tensors.evaluate(self.stack, x, outside="clamp")[:, None]

    def slopes(self, x: Tensor, weight: Tensor) -> Tensor:
        """The gradient in x, by PyTorch's operations."""
        with torch.enable_grad():
            start = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(self(start), start, weight)
        return found


class StackOperator(Operator):
    """The operator of a stack."""

    outputs = 1

    def __init__(self, stack: Stack) -> None:
        parts = [canonical_json(stack.plan.to_json()), *(digest_of(head.weights) for head in stack.heads)]
        digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()
        super().__init__(digest, (stack.error, float(stack.certificate.bound or 0.0)))
        self.stack = stack

    def make(self, device: torch.device, dtype: torch.dtype) -> OnTensors:
        """The stack on tensors, its tables where they are."""
        tensors.kernel_of(self.stack, torch.empty((0, self.stack.box.dimension), device=device, dtype=dtype))
        return OnTensors(self.stack)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return stack_operator, (self.stack,)


def stack_operator(stack: Stack) -> StackOperator:
    """The operator of a stack."""
    return registered(StackOperator(stack))


class KernelStack(KernelModule):
    """A stack as one operator."""

    high: Tensor

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.exact = ("low", "high")
        for name, edge in (("low", stack.box.low), ("high", stack.box.high)):
            self.register_buffer(name, torch.tensor(np.asarray(edge), dtype=torch.float64))
        self.box = stack.box
        self.hold(stack, stack_operator(stack), "float64")

    def forward(self, x: Tensor) -> Tensor:
        """Values in the dtype of x: (B, D) -> (B,)."""
        points, single = flattened(self.box, x)
        out = self.answers(points)[:, 0]
        return out[0] if single else out


def to_kernel(stack: Stack, trainable: bool) -> KernelStack:
    """The module of a stack, run against it before it is handed out."""
    if trainable:
        raise BadInput('`trainable` (=True): a kernel has no parameters to learn; leave `form` out.')
    module = KernelStack(stack).eval()
    x = stack.box.sample(64, np.random.default_rng(0))
    away = float(np.abs(module(torch.tensor(x)).numpy() - stack(x)).max())
    said = module.statement
    assert said is not None
    if said.bound is not None and not away <= float(stack.certificate.bound or 0.0) + said.bound:
        raise AssertionError(f"the module is {away!r} away from the stack: please report this")
    return module
