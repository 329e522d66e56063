"""A stack on PyTorch tensors: tensors in, tensors out on the same device and in the same dtype, differentiable in x.

On a CUDA device one kernel computes all nodes (device.py) where they fit.  Elsewhere, where they do not fit, and for gradients,
PyTorch's operations run node after node in float64, and the answer is rounded to the dtype of x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from maxaffine.runtime.gpu import launch
from maxaffine.runtime.gpu.launch_stacked import StackKernel, stack_kernel
from maxaffine.runtime.torch_runtime import DTYPES, as_points, widened
from maxaffine.stack.device import on_device

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack

Tensor = torch.Tensor


def evaluate(stack: Stack, *x: Tensor, outside: str = "error") -> Tensor:
    """The output (B,) at points (B, D), or a scalar at one point."""
    points, single = as_points(stack.target, *x, outside=outside)
    dtype = points.dtype
    points = widened(points)
    kernel = kernel_of(stack, points)
    if kernel is None:
        out = by_operations(stack, points)
    elif points.requires_grad and torch.is_grad_enabled():
        out = _Kernel.apply(points, stack, kernel)
    else:
        out = kernel(points.contiguous())
    out = out.to(dtype)
    return out[0] if single else out


def kernel_of(stack: Stack, points: Tensor) -> StackKernel | None:
    """The kernel for points, where their device has one for this stack."""
    if not launch.runs_on(points.device):
        return None
    found = on_device(stack, DTYPES[points.dtype])
    return None if isinstance(found, str) else stack_kernel(found, points.device)


def by_operations(stack: Stack, points: Tensor) -> Tensor:
    """The output (B,) node after node in float64, in the dtype of the points, differentiable any number of times."""
    runtime = "factorised" if launch.runs_on(points.device) or points.device.type != "cpu" else None  # heads have kernels there
    low, high = (torch.as_tensor(edge.copy(), device=points.device) for edge in (stack.box.low, stack.box.high))
    x = torch.minimum(torch.maximum(points.to(torch.float64), low), high)
    known: list[Any] = list(x.unbind(1))
    plan = stack.plan.flat
    for node in plan.nodes:
        rows = [row(known) * 2.0**-s for row, s in zip(node.maps, node.scales, strict=True)]
        said: Any = stack.heads[node.head](torch.stack(rows, dim=1), runtime=runtime, outside="clamp")
        known.append(said * 2.0**node.lift)
    return plan.result(known).to(points.dtype)  # type: ignore[no-any-return]


class _Kernel(torch.autograd.Function):
    """The kernel's value, with the gradient in x through PyTorch's operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, stack: Stack, kernel: StackKernel) -> Tensor:
        ctx.save_for_backward(x)
        ctx.stack = stack
        return kernel(x.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        twice = torch.is_grad_enabled()  # create_graph=True: the gradient itself is to be differentiated
        with torch.enable_grad():
            start = x if twice else x.detach().requires_grad_()
            (found,) = torch.autograd.grad(by_operations(ctx.stack, start), start, grad, create_graph=twice)
        return found, None, None
