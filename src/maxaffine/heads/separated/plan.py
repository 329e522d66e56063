"""The plan of a separated head: how the target is taken apart, sums of exponentials, keys per direction, values per block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maxaffine.core.arrays import Array
from maxaffine.heads.spectral.plan import GroupPlan
from maxaffine.layer.grouped import Group as KeyGroup
from maxaffine.structure.exponential_sums import ExponentialSum
from maxaffine.structure.separation import Separation


@dataclass(frozen=True)
class SeparatedPlan:
    """A separation with exponential sums for its outer functions, keys per direction and values per block."""

    separation: Separation
    choice: str
    sums: tuple[ExponentialSum, ...]
    made: GroupPlan  # all directions; factors per block
    imaginary: tuple[Array, ...] | None
    expected: float
    argument: str = "separated"
    relative: bool = False  # whether it is made for, and proved by, relative errors of every factor

    @property
    def cells(self) -> int:
        """Tokens: the product of the keys per direction, however many that are."""
        return self.made.cells

    @property
    def stored(self) -> int:
        """Numbers of the values."""
        assert self.made.factors is not None
        return sum(f.size for f in self.made.factors) * (1 if self.imaginary is None else 2)

    def build(self) -> KeyGroup:
        """The group of keys and values."""
        plain = self.made.build()
        return KeyGroup(plain.matrix, plain.axes, None, plain.factors, None, self.imaginary)

    def to_json(self) -> dict[str, Any]:
        """Plain data: how the expression was taken apart, the exponential sums, and how the keys were made."""
        axes = [{"family": axis.family, "parameter": axis.parameter} for axis in self.made.axes]
        return {
            "plan": "separated",
            "method": "separated",
            "argument": self.argument,
            "choice": self.choice,
            "directions": [[str(c) for c in w] for w in self.separation.directions],
            "sizes": list(self.separation.sizes),
            "sums": [
                {
                    "constant": one.constant,
                    "coefficients": [[c.real, c.imag] for c in one.coefficients],
                    "exponents": [[c.real, c.imag] for c in one.exponents],
                    "ends": [list(pair) for pair in one.ends],
                }
                for one in self.sums
            ],
            "axes": axes,
            "identities": list(self.separation.used),
            **({"relative": True} if self.relative else {}),
        }
