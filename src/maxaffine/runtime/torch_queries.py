"""Queries as tensors: the shapes and the rules of runtime/queries.py, answered on the tensors' own device.

Queries outside the box are an error unless outside="clamp"; to know, the device is asked once, which waits for it.  With "clamp"
nothing waits.  Needs the extra ``maxaffine[torch]``.
"""

from __future__ import annotations

from typing import Any

import torch

from maxaffine.core.errors import BadInput
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.runtime.gpu import launch
from maxaffine.runtime.queries import boxes_for
from maxaffine.runtime.torch_runtime import torch_layer
from maxaffine.target.box import Box
from maxaffine.target.target import Target

Tensor = torch.Tensor


def evaluate(
    target: Target, layer: Layer | GroupedLayer, *x: Tensor, runtime: str | None = None, outside: str = "error",
    error: float = 0.0, reserve: float = 0.0, narrow: float | None = None,
) -> Tensor:  # fmt: skip
    """Values in the target's shape, on the device and in the dtype of the tensors that came, differentiable in them.

    A kernel may take polynomials that differ from the layer by `narrow` in float32 (an eighth of `error` where it is not given,
    which may be more than the certificate reserves), by `reserve` in float64; its own bound, roundings counted, is
    `TorchLayer.bound`.  The CPU's runtimes may differ by `reserve`, as they do on arrays.
    """
    points, single = as_points(target, *x, outside=outside)
    kernels = launch.runs_on(points.device)
    tolerance = reserve
    if kernels and points.dtype == torch.float32:
        tolerance = error / 8.0 if narrow is None else narrow
    out = torch_layer(layer, points.device, points.dtype, runtime, tolerance)(points)
    out = out.reshape(len(points), *target.output_shape)
    return out[0] if single else out


def as_points(target: Target, *x: Tensor, outside: str = "error") -> tuple[Tensor, bool]:
    """Points (B, D) and whether a single point came."""
    parts, single = [], []
    for box, one in zip(boxes_for(target, len(x), outside), x, strict=True):
        if not isinstance(one, torch.Tensor) or one.dtype not in (torch.float32, torch.float64):
            came = one.dtype if isinstance(one, torch.Tensor) else type(one).__name__
            raise BadInput(f"queries as tensors must be float32 or float64, and {came} came.")
        flat, alone = _flatten(box, one)
        if outside == "error":
            _check(box, flat)
        parts.append(flat)
        single.append(alone)
    if len({(len(part), part.dtype, part.device) for part in parts}) != 1 or len(set(single)) != 1:
        raise BadInput("both inputs must hold the same number of points, in one dtype and on one device.")
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1), single[0]


def _flatten(box: Box, x: Tensor) -> tuple[Tensor, bool]:
    if box.is_sequence:
        alone = x.ndim == 2
        x = x[None] if alone else x
        if x.ndim != 3 or tuple(x.shape[1:]) != (box.d, box.n):
            raise BadInput(f"queries must have shape (B, {box.d}, {box.n}) or ({box.d}, {box.n}), and {tuple(x.shape)} came.")
        return x.transpose(1, 2).reshape(len(x), box.dimension), alone
    D = box.dimension
    if D == 1 and x.ndim <= 1:
        return x.reshape(-1, 1), x.ndim == 0
    if tuple(x.shape) == (D,):
        return x[None], True
    if x.ndim != 2 or x.shape[1] != D:
        raise BadInput(f"queries must have shape (B, {D}) or ({D},), and {tuple(x.shape)} came.")
    return x, False


def _check(box: Box, points: Tensor) -> None:
    """Refuse points that are not numbers or lie outside by more than the rounding of their dtype."""
    if len(points) == 0:
        return
    exact: dict[str, Any] = {"dtype": torch.float64, "device": points.device}
    low, high = torch.tensor(box.low, **exact), torch.tensor(box.high, **exact)
    slack = torch.finfo(points.dtype).eps * torch.maximum(low.abs(), high.abs())
    least, most = torch.aminmax(points.detach(), dim=0)  # NaN where there is one
    good = (least.double() >= low - slack) & (most.double() <= high + slack)
    if bool(good.all()):
        return
    wide = points.detach().double()
    if not bool(torch.isfinite(wide).all()):
        raise BadInput("queries must be finite numbers; NaN or infinity came.")
    row, column = (int(i) for i in torch.nonzero((wide < low - slack) | (wide > high + slack))[0])
    raise BadInput(
        f"query {row} has {box.names[column]} = {float(wide[row, column]):.9g}, outside "
        f'[{box.low[column]:.9g}, {box.high[column]:.9g}]; pass outside="clamp" to use the nearest point of the box.'
    )
