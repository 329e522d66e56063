"""Identities that keep enclosures tight where the argument of a root vanishes: polynomials factored, half angles, even powers.

    polynomials with rational roots   1 - x^2 = -(x - 1)(x + 1)
    half angles                       c - c cos u = 2 c sin(u/2)^2             c + c cos u = 2 c cos(u/2)^2
    sides of triangles                a^2 + b^2 - 2 a b cos u = (a - b)^2 + 4 a b sin(u/2)^2
    even powers leave roots           sqrt(a^2 b) = |a| sqrt(b)                (a^2 b)^r = |a|^2r b^r
    inverse functions at their ends   asin(-1 + v) = 2 asin(sqrt(v/2)) - pi/2  acosh(1 + v) = 2 asinh(sqrt(v/2))

Interval arithmetic follows the sign of a product exactly, but that of 1 - x^2 next to x = 1 only up to rounding, and there a root
turns 1e-16 into 1e-8, or into nothing at all.  Every rule is an identity wherever its right side is defined, and its right side
is defined wherever the left side is, except at isolated points such as x = 0 of sqrt(x^2 (x - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import flint

from maxaffine.core.exact import to_fmpq, to_fraction

if TYPE_CHECKING:
    from maxaffine.expression.graph import Graph, Node

MOST_DEGREE = 16
ROOTS = frozenset({"sqrt", "cbrt", "powr"})
INVERSES = frozenset({"asin", "acos", "acosh"})


def tightened(graph: Graph, op: str, place: int, exponent: Fraction | None = None) -> int | None:
    """sqrt, cbrt, powr with its exponent, asin, acos or acosh of `place`, by the identities above; None where none applies."""
    if graph.is_constant(place):
        return None
    if op in ROOTS:
        power = exponent if exponent is not None else Fraction(1, 2) if op == "sqrt" else Fraction(1, 3)
        inner = factored(graph, place)
        return _root(graph, op, inner if inner is not None else place, power, inner is not None)
    return _inverse(graph, op, place) if op in INVERSES else None


def factored(graph: Graph, place: int) -> int | None:
    """The same function as a product: a polynomial of one variable with a rational or a repeated root, or 1 +- cos; else None."""
    for rule in (_half_angle, _third_side):
        turned = rule(graph, place)
        if turned is not None:
            return turned
    found = polynomial(graph, place)
    if found is None or found[1].degree() < 2:
        return None
    variable, whole = found
    lead = whole[whole.degree()]
    _, factors = whole.numer().factor()
    monic = [(flint.fmpq_poly(one) / one[one.degree()], n) for one, n in factors]
    if math.prod((one**n for one, n in monic), start=flint.fmpq_poly([lead])) != whole:
        raise AssertionError("a polynomial is not the product of its factors")
    if len(monic) == 1 and monic[0][1] == 1:
        return None
    x = graph.variable(variable)
    product = graph.monomial((_about_mean(graph, x, one), n) for one, n in monic)
    return graph.multiply(graph.number(to_fraction(lead)), product)


def polynomial(graph: Graph, place: int) -> tuple[int, Any] | None:
    """(index of the variable, fmpq_poly) of a polynomial of one variable with rational coefficients; None for what is none."""
    known: dict[int, Any] = {}
    variables: set[int] = set()
    stack = [place]
    while stack:
        at = stack[-1]
        missing = [a for a in graph.nodes[at].args if a not in known]
        if missing and graph.nodes[at].op in ("lin", "prod"):
            stack += missing
            continue
        stack.pop()
        if at not in known:
            known[at] = _expanded(graph.nodes[at], known, variables)
            if known[at] is None:
                return None
    return (next(iter(variables)), known[place]) if len(variables) == 1 else None


def _expanded(node: Node, known: Mapping[int, Any], variables: set[int]) -> Any:
    """The node as a polynomial of what is known of its arguments, or None."""
    if node.op == "const":
        return flint.fmpq_poly([to_fmpq(node.data)])
    if node.op == "var":
        variables.add(node.data)
        return flint.fmpq_poly([0, 1]) if len(variables) == 1 else None
    if node.op not in ("lin", "prod"):
        return None
    parts = [known[a] for a in node.args]
    if node.op == "lin":
        return sum((c * a for c, a in zip(parts[1::2], parts[2::2], strict=True)), parts[0])
    product = flint.fmpq_poly([1])
    for base, n in zip(parts, node.data, strict=True):
        if base.degree() * n + product.degree() > MOST_DEGREE:
            return None
        product *= base**n
    return product


def _about_mean(graph: Graph, x: int, monic: Any) -> int:
    """A monic polynomial in powers of x - m, m the mean of its roots: no digits are lost far from 0, and squares stand alone."""
    mean = -monic[monic.degree() - 1] / monic.degree()
    shifted = [to_fraction(c) for c in monic(flint.fmpq_poly([mean, 1])).coeffs()]
    offset = graph.subtract(x, graph.number(to_fraction(mean)))
    terms = [graph.number(shifted[0])]
    terms += [graph.multiply(graph.number(c), graph.integer_power(offset, k)) for k, c in enumerate(shifted) if k and c]
    return graph.total(terms)


def _half_angle(graph: Graph, place: int) -> int | None:
    """c -+ c cos u as a square."""
    node = graph.nodes[place]
    if node.op != "lin" or len(node.args) != 3 or graph.nodes[node.args[2]].op != "cos":
        return None
    first, slope = graph.rational(node.args[0]), graph.rational(node.args[1])
    if first is None or slope is None or abs(first) != abs(slope):
        return None
    half = graph.multiply(graph.number(Fraction(1, 2)), graph.nodes[node.args[2]].args[0])
    wave = graph.apply("cos" if first == slope else "sin", half)
    return graph.multiply(graph.number(2 * first), graph.integer_power(wave, 2))


def _third_side(graph: Graph, place: int) -> int | None:
    """c (a^2 + b^2 -+ 2 a b cos u) as a sum of what is not negative where a and b have one sign."""
    constant, terms = graph.terms(place)
    if not graph.is_zero(constant) or len(terms) != 3:
        return None
    for mixed, slope in terms.items():
        bases = [a for a, n in graph.factors(mixed).items() if n == 1]
        waves = [a for a in bases if graph.nodes[a].op == "cos"]
        if len(bases) != 3 or len(graph.factors(mixed)) != 3 or len(waves) != 1:
            continue
        a, b = (base for base in bases if base != waves[0])
        sides = [terms.get(graph.integer_power(one, 2)) for one in (a, b)]
        scale, twice = (graph.rational(c) if c is not None else None for c in (sides[0], slope))
        if sides[0] != sides[1] or scale is None or twice is None or abs(twice) != 2 * abs(scale):
            return None
        half = graph.multiply(graph.number(Fraction(1, 2)), graph.nodes[waves[0]].args[0])
        wave = graph.apply("cos" if twice == 2 * scale else "sin", half)
        apart = graph.integer_power(graph.subtract(a, b), 2)
        around = graph.product([graph.number(4), a, b, graph.integer_power(wave, 2)])
        return graph.multiply(graph.number(scale), graph.add(apart, around))
    return None


def _root(graph: Graph, op: str, place: int, exponent: Fraction, new: bool) -> int | None:
    """(scale prod a^n)^exponent with even powers taken out, and for the cube root multiples of three."""
    scale, rest = graph.unscaled(place)
    value = graph.rational(scale)
    factors = graph.factors(rest)
    out: list[int] = []
    left = dict(factors)
    for base, n in factors.items():
        if op == "cbrt" and n % 3 == 0:
            out.append(graph.integer_power(base, n // 3))
        elif n % 2 == 0:
            size = base if _positive(graph, base) else graph.apply("abs", base)
            out.append(graph.power(size, graph.number(n * exponent)))
        else:
            continue
        del left[base]
    inside = graph.monomial(left.items())
    if not left and op != "cbrt" and (value is None or value <= 0):
        out, inside = [], rest  # a scale that may be negative stays under the root with something to judge it by
    if not out:
        return _again(graph, op, place, exponent) if new else None
    inside = graph.multiply(scale, inside)
    product = graph.one if graph.rational(inside) == 1 else _again(graph, op, inside, exponent)
    for one in out:
        product = graph.multiply(product, one)
    return product


def _positive(graph: Graph, place: int) -> bool:
    """Whether a look at the form shows that something is never negative or zero."""
    node = graph.nodes[place]
    if node.op != "lin":
        return node.op in ("exp", "cosh", "sigmoid")
    numbers = [graph.rational(a) for a in (node.args[0], *node.args[1::2])]
    if not all(value is not None and value > 0 for value in numbers):
        return False
    return all(_squared(graph.nodes[a]) or _positive(graph, a) for a in node.args[2::2])


def _squared(node: Node) -> bool:
    return node.op == "abs" or (node.op == "prod" and all(n % 2 == 0 for n in node.data))


def _again(graph: Graph, op: str, place: int, exponent: Fraction) -> int:
    if op != "powr" and graph.is_constant(place):
        return graph.apply(op, place)
    return graph.make(op, (place,), exponent if op == "powr" else None)


def _inverse(graph: Graph, op: str, place: int) -> int | None:
    """asin, acos and acosh of a number next to -1 or 1, by the root of its distance."""
    node = graph.nodes[place]
    first = graph.rational(node.args[0]) if node.op == "lin" else None
    if first not in (-1, 1) or (op == "acosh" and first != 1):
        return None
    towards = -1 if first == 1 and op != "acosh" else 1
    distance = graph.multiply(graph.number(Fraction(towards, 2)), graph.subtract(place, graph.number(first)))
    root = graph.apply("sqrt", distance)
    if op == "acosh":
        return graph.multiply(graph.number(2), graph.apply("asinh", root))
    angle = graph.multiply(graph.number(2), graph.apply("asin", root))
    if op == "asin":  # asin(-1 + v) = angle - pi/2, asin(1 - v) = pi/2 - angle
        quarter = graph.multiply(graph.number(Fraction(1, 2)), graph.make("pi"))
        return graph.subtract(angle, quarter) if first == -1 else graph.subtract(quarter, angle)
    return angle if first == 1 else graph.subtract(graph.make("pi"), angle)


_ZERO_AT_ZERO = frozenset(
    {"sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "sqrt", "cbrt", "expm1", "log1p"}
)


def exact_value(op: str, value: Fraction) -> Fraction | None:
    """Functions of a rational number whose value is rational."""
    if op == "abs":
        return abs(value)
    if op == "sign":
        return Fraction((value > 0) - (value < 0))
    if op == "floor":
        return Fraction(value.numerator // value.denominator)
    if value == 0 and op in _ZERO_AT_ZERO:
        return Fraction(0)
    if value == 0 and op in ("cos", "exp", "cosh"):
        return Fraction(1)
    if value == 1 and op == "log":
        return Fraction(0)
    if op == "sqrt" and value > 0:
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        return root if root**2 == value else None
    if op == "cbrt" and max(abs(value.numerator), value.denominator) < 2**50:
        root = Fraction(round(math.cbrt(value.numerator)), round(math.cbrt(value.denominator)))
        return root if root**3 == value else None
    return None
