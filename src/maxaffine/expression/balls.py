"""A third walk over a tree: complex balls.

A finite result says two things: it contains F(z) for every z in the balls, and there F is analytic and is the branch that
the real function has on the real axis.  So:

* log, sqrt, asin, acos, atan, cbrt and real powers must not touch a branch cut (a point ball exactly at the branch point of
  sqrt, cbrt or a positive power, such as 0 for sqrt, is allowed: it is one value, not a neighbourhood);
* abs, sign, min, max, floor, atan2 and where are piecewise analytic; a piece is taken only if the real part of what decides
  has one answer over the whole ball.  Balls that share a point then take the same piece, so a connected set covered by
  finite results carries one analytic function;
* whatever is not finite becomes indeterminate, and so does everything computed from it (where takes only what it selects).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import flint

from maxaffine.core.balls import indeterminate, rational
from maxaffine.expression.graph import CONDITIONS, Node


def balls(nodes: Sequence[Node], outputs: Sequence[int], xs: Sequence[Any]) -> list[Any]:
    """Enclosures of the outputs over the balls xs, at flint's current precision."""
    found: list[Any] = []
    points = [x if isinstance(x, flint.acb) else flint.acb(x) for x in xs]
    for node in nodes:
        args = [found[a] for a in node.args]
        found.append(_truth(node, args) if node.op in CONDITIONS else _settled(node, args, points))
    return [found[place] for place in outputs]


def _settled(node: Node, args: list[Any], points: list[Any]) -> Any:
    """The value of a node; indeterminate where it, or anything it uses, is not finite."""
    if node.op == "where":
        if args[0] is None:
            return indeterminate()
        return args[1] if args[0] else args[2]
    if any(a is None or (isinstance(a, flint.acb) and not a.is_finite()) for a in args):
        return indeterminate()
    value = _value(node, args, points)
    return value if value is not None and value.is_finite() else indeterminate()


def _value(node: Node, args: list[Any], points: list[Any]) -> Any:
    op, data = node.op, node.data
    if op == "var":
        assert isinstance(data, int)
        return points[data]
    if op == "const":
        assert isinstance(data, Fraction)
        return flint.acb(rational(data))
    if op == "lin":
        total = args[0]
        for c, a in zip(args[1::2], args[2::2], strict=True):
            total = total + c * a
        return total
    if op == "prod":
        assert isinstance(data, tuple)
        product = None
        for a, n in zip(args, data, strict=True):
            factor = a if n == 1 else a**n
            product = factor if product is None else product * factor
        return product
    if op == "div":
        return args[0] / args[1]
    if op == "powr":
        assert isinstance(data, Fraction)
        return _real_power(args[0], rational(data), data > 0)
    return _RULES[op](*args)


# ---------------------------------------------------------------------- decisions by the real part


def _right_of_cut(z: Any) -> bool:
    """Surely away from (-inf, 0]."""
    return bool(z.real > 0) or bool(z.imag > 0) or bool(z.imag < 0)


def _real_power(z: Any, r: Any, positive: bool) -> Any:
    if positive and z.is_zero():
        return flint.acb(0)
    if not _right_of_cut(z):
        return None
    return (z.log() * r).exp()


def _pow(z: Any, w: Any) -> Any:
    if z.is_zero() and bool(w.real > 0):
        return flint.acb(0)
    return (z.log() * w).exp() if _right_of_cut(z) else None


def _log(z: Any) -> Any:
    return z.log() if _right_of_cut(z) else None


def _log1p(z: Any) -> Any:
    return z.log1p() if _right_of_cut(1 + z) else None


def _sqrt(z: Any) -> Any:
    if z.is_zero():
        return flint.acb(0)
    return z.sqrt() if _right_of_cut(z) else None


def _cbrt(z: Any) -> Any:
    if z.is_zero():
        return flint.acb(0)
    if bool(z.real > 0):
        return (z.log() / 3).exp()
    if bool(z.real < 0):
        return -((-z).log() / 3).exp()
    return None


def _between_cuts(z: Any) -> bool:
    """Surely away from the cuts (-inf, -1] and [1, inf) of asin and acos; a real point ball at -1 or 1 is allowed."""
    if bool(z.imag > 0) or bool(z.imag < 0):
        return True
    if bool(z.real > -1) and bool(z.real < 1):
        return True
    return bool(z.imag.is_zero()) and bool(z.real.is_exact()) and (z.real == 1 or z.real == -1)


def _asin(z: Any) -> Any:
    return z.asin() if _between_cuts(z) else None


def _acos(z: Any) -> Any:
    return z.acos() if _between_cuts(z) else None


