"""Bounds of spectral heads g(z) = sum_j w_j(z) (c_j + G_j z): on complex strips, of their rounding, of their slopes.

Strips.  |w_j(x + iy)| <= S w_j(x), so |g| <= S max |c|.  For exact Bernstein keys S0 = cos(delta y/2)^-(N-1), |delta y| < pi.
Stored keys differ from them by da_j, db_j: with tau = max_j (|da_j||z| + |db_j|), S <= e^tau S0 / (1 - (e^tau - 1) S0).
For any keys S <= 1/(1 - y^2 V/2), V = sum_j w_j(c)(a_j - abar)^2 e^{|a_j - abar| r'}, |Re z - c| <= r', abar the mean of a
under w(c).  Affine values v_j = c_j + G_j z may be huge where their weight is tiny, so they are bounded by
|g| <= S min(max_j |v_j|, sum_j w_j(c) e^{|a_j - abar| r'} |v_j|), |v_j| <= |c_j + G_j c| + |G_j| |z - c|.

Rounding.  A relative error e^{d_j} of weight j, |d_j| <= eta_j, moves g by at most e^{2 eta} sum_j w_j eta_j |c_j - g|; the
sums are taken at the middle of short pieces and enlarged by what can change inside them.
"""

import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import FLOAT64, Dtype, gamma
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import log_binomials


def axis_weights(keys: AxisKeys, z: Array) -> Array:
    """Softmax weights (M, N) of the stored keys, float64."""
    scores = np.multiply.outer(z, keys.slopes.astype(np.float64)) + keys.offsets.astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def strip_factor(keys: AxisKeys, delta: float | None, centre: float, reach: float, height: float) -> float:
    """S with |w_j(x + iy)| summing to at most S for |x - centre| <= reach, |y| <= height; infinite where not known."""
    found = [_generic_strip(keys, centre, reach, height)]
    if delta is not None:
        found.append(_bernstein_strip(keys, delta, abs(centre) + reach, height))
    return min(found)


def _bernstein_strip(keys: AxisKeys, delta: float, reach: float, height: float) -> float:
    n = len(keys) - 1
    if abs(delta) * height >= math.pi * (1 - 1e-9):
        return math.inf
    exact = math.cos(delta * height / 2.0) ** -n * (1 + 1e-12 * (n + 1))
    j = np.arange(n + 1)
    slopes = delta * (j - n / 2.0)
    offsets = log_binomials(n) - n * math.log(2.0)
    middle = float(keys.slopes[0] + keys.slopes[-1]) / 2.0
    da = np.abs(keys.slopes - middle - slopes) + 4 * FLOAT64.unit * (np.abs(slopes) + abs(middle))
    # A common shift of slopes or offsets changes no weight; one of offsets in proportion to j moves the whole head along the real
    # axis, where |1 + e^{delta z - mu}| >= cos(delta y/2) (1 + e^{delta x - mu}) as before.
    apart = keys.offsets - offsets
    lean = (apart[-1] - apart[0]) / n * (j - n / 2.0) if n else np.zeros(1)
    shift = np.mean(apart - lean)
    db = np.abs(apart - lean - shift) + 64 * FLOAT64.unit * (1.0 + n + float(np.abs(apart).max()))
    tau = float((da * math.hypot(reach, height) + db).max())
    rest = 1.0 - math.expm1(tau) * exact if tau < 1.0 else -1.0
    return math.exp(tau) * exact / rest if rest > 0 else math.inf


def _generic_strip(keys: AxisKeys, centre: float, reach: float, height: float) -> float:
    slopes, offsets = keys.slopes.astype(np.float64), keys.offsets.astype(np.float64)
    logs = centre * slopes + offsets
    logs -= logs.max()
    logs -= math.log(float(np.exp(logs).sum()))
    mean = float(np.exp(logs) @ slopes)
    away = np.abs(slopes - mean)
    size = float(np.abs(slopes).max()) * (1.0 + abs(centre) + reach) + float(np.abs(offsets).max())
    # In logarithms: a key whose weight at the centre underflows may rule at the end of the strip.
    with np.errstate(over="ignore"):
        variance = float((away**2 * np.exp(logs + away * reach)).sum()) * (1 + 1e-9)
        variance *= float(np.exp(8.0 * FLOAT64.unit * (len(keys) + 2) * size))  # rounding of the weights and of the mean
    # log-concavity in x: the weights at x differ from those at c by at most e^{|a - abar| |x - c|} / Z, Z >= 1 by Jensen.
    rest = 1.0 - height * height * variance / 2.0
    return 1.0 / rest if rest > 0 else math.inf


