"""How far the literal softmax over listed tokens may be from the layer of the stored numbers, in float64 or float32.

Token j of cluster k has the logit (a_k + alpha_j/r) . z + b_k + beta_j - alpha_j . o/r.  A wrong z, a query that is scaled and
the constant row move all keys by the same query: of that, what multiplies a_k and b_k is the same for all tokens of a cluster and
moves its mass alone.  What a token has for itself (iota) is what multiplies alpha and beta, the rounding of its listed numbers,
of its products and sums, of the shift by the maximum and of exp.  With w the weights inside a cluster, p_k its head, Omega the
masses, |errors of scores| <= eta and sum_k Omega_k |p_k - f| <= blend,

    |column - F|  <=  max_k (e^{2 iota} - 1) sum_j w_j |v_j - p_k|  +  (e^{2 eta} - 1) 2 blend  +  values  +  sums  +  far ones,

the maximum over the clusters where they are heard.  Clusters that are not heard trail another one; as computed they trail by as
much less as logits are wrong there.  Other groups have e^-Lambda Z'/Z of the weight in a column: log Z is convex, so it is
largest at a corner, and every mean of tangents is below it.

Assumed: exp is accurate to 32 ulp, sums, products and quotients follow IEEE 754 in any order; z is formed from x - centre.  Where
the affine functions of x are multiplied out without centring first (some layouts do), that happens in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.proved import DOUBLE, Form, rounded
from maxaffine.checker.stored import NotProved
from maxaffine.checker.variation import variation

Array = NDArray[np.float64]

ROOM = 1.0 + 1e-11  # for the rounding of these sums themselves
HEARD = 50.0  # tokens that trail by more weigh less than 2e-22
EXP = 64.0  # 32 ulp
SMALL = 0.5  # errors of logits on the whole box, up to which masses are moved in proportion
RESOLVED = 1.5  # errors of logits beyond which nothing is said
MOST = 1 << 16  # tokens that a literal form is listed with


@dataclass(frozen=True)
class Edge:
    """Where a cluster is no longer heard: at z it trails `rival` by `lead`, from there on by `slope` more per unit of z.

    `said` bounds |f| + |v| at the edge, `bend` how fast that grows.
    """

    cluster: int
    rival: int
    z: float
    lead: float
    slope: float
    said: float
    bend: float


@dataclass(frozen=True)
class Heard:
    """What the proof of a group of clusters knows of it.

    `blend` bounds sum_k Omega_k |p_k - f| and `size` |f| where the certificate speaks, f what the group stands for.  `spans`:
    where a cluster is heard, t from low (C, E) to high; None: anywhere on the box.  Beyond that, masses times |f| + |v| are at
    most `far`, masses alone `mass`, by the exact scores; or `edges` says where.
    """

    blend: float
    size: float
    spans: tuple[Array, Array] | None = None
    far: float = 0.0
    mass: float = 0.0
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class Column:
    """One group in its own query column: what it loses, a bound of |F_g|, of the errors of its logits, of its tokens' values."""

    lost: float
    size: float
    eta: float  # where its clusters are heard
    top: float
    levels: Callable[[], tuple[float, float]]  # of log Z over the box


