"""A function of one number by a table of polynomials on equal bins, all bins proved at once.

p_i(w), w in [-1/2, 1/2], stands for g(low + (i + 1/2 + w)/scale).  As in local_error.py, with M >= |g| + |p_i| on the ellipses of
parameter r around the bins, n Chebyshev points per bin and C = 1/cos(pi m / 2n),

    sup |g - p_i|  <=  E + C (max over the points |g - p_i| + E),      E = 4 M r^-m / (r - 1).

The computed place t = (a - low) scale is rounded: the answer is that for a number nearby, in whichever bin it lies.  So no point
next to an edge needs a word of its own.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.intervals import Interval
from maxaffine.core.rounding import FLOAT64, gamma
from maxaffine.expression.expression import Expression
from maxaffine.proofs.local_error import constant, on_moved_nodes

U = FLOAT64.unit
BINS = (1, 4, 16, 32, 64, 128, 256, 512, 1024)
DEGREES = {1: 15}  # of one polynomial; elsewhere
DEGREE = 6
RADII = (30.0, 16.0, 9.0, 6.0, 4.0, 2.8, 2.0)
PIECES = 64  # ellipses of neighbouring bins are enclosed together, in so many rectangles
CELLS = 512  # on which slopes are enclosed
POINTS = 60_000  # of a proof
PER_DEGREE = 4
REST = 1.0 / 32.0  # of what is allowed: the remainder's share


@dataclass(frozen=True)
class Table:
    """Numbers of the instruction: low, scale, bins, coefficients per bin from the highest degree down; and what is proved.

    `error` is what the answer for an exact argument is off by at most, |g'| <= slope and |g| <= size on the interval.
    """

    numbers: tuple[float, ...]
    error: float
    slope: float
    size: float


def slope_and_size(g: Expression, low: float, high: float) -> tuple[float, float]:
    """Upper bounds of |g'| and |g| on an interval; infinite where they are not known."""
    edges = np.linspace(low, high, CELLS + 1)
    edges[0], edges[-1] = low, high
    cells = Interval(edges[:-1, None], edges[1:, None])
    if not g.defined(cells).all():
        return math.inf, math.inf
    slopes = g.gradient()
    known = slopes.defined(cells).all()
    return float(slopes.enclose(cells).magnitude.max()) if known else math.inf, float(g.enclose(cells).magnitude.max())


def table(g: Expression, low: float, high: float, allowed: float) -> Table:
    """The cheapest table for g on [low, high] that is proved to `allowed`."""
    if not high > low:
        high = math.nextafter(low, math.inf)
    tried = []
    for bins in BINS:
        scale = math.nextafter(bins / (high - low), 0.0) * (1 - 4 * U)  # so that the bins reach as far as the interval
        if not math.isfinite(scale):
            raise Refused("an interval is too narrow for a table.")
        made = fitted(g, low, scale, bins, 0.7 * allowed)
        if made is not None:
            count = made.shape[1]
            cost = count if bins == 1 else 4.0 + 2.0 * count + (2.0 if made.size > 2_000 else 0.0)
            tried.append((cost, bins, scale, made))
    last = low + max((bins / scale for _, bins, scale, _ in tried), default=0.0) * (1 + 8 * U)
    slope, size = slope_and_size(g, low, math.nextafter(math.nextafter(last, math.inf), math.inf))
    if not math.isfinite(slope):
        raise Refused("a function is too steep for a table.")
    for _, bins, scale, made in sorted(tried, key=lambda one: one[0])[:4]:
        off = proved(g, low, scale, made, allowed)
        if off <= allowed:
            k = np.arange(made.shape[1])[::-1]
            summed = float((np.abs(made) * 0.5**k).sum(axis=1).max())
            moved = 2.5 * U * bins / scale  # the place is rounded twice
            error = (off + gamma(2 * made.shape[1] + 2, U) * summed + slope * moved) * (1 + 1e-9) + FLOAT64.tiny
            return Table((low, scale, float(bins), *made.ravel()), error, slope, size)
    raise Refused("no table of short polynomials is proved to be close enough.")


