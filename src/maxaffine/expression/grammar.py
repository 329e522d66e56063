"""From text to a list of operations: a tokenizer and an operator-precedence parser with a stack of its own.

    outputs   := value ("," value)*
    value     := numbers (1, .75, 1e-3), variables, pi, e, ( value ), function(value, ...), -value, + - * / **, (name := value)
    condition := value < <= > >= == != value, joined by and, or, not; only as the odd arguments of where and piecewise

** binds tightest and to the right, then the sign, then * and /, then + and -: -x**2 is -(x**2) and 2**-x is allowed.
(t := value) is the value, which t stands for from there on.  A word is a function only before a parenthesis.
Nothing is implicit and nothing is ever passed to Python's eval.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from maxaffine.core.errors import BadInput, MaxaffineError, Refused
from maxaffine.expression.building import WrongArgument, build
from maxaffine.expression.functions import ALIASES, ARITIES, CONSTANTS, FUNCTIONS, WORDS
from maxaffine.expression.graph import Graph

MAX_CHARACTERS = 64_000
MAX_LEVELS = 200
MAX_DIGITS = 400
MAX_OUTPUTS = 1_000
_DECADES = 300

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<op>\*\*|<=|>=|==|!=|:=|[-+*/<>(),])"
)
_COMPARISON = 4
_BINDING = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "**": 8}
_BINDING |= dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARISON)
_PREFIX = {"not": 3, "-": 7, "+": 7}
_NAMING = re.compile(r"\s*:=")
_JUXTAPOSED = re.compile(r"((?<![\w.])(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(?=[A-Za-z_(])")
_PARENTHESIS = re.compile(r"\s*\(")
_HINTS = {
    "^": "; powers are written **",
    "=": "; equality is written ==, and only inside where(...) or piecewise(...)",
    "[": "; group with ( )", "]": "; group with ( )", "{": "; group with ( )", "}": "; group with ( )",
    ";": "; several outputs are separated by commas",
    "&": "; conditions are joined by `and`", "|": "; conditions are joined by `or`, the absolute value is abs(x)",
    "!": "; a condition is negated by `not`", "%": "; there is no remainder: use x - y*floor(x/y)",
    ".": "; there are no attributes: write sin(x), not np.sin(x)",
}  # fmt: skip


class Token(NamedTuple):
    """A piece of text: kind is number, name, op or end."""

    kind: str
    text: str
    at: int


@dataclass
class _Open:
    """Something on the operator stack: an operator, a parenthesis, a name for what it holds, or a function."""

    kind: str  # "binary" | "prefix" | "(" | "name" | "call"
    text: str
    at: int
    places: list[int] = field(default_factory=list)  # a call's finished arguments


class Parser:
    """One parse: text and names in, a graph and the places of the outputs out."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self.text = text
        self.names = {name: i for i, name in enumerate(names)}
        self.named: dict[str, int] = {}
        self.graph = Graph()
        self.values: list[int] = []
        self.stack: list[_Open] = []
        self.outputs: list[int] = []
        self.at = 0

    # ------------------------------------------------------------------ words

    def next(self) -> Token:
        """The next token."""
        while True:
            if self.at >= len(self.text):
                return Token("end", "", self.at)
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                character = self.text[self.at]
                raise self.wrong(f"{character!r} is not part of the grammar{_HINTS.get(character, '')}", self.at)
            start, self.at = self.at, match.end()
            kind = str(match.lastgroup)
            if kind == "space":
                continue
            return Token("op" if kind == "name" and match.group() in WORDS else kind, match.group(), start)

    def wrong(self, what: str, at: int) -> BadInput:
        """A sentence with the place in the text."""
        return BadInput(f"the expression is malformed at character {at + 1}: {what}.\n{_window(self.text, at)}")

    # ------------------------------------------------------------------ the machine

    def parse(self) -> tuple[Graph, tuple[int, ...]]:
        """Run over the whole text."""
        expect_value = True
        while True:
            token = self.next()
            if expect_value:
                expect_value = self._operand(token)
            elif self._operator(token):
                break
            else:
                expect_value = token.text != ")"
        if len(self.outputs) > MAX_OUTPUTS:
            raise BadInput(f"the expression has {len(self.outputs)} outputs; at most {MAX_OUTPUTS}.")
        return self.graph, tuple(self.outputs)

    def _operand(self, token: Token) -> bool:
        """Where a value must begin; answers whether a value is still expected."""
        if token.kind == "number":
            self.values.append(self._number(token))
            return False
        if token.kind == "name":
            return self._name(token)
        if token.text in _PREFIX:
            self._push(_Open("prefix", token.text, token.at))
            return True
        if token.text == "(":
            self._push(_Open("(", "(", token.at))
            return True
        if token.kind == "end":
            if not self.text.strip():
                raise BadInput("the expression is empty; write something like sin(x) + cos(y).")
            raise self.wrong("the text ends where a value should follow", token.at)
        raise self.wrong(f"`{token.text}` stands where a value should be", token.at)

    def _name(self, token: Token) -> bool:
        name = token.text
        if _NAMING.match(self.text, self.at):
            return self._naming(token)
        if _PARENTHESIS.match(self.text, self.at):
            if ALIASES.get(name, name) not in ARITIES:
                if name in self.names or name in CONSTANTS:
                    raise self.wrong(f"`{name}` is not a function; a product is written {name}*(...)", token.at)
                raise BadInput(
                    f"`{name}` is not a function of the grammar{_close(name, FUNCTIONS)}; there are {_list(FUNCTIONS)}."
                )
            self.next()
            self._push(_Open("call", name, token.at))
            return True
        if name in self.names:
            self.values.append(self.graph.variable(self.names[name]))
        elif name in self.named:
            self.values.append(self.named[name])
        elif name in CONSTANTS:
            self.values.append(self.graph.make(name))
        elif name in FUNCTIONS:
            raise self.wrong(f"the function `{name}` needs its arguments in parentheses", token.at)
        else:
            known = tuple(self.names)
            raise Refused(
                f"`{name}` is not a variable of the box{_close(name, known)}; the box has {_list(known)}, and the constants are "
                f"{_list(CONSTANTS)}.  Add `{name}` to the box or correct the expression."
            )
        return False

    def _naming(self, token: Token) -> bool:
        """(name := opens; the name is bound where its parenthesis closes."""
        self.next()
        if not self.stack or self.stack[-1].kind != "(" or self.text[: token.at].rstrip()[-1:] != "(":
            raise self.wrong(f"a name is given inside parentheses of its own, as in ({token.text} := x**2)", token.at)
        if token.text in self.names or token.text in self.named or token.text in CONSTANTS:
            raise self.wrong(f"`{token.text}` already stands for something; take another name", token.at)
        self._push(_Open("name", token.text, token.at))
        return True

    def _number(self, token: Token) -> int:
        mantissa, _, exponent = token.text.lower().partition("e")
        after = self.text[self.at : self.at + 1]
        if after.isalpha() or after == "_":
            raise self.wrong(f"a name follows the number {token.text:.30} directly; write a product with *", self.at)
        if after == "." or after.isdigit():
            raise self.wrong(f"`{token.text:.30}{after}` is not a number", token.at)
        if len(mantissa) > MAX_DIGITS:
            raise self.wrong(f"a number has more than {MAX_DIGITS} digits", token.at)
        power = int(exponent or 0) if len(exponent) < 8 else (-(10**7) if exponent.startswith("-") else 10**7)
        value = Fraction(mantissa)
        if value:
            if abs(power) > 2 * MAX_DIGITS:
                raise self.wrong(f"the number {token.text:.30} lies outside 1e-{_DECADES} to 1e{_DECADES}", token.at)
            value *= Fraction(10) ** power
            if not Fraction(1, 10**_DECADES) <= value <= 10**_DECADES:
                raise self.wrong(f"the number {token.text:.30} lies outside 1e-{_DECADES} to 1e{_DECADES}", token.at)
        return self.graph.number(value)

    def _operator(self, token: Token) -> bool:
        """Where an operator, a comma or an end may stand; answers whether the text is done."""
        if token.kind == "end" or token.text in (",", ")"):
            self._close_to_bracket(token)
            return token.kind == "end"
        if token.text not in _BINDING:
            what = "a value" if token.kind in ("number", "name") or token.text == "(" else f"`{token.text}`"
            raise self.wrong(f"{what} stands where an operator should be (a product is written with *)", token.at)
        binding = _BINDING[token.text]
        while self.stack and self.stack[-1].kind in ("binary", "prefix"):
            top = self.stack[-1]
            theirs = _BINDING[top.text] if top.kind == "binary" else _PREFIX[top.text]
            if binding == theirs == _COMPARISON:
                raise self.wrong("comparisons do not chain; write a < b and b < c", token.at)
            if theirs > binding or (theirs == binding and token.text != "**"):
                self._reduce()
            else:
                break
        self._push(_Open("binary", token.text, token.at))
        return False

    def _close_to_bracket(self, token: Token) -> None:
        while self.stack and self.stack[-1].kind in ("binary", "prefix"):
            self._reduce()
        if token.kind == "end":
            if self.stack:
                raise self.wrong(f"the parenthesis opened at character {self._bracket().at + 1} is not closed", token.at)
            self._output(token)
        elif token.text == ",":
            if not self.stack:
                self._output(token)
            elif self.stack[-1].kind == "call":
                self.stack[-1].places.append(self.values.pop())
            else:
                raise self.wrong("a comma inside plain parentheses; outputs are separated by commas outside of them", token.at)
        else:
            if not self.stack:
                raise self.wrong("a parenthesis closes that was never opened", token.at)
            top = self.stack.pop()
            if top.kind == "name":
                self.named[top.text] = self.values[-1]
                self.stack.pop()
            elif top.kind == "call":
                top.places.append(self.values.pop())
                self.values.append(self._call(top))

    def _bracket(self) -> _Open:
        return next(item for item in reversed(self.stack) if item.kind in ("(", "call"))

    def _output(self, token: Token) -> None:
        place = self.values.pop()
        if self.graph.is_condition(place):
            raise self.wrong("a comparison is not a value; use where(condition, 1, 0)", token.at - 1 if token.at else 0)
        self.outputs.append(place)

    def _push(self, item: _Open) -> None:
        self.stack.append(item)
        # Between two brackets at most one operator of each of seven strengths waits, unless signs or powers are chained.
        if sum(1 for s in self.stack if s.kind != "binary" or s.text == "**") > MAX_LEVELS:
            raise BadInput(f"the expression is nested more than {MAX_LEVELS} levels deep; simplify it.")

    # ------------------------------------------------------------------ building

    def _reduce(self) -> None:
        top = self.stack.pop()
        graph = self.graph
        right = self.values.pop()
        if top.kind == "prefix":
            if top.text == "not":
                self._condition(right, top.at)
                self.values.append(graph.make("not", (right,)))
            else:
                self._value(right, top.at)
                self.values.append(graph.negate(right) if top.text == "-" else right)
            return
        left = self.values.pop()
        if top.text in ("and", "or"):
            self._condition(left, top.at)
            self._condition(right, top.at)
            self.values.append(graph.make(top.text, (left, right)))
            return
        self._value(left, top.at)
        self._value(right, top.at)
        if _BINDING[top.text] == _COMPARISON:
            self.values.append(graph.compare(top.text, left, right))
            return
        build = {"+": graph.add, "-": graph.subtract, "*": graph.multiply, "/": graph.divide, "**": graph.power}[top.text]
        self.values.append(build(left, right))

    def _value(self, place: int, at: int) -> None:
        if self.graph.is_condition(place):
            raise self.wrong("a comparison is not a number; use it inside where(condition, a, b) or piecewise(...)", at)

    def _condition(self, place: int, at: int) -> None:
        if not self.graph.is_condition(place):
            raise self.wrong("a comparison such as x < 0 should stand here", at)

    def _call(self, call: _Open) -> int:
        name = ALIASES.get(call.text, call.text)
        places = call.places
        least, most = ARITIES[name]
        if len(places) < least or (most is not None and len(places) > most):
            count = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            plural = "" if count == "1" else "s"
            raise self.wrong(f"`{call.text}` takes {count} argument{plural}, and {len(places)} came", call.at)
        if name == "piecewise" and len(places) % 2 == 0:
            raise self.wrong("`piecewise` takes condition, value, condition, value, ..., default: an odd number", call.at)
        conditions = range(0, len(places) - 1, 2) if name in ("where", "piecewise") else range(0)
        for i, place in enumerate(places):
            (self._condition if i in conditions else self._value)(place, call.at)
        try:
            return build(self.graph, name, call.text, places)
        except WrongArgument as failure:
            raise self.wrong(str(failure), call.at) from None


