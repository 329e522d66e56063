"""Samples: the smallest layer that is verified at every sample, or the nearest sample itself.

Product heads of few keys first (up to three variables), then keys on some of the points, chosen farthest first, then on all of
them, so sharp that every sample answers for itself.
"""

import math
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_format, numpy_dtype
from maxaffine.heads.entries.fit import on_sites
from maxaffine.heads.entries.plan import build_hard_samples, build_head, scaled
from maxaffine.heads.entries.search import Attempts, finished_hard, straight
from maxaffine.heads.fitting import affine_columns
from maxaffine.heads.found import BELOW, Found
from maxaffine.heads.lookup.plan import farthest_first
from maxaffine.layer.keys import AxisKeys, Coordinates, ListedKeys
from maxaffine.layer.layer import Layer
from maxaffine.layer.spectral_keys import bernstein
from maxaffine.request import Request
from maxaffine.target.samples import Samples

SIZES = {1: (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 24, 30, 40), 2: (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), 3: (1, 2, 3, 4, 5)}
DELTAS = (0.3, 1.0, 2.0, 4.0)
DAMPINGS = (0.3, 0.01, 0.0003)  # in units of error/scale
FITTED = 8000  # samples that a fit looks at while sizes are tried
MOST_KEYS = 2048  # keys on some of the points
MOST_ALL = 20_000  # points that may all be keys: every one is compared with every other
SMOOTH = 2.0  # sharpness of keys on all points of one variable, whose values interpolate
MOST_DIFFERENT = 4_000_000  # numbers of a matrix of distances


def search(request: Request, samples: Samples, method: str) -> Found:
    """The layer of fewest tokens that is verified at every sample; refused with what so many tokens reach."""
    attempts = _attempts(request, samples)
    found = _heads(attempts, samples) if method in ("auto", "spectral") and samples.dimension in SIZES else None
    if samples.dimension == 1 and method == "auto":
        found = _straight(attempts, samples, len(samples.X) if found is None else found.cost.tokens - 1) or found
    if found is None and method in ("auto", "lookup"):
        found = _on_points(attempts, samples) or _on_all(attempts, samples)
    if found is not None:
        return found
    raise attempts.refusal('Ask for a larger error, or for the nearest sample with `method="nearest"`.')


def search_hard(request: Request, samples: Samples) -> Found:
    """The nearest sample: one token each, the softmax at infinite sharpness."""
    attempts = _attempts(request, samples)
    return finished_hard(attempts, build_hard_samples(samples, _closest(samples.X), request.dtype))


def _attempts(request: Request, samples: Samples) -> Attempts:
    """Nothing tried yet; refused where samples at one point differ by more than the error."""
    said = samples.contradiction(request.error)
    if said is not None:
        raise Refused(said)
    return Attempts(request, samples)


def _closest(points: Array) -> float:
    """The least distance of two different points."""
    from scipy.spatial import cKDTree

    different = np.unique(points, axis=0)
    return float(cKDTree(different).query(different, k=2)[0][:, 1].min())


# -- product heads


def _heads(attempts: Attempts, samples: Samples) -> Found | None:
    """Heads with affine values on product keys, fitted by least squares to the samples."""
    request, D = attempts.request, samples.dimension
    places = [scaled(np.array([samples.box.low[i], samples.box.high[i]])) for i in range(D)]
    centre, scale = (np.array([one[k] for one in places]) for k in (1, 2))
    z = (samples.X - centre) * scale
    rng = np.random.default_rng(request.seed)
    part = np.arange(len(z)) if len(z) <= FITTED else rng.choice(len(z), FITTED, replace=False)
    size = float(np.abs(samples.y).max()) or 1.0
    for count in SIZES[D]:
        columns = count**D * (1 + D)
        if count > 1 and columns > len(part) // 2:  # at least two samples per coefficient: a head is a fit
            break
        request.progress("heads for the samples", count**D, len(z))
        best: tuple[float, Array, list[AxisKeys], float] | None = None
        for delta in DELTAS if count > 1 else (1.0,):
            keys = [bernstein(count, delta, request.dtype).keys] * D
            A = affine_columns(keys, z[part])
            for damping in DAMPINGS:
                lam = max(damping * request.error / size, 4.0 * compute_format(request.dtype).unit)
                coefficients = _ridge(A, samples.y[part], lam)
                away = float(np.abs(A @ coefficients - samples.y[part]).max())
                if np.isfinite(away) and (best is None or away < best[0]):
                    best = away, coefficients, keys, lam
        if best is None:
            continue
        attempts.left.append((count**D, best[0]))
        if best[0] > request.error * BELOW:
            continue
        _, coefficients, keys, lam = best
        if len(part) < len(z):
            coefficients = _ridge(affine_columns(keys, z), samples.y, lam)
        shaped = coefficients.reshape(1 + D, *(count,) * D, samples.y.shape[1])
        layer = build_head(samples, centre, scale, tuple(keys), shaped[0], np.moveaxis(shaped[1:], 0, -1), request.dtype)
        found = attempts.tried("bernstein", layer, "spectral")
        if found is not None:
            return found
    return None


