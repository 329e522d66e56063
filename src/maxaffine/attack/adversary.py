"""Search for the largest error of a layer from many starts, and judge it with exact values of the target.

Climbing uses float64 values of the target.  The highest points are then judged by balls of 128 bits: what counts is a lower
bound of |layer(x) - f(x')|, x' = x or a real number that is rounded to x.
"""

from collections.abc import Callable, Iterator

import flint
import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.layer.grouped import GroupedLayer
from maxaffine.layer.layer import Layer
from maxaffine.proofs.observe import face_biased, pointwise
from maxaffine.runtime import chooser
from maxaffine.target.target import Target

Array = NDArray[np.float64]

STARTS, CLIMBERS, TRIES, ROUNDS, JUDGED = 600, 12, 8, 22, 6


def worst_error(layer: Layer | GroupedLayer, target: Target, rng: np.random.Generator, runtime: str) -> tuple[float, Array]:
    """The largest proved lower bound of |layer - target| found through one runtime, and where."""

    def evaluate(x: Array) -> Array:
        return np.asarray(chooser.evaluate(layer, x, runtime).astype(np.float64))

    x = _starts(layer, rng)
    height = pointwise(evaluate, target, x)
    best = np.argsort(height)[::-1][:CLIMBERS]
    x, height = _climb(evaluate, target, layer, x[best], height[best], rng)
    order = np.argsort(height)[::-1][:JUDGED]
    found, at = 0.0, x[order[0]]
    for point in x[order]:
        out = evaluate(point[None])[0, :, 0]
        for real in _rounded_to(point, layer, rng):
            error = _exact_error(target, real, out)
            if error > found:
                found, at = error, point
    return found, at


def _starts(layer: Layer | GroupedLayer, rng: np.random.Generator) -> Array:
    """Random points, faces, corners, and points that crowd towards the edges as extrema of polynomials do."""
    uniform = face_biased(layer, STARTS // 2, rng)
    angle = rng.uniform(0.0, np.pi, (STARTS // 2, layer.dimension))
    middle, half = (layer.low + layer.high) / 2.0, (layer.high - layer.low) / 2.0
    return np.asarray(np.clip(np.concatenate([uniform, middle + half * np.cos(angle)]), layer.low, layer.high))


def _climb(
    evaluate: Callable[[Array], Array], target: Target, layer: Layer | GroupedLayer, x: Array, height: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:  # fmt: skip
    step = (layer.high - layer.low) / 12.0
    for _ in range(ROUNDS):
        moves = rng.normal(size=(TRIES, *x.shape)) * step
        if layer.has_clusters:
            moves *= 10.0 ** rng.uniform(-10.0, 0.0, size=(TRIES, len(x), 1))
        moves[::2] *= rng.random((TRIES // 2, *x.shape)) < 1.0 / x.shape[1]
        trial = np.clip(x + moves, layer.low, layer.high).reshape(-1, x.shape[1])
        found = pointwise(evaluate, target, trial).reshape(TRIES, len(x))
        pick = found.argmax(axis=0)
        better = found.max(axis=0) > height
        x = np.where(better[:, None], trial.reshape(TRIES, *x.shape)[pick, np.arange(len(x))], x)
        height = np.maximum(height, found.max(axis=0))
        step = step * 0.7
    return x, height


def _rounded_to(point: Array, layer: Layer | GroupedLayer, rng: np.random.Generator) -> Iterator[list[flint.arb]]:
    """The point, and real points of the box that a float64 query would round to it."""
    yield [flint.arb(float(v)) for v in point]
    for _ in range(2):
        real = []
        for v, low, high in zip(point, layer.low, layer.high, strict=True):
            sign = rng.choice([-1.0, 1.0])
            shift = flint.arb(float(np.spacing(v))) * flint.arb(float(sign * 0.4999))
            inside = (v > low or sign > 0) and (v < high or sign < 0)
            real.append(flint.arb(float(v)) + shift if inside else flint.arb(float(v)))
        yield real


def _exact_error(target: Target, real: list[flint.arb], out: Array) -> float:
    """A lower bound of the largest |out_k - f_k| over the outputs; 0 where the target is not enclosed."""
    assert target.expression is not None
    with balls.precision(128):
        found = 0.0
        for value, ball in zip(out, target.expression.enclose_ball([flint.acb(v) for v in real]), strict=True):
            if ball.is_finite() and np.isfinite(value):
                low, high = balls.bounds(abs(ball.real - flint.arb(float(value))))
                found = max(found, low if np.isfinite(high) else 0.0)
            elif not np.isfinite(value):
                found = float("inf")
        return found
