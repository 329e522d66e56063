"""Breaks of a function of one variable, rigorous: every switch enclosed, and the smooth branch on every piece in between.

Switches are resolved inner ones first, so that every argument is smooth on the piece on which its roots are isolated: an
interval on which the argument keeps its sign, or its derivative does (then there is at most one root, which is closed in on to
a few units in the last place), or which is halved.  What remains undecided is a break itself, of the width that is left.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.expression.identities import factored
from maxaffine.structure.switches import Switch, forced, switches

MOST_BREAKS = 400
LOOKS = 200_000  # intervals that one isolation may look at
FINEST = 2.0**-46  # of the interval's width: undecided intervals of this size are breaks
NEGLIGIBLE = 2.0**-40  # of the finest interval: roots near 0 need not be known to the last subnormal number
CUT = 0.4937  # where intervals are cut: not at dyadic points, which roots like


@dataclass(frozen=True)
class Break:
    """Switching points inside [low, high]; kind "kink" or "jump" (some switch there may be discontinuous)."""

    low: float
    high: float
    kind: str


@dataclass(frozen=True)
class Piece:
    """On [low, high] the function is `branch`, which has no switches left."""

    low: float
    high: float
    branch: Expression


@dataclass(frozen=True)
class Pieces:
    """Pieces from left to right; breaks[i] lies before piece i, the last one after the last piece.

    Breaks between pieces are always there; the first and the last one, at the ends of the interval, may be None.
    """

    pieces: tuple[Piece, ...]
    breaks: tuple[Break | None, ...]


@dataclass
class _Part:
    low: float
    high: float
    choices: dict[int, int]


def find_pieces(expression: Expression, low: float, high: float) -> Pieces:
    """Pieces and breaks of an expression of one variable on [low, high]; Refused where there are too many to tell apart."""
    joined, listed = _joined(expression)
    parts = [_Part(low, high, {})]
    breaks: list[Break] = []
    for number, switch in enumerate(listed):
        done: list[_Part] = []
        for part in parts:
            now, found = _split(forced(joined, part.choices), expression.count + number, switch, part)
            done += now
            breaks += found
            if len(breaks) > MOST_BREAKS:
                raise Refused(f"the target switches at more than {MOST_BREAKS} places of its axis.")
        parts = done
    pieces = tuple(Piece(p.low, p.high, _outputs(forced(joined, p.choices), expression.count)) for p in parts)
    if not pieces:
        raise Refused("the target switches everywhere on its axis.")
    return Pieces(pieces, _merged(breaks, pieces, low, high))


def _joined(expression: Expression) -> tuple[Expression, list[Switch]]:
    """The expression with the arguments of its switches as further outputs; places of its nodes stay the same."""
    listed = [switch for switch in switches(expression) if switch.chosen]
    graph = Graph(expression.nodes)
    outputs = list(expression.outputs)
    for switch in listed:
        node = expression.nodes[switch.place]
        outputs.append(graph.subtract(*node.args) if node.op in ("max", "min") else node.args[0])
    joined = Expression.of_graph(expression.text, expression.names, graph, outputs)
    if joined.nodes[: len(expression.nodes)] != expression.nodes:
        raise AssertionError("the nodes of an expression have moved")
    return joined, listed


def _outputs(expression: Expression, count: int) -> Expression:
    return Expression.of_graph(expression.text, expression.names, Graph(expression.nodes), expression.outputs[:count])


def _split(forced_now: Expression, output: int, switch: Switch, part: _Part) -> tuple[list[_Part], list[Break]]:
    """The part cut where this switch's argument vanishes (for a floor: is an integer)."""
    argument = _product(forced_now.output(output))
    if not argument.used:
        choice = _settled(switch, argument.enclose(Interval.point(np.zeros((1, 1)))))
        return [_Part(part.low, part.high, {**part.choices, switch.place: choice})], []
    if switch.op == "floor":
        return _split_floor(argument, switch, part)
    jump = switch.kind == "jump"
    cells, roots = isolate(argument, part.low, part.high, jump)
    breaks = [Break(a, b, "jump" if jump else "kink") for a, b in roots]
    return [_Part(a, b, {**part.choices, switch.place: sign}) for a, b, sign in cells], breaks


def _product(argument: Expression) -> Expression:
    """The argument as a product where it is one: the signs of products are exact next to their roots."""
    graph = Graph(argument.nodes)
    place = factored(graph, argument.outputs[0])
    return argument if place is None else Expression.of_graph(argument.text, argument.names, graph, (place,))


