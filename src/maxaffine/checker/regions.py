"""Heads on regions re-proved: the target's planes, regions and branches read off its expression again.

Every region's head is compared with its branch on the whole box (checker/spectral.py).  Branches on both sides of a plane differ
by at most K |h|, and by twice that the scores differ in units of lam |h|, which bounds what the softmax over regions mixes.
The file's steepness and signs are hints: the stored scores are compared with what they say, in exact arithmetic.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.literal_groups import Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.spectral import Axis, _Head
from maxaffine.checker.stored import NotProved, stated_gap, stated_scope
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.core.scope import Scope
from maxaffine.expression.expression import Expression
from maxaffine.structure.planes import Arrangement, NotRegions, arrangement
from maxaffine.target.target import Target

Array = NDArray[np.float64]

DOUBLE = 2.0**-53
THIRDS = {1: 81, 2: 18, 3: 8}


def check_regions(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target|, outside the gap that the certificate's scope names where the target jumps."""
    if target.expression is None or target.n_out != 1 or target.d_out != 1:
        raise NotProved("its target is not one that regions are proved for.")
    try:
        found = arrangement(target.expression, target.box)
    except NotRegions as failure:
        raise NotProved(f"its target does not switch on hyperplanes alone: {failure}.") from None
    _same(found, target)
    plan = record["plan"]
    signs = [tuple(int(s) for s in row) for row in plan["signs"]]
    if sorted(signs) != sorted(found.regions) or len(set(signs)) != len(signs):
        raise NotProved("its regions are not those of its target.")
    lam = [Fraction(float(v)) for v in plan["steepness"]]
    if len(lam) != len(found.planes) or min(lam) <= 0:
        raise NotProved("its planes are not those of its target.")
    jumps = sorted({one.plane for one in found.crossings if one.jumps})
    norm = math.inf if record["norm"] == "inf" else float(record["norm"])
    if not norm >= 1.0 or (norm > 64.0 and math.isfinite(norm)):
        raise NotProved("its norm is not that of L_p with p from 1 to 64.")
    gap = _gap(record, jumps) if math.isinf(norm) else 0.0
    if math.isfinite(norm) and stated_scope(record["certificate"]) != Scope("integral"):
        raise NotProved("its certificate does not speak about the integral over the box.")
    if not gap < float(target.box.width.max()):
        raise NotProved("the gap about the jumps leaves nothing of the box to speak of.")
    layer = _Layer.read(tensors, record["layer"], target, len(signs))
    drift = layer.drift(found, signs, lam)
    worst = rounding = size = 0.0
    volume = float(np.prod(target.box.width)) * (1 + 1e-12)
    if math.isfinite(norm):
        error = error / volume ** (1.0 / norm)
    proved: dict[tuple[str, bytes], tuple[float, float]] = {}
    for k, row in enumerate(signs):
        branch = found.branch(row)
        key = (branch.describe(branch.outputs[0]), layer.values[k].tobytes() + layer.slopes[k].tobytes())
        if key not in proved:
            head = _Head(branch, Interval.point(layer.centre), layer.radius, layer.axes, layer.values[k], layer.slopes[k])
            proved[key] = (head.supremum(error), head.affine_rounding(layer.query, layer.unit, 0.0, layer.tokens, False)[0])
        worst, rounding = max(worst, proved[key][0]), max(rounding, proved[key][1])
        size = max(size, _largest(branch, target))
    mixed = 0.0
    for i, steep in enumerate(_slopes(found, target)):
        if i not in jumps:
            mixed = max(mixed, steep / (2.0 * float(lam[i])) * (1 + 1e-12))
    if math.isfinite(norm):
        pointwise = worst + rounding + mixed * (_blend(len(signs)) + 2.0 * (drift + layer.score_error()))
        planes = [(found.planes[i], float(lam[i]), [row[i] for row in signs]) for i in jumps]

        def integrated(form: Form, claimed: float) -> float:
            """The same integral, with the errors of the literal form's scores and heads."""
            frame = Frame.read(tensors, record["layer"], form)
            column = cluster_column(tensors, 0, Heard(0.0, size + worst), frame)
            off = drift + column.eta
            most = worst + mixed * (_blend(len(signs)) + 2.0 * off) + literal_bound(frame, 0.0, [column])
            return _integrated(layer, most, size, planes, off, norm, volume)[0]

        return Proved(*_integrated(layer, pointwise, size, planes, drift + layer.score_error(), norm, volume), integrated)
    blend = mixed * (_blend(len(signs)) + 2.0 * drift)
    for i in jumps:
        length = math.sqrt(float(sum(c * c for c in found.planes[i][:-1]))) * (1 - 1e-14)
        lead = max(min(2.0 * float(lam[i]) * gap * length - 2.0 * drift, 700.0), -700.0)
        blend += len(signs) * math.exp(-lead) * (2.0 * size + worst)
    total = worst + blend
    eta = layer.score_error()
    if not (math.isfinite(total) and eta < 1.0):
        raise NotProved("a branch of its target could not be enclosed, or its scores are too steep for the dtype.")
    heard = Heard(total, size)
    total += math.exp(2.0 * eta) * (2.0 * math.expm1(eta) * total + rounding)
    ends = layer.largest()
    total += (len(signs) * 4.0 + 60.0) * DOUBLE * ends + len(signs) * 1e-30 * ends
    bound = (total + layer.unit * 1.01 * (size + total)) * (1 + 1e-12)

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.read(tensors, record["layer"], form)
        return literal_bound(frame, bound, [cluster_column(tensors, 0, heard, frame)])

    return Proved(bound, "branches on the whole box, planes between them", literal)


