"""What an operation is: value in float64, enclosure over intervals and where it is defined, complex ball, derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxaffine.expression.graph import Graph


@dataclass(frozen=True, slots=True)
class Operation:
    """How one operation is computed.

    value    float64 arrays in and out, not finite where it is not defined
    enclose  intervals in and out, rounded outward; means nothing where it is not `defined`
    ball     complex balls in and out; None where a cut is met or a piece is not decided (balls.py)
    slope    of a function of one argument u: (graph, place, u) -> place of f'(u), u occurring once wherever it can
    defined  (enclosure, *arguments) -> where it is surely defined; None: everywhere
    trouble  what is wrong where it is not, with the arguments' texts in place of {0} and {1}
    """

    value: Callable[..., Any]
    enclose: Callable[..., Any]
    ball: Callable[..., Any]
    slope: Callable[[Graph, int, int], int] | None = None
    defined: Callable[..., Any] | None = None
    trouble: str = ""
