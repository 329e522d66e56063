"""Sums of products over blocks of directions, re-proved: the target taken apart again, every factor beside its function.

f = sum of terms prod_b p_b(t_b) prod_j g_j(u_j)     is the target, by canonical forms (same_function.py)
|g_j - s_j| <= eps_j                                 on the range of u_j, s_j the record's exponentials (exponential_sums.py)
|h_rb - f_rb| <= d_rb                                every column with rounding (factor_columns.py), f_rb complex

|F - f| <= sum over terms sup |front| (prod (|g_j| + eps_j) - prod |g_j|) + sum over rows prod (|f_rb| + d_rb) - prod |f_rb|
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.certificate import stated_reserve
from maxaffine.checker.exponential_sums import deviation, extremes, range_of, sums_of
from maxaffine.checker.factor_columns import Columns
from maxaffine.checker.formats import products_fit
from maxaffine.checker.product_group import Scaled
from maxaffine.checker.proved import DOUBLE, NotProved, Proved
from maxaffine.checker.reader import Layer, ProductKeys
from maxaffine.checker.same_function import doubt_same
from maxaffine.checker.separated_literal import literally_multiplied
from maxaffine.checker.target_parts import along, doubt_parts, expression_of
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.structure.exponential_sums import ExponentialSum, Row, rows
from maxaffine.structure.separate import CHOICES, NotSeparated, separate
from maxaffine.structure.separation import Parts, Separation
from maxaffine.target.target import Target

MOST_ROWS = 1_024
MOST_COLUMNS = 60_000  # rows times blocks
SUMS_SHARE = 0.5  # of the error, that remainders of the exponential sums are small beside
POINTS = 16
FRACTION = re.compile(r"-?[0-9]{1,40}(/[1-9][0-9]{0,39})?")


@dataclass(frozen=True)
class Apart:
    """A target taken apart, shown to be the target, beside the stored columns of its rows."""

    separation: Separation
    sums: tuple[ExponentialSum, ...]
    own: tuple[Row, ...]
    keys: ProductKeys
    columns: Columns


def read_separated(layer: Layer, record: Mapping[str, Any], target: Target) -> Apart:
    """What a file says of its target, doubted."""
    plan = record["plan"]
    separation = _taken_apart(target, plan)
    sums = sums_of(plan["sums"], [len(separation.sizes)] * len(separation.outers))
    own, keys = _rows(layer, separation, sums)
    _doubt_rows(separation, sums, own, target)
    scaled = Scaled.of(layer, keys, separation.all_directions())
    columns = Columns(keys, scaled, separation.ranges(layer.low, layer.high), layer.dtype)
    return Apart(separation, sums, own, keys, columns)


def check_separated(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a sum of products over blocks of directions."""
    found = read_separated(layer, record, target)
    separation, sums, own, keys, columns = found.separation, found.sums, found.own, found.keys, found.columns
    by_sums = _error_of_sums(separation, sums, columns, SUMS_SHARE * error)
    if not by_sums < error:
        raise NotProved(f"its sums of exponentials alone may be off by {by_sums:.6g}.")
    by_factors, size = _error_of_factors(own, columns, error - by_sums)
    total = by_sums + by_factors + compute_format(layer.dtype).unit * size + stated_reserve(record) + 2.0**-42 * size
    how = f"{len(own)} products of {len(separation.sizes)} factors, {len(sums)} sums of exponentials, each by Ehlich and Zeller"
    return Proved(total * (1 + 1e-13), how, literally_multiplied(layer, keys, total, size))


# ---------------------------------------------------------------------- what the file says, doubted


