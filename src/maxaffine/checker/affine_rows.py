"""Affine forms of a stack in balls: their ranges, what they are of the numbers that run, and rounding of the stored ones."""

import math
from collections.abc import Sequence
from typing import Any

import flint

from maxaffine.checker.proved import DOUBLE, rounded
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.structure.stacked import AffineMap

TINY = 2.0**-1074
CONSTANT = -1

Vector = dict[int, Any]
"""An exact affine form: a ball for every number that runs and that it reads, and one for CONSTANT."""


def reach(row: AffineMap, low: Array, high: Array) -> tuple[float, float]:
    """Ends of an affine form over ranges of what it reads."""
    least, most = flint.arb(float(row.exact_constant.lo)), flint.arb(float(row.exact_constant.hi))
    for i, lo, hi in zip(row.indices, row.exact_weights.lo, row.exact_weights.hi, strict=True):
        products = [flint.arb(float(a)) * flint.arb(float(b)) for a in (lo, hi) for b in (low[i], high[i])]
        least, most = least + min(products), most + max(products)  # exact: 106 of 128 bits
    return balls.bounds(least)[0], balls.bounds(most)[1]


def vector(row: AffineMap, known: Sequence[Vector]) -> Vector:
    """An affine form of values that are affine themselves, as one of the numbers that run."""
    total: Vector = {CONSTANT: balls.interval(float(row.exact_constant.lo), float(row.exact_constant.hi))}
    for i, lo, hi in zip(row.indices, row.exact_weights.lo, row.exact_weights.hi, strict=True):
        total = combined(flint.arb(1), total, balls.interval(float(lo), float(hi)), known[i])
    return total


def combined(a: Any, first: Vector, b: Any, second: Vector) -> Vector:
    """a times one form plus b times another."""
    total = {i: a * c for i, c in first.items()}
    for i, c in second.items():
        total[i] = total[i] + b * c if i in total else b * c
    return total


def rounding(stored: AffineMap, wanted: Vector, size: Array) -> float:
    """How far a stored row in float64, in any order of summation, may be from the exact form, for values of that size."""
    alone = len(stored.indices) == 1 and stored.constant == 0.0 and abs(math.frexp(stored.weights[0])[0]) == 0.5
    gamma = 0.0 if alone else rounded(2 * len(stored.indices) + 1, DOUBLE)
    numbers = {CONSTANT: stored.constant, **dict(zip(stored.indices, stored.weights, strict=True))}
    total = flint.arb((2 * len(stored.indices) + 1 + 2.0**900) * TINY)
    for i in {*numbers, *wanted}:
        number = flint.arb(float(numbers.get(i, 0.0)))
        far = flint.arb(1.0 if i == CONSTANT else float(size[i]))
        apart = (number - wanted.get(i, flint.arb(0))).abs_upper()
        total += (abs(number) * gamma + apart) * far
    return float(balls.bounds(total)[1])