@dataclass(frozen=True)
class Frame:
    """The box, the centre and the tilt of a layer, the arithmetic, and how many tokens there are in all."""

    centre: Array
    low: Array
    high: Array
    tilt: Array | None
    bonus: float
    tokens: int
    form: Form

    @classmethod
    def read(cls, tensors: Mapping[str, Any], layer: Mapping[str, Any], form: Form) -> Frame:
        """From tensors that a prover has looked at."""
        centre, low, high = (np.asarray(tensors[n], dtype=np.float64) for n in ("coordinates.centre", "box.low", "box.high"))
        tilt = np.abs(np.asarray(tensors["tilt"]).astype(np.float64)) if "tilt" in tensors else None
        bonus = float(layer["bonus"])
        if not 0.0 <= bonus < 1e30:
            raise NotProved("its bonus is negative, or no number that logits can be added to.")
        tokens = 0
        for g in range(len(layer["directions"])):
            if f"group.{g}.shapes" in tensors:
                tokens += int(np.asarray(tensors[f"group.{g}.shapes"], dtype=np.float64).prod(axis=1).sum())
            else:
                keys = [n for n in tensors if n.startswith(f"group.{g}.") and n.endswith(".slopes") and "value" not in n]
                tokens += math.prod(len(tensors[n]) for n in keys)
        if tokens > MOST:
            raise NotProved(f"it has {tokens:,} tokens, and literal forms of more than {MOST:,} are not looked at.")
        return cls(centre, low, high, tilt, bonus, tokens, form)

    @property
    def reach(self) -> Array:
        """max |x - centre|."""
        return np.asarray(np.maximum(self.high - self.centre, self.centre - self.low) * (1 + 1e-15))

    @property
    def leaning(self) -> float:
        """max |tilt (x - centre)|."""
        return 0.0 if self.tilt is None else float((self.tilt @ self.reach).max()) * ROOM

    def tilted(self) -> float:
        """What is wrong with the tilt, which is a part of every value of the first group."""
        if self.tilt is None:
            return 0.0
        away = np.maximum(np.abs(self.low), np.abs(self.high)) + np.abs(self.centre)
        D = len(self.centre)
        return self.form.gamma(2 * self.tokens + D + 20) * self.leaning + rounded(D + 9, DOUBLE) * float((self.tilt @ away).max())

    def sums(self, mean: float) -> float:
        """Of a weighted sum of all tokens and its normaliser, where sum W |v| <= mean."""
        return self.form.gamma(2 * self.tokens + 20) * mean

    def stray(self, top: float) -> float:
        """Of weights that vanish or are too small to be told: below the smallest normal number, or not heard."""
        return self.tokens * (4.0 * self.form.normal + 2.0 * math.exp(-HEARD) * 1000.0 * self.form.unit) * top


def literal_bound(frame: Frame, bound: float, columns: list[Column]) -> float:
    """The bound of the literal form: that of the layer, what every column loses, the leak between them, and their sum."""
    size = sum(one.size for one in columns) + frame.leaning
    total = bound + sum(one.lost for one in columns) + frame.tilted()
    total += (frame.form.gamma(len(columns) + 5) + frame.form.unit) * size
    if len(columns) > 1:
        levels = [one.levels() for one in columns]
        tops = [one.top + (frame.leaning if g == 0 else 0.0) for g, one in enumerate(columns)]
        for g, k in itertools.permutations(range(len(columns)), 2):
            ratio = levels[k][1] - levels[g][0] - frame.bonus + 2.0 * (columns[g].eta + columns[k].eta + 0.3)
            total += math.exp(ratio) * (tops[g] + tops[k]) * ROOM if ratio < 600.0 else math.inf
    if not math.isfinite(total):
        raise NotProved(f"its logits are not resolved in {frame.form.name}.")
    return total * ROOM


# ---------------------------------------------------------------------- groups of clusters


@dataclass(frozen=True)
class Listed:
    """The tokens of one group of clusters, one row each, numbers as stored; `of` is a token's cluster."""

    matrix: Array
    of: NDArray[np.intp]
    site: Array  # (N, E)
    level: Array  # (N,)
    alpha: Array  # (N, E), over the radius
    beta: Array
    origin: Array  # (N, E)
    c: Array  # (N, K)
    G: Array  # (N, K, E), over the radius
    clusters: tuple[tuple[tuple[tuple[Array, Array], ...], Array, Array, Array, Array], ...]  # keys, c, G, origin, radius

    @classmethod
    def read(cls, tensors: Mapping[str, Any], g: int) -> Listed:
        """From tensors that a prover has looked at."""

        def named(name: str) -> Array:
            return np.asarray(tensors[f"group.{g}.{name}"]).astype(np.float64)

        matrix, shapes, origins, radii = (named(name) for name in ("matrix", "shapes", "origins", "radii"))
        sizes, (C, E) = shapes.astype(int), shapes.shape
        counts = sizes.prod(axis=1)
        of = np.repeat(np.arange(C), counts)
        keys = [(named(f"keys.{e}.slopes"), named(f"keys.{e}.offsets")) for e in range(E)]
        ends = np.concatenate([np.zeros((1, E), dtype=int), np.cumsum(sizes, axis=0)])
        firsts = np.concatenate([[0], np.cumsum(counts)])
        c, K = named("values"), named("values").shape[1]
        G = named("value_slopes") if f"group.{g}.value_slopes" in tensors else np.zeros((len(c), K, E))
        alpha, beta, clusters = [], [], []
        for k in range(C):
            own = tuple((keys[e][0][ends[k, e] : ends[k + 1, e]], keys[e][1][ends[k, e] : ends[k + 1, e]]) for e in range(E))
            alpha.append(np.stack([a.ravel() for a in np.meshgrid(*(a for a, _ in own), indexing="ij")], axis=1) / radii[k])
            beta.append(np.sum([b.ravel() for b in np.meshgrid(*(b for _, b in own), indexing="ij")], axis=0))
            rows, shape = slice(firsts[k], firsts[k + 1]), tuple(sizes[k])
            clusters.append((own, c[rows].reshape(*shape, K), G[rows].reshape(*shape, K, E), origins[k], radii[k]))
        return cls(
            matrix, of, named("sites.slopes")[of], named("sites.offsets")[of], np.concatenate(alpha), np.concatenate(beta),
            origins[of], c, G / radii[of][:, None, :], tuple(clusters),
        )  # fmt: skip

    @cached_property
    def slopes(self) -> Array:
        """As listed."""
        return self.site + self.alpha

    @cached_property
    def offsets(self) -> Array:
        """As listed."""
        return np.asarray(self.level + self.beta - (self.alpha * self.origin).sum(axis=1))


