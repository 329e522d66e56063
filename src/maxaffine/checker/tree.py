"""Trees of clusters re-proved: who answers where by slopes of scores, cut in three; every piece on its own box.

S_l - S_k changes along axis e by between (a_l - a_k)_e + (least alpha_l - largest alpha_k) / r and the other way round.  A
cluster that trails the best one at the middle of a box by more than that, and by a margin, does not count on the box; the others
must hold the box in theirs, |t| <= 1.  There f - p_k is bounded by Chebyshev points and ellipses, or, where the target may
switch, by values at middles and enclosed slopes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.literal_groups import Frame, Heard, cluster_column, literal_bound
from maxaffine.checker.proved import Form, Proved
from maxaffine.checker.spectral import Axis, _Head
from maxaffine.checker.stored import NotProved
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import DTYPES, compute_format
from maxaffine.expression.expression import Expression
from maxaffine.structure.switches import switches
from maxaffine.target.target import Target

Array = NDArray[np.float64]
Index = NDArray[np.intp]

DOUBLE = 2.0**-53
CLUSTERS, TOKENS = 20_000, 200_000
BOXES = 1_500_000
CELLS = 4_000
NEAR_KINKS = 600_000
SHARE = 0.012  # of the error, for clusters that trail


def check_tree(tensors: Mapping[str, Any], record: Mapping[str, Any], target: Target, error: float) -> Proved:
    """sup |layer - target| of one group of clusters on scaled variables."""
    if target.expression is None or target.n_out != 1:
        raise NotProved("its target is not one that trees are proved for.")
    stored = Clusters.read(tensors, record["layer"], target)
    eta = stored.score_error()
    if not eta < 8.0:
        raise NotProved(f"its scores are uncertain by {eta:.3g}.")
    size = stored.largest() + error
    count = len(stored.sites)
    margin = math.log(count / (SHARE * error)) + 2.0 * eta
    boxes = stored.cover(margin, size)
    arguments = [switch.argument for switch in switches(target.expression)]
    worst = blend = 0.0
    for k in range(count):
        for m in range(target.d_out):
            head = stored.head(k, m, target.expression.output(m))
            if _switches(arguments, head):
                off = _near_kinks(head, error * (1.0 - 2.0 * SHARE))
            else:
                off = head.supremum(error, CELLS)
            worst, blend = max(worst, off + stored.head_error(k, head)), max(blend, off)
            if not worst <= error:
                raise NotProved(f"a piece is off by {worst:.4g} on its box.")
    leak = SHARE * error * (1 + 1e-9) + count * 1e-35 * stored.farthest()
    last = (compute_format(stored.dtype).unit + (6.0 * count + 60.0) * DOUBLE) * 2.1 * size
    bound, far = worst + leak + last, SHARE * error * (1 + 1e-9)

    def literal(form: Form, claimed: float) -> float:
        frame, ones = Frame.read(tensors, record["layer"], form), np.full(stored.origins.shape, 1.0 + 1e-12)
        found = float(target.enclose(target.box.low[None], target.box.high[None]).magnitude.max())
        heard = Heard(blend + far, found if found < size else size, (-ones, ones), far, far / size)
        return literal_bound(frame, bound, [cluster_column(tensors, 0, heard, frame)])

    return Proved(bound, f"{boxes:,} boxes tell {count:,} clusters apart; every piece on its own box", literal)


@dataclass(frozen=True)
class Clusters:
    """The stored numbers, clusters first: sites (C, D + 1), origins and radii (C, D), keys and values per cluster."""

    low: Array
    high: Array
    centre: Array
    scale: Array  # (D,)
    dtype: str
    sites: Array
    origins: Array
    radii: Array
    axes: list[tuple[Axis, ...]]
    values: list[Array]  # (p_1, .., p_D, K)
    slopes: list[Array]  # (p_1, .., p_D, K, D)

    @classmethod
    def read(cls, tensors: Mapping[str, Any], description: Mapping[str, Any], target: Target) -> "Clusters":
        """NotProved for a structure that is not a tree's."""
        dtype, D, K = str(description["dtype"]), target.box.dimension, target.d_out
        counts = description.get("clusters")
        if dtype not in DTYPES or not isinstance(counts, list) or len(counts) != 1 or list(description["directions"]) != [D]:
            raise NotProved("it is not a layer of one group of clusters on all variables.")
        C = int(counts[0])
        if not 1 <= C <= CLUSTERS or float(description["bonus"]) < 0:
            raise NotProved(f"it has {C:,} clusters, which this check does not take.")
        shapes = np.asarray(tensors["group.0.shapes"], dtype=np.float64)
        if shapes.shape != (C, D) or np.any(shapes != np.rint(shapes)) or np.any(shapes < 1) or np.any(shapes > 64):
            raise NotProved("its clusters' shapes are not whole numbers from 1 to 64.")
        sizes = shapes.astype(int)
        total = int(sizes.prod(axis=1).sum())
        if total > TOKENS:
            raise NotProved(f"it has {total:,} tokens, which this check does not take.")
        exact = {"matrix": (D, D), "shapes": (C, D), "origins": (C, D), "radii": (C, D)}
        rounded: dict[str, tuple[int, ...]] = {"sites.slopes": (C, D), "sites.offsets": (C,), "values": (total, K)}
        rounded["value_slopes"] = (total, K, D)
        for e in range(D):
            rounded |= {f"keys.{e}.{part}": (int(sizes[:, e].sum()),) for part in ("slopes", "offsets")}
        wanted: dict[str, tuple[int, ...]] = {"box.low": (D,), "box.high": (D,), "coordinates.centre": (D,)}
        wanted |= {f"group.0.{name}": shape for name, shape in (exact | rounded).items()}
        if {name: np.shape(tensor) for name, tensor in tensors.items()} != wanted:
            raise NotProved("its tensors are not those of clusters with affine values.")
        for name in wanted:
            part = name.removeprefix("group.0.")
            if str(tensors[name].dtype) != (dtype if part in rounded else "float64"):
                raise NotProved("a tensor is not in the dtype that the record states.")
        held = {name: np.asarray(tensors[name]).astype(np.float64) for name in wanted}
        if not all(np.isfinite(a).all() for a in held.values()):
            raise NotProved("a number is not finite.")
        low, high, centre = held["box.low"], held["box.high"], held["coordinates.centre"]
        if not (np.array_equal(low, target.box.low) and np.array_equal(high, target.box.high)):
            raise NotProved("the layer and the target speak about different boxes.")
        matrix, radii = held["group.0.matrix"], held["group.0.radii"]
        if np.count_nonzero(matrix - np.diag(np.diag(matrix))) or np.any(np.diag(matrix) <= 0) or np.any(radii <= 0):
            raise NotProved("its coordinates are not scaled variables, or a radius is not positive.")
        if not np.all((centre >= low) & (centre <= high)):
            raise NotProved("its centre lies outside the box.")
        axes, values, slopes, at = [], [], [], 0
        ends = np.concatenate([np.zeros((1, D), dtype=int), np.cumsum(sizes, axis=0)])
        for k, shape in enumerate(sizes):
            rows = [slice(ends[k, e], ends[k + 1, e]) for e in range(D)]
            keys = [(held[f"group.0.keys.{e}.slopes"][rows[e]], held[f"group.0.keys.{e}.offsets"][rows[e]]) for e in range(D)]
            axes.append(tuple(Axis(a, b) for a, b in keys))
            count = int(shape.prod())
            values.append(held["group.0.values"][at : at + count].reshape(*shape, K))
            slopes.append(held["group.0.value_slopes"][at : at + count].reshape(*shape, K, D))
            at += count
        sites = np.concatenate([held["group.0.sites.slopes"], held["group.0.sites.offsets"][:, None]], axis=1)
        return cls(low, high, centre, np.diag(matrix).copy(), dtype, sites, held["group.0.origins"], radii, axes, values, slopes)

    # -- sizes and rounding

    @property
    def reach(self) -> Array:
        """max |z| over the box."""
        return np.asarray(np.maximum(self.high - self.centre, self.centre - self.low) * self.scale * (1 + 1e-15))

    @property
    def query(self) -> Array:
        """How far a computed z is from M (x - centre)."""
        D = len(self.low)
        biggest = np.maximum(np.abs(self.low), np.abs(self.high)) * self.scale
        return np.asarray(DOUBLE * 1.01 * (2.0 * biggest + (D + 6) * self.reach))

    def levels(self) -> tuple[Array, Array]:
        """Largest |c| (C,) and largest |G| per axis (C, D)."""
        D = len(self.low)
        level = np.array([np.abs(v).max() for v in self.values])
        return level, np.stack([np.abs(g).reshape(-1, D).max(axis=0) for g in self.slopes])

    def largest(self) -> float:
        """|p_k| on |t| <= 1 and a little."""
        level, lean = self.levels()
        return float((level + 1.001 * lean.sum(axis=1)).max()) * (1 + 1e-9)

    def farthest(self) -> float:
        """|p_k| anywhere."""
        level, lean = self.levels()
        return float((level + (lean * (self.reach + 0.01 + np.abs(self.origins)) / self.radii).sum(axis=1)).max()) * 1.001

    def key_ranges(self) -> tuple[Array, Array, Array]:
        """Least and largest slope (C, D) of a cluster's keys, and the largest |offset|."""
        least = np.array([[axis.a.min() for axis in axes] for axes in self.axes])
        most = np.array([[axis.a.max() for axis in axes] for axes in self.axes])
        return least, most, np.array([[np.abs(axis.b).max() for axis in axes] for axes in self.axes])

    def score_error(self) -> float:
        """What rounding may do to a computed score."""
        u = compute_format(self.dtype).unit
        D = len(self.low)
        least, most, offsets = self.key_ranges()
        steep = np.maximum(np.abs(least), np.abs(most))
        t = (self.reach + self.query + np.abs(self.origins)) / self.radii * 1.001
        dt = self.query / self.radii + 8.0 * DOUBLE * t + 1.01 * u * t
        local = steep * dt + 4.1 * u * (2.0 * steep * t + offsets) + u * 20.0
        size = np.abs(self.sites[:, :-1]) @ self.reach + np.abs(self.sites[:, -1]) + (steep * t + offsets + 6.0).sum(axis=1)
        if not max(float(size.max()), float(t.max())) < 1e30:
            raise NotProved("its logits are too large to be followed.")
        total = np.abs(self.sites[:, :-1]) @ self.query + (4 * D + 100) * DOUBLE * 1.01 * size + local.sum(axis=1)
        return float(total.max()) * 1.001 + 2e-13 + 1000.0 * DOUBLE

    def head_error(self, k: int, head: _Head) -> float:
        """What rounding may do to p_k on its box."""
        u = compute_format(self.dtype).unit
        dt = self.query / self.radii[k] + 10.0 * DOUBLE
        if np.any(dt > 1e-3):
            raise NotProved("a cluster's coordinates are not resolved.")
        assert head.slopes is not None
        D = len(self.low)
        flat, lean = head.values.ravel(), head.slopes.reshape(-1, D)
        apart = (np.abs(flat - np.median(flat)) + 1.002 * np.abs(lean - np.median(lean, axis=0)).sum(axis=1)).max()
        total = float(np.abs(lean).max(axis=0) @ dt)
        for e, axis in enumerate(head.axes):
            if len(axis.a) > 1:
                eta = axis.spread * (dt[e] + 1.01 * u) + u * (10.0 * (np.abs(axis.a).max() + np.abs(axis.b).max()) + 24.0)
                total += math.expm1(2.0 * float(eta)) * 2.0 * float(apart)
        size = float((np.abs(flat) + 1.002 * np.abs(lean).sum(axis=1)).max())
        return total * 1.01 + (4.0 * sum(len(axis.a) for axis in head.axes) + 80.0) * DOUBLE * 1.01 * size + 1e-36 * size

    # -- who answers where

    def scores(self, k: Index, z: Array) -> Array:
        """S_k(z) for pairs."""
        t = (z - self.origins[k]) / self.radii[k]
        total = (self.sites[k, :-1] * z).sum(axis=1) + self.sites[k, -1]
        a, b = self._padded
        logits = t[:, :, None] * a[k] + b[k]
        top = logits.max(axis=2)
        return np.asarray(total + (top + np.log(np.exp(logits - top[:, :, None]).sum(axis=2))).sum(axis=1))

    @property
    def _padded(self) -> tuple[Array, Array]:
        found = self.__dict__.get("_pad")
        if found is None:
            C, D = self.origins.shape
            longest = max(len(axis.a) for axes in self.axes for axis in axes)
            a, b = np.zeros((C, D, longest)), np.full((C, D, longest), -np.inf)
            for k, axes in enumerate(self.axes):
                for e, axis in enumerate(axes):
                    a[k, e, : len(axis.a)], b[k, e, : len(axis.b)] = axis.a, axis.b
            found = self.__dict__["_pad"] = (a, b)
        return found

    def cover(self, margin: float, target: float) -> int:
        """The boxes it takes to show that every cluster that counts at z holds z in its box."""
        C, D = self.origins.shape
        least, most, offsets = self.key_ranges()
        least, most = least / self.radii, most / self.radii
        level, lean = self.levels()
        t = (self.reach + 0.01 + np.abs(self.origins)) / self.radii
        sizes = np.abs(self.sites[:, :-1]) @ (self.reach + 0.01) + np.abs(self.sites[:, -1])
        sizes = sizes + (np.maximum(np.abs(least), np.abs(most)) * self.radii * t + offsets + 4.0).sum(axis=1)
        room = margin + float(sizes.max()) * DOUBLE * 8.0 * (3 * D + 80) + 1e-9
        edge = self.reach * (1 + 1e-13) + 1e-14
        low, high = -edge[None], edge[None]
        box, cluster = np.zeros(C, dtype=np.intp), np.arange(C)
        inner = self.radii * (1.0 - 2.0**-47)
        used = 0
        for _ in range(60):
            if not len(low):
                return used
            used += len(low)
            if used > BOXES:
                raise NotProved(f"{BOXES:,} boxes do not tell its clusters apart.")
            middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-14)
            value = self.scores(cluster, middle[box])
            order = np.lexsort((value, box))
            best = order[np.searchsorted(box[order], np.arange(len(low)), side="right") - 1]
            lead, winner = value[best][box] - value, cluster[best][box]
            base = self.sites[winner, :-1] - self.sites[cluster, :-1]
            swing = np.maximum(np.abs(base + least[winner] - most[cluster]), np.abs(base + most[winner] - least[cluster]))
            away = np.abs(middle[box] - self.origins[cluster]) + half[box]
            said = level[cluster] + (lean[cluster] * away / self.radii[cluster]).sum(axis=1) * (1 + 1e-9) + target
            alive = ~(lead - (swing * half[box]).sum(axis=1) * (1 + 1e-12) > room + np.log(said))
            alive |= cluster == winner
            box, cluster = box[alive], cluster[alive]
            inside = np.all(np.abs(middle[box] - self.origins[cluster]) + half[box] <= inner[cluster], axis=1)
            waiting = np.zeros(len(low), dtype=bool)
            waiting[box[~inside]] = True
            low, high, box, cluster = _thirds(low, high, waiting, box, cluster)
        raise NotProved("a cluster answers outside its own box.")

    def head(self, k: int, m: int, expression: Expression) -> _Head:
        """Piece k, output m, against the target in its coordinates t: x = centre + (origin + radius t) / M."""
        half = self.radii[k] / self.scale
        middle = Interval.point(self.centre) + Interval.point(self.origins[k]) / Interval.point(self.scale)
        slack = 4.0 * DOUBLE * half  # of the quotient
        middle = Interval(middle.lo - slack - 1e-300, middle.hi + slack + 1e-300)
        middle = Interval(np.nextafter(middle.lo, -np.inf), np.nextafter(middle.hi, np.inf))
        return _Head(expression, middle, half, self.axes[k], self.values[k][..., m : m + 1], self.slopes[k][..., m, :])


