"""Breaks of a callable of one variable, seen by zooming in on its third differences; never proved.

At step h a third difference behaves like h^3 where the function is smooth, h^2 at a kink of the slope's slope, h at a kink, a
power below 1 at a cusp and h^0 at a jump: the exponent over the last zooms says which.  A jump is then bisected to neighbouring
numbers, a kink found where polynomials fitted on its two sides meet.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from maxaffine.heads.axis.fit import Curve
from maxaffine.heads.axis.plan import Link, Problem, axis_row
from maxaffine.target.target import Target

Array = NDArray[np.float64]

WINDOWS = 96
STENCIL = 25
ZOOMS = 15
ROUNDS = 3
MOST_SEEN = 60


def callable_problem(target: Target, error: float, declared: tuple[float, ...] | None) -> Problem:
    """The problem of a callable of one variable, with breaks declared or seen."""
    low, high = target.box.low, target.box.high
    direction = (Fraction(1),)
    centre = (low + high) / 2.0
    row, _ = axis_row(direction, low, high, centre)
    scale = float(row[0])
    a, b = float((low[0] - centre[0]) * scale), float((high[0] - centre[0]) * scale)

    def f(z: Array) -> Array:
        flat = np.asarray(z, dtype=np.float64)
        x = np.clip(centre[0] + flat.ravel() / scale, low[0], high[0])
        return np.asarray(target.values(x[:, None])[:, 0, 0]).reshape(flat.shape)

    if declared is not None:
        links = [_judge(f, (x - float(centre[0])) * scale, b - a) for x in declared]
    else:
        links = seen_breaks(f, a, b, error)
    pieces, start = [], a
    ulp = float(np.spacing(max(abs(a), abs(b))))
    for link in links:
        off = 16.0 * ulp if link.kind == "jump" else 0.0
        pieces.append((start, link.at - off, f))
        start = link.at + off
    pieces.append((start, b, f))
    return Problem(row, centre, direction, (Fraction(0),), a, b, f, tuple(pieces), tuple(links))


def seen_breaks(f: Curve, low: float, high: float, error: float) -> list[Link]:
    """Kinks, jumps and cusps larger than the error can tell, from left to right."""
    size = float(np.abs(f(np.linspace(low, high, 513))).max())
    found: list[Link] = []
    for _ in range(ROUNDS):
        edges = [low, *(link.at for link in found), high]
        new: list[Link] = []
        for a, b in pairwise(edges):
            margin = 1e-7 * (high - low)
            if b - a > 100 * margin:
                new += _in_piece(f, a + (margin if a > low else 0.0), b - (margin if b < high else 0.0), high - low, size, error)
        if not new or len(found) + len(new) > MOST_SEEN:
            break
        found = sorted([*found, *new], key=lambda link: link.at)
    return found


def _in_piece(f: Curve, low: float, high: float, width: float, size: float, error: float) -> list[Link]:
    """Breaks of different windows of a piece."""
    edges = np.linspace(low, high, WINDOWS + 1)
    step = (high - low) / WINDOWS
    a, b = np.maximum(edges[:-1] - 0.2 * step, low), np.minimum(edges[1:] + 0.2 * step, high)
    # A callable's own rounding may switch from formula to formula: what is far below the error is none of a break.
    noise = max(64.0 * np.finfo(np.float64).eps * max(size, 1e-300), 1e-5 * error)
    steps, sizes = [], []
    for _ in range(ZOOMS):
        z = a[:, None] + (b - a)[:, None] * np.linspace(0.0, 1.0, STENCIL)
        third = np.abs(np.diff(f(z), 3, axis=1))
        third = np.where(np.isfinite(third), third, 0.0)
        best = third.argmax(axis=1)
        h = (b - a) / (STENCIL - 1)
        steps.append(h)
        sizes.append(third.max(axis=1))
        a, b = np.maximum(a + h * (best - 1), low), np.minimum(a + h * (best + 4), high)
    log_h, log_d = np.log(np.stack(steps)), np.log(np.maximum(np.stack(sizes), 1e-300))
    found: list[Link] = []
    for i in range(WINDOWS):
        loud = np.flatnonzero(log_d[:, i] > np.log(noise))
        if len(loud) < 4 or sizes[0][i] < 0.02 * error:
            continue
        last = loud[-4:]
        power = float(np.polyfit(log_h[last, i], log_d[last, i], 1)[0])
        at = float((a[i] + b[i]) / 2.0)
        near_end = min(at - low, high - at) < 1e-6 * width
        if power > 2.4 or near_end or any(abs(at - link.at) < 1e-5 * width for link in found):
            continue
        link = _judge(f, at, width, power)
        if _matters(f, link, width, error):
            found.append(link)
    return found


def _matters(f: Curve, link: Link, width: float, error: float) -> bool:
    """Whether a break is larger than the error can tell."""
    if link.kind == "jump":
        beside = f(link.at + width * np.array([-1e-9, 1e-9]))
        return bool(abs(beside[1] - beside[0]) > 0.05 * error)
    return True


def _judge(f: Curve, at: float, width: float, power: float | None = None) -> Link:
    """What kind of break this is, and where exactly."""
    if power is None:
        power = _power(f, at, width)
    if power < 0.15:
        return Link(_bisected(f, at, 1e-7 * width), "jump")
    if power < 0.8:
        return Link(at, "singular")
    exact, kink = _meeting(f, at, width)
    return Link(exact, "seen", kink)


def _power(f: Curve, at: float, width: float) -> float:
    """The exponent of third differences across a declared break."""
    steps = width * 10.0 ** -np.array([3.0, 3.5, 4.0, 4.5, 5.0, 5.5])
    z = at + np.multiply.outer(steps, np.array([-1.5, -0.5, 0.5, 1.5]))
    third = np.abs(np.diff(f(z), 3, axis=1))[:, 0]
    if not (third > 0).all():
        return 3.0
    return float(np.polyfit(np.log(steps), np.log(third), 1)[0])


def _bisected(f: Curve, at: float, reach: float) -> float:
    """A jump between neighbouring numbers."""
    a, b = at - reach, at + reach
    fa, fb = float(f(np.array([a]))[0]), float(f(np.array([b]))[0])
    for _ in range(200):
        middle = a + (b - a) / 2.0
        if not a < middle < b:
            break
        here = float(f(np.array([middle]))[0])
        a, b = (middle, b) if abs(here - fa) <= abs(here - fb) else (a, middle)
    return b


def _meeting(f: Curve, at: float, width: float) -> tuple[float, float]:
    """Where the two sides meet, by polynomials of degree 6 fitted close by; and the jump of the slope."""
    best: tuple[float, float, float] | None = None
    for h in (1e-2, 1e-3, 1e-4):
        reach = h * width
        nodes = 0.5 + 0.5 * np.cos(np.pi * (np.arange(14) + 0.5) / 14)
        s = 0.02 + 0.98 * nodes
        left, right = np.polyfit(-s, f(at - reach * s), 6), np.polyfit(s, f(at + reach * s), 6)
        off = np.concatenate([np.polyval(left, -s) - f(at - reach * s), np.polyval(right, s) - f(at + reach * s)])
        misfit = float(np.abs(off).max())
        apart = np.polysub(right, left)
        x = 0.0
        for _ in range(30):
            slope = float(np.polyval(np.polyder(apart), x))
            if slope == 0.0:
                break
            x -= float(np.polyval(apart, x)) / slope
            if abs(x) > 0.05:
                x = 0.0
                break
        kink = abs(float(np.polyval(np.polyder(apart), x))) / reach
        if best is None or misfit < best[0]:
            best = misfit, at + reach * x, kink
    assert best is not None
    return best[1], best[2]
