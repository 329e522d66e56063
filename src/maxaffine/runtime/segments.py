"""A head whose clusters stand along one direction, as short polynomials between edges, with a proved distance.

    F(z) = sum_k Omega_k(z) h_k(z)   ~   p_k(z)                                            between the edges e_{k-1}, e_k (hard)
                                     ~   p_k(z) + sigma(g_k (z - e_k)) (p_{k+1} - p_k)(z)  around the edge e_k            (soft)

Clusters are ordered by the slopes of their keys.  Where those of a cluster all exceed those of the one before, by at least g,
the difference d of the two masses grows with z, and the edge e is where it is 0.  With D = h_{k+1} - h_k,
|D(z)| <= J + R |z - e| near the edge (J and R from a polynomial of D), u sigma(-u) <= .2785 and |u| sigma'(u) <= .2240,

    hard:  |F - h_k| <= J + R max(.2785 / g, eta)              eta: how far from e the edge is stored
    soft:  a mass that is off by delta <= 1 moves F by at most e delta (J / 4 + .2240 R / g)
    F' :   at most the heads' slopes and G (J / 4 + .2240 R / g), G the largest slope of d

d itself is bent: its second derivative is at most s^2/4, s the spread of the slopes of a cluster's keys.  Against the straight
line of the soft form this moves F by at most s^2/(8 g^2) (2.2 J + 11 R / g) where s <= .3 g, because v^2 e^{-v/2} <= 2.2 and
v^3 e^{-v/2} <= 11.  Beyond REACH / g from an edge (REACH about 40), and of all other clusters, the mass is below e^-REACH.  The
heads h_k themselves are collapsed on their own interval (runtime/cluster_series.py), which is cut in halves until the degree is
small.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebval

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64
from maxaffine.layer.clusters import Cluster, ClusterGroup
from maxaffine.runtime.cluster_series import most_said, series_of
from maxaffine.runtime.collapse_directions import powers_of

REACHES = (42.0, 34.0, 27.0, 21.0)  # e^-42 is below the last digit of float64; shorter where the heads are too steep for it
HARD, SOFT = 0.2785, 0.2240  # sup of u sigma(-u) and of u sigma'(u), rounded up
BENT = 0.3  # of the least slope that keys may be spread for the soft form
MOST_PIECES = 256
MOST_CUTS = 9  # a cluster's interval is halved at most so often
INSIDE = 1.0 - 2.0**-20  # of [-1, 1] that the interval of a piece takes


@dataclass(frozen=True)
class Piece:
    """sum_j c_j y^j per output, y = (z - middle) scale, |y| <= 1 on its interval; `error` bounds |h - p| there."""

    cluster: int
    high: float  # where the next piece begins
    middle: float
    scale: float
    powers: Array  # (degree + 1, K)
    error: float


@dataclass(frozen=True)
class Segments:
    """Pieces from left to right, what lies between them, and what the choice of a side costs."""

    pieces: tuple[Piece, ...]
    edges: Array  # (P - 1,)
    gains: Array  # (P - 1,): the slope of d at the edge; infinite where a cluster was cut
    switched: float  # what the hard choice is off by
    blended: float  # what the soft choice is off by, d a straight line; infinite where it is none
    per_mass: float  # what it moves by per unit that d is off, as long as that is at most 1
    steep: float  # what the change of hands adds to the slope of F

    @property
    def error(self) -> float:
        """The largest error of a piece."""
        return max(piece.error for piece in self.pieces)


@dataclass(frozen=True)
class _Edge:
    """Where a cluster hands over to the next: e, the slope of d there, its least and largest slope, J, R, the spread of keys."""

    at: float
    gain: float
    least: float
    largest: float
    jump: float
    rate: float
    spread: float
    reach: float

    @property
    def heard(self) -> float:
        """sup of sigma' |D|."""
        return self.jump / 4.0 + SOFT * self.rate / self.least

    @property
    def bent(self) -> float:
        """What d moves F by because it is no straight line."""
        ratio = self.spread / self.least
        return ratio**2 / 8.0 * (2.2 * self.jump + 11.0 * self.rate / self.least) if ratio <= BENT else math.inf

    @property
    def near(self) -> float:
        """How far from the edge both clusters are heard."""
        return self.reach / self.least


