"""The direct form of a target: its own formula by short polynomials, within a bound of its own that owes nothing to the layer.

    |program(x) - f(x)| <= bound        at every float64 x of the box; where `rounded`, at every real x that is rounded once

its answer rounded to the dtype that a layer computes in.

Ranges of all intermediate results are enclosed on boxes.  From the output back, what an error of each may cost says how short
the polynomials of exp, sin, cos and of tables may be (direct_columns.py, direct_table.py, short_series.py); then errors are added
up from the input on, every rounding counted.  Abs, max, min, sums, products, quotients and roots are computed as they stand.
What jumps, and what has no derivative where it is computed, is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core import boxes
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, Dtype
from maxaffine.expression.evaluate import enclosures
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import CONDITIONS, JUMPING, Graph, Node
from maxaffine.proofs.direct_columns import Column, Columns, smaller
from maxaffine.proofs.direct_table import slope_and_size, table
from maxaffine.runtime.direct import Program

CELLS = {1: 64, 2: 16, 3: 6, 4: 4}  # per side, for ranges
TRIES = 5
SHARE = 0.9  # of the error allowed, for all series together
SHRINK = 0.6
SERIES = ("exp", "sin", "cos", "atan")
PLAIN = ("lin", "prod", "div", "sqrt", "abs", "max", "min")


@dataclass(frozen=True)
class Direct:
    """A program, and what it is off by at most."""

    program: Program
    bound: float


@dataclass(frozen=True)
class Ranges:
    """Enclosures of every node over the box: least and largest values, (n,)."""

    low: Array
    high: Array

    def size(self, place: int) -> float:
        """The largest modulus."""
        return float(max(abs(self.low[place]), abs(self.high[place])))

    def least(self, place: int) -> float:
        """The least modulus."""
        low, high = float(self.low[place]), float(self.high[place])
        return max(low, -high, 0.0)


def direct(expression: Expression, low: Array, high: Array, allowed: float, rounded: bool, unit: float = 0.0) -> Direct:
    """The form of an expression on a box within `allowed`, its answers rounded by `unit`; Refused where there is none."""
    columns, outputs, bound = formed(expression, low, high, allowed, rounded, unit, FLOAT64)
    return Direct(columns.program(outputs), bound)


def formed(
    expression: Expression, low: Array, high: Array, allowed: float, rounded: bool, unit: float, format_: Dtype,
    taken: float | None = None,
) -> tuple[Columns, list[int], float]:  # fmt: skip
    """The columns of the form in one arithmetic, places of the outputs, and what it is off by: `taken` or `allowed` at most."""
    if not 0.0 < allowed < math.inf:
        raise Refused("no error is left for a form of its own.")
    _admit(expression)
    ranges = _ranges(expression, low, high)
    varying = _varying(expression)
    slopes = _slopes(expression, ranges, varying)
    with np.errstate(all="ignore"):
        costs = _costs(expression, ranges, slopes)
        costs = np.where(costs < math.inf, costs, math.inf)  # where nothing is known, polynomials are as good as they can be
    approximated = [p for p, node in enumerate(expression.nodes) if varying[p] and _is_series(node)]
    share, bound = SHARE / max(1, len(approximated)), math.inf
    for _ in range(TRIES):
        room = {p: share * allowed / float(costs[p]) if costs[p] > 0.0 else allowed for p in approximated}
        columns, found = _columns(expression, ranges, varying, room, rounded, format_)
        bound = max(found[p].error + unit * found[p].most for p in expression.outputs) * (1 + 1e-12)
        if bound <= (allowed if taken is None else taken):
            return columns, [found[p].place for p in expression.outputs], bound
        share *= SHRINK
    raise Refused(f"its short polynomials and roundings come to {bound:.2g}, and {allowed:.2g} is allowed.")


def _is_series(node: Node) -> bool:
    return node.op not in (*PLAIN, "var", "const") and bool(node.args)


def _varying(expression: Expression) -> list[bool]:
    """Of every node whether a variable occurs below it."""
    found: list[bool] = []
    for node in expression.nodes:
        found.append(node.op == "var" or any(found[a] for a in node.args))
    return found


def _admit(expression: Expression) -> None:
    """Refused where an operation has no counterpart."""
    for place, node in enumerate(expression.nodes):
        if node.op in JUMPING or node.op in CONDITIONS:
            raise Refused(f"`{expression.describe(place)}` may jump.")
        if node.op not in PLAIN and len(node.args) > 1:
            raise Refused(f"`{expression.describe(place)}` is not a function of one number.")


# -- what is known before anything is computed


def _ranges(expression: Expression, low: Array, high: Array) -> Ranges:
    D = len(low)
    lows, highs = boxes.grid(low, high, CELLS.get(D, 2) if D <= 12 else 1)
    found = enclosures(expression.nodes, range(len(expression.nodes)), Interval(lows, highs))
    least, most = np.empty(len(expression.nodes)), np.empty(len(expression.nodes))
    for place, one in found.items():
        if one.ok is not None and not np.all(one.ok):
            raise Refused(f"`{expression.describe(place)}` is not known to be defined on the whole box.")
        least[place], most[place] = np.min(one.value.lo), np.max(one.value.hi)
    if not (np.isfinite(least).all() and np.isfinite(most).all()):
        place = int(np.argmin(np.isfinite(least) & np.isfinite(most)))
        raise Refused(f"`{expression.describe(place)}` is not known to be bounded on the box.")
    return Ranges(least, most)


def alone(node: Node) -> Expression:
    """The function of one number that an operation of one argument is."""
    graph = Graph()
    place = graph.make(node.op, (graph.variable(0),), node.data)
    return Expression.of_graph(node.op, ("t",), graph, (place,))


def _slopes(expression: Expression, ranges: Ranges, varying: list[bool]) -> dict[int, float]:
    """Of functions that go into tables: the largest slope over the range of their argument."""
    found = {}
    for place, node in enumerate(expression.nodes):
        if varying[place] and _is_series(node) and node.op not in SERIES:
            a = node.args[0]
            steep, _ = slope_and_size(alone(node), float(ranges.low[a]), float(ranges.high[a]))
            if not math.isfinite(steep):
                raise Refused(f"`{expression.describe(place)}` is not known to have a bounded slope.")
            found[place] = steep
    return found


def _costs(expression: Expression, ranges: Ranges, slopes: Mapping[int, float]) -> Array:
    """What a small error of each node may cost at the outputs, per unit; roots at 0 are taken at the square of float64's unit."""
    cost = np.zeros(len(expression.nodes))
    cost[list(expression.outputs)] = 1.0
    for place in range(len(expression.nodes) - 1, -1, -1):
        node, own = expression.nodes[place], cost[place]
        if own == 0.0 or not node.args:
            continue
        if node.op == "lin":
            for c, a in zip(node.args[1::2], node.args[2::2], strict=True):
                cost[a] += own * ranges.size(c)
        elif node.op == "prod":
            sizes, powers = np.array([ranges.size(a) for a in node.args]), np.array(node.data, dtype=np.float64)
            for k, a in enumerate(node.args):
                lowered = powers - (np.arange(len(powers)) == k)
                cost[a] += own * powers[k] * np.prod(sizes**lowered)
        elif node.op == "div":
            least = ranges.least(node.args[1])
            cost[node.args[0]] += own / least
            cost[node.args[1]] += own * ranges.size(place) / least
        elif node.op == "sqrt":
            cost[node.args[0]] += own / (2.0 * math.sqrt(max(ranges.least(node.args[0]), FLOAT64.unit**2)))
        elif node.op == "exp":
            cost[node.args[0]] += own * max(0.0, ranges.high[place])
        elif node.op in ("sin", "cos", "atan", "abs", "max", "min"):
            for a in node.args:
                cost[a] += own
        elif place in slopes:
            cost[node.args[0]] += own * slopes[place]
    return cost