def fitted(g: Expression, low: float, scale: float, bins: int, allowed: float) -> Array | None:
    """Coefficients (bins, degree + 1) that are seen to be close enough, of the least degree; None where none are."""
    middles = low + (np.arange(bins) + 0.5) / scale
    looks = 0.5 * np.cos(np.pi * (np.arange(41) + 0.5) / 41)
    with np.errstate(all="ignore"):
        exact = g.evaluate((middles[:, None] + looks / scale).reshape(-1, 1)).reshape(bins, -1)
        for degree in range(1, DEGREES.get(bins, DEGREE) + 1):
            nodes = 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
            values = g.evaluate((middles[:, None] + nodes / scale).reshape(-1, 1)).reshape(bins, -1)
            made = np.linalg.solve(np.vander(nodes), values.T).T
            away = np.abs(made @ np.vander(looks, degree + 1).T - exact).max()
            if not np.isfinite(away):
                return None
            if away <= allowed:
                return np.ascontiguousarray(made)
    return None


def proved(g: Expression, low: float, scale: float, made: Array, allowed: float) -> float:
    """sup |g - p| over all bins; infinite where nothing is proved."""
    bins, count = made.shape
    powers = np.arange(count)[::-1]
    for r in RADII:
        long, short = (r + 1.0 / r) / 2.0 * (1 + 1e-12), (r - 1.0 / r) / 2.0 * (1 + 1e-12)
        own = float((np.abs(made) * (0.5 * long) ** powers).sum(axis=1).max()) * (1 + 1e-12)
        size = _on_ellipses(g, low, scale, bins, long, short) + own
        quotient = 4.0 * size / ((r - 1.0) * REST * allowed)
        if not (math.isfinite(quotient) and quotient > 0.0):
            continue
        m = max(count, math.ceil(math.log(max(quotient, 1.0)) / math.log(r) * (1 + 1e-12)))
        n = PER_DEGREE * m
        if bins * n > POINTS:
            continue
        rest = 4.0 * size * r**-m / (r - 1.0) * (1 + 1e-10)
        nodes = 0.5 * np.cos(np.pi * (np.arange(n) + 0.5) / n)
        factor = on_moved_nodes(constant(m, n), (m,), np.ones(1), 4.0 * U)
        return float((rest + factor * (_at(g, low, scale, made, nodes) + rest)) * (1 + 1e-10))
    return math.inf


def _at(g: Expression, low: float, scale: float, made: Array, nodes: Array) -> float:
    """max |g - p| over all bins and nodes, enclosed."""
    bins, count = made.shape
    places = Interval.point(np.arange(bins)[:, None] + 0.5) + Interval.point(nodes)
    points = Interval.point(low) + places / scale
    shape = points.shape
    flat = points.reshape(-1, 1)
    if not g.defined(flat).all():
        return math.inf
    exact = g.enclose(flat).reshape(*shape)
    table = np.vander(nodes, count)
    found = made @ table.T
    doubt = gamma(3 * count + 4, U) * (np.abs(made) @ np.abs(table).T)
    return float((np.maximum(np.abs(exact.hi - found), np.abs(found - exact.lo)) * (1 + 4 * U) + doubt).max())


def _on_ellipses(g: Expression, low: float, scale: float, bins: int, long: float, short: float) -> float:
    """A bound of |g| on all ellipses, by rectangles around those of neighbouring bins."""
    edges = np.unique(np.linspace(0, bins, min(bins, PIECES) + 1).astype(np.int64))
    half = 0.5 / scale
    parts = max(1, 16 // (len(edges) - 1))  # of a rectangle
    most = 0.0
    with balls.precision(64):
        for first, last in itertools.pairwise(edges):
            left = low + (first + 0.5) / scale - half * long * (1 + 1e-9)
            right = low + (last - 0.5) / scale + half * long * (1 + 1e-9)
            guard = 8 * U * (abs(left) + abs(right))
            cuts = np.linspace(left - guard, right + guard, parts + 1)
            for a, b in itertools.pairwise(cuts):
                ball = balls.rectangle(float(a), float(b), half * short * (1 + 1e-9))
                most = max(most, balls.magnitude(g.enclose_ball([ball])[0]))
                if not math.isfinite(most):
                    return math.inf
    return most
