"""How far the literal softmax over the listed tokens of a group of clusters may be from the group, in float64 or float32.

Token j of cluster k has the logit (a_k + alpha_j/r) . z + b_k + beta_j - alpha_j . o/r.  A wrong z, a query that is scaled and
the constant row move all keys by the same query: of that, what multiplies a_k and b_k is the same for all tokens of a cluster and
moves its mass alone.  What a token has for itself (iota) is what multiplies alpha and beta, the rounding of its listed numbers,
of its products and sums, of the shift by the maximum and of exp.  With w the weights inside a cluster, p_k its head, Omega the
masses, |errors of scores| <= eta and sum_k Omega_k |p_k - f| <= blend,

    |column - F|  <=  max_k (e^{2 iota} - 1) sum_j w_j |v_j - p_k|  +  (e^{2 eta} - 1) 2 blend  +  values  +  sums  +  far ones,

the maximum over the clusters where they count.  Clusters that do not count trail another one; as computed they trail by as much
less as logits are wrong there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.head_rounding import variation
from maxaffine.checker.literal_groups import MARGIN, NEGLIGIBLE, RESOLVED, Column, Coordinates, Frame
from maxaffine.checker.normaliser import log_normaliser
from maxaffine.checker.proved import DOUBLE, NotProved, rounded
from maxaffine.checker.reader import Clusters
from maxaffine.core.arrays import Array

EXP = 64.0  # 32 ulp
SMALL = 0.5  # errors of logits on the whole box, up to which masses are moved in proportion


@dataclass(frozen=True)
class Edge:
    """Where a cluster counts no longer: at z it trails `rival` by `lead`, from there on by `slope` more per unit of z.

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
class Blend:
    """What the proof of a group of clusters knows of it.

    `blend` bounds sum_k Omega_k |p_k - f| and `size` |f| where the certificate speaks, f what the group stands for.  `spans`:
    where a cluster counts, t from low (C, E) to high; None: anywhere on the box.  Beyond that, masses times |f| + |v| are at
    most `far`, masses alone `mass`, by the exact scores; or `edges` says where.
    """

    blend: float
    size: float
    spans: tuple[Array, Array] | None = None
    far: float = 0.0
    mass: float = 0.0
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class Tokens:
    """The tokens of one group of clusters, one row each, numbers as stored; `of` is a token's cluster."""

    of: NDArray[np.intp]
    site: Array  # (N, E)
    level: Array  # (N,)
    alpha: Array  # (N, E), over the radius
    beta: Array
    origin: Array  # (N, E)
    c: Array  # (N, K)
    G: Array  # (N, K, E), over the radius

    @classmethod
    def listed(cls, group: Clusters) -> Tokens:
        """All tokens of a group."""
        C, E = group.sizes.shape
        of = np.repeat(np.arange(C), group.sizes.prod(axis=1))
        alpha, beta = [], []
        for axes, radius in zip(group.axes, group.radii, strict=True):
            alpha.append(np.stack([a.ravel() for a in np.meshgrid(*(one.a for one in axes), indexing="ij")], axis=1) / radius)
            beta.append(np.sum([b.ravel() for b in np.meshgrid(*(one.b for one in axes), indexing="ij")], axis=0))
        c, G = (np.concatenate([one.reshape(-1, *one.shape[E:]) for one in rows]) for rows in (group.values, group.slopes))
        return cls(
            of, group.sites[of, :-1], group.sites[of, -1], np.concatenate(alpha), np.concatenate(beta), group.origins[of], c,
            G / group.radii[of][:, None, :],
        )  # fmt: skip

    def only(self, *clusters: int) -> Tokens:
        """Those of some clusters."""
        rows = np.isin(self.of, clusters)
        return Tokens(*(getattr(self, name)[rows] for name in ("of", "site", "level", "alpha", "beta", "origin", "c", "G")))

    @cached_property
    def slopes(self) -> Array:
        """As listed."""
        return self.site + self.alpha

    @cached_property
    def offsets(self) -> Array:
        """As listed."""
        return np.asarray(self.level + self.beta - (self.alpha * self.origin).sum(axis=1))


