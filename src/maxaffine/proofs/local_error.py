"""sup |f - p| on an interval or a box, f analytic near it, proved from finitely many points: Ehlich and Zeller's theorem.

On a cell, e = f - p is interpolated by polynomials of degree m_k per axis.  With M_k >= |f| + |p| on (Bernstein ellipse of
parameter r in axis k) x (real cell), ||e - q|| <= E = sum_k Leb^{k-1} 4 M_k r^-m / (r - 1), and by Ehlich and Zeller (1964)
|q| <= prod_k C_k times its maximum over the tensor grid of Chebyshev points, C_k = 1/cos(pi m_k / (2 n_k)):

    sup |e| <= E + prod C_k (max over the points |e| + E).

Cells are halved where no ellipse serves, unless the pair f, p has a bound that needs none: next to the branch point of a root
the range of f says enough (heads/axis/cell_error.py).  Where f has kinks, enclosures of first order take over (enclosed.py).  A
head p is bounded on ellipses by max |c| S, or where its values are affine in z by a weighted sum (head_bounds.py).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import depth_first, mesh
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import EXTENDED, FLOAT64, gamma
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import affine_size, axis_weights, strip_factor
from maxaffine.proofs.sources import FromDerivatives, Source, semi_axes

RADII = (1.2, 1.4, 1.7, 2.0, 2.2, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0)
OVERSAMPLING = {1: 10, 2: 6, 3: 4, 4: 4}
POINTS = {1: 4_000, 2: 60_000, 3: 4_000_000, 4: 8_000_000}  # of a cell, at most; larger cells are halved
ALL_POINTS = 15_000_000  # of a proof, some tens of seconds
MOST_CELLS = 400
DEEPEST = 120
PI = np.longdouble("3.14159265358979323846264338327950288")
SHARE = 0.004  # of the error that the interpolation remainder may take


class TooManyPoints(Refused):
    """A proof beyond all patience; a larger head of the same kind would look at more points still."""


class Pair(ABC):
    """f and p on boxes of E coordinates: what the theorem needs to know of them."""

    moved_nodes = 0.0  # how far the points may be from Chebyshev's
    unknown = "the target's analytic continuation could not be enclosed near the box."

    @property
    @abstractmethod
    def dimension(self) -> int:
        """E."""

    @abstractmethod
    def degree(self, low: Array, high: Array, k: int, allowed: float) -> tuple[int, float] | None:
        """A degree along axis k and its remainder, at most `allowed`; None where no ellipse serves."""

    @abstractmethod
    def at_points(self, low: Array, high: Array, degrees: tuple[int, ...]) -> tuple[float, float, int]:
        """max |f - p| over the Chebyshev points of a cell, its uncertainty, and how many points there were."""

    def nodes(self, degree: int) -> int:
        """How many Chebyshev points along a side stand for a degree."""
        return nodes(degree, self.dimension)

    def good(self, bound: float, uncertainty: float, error: float) -> bool:
        """Whether a bound by the theorem is taken; else it is tried on halves of the cell."""
        return True

    def enclosed(self, low: Array, high: Array, error: float) -> tuple[float, bool]:
        """A bound without ellipses, and whether it is taken."""
        return math.inf, False


@dataclass(frozen=True)
class Proof:
    """sup |f - p| <= bound; of which the points say `seen`; over `cells` cells and `points` points."""

    bound: float
    seen: float
    uncertainty: float  # width of the enclosures of f at the points, and rounding of p there
    cells: int
    points: int


def prove(
    pair: Pair, error: float, low: Array | None = None, high: Array | None = None, give_up: float = math.inf,
    most_cells: int = MOST_CELLS, most_points: int | None = None,
) -> Proof:  # fmt: skip
    """The bound over the box low..high of z ([-1, 1]^E by default), aimed at `error`.

    Refused where the target cannot be enclosed near the box, or as soon as the bound is seen to exceed `give_up`.
    """
    E = pair.dimension
    limit, kind = (ALL_POINTS, TooManyPoints) if most_points is None else (most_points, Refused)
    bound, seen, uncertainty, cells, points = 0.0, 0.0, 0.0, 0, 0

    def visit(low: Array, high: Array, depth: int) -> int | None:
        nonlocal bound, seen, uncertainty, cells, points
        cells += 1
        top, plan = 0.0, _degrees(pair, low, high, SHARE * error)
        if isinstance(plan, int):
            axis, (here, good) = plan, pair.enclosed(low, high, error)
        else:
            axis, (degrees, remainder) = 0, plan
            if points > limit:
                raise kind(f"the proof would look at more than {limit:,} points; ask for a larger error.")
            top, unsure, count = pair.at_points(low, high, degrees)
            here = remainder + _constants(pair, degrees, high - low) * (top + unsure + remainder)
            good = pair.good(here, unsure, error)
            if good:
                seen, uncertainty, points = max(seen, top), max(uncertainty, unsure), points + count
        if not good:
            if cells > most_cells:
                raise Refused(pair.unknown)
            if depth <= DEEPEST and low[axis] < low[axis] + (high[axis] - low[axis]) / 2.0 < high[axis]:
                return axis
            if not math.isfinite(here):
                raise Refused(pair.unknown)
        bound = max(bound, here)
        if not bound <= give_up:
            raise Refused(f"the error is about {top:.3g} somewhere.")
        return None

    with balls.precision(64):
        depth_first(
            -np.ones(E) if low is None else np.array(low, dtype=np.float64),
            np.ones(E) if high is None else np.array(high, dtype=np.float64), visit,
        )  # fmt: skip
    return Proof(bound * (1 + 1e-12), seen, uncertainty, cells, points)


def nodes(degree: int, E: int) -> int:
    """Chebyshev points along a side for a degree."""
    return max(OVERSAMPLING.get(E, 4) * degree, degree + 1)


def chebyshev(low: float, high: float, count: int) -> NDArray[np.longdouble]:
    """The Chebyshev points of an interval in extended precision, off by less than 8 units of it."""
    angle = PI * (2 * np.arange(count, dtype=np.longdouble) + 1) / (2 * count)
    left, right = np.longdouble(low), np.longdouble(high)
    return np.asarray((left + right) / 2 + (right - left) / 2 * np.cos(angle))


def constant(degree: int, count: int) -> float:
    """C = 1/cos(pi m / (2 n)): polynomials of degree m are at most C times as large as at n > m Chebyshev points."""
    return 1.0 / math.cos(math.pi * degree / (2.0 * count)) * (1 + 1e-14)


def _constants(pair: Pair, degrees: tuple[int, ...], sides: Array) -> float:
    """prod C_k."""
    factor = math.prod(constant(m, pair.nodes(m)) for m in degrees)
    return on_moved_nodes(factor, degrees, sides, pair.moved_nodes)


def on_moved_nodes(factor: float, degrees: tuple[int, ...], sides: Array, slack: float) -> float:
    """The constant for nodes that are off by `slack`: by Markov |q'| <= m^2 max |q| / h, so that q moves by little."""
    moved = factor * sum(slack * m * m / (side / 2.0) for m, side in zip(degrees, sides, strict=True))
    return factor / (1.0 - moved) if moved < 0.5 else math.inf


