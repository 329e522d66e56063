"""Where an expression switches: its kinks, jumps and singular arguments, and the smooth branches in between.

    abs(u), sign(u)     switch where u = 0          choice +1: u > 0            choice -1: u < 0
    max(a, b)           u = a - b                   +1: a                       -1: b
    min(a, b)           u = a - b                   +1: b                       -1: a
    u < 0, u <= 0, ..   u = 0, inside where(...)    +1: u > 0                   -1: u < 0      (u == 0 is false for both)
    floor(u)            where u is an integer       the integer
    cbrt(u)             singular at u = 0           +1: u^(1/3)                 -1: -(-u)^(1/3)
    sqrt, log, powers, quotients, ..                singular where u = 0; nothing to choose

`forced` resolves switches by choices and leaves an expression without them: on the region of the choices it is the same
function, and elsewhere its analytic continuation.  Everything here is an identity.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.core.errors import BadInput
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import CONDITIONS, Graph, Node

Copies = list[int | bool]  # places in another graph, or truths
Rewrite = Callable[[Graph, int, Node, Copies], int | bool | None]

KINKS = frozenset({"abs", "max", "min"})
COMPARISONS = frozenset({"negative", "nonpositive", "zero"})
JUMPS = COMPARISONS | {"sign", "floor", "atan2"}
SINGULAR = frozenset({"sqrt", "cbrt", "log", "log1p", "powr", "pow", "div", "asin", "acos", "acosh", "atanh", "tan"})
CHOSEN = KINKS | COMPARISONS | {"sign", "floor", "cbrt"}
"""Operations that `forced` resolves."""


@dataclass(frozen=True)
class Switch:
    """One switch: its node, what it is, and the function that decides (it switches where the argument vanishes).

    Kinds: "kink" (continuous), "jump" (may be discontinuous), "singular" (not analytic, or a pole).  A `floor` switches
    where its argument is any integer.  The argument may itself contain switches, which stand before this one in the list.
    """

    place: int
    op: str
    kind: str
    argument: Expression

    @property
    def chosen(self) -> bool:
        """Whether `forced` takes a choice for it."""
        return self.op in CHOSEN


@dataclass(frozen=True)
class AffineForm:
    """constant + coefficients . x; `exact` has the coefficients (D,) and the constant where all of them are rational."""

    exact: tuple[tuple[Fraction, ...], Fraction] | None


def switches(expression: Expression) -> tuple[Switch, ...]:
    """All switches with arguments that vary, inner ones first; every one that `forced` needs a choice for is among them."""
    graph = Graph(expression.nodes)
    place = {i: graph.make(*node) for i, node in enumerate(expression.nodes)}
    if any(i != p for i, p in place.items()):
        raise AssertionError("an expression lists a node twice")
    found = []
    for i, node in enumerate(expression.nodes):
        kind = "kink" if node.op in KINKS else "jump" if node.op in JUMPS else "singular" if node.op in SINGULAR else None
        if kind is None:
            continue
        argument = _argument(graph, node)
        if not graph.is_constant(argument):
            text = f"the argument of {expression.describe(i)}"
            found.append(Switch(i, node.op, kind, Expression.of_graph(text, expression.names, graph, (argument,))))
    return tuple(found)


def _argument(graph: Graph, node: Node) -> int:
    """The place of what vanishes at the switch."""
    u = node.args[0]
    if node.op in ("max", "min"):
        return graph.subtract(u, node.args[1])
    if node.op == "div":
        return node.args[1]
    if node.op == "log1p":
        return graph.add(graph.one, u)
    if node.op in ("asin", "acos", "atanh"):
        return graph.subtract(graph.one, graph.integer_power(u, 2))
    if node.op == "acosh":
        return graph.subtract(u, graph.one)
    if node.op == "tan":
        return graph.apply("cos", u)
    return u


def affine_form(expression: Expression) -> AffineForm | None:
    """The first output as constant + coefficients . x, where its normal form shows that; None otherwise."""
    graph = Graph(expression.nodes)
    constant, terms = graph.terms(graph.make(*expression.nodes[expression.outputs[0]]))
    if any(graph.nodes[a].op != "var" for a in terms):
        return None
    columns: list[int] = [graph.zero] * expression.dimension
    for a, c in terms.items():
        columns[graph.nodes[a].data] = c
    known = [value for value in (graph.rational(place) for place in (*columns, constant)) if value is not None]
    return AffineForm((tuple(known[:-1]), known[-1]) if len(known) == len(columns) + 1 else None)


def forced(expression: Expression, choices: Mapping[int, int]) -> Expression:
    """The expression with switches resolved: `choices` maps places to +1 or -1, for a floor to its integer.

    Switches without a choice stay.  A branch that no choice selects is dropped together with its domain.
    """
    return rewritten(expression, choices=choices, text=f"a branch of ({expression.text})")


def moved(expression: Expression, origin: Fraction, scale: Fraction) -> Expression:
    """An expression of one variable t written in z, t = origin + scale z, exactly: affine arguments lose no digits near z = 0."""

    def shift(graph: Graph, _: int, node: Node, __: Copies) -> int | None:
        if node.op != "var":
            return None
        return graph.total([graph.number(origin), graph.multiply(graph.number(scale), graph.variable(0))])

    return rewritten(expression, shift, names=("z",))


def rewritten(
    expression: Expression,
    rewrite: Rewrite | None = None,
    choices: Mapping[int, int] | None = None,
    *,
    text: str | None = None,
    names: tuple[str, ...] | None = None,
    wanted: Sequence[int] | None = None,
) -> Expression:
    """An expression of copied nodes (see `copied`): the `wanted` ones that are numbers, by default the outputs."""
    graph = Graph()
    copies = copied(graph, expression, rewrite, choices)
    outputs = [place for place in (copies[p] for p in wanted or expression.outputs) if not isinstance(place, bool)]
    return Expression.of_graph(text or expression.text, names or expression.names, graph, outputs)


def copied(
    graph: Graph, expression: Expression, rewrite: Rewrite | None = None, choices: Mapping[int, int] | None = None
) -> Copies:
    """Every node of an expression in another graph, in normal form, or the truth of a condition that is decided.

    `rewrite(graph, place, node, args)` may put something else in the place of a node; None keeps it.
    """
    copies: Copies = []
    for place, node in enumerate(expression.nodes):
        args = [copies[a] for a in node.args]
        made = None if rewrite is None else rewrite(graph, place, node, args)
        copies.append(copy(graph, node, args, (choices or {}).get(place)) if made is None else made)
    return copies


def copy(graph: Graph, node: Node, args: Copies, choice: int | None = None) -> int | bool:
    """The node in the new graph, or the truth of a condition."""
    if node.op in CONDITIONS:
        return _condition(graph, node, args, choice)
    if node.op == "where" and isinstance(args[0], bool):
        return args[1] if args[0] else args[2]
    places = [a for a in args if not isinstance(a, bool)]
    if choice is not None and node.op in CHOSEN:
        return _chosen(graph, node.op, places, choice)
    return graph.again(node, places)


def _chosen(graph: Graph, op: str, places: list[int], choice: int) -> int:
    u = places[0]
    if op == "floor":
        return graph.number(choice)
    if choice not in (-1, 1):
        raise BadInput(f"a choice for {op} (={choice!r}) must be +1 or -1.")
    if op == "abs":
        return u if choice > 0 else graph.negate(u)
    if op == "sign":
        return graph.number(choice)
    if op == "cbrt":
        root = graph.power(u if choice > 0 else graph.negate(u), graph.number(Fraction(1, 3)))
        return root if choice > 0 else graph.negate(root)
    first = (op == "max") == (choice > 0)
    return places[0] if first else places[1]


def _condition(graph: Graph, node: Node, args: list[int | bool], choice: int | None) -> int | bool:
    if node.op in COMPARISONS:
        if choice is not None:
            if choice not in (-1, 1):
                raise BadInput(f"a choice for a comparison (={choice!r}) must be +1 or -1.")
            return choice < 0 and node.op != "zero"
        assert not isinstance(args[0], bool)
        return graph.make(node.op, (args[0],))
    if node.op == "not":
        return not args[0] if isinstance(args[0], bool) else graph.make("not", (args[0],))
    decisive = node.op == "or"
    if any(a is decisive for a in args):
        return decisive
    open_ones = [a for a in args if not isinstance(a, bool)]
    if not open_ones:
        return not decisive
    return open_ones[0] if len(open_ones) == 1 else graph.make(node.op, tuple(open_ones))
