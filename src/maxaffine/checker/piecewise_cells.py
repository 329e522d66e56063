"""Cells of a piecewise affine target: its box cut in exact arithmetic wherever an operation of its expression switches.

The cells cover the box by construction, and on each the target is one affine function up to an uncertainty that comes from
constants that are not rational.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.proved import NotProved
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.polytopes import Affine, Polytope
from maxaffine.expression import evaluate
from maxaffine.expression.expression import Expression

Parts = list[tuple[Any, Any]]  # (part of a cell, form of a node there) that together cover the cell
Form = tuple[Affine, Fraction]  # an affine function of x, and how far the node may be from it

ZERO = Fraction(0)
CELLS = 20_000
STEPS = 3_000_000  # vertices looked at while the box is cut
SWITCHES = ("max", "min", "abs")
CONDITIONS = ("negative", "nonpositive")


@dataclass(frozen=True)
class Cell:
    """Where every output is one affine function of x up to `uncertainty`; `part` is a polytope, or half spaces."""

    part: Any
    outputs: tuple[Affine, ...]
    uncertainty: Fraction


def walk(
    expression: Expression, whole: Any, low: Array, high: Array, branches: Callable[[Any, list[Any], Any], Parts], most: int
) -> Iterator[Cell]:
    """Cells that cover `whole`, node by node; `branches` says what a switch is on a part, or on parts that cover it."""
    nodes = expression.nodes
    sizes = evaluate.enclosures(nodes, range(len(nodes)), Interval(low[None], high[None]))
    stack: list[tuple[Any, tuple[Any, ...]]] = [(whole, ())]
    found = 0
    while stack:
        part, known = stack.pop()
        forms = list(known)
        while len(forms) < len(nodes):
            node, place = nodes[len(forms)], len(forms)
            args = [forms[a] for a in node.args]
            if node.op not in (*SWITCHES, *CONDITIONS):
                forms.append(_form(node, args, sizes, place, expression.dimension))
                continue
            made = branches(node, args, part)
            if len(made) == 1:
                forms.append(made[0][1])
                continue
            stack += [(piece, (*forms, form)) for piece, form in made]
            break
        else:
            found += 1
            outputs = [forms[place] for place in expression.outputs]
            yield Cell(part, tuple(f for f, _ in outputs), max(d for _, d in outputs))
        if found + len(stack) > most:
            raise NotProved(f"the target has more than {most:,} cells.")


def cells_of(expression: Expression, whole: Polytope, low: Array, high: Array) -> Iterator[Cell]:
    """Cells that are polytopes; NotProved where an operation is neither affine nor a switch between affine functions."""
    steps = 0

    def branches(node: Any, args: list[Any], polytope: Polytope) -> Parts:
        nonlocal steps
        steps += len(polytope.vertices)
        if steps > STEPS:
            raise NotProved("its cells have too many vertices to be listed.")
        made = _condition(node.op, args[0], polytope) if node.op in CONDITIONS else _kink(node.op, args, polytope)
        if not made:
            raise NotProved("a cell of the target is lost.")
        return made

    return walk(expression, whole, low, high, branches, CELLS)


def sides_of(op: str, args: list[Form]) -> tuple[Affine, Form, Form]:
    """d = a - b of a switch between a and b, its form where d <= 0, and its form where d >= 0."""
    a, b = args[0], args[1] if op != "abs" else (tuple(-c for c in args[0][0]), args[0][1])
    uncertainty = max(a[1], b[1])
    first, second = (b, a) if op != "min" else (a, b)
    return tuple(x - y for x, y in zip(a[0], b[0], strict=True)), (first[0], uncertainty), (second[0], uncertainty)


def _kink(op: str, args: list[Any], polytope: Polytope) -> Parts:
    difference, below_form, above_form = sides_of(op, args)
    negative, positive = polytope.sides(difference)
    if not (negative and positive):
        return [(polytope, below_form if negative else above_form)]
    below, above = polytope.cut(difference)
    assert below is not None and above is not None
    return [(below, below_form), (above, above_form)]


def _condition(op: str, argument: Any, polytope: Polytope) -> Parts:
    """h < 0 or h <= 0: true below, false above, and the points h = 0 a cell of their own, since the target may jump there."""
    h, uncertainty = argument
    if uncertainty:
        raise NotProved("a condition of its target has constants that are not rational.")
    negative, positive = polytope.sides(h)
    below, above = polytope.cut(h)
    parts: Parts = []
    if negative and below is not None:
        parts.append((below, True))
    if positive and above is not None:
        parts.append((above, False))
    face = polytope.face(h)
    if face is not None:
        parts.append((face, op == "nonpositive"))
    return parts


def _form(node: Any, args: list[Any], sizes: Any, place: int, D: int) -> Any:
    """The form of a node that does not switch, or the truth of a condition made of others."""
    op = node.op
    if op == "var":
        return (*(Fraction(int(i == node.data)) for i in range(D)), ZERO), ZERO
    if op == "const":
        return (*([ZERO] * D), node.data), ZERO
    if op == "lin":
        return _linear(args, node, sizes)
    if op == "where" and isinstance(args[0], bool):
        return args[1] if args[0] else args[2]
    if op == "not" and isinstance(args[0], bool):
        return not args[0]
    if op in ("and", "or") and all(isinstance(a, bool) for a in args):
        return all(args) if op == "and" else any(args)
    if op in ("zero", "not", "and", "or", "where") or any(isinstance(a, bool) or any(a[0][:-1]) for a in args):
        raise NotProved(f"its target's operation {op!r} is not piecewise affine.")
    found = sizes[place]  # of constants
    lo, hi = float(np.asarray(found.value.lo).ravel()[0]), float(np.asarray(found.value.hi).ravel()[0])
    if not math.isfinite(lo + hi) or (found.ok is not None and not np.all(found.ok)):
        raise NotProved(f"its target's operation {op!r} is not enclosed.")
    return (*([ZERO] * D), (Fraction(lo) + Fraction(hi)) / 2), (Fraction(hi) - Fraction(lo)) / 2


def _linear(args: list[Any], node: Any, sizes: Any) -> Form:
    total, uncertainty = args[0]
    for i in range(1, len(args), 2):
        (c, r), (form, away) = args[i], args[i + 1]
        scale = c[-1]
        total = tuple(a + scale * b for a, b in zip(total, form, strict=True))
        uncertainty = uncertainty + (abs(scale) + r) * away
        if r:
            size = float(np.asarray(sizes[node.args[i + 1]].value.magnitude).max())
            if not math.isfinite(size):
                raise NotProved("a part of its target is not enclosed.")
            uncertainty = uncertainty + r * Fraction(size)
    return total, uncertainty