def affine_size(axes: tuple[AxisKeys, ...], values: Array, slopes: Array, centre: Array, reach: Array) -> float:
    """sum_j w_j(Re z) |c_j + G_j z| for |z_e - centre_e| <= reach_e: the largest |v_j|, or a weighted sum."""
    sizes = np.abs(values + slopes @ centre) + np.abs(slopes) @ reach
    sizes += 4.0 * FLOAT64.unit * (len(axes) + 2) * (np.abs(values) + np.abs(slopes) @ (np.abs(centre) + reach))
    top = float(sizes.max())
    weights = [_largest_weights(axis, float(c), float(r))[None] for axis, c, r in zip(axes, centre, reach, strict=True)]
    with np.errstate(over="ignore", invalid="ignore"):
        weighted = float(_contract(weights, sizes).max())
    return min(top, weighted * (1 + 1e-9)) if math.isfinite(weighted) else top


def _largest_weights(keys: AxisKeys, centre: float, reach: float) -> Array:
    """Bounds (N,) of w_j(x) for |x - centre| <= reach: w_j(centre) e^{|a_j - abar| reach}, and one."""
    slopes, offsets = keys.slopes.astype(np.float64), keys.offsets.astype(np.float64)
    logs = centre * slopes + offsets
    logs -= logs.max()
    logs -= math.log(float(np.exp(logs).sum()))
    mean = float(np.exp(logs) @ slopes)
    size = float(np.abs(slopes).max()) * (1.0 + abs(centre) + reach) + float(np.abs(offsets).max())
    room = 8.0 * FLOAT64.unit * (len(keys) + 2) * size + 1e-12
    return np.asarray(np.exp(np.minimum(logs + np.abs(slopes - mean) * reach + room, 0.0)))


@dataclass(frozen=True)
class Moments:
    """Bounds over all z of [-1, 1]^E: largest |g|, largest sum w|c|, sum w eta |c - g|, and |dg/dz_e| per axis."""

    largest: float
    absolute: float
    rounding: float
    slopes: tuple[float, ...]


MOST_PIECES = {1: 4096, 2: 1536, 3: 96, 4: 28}
BLOCK_PIECES = {1: 4096, 2: 160, 3: 48, 4: 20}  # per direction of a block of factors
EDGE = 1.0 + 2.0**-8  # pieces reach a little beyond [-1, 1], where a rounded query may fall


def pieces(axes: tuple[AxisKeys, ...], most: int | None = None) -> list[tuple[Array, float]]:
    """Equal pieces of [-1, 1] per axis, (middles, half width), short enough that weights change by some percent inside one.

    `most` limits their number per axis: bounds are cheaper then, and looser.
    """
    found = []
    for axis in axes:
        wanted = 20.0 * len(axes) * float(np.ptp(axis.slopes))
        count = int(np.clip(wanted, 16, min(most or 4096, MOST_PIECES.get(len(axes), 8))))
        found.append((EDGE * (-1.0 + (2.0 * np.arange(count) + 1.0) / count), EDGE / count))
    return found


def _cut(axes: tuple[AxisKeys, ...], most: int | None = None) -> tuple[list[tuple[Array, float]], list[float], float]:
    """Pieces, ranges of the slopes, and by what factor a weight may grow inside a piece."""
    cut = pieces(axes, most)
    spreads = [float(np.ptp(axis.slopes)) for axis in axes]
    growth = sum(spread * half for spread, (_, half) in zip(spreads, cut, strict=True))
    if not growth < 60.0:
        raise Refused("the keys are too steep to be followed from piece to piece.")
    return cut, spreads, math.exp(growth)


