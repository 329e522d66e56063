"""Clusters over several coordinates as a file has them, taken apart into those of the factors of a product, and what it lacks.

Slopes, places and keys are the same in every combination.  Offsets are sums and values are products, both rounded: the record
names a token of every factor and its value there, hints from which the factors' values follow by division (one factor has
affine values c + G t, and takes what the others leave), and what the stored numbers lack of the combinations is measured one by
one, so that a wrong hint proves nothing false.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.axis_cluster import LONG, AxisCluster
from maxaffine.checker.axis_clusters import CLUSTERS, AxisCheck, tilted
from maxaffine.checker.stored import NotProved
from maxaffine.core.rounding import DTYPES
from maxaffine.structure.products import Product
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

FRAME = ("box.low", "box.high", "coordinates.centre")
EXACT = ("matrix", "shapes", "origins", "radii")
MOST_TOKENS = 1 << 19
LEAST = 1e-30  # slopes below it may have lost digits
SMALL = 1e-6  # of the largest value or offset: what is smaller need not be met to its last digit
NOT_COMBINED = "its clusters are not the combinations of its factors' clusters."


@dataclass(frozen=True)
class Hint:
    """What the record says of a factor."""

    clusters: int
    tokens: int
    share: float
    anchor: int
    value: float
    affine: bool


def hints_of(rows: Any, found: Product) -> list[Hint]:
    """The record's rows, doubted: one per factor, whole numbers within limits, shares positive, values that can be divided by."""
    if not isinstance(rows, list) or len(rows) != len(found.factors):
        raise NotProved("its record does not have one row per factor of its target.")
    made = []
    for row, factor in zip(rows, found.factors, strict=True):
        if list(row["direction"]) != [str(c) for c in factor.direction]:
            raise NotProved("the directions of its factors are not those of its target.")
        counts = [row["clusters"], row["tokens"], row["anchor"]]
        if any(type(n) is not int for n in counts) or not 1 <= counts[0] <= CLUSTERS:
            raise NotProved("the counts of a factor are not whole numbers within limits.")
        if not (counts[0] <= counts[1] <= MOST_TOKENS and 0 <= counts[2] < counts[1]):
            raise NotProved("the token that a factor is told by is none of its own.")
        share, value = row["share"], row["value"]
        if any(type(n) not in (int, float) or not math.isfinite(n) for n in (share, value)) or not share > 0:
            raise NotProved("the share or the value of a factor is not a number that can be used.")
        if type(row["affine"]) is not bool or (value == 0 and not row["affine"]):
            raise NotProved("a factor is told by the value zero, or it is not said whether its values are affine.")
        made.append(Hint(counts[0], counts[1], float(share), counts[2], float(value), row["affine"]))
    if sum(hint.affine for hint in made) != 1:
        raise NotProved("not exactly one of its factors has affine values.")
    if math.prod(hint.tokens for hint in made) > MOST_TOKENS:
        raise NotProved(f"it has more than {MOST_TOKENS:,} tokens.")
    return made


