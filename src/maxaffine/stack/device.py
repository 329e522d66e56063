"""The kernel of a stack for tensors of one dtype: made at the first use, with its bound, or why there is none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from maxaffine.compiled import Compiled
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT32
from maxaffine.proofs.certificate import Certificate
from maxaffine.runtime.gpu.direct import inner_box
from maxaffine.runtime.gpu.stack_program import HEAD, ROOT, Form, StackProgram, Step
from maxaffine.runtime.gpu.stacked import FURTHEST, PLAIN, form_of, program_of, stored
from maxaffine.runtime.kept import once
from maxaffine.stack.cutting import Cutting
from maxaffine.stack.device_bound import Off, device_bound
from maxaffine.stack.heads import in_units
from maxaffine.stack.ranges import Unbounded
from maxaffine.structure.stacked import StackNode, StackPlan
from maxaffine.target.box import Box

if TYPE_CHECKING:
    from collections.abc import Sequence

NARROW = 8.0  # times the error asked for, that a float32 kernel may be off by
LEAST, SHORT = 2.0**-8, 2.0**-3  # of the error of a head, that its form may be off it in float64 and in float32


class Source(Protocol):
    """What a kernel is made of: a stack, compiled or loaded."""

    @property
    def plan(self) -> StackPlan: ...  # noqa: D102
    @property
    def heads(self) -> tuple[Compiled, ...]: ...  # noqa: D102
    @property
    def certificate(self) -> Certificate: ...  # noqa: D102
    @property
    def box(self) -> Box: ...  # noqa: D102
    @property
    def error(self) -> float: ...  # noqa: D102


def on_device(source: Source, dtype: str) -> StackProgram | str:
    """The kernel for tensors of a dtype, or why PyTorch's operations run instead, without a full stop.

    Tensors of float32 are computed with in float32 where that is within `NARROW` of the error asked for, else in float64.
    """
    return _on_device(source, dtype)


@once
def _on_device(source: Source, dtype: str) -> StackProgram | str:
    if dtype == "float64":
        return _checked(source, "float64", max(source.error, source.certificate.bound or 0.0))
    for quick in (True, False):
        narrow = _checked(source, "float32", NARROW * source.error, quick)
        if not isinstance(narrow, str):
            return narrow
    wide = on_device(source, "float64")
    return wide if isinstance(wide, str) else rounded(wide, source)


def rounded(wide: StackProgram, source: Source) -> StackProgram:
    """A float64 kernel whose answers are rounded to float32."""
    size = float(source.certificate.details["largest"]) + wide.bound
    parts = {**wide.parts, "output": FLOAT32.unit * size * (1 + 1e-12) + FLOAT32.tiny}
    return StackProgram(**{**wide.__dict__, "parts": parts, "bound": math.fsum(parts.values()) * (1 + 2.0**-50)})


def _checked(source: Source, dtype: str, most: float, quick: bool = False) -> StackProgram | str:
    """The kernel that computes in a dtype, where it is off by `most` at most."""
    try:
        made = _made(source, dtype, quick)
    except (Refused, Unbounded) as failure:
        return str(failure).rstrip(".")
    if not made.bound <= most:
        return f"a kernel in {dtype} would be off by {made.bound:.2g}"
    return made


def _made(source: Source, dtype: str, quick: bool) -> StackProgram:
    plan, box = source.plan, source.box
    forms = {number: _form(source, number, dtype, quick) for number in sorted({n.head for n in plan.nodes if not _plain(n)})}
    steps = [_step(node, source.heads[node.head], dtype) for node in plan.nodes]
    cutting = cutting_of(plan)
    off = [_off(node, source.heads[node.head], forms.get(node.head)) for node in plan.nodes]
    parts = device_bound(cutting, box, steps, stored(plan.result, dtype), off, dtype)
    sides = _box(tuple(box.low.tolist()), tuple(box.high.tolist()), dtype)
    return program_of(plan, steps, forms, sides, dtype, math.fsum(parts.values()) * (1 + 2.0**-50), parts)


def cutting_of(plan: StackPlan) -> Cutting:
    """The exact nodes of a plan."""
    rows = ((n.name, n.function, n.arguments, n.folds, n.bare or (False, False)) for n in plan.nodes)
    names, functions, arguments, folds, bare = zip(*rows, strict=True)
    return Cutting(plan.inputs, names, functions, arguments, plan.output, folds, bare)


def _plain(node: StackNode) -> bool:
    """Whether a node is computed as it stands; a root whose head is asked in other units is not."""
    kind = PLAIN.get(node.function.text, HEAD)
    return kind != HEAD and (kind != ROOT or not any((*node.scales, node.lift)))


def _form(source: Source, number: int, dtype: str, quick: bool) -> Form:
    """The form of a head, as near to it as its error is worth."""
    head = source.heads[number]
    beta, bound = float(head.certificate.bound or 0.0), source.certificate.bound or source.error
    left = max(source.error - bound, 0.0) / bound
    share = SHORT if dtype == "float32" else max(min(left / 4.0, SHORT), LEAST)
    with np.errstate(over="ignore", invalid="ignore"):  # what is beyond the dtype has no finite bound
        return form_of(head.weights, dtype, max(share * beta, head.reserve or 0.0), quick)


def _step(node: StackNode, head: Compiled, dtype: str) -> Step:
    """What computes a node."""
    rows = tuple(stored(row, dtype) for row in node.maps)
    kind = PLAIN[node.function.text] if _plain(node) else HEAD
    if kind not in (HEAD, ROOT):
        return Step(kind, rows)
    if max(map(abs, (*node.scales, node.lift))) > FURTHEST[dtype]:
        raise Refused(f"the scales of its heads go beyond {dtype}")
    low, high = zip(*_box(tuple(head.box.low.tolist()), tuple(head.box.high.tolist()), dtype), strict=True)
    return Step(kind, rows, node.head, low, high, node.scales, node.lift)


def _box(low: Sequence[float], high: Sequence[float], dtype: str) -> list[tuple[float, float]]:
    """The largest box of numbers of the dtype within a box."""
    sides = np.array(inner_box(tuple(low), tuple(high), dtype)).reshape(-1, 2)
    if (sides[:, 0] > sides[:, 1]).any():
        raise Refused(f"one of its boxes is too narrow for {dtype}")
    return [(float(a), float(b)) for a, b in sides]


def _off(node: StackNode, head: Compiled, form: Form | None) -> Off:
    """What a node's head is off by, in the units of the node."""
    if form is None or _plain(node):
        return Off()
    return Off(in_units(float(head.certificate.bound or math.inf), node.lift), in_units(form.bound, node.lift))
