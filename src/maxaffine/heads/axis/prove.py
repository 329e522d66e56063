"""Sup-norm and L_p certificates of clusters along one coordinate z = M (x - centre), for targets h(w . x) + affine.

    |f - F| <= sum_k Omega_k |f - p_k|                                                   (a blend is no worse than its pieces)

Slopes of keys grow from cluster to cluster, so D_k = S_{k+1} - S_k is increasing with slope at least lam_k, and right of e_k,
where D_k = g_k, cluster k has a mass below e^{-g_k - lam_k (z - e_k)}; left of its interval K_k likewise.  At every z

    sum_{z in K_k} Omega_k |f_k - p_k|   <=  max_k sup_{K_k} |f_k - p_k|                 (cell_error.py; f_k the branch of cell k)
  + sum_{z in K_k} Omega_k |f - f_k|     <=  q + J W0(e^{-1-d}) / lam                    beyond a kink, where f is another branch
  + sum_{z not in K_k} Omega_k |f - p_k| <=  sum_k e^{-g_k}(V_k + |G_k| / (r_k lam_k e)),

q the distance of the branches at the break, J a bound of the slope of their difference, d = D_k there, by
sup y/(1 + e^{d + lam y}) = W0(e^{-1-d})/lam.  Breaks are isolated by intervals (structure/breaks.py).  A jump is left out with a
gap about it, or costs its width in L_p.  Rounding is that of the two-level runtime, followed where a cluster answers: there
logits are small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, compute_format, gamma
from maxaffine.expression.expression import Expression
from maxaffine.heads.axis import line
from maxaffine.heads.axis.cell_error import Scores, sup_error
from maxaffine.heads.axis.line import UP, Axis, AxisParts, AxisProof, AxisTarget, HeadErrors, Hole, U, outward
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.proofs.literal_form import ProvedBlend
from maxaffine.proofs.soft_gap import soft_gap
from maxaffine.runtime.grouped import tree_terms
from maxaffine.runtime.two_level import SKIP
from maxaffine.structure.breaks import Break, Pieces, find_pieces

LEAK = 0.004  # of the error, for all clusters far from the query
RAW = 0.2  # a cell of which more than this lies beyond its branch is compared with the function itself
INTERVALS = 2048


def prove_axis(layer: GroupedLayer, group: ClusterGroup, target: AxisTarget, error: float, gap: float | None = None) -> AxisProof:
    """Everything about one group of clusters on one coordinate; `gap` is the distance from jumps in units of w . x."""
    return prover(layer, group, target, error, gap).prove()


def prover(layer: GroupedLayer, group: ClusterGroup, target: AxisTarget, error: float, gap: float | None = None) -> AxisProver:
    """The proof of one group, to be carried out."""
    if len(group.matrix) != 1 or group.outputs != 1:
        raise Refused("clusters are proved along one coordinate and for one output here.")
    axis = Axis.of(layer, group, target)
    found = find_pieces(axis.f, axis.first, axis.last)
    blur = axis.drift + axis.relative * max(abs(axis.low), abs(axis.high))
    holes = _holes(axis, found, error, gap, blur + axis.real)
    scores = Scores(group)
    if not all(lam > 0 for lam in scores.lam):
        raise Refused("the keys of neighbouring clusters are not sorted by their slopes.")
    return AxisProver(layer, group, axis, found, holes, scores, error)


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
    beside = [found.pieces[i].branch for i in (number - 1, number) if 0 <= i < len(found.pieces)]
    return max((line.apart(f, branch, one.low, one.high) for branch in beside), default=0.0)


@dataclass
class _Reach:
    """Cluster k answers inside [low, high]; its branch, and the piece it belongs to (None: the function itself)."""

    low: float
    high: float
    piece: int | None


class AxisProver:
    """The proof of one group of clusters along one coordinate."""

    def __init__(
        self, layer: GroupedLayer, group: ClusterGroup, axis: Axis, found: Pieces, holes: list[Hole | None], scores: Scores,
        error: float,
    ) -> None:  # fmt: skip
        self.layer, self.group, self.axis, self.found, self.holes = layer, group, axis, found, holes
        self.scores, self.error, self.count = scores, error, len(scores.heads)
        self.compute = compute_format(layer.dtype)

    def parts(self) -> AxisParts:
        """Everything but the rounding of the whole and of z."""
        size = self._size()
        reaches, leak, far, edge, pace = self._reaches(size)
        worst = uncertainty = 0.0
        cells = 0
        heads: list[HeadErrors] = []
        reached = np.zeros(self.count)
        eta = 0.0
        inner = [self._inside(reach) for reach in reaches]
        for k, reach in enumerate(reaches):
            for low, high in self._without_holes(inner[k].low, inner[k].high) if reach.low < reach.high else []:
                branch = self.axis.f if reach.piece is None else self.found.pieces[reach.piece].branch
                found = sup_error(branch, self.scores.heads[k], low, high, 0.97 * self.error)
                bound = found.bound + self._slide(k, reach)
                worst, uncertainty, cells = max(worst, bound), max(uncertainty, found.uncertainty), cells + found.cells
            if reach.low <= reach.high:
                heads.append(self._rounding(k, reach))
                reached[k] = heads[-1].reach
                eta = max(eta, self._score_error(k, reach.low), self._score_error(k, reach.high))
        eta += U * (-FLOAT64.exp_floor + FLOAT64.exp_ulps + 8.0)
        if not (eta < 1.0 and far <= 0.25):
            raise Refused(f"the scores of the clusters are wrong by up to {eta:.2g} in {self.layer.dtype}.")
        local = [(self.scores.heads[k], self._local(k, r.low, r.high)) for k, r in enumerate(reaches) if r.low <= r.high]
        top = max(head.size(*ends) for head, ends in local)
        return AxisParts(
            worst, self._kinks(inner), leak, far, uncertainty, size, eta, HeadErrors.worst(heads),
            max(head.total(self.compute.tiny) for head in heads), top, max(h.largest(2.0) for h in self.scores.heads),
            self.count, cells, reached, edge, pace,
        )  # fmt: skip

    def computed(self) -> tuple[AxisParts, float]:
        """The parts, and what rounding does to what is computed at a computed z."""
        one = self.parts()
        blend = one.near + one.leak
        rounding = math.exp(2.0 * one.eta) * (2.0 * math.expm1(one.eta) * blend + one.rounding)
        rounding += 2.0 * one.far * one.near  # masses add up to one without those far away
        rounding += gamma(tree_terms(self.count) + self.count + 8, U) * (one.size + blend)
        rounding += self.count * (SKIP + 4.0 * FLOAT64.tiny) * one.largest
        return one, rounding

    def prove(self) -> AxisProof:
        """The bound of this group alone."""
        one, rounding = self.computed()
        blend = one.near + one.leak
        real = self.moved(True)
        every = blend + rounding + real <= 0.99 * self.error
        moved_by = real if every else self.moved(False)
        holes = tuple(hole for hole in self.holes if hole is not None)
        known = ProvedBlend(blend, one.size, one.reach[:, None], one.leak, one.edge, one.pace)
        return AxisProof(
            (one.near - one.uncertainty) * UP, one.leak, (rounding + moved_by) * UP, one.uncertainty, one.size,
            max(one.size + blend, one.top + one.leak) * UP, holes, every, one.cells, known,
        )  # fmt: skip

    def moved(self, real: bool) -> float:
        """What the rounding of z does to f, for `real` x or for those that are numbers."""
        return self._modulus(self.axis.drift + (self.axis.real if real else 0.0))

    # -- sizes

    def _size(self) -> float:
        """sup |f|: its branches by intervals, and what it may be at breaks."""
        breaks = [one for one in self.found.breaks if one is not None]
        return max(
            *(line.largest(p.branch, p.low, p.high, INTERVALS) for p in self.found.pieces),
            *(line.largest(self.axis.f, one.low, one.high, 1) for one in breaks), 0.0,
        )  # fmt: skip

    # -- where clusters answer

    def _reaches(self, size: float) -> tuple[list[_Reach], float, float, float, float]:
        """K_k for every cluster, what all clusters together say outside of them, and their mass there.

        And, for the literal form, the size of logits at the ends of K_k, and how they grow beyond in units of the lag.
        """
        reaches, leak, mass, size_there, pace = [], 0.0, 0.0, 0.0, 0.0
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
                steep = sum(10 * U * abs(float(self.scores.A[i])) + c_local * self.scores.inner(i) for i in (number, number + 1))
                grows = sum(abs(float(self.scores.A[i])) + self.scores.inner(i) for i in (number, number + 1))
                pace = max(pace, grows / lam)
                size_there = max(size_there, sum(self._logits(i, at) for i in (number, number + 1)))
                rest = lam - 2.0 * steep
                if rest <= 0.1 * lam or slip > 0.5 * lead:
                    raise Refused(f"a cluster's lead over its neighbour is lost to rounding in {self.layer.dtype}.")
                t = abs(head.local(at)) * UP
                lean = float(np.abs(head.slopes).max())
                far = math.exp(-(lead - slip)) * (size + head.largest(t) + lean / (head.radius * rest * math.e))
                leak += 1.2 * far  # masses are normalised with errors of some percent at most
                mass += 1.2 * math.exp(-(lead - slip))
            reaches.append(_Reach(low, high, None))
        for k, reach in enumerate(reaches):
            reach.piece = self._piece(k, reach, reaches)
        return reaches, leak, mass, size_there, pace

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
        """What is left of an interval outside the holes; of a single point, the point."""
        parts = [(low, high)]
        for hole in self.holes if low < high else []:
            if hole is not None:
                cut = [((a, min(b, hole.low)), (max(a, hole.high), b)) for a, b in parts]
                parts = [pair for both in cut for pair in both if pair[0] < pair[1]]
        return parts

    def _inside(self, reach: _Reach) -> _Reach:
        """What f has to say to a cluster: the part of its interval on the box, or the end of the box that is next to it."""
        low, high = (min(max(z, self.axis.first), self.axis.last) for z in (reach.low, reach.high))
        return _Reach(low, high, reach.piece)

    def _slide(self, k: int, reach: _Reach) -> float:
        """How far p_k moves between the end of the box and what is computed for it."""
        beyond = max(self.axis.first - reach.low, reach.high - self.axis.last, 0.0) * UP
        if beyond == 0.0:
            return 0.0
        head = self.scores.heads[k]
        return head.steepness(*self._local(k, reach.low, reach.high)) * beyond / head.radius * UP

    def _local(self, k: int, low: float, high: float) -> tuple[float, float]:
        origin, radius = Fraction(self.scores.heads[k].origin), Fraction(self.scores.heads[k].radius)
        return outward((Fraction(low) - origin) / radius, (Fraction(high) - origin) / radius)

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
            return line.apart(self.axis.f, own, min(one.low, end), max(one.high, end)) if hole is None else 0.0
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
            return math.exp(-max(lead, 0.0)) * line.apart(neighbour.branch, own, low, high) * UP
        near = line.apart(self.axis.f, own, one.low, one.high)
        difference = line.difference(neighbour.branch, own)
        inner = one.high if side > 0 else one.low
        q = line.magnitude(difference, inner, inner)
        zone = (min(inner, end), max(inner, end))
        steep = line.magnitude(difference.gradient(), *zone, pieces=16)
        crude = line.magnitude(difference, *zone, pieces=16)
        lam = self.scores.lam[link]
        kink = steep * soft_gap(2, -lead) / lam
        return (max(near, q + min(kink, crude)) if math.isfinite(near) else math.inf) * UP

    # -- rounding

    def _score_error(self, k: int, z: float) -> float:
        """|computed S_k - S_k| at z in the two-level runtime."""
        head, keys = self.scores.heads[k], self.scores.heads[k].keys
        t = abs(head.local(z)) * UP
        size = float((np.abs(keys.slopes) * t + np.abs(keys.offsets)).max())
        u = self.compute.unit
        logit = 1.01 * (u * (3.0 * float(np.abs(keys.slopes).max()) * t + size) + 4 * U * float(np.abs(keys.slopes).max()) * t)
        exp = 1.01 * u * (min(2.0 * size, -self.compute.exp_floor) + self.compute.exp_ulps + 3.0) if len(keys) > 1 else 0.0
        site = abs(float(self.scores.A[k]) * z) + abs(float(self.scores.b[k]))
        # one product and two sums of the size of the site's score; the rest is of the size of the local logits
        sums = 3.1 * site + 8.0 * size
        return (logit + exp + U * (sums + 8.0 * tree_terms(len(keys)) + 64.0)) * UP

    def _logits(self, k: int, z: float) -> float:
        """A bound of |logit| of the tokens of cluster k at z, its terms added up."""
        head, keys = self.scores.heads[k], self.scores.heads[k].keys
        t = (abs(z) + abs(head.origin)) / head.radius
        inner = float((np.abs(keys.slopes) * t + np.abs(keys.offsets)).max())
        return (abs(float(self.scores.A[k]) * z) + abs(float(self.scores.b[k])) + inner) * UP

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
        apart = np.abs(v - p) + drift
        reach_t = max(abs(first), abs(last))

        def most(part: Array) -> float:
            return float((w * part).sum(axis=1).max()) * grow * UP

        return HeadErrors(
            most(eta * apart), most(np.abs(v) + np.abs(head.slopes) * half), most(np.abs(head.slopes)), float(eta.max()), reach_t,
            len(keys), head.largest(reach_t),
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
            fine = 0.002 * self.error
            parts.append(line.modulus(piece.branch, low, high, d, self.axis.relative, fine) if low < high else 0.0)
        worst = max(parts)
        for i, one in enumerate(self.found.breaks):
            if one is None or self.holes[i] is not None:
                continue
            beside = [parts[n] for n in (i - 1, i) if 0 <= n < len(parts)]
            apart = sum(beside) + 2.0 * _distance(self.axis.f, self.found, one)
            # two points across a break are both next to it
            far = (d + self.axis.relative * max(abs(one.low), abs(one.high))) * 1.01
            first, last = max(one.low - far, self.axis.first), min(one.high + far, self.axis.last)
            width = float(line.over(self.axis.f, first, last).width)
            worst = max(worst, min(apart, width if math.isfinite(width) else math.inf))
        return worst