@dataclass(frozen=True)
class Stored:
    """The factors as the file has them, and what it lacks of their combinations."""

    dtype: str
    matrix: Array
    centre: Array
    low: Array
    high: Array
    counts: tuple[int, ...]
    clusters: list[list[AxisCluster]]
    slack: list[list[float]]  # of offsets, per factor and cluster
    off: float  # a stored value lacks this times (prod |v| + floor), a slope this times |g| (prod |v| of the others + lean_floor)
    floor: float
    lean_floor: float
    affine: int
    shift: float
    shift_off: float
    tilt: float
    tilt_off: float

    @classmethod
    def read(
        cls, tensors: Mapping[str, Any], layer: Mapping[str, Any], target: Target, found: Product, hints: list[Hint]
    ) -> "Stored":
        """From the tensors: names, shapes, dtypes and numbers are looked at before anything is made of them."""
        dtype, E, D = str(layer["dtype"]), len(hints), target.box.dimension
        counts = tuple(hint.clusters for hint in hints)
        C, N = math.prod(counts), math.prod(hint.tokens for hint in hints)
        if dtype not in DTYPES or list(layer["directions"]) != [E] or list(layer.get("clusters", [])) != [C]:
            raise NotProved("it is not a layer of one group of clusters, all combinations of its factors'.")
        shapes: dict[str, tuple[int, ...]] = {"matrix": (E, D), "shapes": (C, E), "origins": (C, E), "radii": (C, E)}
        shapes |= {"sites.slopes": (C, E), "sites.offsets": (C,), "values": (N, 1), "value_slopes": (N, 1, E)}
        for e, hint in enumerate(hints):
            shapes |= {f"keys.{e}.{kind}": (hint.tokens * C // hint.clusters,) for kind in ("slopes", "offsets")}
        if set(tensors) - {"tilt"} != {f"group.0.{name}" for name in shapes} | set(FRAME):
            raise NotProved("its tensors are not those of a product.")
        part = {name: np.asarray(tensors[f"group.0.{name}"]) for name in shapes}
        frame = [np.asarray(tensors[name]) for name in FRAME]
        tilt = np.asarray(tensors["tilt"]) if "tilt" in tensors else None
        if any(part[name].shape != shape for name, shape in shapes.items()) or any(one.shape != (D,) for one in frame):
            raise NotProved("a tensor has not the shape that its record gives it.")
        if tilt is not None and tilt.shape != (1, D):
            raise NotProved("its tilt is not one of this layer.")
        exact, rounded = [*(part[name] for name in EXACT), *frame], [part[name] for name in shapes if name not in EXACT]
        rounded += [] if tilt is None else [tilt]
        if any(str(one.dtype) != "float64" for one in exact) or any(str(one.dtype) != dtype for one in rounded):
            raise NotProved("a tensor is not in the dtype that the record states.")
        number = {name: one.astype(np.float64) for name, one in part.items()}
        low, high, centre = (one.astype(np.float64) for one in frame)
        lean = np.zeros(D) if tilt is None else tilt[0].astype(np.float64)
        if not all(np.isfinite(one).all() for one in (*number.values(), low, high, centre, lean)):
            raise NotProved("a number is not finite.")
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
            raise NotProved("the layer and the target speak about different boxes.")
        if not np.all((centre >= low) & (centre <= high)) or not np.all(number["radii"] > 0):
            raise NotProved("its centre lies outside the box, or a radius is not positive.")
        lift = found.constant + sum((s * Fraction(float(m)) for s, m in zip(found.slopes, centre, strict=True)), Fraction(0))
        shift = float(lift)
        sizes = [_alike(number["shapes"], counts, e) for e in range(E)]
        for one, hint in zip(sizes, hints, strict=True):
            if not np.all((one >= 1) & (one == np.floor(one)) & (one <= hint.tokens)) or one.sum() != hint.tokens:
                raise NotProved("its clusters have not the keys that its record counts.")
        keys = [one.astype(np.int64) for one in sizes]
        affine = [hint.affine for hint in hints].index(True)
        values, slopes, fit = _values(number["values"][:, 0], number["value_slopes"][:, 0], keys, counts, hints, affine, shift)
        offsets, slack = _offsets(number["sites.offsets"].reshape(counts))
        clusters = []
        for e in range(E):
            alpha, beta = (_same_keys(number[f"keys.{e}.{kind}"], keys[e], counts, e) for kind in ("slopes", "offsets"))
            A, o, r = (_alike(number[name], counts, e) for name in ("sites.slopes", "origins", "radii"))
            ends = np.cumsum([0, *keys[e]])
            g = slopes if e == affine else np.zeros(len(alpha))
            numbers = [(float(A[k]), float(offsets[e][k]), float(o[k]), float(r[k])) for k in range(counts[e])]
            tables = [(alpha[a:b], beta[a:b], values[e][a:b], g[a:b]) for a, b in pairwise(ends)]
            clusters.append([AxisCluster(*one, *table) for one, table in zip(numbers, tables, strict=True)])
        tilt_off, size = tilted(found.slopes, lean, centre, low, high)
        shift_off = abs(float(lift - Fraction(shift))) * (1 + 1e-12)
        matrix = number["matrix"]
        return cls(dtype, matrix, centre, low, high, counts, clusters, slack, *fit, affine, shift, shift_off, size, tilt_off)

    def factor(self, e: int, found: Product, share: float) -> AxisCheck:
        """A factor along its own direction, to be proved with others beside it."""
        zero = np.zeros(len(self.centre))
        check = AxisCheck._on_axis(
            self.clusters[e], self.matrix[e], self.centre, self.low, self.high, zero, found.factors[e], share, math.inf, None,
            self.dtype,
        )  # fmt: skip
        if any(hole is not None for hole in check.holes):
            raise NotProved("a factor of its target jumps.")
        check.coordinates, check.slack = len(self.counts), self.slack[e]
        return check


def _line(table: NDArray[Any], e: int, at: tuple[int, ...]) -> NDArray[Any]:
    """The numbers of a table along one of its axes, the others' indices given."""
    return np.asarray(table[tuple(slice(None) if n == e else i for n, i in enumerate(at))])


def _alike(rows: Array, counts: tuple[int, ...], e: int) -> Array:
    """Numbers (C, E) of coordinate e per cluster of factor e, the same in every combination."""
    table = rows[:, e].reshape(counts)
    line = _line(table, e, (0,) * len(counts))
    if not np.array_equal(table, np.broadcast_to(line.reshape([-1 if n == e else 1 for n in range(len(counts))]), counts)):
        raise NotProved(NOT_COMBINED)
    return np.array(line, dtype=np.float64)


def _same_keys(numbers: Array, keys: Whole, counts: tuple[int, ...], e: int) -> Array:
    """Keys of factor e, cluster after cluster, from numbers that repeat them in every combination."""
    which = np.indices(counts)[e].ravel()
    many = keys[which]
    begin = np.cumsum(many) - many
    first = begin[_line(np.arange(len(which)).reshape(counts), e, (0,) * len(counts))]
    starts = np.cumsum(keys) - keys
    own = np.concatenate([numbers[a : a + n] for a, n in zip(first, keys, strict=True)])
    place = np.arange(len(numbers)) + np.repeat(starts[which] - begin, many)
    if not np.array_equal(numbers, own[place]):
        raise NotProved(NOT_COMBINED)
    return own


def _values(
    values: Array, slopes: Array, keys: list[Whole], counts: tuple[int, ...], hints: list[Hint], affine: int, shift: float
) -> tuple[list[Array], Array, tuple[float, float, float]]:
    """The factors' values, the slopes of one of them, and what the stored ones lack of their products."""
    E, wide = len(hints), np.longdouble
    which = [np.repeat(np.arange(len(one)), one) for one in keys]
    many = reduce(np.multiply.outer, keys)
    begin = (np.cumsum(many.ravel()) - many.ravel()).reshape(counts)
    inside: Whole = np.zeros((1,) * E, dtype=np.int64)
    for e, one in enumerate(keys):
        across = [-1 if n == e else 1 for n in range(E)]
        number = np.arange(len(which[e])) - (np.cumsum(one) - one)[which[e]]
        inside = inside * one[which[e]].reshape(across) + number.reshape(across)
    place = begin[np.ix_(*which)] + inside
    at = tuple(hint.anchor for hint in hints)
    if np.any(np.delete(slopes, affine, axis=1)):
        raise NotProved("its values lean in a coordinate that is not that of its affine factor.")
    c, lean = values[place].astype(wide) - wide(shift), slopes[:, affine][place].astype(wide)
    rounded = LONG * (np.abs(c) + abs(shift))
    with np.errstate(all="ignore"):
        rest = wide(math.prod(hint.value for hint in hints if not hint.affine))
        own, steep = _line(c, affine, at), _line(lean, affine, at)
        # The others follow from slopes, which no shift has rounded, or from values where there are none.
        leans = float(np.abs(steep).max()) > LEAST
        table = lean if leans else c
        at = tuple(int(np.abs(steep if leans else own).argmax()) if e == affine else i for e, i in enumerate(at))
        v = [_line(table, e, at) * wide(hint.value) / table[at] for e, hint in enumerate(hints)]
        v[affine] = own / rest
        v = [one.astype(np.float64).astype(wide) for one in v]
        g = (steep / rest).astype(np.float64).astype(wide)
        most = [float(np.abs(one).max()) for one in v]
        others = math.prod(top for e, top in enumerate(most) if e != affine)
        floor = abs(shift) + SMALL * others * (most[affine] + float(np.abs(g).max()))
        lean_floor = SMALL * others + (0.0 if leans else abs(shift) / most[affine])
        if not all(np.isfinite(one).all() for one in (*v, g)) or not (0 < floor < math.inf and 0 < lean_floor < math.inf):
            raise NotProved("its factors do not follow from the values that its record names.")
        made = reduce(np.multiply.outer, v)
        size = np.abs(made)
        off = float(((np.abs(c - made) + (E + 3) * LONG * size + 2.0 * rounded) / (size + floor)).max())
        made = reduce(np.multiply.outer, [g if e == affine else one for e, one in enumerate(v)])
        away = np.abs(lean - made) + (E + 3) * LONG * np.abs(made)
        size = np.abs(made) + np.abs(g).reshape([-1 if n == affine else 1 for n in range(E)]) * lean_floor
        ratio = np.divide(away, size, out=np.where(away > 0, wide(np.inf), wide(0)), where=size > 0)
    off = max(off, float(ratio.max())) * (1 + 1e-9)
    if not off < 0.05:
        raise NotProved("its values are not the products of its factors' values.")
    narrow = [one.astype(np.float64) for one in v]
    return narrow, g.astype(np.float64), (off, floor * (1 + 1e-9), lean_floor * (1 + 1e-9))


def _offsets(stored: Array) -> tuple[list[Array], list[list[float]]]:
    """Offsets per factor, and per cluster what their sums may lack of the stored ones, shared out by size."""
    E, wide = stored.ndim, np.longdouble
    table = stored.astype(wide)
    at = tuple(int(i) for i in np.unravel_index(int(np.abs(stored).argmin()), stored.shape))
    lines = [_line(table, e, at) - (table[at] if e else wide(0)) for e in range(E)]
    offsets = [np.asarray(line, dtype=np.float64) for line in lines]
    least = SMALL * float(np.abs(stored).max())
    whole = reduce(np.add.outer, [one.astype(wide) for one in offsets])
    size = reduce(np.add.outer, [np.abs(one) + least for one in offsets])
    away = np.abs(table - whole) + (E + 2) * LONG * (size + np.abs(stored))
    ratio = float(np.max(away / size)) * (1 + 1e-9) if least > 0 else 0.0
    return offsets, [[ratio * (abs(float(b)) + least) for b in one] for one in offsets]
