"""Products of functions of one direction each, re-proved: every factor along its own axis, then multiplied out.

A file holds the factors H_i, each a group of clusters along one direction, and a shift.  At a computed z what is computed of
factor i is within e_i of h_i (checker/axis_clusters.py), and the rounding of z moves h_i by m_i.  With S_i = sup |h_i|

    |prod H_i + shift - prod h_i - shift'|  <=  prod (S_i + e_i + m_i) - prod S_i + |shift - shift'| + rounding of the product.

The literal form lists all combinations of clusters: scores add up and masses multiply, so that with N_i >= sum Omega |h_i - p|
the masses times the distances from the target are at most prod (S_i + N_i) - prod S_i, and a combination is far where one of its
clusters is.  Offsets of the list are rounded sums and its values rounded products (`unfolded`): off by d and by rho of their
size they move what is listed by (e^{2 d} - 1) blend + e^{2 d} rho prod sum w (|c| + |G t|).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.axis_cluster import DOUBLE, AxisParts
from maxaffine.checker.axis_clusters import BITS, CLUSTERS, AxisCheck, tilted
from maxaffine.checker.literal_groups import MOST, Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.stored import NotProved, stated_scope
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.products import Product, product_of
from maxaffine.target.target import Target

Array = NDArray[np.float64]

FRAME = ("box.low", "box.high", "coordinates.centre")
TOP = 1e300  # of partial products


def check_products(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of a product of groups of clusters, for a product of functions of one direction each."""
    if target.expression is None or target.n_out != 1 or target.d_out != 1:
        raise NotProved("its target is not one that products are proved for.")
    found = product_of(target.expression, target.box)
    if found is None or len(found.factors) not in (2, 3):
        raise NotProved("its target is not a product of functions of two or three directions.")
    _multiplies(found, target)
    stated = stated_scope(record["certificate"])
    if not Scope().covers(stated):
        raise NotProved("the x its certificate speaks of are not those that products are proved for.")
    made = multiplied_out(tensors, record["layer"], target, found, record["plan"]["factors"], stated.inputs == "real")

    def literal(form: Form, claimed: float) -> float:
        listed = unfolded(tensors)
        frame = Frame.read(listed, record["layer"], form)
        return literal_bound(frame, made.bound + made.listed_off, [cluster_column(listed, 0, made.heard, frame)])

    how = f"{len(found.factors)} factors, {made.clusters} clusters, each factor where its clusters are in the race"
    return Proved(made.bound, how, literal)


@dataclass(frozen=True)
class Multiplied:
    """A product, proved: its bound, a bound of its function, and of its list what is known and how far that is off."""

    bound: float
    size: float
    clusters: int
    heard: Heard
    listed_off: float


@dataclass(frozen=True)
class Stored:
    """A product as a file has it: every factor as if it stood alone, the shift, and what it and the tilt lack."""

    dtype: str
    factors: list[AxisCheck]
    shift: float
    shift_off: float
    tilt: float
    tilt_off: float
    numbers: int  # how many are stored

    @classmethod
    def read(cls, tensors: Mapping[str, Any], layer: Mapping[str, Any], target: Target, found: Product, rows: Any) -> "Stored":
        """From the tensors of a layer of one product; NotProved where they are not those of such a layer."""
        dtype, E, D = str(layer["dtype"]), len(found.factors), target.box.dimension
        counts = layer.get("factors", [None])[0]
        if dtype not in DTYPES or not isinstance(counts, list) or len(counts) != E or list(layer["directions"]) != [E]:
            raise NotProved("it is not a layer of one product of clusters along the directions of its target.")
        if any(type(n) is not int or not 1 <= n <= CLUSTERS for n in counts) or list(layer["clusters"]) != [math.prod(counts)]:
            raise NotProved("the clusters of its factors are not those of its record.")
        shares = _shares(rows, found, counts)
        frame = {name: tensors[name] for name in FRAME}
        own = [_under(tensors, f"group.0.factor.{b}.") for b in range(E)]
        known = {*FRAME, "group.0.shift", *(f"group.0.factor.{b}.{name}" for b, part in enumerate(own) for name in part)}
        shift, tilt = np.asarray(tensors["group.0.shift"]), np.asarray(tensors["tilt"]) if "tilt" in tensors else None
        if set(tensors) - {"tilt"} != known:
            raise NotProved("its tensors are not those of a product.")
        if shift.shape != (1,) or str(shift.dtype) != "float64" or not np.isfinite(shift).all():
            raise NotProved("its shift is not one number.")
        if tilt is not None and (tilt.shape != (1, D) or str(tilt.dtype) != dtype or not np.isfinite(tilt).all()):
            raise NotProved("its tilt is not one of this layer.")
        factors = []
        for part, count, factor, share in zip(own, counts, found.factors, shares, strict=True):
            alone = frame | {f"group.0.{name}": tensor for name, tensor in part.items()}
            only = {"dtype": dtype, "directions": [1], "clusters": [count]}
            factors.append(AxisCheck.read(alone, only, target, factor, share, math.inf, None))
        if sum(any(np.any(cluster.G) for cluster in one.clusters) for one in factors) > 1:
            raise NotProved("the values of more than one of its factors are affine.")
        lean = np.zeros(D) if tilt is None else tilt[0].astype(np.float64)
        low, high, centre = (np.asarray(tensors[name], dtype=np.float64) for name in FRAME)
        lift = found.constant + sum((a * Fraction(float(c)) for a, c in zip(found.slopes, centre, strict=True)), Fraction(0))
        lacks = abs(float(Fraction(float(shift[0])) - lift)) * (1 + 1e-12)
        off, size = tilted(found.slopes, lean, centre, low, high)
        numbers = sum(int(np.size(tensor)) for tensor in tensors.values())
        return cls(dtype, factors, float(shift[0]), lacks, size, off, numbers)