def moments(
    axes: tuple[AxisKeys, ...], values: Array, slopes: Array | None, etas: tuple[Array, ...], most: int | None = None
) -> Moments:
    """Moments of a head with values v_j = c_j + G_j z, slopes (N_1, .., N_E, K, E); `absolute` is of sum w (|c| + |G||z|).

    etas[e] (pieces, N_e) are what `etas_for` gives.  Inside a piece a weight grows by at most e^{range(a) half}; that enlarges
    every sum taken at the piece's middle.  An affine function that all tokens share is taken out first: it has no part in
    v_j - g.  Inside a piece what remains of v_j moves by d_j = |G_j| . half besides.  Sums of |v_j| are bounded by second
    moments, which are sums of products over the axes as they are: v^2 = c^2 + 2 c G z + (G z)^2.
    """
    cut, spreads, grow = _cut(axes, most)
    E = len(axes)
    halves = [half for _, half in cut]
    weights = [axis_weights(axis, nodes) for axis, (nodes, _) in zip(axes, cut, strict=True)]
    z = [nodes.reshape([-1 if i == e else 1 for i in range(E)] + [1]) for e, (nodes, _) in enumerate(cut)]
    tokens = tuple(range(E))
    level = np.median(values, axis=tokens)  # (K,)
    lean = np.zeros((len(level), E)) if slopes is None else np.median(slopes, axis=tokens)
    c, G = values - level, [] if slopes is None else [slopes[..., e] - lean[:, e] for e in range(E)]
    absolute = _contract(weights, np.abs(values))
    if slopes is not None:
        for e in range(E):
            absolute = absolute + (np.abs(z[e]) + halves[e]) * _contract(weights, np.abs(slopes[..., e]))
    g = _affine(weights, c, G, z)
    sizes = [_contract(weights, np.abs(one)) for one in G] or [np.zeros(1)] * E
    ground = np.sqrt(_second(weights, c, G, z, np.zeros(1)) * (1 + 1e-12))  # sum w |v| at the nodes
    drift = sum(half * size for half, size in zip(halves, sizes, strict=True))  # sum w d
    size = float((ground + drift).max()) * grow
    swing = float(((grow - 1.0) * (ground + drift) + drift).max())
    rounding = np.zeros(g.shape)
    steeps = []
    for e, axis in enumerate(axes):
        moved = [w * etas[i] if i == e else w for i, w in enumerate(weights)]
        mass = _contract(moved, np.ones((*values.shape[:-1], 1)))
        apart = np.sqrt(mass * _second(moved, c, G, z, g))
        if E == 1:  # (pieces, N) each
            slope = G[0] if G else np.zeros_like(c)
            rows = [c[:, k] + np.multiply.outer(cut[0][0], slope[:, k]) - g[:, k : k + 1] for k in range(g.shape[1])]
            apart = np.stack([(moved[0] * np.abs(row)).sum(axis=1) for row in rows], axis=1)
        rounding += apart + mass * swing
        rounding += sum(half * _contract(moved, np.abs(one)) for half, one in zip(halves, G, strict=False))
        # dg/dz_e = sum w (a - abar) v + sum w G_e, and what that may change inside a piece
        apart = axis.slopes.astype(np.float64)[None] - (weights[e] @ axis.slopes.astype(np.float64))[:, None]
        steep = [w * apart if i == e else w for i, w in enumerate(weights)]
        change = sum(
            half * (2.0 * spreads[e] * spread * size + (spreads[e] * float(other.max()) + spread * float(sizes[e].max())) * grow)
            for half, spread, other in zip(halves, spreads, sizes, strict=True)
        )
        exact = _affine(steep, c, G, z) + lean[:, e] + (_contract(weights, G[e]) if G else 0.0)
        steeps.append((float(np.abs(exact).max()) + change) * (1 + 1e-9))
    whole, shared = g + level, np.abs(lean)
    for e in range(E):
        whole = whole + z[e] * lean[:, e]
    largest = float((np.abs(whole) + shared @ np.asarray(halves)).max()) + swing
    return Moments(
        largest * (1 + 1e-9), float(absolute.max()) * grow, float(rounding.max()) * grow * (1 + 1e-9), tuple(steeps)
    )


@dataclass(frozen=True)
class ColumnMoments:
    """Moments of constant values column by column: (R,) each, and slopes (E, R)."""

    largest: Array
    absolute: Array
    rounding: Array
    slopes: Array


