"""sup |f - p| on an interval or a box, f analytic near it, proved from finitely many points: Ehlich and Zeller's theorem.

On a cell, e = f - p is interpolated by polynomials of degree m_k per axis.  With M_k >= |f| + |p| on (Bernstein ellipse of
parameter r in axis k) x (real cell), ||e - q|| <= E = sum_k Leb^{k-1} 4 M_k r^-m / (r - 1), and by Ehlich and Zeller (1964)
|q| <= prod_k C_k times its maximum over the tensor grid of Chebyshev points, C_k = 1/cos(pi m_k / (2 n_k)):

    sup |e| <= E + prod C_k (max over the points |e| + E).

Cells are halved where no ellipse serves, unless the pair f, p has a bound that needs none: next to the branch point of a root
the range of f says enough (heads/axis/cell_error.py).  Where f has kinks, enclosures of first order take over (enclosed.py).  A
head p is bounded on ellipses by max |c| S, or where its values are affine in z by a weighted sum (head_bounds.py).

On boxes of several axes a quick look comes first: where |e| is seen to stay below the error, fewer points per degree and a larger
remainder prove enough (`_effort`).  Heads are summed up in float64, and in extended precision where that is too coarse.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import balls
from maxaffine.core.arrays import Array
from maxaffine.core.boxes import depth_first
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import EXTENDED, FLOAT64

RADII = (1.2, 1.4, 1.7, 2.0, 2.2, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0)
OVERSAMPLING = {1: 10, 2: 6, 3: 4, 4: 4}
POINTS = {1: 4_000, 2: 60_000, 3: 4_000_000, 4: 8_000_000}  # of a cell, at most; larger cells are halved
ALL_POINTS = 15_000_000  # of a proof, some tens of seconds
MOST_CELLS = 400
DEEPEST = 120
SMALL = 20  # degrees that are not worth many pieces of an ellipse to be smaller
PI = np.longdouble("3.14159265358979323846264338327950288")
SHARE, LARGEST_SHARE = 0.004, 0.25  # of the error that the interpolation remainder may take
GLANCE = {2: 40, 3: 16, 4: 8}  # points per side of the quick look that says how densely a proof must look
CHEAP = {2: 100_000, 3: 600_000, 4: 600_000}  # points of a box up to which they are taken as densely as bounds gain by it
TOO_COARSE = 1e-3  # of the error: beyond, the rounding of float64 sums is no longer left in a bound


class TooManyPoints(Refused):
    """A proof beyond all patience; a larger head of the same kind would look at more points still."""


class NotEnclosed(Refused):
    """The target, or the head beside it, could not be bounded near the box."""


class _BeyondError(Refused):
    """With few points the bound is too large; more of them may show less."""


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
    def at_points(self, low: Array, high: Array, counts: tuple[int, ...], precise: bool) -> tuple[float, float]:
        """max |f - p| over so many Chebyshev points per side of a cell, and its uncertainty.

        Unless `precise`, sums are in float64, and the points may be off by `rounded_nodes` of the cell.
        """

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


@dataclass(frozen=True)
class Effort:
    """How densely a proof looks: points per degree (None: the pair's own), and the share of the error for remainders."""

    oversampling: int | None = None
    share: float = SHARE

    def counts(self, pair: Pair, degrees: tuple[int, ...]) -> tuple[int, ...]:
        """Chebyshev points per side."""
        return tuple(pair.nodes(m) if self.oversampling is None else max(self.oversampling * m, m + 1) for m in degrees)


def prove(
    pair: Pair, error: float, low: Array | None = None, high: Array | None = None, give_up: float = math.inf,
    most_cells: int = MOST_CELLS, most_points: int | None = None, enough: float | None = None,
) -> Proof:  # fmt: skip
    """The bound over the box low..high of z ([-1, 1]^E by default), aimed at `error`.

    A bound of at most `enough` is as good as a smaller one: then as few points are looked at as show it.
    Refused where the target cannot be enclosed near the box, or as soon as the bound is seen to exceed `give_up`.
    """
    E = pair.dimension
    low = -np.ones(E) if low is None else np.array(low, dtype=np.float64)
    high = np.ones(E) if high is None else np.array(high, dtype=np.float64)
    with balls.precision(64):
        effort, top = Effort() if enough is None else _effort(pair, enough, low, high, give_up, 0.0), 0.0
        while enough is not None and effort.oversampling is not None:
            try:
                proof = _prove(pair, enough, low, high, give_up, most_cells, most_points, effort)
            except _BeyondError:
                break
            if proof.bound <= enough or proof.seen > error:
                return proof
            if not proof.seen > top:
                break
            effort, top = _effort(pair, enough, low, high, give_up, proof.seen), proof.seen
        return _prove(pair, error, low, high, give_up, most_cells, most_points, Effort())


def _prove(
    pair: Pair, error: float, low: Array, high: Array, give_up: float, most_cells: int, most_points: int | None, effort: Effort
) -> Proof:
    limit, kind = (ALL_POINTS, TooManyPoints) if most_points is None else (most_points, Refused)
    bound, seen, uncertainty, cells, points, precise = 0.0, 0.0, 0.0, 0, 0, False

    def look(low: Array, high: Array, degrees: tuple[int, ...], remainder: float) -> tuple[float, float, float]:
        """The bound on a cell, what the points say and how unsure that is; in float64 where that is fine enough."""
        nonlocal precise
        counts = effort.counts(pair, degrees)
        while True:
            factor = _constants(pair, degrees, counts, low, high, precise)
            top, unsure = pair.at_points(low, high, counts, precise) if math.isfinite(factor) else (math.inf, math.inf)
            if precise or unsure <= TOO_COARSE * error:
                return remainder + factor * (top + unsure + remainder), top, unsure
            precise = True

    def visit(low: Array, high: Array, depth: int) -> int | None:
        nonlocal bound, seen, uncertainty, cells, points
        cells += 1
        top, plan = 0.0, _degrees(pair, low, high, effort, error)
        if isinstance(plan, int):
            axis, (here, good) = plan, pair.enclosed(low, high, error)
        else:
            axis, (degrees, remainder) = 0, plan
            if points > limit:
                raise kind(f"the proof would look at more than {limit:,} points; ask for a larger error.")
            here, top, unsure = look(low, high, degrees, remainder)
            good = pair.good(here, unsure, error)
            if good:
                seen, uncertainty = max(seen, top), max(uncertainty, unsure)
                points += math.prod(effort.counts(pair, degrees))
        if not good:
            if cells > most_cells:
                raise NotEnclosed(pair.unknown)
            if depth <= DEEPEST and low[axis] < low[axis] + (high[axis] - low[axis]) / 2.0 < high[axis]:
                return axis
            if not math.isfinite(here):
                raise NotEnclosed(pair.unknown)
        bound = max(bound, here)
        if not bound <= give_up:
            raise (Refused if effort.oversampling is None else _BeyondError)(f"the error is about {top:.3g} somewhere.")
        return None

    depth_first(low, high, visit)
    return Proof(bound * (1 + 1e-12), seen, uncertainty, cells, points)


def _effort(pair: Pair, error: float, low: Array, high: Array, give_up: float, seen: float) -> Effort:
    """The fewest points that are expected to prove the error, |f - p| seen to reach `seen`, or by a quick look where that is 0.

    With s points per degree C = cos(pi/2s)^-E, and E + C (top + E) <= error leaves (error - C top)/(1 + C) for the remainder E.
    """
    E, usual = pair.dimension, Effort()
    if E not in GLANCE:
        return usual
    first, last = low, high
    while isinstance(plan := _degrees(pair, first, last, usual, error), int):  # a cell that needs no halving
        last = np.where(np.arange(E) == plan, first + (last - first) / 2.0, last)
        if not np.all(last - first > 2.0**-9 * (high - low)):
            return usual
    fewest = math.prod(usual.counts(pair, plan[0]))
    if fewest <= CHEAP[E]:
        return usual
    top = seen or 1.1 * pair.at_points(low, high, (GLANCE[E],) * E, False)[0]
    if math.isfinite(top) and top > 1.1 * give_up:
        raise Refused(f"the error is about {top:.3g} somewhere.")
    found: list[tuple[int, float, Effort]] = []
    for s in range(2, OVERSAMPLING.get(E, 4) + 1):
        factor = math.cos(math.pi / (2.0 * s)) ** -E
        most = min(LARGEST_SHARE, (0.99 - factor * 1.01 * top / error) / (1.0 + factor))
        for share in (most, most / 4.0, most / 16.0) if most > SHARE else ():
            effort = Effort(s, share)
            if not isinstance(plan := _degrees(pair, first, last, effort, error), int):
                count = math.prod(effort.counts(pair, plan[0]))
                found.append((count, factor * top + (1.0 + factor) * share * error, effort))
    few = [one for one in found if one[0] <= CHEAP[E]]  # of these the one with the smallest bound, else the fewest points
    best = min(few, key=lambda one: one[1]) if few else min(found, default=(fewest, 0.0, usual), key=lambda one: one[0])
    return best[2] if best[0] < fewest else usual


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


def rounded_nodes(low: Array, high: Array) -> float:
    """How far Chebyshev points rounded to float64 are off, also where extended numbers are no longer than float64."""
    return (4.0 * FLOAT64.unit + 16.0 * EXTENDED) * max(1.0, float(np.abs(low).max()), float(np.abs(high).max()))


def _constants(
    pair: Pair, degrees: tuple[int, ...], counts: tuple[int, ...], low: Array, high: Array, precise: bool
) -> float:
    """prod C_k."""
    factor = math.prod(constant(m, n) for m, n in zip(degrees, counts, strict=True))
    return on_moved_nodes(factor, degrees, high - low, pair.moved_nodes + (0.0 if precise else rounded_nodes(low, high)))


def on_moved_nodes(factor: float, degrees: tuple[int, ...], sides: Array, slack: float) -> float:
    """The constant for nodes that are off by `slack`: by Markov |q'| <= m^2 max |q| / h, so that q moves by little."""
    moved = factor * sum(slack * m * m / (side / 2.0) for m, side in zip(degrees, sides, strict=True))
    return factor / (1.0 - moved) if moved < 0.5 else math.inf


def _degrees(pair: Pair, low: Array, high: Array, effort: Effort, error: float) -> tuple[tuple[int, ...], float] | int:
    """Degrees per axis whose remainders fit, and their total; or the axis to halve."""
    E, allowed = pair.dimension, effort.share * error
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
    if math.prod(effort.counts(pair, tuple(degrees))) > POINTS.get(E, 10_000_000):
        return int(np.argmax(degrees))
    return tuple(degrees), remainder * (1 + 1e-12)


def least_degree(
    size: Callable[[float, bool], float], allowed: float, most: int, radii: Sequence[float] = RADII
) -> tuple[int, float] | None:
    """The least degree m over all ellipses with 4 M r^-m / (r - 1) <= allowed, M = size(r, hard) >= |f| + |p| there, and that.

    `hard` says whether a bound is worth hard work: once a small degree serves, a larger ellipse hardly saves as much.
    """
    best: tuple[int, float] | None = None
    if not allowed > 0.0:  # a goal that underflows
        return None
    for r in radii:
        total = size(r, best is None or best[0] > SMALL)
        quotient = 4.0 * total / ((r - 1.0) * allowed)
        if not (math.isfinite(total) and math.isfinite(quotient)):
            break
        m = max(1, math.ceil(math.log(max(quotient, 1.0)) / math.log(r) * (1 + 1e-12)))
        if best is None or m < best[0]:
            best = m, 4.0 * total * r**-m / (r - 1.0) * (1 + 1e-12)
    return best if best is not None and best[0] <= most else None