def parse(text: str, names: Sequence[str]) -> tuple[Graph, tuple[int, ...]]:
    """The graph of an expression and the places of its outputs; BadInput or Refused (unknown variable) with a sentence."""
    if not isinstance(text, str):
        raise BadInput(f"an expression is a text, not {type(text).__name__}.")
    if len(text) > MAX_CHARACTERS:
        raise BadInput(f"the expression has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read.")
    try:
        return Parser(text, names).parse()
    except BadInput as failure:
        better = _corrected(text, names)
        if better is None:
            raise
        raise BadInput(f"{failure}\nWrite {better}") from None


def _corrected(text: str, names: Sequence[str]) -> str | None:
    """The text with ** for ^ and a * after numbers, where that can be read; None where it cannot or nothing changes."""
    better = _JUXTAPOSED.sub(r"\1*", text.replace("^", "**")).strip()
    if better == text.strip():
        return None
    try:
        Parser(better, names).parse()
    except MaxaffineError:
        return None
    return better


def _window(text: str, at: int) -> str:
    start, end = max(0, at - 40), min(len(text), at + 30)
    line = "".join(c if c.isprintable() else " " for c in text[start:end])
    return f"  {line}\n  {' ' * (at - start)}^"


def _close(name: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(f'`{m}`' for m in matches)}?)" if matches else ""


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name}" for name in names[:80])
    return shown + (", ..." if len(names) > 80 else "")