def _atanh(z: Any) -> Any:
    inside = bool(z.real > -1) and bool(z.real < 1)
    return z.atanh() if inside or bool(z.imag > 0) or bool(z.imag < 0) else None


def _acosh(z: Any) -> Any:
    return z.acosh() if bool(z.real > 1) or bool(z.imag > 0) or bool(z.imag < 0) or (z - 1).is_zero() else None


def _asinh(z: Any) -> Any:
    away = bool(z.real > 0) or bool(z.real < 0) or (bool(z.imag > -1) and bool(z.imag < 1))
    return z.asinh() if away else None


def _atan(z: Any) -> Any:
    away = bool(z.real > 0) or bool(z.real < 0) or (bool(z.imag > -1) and bool(z.imag < 1))
    return z.atan() if away else None


def _atan2(y: Any, x: Any) -> Any:
    """The angle by one quotient whose denominator keeps its sign."""
    half_turn = flint.acb(flint.arb.pi())
    if bool(x.real > 0):
        return _atan(y / x)
    if bool(y.real > 0):
        inner = _atan(x / y)
        return None if inner is None else half_turn / 2 - inner
    if bool(y.real < 0):
        inner = _atan(x / y)
        return None if inner is None else -half_turn / 2 - inner
    if y.is_zero() and bool(x.real < 0) and bool(x.imag.is_zero()):
        return half_turn
    return flint.acb(0) if y.is_zero() and x.is_zero() else None


def _abs(z: Any) -> Any:
    if bool(z.real > 0) or z.is_zero():
        return z
    return -z if bool(z.real < 0) else None


def _sign(z: Any) -> Any:
    if z.is_zero():
        return flint.acb(0)
    return flint.acb(1) if bool(z.real > 0) else flint.acb(-1) if bool(z.real < 0) else None


def _floor(z: Any) -> Any:
    """One integer for the whole ball, else None."""
    low = z.real.lower().floor().unique_fmpz()
    high = z.real.upper().floor().unique_fmpz()
    return flint.acb(low) if low is not None and low == high else None


def _max(a: Any, b: Any) -> Any:
    gap = a - b
    if bool(gap.real > 0) or gap.is_zero():
        return a
    return b if bool(gap.real < 0) else None


def _min(a: Any, b: Any) -> Any:
    gap = a - b
    if bool(gap.real < 0) or gap.is_zero():
        return a
    return b if bool(gap.real > 0) else None


def _truth(node: Node, args: list[Any]) -> bool | None:
    """True, False, or None while the real part does not decide."""
    if node.op == "not":
        return None if args[0] is None else not args[0]
    if node.op in ("and", "or"):
        decisive = node.op == "or"
        if decisive in args:
            return decisive
        return None if None in args else not decisive
    d = args[0]
    if not d.is_finite():
        return None
    if node.op == "zero":
        return True if d.is_zero() else False if bool(d.real > 0) or bool(d.real < 0) else None
    strict = node.op == "negative"
    if bool(d.real < 0) or (not strict and bool(d.real <= 0)):
        return True
    if bool(d.real > 0) or (strict and bool(d.real >= 0)):
        return False
    return None


def _jump(*args: Any) -> Any:
    """0 where what jumps is decided."""
    return flint.acb(0) if all(a is not None for a in args) else None


def _jump_sign(z: Any) -> Any:
    return None if _sign(z) is None else flint.acb(0)


def _jump_floor(z: Any) -> Any:
    return None if _floor(z) is None else flint.acb(0)


def _jump_atan2(y: Any, x: Any) -> Any:
    return None if _atan2(y, x) is None else flint.acb(0)


_RULES: dict[str, Callable[..., Any]] = {
    "pi": lambda: flint.acb(flint.arb.pi()),
    "e": lambda: flint.acb(flint.arb(1).exp()),
    "exp": lambda z: z.exp(),
    "expm1": lambda z: z.expm1(),
    "sin": lambda z: z.sin(),
    "cos": lambda z: z.cos(),
    "tan": lambda z: z.tan(),
    "sinh": lambda z: z.sinh(),
    "cosh": lambda z: z.cosh(),
    "tanh": lambda z: z.tanh(),
    "erf": lambda z: z.erf(),
    "sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "log": _log,
    "log1p": _log1p,
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "atan2": _atan2,
    "pow": _pow,
    "unit": lambda v, norm: v / norm,
    "abs": _abs,
    "sign": _sign,
    "floor": _floor,
    "min": _min,
    "max": _max,
    "jump": _jump,
    "jump_sign": _jump_sign,
    "jump_floor": _jump_floor,
    "jump_atan2": _jump_atan2,
}
