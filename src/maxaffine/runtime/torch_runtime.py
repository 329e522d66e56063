"""Layers on PyTorch tensors: tensors in, tensors out on the same device and in the same dtype, gradients included.

    collapsed    spectral heads as short polynomials, by Triton kernels            CUDA devices
    windowed     lookups on a uniform grid, by a Triton kernel                     CUDA devices
    factorised   the layer's softmax, clusters by two levels, by PyTorch           every device; gradients in keys and values
    native       the NumPy and numba runtimes of the layer                         CPU tensors without gradients

Queries have the shapes and follow the rules of runtime/queries.py, answered on the tensors' own device: outside the box they are
an error unless outside="clamp"; to know, the device is asked once, which waits for it.  With "clamp" nothing waits.

Tensors of bfloat16 and float16 are computed with in float32, and the answer is rounded once more, to their dtype.

Whatever the tensors' dtype, `factorised` and `native` take x as it is, in float64, and round the answer once, to that dtype.  So
asking for a gradient changes no answer by more than the layer's rounding (and, of spectral layers, what `native` may take from
the certificate's reserve for polynomials).  Queries outside the box are taken at its nearest point; not-a-number stays what it
is.  A hard layer answers with its nearest entry: that is constant but for jumps, and its gradient in x is zero.  Needs the
extra ``maxaffine[torch]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from maxaffine.core.errors import BadInput, Refused
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.runtime import chooser, torch_factorised, torch_structure
from maxaffine.runtime.gpu import choice, launch
from maxaffine.runtime.kept import once
from maxaffine.runtime.queries import NOT_FINITE, beyond, boxes_for, flattened
from maxaffine.target.box import Box

if TYPE_CHECKING:
    from maxaffine.target.target import Target

Tensor = torch.Tensor

DTYPES = {torch.float32: "float32", torch.float64: "float64"}
NARROW = (torch.bfloat16, torch.float16)  # whose numbers float32 holds exactly


class TorchLayer:
    """A layer on one device and in one dtype; call it with points (B, D) for values (B, d_out, n_out).

    `tensors` holds keys and values by their names in the file.  Set `requires_grad_()` on any of them and the layer runs
    through PyTorch's operations, so that gradients reach them (of a hard layer: through its softmax, another function than its
    nearest entry).  `bound` is what the chosen kernel may differ from the layer by, roundings counted; None where PyTorch's own
    operations or the CPU's runtimes compute, whose rounding the layer's certificate counts.
    """

    def __init__(
        self, layer: AnyLayer, device: Any = None, dtype: torch.dtype = torch.float32, runtime: str | None = None,
        tolerance: float = 0.0,
    ) -> None:  # fmt: skip
        if dtype not in DTYPES:
            raise BadInput(f"`dtype` (={dtype}) must be torch.float32 or torch.float64; convert the queries.")
        if runtime not in (None, "collapsed", "windowed", "factorised", "native"):
            raise BadInput(f"`runtime` (={runtime!r}) must be collapsed, windowed, factorised or native on tensors.")
        self.layer, self.dtype, self.device = layer, dtype, torch.device("cpu" if device is None else device)
        self.structure = torch_structure.structure_of(layer)
        self.tensors = torch_factorised.tensors_of(layer, self.device)
        self.tolerance = tolerance
        self.kernel: launch.Kernel | None = None
        self.runtime, self.reason = self._choose(runtime, tolerance)

    def _choose(self, asked: str | None, tolerance: float) -> tuple[str, str]:
        """The runtime and why."""
        if self.layer.hard and asked in (None, "native"):
            return "native", "the nearest entry answers alone"
        if asked in ("factorised", "native"):
            if asked == "native" and self.device.type != "cpu":
                raise BadInput('`runtime` "native" runs on the CPU, and the tensors are elsewhere; use "factorised".')
            return asked, "asked for"
        why_not = "Triton kernels need a CUDA device and the extra maxaffine[gpu]"
        if launch.runs_on(self.device):
            try:
                name, reason, found = choice.choose(self.layer, DTYPES[self.dtype], tolerance, asked)
                self.kernel = launch.kernel_of(self.layer, found, self.device, self.dtype)
                return name, reason
            except Refused as refusal:
                why_not = str(refusal)
        if asked is not None:
            raise Refused(f"`runtime` (={asked!r}) cannot run this layer here: {why_not}")
        return ("native" if self.device.type == "cpu" else "factorised"), why_not

    @property
    def bound(self) -> float | None:
        """sup |kernel - layer| over the box, all roundings counted; None where no kernel runs."""
        return None if self.kernel is None else self.kernel.found.bound

    def __call__(self, x: Tensor) -> Tensor:
        """F(x): (B, D) -> (B, d_out, n_out)."""
        if x.ndim != 2 or x.shape[1] != self.structure.dimension:
            raise BadInput(f"queries must have shape (B, {self.structure.dimension}), and {tuple(x.shape)} came.")
        if x.dtype != self.dtype or x.device.type != self.device.type:
            raise BadInput(f"queries must be {self.dtype} on {self.device}, and {x.dtype} on {x.device} came.")
        learning = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors.values())
        if learning or self.runtime == "factorised":
            return self.factorised(x)
        if self.layer.hard and self.runtime == "native":
            return self._nearest(x)
        if self.runtime == "native":
            return self.factorised(x) if x.requires_grad and torch.is_grad_enabled() else self._native(x)
        assert self.kernel is not None
        if x.requires_grad and torch.is_grad_enabled():
            out: Tensor = _Kernel.apply(x, self)
        else:
            out = self.kernel(x.contiguous())
        return out.reshape(len(x), self.structure.d_out, self.structure.n_out)

    def plain(self, x: Tensor) -> Tensor:
        """F(x) without gradients: (B, K) in the dtype of x, also where that is narrower than this layer's.

        Kernels take it as it is on a GPU; Triton's interpreter does not round to bfloat16 but truncates.
        """
        with torch.no_grad():
            if self.kernel is not None and x.device.type == "cuda":
                return self.kernel(x.contiguous())
            return self(widened(x)).to(x.dtype).reshape(len(x), self.structure.d_out * self.structure.n_out)

    def factorised(self, x: Tensor) -> Tensor:
        """F(x) through PyTorch's operations alone, in float64, differentiable any number of times."""
        wide = torch.clamp(x.to(torch.float64), self.tensors["box.low"], self.tensors["box.high"])
        return torch_factorised.in_chunks(self.structure, self.tensors, wide).to(x.dtype)

    @property
    def has_slopes(self) -> bool:
        """Whether a kernel computes gradients in x."""
        return self.kernel is not None and self.kernel.has_slopes and self.dtype == torch.float32

    def slopes(self, x: Tensor, weight: Tensor) -> Tensor:
        """sum_k weight_k dF_k/dx for x (B, D) and weight (B, K), 0 outside the box: by a kernel, or through the softmax."""
        if self.has_slopes:
            assert self.kernel is not None
            return self.kernel.slopes(x.contiguous(), weight.contiguous())
        if self.layer.hard and self.runtime == "native":
            return torch.zeros_like(x)
        with torch.enable_grad():
            start = x.detach().requires_grad_()
            value = self.factorised(start).reshape(weight.shape)
            (found,) = torch.autograd.grad(value, start, weight)
        return found

    def _nearest(self, x: Tensor) -> Tensor:
        """The nearest entry of a hard layer; where x has a gradient the answer has one too, and it is zero."""
        found = self._native(x)
        if x.requires_grad and torch.is_grad_enabled():
            found = found + (0.0 * torch.nan_to_num(x)).sum(dim=1)[:, None, None]
        return found

    def _native(self, x: Tensor) -> Tensor:
        points = np.clip(x.detach().cpu().numpy().astype(np.float64), self.layer.low, self.layer.high)
        found = torch.from_numpy(np.ascontiguousarray(chooser.evaluate(self.layer, points, tolerance=self.tolerance or None)))
        return found.to(device=x.device, dtype=x.dtype)