@dataclass(frozen=True)
class Coordinates:
    """|z| over the box, and how far a computed z may be from that of the same x.

    A coordinate of one variable alone is wrong by a part of itself, others by a part of their terms.
    """

    size: Array
    part: float
    alone: NDArray[np.bool_]
    shift: Array  # |M| |centre|

    @classmethod
    def read(cls, frame: Frame, matrix: Array) -> Coordinates:
        """Of the coordinates z = M (x - centre)."""
        D = len(frame.centre)
        part = rounded(D + 4, DOUBLE) + frame.form.gamma(D + 9)
        alone = np.count_nonzero(matrix, axis=1) == 1
        return cls(np.abs(matrix) @ frame.reach * ROOM, part, alone, np.abs(matrix) @ np.abs(frame.centre))

    def error(self, z: Array) -> Array:
        """Where |z| is at most this."""
        return np.asarray(self.part * np.where(self.alone, z, self.size) * ROOM)

    def away(self, z: Array) -> Array:
        """|M| (|x| + |centre|) there."""
        return np.asarray(np.where(self.alone, z, self.size) + 2.0 * self.shift)


@dataclass(frozen=True)
class Logits:
    """Errors of all tokens' logits (N,): what a cluster shares, what a token has for itself; and their sizes."""

    shared: Array
    own: Array
    top: Array


def logits_of(listed: Listed, at: Coordinates, z: Array, frame: Frame) -> Logits:
    """For |z| <= z, (E,) or (N, E)."""
    E, form, z = len(at.size), frame.form, np.broadcast_to(z, listed.site.shape)
    error = at.error(z)
    site, alpha = np.abs(listed.site), np.abs(listed.alpha)
    far = z + error
    inner = (alpha * (far + np.abs(listed.origin))).sum(axis=1) + np.abs(listed.beta)
    formed = (site * far).sum(axis=1) + np.abs(listed.level) + inner
    top = (np.abs(listed.slopes) * far).sum(axis=1) + np.abs(listed.offsets) + frame.bonus
    shared = (site * error).sum(axis=1) + form.gamma(14) * ((site * z).sum(axis=1) + np.abs(listed.level) + frame.bonus)
    own = (alpha * error).sum(axis=1) + (form.gamma(14) + rounded(2 * E + 9, DOUBLE)) * inner + 2.0 * DOUBLE * formed
    own = own + form.gamma(E + 5) * top + form.unit * (np.minimum(2.0 * top, HEARD) + EXP + 8.0)
    return Logits(shared * ROOM, own * ROOM, np.maximum(top, formed))


def _lost(listed: Listed, at: Coordinates, z: Array, frame: Frame) -> tuple[Array, Array]:
    """What is wrong with every token's computed value (N,), and how large it may be, for |z| <= z."""
    E, D = listed.site.shape[1], len(frame.centre)
    z = np.broadcast_to(z, listed.site.shape)
    G, error = np.abs(listed.G), at.error(z)

    def along(numbers: Array) -> Array:
        return np.asarray(np.einsum("nke,ne->nk", G, numbers))

    formed = np.abs(listed.c) + along(np.abs(listed.origin) + z + error)
    # values are formed in x: the terms of an oblique coordinate are as large as the box, however small the coordinate is
    held = np.abs(listed.c - np.einsum("nke,ne->nk", listed.G, listed.origin)) + along(np.where(at.alone, z, at.size) + error)
    lost = along(error) + rounded(2 * E + 11, DOUBLE) * formed + frame.form.gamma(E + D + 10) * held
    lost = lost + rounded(D + 9, DOUBLE) * along(at.away(z))
    return lost.max(axis=1) * ROOM, formed.max(axis=1) * ROOM


