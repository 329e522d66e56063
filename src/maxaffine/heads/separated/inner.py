"""The inner sum u of an outer function: its range, the outer function sampled there, and fits as stored sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.heads.separated.exponentials import Fit, Sampled
from maxaffine.structure.exponential_sums import ExponentialSum
from maxaffine.structure.separation import Outer

ROOM = 1e-3  # of the range of an inner function, by which the exponential sum is fitted beyond it


@dataclass(frozen=True)
class Inner:
    """The sum u of an outer function: between which numbers it stays, block by block and in all, and g sampled there."""

    ends: tuple[tuple[float, float], ...]
    sampled: Sampled | None
    size: float

    def stored(self, fit: Fit) -> ExponentialSum:
        """The sum as data, with coefficients for the shifts of the blocks."""
        assert self.sampled is not None
        shifted = ExponentialSum(0.0, (), tuple(complex(one) for one in fit.exponents), self.ends)
        coefficients = []
        for k, (c, one) in enumerate(zip(fit.coefficients, fit.exponents, strict=True)):
            end = self.sampled.high if one.real > 0 else self.sampled.low
            coefficients.append(complex(c * np.exp(one * (float(sum(shifted.shifts(k))) - end))))
        return ExponentialSum(fit.constant, tuple(coefficients), shifted.exponents, self.ends)


def inner_range(outer: Outer, ends: Sequence[tuple[float, float]]) -> Inner:
    """The range of the inner function, a little widened where the outer one allows it."""
    low, high = math.fsum(a for a, _ in ends), math.fsum(b for _, b in ends)

    def g(u: Array) -> Array:
        return outer.function.evaluate(u[:, None])[:, 0]

    if math.isfinite(low) and math.isfinite(high) and low < high:
        for room in (ROOM * (high - low), 0.0):
            sampled = Sampled(g, low - room, high + room)
            if sampled.finite:
                return Inner(tuple(ends), sampled, sampled.size)
    return Inner(tuple(ends), None, math.inf)
