"""Values of spectral heads: ridge least squares at Chebyshev points, sharpened towards the sup norm.

Values are constant, c_j, or affine, c_j + G_j z: twice the coefficients for the same tokens (heads/fitting.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce

import numpy as np

from maxaffine.core import deadline
from maxaffine.core.arrays import Array
from maxaffine.core.rounding import compute_format
from maxaffine.heads import fitting
from maxaffine.heads.fitting import Function
from maxaffine.layer.spectral_keys import DELTAS, SpectralAxis, bernstein, beside, chebyshev, expected_etas, gaussian, weights

LAWSON = 8
DESIGNS = 128  # that are kept: functions of one target, and targets, share them
SEEN = 3e-4  # of the error: a crude bound of what rounding costs is taken for it below that
SCANNED = 8  # keys from which on the best delta of about as many is near


@dataclass(frozen=True)
class AxisFit:
    """A head on one axis: its expected sup error (rounding included), keys, values (N, K), and slopes (N, K) where affine."""

    error: float
    axis: SpectralAxis
    values: Array
    slopes: Array | None = None

    def __len__(self) -> int:
        return len(self.axis)


class Design:
    """Keys of one axis with points to fit on and to judge on, and what every function on them needs."""

    def __init__(self, axis: SpectralAxis, z: Array, check: Array) -> None:
        self.axis, self.z, self.check = axis, z, check

    @cached_property
    def W_check(self) -> Array:
        """Weights at the points to judge on."""
        return weights(self.axis.keys, self.check)

    @cached_property
    def etas(self) -> Array:
        """Errors of the logits there, in unit roundoffs."""
        return expected_etas(self.axis.keys, self.check, 3)

    @cached_property
    def largest_eta(self) -> float:
        """The largest of these errors."""
        return float(self.etas.max())

    @cached_property
    def decomposed(self) -> tuple[Array, Array, Array]:
        """Singular values and vectors of the weights at the points to fit on."""
        U, S, Vt = np.linalg.svd(weights(self.axis.keys, self.z), full_matrices=False)
        return U, S, Vt

    @cached_property
    def basis(self) -> fitting.Basis:
        """The same for values affine in z."""
        return fitting.Basis.of(self.axis, self.z)


@lru_cache(maxsize=DESIGNS)
def _points(count: int, affine: bool) -> tuple[Array, Array]:
    return chebyshev((4 if affine else 3) * count + 16), np.cos(np.linspace(0.0, np.pi, 10 * count + 41))


@lru_cache(maxsize=DESIGNS)
def _bernstein(count: int, delta: float, dtype: str, affine: bool) -> Design:
    return Design(bernstein(count, delta, dtype), *_points(count, affine))


@lru_cache(maxsize=DESIGNS)
def _gaussian(count: int, padding: int, rho: float, dtype: str, affine: bool) -> Design:
    return Design(gaussian(count, padding, rho, dtype), *_points(count, affine))


class AxisCurve:
    """Best heads of an axis for functions f, by number of tokens; fitted when asked for and kept.

    The error of a head is the largest over the functions, or their sum (`add`).  `affine` lets values depend on z.
    """

    def __init__(
        self, f: Function, error: float, dtype: str, gaussians: bool = True, add: bool = False, affine: bool = False,
        bonus: float = 0.0,
    ) -> None:  # fmt: skip
        self.f, self.wanted, self.dtype, self.gaussians, self.add, self.affine = f, error, dtype, gaussians, add, affine
        self.bonus = bonus  # of a group beside others: its rounding is that of the logits
        self.unit = compute_format(dtype).unit
        self.query = fitting.query_rounding(dtype)
        self.scale = float(np.abs(f(chebyshev(64))).max()) or 1.0
        self._known: dict[int, AxisFit] = {}
        self._polished: dict[int, AxisFit] = {}
        self._best_delta = len(DELTAS) // 2

    def best(self, count: int) -> AxisFit:
        """The best head of that many tokens by least squares."""
        if count not in self._known:
            self._known[count] = self._search(count)
        return self._known[count]

    def polished(self, count: int) -> AxisFit:
        """The same keys with values reweighted towards the sup norm."""
        if count not in self._polished:
            start = self.best(count)
            z, check = self._points(count)
            alone = count == 1 and start.slopes is None
            self._polished[count] = start if alone else self._lawson(start, Design(start.axis, z, check))
        return self._polished[count]

    def _points(self, count: int) -> tuple[Array, Array]:
        """Points to fit on and points to judge on."""
        z, check = _points(count, self.affine)
        self._step = float(np.abs(np.diff(check)).max())
        return z, check

    def _bernstein(self, count: int, delta: float) -> Design:
        return _bernstein(count, delta, self.dtype, self.affine)

    def smallest(self, error: float, start: int = 2, most: int = 120, polish: bool = True) -> AxisFit | None:
        """The head of fewest tokens whose expected error is at most `error`, or None."""
        high = fitting.fewest(lambda n: self.best(n).error, error, start, most)
        if high is None:
            return None
        while polish and high > start and self.polished(high - 1).error <= error:
            high -= 1
        return self.polished(high) if polish else self.best(high)

    def _search(self, count: int) -> AxisFit:
        deadline.check()
        z, check = self._points(count)
        f, f_check = self.f(z), self.f(check)
        if count == 1:
            design = self._bernstein(1, 1.0)
            middle = (f.max(axis=0) + f.min(axis=0))[None] / 2.0
            level = AxisFit(float(np.abs(f_check - middle).max()), design.axis, middle)
            return self._fit_affine(design, f, f_check, level) if self.affine else level
        fits: dict[int, AxisFit] = {}
        place = self._best_delta
        near = count >= SCANNED and any(abs(count - known) <= max(1, count // 4) for known in self._known)
        todo = [place, place - 1, place + 1] if near else list(range(0, len(DELTAS), 2))
        while todo:
            i = todo.pop(0)
            if i in fits or not 0 <= i < len(DELTAS):
                continue
            design = self._bernstein(count, DELTAS[i])
            below = min((fit.error for fit in fits.values()), default=math.inf)
            fits[i] = self._fit(design, f, f_check, below)
            if self.affine:
                fits[i] = self._fit_affine(design, f, f_check, fits[i], below)
            place = min(fits, key=lambda k: fits[k].error)
            todo += [k for k in (place - 1, place + 1) if k not in fits]
        self._best_delta = place
        best = fits[place]
        for padding in (1, 2, 3, 4) if count >= 8 and self.gaussians else ():
            for rho in (0.5, 0.75) if count - 1 - 2 * padding >= 2 else ():
                found = self._fit(_gaussian(count, padding, rho, self.dtype, self.affine), f, f_check, best.error)
                best = found if found.error < best.error else best
        return best

    def _judge(
        self, design: Design, values: Array, f_check: Array, slopes: Array | None = None, below: float = math.inf
    ) -> AxisFit:
        """The best of L heads of the same keys, values (L, N, K) and slopes; its error is infinite where it is not `below`."""
        stored = fitting.as_stored(values, self.dtype)  # values beyond the dtype are judged infinitely bad
        lean = None if slopes is None else fitting.as_stored(slopes, self.dtype)
        g = design.W_check @ stored
        if lean is not None:
            g += design.check[:, None] * (design.W_check @ lean)
        away = np.abs(g - f_check).max(axis=1)
        seen = away.sum(axis=1) if self.add else away.max(axis=1)
        best = AxisFit(math.inf, design.axis, stored[0], None if lean is None else lean[0])
        for i in np.argsort(seen, kind="stable"):
            if not seen[i] < min(below, best.error):
                break
            own = None if lean is None else lean[i]
            error = self._error(design, stored[i], own, g[i], away[i])
            if error < min(below, best.error):
                best = AxisFit(error, design.axis, stored[i], own)
        return best

    def _error(self, design: Design, stored: Array, lean: Array | None, g: Array, away: Array) -> float:
        """The expected error of a head that is `away` from its functions at the points, rounding included."""
        tall = np.abs(stored).max(axis=0) + (0.0 if lean is None else np.abs(lean).max(axis=0))
        loss = 2.0 * (design.largest_eta + self.bonus) * self.unit * tall
        if loss.max() > SEEN * self.wanted:
            loss = self._lost(design, stored, lean, g)
        if self.query:
            loss = loss + self.query * np.abs(g[1:] - g[:-1]).max(axis=0) / self._step
        columns = np.maximum(away + loss, fitting.loss_share(self.dtype) * loss)
        error = float(columns.sum() if self.add else columns.max())
        return error if np.isfinite(error) else math.inf

    def _lost(self, design: Design, stored: Array, lean: Array | None, g: Array) -> Array:
        """What rounding of the logits costs every function: sum_j w_j eta_j |v_j - g|."""
        lost = design.W_check * (design.etas + self.bonus) * self.unit
        losses = []
        for k, c in enumerate(stored.T):
            own = c if lean is None else c + np.multiply.outer(design.check, lean[:, k])
            losses.append(float((lost * np.abs(own - g[:, k : k + 1])).sum(axis=1).max()))
        return np.array(losses)

    def _dampings(self, lambdas: Sequence[float]) -> list[float]:
        return [max(lam * self.wanted / self.scale, 4.0 * self.unit) for lam in lambdas]

    def _fit_affine(self, design: Design, f: Array, f_check: Array, best: AxisFit, below: float = math.inf) -> AxisFit:
        """`best`, or what has a smaller error, also than `below`."""
        values, slopes = fitting.affine_along(design.basis, f, self._dampings(fitting.MORE_LAMBDAS))
        fit = self._judge(design, values, f_check, slopes, min(below, best.error))
        return fit if fit.error < best.error else best

    def _fit(self, design: Design, f: Array, f_check: Array, below: float) -> AxisFit:
        """The best of several dampings, where its error is below a number."""
        values = list(fitting.ridges_of(design.decomposed, f, self._dampings(fitting.LAMBDAS)))
        return self._judge(design, np.stack(values), f_check, None, below)

    def _lawson(self, start: AxisFit, design: Design) -> AxisFit:
        """Reweight points by their error; keeps the best values seen."""
        N, affine, best = len(start.axis), start.slopes is not None, start
        f, f_check, W = self.f(design.z), self.f(design.check), weights(start.axis.keys, design.z)
        if affine:
            W = np.concatenate([W, design.z[:, None] * W], axis=1)
        for damping in self._dampings((fitting.MORE_LAMBDAS if affine else fitting.LAMBDAS)[1:]):
            for values in fitting.lawson(W, f, damping, LAWSON):
                fit = self._judge(design, values[None, :N], f_check, values[None, N:] if affine else None, best.error)
                best = fit if fit.error < best.error else best
        return best


def tensor_fit(axes: tuple[SpectralAxis, ...], f: Function, error: float, scale: float, dtype: str) -> tuple[float, Array]:
    """Values (N_1, .., N_E, K) on product keys for f on z (M, E) -> (M, K), and the expected sup error.

    The filter acts on the outer product of the axes' singular values.
    """
    grids = [beside(chebyshev(2 * len(axis) + 10), axis) for axis in axes]
    factors = [np.linalg.svd(weights(axis.keys, grid), full_matrices=False) for axis, grid in zip(axes, grids, strict=True)]
    projected = fitting.spread([U.T for U, _, _ in factors], fitting.on_grid(f, grids))
    singular = reduce(np.multiply.outer, [S for _, S, _ in factors])
    sides = [np.cos(np.linspace(0.0, np.pi, 3 * len(axis) + (14 if len(axes) < 3 else 6))) for axis in axes]
    checks = [beside(z, axis) for z, axis in zip(sides, axes, strict=True)]
    exact = fitting.on_grid(f, checks)
    judge = fitting.Judge([axis.keys for axis in axes], checks, exact, dtype, len(axes) + 2)
    best, chosen = np.inf, np.zeros((*(len(axis) for axis in axes), exact.shape[-1]))
    for lam in fitting.MORE_LAMBDAS:
        damping = max(lam * error / scale, 4.0 * compute_format(dtype).unit)
        kept = projected * (singular / (singular**2 + damping**2))[..., None]
        values = fitting.as_stored(fitting.spread([Vt.T for _, _, Vt in factors], kept), dtype)
        if np.isfinite(values).all():
            total = judge.error(values, None, best)
            if total < best:
                best, chosen = total, values
    return best, chosen
