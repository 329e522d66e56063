"""Product heads whose values are affine in z: as few keys per axis as the error allows, found by fitting."""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from maxaffine.core import closest
from maxaffine.core.arrays import Array
from maxaffine.core.deadline import check
from maxaffine.core.rounding import compute_format
from maxaffine.heads.fitting import MORE_LAMBDAS, Basis, Function, Judge, affine_values, as_stored, fewest, on_grid
from maxaffine.layer.spectral_keys import SpectralAxis, bernstein, chebyshev

DELTAS = (0.15, 0.3, 0.5, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0, 32.0, 40.0, 56.0)
SCAN = (2, 4, 6, 8, 10)  # places of deltas to start from
SCANNED = 6  # keys per axis beyond which the best deltas of fewer keys are near
MOST = {1: 60, 2: 48, 3: 15, 4: 6}  # keys per axis
LARGEST = float(np.finfo(np.float64).max)
ATTEMPTS = {1: 260, 2: 260, 3: 110, 4: 50}  # fits of a search


@dataclass(frozen=True)
class ProductFit:
    """Expected sup error (rounding included), keys per axis, values (N_1, .., N_E, K) and slopes (.., K, E)."""

    error: float
    axes: tuple[SpectralAxis, ...]
    values: Array
    slopes: Array

    @property
    def counts(self) -> tuple[int, ...]:
        """Keys per axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def places(self) -> list[int]:
        """The axes' deltas by their place in DELTAS."""
        return [DELTAS.index(axis.parameter) for axis in self.axes]

    @property
    def tokens(self) -> int:
        """Product of the keys per axis."""
        return math.prod(self.counts)


