"""Random NumPy functions: what is read of them is, node by node and bit by bit, the text with every float's exact value.

MAXAFFINE_FUNCTIONS=10000 asks for so many of them (`make functions`).
"""

import os
from decimal import Decimal

import numpy as np
import pytest
import scipy.special

import maxaffine as ma
from maxaffine.expression.expression import Expression
from maxaffine.tracing.calling import Called
from maxaffine.tracing.record import Recorder, written
from maxaffine.tracing.trace import understood

COUNT = int(os.environ.get("MAXAFFINE_FUNCTIONS", "150"))
BOX = ma.Box(x=(-2, 2), y=(0.25, 3), z=(-1, 1))
UNARY = {
    **{name: (getattr(np, name), name + "({})") for name in (
        "sin", "cos", "tan", "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
        "arcsinh", "arccosh", "arctanh", "abs", "sign", "floor", "ceil", "square", "reciprocal", "exp2", "log2", "log10",
    )},
    **{name: (getattr(scipy.special, name), name + "({})") for name in (
        "expit", "erf", "erfc", "gamma", "digamma", "j0", "y1", "i1", "k0", "ndtr", "ndtri", "log_ndtr", "exprel", "erfcx",
        "dawsn", "expi", "exp1", "ellipk", "ellipe", "logit", "erfi",
    )},
    "-": (lambda a: -a, "(-({}))"), "sinc": (np.sinc, "sinc(pi*({}))"),
    "gammaln": (scipy.special.gammaln, "loggamma({})"), "si": (lambda a: scipy.special.sici(a)[0], "si({})"),
    "fresnel": (lambda a: scipy.special.fresnel(a)[1], "fresnel_c({})"),
    "airy": (lambda a: scipy.special.airy(a)[2], "airy_bi({})"),
}  # fmt: skip
BINARY = {
    "+": (lambda a, b: a + b, "({} + {})"), "-": (lambda a, b: a - b, "({} - {})"), "*": (lambda a, b: a * b, "({})*({})"),
    "/": (lambda a, b: a / b, "({})/({})"), "maximum": (np.maximum, "max({}, {})"), "fmin": (np.fmin, "min({}, {})"),
    "hypot": (np.hypot, "hypot({}, {})"), "arctan2": (np.arctan2, "atan2({}, {})"), "power": (np.power, "({})**({})"),
    "beta": (scipy.special.beta, "beta({}, {})"), "//": (lambda a, b: a // b, "floor(({})/({}))"),
}  # fmt: skip
COMPARE = {
    "<": (lambda a, b: a < b, "({}) < ({})"), ">=": (lambda a, b: a >= b, "({}) >= ({})"), "!=": (np.not_equal, "({}) != ({})"),
}  # fmt: skip


def number(rng):
    """A float, and its exact decimal."""
    wide = rng.normal() * 10.0 ** rng.integers(-9, 9)
    value = float(rng.choice([rng.normal(), round(rng.normal(), 1), rng.integers(-4, 5), wide]))
    return value, format(Decimal(value), "f") if value >= 0 else f"(-{format(Decimal(-value), 'f')})"


def random_function(rng, depth):
    """A function of arrays X, and its text."""
    kind = rng.choice(["unary", "unary", "binary", "constant", "where", "power", "clip", "several"]) if depth else "coordinate"
    if kind == "coordinate":
        i = int(rng.integers(3))
        return (lambda X: X[:, i]), BOX.names[i]
    a, text = random_function(rng, depth - 1)
    if kind == "unary":
        f, form = UNARY[rng.choice(sorted(UNARY))]
        return (lambda X: f(a(X))), form.format(text)
    if kind == "power":
        n = int(rng.integers(-3, 5))
        return (lambda X: a(X) ** n), f"({text})**({n})"
    if kind == "clip":
        low, high = sorted(rng.normal(size=2).tolist())
        low_text, high_text = (f"{'-' if v < 0 else ''}{format(Decimal(abs(v)), 'f')}" for v in (low, high))
        return (lambda X: np.clip(a(X), low, high)), f"min(max({text}, {low_text}), {high_text})"
    if kind == "constant":
        value, shown = number(rng)
        name = rng.choice(["+", "-", "*", "maximum"])
        f, form = BINARY[name]
        if rng.random() < 0.5:
            return (lambda X: f(value, a(X))), form.format(shown, text)
        return (lambda X: f(a(X), value)), form.format(text, shown)
    b, other = random_function(rng, depth - 1)
    if kind == "binary":
        f, form = BINARY[rng.choice(sorted(BINARY))]
        return (lambda X: f(a(X), b(X))), form.format(text, other)
    c, third = random_function(rng, 0)
    if kind == "several":
        return (lambda X: np.stack([a(X), b(X), c(X)], axis=-1).sum(axis=1)), f"(({text}) + ({other}) + ({third}))"
    f, form = COMPARE[rng.choice(sorted(COMPARE))]
    d, fourth = random_function(rng, depth - 1)
    g, shape = COMPARE["<"]
    if rng.random() < 0.5:
        return (lambda X: np.where(f(c(X), a(X)), b(X), d(X))), f"where({form.format(third, text)}, {other}, {fourth})"
    return (
        lambda X: np.where(~f(c(X), a(X)) & g(d(X), 0.5), b(X), d(X)),
        f"where(not ({form.format(third, text)}) and {shape.format(fourth, '0.5')}, {other}, {fourth})",
    )


def graph(expression, ids):
    """The outputs as numbers of nodes, the same number where operation, data and arguments in their order are the same."""
    places = []
    for node in expression.nodes:
        places.append(ids.setdefault((node.op, node.data, *(places[a] for a in node.args)), len(ids)))
    return [places[p] for p in expression.outputs]


@pytest.mark.parametrize("part", range(3))
def test_what_is_read_is_the_text_with_exact_numbers(part):
    rng, done, x = np.random.default_rng(part), 0, BOX.sample(16, np.random.default_rng(7))
    while done < COUNT // 3:
        function, text = random_function(rng, int(rng.integers(1, 5)))
        if len(text) > 8_000:
            continue
        try:
            wanted = Expression.parse(text, BOX.names)
        except ma.MaxaffineError:  # 0**-1, huge powers
            continue
        seen = understood(Called(function), BOX, None, False, Recorder())
        found = Expression.parse(written(seen.outputs, BOX.names), BOX.names)
        ids: dict[object, int] = {}
        assert graph(found, ids) == graph(wanted, ids), text
        assert np.array_equal(found.evaluate(x), wanted.evaluate(x), equal_nan=True)
        done += 1
