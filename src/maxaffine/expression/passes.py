"""Two walks over a tree: float64 values, and intervals with the places where something is not defined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.intervals import Interval, float_power, rational_bounds, sigmoid
from maxaffine.expression.graph import Node

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_DIRECT: dict[str, Any] = {
    "abs": np.abs, "sign": np.sign, "floor": np.floor, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt, "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sigmoid": sigmoid, "min": np.minimum,
    "max": np.maximum, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip


def nearest(value: Fraction) -> float:
    """The float64 number nearest to a rational one; infinite where it is too large."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def values(nodes: Sequence[Node], order: Sequence[int], x: Array) -> dict[int, Any]:
    """Float64 values of the nodes `order` at points x (B, D): arrays (B,), or shape () for constants.

    Not finite where a function is not defined; no warnings.
    """
    result: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for place in order:
            node = nodes[place]
            result[place] = _value(node, [result[a] for a in node.args], x)
    return result


def _value(node: Node, args: list[Any], x: Array) -> Any:
    op, data = node.op, node.data
    if op == "var":
        assert isinstance(data, int)
        return x[:, data]
    if op == "const":
        assert isinstance(data, Fraction)
        return np.float64(nearest(data))
    if op == "lin":
        total = args[0]
        for c, a in zip(args[1::2], args[2::2], strict=True):
            total = total + c * a
        return total
    if op == "prod":
        assert isinstance(data, tuple)
        product = None
        for a, n in zip(args, data, strict=True):
            factor = float_power(a, n)
            product = factor if product is None else product * factor
        return product
    if op in _DIRECT:
        return _DIRECT[op](*args)
    return _rare_value(node, args)


