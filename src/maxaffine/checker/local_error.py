"""sup |f - g| over a box by Ehlich and Zeller: Chebyshev points and ellipses, cells cut in three until an ellipse serves.

On a cell, along side k, f - g is analytic inside an ellipse of parameter r where it is at most M: its Chebyshev series is cut off
at degree m with a remainder of 4 M r^-m / (r - 1).  A polynomial of degree m is at most 1/cos(pi m/2n) times its maximum over n
Chebyshev points, side by side; interpolation along a side multiplies the remainders of later sides by at most
1 + (2/pi) log(m + 1).  What f and g are is asked of a `Pair`.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maxaffine.checker.boxes import thirds
from maxaffine.checker.proved import DOUBLE, NotProved
from maxaffine.checker.reader import Axis
from maxaffine.core import balls
from maxaffine.core.arrays import Array

Extended = NDArray[np.longdouble]
Rectangle = tuple[float, float, float]  # [a, b] x [-height, height] of the complex plane

LONG = float(np.finfo(np.longdouble).eps)
PI = np.longdouble("3.14159265358979323846264338327950288")
CELLS = 600
ALL_POINTS = 40_000_000
COVER = 500  # pieces of an ellipse
SAVES = 0.8  # of the degree so far: what a larger ellipse must promise before pieces are spent on it
ENOUGH = 24  # degrees that are small enough
RADII = (1.15, 1.3, 1.6, 2.2, 3.3, 4.5, 6.0, 9.0, 13.0, 18.0)
DENSE = {1: 8, 2: 6, 3: 4, 4: 4}  # points per degree
LIMITS = {1: 5_000, 2: 90_000, 3: 5_000_000, 4: 12_000_000}  # points of a cell
SHARE = 0.001  # of the error, for the remainders


class Pair(Protocol):
    """A target f and a head g over boxes of E coordinates."""

    def target_size(self, row: list[Rectangle]) -> float:
        """sup |f| over a product of complex rectangles; infinite where nothing is known."""

    def head_size(self, low: Array, high: Array, k: int, centre: float, wide: float, tall: float) -> float:
        """sup |g| on an ellipse of coordinate k with these semi-axes, the others in the cell."""

    def seen(self, low: Array, high: Array, grids: list[Extended]) -> tuple[float, float]:
        """max |f - g| over a product of points of a cell, every uncertainty added, and how large those are."""

    def crude(self, low: Array, high: Array) -> tuple[float, float] | None:
        """An upper bound of sup |f - g| over a cell by its range alone and what is surely reached there, or None."""


def local_error(pair: Pair, low: Array, high: Array, goal: float, cells: int = CELLS) -> float:
    """sup |f - g| over a box; cells where no ellipse serves are cut in three, or taken as they are where that does."""
    E, waiting = len(low), [(low, high)]
    worst, used, points = 0.0, 0, 0
    with balls.precision(72):
        while waiting:
            low, high = waiting.pop()
            used += 1
            if used > cells:
                raise NotProved("the target could not be enclosed on complex neighbourhoods of the box.")
            chosen = [_degree(pair, low, high, k, SHARE * goal / E / 2.5**k) for k in range(E)]
            missing = [k for k, pair_of in enumerate(chosen) if pair_of is None]
            degrees = [found for found in chosen if found is not None]
            count = math.prod(DENSE[E] * m for m, _ in degrees)
            here, doubt = math.inf, math.inf
            if not missing and count <= LIMITS[E]:
                points += count
                if points > ALL_POINTS:
                    raise NotProved(f"a proof would look at more than {ALL_POINTS:,} points.")
                here, doubt = _on_cell(pair, low, high, degrees)
                settled = here <= goal or doubt < 0.02 * goal
            else:
                crude = pair.crude(low, high) if missing else None
                here, least = crude or (math.inf, 0.0)
                settled = here <= 0.5 * goal or here <= least + 0.025 * goal
            if settled and math.isfinite(here):
                worst = max(worst, here)
                continue
            k = missing[0] if missing else int(np.argmax([m for m, _ in degrees]))
            if high[k] - low[k] < 0.3 * float((high - low).max()):  # its other sides make the cell too large
                k = int((high - low).argmax())
            lows, highs, _ = thirds(low[None], high[None], np.array([k]))
            if not np.all(lows[:, k] < highs[:, k]):
                if not math.isfinite(here):
                    raise NotProved("the target could not be enclosed at points of the box.")
                worst = max(worst, here)  # next to a root neighbouring numbers are far apart: a bound all the same
                continue
            waiting += list(zip(lows, highs, strict=True))
    return worst * (1 + 1e-12)


def _on_cell(pair: Pair, low: Array, high: Array, degrees: list[tuple[int, float]]) -> tuple[float, float]:
    """The bound on one cell, and how uncertain the values at its points are."""
    E, remainder, growth, factor = len(low), 0.0, 1.0, 1 + 1e-13
    grids = []
    for (m, rest), a, b in zip(degrees, low, high, strict=True):
        n = DENSE[E] * m
        remainder += growth * rest
        growth *= 1.0 + 2.0 / math.pi * math.log(m + 1.0)
        factor /= math.cos(math.pi * m / (2.0 * n))
        angles = PI * (2 * np.arange(n, dtype=np.longdouble) + 1) / (2 * n)
        left, right = np.longdouble(a), np.longdouble(b)
        grids.append((left + right) / 2 + (right - left) / 2 * np.cos(angles))
    seen, doubt = pair.seen(low, high, grids)
    return (remainder + factor * (seen + remainder)) * (1 + 1e-12), doubt


def around_nodes(grid: Array, low: float, high: float) -> tuple[Array, Array]:
    """Bounds of the true Chebyshev points of a cell, from those computed in extended precision and rounded to float64."""
    slack = 4.0 * DOUBLE * np.abs(grid) + 16.0 * LONG * (abs(low) + abs(high))  # also where long doubles are doubles
    return np.clip(grid - slack, low, high), np.clip(grid + slack, low, high)


def _degree(pair: Pair, low: Array, high: Array, k: int, allowed: float) -> tuple[int, float] | None:
    """The least degree along side k whose remainder is at most `allowed`, and the remainder; None where there is none."""
    a, b = float(low[k]), float(high[k])
    centre, reach = (a + b) / 2.0, (b - a) / 2.0
    slack = 2.0**-51 * (abs(a) + abs(b))  # the rounding of centre and reach
    best: tuple[int, float] | None = None
    if not allowed > 0.0:  # a goal that underflows
        return None
    last = 0.0
    for r in RADII:
        wide, tall = (reach * (r + s / r) / 2.0 * (1 + 1e-11) + slack for s in (1.0, -1.0))
        head = pair.head_size(low, high, k, centre, wide, tall)
        pieces = COVER if best is None or (best[0] > ENOUGH and _at_most(last, r, allowed) <= SAVES * best[0]) else 0
        size = head + _around(pair, low, high, k, centre, wide, tall, pieces) if math.isfinite(head) else math.inf
        if not math.isfinite(4.0 * size / ((r - 1.0) * allowed)):
            break
        degree, last = max(1, math.ceil(_at_most(size, r, allowed) + 1e-9)), size
        if best is None or degree < best[0]:
            best = degree, 4.0 * size * r ** (-degree) / (r - 1.0) * (1 + 1e-11)
    return best if best is not None and best[0] <= (250 if len(low) == 1 else 80) else None


def _at_most(size: float, r: float, allowed: float) -> float:
    """m with 4 size r^-m / (r - 1) = allowed, or 0; pieces are spent on an ellipse where f as on the last makes that small."""
    return math.log(max(4.0 * size / ((r - 1.0) * allowed), 1.0)) / math.log(r)


def _around(pair: Pair, low: Array, high: Array, k: int, centre: float, wide: float, tall: float, most: int) -> float:
    """max |f| over the rectangle around an ellipse of side k; where that says nothing, over pieces that cover the ellipse.

    A piece is a share a..b of the ellipse's length, as high as the ellipse is above the end that lies nearer to its centre,
    times parts of the other sides.  Pieces that say nothing are cut in three, all of one generation before the next; there are
    at most `most` of them.
    """
    whole = [(float(a), float(b), 0.0) for a, b in zip(low, high, strict=True)]
    whole[k] = (centre - wide, centre + wide, tall)
    found = pair.target_size(whole)
    if math.isfinite(found) or len(whole) == 1 or not most:
        return found
    start_low, start_high = low.astype(np.float64), high.astype(np.float64)
    start_low[k], start_high[k] = -1.0, 1.0
    lengths, slack = start_high - start_low, 2.0**-51 * (abs(centre) + wide)
    lows, highs = start_low[None], start_high[None]
    worst, used = 0.0, 0
    while len(lows):
        sizes = []
        for piece_low, piece_high in zip(lows, highs, strict=True):
            row = [(float(a), float(b), 0.0) for a, b in zip(piece_low, piece_high, strict=True)]
            a, b, _ = row[k]
            inner = 0.0 if a < 0.0 < b else min(abs(a), abs(b))
            height = tall * math.sqrt(max(1.0 - inner * inner, 0.0)) * (1 + 1e-12) + slack
            row[k] = (centre + wide * a - slack, centre + wide * b + slack, height)
            sizes.append(pair.target_size(row))
        unknown = ~np.isfinite(sizes)
        worst = max([worst, *(size for size in sizes if math.isfinite(size))])
        used += len(lows)
        if unknown.any() and used + 3 * int(unknown.sum()) > most:
            return math.inf
        lows, highs = lows[unknown], highs[unknown]
        lows, highs, _ = thirds(lows, highs, ((highs - lows) / lengths).argmax(axis=1))
    return worst


def strip(axis: Axis, centre: float, wide: float, tall: float) -> float:
    """S with sum_j |w_j| <= S on |Re z - centre| <= wide, |Im z| <= tall.

    sum_j |w_j| = Z(Re z)/|Z(z)|.  With weights w at Re z and any mu, |Z(z)|/Z(Re z) >= 1 - tall^2/2 sum_j w_j (a_j - mu)^2; and
    where keys step by s with offsets log binom(n, j) up to tau, Z is (1 + e^{s z})^n up to e^tau, and |1 + e^{s z}| is at least
    cos(s tall/2) (1 + e^{s Re z}).
    """
    n = len(axis.a) - 1
    if n == 0:
        return 1.0
    scores = centre * axis.a + axis.b
    logs = scores - scores.max()
    logs -= math.log(float(np.exp(logs).sum()))
    apart = np.abs(axis.a - float(np.exp(logs) @ axis.a))
    # In logarithms: a key of weight e^-800 at the centre may rule at the end of the strip.
    with np.errstate(over="ignore", invalid="ignore"):
        moment = float((apart**2 * np.exp(logs + apart * wide)).sum()) * (1 + 1e-9)
        size = float(np.abs(axis.a).max()) * (1.0 + wide + abs(centre)) + float(np.abs(axis.b).max())
        moment *= float(np.exp(8.0 * DOUBLE * (len(axis.a) + 2) * size))  # rounding of the weights and of the mean
    left = 1.0 - tall * tall * moment / 2.0
    found = 1.0 / left if left > 0 else math.inf
    step = axis.spread / n
    if step * tall < 3.14:
        binomials = np.array([math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in range(n + 1)])
        # offsets in proportion to j move the head along the real axis, and leave that bound as it is
        rest = axis.b - binomials
        rest = rest - rest[0] - (rest[-1] - rest[0]) / n * np.arange(n + 1)
        off = np.abs(axis.a - axis.a[0] - step * np.arange(n + 1)) * math.hypot(abs(centre) + wide, tall)
        tau = float((off + np.abs(rest - float(np.median(rest)))).max()) + 1e-13 * (n + 1.0 + size)
        plain = math.cos(step * tall / 2.0) ** (-n) * (1 + 1e-11 * (n + 1))
        left = 1.0 - math.expm1(min(tau, 1.0)) * plain
        if tau < 1.0 and left > 0:
            found = min(found, math.exp(tau) * plain / left)
    return found
