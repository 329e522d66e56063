"""Certificates of separated heads relative to |f(x)|, pointwise: every factor relative to itself, then multiplied out.

    |h_rb - f_rb| <= e_rb |f_rb|   gives   |prod_b h_rb - prod_b f_rb| <= (prod_b (1 + e_rb) - 1) prod_b |f_rb|
    |g_j - s_j| <= e_j |g_j|       gives   as much for the outer functions of a term

Where all terms of f have one sign, the errors of terms are at most as large a part of f.  The rows of a term are its
exponentials: their sizes add up to the term itself where all are positive, and else to at most K times it,
K = (|c_0| + sum |c_k|) / min |g_j|.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.expression.expression import Expression
from maxaffine.heads.separated.plan import SeparatedPlan
from maxaffine.heads.separated.prove import WHOLE, Cell, Factors, inner_range, on_interval, planned
from maxaffine.heads.spectral.prove import query_error
from maxaffine.layer.grouped import Group, GroupedLayer
from maxaffine.proofs.assumptions import ELEMENTARY, EXPONENTIAL, FLINT
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.combine import underflow
from maxaffine.proofs.literal import literal
from maxaffine.proofs.pointwise import Pointwise
from maxaffine.proofs.separated_rounding import MOST, rounding
from maxaffine.proofs.sources import FromExpression
from maxaffine.structure.exponential_sums import ExponentialSum, Row
from maxaffine.structure.separation import Outer

THEOREM = (
    "separation, relative to |f(x)|: |prod h - prod f| <= (prod (1 + e) - 1) |prod f|, every factor within e of itself, terms of"
    " one sign; factors and sums of exponentials by Ehlich-Zeller"
)
ROOM = 1.0 + 1e-12
EVEN = 1.6  # times its smallest value, that a factor may reach on a cell
NARROW = 1e-4


def certify_relative(layer: GroupedLayer, plan: SeparatedPlan, asked: Pointwise, runtime: str = "arrays") -> Certificate:
    """Prove |layer(x) - f(x)| <= bound |f(x)| for a stored separated layer."""
    group, own = planned(layer, plan)
    factors = Factors(group, plan)
    outer, spread = _outers(plan, factors)
    lows, sign = _lows(own, factors)
    held = min(spread, 1.0 + outer) if sign else spread
    rounded = rounding(layer, group, query_error(layer, group, plan.made))
    goal = max(asked.error - outer, 0.0) / lows.shape[1] / held
    off, lost = _off(group, own, factors, goal), np.stack(rounded.errors, axis=1)
    plain, whole = _grown(off), _grown(off + lost / lows)
    sizes = np.array([[factors.size(row.modulus[b], b) for b in range(lows.shape[1])] for row in own]) * (1.0 + off) + lost
    per, largest = (1 + 2.0**-50) / asked.least, float(np.prod(sizes, axis=1).sum()) * ROOM
    below = _below(sizes) + underflow(layer, [largest]) + (literal(layer, ()).total if runtime == "dense" else 0.0)
    terms = lows.shape[0] + (lows.shape[1] if group.imaginary is None else 3 * lows.shape[1]) + 4
    summed = gamma(terms, FLOAT64.unit) * (1.0 + whole) * held
    answer = compute_format(layer.dtype).unit * (1.0 + outer + held * whole + summed)
    parts = {
        "approximation": (outer + held * plain) * ROOM,
        "leakage": 0.0,
        "rounding": (held * (whole - plain) + 1e-12 * held * whole + summed + answer + below * per) * ROOM,
        "target_rounding": 0.0,
    }
    if not all(math.isfinite(part) for part in parts.values()):
        raise Refused("the products of the factors are too large to be followed.")
    found = Certificate.proved(
        math.inf, parts, argument="separated", theorem=THEOREM, dtype=layer.dtype, runtime=runtime,
        assumptions=(EXPONENTIAL, ELEMENTARY, FLINT),
        details={"rows": float(len(own)), "blocks": float(lows.shape[1]), "exponential_sums": outer, "collapse": 0.0},
    )  # fmt: skip
    return replace(found, least=asked.least)


def _off(group: Group, own: tuple[Row, ...], factors: Factors, goal: float) -> Array:
    """sup |h_rb - f_rb| / |f_rb| of the stored numbers taken exactly, (R, B)."""
    assert group.factors is not None
    off = np.zeros((len(own), len(own[0].real)))
    for r, row in enumerate(own):
        for b, part in enumerate(row.modulus):
            for cell, least in _cells(factors, part, b):
                found = [factors.off(row.real[b], 1.0, b, group.factors[b][..., r], goal * least, cell)]
                if group.imaginary is not None:
                    found.append(factors.off(row.imaginary[b], 0.0, b, group.imaginary[b][..., r], goal * least, cell))
                off[r, b] = max(off[r, b], math.hypot(*found) / least * (1 + 1e-15))
    return off


def _cells(factors: Factors, part: Expression | None, b: int) -> list[tuple[Cell, float]]:
    """Cells of z with min |part| on each, on which |part| changes little; blocks of several directions are one cell."""
    if part is None or not part.used:
        return [(WHOLE, _apart(*factors.range(part, b), "a factor")[0])]
    source, waiting, found = factors.source(part, b), [WHOLE], list[tuple[Cell, float]]()
    while waiting:
        low, high = cell = waiting.pop()
        middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14) + 1e-16
        own = source
        if cell != WHOLE:
            own = FromExpression(part, source.middle + Interval.point(source.half) * Interval.point(middle), source.half * half)
        least, largest = sorted(map(abs, own.range()))
        if largest > EVEN * least and len(source.half) == 1 and high - low > NARROW:
            waiting += [(low, middle), (middle, high)]
        else:
            found.append((cell, _apart(*own.range(), "a factor")[0]))
    return found


def _grown(each: Array) -> float:
    """max over rows of prod_b (1 + e_rb) - 1."""
    with np.errstate(over="ignore"):
        return float(np.expm1(np.log1p(each).sum(axis=1)).max()) * ROOM


def _below(sizes: Array) -> float:
    """What products below the smallest normal number lose; infinite where one of some factors may leave the format."""
    with np.errstate(over="ignore"):
        largest = float(np.prod(np.maximum(sizes, 1.0), axis=1).sum())
    return 8.0 * sizes.size * FLOAT64.tiny * largest if largest < MOST else math.inf


def _apart(low: float, high: float, what: str) -> tuple[float, int]:
    """min |.| and the sign of what stays between two numbers."""
    if not (low > 0.0 or high < 0.0):
        raise Refused(f"{what} is not shown to stay away from 0, and no error is relative to it.")
    return (low, 1) if low > 0.0 else (-high, -1)


def _lows(own: tuple[Row, ...], factors: Factors) -> tuple[Array, bool]:
    """min |f_rb| of every factor, (R, B), and whether all rows are real and of one sign."""
    lows, signs = np.ones((len(own), len(own[0].real))), set[int]()
    for r, row in enumerate(own):
        sign = 1
        for b, part in enumerate(row.modulus):
            lows[r, b], _ = _apart(*factors.range(part, b), "a factor")
            if row.is_real:
                sign *= _apart(*factors.range(row.real[b], b), "a factor")[1]
        signs.add(sign if row.is_real else 0)
    return lows, signs in ({1}, {-1})


def _outers(plan: SeparatedPlan, factors: Factors) -> tuple[float, float]:
    """What the exponential sums of a term are off by, as a part of it, and K; terms must be of one sign."""
    found = [_outer(outer, one, factors) for outer, one in zip(plan.separation.outers, plan.sums, strict=True)]
    errors, spreads, signs = [0.0], [1.0], set[int]()
    for term in plan.separation.terms:
        errors.append(math.expm1(math.fsum(math.log1p(found[j][0]) for j in term.outers)) * ROOM)
        spreads.append(math.prod(found[j][1] for j in term.outers) * ROOM)
        own = [_apart(*factors.range(part, b), "a factor")[1] for b, part in enumerate(term.factors)]
        signs.add(math.prod(own) * math.prod(found[j][2] for j in term.outers))
    if len(signs) != 1:
        raise Refused("its terms have both signs, and their relative errors are none of their sum.")
    return max(errors), max(spreads)


def _outer(outer: Outer, one: ExponentialSum, factors: Factors) -> tuple[float, float, int]:
    """sup |g - s| / |g|, sup of the sizes of the terms of s by |g|, and the sign of g, on the range of its argument."""
    low, high = inner_range(outer, factors)
    off, _ = on_interval(outer.function, one, low, high)
    middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14) + 1e-15 * max(abs(low), abs(high))
    least, sign = _apart(*FromExpression(outer.function, Interval.point(np.array([middle])), np.array([half])).range(), "g(u)")
    size = abs(one.constant)
    for k, (c, rate) in enumerate(zip(one.coefficients, one.exponents, strict=True)):
        end = middle + half if rate.real > 0 else middle - half
        size += abs(c) * math.exp(rate.real * (end - float(sum(one.shifts(k)))) + 1e-12 * abs(rate.real) * (abs(low) + abs(high)))
    return off / least * ROOM, size / least * ROOM, sign