def segments(
    group: ClusterGroup, low: float, high: float, tolerance: float, eta: float, degree: int, soft: bool, dtype: str
) -> Segments:
    """The pieces of a group on [low, high] up to a degree; Refused where its clusters do not follow one another.

    Sides are told apart up to `eta`; numbers that say where pieces lie are numbers of the dtype.
    """
    if len(group.matrix) != 1:
        raise Refused("its clusters do not stand along one direction.")
    order = np.argsort(group.site_slopes[:, 0].astype(np.float64), kind="stable")
    clusters = [group.clusters[k] for k in order]
    keys = [_keys(group, int(k)) for k in order]
    edges = [_edge(clusters[k : k + 2], keys[k : k + 2], low, high, tolerance / 64.0) for k in range(len(keys) - 1)]
    ends = [low, *(edge.at for edge in edges), high]
    if any(not after - before > 4.0 * eta for before, after in itertools.pairwise(ends)):
        raise Refused("one of its clusters hardly ever answers.")
    rest = _rest(edges, ends, sum(most_said(cluster, np.array([low]), np.array([high])) for cluster in clusters))
    pieces: list[Piece] = []
    for k, cluster in enumerate(clusters):
        left = max(edges[k - 1].near, eta) if soft and k > 0 else eta
        right = max(edges[k].near, eta) if soft and k < len(edges) else eta
        pieces += _cut(cluster, k, ends[k], ends[k + 1], (left, right), eta, tolerance, degree, dtype, MOST_CUTS)
    if len(pieces) > MOST_PIECES:
        raise Refused(f"it takes {len(pieces)} polynomials, and {MOST_PIECES} are taken at most.")
    pairs = list(itertools.pairwise(pieces))
    gains = [math.inf if one.cluster == two.cluster else edges[one.cluster].gain for one, two in pairs]
    hard = max((edge.jump + edge.rate * max(HARD / edge.least, eta) for edge in edges), default=0.0)
    # two edges are heard at once where a cluster between them is narrow
    gaps = np.diff([edge.at for edge in edges])
    both = any(gap < one.near + two.near for gap, one, two in zip(gaps, edges, edges[1:], strict=False))
    times = (2.0 if both else 1.0) * (1 + 1e-9)
    bent = max((edge.bent for edge in edges), default=0.0)
    heard = max((edge.heard for edge in edges), default=0.0)
    steep = max((edge.heard * edge.largest for edge in edges), default=0.0)
    at = np.array([one.high for one, _ in pairs])
    made = tuple(pieces), at, np.array(gains)
    blended = bent + rest + _skipped(edges, at) if soft else math.inf
    return Segments(*made, times * hard + rest, blended, times * math.e * heard, times * steep)


def _skipped(edges: list[_Edge], at: Array) -> float:
    """What an edge would still say where another, the middle of a cut cluster included, is nearer and taken in its place."""
    found = 0.0
    for edge in edges:
        others = np.abs(at[at != edge.at] - edge.at)
        away = float(others.min(initial=math.inf)) / 2.0
        if away < edge.near:
            if edge.least * away < 1.0:
                return math.inf
            found = max(found, math.exp(-edge.least * away) * (edge.jump + edge.rate * away))
    return 2.0 * found


def _keys(group: ClusterGroup, k: int) -> tuple[Array, Array]:
    """Slopes and offsets in z of all keys of a cluster, its site included."""
    cluster = group.clusters[k]
    alpha = cluster.axes[0].slopes.astype(np.float64) / cluster.radius[0]
    beta = cluster.axes[0].offsets.astype(np.float64) - alpha * cluster.origin[0]
    return float(group.site_slopes[k, 0]) + alpha, float(group.site_offsets[k]) + beta


def _edge(
    clusters: list[Cluster], keys: list[tuple[Array, Array]], low: float, high: float, tolerance: float
) -> _Edge:
    """Where the second cluster takes over from the first."""
    (a, b), (c, d) = keys
    least = float(c.min() - a.max())
    if not least > 0:
        raise Refused("the keys of neighbouring clusters are not in order.")

    def apart(z: float) -> float:
        return _mass(c, d, z)[0] - _mass(a, b, z)[0]

    left, right = low, high
    if not apart(left) < 0.0 < apart(right):
        raise Refused("one of its clusters never answers.")
    while True:
        middle = left + (right - left) / 2.0
        if not left < middle < right:
            break
        left, right = (middle, right) if apart(middle) < 0.0 else (left, middle)
    # the masses are rounded: the edge may be off by what that is, divided by their slope
    size = max(float(np.abs(one).max()) * max(abs(low), abs(high)) + float(np.abs(two).max()) for one, two in keys)
    off = (16.0 * FLOAT64.unit * size + 1e-13) / least
    for reach in REACHES:
        try:
            jump, rate = _difference(clusters, left, reach / least, tolerance)
            break
        except Refused:
            if reach == REACHES[-1]:
                raise
    gain = _mass(c, d, left)[1] - _mass(a, b, left)[1]
    spread = float(max(np.ptp(a), np.ptp(c)))
    return _Edge(left, gain, least, float(c.max() - a.min()), jump + 2.0 * rate * off, rate, spread, reach)