def _degrees(pair: Pair, low: Array, high: Array, allowed: float) -> tuple[tuple[int, ...], float] | int:
    """Degrees per axis whose remainders fit, and their total; or the axis to halve."""
    E = pair.dimension
    degrees, remainder, lebesgue = [], 0.0, 1.0
    for k in range(E):
        found = pair.degree(low, high, k, allowed / E / lebesgue)
        if found is None:  # along k, unless its other sides are what makes the cell too large
            sides = high - low
            return k if sides[k] >= 0.4 * sides.max() else int(sides.argmax())
        m, part = found
        degrees.append(m)
        remainder += lebesgue * part
        lebesgue *= 2.0 / math.pi * math.log(m + 1) + 1.0
    if math.prod(pair.nodes(m) for m in degrees) > POINTS.get(E, 10_000_000):
        return int(np.argmax(degrees))
    return tuple(degrees), remainder * (1 + 1e-12)


def least_degree(
    size: Callable[[float], float], allowed: float, most: int, radii: Sequence[float] = RADII
) -> tuple[int, float] | None:
    """The least degree m over all ellipses with 4 M r^-m / (r - 1) <= allowed, M = size(r) >= |f| + |p| there, and that."""
    best: tuple[int, float] | None = None
    for r in radii:
        total = size(r)
        quotient = 4.0 * total / ((r - 1.0) * allowed)
        if not (math.isfinite(total) and math.isfinite(quotient)):
            break
        m = max(1, math.ceil(math.log(max(quotient, 1.0)) / math.log(r) * (1 + 1e-12)))
        if best is None or m < best[0]:
            best = m, 4.0 * total * r**-m / (r - 1.0) * (1 + 1e-12)
    return best if best is not None and best[0] <= most else None