def _taken_apart(target: Target, plan: Mapping[str, Any]) -> Separation:
    """The target as a sum of products, which is the file's and is shown to be the target."""
    expression, choice = expression_of(target, "separated layers"), plan["choice"]
    if choice not in CHOICES:
        raise NotProved("its record does not say how its target is taken apart.")
    try:
        found = separate(expression, target.box.low, target.box.high, choice)
    except NotSeparated as why:
        raise NotProved(f"its target is not taken apart: {why}.") from None
    if list(plan["sizes"]) != list(found.sizes) or _directions(plan["directions"], found) != found.directions:
        raise NotProved("its blocks of directions are not those of its target.")
    whole = found.whole(expression.names)
    doubt_same(expression, whole, target.box.low, target.box.high)
    doubt_parts(target, lambda x: whole.enclose(Interval.point(x)), "its sum of products is not its target.")
    return found


def _directions(written: Any, found: Separation) -> tuple[tuple[Fraction, ...], ...]:
    """The directions of a record; forms such as 1e999999999 would take for ever."""
    if not isinstance(written, list) or len(written) != len(found.directions):
        raise NotProved("its blocks of directions are not those of its target.")
    rows = []
    for row, w in zip(written, found.directions, strict=True):
        if not isinstance(row, list) or len(row) != len(w):
            raise NotProved("its blocks of directions are not those of its target.")
        if any(not isinstance(c, str) or FRACTION.fullmatch(c) is None for c in row):
            raise NotProved("a direction is not written as a fraction.")
        rows.append(tuple(Fraction(c) for c in row))
    return tuple(rows)


def _rows(layer: Layer, separation: Separation, sums: Sequence[ExponentialSum]) -> tuple[tuple[Row, ...], ProductKeys]:
    """The products of the target with exponentials in it, beside the group that holds as many."""
    keys = layer.groups[0]
    if len(layer.groups) != 1 or layer.affine_part is not None or not isinstance(keys, ProductKeys) or keys.factors is None:
        raise NotProved("it is not a layer of one group whose values are products.")
    if tuple(cut.stop - cut.start for cut in keys.cuts) != separation.sizes:
        raise NotProved("its blocks of factors are not those of its target.")
    count = 0
    for term in separation.terms:
        count += math.prod(len(sums[j].exponents) + 1 for j in term.outers) * 2 ** max(len(term.outers) - 1, 0)
    if count > MOST_ROWS or count * len(separation.sizes) > MOST_COLUMNS:
        raise NotProved(f"its target is a sum of {count:,} products, more than this check takes.")
    own = rows(separation, sums)
    if len(own) != keys.factors[0].shape[-1] or (keys.imaginary is None and not all(row.is_real for row in own)):
        raise NotProved("its products are not as many as those of its target, or lack imaginary parts.")
    return own, keys


def _doubt_rows(separation: Separation, sums: Sequence[ExponentialSum], own: Sequence[Row], target: Target) -> None:
    """NotProved unless the rows add up to the terms with exponential sums in place of outer functions, at random points."""
    x = target.box.sample(POINTS, np.random.default_rng(47))
    t = [along(w, x) for w in separation.directions]
    at = [
        Interval.concatenate(t[first : first + size], axis=1)
        for first, size in zip(separation.firsts, separation.sizes, strict=True)
    ]
    one, zero = Interval.point(np.ones((len(x), 1))), Interval.point(np.zeros((len(x), 1)))

    def put(parts: Parts, b: int, absent: Interval) -> Interval:
        part = parts[b]
        return absent if part is None else part.enclose(at[b])

    outers = []
    for outer, s in zip(separation.outers, sums, strict=True):
        u = sum((put(outer.parts, b, zero) for b in range(len(at))), zero)
        outers.append(s.expression().enclose(u))
    wanted, found = zero, zero
    for term in separation.terms:
        product = one
        for b in range(len(at)):
            product = product * put(term.factors, b, one)
        for j in term.outers:
            product = product * outers[j]
        wanted = wanted + product
    for row in own:
        real, imaginary = one, zero
        for b in range(len(at)):
            p, q = put(row.real, b, one), put(row.imaginary, b, zero)
            real, imaginary = real * p - imaginary * q, real * q + imaginary * p
        found = found + real
    apart = (found.hi < wanted.lo) | (found.lo > wanted.hi)
    if np.any(apart) or not np.all(found.finite & wanted.finite):
        raise NotProved("its products do not add up to its sums of exponentials.")


