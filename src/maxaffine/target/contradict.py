"""A declared fact against the target itself: pairs of points at which it is false."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.target.box import Box
from maxaffine.target.declare import ConcaveModulus, Fact, Modulus

COUNT = 2048  # points that pairs are made of
ROUNDING = 64 * 2.0**-53
AGAIN = 3  # points that a callable is asked twice
MATTERS = 0.01  # of the error asked for, between two calls
ROUNDED = 4 * 2.0**-53  # of a coordinate: what a formula makes of x first, such as 5*x, is rounded like x
"""Relative rounding granted to the values of the target: a difference must exceed it to count against a declaration."""


@dataclass(frozen=True)
class Contradiction:
    """Two points whose values differ by more than a declared fact allows."""

    x: Array
    y: Array
    difference: float
    allowed: float

    @property
    def sentence(self) -> str:
        """The pair and the two numbers."""
        x, y = (", ".join(f"{v:.6g}" for v in point[:8]) + (", ..." if len(point) > 8 else "") for point in (self.x, self.y))
        return (
            f"at x = ({x}) and y = ({y}) the target's values differ by {self.difference:.6g}, and the declaration allows "
            f"{self.allowed:.6g}"
        )


def contradicts(
    values: Callable[[Array], Array], box: Box, *, lipschitz: Fact | None = None, modulus: Modulus | None = None,
    count: int = COUNT,
) -> Contradiction | None:  # fmt: skip
    """Look for a pair of points that refutes a declared Lipschitz constant or modulus; None where none is found.

    `values`: (B, D) -> (B, ...), such as `Target.values`.  Pairs: far apart, and close together along every axis and along
    random directions; the worst close pairs are followed uphill for a few rounds.  Finding nothing proves nothing.  Pairs
    are made of `count` points and a quarter more.
    """
    if lipschitz is None and modulus is None:
        return None
    rng = np.random.default_rng(0)
    allowed = _allowance(lipschitz, modulus)
    x = np.concatenate([box.sample(count, rng), _edges(box, rng, count // 4)])
    size = float(np.max(np.abs(values(x)), initial=0.0))
    pairs = [(x, x[rng.permutation(len(x))])]
    for apart in (1e-1, 1e-2, 1e-4, 1e-6):
        pairs += [_close_pairs(x, box, rng, apart)]
    for a, b in pairs:
        for _ in range(3):
            found, ratio = _judge(values, allowed, a, b, size)
            top = np.argsort(-ratio)[: max(8, len(a) // 16)]
            found = found or _halve(values, allowed, a[top], b[top], size)
            if found is not None:
                return found
            step = b[top] - a[top]
            repeat = max(1, len(a) // len(top))
            near = np.repeat(a[top], repeat, axis=0)
            spread = np.abs(np.repeat(step, repeat, axis=0)) + 1e-2 * box.width
            near = box.clip(near + rng.normal(size=near.shape) * spread)
            a, b = near, box.clip(near + np.repeat(step, repeat, axis=0))
    return None


def other_when_called_again(values: Callable[[Array], Array], box: Box, error: float) -> str | None:
    """Where a callable's values at a few points are others in a second call, by what matters beside the error: a sentence."""
    x = box.sample(AGAIN, np.random.default_rng(2))
    first, second = (values(x).reshape(len(x), -1) for _ in range(2))
    apart = np.abs(second - first).max(axis=1)
    worst = int(np.argmax(apart))
    if not apart[worst] > MATTERS * error:
        return None
    k = int(np.argmax(np.abs(second - first)[worst]))
    at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(box.names[:8], x[worst], strict=False))
    return (
        f"the target gives other values when it is called again: at {at} first {first[worst, k]:.6g}, "
        f"then {second[worst, k]:.6g}. A target is a function of its point alone: give random numbers "
        "a seed inside of it, and let it count nothing."
    )


def _halve(
    values: Callable[[Array], Array], allowed: Callable[[Array, Array], Array], a: Array, b: Array, size: float
) -> Contradiction | None:
    """Halve pairs towards the half that uses up more of what is allowed: a jump between them is run to ground."""
    for _ in range(40):
        middle = 0.5 * a + 0.5 * b
        left, ratio_left = _judge(values, allowed, a, middle, size)
        right, ratio_right = _judge(values, allowed, middle, b, size)
        if left is not None or right is not None:
            return left or right
        first = (ratio_left >= ratio_right)[:, None]
        a, b = np.where(first, a, middle), np.where(first, middle, b)
    return None


def _allowance(lipschitz: Fact | None, modulus: Modulus | None) -> Callable[[Array, Array], Array]:
    def allowed(a: Array, b: Array) -> Array:
        gap = np.abs(a - b)
        limits = []
        if lipschitz is not None:
            constant: Any = lipschitz.value
            limits.append(gap @ constant if np.ndim(constant) else float(constant) * np.sqrt(np.sum(gap**2, axis=1)))
        if modulus is not None:
            radius = np.sum(gap, axis=1) if isinstance(modulus, ConcaveModulus) else np.max(gap, axis=1)
            limits.append(np.array([modulus(float(r)) for r in radius]))
        least: Array = np.minimum.reduce(limits)
        return least

    return allowed


def _judge(
    values: Callable[[Array], Array], allowed: Callable[[Array, Array], Array], a: Array, b: Array, size: float
) -> tuple[Contradiction | None, Array]:
    """The pair that is most beyond what is allowed, if any: values of up to `size` are rounded, and so is what they come from."""
    fa, fb = values(a).reshape(len(a), -1), values(b).reshape(len(b), -1)
    difference = np.max(np.abs(fa - fb), axis=1)
    limit = allowed(a, b)
    largest = np.maximum(np.max(np.abs(fa), axis=1), np.max(np.abs(fb), axis=1))
    grant = ROUNDING * np.maximum(largest, size) + allowed(a, a + ROUNDED * np.abs(a))
    over = difference - grant - limit * (1 + 1e-12)
    with np.errstate(all="ignore"):
        ratio = np.where(limit > 0, (difference - grant) / limit, 0.0)
    ratio = np.where(np.isfinite(ratio), ratio, 0.0)
    worst = int(np.argmax(over))
    if over[worst] > 0:
        return Contradiction(a[worst], b[worst], float(difference[worst]), float(limit[worst])), ratio
    return None, ratio


def _edges(box: Box, rng: np.random.Generator, count: int) -> Array:
    """Points with some coordinates on an edge of the box."""
    x = box.sample(count, rng)
    choice = rng.integers(0, 3, size=x.shape)
    return np.where(choice == 0, box.low, np.where(choice == 1, box.high, x))


def _close_pairs(x: Array, box: Box, rng: np.random.Generator, size: float) -> tuple[Array, Array]:
    direction = rng.normal(size=x.shape)
    along_axis = rng.random(len(x)) < 0.5
    axis = rng.integers(0, box.dimension, size=len(x))
    direction = np.where(
        along_axis[:, None], np.eye(box.dimension)[axis] * np.sign(direction), direction / np.sqrt(box.dimension)
    )
    return x, box.clip(x + size * box.width * direction)
