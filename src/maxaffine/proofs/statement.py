"""A statement: what is proved of one way to run a layer, or why nothing is.

A way to run a layer is a *route*: arrays, tensors, a named runtime, a module, a file that leaves.  `proofs/routes.py` lists them
all and makes their statements; `Compiled.statement` hands them out, and modules and files carry theirs with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

NO_GRADIENT = "gradients are those of what runs, the layer or a kernel; how far they are from the target's is not proved"
NONE = "it has no gradients"


class Bound(float):
    """A bound that says what it rests on (`standing`): "proved" here, "checked" from its file, or only "stated" there.

    `where` is said beside it where it is not meant in a norm: at the entries of a table, and nowhere else.
    """

    standing: str
    where: str

    def __new__(cls, value: float, standing: str, where: str = "") -> Bound:
        """The number, and what it rests on."""
        made = super().__new__(cls, value)
        made.standing, made.where = standing, where
        return made

    def __repr__(self) -> str:
        words = [self.where] if self.where else []
        words += ["stated, not checked"] if self.standing == "stated" else []
        return f"{float.__repr__(self)} ({'; '.join(words)})" if words else float.__repr__(self)

    def __reduce__(self) -> tuple[type[Bound], tuple[float, str, str]]:
        return Bound, (float(self), self.standing, self.where)


@dataclass(frozen=True)
class Statement:
    """|what this route computes - target| <= bound on the box; where `bound` is None, `why` says why the route is not covered.

    Where `statistical` is a sentence, it is what a draw says of this route; nothing is proved of it then.
    `parts` adds up to the bound: what is proved of the layer, and what this route adds.  `outside` says what happens to queries
    outside the box, `gradient` whether gradients are covered.
    """

    route: str
    dtype: str  # of the arithmetic
    bound: float | None
    why: str
    parts: Mapping[str, float] = field(default_factory=dict)
    device: str = "cpu"
    norm: float | str = "inf"
    outside: str = "an error is raised"
    gradient: str = NONE
    assumptions: tuple[str, ...] = ()
    statistical: str | None = None

    @property
    def short(self) -> str:
        """The bound in a word, or that there is none."""
        if self.statistical is not None:
            return "statistical"
        return "not covered" if self.bound is None else f"{self.bound:.4g}"

    @property
    def covered(self) -> bool:
        """Whether a bound is proved."""
        return self.bound is not None

    @classmethod
    def not_covered(cls, route: str, dtype: str, why: str, **more: Any) -> Statement:
        """No bound, and why."""
        return cls(route, dtype, None, why, **more)

    def bits_for(self, error: float) -> int | None:
        """How many bits of a number would hold an error that rounding alone exceeds; None where it is held, or they would not do.

        What the literal softmax loses is proportional to the unit of the arithmetic.
        """
        lost = self.parts.get("literal softmax", 0.0)
        room = error - self.parts.get("layer", math.inf)
        if self.bound is None or self.bound <= error or not (lost > 0.0 and room > 0.0):
            return None
        return math.ceil((53 if self.dtype == "float64" else 24) + math.log2(lost / room))

    def withdrawn(self, why: str) -> Statement:
        """The same route after something was changed that the bound did not allow for."""
        return replace(self, bound=None, parts={}, why=why, statistical=None)

    def __str__(self) -> str:
        where = f"{self.route}, {self.dtype}" + ("" if self.device == "cpu" else f", {self.device}")
        place = " at the entries; nothing between them" if self.norm == "entries" else ""
        if self.statistical is not None:
            return f"{where}: statistical: {self.statistical} ({self.why})"
        if self.bound is None:
            return f"{where}: not covered: {self.why}"
        return f"{where}: error <= {self.bound:.6g}{place} ({self.why})"

    def to_json(self) -> dict[str, Any]:
        """Plain data, without infinities."""
        bound = self.bound if self.bound is not None and math.isfinite(self.bound) else None
        return {
            "route": self.route, "dtype": self.dtype, "device": self.device, "covered": bound is not None, "bound": bound,
            "why": self.why, "parts": dict(self.parts), "norm": self.norm, "outside": self.outside, "gradient": self.gradient,
            "assumptions": list(self.assumptions),
            **({} if self.statistical is None else {"statistical": self.statistical}),
        }  # fmt: skip
