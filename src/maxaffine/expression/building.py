"""What a call of a function becomes in a graph."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce

from maxaffine.expression.functions import AT_NUMBERS, UNARY, WITH_NUMBERS
from maxaffine.expression.graph import Graph
from maxaffine.expression.operations import nearest

LEAST_ORDER, MOST_NUMBER = -100, 1000


class WrongArgument(Exception):
    """A sentence about an argument, to which the place in the text is added."""


def build(g: Graph, name: str, shown: str, p: list[int]) -> int:
    """The function `name`, which the text calls `shown`, of the places p."""
    if name in UNARY or name == "atan2":
        return g.apply(name, *p)
    if name == "beta":
        return g.make("beta", tuple(p))
    if name in AT_NUMBERS:
        op, data = AT_NUMBERS[name]
        return g.make(op, (p[0],), Fraction(data) if op in WITH_NUMBERS else data)
    if name in WITH_NUMBERS:
        return _with_numbers(g, name, shown, p)
    if name == "float":
        value = g.rational(p[0])
        if value is None:
            raise WrongArgument("`float` takes a number: float(0.1) is the float64 number nearest to 0.1")
        return g.number(Fraction(nearest(value)))
    if name in ("min", "max"):
        return reduce(partial(g.apply, name), p)
    if name in ("where", "piecewise"):
        result = p[-1]
        for i in range(len(p) - 3, -1, -2):
            result = g.apply("where", p[i], p[i + 1], result)
        return result
    return _MACROS[name](g, *p)


def _with_numbers(g: Graph, name: str, shown: str, p: list[int]) -> int:
    """A function whose first arguments are numbers."""
    found = [g.rational(place) for place in p[:-1]]
    numbers = [value for value in found if value is not None]
    what = f"the first argument{'' if len(found) == 1 else 's'} of `{shown}` must be"
    if len(numbers) < len(found):
        raise WrongArgument(f"{what} numbers such as 1/2, not expressions")
    if name == "polygamma":
        fits, rule = numbers[0].denominator == 1 and numbers[0] >= 1, "a whole number from 1"
    elif name in ("jv", "yv", "iv", "kv"):
        fits, rule = numbers[0] >= LEAST_ORDER, f"at least {LEAST_ORDER}"
    else:
        fits, rule = min(numbers) > 0, "positive"
    if not fits or max(numbers) > MOST_NUMBER:
        raise WrongArgument(f"{what} {rule}, at most {MOST_NUMBER}")
    data = int(numbers[0]) if name == "polygamma" else numbers[0] if len(numbers) == 1 else tuple(numbers)
    return g.make(name, (p[-1],), data)


def _clip(g: Graph, a: int, low: int, high: int) -> int:
    return g.apply("min", g.apply("max", a, low), high)


_MACROS: dict[str, Callable[..., int]] = {
    "pow": Graph.power,
    "hypot": lambda g, a, b: g.apply("sqrt", g.add(g.integer_power(a, 2), g.integer_power(b, 2))),
    "clip": _clip,
    "relu": lambda g, a: g.apply("max", a, g.zero),
    "ceil": lambda g, a: g.negate(g.apply("floor", g.negate(a))),
    "square": lambda g, a: g.integer_power(a, 2),
    "reciprocal": lambda g, a: g.divide(g.one, a),
    "exp2": lambda g, a: g.power(g.number(2), a),
    "log2": lambda g, a: g.divide(g.apply("log", a), g.apply("log", g.number(2))),
    "log10": lambda g, a: g.divide(g.apply("log", a), g.apply("log", g.number(10))),
    "add": Graph.add,
    "subtract": Graph.subtract,
    "mul": Graph.multiply,
    "divide": Graph.divide,
    "negative": Graph.negate,
    "gelu": lambda g, a: g.multiply(a, g.apply("ndtr", a)),
    "silu": lambda g, a: g.multiply(a, g.apply("sigmoid", a)),
    "logit": lambda g, a: g.subtract(g.apply("log", a), g.apply("log1p", g.negate(a))),
}