def _ridge(A: Array, y: Array, lam: float) -> Array:
    """argmin |A c - y|^2 + lam^2 |c|^2, by QR of both together."""
    n = A.shape[1]
    Q, R = np.linalg.qr(np.concatenate([A, lam * np.eye(n)]))
    try:
        return np.asarray(np.linalg.solve(R, Q[: len(A)].T @ y))
    except np.linalg.LinAlgError:
        return np.full((n, y.shape[1]), np.nan)


# -- keys on points


def _frame(samples: Samples, unit: float) -> tuple[Coordinates, Array]:
    """Coordinates in which the box is about as wide as high and `unit` (of half widths) is one; and the samples in them."""
    centre = (samples.box.low + samples.box.high) / 2.0
    half = np.maximum(samples.box.high - centre, centre - samples.box.low)
    coordinates = Coordinates(centre, np.diag(1.0 / half / unit))
    return coordinates, coordinates(samples.X)


def _layer(samples: Samples, coordinates: Coordinates, sites: Array, rho: float, values: Array, dtype: str) -> Layer:
    sites = sites.astype(numpy_dtype(dtype)).astype(np.float64)
    keys = ListedKeys(sites, -0.5 * (sites * sites).sum(axis=1))
    box = samples.box
    return Layer(coordinates, keys, rho, values[..., None], box.low, box.high, samples.target.input_shapes, dtype)


def _on_points(attempts: Attempts, samples: Samples) -> Found | None:
    """Keys on points chosen farthest first, values by least squares."""
    request = attempts.request
    if request.dtype == "bfloat16":
        return None
    _, z = _frame(samples, 1.0)
    order, radii = [], []  # points chosen farthest first, and how far the rest was from them after every choice
    for index, left in islice(farthest_first(z, int(np.argmin((z * z).sum(axis=1)))), max(1, min(MOST_KEYS, len(z) - 1))):
        order.append(index)
        radii.append(left)
        if left == 0.0:
            break
    size = float(np.abs(samples.y).max()) or 1.0
    count = 4
    while count <= len(order) and count * len(z) <= 8 * MOST_DIFFERENT:
        request.progress("keys on samples", count, len(z))
        chosen, unit = order[:count], radii[count - 1]
        if unit <= 0.0:
            break
        coordinates, places = _frame(samples, unit)
        for rho in (0.5, 1.5):
            layer = _layer(samples, coordinates, places[chosen], rho, samples.y[chosen], request.dtype)
            W = _weights(layer, places)
            lam = max(0.01 * request.error / size, 4.0 * compute_format(request.dtype).unit)
            values = _ridge(W, samples.y, lam)
            away = float(np.abs(W @ values - samples.y).max())
            if not np.isfinite(away):
                continue
            attempts.left.append((count, away))
            if away <= request.error * BELOW:
                made = _layer(samples, coordinates, places[chosen], rho, values, request.dtype)
                found = attempts.tried("sites", made, "lookup")
                if found is not None:
                    return found
        count = count * 3 // 2
    return None


def _weights(layer: Layer, places: Array) -> Array:
    slopes, offsets = (np.asarray(part, dtype=np.float64) for part in layer.keys.listed())
    scores = layer.sharpness * (places @ slopes.T + offsets)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _straight(attempts: Attempts, samples: Samples, most: int) -> Found | None:
    """Samples of one variable by straight pieces, those at one point half-way between their least and largest value."""
    points, first, inverse = np.unique(samples.X[:, 0], return_index=True, return_inverse=True)
    _, centre, scale = scaled(points)
    build = partial(build_head, samples, np.array([centre]), np.array([scale]))
    return straight(attempts, (points - centre) * scale, _halfway(samples, first, inverse), most, build)


def _halfway(samples: Samples, first: NDArray[np.intp], inverse: NDArray[np.intp]) -> Array:
    """For samples at one point, half-way between their least and largest value."""
    low, high = samples.y[first].copy(), samples.y[first].copy()
    np.minimum.at(low, np.asarray(inverse).ravel(), samples.y)
    np.maximum.at(high, np.asarray(inverse).ravel(), samples.y)
    return np.asarray((low + high) / 2.0)


def _on_all(attempts: Attempts, samples: Samples) -> Found | None:
    """Every point is a key, and the softmax so sharp that at a sample its own value answers."""
    request = attempts.request
    _, places = _frame(samples, 1.0)
    different, first, inverse = np.unique(places, axis=0, return_index=True, return_inverse=True)
    if len(different) > MOST_ALL:
        attempts.why.append(f"{len(different):,} keys, one per sample, exceed the limit of {MOST_ALL:,}")
        return None
    request.progress("one token per sample", 0, 1)
    values = _halfway(samples, first, inverse)
    if samples.dimension == 1:  # keys along an axis may be as close as the points are
        _, centre, scale = scaled(samples.X[first, 0])
        made = on_sites([(samples.X[first, 0] - centre) * scale], values, (len(first),), SMOOTH, request.dtype)
        head = build_head(samples, np.array([centre]), np.array([scale]), made.axes, made.values, None, request.dtype)
        return attempts.tried("sites", head, "lookup")
    unit = _closest(different)
    coordinates, z = _frame(samples, unit)
    spread = float(np.ptp(samples.y)) or 1.0
    rho = 2.0 * math.log(20.0 * len(different) * max(spread / request.error, 1.0))
    layer = _layer(samples, coordinates, z[first], rho, values, request.dtype)
    return attempts.tried("sites", layer, "lookup")
