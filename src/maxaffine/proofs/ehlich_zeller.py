"""sup |f - g| for a spectral head g and an analytic f, proved from finitely many points.

On a cell, e = f - g is interpolated by polynomials of degree m_k per axis.  With M_k >= |f| + |g| on (Bernstein ellipse of
parameter r in axis k) x (real cell), ||e - p|| <= E = sum_k Leb^{k-1} 4 M_k r^-m / (r - 1), and by Ehlich and Zeller (1964)
|p| <= prod_k C_k times its maximum over the tensor grid of Chebyshev points, C_k = 1/cos(pi m_k / (2 n_k)):

    sup |e| <= E + prod C_k (max over the points |e| + E).

f is enclosed on ellipses by complex balls and at points by intervals; g is bounded on ellipses by max |c| S, or where its
values are affine in z by a weighted sum (head_bounds).  Cells are halved where no ellipse serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.expression.expression import Expression
from maxaffine.layer.keys import AxisKeys
from maxaffine.proofs.head_bounds import affine_size, axis_weights, strip_factor

Array = NDArray[np.float64]

RADII = (1.2, 1.4, 1.7, 2.0, 2.2, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0)
OVERSAMPLING = {1: 10, 2: 6, 3: 4, 4: 4}
POINTS = {1: 4_000, 2: 60_000, 3: 4_000_000, 4: 8_000_000}  # of a cell, at most; larger cells are halved
ALL_POINTS = 15_000_000  # of a proof, some tens of seconds
MOST_CELLS = 400
EXTENDED = float(np.finfo(np.longdouble).eps) / 2.0  # 80-bit numbers where the platform has them, else float64
PI = np.longdouble("3.14159265358979323846264338327950288")
SHARE = 0.004  # of the error that the interpolation remainder may take


class TooManyPoints(Refused):
    """A proof beyond all patience; a larger head of the same kind would look at more points still."""



class Source(Protocol):
    """The target in z of [-1, 1]^E: bounded on ellipses, enclosed at points."""

    def on_ellipse(self, low: Array, high: Array, k: int, r: float) -> float:
        """max |f| over (ellipse of parameter r about the cell's side k) x (the cell's other sides); infinite if not known."""

    def at(self, mesh: Array, slack: float) -> Interval:
        """Enclosures (M, K) of f on points z (M, E) widened by slack."""


@dataclass(frozen=True)
class FromExpression:
    """A target known by its expression in t = middle + half z."""

    expression: Expression
    middle: Interval  # (E,), thin
    half: Array  # (E,)

    def on_ellipse(self, low: Array, high: Array, k: int, r: float) -> float:
        """By complex balls, over the rectangle around the ellipse."""
        middle = [balls.interval(float(a), float(b)) for a, b in zip(self.middle.lo, self.middle.hi, strict=True)]
        half = [balls.interval(float(h), float(h)) for h in self.half]

        def size(zs: list[Any]) -> float:
            found = self.expression.enclose_ball([z * h + m for z, h, m in zip(zs, half, middle, strict=True)])
            return max(float(balls.magnitude(out)) if out.is_finite() else math.inf for out in found)

        return _covered(size, low, high, k, r)

    def at(self, mesh: Array, slack: float) -> Interval:
        """By intervals."""
        z = Interval(mesh - slack, mesh + slack)
        middle = Interval(np.broadcast_to(self.middle.lo, mesh.shape), np.broadcast_to(self.middle.hi, mesh.shape))
        return self.expression.enclose(z * Interval.point(self.half) + middle)


@dataclass(frozen=True)
class FromAffine:
    """A target known by its expression in x = offset + matrix z, for z of any box: a local head's own coordinates."""

    expression: Expression
    offset: Interval  # (D,), thin
    matrix: Interval  # (D, E), thin

    @classmethod
    def scaled(cls, expression: Expression, origin: Array, radius: Array) -> FromAffine:
        """x = origin + radius z, axis by axis."""
        return cls(expression, Interval.point(origin), Interval.point(np.diag(radius)))

    def on_ellipse(self, low: Array, high: Array, k: int, r: float) -> float:
        """By complex balls, over the image of the rectangle around the ellipse."""

        def size(zs: list[Any]) -> float:
            xs = []
            for i in range(len(self.offset.lo)):
                x = balls.interval(float(self.offset.lo[i]), float(self.offset.hi[i]))
                for e, z in enumerate(zs):
                    lo, hi = float(self.matrix.lo[i, e]), float(self.matrix.hi[i, e])
                    if lo or hi:
                        x = x + z * balls.interval(lo, hi)
                xs.append(x)
            found = self.expression.enclose_ball(xs)
            return max(float(balls.magnitude(out)) if out.is_finite() else math.inf for out in found)

        return _covered(size, low, high, k, r)

    def at(self, mesh: Array, slack: float) -> Interval:
        """By intervals."""
        shape = (len(mesh), len(self.offset.lo))
        x = Interval(np.broadcast_to(self.offset.lo, shape), np.broadcast_to(self.offset.hi, shape))
        for e in range(mesh.shape[1]):
            z = Interval(mesh[:, e : e + 1] - slack, mesh[:, e : e + 1] + slack)
            x = x + z * Interval(self.matrix.lo[:, e], self.matrix.hi[:, e])
        return self.expression.enclose(x)


