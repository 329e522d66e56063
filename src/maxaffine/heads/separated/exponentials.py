"""Sums of exponentials for functions of one variable on an interval, found by ESPRIT and sharpened towards the sup norm.

    g(u) ~ c_0 + sum_k Re(c_k e^{l_k (u - S_k)})

Exponents come from equidistant samples: the leading singular vectors of their Hankel matrix are shifted into each other by a
small matrix whose eigenvalues are e^{l_k h}.  On intervals that span decades real exponents are spread over the decades instead.
Both are refined by least squares in the exponents, the coefficients eliminated, and points reweighted by their error (Lawson).
The proof does not ask where a sum comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import deadline
from maxaffine.core.arrays import Array
from maxaffine.heads.separated.least_squares import nearest

Scalar = Callable[[Array], Array]
Exponents = NDArray[np.complex128]
Look = tuple[Array, Callable[[], Array]]  # residuals, and their slopes where those are asked for

SAMPLES = 401  # equidistant ones, for the exponents
POINTS = 240  # Chebyshev points, for the coefficients
LAWSON = 12
REFINED = 300.0  # times the error wanted, from which exponents are worth refining
FASTEST = (4.0, 40.0, 400.0, 4000.0)  # of the decays over the interval, in the logarithm
PATIENCE = 10  # exponents from which on it is asked whether more will do
LOOKS = 40  # at residuals, of one descent
MOST = 16


@dataclass(frozen=True)
class Fit:
    """Exponents (a conjugate pair once), coefficients at the ends where terms are largest, and the error seen."""

    constant: float
    coefficients: Exponents
    exponents: Exponents
    error: float

    @property
    def columns(self) -> int:
        """Real numbers per key that the terms take: one, or two where a term is complex."""
        return int(self.constant != 0.0) + sum(2 if one.imag else 1 for one in self.exponents)


class Sampled:
    """A function on an interval, as its fits see it."""

    def __init__(self, g: Scalar, low: float, high: float) -> None:
        self.low, self.high, self.closest = low, high, np.inf  # the smallest error of a fit so far
        angle = np.pi * (2 * np.arange(POINTS) + 1) / (2 * POINTS)
        self.u = low + (high - low) * (1.0 - np.cos(angle)) / 2.0
        fine = np.linspace(0.0, np.pi, 8 * POINTS + 1)
        self.check = low + (high - low) * (1.0 - np.cos(fine)) / 2.0
        if low > 0 and high > 20 * low:  # decades
            self.u = np.sort(np.concatenate([self.u, np.geomspace(low, high, POINTS)]))
            self.check = np.sort(np.concatenate([self.check, np.geomspace(low, high, 4 * POINTS)]))
        self.f, self.f_check = g(self.u), g(self.check)
        self.even = g(np.linspace(low, high, SAMPLES))
        self.finite = bool(np.isfinite(self.f).all() and np.isfinite(self.f_check).all() and np.isfinite(self.even).all())
        self.size = float(np.abs(self.f_check).max()) if self.finite else np.inf

    def basis(self, exponents: Exponents, u: Array) -> Array:
        """The constant and the terms, each scaled to be at most 1: (M, 1 + K or more)."""
        columns = [np.ones(len(u))]
        for one in exponents:
            away = u - (self.high if one.real > 0 else self.low)
            wave = np.exp(one * away)
            columns += [wave.real] if one.imag == 0 else [wave.real, -wave.imag]
        return np.stack(columns, axis=1)

    def fit(self, exponents: Exponents) -> Fit:
        """Coefficients for given exponents, reweighted towards the sup norm."""
        B, C = self.basis(exponents, self.u), self.basis(exponents, self.check)
        weight, best, chosen = np.ones(len(self.u)), np.inf, np.zeros(B.shape[1])
        for _ in range(LAWSON):
            root = np.sqrt(weight / weight.mean())
            c = np.linalg.lstsq(B * root[:, None], self.f * root, rcond=1e-13)[0]
            error = float(np.abs(C @ c - self.f_check).max())
            if error < best:
                best, chosen = error, c
            away = np.abs(B @ c - self.f)
            weight = weight * (away / max(float(away.max()), 1e-300) + 1e-3)
            weight /= weight.max()
        return self.named(exponents, chosen, best)

    def named(self, exponents: Exponents, c: Array, error: float) -> Fit:
        """A fit from the coefficients of the basis."""
        coefficients, at = [], 1
        for one in exponents:
            coefficients.append(complex(c[at], 0.0) if one.imag == 0 else complex(c[at], c[at + 1]))
            at += 1 if one.imag == 0 else 2
        return Fit(float(c[0]), np.array(coefficients, dtype=complex), exponents, error)

    def refined(self, start: Fit) -> Fit:
        """Exponents moved as well: variable projection, from the weights that the start's errors suggest."""
        width = self.high - self.low
        real = np.array([one.imag == 0 for one in start.exponents])
        root = np.ones(len(self.u))

        def unpacked(p: Array) -> Exponents:
            out = p[: len(real)].astype(complex)
            out[~real] += 1j * p[len(real) :]
            return np.asarray(out / width, dtype=complex)

        def looked(p: Array) -> Look:
            """Residuals with the best coefficients, and Kaufman's slopes: the terms' own less what coefficients make up for."""
            exponents = unpacked(p)
            B = self.basis(exponents, self.u) * root[:, None]
            Q, R = np.linalg.qr(B)
            c = np.linalg.lstsq(R, Q.T @ (self.f * root), rcond=1e-12)[0]

            def slopes() -> Array:
                own, turning, at = [], [], 1
                for one in exponents:
                    away = self.u - (self.high if one.real > 0 else self.low)
                    size = complex(c[at]) if one.imag == 0 else complex(c[at], c[at + 1])
                    wave = size * np.exp(one * away) * away / width
                    own.append(wave.real)
                    if one.imag:
                        turning.append(-wave.imag)
                    at += 1 if one.imag == 0 else 2
                D = np.stack([*own, *turning], axis=1) * root[:, None]
                return np.asarray(D - Q @ (Q.T @ D))

            return np.asarray(B @ c - self.f * root), slopes

        best, now = start, start
        for _ in range(3):
            away = np.abs(self.basis(now.exponents, self.u) @ self._vector(now) - self.f)
            root = np.sqrt(away / max(float(away.max()), 1e-300) + 0.05)
            packed = np.concatenate([(now.exponents * width).real, (now.exponents * width).imag[~real]])
            try:
                now = self.fit(unpacked(nearest(looked, packed, LOOKS)))
            except np.linalg.LinAlgError:
                break
            if now.error < 0.98 * best.error:
                best = now
            else:
                break
        return best

    def _vector(self, fit: Fit) -> Array:
        parts = [np.array([fit.constant])]
        for c, one in zip(fit.coefficients, fit.exponents, strict=True):
            parts.append(np.array([c.real] if one.imag == 0 else [c.real, c.imag]))
        return np.concatenate(parts)

    def esprit(self, count: int) -> Exponents | None:
        """`count` exponents, conjugates counted twice, from equidistant samples."""
        U = self._singular
        if count >= U.shape[1]:
            return None
        shift = np.linalg.lstsq(U[:-1, :count], U[1:, :count], rcond=None)[0]
        step = (self.high - self.low) / (SAMPLES - 1)
        found = []
        for value in np.linalg.eigvals(shift):
            if value.imag < 0 or abs(value) < 1e-12:
                continue
            one = np.log(complex(value)) / step
            if value.imag == 0:
                one = complex(np.log(abs(value)) / step, 0.0 if value.real > 0 else np.pi / step)
            found.append(one)
        kept = [one for one in found if abs(one) * (self.high - self.low) > 1e-7]  # the constant is there in any case
        return np.array(kept, dtype=complex) if kept else None

    @property
    def _singular(self) -> Array:
        if not hasattr(self, "_U"):
            half = SAMPLES // 2
            rows = np.lib.stride_tricks.sliding_window_view(self.even - self.even.mean(), half)
            self._U = np.linalg.svd(rows.T, full_matrices=False)[0]
        return self._U

    def spread_out(self, count: int) -> Fit:
        """Decaying exponents spread evenly over decades, as many decades as fit best."""
        width = self.high - self.low
        rows = [np.array(-np.geomspace(0.3, fast, count) / width, dtype=complex) for fast in FASTEST]
        return min((self.fit(row) for row in rows), key=lambda fit: fit.error)


