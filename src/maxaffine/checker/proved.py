"""What a rule of the checker hands over: its bound, how it was found, and the way to a bound of the literal form."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxaffine.core.rounding import DTYPES


class NotProved(Exception):
    """What stands in the way of a proof, as a sentence."""


@dataclass(frozen=True)
class Beside:
    """What a part of a layer shares its softmax with: tokens and groups in all, and the bias between them."""

    tokens: int
    groups: int
    bias: float


@dataclass(frozen=True)
class Form:
    """An arithmetic that a literal form is evaluated in: unit roundoff, smallest normal number, the largest logit followed.

    `beside` says of the form of a part what it shares its softmax with.
    """

    name: str
    unit: float
    normal: float
    largest: float
    beside: Beside | None = None

    def gamma(self, count: float) -> float:
        """What that many roundings make of a product or a sum, relative to its terms; infinite where that says nothing."""
        return rounded(count, self.unit)


FORMS = {
    "float64": Form("float64", DTYPES["float64"].unit, 2.0**-1022, 1e300),
    "float32": Form("float32", DTYPES["float32"].unit, 2.0**-126, 1e37),
}
DOUBLE = FORMS["float64"].unit


def rounded(count: float, unit: float) -> float:
    """n u / (1 - n u)."""
    whole = count * unit
    return whole / (1.0 - whole) if whole < 0.5 else float("inf")


def exact(numbers: ArrayLike) -> Any:
    """An array of float64 numbers as an array of fractions, for sums and products without rounding."""
    return np.vectorize(lambda number: Fraction(float(number)), otypes=[object])(numbers)


@dataclass(frozen=True)
class Proved:
    """A bound of the layer as it runs by default, how it was proved, and what proves a bound of its literal form.

    `literal` takes an arithmetic and a goal, the bound that is claimed; None where this checker has no proof of such forms.
    """

    bound: float
    how: str
    literal: Callable[[Form, float], float] | None = None
    parts: tuple[float, ...] = ()  # of layers side by side, every part's own bound in its own norm
