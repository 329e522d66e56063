"""Three walks over a list of operations: float64 values, intervals with where something is not defined, complex balls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.balls import indeterminate, rational
from maxaffine.core.intervals import Interval
from maxaffine.expression.graph import CONDITIONS, Node
from maxaffine.expression.operations import OPERATIONS, Mask, Truth, nearest


def _data(node: Node) -> tuple[Any, ...]:
    """What an operation needs beside its arguments."""
    return () if node.data is None else (node.data,)


def values(nodes: Sequence[Node], order: Sequence[int], variables: Sequence[Array]) -> dict[int, Any]:
    """Float64 values of the nodes `order` at points, given one array per variable: of shapes that broadcast, () for constants.

    Not finite where a function is not defined; no warnings.  On a product of axes every node is computed on the axes it needs.
    """
    result: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for place in order:
            node = nodes[place]
            if node.op == "var":
                result[place] = variables[node.data]
            elif node.op == "const":
                result[place] = np.float64(nearest(node.data))
            else:
                compute = np.where if node.op == "where" else OPERATIONS[node.op].value
                result[place] = compute(*(result[a] for a in node.args), *_data(node))
    return result


# ---------------------------------------------------------------------- intervals


@dataclass(frozen=True, slots=True)
class Enclosed:
    """An interval or a truth value, and where it is surely defined (None: everywhere)."""

    value: Any
    ok: Mask | None


def enclosures(nodes: Sequence[Node], order: Sequence[int], x: Interval | Sequence[Interval]) -> dict[int, Enclosed]:
    """Rigorous enclosures of the nodes `order` over boxes x (B, D), or one interval per variable of shapes that broadcast.

    Where `ok` is False some operation below may be undefined or jump; the interval there means nothing.
    """
    variables = [x[:, i] for i in range(x.shape[1])] if isinstance(x, Interval) else x
    result: dict[int, Enclosed] = {}
    for place in order:
        node = nodes[place]
        if node.op == "var":
            result[place] = Enclosed(variables[node.data], None)
        elif node.op == "const":
            result[place] = Enclosed(Interval.exact(node.data), None)
        elif node.op == "where":
            result[place] = _select(*(result[a] for a in node.args))
        else:
            result[place] = _enclose(node, [result[a] for a in node.args])
    return result


def _enclose(node: Node, args: list[Enclosed]) -> Enclosed:
    rule = OPERATIONS[node.op]
    inner = [*(a.value for a in args), *_data(node)]
    value = rule.enclose(*inner)
    ok: Mask | None = None
    for a in args:
        if a.ok is not None:
            ok = a.ok if ok is None else ok & a.ok
    return Enclosed(value, ok if rule.defined is None else _need(ok, rule.defined(value, *inner)))


def _need(ok: Mask | None, condition: Any) -> Mask | None:
    if np.all(condition):
        return ok
    return np.asarray(condition) if ok is None else ok & condition


def _select(condition: Enclosed, a: Enclosed, b: Enclosed) -> Enclosed:
    """where(c, a, b): one branch where c is decided, the hull of both elsewhere; only what is taken must be defined."""
    truth: Truth = condition.value
    hull = a.value.hull(b.value)
    chosen = a.value.where(truth.yes, b.value.where(truth.no, hull))
    ok: Mask | None = condition.ok
    if a.ok is not None:
        ok = _need(ok, a.ok | truth.no)
    if b.ok is not None:
        ok = _need(ok, b.ok | truth.yes)
    return Enclosed(chosen, ok)


# ---------------------------------------------------------------------- complex balls


def balls(nodes: Sequence[Node], outputs: Sequence[int], xs: Sequence[Any]) -> list[Any]:
    """Enclosures of the outputs over the balls xs, at flint's current precision.

    A finite result contains F(z) for every z in the balls, and there F is analytic and is the branch that the real function has
    on the real axis.  Whatever is not finite is indeterminate, and so is what is computed from it (where takes only what it
    selects); a condition is True, False, or None while it is open.
    """
    found: list[Any] = []
    for node in nodes:
        args = [found[a] for a in node.args]
        if node.op in CONDITIONS:
            found.append(OPERATIONS[node.op].ball(*args))
        elif node.op == "where":
            found.append(indeterminate() if args[0] is None else args[1] if args[0] else args[2])
        elif any(a is None or (isinstance(a, flint.acb) and not a.is_finite()) for a in args):
            found.append(indeterminate())
        else:
            value = _ball(node, args, xs)
            found.append(value if value is not None and value.is_finite() else indeterminate())
    return [found[place] for place in outputs]


def _ball(node: Node, args: list[Any], xs: Sequence[Any]) -> Any:
    if node.op == "var":
        return flint.acb(xs[node.data])
    if node.op == "const":
        return flint.acb(rational(node.data))
    return OPERATIONS[node.op].ball(*args, *_data(node))