def cluster_column(tensors: Mapping[str, Any], g: int, heard: Heard, frame: Frame) -> Column:
    """A group of clusters in its own column."""
    listed = Listed.read(tensors, g)
    at = Coordinates.read(frame, listed.matrix)
    C = len(listed.clusters)
    origins = np.stack([one[3] for one in listed.clusters])
    radii = np.stack([one[4] for one in listed.clusters])
    most = (at.size * (1.0 + at.part) + np.abs(origins)) / radii * ROOM
    low, high = (-most, most) if heard.spans is None else (np.maximum(heard.spans[0], -most), np.minimum(heard.spans[1], most))
    empty = np.any(low > high, axis=1)  # never heard
    near = np.maximum(np.abs(origins + radii * low), np.abs(origins + radii * high))
    near = near + 1e-15 * (np.abs(origins) + radii * np.maximum(np.abs(low), np.abs(high)))
    near = np.minimum(near, at.size) * ROOM
    near = np.where(empty[:, None], 0.0, near)
    here, there = logits_of(listed, at, near[listed.of], frame), logits_of(listed, at, at.size, frame)
    if not float(there.top.max()) < frame.form.largest:
        raise NotProved(f"its logits may overflow in {frame.form.name}.")
    loud = ~empty[listed.of]
    if not loud.any():
        raise NotProved("none of its clusters is heard.")
    own = np.zeros(C)
    np.maximum.at(own, listed.of[loud], here.own[loud])
    eta = float((here.shared + here.own)[loud].max())
    if not (eta < RESOLVED and float(own.max()) < RESOLVED):
        raise NotProved(f"its logits are not resolved in {frame.form.name}.")
    inside, spread = _inside(listed, low, high, empty, np.expm1(2.0 * own))
    lost_near, _ = _lost(listed, at, near[listed.of], frame)
    lost_far, tops = _lost(listed, at, at.size, frame)
    top = float(tops.max()) + heard.size
    worst = float((there.shared + there.own).max())
    if worst < SMALL:  # all masses move by little, those that are not heard as well
        grown = math.expm1(2.0 * worst)
        far, mass, moved, astray = heard.far * (1.0 + grown), heard.mass * (1.0 + grown), heard.far * grown, heard.mass * grown
    else:
        far, mass = _far(listed, at, heard, frame, worst)
        moved, astray = far + heard.far, mass
    if not astray < 0.2:
        raise NotProved(f"in {frame.form.name} clusters are heard where they should not be.")
    blur = math.exp(2.0 * eta) * (1.0 + 2.0 * astray) / (1.0 - astray) - 1.0
    mean = heard.size + heard.blend + spread + 2.0 * far
    total = (1.0 + blur) * (inside + float(lost_near[loud].max())) + blur * 2.0 * heard.blend
    total += (1.0 + blur) * (2.0 * moved + mass * float(lost_far.max()) + frame.sums(mean)) + frame.stray(top)
    levels = at.size * (1.0 + at.part)

    def normaliser() -> tuple[float, float]:
        return log_normaliser(listed.slopes, listed.offsets, levels)

    return Column(total * ROOM, (heard.size + heard.blend) * ROOM, eta, top, normaliser)


def _inside(listed: Listed, low: Array, high: Array, empty: NDArray[np.bool_], moved: Array) -> tuple[float, float]:
    """max_k moved_k sum_j w_j |v_j - p_k| over where clusters are heard, and that without the factor.

    Clusters whose values are close anyway are not followed.
    """
    crude = np.zeros(len(listed.clusters))
    for k, (keys, c, G, _, _) in enumerate(listed.clusters):
        if c.shape[:-1] != (1,) * len(keys) and not empty[k]:
            crude[k] = variation(keys, c, G, low[k], high[k], True)
    worst = spread = 0.0
    for k in np.argsort(-crude * moved, kind="stable"):
        if crude[k] * moved[k] <= worst and crude[k] <= spread:
            continue
        keys, c, G, _, _ = listed.clusters[int(k)]
        fine = min(float(crude[k]), variation(keys, c, G, low[k], high[k], False))
        worst, spread = max(worst, fine * float(moved[k])), max(spread, fine)
    return worst * ROOM, spread * ROOM


