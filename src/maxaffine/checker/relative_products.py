"""Sums of products relative to |f(x)| at every x, re-proved: every factor beside itself, every outer function beside itself.

    |h_rb - f_rb| <= e_rb |f_rb|,  |g_j - s_j| <= e_j |g_j|       on pieces of a range, by sup |.| over min |.| of every piece
    rho = max over rows of prod_b (1 + e_rb) - 1,                 sigma = max over terms of prod_j (1 + e_j) - 1
    sum over rows |row| <= K |f|                                  K = 1 + sigma for rows of one sign, else by their sizes

    |F - f| <= (sigma + K rho) |f|                                where no factor has a zero and all terms of f are of one sign
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_reserve
from maxaffine.checker.exponential_sums import deviation, extremes, range_of
from maxaffine.checker.factor_columns import Columns
from maxaffine.checker.formats import products_fit
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved
from maxaffine.checker.reader import Layer
from maxaffine.checker.separated import SUMS_SHARE, Apart, read_separated
from maxaffine.checker.separated_literal import literally_multiplied
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.exponential_sums import ExponentialSum, Row
from maxaffine.structure.separation import Outer
from maxaffine.target.target import Target

ROOM = 1.0 + 1e-11


def check_relative_products(layer: Layer, record: Mapping[str, Any], target: Target, error: float, least: float) -> Proved:
    """sup |layer - target| / |target| of a sum of products over blocks of directions; |target| >= `least` is shown elsewhere."""
    apart = read_separated(layer, record, target)
    sigma, spread = _outers(apart, SUMS_SHARE * error)
    if not sigma < error:
        raise NotProved(f"its sums of exponentials alone may be off by {sigma:.6g} of the target.")
    held = 1.0 + sigma if _one_sign(apart.own, apart.columns) else spread
    errors, tops = _factors(apart, (error - sigma) / held / len(apart.separation.sizes))
    rho = max(math.expm1(math.fsum(map(math.log1p, row))) for row in errors) * ROOM
    blocks, rows = len(apart.separation.sizes), len(apart.own)
    dtype = compute_format(layer.dtype)
    if not (math.isfinite(rho) and products_fit(tops, dtype.name)):
        raise NotProved("its products may be too large for its dtype.")
    added = 1.01 * DOUBLE * (6 * blocks + rows + 16) * held * (1.0 + rho)
    below = 8.0 * rows * blocks * 2.0**-1074 * float(np.prod(np.maximum(tops, 1.0), axis=0).max())
    total = sigma + held * rho + added + dtype.unit * (1.0 + sigma + held * rho + added)
    total = (total + (below + stated_reserve(record)) / least) * ROOM
    size = float(np.prod(tops, axis=0).sum()) * ROOM
    literal = literally_multiplied(layer, apart.keys, 0.0, size)

    def claimed(form: Form, goal: float) -> float:
        return (total + literal(form, goal * least) / least) * ROOM

    how = f"{rows} products of {blocks} factors, {len(apart.sums)} sums of exponentials, each relative to itself"
    return Proved(total, how, claimed)


def _apart(part: Expression | None, box: Interval) -> tuple[float, int]:
    """min |part| over a box and its sign; NotProved where it may have a zero."""
    if part is None:
        return 1.0, 1
    low, high = extremes(part, box)
    if not (low > 0.0 or high < 0.0):
        raise NotProved("a factor of its target is not shown to stay away from 0.")
    return (low, 1) if low > 0.0 else (-high, -1)


def _one_sign(own: Sequence[Row], columns: Columns) -> bool:
    """Whether all rows are real and of one sign."""
    if not all(row.is_real for row in own):
        return False
    signs = {math.prod(_apart(part, columns.ranges[b])[1] for b, part in enumerate(row.real)) for row in own}
    return len(signs) == 1


def _outers(apart: Apart, goal: float) -> tuple[float, float]:
    """sigma, and K by the sizes of the exponentials; NotProved unless all terms are of one sign."""
    beside = zip(apart.separation.outers, apart.sums, strict=True)
    found = [_outer(g, s, apart.columns, goal / len(apart.sums)) for g, s in beside]
    sigma, spread, signs = 0.0, 1.0, set[int]()
    for term in apart.separation.terms:
        sigma = max(sigma, math.expm1(math.fsum(math.log1p(found[j][0]) for j in term.outers)) * ROOM)
        spread = max(spread, math.prod(found[j][1] for j in term.outers) * ROOM)
        fronts = [_apart(part, apart.columns.ranges[b])[1] for b, part in enumerate(term.factors)]
        signs.add(math.prod(fronts) * math.prod(found[j][2] for j in term.outers))
    if len(signs) != 1:
        raise NotProved("the terms of its target have both signs, so that their relative errors are none of their sum.")
    return sigma, spread


def _outer(outer: Outer, s: ExponentialSum, columns: Columns, goal: float) -> tuple[float, float, int]:
    """sup |g - s| / |g|, sup of the sizes of the terms of s over |g|, and the sign of g."""
    low, high = range_of(outer, columns.ranges)
    least, sign = _apart(outer.function, Interval.of([low], [high]))
    size = abs(s.constant)
    for k, (c, rate) in enumerate(zip(s.coefficients, s.exponents, strict=True)):
        start, growth = sum(s.shifts(k), Fraction(0)), Fraction(rate.real)
        top = max(float(growth * (Fraction(end) - start)) for end in (low, high))
        size += math.hypot(c.real, c.imag) * math.exp(top + 1e-15 * abs(top)) * ROOM
    return deviation(outer.function, s, low, high, goal * least) / least * ROOM, size / least * ROOM, sign


def _factors(apart: Apart, goal: float) -> tuple[list[list[float]], Array]:
    """Per row the relative errors of its factors with rounding, and what no |factor| exceeds, (blocks, R)."""
    columns, keys, blocks = apart.columns, apart.keys, range(len(apart.columns.ranges))
    assert keys.factors is not None
    errors, tops = [], np.empty((len(blocks), len(apart.own)))
    for r, row in enumerate(apart.own):
        own = []
        for b in blocks:
            held = None if row.real[b] is None else row.modulus[b] if row.imaginary[b] is not None else row.real[b]
            least, _ = _apart(held, columns.ranges[b])
            stored = [(keys.factors[b][..., r], row.real[b], 1.0)]
            if keys.imaginary is not None:
                stored.append((keys.imaginary[b][..., r], row.imaginary[b], 0.0))
            off = []
            for values, part, absent in stored:
                if part is not None and part.used and held is not None and len(columns.ranges[b]) == 1:
                    off.append(columns.relative(b, values, part, held, goal))
                else:
                    off.append(columns.error(b, values, part, absent, goal * least) / least)
            own.append(math.hypot(*off) * ROOM)
            tops[b, r] = columns.size(b, row.real[b], row.imaginary[b], row.modulus[b]) * (1.0 + own[-1])
        errors.append(own)
    return errors, tops
