"""Clusters along one coordinate: cells as long as a few tokens allow, and sites that switch between them.

    S_k(z) = A_k z + b_k + L_k(t),   L_k the log-sum-exp of the cell's own keys;    D_k = S_{k+1} - S_k is 0 at the hand-over

Between two breaks the farthest point that T tokens reach is r(T) = max_p (r(T - p) + longest cell of p tokens from there), so
that cells are as many and as long as the fewest tokens need; singular ends and poles grade them by themselves.  Heads are
fitted a little beyond their cells (OVERLAP), and a switch is as sharp as that leaves room for, sharper at kinks (a kink costs
.28 J / sharpness for a jump J of the slope) and at jumps (the gap).  Slopes of sites add up from a cell chosen such that logits
stay small where they count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import check
from maxaffine.core.rounding import numpy_dtype
from maxaffine.heads.axis.fit import MOST_LOCAL, POINTS, Curve, Library, LocalFit
from maxaffine.heads.fitting import as_stored
from maxaffine.layer.keys import AxisKeys
from maxaffine.layer.spectral_keys import weights

OVERLAP = 0.05  # of a cell's width, on either side, where its head is fitted beyond the cell
WIDEST = 0.3  # of a cell so short that its switches would be lost to the rounding of z
SWITCH = 2.0**13 * 2.0**-53  # of |z|: what a switch of some thirty logits needs for scores that are right to a percent or two
KINK = 0.2785  # W0(1/e): the largest y / (1 + e^y)
REST = 0.3  # of the cell before it: a last cell shorter than that is a rest
DEEPEST = 90  # halvings of a segment that a cell may be short by
HALVINGS = 4  # of a cell, in dtypes that round much
DEEPEST_CUT = 3  # cuts of a segment where it bends most
PACE = 64  # tokens from whose reach the end is foreseen
INSIDE = 8192  # points of a segment at which its cells are looked at

Extent = tuple[int, float, float]  # a cell: its tokens, low and high
Handover = tuple[float, float]  # where a cell hands over to the next, and the sharpness D_k' wanted there


@dataclass(frozen=True)
class Segment:
    """A smooth branch on [low, high]; how heads may look beyond its ends: "open" (by OVERLAP) or "shut"."""

    low: float
    high: float
    f: Curve
    left: str
    right: str

    def values(self, z: Array) -> Array:
        """f at places that are not beyond a shut end."""
        if self.left != "open":
            z = np.maximum(z, self.low)
        if self.right != "open":
            z = np.minimum(z, self.high)
        with np.errstate(all="ignore"):
            return self.f(z)


@dataclass(frozen=True)
class Cell:
    """A cell [low, high], the interval [first, last] its head is fitted on, and the head in t = (z - origin)/radius."""

    low: float
    high: float
    first: float
    last: float
    fit: LocalFit

    @property
    def origin(self) -> float:
        """Centre of the fitted interval."""
        return (self.first + self.last) / 2.0

    @property
    def radius(self) -> float:
        """Half its width."""
        return (self.last - self.first) / 2.0

    @property
    def room(self) -> tuple[float, float]:
        """How far the fit reaches beyond the cell, left and right."""
        return self.low - self.first, self.last - self.high

    def score(self, z: float) -> tuple[float, float]:
        """L(t) and its slope in z."""
        t = (z - self.origin) / self.radius
        logits = self.fit.keys.slopes * t + self.fit.keys.offsets
        top = float(logits.max())
        w = np.exp(logits - top)
        return top + math.log(float(w.sum())), float(w @ self.fit.keys.slopes / w.sum()) / self.radius


def cut(segment: Segment, library: Library, goal: float, most: int, slack: float = 1.0) -> list[Extent] | None:
    """Cells of a segment with the fewest tokens, at most `most`; None where that does not do.

    Cells are accepted up to `slack` times the goal by least squares; `carry_out` polishes them.
    """
    reach, paths = [segment.low], [list[Extent]()]  # the farthest point for so many tokens, and the cells on the way to it
    extents: list[Array] = []
    for T in range(1, most + 1):
        a = reach[-1]
        if T > MOST_LOCAL + 1 and a <= reach[-MOST_LOCAL - 2]:
            return None  # no cell is longer than nothing here, whatever its tokens
        if T > 1 and a <= reach[-2] and a > segment.low:
            extents.append(extents[-1])
        else:
            extents.append(_extents(segment, a, library, goal * slack, extents[-1] if extents else None))
        best, tokens = a, 0
        for p in range(1, min(MOST_LOCAL, T) + 1):
            there = reach[T - p] + extents[T - p][p - 1]
            if extents[T - p][p - 1] > 0 and there > best:
                best, tokens = there, p
        if _hopeless(reach, segment.high, most):
            return None
        done = best >= segment.high - 1e-14 * (segment.high - segment.low)
        reach.append(segment.high if done else best)
        paths.append([*paths[T - tokens], (tokens, reach[T - tokens], reach[T])] if tokens else paths[-1])
        if done:
            return _evened(paths[-1], segment, library, goal * slack)
    return None


def _hopeless(reach: list[float], high: float, most: int) -> bool:
    """Whether `most` tokens will not do at the pace of the last ones, which does not grow; looked at from time to time."""
    T = len(reach) - 1
    if T < PACE or T % (PACE // 4):
        return False
    half = PACE // 2
    pace, before = (reach[-1] - reach[-1 - half]) / half, (reach[-1 - half] - reach[-1 - 2 * half]) / half
    return pace <= 1.1 * before and high - reach[-1] > 4.0 * pace * (most - T)


def _evened(cells: list[Extent], segment: Segment, library: Library, goal: float) -> list[Extent]:
    """The last cell made wider at the expense of the one before it, where it is but a rest: short cells need steep sites."""
    if len(cells) < 2:
        return cells
    (p, before, a), (q, _, high) = cells[-2:]
    if high - a > REST * (a - before):
        return cells
    widths = np.geomspace(high - a, (high - before) / 2.0, 24)[1:]
    cuts = high - widths
    good = library.errors(q, _samples(segment, cuts, np.full(len(cuts), high))) <= goal
    good &= library.errors(p, _samples(segment, np.full(len(cuts), before), cuts)) <= goal
    places = np.flatnonzero(good & (cuts < a) & (cuts > before))
    if not len(places):
        return cells
    cut_at = float(cuts[places[-1]])
    return [*cells[:-2], (p, before, cut_at), (q, cut_at, high)]


def fitted(segment: Segment, low: Array, high: Array) -> tuple[Array, Array]:
    """The intervals on which heads of the cells [low, high] are fitted."""
    width = high - low
    room = np.clip(SWITCH * np.maximum(np.abs(low), np.abs(high)), OVERLAP * width, WIDEST * width)
    left = np.where((low > segment.low) | (segment.left == "open"), room, 0.0)
    right = np.where((high < segment.high) | (segment.right == "open"), room, 0.0)
    return low - left, high + right


def _samples(segment: Segment, low: Array, high: Array) -> Array:
    high = np.where(high >= segment.high - 1e-13 * (segment.high - low), segment.high, high)  # sums are rounded
    first, last = fitted(segment, low, high)
    return segment.values((first + last) / 2.0 + np.multiply.outer(POINTS, (last - first) / 2.0))


def _extents(segment: Segment, a: float, library: Library, goal: float, before: Array | None) -> Array:
    """The longest cells (MOST_LOCAL,) from `a` for 1, 2, .. tokens; 0 where even the shortest fails."""
    check()
    rest = segment.high - a
    found = np.zeros(MOST_LOCAL)
    start = 0
    if before is not None and before[-1] > 0:
        start = max(0, math.floor(math.log2(rest / before[-1])) - 2) if rest > before[-1] else 0
    passing: dict[int, float] = {}
    k = start
    while len(passing) < MOST_LOCAL and k < DEEPEST:
        widths = rest * 2.0 ** -np.arange(k, k + 6)
        samples = _samples(segment, np.full(6, a), np.minimum(a + widths, segment.high))
        for p in range(1, MOST_LOCAL + 1):
            if p in passing:
                continue
            good = np.flatnonzero(library.errors(p, samples) <= goal)
            if len(good):
                passing[p] = float(widths[good[0]])
        k += 6
        if not passing and k >= start + 12 and start > 0:
            start, k = 0, 0
        if len(passing) >= MOST_LOCAL - 1 and k > start + 12:
            break
    if not passing:
        return found
    tokens = np.array(sorted(passing))
    low = np.array([passing[p] for p in tokens])
    high = np.minimum(2.0 * low, rest)
    for _ in range(3):
        inner = low[:, None] + (high - low)[:, None] * np.array([0.25, 0.5, 0.75])
        ends = np.minimum(a + inner, segment.high)
        samples = _samples(segment, np.full(ends.size, a), ends.ravel()).reshape(len(POINTS), len(tokens), 3)
        for i, p in enumerate(tokens):
            if low[i] < rest:
                fits = library.errors(int(p), samples[:, i]) <= goal
                number = 3 if fits.all() else int(np.argmin(fits))
                low[i], high[i] = (inner[i, number - 1] if number else low[i]), (inner[i, number] if number < 3 else high[i])
    found[tokens - 1] = np.minimum(low, rest)
    return np.asarray(np.maximum.accumulate(found))


def carry_out(segment: Segment, cells: list[Extent], library: Library, goal: float) -> list[Cell] | None:
    """The cells with their heads polished; None where one misses the goal."""
    made = []
    for p, low, high in cells:
        first, last = (float(v) for v in fitted(segment, np.asarray(low), np.asarray(high)))
        fit = library.polish(segment.values, (first + last) / 2.0, (last - first) / 2.0, p, goal)
        if not fit.error <= goal:
            return None
        made.append(Cell(low, high, first, last, fit))
    return made


def _halved(segment: Segment, cells: list[Extent], library: Library, goal: float, deep: int = HALVINGS) -> list[Cell] | None:
    """Cells halved until few tokens do, where the rounding of values that cancel exceeds the goal; shorter cells cancel less."""
    made: list[Cell] = []
    for p, low, high in cells:
        whole = (carry_out(segment, [(q, low, high)], library, goal) for q in range(1, p + 1))
        found = next((one for one in whole if one is not None), None)
        if found is None and deep > 0:
            middle = (low + high) / 2.0
            found = _halved(segment, [(p, low, middle), (p, middle, high)], library, goal, deep - 1)
        if found is None:
            return None
        made += found
    return made


def plan_segment(segment: Segment, library: Library, goal: float, most: int, deep: int = 0) -> list[Cell] | None:
    """The fewest tokens for a segment: cells by least squares with some slack, which polishing has to make up for.

    A feature between the points of a long cell is seen on many points alone; then the segment is cut where it bends most.
    """
    best: list[Cell] | None = None
    first: list[Extent] | None = None
    for slack in (1.0, 1.35, 1.8):
        limit = most if best is None else sum(len(c.fit.keys) for c in best) - 1
        cells = cut(segment, library, goal, limit, slack) if limit > 0 else None
        first = first or cells
        made = None if cells is None else carry_out(segment, cells, library, goal)
        if made is None:
            break
        best = made
    rounded = best is None and first is not None
    for slack in (0.7, 0.4, 0.2) if rounded else ():  # where rounding takes its share, heads must fit better
        cells = cut(segment, library, goal, most, slack)
        best = None if cells is None else carry_out(segment, cells, library, goal)
        if best is not None or cells is None:
            break
    if best is None and first is not None and library.dtype != "float64":
        best = _halved(segment, first, library, goal)
    overlooked = best is not None and deep < DEEPEST_CUT and _overlooked(segment, best, goal)
    if (best is not None and not overlooked) or first is None or deep >= DEEPEST_CUT:
        return best
    at = _bend(segment)
    if at is None:
        return None
    left = plan_segment(Segment(segment.low, at, segment.f, segment.left, "open"), library, goal, most, deep + 1)
    if left is None:
        return None
    rest = most - sum(len(c.fit.keys) for c in left)
    right = plan_segment(Segment(at, segment.high, segment.f, "open", segment.right), library, goal, rest, deep + 1)
    return None if right is None else [*left, *right]


def _overlooked(segment: Segment, cells: list[Cell], goal: float) -> bool:
    """Whether some head misses the function by far between the points it was made from."""
    z = np.linspace(segment.low, segment.high, INSIDE + 1)[1:-1]
    with np.errstate(all="ignore"):
        exact = segment.f(z)
    for cell in cells:
        inside = (z >= cell.low) & (z <= cell.high)
        t = (z[inside] - cell.origin) / cell.radius
        w = weights(cell.fit.keys, t)
        away = np.abs((w * (cell.fit.values + np.multiply.outer(t, cell.fit.slopes))).sum(axis=1) - exact[inside])
        if np.max(away, initial=0.0, where=np.isfinite(away)) > 2.0 * goal:
            return True
    return False


def _bend(segment: Segment) -> float | None:
    """Where the function bends most, on many points inside; None where it is not finite or a straight line."""
    z = np.linspace(segment.low, segment.high, INSIDE + 1)
    with np.errstate(all="ignore"):
        bends = np.abs(np.diff(segment.f(z[1:-1]), 2))
    if not np.isfinite(bends).all() or not bends.max() > 0:
        return None
    return float(z[2 + int(bends.argmax())])


def sharpness(left: Cell, right: Cell, lead: float, kink: float, gap: float) -> float:
    """Sharpness of a switch: `lead` (the logit gap wanted where a fit ends), a kink's own wish, and a jump's gap."""
    room = min(left.room[1], right.room[0])
    wanted = 1.1 * lead / (gap if gap > 0 else room if room > 0 else 0.02 * min(left.radius, right.radius))
    # The slopes inside both clusters must not reach across: keys stay sorted.
    inside = sum(float(np.ptp(c.fit.keys.slopes)) / c.radius for c in (left, right))
    return max(kink, wanted, 1.5 * inside, 1e-3)


def place_sites(cells: list[Cell], handovers: list[Handover], dtype: str) -> AxisKeys:
    """A_k and b_k of sites with these hand-overs, as stored; slopes add up from where that keeps logits smallest."""
    C = len(cells)
    steps = np.zeros(C)
    for k, (left, right) in enumerate(pairwise(cells)):
        at, sharp = handovers[k]
        steps[k + 1] = sharp + left.score(at)[1] - right.score(at)[1]
    best: tuple[float, AxisKeys] | None = None
    for zero in {0, C - 1, *np.linspace(0, C - 1, min(C, 40)).astype(int), int(np.argmax([c.radius for c in cells]))}:
        # Added up from the cell itself: next to a singular end steps are so large that others would drown in a common sum.
        slopes = np.concatenate([-np.cumsum(steps[zero:0:-1])[::-1], [0.0], np.cumsum(steps[zero + 1 :])])
        sites = _offsets(cells, handovers, slopes, int(zero), dtype)
        size = np.abs(sites.slopes) * np.array([max(abs(c.first), abs(c.last)) for c in cells]) + np.abs(sites.offsets)
        if best is None or float(size.max()) < best[0]:
            best = float(size.max()), sites
    assert best is not None
    return best[1]


def _offsets(cells: list[Cell], handovers: list[Handover], slopes: Array, zero: int, dtype: str) -> AxisKeys:
    """Offsets one after the other from the cell `zero`, from what is stored: rounding does not add up."""
    stored = numpy_dtype(dtype)
    A = as_stored(slopes, dtype)
    b = np.zeros(len(cells))
    for k in range(zero, len(cells) - 1):
        at = handovers[k][0]
        b[k + 1] = float(stored.type(b[k] + (A[k] - A[k + 1]) * at + cells[k].score(at)[0] - cells[k + 1].score(at)[0]))
    for k in range(zero - 1, -1, -1):
        at = handovers[k][0]
        b[k] = float(stored.type(b[k + 1] + (A[k + 1] - A[k]) * at + cells[k + 1].score(at)[0] - cells[k].score(at)[0]))
    return AxisKeys(A, b)
