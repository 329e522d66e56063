"""Callables of many variables, of which only values are known: sums of products fitted to them, observed and never proved.

Keys of every direction follow fibres through some points.  Terms are added one by one, all factors refitted together each time
(least_squares.py), real and complex ones side by side until one kind is ahead.  Points where a fit is worse than at its own are
searched for and added, until none is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import Missed, Refused
from maxaffine.core.rounding import compute_format, numpy_dtype
from maxaffine.heads.found import PROOF
from maxaffine.heads.separated.least_squares import Factors, Fitted, Work, fit, one_more, values
from maxaffine.heads.separated.points import RESOLUTIONS, ROUNDS, climbed, fibres, spread
from maxaffine.heads.spectral.fit import AxisCurve
from maxaffine.layer.grouped import Group as KeyGroup
from maxaffine.layer.spectral_keys import SpectralAxis, weights
from maxaffine.target.calls import Calls
from maxaffine.target.target import Target

MOST_VARIABLES = 20
KEYS_SHARES = (0.03, 0.004)  # of the error, to which keys follow fibres; finer ones where terms do not help
MOST_KEYS = 48
MOST_TERMS = 24
SAFETY = 1.3  # times the error seen, that is proposed as one within reach
AIM = 0.7  # of the error, that a layer is seen to keep before it is looked at in earnest
NEARLY = 0.95  # of the error, which the best fit may be off by where nothing better is found
KEPT = 0.4  # of the error, at which a fit to points is good enough
LARGE = 0.5  # of the error, from which a point is added
POINTS, PER_NUMBER = 1_000, 4  # of a fit: at least, and for every number
LOOKS = 60  # times so many points, that a search may take: fewer at a time where few are left
ADDED = 400
FAR = 10.0  # times the error: a fit that is not worth much searching
HELD = 2.0  # times the error at its own points, to which a fit holds elsewhere
HARDER = 8  # rounds of added points for one number of terms
CALLS = 120_000  # where nobody says otherwise
SHARE = 0.7  # of the calls that are left, where somebody does
WORK = 5e11  # multiplications
AHEAD = 4.0  # times closer, from which the other kind of terms is not followed
TREND = 4  # terms after which it is asked whether the way is too long
DISTINCT = 1e-7  # of the largest singular value, above which keys tell functions apart


@dataclass(frozen=True)
class SampledPlan:
    """Product keys on the variables, and the factors of a sum of products that was fitted to values of a callable."""

    matrix: Array
    axes: tuple[SpectralAxis, ...]
    real: tuple[Array, ...]
    imaginary: tuple[Array, ...] | None
    seen: float  # the error while it was fitted
    points: int

    @property
    def cells(self) -> int:
        """Tokens, implied."""
        return math.prod(len(axis) for axis in self.axes)

    @property
    def terms(self) -> int:
        """Products."""
        return int(self.real[0].shape[1])

    @property
    def stored(self) -> int:
        """Numbers of the values."""
        return sum(part.size for part in self.real) * (1 if self.imaginary is None else 2)

    def build(self) -> KeyGroup:
        """The group of keys and values."""
        return KeyGroup(self.matrix, tuple(axis.keys for axis in self.axes), None, self.real, None, self.imaginary)

    def to_json(self) -> dict[str, Any]:
        """Plain data: how keys were made, and what the fit has seen."""
        axes = [{"family": axis.family, "parameter": axis.parameter} for axis in self.axes]
        return {
            "plan": "separated", "method": "separated", "argument": "sampled", "terms": self.terms,
            "complex": self.imaginary is not None, "points": self.points, "axes": axes,
        }  # fmt: skip


class Asked:
    """A callable in z = (x - centre) / half and in units of the error asked for, within its share of the calls."""

    def __init__(self, target: Target, error: float) -> None:
        box, calls = target.box, target.calls
        self.target, self.error, self.count = target, error, 0
        self.centre, self.half = (box.low + box.high) / 2.0, box.width / 2.0
        left = calls.left if isinstance(calls, Calls) else None
        self.most = CALLS if left is None else int(SHARE * left)

    @property
    def left(self) -> int:
        """Points that may still be asked for here."""
        return self.most - self.count

    def __call__(self, z: Array) -> Array:
        """Values (M,) at z (M, D)."""
        if len(z) > self.left:
            raise Spent
        self.count += len(z)
        x = np.clip(self.centre + z * self.half, self.target.box.low, self.target.box.high)
        return np.asarray(self.target.values(x)[:, 0, 0] / self.error)


class Spent(Exception):
    """No more points may be asked for."""


@dataclass(frozen=True)
class Basis:
    """Functions (.., n) of one variable that keys hold: orthonormal at Chebyshev points, the first one constant."""

    axis: SpectralAxis
    back: Array  # (N, n): values from coefficients

    @classmethod
    def of(cls, axis: SpectralAxis, dtype: str) -> Basis:
        """Of all that the keys tell apart."""
        count = 4 * len(axis) + 16
        z = np.cos(np.pi * (np.arange(count) + 0.5) / count)
        U, S, Vt = np.linalg.svd(weights(axis.keys, z), full_matrices=False)
        least = float(S[0]) * max(DISTINCT, 8.0 * compute_format(dtype).unit)
        n = max(1, int(np.count_nonzero(least < S)))
        turned = np.linalg.qr(U[:, :n].T @ np.polynomial.chebyshev.chebvander(z, n - 1))[0]
        return cls(axis, np.asarray(Vt[:n].T @ (turned / S[:n, None])) * math.sqrt(count))

    def __call__(self, z: Array) -> Array:
        """The functions at z (M,): (M, n)."""
        return np.asarray(weights(self.axis.keys, z) @ self.back)


@dataclass
class Kind:
    """One kind of terms, real or complex: the fit so far, and how close fits of fewer terms came at their points."""

    turning: bool
    fitted: Fitted | None = None
    past: list[float] = field(default_factory=list)

    @property
    def terms(self) -> int:
        """Products so far."""
        return 0 if self.fitted is None else int(self.fitted.factors[0].shape[1])

    def is_hopeless(self) -> bool:
        """Whether the last terms gained so little that the most there may be will not do."""
        if len(self.past) <= TREND or self.past[-1] <= KEPT:
            return False
        gain = (self.past[-1] / self.past[-TREND]) ** (1.0 / (TREND - 1))
        return gain >= 1.0 or self.terms + math.log(KEPT / 2.0 / self.past[-1]) / math.log(gain) > MOST_TERMS


class SampledSearch:
    """The search for one callable: `plans`, and where the last of them is used up or there is none, `why`."""

    def __init__(self, target: Target, error: float, dtype: str, seed: int) -> None:
        self.f, self.error, self.dtype, self.D = Asked(target, error), error, dtype, target.box.dimension
        self.names, self.work = target.box.names, Work(WORK)
        self.rng = np.random.default_rng([seed, 23])
        self.best, self.terms, self.ended = math.inf, 0, "more terms than are tried"
        self.refuted = math.inf  # the least error that was found later of fits that seemed to do
        self.few = int(np.clip(self.f.most // LOOKS, 50, POINTS))
        self.bases: list[Basis] = []
        self.nearly: SampledPlan | None = None
        self.z, self.y = np.empty((0, self.D)), np.empty(0)

    def plans(self) -> Iterator[SampledPlan]:
        """Fits that are seen to keep the error, each after the one before was found worse."""
        try:
            for share in KEYS_SHARES:
                if not self._has_keys(share):
                    break
                yield from self._grown()
                if self.best > FAR or self.work.left <= 0:
                    break
        except Spent:
            self.ended = "more points than may be asked for"
        if self.nearly is not None:
            yield self.nearly

    def why(self) -> Missed:
        """How close the search came, and what would be needed for a proof."""
        if not math.isfinite(self.best):
            return Missed.of("no sum of products was fitted", Refused(f"{self.ended}; {PROOF}"))
        near = (self.best if self.best > 1.0 else (self.refuted if math.isfinite(self.refuted) else 1.0)) * self.error
        told = f"an error of {near:.3g} was seen to remain, and a smaller one takes {self.ended}; {PROOF}"
        count = f"{self.terms} product{'s' if self.terms > 1 else ''} of functions of one variable each"
        return Missed.of(count, Refused(told, nearest_error=SAFETY * near))

    def _has_keys(self, share: float) -> bool:
        """Choose keys for every direction; False where a direction takes too many."""
        lines = int(np.clip(self.f.left // (12 * self.D * 17), 3, 6))
        rows, tails = fibres(self.f, self.D, share / 2.0, lines, np.random.default_rng(7))
        self.bases = []
        rough = int(np.argmax(tails))
        if tails[rough] > 0:
            asked = f"where {share / 2.0 * self.error:.2g} is asked of it"
            left = f"{RESOLUTIONS[-1]} Chebyshev points leave {tails[rough] * self.error:.2g}, {asked}"
            self.ended = f"along `{self.names[rough]}` it is not smooth enough ({left})"
            return False
        for name, c in zip(self.names, rows, strict=True):
            curve = AxisCurve(partial(_series, c), share, self.dtype)
            found = curve.smallest(share, start=1, most=MOST_KEYS, polish=False)
            if found is None:
                self.ended = f"along `{name}` it takes more than {MOST_KEYS} keys"
                return False
            self.bases.append(Basis.of(found.axis, self.dtype))
        return True

    def _grown(self) -> Iterator[SampledPlan]:
        kinds = [Kind(False), Kind(True)]
        for _ in range(MOST_TERMS):
            for kind in tuple(kinds):
                if self.work.left <= 0:
                    self.ended = "more time than is spent on one"
                    return
                self._add_term(kind)
                yield from self._hardened(kind)
                if kind.is_hopeless():
                    kinds.remove(kind)
            kinds = _ahead(kinds)
            if not kinds:
                return

    def _add_term(self, kind: Kind) -> None:
        numbers = (kind.terms + 1) * sum(basis.back.shape[1] for basis in self.bases) * (2 if kind.turning else 1)
        self._more_points(max(self.few, PER_NUMBER * numbers) - len(self.y))
        bases = self._at(self.z)
        if kind.fitted is not None:
            residual = self.y - values(bases, kind.fitted.factors)
            kind.fitted = Fitted(kind.fitted.factors, residual, float(residual @ residual))
        start = one_more(bases, kind.fitted, self.y, kind.turning, self.work, self.rng)
        kind.fitted = fit(bases, self.y, start, self.work, enough=KEPT)
        kind.past.append(kind.fitted.largest)

    def _more_points(self, count: int) -> None:
        if count > 0:
            z = spread(count + self.few, self.D, self.rng)
            self._keep(z, self.f(z))

    def _keep(self, z: Array, y: Array) -> None:
        self.z, self.y = np.concatenate([self.z, z]), np.concatenate([self.y, y])

    def _at(self, z: Array) -> list[Array]:
        return [basis(z[:, e]) for e, basis in enumerate(self.bases)]

    def _hardened(self, kind: Kind) -> Iterator[SampledPlan]:
        """Rounds of worse points and another fit, as long as they help; a plan where no bad one is found."""
        assert kind.fitted is not None
        for _ in range(1 if kind.fitted.largest > FAR else HARDER // 2 if kind.fitted.largest > 1.0 else HARDER):
            assert kind.fitted is not None
            z, y, away = self._worst(kind.fitted)
            top = float(away.max())
            if top < self.best:
                self.best, self.terms = top, kind.terms
            if top <= AIM:
                self.nearly = None
                yield self._plan(kind.fitted.factors, top)
            elif top <= NEARLY and (self.nearly is None or top * self.error < self.nearly.seen):
                self.nearly = self._plan(kind.fitted.factors, top)
            bad = np.argsort(-away)[:ADDED]
            bad = bad[away[bad] > min(LARGE, 0.7 * top)]
            self._keep(z[bad], y[bad])
            kind.fitted = fit(self._at(self.z), self.y, kind.fitted.factors, self.work, enough=KEPT)
            kind.past[-1] = kind.fitted.largest
            if kind.fitted.largest > 1.0 and (self.work.left <= 0 or top <= HELD * kind.fitted.largest):
                return

    def _worst(self, fitted: Fitted) -> tuple[Array, Array, Array]:
        """Points, values and errors: spread anew, and climbed to from the worst of them where a fit is worth it."""
        z, factors = spread(2 * self.few, self.D, self.rng), fitted.factors
        asked: list[tuple[Array, Array]] = []

        def away(points: Array) -> Array:
            exact = self.f(points)
            asked.append((points, exact))
            return np.abs(values(self._at(points), factors) - exact)

        heights = away(z)
        if fitted.largest <= FAR:
            climbed(away, z, heights, self.rng, int(ROUNDS * self.few / POINTS))
        points, exact = (np.concatenate(part) for part in zip(*asked, strict=True))
        return points, exact, np.abs(values(self._at(points), factors) - exact)

    def _plan(self, factors: tuple[Factors, ...], seen: float) -> SampledPlan:
        """Keys and values as stored, terms in the unit of the target."""
        each = self.error ** (1.0 / self.D)
        stored = [(basis.back @ c) * each for basis, c in zip(self.bases, factors, strict=True)]
        turning = np.iscomplexobj(stored[0])
        kept = numpy_dtype(self.dtype)
        real = tuple(one.real.astype(kept).astype(np.float64) for one in stored)
        imaginary = tuple(one.imag.astype(kept).astype(np.float64) for one in stored) if turning else None
        axes = tuple(basis.axis for basis in self.bases)
        return SampledPlan(np.diag(1.0 / self.f.half), axes, real, imaginary, seen * self.error, self.f.count)


def _series(c: Array, z: Array) -> Array:
    """Chebyshev series (n, K) at points (M,): (M, K)."""
    return np.asarray(np.polynomial.chebyshev.chebvander(z, len(c) - 1) @ c)


def _ahead(kinds: list[Kind]) -> list[Kind]:
    """Without the kind that is far behind with as many numbers: two real terms stand against a complex one."""
    if len(kinds) < 2 or len(kinds[1].past) < 2:
        return kinds
    real, turning = kinds
    against = turning.past[len(real.past) // 2 - 1]
    if real.past[-1] > AHEAD * against:
        return [turning]
    return [real] if AHEAD * real.past[-1] < against else kinds
