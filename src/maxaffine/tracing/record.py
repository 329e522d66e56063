"""What a traced function did, as symbols: every number it computed is one, written out as text of the expression grammar.

A symbol knows its operation, its arguments and the line of the user's code that made it.  Text that would be written out twice is
named where it stands first, (t1 := ..), so that text stays about as long as the function.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.core.errors import MaxaffineError

OURS = ("maxaffine.", "numpy", "scipy.", "torch", "jax", "sympy", "functools", "importlib", "contextlib", "_pytest.python_api")
LONGEST = 50_000  # symbols of one trace
SHORT = 16  # characters of what may stand twice

_INFIX = {"or": 1, "and": 2, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "**": 8}
_PREFIX = {"not": 3, "neg": 7}
_ATOM = 9
CONDITIONS = frozenset({"or", "and", "not", "<", "<=", ">", ">=", "==", "!="})


@dataclass(frozen=True)
class Line:
    """A line of the user's code."""

    file: str
    number: int

    def __str__(self) -> str:
        source = " ".join(linecache.getline(self.file, self.number).split())
        shown = f" (`{source if len(source) <= 80 else source[:77] + '...'}`)" if source else ""
        return f"line {self.number}{shown}"


def user_line() -> Line | None:
    """The line of the user's code that is being run."""
    frame = sys._getframe(1)
    while frame is not None:
        if not is_ours(frame.f_globals.get("__name__", "")):
            return Line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def is_ours(module: Any) -> bool:
    """Whether a module is the library's or one of those that user code calls."""
    return isinstance(module, str) and (module == "maxaffine" or module.startswith(OURS))


class Untraceable(MaxaffineError):
    """What ended a trace: where, what, and what to write instead."""

    def __init__(self, what: str, instead: str = "", line: Line | None = None) -> None:
        self.what, self.instead = what, instead
        self.line = line or user_line()
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """One sentence without its full stop."""
        where = f"{self.line}: " if self.line is not None else ""
        return f"{where}{self.what}{f'; {self.instead}' if self.instead else ''}"


@dataclass(frozen=True, eq=False, slots=True)
class Symbol:
    """A number or a condition: an operation on others."""

    op: str  # "name" and "number", an operator of the grammar, "neg", or a function's name
    args: tuple[Symbol, ...] = ()
    text: str = ""  # of a name or a number
    line: Line | None = field(default=None, repr=False)

    @property
    def is_condition(self) -> bool:
        """True for what is true or false."""
        return self.op in CONDITIONS

    @property
    def value(self) -> float | None:
        """The number that a literal stands for, as float64."""
        if self.op != "number":
            return None
        return float(self.text.replace("float(", "").removesuffix(")"))


class Recorder:
    """Makes the symbols of one trace, and remembers what ended it even where the user's code goes on."""

    def __init__(self, torch_seen: bool = False) -> None:
        self.count = 0
        self.failure: Untraceable | None = None
        self.torch_seen = torch_seen

    def stop(self, what: str, instead: str = "", line: Line | None = None) -> Untraceable:
        """The end of the trace, to be raised."""
        self.failure = self.failure or Untraceable(what, instead, line)
        return self.failure

    def make(self, op: str, *args: Symbol) -> Symbol:
        """One more symbol; numbers that change nothing are left out."""
        self.count += 1
        if self.count > LONGEST:
            raise self.stop(f"the function does more than {LONGEST:,} operations on single numbers")
        plain = _without(op, args)
        return plain if plain is not None else Symbol(op, args, "", user_line())

    def number(self, given: Any) -> Symbol:
        """A literal of a number's exact value."""
        value = int(given) if isinstance(given, (int, np.integer)) else float(given)
        if isinstance(given, np.longdouble) and value != given:
            raise self.stop(f"the number {given} stands in a formula", "the language has the numbers of float64 only")
        if value and not 1e-300 <= abs(value) <= 1e300:
            raise self.stop(f"the number {value} stands in a formula", "the language has numbers from 1e-300 to 1e300")
        return Symbol("number", (), literal(value), user_line())


