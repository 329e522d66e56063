"""A stack for the kernel of kernels_stacked.py: forms of its heads, its affine rows in numbers of the dtype, and their rounding.

Heads take the forms of runtime/gpu/clustered.py and runtime/gpu/tables.py, polynomials between edges and short series, each with
its distance from the head.  Squares, products, absolute values, positive parts, roots and norms are computed as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.layer.side_by_side import AnyLayer
from maxaffine.runtime.gpu.clustered import Clustered, as_tokens, clustered
from maxaffine.runtime.gpu.listed import listed
from maxaffine.runtime.gpu.stack_program import (
    ABSOLUTE,
    LENGTH,
    POSITIVE,
    PRODUCT,
    ROOT,
    SQUARE,
    Form,
    Row,
    StackProgram,
    Step,
    alive,
    work,
)
from maxaffine.runtime.gpu.tables import polynomials
from maxaffine.structure.stacked import NORM, AffineMap, StackPlan

PLAIN = {
    "u*w": PRODUCT, "u**2": SQUARE, "abs(u)": ABSOLUTE, "max(u, 0)": POSITIVE, "sqrt(u)": ROOT, NORM: LENGTH,
}  # fmt: skip
"""Functions that are computed as they stand."""

LARGEST = {"float32": 2.0**120, "float64": 2.0**1000}  # numbers that a kernel is written for
FURTHEST = {"float32": 100, "float64": 900}  # powers of two in scales and lifts
LIVE = {"float32": 160, "float64": 80}  # values that a query may hold at once, in registers
FEW = 4  # tokens of a softmax that may stay one
MOST = 10_000  # multiply-adds that the code may be written out to


def stored(row: AffineMap, dtype: str) -> Row:
    """A row in numbers of the dtype; Refused where they are beyond it."""
    narrow = np.dtype(dtype).type
    numbers = [row.constant, *row.weights.tolist()]
    if max(map(abs, numbers)) > LARGEST[dtype]:
        raise Refused(f"its linear maps have numbers beyond {dtype}")
    return Row(float(narrow(row.constant)), row.indices, tuple(float(narrow(w)) for w in row.weights))


def form_of(layer: AnyLayer, dtype: str, tolerance: float, quick: bool) -> Form:
    """A head in that dtype within `tolerance` and rounding; Refused where it has no form that goes into the kernel of a stack.

    `quick`: a softmax over a few tokens stays one, which takes fewer operations than its series, and more rounding.
    """
    if not layer.grouped or layer.several or layer.d_out != 1 or layer.dimension > 2:
        raise Refused("one of its heads does not collapse")
    if quick and (few := _few(layer, dtype)) is not None:
        return few
    if layer.has_clusters:
        made = clustered(layer, dtype, tolerance)
        if made.patched or (made.smooth is not None and made.smooth.trains):
            raise Refused("one of its heads of two directions takes patches")
        return made
    found = polynomials(layer, dtype, tolerance)
    if found.trains:
        raise Refused("one of its heads couples three directions")
    return found


def _few(layer: GroupedLayer, dtype: str) -> Clustered | None:
    """A head of a few tokens along one direction as the softmax that it is; None of other heads."""
    group = layer.groups[0]
    if len(layer.groups) > 1 or layer.tilt is not None or not isinstance(group, Group) or group.values is None:
        return None
    if len(group.axes) > 1 or len(group.axes[0].slopes) > FEW:
        return None
    one = listed(as_tokens(group), layer.centre, layer.reach * (1 + 1e-12), dtype)
    parts = {"scores": one.scored, "evaluation": one.evaluated, "query": one.moved}
    bound = math.fsum(parts.values()) * (1 + 1e-9)
    return Clustered((), None, (one,), (), (0.0,), layer.centre, layer.low, layer.high, 1, dtype, bound, parts)


def program_of(
    plan: StackPlan, steps: Sequence[Step], forms: Mapping[int, Form], box: Sequence[tuple[float, float]], dtype: str,
    bound: float, parts: Mapping[str, float],
) -> StackProgram:  # fmt: skip
    """The program; Refused where it does not fit into registers, or would be written out too long."""
    result = stored(plan.result, dtype)
    count, most = work(steps, result, forms), alive(len(box), steps, result)
    if count > MOST:
        raise Refused(f"it takes {count:,} multiply-adds, and code is written out to {MOST:,}")
    if most > LIVE[dtype]:
        raise Refused(f"{most} values are needed at once, and registers hold {LIVE[dtype]} in {dtype}")
    low, high = zip(*box, strict=True)
    return StackProgram(tuple(steps), result, dict(forms), tuple(low), tuple(high), dtype, bound, dict(parts))


def rounding(row: AffineMap, own: Row, size: Array, dtype: str) -> float:
    """A bound of the rounding of a row by fused multiply-adds from left to right, and of its numbers, for values of that size."""
    format_ = dtype_of(dtype)
    total, count = abs(own.constant), len(own.weights)
    off = _away(float(row.exact_constant.lo), float(row.exact_constant.hi), own.constant)
    for n, (i, w) in enumerate(zip(own.indices, own.weights, strict=True)):
        total += abs(w) * float(size[i])
        off += _away(float(row.exact_weights.lo[n]), float(row.exact_weights.hi[n]), w) * float(size[i])
    if total > LARGEST[dtype]:
        raise Refused(f"its values go beyond {dtype}")
    plain = count > 0 and own.constant == 0.0 and abs(own.weights[0]) == 1.0  # the first value is taken as it is
    count -= int(plain)
    smallest = 2.0 * float(np.finfo(dtype).tiny)  # numbers below the normal ones may be lost
    lost = count * (format_.unit * (1.0 + 4.0 * count * format_.unit) * total + smallest)
    return (lost + off) * (1.0 + 2.0**-40)


def _away(low: float, high: float, own: float) -> float:
    """How far a stored number may be from the one it stands for."""
    return max(high - own, own - low, 0.0) * (1.0 + 2.0**-50) if not low == own == high else 0.0