def _settled(switch: Switch, value: Interval) -> int:
    """The choice where the argument is one number, such as abs(x) - x on the right of 0; Refused where no choice says it."""
    lo, hi = float(value.lo[0, 0]), float(value.hi[0, 0])
    if switch.op == "floor":
        if math.isfinite(lo) and math.isfinite(hi) and math.floor(lo) == math.floor(hi):
            return math.floor(lo)
    elif lo > 0 or hi < 0:
        return 1 if lo > 0 else -1
    elif lo == hi == 0.0 and switch.op not in ("sign", "zero"):
        return -1 if switch.op == "nonpositive" else 1  # 0 <= 0 is true, 0 < 0 is not; kinks have one value on both sides
    raise Refused(f"a {switch.op} of the target has a constant argument on an interval, from {lo:g} to {hi:g}: undecided.")


def _split_floor(argument: Expression, switch: Switch, part: _Part) -> tuple[list[_Part], list[Break]]:
    edges = np.linspace(part.low, part.high, 257)
    reach = argument.enclose(Interval(edges[:-1, None], edges[1:, None]))
    first, last = float(np.min(reach.lo)), float(np.max(reach.hi))
    if not (np.isfinite(first) and np.isfinite(last)) or last - first > MOST_BREAKS:
        raise Refused(f"a floor of the target steps more than {MOST_BREAKS} times, or its argument cannot be enclosed.")
    below = int(np.floor(first))
    breaks: list[Break] = []
    cells: list[tuple[float, float, int]] = [(part.low, part.high, below)]
    for n in range(below + 1, int(np.floor(last)) + 1):
        graph = Graph(argument.nodes)
        shifted = Expression.of_graph("a step", argument.names, graph, (graph.subtract(argument.outputs[0], graph.number(n)),))
        done: list[tuple[float, float, int]] = []
        for a, b, value in cells:
            if value != n - 1:  # surely below an earlier step
                done.append((a, b, value))
                continue
            inner, roots = isolate(shifted, a, b, True)
            done += [(c, d, n if sign > 0 else n - 1) for c, d, sign in inner]
            breaks += [Break(c, d, "jump") for c, d in roots]
        cells = done
    return [_Part(a, b, {**part.choices, switch.place: value}) for a, b, value in cells], breaks


def isolate(
    argument: Expression, low: float, high: float, ends: bool
) -> tuple[list[tuple[float, float, int]], list[tuple[float, float]]]:
    """Cells (a, b, sign) on which the argument keeps its sign, and enclosures of all its roots.

    Unless `ends`, the argument may vanish at an end of a cell.
    """
    slope = argument.gradient()
    finest = max((high - low) * FINEST, 4.0 * np.spacing(max(abs(low), abs(high))))
    known: list[tuple[float, float, int]] = []  # decided: +1 or -1; 0: a root may be in it
    todo = [(np.array([low]), np.array([high]))]
    looked = 0
    alone: list[tuple[float, float, bool]] = []  # monotone there: at most one root
    while todo:
        a, b = todo.pop()
        looked += len(a)
        if looked > LOOKS:
            raise Refused("the switches of the target could not be told apart.")
        box = Interval(a[:, None], b[:, None])
        value = argument.enclose(box)
        lo, hi = value.lo[:, 0], value.hi[:, 0]
        steep = slope.enclose(box)
        monotone = (steep.lo[:, 0] > 0) | (steep.hi[:, 0] < 0)
        plus, minus = lo > 0, hi < 0
        open_ones = ~(plus | minus)
        single = open_ones & monotone
        rising = steep.lo[single, 0] > 0
        alone += [(float(x), float(y), bool(up)) for x, y, up in zip(a[single], b[single], rising, strict=True)]
        if len(alone) > 4 * MOST_BREAKS:
            raise Refused(f"the target switches at more than {MOST_BREAKS} places of its axis.")
        rest = open_ones & ~monotone
        small = rest & (b - a <= finest)
        for those, sign in ((plus, 1), (minus, -1), (small, 0)):
            known += [(float(x), float(y), sign) for x, y in zip(a[those], b[those], strict=True)]
        rest &= ~small
        if rest.any():
            middle = a[rest] + CUT * (b[rest] - a[rest])
            todo.append((np.concatenate([a[rest], middle]), np.concatenate([middle, b[rest]])))
    for x, y, up in alone:
        known += _one_root(argument, x, y, up, ends, finest * NEGLIGIBLE)
    return _gathered(known)


