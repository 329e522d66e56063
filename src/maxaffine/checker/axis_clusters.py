"""Clusters along one direction re-proved: balls say where each is in the race, Ehlich and Zeller how far it is off there.

The tokens' slopes grow from cluster to cluster, so the lead of one cluster over the one before it grows with z: a ball that
encloses the lead at one point says where a cluster is out of the race.  Where it is in, its head is compared with the branch of
the target that rules there (checker/local_error.py); beyond a kink: checker/axis_kinks.py.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from maxaffine.checker.axis_cluster import AxisCluster, AxisPair, AxisParts
from maxaffine.checker.axis_kinks import kink_error
from maxaffine.checker.axis_target import AxisTarget
from maxaffine.checker.certificate import stated_gap, stated_norm, stated_scope
from maxaffine.checker.head import Head
from maxaffine.checker.head_rounding import Account, LogitErrors, account
from maxaffine.checker.literal_clusters import Blend, Edge, cluster_column
from maxaffine.checker.literal_groups import Frame, literal_bound
from maxaffine.checker.local_error import local_error
from maxaffine.checker.proved import DOUBLE, Form, NotProved, Proved, exact
from maxaffine.checker.reader import Clusters, Layer
from maxaffine.checker.target_parts import expression_of
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import compute_format
from maxaffine.core.scope import Scope
from maxaffine.structure.one_direction import OneDirection, one_direction
from maxaffine.structure.switches import moved
from maxaffine.target.target import Target

CELLS = 1500
CLUSTERS = 4000
FAR = 0.003  # of the error, for clusters out of the race
BITS = 160


def check_axis(layer: Layer, record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """The bound of a layer of one group of clusters along one direction."""
    found = one_direction(expression_of(target, "clusters along one direction"))
    if found is None:
        raise NotProved("its target is not a function of one direction and an affine one.")
    norm = stated_norm(record)
    stated = stated_scope(record["certificate"])
    gap = stated_gap(record) if math.isinf(norm) else record["plan"].get("gap")  # in L_p the width of the holes, a hint
    if gap is not None and not (isinstance(gap, float) and 0.0 < gap < math.inf):
        raise NotProved("its gap about jumps is not a positive number.")
    (group,) = layer.clusters(1)
    with in_balls():
        check = AxisCheck.of(layer, group, found, error, norm, gap)
        bound, every = check.prove()
    proved = Scope("box" if math.isinf(norm) else "integral", "real" if every else "float64")
    if check.target.jumps and math.isinf(norm):
        proved = replace(proved, gap=gap, measure="direction", jumps=check.target.jumps)
    if not proved.covers(stated):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")

    def literal(form: Form, claimed: float) -> float:
        frame = Frame(layer, form)
        added = literal_bound(frame, 0.0, [cluster_column(group, check.known_blend(), frame)])
        return bound + added * float(check.volume ** (1.0 / norm)) * (1 + 1e-12)

    return Proved(bound, f"{len(check.clusters)} clusters, each where it is in the race", literal)


@contextmanager
def in_balls() -> Iterator[None]:
    """Balls of BITS bits; a target that its structure is refused for is not proved."""
    try:
        with balls.precision(BITS):
            yield
    except Refused as failure:
        raise NotProved(str(failure)) from None


@dataclass
class AxisCheck:
    """Clusters along one direction beside their target in z, and what rounding does to z."""

    clusters: list[AxisCluster]
    target: AxisTarget
    low: float  # what is computed of z lies in [low, high]
    high: float
    norm: float
    dtype: str
    drift: float  # absolute error of the computed z
    real: float  # what rounding x does to z
    affine_off: float  # of the affine part as stored, and of adding it
    affine_size: float
    volume: float
    across: float  # volume of the box per unit of z, at most
    spans: list[tuple[float, float]] = field(default_factory=list)  # where clusters are in the race, as `parts` finds it
    edges: list[Edge] = field(default_factory=list)
    known: AxisParts | None = None

    @classmethod
    def of(
        cls, layer: Layer, group: Clusters, found: OneDirection, error: float, norm: float, gap: float | None,
        alone: bool = True,
    ) -> "AxisCheck":  # fmt: skip
        """Clusters in z = row . (x - centre) beside a function of one direction, in exact arithmetic where it can be.

        The affine part of the layer is the target's own where it stands alone.
        """
        if len(group.sites) > CLUSTERS or group.values[0].shape[-1] != 1:
            raise NotProved("its clusters are more than are proved along one direction, or have several outputs.")
        clusters = [
            AxisCluster(
                float(group.sites[k, 0]), float(group.sites[k, 1]), float(group.origins[k, 0]), float(group.radii[k, 0]),
                group.axes[k][0].a, group.axes[k][0].b, group.values[k][:, 0], group.slopes[k][:, 0, 0],
            )
            for k in range(len(group.sites))
        ]  # fmt: skip
        affine = np.zeros(len(layer.low)) if layer.affine_part is None or not alone else layer.affine_part[0]
        row, low, high, reach = group.matrix[0], layer.low, layer.high, layer.reach
        w, centre = np.array(found.direction, dtype=object), exact(layer.centre)
        lead = int(np.abs(w).argmax())
        scale = exact(row)[lead] / w[lead]
        if scale <= 0:
            raise NotProved("its matrix does not follow the target's direction.")
        ends = w * (exact(low) - centre), w * (exact(high) - centre)
        first, last = scale * np.minimum(*ends).sum(), scale * np.maximum(*ends).sum()
        drift = float(np.abs(exact(row) - scale * w).astype(np.float64) @ reach)
        plain = np.count_nonzero(row) == 1 and math.frexp(abs(float(row[lead])))[0] == 0.5
        relative = 1.001 * DOUBLE if plain else 0.0
        if not plain:
            drift += (len(row) + 5) * DOUBLE * float(np.abs(row) @ reach)
        drift *= 1 + 1e-9
        a, b = float(first), float(last)
        a = a if Fraction(a) <= first else math.nextafter(a, -math.inf)
        b = b if Fraction(b) >= last else math.nextafter(b, math.inf)
        wide = 1.001 * (relative * float(max(abs(first), abs(last))) + drift)
        below, above = a - wide, b + wide
        if plain:  # differences from the centre are rounded in order
            rounded = [float(e[lead] - layer.centre[lead]) * float(row[lead]) for e in (low, high)]
            below, above = min(a, *rounded), max(b, *rounded)
        f = moved(found.shifted(np.array(found.slopes) @ centre), w @ centre, 1 / scale)
        real = float(np.abs(row) @ np.maximum(np.abs(low), np.abs(high))) * DOUBLE * (1 + 1e-9)
        off, size = affine_error(found.slopes, affine, layer)
        volume = float(np.prod(high - low)) * (1 + 1e-12)
        sup = error / volume ** (1.0 / norm)
        across = volume / float(high[lead] - low[lead]) / abs(float(row[lead])) * (1 + 1e-12)
        blur = drift + real + relative * max(abs(below), abs(above))
        hole = None if gap is None else gap * float(scale) * (1 - 1e-5)  # stated to six digits
        target = AxisTarget.of(f, a, b, sup, relative, blur, hole)
        if math.isinf(norm) and any(one and one[0] <= below and one[1] >= above for one in target.holes):
            raise NotProved("the gap about a jump leaves nothing of the box to speak of.")
        return cls(clusters, target, below, above, norm, layer.dtype, drift, real, off, size, volume, across)

    # -- the whole

    def parts(self) -> AxisParts:
        """Where every cluster is in the race, its head against the target there, and what is said elsewhere."""
        C, target = len(self.clusters), self.target
        if not all(self.slope(k) > 0 for k in range(C - 1)):
            raise NotProved("the slopes of its tokens do not grow from cluster to cluster.")
        size = target.size()
        self.edges = []
        spans, far, mass = [], 0.0, 0.0
        for k in range(C):
            low, high, out, there = self._span(k, size, FAR * target.error / C)
            spans.append((low, high))
            far, mass = far + out, mass + there
        homes = [self._home(k, spans) for k in range(C)]
        worst = 0.0
        heads, score = [], 0.0
        for k, (low, high) in enumerate(spans):
            if not low <= high:
                continue
            cluster = self.clusters[k]
            pair = AxisPair(target.f if homes[k] is None else target.pieces.pieces[homes[k] or 0].branch, cluster)
            beyond = 0.0  # by which p changes where z is computed to lie beyond the box
            if low < target.first or high > target.last:
                beyond = cluster.steep(max(abs(t) for t in cluster.t(low, high))) / cluster.r
                beyond *= 1.001 * max(target.first - low, high - target.last)
            for a, b in target.outside(target.held(low), target.held(high)) if low < high else []:
                worst = max(worst, local_error(pair, np.array([a]), np.array([b]), 0.98 * target.error, CELLS) + beyond)
            heads.append(self._rounding(k, low, high))
            score = max(score, self._score_error(k, low), self._score_error(k, high))
        kink = kink_error(self, [(target.held(a), target.held(b)) for a, b in spans], homes)
        eta = score + DOUBLE * 800.0
        if not (heads and eta < 0.8 and mass < 0.5):
            raise NotProved("the scores of its clusters are lost to rounding.")
        self.spans = spans
        self.known = AxisParts(
            size, worst + kink, far, mass * (1 + 1e-9), eta, max(one.by_logits + sums for one, sums in heads) * (1 + 1e-9),
            max(one.held for one, _ in heads) * math.exp(2.0 * eta), max(one.top for one, _ in heads),
        )  # fmt: skip
        return self.known

    def reaches(self) -> tuple[Array, Array]:
        """Where every cluster is in the race, in its own t: two rows (C, 1)."""
        pairs = zip(self.clusters, self.spans, strict=True)
        ends = [cluster.t(low, high) if low <= high else (1.0, -1.0) for cluster, (low, high) in pairs]
        return np.array([[a] for a, _ in ends]), np.array([[b] for _, b in ends])

    def known_blend(self) -> Blend:
        """What is known of these clusters for the literal form, after `parts`; in L_p all over the box, jumps included."""
        one = self.known
        assert one is not None
        blend = one.blend if math.isinf(self.norm) else one.size + max(one.size + one.blend, one.top) + one.far
        return Blend(blend, one.size, self.reaches(), one.far, one.mass, tuple(self.edges))

    def computed(self) -> tuple[AxisParts, float]:
        """The parts, and how far what is computed at a computed z may be from f there, before the output is rounded."""
        C, one = len(self.clusters), self.parts()
        depth = 8 * (2 + int(math.log(C + 1, 8))) + C + 12
        total = one.blend + math.exp(2 * one.eta) * (2.0 * math.expm1(one.eta) * one.blend + one.head)
        return one, total + depth * DOUBLE * (one.size + one.blend + one.top) + C * 2.0**-118 * one.top

    def prove(self) -> tuple[float, bool]:
        """The bound, and whether it holds for all real x."""
        one, total = self.computed()
        unit = compute_format(self.dtype).unit + 6 * DOUBLE
        total += self.affine_off + unit * (one.size + one.blend + self.affine_size)
        real = self.target.change(self.drift + self.real)
        every = total + real <= self.target.error
        total += real if every else self.target.change(self.drift)
        if math.isfinite(self.norm):
            holes = sum(hole[1] - hole[0] for hole in self.target.holes if hole is not None)
            measure = min(holes * self.across * (1 + 1e-9), self.volume)
            jump = 2.0 * self.affine_size + one.size + max(one.size + one.blend, one.top) + one.far
            total = (total**self.norm * self.volume + jump**self.norm * measure) ** (1.0 / self.norm) * (1 + 1e-12)
        return total * (1 + 1e-12), every

    # -- who is in the race

    def slope(self, k: int) -> float:
        """A lower bound of the slope of the lead of cluster k + 1 over cluster k."""
        one, two = self.clusters[k], self.clusters[k + 1]
        parts = [two.A, float(two.alpha.min()) / two.r, -one.A, -float(one.alpha.max()) / one.r]
        return math.fsum(parts) - 8 * DOUBLE * sum(abs(v) for v in parts)

    def lead(self, k: int, z: float) -> tuple[float, float]:
        """S_{k+1} - S_k at z."""
        return balls.bounds(self.clusters[k + 1].score(z) - self.clusters[k].score(z))

    def _span(self, k: int, size: float, share: float) -> tuple[float, float, float, float]:
        """Where a cluster is in the race, what it says outside, and its mass there."""
        cluster, low, high, out, mass = self.clusters[k], self.low, self.high, 0.0, 0.0
        wanted = math.log(6.0 * (size + cluster.top(1.3)) / share + 1.0)
        for side in (-1, 1):
            link = k if side > 0 else k - 1
            if not 0 <= link < len(self.clusters) - 1:
                continue

            def beaten(z: float, link: int = link, side: int = side) -> bool:
                a, b = self.lead(link, z)
                return a >= wanted if side > 0 else b <= -wanted

            inside, outside = (self.high, self.low) if side > 0 else (self.low, self.high)
            if not beaten(inside):
                continue
            one, two = self.clusters[link], self.clusters[link + 1]
            slope = self.slope(link)
            fine = 0.03 * wanted / (two.A - one.A + sum(float(np.ptp(c.alpha)) / c.r for c in (one, two)))
            if beaten(outside):
                inside = outside
            while abs(inside - outside) > fine:
                z = inside + (outside - inside) / 3.0
                if z in (inside, outside):
                    break
                inside, outside = (z, outside) if beaten(z) else (inside, z)
            a, b = self.lead(link, inside)
            lead = a if side > 0 else -b
            slip = self._score_error(link, inside) + self._score_error(link + 1, inside)
            u = compute_format(self.dtype).unit
            local = 4 * u + 8 * DOUBLE
            grows = sum(8 * DOUBLE * abs(c.A) + local * float(np.abs(c.alpha).max()) / c.r for c in (one, two))
            if not (slope > 4.0 * grows and lead > 2.0 * slip):
                raise NotProved("the lead of a cluster is lost to rounding.")
            t = max(abs(v) for v in cluster.t(inside, inside))
            bend = float(np.abs(cluster.G).max()) / (cluster.r * (slope - 2.0 * grows) * math.e)
            self.edges.append(Edge(
                k, link + 1 if side > 0 else link, inside, lead, slope, size + cluster.top(t),
                float(np.abs(cluster.G).max()) / cluster.r,
            ))  # fmt: skip
            mass += 1.25 * math.exp(slip - lead)
            out += 1.25 * math.exp(slip - lead) * (size + cluster.top(t) + bend)
            low, high = (low, min(high, inside)) if side > 0 else (max(low, inside), high)
        return low, high, out, mass

    def _home(self, k: int, spans: list[tuple[float, float]]) -> int | None:
        """The piece whose branch a cluster is compared with; None: the function itself."""
        low, high = spans[k]
        if k > 0:
            low = (low + max(low, min(spans[k - 1][1], high))) / 2.0
        if k < len(spans) - 1:
            high = (high + min(high, max(spans[k + 1][0], low))) / 2.0
        inside = [min(high, p.high) - max(low, p.low) for p in self.target.pieces.pieces]
        best = int(np.argmax(inside))
        return best if inside[best] >= 0.8 * (high - low) or len(inside) == 1 else None

    # -- rounding

    def _score_error(self, k: int, z: float) -> float:
        c, u = self.clusters[k], compute_format(self.dtype).unit
        t = max(abs(v) for v in c.t(z, z))
        inner = float((np.abs(c.alpha) * t + np.abs(c.beta)).max())
        logit = u * (4.2 * inner + 130.0 if self.dtype != "float64" else 4.2 * inner + 780.0) if len(c.c) > 1 else u * 4.2 * inner
        return logit + DOUBLE * (3.2 * (abs(c.A * z) + abs(c.b)) + 12.0 * inner + 100.0 + 4.0 * len(c.c))

    def _rounding(self, k: int, low: float, high: float) -> tuple[Account, float]:
        """What wrong logits do to the head of a cluster where it is in the race, and what its sums add."""
        c, u = self.clusters[k], compute_format(self.dtype).unit
        head = Head(None, Interval.point(np.zeros(1)), np.ones(1), (c.axis,), c.c[:, None], c.G[:, None])
        found = account(head, np.zeros(1), LogitErrors(u, 4.05 + 5 * DOUBLE / u, 14.2, offset_terms=1.02), c.t(low, high))
        sums = DOUBLE * (3.0 * len(c.c) + 50.0) * found.held + len(c.c) * 2.0**-148 * c.top(max(abs(t) for t in c.t(low, high)))
        return found, sums


def affine_error(slopes: Sequence[Fraction], affine: Array, layer: Layer) -> tuple[float, float]:
    """What the stored affine part lacks of the slopes and what rounding does to it, and how large it is over the box."""
    reach = layer.reach
    off = float(np.abs(np.array(slopes) - exact(affine)).astype(np.float64) @ reach)
    size = float(np.abs(affine) @ reach)
    off += float(np.abs(affine) @ np.maximum(np.abs(layer.low), np.abs(layer.high))) * DOUBLE
    return (off + (len(affine) + 6) * DOUBLE * size) * (1 + 1e-9), size