def _thirds(low: Array, high: Array, waiting: NDArray[np.bool_], box: Index, cluster: Index) -> tuple[Array, Array, Index, Index]:
    """Waiting boxes cut in three along their longest side, each part with the clusters of its box."""
    chosen = np.flatnonzero(waiting)
    number = np.full(len(low), -1, dtype=np.intp)
    number[chosen] = np.arange(len(chosen))
    keep = waiting[box]
    box, cluster, low, high = number[box[keep]], cluster[keep], low[chosen], high[chosen]
    rows, axis = np.arange(len(low)), (high - low).argmax(axis=1)
    width = (high - low)[rows, axis] / 3.0
    cuts = [low[rows, axis], low[rows, axis] + width, high[rows, axis] - width, high[rows, axis]]
    lows, highs = [], []
    for i in range(3):
        left, right = low.copy(), high.copy()
        left[rows, axis], right[rows, axis] = cuts[i], cuts[i + 1]
        lows.append(left)
        highs.append(right)
    boxes = np.concatenate([box + i * len(low) for i in range(3)])
    clusters = np.tile(cluster, 3)
    order = np.argsort(boxes, kind="stable")
    return np.concatenate(lows), np.concatenate(highs), boxes[order], clusters[order]


def _switches(arguments: list[Expression], head: _Head) -> bool:
    """Whether some operation may switch or be singular on the box, by enclosures on 3^D parts."""
    E = len(head.axes)
    cuts = np.linspace(-1.0, 1.0, 4)
    low = np.stack([a.ravel() for a in np.meshgrid(*[cuts[:-1]] * E, indexing="ij")], axis=1)
    high = np.stack([a.ravel() for a in np.meshgrid(*[cuts[1:]] * E, indexing="ij")], axis=1)
    x = head._t(Interval(low, high))
    for argument in arguments:
        found = argument.enclose(x)
        if not np.all((found.lo > 0) | (found.hi < 0)):
            return True
    return False


