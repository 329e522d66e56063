"""Errors relative to |f(x)|, pointwise: |layer(x) - f(x)| <= bound |f(x)| at every x of a box on which f has no zero.

Where |f| >= least > 0, an absolute bound b is one of (b / least) |f(x)|, for any head.  Products know more
(heads/separated/relative.py).  The lower bound is found by bisection and stored a little smaller, for the checker to show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput, Refused, rounded_up
from maxaffine.core.rounding import dtype_of
from maxaffine.core.suprema import maximise
from maxaffine.proofs.certificate import Certificate
from maxaffine.target.target import Target

BUDGET = 20_000  # pieces of the box
CLOSE = 0.01  # by which least may be below a value that |f| takes, as a part of it
KEPT = 0.995  # of the lower bound that is found is stored
SMALLEST = 1e-290  # of the numbers that are divided by
POINTS = 4096
ABOVE = "this absolute bound divided by a lower bound of |f| on the box"


@dataclass(frozen=True)
class Pointwise:
    """What was asked for: |layer(x) - f(x)| <= error |f(x)|, on a box where |f| >= least."""

    error: float
    least: float

    @property
    def absolute(self) -> float:
        """The absolute error that is small enough everywhere."""
        return self.error * self.least * (1.0 - 2.0**-50)


def is_pointwise(relative: Any, target: Target, norm: float, gap: float | None) -> bool:
    """Whether `relative` asks for such errors; refused where nothing of the kind is proved."""
    if not isinstance(relative, str):
        return False
    if relative != "pointwise":
        raise BadInput(f'`relative` (={relative!r}) must be True, False or "pointwise".')
    if target.entries is not None or target.expression is None:
        what = "a table" if target.entries is not None else "a callable, which nothing encloses"
        raise Refused(f'`relative` (="pointwise") is proved for expressions, and the target is {what}; use relative=True.')
    if math.isfinite(norm):
        raise Refused(f'`relative` (="pointwise") speaks of every x, `norm` (={norm:g}) of an integral; leave one of them out.')
    if gap is not None:
        raise Refused('`relative` (="pointwise") speaks of every x, and `gap` leaves some out; leave one of them out.')
    return True


def pointwise_of(error: float, target: Target, dtype: str) -> Pointwise:
    """The error with a lower bound of |f|; refused where the dtype cannot hold it, or f may be 0."""
    unit = dtype_of(dtype).unit
    if error < 4.0 * unit:
        least = rounded_up(8.0 * unit)
        raise Refused(
            f"`error` (={error:g}) relative to |f(x)| is below what {dtype} can represent, which rounds numbers by {unit:.2g} of "
            f"their size. Ask for at least {least:g}.",
            remedy={"error": least},
        )
    return Pointwise(error, least_of(target))


def least_of(target: Target) -> float:
    """A positive number that no |f_k(x)| is below; Refused where f has a zero on the box, or may have one."""
    box = target.box
    _doubt_sign(target)

    def below(low: Array, high: Array) -> Array:
        with np.errstate(all="ignore"):
            found = target.enclose(low, high).mignitude
        return -np.nan_to_num(found.reshape(len(low), -1), nan=0.0)

    def seen(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return -np.asarray(target.enclose(x, x).magnitude.reshape(len(x), -1))

    near = _lowest(target)
    found = below(box.low[None], box.high[None])[0]
    if np.any(found > (1.0 - CLOSE) * seen(near).max(axis=0)):  # not at once
        found = maximise(box.low, box.high, below, seen, budget=BUDGET, slack=CLOSE).upper
    least = float(-found.max()) * KEPT
    if not least > SMALLEST:
        at = near[int(seen(near).max(axis=1).argmax())]
        raise Refused(
            f'`relative` (="pointwise") needs a target without a zero on its box, and |f| is not shown to stay above one: it is '
            f"{float(-seen(at[None]).max()):.3g} at {_place(target, at)}. Shrink the box, or use relative=True."
        )
    return least


def _doubt_sign(target: Target) -> None:
    """Refused where an output has values of both signs, or is seen to be 0."""
    x = np.concatenate([_lowest(target), target.box.sample(POINTS, np.random.default_rng(5))])
    with np.errstate(all="ignore"):
        found = target.enclose(x, x)
    low, high = found.lo.reshape(len(x), -1), found.hi.reshape(len(x), -1)
    for k in range(low.shape[1]):
        up, down, zero = low[:, k] > 0.0, high[:, k] < 0.0, (low[:, k] == 0.0) & (high[:, k] == 0.0)
        if zero.any():
            what = f"f is 0 at {_place(target, x[zero.argmax()])}"
        elif up.any() and down.any():
            what = f"f changes its sign between {_place(target, x[up.argmax()])} and {_place(target, x[down.argmax()])}"
        else:
            continue
        raise Refused(f'`relative` (="pointwise") needs a target without a zero on its box: {what}. Use relative=True there.')


def _lowest(target: Target) -> Array:
    """The centre, and points where |f_k| is small: coordinate by coordinate to the end or the middle where it is smallest."""
    box, found = target.box, [target.box.centre]
    for k in range(target.d_out * target.n_out if target.d_out * target.n_out <= 8 else 0):
        x = box.centre.copy()
        for i in range(box.dimension):
            trial = np.repeat(x[None], 3, axis=0)
            trial[1, i], trial[2, i] = box.low[i], box.high[i]
            with np.errstate(all="ignore"):
                size = np.abs(target.values(trial).reshape(3, -1)[:, k])
            x = trial[int(np.nan_to_num(size, nan=np.inf).argmin())]
        found.append(x)
    return np.array(found)


def _place(target: Target, x: Array) -> str:
    shown = [f"{name} = {v:.6g}" for name, v in zip(target.box.names[:6], x, strict=False)]
    return ", ".join(shown) + (", ..." if len(x) > 6 else "")


def measured(certificate: Certificate, asked: Pointwise | None) -> Certificate:
    """The certificate as it was asked for: relative to |f(x)| where that is so, whatever it is now."""
    if asked is None or certificate.least is not None or certificate.bound is None:
        return certificate
    if not (math.isinf(certificate.norm) and certificate.scope.every_x):
        raise Refused("an error relative to |f(x)| is proved where every x of the box counts, and here some are left out.")
    parts = {name: part / asked.least for name, part in certificate.parts.items()}
    told = {
        name: getattr(certificate, name) for name in ("argument", "dtype", "assumptions", "runtime", "scope", "details", "blends")
    }
    found = Certificate.proved(certificate.norm, parts, theorem=f"{certificate.theorem}; {ABOVE}", **told)
    return replace(found, least=asked.least)


def per_size(certificate: Certificate) -> float:
    """What an absolute error counts for in a bound: 1, or 1 / least where it is relative to |f(x)|."""
    return 1.0 if certificate.least is None else (1.0 + 2.0**-50) / certificate.least