def literal(value: float | int) -> str:
    """The text of a number's exact value: short where that is exact, else float(..), the float64 number nearest to a decimal."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return str(int(value))
    exact = f"{value:.12g}"
    if "e" not in exact and Fraction(exact) == Fraction(value):
        return exact
    return f"{'-' if value < 0 else ''}float({abs(float(value))!r})"


def _without(op: str, args: Sequence[Symbol]) -> Symbol | None:
    """The one argument that is left where the others change nothing."""
    if op in ("+", "*") and len(args) == 2:
        unit = "0" if op == "+" else "1"
        for one, other in (args, args[::-1]):
            if one.op == "number" and one.text == unit:
                return other
    if op in ("-", "/", "**") and args[1].op == "number" and args[1].text == ("0" if op == "-" else "1"):
        return args[0]
    return None


# ---------------------------------------------------------------------- text


def written(outputs: Sequence[Symbol], taken: Iterable[str]) -> str:
    """The text of several outputs, separated by commas; names t1, t2, .. for what would stand twice are none of those `taken`."""
    order, uses = _order(outputs)
    writer = _Writer(uses, set(taken))
    lengths: dict[int, int] = {}
    for symbol in order:  # how long everything is, written out in full
        lengths[id(symbol)] = len(symbol.text) + 4 + sum(min(lengths[id(a)], 10**9) for a in symbol.args)
    writer.lengths = lengths
    return ", ".join(writer.text(output, 0) for output in outputs)


def _order(outputs: Sequence[Symbol]) -> tuple[list[Symbol], dict[int, int]]:
    """All symbols, arguments first, and how often each is used."""
    order: list[Symbol] = []
    uses: dict[int, int] = {}
    done: set[int] = set()
    stack: list[tuple[Symbol, bool]] = []
    for output in reversed(outputs):
        uses[id(output)] = uses.get(id(output), 0) + 1
        stack.append((output, False))
    while stack:
        symbol, ready = stack.pop()
        if ready:
            order.append(symbol)
        elif id(symbol) not in done:
            done.add(id(symbol))
            stack.append((symbol, True))
            for a in reversed(symbol.args):
                uses[id(a)] = uses.get(id(a), 0) + 1
                stack.append((a, False))
    return order, uses


class _Writer:
    """Text from left to right; what is used again and is long gets its name where it stands first."""

    def __init__(self, uses: dict[int, int], taken: set[str]) -> None:
        self.uses, self.taken = uses, taken
        self.names: dict[int, str] = {}
        self.lengths: dict[int, int] = {}

    def text(self, top: Symbol, least: int) -> str:
        """The text of a symbol that must bind at least as tightly as `least`; a stack of its own, as traces may be deep."""
        pieces: list[str] = []
        work: list[str | tuple[Symbol, int]] = [(top, least)]
        while work:
            item = work.pop()
            if isinstance(item, str):
                pieces.append(item)
                continue
            work += reversed(self._pieces(*item))
        return "".join(pieces)

    def _pieces(self, symbol: Symbol, least: int) -> list[str | tuple[Symbol, int]]:
        if symbol.op in ("name", "number"):
            return [f"({symbol.text})" if symbol.text.startswith("-") and least > _PREFIX["neg"] else symbol.text]
        known = self.names.get(id(symbol))
        if known is not None:
            return [known]
        named = self.uses[id(symbol)] > 1 and self.lengths[id(symbol)] > SHORT
        strength, inner = self._written(symbol)
        if named:
            name = self.names[id(symbol)] = self._name()
            return [f"({name} := ", *inner, ")"]
        return ["(", *inner, ")"] if strength < least else inner

    def _written(self, symbol: Symbol) -> tuple[int, list[str | tuple[Symbol, int]]]:
        """How tightly the text binds, and what it is made of."""
        op, args = symbol.op, symbol.args
        if op in _INFIX:
            own = _INFIX[op]
            left, right = (own + 1, _PREFIX["neg"]) if op == "**" else (own, own + 1)
            if own == _INFIX["<"]:
                left = own + 1
            if args[1].text.startswith("-"):
                if op in ("+", "-"):  # x + (-2) is x - 2, and the other way round
                    return own, [(args[0], left), " - " if op == "+" else " + ", args[1].text[1:]]
                right = _ATOM
            turned = self._turned(args[1]) if op == "+" else None
            if turned is not None:
                return own, [(args[0], left), " - ", *turned]
            joint = op if op in ("*", "/", "**") else f" {op} "
            return own, [(args[0], left), joint, (args[1], right)]
        if op in _PREFIX:
            return _PREFIX[op], ["-" if op == "neg" else "not ", (args[0], _PREFIX[op])]
        inner: list[str | tuple[Symbol, int]] = [f"{op}("]
        for i, a in enumerate(args):
            inner += [", "] if i else []
            inner.append((a, 0))
        return _ATOM, [*inner, ")"]

    def _turned(self, symbol: Symbol) -> list[str | tuple[Symbol, int]] | None:
        """What x + symbol subtracts, where that is shorter: -a, or a product with a negative number in front."""
        if self.uses[id(symbol)] > 1:
            return None
        if symbol.op == "neg":
            return [(symbol.args[0], _INFIX["*"])]
        if symbol.op == "*" and symbol.args[0].text.startswith("-"):
            return [symbol.args[0].text[1:], "*", (symbol.args[1], _INFIX["*"] + 1)]
        return None

    def _name(self) -> str:
        k = len(self.names) + 1
        while f"t{k}" in self.taken:
            k += 1
        self.taken.add(f"t{k}")
        return f"t{k}"