def _shares(rows: Any, found: Product, counts: list[int]) -> list[float]:
    """The factors' shares of the error, from rows of the record that are doubted: they are hints, and prove nothing."""
    if not isinstance(rows, list) or len(rows) != len(found.factors):
        raise NotProved("its record does not have one row per factor of its target.")
    shares = []
    for row, factor, count in zip(rows, found.factors, counts, strict=True):
        if list(row["direction"]) != [str(c) for c in factor.direction] or type(row["clusters"]) is not int:
            raise NotProved("the directions of its factors are not those of its target.")
        share = row["share"]
        if row["clusters"] != count or type(share) not in (int, float) or not 0.0 < share < math.inf:
            raise NotProved("the clusters or the share of a factor are not numbers that can be used.")
        shares.append(float(share))
    return shares


def _under(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def multiplied_out(
    tensors: Mapping[str, Any], layer: Mapping[str, Any], target: Target, found: Product, rows: Any, real: bool
) -> Multiplied:
    """The bound of one product, for `real` x or for those that are numbers, and what is known of it for a literal form."""
    try:
        with balls.precision(BITS):
            stored = Stored.read(tensors, layer, target, found, rows)
            pairs = [check.computed() for check in stored.factors]
            moved = [check._sway(check.drift + (check.real if real else 0.0)) for check in stored.factors]
    except Refused as failure:
        raise NotProved(str(failure)) from None
    except OverflowError:
        raise NotProved("the factors that its record names leave float64.") from None
    lost = 100.0 * (target.box.dimension + 2) * stored.numbers * 2.0**-1074  # results below the smallest normal number
    parts = [part for part, _ in pairs]
    errors = [error + more + lost for (_, error), more in zip(pairs, moved, strict=True)]
    total = multiplied([part.size for part in parts], errors, stored)
    heard, off = _heard(parts, stored)
    size = math.prod(part.size for part in parts) + abs(stored.shift)
    return Multiplied(total * (1 + 1e-11), size + stored.tilt, math.prod(len(one.clusters) for one in stored.factors), heard, off)


def multiplied(sizes: list[float], errors: list[float], stored: Stored) -> float:
    """The bound of what is computed: the factors' errors multiplied out, rounding of the product and of the output."""
    tops = [size + error for size, error in zip(sizes, errors, strict=True)]
    if not math.prod(max(top, 1.0) for top in tops) < TOP:
        raise NotProved("its factors could not be bounded.")
    whole = math.prod(tops) + abs(stored.shift)
    total = _grown(sizes, errors) + (len(sizes) + 3) * DOUBLE * whole + stored.shift_off + stored.tilt_off
    return total + (compute_format(stored.dtype).unit + 6.0 * DOUBLE) * (whole + stored.tilt)


def _heard(parts: list[AxisParts], stored: Stored) -> tuple[Heard, float]:
    """What is known of all combinations as they are listed, and how far the list is from the product."""
    E, sizes = len(parts), [part.size for part in parts]
    blends = [part.blend for part in parts]
    offset = 1.01 * E * DOUBLE * sum(max(abs(cluster.b) for cluster in one.clusters) for one in stored.factors)
    wider, part_off = math.expm1(2.0 * offset) * (1 + 1e-9), 1.01 * (E + 1) * DOUBLE
    grown = 1.0 + wider
    blend, mass = _grown(sizes, blends), sum(part.mass for part in parts)
    weight = math.prod(part.weight + part.far for part in parts) + abs(stored.shift)
    numbers = [max(float(np.abs(a).max()) for cluster in one.clusters for a in (cluster.c, cluster.G)) for one in stored.factors]
    wide = max(max(abs(t) for t in one._t(k, one.low, one.high)) for one in stored.factors for k in range(len(one.clusters)))
    below = E * 2.0**-1074 * math.prod(max(top, 1.0) for top in numbers) * (1.0 + wide)
    off = (wider * blend + grown * (part_off * weight + below)) * (1 + 1e-11)
    far = _grown([part.size + part.weight for part in parts], [part.far for part in parts]) + 2.0 * abs(stored.shift) * mass
    counts = tuple(len(one.clusters) for one in stored.factors)
    which = np.stack(np.unravel_index(np.arange(math.prod(counts)), counts), axis=1)
    reaches = [one.reaches() for one in stored.factors]
    spans = [np.concatenate([one[side][which[:, e]] for e, one in enumerate(reaches)], axis=1) for side in (0, 1)]
    size = math.prod(sizes) + abs(stored.shift)
    return Heard(blend + off, size, (spans[0], spans[1]), far * 1.1 * grown, mass * grown), off


def unfolded(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors with every product as a group of all combinations of its factors' clusters, the last running fastest."""
    made = {name: tensor for name, tensor in tensors.items() if ".factor." not in name and not name.endswith(".shift")}
    for name in tensors:
        if name.endswith(".shift"):
            group = name.removesuffix("shift")
            count = sum(one.startswith(f"{group}factor.") and one.endswith(".matrix") for one in tensors)
            factors = [
                {one: np.asarray(a, dtype=np.float64) for one, a in _under(tensors, f"{group}factor.{b}.").items()}
                for b in range(count)
            ]
            shift = float(np.asarray(tensors[name])[0])
            made |= {f"{group}{one}": tensor for one, tensor in _combined(factors, shift).items()}
    return made


def _combined(factors: list[dict[str, Array]], shift: float) -> dict[str, Array]:
    """All combinations of clusters along one direction each, in float64."""
    tokens = math.prod(len(one["values"]) for one in factors)
    if tokens > MOST:
        raise NotProved(f"it has {tokens:,} tokens, and literal forms of more than {MOST:,} are not looked at.")
    counts = [one["shapes"].astype(int).ravel() for one in factors]
    firsts = [np.cumsum(count) - count for count in counts]
    rows = list(product(*(range(len(count)) for count in counts)))
    E = len(factors)

    def beside(name: str) -> Array:
        return np.array([[one[name][k, 0] for one, k in zip(factors, row, strict=True)] for row in rows])

    def own(name: str, row: tuple[int, ...], b: int) -> Array:
        first = firsts[b][row[b]]
        return factors[b][name][first : first + counts[b][row[b]]].ravel()

    made = {name: beside(name) for name in ("shapes", "origins", "radii", "sites.slopes")}
    made["matrix"] = np.concatenate([one["matrix"] for one in factors])
    made["sites.offsets"] = np.array([sum(one["sites.offsets"][k] for one, k in zip(factors, row, strict=True)) for row in rows])
    for e in range(E):
        for kind in ("slopes", "offsets"):
            made[f"keys.{e}.{kind}"] = np.concatenate([own(f"keys.0.{kind}", row, e) for row in rows])
    values, slopes = [], []
    for row in rows:
        c = [own("values", row, b) for b in range(E)]
        lean = [reduce(np.multiply.outer, [own("value_slopes", row, b) if b == e else c[b] for b in range(E)]) for e in range(E)]
        values.append(reduce(np.multiply.outer, c).ravel() + shift)
        slopes.append(np.stack([one.ravel() for one in lean], axis=1))
    made["values"], made["value_slopes"] = np.concatenate(values)[:, None], np.concatenate(slopes)[:, None]
    return made


def _multiplies(found: Product, target: Target) -> None:
    """The factors' product and the affine part are the target at random points: this module takes no product apart itself."""
    x = target.box.sample(120, np.random.default_rng(31))
    value = target.enclose(x, x)
    known = np.isfinite(value.lo[:, 0, 0]) & np.isfinite(value.hi[:, 0, 0])
    whole = factors_at(found, x) + _along(found.slopes, x) + Interval.exact(found.constant)
    apart = (whole.hi[:, 0] < value.lo[:, 0, 0]) | (whole.lo[:, 0] > value.hi[:, 0, 0])
    if np.any(apart) or np.count_nonzero(known & np.isfinite(whole.lo[:, 0]) & np.isfinite(whole.hi[:, 0])) < 60:
        raise NotProved("the product of its factors is not its target.")


def factors_at(found: Product, x: Array) -> Interval:
    """The factors' product at points (B, D), enclosed: (B, 1)."""
    whole = Interval.point(np.ones((len(x), 1)))
    for factor in found.factors:
        whole = whole * factor.h.enclose(_along(factor.direction, x))
    return whole


def _along(w: tuple[Fraction, ...], x: Array) -> Interval:
    """w . x at points, (B, 1)."""
    total = Interval.point(np.zeros((len(x), 1)))
    for c, column in zip(w, x.T, strict=True):
        if c:
            total = total + Interval.exact(c) * Interval.point(column[:, None])
    return total


def _grown(base: list[float], more: list[float]) -> float:
    """prod (base + more) - prod base, all of them at least 0."""
    total = 0.0
    for i, extra in enumerate(more):
        total += extra * math.prod(base[:i]) * math.prod(a + b for a, b in zip(base[i + 1 :], more[i + 1 :], strict=True))
    return total
