"""Random formulas for stacks: 3 to 20 variables, 5 to 60 operations, defined on their box as far as intervals can tell.

A pool of parts begins with the variables; an operation takes parts from it and puts its result there, scaled so that its range is
of order one.  Parts that were used less are taken first, so that formulas are wide and deep in turns; at the end what is left is
added up.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maxaffine.attack.case import Rng, number
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box

SIDES = ((1.0, 2.0), (0.5, 3.0), (-1.0, 1.0), (-2.0, 0.5), (0.0, 1.0), (10.0, 40.0), (100.0, 105.0), (1e-3, 5e-3))
LEAST, MOST = 5, 60  # operations
WIDTH = 3.0  # of the range of a part, about


@dataclass
class Part:
    """A part of a formula, an enclosure of it, and how often it was read."""

    text: str
    range: Interval
    uses: int = 0

    @property
    def ends(self) -> tuple[float, float]:
        """The enclosure."""
        return float(self.range.lo), float(self.range.hi)


SMOOTH = ("tanh", "sigmoid", "sin", "cos", "exp", "square", "erf", "atan")
POSITIVE = ("log", "sqrt", "inverse", "power")


def random_formula(rng: Rng, most: int = MOST) -> tuple[Expression, Box]:
    """A formula of 5 to so many operations that reads every variable of its box."""
    while True:
        text, box = _drawn(rng, most)
        formula = Expression.parse(text, box.names)
        read = sum(node.op == "var" for node in formula.nodes)
        if read == box.dimension and LEAST <= operations(formula) <= most:
            return formula, box


def operations(formula: Expression) -> int:
    """How many operations a formula takes, those that occur twice once: a sum of many terms is one."""
    return sum(node.op not in ("var", "const") for node in formula.nodes)


def _drawn(rng: Rng, most: int) -> tuple[str, Box]:
    D, count = int(rng.integers(3, 21)), int(rng.integers(LEAST, most + 1))
    box = Box(**{f"x{i + 1}": SIDES[int(rng.integers(len(SIDES)))] for i in range(D)})
    pool = [Part(name, Interval(np.asarray(low), np.asarray(high))) for name, low, high in box]
    for _ in range(count):
        part = _next(rng, pool)
        if len(part.text) > 600:  # texts repeat what is shared
            continue
        pool.append(_calm(rng, part))
    left = [part for part in pool if part.uses == 0] or pool[-1:]
    if sum(len(part.text) for part in left) > 8_000:
        left = left[-3:]
    return " + ".join(f"{number(rng.uniform(0.3, 2.0))}*({part.text})" for part in left), box


def _take(rng: Rng, pool: list[Part]) -> Part:
    """A part, rather one that was read less."""
    weights = np.array([0.25**part.uses for part in pool])
    part = pool[int(rng.choice(len(pool), p=weights / weights.sum()))]
    part.uses += 1
    return part


def _next(rng: Rng, pool: list[Part]) -> Part:
    """One operation on parts of the pool."""
    kind = str(
        rng.choice(
            ["sum", "product", "quotient", "smooth", "positive", "kink", "ridge", "norm"],
            p=[0.18, 0.25, 0.1, 0.15, 0.1, 0.09, 0.09, 0.04],
        )
    )
    a = _take(rng, pool)
    if kind in ("sum", "product", "ridge", "kink", "norm"):
        return _two(rng, kind, a, _take(rng, pool))
    if kind == "smooth":
        return _smooth(str(rng.choice(SMOOTH)), a)
    return _positive(rng, str(rng.choice(POSITIVE)) if kind == "positive" else "quotient", a, pool)


def _two(rng: Rng, kind: str, a: Part, b: Part) -> Part:
    c = number(rng.uniform(-2.0, 2.0))
    moved = b.range * float(c)
    if kind == "product":
        return Part(f"({a.text})*({b.text})", a.range * b.range)
    if kind == "norm":
        return Part(f"sqrt(({a.text})**2 + ({b.text})**2)", (a.range.square() + b.range.square()).sqrt())
    if kind == "sum":
        return Part(f"{a.text} + {c}*({b.text})", a.range + moved)
    if kind == "ridge":
        return _smooth(str(rng.choice(SMOOTH)), _calm(rng, Part(f"{a.text} + {c}*({b.text})", a.range + moved)))
    if rng.random() < 0.4:
        return Part(f"abs({a.text} + {c}*({b.text}))", abs(a.range + moved))
    name = str(rng.choice(["max", "min"]))
    found = a.range.maximum(b.range) if name == "max" else a.range.minimum(b.range)
    return Part(f"{name}({a.text}, {b.text})", found)


def _smooth(name: str, a: Part) -> Part:
    if name == "square":
        return Part(f"({a.text})**2", a.range.square())
    function: Callable[[], Interval] = getattr(a.range, name)
    return Part(f"{name}({a.text})", function())


def _positive(rng: Rng, name: str, a: Part, pool: list[Part]) -> Part:
    """Of a part moved to where it is positive."""
    low, high = a.ends
    text, found = a.text, a.range
    least = 0.1 * (high - low) + 1e-9
    if low < least:
        shift = number(least - low + rng.uniform(0.0, 1.0) * (high - low))
        text, found = f"{a.text} + {shift}", a.range + float(shift)
    if name == "quotient":
        b = _take(rng, pool)
        return Part(f"({b.text})/({text})", b.range / found)
    if name == "inverse":
        return Part(f"1/({text})", 1.0 / found)
    if name == "power":
        power = number(rng.choice([0.3, 1.5, -0.5, 0.7]))
        return Part(f"({text})**({power})", (found.log() * float(power)).exp())
    return Part(f"{name}({text})", found.log() if name == "log" else found.sqrt())


def _calm(rng: Rng, part: Part) -> Part:
    """Scaled to a range of order one where it is far from it."""
    low, high = part.ends
    width = high - low
    if 0.1 < width < WIDTH and abs(low) < 4 * WIDTH:
        return part
    scale = number(rng.uniform(0.5, 1.0) * WIDTH / max(width, 1e-12))
    middle = number(-0.5 * (low + high))
    if not np.isfinite(width) or abs(float(scale)) > 1e6:
        return Part("0.5", Interval(np.asarray(0.5), np.asarray(0.5)), 1)
    return Part(f"{scale}*({part.text} + {middle})", (part.range + float(middle)) * float(scale))
