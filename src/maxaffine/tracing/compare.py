"""A function beside the expression that was read from it: both at random points, on faces and at corners of the box."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxaffine.core.arrays import Array
from maxaffine.core.errors import BadInput
from maxaffine.core.intervals import Interval
from maxaffine.expression.expression import Expression
from maxaffine.target.box import Box

POINTS = 4_096
ROOM = 8.0  # widths of an enclosure that a function's own rounding may be off by
SINGLE = 2.0**29  # float32's rounding in that of float64
COMPANIES = (slice(-1, None), slice(-130, -66), slice(-1, -65, -1))  # of the points: one, some, some the other way round
SLACK = 2.0**-42  # of the value, where both computed something in another order,
LAST = 2.0**-50  # and of the largest value


class Disagreement(BadInput):
    """A function and the expression read from it are not the same."""


def points(box: Box) -> Array:
    """Random points, a quarter of them on faces, and the corners of boxes of few variables."""
    rng = np.random.default_rng(4_096)
    x = box.sample(POINTS, rng)
    faces = POINTS // 4
    pushed = rng.random((faces, box.dimension)) < max(1.0 / box.dimension, 0.2)
    x[:faces] = np.where(pushed, np.where(rng.random(pushed.shape) < 0.5, box.low, box.high), x[:faces])
    if box.dimension <= 8:
        corners = np.array(list(itertools.product(*zip(box.low, box.high, strict=True))))
        x[: len(corners)] = corners
    x[-1] = box.centre
    return x


def compared(evaluate: Callable[[Array], Any], expression: Expression, box: Box, name: str) -> float:
    """The largest difference, relative to the largest value; Disagreement with the worst point where it is beyond rounding.

    `evaluate` gives the values (B, ..) at points (B, D) as the function returns them.  Some points are asked for again, alone, in
    batches of another length and in the opposite order: what depends on the company of a point is no function of it.
    """
    x = points(box)
    found = np.asarray(evaluate(x))
    single = found.dtype.kind == "f" and found.dtype.itemsize < 8
    if single:
        x = x.astype(np.float32).astype(np.float64)
        found = np.asarray(evaluate(x))
    values = found.astype(np.float64).reshape(len(x), -1)
    with np.errstate(all="ignore"):
        own = expression.evaluate(x)
        enclosed = expression.enclose(Interval(x, x))
        known = enclosed.finite & np.isfinite(own)
        width = np.where(known, enclosed.hi - enclosed.lo, 0.0)
        size = float(np.max(np.abs(own), initial=0.0, where=known))
        noise = _noise(own, enclosed, known)
        allowed = (ROOM * (width + noise * np.abs(own)) + SLACK * np.abs(own) + LAST * size) * (SINGLE if single else 1.0)
        for rows in (slice(None), *COMPANIES):
            if rows != slice(None):
                values[rows] = np.asarray(evaluate(x[rows])).astype(np.float64).reshape(values[rows].shape)
            away = np.minimum(_outside(values, enclosed), np.abs(values - own))
            bad = known & ~(away <= allowed)
            if bad.any():
                worst = int(np.argmax(np.where(bad, np.nan_to_num(away - allowed, nan=np.inf), -1.0)))
                row, k = np.unravel_index(worst, bad.shape)
                raise _disagreement(name, expression, box, x[row], float(values[row, k]), float(own[row, k]))
    gap = np.where(known, np.abs(values - own), 0.0)
    return float(gap.max(initial=0.0)) / size if size else 0.0


def _outside(values: Array, enclosed: Interval) -> Array:
    return np.maximum(np.maximum(enclosed.lo - values, values - enclosed.hi), 0.0)


def _noise(own: Array, enclosed: Interval, known: NDArray[np.bool_]) -> float:
    """How far NumPy and SciPy are off the enclosures of the expression, relative: what they compute is not known any better."""
    off = np.where(known, _outside(own, enclosed), 0.0) / np.maximum(np.abs(own), 1e-300)
    return float(np.max(off, initial=0.0, where=known))


def _disagreement(name: str, expression: Expression, box: Box, point: Array, value: float, own: float) -> Disagreement:
    at = ", ".join(f"{n}={v!r}" for n, v in zip(box.names[:8], point.tolist(), strict=False))
    return Disagreement(
        f"the function {name} and the expression that was read from it differ: at {at} the function gives "
        f"{value:.12g}, and `{_shown(expression.text)}` is {own:.12g}. A target is a function of its point "
        "alone, in real numbers; trace=False compiles the function as a black box."
    )


def _shown(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
