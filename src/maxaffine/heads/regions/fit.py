"""Heads on the regions of a callable: one key set that all regions share, values fitted inside every region alone.

A callable is known on its own side of a plane only, so values come from ridge least squares over points of the region, dense
towards its walls (chords in random directions, by the arcsine law).  The keys are the same in all regions, which keeps the switch
exactly on the plane; just beyond its walls a region's head is continued by itself, as far as its switch is wide.
"""

import math

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Refused
from maxaffine.core.rounding import compute_format
from maxaffine.heads.breaks.hyperplanes import Seen
from maxaffine.heads.fitting import MORE_LAMBDAS, Function, affine_columns, as_stored, ridges
from maxaffine.heads.regions.plan import half_widths
from maxaffine.heads.spectral.affine_fit import DELTAS, AffineProducts, ProductFit
from maxaffine.layer.spectral_keys import SpectralAxis
from maxaffine.target.target import Target

COLUMNS = 900  # unknowns per region beyond which no fit is tried
WORK = 7e10  # operations that a search may spend on its fits


class RegionProducts(AffineProducts):
    """Heads for one function on several convex cells of [-1, 1]^D, given by their vertices; the search is that of products."""

    def __init__(
        self, f: Function, cells: list[Array], dimension: int, error: float, scale: float, dtype: str, largest: float
    ) -> None:
        super().__init__(f, dimension, error, scale, dtype, largest)
        self.cells = cells
        self._hulls = [_walls(cell) for cell in cells]
        self._hard = np.zeros(len(cells))  # the last error of every region: hard ones are tried first
        self.spent = 0.0
        self._inside: dict[int, list[tuple[Array, Array, Array, Array]]] = {}

    def attempt(self, counts: tuple[int, ...], deltas: tuple[int, ...]) -> ProductFit:
        """The head with so many keys per axis, and deltas by their place in DELTAS; one key has no delta."""
        return super().attempt(counts, tuple(DELTAS.index(2.0) if n == 1 else i for n, i in zip(counts, deltas, strict=True)))

    def smallest(self, error: float, most: int | None = None) -> ProductFit | None:
        """The head of fewest tokens that fits: axes grown one by one, and in two variables also together."""
        limit = COLUMNS // (self.E + 1) if most is None else min(most, COLUMNS // (self.E + 1))
        found = [self._grown(error, limit)]
        if self.E == 2 or found[0] is None:
            found.append(super().smallest(error, limit))
        fits = [fit for fit in found if fit is not None and fit.tokens <= limit]
        return min(fits, key=lambda fit: fit.tokens, default=None)

    def _grown(self, error: float, limit: int) -> ProductFit | None:
        """One key per axis, then more wherever they help most for their price."""
        best = self.attempt((1,) * self.E, (DELTAS.index(1.0),) * self.E)
        while best.error > error:
            trials, counts, places = [], best.counts, best.places
            for more in [[e] for e in range(self.E)] + ([list(range(self.E))] if self.E > 1 else []):
                for step in (1, 2):
                    wanted = tuple(n + step if e in more else n for e, n in enumerate(counts))
                    if math.prod(wanted) <= limit and max(wanted) <= 60:
                        trials.append(self._tuned(wanted, places, more))
            priced = [
                (math.log(best.error / max(fit.error, 1e-3 * error)) / math.log(fit.tokens / best.tokens), i)
                for i, fit in enumerate(trials)
                if fit.error < best.error
            ]
            if not priced:
                return None
            best = trials[max(priced)[1]]
        places = best.places
        for e in range(self.E):
            if best.counts[e] > 1:
                places = self._descend(best.counts, places, [e], 1)
        return self._trimmed(self.attempt(best.counts, tuple(places)), error)

    def _trimmed(self, fit: ProductFit, error: float) -> ProductFit:
        """Fewer keys on one axis, or more on one and fewer on another, while the whole still fits and work is left."""
        best = fit
        while self.spent < WORK:
            better = self._step(best, error)
            if better is None:
                break
            best = better
        return best

    def _step(self, fit: ProductFit, error: float) -> ProductFit | None:
        """A smaller head that fits: an axis with fewer keys, and perhaps another one with as many more as that pays for."""
        counts = fit.counts
        trials: set[tuple[int, ...]] = set()
        for j in range(self.E):
            for fewer in {counts[j] - 1, (counts[j] + 1) // 2, 1} - {0, counts[j]}:
                less = tuple(fewer if e == j else n for e, n in enumerate(counts))
                trials.add(less)
                for i in set(range(self.E)) - {j}:
                    rest = math.prod(less) // less[i]
                    room = min((fit.tokens - 1) // rest, less[i] + 6, 60)
                    trials |= {tuple(n if e == i else m for e, m in enumerate(less)) for n in (room, (room + less[i] + 1) // 2)}
        for trial in sorted((t for t in trials if math.prod(t) < fit.tokens), key=math.prod):
            found = self._turned(trial, fit.places, error)
            if found is not None:
                return found
        return None

    def _turned(self, counts: tuple[int, ...], deltas: list[int], error: float) -> ProductFit | None:
        """A head of these counts that fits, its deltas moved one by one while that helps; None where it stays far away."""
        places = list(deltas)
        for e in range(self.E):
            best = self.attempt(counts, tuple(places))
            if best.error <= error:
                return best
            if best.error > 100.0 * error:
                return None
            if counts[e] > 1:
                places = self._descend(counts, places, [e], 1)
        best = self.attempt(counts, tuple(places))
        return best if best.error <= error else None

    def _tuned(self, counts: tuple[int, ...], places: list[int], moved: list[int]) -> ProductFit:
        """The best of a few deltas on the axes that were changed."""
        trials = [self.attempt(counts, tuple(places))]
        for sign in (-1, 1):
            at = places
            while True:
                at = [p + sign if e in moved and counts[e] > 1 else p for e, p in enumerate(at)]
                if at == places or min(at) < 0 or max(at) >= len(DELTAS):
                    break
                fit = self.attempt(counts, tuple(at))
                if fit.error >= trials[-1].error and len(trials) > 1:
                    break
                trials.append(fit)
                if len(trials) > 12:
                    break
        return min(trials, key=lambda fit: fit.error)

    def _points_inside(self, columns: int) -> list[tuple[Array, Array, Array, Array]]:
        """Per region: points to fit, values there, points to check, values there."""
        size = math.ceil(16 * 1.25 ** max(0, math.ceil(math.log(columns / 16, 1.25))))
        if size not in self._inside:
            rng = np.random.default_rng((size, 5))
            found = []
            for cell, hull in zip(self.cells, self._hulls, strict=True):
                fit = np.concatenate([_arcsine(cell, hull, 2 * size + 60, rng), cell])
                more = (2 * self.E - 1) * size + 150 * 2**self.E
                check = np.concatenate([_arcsine(cell, hull, more, rng), _on_edges(cell, more, rng), cell])
                values = self.f(np.concatenate([_pulled(fit, cell), _pulled(check, cell)]))
                found.append((fit, values[: len(fit)], check, values[len(fit) :]))
            self._inside[size] = found
        return self._inside[size]

    def _fit(self, axes: tuple[SpectralAxis, ...], counts: tuple[int, ...], deltas: tuple[int, ...]) -> ProductFit:
        """Every region's values; a region that is worse than the best known head of these counts ends it."""
        N, E, C = math.prod(counts), self.E, len(self.cells)
        values, slopes = np.zeros((*counts, C)), np.zeros((*counts, C, E))
        if N * (E + 1) > COLUMNS or self.spent > WORK:
            return ProductFit(math.inf, axes, values, slopes)
        known = min((fit.error for (shape, _), fit in self._known.items() if shape == counts), default=math.inf)
        worst = 0.0
        points = self._points_inside(N * (E + 1))
        for k in np.argsort(-self._hard):
            z, f, check, exact = points[k]
            self.spent += 6.0 * len(z) * (N * (E + 1)) ** 2
            best, found = _ridge(axes, z, f, check, exact, self)
            self._hard[k] = best
            worst = max(worst, best)
            if found is None or (worst >= known and worst > self.wanted):  # neither the best of its kind nor good enough
                return ProductFit(worst, axes, values, slopes)
            values[..., k] = found[:N].reshape(counts)
            slopes[..., k, :] = np.moveaxis(found[N:].reshape(E, *counts), 0, -1)
        return ProductFit(worst, axes, values, slopes)


class RegionFits:
    """Heads for all regions at once, on shared keys."""

    def __init__(self, target: Target, seen: Seen, error: float, dtype: str, steep: float) -> None:
        """`steep`: the size of the scores beside which the values stand; the literal softmax rounds them, which limits values."""
        box, D = target.box, target.box.dimension
        centre, half = half_widths(box)

        def f(z: Array) -> Array:
            return target.values(np.clip(centre + z * half, box.low, box.high))[:, 0]

        scale = float(np.abs(f(np.random.default_rng(3).uniform(-1.0, 1.0, (400, D)))).max()) or 1.0
        unit = compute_format(dtype).unit
        self._tight = max(20.0 * scale, 0.2 * error / (unit * max(steep, 1.0)))
        cells = [(cell - centre) / half for cell in seen.cells]
        self._fits = [
            RegionProducts(f, cells, D, error, scale, dtype, largest) for largest in (max(self._tight, 1e6 * scale), self._tight)
        ]

    def smallest(self, error: float, most: int | None) -> ProductFit | None:
        """The fewest tokens per region, of two sizes that differ little the one with smaller values."""
        loose = self._fits[0].smallest(error, most)
        if loose is None or (most is not None and loose.tokens > most):
            return None
        if max(float(np.abs(loose.values).max()), float(np.abs(loose.slopes).max())) <= self._tight:
            return loose
        limit = loose.tokens * 4 // 3 if most is None else min(most, loose.tokens * 4 // 3)
        tight = self._fits[1].smallest(error, limit)
        return loose if tight is None or tight.tokens > limit else tight


def _ridge(
    axes: tuple[SpectralAxis, ...], z: Array, f: Array, check: Array, exact: Array, given: RegionProducts
) -> tuple[float, Array | None]:
    """The largest error on the points to check and the unknowns (N (1 + E),), of the best ridge."""
    keys = [axis.keys for axis in axes]
    B, best, unknowns = affine_columns(keys, check), math.inf, None
    dampings = [max(lam * given.wanted / given.scale, 4.0 * given.unit) for lam in MORE_LAMBDAS]
    for values in ridges(affine_columns(keys, z), f[:, 0], dampings):
        trial = as_stored(values, given.dtype)
        if not np.isfinite(trial).all() or np.abs(trial).max() > given.largest:
            continue
        error = float(np.abs(B @ trial - exact[:, 0]).max()) + 16.0 * given.unit * float(np.abs(trial).max())
        if error < best:
            best, unknowns = error, trial
    return best, unknowns


# ---------------------------------------------------------------------- points of a cell


def _walls(cell: Array) -> Array:
    """Half spaces a . z + b <= 0 of the convex hull of vertices, rows (a, b)."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return np.asarray(ConvexHull(cell, qhull_options="QJ").equations)
    except QhullError:
        raise Refused("a region of the target is too thin to be told from a plane.") from None


def _arcsine(cell: Array, walls: Array, count: int, rng: np.random.Generator) -> Array:
    """Points of a cell, dense towards its walls: on chords through random points, by the arcsine law."""
    inner = rng.dirichlet(np.full(len(cell), 0.7), count) @ cell
    extent = np.maximum(np.ptp(cell, axis=0), 1e-12)
    direction = rng.normal(size=inner.shape) * extent
    speed, room = direction @ walls[:, :-1].T, -np.minimum(inner @ walls[:, :-1].T + walls[:, -1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = room / np.where(np.abs(speed) < 1e-14, np.nan, speed)
    first = np.nanmax(np.where(speed < 0, ratio, -np.inf), axis=1)
    last = np.nanmin(np.where(speed > 0, ratio, np.inf), axis=1)
    t = 0.5 - 0.5 * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    at = first + (last - first) * rng.permutation(t)
    return np.asarray(inner + at[:, None] * direction)


def _on_edges(cell: Array, count: int, rng: np.random.Generator) -> Array:
    """Points between two and between three vertices, where least squares is worst."""
    corners = cell[rng.integers(0, len(cell), (count, 3))]
    shares = rng.dirichlet(np.full(3, 0.7), count)
    shares[::2, 2] = 0.0
    return np.asarray(((shares / shares.sum(axis=1, keepdims=True))[..., None] * corners).sum(axis=1))


def _pulled(z: Array, cell: Array) -> Array:
    """Points moved inwards by a little more than rounding: on the wall itself the other side may answer."""
    return np.asarray(z + 1e-12 * (cell.mean(axis=0) - z))