def _rare_value(node: Node, args: list[Any]) -> Any:
    op, data = node.op, node.data
    if op == "div":
        return np.divide(args[0], args[1])
    if op == "unit":
        return np.where(np.equal(args[1], 0), 0.0, np.divide(args[0], args[1]))
    if op == "powr":
        assert isinstance(data, Fraction)
        return np.power(args[0], nearest(data))
    if op == "pow":
        # A negative base has a real power only for the integers: not a function on a box.
        return np.where(np.less(args[0], 0), np.nan, np.power(args[0], args[1]))
    if op == "pi":
        return np.float64(np.pi)
    if op == "e":
        return np.float64(np.e)
    if op == "erf":
        from scipy.special import erf

        return erf(args[0])
    if op == "atan2":
        return np.arctan2(args[0] + 0.0, args[1] + 0.0)  # -0.0 is 0
    if op == "where":
        return np.where(args[0], args[1], args[2])
    if op == "negative":
        return np.less(args[0], 0)
    if op == "nonpositive":
        return np.less_equal(args[0], 0)
    if op == "zero":
        return np.equal(args[0], 0)
    assert op.startswith("jump"), op
    return np.float64(0.0)


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of a condition, entry by entry: surely true, surely false, or neither."""

    yes: Mask
    no: Mask


@dataclass(frozen=True, slots=True)
class Enclosed:
    """An interval or a truth value, and where it is surely defined (None: everywhere)."""

    value: Any
    ok: Mask | None


def enclosures(nodes: Sequence[Node], order: Sequence[int], x: Interval) -> dict[int, Enclosed]:
    """Rigorous enclosures of the nodes `order` over boxes x (B, D), with where each is surely defined.

    Where `ok` is False some operation below may be undefined or jump; the interval there means nothing.
    """
    result: dict[int, Enclosed] = {}
    for place in order:
        node = nodes[place]
        result[place] = _enclose(node, [result[a] for a in node.args], x)
    return result


def _both(masks: Sequence[Mask | None]) -> Mask | None:
    known = [m for m in masks if m is not None]
    if not known:
        return None
    total = known[0]
    for m in known[1:]:
        total = total & m
    return total


def _need(ok: Mask | None, condition: Any) -> Mask | None:
    if np.all(condition):
        return ok
    return np.asarray(condition) if ok is None else ok & condition


def _enclose(node: Node, args: list[Enclosed], x: Interval) -> Enclosed:
    op, data = node.op, node.data
    if op == "var":
        assert isinstance(data, int)
        return Enclosed(Interval(x.lo[:, data], x.hi[:, data]), None)
    if op == "const":
        assert isinstance(data, Fraction)
        lo, hi = rational_bounds(data)
        return Enclosed(Interval(np.asarray(lo), np.asarray(hi)), None)
    if op == "where":
        return _select(*args)
    ok = _both([a.ok for a in args])
    inner = [a.value for a in args]
    if op == "lin":
        return Enclosed(_linear(inner), ok)
    if op == "prod":
        assert isinstance(data, tuple)
        product: Interval | None = None
        for a, n in zip(inner, data, strict=True):
            factor = a.power(n)
            product = factor if product is None else product * factor
        return Enclosed(product, ok)
    if op in _TOTAL:
        return Enclosed(getattr(Interval, _TOTAL[op])(*inner), ok)
    return _rare_enclosure(node, inner, ok)


_TOTAL = {
    "abs": "__abs__", "sign": "sign", "floor": "floor", "exp": "exp", "expm1": "expm1", "cbrt": "cbrt",
    "sin": "sin", "cos": "cos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "sigmoid": "sigmoid",
    "erf": "erf", "min": "minimum",
    "max": "maximum", "atan2": "atan2",
}  # fmt: skip


def _linear(inner: list[Interval]) -> Interval:
    total = inner[0]
    start = bool(np.any(total.lo) or np.any(total.hi))
    for c, a in zip(inner[1::2], inner[2::2], strict=True):
        low, high = float(c.lo), float(c.hi)
        if low == high == 1.0:
            term = a
        elif low == high == -1.0:
            term = -a
        elif low == high:
            term = a.scaled(low)
        else:
            term = a * c
        total = total + term if start else term
        start = True
    return total


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


def _rare_enclosure(node: Node, inner: list[Any], ok: Mask | None) -> Enclosed:
    op, data = node.op, node.data
    u: Any = inner[0] if inner else None
    if op == "div":
        below = inner[1]
        return Enclosed(u / below, _need(ok, (below.lo > 0) | (below.hi < 0)))
    if op == "unit":
        assert isinstance(data, Fraction)
        # |v|/sqrt(c0 + c v^2 + ...) <= 1/sqrt(c), at the tip of the norm too.
        most = (1.0 / Interval.exact(data).sqrt()).hi
        ratio = u / inner[1]
        return Enclosed(Interval(np.clip(ratio.lo, -most, most), np.clip(ratio.hi, -most, most)), ok)
    if op == "sqrt":
        return Enclosed(u.sqrt(), _need(ok, u.lo >= 0))
    if op == "log":
        return Enclosed(u.log(), _need(ok, u.lo > 0))
    if op == "log1p":
        return Enclosed(u.log1p(), _need(ok, u.lo > -1))
    if op in ("asin", "acos"):
        return Enclosed(getattr(u, op)(), _need(ok, (u.lo >= -1) & (u.hi <= 1)))
    if op == "acosh":
        return Enclosed(u.acosh(), _need(ok, u.lo >= 1))
    if op == "atanh":
        return Enclosed(u.atanh(), _need(ok, (u.lo > -1) & (u.hi < 1)))
    if op == "tan":
        value = u.tan()
        return Enclosed(value, _need(ok, value.finite))
    if op == "powr":
        assert isinstance(data, Fraction)
        return Enclosed(u.real_power(data), _need(ok, u.lo >= 0 if data > 0 else u.lo > 0))
    if op == "pow":
        return _general_power(u, inner[1], ok)
    if op == "pi":
        return Enclosed(Interval.pi(), None)
    if op == "e":
        return Enclosed(Interval.e(), None)
    if op in ("negative", "nonpositive", "zero", "and", "or", "not"):
        return Enclosed(_truth(op, inner), ok)
    return _jump(op, inner, ok)


def _general_power(u: Interval, v: Interval, ok: Mask | None) -> Enclosed:
    """u^v = exp(v log u) for u > 0, and 0^v = 0 for v > 0."""
    value = (v * u.log()).exp()
    # Where u reaches 0 and v stays positive the product is [-inf, ...] and the exponential starts at 0.
    return Enclosed(value, _need(ok, (u.lo > 0) | ((u.lo >= 0) & (v.lo > 0))))


def _truth(op: str, inner: list[Any]) -> Truth:
    if op == "and":
        return Truth(inner[0].yes & inner[1].yes, inner[0].no | inner[1].no)
    if op == "or":
        return Truth(inner[0].yes | inner[1].yes, inner[0].no & inner[1].no)
    if op == "not":
        return Truth(inner[0].no, inner[0].yes)
    u: Interval = inner[0]
    if op == "negative":
        return Truth(np.asarray(u.hi < 0), np.asarray(u.lo >= 0))
    if op == "nonpositive":
        return Truth(np.asarray(u.hi <= 0), np.asarray(u.lo > 0))
    return Truth(np.asarray((u.lo == 0) & (u.hi == 0)), np.asarray((u.lo > 0) | (u.hi < 0)))


def _jump(op: str, inner: list[Any], ok: Mask | None) -> Enclosed:
    """0 where nothing jumps, undefined elsewhere."""
    if op == "jump":
        calm = inner[0].yes | inner[0].no
    elif op == "jump_sign":
        u = inner[0]
        calm = (u.lo > 0) | (u.hi < 0) | ((u.lo == 0) & (u.hi == 0))
    elif op == "jump_floor":
        calm = np.floor(inner[0].lo) == np.floor(inner[0].hi)
    else:
        assert op == "jump_atan2", op
        y, x = inner
        calm = (y.lo >= 0) | (y.hi < 0) | (x.lo > 0)
    zero = np.zeros(np.shape(calm))
    return Enclosed(Interval(zero, zero), _need(ok, calm))
