"""Layers side by side for one kernel: the forms of all parts in all variables, each added to the outputs that it writes to.

A term of a part keeps the centre, the numbers and the operations that it has where the part stands alone, so that an output of
one part has the part's own bound.  An output that n parts add up to is off by at most

    sum of their bounds + gamma(terms + n) sum of their sizes + the rounding of its constant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import dtype_of, gamma
from maxaffine.layer.side_by_side import OutputsLayer, Part
from maxaffine.runtime.gpu.clustered import Clustered, clustered
from maxaffine.runtime.gpu.listed import Listed
from maxaffine.runtime.gpu.patched import Patched
from maxaffine.runtime.gpu.pieces import Factor, Product
from maxaffine.runtime.gpu.tables import MOST_SERIES, Polynomials, Term, size

MOST_TERMS = 256  # that one kernel is written out to


@dataclass(frozen=True)
class _Place:
    """Where a part stands: its variables among all, its centre among zeros."""

    variables: list[int]
    centre: Array

    def wide(self, rows: Array) -> Array:
        """Rows (.., own variables) as rows (.., D)."""
        found = np.zeros((*rows.shape[:-1], len(self.centre)))
        found[..., self.variables] = rows
        return found


def side_by_side(layer: OutputsLayer, dtype: str, tolerance: float) -> Clustered:
    """The forms of all parts as those of one layer; Refused where a part has none, or all together are too many."""
    writes = layer.writes()
    counts = np.bincount([e for rows in writes for _, e, _ in rows])
    parts = [clustered(part.layer, dtype, tolerance / int(counts.max())) for part in layer.parts]
    products: list[Product] = []
    terms: list[Term] = []
    tokens: list[Listed] = []
    patches: list[Patched] = []
    shift = np.zeros(len(counts))
    for part, made, rows in zip(layer.parts, parts, writes, strict=True):
        place = _placed(part, layer.dimension)
        for k, e, sign in rows:
            shift[e] += sign * made.shift[k]
            products += [_product(one, place, e, sign) for one in made.products if one.output == k]
            smooth = () if made.smooth is None else made.smooth.terms
            terms += [_term(one, place, e, sign) for one in smooth if one.output == k]
            tokens += [_tokens(one, place, e, sign) for one in made.listed if one.output == k]
            patches += [_patches(one, place, e, sign) for one in made.patched if one.output == k]
    if len(products) + len(terms) + len(tokens) + len(patches) > MOST_TERMS:
        raise Refused(f"its outputs have more than {MOST_TERMS} terms, too many for one kernel.")
    if sum(core.size for term in terms for core in term.cores) > MOST_SERIES:
        raise Refused("the layer's series are too long for unrolled code.")
    found = _worst(layer, parts, shift, dtype)
    bound = math.fsum(found.values()) * (1 + 1e-9)
    box = np.zeros(layer.dimension), layer.low, layer.high
    series = Polynomials(tuple(terms), (), *box, len(counts), dtype, 0.0, {}) if terms else None
    stored = tuple(float(one) for one in shift.astype(dtype))
    return Clustered(
        tuple(products), series, tuple(tokens), tuple(patches), stored, *box, len(counts), dtype, bound, found
    )


def _placed(part: Part, dimension: int) -> _Place:
    centre = np.zeros(dimension)
    centre[list(part.variables)] = part.layer.centre
    return _Place(list(part.variables), centre)


def _product(one: Product, place: _Place, output: int, sign: int) -> Product:
    """A product in all variables; its first factor has the sign."""

    def factor(own: Factor, sign: int) -> Factor:
        return replace(own, row=place.wide(own.row), powers=tuple(sign * powers for powers in own.powers))

    made = (factor(own, sign if f == 0 else 1) for f, own in enumerate(one.factors))
    return Product(output, tuple(made), place.centre)


def _term(one: Term, place: _Place, output: int, sign: int) -> Term:
    first, *others = one.cores
    return Term(output, place.wide(one.rows), (sign * first, *others), one.complex_, place.centre)


def _tokens(one: Listed, place: _Place, output: int, sign: int) -> Listed:
    values, tilts = sign * one.values, sign * one.tilts
    return replace(one, rows=place.wide(one.rows), values=values, tilts=tilts, output=output, centre=place.centre)


def _patches(one: Patched, place: _Place, output: int, sign: int) -> Patched:
    made = replace(one.made, values=sign * one.made.values)
    return replace(one, rows=place.wide(one.rows), made=made, output=output, centre=place.centre)


def _worst(layer: OutputsLayer, parts: Sequence[Clustered], shift: Array, dtype: str) -> dict[str, float]:
    """The bound of the worst output: what its parts are off by, and what adding them up rounds."""
    unit, worst = dtype_of(dtype).unit, {"parts": 0.0, "sums": 0.0}
    for e in range(len(shift)):
        here = [(made, k) for made, rows in zip(parts, layer.writes(), strict=True) for k, to, _ in rows if to == e]
        own = {"parts": math.fsum(made.bound for made, _ in here), "sums": 0.0}
        if len(here) > 1:
            counts, sizes = zip(*(_amount(made, k) for made, k in here), strict=True)
            whole = math.fsum(sizes) + own["parts"]
            own["sums"] = gamma(sum(counts) + len(here), unit) * whole + unit * abs(float(shift[e]))
        if math.fsum(own.values()) > math.fsum(worst.values()):
            worst = own
    return worst


def _amount(made: Clustered, k: int) -> tuple[int, float]:
    """How many terms an output of a part is the sum of, and a bound of what they add up to."""
    sizes = [math.prod(factor.size for factor in one.factors) for one in made.products if one.output == k]
    sizes += [size(term.cores, term.complex_) for term in (() if made.smooth is None else made.smooth.terms) if term.output == k]
    sizes += [one.size for one in made.listed if one.output == k]
    sizes += [one.size for one in made.patched if one.output == k]
    return len(sizes) + 1, math.fsum([*sizes, abs(made.shift[k])]) * (1 + 1e-9)