# -- the columns, from the inputs on


def _columns(
    expression: Expression, ranges: Ranges, varying: list[bool], room: Mapping[int, float], rounded: bool, format_: Dtype
) -> tuple[Columns, dict[int, Column]]:
    """Instructions for all nodes, each with its error."""
    made = Columns(format_)
    found: dict[int, Column] = {}
    for place, node in enumerate(expression.nodes):
        size = ranges.size(place)
        if node.op == "var":
            found[place] = made.load(node.data, size, FLOAT64.unit * size if rounded else 0.0)
        elif not varying[place]:
            found[place] = made.constant(*_constant(node, ranges, place))
        else:
            found[place] = smaller(_column(expression, place, made, found, ranges, room), size)
    return made, found


def _constant(node: Node, ranges: Ranges, place: int) -> tuple[float, float]:
    """The number nearest to a constant, and how far it may be off."""
    low, high = float(ranges.low[place]), float(ranges.high[place])
    if node.op == "const":
        value = node.data.numerator / node.data.denominator
        off = abs(Fraction(value) - node.data)
        return value, math.nextafter(float(off), math.inf) if off else 0.0
    value = low + (high - low) / 2.0
    return value, max(high - value, value - low) * (1 + 8 * FLOAT64.unit) + FLOAT64.tiny