def _mass(slopes: Array, offsets: Array, z: float) -> tuple[float, float]:
    """log sum exp of a cluster's logits, and its derivative."""
    logits = (slopes.astype(np.longdouble) * z + offsets).astype(np.longdouble)
    top = logits.max()
    weights = np.exp(logits - top)
    return float(top + np.log(weights.sum())), float((weights * slopes).sum() / weights.sum())


def _difference(clusters: list[Cluster], edge: float, near: float, tolerance: float) -> tuple[float, float]:
    """J and R with |h_{k+1} - h_k| <= J + R |z - edge| for |z - edge| <= near."""
    one, two = (_series(cluster, edge, 1.0 / near, tolerance) for cluster in clusters)
    count = max(len(one[0]), len(two[0]))
    apart = np.abs(_longer(two[0], count) - _longer(one[0], count))  # of the coefficients
    at = np.abs(chebval(0.0, _longer(two[0], count)) - chebval(0.0, _longer(one[0], count)))
    rate = (np.arange(count)[:, None] ** 2 * apart).sum(axis=0).max() / near  # |T_j(y) - T_j(0)| <= j^2 |y|
    return float(at.max() + 2.0 * (one[1] + two[1])) * (1 + 1e-9), float(rate) * (1 + 1e-9)


def _longer(core: Array, count: int) -> Array:
    return np.pad(core, ((0, count - len(core)), (0, 0)))


def _series(cluster: Cluster, middle: float, scale: float, tolerance: float) -> tuple[Array, float]:
    """Chebyshev coefficients (n, K) of a cluster's own head in y = (z - middle) scale, and sup |h - p| for |y| <= 1."""
    found, error = series_of(cluster, np.array([middle]), np.array([1.0 / scale]), tolerance)
    return np.asarray(found.cores[0][0], dtype=np.float64), error


def _rest(edges: list[_Edge], ends: list[float], most: float) -> float:
    """What clusters say that are not heard: neighbours beyond REACH, and all others, which are a whole cluster away."""
    widths = np.diff(ends)  # edge k stands between clusters k and k + 1
    trails = [edge.least * width for k, edge in enumerate(edges) for width in widths[k : k + 2]]
    others = math.fsum(math.exp(-min(trail, 700.0)) for trail in trails) if len(edges) > 1 else 0.0
    beyond = 2.0 * max((math.exp(-edge.reach) for edge in edges), default=0.0)
    return 2.0 * most * (beyond + others) if edges else 0.0


def _cut(
    cluster: Cluster, number: int, low: float, high: float, wide: tuple[float, float], eta: float, tolerance: float, degree: int,
    dtype: str, left: int,
) -> list[Piece]:  # fmt: skip
    """One polynomial on [low - wide_0, high + wide_1], or two of halves, and so on."""
    narrow = np.dtype(dtype).type
    start, stop = low - wide[0], high + wide[1]
    middle = float(narrow((start + stop) / 2.0))
    scale = float(narrow(INSIDE / max(stop - middle, middle - start)))
    try:
        series, error = _series(cluster, middle, scale, tolerance)
    except Refused:
        if left == 0:
            raise
        series, error = np.zeros((degree + 2, 1)), 0.0
    if len(series) - 1 <= degree:
        powers = powers_of(series.astype(np.longdouble), 0)
        kept = np.asarray(powers, dtype=np.float64)
        error += float(np.abs(powers - kept).sum(axis=0).max()) + 1e-18 * float(np.abs(series).sum())
        return [Piece(number, high, middle, scale, kept, error)]
    if left == 0:
        raise Refused("it takes polynomials of too high a degree.")
    half = float(narrow(low + (high - low) / 2.0))
    first = _cut(cluster, number, low, half, (wide[0], eta), eta, tolerance, degree, dtype, left - 1)
    return first + _cut(cluster, number, half, high, (eta, wide[1]), eta, tolerance, degree, dtype, left - 1)
