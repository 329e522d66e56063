"""Subexpressions as text: short for messages, or exact, to be parsed again."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from maxaffine.expression.graph import Node, schedule

LONGEST = 72
LONGEST_EXACT = 8_000
_SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(5)
_RELATIONS = {"negative": "<", "nonpositive": "<=", "zero": "=="}


def text(nodes: Sequence[Node], names: Sequence[str], place: int) -> str:
    """The node at `place` as text of at most `LONGEST` characters."""
    done: dict[int, tuple[str, int]] = {}
    for i in schedule(tuple(nodes), (place,)):
        shown, strength = _print(nodes, names, i, done)
        done[i] = (shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "...", strength)
    return done[place][0]


def exact(nodes: Sequence[Node], names: Sequence[str], place: int) -> str | None:
    """The node at `place` as text whose numbers are exact; None where it is longer than `LONGEST_EXACT`."""
    done: dict[int, tuple[str, int]] = {}
    for i in schedule(tuple(nodes), (place,)):
        done[i] = _print(nodes, names, i, done, _fraction)
        if len(done[i][0]) > LONGEST_EXACT:
            return None
    return done[place][0]


def _fraction(value: Fraction) -> str:
    """A rational number, exactly: a decimal where that is short, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    decimal = f"{value.numerator / value.denominator:.12g}"
    plain = "e" not in decimal and "n" not in decimal  # neither an exponent nor an infinity
    return decimal if plain and Fraction(decimal) == value else f"{value.numerator}/{value.denominator}"


def shown_number(value: Fraction) -> str:
    """A rational number: a decimal where that is exact and short, else a fraction or an approximation."""
    if value.denominator == 1 and abs(value) < 10**15:
        return str(value.numerator)
    try:
        decimal = f"{float(value):.12g}"
    except OverflowError:
        return "a huge number"
    if Fraction(decimal) == value:
        return decimal
    if abs(value.numerator) < 10**6 and value.denominator < 10**6:
        return f"{value.numerator}/{value.denominator}"
    return decimal


def _print(
    nodes: Sequence[Node], names: Sequence[str], place: int, done: dict[int, tuple[str, int]],
    number: Callable[[Fraction], str] | None = None,
) -> tuple[str, int]:  # fmt: skip
    number = number or shown_number
    node = nodes[place]

    def part(i: int, least: int) -> str:
        shown, strength = done[i]
        return shown if strength >= least else f"({shown})"

    if node.op == "var":
        return names[node.data], _ATOM
    if node.op == "const":
        shown = number(node.data)
        return shown, _SUM if shown.startswith("-") else _PRODUCT if "/" in shown else _ATOM
    if node.op in ("pi", "e"):
        return node.op, _ATOM
    if node.op == "lin":
        return _print_sum(nodes, node, done)
    if node.op == "prod":
        factors = [part(a, _SIGN) if n == 1 else f"{part(a, _ATOM)}**{n}" for a, n in zip(node.args, node.data, strict=True)]
        return "*".join(factors), _POWER if len(factors) == 1 else _PRODUCT
    if node.op in ("div", "unit"):
        return f"{part(node.args[0], _PRODUCT)}/{part(node.args[1], _SIGN)}", _PRODUCT
    if node.op == "powr":
        shown = number(node.data)
        return (
            f"{part(node.args[0], _ATOM)}**{f'({shown})' if '/' in shown or shown.startswith('-') else shown}",
            _POWER,
        )
    if node.op == "pow":
        return f"{part(node.args[0], _ATOM)}**{part(node.args[1], _POWER)}", _POWER
    if node.op in _RELATIONS:
        return f"{done[node.args[0]][0]} {_RELATIONS[node.op]} 0", _SUM
    if node.op in ("and", "or"):
        return f"({done[node.args[0]][0]}) {node.op} ({done[node.args[1]][0]})", _SUM
    if node.op == "not":
        return f"not ({done[node.args[0]][0]})", _SUM
    return f"{_called(node, number)}{', '.join(done[a][0] for a in node.args)})", _ATOM


def _called(node: Node, number: Callable[[Fraction], str]) -> str:
    """The name of a function with what stands before its argument: jv(1/2, ; derivatives of zeta and the like as zeta'(."""
    if node.data is None:
        return f"{node.op}("
    if node.op in ("zeta", "ellipk", "ellipe"):
        return f"{node.op}{chr(39) * node.data}("
    numbers = node.data if isinstance(node.data, tuple) else (node.data,)
    return f"{node.op}({', '.join(number(Fraction(a)) for a in numbers)}, "


def _print_sum(nodes: Sequence[Node], node: Node, done: dict[int, tuple[str, int]]) -> tuple[str, int]:
    pieces: list[str] = []
    for c, a in zip(node.args[1::2], node.args[2::2], strict=True):
        value = nodes[c].data if nodes[c].op == "const" else None
        shown, strength = done[a]
        shown = shown if strength >= _PRODUCT else f"({shown})"
        if value == 1:
            pieces.append(shown)
        elif value == -1:
            pieces.append(f"-{shown}")
        else:
            coefficient, strength = done[c]
            plain = strength >= _PRODUCT or (coefficient.startswith("-") and nodes[c].op == "const")
            pieces.append(f"{coefficient if plain else f'({coefficient})'}*{shown}")
    constant = done[node.args[0]][0]
    if constant != "0":
        pieces.append(constant)
    total = pieces[0]
    for piece in pieces[1:]:
        total += f" - {piece[1:]}" if piece.startswith("-") else f" + {piece}"
    return total, _PRODUCT if len(pieces) == 1 and not total.startswith("-") else _SUM
