"""Exact nodes moved as far as their heads may err, each to the side that makes the answer worse, where that is worst.

The theorem of stacks says that this moves the answer by no more than sum W beta, and that no argument leaves the box of its head.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.attack.case import Rng
from maxaffine.core.arrays import Array
from maxaffine.stack.stack import Stack

POINTS = 64
CLIMBERS = 6  # points that are moved on
STEPS = (0.3, 0.1, 0.03, 0.01)  # of the box
AT_ONCE = 200_000  # points through all nodes


@dataclass(frozen=True)
class Moved:
    """The most that moved nodes were seen to move the answer, where, and the node whose argument left its head's box."""

    most: float
    at: Array
    escaped: str


def moved(stack: Stack, rng: Rng) -> Moved:
    """By samples and corners of the box, then by steps from the worst of them."""
    box = stack.box
    corners = np.where(rng.random((POINTS // 2, box.dimension)) < 0.5, box.low, box.high)
    x = np.concatenate([box.sample(POINTS, rng), corners, [stack.observed.at]])
    found, escaped = _effects(stack, x)
    for step in STEPS:
        best = x[np.argsort(found)[-CLIMBERS:]]
        near = np.repeat(best, 8, axis=0) + step * (box.high - box.low) * rng.normal(size=(8 * len(best), box.dimension))
        near = np.clip(near, box.low, box.high)
        more, out = _effects(stack, near)
        x, found, escaped = np.concatenate([x, near]), np.concatenate([found, more]), escaped or out
    worst = int(np.argmax(found))
    return Moved(float(found[worst]), x[worst], escaped)


def _effects(stack: Stack, x: Array) -> tuple[Array, str]:
    """How far the answer moves at every point, signs by the slope of what follows; and a node that was asked outside its box."""
    betas = np.array([node.beta for node in stack.nodes])
    m, B = len(betas), len(x)
    plain, _ = _run(stack, x, np.zeros((m, 1)))
    signs = np.ones((m, B))
    share = max(1, AT_ONCE // (B * m))
    for first in range(0, m, share):
        some = np.arange(first, min(first + share, m))
        alone = np.zeros((m, len(some), B))
        alone[some, np.arange(len(some))] = betas[some, None]
        ends, _ = _run(stack, np.tile(x, (len(some), 1)), alone.reshape(m, -1))
        signs[some] = np.where(ends.reshape(len(some), B) >= plain, 1.0, -1.0)
    found, escaped = np.zeros(B), ""
    for side in (1.0, -1.0):
        ends, out = _run(stack, x, side * signs * betas[:, None])
        found, escaped = np.maximum(found, np.nan_to_num(np.abs(ends - plain), nan=np.inf)), escaped or out
    noise = 1e-13 * float(np.abs(plain).max())
    return np.maximum(found - noise, 0.0), escaped


def _run(stack: Stack, x: Array, shifts: Array) -> tuple[Array, str]:
    """The formula node by node with so much (m, 1 or B) added at every node; and a node that was asked outside its head's box."""
    known: list[Any] = list(x.T)
    escaped = ""
    for node, shift, told in zip(stack.plan.nodes, shifts, stack.nodes, strict=True):
        rows = np.stack([row(known) for row in node.maps], axis=1)
        box, scale = stack.heads[node.head].box, np.ldexp(1.0, np.array(node.scales))
        if told.rough:  # its argument is moved into the box
            rows = np.clip(rows, box.low, box.high)
        if not ((box.low * scale <= rows) & (rows <= box.high * scale)).all():
            escaped = escaped or node.name
        known.append(node.function.evaluate(rows)[:, 0] + shift)
    return np.asarray(stack.plan.result(known)), escaped
