"""How far the values of a head are from their mean under its own weights: sup sum_j w_j(t) |v_j(t) - p(t)| over a box of t.

Along one coordinate from piece to piece: inside a piece weights move by a factor e^{spread half} at most and values along their
slopes.  Over several coordinates the mean distance is at most the root of the second moment, which is a sum over products.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Keys = tuple[tuple[Array, Array], ...]

PIECES = {1: 6000, 2: 240, 3: 40, 4: 16}
FINE = 0.04  # by which a weight may move inside a piece, in its logarithm


def variation(keys: Keys, values: Array, slopes: Array, low: Array, high: Array, crude: bool) -> float:
    """For values c + G t, (p_1, .., p_E, K) and (p_1, .., p_E, K, E); `crude`: the largest distance of a value alone."""
    E = len(keys)
    c, G = values.reshape(-1, values.shape[-1]), slopes.reshape(-1, values.shape[-1], E)
    middle, half = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-12)
    dust = 4e-15 * float((np.abs(c) + np.abs(G) @ (np.abs(middle) + half)).max())  # of the sums here
    c = c + G @ middle
    lean = (G.max(axis=0) + G.min(axis=0)) / 2.0
    level = (c.max(axis=0) + c.min(axis=0)) / 2.0
    c, G = c - level, G - lean
    largest = float((np.abs(c) + np.abs(G) @ half).max()) * (1 + 1e-9) + dust
    if crude or not math.isfinite(largest):
        return largest
    shape = values.shape[:-1]
    fine = [_followed(keys, c[:, k].reshape(shape), G[:, k].reshape(*shape, E), middle, half) for k in range(c.shape[1])]
    return min(largest, max(fine) + dust)


def _followed(keys: Keys, c: Array, G: Array, middle: Array, half: Array) -> float:
    """About the middle: c + G (t - middle).  Pieces are cut until what happens inside them adds a twentieth at most."""
    E = len(keys)
    spreads = [float(np.ptp(a)) for a, _ in keys]
    most = PIECES.get(E, 8)
    counts = [int(np.clip(math.ceil(E * s * h / FINE), 8, most)) for s, h in zip(spreads, half, strict=True)]
    best = math.inf
    while True:
        found, plain = _on_pieces(keys, c, G, middle, half, spreads, counts)
        best = min(best, found)
        if found <= 1.05 * plain or all(n >= most for n in counts) or not math.isfinite(found):
            return best
        counts = [min(3 * n, most) for n in counts]


def _on_pieces(
    keys: Keys, c: Array, G: Array, middle: Array, half: Array, spreads: list[float], counts: list[int]
) -> tuple[float, float]:
    """The bound, and the largest value at the middle of a piece."""
    E = len(keys)
    widths = np.array([h / n * (1 + 1e-12) for h, n in zip(half, counts, strict=True)])
    growth = sum(s * w for s, w in zip(spreads, widths, strict=True))
    if not growth < 30.0:
        return math.inf, 0.0
    grow = math.exp(growth)
    places = [-h + w * (2.0 * np.arange(n) + 1.0) for h, w, n in zip(half, widths, counts, strict=True)]
    W = []
    for (a, b), t, m in zip(keys, places, middle, strict=True):
        scores = np.multiply.outer(t + m, a) + b
        w = np.exp(scores - scores.max(axis=1, keepdims=True))
        W.append(w / w.sum(axis=1, keepdims=True))
    drift = _mixed(W, np.abs(G) @ widths)
    if E == 1:
        v = c + np.multiply.outer(places[0], G[:, 0])
        p = (W[0] * v).sum(axis=1, keepdims=True)
        apart = (W[0] * np.abs(v - p)).sum(axis=1)
    else:
        apart = np.sqrt(_variance(W, c, G, places))
    return float(((2.0 * grow - 1.0) * apart + 2.0 * grow * drift).max()) * (1 + 1e-9), float(apart.max())


def _variance(W: list[Array], c: Array, G: Array, places: list[Array]) -> Array:
    """sum w v^2 - (sum w v)^2 on the grid, with room for what cancels."""
    E = len(W)
    basis = [np.ones([1] * E), *np.meshgrid(*places, indexing="ij", sparse=True)]
    columns = [c, *(G[..., e] for e in range(E))]
    mean, square, size = np.zeros([1] * E), np.zeros([1] * E), np.zeros([1] * E)
    for i, one in enumerate(columns):
        mean = mean + basis[i] * _mixed(W, one)
        for j, two in enumerate(columns[: i + 1]):
            term = (1.0 if i == j else 2.0) * basis[i] * basis[j]
            square = square + term * _mixed(W, one * two)
        size = size + (1 + E) * basis[i] ** 2 * _mixed(W, one * one)
    return np.asarray(np.maximum(square - mean**2, 0.0) + 1e-11 * size)


def _mixed(W: list[Array], values: Array) -> Array:
    for e, w in enumerate(W):
        values = np.moveaxis(np.tensordot(w, values, axes=(1, e)), 0, e)
    return values