def column_moments(
    axes: tuple[AxisKeys, ...], values: Array, etas: tuple[Array, ...], most: int | None = None
) -> ColumnMoments:
    """What `moments` bounds, of every column of constant values (N_1, .., N_E, R) alone, with the weights formed once."""
    cut, spreads, grow = _cut(axes, most)
    halves, tokens = [half for _, half in cut], tuple(range(len(axes)))
    weights = [axis_weights(axis, nodes) for axis, (nodes, _) in zip(axes, cut, strict=True)]
    level = np.median(values, axis=tokens)  # what all tokens share has no part in c_j - g
    c = values - level
    g, ground = _contract(weights, c), _contract(weights, np.abs(c)).max(axis=tokens)
    swing, size = (grow - 1.0) * ground, grow * ground
    rounding, steeps = np.zeros(g.shape), []
    for e, axis in enumerate(axes):
        moved = [w * etas[i] if i == e else w for i, w in enumerate(weights)]
        mass = _contract(moved, np.ones((*values.shape[:-1], 1)))
        if len(axes) == 1:
            apart = np.stack([(moved[0] * np.abs(c[:, k] - g[:, k : k + 1])).sum(axis=1) for k in range(c.shape[1])], axis=1)
        else:  # by Cauchy and Schwarz
            apart = np.sqrt(mass * _second(moved, c, [], [], g))
        rounding += apart + mass * swing
        # dg/dz_e = sum w (a - abar) v, and what that may change inside a piece
        away = axis.slopes.astype(np.float64)[None] - (weights[e] @ axis.slopes.astype(np.float64))[:, None]
        steep = _contract([w * away if i == e else w for i, w in enumerate(weights)], c)
        change = sum(2.0 * half * spreads[e] * spread for half, spread in zip(halves, spreads, strict=True)) * size
        steeps.append((np.abs(steep).max(axis=tokens) + change) * (1 + 1e-9))
    largest = (np.abs(g + level).max(axis=tokens) + swing) * (1 + 1e-9)
    absolute = _contract(weights, np.abs(values)).max(axis=tokens) * grow * (1 + 1e-9)
    return ColumnMoments(largest, absolute, rounding.max(axis=tokens) * grow * (1 + 1e-9), np.stack(steeps))


def _affine(weights: list[Array], values: Array, G: list[Array], z: list[Array]) -> Array:
    """sum_j v_j (c_j + G_j z) at every node."""
    total = _contract(weights, values)
    for one, place in zip(G, z, strict=False):
        total = total + place * _contract(weights, one)
    return total


def _second(weights: list[Array], values: Array, G: list[Array], z: list[Array], g: Array) -> Array:
    """Upper bounds of sum_j v_j (c_j + G_j z - g)^2 at every node, with room for cancellation."""
    mass, first = _contract(weights, np.ones((*values.shape[:-1], 1))), _affine(weights, values, G, z)
    total = _contract(weights, values * values)
    size = total + g * g * mass
    for e, one in enumerate(G):
        total = total + 2.0 * z[e] * _contract(weights, values * one)
        size = size + z[e] ** 2 * _contract(weights, one * one) * len(G)
        for f, other in enumerate(G[: e + 1]):
            total = total + (2.0 if f < e else 1.0) * z[e] * z[f] * _contract(weights, one * other)
    return np.maximum(total - 2.0 * g * first + g * g * mass, 0.0) + 1e-12 * size


def mean_eta(axis: AxisKeys, eta: Array) -> float:
    """A bound of sum_j w_j eta_j along one axis, eta (pieces, N) as `etas_for` gives it for this axis alone."""
    ((nodes, half),) = pieces((axis,))
    grow = math.exp(min(float(np.ptp(axis.slopes)) * half, 60.0))
    return min(float((axis_weights(axis, nodes) * eta).sum(axis=1).max()) * grow, float(eta.max()))


def _contract(weights: list[Array], values: Array) -> Array:
    """values (N_1, .., N_E, K) with (M_e, N_e): (M_1, .., M_E, K)."""
    out = values
    for axis, w in enumerate(weights):
        out = np.moveaxis(np.tensordot(w, out, axes=(1, axis)), 0, axis)
    return np.asarray(out)


def etas_for(axes: tuple[AxisKeys, ...], dtype: Dtype, terms: int, most: int | None = None) -> tuple[Array, ...]:
    """Errors of the logits (pieces, N_e): products and sums, the shift by the maximum, exp and the division.

    `terms` is the number of roundings in a logit.  What all keys share drops out of the softmax.
    """
    found = []
    for axis, (nodes, half) in zip(axes, pieces(axes, most), strict=True):
        slopes, offsets = axis.slopes.astype(np.float64), axis.offsets.astype(np.float64)
        scores = np.multiply.outer(nodes, slopes) + offsets
        gap = scores.max(axis=1, keepdims=True) - scores + 2.0 * half * float(np.ptp(slopes))
        size = np.multiply.outer(np.abs(nodes) + half, np.abs(slopes)) + np.abs(offsets)
        found.append(gamma(terms, dtype.unit) * size + dtype.unit * (gap + dtype.exp_ulps + 3.0))
    return tuple(found)