@dataclass(frozen=True)
class Logits:
    """Errors of all tokens' logits (N,): what a cluster shares, what a token has for itself; and their sizes."""

    shared: Array
    own: Array
    top: Array


def logits_of(tokens: Tokens, at: Coordinates, z: Array, frame: Frame) -> Logits:
    """For |z| <= z, (E,) or (N, E)."""
    E, form, z = len(at.size), frame.form, np.broadcast_to(z, tokens.site.shape)
    error = at.error(z)
    site, alpha = np.abs(tokens.site), np.abs(tokens.alpha)
    far = z + error
    inner = (alpha * (far + np.abs(tokens.origin))).sum(axis=1) + np.abs(tokens.beta)
    formed = (site * far).sum(axis=1) + np.abs(tokens.level) + inner
    top = (np.abs(tokens.slopes) * far).sum(axis=1) + np.abs(tokens.offsets) + frame.bias
    shared = (site * error).sum(axis=1) + form.gamma(14) * ((site * z).sum(axis=1) + np.abs(tokens.level) + frame.bias)
    own = (alpha * error).sum(axis=1) + (form.gamma(14) + rounded(2 * E + 9, DOUBLE)) * inner + 2.0 * DOUBLE * formed
    own = own + form.gamma(E + 5) * top + form.unit * (np.minimum(2.0 * top, NEGLIGIBLE) + EXP + 8.0)
    return Logits(shared * MARGIN, own * MARGIN, np.maximum(top, formed))


def _lost(tokens: Tokens, at: Coordinates, z: Array, frame: Frame) -> tuple[Array, Array]:
    """What is wrong with every token's computed value (N,), and how large it may be, for |z| <= z."""
    E, D = tokens.site.shape[1], len(frame.layer.centre)
    z = np.broadcast_to(z, tokens.site.shape)
    G, error = np.abs(tokens.G), at.error(z)

    def along(numbers: Array) -> Array:
        return np.asarray(np.einsum("nke,ne->nk", G, numbers))

    formed = np.abs(tokens.c) + along(np.abs(tokens.origin) + z + error)
    # values are formed in x: the terms of an oblique coordinate are as large as the box, however small the coordinate is
    held = np.abs(tokens.c - np.einsum("nke,ne->nk", tokens.G, tokens.origin)) + along(np.where(at.alone, z, at.size) + error)
    lost = along(error) + rounded(2 * E + 11, DOUBLE) * formed + frame.form.gamma(E + D + 10) * held
    lost = lost + rounded(D + 9, DOUBLE) * along(at.away(z))
    return lost.max(axis=1) * MARGIN, formed.max(axis=1) * MARGIN


