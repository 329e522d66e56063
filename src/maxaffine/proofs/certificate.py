"""A certificate: a statement about the error of a layer, with its assumptions and its parts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from maxaffine.core.errors import BadInput
from maxaffine.core.scope import Scope
from maxaffine.proofs.assumptions import DRAW
from maxaffine.proofs.statistical import Drawn, stated

if TYPE_CHECKING:
    from maxaffine.proofs.literal_form import ProvedBlend

PARTS = ("approximation", "leakage", "rounding", "target_rounding")
SAFETY = 1.0 + 1e-12  # the closed forms are sums of fewer than 1,000 positive terms evaluated in float64
LEAST_INTEGRAL = 1e-260  # of |layer - target|^p that is claimed: powers below the numbers of float64 vanish beside it

EVERY_X = Scope()


@dataclass(frozen=True)
class Certificate:
    """||layer - target|| <= bound in the stated norm, dtype and scope; kind "none" makes no statement.

    Kind "statistical" has no bound: `drawn` says what a draw of fresh points shows, with which confidence (statistical.py).
    Where `least` is a number, |layer(x) - target(x)| <= bound |target(x)| at every x, and |target| >= least (pointwise.py).
    """

    kind: str  # "proved" | "statistical" | "none"
    norm: float  # inf, or p of L_p
    bound: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    argument: str = ""
    theorem: str = ""
    assumptions: tuple[str, ...] = ()
    dtype: str = "float64"
    runtime: str = "arrays"
    scope: Scope = EVERY_X
    details: Mapping[str, float] = field(default_factory=dict)
    least: float | None = None
    drawn: Drawn | None = None  # of kind "statistical": what a draw says; then `bound` is None
    # per group what the proof knows of its clusters, for the literal form (proofs/literal.py); no part of a file
    blends: tuple["ProvedBlend | None", ...] = field(default=(), compare=False, repr=False)
    within: tuple["Certificate", ...] = field(default=(), repr=False)  # of layers side by side those of the parts

    @classmethod
    def proved(cls, norm: float, parts: Mapping[str, float], **words: Any) -> "Certificate":
        """A proved bound, the sum of its parts, each rounded up; in L_p no smaller than what float64 can integrate."""
        rounded = {name: float(parts.get(name, 0.0)) * SAFETY for name in PARTS}
        if math.isfinite(norm):
            missing = LEAST_INTEGRAL ** (1.0 / norm) - math.fsum(rounded.values())
            rounded["rounding"] += max(0.0, missing)
        return cls("proved", norm, math.fsum(rounded.values()) * (1.0 + 2.0**-52), rounded, **words)

    @classmethod
    def nothing(cls, norm: float, reason: str, dtype: str) -> "Certificate":
        """No statement, and why."""
        return cls("none", norm, None, theorem=reason, dtype=dtype, scope=Scope("nothing"))

    @classmethod
    def statistical(cls, drawn: Drawn, dtype: str) -> "Certificate":
        """What a draw says."""
        theorem = f"{drawn.words}, {drawn.how}"
        return cls("statistical", drawn.norm, None, argument="draw", theorem=theorem, assumptions=DRAW, dtype=dtype,
                   scope=Scope("share"), drawn=drawn)  # fmt: skip

    def with_details(self, **details: float) -> "Certificate":
        """The same statement with more numbers told."""
        return replace(self, details={**self.details, **details})

    def raised(self, bound: float) -> "Certificate":
        """The certificate with at least this bound; what is added stands with the approximation."""
        if self.bound is None or bound <= self.bound:
            return self
        parts = {**self.parts, "approximation": self.parts.get("approximation", 0.0) + (bound - self.bound)}
        return replace(self, bound=bound, parts=parts)

    @property
    def pointwise(self) -> bool:
        """Whether the bound is relative to |target(x)| at every x."""
        return self.least is not None

    @property
    def where(self) -> str:
        """Where an error is meant, as a person reads it behind a number: in a norm, or at so many entries and nowhere else."""
        if self.scope.over == "entries":
            return f"at {self.scope.count:,} entries; nothing between them"
        if self.pointwise:
            return "in the sup norm relative to |f(x)|, pointwise"
        return "in the sup norm" if math.isinf(self.norm) else f"in the L_{self.norm:g} norm"

    def __str__(self) -> str:
        if self.drawn is not None:
            return f"statistical: {self.theorem}"
        if self.bound is None:
            return f"nothing proved: {self.theorem}"
        return f"{self.kind}: error <= {self.bound:.6g} {self.where} ({self.argument}, {self.dtype})"

    @property
    def norm_label(self) -> float | str:
        """What records say: "inf", p, "pointwise" or "entries"."""
        if self.pointwise:
            return "pointwise"
        return "entries" if self.scope.over == "entries" else "inf" if math.isinf(self.norm) else self.norm

    def to_json(self) -> dict[str, Any]:
        """Plain data; the norm is "inf", a number, "pointwise" or "entries"."""
        return {
            "kind": self.kind,
            "norm": self.norm_label,
            "bound": self.bound,
            "parts": dict(self.parts),
            "argument": self.argument,
            "theorem": self.theorem,
            "assumptions": list(self.assumptions),
            "dtype": self.dtype,
            "runtime": self.runtime,
            "scope": self.scope.to_json(),
            "details": dict(self.details),
            **({} if self.least is None else {"least": self.least}),
            **({} if not self.within else {"within": [one.to_json() for one in self.within]}),
            **({} if self.drawn is None else {"drawn": self.drawn.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Certificate":
        """The inverse of to_json; files of before call the argument of the proof a route, and have words for the scope."""
        data = {"argument" if name == "route" else name: value for name, value in data.items()}
        norm = math.inf if data["norm"] in ("inf", "entries", "pointwise") else float(data["norm"])
        if (data["norm"] == "pointwise") != _positive(data.get("least")):
            raise BadInput("its certificate is relative to |f(x)| without a lower bound of it, or the other way round")
        data = {**data, "drawn": stated(data), "norm": norm, "scope": Scope.of(data), "assumptions": tuple(data["assumptions"])}
        if "within" in data:
            if any("within" in one for one in data["within"]):
                raise BadInput("a part of its certificate has parts of its own")
            data["within"] = tuple(cls.from_json(one) for one in data["within"])
        return cls(**{name: value for name, value in data.items() if name != "domain"})


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0.0 < value < math.inf