@dataclass(frozen=True)
class Head(Pair):
    """A product-key head in z and the target that it is compared with; its values are c, or c + G z."""

    source: Source
    axes: tuple[AxisKeys, ...]
    deltas: tuple[float | None, ...]  # of Bernstein axes
    values: Array  # (N_1, .., N_E, K) float64
    slopes: Array | None = None  # (N_1, .., N_E, K, E) float64

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

    def _size(self, low: Array, high: Array, k: int, r: float) -> float:
        """|f| + |p| on the ellipse of side k and the cell's other sides."""
        own = self._own(low, high, k, r)
        return self.source.on_ellipse(low, high, k, r) + own if math.isfinite(own) else math.inf

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

    def at_points(self, low: Array, high: Array, degrees: tuple[int, ...]) -> tuple[float, float, int]:
        """max |f - p| over the Chebyshev points of a cell, its uncertainty, and how many points there were."""
        E, K = self.dimension, self.values.shape[-1]
        scale = max(1.0, float(np.abs(low).max()), float(np.abs(high).max()))
        grids = [chebyshev(float(low[e]), float(high[e]), self.nodes(m)) for e, m in enumerate(degrees)]
        blur = 0.0
        if isinstance(self.source, FromDerivatives):  # f and g are compared at the same rounded nodes
            grids = [grid.astype(np.float64).astype(np.longdouble) for grid in grids]
            blur = self.source.blur
        # values c and slopes G side by side: (N_1, .., N_E, K, 1 + E)
        out = self.values[..., None] if self.slopes is None else np.concatenate([self.values[..., None], self.slopes], axis=-1)
        out, absolute = out.astype(np.longdouble), np.abs(out)
        shaky = 0.0
        for e, axis in enumerate(self.axes):
            out = np.moveaxis(np.tensordot(_precise_weights(axis, grids[e]), out, axes=(1, e)), 0, e)
            absolute = np.moveaxis(np.tensordot(axis_weights(axis, grids[e].astype(np.float64)), absolute, axes=(1, e)), 0, e)
            # rounding of nodes, logits, exp and sums in the extended format
            spread, terms = float(np.ptp(axis.slopes)), 2 * len(axis) + 4
            logit = 4.0 * scale * (float(np.abs(axis.slopes).max()) + float(np.abs(axis.offsets).max())) + scale * spread + 30.0
            shaky += 2.0 * EXTENDED * logit + gamma(terms, EXTENDED) + 16.0 * EXTENDED * scale * spread
        shaky += blur * sum(float(np.ptp(axis.slopes)) for axis in self.axes)
        value, size, moved = out[..., 0], absolute[..., 0], np.zeros(1)
        for e in range(E) if self.slopes is not None else ():
            z = grids[e].reshape([-1 if i == e else 1 for i in range(E)] + [1])
            value = value + z * out[..., 1 + e]
            size = size + np.abs(z).astype(np.float64) * absolute[..., 1 + e]
            moved = moved + (blur + 16.0 * EXTENDED * scale) * absolute[..., 1 + e]  # the nodes' own rounding
        rough = size * ((shaky + gamma(2 * E + 2, EXTENDED)) * (1 + 1e-9) + FLOAT64.unit) + moved * (1 + 1e-9)
        value = value.astype(np.float64)
        top, unsure, count = 0.0, 0.0, 0
        first = max(1, 200_000 // max(1, math.prod(len(g) for g in grids[1:])))
        for start in range(0, len(grids[0]), first):
            block = [grids[0][start : start + first], *grids[1:]]
            points = mesh([axis.astype(np.float64) for axis in block])
            # the exact Chebyshev points lie within that, also where extended numbers are no longer than float64
            f = self.source.at(points, (4.0 * FLOAT64.unit + 16.0 * EXTENDED) * scale)
            g = value[start : start + first].reshape(-1, K)
            loose = rough[start : start + first].reshape(-1, K)
            if not (np.isfinite(f.lo).all() and np.isfinite(f.hi).all() and np.isfinite(g).all() and np.isfinite(loose).all()):
                return math.inf, math.inf, 0
            width = f.hi - f.lo
            away = np.maximum(np.abs(f.hi - g), np.abs(g - f.lo))
            top = max(top, float((away - width).max()))
            unsure = max(unsure, float((width + loose).max()))
            count += len(points)
        return max(top, 0.0), unsure * (1 + 1e-12), count


def _precise_weights(axis: AxisKeys, z: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    """Softmax weights of the stored keys in extended precision."""
    scores = np.multiply.outer(z, axis.slopes.astype(np.longdouble)) + axis.offsets.astype(np.longdouble)
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
