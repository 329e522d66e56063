"""A group of product keys re-proved against its part of the target: each head by Ehlich and Zeller, with rounding.

Values are listed, affine in z, or sums of products of factors; factors are compared one by one and multiplied out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maxaffine.checker.head import Head, heads_of
from maxaffine.checker.head_rounding import MARGIN, LogitErrors, account, joined_factors, rounding, tree_depth
from maxaffine.checker.literal_groups import RESOLVED, Column, Coordinates, Frame
from maxaffine.checker.normaliser import log_normaliser
from maxaffine.checker.proved import DOUBLE, NotProved, rounded
from maxaffine.checker.reader import Layer, ProductKeys
from maxaffine.core.arrays import Array
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.structure.groups import Group

LITERAL = 1 << 16  # tokens up to which a layer is also run by the literal softmax


@dataclass(frozen=True)
class Scaled:
    """Coordinates z = directions . (x - centre)/half, what is computed of them is off by `query` at most.

    `inside`: what is computed from a number x of the box stays in [-1, 1] where it is rounded to a narrower dtype.
    """

    middle: Interval
    half: Array
    query: Array
    inside: bool

    @classmethod
    def of(cls, layer: Layer, keys: ProductKeys, group: Group) -> "Scaled":
        """Of the directions of a group; NotProved where the matrix does not follow them."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            return cls._of_directions(layer, keys, group)

    @classmethod
    def _of_directions(cls, layer: Layer, keys: ProductKeys, group: Group) -> "Scaled":
        E = group.dimension
        reach, largest = layer.reach, np.maximum(np.abs(layer.low), np.abs(layer.high))
        span, middle = group.range(layer.low, layer.high), group.range(layer.centre, layer.centre)
        half, query, inside = np.empty(E), np.empty(E), True
        for e, w in enumerate(group.directions):
            row, lead = keys.matrix[e], max(range(len(w)), key=lambda i: abs(w[i]))
            half[e] = float(w[lead]) / row[lead] if row[lead] else math.nan
            if not (math.isfinite(half[e]) and half[e] > 0):
                raise NotProved("a group's matrix does not follow its directions.")
            drift = 0.0
            for i, c in enumerate(w):
                ideal = Interval.exact(c) / Interval.point(half[e])
                drift += max(abs(float(ideal.hi) - row[i]), abs(row[i] - float(ideal.lo))) * reach[i]
            steps = np.abs(row) @ (DOUBLE * largest + (len(w) + 6) * DOUBLE * reach)
            query[e] = float(drift + steps) + (0.0 if layer.dtype == "float64" else 0.5001 * DTYPES[layer.dtype].unit)
            away = max(float(span.hi[e]) - float(middle.lo[e]), float(middle.hi[e]) - float(span.lo[e]))
            if not (away * (1 + 2.0**-50) / half[e] <= 1.0 and query[e] <= MARGIN - 1.0):
                raise NotProved("a group's coordinates leave [-1, 1] or are not resolved.")
            # What is computed from a number x of the box; up to 1 + 2^-30 it is rounded to 1 at most in a narrower dtype.
            inside &= away / half[e] + drift + float(np.abs(row) @ reach) * (len(w) + 6) * DOUBLE <= 1.0 + 2.0**-30
        return cls(middle, half, query, inside)


