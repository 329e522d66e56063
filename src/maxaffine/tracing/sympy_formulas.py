"""Formulas of SymPy: their tree, node by node, with exact numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from maxaffine.core.errors import BadInput, Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box
from maxaffine.tracing.compare import POINTS, compared
from maxaffine.tracing.reading import Reading
from maxaffine.tracing.record import Recorder, Symbol, written
from maxaffine.tracing.vocabulary import MEANINGS, PI

SAME = {
    "Abs": "abs", "sign": "sign", "floor": "floor", "ceiling": "ceil", "exp": "exp", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "erfi": "erfi", "sinc": "sinc",
    "gamma": "gamma", "loggamma": "loggamma", "digamma": "digamma", "beta": "beta", "LambertW": "lambertw", "zeta": "zeta",
    "besselj": "jv", "bessely": "yv", "besseli": "iv", "besselk": "kv", "airyai": "airy_ai", "airybi": "airy_bi",
    "airyaiprime": "airy_aip", "airybiprime": "airy_bip", "Ei": "expi",
    "Si": "si", "Ci": "ci", "fresnels": "fresnel_s", "fresnelc": "fresnel_c", "elliptic_k": "ellipk", "elliptic_e": "ellipe",
    "StrictLessThan": "<", "LessThan": "<=", "StrictGreaterThan": ">", "GreaterThan": ">=", "Equality": "==", "Unequality": "!=",
    "Not": "not",
}  # fmt: skip
"""SymPy's names for what the language has."""

LATTICE = {"Max": "max", "Min": "min", "And": "and", "Or": "or"}
REWRITTEN = {"sec": "cos", "csc": "sin", "cot": "tan", "sech": "cosh", "csch": "sinh", "coth": "tanh"}  # 1 over the other


def read_formula(source: Any, box: Box) -> Reading:
    """The text of a formula, or of several, compared with what SymPy's own lambdify computes."""
    shape: tuple[int, ...] = ()
    if isinstance(source, sympy.MatrixBase):
        shape = (len(source),) if 1 in source.shape else source.shape
        source = list(source)
    elif isinstance(source, (list, tuple)):
        shape, source = (len(source),), list(source)
    formulas = source if isinstance(source, list) else [source]
    missing = sorted({str(s) for f in formulas for s in f.free_symbols} - set(box.names))
    if missing:
        raise Refused(
            f"`{missing[0]}` of the formula is not a variable of the box, which has {', '.join(box.names)}; add it to the box, "
            f"or put a number in its place: formula.subs({missing[0]!r}, 1.0)."
        )
    r = Recorder()
    done: dict[Any, Symbol] = {}
    text = written([_symbol(r, f, done) for f in formulas], box.names)
    for formula in formulas:
        for pieces in formula.atoms(sympy.Piecewise):
            _covers(pieces, box)
    reading = Reading("formula of SymPy", "its tree", text, output_shape=shape)
    numbers = _numbers(formulas, box)
    if numbers is None:
        return reading
    difference = compared(numbers, Expression.parse(text, box.names), box, "of SymPy")
    return replace(reading, compared=POINTS, difference=difference)


def _covers(pieces: Any, box: Box) -> None:
    """BadInput where the conditions of a Piecewise may leave out points of the box, at which SymPy has no value for it."""
    said = sympy.Or(*(condition for _, condition in pieces.args))
    if said == sympy.true or said.simplify() == sympy.true:
        return
    r = Recorder()
    text = written([MEANINGS["where"](r, _symbol(r, said, {}), r.number(1), r.number(0))], box.names)
    if Expression.parse(text, box.names).enclose(Interval(box.low[None], box.high[None])).lo.min() < 1.0:
        raise BadInput(f"`{pieces}` is not seen to say something on the whole box; end it with a piece for the rest, (.., True).")