def _one_root(
    argument: Expression, a: float, b: float, rising: bool, ends: bool, negligible: float
) -> list[tuple[float, float, int]]:
    """A monotone argument on [a, b]: its root closed in on, or none."""
    left, right = _sign(argument, a), _sign(argument, b)
    before, after = (-1, 1) if rising else (1, -1)
    if left == after:
        return [(a, b, after)]
    if right == before:
        return [(a, b, before)]
    lo, hi = a, b  # the sign is `before` at lo (or open) and `after` at hi (or open)
    if left == 0:  # the root is at a, or too close to tell
        hi = _push(argument, a, b, after, negligible)
        exact = not ends and _vanishes(argument, a)
        return [(a, b, after)] if exact else [(a, hi, 0), *([(hi, b, after)] if hi < b else [])]
    if right == 0:
        lo = _push(argument, b, a, before, negligible)
        exact = not ends and _vanishes(argument, b)
        return [(a, b, before)] if exact else [*([(a, lo, before)] if a < lo else []), (lo, b, 0)]
    while True:  # by float64 values; what they say is proved afterwards
        middle = lo + (hi - lo) / 2.0
        if not lo < middle < hi or hi - lo < negligible:
            break
        above = float(argument.evaluate(np.array([[middle]]))[0, 0]) > 0
        lo, hi = (lo, middle) if above == rising else (middle, hi)
    if not ends:
        for root in (lo, hi):
            if a < root < b and _vanishes(argument, root):
                return [(a, root, before), (root, b, after)]
    lo = lo if _sign(argument, lo) == before else _push(argument, lo, a, before, negligible)
    hi = hi if _sign(argument, hi) == after else _push(argument, hi, b, after, negligible)
    return [(a, lo, before), (lo, hi, 0), (hi, b, after)]


def _push(argument: Expression, start: float, end: float, wanted: int, negligible: float) -> float:
    """The nearest number to `start`, by doubling steps towards `end`, at which the sign is `wanted`; else `end`."""
    step = max(float(np.spacing(abs(start))), negligible / 2.0)
    direction = 1.0 if end > start else -1.0
    while True:
        here = start + direction * step
        if (here - end) * direction >= 0:
            return end
        if _sign(argument, here) == wanted:
            return here
        step *= 2.0


def _vanishes(argument: Expression, x: float) -> bool:
    value = argument.enclose(Interval.point(np.array([[x]])))
    return bool(value.lo[0, 0] == 0.0 and value.hi[0, 0] == 0.0)


def _sign(argument: Expression, x: float) -> int:
    value = argument.enclose(Interval.point(np.array([[x]])))
    return 1 if value.lo[0, 0] > 0 else -1 if value.hi[0, 0] < 0 else 0


def _gathered(known: list[tuple[float, float, int]]) -> tuple[list[tuple[float, float, int]], list[tuple[float, float]]]:
    """Neighbours of one sign joined; undecided ones joined and listed as roots."""
    joined: list[tuple[float, float, int]] = []
    for a, b, sign in sorted(known):
        if joined and joined[-1][2] == sign and joined[-1][1] >= a:
            first, last, _ = joined.pop()
            a, b = first, max(last, b)
        joined.append((a, b, sign))
    cells = [one for one in joined if one[2]]
    roots = [one[:2] for one in joined if not one[2]]
    # A cell that meets one of the other sign without a gap: the root is their common end.
    for left, right in pairwise(cells):
        if left[1] >= right[0] and left[2] != right[2]:
            roots.append((right[0], left[1]))
    return [cell for cell in cells if cell[0] < cell[1]], sorted(roots)


def _merged(breaks: list[Break], pieces: tuple[Piece, ...], low: float, high: float) -> tuple[Break | None, ...]:
    """Breaks before, between and after the pieces: the hull of what was found there and of the space that is left."""
    found: list[Break | None] = []
    edges = [(low, pieces[0].low), *((a.high, b.low) for a, b in pairwise(pieces)), (pieces[-1].high, high)]
    for number, (a, b) in enumerate(edges):
        here = [one for one in breaks if one.low <= b and one.high >= a]
        if number in (0, len(pieces)) and a == b and not here:
            found.append(None)
            continue
        kind = "jump" if any(one.kind == "jump" for one in here) else "kink"
        found.append(Break(min([a, *(one.low for one in here)]), max([b, *(one.high for one in here)]), kind))
    return tuple(found)
