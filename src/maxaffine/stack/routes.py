"""Routes of a stack: every way to run it, and what is proved of each.

arrays          stack(x), and `maxaffine eval`
tensors         stack(t) for tensors of PyTorch: on a CUDA device by one kernel (device.py), elsewhere in float64 inside
matrices        stack.matrices(), block by block in float64, by any software
kernel module   stack.to_torch(form="kernel"), the same as one operator
multihead       stack.to_torch(), blocks around stock torch.nn.MultiheadAttention
onnx            stack.to_onnx(path), the same blocks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maxaffine.core.errors import BadInput
from maxaffine.core.rounding import FLOAT32
from maxaffine.proofs.assumptions import LITERAL_SOFTMAX
from maxaffine.proofs.routes import CLAMPS, OPERATOR, RAISES, UNSAID
from maxaffine.proofs.statement import NO_GRADIENT, NONE, Statement
from maxaffine.runtime.gpu.stack_program import StackProgram
from maxaffine.stack.device import on_device

if TYPE_CHECKING:
    from maxaffine.stack.stack import Stack

ROUTES: dict[str, tuple[tuple[str, ...], str, bool, tuple[str, ...]]] = {
    "arrays": (("float64",), RAISES, False, ("cpu",)),
    "tensors": (("float64", "float32"), RAISES, True, ("cpu", "cuda")),
    OPERATOR: (("float64", "float32"), CLAMPS, True, ("cpu", "cuda")),
    "matrices": (("float64",), UNSAID, False, ("cpu",)),
    "multihead": (("float64",), CLAMPS, True, ("cpu", "cuda")),
    "onnx": (("float64",), CLAMPS, False, ("cpu",)),
}
"""Dtypes, what happens outside the box, whether there are gradients, devices."""

KERNEL = "fused multiply-adds, sums, products and square roots of the GPU follow IEEE 754, exp is accurate to 4 ulp"
FINITE = 2.0**127  # what float32 surely holds
LITERAL = ("matrices", "multihead", "onnx")


def statement(stack: Stack, route: str, dtype: str | None, device: str) -> Statement:
    """What is proved of one route in one arithmetic."""
    if route not in ROUTES:
        raise BadInput(f"`route` (={route!r}) is not known; choose one of {', '.join(ROUTES)}.")
    if device not in ("cpu", "cuda"):
        raise BadInput(f'`device` (={device!r}) must be "cpu" or "cuda".')
    dtypes, outside, gradient, devices = ROUTES[route]
    chosen = dtypes[0] if dtype is None else dtype
    if chosen not in dtypes:
        raise BadInput(f"`dtype` (={dtype!r}) is not one of this route's ({', '.join(dtypes)}).")
    more: dict[str, Any] = {"device": device, "outside": outside, "gradient": NO_GRADIENT if gradient else NONE}
    if device not in devices:
        return Statement.not_covered(route, chosen, "it runs on the CPU", **more)
    bound = stack.certificate.bound
    assert bound is not None
    assumed = stack.certificate.assumptions
    stated = "; stated in the file, not checked" if stack.standing == "stated" else ""
    if route in LITERAL:
        literal = stack.literal.get("float64", "nothing is stated of it")
        if isinstance(literal, str):
            return Statement.not_covered(route, chosen, literal, **more)
        parts = {"stack": bound, "literal softmax": max(literal - bound, 0.0)}
        why = f"the literal softmax of every layer{stated}"
        return Statement(route, chosen, literal, why, parts, assumptions=(*assumed, LITERAL_SOFTMAX), **more)
    if chosen == "float32" and not stack.largest + 2.0 * max(bound, stack.error) < FINITE:
        return Statement.not_covered(route, chosen, f"values of up to {stack.largest:.2g} go beyond float32", **more)
    made = on_device(stack, chosen) if device == "cuda" else None
    if isinstance(made, StackProgram):
        why = f"{words(made, chosen)}{stated}"
        return Statement(route, chosen, made.bound, why, made.parts, assumptions=(*assumed, KERNEL), **more)
    parts = {"stack": bound}
    if chosen == "float32":
        parts["output"] = FLOAT32.unit * (stack.largest + bound) * (1 + 1e-12) + FLOAT32.tiny
    why = "the bound of the stack" if route == "arrays" else "computed in float64"
    why += "" if made is None else f" by PyTorch's operations: {made}"
    total = sum(parts.values()) * (1 + 2.0**-50)
    return Statement(route, chosen, total, f"{why}{stated}", parts, assumptions=assumed, **more)


def words(made: StackProgram, dtype: str) -> str:
    """What the kernel of a stack is, for a person."""
    inside = "" if made.dtype == dtype else f" in {made.dtype}, rounded to {dtype} at the end"
    return f"one kernel{inside}: {len(made.steps)} nodes, {made.multiplications:,} multiply-adds per query"


def statements(stack: Stack, devices: tuple[str, ...] = ("cpu", "cuda")) -> list[Statement]:
    """All routes in every dtype, on every device that they run on."""
    return [
        statement(stack, route, dtype, device)
        for route, (dtypes, _, _, own) in ROUTES.items() for device in own if device in devices for dtype in dtypes
    ]  # fmt: skip
