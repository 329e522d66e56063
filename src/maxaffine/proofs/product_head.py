"""A product-key head beside its target: the pair that Ehlich and Zeller's theorem is asked about most (local_error.py).

At points heads are summed up in float64, and in extended precision where that is too coarse.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.rounding import EXTENDED, FLOAT64, gamma
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import affine_size, strip_factor
from maxaffine.proofs.local_error import RADII, Pair, chebyshev, least_degree
from maxaffine.proofs.sources import FromDerivatives, Source, semi_axes

BLOCK = 32_768  # points at a time: the arrays of a pass then stay in the processor's cache


@dataclass(frozen=True)
class Head(Pair):
    """A product-key head in z and the target that it is compared with; its values are c, or c + G z."""

    source: Source
    axes: tuple[AxisKeys, ...]
    deltas: tuple[float | None, ...]  # of Bernstein axes
    values: Array  # (N_1, .., N_E, K) float64
    slopes: Array | None = None  # (N_1, .., N_E, K, E) float64
    _sizes: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)  # on ellipses: asked for again and again

    @property
    def dimension(self) -> int:
        """E."""
        return len(self.axes)

    @property
    def moved_nodes(self) -> float:  # type: ignore[override]
        """Callables are asked at numbers of float64."""
        return 4.0 * FLOAT64.unit + self.source.blur if isinstance(self.source, FromDerivatives) else 0.0

    @property
    def unknown(self) -> str:  # type: ignore[override]
        """Why nothing is proved of it, where nothing is."""
        if isinstance(self.source, FromDerivatives):
            return "the declared derivative is of too low an order, or its bound too large, for this error."
        return Pair.unknown

    def degree(self, low: Array, high: Array, k: int, allowed: float) -> tuple[int, float] | None:
        """The least degree over all ellipses of axis k; for a declared derivative its order less one, or None to halve."""
        if not isinstance(self.source, FromDerivatives):
            return least_degree(partial(self._size, low, high, k), allowed, 220 if self.dimension == 1 else 90)
        m = self.source.order - 1
        parts = [4.0 * self._own(low, high, k, r) * r**-m / (r - 1.0) * (1 + 1e-12) for r in RADII]
        total = self.source.remainder(low, high, k) + min(parts)
        return (m, total) if total <= allowed else None

    def _size(self, low: Array, high: Array, k: int, r: float, hard: bool) -> float:
        """|f| + |p| on the ellipse of side k and the cell's other sides."""
        place = (low.tobytes(), high.tobytes(), k, r, hard)
        if place not in self._sizes:
            own = self._own(low, high, k, r)
            self._sizes[place] = self.source.on_ellipse(low, high, k, r, hard) + own if math.isfinite(own) else math.inf
        return self._sizes[place]

    def _own(self, low: Array, high: Array, k: int, r: float) -> float:
        """|p| there: the strip's factor times max |c|, or times sum_j w_j(Re z) |v_j(z)| where values are affine."""
        long, short = semi_axes(float(low[k]), float(high[k]), r)
        strip = strip_factor(self.axes[k], self.deltas[k], float(low[k] + high[k]) / 2.0, long, short)
        if not math.isfinite(strip):
            return math.inf
        if self.slopes is None:
            return float(np.abs(self.values).max()) * strip
        centre, reach = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-12) + 2.0**-51 * np.maximum(np.abs(low), np.abs(high))
        reach[k] = long
        return affine_size(self.axes, self.values, self.slopes, centre, reach) * strip

    def at_points(self, low: Array, high: Array, counts: tuple[int, ...], precise: bool) -> tuple[float, float]:
        """max |f - p| over Chebyshev points of a cell, and its uncertainty."""
        E = self.dimension
        scale = max(1.0, float(np.abs(low).max()), float(np.abs(high).max()))
        grids = [chebyshev(float(low[e]), float(high[e]), n) for e, n in enumerate(counts)]
        # The exact points lie within slack of float64 numbers, also where extended numbers are no longer than float64.
        blur, slack = 0.0, (4.0 * FLOAT64.unit + 16.0 * EXTENDED) * scale
        if isinstance(self.source, FromDerivatives) or not precise:  # f and g are compared at the same rounded nodes
            near = [np.clip(grid.astype(np.float64), low[e], high[e]) for e, grid in enumerate(grids)]
            grids, slack = [grid.astype(np.longdouble) for grid in near], 0.0
            blur = self.source.blur if isinstance(self.source, FromDerivatives) else 0.0
        held = grids if precise else [grid.astype(np.float64) for grid in grids]
        value, rough = self._summed(held, EXTENDED if precise else FLOAT64.unit, blur, scale)
        top, unsure = 0.0, 0.0
        places = [grid.astype(np.float64).reshape([-1 if i == e else 1 for i in range(E)]) for e, grid in enumerate(grids)]
        first = max(1, BLOCK // max(1, math.prod(counts[1:])))
        for start in range(0, counts[0], first):
            rows = slice(start, start + first)
            f = self.source.at([places[0][rows], *places[1:]], slack)
            g, loose = value[rows], rough[rows]
            if not (np.isfinite(f.lo).all() and np.isfinite(f.hi).all() and np.isfinite(g).all() and np.isfinite(loose).all()):
                return math.inf, math.inf
            width = f.hi - f.lo
            away = np.maximum(np.abs(f.hi - g), np.abs(g - f.lo))
            top = max(top, float((away - width).max()))
            unsure = max(unsure, float((width + loose).max()))
        return max(top, 0.0), unsure * (1 + 1e-12)

    def _summed(self, grids: Sequence[NDArray[Any]], unit: float, blur: float, scale: float) -> tuple[Array, Array]:
        """p on a product of grids in their number format, and how wrong that may be: (M_1, .., M_E, K)."""
        E = self.dimension
        # values c and slopes G side by side: (N_1, .., N_E, K, 1 + E)
        out = self.values[..., None] if self.slopes is None else np.concatenate([self.values[..., None], self.slopes], axis=-1)
        absolute, shaky = np.abs(out), 0.0
        lost = 2.0**-1000 * float(absolute.max())  # weights below the smallest normal number
        out = out.astype(grids[0].dtype)
        for e, axis in enumerate(self.axes):
            weights = _weights(axis, grids[e])
            out = along(weights, out, e)
            absolute = along(weights.astype(np.float64), absolute, e)
            # rounding of nodes, logits, exp and sums
            spread, terms = float(np.ptp(axis.slopes)), 2 * len(axis) + 4
            logit = 4.0 * scale * (float(np.abs(axis.slopes).max()) + float(np.abs(axis.offsets).max())) + scale * spread + 30.0
            shaky += 2.0 * unit * logit + gamma(terms, unit) + 16.0 * unit * scale * spread
        shaky += blur * sum(float(np.ptp(axis.slopes)) for axis in self.axes)
        value, size, moved = out[..., 0], absolute[..., 0], np.zeros(1)
        for e in range(E) if self.slopes is not None else ():
            z = grids[e].reshape([-1 if i == e else 1 for i in range(E)] + [1])
            value = value + z * out[..., 1 + e]
            size = size + np.abs(z).astype(np.float64) * absolute[..., 1 + e]
            moved = moved + (blur + 16.0 * unit * scale) * absolute[..., 1 + e]  # the nodes' own rounding
        rough = size * ((shaky + gamma(2 * E + 2, unit)) * (1 + 1e-9) + FLOAT64.unit) + moved * (1 + 1e-9) + lost
        return value.astype(np.float64), rough


def along(weights: NDArray[Any], values: NDArray[Any], axis: int) -> NDArray[Any]:
    """values (.., N, ..) with weights (M, N) along an axis: (.., M, ..)."""
    return np.moveaxis(np.tensordot(weights, values, axes=(1, axis)), 0, axis)


def _weights(axis: AxisKeys, z: NDArray[Any]) -> NDArray[Any]:
    """Softmax weights of the stored keys in the number format of z."""
    scores = np.multiply.outer(z, axis.slopes.astype(z.dtype)) + axis.offsets.astype(z.dtype)
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
