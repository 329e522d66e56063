"""Draws: a layer that is final, fresh points, and what they say of it; another layer where it does not pass.

proofs/statistical.py has the theorem.  Points come from a stream of their own, which no search and no fit ever sees, so what is
drawn is independent of the layer; the next layer gets new points and a share of delta of its own.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from maxaffine.core.arrays import Array
from maxaffine.core.deadline import OutOfCalls
from maxaffine.core.errors import BadInput, Refused
from maxaffine.heads.found import Found, search_worst
from maxaffine.proofs.certificate import Certificate
from maxaffine.proofs.observe import Observed
from maxaffine.proofs.routes import most_said
from maxaffine.proofs.statistical import (
    LARGEST_SHARE,
    Drawn,
    Statistical,
    integral_limit,
    integral_points,
    share_of,
)
from maxaffine.request import Request
from maxaffine.runtime import chooser
from maxaffine.runtime.collapse import SHARE
from maxaffine.target.calls import Calls

STREAM = 0x647261776E  # keeps the points of draws apart from all others of a seed
BLOCK = 4096  # points at a time
MOST = 50_000_000  # points of a draw
ASKED_AGAIN = 3  # points
STILL = 0.01  # of the error: what two calls may differ by
AIMS = (1.0, 0.5, 0.1)  # of the error, for the layers of one attempt after the other


def with_draw(request: Request, found: Found, again: Callable[[Request], Found]) -> Found:
    """The layer with a statistical certificate, where one was asked for and nothing is proved; Refused where no layer passes."""
    asked = request.statistical
    if asked is None or found.certificate.kind == "proved":
        return found
    calls = request.target.calls
    if isinstance(calls, Calls):
        calls.release()
    off = _still(request)
    seen = math.inf
    for attempt, aim in enumerate(AIMS):
        if attempt:
            try:
                found = again(replace(request, error=aim * request.error))
            except (Refused, OutOfCalls):
                break
        looked = found.observed or search_worst(request, found)
        if looked.error > request.error:
            raise Refused(
                f'`require` (="statistical"): {found.certificate.theorem}. Allow more calls, or ask for a larger error.',
                nearest_error=looked.error,
            )
        drawn, worst = _drawn(request, asked, found, attempt)
        seen = worst.error
        if drawn is not None:
            larger = worst if worst.error > looked.error and math.isinf(request.norm) else looked
            return replace(found, certificate=_certificate(drawn, request.dtype, off), observed=larger)
    raise Refused(
        f'`require` (="statistical"): a draw found an error of {seen:.3g} where {request.error:g} is asked for, and no '
        "layer that was found after it passed its own; ask for a larger error, or declare more about the function.",
        nearest_error=seen,
    )


def _certificate(drawn: Drawn, dtype: str, off: float) -> Certificate:
    made = Certificate.statistical(drawn, dtype)
    if not off:
        return made
    seen = f"seen not to hold to the last digit: two calls at the same {ASKED_AGAIN} points were {off:.2g} apart"
    return replace(made, assumptions=(*made.assumptions, seen))


def _still(request: Request) -> float:
    """How far a function is from what it says when it is asked again; Refused where that matters to a draw."""
    off = request.target.restless(request.target.box.sample(ASKED_AGAIN, np.random.default_rng([request.seed, STREAM, 1 << 20])))
    if off > STILL * request.error:
        raise Refused(
            f"the function says something else when it is asked again: two calls at the same points are {off:.3g} apart, and a "
            "draw is about functions that say the same. Fix its seed, or average its values."
        )
    return off


def _drawn(request: Request, asked: Statistical, found: Found, attempt: int) -> tuple[Drawn | None, Observed]:
    """What a draw says, None where the layer does not pass it; and the largest error at its points."""
    target, calls, p = request.target, request.target.calls, request.norm
    delta, before = asked.delta_of(attempt), calls.count if isinstance(calls, Calls) else 0
    largest = 0.0 if math.isinf(p) else _largest(asked, found)
    n = _points(request, asked, attempt, largest)
    rng = np.random.default_rng([request.seed, STREAM, attempt])
    worst, at, powers = -1.0, tuple[float, ...](), list[Array]()
    for start in range(0, n, BLOCK):
        x = target.box.sample(min(BLOCK, n - start), rng)
        exact = target.values(x)
        _within(asked, exact, x)
        away = np.abs(chooser.evaluate(found.layer, x, None, SHARE * request.error).astype(np.float64) - exact)
        errors = away.reshape(len(x), -1).max(axis=1) * (1 + 2.0**-50)
        top = int(np.where(np.isfinite(errors), errors, np.inf).argmax())
        if errors[top] > worst or not np.isfinite(errors[top]):
            worst, at = float(errors[top]), tuple(float(v) for v in x[top])
        request.progress("points drawn", start + len(x), n)
        if math.isfinite(p):
            powers.append((away**p).reshape(len(x), -1).sum(axis=1))
        elif not worst <= request.error:
            break
    seen = Observed(worst, at, n, request.seed)
    share: float | None = share_of(n, delta)
    integral: float | None = None
    if math.isfinite(p):
        share, mean = None, integral_limit(np.concatenate(powers), largest, delta)
        integral = float((target.box.volume * mean) ** (1.0 / p)) * (1 + 1e-12)
    if not (worst if integral is None else integral) <= request.error:
        return None, replace(seen, error=worst if integral is None else integral)
    count = calls.count if isinstance(calls, Calls) else n
    drawn = Drawn(worst, n, share, asked.delta, request.seed, attempt, before, count - before, p, integral)
    return drawn, seen


def _points(request: Request, asked: Statistical, attempt: int, largest: float) -> int:
    """How many points are drawn: for the share that is asked for, or as many as are left."""
    n, calls, what = asked.points(attempt), request.target.calls, f"a share of {asked.share:g}"
    if math.isfinite(request.norm):
        goal = request.error**request.norm / request.target.box.volume
        n, what = max(n, integral_points(goal, largest, asked.delta_of(attempt))), f"an L_{request.norm:g} error so small"
    left = calls.left if isinstance(calls, Calls) else None
    if left is not None and left < n:
        if left < 2 or (math.isinf(request.norm) and share_of(left, asked.delta_of(attempt)) > LARGEST_SHARE):
            raise Refused(f"`max_calls` leaves {left:,} points to draw, and {what} needs {n:,}; allow more calls.")
        return left
    if n > MOST:
        raise Refused(f"{what} needs {n:.3g} points to draw; ask for less, or set `max_calls`.")
    return n


def _largest(asked: Statistical, found: Found) -> float:
    """R^p: |layer - f| is at most the largest value of a token plus the end of the declared range."""
    if asked.range is None:
        raise BadInput(
            "a draw says something of an L_p error where a range of the function is declared, such as "
            "require=ma.Statistical(range=(0, 1))."
        )
    most, outputs = most_said(found.layer), found.layer.d_out * found.layer.n_out
    return float(outputs * (max(abs(end) for end in asked.range) + most * (1 + 1e-6)) ** found.certificate.norm)


def _within(asked: Statistical, values: Array, x: Array) -> None:
    """Refuse a declared range that a value contradicts."""
    if asked.range is None:
        return
    rows = values.reshape(len(x), -1)
    bad = np.flatnonzero(((rows < asked.range[0]) | (rows > asked.range[1])).any(axis=1))
    if len(bad):
        where, value = ", ".join(f"{v:.6g}" for v in x[bad[0]]), rows[bad[0]]
        raise BadInput(f"`range` (={asked.range}) is contradicted: the function is {value} at ({where}). Declare a wider one.")