def _near_kinks(head: _Head, error: float) -> float:
    """sup |f - p| on |t| <= 1 by values at middles and enclosed slopes; boxes cut in three where that exceeds `error`."""
    assert head.slopes is not None
    E = len(head.axes)
    slope_of = head.expression.gradient()
    c, G = head.values[..., 0], head.slopes
    flat = G.reshape(-1, E)
    middle_value, lean = np.median(c), np.median(flat, axis=0)
    apart = float((np.abs(c - middle_value) + np.abs(G - lean).sum(axis=-1)).max())
    uneven = 2.0 * np.abs(flat - lean).max(axis=0)
    spread = np.array([axis.spread for axis in head.axes])
    bent = 1.01 * (2.0 * np.outer(spread, spread) * apart + np.outer(spread, uneven) + np.outer(uneven, spread))
    steep = 1.0 + max(float(np.abs(axis.a).max() + np.abs(axis.b).max()) for axis in head.axes)
    dust = 400.0 * DOUBLE * (float((np.abs(c) + np.abs(G).sum(axis=-1)).max()) + 1.0) * steep
    columns = np.concatenate([c[..., None], G], axis=-1)
    low, high, worst, used = -np.ones((1, E)), np.ones((1, E)), 0.0, 0
    while len(low):
        used += len(low)
        if used > NEAR_KINKS:
            raise NotProved(f"near a kink {NEAR_KINKS:,} boxes do not show the error.")
        left_low, left_high = [], []
        for start in range(0, len(low), 30_000):
            a, b = low[start : start + 30_000], high[start : start + 30_000]
            t, half = (a + b) / 2.0, (b - a) / 2.0 * (1 + 1e-14)
            W = [axis.weights(t[:, e]) for e, axis in enumerate(head.axes)]
            tilted = [w * (axis.a - (w @ axis.a)[:, None]) for w, axis in zip(W, head.axes, strict=True)]
            mixed = _rows(W, columns)
            p = mixed[:, 0] + (mixed[:, 1:] * t).sum(axis=1)
            grad = np.empty_like(t)
            for e in range(E):
                moved = _rows([tilted[i] if i == e else W[i] for i in range(E)], columns)
                grad[:, e] = moved[:, 0] + (moved[:, 1:] * t).sum(axis=1) + mixed[:, 1 + e]
            f = head.expression.enclose(head._t(Interval(t, t)))
            over = head._t(Interval(a, b))
            slope, whole = slope_of.enclose(over), head.expression.enclose(over)
            with np.errstate(invalid="ignore", over="ignore"):
                one, two = slope.lo * head.half, slope.hi * head.half
                room = half @ bent
                gap = (np.maximum(np.abs(one - grad), np.abs(two - grad)) * (1 + 1e-12) + room) * half
                here = np.maximum(f.hi[:, 0] - p, p - f.lo[:, 0])
                first = here + gap.sum(axis=1)
                plain = np.maximum(whole.hi[:, 0] - p, p - whole.lo[:, 0]) + ((np.abs(grad) + room) * half).sum(axis=1)
                bound = np.fmin(np.where(np.isfinite(first), first, np.inf), np.where(np.isfinite(plain), plain, np.inf)) + dust
            if not np.all(here <= error):
                raise NotProved(f"a piece is off by more than {error:.4g} near a kink.")
            fits = bound <= error
            worst = max(worst, float(bound[fits].max(initial=0.0)))
            gap = np.where(np.isfinite(gap), gap, 1e300 * half)[~fits]
            rows, axis = np.arange(len(gap)), gap.argmax(axis=1)
            a, b = a[~fits], b[~fits]
            width = (b - a)[rows, axis] / 3.0
            for i in range(3):
                x, y = a.copy(), b.copy()
                x[rows, axis] = a[rows, axis] + i * width
                y[rows, axis] = b[rows, axis] if i == 2 else a[rows, axis] + (i + 1) * width
                left_low.append(x)
                left_high.append(y)
        low, high = np.concatenate(left_low), np.concatenate(left_high)
    return worst * (1 + 1e-12)


def _rows(W: list[Array], columns: Array) -> Array:
    """columns (p_1, .., p_E, n) weighted row by row."""
    out = np.tensordot(W[0], columns, axes=(1, 0))
    for w in W[1:]:
        out = (w.reshape(*w.shape, *([1] * (out.ndim - 2))) * out).sum(axis=1)
    return np.asarray(out)