def _far(listed: Listed, at: Coordinates, heard: Heard, frame: Frame, worst: float) -> tuple[float, float]:
    """Masses times |f| + |v| of clusters where they are not heard, as computed, and the masses alone."""
    if not heard.edges:
        grown = math.exp(min(2.0 * worst, 600.0))
        return heard.far * grown, heard.mass * grown
    far = mass = 0.0
    first = np.searchsorted(listed.of, np.arange(len(listed.clusters) + 1))
    for edge in heard.edges:
        rows = np.r_[first[edge.cluster] : first[edge.cluster + 1], first[edge.rival] : first[edge.rival + 1]]
        pair = Listed(
            listed.matrix, listed.of[rows], listed.site[rows], listed.level[rows], listed.alpha[rows], listed.beta[rows],
            listed.origin[rows], listed.c[rows], listed.G[rows], (),
        )  # fmt: skip
        z = np.array([abs(edge.z)])
        one, two = logits_of(pair, at, z, frame), logits_of(pair, at, z + 1.0, frame)
        errors, later = one.shared + one.own, two.shared + two.own
        slip = 2.0 * (float(errors.max()) + HEARD * frame.form.unit)
        grows = 2.0 * float((later - errors).max())
        if not (edge.slope > 4.0 * grows and edge.lead > 2.0 * slip):
            raise NotProved(f"the lead of a cluster is lost to rounding in {frame.form.name}.")
        share = 1.25 * math.exp(slip - edge.lead)
        far += share * (edge.said + edge.bend / (math.e * (edge.slope - 2.0 * grows)))
        mass += share
    return far * ROOM, mass * ROOM


# ---------------------------------------------------------------------- normalisers


def log_normaliser(slopes: Array, offsets: Array, size: Array) -> tuple[float, float]:
    """Bounds of log sum_j exp(a_j . z + b_j) over |z_e| <= size_e."""
    E = len(size)
    slack = 100.0 * DOUBLE * (float((np.abs(slopes) @ size + np.abs(offsets)).max()) + 1.0 + len(offsets)) + 1e-9

    def tangent(z: Array) -> tuple[float, Array]:
        scores = slopes @ z + offsets
        top = float(scores.max())
        w = np.exp(scores - top)
        return top + math.log(float(w.sum())), (w @ slopes) / float(w.sum())

    if E > 8:
        raise NotProved("its normaliser has too many corners to be bounded.")
    corners = [np.array(signs) * size for signs in itertools.product((-1.0, 1.0), repeat=E)]
    high = max(tangent(z)[0] for z in corners)
    low = _lowest_on_line(tangent, float(size[0])) if E == 1 else _lowest(tangent, size)
    return low - slack, high + slack


Tangent = Callable[[Array], tuple[float, Array]]


def _lowest_on_line(tangent: Tangent, size: float) -> float:
    """A lower bound of a convex function on [-size, size]: where two tangents of opposite slopes cross."""
    a, b = -size, size
    (left, down), (right, up) = tangent(np.array([a])), tangent(np.array([b]))
    if float(down[0]) >= 0.0:
        return left
    if float(up[0]) <= 0.0:
        return right
    best = -math.inf
    for _ in range(200):
        one, two = float(down[0]), float(up[0])
        share = two / (two - one)
        best = max(best, share * (left - one * a) + (1.0 - share) * (right - two * b))
        middle = a + (b - a) / 2.0
        if not a < middle < b:
            break
        value, slope = tangent(np.array([middle]))
        if value - best < 0.01:
            break
        if float(slope[0]) <= 0.0:
            a, left, down = middle, value, slope
        else:
            b, right, up = middle, value, slope
        if float(down[0]) == 0.0:
            return max(best, left)
    return best


def _lowest(tangent: Tangent, size: Array) -> float:
    """The same in several coordinates: a linear program finds the mean of tangents that is highest where it is lowest."""
    from scipy.optimize import linprog

    E, z = len(size), np.zeros(len(size))
    values: list[float] = []
    leans: list[Array] = []
    best, seen = -math.inf, math.inf
    for _ in range(60 * E):
        value, lean = tangent(z)
        seen = min(seen, value)
        values.append(value - float(lean @ z))
        leans.append(lean)
        rows = np.concatenate([np.array(leans), -np.ones((len(leans), 1))], axis=1)
        bounds = [*((-float(s), float(s)) for s in size), (None, None)]
        found = linprog(np.append(np.zeros(E), 1.0), A_ub=rows, b_ub=-np.array(values), bounds=bounds, method="highs")
        if found.status != 0:
            break
        shares = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0)
        if not float(shares.sum()) > 0:
            break
        shares = shares / float(shares.sum())
        best = max(best, float(shares @ np.array(values)) - float(np.abs(shares @ np.array(leans)) @ size))
        if seen - best < 0.03:
            break
        z = np.clip(found.x[:E], -size, size)
    return best
