"""Outer functions as sums of exponentials, which are products over blocks: from a separation to rows of factors.

    g(u) ~ s(u) = c_0 + sum_k Re(c_k e^{l_k (u - S_k)}),        e^{l (u - S)} = prod_b e^{l (u_b - s_b)},        S_k = sum_b s_kb

s_kb is the end of the range of u_b where |e^{l_k u_b}| is largest, so that every factor is at most about 1.  All numbers of a sum
are float64 numbers taken exactly.  Products of two sums follow Re a Re b = (Re ab + Re a b*)/2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.separation import Outer, Parts, Separation, Term

Pair = tuple[Fraction, Fraction]  # a complex number

ZERO: Pair = (Fraction(0), Fraction(0))
ONE: Pair = (Fraction(1), Fraction(0))


@dataclass(frozen=True)
class ExponentialSum:
    """s(u): the constant c_0, coefficients c_k and exponents l_k, and per block where its part begins and ends."""

    constant: float
    coefficients: tuple[complex, ...]
    exponents: tuple[complex, ...]
    ends: tuple[tuple[float, float], ...]

    def shifts(self, k: int) -> list[Fraction]:
        """s_kb per block."""
        rising = self.exponents[k].real > 0
        return [Fraction(high if rising else low) for low, high in self.ends]

    def expression(self) -> Expression:
        """s as an expression of u."""
        graph = Graph()
        total = [graph.number(Fraction(self.constant))]
        for k, (c, exponent) in enumerate(zip(self.coefficients, self.exponents, strict=True)):
            away = graph.subtract(graph.variable(0), graph.number(sum(self.shifts(k), Fraction(0))))
            total.append(_wave(graph, pair(c), [(pair(exponent), away)])[0])
        return Expression.of_graph("sum of exponentials", ("u",), graph, (graph.total(total),))


@dataclass(frozen=True)
class Row:
    """A product over blocks of functions real + i imaginary, of which the real part counts; None stands for 1, and for 0.

    The modulus of every factor is |modulus|, which does not turn.
    """

    real: Parts
    imaginary: Parts
    modulus: Parts

    @property
    def is_real(self) -> bool:
        """Whether no factor has an imaginary part."""
        return all(part is None for part in self.imaginary)


def pair(z: complex) -> Pair:
    """A complex number of float64 parts, exactly."""
    return Fraction(z.real), Fraction(z.imag)


def rows(separation: Separation, sums: Sequence[ExponentialSum]) -> tuple[Row, ...]:
    """The rows of all terms, with sums[j] in place of outer function j; the error of that is not counted here."""
    found: list[Row] = []
    for term in separation.terms:
        choices = [range(-1, len(sums[j].exponents)) for j in term.outers]
        for picked in itertools.product(*choices):
            found += _rows_of(separation, term, sums, picked)
    return tuple(found)


def _rows_of(separation: Separation, term: Term, sums: Sequence[ExponentialSum], picked: tuple[int, ...]) -> list[Row]:
    """A term with exponential picked[i] of its i-th outer function, or the constant where that is -1."""
    coefficient, waves = ONE, list[tuple[Outer, Pair, list[Fraction]]]()
    partial = [(coefficient, waves)]
    for j, k in zip(term.outers, picked, strict=True):
        one = sums[j]
        if k < 0:
            if one.constant == 0:
                return []
            partial = [(_times(c, (Fraction(one.constant), Fraction(0))), w) for c, w in partial]
            continue
        c, exponent, shifts = pair(one.coefficients[k]), pair(one.exponents[k]), one.shifts(k)
        grown = []
        for before, w in partial:
            if (before[1] == 0 and all(e[1] == 0 for _, e, _ in w)) or (exponent[1] == 0 and c[1] == 0):
                grown.append((_times(before, c), [*w, (separation.outers[j], exponent, shifts)]))
            else:
                half = (before[0] / 2, before[1] / 2)
                for sign in (1, -1):
                    turned = ((c[0], sign * c[1]), (exponent[0], sign * exponent[1]))
                    grown.append((_times(half, turned[0]), [*w, (separation.outers[j], turned[1], shifts)]))
        partial = grown
    return [_row(separation.sizes, term, c, w) for c, w in partial]


def _row(sizes: Sequence[int], term: Term, coefficient: Pair, waves: list[tuple[Outer, Pair, list[Fraction]]]) -> Row:
    """One product; the coefficient goes with the first block that has a factor."""
    moving = [any(o.parts[b] is not None for o, _, _ in waves) for b in range(len(sizes))]
    held = [b for b, front in enumerate(term.factors) if front is not None or moving[b]]
    home = held[0] if held else 0
    cells = []
    for b, front in enumerate(term.factors):
        parts = [(part, exponent, shifts[b]) for o, exponent, shifts in waves if (part := o.parts[b]) is not None]
        cells.append(_cell(sizes[b], front, parts, coefficient if b == home else ONE))
    return Row(*(tuple(cell[i] for cell in cells) for i in range(3)))


def _cell(
    size: int, front: Expression | None, parts: list[tuple[Expression, Pair, Fraction]], c: Pair
) -> tuple[Expression | None, Expression | None, Expression | None]:
    """front c e^{sum l (part - shift)} on one block: its real and imaginary part and its modulus."""
    if front is None and not parts and c == ONE:
        return None, None, None
    graph, names = Graph(), tuple(f"t{e + 1}" for e in range(size))
    exponents = [(exponent, graph.subtract(_put(graph, part), graph.number(shift))) for part, exponent, shift in parts]
    re, im = _wave(graph, c, exponents)
    grown, _ = _wave(graph, ONE, [((exponent[0], Fraction(0)), away) for exponent, away in exponents])
    length = graph.number(abs(c[0])) if c[1] == 0 else graph.apply("sqrt", graph.number(c[0] ** 2 + c[1] ** 2))
    lead = graph.one if front is None else _put(graph, front)
    turns = c[1] != 0 or any(exponent[1] != 0 for exponent, _ in exponents)
    parts_of = [graph.multiply(lead, part) for part in (re, im, graph.multiply(length, grown))]
    real, imaginary, modulus = (Expression.of_graph("factor", names, graph, (place,)) for place in parts_of)
    return real, imaginary if turns else None, modulus


def _put(graph: Graph, part: Expression) -> int:
    return graph.include(part.nodes, {i: graph.variable(i) for i in range(part.dimension)})[part.outputs[0]]


def _wave(graph: Graph, c: Pair, exponents: Sequence[tuple[Pair, int]]) -> tuple[int, int]:
    """Real and imaginary part of c e^{sum l v}: places."""
    growth = graph.total([graph.multiply(graph.number(rate), v) for (rate, _), v in exponents])
    angle = graph.total([graph.multiply(graph.number(turn), v) for (_, turn), v in exponents])
    size = graph.one if graph.is_zero(growth) else graph.apply("exp", growth)
    if graph.is_zero(angle):
        return graph.multiply(graph.number(c[0]), size), graph.multiply(graph.number(c[1]), size)
    cosine, sine = graph.apply("cos", angle), graph.apply("sin", angle)
    re = graph.subtract(graph.multiply(graph.number(c[0]), cosine), graph.multiply(graph.number(c[1]), sine))
    im = graph.add(graph.multiply(graph.number(c[0]), sine), graph.multiply(graph.number(c[1]), cosine))
    return graph.multiply(size, re), graph.multiply(size, im)


def _times(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
