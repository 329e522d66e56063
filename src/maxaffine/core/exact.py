"""Exact linear algebra by python-flint, for numbers given as fractions."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint


def to_fmpq(value: Fraction | int) -> Any:
    """A rational number of flint."""
    return flint.fmpq(value.numerator, value.denominator)


def to_fraction(value: Any) -> Fraction:
    """A rational number of flint as a fraction."""
    return Fraction(int(value.p), int(value.q))


def _matrix(rows: Sequence[Sequence[Fraction]]) -> Any:
    return flint.fmpq_mat([[to_fmpq(c) for c in row] for row in rows])


def rank(rows: Sequence[Sequence[Fraction]]) -> int:
    """The rank of a matrix."""
    return int(_matrix(rows).rank()) if rows else 0


def inverse(rows: Sequence[Sequence[Fraction]]) -> list[list[Fraction]] | None:
    """The inverse of a square matrix; None where there is none."""
    matrix = _matrix(rows)
    if matrix.rank() < len(rows):
        return None
    return [[to_fraction(c) for c in row] for row in matrix.inv().tolist()]
