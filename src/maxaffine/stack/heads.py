"""The heads of a stack: each node's function on its box by the one-layer compiler, shared where only a scale lies between."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from maxaffine.compiled import Compiled
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64
from maxaffine.expression.expression import Expression
from maxaffine.structure.stacked import LOCAL
from maxaffine.target.box import Box

Compile = Callable[[str, Box, float], Compiled]

HOMOGENEOUS = {"abs(u)": 1, "max(u, 0)": 1}
"""Functions with phi(2^a u) = 2^(a n) phi(u) whose heads have two tokens on any box, and n."""

WIDE = {"tanh(u)": (2.0, 8.0), "sigmoid(u)": (4.0, 16.0)}
"""Functions that a head of two tokens computes on [-2^k, 2^k], and the least and the largest such box where it is found."""

FINER = 16.0  # what heads of two tokens are asked for beyond their share: it costs no token
ROUGHEST = 2.0**-20  # error of heads of tanh and sigmoid: for larger ones a search may stop at heads of three tokens
FEW = 4  # tokens of a head that is not asked for less than it proved


@dataclass(frozen=True)
class Asked:
    """One request for a head: its function, its box, its error; and what the node divides and multiplies by, as powers of two."""

    text: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    error: float
    scales: tuple[int, ...]
    lift: int


@dataclass(frozen=True)
class Made:
    """The head of a node: the layer, its error in the units of the node, and of a norm the number of folds."""

    asked: Asked
    head: Compiled
    folds: int = 0
    uses: int = 1  # how often the node uses it

    @property
    def tokens(self) -> int:
        """Of the node."""
        return self.head.tokens * self.uses

    @property
    def beta(self) -> float:
        """|2^lift head(2^-a u) - phi(u)| on the box of the node; of a norm that of one absolute value."""
        return in_units(float(self.head.certificate.bound or math.inf), self.asked.lift)


def in_units(bound: float, lift: int) -> float:
    """What a bound of a head is in its node, with what may fall below the smallest number."""
    return (math.ldexp(bound, lift) + 2.0 * FLOAT64.tiny) * (1.0 + 2.0**-50)


def is_exact(text: str) -> bool:
    """Whether a head of two tokens computes the function, whatever the error."""
    return text in HOMOGENEOUS or text in WIDE


def asked(function: Expression, box: Interval, error: float) -> Asked:
    """What to ask of the compiler for a function on a box (E,) with an error in the units of the node."""
    text, most = function.text, float(np.max(box.magnitude))
    power = math.frexp(max(most, 2.0**-300))[1]
    if text in HOMOGENEOUS:
        wanted = _power_of_two(math.ldexp(error, -power) / FINER)
        return Asked(text, (-1.0,), (1.0,), wanted, (power,), power * HOMOGENEOUS[text])
    if text in WIDE and most <= WIDE[text][1]:
        edge = max(2.0**power, WIDE[text][0])
        return Asked(text, (-edge,), (edge,), _power_of_two(min(error / FINER, ROUGHEST)), (0,), 0)
    plain = (0,) * len(box)
    return Asked(text, tuple(map(float, box.lo)), tuple(map(float, box.hi)), _short(error), plain, 0)


def _power_of_two(error: float) -> float:
    """The largest one below, so that many nodes share a head; not below what float64 holds well."""
    return float(2.0 ** math.floor(math.log2(max(error, 2.0**-40))))


def _short(error: float) -> float:
    """The number of three digits below: nodes that are alike share a head."""
    step = 10.0 ** (math.floor(math.log10(error)) - 2)
    return math.floor(error / step * (1 + 1e-12)) * step


@dataclass
class Shop:
    """Heads that were compiled, each request once."""

    compile: Compile
    made: dict[Asked, Made | Refused] = field(default_factory=dict)

    def head(self, function: Expression, box: Interval, error: float) -> Made:
        """The head for a node; Refused where there is none."""
        return self.made_for(asked(function, box, error))

    def made_for(self, want: Asked) -> Made:
        """The same of a request."""
        found = self.made.get(want)
        if found is None:
            try:
                edges = {name: (a, b) for name, a, b in zip(LOCAL, want.low, want.high, strict=False)}
                found = Made(want, self.compile(want.text, Box(**edges), want.error))
            except Refused as refusal:
                found = refusal
            self.made[want] = found
        if isinstance(found, Refused):
            raise found
        return found


def predicted(function: Expression, box: Interval, error: float) -> float:
    """About how many tokens a head takes, from the decay of Chebyshev coefficients; what ranks cuttings, no more."""
    text = function.text
    if is_exact(text):
        return 2.0
    if len(box) == 1:
        return _along(lambda x: function.evaluate(x[:, None])[:, 0], float(box.lo[0]), float(box.hi[0]), error)
    centre = 0.5 * (box.lo + box.hi)
    if text == "u*w":
        area = float(np.prod(0.5 * (box.hi - box.lo)))
        return 2.0 if error > 6e-4 * area else 4.0 if error > 3e-7 * area else 6.0

    def moved(axis: int) -> Callable[[Array], Array]:
        def f(x: Array) -> Array:
            points = np.tile(centre, (len(x), 1))
            points[:, axis] = x
            return function.evaluate(points)[:, 0]

        return f

    return 2.0 * math.prod(_along(moved(e), float(box.lo[e]), float(box.hi[e]), error) for e in range(2))


def _along(f: Callable[[Array], Array], low: float, high: float, error: float) -> float:
    """Half the degree that a Chebyshev series needs, and two: clusters of affine values do with about so many tokens."""
    count = 96
    angles = (np.arange(count) + 0.5) * np.pi / count
    with np.errstate(all="ignore"):
        values = f(0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles))
    if not np.isfinite(values).all():
        return 1e6
    orders = np.arange(count)
    size = np.abs(np.cos(np.outer(orders, angles)) @ values) * 2.0 / count
    tail = np.cumsum(size[::-1])[::-1]
    degree = int(np.argmax(tail <= error)) if (tail <= error).any() else count
    return 2.0 + 0.6 * max(0, degree - 3) + (20.0 if degree == count else 0.0)