class _Kernel(torch.autograd.Function):
    """A kernel's value, with the gradient in x by the kernel of the derivative or through the softmax."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, owner: TorchLayer) -> Tensor:
        assert owner.kernel is not None
        ctx.save_for_backward(x)
        ctx.owner = owner
        return owner.kernel(x.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,), owner = ctx.saved_tensors, ctx.owner
        if not torch.is_grad_enabled():
            return owner.slopes(x, grad), None
        value = owner.factorised(x).reshape(grad.shape)  # create_graph=True: the gradient itself is to be differentiated
        (found,) = torch.autograd.grad(value, x, grad, create_graph=True)
        return found, None


torch_layer = once(TorchLayer)  # made once per device, dtype, runtime and tolerance, and kept as long as the layer lives


def evaluate(
    target: Target, layer: AnyLayer, *x: Tensor, narrow: float, reserve: float, runtime: str | None = None,
    outside: str = "error",
) -> Tensor:  # fmt: skip
    """Values in the target's shape, on the device and in the dtype of the tensors that came, differentiable in them.

    A kernel may take polynomials that differ from the layer by `narrow` in float32 and of clusters (which may be more than the
    certificate reserves), else by `reserve`; its own bound, roundings counted, is `TorchLayer.bound`.  The CPU's runtimes may
    differ by `reserve`, as they do on arrays.
    """
    points, single = as_points(target, *x, outside=outside)
    dtype = torch.float32 if points.dtype in NARROW else points.dtype
    allowed = tolerance(layer, points.device, dtype, narrow, reserve)
    made = torch_layer(layer, points.device, dtype, runtime, allowed)
    differentiable = points.requires_grad and torch.is_grad_enabled()
    out = made(widened(points)).to(points.dtype) if differentiable else made.plain(points)
    out = out.reshape(len(points), *target.output_shape)
    return out[0] if single else out


def tolerance(layer: AnyLayer, device: torch.device, dtype: torch.dtype, narrow: float, reserve: float) -> float:
    """What polynomials may differ from the layer by: on a GPU what its kernels may, else `reserve`."""
    return choice.tolerance(layer, DTYPES[dtype], narrow, reserve) if launch.runs_on(device) else reserve


def widened(points: Tensor) -> Tensor:
    """Points in a dtype that kernels compute in."""
    return points.to(torch.float32) if points.dtype in NARROW else points


def as_points(target: Target, *x: Tensor, outside: str = "error") -> tuple[Tensor, bool]:
    """Points (B, D) and whether a single point came."""
    parts, single = [], []
    for box, one in zip(boxes_for(target, len(x), outside), x, strict=True):
        if not isinstance(one, torch.Tensor) or one.dtype not in (*DTYPES, *NARROW):
            came = one.dtype if isinstance(one, torch.Tensor) else type(one).__name__
            raise BadInput(f"queries as tensors must be float64, float32, bfloat16 or float16, and {came} came.")
        flat, alone = flattened(box, one)
        if outside == "error":
            _check(box, flat)
        parts.append(flat)
        single.append(alone)
    if len({(len(part), part.dtype, part.device) for part in parts}) != 1 or len(set(single)) != 1:
        raise BadInput("both inputs must hold the same number of points, in one dtype and on one device.")
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1), single[0]


def _check(box: Box, points: Tensor) -> None:
    """Refuse points that are not numbers or lie outside by more than the rounding of their dtype."""
    if len(points) == 0:
        return
    low, high = (torch.tensor(edge, dtype=torch.float64, device=points.device) for edge in (box.low, box.high))
    slack = torch.finfo(points.dtype).eps * torch.maximum(low.abs(), high.abs())
    least, most = torch.aminmax(points.detach(), dim=0)  # NaN where there is one
    good = (least.double() >= low - slack) & (most.double() <= high + slack)
    if bool(good.all()):
        return
    wide = points.detach().double()
    if not bool(torch.isfinite(wide).all()):
        raise BadInput(NOT_FINITE)
    row, column = (int(i) for i in torch.nonzero((wide < low - slack) | (wide > high + slack))[0])
    raise beyond(box, row, column, wide)