def _column(
    expression: Expression, place: int, made: Columns, found: dict[int, Column], ranges: Ranges, room: Mapping[int, float]
) -> Column:
    """The column of one node that varies."""
    node = expression.nodes[place]
    if node.op == "lin":
        return _sum(expression, node, made, found, ranges)
    held = [found[a] for a in node.args]
    if node.op == "prod":
        product = None
        for one, n in zip(held, node.data, strict=True):
            power = made.power(one, n)
            product = power if product is None else made.multiplied(product, power)
        assert product is not None
        return product
    if node.op == "div":
        return made.divided(held[0], held[1], ranges.least(node.args[1]), ranges.size(place))
    if node.op == "sqrt":
        return made.root(held[0], max(0.0, float(ranges.low[node.args[0]])), ranges.size(place))
    if node.op == "abs":
        return made.absolute(held[0])
    if node.op in ("max", "min"):
        best = held[0]
        for one in held[1:]:
            best = made.extreme(best, one, node.op == "max")
        return best
    a = node.args[0]
    if node.op == "exp":
        return made.exponential(held[0], float(ranges.high[a]), room[place])
    if node.op in ("sin", "cos"):
        return made.wave(held[0], node.op == "cos", room[place])
    if node.op == "atan":
        return made.arctangent(held[0], room[place])
    try:
        return made.tabled(held[0], table(alone(node), float(ranges.low[a]), float(ranges.high[a]), room[place]))
    except Refused:
        if node.op == "tanh":
            return made.tangent(held[0], room[place])
        if node.op == "sigmoid":  # (1 + tanh(a/2))/2
            return made.shifted(made.scaled(made.tangent(made.scaled(held[0], 0.5, 0.0), room[place]), 0.5, 0.0), 0.5, 0.0)
        raise


def _sum(expression: Expression, node: Node, made: Columns, found: dict[int, Column], ranges: Ranges) -> Column:
    """c0 + c1 a1 + c2 a2 + ..., beginning with a term that needs no product where there is one."""
    terms: list[tuple[float, float, Column]] = []
    for place, a in zip(node.args[1::2], node.args[2::2], strict=True):
        terms.append((*_constant(expression.nodes[place], ranges, place), found[a]))
    terms.sort(key=lambda term: term[:2] != (1.0, 0.0))
    c, doubt, total = terms[0]
    if (c, doubt) != (1.0, 0.0):
        total = made.scaled(total, c, doubt)
    for c, doubt, one in terms[1:]:
        total = made.added(total, one, c, doubt)
    c, doubt = _constant(expression.nodes[node.args[0]], ranges, node.args[0])
    return total if c == 0.0 and doubt == 0.0 else made.shifted(total, c, doubt)