# ---------------------------------------------------------------------- errors, multiplied out


def _error_of_sums(separation: Separation, sums: Sequence[ExponentialSum], columns: Columns, goal: float) -> float:
    """sum over terms sup |front| (prod (|g_j| + eps_j) - prod |g_j|)."""
    intervals = [range_of(outer, columns.ranges) for outer in separation.outers]
    tops = []
    for outer, (low, high) in zip(separation.outers, intervals, strict=True):
        least, most = extremes(outer.function, Interval.of([low], [high]))
        tops.append(max(abs(least), abs(most)))
    fronts = [math.prod(columns.size(b, part) for b, part in enumerate(term.factors)) for term in separation.terms]
    errors = []
    for j, (outer, s, (low, high)) in enumerate(zip(separation.outers, sums, intervals, strict=True)):
        weight = 0.0
        for front, term in zip(fronts, separation.terms, strict=True):
            weight += front * math.prod(tops[i] for i in term.outers if i != j) if j in term.outers else 0.0
        if not math.isfinite(weight):
            raise NotProved("a factor of the target could not be enclosed.")
        errors.append(deviation(outer.function, s, low, high, goal / len(sums) / max(weight, 1e-300)))
    total = 0.0
    for front, term in zip(fronts, separation.terms, strict=True):
        total += front * grown([tops[j] for j in term.outers], [errors[j] for j in term.outers])
    return total * (1 + 1e-12)


def _error_of_factors(own: Sequence[Row], columns: Columns, goal: float) -> tuple[float, float]:
    """sum over rows prod (|f| + d) - prod |f| with the rounding of products and their sum, and a bound of what is summed."""
    keys, blocks = columns.keys, range(len(columns.ranges))
    assert keys.factors is not None
    gained, whole, tops = 0.0, 0.0, np.empty((len(columns.ranges), len(own)))
    for r, row in enumerate(own):
        sizes = [columns.size(b, row.real[b], row.imaginary[b], row.modulus[b]) for b in blocks]
        if not all(0.0 <= size < 1e150 for size in sizes):
            raise NotProved("a factor of the target could not be enclosed.")
        errors = []
        for b in blocks:
            others = math.prod(size for i, size in enumerate(sizes) if i != b)
            aim = goal / len(own) / len(sizes) / max(others, 1e-300)
            off = [columns.error(b, keys.factors[b][..., r], row.real[b], 1.0, aim)]
            if keys.imaginary is not None:
                off.append(columns.error(b, keys.imaginary[b][..., r], row.imaginary[b], 0.0, aim))
            errors.append(math.hypot(*off) * (1 + 1e-15))
        gained += grown(sizes, errors)
        whole += math.prod(size + off for size, off in zip(sizes, errors, strict=True))
        tops[:, r] = np.array(sizes) + errors
    if not (math.isfinite(gained) and products_fit(tops, compute_format(columns.dtype).name)):
        raise NotProved("its products may be too large for its dtype.")
    largest = float(np.prod(np.maximum(tops, 1.0), axis=0).max())
    # products of complex numbers, added up in float64, and what is lost below the smallest normal number
    rounded = 1.01 * DOUBLE * (6 * len(columns.ranges) + len(own) + 16) * whole * (1 + 1e-12)
    below = 8.0 * len(own) * len(columns.ranges) * 2.0**-1074 * largest
    return gained * (1 + 1e-12) + rounded + below, whole * (1 + 1e-12)


def grown(sizes: Sequence[float], more: Sequence[float]) -> float:
    """prod (size + more) - prod size, all of them at least 0, without cancellation."""
    total, before = 0.0, 1.0
    after = [1.0]
    for size, extra in zip(reversed(sizes), reversed(more), strict=True):
        after.append(after[-1] * (size + extra))
    for i, (size, extra) in enumerate(zip(sizes, more, strict=True)):
        total += before * extra * after[len(sizes) - 1 - i]
        before *= size
    return total * (1 + 1e-15 * (4 * len(sizes) + 8))
