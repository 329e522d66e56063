"""The eight coefficients tabulated in mu by piecewise Chebyshev interpolation: a risk and gradient in microseconds.

The coefficients change over mu-distances gamma/C (the secret token's noise) or 1/(lam C) (the softmax's own width),
whichever is wider, so panels of width <= 2.5 sqrt(gamma^2 + 1/lam^2)/C with 24 nodes each reach rounding error.
Derivatives are tabulated in their own right, not differentiated from the interpolant.
"""

from __future__ import annotations

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.meanfield.checks import whole
from maxaffine.meanfield.risk import LinearRisk, SoftmaxRisk

MARGIN = 0.02  # the table reaches a little beyond [-1, 1], for difference quotients at the ends


class RiskTable(LinearRisk):
    """Same interface as SoftmaxRisk (``risk``, ``gradient``, ``value_and_gradient``, ``coefficients``)."""

    def __init__(self, source: SoftmaxRisk, panels: int | None = None, degree: int = 24) -> None:
        self.problem = source.problem
        self.lam = source.lam
        gamma, C = self.problem.gamma, self.problem.C
        width = 2.5 * math.sqrt(gamma * gamma + 1 / self.lam**2) / C
        auto = max(8, math.ceil(2 * (1 + MARGIN) / width))
        self.panels = auto if panels is None else whole("panels", panels, 1, "leave it out to let the width decide")
        self.degree = whole("degree", degree, 4, "24 nodes per panel give full precision")
        edge = 1 + MARGIN
        self._scale = self.panels / (2 * edge)
        self._edge = edge
        angle = (np.arange(self.degree) + 0.5) * math.pi / self.degree
        nodes = np.cos(angle)
        # discrete cosine transform: values at Chebyshev nodes -> coefficients of T_0 .. T_{degree-1}
        transform = 2 / self.degree * np.cos(np.outer(np.arange(self.degree), angle))
        transform[0] /= 2
        samples = np.empty((self.panels, self.degree, 16))
        for panel in range(self.panels):
            for i, x in enumerate(nodes):
                mu = (panel + (x + 1) / 2) / self._scale - edge
                samples[panel, i, :8], samples[panel, i, 8:] = source.coefficients(mu)
        self._series: Array = np.einsum("kn,pnc->pck", transform, samples)
        self._orders: Array = np.arange(self.degree, dtype=float)

    def coefficients(self, mu: float) -> tuple[Array, Array]:
        """The eight coefficients and their derivatives in mu, interpolated."""
        position = (mu + self._edge) * self._scale
        panel = min(max(int(position), 0), self.panels - 1)
        x = 2 * (position - panel) - 1
        basis = np.cos(self._orders * math.acos(min(max(x, -1.0), 1.0)))
        both = self._series[panel] @ basis
        return both[:8], both[8:]


def tabulate(source: SoftmaxRisk, panels: int | None = None, degree: int = 24) -> RiskTable:
    """The table of an exact risk."""
    return RiskTable(source, panels, degree)
