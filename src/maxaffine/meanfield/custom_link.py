"""A user's own link, by Gauss-Legendre quadrature on panels that end at the link's kinks and jumps.

Derivatives are differences of eighth order in the means, where the averages are smooth (see links.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.meanfield.checks import whole
from maxaffine.meanfield.links import Link, OneMoment, PairMoment

REACH = 9.0  # the Gaussian is cut at nine standard deviations (1e-18)
FIRST = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
SECOND = np.array([-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])
SHIFTS = np.arange(-4, 5)


class CustomLink(Link):
    """sigma given as a vectorised function; ``breaks`` are the points where it or its derivative jumps.

    ``nodes`` per panel; panels are at most 6 standard deviations wide. Smooth links reach about 1e-12 in value and
    1e-9 in the gradient.
    """

    def __init__(
        self, function: Callable[[Array], Array], breaks: Sequence[float] = (), name: str = "custom", nodes: int = 24
    ) -> None:
        self.function = function
        self.breaks = np.sort(np.asarray(breaks, dtype=float).reshape(-1))
        if not np.all(np.isfinite(self.breaks)):
            raise BadInput("`breaks` must be finite numbers: the points where the link or its derivative jumps.")
        self.name = name
        nodes = whole("nodes", nodes, 4, "24 nodes per panel are usual")
        self(np.array([-1.0, 0.5, 2.0]))
        rules = []
        for count in (2 * nodes, nodes):
            self._nodes, self._weights = np.polynomial.legendre.leggauss(count)
            rules.append(np.array([float(self._mean(np.array([0.1]), np.ones(1), square)[0]) for square in (False, True)]))
        fine, coarse = rules
        if np.any(np.abs(fine - coarse) > 1e-8 * max(1e-12, float(fine[1]))):
            raise BadInput(
                f"the link {name!r} is not resolved: its first two Gaussian moments are {coarse[0]:.9g}, {coarse[1]:.9g} with "
                f"{nodes} nodes per panel and {fine[0]:.9g}, {fine[1]:.9g} with twice as many; name the points where it jumps or "
                "bends in `breaks`, and see that it has a second moment."
            )

    def __call__(self, x: Array) -> Array:
        """sigma(x), checked: same shape, finite."""
        try:
            value = np.asarray(self.function(x), dtype=float)
        except Exception as problem:
            raise BadInput(
                f"the link {self.name!r} failed on an array of shape {x.shape} ({type(problem).__name__}: {problem}); "
                "it must take and return NumPy arrays."
            ) from None
        if value.shape != x.shape:
            raise BadInput(
                f"the link {self.name!r} turned shape {x.shape} into {value.shape}; it must act elementwise on arrays."
            )
        if not np.all(np.isfinite(value)):
            raise BadInput(f"the link {self.name!r} is not finite on [{x.min():.3g}, {x.max():.3g}]; bound its growth.")
        return value

    def _rule(self, m: Array, s: Array, kinks: Array) -> tuple[Array, Array]:
        """Standard-normal nodes z and weights per row; ``kinks`` (rows, K) are break positions in z."""
        fixed = np.broadcast_to(np.array([-REACH, -3.0, 3.0, REACH]), (m.size, 4))
        edges = np.sort(np.concatenate([fixed, np.clip(kinks, -REACH, REACH)], axis=1), axis=1)
        half = np.diff(edges, axis=1) / 2
        z = (edges[:, :-1] + half)[:, :, None] + half[:, :, None] * self._nodes
        weights = half[:, :, None] * self._weights * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        return z.reshape(m.size, -1), weights.reshape(m.size, -1)

    def _kinks(self, m: Array, s: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.nan_to_num((self.breaks - m[:, None]) / s[:, None], nan=REACH)

    def _mean(self, m: Array, v: Array, square: bool) -> Array:
        s = np.sqrt(np.maximum(v, 0.0))
        z, weights = self._rule(m, s, self._kinks(m, s))
        value = self(m[:, None] + s[:, None] * z)
        return np.asarray(((value * value if square else value) * weights).sum(axis=1))

    def _moment(self, m: Array, v: Array, square: bool) -> OneMoment:
        shape = np.broadcast(m, v).shape
        mean, var = np.broadcast_to(m, shape).reshape(-1), np.broadcast_to(v, shape).reshape(-1)
        h = 0.1 * np.sqrt(np.maximum(var, 0.09))
        table = np.array([self._mean(mean + shift * h, var, square) for shift in SHIFTS])
        parts = (table[4], FIRST @ table / h, SECOND @ table / (2 * h * h))
        return OneMoment(*(part.reshape(shape) for part in parts))

    def first(self, m: Array, v: Array) -> OneMoment:
        """E sigma(a)."""
        return self._moment(np.asarray(m, float), np.asarray(v, float), False)

    def second(self, m: Array, v: Array) -> OneMoment:
        """E sigma(a)^2."""
        return self._moment(np.asarray(m, float), np.asarray(v, float), True)

    def _pair(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> Array:
        """E sigma(a) E[sigma(y) | a]: the inner average is a Gaussian one again."""
        sa = np.sqrt(np.maximum(va, 0.0))
        lean = np.divide(k, sa, out=np.zeros_like(k), where=sa > 0)  # cov(y, z) for a = ma + sa z
        rest = np.maximum(vy - lean * lean, 0.0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # where the conditional mean of y crosses a break the inner average bends, sharply if `rest` is small
            crossings = np.nan_to_num((self.breaks - my[:, None]) / lean[:, None], nan=REACH)
        z, weights = self._rule(ma, sa, np.concatenate([self._kinks(ma, sa), crossings], axis=1))
        inner_mean = (my[:, None] + lean[:, None] * z).reshape(-1)
        inner = self._mean(inner_mean, np.repeat(rest, z.shape[1]), False).reshape(z.shape)
        return np.asarray((weights * self(ma[:, None] + sa[:, None] * z) * inner).sum(axis=1))

    def product(self, ma: Array, va: Array, my: Array, vy: Array, k: Array) -> PairMoment:
        """E sigma(a) sigma(y) and its derivatives."""
        arrays = np.broadcast_arrays(*(np.asarray(x, float) for x in (ma, va, my, vy, k)))
        shape = arrays[0].shape
        ma, va, my, vy, k = (x.reshape(-1).astype(float) for x in arrays)
        ha, hy = 0.1 * np.sqrt(np.maximum(va, 0.09)), 0.1 * np.sqrt(np.maximum(vy, 0.09))
        along_a = np.array([self._pair(ma + shift * ha, va, my, vy, k) for shift in SHIFTS])
        along_y = np.array([self._pair(ma, va, my + shift * hy, vy, k) for shift in SHIFTS])
        # the mixed derivative is the difference of the second derivatives along the two diagonals
        cross = np.zeros_like(ma)
        for shift, weight in zip(SHIFTS, SECOND, strict=True):
            up = self._pair(ma + shift * ha, va, my + shift * hy, vy, k)
            down = self._pair(ma + shift * ha, va, my - shift * hy, vy, k)
            cross += weight * (up - down)
        parts = (
            along_a[4],
            FIRST @ along_a / ha,
            SECOND @ along_a / (2 * ha * ha),
            FIRST @ along_y / hy,
            SECOND @ along_y / (2 * hy * hy),
            cross / (4 * ha * hy),
        )
        return PairMoment(*(part.reshape(shape) for part in parts))