def _numbers(formulas: list[Any], box: Box) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    """The formulas in float64 as SymPy computes them; None where it cannot."""
    try:
        compute = sympy.lambdify([sympy.Symbol(name) for name in box.names], [_plain(f) for f in formulas], ["scipy", "numpy"])
        compute(*box.centre)
    except Exception:
        return None

    def evaluate(x: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            return np.stack([np.broadcast_to(np.real(column), len(x)) for column in compute(*x.T)], axis=-1)

    return evaluate


def _plain(formula: Any) -> Any:
    """The formula on symbols without assumptions, which lambdify is given."""
    return formula.subs({s: sympy.Symbol(str(s)) for s in formula.free_symbols})


def _symbol(r: Recorder, top: Any, done: dict[Any, Symbol]) -> Symbol:
    """The symbol of a tree, its branches first."""
    stack = [top]
    while stack:
        node = stack[-1]
        waiting = [a for a in node.args if a not in done]
        if waiting and not node.is_Atom:
            stack += waiting
            continue
        stack.pop()
        if node not in done:
            done[node] = _made(r, node, [done[a] for a in node.args] if not node.is_Atom else [])
    return done[top]


def _made(r: Recorder, node: Any, args: list[Symbol]) -> Symbol:
    name = type(node).__name__
    if node.is_Atom:
        return _atom(r, node, name)
    if name == "Add":
        return _sum(r, node.args, args)
    if name == "Mul":
        return _product(r, node.args, args)
    if name == "Pow":
        return r.make("sqrt", args[0]) if node.args[1] == sympy.Rational(1, 2) else r.make("**", *args)
    if name == "Mod":
        return MEANINGS["remainder"](r, *args)
    if name == "ExprCondPair":
        return args[0]
    if name == "Piecewise":
        return _piecewise(r, node)
    if name in LATTICE:
        return reduce(lambda a, b: r.make(LATTICE[name], a, b), args)
    if name == "Heaviside":
        at = args[1] if len(args) > 1 else r.number(0.5)
        return MEANINGS["heaviside"](r, args[0], at)
    if name in REWRITTEN:
        return r.make("/", r.number(1), r.make(REWRITTEN[name], *args))
    if name == "log":
        return r.make("log", *args)
    if name == "polygamma" and node.args[0].is_Integer:
        return r.make("digamma", args[1]) if node.args[0] == 0 else r.make("polygamma", *args)
    if name == "expint" and node.args[0] == 1:
        return r.make("exp1", args[1])
    if name in SAME:
        return r.make(SAME[name], *args)
    raise BadInput(f"`{node}` of the formula has no meaning in the language; docs/expressions.md lists what has.")


def _atom(r: Recorder, node: Any, name: str) -> Symbol:
    if node.is_Symbol:
        return Symbol("name", (), str(node))
    if node.is_Float:
        exact = sympy.Rational(node)
        if exact == sympy.Rational(float(node)):
            return r.number(float(node))
        node = exact  # more digits than float64 has
    if node.is_Rational:
        if node.q == 1:
            return r.number(int(node.p))
        return r.make("/", r.number(int(node.p)), r.number(int(node.q)))
    if node is sympy.pi:
        return PI
    if node is sympy.E:
        return Symbol("name", (), "e")
    if node is sympy.EulerGamma:
        return r.make("neg", r.make("digamma", r.number(1)))
    if node is sympy.GoldenRatio:
        return r.make("/", r.make("+", r.number(1), r.make("sqrt", r.number(5))), r.number(2))
    if node in (sympy.true, sympy.false):
        return r.make("==", r.number(0), r.number(0 if node else 1))
    raise BadInput(f"`{node}` of the formula (a {name}) has no meaning in the language of real numbers.")


def _sum(r: Recorder, nodes: Iterable[Any], args: list[Symbol]) -> Symbol:
    """Numbers last, as people write sums."""
    pairs = sorted(zip(nodes, args, strict=True), key=lambda pair: bool(pair[0].is_Number))
    return reduce(lambda a, b: r.make("+", a, b), [symbol for _, symbol in pairs])


def _product(r: Recorder, nodes: Iterable[Any], args: list[Symbol]) -> Symbol:
    """Factors over what stands below."""
    above, below = [], []
    for node, symbol in zip(nodes, args, strict=True):
        if node.is_Pow and node.args[1].is_Rational and node.args[1] < 0:
            power = -node.args[1]
            base = symbol.args[0]
            below.append(base if power == 1 else r.make("**", base, _atom(r, power, "Rational")))
        else:
            above.append(symbol)
    negative = len(above) > 1 and above[0].value == -1.0
    above = above[1:] if negative else above
    top = reduce(lambda a, b: r.make("*", a, b), above) if above else r.number(1)
    found = reduce(lambda a, b: r.make("/", a, b), [top, *below])
    return r.make("neg", found) if negative else found


def _piecewise(r: Recorder, node: Any) -> Symbol:
    """where(c, a, b) from the last piece on, which stands for the rest: the conditions leave nothing out."""
    result: Symbol | None = None
    for expression, condition in reversed(node.args):
        done: dict[Any, Symbol] = {}
        value = _symbol(r, expression, done)
        if result is None or condition == sympy.true:
            result = value
        else:
            result = r.make("where", _symbol(r, condition, done), value, result)
    assert result is not None
    return result
