"""Least squares of sums of products: f(z) ~ Re sum_r prod_e sum_j phi_ej(z_e) c_e[j, r], by Levenberg and Marquardt.

All factors move together, which alternating sweeps over the directions would take thousands of steps for.  Terms whose factors
have different sizes are balanced after every step, so that the damping treats directions alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxaffine.core import deadline
from maxaffine.core.arrays import Array

Factors = NDArray[np.float64] | NDArray[np.complex128]

TRIES = 8  # dampings that one step may take
SLOW = 5e-3  # of the squares, that five steps must gain
RIDGE = 1e-6  # of the points, by which squares of coefficients count
STARTS = 2  # of a new term, at random
POWERS = (0.5, 2.0)  # of terms that are there already, as more starts: e^-u gives others of its family
POWERED = 2  # of the terms
FIRST_STEPS = 12  # of each of them


@dataclass
class Work:
    """Multiplications that a search may still spend."""

    left: float

    def spend(self, amount: float) -> None:
        """Count them."""
        self.left -= amount


@dataclass(frozen=True)
class Fitted:
    """Coefficients (n_e, R) per direction, residuals (M,) and the sum of squares."""

    factors: tuple[Factors, ...]
    residual: Array
    squares: float

    @property
    def rms(self) -> float:
        """Of the residuals."""
        return float(np.sqrt(np.mean(self.residual**2)))

    @property
    def largest(self) -> float:
        """Of the residuals."""
        return float(np.abs(self.residual).max())


def balanced(factors: Sequence[Factors]) -> tuple[Factors, ...]:
    """The same terms with factors of one size each."""
    sizes = np.stack([np.sqrt((np.abs(c) ** 2).sum(axis=0)) for c in factors]) + 1e-300
    mean = np.exp(np.log(sizes).mean(axis=0))
    return tuple(c / size * mean for c, size in zip(factors, sizes, strict=True))


def partners(bases: Sequence[Array], factors: Sequence[Factors]) -> tuple[list[Factors], Factors]:
    """For every direction the product of all other factors at the points, (M, R), and the terms themselves."""
    heads: list[Factors] = [basis @ c for basis, c in zip(bases, factors, strict=True)]
    before: list[Factors] = [np.ones_like(heads[0])]
    for head in heads[:-1]:
        before.append(before[-1] * head)
    after: Factors = np.ones_like(heads[0])
    for e in range(len(heads) - 1, -1, -1):
        before[e] = before[e] * after
        after = after * heads[e]
    return before, after


def values(bases: Sequence[Array], factors: Sequence[Factors]) -> Array:
    """The sum of products at the points (M,)."""
    product = bases[0] @ factors[0]
    for basis, c in zip(bases[1:], factors[1:], strict=True):
        product = product * (basis @ c)
    return np.asarray(product.real.sum(axis=1))


def _jacobian(bases: Sequence[Array], others: Sequence[Factors]) -> Array:
    """Derivatives (M, P) by all real coefficients: direction after direction, real parts of all terms before imaginary ones."""
    blocks = []
    for basis, other in zip(bases, others, strict=True):
        real = np.concatenate([other.real, -other.imag], axis=1) if np.iscomplexobj(other) else other
        blocks.append((basis[:, :, None] * real[:, None, :]).reshape(len(basis), -1))
    return np.concatenate(blocks, axis=1)


def _packed(factors: Sequence[Factors]) -> Array:
    rows = [np.concatenate([c.real, c.imag], axis=1) if np.iscomplexobj(c) else c for c in factors]
    return np.concatenate([row.ravel() for row in rows])


def _unpacked(packed: Array, like: Sequence[Factors]) -> tuple[Factors, ...]:
    found: list[Factors] = []
    at = 0
    for c in like:
        n, R = c.shape
        width = 2 * R if np.iscomplexobj(c) else R
        row = packed[at : at + n * width].reshape(n, width)
        found.append(row[:, :R] + 1j * row[:, R:] if np.iscomplexobj(c) else row)
        at += n * width
    return tuple(found)


def fit(
    bases: Sequence[Array], f: Array, start: Sequence[Factors], work: Work, steps: int = 40, damping: float = 1e-2,
    enough: float = 0.0,
) -> Fitted:  # fmt: skip
    """The nearest minimum from a start; done where no residual is above `enough`."""
    factors, ridge, grow = balanced(start), RIDGE * len(f), 2.0
    others, terms = partners(bases, factors)
    packed = _packed(factors)
    residual = f - terms.real.sum(axis=1)
    squares, past = float(residual @ residual + ridge * packed @ packed), list[float]()
    for _ in range(steps):
        deadline.check()
        J = _jacobian(bases, others)
        work.spend(float(len(f)) * J.shape[1] ** 2 + J.shape[1] ** 3)
        A, slope = J.T @ J, J.T @ residual - ridge * packed
        diagonal = np.diag(A) + ridge
        better = None
        for _ in range(TRIES):
            try:
                move = np.linalg.solve(A + np.diag(damping * (diagonal + 1e-6 * diagonal.max()) + ridge), slope)
            except np.linalg.LinAlgError:
                move = np.full_like(slope, np.nan)
            trial = _unpacked(packed + move, factors)
            left = f - values(bases, trial)
            total = float(left @ left + ridge * (packed + move) @ (packed + move))
            if total < squares:
                better = trial, left, total
                break
            damping, grow = damping * grow, 2.0 * grow
        if better is None:
            break
        factors, (residual, squares), grow = balanced(better[0]), better[1:], 2.0
        packed, damping = _packed(factors), max(damping / 5.0, 1e-12)
        others, _ = partners(bases, factors)
        past.append(squares)
        if np.abs(residual).max() <= enough or (len(past) > 6 and past[-1] > (1.0 - 6 * SLOW) * past[-6]):
            break
    return Fitted(factors, residual, squares)


def one_more(
    bases: Sequence[Array], fitted: Fitted | None, f: Array, turning: bool, work: Work, rng: np.random.Generator
) -> tuple[Factors, ...]:
    """The factors with a term for what is left, complex where `turning`: the best of a few random starts."""
    left = f if fitted is None else fitted.residual
    best: Fitted | None = None
    for start in [*(_random(bases, turning, rng) for _ in range(STARTS)), *_powers(bases, fitted)]:
        found = fit(bases, left, start, work, FIRST_STEPS, 1.0)
        best = found if best is None or found.squares < best.squares else best
    assert best is not None
    if fitted is None:
        return best.factors
    joined: list[Factors] = []
    for old, new in zip(fitted.factors, best.factors, strict=True):
        joined.append(np.concatenate([old, new], axis=1))
    return tuple(joined)


def _random(bases: Sequence[Array], turning: bool, rng: np.random.Generator) -> list[Factors]:
    """A term of factors near 1, smoother parts the larger."""
    start: list[Factors] = []
    for basis in bases:
        falling = 0.3 / np.arange(1, basis.shape[1] + 1)[:, None]
        c: Factors = rng.normal(size=falling.shape) * falling
        c[0] = 1.0
        start.append(c + 1j * rng.normal(size=falling.shape) * falling if turning else c)
    return start


def _powers(bases: Sequence[Array], fitted: Fitted | None) -> Iterator[list[Factors]]:
    """Powers of the largest terms and of the last one, factor by factor, where factors keep their sign or turn."""
    if fitted is None:
        return
    sizes = np.prod([np.abs(c).max(axis=0) for c in fitted.factors], axis=0)
    inverses = [np.linalg.pinv(basis) for basis in bases]
    for r in dict.fromkeys([*np.argsort(-sizes)[: POWERED - 1].tolist(), len(sizes) - 1]):
        heads = [basis @ c[:, r : r + 1] for basis, c in zip(bases, fitted.factors, strict=True)]
        heads = [head * np.sign(head.real.sum()) for head in heads]
        if not np.iscomplexobj(heads[0]) and any(head.min() <= 0.0 for head in heads):
            continue
        for power in POWERS:
            yield [inverse @ (head / np.abs(head).max()) ** power for inverse, head in zip(inverses, heads, strict=True)]


def nearest(looked: Callable[[Array], tuple[Array, Callable[[], Array]]], start: Array, looks: int) -> Array:
    """Where a sum of squares is least near a start: Levenberg and Marquardt for residuals of any kind, with their slopes."""
    best, damping, grow = start, 1e-3, 2.0
    residual, slopes = looked(best)
    J, squares = slopes(), float(residual @ residual)
    size = np.sqrt((J * J).sum(axis=0))
    for _ in range(looks):
        scale = np.where(size > 0.0, size, 1.0)
        rows = np.concatenate([J / scale, math.sqrt(damping) * np.eye(len(best))])
        move = np.linalg.lstsq(rows, -np.concatenate([residual, np.zeros(len(best))]), rcond=None)[0]
        trial = best + move / scale
        left, after = looked(trial)
        total = float(left @ left)
        foreseen = squares - float(((J @ (move / scale) + residual) ** 2).sum())
        if total < squares:
            gain, enough = (squares - total) / max(foreseen, 1e-300), squares - total <= 1e-8 * squares
            best, residual, squares, J = trial, left, total, after()
            if enough:
                break
            size = np.maximum(size, np.sqrt((J * J).sum(axis=0)))
            damping, grow = damping * max(1.0 / 3.0, 1.0 - (2.0 * gain - 1.0) ** 3), 2.0
        elif foreseen <= 1e-8 * squares:
            break
        else:
            damping, grow = damping * grow, 2.0 * grow
    return best
