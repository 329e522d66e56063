"""Heads of an axis whose functions change on ever smaller scales towards one end: logarithms, powers over decades.

Their keys are graded (layer/spectral_keys.py), and so are the points that they are fitted and judged at.  How near to the end the
scale stops shrinking, and which end it is, is what one fit with few keys says best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from maxaffine.core import deadline
from maxaffine.core.arrays import Array
from maxaffine.heads.fitting import Function
from maxaffine.heads.spectral.fit import AxisCurve, AxisFit, Design
from maxaffine.layer.spectral_keys import bernstein, graded, graded_points

NEAR = (0.2, 0.06, 0.02, 6e-3, 2e-3, 6e-4, 2e-4)  # of the half width, from the end
TRIAL = 12  # keys of the fit that chooses among them
BETTER = 3.0  # times, that it has to be with them
FEWEST = 4
PADDINGS = (1, 2, 3)
RHOS = (0.25, 0.5, 0.75, 1.0, 1.5)


class GradedCurve(AxisCurve):
    """Best graded heads of an axis for functions f (M, K), by number of tokens."""

    def __init__(self, f: Function, error: float, dtype: str, nears: Sequence[float] = (), add: bool = False) -> None:
        super().__init__(f, error, dtype, False, add)
        tried = []
        for near in (*nears, *NEAR, *(-near for near in NEAR)):
            self.near = near
            tried.append((self._graded(TRIAL, 2, 0.75).error, near))
        self.trial, self.near = min(tried)

    def _points(self, count: int) -> tuple[Array, Array]:
        """Points equidistant in log(z + 1 + near) beside Chebyshev's."""
        fit, check = super()._points(count)
        self._step = 2.0 * abs(self.near) / count  # where functions are steepest
        own = graded_points(3 * count + 16, self.near), graded_points(10 * count + 41, self.near)
        return np.unique(np.concatenate([fit, own[0]])), np.unique(np.concatenate([check, own[1]]))

    def _bernstein(self, count: int, delta: float) -> Design:
        return Design(bernstein(count, delta, self.dtype), *self._points(count))

    def _search(self, count: int) -> AxisFit:
        if count < FEWEST:
            return super()._search(count)
        deadline.check()
        found = [self._graded(count, pad, rho) for pad in PADDINGS if count - 1 - 2 * pad >= 1 for rho in RHOS]
        return min(found, key=lambda fit: fit.error)

    def _graded(self, count: int, padding: int, rho: float) -> AxisFit:
        design = Design(graded(count, padding, rho, self.near, self.dtype), *self._points(count))
        return self._fit(design, self.f(design.z), self.f(design.check), math.inf)


def finer(curve: AxisCurve, error: float, nears: Sequence[float], many: int, most: int) -> GradedCurve | None:
    """Graded heads for the functions of a curve, where that takes more than `many` keys to keep `error` and they take fewer."""
    if curve.best(many).error <= error:
        return None
    other = GradedCurve(curve.f, curve.wanted, curve.dtype, nears, curve.add)
    if not BETTER * other.trial < curve.best(TRIAL).error:
        return None
    fit = other.smallest(error, FEWEST, most, polish=False)
    return None if fit is None or curve.smallest(error, 1, len(fit) - 1, polish=False) is not None else other
