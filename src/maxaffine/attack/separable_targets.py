"""Random formulas of 3 to 12 variables: monomials, functions of additive inner functions, front factors, quotients, blocks.

    c x1**2*x2**-.5*..       1/(p + sum a_i x_i**2)       exp(x1/3)*tanh(sum a_i cos(x_i))       (x1*x2 + x3*x4)/(x1 + x3)

Errors are drawn relative to the largest value on random points and corners.
"""

from collections.abc import Callable

import numpy as np

from maxaffine.attack.case import PATTERNS, Case, Rng, Sides, number
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box

POSITIVE: Sides = (
    (1.0, 5.0), (1.0, 3.0), (0.5, 2.0), (0.2, 1.0), (10.0, 14.0), (1000.0, 3000.0), (1e-3, 2e-3), (1.0, 20.0), (100.0, 30000.0),
    (0.01, 1.0),
)  # fmt: skip
CENTRED: Sides = ((-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0), (-0.5, 2.0), (-2.0, 2.0), (0.25, 0.75))
POWERS = (1.0, 1.0, 1.0, 2.0, -1.0, -1.0, 3.0, -2.0, 0.5, -0.5, 1.5, 1 / 3, -0.25)

Made = tuple[str, Sides]  # a text in x1, x2, .. and their sides


def _sides(rng: Rng, among: Sides, count: int) -> Sides:
    return tuple(among[i] for i in rng.integers(0, len(among), count))


def _names(count: int) -> list[str]:
    return [f"x{i}" for i in range(1, count + 1)]


def _numbers(rng: Rng) -> dict[str, str]:
    ends = {"a": (0.2, 1.5), "c": (-0.6, 0.6), "k": (0.4, 2.0), "m": (1.0, 3.0), "p": (0.5, 4.0), "q": (3.5, 8.0)}
    return {name: number(rng.uniform(*pair)) for name, pair in ends.items()}


def _drawn(rng: Rng, patterns: str, **words: str) -> str:
    return str(rng.choice(PATTERNS[patterns])).format(**_numbers(rng), **words)


def _power(rng: Rng, name: str, power: float) -> str:
    written = number(power) if power not in (1 / 3, -1.0) or rng.random() < 0.5 else "(1/3)" if power > 0 else "(-1)"
    return name if power == 1.0 else f"sqrt({name})" if power == 0.5 and rng.random() < 0.5 else f"{name}**{written}"


def monomial(rng: Rng, names: list[str]) -> str:
    """c prod x_i^{p_i}: as powers, as a quotient of products, or with a power around several factors."""
    powers = [float(rng.choice(POWERS)) for _ in names]
    c, style = number(10.0 ** rng.uniform(-2.0, 2.0)), rng.random()
    if style < 0.4:
        return f"{c}*" + "*".join(_power(rng, name, power) for name, power in zip(names, powers, strict=True))
    if style < 0.75:
        above = [_power(rng, name, power) for name, power in zip(names, powers, strict=True) if power > 0] or ["1"]
        below = [_power(rng, name, -power) for name, power in zip(names, powers, strict=True) if power < 0] or ["pi"]
        return f"{c}*{'*'.join(above)}/({'*'.join(below)})"
    half = len(names) // 2
    first, rest = "*".join(names[:half]), "*".join(f"{name}/{number(rng.uniform(1, 3))}" for name in names[half:])
    return f"({c}*{first})**{number(rng.choice([0.5, 2.0, 0.3, -1.0]))}*({rest})"


def inner(rng: Rng, names: list[str]) -> str:
    """A sum of functions of one variable each, none of them negative on the sides that are drawn."""
    if rng.random() < 0.5:  # one function for all
        pattern = str(rng.choice(PATTERNS["inner"]))
        return " + ".join(pattern.format(v=name, **_numbers(rng)) for name in names)
    return " + ".join(_drawn(rng, "inner", v=name) for name in names)


def _monomials(rng: Rng) -> Made:
    count = int(rng.integers(4, 9))
    return monomial(rng, _names(count)), _sides(rng, POSITIVE, count)


def _additive(rng: Rng) -> Made:
    count = int(rng.integers(3, 13))
    return _drawn(rng, "outer", u=inner(rng, _names(count))), _sides(rng, CENTRED, count)


def _fronted(rng: Rng) -> Made:
    """Front factors, some of variables that the inner function has as well."""
    count = int(rng.integers(3, 9))
    names = _names(count)
    within = names[int(rng.integers(0, 2)) :]
    fronts = [_drawn(rng, "fronts", v=name) for name in names[: int(rng.integers(1, 4))]]
    return f"{'*'.join(fronts)}*({_drawn(rng, 'outer', u=inner(rng, within))})", _sides(rng, CENTRED, count)


def _quotients(rng: Rng) -> Made:
    """Numerators and denominators that share variables, and quadratic forms that do not look like sums of squares."""
    text = _drawn(rng, "quotients", w="x1", x="x2", y="x3", z="x4")
    return text, _sides(rng, ((1.0, 5.0), (1.0, 3.0), (0.5, 2.0), (2.0, 3.0)), 4)


def _blocks(rng: Rng) -> Made:
    """Products of functions of two variables each that no product of one-variable functions is, beside a front factor."""
    pairs = int(rng.integers(2, 4))
    names = _names(2 * pairs + 1)
    factors = [_drawn(rng, "blocks", x=names[2 * i], y=names[2 * i + 1]) for i in range(pairs)]
    return "*".join([*factors, _drawn(rng, "fronts", v=names[-1])]), _sides(rng, CENTRED[:3], len(names))


def _together(rng: Rng) -> Made:
    """Two of them added up, over the same variables."""
    count = int(rng.integers(3, 6))
    names, sides = _names(count), _sides(rng, POSITIVE[:4], count)
    other = _drawn(rng, "outer", u=inner(rng, names)) if rng.random() < 0.5 else monomial(rng, names)
    return f"{monomial(rng, names)} + {number(rng.uniform(0.5, 3.0))}*({other})", sides


KINDS: tuple[Callable[[Rng], Made], ...] = (_monomials, _additive, _fronted, _quotients, _blocks, _together)


def separated(rng: Rng) -> Case:
    """One of the kinds, asked for some digits of its largest value."""
    text, sides = KINDS[int(rng.integers(len(KINDS)))](rng)
    names = _names(len(sides))
    box = Box.named(names, [low for low, _ in sides], [high for _, high in sides])
    ends = np.where(rng.random((400, len(names))) < 0.5, box.low, box.high)
    with np.errstate(all="ignore"):
        seen = np.abs(Expression.parse(text, names).evaluate(np.concatenate([box.sample(400, rng), ends])))
    size = float(np.max(seen, where=np.isfinite(seen), initial=1e-300))
    dtype = str(rng.choice(["float64", "float32"], p=[0.75, 0.25]))
    return Case(text, box, size * float(10.0 ** -rng.uniform(1.0, 6.0 if dtype == "float64" else 3.5)), dtype, "separated")