class AffineProducts:
    """Heads with affine values for one function, of growing size; every fit is kept."""

    def __init__(
        self, f: Function, dimension: int, error: float, scale: float, dtype: str, largest: float = math.inf,
        shifts: tuple[float, ...] | None = None, lean: tuple[bool, ...] = (),
    ) -> None:  # fmt: skip
        self.shifts = shifts or (0.0,) * dimension  # centres of the heads along the axes
        self.lean = lean  # where values may be affine: everywhere, where nothing is said
        self.largest = largest  # what |c| and |G| may be: steep scores beside the keys make large values costly
        self.f, self.E, self.wanted, self.scale, self.dtype = f, dimension, error, scale, dtype
        self.unit = compute_format(dtype).unit
        self._samples: dict[tuple[int, ...], tuple[list[Array], Array, list[Array], Array]] = {}
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], ProductFit] = {}
        self._bases: dict[tuple[int, int, int, float], Basis] = {}
        self._start = [DELTAS.index(2.0)] * dimension

    def smallest(self, error: float, most: int | None = None) -> ProductFit | None:
        """The head of fewest tokens whose expected error is at most `error`, or None; `most` limits the tokens."""
        limit = MOST.get(self.E, 4)
        if most is not None:
            limit = max(1, min(limit, int(most ** (1.0 / self.E) + 1e-9) + 1))
        count = fewest(lambda n: self._uniform(n).error, error, 1, limit)
        return None if count is None else self._trimmed(self._uniform(count), error)

    def _uniform(self, count: int) -> ProductFit:
        """The best head with equally many keys on every axis; deltas move together first, then axis by axis."""
        counts = (count,) * self.E
        starts = [self._start, *([place] * self.E for place in SCAN if count <= SCANNED)]
        places = min(starts, key=lambda one: self.attempt(counts, tuple(one)).error)
        places = self._descend(counts, places, list(range(self.E)), 1)
        if self.E > 1:
            for e in range(self.E):
                places = self._descend(counts, places, [e], 4 if count in (3, 6) else 1)
        self._start = places
        return self.attempt(counts, tuple(places))

    def _descend(self, counts: tuple[int, ...], places: list[int], axes: list[int], step: int) -> list[int]:
        """Deltas of some axes moved together while that helps, by ever smaller steps."""
        best = list(places)
        while step >= 1:
            for sign in (-1, 1):
                while True:
                    trial = [p + sign * step if e in axes else p for e, p in enumerate(best)]
                    if min(trial) < 0 or max(trial) >= len(DELTAS):
                        break
                    if self.attempt(counts, tuple(trial)).error >= self.attempt(counts, tuple(best)).error:
                        break
                    best = trial
            step //= 2
        return best

    def _trimmed(self, fit: ProductFit, error: float) -> ProductFit:
        """Fewer keys on one axis, or more on one and fewer on another, while the whole still fits."""
        best = fit
        for _ in range(60):
            if len(self._known) > ATTEMPTS.get(self.E, 50):
                break
            better = self._step(best, error)
            if better is None:
                break
            best = better
        return best

    def _step(self, fit: ProductFit, error: float) -> ProductFit | None:
        counts = fit.counts
        trials: list[list[int]] = []
        for e in range(self.E):
            for cut in {max(1, counts[e] // 4), 1}:
                trials.append([n - cut if i == e else n for i, n in enumerate(counts)])
        for i, j in permutations(range(self.E), 2):
            for more in (1, 2):
                trial = list(counts)
                trial[i] += more
                rest = fit.tokens // trial[i] // max(1, math.prod(n for k, n in enumerate(trial) if k not in (i, j)))
                trial[j] = min(trial[j] - 1, rest)
                trials.append(trial)
        trials = [t for t in trials if min(t) >= 1 and max(t) <= MOST.get(self.E, 4) and math.prod(t) < fit.tokens]
        for trial in sorted(trials, key=math.prod):
            found = self._turned(tuple(trial), fit.places, error)
            if found is not None:
                return found
        return None

    def _turned(self, counts: tuple[int, ...], deltas: list[int], error: float) -> ProductFit | None:
        """A head of these counts that fits, its deltas moved one by one where that helps; None where it stays far away."""
        best, places = self.attempt(counts, tuple(deltas)), list(deltas)
        if best.error > 2.5 * error:
            return None
        while best.error > error:
            for e in range(self.E):
                places = self._descend(counts, places, [e], 1)
            turned = self.attempt(counts, tuple(places))
            if not turned.error < best.error:
                return None
            best = turned
        return best

    def attempt(self, counts: tuple[int, ...], deltas: tuple[int, ...]) -> ProductFit:
        """The head with so many keys per axis, and deltas by their place in DELTAS."""
        key = (counts, deltas)
        if key not in self._known:
            check()
            axes = tuple(self.axis(e, n, i) for e, (n, i) in enumerate(zip(counts, deltas, strict=True)))
            self._known[key] = self._fit(axes, counts, deltas)
            closest.fitted(self._known[key].tokens, self._known[key].error)
        return self._known[key]

    def closest(self) -> ProductFit | None:
        """The best head that was tried."""
        return min(self._known.values(), key=lambda one: one.error, default=None)

    def axis(self, e: int, count: int, place: int) -> SpectralAxis:
        """Keys of one axis."""
        return bernstein(count, DELTAS[place], self.dtype, self.shifts[e])

    def _points(self, counts: tuple[int, ...]) -> tuple[list[Array], Array, list[Array], Array]:
        if counts not in self._samples:
            more = 3 if self.E < 3 else 2
            grids = [chebyshev(more * n + 10) for n in counts]
            checks = [np.cos(np.linspace(0.0, np.pi, (more + 1) * n + (14 if self.E < 3 else 7))) for n in counts]
            self._samples[counts] = grids, on_grid(self.f, grids), checks, on_grid(self.f, checks)
        return self._samples[counts]

    def _fit(self, axes: tuple[SpectralAxis, ...], counts: tuple[int, ...], deltas: tuple[int, ...]) -> ProductFit:
        grids, samples, checks, exact = self._points(counts)
        bases = []
        for axis, grid, place in zip(axes, grids, deltas, strict=True):
            key = (len(axis), place, len(grid), axis.shift)
            if key not in self._bases:
                self._bases[key] = Basis.of(axis, grid)
            bases.append(self._bases[key])
        judge = Judge([axis.keys for axis in axes], checks, exact, self.dtype, self.E + 3, 0.003 * self.wanted)
        dampings = [max(lam * self.wanted / self.scale, 4.0 * self.unit) for lam in MORE_LAMBDAS]
        values, slopes = (as_stored(part, self.dtype) for part in affine_values(bases, samples, dampings, self.lean))
        largest = [max(float(np.abs(values[..., i]).max()), float(np.abs(slopes[..., i, :]).max())) for i in range(len(dampings))]
        total, i = judge.best(values, slopes, np.array(largest) <= min(self.largest, LARGEST))
        if not total < math.inf:
            return ProductFit(math.inf, axes, np.zeros_like(values[..., 0]), np.zeros_like(slopes[..., 0, :]))
        return ProductFit(total, axes, np.ascontiguousarray(values[..., i]), np.ascontiguousarray(slopes[..., i, :]))


def fit_affine(axes: tuple[SpectralAxis, ...], f: Function, error: float, scale: float, dtype: str) -> ProductFit:
    """Affine values on given Bernstein axes."""
    products = AffineProducts(f, len(axes), error, scale, dtype, shifts=tuple(axis.shift for axis in axes))
    return products.attempt(tuple(len(axis) for axis in axes), tuple(DELTAS.index(axis.parameter) for axis in axes))


def steepest(f: Function, dimension: int) -> tuple[float, ...] | None:
    """Where f is steepest along every axis, for axes on which it is far steeper there than elsewhere (0 on others); or None."""
    rng = np.random.default_rng(13)
    z = np.linspace(-1.0, 1.0, 201)
    found = []
    for e in range(dimension):
        points = np.repeat(rng.uniform(-1.0, 1.0, (12, 1, dimension)), len(z), axis=1)
        points[:, :, e] = z
        values = f(points.reshape(-1, dimension)).reshape(12, len(z), -1)
        slopes = np.abs(np.diff(values, axis=1)).max(axis=(0, 2))
        place = int(slopes.argmax())
        peaked = np.isfinite(slopes).all() and slopes[place] > 4.0 * np.median(slopes) > 0.0
        middle = (z[place] + z[place + 1]) / 2.0
        found.append(float(np.round(min(1.0, max(-1.0, middle * 1.005)) * 64.0) / 64.0) if peaked else 0.0)
    return tuple(found) if any(found) else None
