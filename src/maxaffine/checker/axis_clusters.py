"""Clusters along one direction, proved again: balls for the scores, thirds for the cells, ellipses and constants of its own.

The tokens' slopes grow from cluster to cluster, so the lead of one cluster over the one before it grows with z: a ball that
encloses the lead at one point says where a cluster is out of the race.  Where it is in, its head is compared with the branch of
the target that rules there; beyond a kink the two branches part slowly and the mass falls exponentially: y/(1 + e^{d + s y}) is
at most w/s with w + log w = -1 - d, which is where its derivative vanishes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.axis_cluster import DOUBLE, LONG, AxisCluster, AxisHead, AxisParts
from maxaffine.checker.literal_groups import Edge, Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.stored import NotProved, stated_gap, stated_scope
from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.core.scope import Scope
from maxaffine.expression.expression import Expression
from maxaffine.expression.graph import Graph
from maxaffine.structure.breaks import Pieces, find_pieces
from maxaffine.structure.one_direction import OneDirection, one_direction
from maxaffine.structure.switches import moved
from maxaffine.target.target import Target

Array = NDArray[np.float64]

RADII = (1.2, 1.6, 2.1, 2.8, 3.6, 5.0, 7.0, 10.0, 16.0)
DENSE = 8
DEGREES = 100
CELLS = 1500
CLUSTERS = 4000
FAR = 0.003  # of the error, for clusters out of the race
BITS = 160


def check_axis(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """The bound of a layer of one group of clusters along one direction."""
    if target.expression is None or target.d_out != 1 or target.n_out != 1:
        raise NotProved("its target is not one that clusters along one direction are proved for.")
    found = one_direction(target.expression)
    if found is None:
        raise NotProved("its target is not a function of one direction and an affine one.")
    norm = math.inf if record["norm"] == "inf" else float(record["norm"])
    if not norm >= 1.0:
        raise NotProved("its norm is none.")
    stated = stated_scope(record["certificate"])
    gap = stated_gap(record) if math.isinf(norm) else record["plan"].get("gap")  # in L_p the width of the holes, a hint
    if gap is not None and not (isinstance(gap, float) and 0.0 < gap < math.inf):
        raise NotProved("its gap about jumps is not a positive number.")
    try:
        check = AxisCheck.read(tensors, record["layer"], target, found, error, norm, gap)
        with balls.precision(BITS):
            bound, every, jumps = check.prove()
    except Refused as failure:
        raise NotProved(str(failure)) from None
    proved = Scope("box" if math.isinf(norm) else "integral", "real" if every else "float64")
    if jumps and math.isinf(norm):
        proved = replace(proved, gap=gap, measure="direction", jumps=jumps)
    if not proved.covers(stated):
        raise NotProved("the x it is proved for are not those its certificate speaks of.")

    def literal(form: Form, claimed: float) -> float:
        frame = Frame.read(tensors, record["layer"], form)
        added = literal_bound(frame, 0.0, [cluster_column(tensors, 0, check.heard(), frame)])
        return bound + added * (1.0 if math.isinf(norm) else check.volume ** (1.0 / norm) * (1 + 1e-12))

    return Proved(bound, f"{len(check.clusters)} clusters, each where it is in the race", literal)


@dataclass
class AxisCheck:
    """Clusters along one direction beside their target in z, and what rounding does to z."""

    clusters: list[AxisCluster]
    f: Expression
    first: float  # z of the box; what is computed lies in [low, high], and beyond the box f is held at its end
    last: float
    low: float
    high: float
    pieces: Pieces
    holes: list[tuple[float, float] | None]
    error: float  # in the sup norm
    norm: float
    dtype: str
    drift: float  # absolute error of the computed z
    relative: float
    real: float  # what rounding x does to z
    off: float  # of the tilt as stored, and of adding it
    volume: float
    across: float  # volume of the box per unit of z, at most
    tilt: float
    spans: list[tuple[float, float]] = field(default_factory=list)  # where clusters are in the race, as `parts` finds it
    edges: list[Edge] = field(default_factory=list)
    known: AxisParts | None = None

    @classmethod
    def read(
        cls, tensors: Mapping[str, Any], layer: Mapping[str, Any], target: Target, found: OneDirection, error: float, norm: float,
        gap: float | None,
    ) -> "AxisCheck":  # fmt: skip
        """From the tensors of a layer of one group; NotProved where they are not those of such a layer."""
        dtype, D = str(layer["dtype"]), target.box.dimension
        if dtype not in DTYPES or list(layer["directions"]) != [1] or len(layer.get("clusters", [])) != 1:
            raise NotProved("it is not a layer of one group of clusters along one direction.")
        C = int(layer["clusters"][0])
        part = {name: np.asarray(tensors[f"group.0.{name}"]) for name in (
            "matrix", "shapes", "origins", "radii", "sites.slopes", "sites.offsets", "keys.0.slopes", "keys.0.offsets", "values",
            "value_slopes")}  # fmt: skip
        sizes = part["shapes"].astype(np.float64).ravel()
        if not 1 <= C <= CLUSTERS or len(sizes) != C or not np.all((sizes >= 1) & (sizes == np.floor(sizes)) & (sizes < 2**20)):
            raise NotProved("its clusters are not those of its record.")
        N = int(sizes.sum())
        shapes: dict[str, tuple[int, ...]] = {"matrix": (1, D), "shapes": (C, 1), "origins": (C, 1), "radii": (C, 1)}
        shapes |= {"sites.slopes": (C, 1), "sites.offsets": (C,), "keys.0.slopes": (N,), "keys.0.offsets": (N,)}
        shapes |= {"values": (N, 1), "value_slopes": (N, 1, 1)}
        names = {f"group.0.{name}" for name in shapes} | {"box.low", "box.high", "coordinates.centre"}
        if set(tensors) - {"tilt"} != names or any(part[name].shape != shape for name, shape in shapes.items()):
            raise NotProved("its tensors are not those of clusters along one direction.")
        exact = ("matrix", "shapes", "origins", "radii")
        if any(str(part[name].dtype) != ("float64" if name in exact else dtype) for name in part):
            raise NotProved("a tensor is not in the dtype that the record states.")
        number = {name: value.astype(np.float64) for name, value in part.items()}
        low, high, centre = (np.asarray(tensors[n], dtype=np.float64) for n in ("box.low", "box.high", "coordinates.centre"))
        tilt = np.asarray(tensors["tilt"]) if "tilt" in tensors else np.zeros((1, D))
        if tilt.shape != (1, D) or ("tilt" in tensors and str(tilt.dtype) != dtype):
            raise NotProved("its tilt is not one of this layer.")
        lean = tilt[0].astype(np.float64)
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
            raise NotProved("the layer and the target speak about different boxes.")
        if not np.all((centre >= low) & (centre <= high)) or not np.all(number["radii"] > 0):
            raise NotProved("its centre lies outside the box, or a radius is not positive.")
        if not all(np.isfinite(a).all() for a in (*number.values(), lean)):
            raise NotProved("a number is not finite.")
        ends = np.cumsum([0, *sizes.astype(int)])
        clusters = []
        for k in range(C):
            cut = slice(ends[k], ends[k + 1])
            clusters.append(AxisCluster(
                float(number["sites.slopes"][k, 0]), float(number["sites.offsets"][k]), float(number["origins"][k, 0]),
                float(number["radii"][k, 0]), number["keys.0.slopes"][cut], number["keys.0.offsets"][cut],
                number["values"][cut, 0], number["value_slopes"][cut, 0, 0],
            ))  # fmt: skip
        return cls._on_axis(clusters, number["matrix"][0], centre, low, high, lean, found, error, norm, gap, dtype)

    @classmethod
    def _on_axis(
        cls, clusters: list[AxisCluster], row: Array, centre: Array, low: Array, high: Array, lean: Array, found: OneDirection,
        error: float, norm: float, gap: float | None, dtype: str,
    ) -> "AxisCheck":  # fmt: skip
        w, exact = found.direction, [Fraction(float(c)) for c in centre]
        lead = int(np.argmax([abs(float(c)) for c in w]))
        scale = Fraction(float(row[lead])) / w[lead]
        if scale <= 0:
            raise NotProved("its matrix does not follow the target's direction.")
        corners = [sorted((c * (Fraction(float(a)) - m), c * (Fraction(float(b)) - m)))
                   for c, a, b, m in zip(w, low, high, exact, strict=True)]  # fmt: skip
        first, last = (scale * sum((pair[i] for pair in corners), Fraction(0)) for i in (0, 1))
        reach = np.maximum(high - centre, centre - low) * (1 + 1e-15)
        drift = sum(abs(float(Fraction(float(m)) - scale * c)) * float(r) for m, c, r in zip(row, w, reach, strict=True))
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
            rounded = [float(e[lead] - centre[lead]) * float(row[lead]) for e in (low, high)]
            below, above = min(a, *rounded), max(b, *rounded)
        middle = sum((c * m for c, m in zip(w, exact, strict=True)), Fraction(0))
        lift = sum((s * m for s, m in zip(found.slopes, exact, strict=True)), Fraction(0))
        f = moved(found.shifted(lift), middle, 1 / scale)
        real = float(np.abs(row) @ np.maximum(np.abs(low), np.abs(high))) * DOUBLE * (1 + 1e-9)
        off, size = tilted(found.slopes, lean, centre, low, high)
        volume = float(np.prod(high - low)) * (1 + 1e-12)
        sup = error if math.isinf(norm) else error / volume ** (1.0 / norm)
        pieces = find_pieces(f, a, b)
        across = volume / float(high[lead] - low[lead]) / abs(float(row[lead])) * (1 + 1e-12)
        made = cls(
            clusters, f, a, b, below, above, pieces, [], sup, norm, dtype, drift, relative, real, off, volume, across, size
        )
        made._same()
        made.holes = made._find_holes(None if gap is None else gap * float(scale) * (1 - 1e-5))  # spoken of to six digits
        return made

    def _same(self) -> None:
        """The branches are the function at random points of their pieces."""
        rng = np.random.default_rng(17)
        for piece in self.pieces.pieces:
            z = rng.uniform(piece.low, piece.high, (24, 1))
            one, two = self.f.enclose(Interval(z, z)), piece.branch.enclose(Interval(z, z))
            if np.any(one.lo > two.hi) or np.any(two.lo > one.hi):
                raise NotProved("a branch of the target is not the target.")

    def _find_holes(self, gap: float | None) -> list[tuple[float, float] | None]:
        holes: list[tuple[float, float] | None] = []
        blur = self.drift + self.real + self.relative * max(abs(self.low), abs(self.high))
        for i, one in enumerate(self.pieces.breaks):
            holes.append(None)
            if one is None or one.kind != "jump":
                continue
            near = [self.pieces.pieces[n].branch for n in (i - 1, i) if 0 <= n < len(self.pieces.pieces)]
            if all(self._apart(branch, one.low, one.high) <= 0.02 * self.error for branch in near):
                continue
            if gap is None or gap <= 4.0 * blur:
                raise NotProved("its target jumps, and it states no gap about the jump.")
            holes[i] = one.high - gap + 2.0 * blur, one.low + gap - 2.0 * blur
        if math.isinf(self.norm) and any(hole and hole[0] <= self.low and hole[1] >= self.high for hole in holes):
            raise NotProved("the gap about a jump leaves nothing of the box to speak of.")
        return holes

    def _apart(self, branch: Expression, low: float, high: float) -> float:
        box = Interval(np.array([[low]]), np.array([[high]]))
        value = float((self.f.enclose(box) - branch.enclose(box)).magnitude[0, 0])
        return value if math.isfinite(value) else math.inf

    # -- the whole

    def parts(self) -> AxisParts:
        """Where every cluster is in the race, its head against the target there, and what is said elsewhere."""
        C = len(self.clusters)
        for one, two in zip(self.clusters[:-1], self.clusters[1:], strict=True):
            if not self._slope(one, two) > 0:
                raise NotProved("the slopes of its tokens do not grow from cluster to cluster.")
        size = self._size()
        self.edges = []
        spans, far, mass = [], 0.0, 0.0
        for k, cluster in enumerate(self.clusters):
            low, high, out, there = self._span(k, cluster, size, FAR * self.error / C)
            spans.append((low, high))
            far, mass = far + out, mass + there
        homes = [self._home(k, spans) for k in range(C)]
        worst = top = 0.0
        heads = []
        for k, (low, high) in enumerate(spans):
            if not low <= high:
                continue
            branch = self.f if homes[k] is None else self.pieces.pieces[homes[k] or 0].branch
            ends = self._held(low), self._held(high)
            slide = 0.0
            if low < self.first or high > self.last:
                slide = self.clusters[k].steep(max(abs(t) for t in self._t(k, low, high))) / self.clusters[k].r
                slide *= 1.001 * max(self.first - low, high - self.last)
            for a, b in self._outside(*ends) if low < high else []:
                worst = max(worst, self._compare(branch, self.clusters[k], a, b) + slide)
            heads.append(self._finite(k, low, high))
            top = max(top, self._height(k, low, high))
        kink = self._kinks([(self._held(a), self._held(b)) for a, b in spans], homes)
        eta = max((head.score for head in heads), default=math.inf) + DOUBLE * 800.0
        if not (eta < 0.8 and mass < 0.5):
            raise NotProved("the scores of its clusters are lost to rounding.")
        self.spans = spans
        self.known = AxisParts(
            size, worst + kink, far, mass * (1 + 1e-9), eta, max(head.lost for head in heads),
            max(head.lost + head.sums for head in heads) * (1 + 1e-9), max(head.weight for head in heads),
            max(len(c.c) for c in self.clusters), max(head.largest for head in heads), top,
        )  # fmt: skip
        return self.known

    def reaches(self) -> tuple[Array, Array]:
        """Where every cluster is in the race, in its own t: two rows (C, 1)."""
        ends = [self._t(k, low, high) if low <= high else (1.0, -1.0) for k, (low, high) in enumerate(self.spans)]
        return np.array([[a] for a, _ in ends]), np.array([[b] for _, b in ends])

    def heard(self) -> Heard:
        """What is known of these clusters for the literal form, after `parts`; in L_p all over the box, jumps included."""
        one = self.known
        assert one is not None
        blend = one.blend
        if math.isfinite(self.norm):
            blend = one.size + max(one.size + blend, one.top) + one.far
        return Heard(blend, one.size, self.reaches(), one.far, one.mass, tuple(self.edges))

    def computed(self) -> tuple[AxisParts, float]:
        """The parts, and how far what is computed at a computed z may be from f there, before the output is rounded."""
        C, one = len(self.clusters), self.parts()
        blend, eta = one.blend, one.eta
        depth = 8 * (2 + int(math.log(C + 1, 8))) + C + 12
        total = blend + math.exp(2 * eta) * (2.0 * math.expm1(eta) * blend + one.head)
        return one, total + (depth * DOUBLE * (one.size + blend + one.top) + C * 2.0**-118 * one.top)

    def prove(self) -> tuple[float, bool, int]:
        """The bound, whether it holds for all real x, and how many jumps are left out."""
        one, total = self.computed()
        size, far, top, blend = one.size, one.far, one.top, one.blend
        total += self.off + (compute_format(self.dtype).unit + 6 * DOUBLE) * (size + blend + self.tilt)
        jumps = sum(hole is not None for hole in self.holes)
        real = self._sway(self.drift + self.real)
        every = total + real <= self.error
        total += real if every else self._sway(self.drift)
        if math.isfinite(self.norm):
            measure = min(sum(h[1] - h[0] for h in self.holes if h is not None) * self.across * (1 + 1e-9), self.volume)
            jump = 2.0 * self.tilt + size + max(size + blend, top) + far
            total = (total**self.norm * self.volume + jump**self.norm * measure) ** (1.0 / self.norm) * (1 + 1e-12)
        return total * (1 + 1e-12), every, jumps

    def _height(self, k: int, low: float, high: float) -> float:
        """A bound of |p_k| on [low, high], from 500 points and the slope."""
        c, (first, last) = self.clusters[k], self._t(k, low, high)
        z = np.linspace(np.longdouble(low), np.longdouble(high), 500)
        g, wrong = c.at(z)
        reach = max(abs(first), abs(last))
        return min(float(np.abs(g).max()) + wrong + c.steep(reach) * (last - first) / 499.0, c.top(reach))

    @staticmethod
    def _slope(one: AxisCluster, two: AxisCluster) -> float:
        """A lower bound of the slope of the lead of `two` over `one`."""
        parts = [two.A, float(two.alpha.min()) / two.r, -one.A, -float(one.alpha.max()) / one.r]
        return math.fsum(parts) - 8 * DOUBLE * sum(abs(v) for v in parts)

    def _t(self, k: int, low: float, high: float) -> tuple[float, float]:
        c = self.clusters[k]
        slack = 5.0 * DOUBLE * (max(abs(low), abs(high)) + abs(c.o)) / c.r
        return (low - c.o) / c.r - slack, (high - c.o) / c.r + slack

    def _size(self) -> float:
        """sup |f|, from the branches on their pieces and the function itself at the breaks."""
        where = [(p.branch, p.low, p.high, 1459) for p in self.pieces.pieces]
        where += [(self.f, one.low, one.high, 2) for one in self.pieces.breaks if one is not None]
        return max(self._largest(*row) for row in where)

    @staticmethod
    def _largest(f: Expression, first: float, last: float, count: int) -> float:
        edges = np.linspace(first, last, count)
        edges[0], edges[-1] = first, last
        low, high, top = edges[:-1], edges[1:], 0.0
        for _ in range(45):
            found = f.enclose(Interval(low[:, None], high[:, None])).magnitude[:, 0]
            good = np.isfinite(found)
            top = max([top, *(float(v) for v in found[good])])
            if good.all():
                return top * (1 + 1e-12)
            low, high = _thirds(low[~good], high[~good])
            if len(low) > 20_000:
                break
        raise NotProved("the target could not be enclosed.")

    def _lead(self, k: int, z: float) -> tuple[float, float]:
        """S_{k+1} - S_k at z."""
        return balls.bounds(self.clusters[k + 1].score(z) - self.clusters[k].score(z))

    def _span(self, k: int, cluster: AxisCluster, size: float, share: float) -> tuple[float, float, float, float]:
        """Where a cluster is in the race, what it says outside, and its mass there."""
        low, high, out, mass = self.low, self.high, 0.0, 0.0
        wanted = math.log(6.0 * (size + cluster.top(1.3)) / share + 1.0)
        for side in (-1, 1):
            link = k if side > 0 else k - 1
            if not 0 <= link < len(self.clusters) - 1:
                continue

            def beaten(z: float, link: int = link, side: int = side) -> bool:
                a, b = self._lead(link, z)
                return a >= wanted if side > 0 else b <= -wanted

            inside, outside = (self.high, self.low) if side > 0 else (self.low, self.high)
            if not beaten(inside):
                continue
            one, two = self.clusters[link], self.clusters[link + 1]
            slope = self._slope(one, two)
            fine = 0.03 * wanted / (two.A - one.A + sum(float(np.ptp(c.alpha)) / c.r for c in (one, two)))
            if beaten(outside):
                inside = outside
            while abs(inside - outside) > fine:
                z = inside + (outside - inside) / 3.0
                if z in (inside, outside):
                    break
                inside, outside = (z, outside) if beaten(z) else (inside, z)
            a, b = self._lead(link, inside)
            lead = a if side > 0 else -b
            slip = self._score_error(link, inside) + self._score_error(link + 1, inside)
            u = compute_format(self.dtype).unit
            local = 4 * u + 8 * DOUBLE
            grows = sum(8 * DOUBLE * abs(c.A) + local * float(np.abs(c.alpha).max()) / c.r for c in (one, two))
            if not (slope > 4.0 * grows and lead > 2.0 * slip):
                raise NotProved("the lead of a cluster is lost to rounding.")
            t = max(abs(v) for v in self._t(k, inside, inside))
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
        inside = [min(high, p.high) - max(low, p.low) for p in self.pieces.pieces]
        best = int(np.argmax(inside))
        return best if inside[best] >= 0.8 * (high - low) or len(inside) == 1 else None

    def _held(self, z: float) -> float:
        """The nearest z of the box."""
        return min(max(z, self.first), self.last)

    def _outside(self, low: float, high: float) -> list[tuple[float, float]]:
        parts = [(low, high)]  # a single point stays
        for hole in self.holes if low < high else []:
            if hole is not None:
                parts = [p for a, b in parts for p in ((a, min(b, hole[0])), (max(a, hole[1]), b)) if p[0] < p[1]]
        return parts

    # -- heads

    def _compare(self, f: Expression, cluster: AxisCluster, low: float, high: float) -> float:
        """sup |f - p| on [low, high], by thirds."""
        stack, worst, count = [(low, high)], 0.0, 0
        goal = 0.98 * self.error
        with balls.precision(72):
            while stack:
                a, b = stack.pop()
                count += 1
                if count > CELLS:
                    raise NotProved("the target could not be followed along its axis.")
                plan = self._degree(f, cluster, a, b, 0.005 * goal)
                if plan is not None:
                    m, rest = plan
                    seen, doubt = self._points(f, cluster, a, b, m)
                    here = rest + (seen + rest) / math.cos(math.pi / (2.0 * DENSE)) * (1 + 1e-12)
                    if math.isfinite(here) and (here <= goal or doubt < 0.02 * goal):
                        worst = max(worst, here)
                        continue
                else:
                    here = self._range(f, cluster, a, b)
                    edges = np.array([a, b])
                    seen_there = np.abs(f.evaluate(edges[:, None])[:, 0] - cluster.at(edges.astype(np.longdouble))[0])
                    least = float(np.max(seen_there, initial=0.0, where=np.isfinite(seen_there)))
                    if here <= 0.5 * goal or here <= least + 0.025 * goal:
                        worst = max(worst, here)
                        continue
                third = (b - a) / 3.0
                cuts = [a, a + third, b - third, b]
                if not cuts[0] < cuts[1] < cuts[2] < cuts[3]:
                    if not math.isfinite(here):
                        raise NotProved("the target could not be enclosed at points of its axis.")
                    worst = max(worst, here)  # next to a root neighbouring numbers are far apart: a bound all the same
                    continue
                stack += [(cuts[i], cuts[i + 1]) for i in range(3)]
        return worst

    def _degree(self, f: Expression, cluster: AxisCluster, a: float, b: float, allowed: float) -> tuple[int, float] | None:
        z, reach = (a + b) / 2.0, (b - a) / 2.0 * (1 + 1e-11) + (abs(a) + abs(b)) * 2.0**-52
        t, slack = (z - cluster.o) / cluster.r, 6.0 * DOUBLE * (abs(z) + abs(cluster.o)) / cluster.r
        best: tuple[int, float] | None = None
        for r in RADII:
            wide, tall = reach * (r + 1 / r) / 2.0 * (1 + 1e-11), reach * (r - 1 / r) / 2.0 * (1 + 1e-11)
            strip = cluster.strip(t, wide / cluster.r * (1 + 1e-11) + slack, tall / cluster.r * (1 + 1e-11))
            if not math.isfinite(strip):
                break
            value = f.enclose_ball([balls.rectangle(z - wide, z + wide, tall)])[0]
            if not value.is_finite():
                break
            size = balls.magnitude(value) + strip * cluster.top((abs(t) + (wide + tall) / cluster.r + slack) * (1 + 1e-11))
            if not math.isfinite(size / allowed):
                break
            m = max(1, math.ceil(math.log(max(4.0 * size / ((r - 1.0) * allowed), 1.0)) / math.log(r) + 1e-9))
            if best is None or m < best[0]:
                best = m, 4.0 * size / ((r - 1.0) * r**m) * (1 + 1e-11)
        return best if best is not None and best[0] <= DEGREES else None

    def _points(self, f: Expression, cluster: AxisCluster, a: float, b: float, m: int) -> tuple[float, float]:
        n = DENSE * m
        half_turn = np.arccos(np.longdouble(-1))
        angle = half_turn * (np.arange(n, dtype=np.longdouble) + np.longdouble(0.5)) / n
        z = (np.longdouble(a) + np.longdouble(b)) / 2 + (np.longdouble(b) - np.longdouble(a)) / 2 * np.cos(angle)
        near = z.astype(np.float64)
        slack = 3.0 * DOUBLE * np.abs(near) + 12.0 * LONG * (abs(a) + abs(b))
        box = Interval(np.clip(near - slack, a, b)[:, None], np.clip(near + slack, a, b)[:, None])
        value = f.enclose(box)
        g, wrong = cluster.at(z)
        away = np.maximum(value.hi[:, 0] - g, g - value.lo[:, 0]) + wrong
        if not np.isfinite(away).all():
            return math.inf, math.inf
        return float(away.max()) * (1 + 1e-13), float((value.hi - value.lo).max()) + wrong

    def _range(self, f: Expression, cluster: AxisCluster, a: float, b: float) -> float:
        value = f.enclose(Interval(np.array([[a]]), np.array([[b]])))
        lo, hi = float(value.lo[0, 0]), float(value.hi[0, 0])
        g, wrong = cluster.at(np.array([np.longdouble(a), np.longdouble(b)]))
        first, last = (a - cluster.o) / cluster.r, (b - cluster.o) / cluster.r
        slack = 6.0 * DOUBLE * (max(abs(a), abs(b)) + abs(cluster.o)) / cluster.r
        sway = cluster.steep(max(abs(first), abs(last)) + slack) * ((last - first) / 2.0 + slack) * (1 + 1e-11) + wrong
        away = max(hi - float(g.min()), float(g.max()) - lo) + sway
        return away if math.isfinite(away) else math.inf

    # -- kinks

    def _kinks(self, spans: list[tuple[float, float]], homes: list[int | None]) -> float:
        """What clusters of the one side of a break say on the other, the worst break and side."""
        worst = 0.0
        left, until = 0.0, -math.inf  # what is said beyond the break before this one, and how far
        for i, one in enumerate(self.pieces.breaks):
            sides, ends = {-1: 0.0, 1: 0.0}, {-1: math.inf, 1: -math.inf}
            for k, home in enumerate(homes):
                low, high = spans[k]
                if one is None or home is None or not low < high:
                    continue
                if home < i and high > one.low:
                    sides[1] += self._wrong(k, home, i, high, 1)
                    ends[1] = max(ends[1], high)
                if home >= i and low < one.high:
                    sides[-1] += self._wrong(k, home, i, low, -1)
                    ends[-1] = min(ends[-1], low)
            both = left + sides[-1] if until >= ends[-1] else 0.0  # between two breaks clusters of both may answer
            worst = max(worst, both, *sides.values())
            left, until = sides[1], ends[1]
        return worst

    def _wrong(self, k: int, home: int, i: int, end: float, side: int) -> float:
        one, hole, own = self.pieces.breaks[i], self.holes[i], self.pieces.pieces[home].branch
        assert one is not None
        other = home + side
        start = one.low if side > 0 else one.high
        if hole is not None:
            start = hole[1] if side > 0 else hole[0]
            if (end - start) * side <= 0:
                return 0.0
        if not 0 <= other < len(self.pieces.pieces):
            return self._apart(own, min(one.low, end), max(one.high, end)) if hole is None else 0.0
        piece = self.pieces.pieces[other]
        link = k if side > 0 else k - 1
        if (end > piece.high if side > 0 else end < piece.low) or not 0 <= link < len(self.clusters) - 1:
            raise NotProved("breaks of the target are too close for its clusters.")
        a, b = self._lead(link, start)
        lead = a if side > 0 else -b
        parting = _minus(piece.branch, own)
        inner = one.high if side > 0 else one.low
        edges = np.linspace(inner, end, 12)
        box = Interval(np.minimum(edges[:-1], edges[1:])[:, None], np.maximum(edges[:-1], edges[1:])[:, None])
        most = float(parting.enclose(box).magnitude.max())
        if hole is not None:
            ball = Interval(np.array([[min(start, end)]]), np.array([[max(start, end)]]))
            apart = float(parting.enclose(ball).magnitude[0, 0])
            return math.exp(-max(lead, 0.0)) * apart if math.isfinite(apart) else math.inf
        steep = float(parting.gradient().enclose(box).magnitude.max())
        begin = float(parting.enclose(Interval(np.array([[inner]]), np.array([[inner]]))).magnitude[0, 0])
        slope = self._slope(self.clusters[link], self.clusters[link + 1])
        soft = steep * _softly(lead) / slope if lead > -600.0 else math.inf
        grown = [v for v in (soft, most) if math.isfinite(v)]
        return max(self._apart(own, one.low, one.high), begin + min(grown, default=math.inf)) * (1 + 1e-11)

    # -- rounding

    def _score_error(self, k: int, z: float) -> float:
        c, u = self.clusters[k], compute_format(self.dtype).unit
        t = max(abs(v) for v in self._t(k, z, z))
        inner = float((np.abs(c.alpha) * t + np.abs(c.beta)).max())
        logit = u * (4.2 * inner + 130.0 if self.dtype != "float64" else 4.2 * inner + 780.0) if len(c.c) > 1 else u * 4.2 * inner
        return logit + DOUBLE * (3.2 * (abs(c.A * z) + abs(c.b)) + 12.0 * inner + 100.0 + 4.0 * len(c.c))

    def _finite(self, k: int, low: float, high: float) -> AxisHead:
        """Errors of the computed head and score of a cluster where it is in the race."""
        c, u = self.clusters[k], compute_format(self.dtype).unit
        first, last = self._t(k, low, high)
        spread = float(np.ptp(c.alpha))
        n = int(np.clip(25.0 * spread * (last - first), 20, 3000))
        edges = np.linspace(first, last, n + 1)
        t, half = (edges[1:] + edges[:-1]) / 2.0, (last - first) / n * 0.5001 + 4 * DOUBLE * (abs(first) + abs(last))
        logits = np.multiply.outer(t, c.alpha) + c.beta
        w = np.exp(logits - logits.max(axis=1)[:, None])
        w /= w.sum(axis=1)[:, None]
        grow = math.exp(min(2.0 * spread * half, 40.0))
        inner = np.multiply.outer(np.abs(t) + half, np.abs(c.alpha))
        behind = logits.max(axis=1)[:, None] - logits + 2.0 * spread * half
        eta = 1.01 * u * (4.0 * inner + np.abs(c.beta) + behind + 14.0) + 5 * DOUBLE * inner
        v = c.c + np.multiply.outer(t, c.G)
        p = (w * v).sum(axis=1)
        reach = max(abs(first), abs(last))
        sway = (c.steep(reach) + np.abs(c.G)) * half
        lost = float((w * eta * (np.abs(v - p[:, None]) + sway)).sum(axis=1).max()) * grow
        blur = math.exp(min(2.1 * float(eta.max()), 40.0))
        lost *= blur
        size = float((w * (np.abs(v) + np.abs(c.G) * (half + reach))).sum(axis=1).max()) * grow
        sums = DOUBLE * (3.0 * len(c.c) + 50.0) * size + len(c.c) * 2.0**-148 * c.top(reach)
        weight = float((w @ np.abs(c.c) + (w @ np.abs(c.G)) * (np.abs(t) + half)).max()) * grow * blur
        score = max(self._score_error(k, low), self._score_error(k, high))
        return AxisHead(lost * (1 + 1e-9), sums, weight * (1 + 1e-9), c.top(reach), score)

    def _sway(self, d: float) -> float:
        """How far f changes when z moves by d + relative |z|: on a piece, or from one to the next across a break."""
        on_piece = []
        for i, piece in enumerate(self.pieces.pieces):
            before, after = self.holes[i], self.holes[i + 1]
            low = piece.low if before is None else max(piece.low, before[1] - 3.0 * d)
            high = piece.high if after is None else min(piece.high, after[0] + 3.0 * d)
            on_piece.append(self._sway_of(piece.branch, low, high, d) if low < high else 0.0)
        worst = max(on_piece)
        for i, one in enumerate(self.pieces.breaks):
            if one is not None and self.holes[i] is None:
                near = [n for n in (i - 1, i) if 0 <= n < len(on_piece)]
                step = sum(2.0 * self._apart(self.pieces.pieces[n].branch, one.low, one.high) + on_piece[n] for n in near)
                move = (d + self.relative * max(abs(one.low), abs(one.high))) * 1.02
                box = Interval(np.array([[max(one.low - move, self.first)]]), np.array([[min(one.high + move, self.last)]]))
                value = self.f.enclose(box)
                width = float(value.hi[0, 0] - value.lo[0, 0])
                worst = max(worst, min(step, width if math.isfinite(width) else math.inf))
        return worst

    def _sway_of(self, f: Expression, first: float, last: float, d: float) -> float:
        slope = f.gradient()
        edges = np.linspace(first, last, 52)
        edges[0], edges[-1] = first, last
        low, high, worst = edges[:-1], edges[1:], 0.0
        while len(low):
            move = (d + self.relative * np.maximum(np.abs(low), np.abs(high))) * (1 + 1e-9)
            box = Interval(np.maximum(low - move, first)[:, None], np.minimum(high + move, last)[:, None])
            steep, value = slope.enclose(box).magnitude[:, 0] * move, f.enclose(box)
            width = (value.hi - value.lo)[:, 0]
            here = np.fmin(np.where(np.isfinite(steep), steep, np.inf), np.where(np.isfinite(width), width, np.inf)) * (1 + 1e-11)
            third = (high - low) / 3.0
            done = (here <= 0.003 * self.error) | (high - low <= move) | (low + third <= low) | (high - third >= high)
            worst = max([worst, *(float(v) for v in here[done])])
            if np.count_nonzero(~done) > 20_000:
                return math.inf
            low, high = _thirds(low[~done], high[~done])
        return worst


def tilted(slopes: Sequence[Fraction], lean: Array, centre: Array, low: Array, high: Array) -> tuple[float, float]:
    """What the stored tilt lacks of the slopes and what rounding does to it, and how large it is over the box."""
    reach = np.maximum(high - centre, centre - low) * (1 + 1e-15)
    off = sum(abs(float(s - Fraction(float(t)))) * float(r) for s, t, r in zip(slopes, lean, reach, strict=True))
    size = float(np.abs(lean) @ reach)
    off += float(np.abs(lean) @ np.maximum(np.abs(low), np.abs(high))) * DOUBLE + (len(lean) + 6) * DOUBLE * size
    return off * (1 + 1e-9), size


def _softly(d: float) -> float:
    """The largest y/(1 + e^{d + y}) over y >= 0, from above: the root of w + log w = -1 - d, bracketed by bisection."""
    low, high = 0.0, math.exp(-1.0 - d) if d > 0 else max(1.0, -d)  # w is below e^{-1-d}, and below the larger of 1 and -1 - d
    for _ in range(120):
        middle = (low + high) / 2.0
        if middle == 0.0 or not low < middle < high:
            break
        low, high = (middle, high) if middle + math.log(middle) < -1.0 - d else (low, middle)
    return high * (1 + 1e-12)


def _thirds(low: Array, high: Array) -> tuple[Array, Array]:
    third = (high - low) / 3.0
    return np.concatenate([low, low + third, high - third]), np.concatenate([low + third, high - third, high])


def _minus(f: Expression, g: Expression) -> Expression:
    graph = Graph(f.nodes)
    places: list[int] = []
    for node in g.nodes:
        places.append(graph.make(node.op, tuple(places[a] for a in node.args), node.data))
    apart = graph.subtract(f.outputs[0], places[g.outputs[0]])
    return Expression.of_graph("the parting of two branches", f.names, graph, (apart,))