@dataclass(frozen=True)
class FromDeclaration:
    """A callable with |f| <= bound on (ellipse of parameter radii[k] about side k of the box) x (the other sides), declared."""

    values: Callable[[Array], Array]  # z (M, E) -> (M, K), taken as exact
    radii: Array
    bound: float
    blur: float  # how far, in z, the point that the callable sees may be from the one asked for

    def on_ellipse(self, low: Array, high: Array, k: int, r: float) -> float:
        """The declared bound where the cell's ellipse lies in the declared one: |z-1| + |z+1| <= R + 1/R."""
        reach = (high[k] - low[k]) / 2.0
        inside = reach * (r + 1.0 / r) + 2.0 - 2.0 * reach <= (self.radii[k] + 1.0 / self.radii[k]) * (1 - 1e-12)
        return self.bound if inside else math.inf

    def at(self, mesh: Array, slack: float) -> Interval:
        """The callable's values, widened by its declared steepness along every axis: Cauchy's estimate near the box."""
        found = self.values(np.clip(mesh, -1.0, 1.0))
        steep = float(np.sum(2.0 * self.bound / ((self.radii + 1.0 / self.radii) / 2.0 - 1.0))) * (slack + self.blur)
        return Interval(found - steep, found + steep)


@dataclass(frozen=True)
class FromDerivatives:
    """A callable with |d^order f / dz_k^order| <= bounds[k] on the box, declared: it is interpolated with degree order - 1."""

    values: Callable[[Array], Array]  # z (M, E) -> (M, K), taken as exact
    order: int
    bounds: Array  # (E,), in units of z
    blur: float  # how far from a node its values may have been taken

    def on_ellipse(self, low: Array, high: Array, k: int, r: float) -> float:
        """Nothing is known off the real axis."""
        return math.inf

    def remainder(self, low: Array, high: Array, k: int) -> float:
        """B h^q / (2^(q-1) q!) for Chebyshev interpolation of degree q - 1 on a side of half width h."""
        reach = float(high[k] - low[k]) / 2.0 * (1 + 1e-12)
        return float(self.bounds[k]) * reach**self.order / (2.0 ** (self.order - 1) * math.factorial(self.order)) * (1 + 1e-12)

    def at(self, mesh: Array, slack: float) -> Interval:
        """The callable's values; the nodes' own rounding is left to Markov's inequality (`_constant`)."""
        found = self.values(np.clip(mesh, -1.0, 1.0))
        return Interval(found, found)


def _semi_axes(low: float, high: float, r: float) -> tuple[float, float]:
    """Half the width and height of the ellipse, with room for the rounding of the cell's centre and reach."""
    reach, room = (high - low) / 2.0, 2.0**-51 * max(abs(low), abs(high), 1.0)
    return reach * (r + 1.0 / r) / 2.0 * (1 + 1e-12) + room, reach * (r - 1.0 / r) / 2.0 * (1 + 1e-12) + room


PIECES, HALVINGS = 300, 5  # pieces of an ellipse looked at in all, and how often one of them is halved, per axis


