"""Sup-norm and L_p certificates of clusters along one coordinate z = M (x - centre), for targets h(w . x) + affine.

    |f - F| <= sum_k Omega_k |f - p_k|                                                   (a blend is no worse than its pieces)

Slopes of keys grow from cluster to cluster, so D_k = S_{k+1} - S_k is increasing with slope at least lam_k, and right of e_k,
where D_k = g_k, cluster k has a mass below e^{-g_k - lam_k (z - e_k)}; left of its interval K_k likewise.  At every z

    sum_{z in K_k} Omega_k |f_k - p_k|   <=  max_k sup_{K_k} |f_k - p_k|                 (axis_head.py; f_k the branch of cell k)
  + sum_{z in K_k} Omega_k |f - f_k|     <=  q + J W0(e^{-1-d}) / lam                    beyond a kink, where f is another branch
  + sum_{z not in K_k} Omega_k |f - p_k| <=  sum_k e^{-g_k}(V_k + |G_k| / (r_k lam_k e)),

q the distance of the branches at the break, J a bound of the slope of their difference, d = D_k there, by
sup y/(1 + e^{d + lam y}) = W0(e^{-1-d})/lam.  Breaks are isolated by intervals (target/breaks.py).  A jump is left out with a gap
about it, or costs its width in L_p.  Rounding is that of the two-level runtime, followed where a cluster answers: there logits
are small.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from maxaffine.certify.axis_head import LocalHead, sup_error
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.runtime.grouped import tree_terms
from maxaffine.runtime.two_level import SKIP
from maxaffine.target.breaks import Break, Pieces, find_pieces
from maxaffine.target.expression import Expression
from maxaffine.target.structure import Direction
from maxaffine.target.switches import moved
from maxaffine.target.tree import Graph

Array = NDArray[np.float64]
EXTENDED = float(np.finfo(np.longdouble).eps) / 2.0
U = FLOAT64.unit
UP = 1.0 + 1e-12
LEAK = 0.004  # of the error, for all clusters far from the query
RAW = 0.2  # a cell of which more than this lies beyond its branch is compared with the function itself
LOOK = 2048


@dataclass(frozen=True)
class AxisTarget:
    """h(w . x) as an expression of t = w . x; what the tilt of the layer carries is not part of it."""

    expression: Expression
    direction: Direction


@dataclass(frozen=True)
class Axis:
    """The target in z, exactly: t = w . centre + z / scale; z of the box in [low, high], computed z within `blur`."""

    f: Expression
    low: float
    high: float
    scale: Fraction
    drift: float  # of the matrix from scale w, and of sums and products: absolute
    relative: float  # of z
    real: float  # what rounding x to float64 does to z

    @classmethod
    def of(cls, layer: GroupedLayer, group: ClusterGroup, target: AxisTarget) -> Axis:
        """From the stored matrix and centre."""
        w, row = target.direction, group.matrix[0]
        lead = max(range(len(w)), key=lambda i: abs(w[i]))
        scale = Fraction(float(row[lead])) / w[lead]
        if scale <= 0:
            raise Refused("the layer's matrix does not follow the target's direction.")
        middle = sum((c * Fraction(float(m)) for c, m in zip(w, layer.centre, strict=True)), Fraction(0))
        ends = [(c * Fraction(float(a)), c * Fraction(float(b))) for c, a, b in zip(w, layer.low, layer.high, strict=True)]
        low = (sum((min(pair) for pair in ends), Fraction(0)) - middle) * scale
        high = (sum((max(pair) for pair in ends), Fraction(0)) - middle) * scale
        reach = np.maximum(layer.high - layer.centre, layer.centre - layer.low) * (1 + 4 * U)
        drift = sum(abs(float(Fraction(float(m)) - scale * c)) * r for m, c, r in zip(row, w, reach, strict=True)) * UP
        used = [i for i, m in enumerate(row) if m]
        exact = len(used) == 1 and math.frexp(abs(float(row[used[0]])))[0] == 0.5
        relative = 1.01 * U if exact else 0.0
        if not exact:
            drift += float(gamma(layer.dimension + 3, U) * (np.abs(row) @ reach)) * UP
        largest = np.maximum(np.abs(layer.low), np.abs(layer.high))
        real = float(np.abs(row) @ largest) * U * UP
        if exact and _without_rounding(layer, used[0]):
            relative_ends = 0.0
        else:
            relative_ends = relative * max(abs(float(low)), abs(float(high))) + drift
        low_float, high_float = _outward(low, high)
        return cls(
            moved(target.expression, middle, 1 / scale), low_float - relative_ends * UP, high_float + relative_ends * UP,
            scale, drift, relative, real,
        )  # fmt: skip


def _without_rounding(layer: GroupedLayer, i: int) -> bool:
    """Whether both ends of the box minus the centre are numbers: then no computed z lies beyond them."""
    centre = Fraction(float(layer.centre[i]))
    return all(Fraction(float(e[i] - layer.centre[i])) == Fraction(float(e[i])) - centre for e in (layer.low, layer.high))


def _outward(low: Fraction, high: Fraction) -> tuple[float, float]:
    a, b = float(low), float(high)
    a = a if Fraction(a) <= low else float(np.nextafter(a, -np.inf))
    return a, b if Fraction(b) >= high else float(np.nextafter(b, np.inf))


@dataclass(frozen=True)
class Hole:
    """An open interval of z about a jump that the statement leaves out."""

    low: float
    high: float


@dataclass(frozen=True)
class AxisProof:
    """Parts of the bound of one group, the largest |f|, what holes cost, and what was left out."""

    approximation: float
    leakage: float
    rounding: float
    doubt: float
    size: float
    layer_size: float
    holes: tuple[Hole, ...]
    every_x: bool  # real x; else those that are float64 numbers
    cells: int


@dataclass(frozen=True)
class HeadErrors:
    """A cluster's head where it answers: sums over its keys that rounding meets, eta the errors of logits, v the values.

    Of several clusters, the largest of each.
    """

    lost: float  # sum w eta |v - p|
    heavy: float  # sum w eta |v|
    spread: float  # sum w |v - p|
    size: float  # sum w |v|
    lean: float  # sum w |G|
    eta: float
    reach: float  # |t|
    keys: int
    largest: float  # max |v|

    @property
    def summed(self) -> float:
        """sum w (|c| + |G t|), which is what is added up: sums of c and of G are formed by themselves."""
        return self.size + 2.0 * self.reach * self.lean

    def total(self, tiny: float) -> float:
        """What rounding does to p."""
        sums = gamma(self.keys + tree_terms(self.keys) + 12, U) * self.summed + 4 * U * self.reach * self.lean
        lost = math.exp(min(2.04 * self.eta, 50.0)) * 1.02 * self.lost
        return (lost + sums + self.keys * tiny * self.largest) * UP

    @classmethod
    def worst(cls, rows: list[HeadErrors]) -> HeadErrors:
        """The largest of each."""
        return cls(*(max(column) for column in zip(*(astuple(row) for row in rows), strict=True)))


@dataclass(frozen=True)
class AxisParts:
    """What is known of clusters along one coordinate, at every z of its range, before rounding of the whole is counted."""

    worst: float  # sup |f_k - p_k| where cluster k answers
    kinks: float  # and what clusters say beyond a break
    leak: float  # sum over the others of their computed masses times (|f| + |p_k|)
    far: float  # those masses
    doubt: float  # of worst
    size: float  # sup |f|
    eta: float  # error of scores where clusters answer
    heads: HeadErrors
    rounding: float  # of a head p_k alone, the largest
    top: float  # |p_k| where it answers
    largest: float  # max |v| a little beyond
    count: int
    cells: int

    @property
    def near(self) -> float:
        """sup over z of the sum of Omega_k |f - p_k| over the clusters that answer there."""
        return self.worst + self.kinks


class _Scores:
    """Scores of the clusters in extended precision, with their errors."""

    def __init__(self, group: ClusterGroup) -> None:
        self.heads = [LocalHead.of(c) for c in group.clusters]
        self.origin = [float(c.origin[0]) for c in group.clusters]
        self.radius = [float(c.radius[0]) for c in group.clusters]
        self.A = group.site_slopes[:, 0].astype(np.float64)
        self.b = group.site_offsets.astype(np.float64)
        spans = [(h.keys.slopes.min() / r, h.keys.slopes.max() / r) for h, r in zip(self.heads, self.radius, strict=True)]
        # lower bounds of D_k'
        self.lam = [
            float((self.A[k + 1] + spans[k + 1][0]) - (self.A[k] + spans[k][1]))
            - 8 * U * float(abs(self.A[k]) + abs(self.A[k + 1]) + sum(abs(v) for v in (*spans[k], *spans[k + 1])))
            for k in range(len(self.heads) - 1)
        ]

    def inner(self, k: int) -> float:
        """The largest slope of a key of its own, in z."""
        return float(np.abs(self.heads[k].keys.slopes).max()) / self.radius[k] * UP

    def t(self, k: int, z: float) -> float:
        """The local coordinate, rounded."""
        return (z - self.origin[k]) / self.radius[k]

    def score(self, k: int, z: float) -> tuple[float, float]:
        """S_k(z) and a bound of its error, as long doubles in float clothing: differences are taken before rounding."""
        value, slack = self._score(k, z)
        return float(value), slack

    def _score(self, k: int, z: float) -> tuple[np.longdouble, float]:
        keys = self.heads[k].keys
        t = (np.longdouble(z) - np.longdouble(self.origin[k])) / np.longdouble(self.radius[k])
        logits = keys.slopes.astype(np.longdouble) * t + keys.offsets.astype(np.longdouble)
        top = logits.max()
        value = np.longdouble(self.A[k]) * np.longdouble(z) + np.longdouble(self.b[k]) + top + np.log(np.exp(logits - top).sum())
        local = float((np.abs(keys.slopes) * abs(float(t)) + np.abs(keys.offsets)).max())
        size = float(abs(self.A[k] * z) + abs(self.b[k])) + local + 8.0
        return value, size * EXTENDED * (16.0 + len(keys))

    def gap(self, k: int, z: float) -> tuple[float, float]:
        """D_k(z), enclosed: low and high."""
        right, more = self._score(k + 1, z)
        left, less = self._score(k, z)
        value, slack = float(right - left), (more + less) * UP
        slack += U * abs(value)
        return value - slack, value + slack

    def edge(self, k: int, wanted: float, low: float, high: float, side: int) -> float:
        """side 1: the first z of [low, high] from which on D_k >= wanted, surely, or `high`; side -1: the last z up to which
        D_k <= -wanted, or `low`."""

        def good(z: float) -> bool:
            below, above = self.gap(k, z)
            return below >= wanted if side > 0 else above <= -wanted

        inside, outside = (high, low) if side > 0 else (low, high)
        if not good(inside):
            return inside
        if good(outside):
            return outside
        spans = sum(float(np.ptp(self.heads[i].keys.slopes)) / self.radius[i] for i in (k, k + 1))
        fine = 0.02 * wanted / (self.lam[k] + 2.0 * spans)
        while abs(inside - outside) > fine:
            middle = inside + (outside - inside) / 2.0
            if middle in (inside, outside):
                break
            inside, outside = (middle, outside) if good(middle) else (inside, middle)
        return inside


def prove_axis(
    layer: GroupedLayer, group: ClusterGroup, target: AxisTarget, error: float, gap: float | None = None
) -> AxisProof:
    """Everything about one group of clusters on one coordinate; `gap` is the distance from jumps in units of w . x."""
    return prover(layer, group, target, error, gap).prove()


def prover(
    layer: GroupedLayer,
    group: ClusterGroup,
    target: AxisTarget,
    error: float,
    gap: float | None = None,
    coordinates: int = 1,
    offsets: Array | None = None,
) -> AxisProver:
    """The proof of one group, to be carried out.

    Where the group is one factor of a product, `coordinates` is the number of factors, whose scores are added up, and
    `offsets` (C,) bounds what its share of the product's offsets lacks.
    """
    if len(group.matrix) != 1 or group.outputs != 1:
        raise Refused("clusters are proved along one coordinate and for one output here.")
    axis = Axis.of(layer, group, target)
    found = find_pieces(axis.f, axis.low, axis.high)
    blur = axis.drift + axis.relative * max(abs(axis.low), abs(axis.high))
    holes = _holes(axis, found, error, gap, blur + axis.real)
    scores = _Scores(group)
    if not all(lam > 0 for lam in scores.lam):
        raise Refused("the keys of neighbouring clusters are not sorted by their slopes.")
    slack = np.zeros(len(group.clusters)) if offsets is None else offsets
    return AxisProver(layer, group, axis, found, holes, scores, error, coordinates, slack)


def _holes(axis: Axis, found: Pieces, error: float, gap: float | None, blur: float) -> list[Hole | None]:
    """Per break a hole, or None where the branches agree."""
    holes: list[Hole | None] = []
    for one in found.breaks:
        if one is None or one.kind == "kink" or _distance(axis.f, found, one) <= 0.02 * error:
            holes.append(None)
            continue
        if gap is None:
            raise Refused("the target jumps, and a layer is continuous.")
        reach = gap * float(axis.scale) * (1 - 1e-5) - 2.0 * blur  # the certificate names the gap to six digits
        if not reach > 0:
            raise Refused("the gap about a jump is below what float64 tells apart.")
        holes.append(Hole(one.high - reach, one.low + reach))
    return holes


def _distance(f: Expression, found: Pieces, one: Break) -> float:
    """How far the function at a break may be from the branches beside it."""
    number = found.breaks.index(one)
    here = f.enclose(Interval(np.array([[one.low]]), np.array([[one.high]])))
    worst = 0.0
    for i in (number - 1, number):
        if 0 <= i < len(found.pieces):
            there = found.pieces[i].branch.enclose(Interval(np.array([[one.low]]), np.array([[one.high]])))
            worst = max(worst, float((here - there).magnitude[0, 0]))
    return worst if math.isfinite(worst) else math.inf


@dataclass
class _Reach:
    """Cluster k answers inside [low, high]; its branch, and the piece it belongs to (None: the function itself)."""

    low: float
    high: float
    piece: int | None


class AxisProver:
    """The proof of one group of clusters along one coordinate."""

    def __init__(
        self, layer: GroupedLayer, group: ClusterGroup, axis: Axis, found: Pieces, holes: list[Hole | None], scores: _Scores,
        error: float, coordinates: int, slack: Array,
    ) -> None:  # fmt: skip
        self.layer, self.group, self.axis, self.found, self.holes = layer, group, axis, found, holes
        self.scores, self.error, self.count = scores, error, len(scores.heads)
        self.coordinates, self.slack = coordinates, slack
        self.compute = compute_format(layer.dtype)

    def parts(self) -> AxisParts:
        """Everything but the rounding of the whole and of z."""
        size = self._size()
        reaches, leak, far = self._reaches(size)
        worst = doubt = 0.0
        cells = 0
        heads: list[HeadErrors] = []
        eta = 0.0
        for k, reach in enumerate(reaches):
            for low, high in self._without_holes(reach.low, reach.high):
                branch = self.axis.f if reach.piece is None else self.found.pieces[reach.piece].branch
                found = sup_error(branch, self.scores.heads[k], low, high, 0.97 * self.error)
                worst, doubt, cells = max(worst, found.bound), max(doubt, found.doubt), cells + found.cells
            if reach.low <= reach.high:
                heads.append(self._rounding(k, reach))
                eta = max(eta, self._score_error(k, reach.low), self._score_error(k, reach.high))
        eta += U * (-FLOAT64.exp_floor + FLOAT64.exp_ulps + 8.0)
        if not (eta < 1.0 and far <= 0.25):
            raise Refused(f"the scores of the clusters are wrong by up to {eta:.2g} in {self.layer.dtype}.")
        top = max(self._top(k, r) for k, r in enumerate(reaches) if r.low <= r.high)
        return AxisParts(
            worst, self._kinks(reaches), leak, far, doubt, size, eta, HeadErrors.worst(heads),
            max(head.total(self.compute.tiny) for head in heads), top, max(h.largest(2.0) for h in self.scores.heads),
            self.count, cells,
        )  # fmt: skip

    def prove(self) -> AxisProof:
        """The bound of this group alone."""
        one = self.parts()
        blend = one.near + one.leak
        rounding = math.exp(2.0 * one.eta) * (2.0 * math.expm1(one.eta) * blend + one.rounding)
        rounding += 2.0 * one.far * one.near  # masses add up to one without those far away
        rounding += gamma(tree_terms(self.count) + self.count + 8, U) * (one.size + blend)
        rounding += self.count * (SKIP + 4.0 * FLOAT64.tiny) * one.largest
        real = self.moved(True)
        every = blend + rounding + real <= 0.99 * self.error
        moved_by = real if every else self.moved(False)
        holes = tuple(hole for hole in self.holes if hole is not None)
        return AxisProof(
            (one.near - one.doubt) * UP, one.leak, (rounding + moved_by) * UP, one.doubt, one.size,
            max(one.size + blend, one.top + one.leak) * UP, holes, every, one.cells,
        )  # fmt: skip

    def moved(self, real: bool) -> float:
        """What the rounding of z does to f, for `real` x or for those that are numbers."""
        return self._modulus(self.axis.drift + (self.axis.real if real else 0.0))

    # -- sizes

    def _size(self) -> float:
        """sup |f|: its branches by intervals, and what it may be at breaks."""
        breaks = [one for one in self.found.breaks if one is not None]
        return max(
            *(self._largest(p.branch, p.low, p.high, LOOK) for p in self.found.pieces),
            *(self._largest(self.axis.f, one.low, one.high, 1) for one in breaks), 0.0,
        )  # fmt: skip

    def _largest(self, f: Expression, low: float, high: float, look: int) -> float:
        edges = np.linspace(low, high, look + 1)
        edges[0], edges[-1] = low, high
        todo_low, todo_high = edges[:-1], edges[1:]
        top = 0.0
        for _ in range(60):
            found = f.enclose(Interval(todo_low[:, None], todo_high[:, None]))
            good = np.isfinite(found.lo[:, 0]) & np.isfinite(found.hi[:, 0])
            if good.any():
                top = max(top, float(found.magnitude[good, 0].max()))
            if good.all():
                return top * UP
            first, last = todo_low[~good], todo_high[~good]
            if len(first) > 4 * LOOK:
                break
            middle = first + (last - first) / 2.0
            todo_low, todo_high = np.concatenate([first, middle]), np.concatenate([middle, last])
        raise Refused("the target could not be enclosed on its axis.")

    def _top(self, k: int, reach: _Reach) -> float:
        """A bound of |p_k| where it answers."""
        return self.scores.heads[k].size(*self._local(k, reach.low, reach.high))

    # -- where clusters answer

    def _reaches(self, size: float) -> tuple[list[_Reach], float, float]:
        """K_k for every cluster, what all clusters together say outside of them, and their mass there."""
        reaches, leak, mass = [], 0.0, 0.0
        share = LEAK * self.error / self.count
        c_local = 3.1 * self.compute.unit + 8 * U
        for k, head in enumerate(self.scores.heads):
            low, high = self.axis.low, self.axis.high
            value = size + head.largest(1.2)
            wanted = math.log(4.0 * value / share + 1.0)
            sides = []
            for side, number in ((-1, k - 1), (1, k)):
                if not 0 <= number < self.count - 1:
                    continue
                at = self.scores.edge(number, wanted, self.axis.low, self.axis.high, side)
                edge = self.scores.gap(number, at)
                lead = edge[0] if side > 0 else -edge[1]
                if lead >= wanted:
                    sides.append((number, at, lead))
                    low, high = (max(low, at), high) if side < 0 else (low, min(high, at))
            for number, at, lead in sides:
                lam = self.scores.lam[number]
                # errors of the computed scores of both clusters at the edge, and how they grow beyond it
                slip = self._score_error(number, at) + self._score_error(number + 1, at)
                sites = (8 + 2 * self.coordinates) * U
                steep = sum(sites * abs(float(self.scores.A[i])) + c_local * self.scores.inner(i) for i in (number, number + 1))
                rest = lam - 2.0 * steep
                if rest <= 0.1 * lam or slip > 0.5 * lead:
                    raise Refused(f"a cluster's lead over its neighbour is lost to rounding in {self.layer.dtype}.")
                t = abs(self.scores.t(k, at)) * UP
                lean = float(np.abs(head.slopes).max())
                far = math.exp(-(lead - slip)) * (size + head.largest(t) + lean / (self.scores.radius[k] * rest * math.e))
                leak += 1.2 * far  # masses are normalised with errors of some percent at most
                mass += 1.2 * math.exp(-(lead - slip))
            reaches.append(_Reach(low, high, None))
        for k, reach in enumerate(reaches):
            reach.piece = self._piece(k, reach, reaches)
        return reaches, leak, mass

    def _piece(self, k: int, reach: _Reach, reaches: list[_Reach]) -> int | None:
        """The piece whose branch the cluster follows; None where it lies across a break."""
        low = reach.low if k == 0 else (reach.low + max(reach.low, reaches[k - 1].high)) / 2.0
        high = reach.high if k == self.count - 1 else (reach.high + min(reach.high, reaches[k + 1].low)) / 2.0
        if not low < high:
            low, high = reach.low, reach.high
        shares = [min(high, p.high) - max(low, p.low) for p in self.found.pieces]
        best = int(np.argmax(shares))
        return best if shares[best] >= (1.0 - RAW) * (high - low) or len(shares) == 1 else None

    def _without_holes(self, low: float, high: float) -> list[tuple[float, float]]:
        """What is left of an interval outside the holes."""
        parts = [(low, high)] if low < high else []
        for hole in self.holes:
            if hole is not None:
                cut = [((a, min(b, hole.low)), (max(a, hole.high), b)) for a, b in parts]
                parts = [pair for both in cut for pair in both if pair[0] < pair[1]]
        return parts

    def _local(self, k: int, low: float, high: float) -> tuple[float, float]:
        origin, radius = Fraction(self.scores.origin[k]), Fraction(self.scores.radius[k])
        return _outward((Fraction(low) - origin) / radius, (Fraction(high) - origin) / radius)

    # -- beyond a break

    def _kinks(self, reaches: list[_Reach]) -> float:
        """The largest over the breaks, and over their two sides, of what clusters of the other side say there."""
        worst = 0.0
        before = (0.0, -math.inf)  # what clusters left of the last break say on this side of it, and up to where
        for number, one in enumerate(self.found.breaks):
            sides, reached, nearest = [0.0, 0.0], -math.inf, math.inf
            for k, reach in enumerate(reaches if one is not None else []):
                if one is None or reach.piece is None or not reach.low < reach.high:
                    continue
                if reach.piece < number and reach.high > one.low:
                    sides[1] += self._wrong(k, reach, number, one, 1)
                    reached = max(reached, reach.high)
                if reach.piece >= number and reach.low < one.high:
                    sides[0] += self._wrong(k, reach, number, one, -1)
                    nearest = min(nearest, reach.low)
            # On the piece between two breaks clusters of either side may answer at the same z.
            between = before[0] + sides[0] if before[1] >= nearest else 0.0
            worst = max(worst, *sides, between)
            before = (sides[1], reached)
        return worst

    def _wrong(self, k: int, reach: _Reach, number: int, one: Break, side: int) -> float:
        """sup of Omega_k |f - f_k| beyond the break, on the side where f is another branch (side 1: to the right of it)."""
        assert reach.piece is not None
        hole = self.holes[number]
        own = self.found.pieces[reach.piece].branch
        start = one.low if side > 0 else one.high
        end = reach.high if side > 0 else reach.low
        if hole is not None:
            start = max(start, hole.high) if side > 0 else min(start, hole.low)
            if (end <= start) if side > 0 else (end >= start):
                return 0.0
        there = reach.piece + side
        if not 0 <= there < len(self.found.pieces):  # beyond a break at the end of the box
            return self._apart(self.axis.f, own, min(one.low, end), max(one.high, end)) if hole is None else 0.0
        neighbour = self.found.pieces[there]
        if abs(there - reach.piece) != 1 or (end > neighbour.high if side > 0 else end < neighbour.low):
            raise Refused("breaks of the target lie closer together than its clusters can tell.")
        link = k if side > 0 else k - 1
        if not 0 <= link < self.count - 1:
            raise Refused("the target breaks where no cluster hands over.")
        edge = self.scores.gap(link, start)
        lead = edge[0] if side > 0 else -edge[1]
        low, high = min(start, end), max(start, end)
        if hole is not None:
            return math.exp(-max(lead, 0.0)) * self._apart(neighbour.branch, own, low, high) * UP
        near = self._apart(self.axis.f, own, one.low, one.high)
        difference = _difference(neighbour.branch, own)
        inner = one.high if side > 0 else one.low
        q = self._magnitude(difference, inner, inner)
        zone = (min(inner, end), max(inner, end))
        steep = self._magnitude(difference.gradient(), *zone, pieces=16)
        crude = self._magnitude(difference, *zone, pieces=16)
        lam = self.scores.lam[link]
        kink = steep * _lambert(math.exp(-1.0 - lead)) / lam if -1.0 - lead < 600.0 else math.inf
        return (max(near, q + min(kink, crude)) if math.isfinite(near) else math.inf) * UP

    def _apart(self, f: Expression, g: Expression, low: float, high: float) -> float:
        box = Interval(np.array([[low]]), np.array([[high]]))
        value = float((f.enclose(box) - g.enclose(box)).magnitude[0, 0])
        return value if math.isfinite(value) else math.inf

    def _magnitude(self, f: Expression, low: float, high: float, pieces: int = 1) -> float:
        edges = np.linspace(low, high, pieces + 1)
        edges[0], edges[-1] = low, high
        value = f.enclose(Interval(edges[:-1, None], edges[1:, None])).magnitude
        return float(value.max()) if np.isfinite(value).all() else math.inf

    # -- rounding

    def _score_error(self, k: int, z: float) -> float:
        """|computed S_k - S_k| at z in the two-level runtime."""
        keys = self.scores.heads[k].keys
        t = abs(self.scores.t(k, z)) * UP
        size = float((np.abs(keys.slopes) * t + np.abs(keys.offsets)).max())
        u = self.compute.unit
        logit = 1.01 * (u * (3.0 * float(np.abs(keys.slopes).max()) * t + size) + 4 * U * float(np.abs(keys.slopes).max()) * t)
        exp = 1.01 * u * (min(2.0 * size, -self.compute.exp_floor) + self.compute.exp_ulps + 3.0) if len(keys) > 1 else 0.0
        site = abs(float(self.scores.A[k]) * z) + abs(float(self.scores.b[k]))
        # one product and two sums per coordinate of the size of the site's score; the rest is of the size of the local logits
        sums = (2.0 * self.coordinates + 1.1) * site + (6.0 + 2.0 * self.coordinates) * size
        return (logit + exp + U * (sums + 8.0 * tree_terms(len(keys)) + 64.0) + float(self.slack[k])) * UP

    def _rounding(self, k: int, reach: _Reach) -> HeadErrors:
        """What rounding meets in p_k where the cluster answers."""
        head, keys = self.scores.heads[k], self.scores.heads[k].keys
        first, last = self._local(k, reach.low, reach.high)
        u = self.compute.unit
        pieces = int(np.clip(30.0 * float(np.ptp(keys.slopes)) * (last - first), 16, 2000))
        edges = np.linspace(first, last, pieces + 1)
        t, half = (edges[:-1] + edges[1:]) / 2.0, (last - first) / pieces / 2.0 * UP + 4 * U * max(abs(first), abs(last))
        logits = np.multiply.outer(t, keys.slopes) + keys.offsets
        top = logits.max(axis=1, keepdims=True)
        w = np.exp(logits - top)
        w /= w.sum(axis=1, keepdims=True)
        grow = math.exp(min(2.0 * float(np.ptp(keys.slopes)) * half, 50.0))
        sizes = np.multiply.outer(np.abs(t) + half, np.abs(keys.slopes))
        lag = top - logits + 2.0 * float(np.ptp(keys.slopes)) * half
        eta = u * (4.0 * sizes + np.abs(keys.offsets) + lag + self.compute.exp_ulps + 4.0) + 4 * U * sizes
        v = head.values + np.multiply.outer(t, head.slopes)
        p = (w * v).sum(axis=1, keepdims=True)
        drift = head.steepness(first, last) * half + np.abs(head.slopes) * half
        apart, sizes_of_v = np.abs(v - p) + drift, np.abs(v) + np.abs(head.slopes) * half
        reach_t = max(abs(first), abs(last))

        def most(part: Array) -> float:
            return float((w * part).sum(axis=1).max()) * grow * UP

        return HeadErrors(
            most(eta * apart), most(eta * sizes_of_v), most(apart), most(sizes_of_v), most(np.abs(head.slopes)), float(eta.max()),
            reach_t, len(keys), head.largest(reach_t),
        )  # fmt: skip

    def _modulus(self, d: float) -> float:
        """sup |f(z) - f(z')| over |z - z'| <= d + relative |z|, both outside the holes: on one piece, or across a break."""
        if d == self.axis.relative == 0.0:
            return 0.0
        parts = []
        for i, piece in enumerate(self.found.pieces):
            before, after = self.holes[i], self.holes[i + 1]
            low = piece.low if before is None else max(piece.low, before.high - 2.0 * d)
            high = piece.high if after is None else min(piece.high, after.low + 2.0 * d)
            parts.append(self._branch_modulus(piece.branch, low, high, d) if low < high else 0.0)
        worst = max(parts)
        for i, one in enumerate(self.found.breaks):
            if one is None or self.holes[i] is not None:
                continue
            beside = [parts[n] for n in (i - 1, i) if 0 <= n < len(parts)]
            apart = sum(beside) + 2.0 * _distance(self.axis.f, self.found, one)
            # two points across a break are both next to it
            far = (d + self.axis.relative * max(abs(one.low), abs(one.high))) * 1.01
            first, last = max(one.low - far, self.axis.low), min(one.high + far, self.axis.high)
            found = self.axis.f.enclose(Interval(np.array([[first]]), np.array([[last]])))
            width = float(found.hi[0, 0] - found.lo[0, 0])
            worst = max(worst, min(apart, width if math.isfinite(width) else math.inf))
        return worst

    def _branch_modulus(self, f: Expression, first: float, last: float, d: float) -> float:
        relative, slope = self.axis.relative, f.gradient()
        tolerance = 0.002 * self.error
        edges = np.linspace(first, last, 65)
        edges[0], edges[-1] = first, last
        low, high = edges[:-1], edges[1:]
        worst = 0.0
        while len(low):
            far = (d + relative * np.maximum(np.abs(low), np.abs(high))) * UP
            box = Interval(np.maximum(low - far, first)[:, None], np.minimum(high + far, last)[:, None])
            steep = slope.enclose(box).magnitude[:, 0]
            found = f.enclose(box)
            width = (found.hi - found.lo)[:, 0]
            value = np.fmin(np.where(np.isfinite(steep), steep * far, np.inf), np.where(np.isfinite(width), width, np.inf)) * UP
            middle = low + (high - low) / 2.0
            done = (value <= tolerance) | (high - low <= far) | (middle <= low) | (middle >= high)
            worst = max([worst, *(float(v) for v in value[done])])
            low, high, middle = low[~done], high[~done], middle[~done]
            if len(low) > 20_000:
                return math.inf
            low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        return worst


def _difference(f: Expression, g: Expression) -> Expression:
    """f - g in one graph, so that what they share cancels."""
    graph = Graph(f.nodes)
    copies: list[int] = []
    for node in g.nodes:
        copies.append(graph.make(node.op, tuple(copies[a] for a in node.args), node.data))
    return Expression._of("a difference of branches", f.names, graph, (graph.subtract(f.outputs[0], copies[g.outputs[0]]),))


def _lambert(x: float) -> float:
    """An upper bound of W0(x), x >= 0."""
    w = math.log1p(x)
    for _ in range(60):
        step = (w * math.exp(w) - x) / (math.exp(w) * (w + 1.0))
        w -= step
    return max(w, 0.0) * (1 + 1e-9) + 1e-300
