"""Observed errors: the largest error that sampling and an adversarial search find.  Never called a bound.

Half of the points lie on or next to faces and corners of the cells, where lookups are worst, or on and next to the switches
between clusters, where kinks are; the worst points then climb by a pattern search with shrinking steps.  Climbing uses float64
values of the target; what is reported is an enclosed error of the worst points (proofs/known_error.py).  L_p errors are
estimated in proofs/observe_integral.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.layer.clusters import ClusterGroup
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.layer.side_by_side import AnyLayer, clusters_of
from maxaffine.proofs.known_error import worst_known
from maxaffine.proofs.rounding import is_unit_grid
from maxaffine.runtime import softmax, two_level
from maxaffine.target.target import Target

Evaluate = Callable[[Array], Array]

FLOPS = 4e9  # what a search may spend on the layer
MOST_POINTS, FEWEST_POINTS = 20_000, 200
CLIMBERS, STEPS, ROUNDS = 24, 8, 24


@dataclass(frozen=True)
class Observed:
    """The largest error found: where, over how many points, from which seed, and in which norm.

    In L_p an estimate of the error: from random points, then with its standard error, or by quadrature.
    """

    error: float
    at: tuple[float, ...]
    points: int
    seed: int
    norm: float = math.inf
    standard_error: float | None = None

    @property
    def surely(self) -> float:
        """The error itself, or what four standard errors leave of an estimate: above a bound, this is more than noise."""
        return self.error if self.standard_error is None else max(0.0, self.error - 4.0 * self.standard_error)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        norm = "inf" if math.isinf(self.norm) else self.norm
        found = {"error": self.error, "at": list(self.at), "points": self.points, "seed": self.seed, "norm": norm}
        return found if self.standard_error is None else {**found, "standard_error": self.standard_error}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Observed":
        """The inverse of to_json."""
        norm = math.inf if data["norm"] == "inf" else float(data["norm"])
        doubt = data.get("standard_error")
        return cls(
            float(data["error"]), tuple(map(float, data["at"])), int(data["points"]), int(data["seed"]), norm,
            None if doubt is None else float(doubt),
        )  # fmt: skip


def pointwise(evaluate: Evaluate, target: Target, x: Array, relative: bool = False) -> Array:
    """max over the output entries of |layer - target|, or of that by |target| where `relative`: (B,)."""
    exact = target.values(x)
    away = np.abs(evaluate(x).astype(np.float64) - exact)
    if relative:
        with np.errstate(divide="ignore", invalid="ignore"):
            away = away / np.abs(exact)
    return np.asarray(away.max(axis=(1, 2)))


LOCAL = 1 << 11  # keys beyond which a search looks at those near the query only
NEGLIGIBLE = 800.0  # a logit gap whose weight is exactly zero in every dtype


def local_evaluation(layer: Layer) -> Evaluate | None:
    """The same output from the keys near the query alone, for large grids of one or two coordinates; None elsewhere.

    The m-th neighbour trails the nearest key by at least sharpness m(m-1)/2: beyond the window its weight is exactly zero.
    """
    if not is_unit_grid(layer) or layer.keys.count <= LOCAL or layer.dimension > 2:
        return None
    steps = math.ceil(0.5 + math.sqrt(0.25 + 2.0 * NEGLIGIBLE / layer.sharpness))
    shape = layer.keys.shape
    sizes = [min(count, 2 * steps + 1) for count in shape]

    def evaluate(x: Array) -> Array:
        z = softmax.coordinates(layer, x)
        places, weights = [], []
        for i, (count, size, axis) in enumerate(zip(shape, sizes, layer.axes, strict=True)):
            first = np.clip(np.rint(z[:, i] + (count - 1) / 2.0).astype(np.int64) - steps, 0, count - size)
            near = first[:, None] + np.arange(size)
            sharpness = z.dtype.type(layer.sharpness)
            scores = (z[:, i : i + 1] * sharpness) * axis.slopes[near] + axis.offsets[near] * sharpness
            places.append(near)
            weights.append(softmax.weights(scores))
        if len(shape) == 1:
            return np.asarray(np.einsum("bi,birc->brc", weights[0], layer.values[places[0]]))
        found = layer.values[places[0][:, :, None], places[1][:, None, :]]
        return np.asarray(np.einsum("bi,bj,bijrc->brc", weights[0], weights[1], found))

    def in_chunks(x: Array) -> Array:
        chunk = max(1, (1 << 22) // (math.prod(sizes) * layer.d_out * layer.n_out))
        return np.concatenate([evaluate(x[i : i + chunk]) for i in range(0, len(x), chunk)])

    return in_chunks


def face_biased(layer: AnyLayer, count: int, rng: np.random.Generator) -> Array:
    """Points of the box, half of them on or next to faces and corners of the cells (and on the box's own edges)."""
    x = rng.uniform(layer.low, layer.high, size=(count, layer.dimension))
    if not layer.grouped and layer.is_grid:
        half = count // 2
        scale, shape = np.diag(layer.coordinates.matrix), np.asarray(layer.keys.shape)
        faces = rng.integers(0, shape + 1, size=(half, len(shape))) - shape / 2.0
        nudge = rng.choice([0.0, 1e-9, 1e-3, 0.1, 0.5], size=(half, len(shape))) * rng.normal(size=(half, len(shape)))
        near = layer.coordinates.centre + (faces + nudge / max(1.0, math.sqrt(layer.sharpness))) / scale
        keep = rng.random((half, len(shape))) < 0.8
        x[:half] = np.where(keep, near, x[:half])
    if layer.grouped:
        found = [one for one in clusters_of(layer) if len(one[2].clusters) > 1]
        for number, (own, variables, group) in enumerate(found):  # each group has rows of its own
            first, last = (count // 2 * k // len(found) for k in (number, number + 1))
            near = near_switches(own, group, last - first, rng)
            x[first : first + len(near), list(variables)] = near
    corners = min(count // 4, 2 ** min(layer.dimension, 8))
    x[-corners:] = np.where(rng.random((corners, layer.dimension)) < 0.5, layer.low, layer.high)
    return np.asarray(np.clip(x, layer.low, layer.high))


SWITCHED = 1e7  # scores of clusters that the search for switches may ask for
GAPS = np.array([0.0, 0.3, 1.0, 1.2785, 1.6, 2.1, 3.0, 5.0, 8.0])  # a kink's error peaks at gaps of the scores near W0(1/e) + 1


def near_switches(layer: GroupedLayer, group: ClusterGroup, count: int, rng: np.random.Generator) -> Array:
    """Points on and next to the faces between clusters: segments with different ends, bisected to the last bit.

    Along its segment a point then moves to where the two best scores differ by a few units, and some points move on inside
    their face to the next one, so that corners of three or more clusters are met as well.
    """
    work = sum(sum(cluster.shape) for cluster in group.clusters)
    lines = int(np.clip(SWITCHED / (120 * work), 8, max(8, count)))
    x = np.empty((0, layer.dimension))
    start, end = (rng.uniform(layer.low, layer.high, size=(lines, layer.dimension)) for _ in range(2))
    pairs = None
    for _ in range(2):  # the second round runs along the faces found in the first
        on, along, slope, pairs = _bisected(layer, group, start, end, pairs)
        if not len(on):
            break
        copies = max(1, count // (2 * len(on)))
        gap = rng.choice(GAPS, size=(copies, len(on))) * rng.choice([-1.0, 1.0], size=(copies, len(on)))
        gap *= 10.0 ** rng.choice([0.0, 0.0, 0.0, -3.0, 3.0], size=gap.shape)
        moved = on + (gap / slope)[..., None] * along
        x = np.concatenate([x, moved.reshape(-1, layer.dimension)])
        end = rng.uniform(layer.low, layer.high, size=on.shape)
        start, end = on, _inside(layer, on, end - (_lead(layer, group, end, pairs) / slope)[:, None] * along)
    return np.asarray(np.clip(x[:count], layer.low, layer.high))


def _lead(layer: GroupedLayer, group: ClusterGroup, x: Array, pairs: Array) -> Array:
    """By how much the second cluster of a pair leads the first."""
    found, rows = two_level.levels(layer, group, x)[0], np.arange(len(x))
    return np.asarray(found[rows, pairs[:, 1]] - found[rows, pairs[:, 0]], dtype=np.float64)


def _inside(layer: GroupedLayer, start: Array, end: Array) -> Array:
    """Where segments from points of the box leave it, or their ends."""
    step = end - start
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step > 0, (layer.high - start) / step, np.where(step < 0, (layer.low - start) / step, 1.0))
    return np.asarray(start + np.clip(room.min(axis=1, keepdims=True), 0.0, 1.0) * step)


def _bisected(
    layer: GroupedLayer, group: ClusterGroup, start: Array, end: Array, pairs: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Where segments change their best cluster: points, unit directions, how the gap grows per unit length, both clusters.

    Along the faces of `pairs` of clusters, where another one than these two is best.
    """

    def best(x: Array) -> Array:
        return np.asarray(two_level.levels(layer, group, x)[0].argmax(axis=1))

    first, last = best(start), best(end)
    before = np.stack([first, first], axis=1) if pairs is None else pairs
    length = np.linalg.norm(end - start, axis=1)
    keep = ~np.any(before == last[:, None], axis=1) & (length > 0)
    start, end, first, before, length = start[keep], end[keep], first[keep], before[keep], length[keep]
    if not len(start):
        return start, start, length, before
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(54):
        middle = (low + high) / 2.0
        same = np.any(before == best(start + middle[:, None] * (end - start))[:, None], axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    on = start + high[:, None] * (end - start)
    along = (end - start) / length[:, None]
    step = 1e-6 * length
    pairs = np.stack([first, best(on)], axis=1)
    ahead, behind = (_lead(layer, group, on + sign * step[:, None] * along, pairs) for sign in (1.0, -1.0))
    slope = (ahead - behind) / (2.0 * step)
    return on, along, np.where(np.abs(slope) > 1e-12, slope, 1.0), pairs


def observe(
    evaluate: Evaluate,
    target: Target,
    layer: AnyLayer,
    seed: int,
    flops: int,
    start: Array | None = None,
    reach: float = 0.0,
    relative: bool = False,
) -> Observed:
    """Search for the largest error, from `start` points within `reach` of them where a certificate speaks of such.

    `relative`: to |target(x)|.
    """
    rng = np.random.default_rng(seed)
    count = int(np.clip(FLOPS / max(flops, 1), FEWEST_POINTS, MOST_POINTS))
    x = face_biased(layer, count, rng) if start is None else _around(start, reach, count, rng, layer)
    errors = pointwise(evaluate, target, x, relative)
    rounds = int(np.clip(count // (CLIMBERS * STEPS), 6, ROUNDS))
    best = np.argsort(errors)[::-1][: max(2, min(CLIMBERS, count // (STEPS * rounds)))]
    climbers, heights, spent = x[best], errors[best], count
    if start is None:
        climbers, heights, more = climb(
            lambda z: pointwise(evaluate, target, z, relative), layer, climbers, heights, rounds, rng
        )
        spent += more
    heights = np.concatenate([heights, errors])
    error, at = worst_known(evaluate, target, np.concatenate([climbers, x]), heights, relative)
    return Observed(error, tuple(float(v) for v in at), spent, seed)


def _around(start: Array, reach: float, count: int, rng: np.random.Generator, layer: AnyLayer) -> Array:
    centres = start[rng.integers(0, len(start), size=count)]
    direction = rng.normal(size=centres.shape)
    direction *= reach / np.linalg.norm(direction, axis=1, keepdims=True)
    x = centres + direction * rng.random((count, 1)) ** 0.25 * (1 - 1e-9)
    inside = np.all((x >= layer.low) & (x <= layer.high), axis=1)
    return np.asarray(np.where(inside[:, None], x, centres))


def climb(
    away: Evaluate, layer: AnyLayer, x: Array, height: Array, rounds: int, rng: np.random.Generator
) -> tuple[Array, Array, int]:
    """Uphill on away (B, D) -> (B,): every climber tries STEPS random steps per round and keeps the best.

    Steps shrink from a cell to nothing.
    """
    cells = 8.0 if layer.grouped else max(2.0, float(max(layer.keys.shape)))
    step = (layer.high - layer.low) / cells
    spent, tries = 0, STEPS
    for _ in range(rounds):
        moves = rng.normal(size=(tries, *x.shape)) * step
        if layer.has_clusters:  # a kink's width is anything between a cell and nothing
            moves *= 10.0 ** rng.uniform(-10.0, 0.0, size=(tries, len(x), 1))
        moves[::2] *= rng.random((tries // 2 + tries % 2, *x.shape)) < 1.0 / x.shape[1]
        trial = np.clip(x + moves, layer.low, layer.high).reshape(-1, x.shape[1])
        found = away(trial).reshape(tries, len(x))
        spent += len(trial)
        pick = found.argmax(axis=0)
        better = found.max(axis=0) > height
        x = np.where(better[:, None], trial.reshape(tries, len(x), -1)[pick, np.arange(len(x))], x)
        height = np.maximum(height, found.max(axis=0))
        step = step * 0.75
    return x, height, spent