def _covered(size: Callable[[list[Any]], float], low: Array, high: Array, k: int, r: float) -> float:
    """The largest `size` over the rectangle around the ellipse of side k and the cell's other sides.

    Where one rectangle says nothing the ellipse is covered by narrow ones, each as high as the ellipse is there, times parts of
    the other sides, halved where they still say nothing: finite results on pieces that touch carry one analytic function
    (expression/balls.py).  Looking at a piece is cheap beside looking at points.
    """
    long, short = _semi_axes(float(low[k]), float(high[k]), r)
    centre = float(low[k] + high[k]) / 2.0
    sides = [balls.rectangle(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    sides[k] = balls.rectangle(centre - long, centre + long, short)
    whole = size(sides)
    if math.isfinite(whole) or len(sides) == 1:
        return whole

    def piece(left: Array, right: Array) -> list[Any]:
        """The part of the ellipse between two shares of its length, and of every other side between two of its places."""
        found = [balls.rectangle(float(a), float(b)) for a, b in zip(left, right, strict=True)]
        nearest = 0.0 if left[k] <= 0.0 <= right[k] else min(abs(left[k]), abs(right[k]))
        tall = short * math.sqrt(max(0.0, 1.0 - nearest * nearest)) * (1 + 1e-12) + 2.0**-51
        found[k] = balls.rectangle(centre + long * float(left[k]) - 2.0**-51, centre + long * float(right[k]) + 2.0**-51, tall)
        return found

    first, last = low.copy(), high.copy()
    first[k], last[k] = -1.0, 1.0
    extent = last - first
    stack, worst, looked = [(first, last, 0)], 0.0, 0
    while stack:
        left, right, halved = stack.pop()
        found = size(piece(left, right))
        looked += 1
        if math.isfinite(found):
            worst = max(worst, found)
            continue
        if halved == HALVINGS * len(sides) or looked >= PIECES:
            return math.inf
        wide = int(((right - left) / extent * np.where(np.arange(len(sides)) == k, 2.0, 1.0)).argmax())
        middle = (left[wide] + right[wide]) / 2.0
        upper, lower = left.copy(), right.copy()
        upper[wide], lower[wide] = middle, middle
        stack += [(left, lower, halved + 1), (upper, right, halved + 1)]
    return worst


@dataclass(frozen=True)
class Head:
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


@dataclass(frozen=True)
class Proof:
    """sup |f - g| <= bound; of which the points say `seen`; over `cells` cells and `points` points."""

    bound: float
    seen: float
    doubt: float  # width of the enclosures of f at the points, and rounding of g there
    cells: int
    points: int


def prove(
    head: Head, error: float, low: Array | None = None, high: Array | None = None, give_up: float = math.inf,
    most_cells: int = MOST_CELLS, most_points: int | None = None,
) -> Proof:  # fmt: skip
    """The bound over the box low..high of z ([-1, 1]^E by default), aimed at `error`.

    Refused where the target cannot be enclosed near the box, or as soon as the bound is seen to exceed `give_up`.
    """
    largest = float(np.abs(head.values).max())
    first = -np.ones(head.dimension) if low is None else np.array(low, dtype=np.float64)
    stack = [(first, np.ones(head.dimension) if high is None else np.array(high, dtype=np.float64))]
    bound, seen, doubt, cells, points = 0.0, 0.0, 0.0, 0, 0
    with balls.precision(64):
        while stack:
            low, high = stack.pop()
            plan = _degrees(head, low, high, largest, SHARE * error)
            if isinstance(plan, int):
                cells += 1
                if cells > most_cells:
                    if isinstance(head.source, FromDerivatives):
                        raise Refused("the declared derivative is of too low an order, or its bound too large, for this error.")
                    raise Refused("the target's analytic continuation could not be enclosed near the box.")
                middle = (low[plan] + high[plan]) / 2.0
                right, left = low.copy(), high.copy()
                right[plan], left[plan] = middle, middle
                stack += [(low, left), (right, high)]
                continue
            degrees, remainder = plan
            if points > (ALL_POINTS if most_points is None else most_points):
                limit, kind = (ALL_POINTS, TooManyPoints) if most_points is None else (most_points, Refused)
                raise kind(f"the proof would look at more than {limit:,} points; ask for a larger error.")
            top, one, count = _at_points(head, low, high, degrees)
            factor = math.prod(_constant(m, _nodes(m, head.dimension)) for m in degrees)
            if isinstance(head.source, FromDerivatives):
                factor = _on_moved_nodes(factor, degrees, high - low, 4.0 * FLOAT64.unit + head.source.blur)
            bound = max(bound, remainder + factor * (top + one + remainder))
            if not bound <= give_up:
                raise Refused(f"the error is about {top:.3g} somewhere.")
            seen, doubt, points = max(seen, top), max(doubt, one), points + count
            cells += 1
    return Proof(bound * (1 + 1e-12), seen, doubt, cells, points)


def _nodes(degree: int, E: int) -> int:
    return max(OVERSAMPLING.get(E, 4) * degree, degree + 1)


def _constant(degree: int, nodes: int) -> float:
    return 1.0 / math.cos(math.pi * degree / (2.0 * nodes)) * (1 + 1e-14)


def _on_moved_nodes(factor: float, degrees: tuple[int, ...], sides: Array, slack: float) -> float:
    """The constant for nodes that are off by `slack`: by Markov |p'| <= m^2 max |p| / h, so that p moves by little."""
    moved = factor * sum(slack * m * m / (side / 2.0) for m, side in zip(degrees, sides, strict=True))
    return factor / (1.0 - moved) if moved < 0.5 else math.inf


def _degrees(head: Head, low: Array, high: Array, largest: float, allowed: float) -> tuple[tuple[int, ...], float] | int:
    """Degrees per axis whose remainders fit, and their total; or the axis to halve."""
    E = head.dimension
    degrees, remainder, lebesgue = [], 0.0, 1.0
    for k in range(E):
        found = _degree(head, low, high, k, largest, allowed / E / lebesgue)
        if found is None:  # along k, unless its other sides are what makes the cell too large
            sides = high - low
            return k if sides[k] >= 0.4 * sides.max() else int(sides.argmax())
        m, part = found
        degrees.append(m)
        remainder += lebesgue * part
        lebesgue *= 2.0 / math.pi * math.log(m + 1) + 1.0
    if math.prod(_nodes(m, E) for m in degrees) > POINTS.get(E, 10_000_000):
        return int(np.argmax(degrees))
    return tuple(degrees), remainder * (1 + 1e-12)


def _degree(head: Head, low: Array, high: Array, k: int, largest: float, allowed: float) -> tuple[int, float] | None:
    """The least degree over all ellipses of axis k."""
    if isinstance(head.source, FromDerivatives):
        return _fixed_degree(head, head.source, low, high, k, largest, allowed)
    centre = float(low[k] + high[k]) / 2.0
    best: tuple[int, float] | None = None
    for r in RADII:
        long, short = _semi_axes(float(low[k]), float(high[k]), r)
        strip = strip_factor(head.axes[k], head.deltas[k], centre, long, short)
        size = head.source.on_ellipse(low, high, k, r) if math.isfinite(strip) else math.inf
        largest = _real_size(head, low, high, k, long, largest)
        if not math.isfinite(size):
            break
        total = size + largest * strip
        if not math.isfinite(4.0 * total / ((r - 1.0) * allowed)):
            break
        # 4 M r^-m / (r - 1) <= allowed
        need = math.log(max(4.0 * total / ((r - 1.0) * allowed), 1.0)) / math.log(r)
        m = max(1, math.ceil(need * (1 + 1e-12)))
        if best is None or m < best[0]:
            best = m, 4.0 * total * r**-m / (r - 1.0) * (1 + 1e-12)
    return best if best is not None and best[0] <= (220 if head.dimension == 1 else 90) else None


def _real_size(head: Head, low: Array, high: Array, k: int, long: float, largest: float) -> float:
    """sum_j w_j(Re z) |v_j(z)| over the ellipse of side k and the cell's other sides; max |c| for constant values."""
    if head.slopes is None:
        return largest
    centre, reach = (low + high) / 2.0, (high - low) / 2.0 * (1 + 1e-12) + 2.0**-51 * np.maximum(np.abs(low), np.abs(high))
    reach[k] = long
    return affine_size(head.axes, head.values, head.slopes, centre, reach)


def _fixed_degree(
    head: Head, source: FromDerivatives, low: Array, high: Array, k: int, largest: float, allowed: float
) -> tuple[int, float] | None:
    """Degree order - 1, with the remainder of f from its derivative and that of g from the best ellipse; None to halve."""
    m = source.order - 1
    centre = float(low[k] + high[k]) / 2.0
    parts = []
    for r in RADII:
        long, short = _semi_axes(float(low[k]), float(high[k]), r)
        strip = strip_factor(head.axes[k], head.deltas[k], centre, long, short)
        if math.isfinite(strip):
            real = _real_size(head, low, high, k, long, largest)
            parts.append(4.0 * real * strip * r**-m / (r - 1.0) * (1 + 1e-12))
    total = source.remainder(low, high, k) + min(parts, default=math.inf)
    return (m, total) if total <= allowed else None


def _precise_weights(axis: AxisKeys, z: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    """Softmax weights of the stored keys in extended precision."""
    scores = np.multiply.outer(z, axis.slopes.astype(np.longdouble)) + axis.offsets.astype(np.longdouble)
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _at_points(head: Head, low: Array, high: Array, degrees: tuple[int, ...]) -> tuple[float, float, int]:
    """max |f - g| over the Chebyshev points of a cell, what is in doubt about it, and how many points there were."""
    E, K = head.dimension, head.values.shape[-1]
    scale = max(1.0, float(np.abs(low).max()), float(np.abs(high).max()))
    grids: list[NDArray[np.longdouble]] = []
    for e, m in enumerate(degrees):
        n = _nodes(m, E)
        angle = PI * (2 * np.arange(n, dtype=np.longdouble) + 1) / (2 * n)
        left, right = np.longdouble(low[e]), np.longdouble(high[e])
        grids.append((left + right) / 2 + (right - left) / 2 * np.cos(angle))
    blur = 0.0
    if isinstance(head.source, FromDerivatives):  # f and g are compared at the same rounded nodes
        grids = [grid.astype(np.float64).astype(np.longdouble) for grid in grids]
        blur = head.source.blur
    # values c and slopes G side by side: (N_1, .., N_E, K, 1 + E)
    out = head.values[..., None] if head.slopes is None else np.concatenate([head.values[..., None], head.slopes], axis=-1)
    out, absolute = out.astype(np.longdouble), np.abs(out)
    shaky = 0.0
    for e, axis in enumerate(head.axes):
        out = np.moveaxis(np.tensordot(_precise_weights(axis, grids[e]), out, axes=(1, e)), 0, e)
        absolute = np.moveaxis(np.tensordot(axis_weights(axis, grids[e].astype(np.float64)), absolute, axes=(1, e)), 0, e)
        # rounding of nodes, logits, exp and sums in the extended format
        spread, terms = float(np.ptp(axis.slopes)), 2 * len(axis) + 4
        logit = 4.0 * scale * (float(np.abs(axis.slopes).max()) + float(np.abs(axis.offsets).max())) + scale * spread + 30.0
        shaky += 2.0 * EXTENDED * logit + gamma(terms, EXTENDED) + 16.0 * EXTENDED * scale * spread
    shaky += blur * sum(float(np.ptp(axis.slopes)) for axis in head.axes)
    value, size, moved = out[..., 0], absolute[..., 0], np.zeros(1)
    for e in range(E) if head.slopes is not None else ():
        z = grids[e].reshape([-1 if i == e else 1 for i in range(E)] + [1])
        value = value + z * out[..., 1 + e]
        size = size + np.abs(z).astype(np.float64) * absolute[..., 1 + e]
        moved = moved + (blur + 16.0 * EXTENDED * scale) * absolute[..., 1 + e]  # the nodes' own rounding
    rough = size * ((shaky + gamma(2 * E + 2, EXTENDED)) * (1 + 1e-9) + FLOAT64.unit) + moved * (1 + 1e-9)
    value = value.astype(np.float64)
    top, doubt, count = 0.0, 0.0, 0
    first = max(1, 200_000 // max(1, math.prod(len(g) for g in grids[1:])))
    for start in range(0, len(grids[0]), first):
        block = [grids[0][start : start + first], *grids[1:]]
        mesh = np.stack([a.ravel() for a in np.meshgrid(*(b.astype(np.float64) for b in block), indexing="ij")], axis=1)
        # the exact Chebyshev points lie within that, also where extended numbers are no longer than float64
        f = head.source.at(mesh, (4.0 * FLOAT64.unit + 16.0 * EXTENDED) * scale)
        g = value[start : start + first].reshape(-1, K)
        loose = rough[start : start + first].reshape(-1, K)
        if not (np.isfinite(f.lo).all() and np.isfinite(f.hi).all() and np.isfinite(g).all() and np.isfinite(loose).all()):
            return math.inf, math.inf, 0
        width = f.hi - f.lo
        away = np.maximum(np.abs(f.hi - g), np.abs(g - f.lo))
        top = max(top, float((away - width).max()))
        doubt = max(doubt, float((width + loose).max()))
        count += len(mesh)
    return max(top, 0.0), doubt * (1 + 1e-12), count
