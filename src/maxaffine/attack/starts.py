"""Where to look: random points, faces, corners, both sides of hand-overs and of the target's switches, edges of gaps.

Segments across a switch are bisected to the last bit; copies lie 1e-17 to 0.1 of the segment beside it.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.attack.domain import Domain, Near
from maxaffine.core.arrays import Array
from maxaffine.export import judge
from maxaffine.proofs.observe import face_biased
from maxaffine.runtime import chooser
from maxaffine.structure.switches import Switch, switches
from maxaffine.target.target import Target

STARTS, LINES, COPIES, MOST = 600, 120, 14, 4000
STEPS = 10.0 ** np.arange(-17.0, 0.0)
SEEN_TOKENS = 4096  # keys up to which the places where another key takes the lead are looked for


def start_points(
    layer: Any, target: Target, domain: Domain, rng: np.random.Generator, known: Iterable[float] | None = None
) -> Array:
    """Points (N, D) of the box to start a search from; `known` is the worst one that is known already."""
    at = target.box.centre if known is None else known
    found = [judge.points(layer, at, int(rng.integers(1 << 30))), _scattered(layer, rng), _handing(layer, rng)]
    if target.expression is not None:
        for switch in switches(target.expression)[:12]:
            found += _on_switch(layer, switch, rng)
    found += [_beside(layer, strip, rng) for strip in domain.strips]
    found = [one if len(one) <= MOST else one[rng.choice(len(one), MOST, replace=False)] for one in found]
    if isinstance(domain, Near):  # in and on the balls about the centres
        centres = np.array(domain.centres)[rng.integers(len(domain.centres), size=2000)]
        way = rng.normal(size=centres.shape)
        size = domain.radius * np.minimum(rng.uniform(0.0, 1.6, (len(way), 1)), 1.0 - 1e-9)
        found.append(centres + size * way / np.linalg.norm(way, axis=1, keepdims=True))
    x = np.clip(np.concatenate(found), layer.low, layer.high)
    some = x[rng.choice(len(x), min(len(x), 400), replace=False)]
    ulps = [np.nextafter(some, np.where(rng.random(some.shape) < 0.5, layer.low, layer.high)) for _ in range(2)]
    return np.asarray(np.concatenate([x, *ulps]))


def _scattered(layer: Any, rng: np.random.Generator) -> Array:
    """Random points, faces, corners, and points that crowd towards the edges as extrema of polynomials do."""
    uniform = face_biased(layer, STARTS // 2, rng)
    angle = rng.uniform(0.0, np.pi, (STARTS // 2, layer.dimension))
    middle, half = (layer.low + layer.high) / 2.0, (layer.high - layer.low) / 2.0
    return np.concatenate([uniform, middle + half * np.cos(angle)])


def _handing(layer: Any, rng: np.random.Generator) -> Array:
    """Both sides of where another key of a lookup takes the lead."""
    if layer.grouped or layer.keys.count > SEEN_TOKENS:
        return np.empty((0, layer.dimension))

    def leads(x: Array) -> NDArray[np.intp]:
        return np.asarray(chooser.attention(layer, x).argmax(axis=1))

    a, b = (rng.uniform(layer.low, layer.high, size=(48, layer.dimension)) for _ in range(2))
    place, direction = judge.halved(leads, a, b, len(a))
    return np.concatenate([place + step * direction for step in (*judge.STEPS[::2], *-judge.STEPS[1::2])])


def _beside(layer: Any, strip: Any, rng: np.random.Generator) -> Array:
    """Points at the edges of a strip that is excluded, reached along its normal or along one axis."""
    row = np.array([float(c) for c in strip.row])
    start = rng.uniform(layer.low, layer.high, (LINES * 2, layer.dimension))
    away = float(strip.gap) * (1.0 + rng.choice([1e-13, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0], len(start)))
    wanted = np.where(rng.random(len(start)) < 0.5, float(strip.low) - away, float(strip.high) + away)
    way = row.copy()
    if rng.random() < 0.5:
        way = np.zeros(len(row))
        way[int(rng.choice(np.flatnonzero(row)))] = 1.0
    return np.asarray(start + (wanted - start @ row)[:, None] * way / float(row @ way))


def _on_switch(layer: Any, switch: Switch, rng: np.random.Generator) -> list[Array]:
    start, end = (rng.uniform(layer.low, layer.high, (LINES, layer.dimension)) for _ in range(2))

    def side(x: Array) -> Array:
        with np.errstate(all="ignore"):
            value = switch.argument.evaluate(x)[:, 0]
        return np.floor(value) if switch.op == "floor" else np.sign(value)

    first = side(start)
    keep = (first != side(end)) & np.isfinite(first)
    start, end, first = start[keep], end[keep], first[keep]
    if not len(start):
        return []
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(54):
        middle = (low + high) / 2.0
        same = side(start + middle[:, None] * (end - start)) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    on = start + high[:, None] * (end - start)
    along = (end - start) * (rng.choice(STEPS, (COPIES, len(on), 1)) * rng.choice([-1.0, 1.0], (COPIES, len(on), 1)))
    return [on, np.asarray((on + along).reshape(-1, layer.dimension))]