def _ranges(group: Clusters, known: Blend, at: Coordinates) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Where clusters count: t from low to high (C, E), |z| at most (C, E), and which clusters never count."""
    most = (at.size * (1.0 + at.part) + np.abs(group.origins)) / group.radii * MARGIN
    low, high = (-most, most) if known.spans is None else (np.maximum(known.spans[0], -most), np.minimum(known.spans[1], most))
    empty = np.any(low > high, axis=1)
    near = np.maximum(np.abs(group.origins + group.radii * low), np.abs(group.origins + group.radii * high))
    near = near + 1e-15 * (np.abs(group.origins) + group.radii * np.maximum(np.abs(low), np.abs(high)))
    return low, high, np.where(empty[:, None], 0.0, np.minimum(near, at.size) * MARGIN), empty


def cluster_column(group: Clusters, known: Blend, frame: Frame) -> Column:
    """A group of clusters in its own column."""
    tokens, at = Tokens.listed(group), Coordinates.read(frame, group.matrix)
    low, high, near, empty = _ranges(group, known, at)
    here, there = logits_of(tokens, at, near[tokens.of], frame), logits_of(tokens, at, at.size, frame)
    if not float(there.top.max()) < frame.form.largest:
        raise NotProved(f"its logits may overflow in {frame.form.name}.")
    count = ~empty[tokens.of]
    if not count.any():
        raise NotProved("none of its clusters counts anywhere.")
    own = np.zeros(len(group.sizes))
    np.maximum.at(own, tokens.of[count], here.own[count])
    eta = float((here.shared + here.own)[count].max())
    if not (eta < RESOLVED and float(own.max()) < RESOLVED):
        raise NotProved(f"its logits are not resolved in {frame.form.name}.")
    inside, spread = _inside(group, low, high, empty, np.expm1(2.0 * own))
    lost_near, _ = _lost(tokens, at, near[tokens.of], frame)
    lost_far, tops = _lost(tokens, at, at.size, frame)
    top = float(tops.max()) + known.size
    worst = float((there.shared + there.own).max())
    if worst < SMALL:  # all masses move by little, those that do not count as well
        grown = math.expm1(2.0 * worst)
        far, mass, moved, astray = known.far * (1.0 + grown), known.mass * (1.0 + grown), known.far * grown, known.mass * grown
    else:
        far, mass = _far(tokens, at, known, frame, worst)
        moved, astray = far + known.far, mass
    if not astray < 0.2:
        raise NotProved(f"in {frame.form.name} clusters answer where they should not.")
    blur = math.exp(2.0 * eta) * (1.0 + 2.0 * astray) / (1.0 - astray) - 1.0
    mean = known.size + known.blend + spread + 2.0 * far
    total = (1.0 + blur) * (inside + float(lost_near[count].max())) + blur * 2.0 * known.blend
    total += (1.0 + blur) * (2.0 * moved + mass * float(lost_far.max()) + frame.sums(mean)) + frame.stray(top)

    def levels() -> tuple[float, float]:
        return log_normaliser(tokens.slopes, tokens.offsets, at.size * (1.0 + at.part))

    return Column(total * MARGIN, (known.size + known.blend) * MARGIN, eta, top, levels)


def _inside(group: Clusters, low: Array, high: Array, empty: NDArray[np.bool_], moved: Array) -> tuple[float, float]:
    """max_k moved_k sum_j w_j |v_j - p_k| over where clusters count, and that without the factor.

    Clusters whose values are close anyway are not followed.
    """

    def of(k: int, crude: bool) -> float:
        return variation(group.axes[k], group.values[k], group.slopes[k], low[k], high[k], crude)

    crude = np.zeros(len(group.sizes))
    for k in np.flatnonzero((group.sizes.prod(axis=1) > 1) & ~empty):
        crude[k] = of(int(k), True)
    worst = spread = 0.0
    for k in np.argsort(-crude * moved, kind="stable"):
        if crude[k] * moved[k] <= worst and crude[k] <= spread:
            continue
        fine = min(float(crude[k]), of(int(k), False))
        worst, spread = max(worst, fine * float(moved[k])), max(spread, fine)
    return worst * MARGIN, spread * MARGIN


def _far(tokens: Tokens, at: Coordinates, known: Blend, frame: Frame, worst: float) -> tuple[float, float]:
    """Masses times |f| + |v| of clusters where they do not count, as computed, and the masses alone."""
    if not known.edges:
        grown = math.exp(min(2.0 * worst, 600.0))
        return known.far * grown, known.mass * grown
    far = mass = 0.0
    for edge in known.edges:
        pair, z = tokens.only(edge.cluster, edge.rival), np.array([abs(edge.z)])
        one, two = logits_of(pair, at, z, frame), logits_of(pair, at, z + 1.0, frame)
        errors, later = one.shared + one.own, two.shared + two.own
        slip = 2.0 * (float(errors.max()) + NEGLIGIBLE * frame.form.unit)
        grows = 2.0 * float((later - errors).max())
        if not (edge.slope > 4.0 * grows and edge.lead > 2.0 * slip):
            raise NotProved(f"the lead of a cluster is lost to rounding in {frame.form.name}.")
        share = 1.25 * math.exp(slip - edge.lead)
        far += share * (edge.said + edge.bend / (math.e * (edge.slope - 2.0 * grows)))
        mass += share
    return far * MARGIN, mass * MARGIN
