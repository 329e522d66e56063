"""Norms that are folded, re-proved: the stored rows turn a point, and a cone that contains it is followed through the turns.

    (p, q)  ->  (c p + s q, |c q - s p|)         c, s: cosine and sine of pi/2^(k+1), in balls
    0 <= q <= T p   gives   q' <= T' p',         T' = max(s/c, (c T - s)/(c + s T)), after the first turn max(s/c, c/s)
    r / sqrt(1 + T^2)  <=  p_K  <=  r            and the error of the answer g p_K from both ends

Turns and reflections move no two points apart: errors of the absolute values, of their heads and of the stored rows, add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from maxaffine.checker.affine_rows import TINY, Vector, combined, rounding
from maxaffine.checker.proved import NotProved
from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.structure.stacked import StackNode

ROOM = 1.001  # sizes of folded numbers are supposed to be at most that times the norm, and shown to be


@dataclass(frozen=True)
class FoldedNorm:
    """What is proved of a norm: its error, the size of its absolute values, and its value as an affine form of them."""

    error: float
    size: float
    value: Vector


def check_norm(
    node: StackNode, steps: Sequence[StackNode], first: int, sides: tuple[Vector, Vector], low: Array, reach: float, beta: float,
    size: Array,
) -> FoldedNorm:  # fmt: skip
    """A norm whose absolute values stand from place `first` on; `low` are lower ends of its arguments, `reach` the most it is.

    `size` of the numbers that run is filled in for them.
    """
    if any(bare and not side >= 0.0 for bare, side in zip(node.bare, low, strict=True)):
        raise NotProved(f"an argument of its norm {node.name} may be negative, and no absolute value of it is taken.")
    most = ROOM * reach + 4.0 * len(steps) * (beta + TINY) + TINY
    size[first : first + len(steps)] = most
    errors, left = list[float](), iter(enumerate(steps, first))

    def absolute(wanted: Vector) -> Vector:
        place, step = next(left)
        errors.append(rounding(step.maps[0], wanted, size) + 2.0 * TINY)
        return {place: flint.arb(1)}

    p, q = (side if bare else absolute(side) for side, bare in zip(sides, node.bare, strict=True))
    ratio: Any = None
    for k in range(1, node.folds + 1):
        angle = flint.arb.pi() / 2 ** (k + 1)
        cosine, sine = angle.cos(), angle.sin()
        ratio = _larger(sine / cosine, cosine / sine if ratio is None else (cosine * ratio - sine) / (cosine + sine * ratio))
        turned = combined(cosine, q, -sine, p)
        p = combined(cosine, p, sine, q)
        if k < node.folds:
            q = absolute(turned)
    gain = 2 / (1 + cosine)
    short = 1 - gain / (1 + ratio * ratio).sqrt()
    away = _larger(gain - 1, short) * flint.arb(reach)
    noise = sum((flint.arb(one) + flint.arb(beta) for one in errors), flint.arb(0))
    largest = flint.arb(reach) + noise + flint.arb(max(errors, default=0.0))
    if next(left, None) is not None or not bool(largest <= flint.arb(most)):
        raise NotProved(f"the absolute values of its norm {node.name} are not shown to stay where they are supposed to.")
    error = balls.bounds(away + gain * noise)[1]
    return FoldedNorm(float(error), float(most), combined(gain, p, flint.arb(0), {}))


def _larger(a: Any, b: Any) -> Any:
    """An upper bound of both."""
    return max(a.upper(), b.upper())


def slopes(low: Array, high: Array) -> tuple[Array, Array]:
    """Ends of the generalised partial derivatives of hypot on a box: a is at most |a| over the least norm, and at most 1."""
    least = np.zeros(2)
    nearest = np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    for e in range(2):
        far, other = max(abs(low[e]), abs(high[e])), nearest[1 - e]
        least[e] = 1.0 if other <= 0.0 else min(1.0, far / float(np.hypot(far, other)) * (1.0 + 1e-12))
    return np.where(low < 0.0, -least, 0.0), np.where(high > 0.0, least, 0.0)