@dataclass(frozen=True)
class ProductGroup:
    """One group as stored: z = directions . (x - centre)/half up to `query`."""

    group: Group
    keys: ProductKeys
    middle: Interval
    half: Array
    query: Array
    dtype: str
    bias: float
    all_tokens: int
    narrow: bool  # queries are rounded to fewer digits, and surely stay inside [-1, 1]
    extent: float = math.inf  # a bound of |F_g|, where it was proved

    @classmethod
    def of(cls, layer: Layer, g: int, group: Group, bias: float) -> "ProductGroup":
        """Group g of a layer beside its part of the target; NotProved where its coordinates are not those of the part."""
        keys, E = layer.groups[g], group.dimension
        if not isinstance(keys, ProductKeys) or len(keys.axes) != E:
            raise NotProved("a group is not one of product keys in the directions of its target.")
        if not keys.plain:
            raise NotProved("a group's factors are complex, or of blocks of directions, and its rule is for real ones of one.")
        if keys.factors is not None and (group.factors is None or keys.factors[0].shape[1] != len(group.factors)):
            raise NotProved("a group's factors are not those of its target.")
        if keys.values is not None and keys.values.shape[-1] != (group.expression.count if group.expression else 0):
            raise NotProved("a group's values are not as many as its target's outputs.")
        found = Scaled.of(layer, keys, group)
        narrow = layer.dtype != "float64" and found.inside
        return cls(group, keys, found.middle, found.half, found.query, layer.dtype, bias, layer.tokens, narrow)

    def _factor(self, e: int, r: int) -> Head:
        """Product r along direction e."""
        assert self.keys.factors is not None and self.group.factors is not None
        middle, cut = self.middle, slice(e, e + 1)
        column = self.keys.factors[e][:, r : r + 1]
        own = Interval.of(middle.lo[cut], middle.hi[cut])
        return Head(self.group.factors[r][e], own, self.half[cut], (self.keys.axes[e],), column)

    def prove(self, goal: float) -> tuple[float, float]:
        """sup |F_g - f_g| with rounding, and a bound of |F_g|."""
        if self.keys.values is None:
            return self._prove_factors(goal)
        found = []
        for one in heads_of(self.keys, self.middle, self.half, self.group.expression):
            bound, top = self._bound(one, self.query, goal)
            found.append((bound, min(top, one.extent() + bound)))
        if not all(math.isfinite(number) for pair in found for number in pair):  # max() would lose NaN
            raise NotProved("its numbers are too large for a bound.")
        return max(bound for bound, _ in found), max(top for _, top in found)

    def _prove_factors(self, goal: float) -> tuple[float, float]:
        """|prod (f + d) - prod f| <= prod (|f| + |d|) - prod |f|, summed over the products."""
        assert self.keys.factors is not None and self.group.factors is not None
        gained, whole, rank = 0.0, 0.0, len(self.group.factors)
        for r, row in enumerate(self.group.factors):
            plain, rough = 1.0, 1.0
            heads = [self._factor(e, r) for e in range(len(row))]
            sizes = [1.0 if factor is None else one.extent() for one, factor in zip(heads, row, strict=True)]
            for e, (one, size) in enumerate(zip(heads, sizes, strict=True)):
                if row[e] is None:
                    bound = float(np.abs(one.values - 1.0).max()) + 8 * len(one.values) * DOUBLE
                else:
                    partners = math.prod(sizes[:e] + sizes[e + 1 :])
                    bound, _ = self._bound(one, self.query[e : e + 1], goal / len(row) / rank / max(partners, 1e-300))
                plain, rough = plain * size, rough * (size + bound)
            if not math.isfinite(rough):
                raise NotProved("a factor of the target could not be enclosed.")
            gained += rough - plain + 1e-14 * rough * (len(row) + 4)
            whole += rough
        if self.keys.tokens <= LITERAL:
            E, depth = len(self.keys.axes), tree_depth(self.all_tokens)
            errors = LogitErrors(compute_format(self.dtype).unit, E + 2.01, 12.0, self.bias)
            lost, held = joined_factors(self.keys.axes, self.keys.factors, errors)
            gained += lost + DOUBLE * 1.01 * (2 * depth + E + rank + 12) * held
        return gained * (1 + 1e-12), whole

    def _bound(self, head: Head, query: Array, goal: float) -> tuple[float, float]:
        compute = compute_format(self.dtype)
        lost, largest = rounding(head, query, compute.unit, self.bias, self.all_tokens, self.narrow)
        tokens = math.prod(len(axis.a) for axis in head.axes)
        return head.supremum(goal) + lost + 4.0 * tokens * compute.tiny * head.top(), largest

    @cached_property
    def levels(self) -> tuple[float, float]:
        """Bounds of log sum exp of the logits over the range of z."""
        rows = [log_normaliser(axis.a[:, None], axis.b, np.array([MARGIN])) for axis in self.keys.axes]
        return sum(low for low, _ in rows), sum(high for _, high in rows)

    def column(self, frame: Frame) -> Column:
        """This group in its own column of a literal form."""
        return product_column(frame, self.keys, self.extent, lambda: self.levels)


