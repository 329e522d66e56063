"""Quadratic forms as sums of squares of linear forms, exactly: x'Ax = sum_k d_k (l_k . x)^2 by Lagrange's reduction (LDL^T)."""

from collections.abc import Sequence
from fractions import Fraction

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
