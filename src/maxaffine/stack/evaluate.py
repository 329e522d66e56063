"""Running a stack: node after node, each by the layer of its head; arrays of NumPy, or tensors of PyTorch in float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.compiled import Compiled
from maxaffine.core.errors import BadInput
from maxaffine.runtime.queries import NOT_FINITE, boxes_for, flattened
from maxaffine.structure.stacked import StackPlan
from maxaffine.target.target import Target

Array = NDArray[Any]


def node_values(plan: StackPlan, heads: Sequence[Compiled], points: Array, threads: int | None = None) -> list[Array]:
    """What every node says at points (B, D) of the box, in order, and last the output: (B,) each.

    Scales are powers of two: nothing is rounded there.  By the proof no argument leaves the box of its head.
    """
    known = [np.ascontiguousarray(column) for column in np.asarray(points, dtype=np.float64).T]
    inputs, plan = len(known), plan.flat
    for node in plan.nodes:
        rows = [np.ldexp(row(known), -s) for row, s in zip(node.maps, node.scales, strict=True)]
        said = heads[node.head](np.stack(rows, axis=1), outside="clamp", threads=threads)
        known.append(np.ldexp(said, node.lift))
    return [*known[inputs:], plan.result(known)]


def tensor_values(plan: StackPlan, heads: Sequence[Compiled], target: Target, x: Sequence[Any], outside: str) -> Any:
    """The output (B,) at a tensor (B, D), or a scalar at (D,): in float64 inside, on its device, in its dtype, differentiable."""
    import torch

    (box,) = boxes_for(target, len(x), outside)
    points, single = flattened(box, x[0].to(torch.float64))
    low, high = (torch.as_tensor(edge.copy(), device=points.device) for edge in (box.low, box.high))
    with torch.no_grad():
        if not bool(torch.isfinite(points).all()):
            raise BadInput(NOT_FINITE)
        slack = torch.finfo(x[0].dtype).eps * torch.maximum(low.abs(), high.abs())
        beyond = ((points < low - slack) | (points > high + slack)).any()
        if outside == "error" and bool(beyond):
            raise BadInput('a query lies outside the box of the stack; outside="clamp" takes the nearest point of the box.')
    known, plan = list(torch.minimum(torch.maximum(points, low), high).unbind(1)), plan.flat
    for node in plan.nodes:
        rows = [row(known) * 2.0**-s for row, s in zip(node.maps, node.scales, strict=True)]
        said: Any = heads[node.head](torch.stack(rows, dim=1), outside="clamp")
        known.append(said * 2.0**node.lift)
    out = plan.result(known).to(x[0].dtype)
    return out[0] if single else out
