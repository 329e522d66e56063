"""What a head is: a name, the targets it serves, and a search for the smallest layer of its kind that is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxaffine.heads.found import Found
    from maxaffine.request import Request


@dataclass(frozen=True)
class Example:
    """A request that the head serves."""

    target: str
    box: Mapping[str, tuple[float, float]]
    error: float
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """A kind of layer, as the compiler, the tables of the docs and the attack know it."""

    name: str  # the `method` of `compile`
    summary: str  # what it is, in a line
    serves: str  # which targets, in a line
    search: str  # "module:function" below maxaffine.heads; imported when the head is asked
    seen: str | None = None  # the same for callables, where that is another search
    slow: bool = False  # asked last, and only where it may win
    examples: tuple[Example, ...] = ()

    def find(self, request: Request, reasons: list[str], fewest: int | None) -> Found | None:
        """The smallest layer of this kind that is proved and has fewer than `fewest` tokens; else why not, in `reasons`."""
        where = self.seen if self.seen is not None and request.target.expression is None else self.search
        module, _, function = where.partition(":")
        found: Found | None = getattr(import_module(f"maxaffine.heads.{module}"), function)(request, reasons, fewest)
        return found