def fits(sampled: Sampled, error: float) -> Iterator[Fit]:
    """Sums that are seen to be within `error`: the shortest ones first found, of either kind."""
    if not sampled.finite:
        return
    least: list[float] = []  # errors by count
    for count in range(1, 2 * MOST + 1):
        deadline.check()
        if _hopeless(least, error):
            return
        tried = []
        exponents = sampled.esprit(count)
        if exponents is not None:
            tried.append(sampled.fit(exponents))
        if 1 < count <= MOST:
            tried.append(sampled.spread_out(count))
        least.append(min([one.error for one in tried] + least[-1:], default=np.inf))
        for one in tried:
            better = one if one.error <= error or one.error > REFINED * error else sampled.refined(one)
            sampled.closest = min(sampled.closest, better.error)
            if better.error <= error:
                yield trimmed(sampled, better, error)


def _hopeless(least: list[float], error: float) -> bool:
    """Whether errors that fall as they fell lately would not come near the one wanted."""
    count = len(least)
    if count < PATIENCE or not 0.0 < least[-1] < np.inf or least[-1] <= REFINED * error:
        return False
    half = count // 2
    rate = np.log(least[half - 1] / least[-1]) / (count - half)
    return bool(np.log(least[-1] / (REFINED * error)) > 1.5 * rate * (2 * MOST - count))


def trimmed(sampled: Sampled, fit: Fit, error: float) -> Fit:
    """Without the constant where it is not needed."""
    B, C = sampled.basis(fit.exponents, sampled.u)[:, 1:], sampled.basis(fit.exponents, sampled.check)[:, 1:]
    c = np.linalg.lstsq(B, sampled.f, rcond=1e-13)[0]
    seen = float(np.abs(C @ c - sampled.f_check).max())
    if seen > error:
        return fit
    plain = sampled.named(fit.exponents, np.concatenate([[0.0], c]), seen)
    return replace(plain, constant=0.0)
