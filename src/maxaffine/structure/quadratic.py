"""Quadratic forms as sums of squares of linear forms, exactly: x'Ax = sum_k d_k (l_k . x)^2 by Lagrange's reduction (LDL^T)."""

from collections.abc import Sequence
from fractions import Fraction

from maxaffine.structure.monomials import Monomial, Monomials

Row = tuple[Fraction, ...]


def squares(matrix: Sequence[Sequence[Fraction]]) -> list[tuple[Fraction, Row]]:
    """Pairs (d_k, l_k) for a symmetric matrix, as many as its rank."""
    rest = [list(row) for row in matrix]
    D, found = len(rest), list[tuple[Fraction, Row]]()
    while any(any(row) for row in rest):
        pivot = max(range(D), key=lambda i: abs(rest[i][i]))
        d = rest[pivot][pivot]
        if d:
            found.append(_taken(rest, d, tuple(c / d for c in rest[pivot])))
            continue
        i, j = next((i, j) for i in range(D) for j in range(i) if rest[i][j])
        a, both, apart = rest[i][j], *_sum_and_difference(rest[i], rest[j])
        found += [_taken(rest, 1 / (2 * a), both), _taken(rest, -1 / (2 * a), apart)]
    return [_leading_one(d, row) for d, row in found]


def _sum_and_difference(a: Sequence[Fraction], b: Sequence[Fraction]) -> tuple[Row, Row]:
    return tuple(x + y for x, y in zip(a, b, strict=True)), tuple(x - y for x, y in zip(a, b, strict=True))


def _taken(rest: list[list[Fraction]], d: Fraction, row: Row) -> tuple[Fraction, Row]:
    """d (row . x)^2 subtracted from the form that is left."""
    for i, a in enumerate(row):
        for j, b in enumerate(row):
            rest[i][j] -= d * a * b
    return d, row


def _leading_one(d: Fraction, row: Row) -> tuple[Fraction, Row]:
    lead = next(c for c in row if c)
    return d * lead * lead, tuple(c / lead for c in row)


def squared(work: Monomials, rows: list[Monomial]) -> list[Monomial]:
    """A sum with the products of two affine factors in it as squares of linear forms; the same list where there are none."""
    quadratic, other = list[tuple[Fraction, list[int]]](), list[Monomial]()
    for one in rows:
        value = work.graph.rational(one.scale)
        flat = [base for base, p in one.powers.items() for _ in range(int(p) if p in (1, 2) else 0)]
        plain = len(flat) == 2 and len(flat) == sum(one.powers.values()) and all(_linear(work, base) for base in flat)
        if value is not None and plain:
            quadratic.append((value, flat))
        else:
            other.append(one)
    if all(a == b for _, (a, b) in quadratic):
        return rows
    D, graph = len(work.names), work.graph
    matrix, lean, level = [[Fraction(0)] * D for _ in range(D)], [Fraction(0)] * D, Fraction(0)
    for c, (a, b) in quadratic:
        (a0, va), (b0, vb) = _row(work, a), _row(work, b)
        level += c * a0 * b0
        for i in range(D):
            lean[i] += c * (a0 * vb[i] + b0 * va[i])
            for j in range(D):
                matrix[i][j] += c * (va[i] * vb[j] + va[j] * vb[i]) / 2
    for d, form in squares(matrix):
        base = _form(work, form)
        other.append(Monomial(graph.number(d), {base: Fraction(2)}))
    if any(lean):
        scale, base = graph.unscaled(_form(work, tuple(lean)))
        other.append(Monomial(scale, {base: Fraction(1)}))
    if level:
        other.append(Monomial(graph.number(level), {}))
    return work.gathered(other)


def _form(work: Monomials, row: tuple[Fraction, ...]) -> int:
    graph = work.graph
    return graph.total([graph.multiply(graph.number(c), graph.variable(i)) for i, c in enumerate(row) if c])


def _linear(work: Monomials, place: int) -> bool:
    """Whether a node is affine in x with rational coefficients."""
    affine = work.affine(place)
    return affine is not None and all(work.graph.rational(c) is not None for c in (affine[0], *affine[1].values()))


def _row(work: Monomials, place: int) -> tuple[Fraction, list[Fraction]]:
    affine = work.affine(place)
    assert affine is not None
    row = [Fraction(0)] * len(work.names)
    for i, c in affine[1].items():
        row[i] = work.graph.rational(c) or Fraction(0)
    return work.graph.rational(affine[0]) or Fraction(0), row