def _integrated(
    layer: "_Layer", pointwise: float, size: float, planes: list[tuple[Any, float, list[int]]], drift: float, p: float,
    volume: float,
) -> tuple[float, str]:  # fmt: skip
    """The L_p norm: a pointwise bound off the planes, and on slabs about every jump the mass beyond it.

    At distance |h| the regions beyond a plane have masses of at most C e^{2 d - 2 lam |h|}, and 1, in all.  The part of the box
    with |h| <= tau is at most 2 tau / max |a_j| w_j of it: upper sums over slabs that widen by a twentieth each.
    """
    if not (math.isfinite(pointwise + size) and drift < 1.0):
        raise NotProved("a branch of its target could not be enclosed, or its scores are too steep for the dtype.")
    ends = layer.largest()
    pointwise += (len(planes) + len(layer.values) * 4.0 + 60.0) * DOUBLE * ends + len(layer.values) * 1e-30 * ends
    pointwise += layer.unit * 1.01 * (size + pointwise)
    total = pointwise * volume ** (1.0 / p)
    for plane, lam, sides in planes:
        across = max(abs(float(c)) * float(w) for c, w in zip(plane[:-1], layer.high - layer.low, strict=True)) * (1 - 1e-12)
        beyond = max(sides.count(1), sides.count(-1))
        first = (2.0 * drift + math.log(beyond) + 1e-9) / (2.0 * lam)  # nearer, all of the mass may be beyond
        edges = np.concatenate([[0.0], (first + 1e-3 / lam / p) * 1.05 ** np.arange(400)])
        share = np.minimum(2.0 * edges / across, 1.0)  # of the box within |h| <= tau, at most
        mass = np.minimum(1.0, beyond * np.exp(2.0 * drift - 2.0 * lam * edges)) ** p
        integral = float((mass[:-1] * np.diff(share)).sum() + mass[-1] * (1.0 - share[-1])) * volume
        total += 2.0 * size * (integral * (1 + 1e-9)) ** (1.0 / p)
    return total * (1 + 1e-9), "branches on the whole box, slabs about the planes of jumps"


def _same(found: Arrangement, target: Target) -> None:
    """The branches are the target at random points of their regions: the branches are not read off by code of this module."""
    assert target.expression is not None
    x = target.box.sample(160, np.random.default_rng(23))
    by_region: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(x):
        point = [Fraction(float(c)) for c in row]
        heights = [plane[-1] + sum((a * c for a, c in zip(plane, point, strict=False)), Fraction(0)) for plane in found.planes]
        by_region.setdefault(tuple(1 if h > 0 else -1 if h < 0 else 0 for h in heights), []).append(i)
    for signs, rows in by_region.items():
        if 0 in signs:
            continue
        if signs not in found.regions:
            raise NotProved("a region of the target is missing.")
        points = Interval(x[rows], x[rows])
        one, two = target.expression.enclose(points), found.branch(signs).enclose(points)
        if np.any(one.lo > two.hi) or np.any(two.lo > one.hi):
            raise NotProved("a branch of the target is not the target.")