def product_column(frame: Frame, keys: ProductKeys, extent: float, levels: Callable[[], tuple[float, float]]) -> Column:
    """Product keys in their own column of a literal form: one head per output, or one per product and direction."""
    form, E = frame.form, len(keys.axes)
    at = Coordinates.read(frame, keys.matrix)
    error = at.error(at.size)
    counted = LogitErrors(form.unit, E + 8.5 + (E + 2.0) * DOUBLE / form.unit, 72.0, 5.0 * frame.bias)
    size = sum(float(np.abs(axis.a).max()) * 1.01 + float(np.abs(axis.b).max()) for axis in keys.axes) + frame.bias
    eta = sum(counted.largest(axis, E) for axis in keys.axes) + float(error @ [np.abs(axis.a).max() for axis in keys.axes])
    if not (size < form.largest and eta < RESOLVED and np.all(error < 2.0**-9)):
        raise NotProved(f"its logits are not resolved in {form.name}.")
    zero, ones = Interval.point(np.zeros(E)), np.ones(E)
    if keys.factors is None:
        rows = [_listed_column(frame, at, one, error, counted, eta) for one in heads_of(keys, zero, ones)]
        lost, largest, top = (max(row[i] for row in rows) for i in range(3))
    else:
        lost, held = joined_factors(keys.axes, keys.factors, counted)
        rank, largest = keys.factors[0].shape[1], 0.0
        for r in range(rank):
            plain, rough = 1.0, 1.0
            for e, axis in enumerate(keys.axes):
                factor = Head(None, zero[:1], ones[:1], (axis,), keys.factors[e][:, r : r + 1])
                found = account(factor, error[e : e + 1], counted)
                plain, rough = plain * found.top, rough * (found.top + found.by_query)
            lost, largest = lost + (rough - plain), largest + rough
        lost += (form.gamma(E + rank + 12) * held + frame.sums(held)) * math.exp(2.0 * eta)
        top = float(np.prod([np.abs(factor).max(axis=0) for factor in keys.factors], axis=0).sum()) * 1.01
    return Column(lost * (1 + 1e-9) + frame.stray(top), min(largest, extent), eta, top, levels)


def _listed_column(
    frame: Frame, at: Coordinates, one: Head, error: Array, counted: LogitErrors, eta: float
) -> tuple[float, float, float]:
    """What one output of a head loses in a literal form, and bounds of |g| and of its tokens' values."""
    form, E, D = frame.form, len(one.axes), len(frame.layer.centre)
    found, top, G = account(one, error, counted), one.top() * 1.01, one.slopes
    # affine values are formed in x, whose terms are as large as the box where a coordinate is oblique
    formed = found.held if G is None or at.alone.all() else max(found.held, top)
    off = form.gamma(E + D + 12) * formed + frame.sums(found.held)
    if G is not None:
        off += float((np.abs(G) @ error).max()) + rounded(2 * E + 11, DOUBLE) * found.held
        off += rounded(D + 9, DOUBLE) * float((np.abs(G) @ at.away(at.size)).max())
    # or: logits that are off by eta move a mean of values by (e^{2 eta} - 1) times half their range at most
    flat = one.columns.reshape(-1, one.columns.shape[-1])
    apart = np.abs(flat - (flat.max(axis=0) + flat.min(axis=0)) / 2.0).sum(axis=1).max() * MARGIN
    moved = min(found.by_logits + found.by_query, math.expm1(2.0 * eta) * float(apart) * (1 + 1e-9))
    return moved + off * math.exp(2.0 * eta), found.top, top
