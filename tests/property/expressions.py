"""Random expressions together with an evaluator of their own: text for the parser, a function of flint balls for the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
from hypothesis import strategies as st

NAMES = ("x", "y")
HALF = flint.fmpq(1, 2)


class Undefined(Exception):
    """The function has no value here, or the ball does not tell."""


@dataclass(frozen=True)
class Sample:
    """An expression as text, and the same function on complex balls (real points are balls with imaginary part 0)."""

    text: str
    value: Callable[[list[Any]], Any]


def _sure(condition: Any) -> bool:
    return bool(condition)


def _positive(z: Any) -> Any:
    if not _sure(z.real > 0):
        raise Undefined
    return z


def _real_branch(z: Any) -> int:
    if _sure(z.real > 0):
        return 1
    if _sure(z.real < 0):
        return -1
    if z.is_zero():
        return 0
    raise Undefined


def _sqrt(z: Any) -> Any:
    return flint.acb(0) if z.is_zero() else _positive(z).sqrt()


def _cbrt(z: Any) -> Any:
    sign = _real_branch(z)
    return flint.acb(0) if sign == 0 else sign * ((sign * z).log() / 3).exp()


def _inside(z: Any) -> Any:
    if not (_sure(z.real > -1) and _sure(z.real < 1)):
        raise Undefined
    return z


def _floor(z: Any) -> Any:
    n = z.real.floor().unique_fmpz()
    if n is None:
        raise Undefined
    return flint.acb(n)


UNARY: dict[str, Callable[[Any], Any]] = {
    "sin": lambda z: z.sin(),
    "cos": lambda z: z.cos(),
    "tan": lambda z: z.tan(),
    "exp": lambda z: z.exp(),
    "expm1": lambda z: z.exp() - 1,
    "tanh": lambda z: z.tanh(),
    "sinh": lambda z: z.sinh(),
    "cosh": lambda z: z.cosh(),
    "atan": lambda z: z.atan(),
    "asinh": lambda z: z.asinh(),
    "atanh": lambda z: _inside(z).atanh(),
    "acosh": lambda z: (1 + _positive(z - 1)).acosh(),
    "arctan": lambda z: z.atan(),
    "sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "erf": lambda z: z.erf(),
    "log": lambda z: _positive(z).log(),
    "log1p": lambda z: _positive(1 + z).log(),
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "asin": lambda z: _inside(z).asin(),
    "acos": lambda z: _inside(z).acos(),
    "abs": lambda z: _real_branch(z) * z,
    "relu": lambda z: z if _real_branch(z) > 0 else flint.acb(0),
    "sign": lambda z: flint.acb(_real_branch(z)),
    "floor": _floor,
}

SMOOTH = ("sin", "cos", "exp", "tanh", "atan", "sigmoid", "erf", "expm1", "sinh", "cosh", "asinh")


def _finite(z: Any) -> Any:
    if not z.is_finite():
        raise Undefined
    return z


def _unary(name: str, a: Sample) -> Sample:
    return Sample(f"{name}({a.text})", lambda v: _finite(UNARY[name](a.value(v))))


def _binary(op: str, a: Sample, b: Sample) -> Sample:
    def value(v: list[Any]) -> Any:
        p, q = a.value(v), b.value(v)
        if op == "+":
            return p + q
        if op == "-":
            return p - q
        if op == "*":
            return p * q
        return _finite(p / q)

    return Sample(f"({a.text}) {op} ({b.text})", value)


def _power(a: Sample, n: str) -> Sample:
    def value(v: list[Any]) -> Any:
        p = a.value(v)
        if "." in n:
            if p.is_zero() and not n.startswith("-"):
                return flint.acb(0)
            return (_positive(p).log() * flint.arb(n)).exp()
        return _finite(flint.acb(p) ** int(n))

    return Sample(f"({a.text})**{n}", value)


def _extreme(name: str, a: Sample, b: Sample) -> Sample:
    def value(v: list[Any]) -> Any:
        p, q = a.value(v), b.value(v)
        first = _real_branch(p - q) >= 0
        return p if first == (name == "max") else q

    return Sample(f"{name}({a.text}, {b.text})", value)


def _where(relation: str, a: Sample, b: Sample, c: Sample, d: Sample) -> Sample:
    def value(v: list[Any]) -> Any:
        sign = _real_branch(a.value(v) - b.value(v))
        truth = {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[relation]
        return c.value(v) if truth else d.value(v)

    return Sample(f"where({a.text} {relation} {b.text}, {c.text}, {d.text})", value)


def _leaves() -> st.SearchStrategy[Sample]:
    variables = [Sample(name, lambda v, i=i: v[i]) for i, name in enumerate(NAMES)]
    numbers = ["1", "2", "0.5", ".1", "3", "1e-3", "0", "7.25"]
    literals = [Sample(text, lambda v, text=text: flint.acb(flint.arb(text))) for text in numbers]
    constants = [Sample("pi", lambda v: flint.acb(flint.arb.pi())), Sample("e", lambda v: flint.acb(flint.arb(1).exp()))]
    return st.sampled_from([*variables * 3, *literals, *constants])


def samples(*, kinks: bool = True, jumps: bool = True, partial: bool = True) -> st.SearchStrategy[Sample]:
    """Random expressions in x and y; `kinks`, `jumps`, `partial` allow abs and max, sign and where, log and division."""
    names = [n for n in UNARY if n in SMOOTH]
    names += ["abs", "relu"] if kinks else []
    names += ["sign", "floor"] if jumps else []
    names += ["log", "log1p", "sqrt", "cbrt", "asin", "acos", "acosh", "atanh", "tan"] if partial else []
    powers = ["2", "3", "4", "1", "0", "7"] + (["-1", "-2", "0.5", "1.5", "-0.75"] if partial else [])

    def extend(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
        choices = [
            st.builds(_unary, st.sampled_from(names), inner),
            st.builds(_binary, st.sampled_from(["+", "-", "*"] + (["/"] if partial else [])), inner, inner),
            st.builds(_power, inner, st.sampled_from(powers)),
            st.builds(lambda a: Sample(f"-({a.text})", lambda v: -a.value(v)), inner),
        ]
        if kinks:
            choices.append(st.builds(_extreme, st.sampled_from(["min", "max"]), inner, inner))
        if jumps:
            choices.append(st.builds(_where, st.sampled_from(["<", "<=", ">", ">="]), inner, inner, inner, inner))
        return st.one_of(choices)

    return st.recursive(_leaves(), extend, max_leaves=9)