def _gap(record: Mapping[str, Any], jumps: list[int]) -> float:
    """The gap about jumps that the certificate excludes; where the target does not jump it must exclude nothing."""
    stated = stated_scope(record["certificate"])
    if not Scope(gap=stated.gap if jumps else None, measure="distance" if jumps else None, jumps=len(jumps)).covers(stated):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")
    if not jumps:
        return 0.0
    gap = stated_gap(record)
    if gap is None:
        raise NotProved("its target jumps, and its certificate excludes no gap about that.")
    return gap * (1 - 1e-5)


class _Layer:
    """The stored numbers: z = x - centre, t = z / radius, the same keys in every cluster."""

    def __init__(self, low: Array, high: Array, centre: Array, radius: Array, axes: tuple[Axis, ...], dtype: str) -> None:
        self.low, self.high, self.centre, self.radius, self.axes, self.dtype = low, high, centre, radius, axes, dtype
        self.unit = compute_format(dtype).unit
        self.values: list[Array] = []
        self.slopes: list[Array] = []
        self.sites = np.zeros((0, 0))
        self.tokens = 0
        self.reach = np.maximum(high - centre, centre - low) * (1 + 1e-15)
        largest = np.maximum(np.abs(low), np.abs(high))
        moved = DOUBLE * (largest + 8.0 * self.reach) * 1.01 / radius  # of t, in float64
        self.query = moved + (0.0 if dtype == "float64" else 1.01 * self.unit)  # t is rounded to the dtype that computes

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target, count: int) -> "_Layer":
        D, dtype = target.box.dimension, str(description["dtype"])
        if dtype not in DTYPES or list(description["directions"]) != [D] or list(description["clusters"]) != [count]:
            raise NotProved("its groups or clusters are not those of its target.")
        part = {name.removeprefix("group.0."): np.asarray(tensor) for name, tensor in tensors.items()}
        keys = {f"keys.{e}.{name}" for e in range(D) for name in ("slopes", "offsets")}
        stored = {"sites.slopes", "sites.offsets", "values", "value_slopes"} | keys
        exact = {"matrix", "shapes", "origins", "radii", "box.low", "box.high", "coordinates.centre"}
        if set(part) != stored | exact:
            raise NotProved("its tensors are not those of a layer on regions.")
        if any(str(part[name].dtype) != (dtype if name in stored else "float64") for name in part):
            raise NotProved("a tensor is not in the dtype that the record states.")
        part = {name: tensor.astype(np.float64) for name, tensor in part.items()}
        if not all(np.isfinite(tensor).all() for tensor in part.values()):
            raise NotProved("a tensor holds numbers that are not finite.")
        low, high, centre = part["box.low"], part["box.high"], part["coordinates.centre"]
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
            raise NotProved("the layer and the target speak about different boxes.")
        shapes, radii = part["shapes"], part["radii"]
        plain = np.array_equal(part["matrix"], np.eye(D)) and shapes.shape == radii.shape == part["origins"].shape == (count, D)
        if not plain or np.any(part["origins"]) or np.any(shapes != shapes[0]) or np.any(radii != radii[0]):
            raise NotProved("its regions do not share their coordinates and keys.")
        shape = tuple(int(n) for n in shapes[0])
        axes = []
        for e, n in enumerate(shape):
            a, b = part[f"keys.{e}.slopes"], part[f"keys.{e}.offsets"]
            if a.shape != (count * n,) or b.shape != a.shape or n < 1:
                raise NotProved("its keys are not as many as its shapes say.")
            a, b = a.reshape(count, n), b.reshape(count, n)
            if np.any(a != a[0]) or np.any(b != b[0]):
                raise NotProved("its regions do not share their keys.")
            axes.append(Axis(a[0], b[0]))
        if not np.all((centre >= low) & (centre <= high)) or not np.all(radii[0] > 0):
            raise NotProved("its centre lies outside the box, or a radius is not positive.")
        made = cls(low, high, centre, radii[0], tuple(axes), dtype)
        if np.any(made.reach / radii[0] * (1 + 2.0**-50) > 1.0):
            raise NotProved("its coordinates leave [-1, 1].")
        N = math.prod(shape)
        if part["values"].shape != (count * N, 1) or part["value_slopes"].shape != (count * N, 1, D):
            raise NotProved("its values are not as many as its shapes say.")
        made.values = list(part["values"].reshape(count, *shape, 1))
        made.slopes = list(part["value_slopes"].reshape(count, *shape, D))
        made.sites = np.concatenate([part["sites.slopes"].reshape(count, D), part["sites.offsets"].reshape(count, 1)], axis=1)
        made.tokens = count * N
        return made

    def drift(self, found: Arrangement, signs: list[tuple[int, ...]], lam: list[Fraction]) -> float:
        """The largest difference on the box of a stored score and sum lam_i s_i h_i, exactly."""
        worst = Fraction(0)
        centre = [Fraction(float(c)) for c in self.centre]
        reach = [max(Fraction(float(b)) - c, c - Fraction(float(a))) for a, b, c in zip(self.low, self.high, centre, strict=True)]
        for row, site in zip(signs, self.sites, strict=True):
            away = [-Fraction(float(v)) for v in site]
            for sign, steep, plane in zip(row, lam, found.planes, strict=True):
                for i, c in enumerate(plane[:-1]):
                    away[i] += sign * steep * c
                away[-1] += sign * steep * (plane[-1] + sum((a * c for a, c in zip(plane, centre, strict=False)), Fraction(0)))
            worst = max(worst, abs(away[-1]) + sum((abs(a) * r for a, r in zip(away, reach, strict=False)), Fraction(0)))
        return float(worst) * (1 + 1e-15)

    def score_error(self) -> float:
        """Of a computed score: z, the site's sums, and the log-sum-exp of the keys, per region."""
        D = len(self.reach)
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        moved = DOUBLE * 1.01 * (largest + 2.0 * self.reach)
        site = np.abs(self.sites[:, :-1])
        total = float((site @ moved).max()) + (D + 6.0) * DOUBLE * float((site @ self.reach + np.abs(self.sites[:, -1])).max())
        for axis, query in zip(self.axes, self.query, strict=True):
            logit = float(np.abs(axis.a).max()) * (1.0 + float(query)) + float(np.abs(axis.b).max())
            total += float(np.abs(axis.a).max()) * float(query) + self.unit * (4.0 * logit + 12.0)
            total += 40.0 * len(axis.a) * DOUBLE + (D + 8.0) * 4.0 * DOUBLE * (logit + math.log(len(axis.a) + 1.0))
        return total + 1000.0 * DOUBLE

    def largest(self) -> float:
        """The largest |value|."""
        pairs = zip(self.values, self.slopes, strict=True)
        return max(float((np.abs(c[..., 0]) + np.abs(G).sum(axis=-1)).max()) for c, G in pairs)


def _parts(low: Array, high: Array, count: int) -> Interval:
    cuts = [np.linspace(a, b, count + 1) for a, b in zip(low, high, strict=True)]
    lows = np.array(list(product(*(c[:-1] for c in cuts))))
    highs = np.array(list(product(*(c[1:] for c in cuts))))
    return Interval(lows, highs)


def _largest(branch: Expression, target: Target) -> float:
    box = target.box
    return float(branch.enclose(_parts(box.low, box.high, THIRDS.get(box.dimension, 3))).magnitude.max())


def _slopes(found: Arrangement, target: Target) -> list[float]:
    """K per plane: by how much times |h| the two sides differ, one switch after the other, whatever the others choose."""
    box = target.box
    total = [0.0] * len(found.planes)
    whole = Interval(np.append(box.low, 0.0)[None], np.append(box.high, 0.0)[None])
    for one in found.crossings:
        if one.jumps:
            continue
        steep = 0.0
        for choices in found.others(one):
            sides = found.sides(one, choices).enclose(whole)
            a, b = float(sides.lo.min()), float(sides.hi.max())
            if one.switch.op == "abs":
                b = max(abs(a), abs(b))
                a = -b
            if not math.isfinite(b - a):
                raise NotProved("the arguments of a switch could not be enclosed.")
            D = box.dimension
            parts = _parts(np.append(box.low, a), np.append(box.high, b), THIRDS.get(D, 3))
            steep = max(steep, float(found.opened(one, choices).gradient().output(D).enclose(parts).magnitude.max()))
        total[one.plane] += steep * float(abs(one.ratio)) * (2.0 if one.switch.op == "abs" else 1.0) * (1 + 1e-12)
    return total


def _blend(count: int) -> float:
    """An upper bound of max_z (C-1) z e^-z / (1 + (C-1) e^-z): the root of w e^w = (C-1)/e, bracketed."""
    low, high = 0.0, 1.0 + math.log(count + 1.0)
    for _ in range(120):
        middle = (low + high) / 2.0
        low, high = (middle, high) if middle * math.exp(middle + 1.0) < count - 1.0 else (low, middle)
    return high * (1 + 1e-12)
